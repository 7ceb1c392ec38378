"""Logs whose losses need not fall, and files that say too little."""

from __future__ import annotations

import csv
import json
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Generator = np.random.Generator


def _table(path: Path, rows: list[dict[str, float]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _policy(random: Generator, count: int = 200) -> list[dict[str, float]]:
    rows = []
    for at in range(count):
        share = at / count
        rows.append(
            {
                "time/iterations": at + 1,
                "time/total_timesteps": 2048 * (at + 1),
                "rollout/ep_rew_mean": 20 + 400 * (1 - math.exp(-4 * share)) * math.exp(random.normal(0, 0.05)),
                "rollout/ep_len_mean": 200 * math.exp(random.normal(0, 0.1)),
                "train/loss": 5 * (1 + 8 * share) * math.exp(random.normal(0, 0.6)),
                "train/policy_gradient_loss": random.normal(-0.01, 0.005),
                "train/value_loss": 10 * (1 + 20 * share) * math.exp(random.normal(0, 0.5)),
                "train/entropy_loss": -0.69 + 0.5 * share,
                "train/learning_rate": 3e-4,
            }
        )
    return rows


def reinforcement(random: Generator, folder: Path) -> None:
    """Stable-Baselines3: the loss of the value grows with the reward."""
    _table(folder / "progress.csv", _policy(random))


def reinforcement_that_is_forgotten(random: Generator, folder: Path) -> None:
    rows = _policy(random)
    for row in rows[120:]:
        row["rollout/ep_rew_mean"] = 15 * math.exp(random.normal(0, 0.2))
    _table(folder / "progress.csv", rows)


def reinforcement_not_a_number(random: Generator, folder: Path) -> None:
    rows = _policy(random)
    for row in rows[150:]:
        row["train/loss"] = row["train/value_loss"] = math.nan
    _table(folder / "progress.csv", rows)


def _rivals(random: Generator, count: int = 300) -> list[str]:
    lines = []
    for at in range(count):
        judge, maker = 0.6 * math.exp(random.normal(0, 0.3)), (1.5 + 2 * at / count) * math.exp(random.normal(0, 0.3))
        lines.append(f"[{at // 30}/10][{at % 30 * 50}/1500]\tLoss_D: {judge:.4f}\tLoss_G: {maker:.4f}\tD(x): 0.71")
    return lines


def two_models(random: Generator, folder: Path) -> None:
    (folder / "dcgan.log").write_text("\n".join(_rivals(random)) + "\n")


def two_models_not_a_number(random: Generator, folder: Path) -> None:
    lines = _rivals(random)[:200]
    lines += [f"[{at // 30}/10][{at % 30 * 50}/1500]\tLoss_D: nan\tLoss_G: nan\tD(x): nan" for at in range(200, 300)]
    (folder / "dcgan.log").write_text("\n".join(lines) + "\n")


def two_entries(_: Generator, folder: Path) -> None:
    (folder / "train.log").write_text("step 10 loss 2.31\nstep 20 loss 2.29\n")


def no_loss(_: Generator, folder: Path) -> None:
    (folder / "train.log").write_text("".join(f"step {step} took 0.31 s, 412 samples/s\n" for step in range(200)))


def nothing(_: Generator, folder: Path) -> None:
    (folder / "train.log").touch()


def settings_alone(_: Generator, folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"learning_rate": 1e-3, "loss": "cross_entropy", "epochs": 10}))
    (folder / "README.md").write_text("Train with `python train.py`.\n")


OTHERS: dict[Callable[[Generator, Path], None], tuple[str, ...] | None] = {
    reinforcement: (),
    reinforcement_that_is_forgotten: ("evaluation-collapses",),
    reinforcement_not_a_number: ("loss-not-finite",),
    two_models: (),
    two_models_not_a_number: ("loss-not-finite",),
    two_entries: None,
    no_loss: None,
    nothing: None,
    settings_alone: None,
}
