"""The words of reports beside those of rules, in English and Chinese."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.diagnosis.rule import Words

LANGUAGES = ("en", "zh")

WORDS: Mapping[str, Words] = {
    "title": ("Why it does not learn", "为何学不动"),
    "title-none": ("Nothing was found", "没有发现问题"),
    "title-unjudged": ("Nothing could be judged", "无法判断"),
    "certain": ("certain", "确定"),
    "likely": ("likely", "很可能"),
    "possible": ("possible", "可能"),
    "meaning-certain": ("It follows from the measured facts.", "由测得的事实得出。"),
    "meaning-likely": ("It would also fit an intention that is rare.", "也可能是有意为之，但很少见。"),
    "meaning-possible": ("It is one explanation of several.", "只是几种解释之一。"),
    "since": ("since step {step}", "自第 {step} 步起"),
    "summary": ("{findings}. {steps}.", "{findings}。{steps}。"),
    "silent": ("Silent about: {what}", "不报告：{what}"),
    "steps": ("{count} steps looked at", "已检查 {count} 步"),
    "steps-1": ("1 step looked at", "已检查 1 步"),
    "entries": ("{count} entries of logs looked at", "已检查日志中的 {count} 条记录"),
    "entries-1": ("1 entry of logs looked at", "已检查日志中的 1 条记录"),
    "tensors": ("{count} tensors of checkpoints looked at", "已检查检查点中的 {count} 个张量"),
    "tensors-1": ("1 tensor of checkpoints looked at", "已检查检查点中的 1 个张量"),
    "findings": ("{count} findings", "{count} 项发现"),
    "findings-1": ("1 finding", "1 项发现"),
    "nothing-more": (
        "No rule found a fault in these steps. Faults that no rule knows are not excluded.",
        "没有规则在这些步中发现问题，但不排除规则之外的问题。",
    ),
    "none": (
        "No step of an optimizer of PyTorch or MindSpore was seen: nothing can be judged.",
        "没有看到 PyTorch 或 MindSpore 优化器的任何一步，无法判断。",
    ),
    "failed": ("The training failed", "训练失败"),
    "findings-0": ("Nothing found", "没有发现问题"),
    "after": ("After {steps}: {remark}", "{steps}之后：{remark}"),
    "steps-count": ("{count} steps", "{count} 步"),
    "steps-count-1": ("1 step", "1 步"),
    "advice": ("What to do", "处理建议"),
    "explains": ("explains", "由此引起"),
    "explains-title": ("What follows from it", "由此引起"),
    "rule": ("rule", "规则"),
    "undecided": ("{count} rules could not judge, {why}: {rules}.", "{count} 条规则无法判断（{why}）：{rules}。"),
    "undecided-1": ("1 rule could not judge, {why}: {rules}.", "1 条规则无法判断（{why}）：{rules}。"),
    "undecided-title": ("Rules that could not judge", "无法判断的规则"),
    "passed-title": ("{count} rules looked and found nothing", "{count} 条规则检查后没有发现问题"),
    "passed-title-1": ("1 rule looked and found nothing", "1 条规则检查后没有发现问题"),
    "rules": ("rules", "规则"),
    "why": ("why", "原因"),
    "finds": ("finds", "检查的问题"),
    "loss": ("The loss", "损失"),
    "gaps": ("dashed: nothing is kept of the steps in between", "虚线：其间各步没有保留记录"),
    "not-finite": ("red: NaN or infinite", "红色：NaN 或无穷"),
    "since-mark": ("upright line: step {step}", "竖线：第 {step} 步"),
    "step": ("step {step}", "第 {step} 步"),
    "probes": ("Experiments on one batch", "对一个批次的实验"),
    "setup": ("The set-up, as far as it is known", "训练配置（已知部分）"),
    "command": ("command", "命令"),
    "logs": ("logs", "日志"),
    "framework": ("framework", "框架"),
    "ranks": ("ranks", "rank 数"),
    "models": ("models", "模型"),
    "parameters": ("parameters", "参数"),
    "losses": ("losses", "损失函数"),
    "optimizers": ("optimizers", "优化器"),
    "schedules": ("schedules", "学习率计划"),
    "batches": ("batches", "批次"),
    "scale": ("loss scale", "损失缩放系数"),
    "version": ("Tensight", "Tensight"),
    "parameters-setup": (
        "{count:,} tensors, {elements:,} elements of {dtype}, {frozen:,} of them frozen",
        "{count:,} 个张量，{elements:,} 个 {dtype} 元素，其中冻结 {frozen:,} 个",
    ),
    "loss_functions-setup": ("{function} ({line})", "{function} ({line})"),
    "losses-setup": ("{function} ({line})", "{function} ({line})"),
    "groups-setup": (
        "{name} ({made_line}), learning rate {rate:.4g}, weight decay {decay:.4g}, parameters: {parameters:,}",
        "{name} ({made_line}), 学习率 {rate:.4g}, 权重衰减 {decay:.4g}, 参数: {parameters:,}",
    ),
    "schedules-setup": (
        "{name} ({made_line}), position {position:,}, length {length:,}",
        "{name} ({made_line}), 位置 {position:,}, 长度 {length:,}",
    ),
    "batches-setup": (
        "{batches:,} in an epoch, of {batch_size:,} samples",
        "每个 epoch {batches:,} 个，每个 {batch_size:,} 个样本",
    ),
    "where-line": ("line", "代码行"),
    "where-operator": ("function", "函数"),
    "where-parameter": ("parameters", "参数"),
    "where-module": ("modules", "模块"),
    "where-optimizer": ("optimizer", "优化器"),
    "where-evaluation": ("evaluation", "评估"),
    "where-rank": ("rank", "rank"),
    "losses.value": ("loss", "损失"),
    "evaluations.value": ("evaluation", "评估"),
    "groups.rate": ("learning rate", "学习率"),
    "groups.norm_update": ("gradient norm at the update", "更新时的梯度范数"),
    "parameters.gradient_norm": ("gradient norm of a parameter", "参数的梯度范数"),
    "parameters.moved": ("share of elements that an update changed", "更新改变的元素比例"),
    "parameters.lost": ("share of elements unchanged despite a gradient", "有梯度却未改变的元素比例"),
    "parameters.norm": ("norm of a parameter", "参数的范数"),
}


def text(key: str, language: int, **values: object) -> str:
    """Return words in a language: 0 for English, 1 for Chinese."""
    return WORDS[key][language].format(**values)


def counted(key: str, count: int, language: int, **values: object) -> str:
    """Return words about a number of things; those about one thing or none may have a key of their own."""
    exact = f"{key}-{count}"
    return text(exact if exact in WORDS else key, language, count=f"{count:,}", **values)


def summary(findings: int, steps: int, language: int, unit: str = "steps") -> str:
    """Return how much was found in how many steps, or entries."""
    counts = {"findings": counted("findings", findings, language), "steps": counted(unit, steps, language)}
    return text("summary", language, **counts)
