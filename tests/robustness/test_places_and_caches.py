"""Where a dump lies, and in which state its cache is, must not change what is found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensight.analysis import Analysis, store
from tensight.cache import CACHE_VARIABLE
from tensight.debugger import DumpAnalyzer
from tensight.dumps import open_dump
from tensight.errors import DumpError, TensightError
from tests.robustness.whole_dump import snapshot

Run = Callable[..., Any]
CHECK = ("--json", "--recommended", "--watch", "TO", "--watch", "TL(max_gt=1e3)")


def hits(tensight: Run, dump: object, *options: object) -> list[tuple[str, str]]:
    """Return address and condition of every hit."""
    outcome = tensight("check", dump, *CHECK, *options)
    assert outcome.code == 1, outcome.err
    assert outcome.err == ""
    points = json.loads(outcome.out)["watchpoints"]
    return [(hit["address"] or hit["op_name"], point["check"]) for point in points for hit in point["hits"]]


def command(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    variables = {**os.environ, **environment}
    program = [sys.executable, "-W", "error", "-m", "tensight", *map(str, arguments)]
    return subprocess.Popen(program, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("spelling", ["{}/", "{}//./", "{}/rank_0/..", "relative", "link", "file://{}"])
def test_a_dump_is_the_same_however_it_is_named(
    tensight: Run, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    (tmp_path / "link").symlink_to(whole)
    monkeypatch.chdir(whole.parent if spelling == "relative" else tmp_path)
    name = {"relative": whole.name, "link": "link"}.get(spelling, spelling.format(whole))
    assert hits(tensight, name) == hits(tensight, whole)


@pytest.mark.parametrize(
    "name", ["with spaces", "网络", "a::b", "zip:", "#1?x=y", "*", "[ab]", "~", "$HOME", "-n", "a\nb"]
)
def test_a_dump_opens_in_a_folder_of_any_name(
    tensight: Run, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    dump = tmp_path / "x" / name
    shutil.copytree(whole, dump)
    assert hits(tensight, dump) == hits(tensight, whole)
    monkeypatch.chdir(dump)
    assert hits(tensight, ".") == hits(tensight, whole)
    assert DumpAnalyzer(dump).get_iterations() == [2, 3]


@pytest.mark.parametrize(
    "what", ["", "nowhere", "file", "folder", "pipe", "null byte", "loop", "too long", "empty rank"]
)
def test_what_is_no_dump_is_one_line(tensight: Run, tmp_path: Path, what: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty rank" / "rank_0").mkdir(parents=True)
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    path = {"null byte": "a\0b", "too long": "a/" * 5000}.get(what, str(tmp_path / what))
    with pytest.raises(DumpError):
        open_dump(path)
    with pytest.raises(TensightError):
        DumpAnalyzer(path)
    for name in ("info", "check", "origin", "stats"):
        outcome = tensight(name, path)
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert outcome.err.startswith("tensight: ")


def test_graphs_of_another_run_are_noticed(tensight: Run, dump_copy: Callable[[str], Path], tmp_path: Path) -> None:
    sick, healthy = dump_copy("sick-2.0.0"), dump_copy("healthy-2.0.0")
    before = len(json.loads(tensight("check", sick, "--watch", "TO", "--json").out)["watchpoints"][0]["hits"])
    graph = "rank_0/graphs/ms_output_trace_code_graph_0.pb"
    shutil.copyfile(healthy / graph, sick / graph)
    outcome = tensight("check", sick, "--watch", "TO", "--json")
    data = json.loads(outcome.out)
    assert len(data["watchpoints"][0]["hits"]) == before
    assert any("another run" in problem["advice"] for problem in data["problems"])
    for name in ("info", "origin", "stats", "check"):
        assert tensight(name, sick).code in (0, 1)


def _read_only(cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o555)


def _dangling(cache: Path) -> None:
    cache.symlink_to("nowhere/at/all")


@pytest.mark.parametrize("make", [_read_only, _dangling])
def test_without_a_cache_that_can_be_written_the_answer_is_the_same(
    tensight: Run, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    expected = hits(tensight, whole)
    make(tmp_path / "no cache")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "no cache"))
    assert hits(tensight, whole) == hits(tensight, whole) == expected
    assert tensight("info", whole).code == 0


def test_a_cache_that_is_a_file_is_refused_in_one_line(
    tensight: Run, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    for name in ("info", "check", "origin", "stats"):
        outcome = tensight(name, whole)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert "is not a folder" in outcome.err
    assert len(DumpAnalyzer(whole).check_watchpoints([])) == 0


def test_a_cache_of_an_unknown_person_is_no_error(tensight: Run, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole.parent)
    monkeypatch.setenv(CACHE_VARIABLE, "~nobody-is-called-this/cache")
    assert tensight("info", whole).code == 0


def _filled(whole: Path, cache: Path) -> tuple[Path, Any]:
    table = Analysis(open_dump(whole), cache_dir=cache).table()
    store.finish_writing()
    (file,) = cache.rglob(store.file_name(0))
    return file, table.to_pylist()


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_table_is_computed_anew(whole: Path, tmp_path: Path, part: float) -> None:
    file, expected = _filled(whole, tmp_path / "cache")
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * part)])
    assert str(_filled(whole, tmp_path / "cache")[1]) == str(expected)
    assert file.read_bytes() == content or file.stat().st_size > len(content) // 2


def test_flipped_bytes_anywhere_in_the_table_never_become_a_number(whole: Path, tmp_path: Path) -> None:
    file, expected = _filled(whole, tmp_path / "cache")
    content, random = file.read_bytes(), np.random.default_rng(3)
    for length in (1, 4, 64) * 12:
        start = int(random.integers(len(content) - length))
        file.write_bytes(content[:start] + random.bytes(length) + content[start + length :])
        assert str(_filled(whole, tmp_path / "cache")[1]) == str(expected)


def test_the_cache_of_a_later_version_is_left_alone_and_not_believed(whole: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    file, expected = _filled(whole, tmp_path / "cache")
    table = pq.read_table(file)
    for about in ('{"format": 99, "ranges": 7}', "[]", '{"format": 1}', "{", "[" * 100_000):
        pq.write_table(table.replace_schema_metadata({"tensight": about}), file)
        assert str(_filled(whole, tmp_path / "cache")[1]) == str(expected)
    pq.write_table(table.select(["path", "max"]).replace_schema_metadata(table.schema.metadata), file)
    assert str(_filled(whole, tmp_path / "cache")[1]) == str(expected)


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff", b"null", b'{"fingerprint": 1}', b"1" * 10_000])
def test_a_damaged_summary_is_made_anew(tensight: Run, whole: Path, tmp_path: Path, content: bytes) -> None:
    expected = tensight("info", whole, "--json")
    (summary,) = (tmp_path / "cache").rglob("summary.json")
    summary.write_bytes(content)
    assert tensight("info", whole, "--json") == expected


def test_two_processes_share_a_cache(whole: Path, tmp_path: Path) -> None:
    before = snapshot(whole)
    cache = str(tmp_path / "shared")
    processes = [command("check", whole, *CHECK, TENSIGHT_CACHE_DIR=cache) for _ in range(2)]
    outcomes = [(*process.communicate(timeout=60), process.returncode) for process in processes]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1:] == ("", 1)
    third = command("check", whole, *CHECK, TENSIGHT_CACHE_DIR=cache)
    assert third.communicate(timeout=60)[0] == outcomes[0][0]
    assert snapshot(whole) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read")
def test_what_may_not_be_read_is_listed_and_the_rest_is_analysed(whole: Path) -> None:
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)
        dump = Path(shutil.copytree(whole, Path(base) / "dump"))
        (tensor,) = dump.glob("rank_0/Sick/0/2/Log.Log-op144.*.output.0.*.npy")
        closed = [
            tensor,
            dump / "rank_0/Sick/0/constants",
            dump / "rank_0/execution_order/ms_execution_order_graph_0.csv",
        ]
        (dump / "rank_0" / "private").mkdir()
        for path in (*closed, dump / "rank_0" / "private"):
            path.chmod(0)
        program = (
            "import contextlib, io, os; from tensight.cli import main\n"
            # Nobody may read the interpreter's own files everywhere, so that all must be imported before.
            "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n    main()\n"
            "os.setgid(65534); os.setuid(65534); main()"
        )
        variables = {**os.environ, "TENSIGHT_CACHE_DIR": str(Path(base) / "cache"), "TENSIGHT_KERNELS": "numpy"}
        done = subprocess.run(
            [sys.executable, "-c", program, "check", dump, "--watch", "TO", "--json"],
            env=variables, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (1, "")
        found = json.loads(done.stdout)
        told = str(found["problems"])
        assert all(path.name in told for path in closed)
        assert found["hits"] > 5
