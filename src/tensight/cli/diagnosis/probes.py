"""The results of probes."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tensight.diagnosis.facts import Facts

NONE = "No probe was tried: no call of a model in PyTorch was seen after step 3."
_MARKS = {"pass": "[green]PASS[/]", "fail": "[bold red]FAIL[/]", "warn": "[yellow]WARN[/]"}
_ANNOUNCEMENT = re.compile(rb"^tensight: e(xperiments [^\n]+)\n", re.MULTILINE)
_UNTRIED = "not tried", "未尝试"
STATEMENTS = {
    "repeatable": ("two runs are equal", "两次运行相同"),
    "evaluation": ("two evaluations are equal", "两次评估相同"),
    "samples": ("a sample does not change the outputs of others", "一个样本不改变其他样本的输出"),
    "inputs": ("inputs and features matter", "输入和特征有影响"),
    "arrangement": ("the order of the words matters", "词的顺序有影响"),
    "positions": ("all positions of a sequence matter", "序列的所有位置都有影响"),
    "order": ("later words do not change earlier outputs", "后面的词不改变前面的输出"),
    "padding": ("padding does not count", "填充不计入"),
    "backward": ("backward functions of the script are derivatives", "脚本的反向函数是导数"),
    "resume": ("resuming from state_dict equals going on", "从 state_dict 恢复等同于继续训练"),
    "loss": ("the loss falls on one batch", "损失在一个批次上下降"),
    "pairs": ("the loss depends on which sample has which target", "损失取决于样本与目标的对应"),
    "rates": ("learning rates were tried on one batch", "在一个批次上尝试了学习率"),
    "all": ("experiments with the model", "对模型的实验"),
}


def announcement(output: bytes) -> str:
    """Return the sentence in the output of a training that tells how long experiments take; empty if there is none."""
    match = _ANNOUNCEMENT.search(output)
    return f"E{match[1].decode()}." if match else ""


def probe_rows(runs: Sequence[Facts]) -> list[dict[str, Any]]:
    """Return what the probes of a run have measured, on the first rank that has any, without what is not known."""
    rows = next((rows for facts in runs if (rows := list(facts["probes"].rows()))), [])
    return [{name: value for name, value in row.items() if _is_known(value)} for row in rows]


def _is_known(value: object) -> bool:
    return math.isfinite(value) if isinstance(value, float) else value not in ("", -1)


def probe_sentences(rows: Sequence[dict[str, Any]], language: int = 0) -> list[tuple[str, str]]:
    """Return the outcome of each probe with a sentence: pass, fail, warn or untried.

    Parameters
    ----------
    rows : sequence of dict
        As `probe_rows` returns them.
    language : int
        0 for English, 1 for Chinese.
    """
    models = {row["model"] for row in rows if row.get("model")}
    sentences = []
    for row in rows:
        outcome = row["outcome"]
        why = row.get("why", "")
        if outcome == "fail" and row["probe"] != "repeatable":
            # The kind of the failure, for rules.
            is_of_state = row["probe"] == "resume"
            why = (
                f"state_dict lacks {row.get('inputs')}" if is_of_state else row.get("line", "") or row.get("inputs", "")
            )
        statement = STATEMENTS[row["probe"]][language] if row["probe"] in STATEMENTS else row["probe"]
        of_model = f"{row['model']}: " if len(models) > 1 and row.get("model") else ""
        sentences.append((outcome, of_model + statement + (f" ({why})" if why else "")))
    return sentences


def outcome_text(outcome: str, language: int = 0) -> str:
    """Return an outcome as a word."""
    return outcome.upper() if outcome in _MARKS else _UNTRIED[language]


def print_probes(out: Console, rows: Sequence[dict[str, Any]], language: int = 0) -> None:
    """Print a line for each probe.

    Parameters
    ----------
    out : Console
    rows : sequence of dict
        As `probe_rows` returns them.
    language : int
        0 for English, 1 for Chinese.
    """
    from rich.markup import escape

    for outcome, sentence in probe_sentences(rows, language):
        mark = _MARKS.get(outcome, f"[dim]{_UNTRIED[language]}[/]")
        out.print(f"{mark} {escape(sentence)}")
    if rows:
        out.print()
