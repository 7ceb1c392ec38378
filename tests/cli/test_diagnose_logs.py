"""`tensight diagnose` of logs, as a person runs it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

Run = Callable[..., Any]


def falling(count: int, to: float = 0.5) -> list[float]:
    return [to + 2 * math.exp(-at / 10) + 0.02 * math.sin(7 * at) for at in range(count)]


def write_log(path: Path, losses: list[float]) -> Path:
    path.write_text("training\n" + "".join(f"step {at} loss {loss:.4f}\n" for at, loss in enumerate(losses, 1)))
    return path


def test_a_log_is_diagnosed_by_its_name_and_a_finding_has_its_line(tensight: Run, tmp_path: Path) -> None:
    log = write_log(tmp_path / "train.log", [*falling(40), *[math.nan] * 20])
    run = tensight("diagnose", log)
    assert run.code == 1
    assert "The loss is nan from step 41 on; it was" in run.out
    assert "train.log:42" in run.out
    assert "60 entries of logs looked at" in run.out


def test_a_healthy_log_exits_with_0_and_says_which_rules_could_not_judge(tensight: Run, tmp_path: Path) -> None:
    write_log(tmp_path / "train.log", falling(60))
    run = tensight("diagnose", tmp_path)
    assert run.code == 0
    assert "Nothing found" in run.out
    assert "as logs and checkpoints do not have its facts" in run.out
    assert "as the log has no learning rate" in run.out


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("step 1 loss 2.3\nstep 2 loss 2.2\n", "2 entries of a loss; a course is judged from 4 on"),
        ("step 1 took 3 s\n", "no loss"),
        ("", "no facts and no log of a training"),
    ],
)
def test_what_cannot_be_judged_exits_with_2_and_says_why(tensight: Run, tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "train.log").write_text(content)
    run = tensight("diagnose", tmp_path)
    assert run.code == 2
    assert why in run.err


def test_a_folder_without_logs_is_none_that_can_be_judged(tensight: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("loss: 3")
    assert tensight("diagnose", tmp_path).code == 2


def test_the_newest_state_of_a_trainer_is_judged_once(tensight: Run, tmp_path: Path) -> None:
    for last in (20, 60):
        checkpoint = tmp_path / f"checkpoint-{last}"
        checkpoint.mkdir()
        history = [{"loss": loss, "step": at, "epoch": at / 10} for at, loss in enumerate(falling(last), 1)]
        history += [{"loss": 0.0, "grad_norm": math.nan, "step": last + at, "epoch": 9.0} for at in range(1, 9)]
        (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": history, "global_step": last}))
    data = json.loads(tensight("diagnose", "--json", tmp_path).out)
    assert data["steps"] == 68
    assert [finding["rule"] for finding in data["findings"]] == ["gradient-norm-grows"]
    assert data["findings"][0]["where"]["line"].endswith("checkpoint-60/trainer_state.json")


@pytest.mark.parametrize(("last_step", "rules"), [(60, ["schedule-not-stepped"]), (600, [])])
def test_a_warm_up_is_too_long_only_if_the_training_is_over(
    tensight: Run, tmp_path: Path, last_step: int, rules: list[str]
) -> None:
    history = [
        {"loss": loss, "learning_rate": 1e-6 * at, "step": at, "epoch": at / 10}
        for at, loss in enumerate(falling(60), 1)
    ]
    state = {"log_history": history, "global_step": 60, "max_steps": last_step}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    data = json.loads(tensight("diagnose", "--json", tmp_path).out)
    assert [finding["rule"] for finding in data["findings"]] == rules


@pytest.mark.parametrize(
    ("line", "first"),
    [
        (
            "[INFO] [loss_scaler.py] OVERFLOW! Skipping step. Attempted loss scale: {before:g}, reducing to {after:g}",
            65536,
        ),
        ("| NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: {after:g}", 128),
    ],
    ids=["DeepSpeed", "fairseq"],
)
@pytest.mark.parametrize("further", [0, 20])
def test_a_scale_that_is_lowered_to_the_end_has_collapsed(
    tensight: Run, tmp_path: Path, line: str, first: int, further: int
) -> None:
    """Each lowers it some times at the start, too; where the training goes on, it has not collapsed."""
    losses = [f"step {at} loss {loss:.4f}" for at, loss in enumerate(falling(40 + further), 1)]
    lowered = [line.format(before=first / 2**at, after=first / 2 ** (at + 1)) for at in range(22)]
    (tmp_path / "train.log").write_text("\n".join([*lowered[:3], *losses[:40], *lowered[3:], *losses[40:]]) + "\n")
    data = json.loads(tensight("diagnose", "--json", tmp_path).out)
    assert [finding["rule"] for finding in data["findings"]] == ([] if further else ["scale-collapsed"])
    assert further or data["findings"][0]["step"] == 40


def test_each_training_of_a_folder_has_its_findings(tensight: Run, tmp_path: Path) -> None:
    for name, count in (("first", 40), ("second", 50)):
        (tmp_path / name).mkdir()
        write_log(tmp_path / name / "train.log", [*falling(count), *[math.nan] * 20])
    data = json.loads(tensight("diagnose", "--json", tmp_path).out)
    assert [finding["rule"] for finding in data["findings"]] == ["loss-not-finite"] * 2
    assert data["steps"] == 130


def test_reports_show_the_course_and_the_line(tensight: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = write_log(Path("train.log"), [*falling(40), *[math.nan] * 20])
    page = tmp_path / "report.html"
    sarif = json.loads(tensight("diagnose", "--format", "sarif", "--html", page, log).out)
    (result,) = sarif["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 42
    assert "step 41 loss nan" in page.read_text()
    assert "60 entries of loss" in page.read_text()


def train(folder: Path, steps: tuple[int, ...], *, moves: bool) -> None:
    """Train a little, and keep a checkpoint of the model and its optimizer at some steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2 if moves else 0.0)
    for step in range(1, max(steps) + 1):
        optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        optimizer.step()
        if step in steps:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, folder / f"model_{step}.pt")


@pytest.mark.parametrize("moves", [True, False])
def test_two_checkpoints_are_compared(tensight: Run, tmp_path: Path, moves: bool) -> None:
    train(tmp_path, (20, 30, 40), moves=moves)
    run = tensight("diagnose", tmp_path)
    assert run.code == (0 if moves else 1)
    assert ("No weight has changed between" in run.out) is not moves
    assert "tensors of checkpoints looked at" in run.out
    alone = tensight("diagnose", tmp_path / "model_40.pt")
    assert alone.code == 0
    assert "Nothing found" in alone.out


def test_a_file_that_is_no_checkpoint_cannot_be_judged(tensight: Run, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"nonsense")
    run = tensight("diagnose", tmp_path)
    assert run.code == 2
    assert "model.pt" in run.err
