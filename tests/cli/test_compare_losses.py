"""`tensight compare losses` as a person runs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tensight.cli.compare_losses import sparkline

Run = Callable[..., Any]


def log(path: Path, values: list[float]) -> Path:
    path.write_text("".join(f"step {step} loss={value}\n" for step, value in enumerate(values, 1)))
    return path


def test_the_exit_code_and_the_first_line_are_the_verdict(tensight: Run, tmp_path: Path) -> None:
    values = [3 / step for step in range(1, 41)]
    a, b = (
        log(tmp_path / "a.log", values),
        log(tmp_path / "b.log", [*values[:20], *(1.1 * value for value in values[20:])]),
    )
    same, different = tensight("compare", "losses", a, a), tensight("compare", "losses", a, b)
    assert (same.code, different.code) == (0, 1)
    assert same.out.startswith("● Same: the losses are equal at all 40 steps compared.")
    assert different.out.startswith("● Agrees up to step 20 (no difference to be seen) and jumps apart at step 21")
    (row,) = (line for line in different.out.splitlines() if "departs" in line)
    assert row.split()[:3] == ["21", f"{values[20]:.9g}", f"{1.1 * values[20]:.9g}"]
    data = json.loads(tensight("compare", "losses", a, b, "--json").out)
    assert (data["verdict"], data["divergence"], data["departs_at"], data["a"]["name"]) == (
        "different",
        "jump",
        21,
        "loss",
    )
    assert (len(data["points"]), data["points"][20]["is_outside"]) == (40, True)
    assert tensight("compare", "losses", a, b, "--noise", a, "--noise", b).code == 0
    assert tensight("compare", "losses", a, b, "--rtol", "0.2").code == 0
    nothing = tensight("compare", "losses", a, log(tmp_path / "c.log", []))
    assert (nothing.code, nothing.err) == (2, f"tensight: {tmp_path / 'c.log'}: the file is empty [curve-unreadable]\n")


def test_options_choose_the_series_and_the_pattern(tensight: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,loss,aux\n1,2.5,7\n2,1.5,8\n")
    (tmp_path / "b.txt").write_text("<1> 7\n<2> 8\n")
    arguments = (tmp_path / "a.csv", tmp_path / "b.txt", "--pattern", r"(?:<|^)(?P<step>\d+)[>,].*?(?P<loss>\d+)$")
    outcome = tensight("compare", "losses", *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    outcome = tensight("compare", "losses", tmp_path / "a.csv", tmp_path / "a.csv", "--column", "aux")
    assert "a.csv: aux, 2 steps" in outcome.out


def test_the_loss_of_a_dump_is_compared_with_a_log(tensight: Run, dump_210_second: Path, tmp_path: Path) -> None:
    data = json.loads(tensight("compare", "losses", dump_210_second, dump_210_second, "--json").out)
    assert (data["verdict"], data["unit"]) == ("same", "step")
    values = {point["step"]: point["a"] for point in data["points"]}
    assert len(values) == 3
    (tmp_path / "train.jsonl").write_text("".join(f'{{"step": {s}, "loss": {v}}}\n' for s, v in values.items()))
    assert tensight("compare", "losses", dump_210_second, tmp_path / "train.jsonl").code == 0
    wrong = tensight("compare", "losses", dump_210_second, dump_210_second, "--rank", 7)
    assert (wrong.code, "has no rank 7; it has 0" in wrong.err) == (2, True)
    (tmp_path / "folder").mkdir()
    neither = tensight("compare", "losses", tmp_path / "folder", dump_210_second)
    assert (neither.code, "no event files" in neither.err and "no dump" in neither.err) == (2, True)


def test_a_line_of_bars_shows_the_largest_of_each_part() -> None:
    assert sparkline(np.array([0.0, 1e-6, 1e-4, 1e-2, np.inf])) == (" ▁▅█!", 1e-6, 1e-2)
    assert sparkline(np.arange(1000.0), width=4)[0] == "▁▅▇█"
    assert sparkline(np.zeros(3))[0] == "   "
