"""What commands print on terminals of several widths: no number is cut."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tensight.cli.output import number, table

Run = Callable[..., Any]
WIDTHS = (60, 80, 100, 200)
NUMBER = re.compile(r"(?<!\S)[-+]?\d[\d,.]*(?:e[-+]\d+)?%?(?!\S)")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_terminal(tensight: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return what a command prints on a terminal with a number of columns."""

    def run(columns: int, *arguments: object) -> str:
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(columns))
            patch.setattr(sys, "stdout", Terminal())
            tensight(*arguments)
            assert isinstance(sys.stdout, Terminal)
            return ESCAPE.sub("", sys.stdout.getvalue())

    return run


@pytest.mark.parametrize(
    "command",
    [
        ("info", "{first}"),
        ("nodes", "{first}", "MatMul"),
        ("stats", "{first}", "--top", "5"),
        ("stats", "{first}", "--sql", "select * from tensors limit 2"),
        ("check", "{first}"),
        ("origin", "{first}"),
        ("show", "{first}", "network.fc1.weight"),
        ("compare", "runs", "{first}", "{second}"),
        ("compare", "checkpoints", "{checkpoint}", "{changed}"),
        ("compare", "losses", "{losses}", "{larger}"),
    ],
    ids=lambda command: " ".join(word for word in command if "{" not in word),
)
def test_every_number_of_a_command_can_be_read_on_every_terminal(
    command: tuple[str, ...],
    tensight: Run,
    on_terminal: Callable[..., str],
    dump_210: Path,
    dump_210_second: Path,
    tmp_path: Path,
) -> None:
    files = {"first": dump_210, "second": dump_210_second, **_checkpoints(tmp_path), **_losses(tmp_path)}
    words = [word.format(**files) for word in command]
    outcome = tensight(*words)
    assert outcome.err == ""
    numbers = set(NUMBER.findall(outcome.out))
    assert numbers
    for columns in WIDTHS:
        lines = [line.rstrip() for line in on_terminal(columns, *words).splitlines()]
        assert [line for line in lines if len(line) > columns] == []
        assert not numbers - set(NUMBER.findall("\n".join(lines))), columns


def _checkpoints(folder: Path) -> dict[str, Path]:
    import numpy as np

    values = {f"layers.{i}.self_attention.query_projection.weight": np.full((512, 512), 1e-5 * i) for i in range(3)}
    np.savez(folder / "first.npz", **values)
    np.savez(folder / "second.npz", **{name: value * 1.23456e12 + 1 for name, value in values.items()})
    return {"checkpoint": folder / "first.npz", "changed": folder / "second.npz"}


def _losses(folder: Path) -> dict[str, Path]:
    for name, factor in (("losses", 1.0), ("larger", 1.2345e12)):
        lines = (f"step {1000 * step} loss {factor / (step + 3)}" for step in range(1, 40))
        (folder / f"{name}.log").write_text("\n".join(lines))
    return {name: folder / f"{name}.log" for name in ("losses", "larger")}


@given(
    st.lists(st.tuples(st.integers(0, 90), st.floats(), st.floats(), st.integers()), min_size=1, max_size=4),
    st.integers(40, 200),
)
def test_a_table_of_any_width_shows_each_number_whole(rows: list[tuple[int, float, float, int]], columns: int) -> None:
    shown = table("name", "a measure of it", "another", "count", right=("a measure of it", "another", "count"))
    for length, *values in rows:
        shown.add_row("n" * length, *map(number, values))
    stream = io.StringIO()
    Console(file=stream, width=columns).print(shown)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= columns
    assert {number(value) for _, *values in rows for value in values} <= set(text.split())
