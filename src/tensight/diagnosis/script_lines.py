"""Where in a script the models and optimizers of a finding are, which rules do not look up themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensight.diagnosis.findings import MOST_NAMED, listed

if TYPE_CHECKING:
    from tensight.diagnosis.facts import Facts
    from tensight.diagnosis.findings import Finding

SCRIPT_LINES = {
    "part": ("the script makes {part}", "脚本创建 {part}"),
    "model": ("the script calls its model {model}", "脚本中调用该模型为 {model}"),
    "made": ("the script makes the optimizer at {made}", "脚本在 {made} 创建该优化器"),
    "scheduler": ("the script makes the schedule at {scheduler}", "脚本在 {scheduler} 创建该学习率计划"),
    "loader": ("the script makes its loader of data at {loader}", "脚本在 {loader} 创建数据加载器"),
    "mode": ("their mode was set last at {mode}", "其模式最后在 {mode} 设置"),
}
"""Evidence for what a place has of them, in English and Chinese."""

_MOST_PARTS = 3


def with_script_lines(finding: Finding, facts: Facts) -> Finding:
    """Return a finding whose place has where what it names is made, and how the script calls its model."""
    schedulers = _schedulers(finding, facts)
    texts = {
        "scheduler": schedulers,
        "made": [] if schedulers else _made(finding, facts),
        "model": _models(finding, facts),
        "part": [] if finding.where.get("line") else _parts(finding, facts),
    }
    more = {name: listed(lines) for name, lines in texts.items() if lines}
    return replace(finding, where={**finding.where, **more}) if more else finding


def _made(finding: Finding, facts: Facts) -> list[str]:
    """Return the lines where the optimizers of a finding are made, each with its optimizer if there are several."""
    table = facts["groups"]
    named = finding.where.get("optimizer", "").split(", ")
    lines = {
        optimizer: line
        for optimizer, line in zip(table["optimizer"].tolist(), table["made_line"].tolist(), strict=True)
        if line and any(name == optimizer or name.startswith(f"{optimizer} group ") for name in named)
    }
    return list(lines.values()) if len(lines) == 1 else [f"{line} ({name})" for name, line in lines.items()]


def _models(finding: Finding, facts: Facts) -> list[str]:
    """Return how the models of a finding's parameters are called, if several models are called."""
    calls, parameters = facts["calls"], facts["parameters"]
    called = {
        model: text for model, text in zip(calls["model"].tolist(), calls["called"].tolist(), strict=True) if text
    }
    if len(set(called.values())) < 2 or not finding.covers:
        return []
    numbers = parameters.last("model")
    of_finding = dict.fromkeys(numbers[name] for name in finding.covers[:MOST_NAMED] if name in numbers)
    return [called[model] for model in of_finding if model in called]


def _schedulers(finding: Finding, facts: Facts) -> list[str]:
    table = facts["schedules"]
    is_of_finding = table["name"] == (finding.where.get("schedule") or None)
    return sorted(set(filter(None, table["made_line"][is_of_finding].tolist())))


def _parts(finding: Finding, facts: Facts) -> list[str]:
    """Return where the first modules of a finding are made, or those of its parameters, as head at train.py:31."""
    lines = dict(zip(facts["made"]["name"].tolist(), facts["made"]["line"].tolist(), strict=True))
    modules = finding.where.get("module") or finding.where.get("parameter", "")
    made: dict[str, list[str]] = {}
    for name in modules.split(", ") if lines else ():
        part = name.partition(" …")[0]
        # A parameter is made with its module, and a module of a library with the one that the script makes.
        while part and part not in lines:
            part = part.rpartition(".")[0]
        if part and part not in made.setdefault(lines[part], []):
            made[lines[part]].append(part)
    return [f"{listed(parts)} at {line}" for line, parts in made.items()][:_MOST_PARTS]
