"""Rules about shapes: views that mix axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.diagnosis.findings import Finding
from tensight.diagnosis.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts


def mixed_axes(facts: Facts) -> Iterator[Finding]:
    """Find views that give axes each other's sizes, but leave their elements in place, so that samples' parts mix."""
    table = facts["views"]
    rows = {row["line"]: row for row in reversed(list(table.rows()))}
    for line, row in rows.items():
        before, _, after = row["name"].partition(" as ")
        values = {"before": before.replace("x", "×"), "after": after.replace("x", "×"), "line": line}
        where = {"operator": "view", "line": line}
        yield Finding("axes-mixed", "likely", row["step"], row["kind"], values, where)


RULES = (
    Rule(
        "axes-mixed",
        "broadcasting",
        ("views",),
        mixed_axes,
        {
            "swapped": (
                "A view makes {after} of {before} ({line}): the axes change their sizes, but not their elements, which mixes them",
                "{line} 处的 view 把 {before} 变成 {after}：轴的大小互换了，元素却没有，从而混在一起",
            ),
            **dict.fromkeys(
                ("heads_apart", "heads_together"),
                (
                    "A view makes {after} of {before} ({line}): heads and positions are mixed",
                    "{line} 处的 view 把 {before} 变成 {after}：注意力头与位置混在一起",
                ),
            ),
        },
        {},
        (
            "Swap axes with transpose or permute; a view only counts the same elements anew",
            "用 transpose 或 permute 交换轴；view 只是重新划分同样的元素",
        ),
        (
            "Axes of equal size, and views that join or split neighbouring axes.",
            "大小相同的轴，以及合并或拆分相邻轴的 view。",
        ),
        frozenset(("loss-stays", "pictures-reshaped")),
        8,
        advice_on={
            "heads_apart": (
                "Split the last axis first, then swap: x.view(B, T, H, D).transpose(1, 2)",
                "先拆分最后一个轴再交换：x.view(B, T, H, D).transpose(1, 2)",
            ),
            "heads_together": (
                "Swap first, then join: x.transpose(1, 2).reshape(B, T, H * D)",
                "先交换再合并：x.transpose(1, 2).reshape(B, T, H * D)",
            ),
        },
    ),
)
