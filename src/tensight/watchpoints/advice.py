"""What a hit means and what to try next, for every condition."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from tensight.watchpoints.catalogue import condition
from tensight.watchpoints.checks import ConditionCheck

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.watchpoints.conditions import Condition


@dataclass(frozen=True, slots=True)
class Advice:
    """Help with a hit.

    Attributes
    ----------
    titles : tuple of str
        Name of the condition for people, in English and in Chinese.
    summary : str
        One sentence: what the condition says about the training.
    steps : tuple of str
        What to do next, most promising first.
    """

    titles: tuple[str, str]
    summary: str
    steps: tuple[str, ...]


_UPSTREAM = (
    "Look at the inputs of the operator that produced this tensor in the same step: if one of them is already"
    " abnormal, go on from there, upstream, until the inputs are sound and the output is not. The page's banner,"
    " `session.origins()` and `tensight origin` do this walk."
)
_LEARNING_RATE_HIGH = (
    "Lower the learning rate by a factor of 3 to 10, or lengthen the warm-up, and see whether the hit comes"
    " later or not at all."
)
_LEARNING_RATE_LOW = (
    "Print the learning rate that the optimizer uses in this step: it may be too low, or a schedule may have"
    " brought it to zero."
)
_GRADIENT_LARGE = (
    "Check the gradients of this weight with gradient_too_large; if they are large, clip them by their global"
    " norm and look for the layer where they grow."
)
_GRADIENT_SMALL = (
    "Check the gradients of this weight with gradient_vanishing; if they are tiny or zero, the cause lies"
    " between the loss and this layer."
)
_OPTIMIZER = (
    "Check the optimizer: its hyper-parameters (epsilon, betas, momentum, weight decay), its moments for"
    " non-finite or huge values, and whether loss scaling is undone before the update."
)
_FROZEN = (
    "Make sure that the weight is meant to be trained and reaches the optimizer: requires_grad is on, its"
    " parameter group includes it, and nothing detaches or stops its gradient."
)
_BEFORE_UPDATE = (
    "Look at the weight before this update: if it was already out of range in the first step, the"
    " initialization or the loaded checkpoint is the cause."
)
_DATA = (
    "Look at the batch of this step: values that are not normalised, missing ones coded as huge numbers, or a"
    " label outside the expected range."
)
_PRECISION = (
    "If the tensor is float16, compare its size with 65504, the largest float16: compute this operator in"
    " float32 or bfloat16, or adjust the loss scale."
)
_DIVISION = (
    "Look for a division by zero, a logarithm or a square root of zero or less, or an exponential of a large"
    " number at the operator's line of code; clamp the argument or add a small constant."
)

_WEIGHT_RANGE_STEPS = (_BEFORE_UPDATE, _LEARNING_RATE_HIGH, _GRADIENT_LARGE, _OPTIMIZER)
_OVERFLOW_STEPS = (_UPSTREAM, _DIVISION, _PRECISION, _DATA)

ADVICE: Mapping[str, Advice] = MappingProxyType(
    {
        "weight_initialization": Advice(
            ("Weight initialization", "权重初始化"),
            "A weight starts with values from which training may never move: all zero, or unusually large.",
            (
                "Check the initializer of this layer in the script; weights of dense and convolution layers"
                " usually start from a Xavier or He distribution, only biases and normalisation shifts from"
                " zero.",
                "If a checkpoint is loaded, compare names and shapes of its entries with the network's: an"
                " entry that was not found leaves the weight as it was constructed.",
                "Check the order of construction, loading and any copying or quantising of weights: a later"
                " step may overwrite a good initialization.",
            ),
        ),
        "weight_overflow": Advice(
            ("Weight overflow", "权重溢出"),
            "A weight holds NaN or infinite elements; every later step computes with them and the training is"
            " lost from here on.",
            (
                "Find the first step with a hit and look at the gradient of this weight there: if it is not"
                " finite, the page's banner, `session.origins()` and `tensight origin` name where that began.",
                _LEARNING_RATE_HIGH,
                _GRADIENT_LARGE,
                _OPTIMIZER,
                "Go back to the last checkpoint before the first hit: values that are not finite do not recover.",
            ),
        ),
        "weight_too_large": Advice(
            ("Weight too large", "权重过大"),
            "A weight has grown beyond the limit that was set, which points to an unstable update.",
            _WEIGHT_RANGE_STEPS,
        ),
        "weight_too_small": Advice(
            ("Weight too small", "权重过小"),
            "A weight has shrunk or drifted below the limit that was set, so its layer may pass on almost nothing.",
            (
                _BEFORE_UPDATE,
                "Lower the weight decay: with little gradient it pulls a weight towards zero in every step.",
                _LEARNING_RATE_LOW,
                _GRADIENT_SMALL,
                _OPTIMIZER,
            ),
        ),
        "weight_not_changed": Advice(
            ("Weight not changed", "权重未变化"),
            "A weight is the same as one step before, within the tolerance: the layer is not learning.",
            (
                _FROZEN,
                _LEARNING_RATE_LOW,
                _GRADIENT_SMALL,
                "Check whether this step was skipped, as loss scaling does after an overflow, or lies between"
                " two updates of gradient accumulation.",
                _OPTIMIZER,
            ),
        ),
        "weight_change_too_large": Advice(
            ("Weight change too large", "权重变化过大"),
            "One update has moved a weight by a large part of its own size, which often comes before divergence.",
            (
                "See whether it happens only in the first updates of a weight that starts at zero; that is harmless.",
                _LEARNING_RATE_HIGH,
                _GRADIENT_LARGE,
                _OPTIMIZER,
            ),
        ),
        "weight_change_too_small": Advice(
            ("Weight change too small", "权重变化过小"),
            "One update has moved a weight by a negligible part of its own size: the layer learns very slowly"
            " or not at all.",
            (_LEARNING_RATE_LOW, _GRADIENT_SMALL, _FROZEN, _OPTIMIZER),
        ),
        "gradient_exploding": Advice(
            ("Gradient exploding", "梯度爆炸"),
            "A gradient holds NaN or infinite elements, and the next update would carry them into the weights.",
            (
                _UPSTREAM,
                "Check the loss of this step: if it is not finite, the cause lies in the forward pass.",
                _DIVISION,
                _PRECISION,
            ),
        ),
        "gradient_too_large": Advice(
            ("Gradient too large", "梯度过大"),
            "A gradient exceeds the limit that was set; the update that follows may throw the weights off.",
            (
                _UPSTREAM,
                "Compare the gradients along the backward pass: where they start to grow from layer to layer,"
                " look at the initialization and at missing normalisation.",
                "Clip gradients by their global norm.",
                _DATA,
            ),
        ),
        "gradient_vanishing": Advice(
            ("Gradient vanishing", "梯度消失"),
            "A gradient is so small that the layers behind it hardly learn.",
            (
                _UPSTREAM,
                "Look at the activation functions on the way: a saturated tanh or sigmoid and a dead ReLU pass"
                " no gradient back; activation_range shows them.",
                "In a deep network without residual connections or normalisation, add them, or choose another"
                " initialization.",
                "In float16, small gradients round to zero: raise the loss scale or use bfloat16.",
            ),
        ),
        "activation_range": Advice(
            ("Activation range", "激活值范围"),
            "An activation function works outside its useful range, for example a saturated tanh or a ReLU that"
            " is almost always off.",
            (
                "Look at the input of the activation function: if it is far from zero, find out what shifted or"
                " scaled it, starting with the weight and bias of the layer before.",
                "Put a normalisation layer before the activation function, or reduce the scale of the initialization.",
                "For a ReLU that is off for the whole batch: lower the learning rate, start biases at or above"
                " zero, or use a leaky variant.",
                _UPSTREAM,
            ),
        ),
        "tensor_overflow": Advice(
            ("Tensor overflow", "张量溢出"), "A tensor holds NaN or infinite elements.", _OVERFLOW_STEPS
        ),
        "operator_overflow": Advice(
            ("Operator overflow", "算子溢出"),
            "The device reported that this operator exceeded the range of its number format while computing,"
            " even if its output looks finite.",
            (
                _UPSTREAM,
                _PRECISION,
                "Check the operator's intermediate sums: a long reduction or a large product overflows before"
                " the result is scaled back.",
                "With dynamic loss scaling, a rare overflow is expected; many in a row mean that the scale does"
                " not settle.",
            ),
        ),
        "tensor_too_large": Advice(
            ("Tensor too large", "张量过大"), "A tensor exceeds the limit that was set.", (_UPSTREAM, _DATA, _PRECISION)
        ),
        "tensor_too_small": Advice(
            ("Tensor too small", "张量过小"),
            "A tensor lies below the limit that was set.",
            (_UPSTREAM, _DATA, "In float16, numbers below about 6e-8 round to zero: compute this operator in float32."),
        ),
        "tensor_all_zero": Advice(
            ("Tensor all zero", "张量全为零"),
            "A tensor consists of zeros, or of more zeros than was allowed, so it carries no information on.",
            (
                "Decide whether zeros are normal here: a mask, a counter, a bias or a moment before its first update.",
                _UPSTREAM,
                "If the inputs are not zero, look for a dead ReLU, a multiplication by an empty mask, dropout"
                " with a rate of 1, or an integer division.",
                _DATA,
            ),
        ),
        "unintended_zeros": Advice(
            ("Unintended zeros", "意外全零"),
            "A tensor consists of zeros though what it was computed from does not: here the network stops carrying"
            " anything on.",
            (
                "Look at the inputs of the operator: a mask that is empty, or the wrong way round, a dead ReLU, dropout"
                " with a rate of 1, an integer division, or an index that always finds the padding makes zeros of"
                " them.",
                "In float16, numbers below about 6e-8 round to zero: compute this operator in float32.",
                "If the zeros are meant, a branch that is switched off for a while, leave the operator out of the"
                " watchpoint.",
            ),
        ),
        "tensor_range": Advice(
            ("Tensor range", "张量取值范围"),
            "The values of a tensor are spread differently from what was expected.",
            (
                _UPSTREAM,
                "Look at the tensor's histogram: one far outlier, a shift of everything, and a collapse to one"
                " value have different causes.",
                _DATA,
            ),
        ),
        "dead_units": Advice(
            ("Dead units", "神经元失活"),
            "Many units of an activation function are zero for the whole batch: they pass on nothing, and no gradient"
            " brings them back.",
            (
                "Look at the bias of the layer before, and at the shift of a normalisation between them: if it is far"
                " below zero, find the update, or the initialization, that made it so.",
                _LEARNING_RATE_HIGH,
                "Use a leaky variant of the function, or put a normalisation layer before it.",
                _GRADIENT_LARGE,
            ),
        ),
        "saturated_units": Advice(
            ("Saturated units", "神经元饱和"),
            "Many units of an activation function are at their limits for almost the whole batch, where it passes back"
            " hardly any gradient.",
            (
                "Look at the input of the activation function: if it is far from zero, find out what scaled it,"
                " starting with the weight of the layer before and with data that are not normalised.",
                "Reduce the scale of the initialization, or put a normalisation layer before the function.",
                _LEARNING_RATE_HIGH,
            ),
        ),
        "weights_differ": Advice(
            ("Weights differ between ranks", "各卡权重不一致"),
            "Ranks that train one network together hold different values of a weight: from here on each trains a"
            " network of its own.",
            (
                "Find the first step with a hit: if it is the start, the ranks were initialised differently (seeds, a"
                " checkpoint that only one of them loaded).",
                "Make sure that every rank runs the same operators, and that gradients are reduced for all parameters;"
                " a module called outside of the wrapper is not.",
                "If each rank gathers the weight for itself, as a running mean, leave it out of the watchpoint.",
            ),
        ),
        "unintended_overflow": Advice(
            ("Unintended overflow", "意外溢出"),
            "A tensor holds NaN or infinite elements that no mask put there.",
            _OVERFLOW_STEPS,
        ),
        "weight_growth": Advice(
            ("Weight growth", "权重骤增"),
            "One update has made a weight many times larger, which hardly any training survives.",
            (
                _LEARNING_RATE_HIGH,
                _GRADIENT_LARGE,
                _OPTIMIZER,
                "See whether something else than the optimizer writes to the weight: a callback, weight averaging, a"
                " checkpoint that is loaded.",
            ),
        ),
        "gradient_growth": Advice(
            ("Gradient growth", "梯度骤增"),
            "A gradient is far larger than any before it.",
            (
                "Look at the batch of this step, and at its loss: one sample with a wrong label or a huge value can do"
                " this.",
                _LEARNING_RATE_HIGH,
                "Clip gradients by their global norm.",
                _UPSTREAM,
            ),
        ),
        "gradient_imbalance": Advice(
            ("Gradient imbalance", "梯度失衡"),
            "Layers far from the loss get gradients that are many orders of magnitude smaller, or larger, than those"
            " near it.",
            (
                "Compare the gradients along the backward pass: they shrink, or grow, from layer to layer where"
                " activations saturate, weights are too small or too large, or nothing normalises.",
                "In a deep network without residual connections or normalisation, add them, or choose another"
                " initialization.",
                "In a recurrent network, shorten the sequence, clip gradients, or use gates.",
                _PRECISION,
            ),
        ),
    }
)
"""Advice for each condition but the legacy ones."""

_LEGACY = {"nan": "tensor_overflow", "inf": "tensor_overflow"}
_LEGACY |= dict.fromkeys(("max_gt", "min_gt", "mean_gt"), "tensor_too_large")
_LEGACY |= dict.fromkeys(("max_lt", "min_lt", "mean_lt"), "tensor_too_small")
_LEGACY |= dict.fromkeys(("max_min_gt", "max_min_lt", "sd_gt", "sd_lt"), "tensor_range")


def advice(subject: str | Condition | ConditionCheck) -> Advice:
    """Return what a hit of a condition means and what to do next.

    Parameters
    ----------
    subject : str, Condition or ConditionCheck
        A condition, by its id or abbreviation or itself, or a check of it. A legacy condition has the advice of the one
        that replaced it; a condition that a user registered has its own meaning and the general steps.

    Returns
    -------
    Advice
        Never without steps.

    Raises
    ------
    InputError
        There is no such condition.
    """
    chosen = subject.condition if isinstance(subject, ConditionCheck) else subject
    found = condition(chosen) if isinstance(chosen, str) else chosen
    known = ADVICE.get(_LEGACY.get(found.id, found.id))
    if known is not None:
        return known
    return Advice((found.id, found.id), found.meaning or f"The condition {found.id} hit.", (_UPSTREAM, _DATA))
