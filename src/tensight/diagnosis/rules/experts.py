"""Rules about mixtures of experts, of which a router chooses some for each row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import MOST_NAMED, Finding, listed
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.parameters import where_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts

_LONG, _READS = 60, 20
"""Number of steps after which a router has settled, and of those that were read."""

_LATE = 8
"""Number of the steps that were read in the second half of a training from which on something is said of it."""

_NONE = 0.01
"""Share of the rows below which an expert is next to never chosen."""

_ROWS = 2
"""Number of rows of a step for each expert from which on all of them could be chosen."""

_SHOWN = 16
"""Number of experts whose rows are shown."""


def collapsed(facts: Facts) -> Iterator[Finding]:
    """Find mixtures of experts whose router sends nearly all rows to a few experts, and never comes back to others."""
    by_message: dict[str, list[Finding]] = {}
    for finding in _collapsed(facts):
        by_message.setdefault(finding.message, []).append(finding)
    for alike in by_message.values():
        # Of several layers, the numbers are those of the first.
        name = listed([str(finding.values["name"]) for finding in alike], 1)
        modules = listed([finding.where["module"] for finding in alike], MOST_NAMED)
        yield replace(
            alike[0],
            values={**alike[0].values, "name": name},
            where={**alike[0].where, "module": modules},
            covers=tuple(covered for finding in alike for covered in finding.covers),
        )


def _collapsed(facts: Facts) -> Iterator[Finding]:
    table = facts["experts"]
    for name in table.names:
        of_name = table["name"] == name
        steps, taken = table["step"][of_name], table["taken"][of_name]
        given = np.array([text.split() for text in table["rows"][of_name].tolist()], np.int64)
        if len(steps) < _READS or steps[-1] - steps[0] < _LONG or not (taken >= _ROWS * given.shape[1]).all():
            continue
        router = str(table["router"][of_name][0])
        if not router and not ((given > 0).sum(1) > 1).any():
            # It may be the script that chooses, as the head of a task.
            continue
        # Most steps that are read are the first ones.
        half = int(np.searchsorted(steps, steps[-1] / 2, side="right"))
        if len(given) - half < _LATE:
            continue
        before, after = given[:half].sum(0), given[half:].sum(0)
        shares = after / after.sum()
        chosen = max(round(float(given.sum() / taken.sum())), 1)
        is_used = shares >= _NONE
        # While rows still move to other experts, a term that balances them may be at work.
        is_settled = before[is_used].sum() / before.sum() <= shares[is_used].sum() + _NONE
        count = len(shares)
        if is_used.sum() > max(chosen, count // 4) or 2 * chosen > count or not is_settled:
            continue
        within = [each for each in facts["parameters"].names if each.startswith(f"{name}.")]
        parts = sorted(
            {each.removeprefix(f"{name}.").partition(".")[0] for each in within}, key=lambda part: (len(part), part)
        )
        # They are numbered, also where a dictionary has them.
        idle = {part for part, is_chosen in zip(parts, is_used.tolist(), strict=False) if not is_chosen}
        # One module may have the weights of all.
        is_apart = len(parts) == count
        names = [each for each in within if not is_apart or each.removeprefix(f"{name}.").partition(".")[0] in idle]
        if not names:
            continue
        values = {
            "name": name,
            "used": int(is_used.sum()),
            "count": count,
            "share": float(shares[is_used].sum()),
            "at": int(shares.argmax()),
            "rows": " ".join(map(str, after[:_SHOWN].tolist())) + (" …" if count > _SHOWN else ""),
            "steps": len(given) - half,
            "chosen": chosen,
        }
        message = "one" if is_used.sum() == 1 else "few"
        where = {**where_of(facts["parameters"], names), "module": f"{router}, {name}".lstrip(", ")}
        # Of a softmax that is all but certain, the router has no gradient either.
        names += [each for each in facts["parameters"].names if router and each.startswith(f"{router}.")]
        yield Finding("router-collapsed", "likely", int(steps[half]), message, values, where, tuple(names))


RULES = (
    Rule(
        "router-collapsed",
        "activations",
        ("experts",),
        collapsed,
        {
            "one": (
                "The router of {name} sends {share:.1%} of its rows to one of {count} experts, number {at}",
                "{name} 的路由器把 {share:.1%} 的行都送到 {count} 个专家中的一个，即第 {at} 个",
            ),
            "few": (
                "The router of {name} sends {share:.1%} of its rows to {used} of {count} experts",
                "{name} 的路由器把 {share:.1%} 的行都送到 {count} 个专家中的 {used} 个",
            ),
        },
        dict.fromkeys(
            ("one", "few"),
            (
                "rows that each expert was given in the last {steps} steps that were read: {rows}; each row is given to {chosen}",
                "在读取的最后 {steps} 步中各专家得到的行数：{rows}；每行送到 {chosen} 个专家",
            ),
        ),
        (
            "Add a loss that balances the load, or noise to the scores; look at what the router is given, at its bias, and"
            " whether the indices of topk choose",
            "添加平衡负载的损失或给得分加噪声；检查路由器的输入、偏置，以及用于选择的是否是 topk 的索引",
        ),
        (
            "Experts without a router beside them, as those of tasks and domains; fewer than four; the first 60 steps, and"
            " steps with few rows.",
            "旁边没有路由器的专家 (如按任务或领域划分)；少于四个专家；最初 60 步以及行数很少的步。",
        ),
        frozenset(("no-gradient", "zero-gradient")),
        12,
    ),
)
