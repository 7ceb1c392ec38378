"""Ctrl-C in the middle of the work, and files that promise or hold more than memory can take."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.dumps.dump_writer import DumpWriter, GraphWriter, part
from tests.robustness.damages import NPY_HEADERS

ROOM_BYTES = 1_500 * 2**20
"""Address space of a process that reads hostile files; a third of it is the interpreter and Arrow."""

#: Runs the command and interrupts itself once the third group of tensors was read: no clock decides when that is.
INTERRUPTED = """
import os, signal, sys, threading
from tensight.analysis.statistics_table import StatisticsTable
from tensight.cli import main
fill, lock, seen = StatisticsTable.fill, threading.Lock(), []
def counted(table, visits):
    fill(table, visits)
    with lock:
        seen.append(visits)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGINT)
StatisticsTable.fill = counted
main()
"""


def environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "TENSIGHT_CACHE_DIR": str(cache)}


def run(cache: Path, *arguments: object, program: tuple[str, ...] = ("-m", "tensight"), **options: Any) -> Any:
    return subprocess.run(
        [sys.executable, "-W", "error", *program, *map(str, arguments)],
        env=environment(cache), capture_output=True, text=True, timeout=90, **options,
    )  # fmt: skip


def run_in_little_memory(cache: Path, *arguments: object) -> Any:
    return run(
        cache, *arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ROOM_BYTES, ROOM_BYTES))
    )  # fmt: skip


def graph() -> GraphWriter:
    return GraphWriter().parameter("w").operator("Default/Add-op1", inputs=("w",))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_an_interrupted_check_says_so_in_one_line_and_keeps_what_it_read(tmp_path: Path, threads: int) -> None:
    writer = DumpWriter(tmp_path / "dump")
    writer.graph(graph())
    for iteration in range(60):
        values = np.full(2**16, iteration, np.float32)
        values[:1] = np.nan
        writer.tensor(iteration, "Add.Add-op1", values)
    arguments = ("check", writer.root, "--watch", "TO", "--json", "--threads", threads)
    stopped = run(tmp_path / "cache", *arguments, program=("-c", INTERRUPTED))
    assert (stopped.returncode, stopped.stdout) == (130, "")
    assert stopped.stderr == "tensight: stopped; what was read so far is kept\n"
    assert len(list((tmp_path / "cache").rglob("statistics-0.parquet"))) == 1
    again, fresh = run(tmp_path / "cache", *arguments), run(tmp_path / "empty", *arguments)
    assert (again.returncode, again.stderr) == (1, "")
    assert again.stdout == fresh.stdout
    assert json.loads(fresh.stdout)["hits"] == 60


@pytest.mark.parametrize(("command", "module"), [("info", "cli.dump_summary"), ("check", "cli.app")])
def test_ctrl_c_while_the_program_starts_is_no_traceback(tmp_path: Path, command: str, module: str) -> None:
    program = "import tensight.cli, sys\nclass Late:\n def find_spec(self, name, *_):\n"
    program += f"  if {module!r} in name: raise "
    program += "KeyboardInterrupt\nsys.meta_path.insert(0, Late())\ntensight.cli.main()"
    stopped = run(tmp_path, command, tmp_path, program=("-c", program))
    assert (stopped.returncode, stopped.stderr.count("\n")) == (130, 1)


def many_scopes(folder: Path) -> None:
    deep = "/".join(["a"] * 1_000_000)
    (folder / "graphs/ms_output_trace_code_graph_0.pb").write_bytes(graph().operator(f"{deep}/Add-op2").data())


def long_string(folder: Path) -> None:
    (folder / "graphs/ms_output_trace_code_graph_0.pb").write_bytes(graph().operator("x" * 100_000_000).data())


def long_source_line(folder: Path) -> None:
    writer = graph()
    writer.body += part(
        1, part(2, "7") + part(3, "Mul") + part(8, "Default/Mul-op7") + part(9, "# In file " * 5_000_000)
    )
    (folder / "graphs/ms_output_trace_code_graph_0.pb").write_bytes(writer.data())


def nested_messages(folder: Path) -> None:
    value = b""
    for _ in range(20_000):
        value = part(4, value)
    (folder / "graphs/ms_output_trace_code_graph_0.pb").write_bytes(value)


def long_order(folder: Path) -> None:
    (folder / "execution_order/ms_execution_order_graph_0.csv").write_bytes(b"x" * 100_000_000)


def endless_order(folder: Path) -> None:
    with (folder / "execution_order/ms_execution_order_graph_0.csv").open("wb") as file:
        file.truncate(2**40)


def long_history(folder: Path) -> None:
    (folder / "execution_order/ms_global_execution_order_graph_0.csv").write_bytes(b"7" * 100_000_000)


def long_mapping(folder: Path) -> None:
    (folder / "Net/0/0/mapping.csv").write_bytes(b"1," + b"y" * 100_000_000)


def long_statistic(folder: Path) -> None:
    (folder / "Net/0/0/statistic.csv").write_bytes(b"Op Type," * 12_000_000)


def deep_settings(folder: Path) -> None:
    (folder / ".dump_metadata/data_dump.json").write_bytes(b"[" * 50_000_000)


def endless_settings(folder: Path) -> None:
    with (folder / ".dump_metadata/config.json").open("wb") as file:
        file.truncate(2**40)


def huge_header(folder: Path) -> None:
    (tensor,) = (folder / "Net/0/1").glob("*.npy")
    tensor.write_bytes(NPY_HEADERS["2**60 elements"])


def huge_tensor(folder: Path) -> None:
    """A tensor of one gigabyte, all of it a hole: it must be looked at a piece at a time."""
    (tensor,) = (folder / "Net/0/1").glob("*.npy")
    header = NPY_HEADERS["2**60 elements"][:128].replace(str(2**60).encode(), str(2**28).encode().ljust(19))
    with tensor.open("wb") as file:
        file.write(header)
        file.truncate(128 + 2**30)


def huge_binary(folder: Path) -> None:
    with (folder / "Net/0/1/Cast.Cast-op9.3.7.1795211550299999").open("wb") as file:
        file.write((2**62).to_bytes(8, "little"))
        file.truncate(2**40)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    "damage",
    [
        many_scopes, long_string, long_source_line, nested_messages, long_order, endless_order, long_history,
        long_mapping, long_statistic, deep_settings, endless_settings, huge_header, huge_tensor, huge_binary,
    ],
)  # fmt: skip
def test_files_larger_than_memory_are_refused_or_read_in_pieces(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    writer = DumpWriter(tmp_path / "dump")
    writer.graph(graph())
    for iteration in (0, 1):
        writer.tensor(iteration, "Add.Add-op1", np.array([np.nan, 1], np.float32))
    damage(writer.root / "rank_0")
    outcome = run_in_little_memory(tmp_path / "cache", "check", writer.root, "--watch", "TO", "--json")
    assert (outcome.returncode, outcome.stderr[-300:]) == (1, "")
    hits = json.loads(outcome.stdout)["watchpoints"][0]["hits"]
    assert {1} <= {hit["step"] for hit in hits} <= {1, 2}
    assert len(outcome.stdout) < 1_000_000
