"""What rules find: what is wrong, where, since when, by what evidence, how certain, and what to try next."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Certainty = Literal["certain", "likely", "possible"]

CATEGORIES: Mapping[str, tuple[str, str]] = {
    "gradient-cut": ("no gradient", "没有梯度"),
    "gradient-zero": ("gradient exactly 0", "梯度恒为 0"),
    "not-in-optimizer": ("not in an optimizer", "不在优化器中"),
    "optimizer": ("optimizer", "优化器"),
    "learning-rate": ("learning rate", "学习率"),
    "clipping": ("clipping", "梯度裁剪"),
    "scaling": ("scale of loss or gradients", "损失或梯度的缩放"),
    "precision": ("precision", "精度"),
    "undone": ("update undone", "更新被撤销"),
    "frozen": ("frozen", "被冻结"),
    "loss": ("loss", "损失"),
    "output-and-loss": ("output and loss do not fit", "输出与损失不匹配"),
    "targets": ("targets", "目标"),
    "broadcasting": ("broadcasting", "广播"),
    "accumulated-gradients": ("clearing of gradients", "梯度清零"),
    "ranks": ("ranks differ", "各 rank 不一致"),
    "mode": ("training or evaluation mode", "训练或评估模式"),
    "normalisation": ("normalization", "归一化"),
    "tied-weights": ("tied weights", "权重共享"),
    "averages": ("averages of weights", "权重平均"),
    "initialization": ("initialization", "初始化"),
    "activations": ("silent or saturated units", "失活或饱和的单元"),
    "data": ("data", "数据"),
    "evaluation": ("evaluation", "评估"),
    "backward": ("backward function", "反向函数"),
    "custom": ("rule of yours", "自定义规则"),
}
"""Names of the kinds of faults, in English and Chinese."""

SHOWN_FACTS: Mapping[str, str] = {
    "loss": "losses.value",
    "evaluation": "evaluations.value",
    "gradient-cut": "parameters.gradient_norm",
    "gradient-zero": "parameters.gradient_norm",
    "not-in-optimizer": "parameters.moved",
    "frozen": "parameters.moved",
    "undone": "parameters.moved",
    "precision": "parameters.lost",
    "tied-weights": "parameters.norm",
    "learning-rate": "groups.rate",
    "optimizer": "groups.norm_update",
    "clipping": "groups.norm_update",
    "accumulated-gradients": "groups.norm_update",
    "scaling": "groups.norm_update",
}
"""The fact whose course shows most of a fault, by its kind; of the others, none does."""


@dataclass(frozen=True)
class Finding:
    """A fault that a rule has found.

    Attributes
    ----------
    rule : str
        Id of the rule.
    certainty : {"certain", "likely", "possible"}
        "certain" follows from the facts; "likely" also fits a rare intention; "possible" is one explanation of several.
    step : int
        The first step in which it is seen.
    message : str
        Which of the rule's sentences applies.
    values : mapping
        What the sentence and the evidence name.
    where : mapping of str to str
        The place: ``parameter``, ``module``, ``optimizer``, ``operator``, ``line``, ``rank``. `diagnose` adds
        ``model``, ``made`` and ``scheduler``.
    covers : tuple of str
        The parameters that it explains; empty if it explains the training as a whole.
    framework : str
        With which the training runs; `diagnose` sets it.
    """

    rule: str
    certainty: Certainty
    step: int
    message: str
    values: Mapping[str, Any] = field(default_factory=dict)
    where: Mapping[str, str] = field(default_factory=dict)
    covers: tuple[str, ...] = ()
    framework: str = "torch"


class ReportedRule(NamedTuple):
    """A rule of a user, as it was applied in the training: its file is not there where the facts are judged.

    Attributes
    ----------
    id, category, advice, fact : str
        As in `tensight.diagnosis.rule.Rule`, in one language.
    failure : str
        Why it could not judge; empty if it could.
    findings : tuple of Finding
        With their sentences among their values.
    """

    id: str
    category: str
    advice: str
    fact: str
    failure: str
    findings: tuple[Finding, ...]


MOST_NAMED = 40
"""Number of parameters or modules that a finding names as its place."""


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return some names for a sentence: the first ones, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} … ({len(names)})"


def folded(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings about groups of optimizers, with those that say the same of several groups as one.

    Parameters
    ----------
    findings : iterable of Finding
        Of one rule; their values name a ``group``.
    """
    alike: dict[tuple[str, int], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.message, finding.step), []).append(finding)
    for several in alike.values():
        first, groups = several[0], [finding.values["group"] for finding in several]
        numbers = [{**finding.values, "group": ""} for finding in several]
        # Numbers that differ are those of the first group.
        most = 3 if all(each == numbers[0] for each in numbers) else 1
        yield replace(
            first,
            values={**first.values, "group": listed(groups, most)},
            where={**first.where, "optimizer": listed(groups, MOST_NAMED)},
            covers=tuple(dict.fromkeys(name for finding in several for name in finding.covers)),
        )
