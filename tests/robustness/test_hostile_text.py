"""Names and arguments that are commands for a terminal, for Rich, for a parser: they are text, nothing else."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.dumps.dump_writer import DumpWriter, GraphWriter

Run = Callable[..., Any]

NAMES = {
    "markup": "[red]x[/]",
    "closing markup": "[/]",
    "link": "[link=file:///etc/passwd]x[/link]",
    "backslash": "x\\",
    "emoji": "a:on:b",
    "colour": "\x1b[31mred",
    "title of the window": "\x1b]0;owned\x07",
    "cleared screen": "\x1bc\x9b2J",
    "right to left": "\u202egnp.exe",
    "carriage return": "good\rbad",
    "spreadsheet": "=cmd|' /C calc'!A0",
    "up and out": "../../../etc/passwd",
    "nothing": "\x00",
    "long": "a" * 5000,
    "wide": "网络层🔥" * 3,
}
COMMANDS = (
    ("info",),
    ("nodes", "", "--limit", "9"),
    ("nodes", "", "--json"),
    ("check", "--watch", "TO", "--watch", "TL(max_gt=1)"),
    ("check", "--watch", "TO", "--json"),
    ("check", "--watch", "TO", "--format", "csv"),
    ("origin",),
    ("stats",),
    ("stats", "--format", "csv"),
    ("export", "--npz", "--out", "OUT"),
    ("export", "--xlsx", "--out", "OUT"),
)


def obeys_no_command(text: str) -> bool:
    return not any(char in text for char in "\x1b\x07\x9b\r\x00\x08\u202e")


def hostile_dump(root: Path, name: str) -> Path:
    """Write a dump whose scope, operator type, parameter, source file and code carry a name."""
    writer, graph = DumpWriter(root, version=name), GraphWriter()
    graph.parameter(f"{name}.weight").constant("cst1", f"Default--{name}--data-1")
    graph.operator(f"Default/{name}/Add-op1", inputs=(f"{name}.weight",))
    graph.operator(f"Default/{name}/{name}-op2", name, inputs=("1",))
    writer.graph(graph)
    for iteration in (0, 1):
        writer.tensor(iteration, "Add.Add-op1", np.array([np.inf, 1], np.float32))
        if "/" not in name and "\0" not in name and len(name) < 100:
            writer.tensor(iteration, f"{name}.{name}-op2", np.array([np.nan, 1], np.float32))
            writer.tensor(iteration, f"no {name}", np.array([np.nan, 1], np.float32))
            (writer.folder(iteration) / name).write_bytes(b"no tensor")
    return root


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_in_a_dump_are_printed_and_not_obeyed(tensight: Run, tmp_path: Path, name: str) -> None:
    dump = hostile_dump(tmp_path / "dump", name)
    for command, *options in COMMANDS:
        arguments = [str(tmp_path / "out") if option == "OUT" else option for option in options]
        outcome = tensight(command, dump, *arguments)
        assert outcome.code in (0, 1), (command, outcome.err)
        assert obeys_no_command(outcome.out + outcome.err), command
        if "--json" in options:
            assert name in str(json.loads(outcome.out)) or "\\" in repr(name)
        if "csv" in options:
            assert len({len(row) for row in csv.reader(io.StringIO(outcome.out))}) == 1
    if name.isprintable() and len(name) < 100:
        assert f"Default/{name}/Add-op1" in tensight("nodes", dump, "Add").out
    with np.load(tmp_path / "out" / "dump.npz") as archive:
        assert not any(".." in member.split("/") for member in archive.files)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name in NAMES.values() if len(name) < 50 and set(name).isdisjoint("/\0")])
def test_the_folder_of_a_dump_may_be_called_anything(tensight: Run, whole: Path, tmp_path: Path, name: str) -> None:
    parent = tmp_path / f"{name} 1"
    parent.symlink_to(whole)
    for command, *options in COMMANDS[:-2]:
        outcome = tensight(command, parent, *options)
        assert obeys_no_command(outcome.out + outcome.err)
        assert outcome.code in (0, 1)
    missing = tensight("info", tmp_path / name / "nowhere")
    assert missing.code == 2
    assert missing.err.count("\n") == 1 + name.count("\n")
    assert obeys_no_command(missing.err)


#: Words that a parser, a database or the expression compiler may stumble over.
AWKWARD = (
    *NAMES.values(), "", "-1", "(", "(?P<a", "[[a]", "(" * 200, "a{99999999999}", "(?i", "\\", "*", "a" * 100_000,
    "9" * 5000, "x:" + "9" * 5000, "x@" + "9" * 5000, "[" + "9" * 5000 + "]", "[::0]", "[0,0,0,0,0,0]", "[...]",
    "0-99999999", "TL(max_gt=" + "9" * 5000 + ")", "TL(max_gt=1e999)", "TL(max_gt=nan)", "TL(" * 100,
    "select", "select 1; select 2", "drop table tensors", "select 1 a, 2 a", "select * from read_csv('/etc/passwd')",
    "copy tensors to 'x'", "install httpfs", "select * from tensors where false", "attach 'x.db'", "pragma version",
    "select blob '\\xAA', interval 1 day, date '2000-01-01', 1.5::decimal(4,2), map {1: 2}, uuid(), 'nan'::float",
    "select 'a\x1b[31m' as \"[red]\"", "select * from range(3) r(i)", "select {'a': 1}, [1, 2], true, null",
)  # fmt: skip
PLACES = ("nodes", "regex", "show", "slice", "watch", "on", "sql", "npz", "ranks", "sort", "node")
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), st.sampled_from(AWKWARD) | TEXTS)
def test_any_argument_is_used_or_refused_in_one_line(
    tensight: Run, tiny: Path, tmp_path: Path, place: str, text: str
) -> None:
    commands = {
        "nodes": ("nodes", tiny, "--", text),
        "regex": ("nodes", tiny, "--regex", "--", text),
        "show": ("show", tiny, "--", text),
        "slice": ("show", tiny, "Add-op1:0@1", f"--slice={text}"),
        "watch": ("check", tiny, f"--watch={text}"),
        "on": ("check", tiny, "--watch", "TO", f"--on={text}"),
        "sql": ("stats", tiny, f"--sql={text}"),
        "npz": ("export", tiny, "--npz", f"--on={text}", "--out", tmp_path / f"out{len(os.listdir(tmp_path))}"),
        "ranks": ("check", tiny, f"--ranks={text}"),
        "sort": ("stats", tiny, f"--sort={text}"),
        "node": ("compare-steps", tiny, "1", "2", "--", text),
    }
    outcome = tensight(*commands[place])
    assert outcome.code in (0, 1, 2)
    assert obeys_no_command(outcome.err + outcome.out)
    assert not os.path.exists("x")
    if outcome.code == 2:
        assert outcome.err.startswith("tensight: ") or "Usage" in outcome.err


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    writer = DumpWriter(tmp_path_factory.mktemp("tiny"))
    writer.graph(GraphWriter().parameter("conv.weight").operator("Default/Add-op1", inputs=("conv.weight",)))
    for iteration in (0, 1):
        writer.tensor(iteration, "Add.Add-op1", np.arange(6, dtype=np.float32).reshape(2, 3))
    return writer.root


@pytest.mark.long
def test_names_that_are_no_utf8_and_terminals_without_unicode_are_no_obstacle(tiny: Path, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff\xfe"
    Path(os.fsdecode(folder)).symlink_to(tiny)
    for command in ("info", "check", "stats", "origin"):
        program = [sys.executable, "-W", "error", "-m", "tensight", command, folder]
        done = subprocess.run(program, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=60)
        assert done.returncode in (0, 1)
        assert done.stderr == b""
        assert done.stdout.isascii()


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_on_a_terminal_only_our_own_colours_are_commands(name: str) -> None:
    from rich.markup import escape

    from tensight.cli.literal_console import LiteralConsole
    from tensight.cli.output import table

    terminal = io.StringIO()
    out = LiteralConsole(file=terminal, force_terminal=True, color_system="truecolor", width=10_000, emoji=False)
    rows = table("name")
    rows.add_row(escape(name))
    out.print(f"[bold]{escape(name)}[/]", rows)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert obeys_no_command(plain)
    assert "\x1b[31m" not in terminal.getvalue()
    assert plain.count(name if name.isprintable() else ascii(name)[1:-1]) == 2
