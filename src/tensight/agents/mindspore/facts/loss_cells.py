"""Loss functions that are called as cells in PyNative mode, and what the backward pass shows of their inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensight.agents.facts.loss_functions import Activation, before_facts, input_facts, target_facts
from tensight.agents.facts.samples import shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mindspore import nn
    from numpy.typing import NDArray

    from tensight.agents.mindspore.facts.reading import Reading

LOSSES = {
    "SoftmaxCrossEntropyWithLogits": "cross_entropy",
    "CrossEntropyLoss": "cross_entropy",
    "NLLLoss": "nll_loss",
    "BCELoss": "bce",
    "BCEWithLogitsLoss": "bce_with_logits",
    "MSELoss": "mse_loss",
    "MSELossExt": "mse_loss",
    "L1Loss": "l1_loss",
    "L1LossExt": "l1_loss",
    "MAELoss": "l1_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "HuberLoss": "huber_loss",
    "KLDivLoss": "kl_div",
}
"""Classes of MindSpore, and the functions of ``loss_functions``."""

ACTIVATIONS = {
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "LogSoftmaxExt": "log_softmax",
    "Sigmoid": "sigmoid",
    "LogSigmoid": "logsigmoid",
    "Tanh": "tanh",
    "ReLU": "relu",
    "Relu": "relu",
    "Softplus": "softplus",
    "SoftplusExt": "softplus",
    "Exp": "exp",
    "Log": "log",
    "HSigmoid": "hardsigmoid",
    "Mul": "mul",
    "Muls": "mul",
    "RealDiv": "div",
    "Div": "div",
    "Divs": "div",
    "Add": "add",
    "AddExt": "add",
    "AddScalar": "add",
    "Sub": "sub",
    "SubExt": "sub",
    "SubScalar": "sub",
    "Neg": "neg",
}
"""Operators of MindSpore, and the names of ``before``."""

PASSING = frozenset(
    (
        *("Reshape", "View", "Transpose", "TransposeView", "Squeeze", "ExpandDims", "Cast", "Contiguous", "Clone"),
        *("StridedSlice", "Slice", "SliceExt", "Concat", "Flatten", "Identity", "BroadcastTo", "Depend", "Load"),
    )
)
"""Operators that hand on values."""

MOST_BEFORE = 12
MOST_FUNCTIONS = 3000
_AS_SHARE = ("softmax", "log_softmax")


class RootGraph(NamedTuple):
    """What the functions of a backward pass show of a loss.

    Attributes
    ----------
    function : str
        Name of the function that made it; empty if none did.
    leaves : frozenset of int
        Identities of the functions at which the backward pass ends.
    signs : dict of int to float
        By the identity of a function: the factor, 1 or -1, with which its result goes into the loss. Functions behind
        others than a negation are left out.
    """

    function: str
    leaves: frozenset[Any]
    signs: dict[Any, float]


def read_root(root: Any) -> RootGraph | None:
    """Return what leads to a loss; None if this MindSpore does not link the functions of a backward pass."""
    node = getattr(root, "_grad_node", None)
    if node is None:
        return RootGraph("", frozenset(), {})
    if not hasattr(node, "next_functions"):
        return None
    leaves, signs = set(), {node._unique_id(): 1.0}
    seen = {node._unique_id()}
    queue = [node]
    for function in _growing(queue):
        if function.is_leaf():
            leaves.add(function._unique_id())
            continue
        sign = signs.get(function._unique_id())
        factor = -1.0 if function.name() == "Neg" else 1.0 if function.name() in PASSING else None
        for following, _ in function.next_functions:
            if following is None:
                continue
            identity = following._unique_id()
            if sign is not None and factor is not None:
                signs[identity] = sign * factor
            if identity not in seen and len(seen) < MOST_FUNCTIONS:
                seen.add(identity)
                queue.append(following)
    return RootGraph(node.name(), frozenset(leaves), signs)


def _growing(queue: list[Any]) -> Iterator[Any]:
    at = 0
    while at < len(queue):
        yield queue[at]
        at += 1


def before_of(tensor: Any, values: NDArray[Any] | None) -> list[Activation]:
    """Return the functions that made a tensor, the last one first, until one has weights or several inputs."""
    names: list[str] = []
    node, count = getattr(tensor, "_grad_node", None), 0
    while node is not None and hasattr(node, "next_functions") and count < 4 * MOST_BEFORE:
        count += 1
        name = node.name()
        if name in ACTIVATIONS:
            names.append(ACTIVATIONS[name])
        elif name not in PASSING:
            break
        inputs = [following for following, _ in node.next_functions if following is not None]
        node = inputs[0] if len(inputs) == 1 else None
    return activations(names[:MOST_BEFORE], values)


def activations(names: Sequence[str], values: NDArray[Any] | None, axis: int | None = None) -> list[Activation]:
    """Return the functions before a loss function; of a softmax before all others with its axis.

    Parameters
    ----------
    names : sequence of str
        The last one first.
    values : ndarray or None
        The input of the loss function.
    axis : int or None
        Of the softmax, negative from the back; None to see it from the values.
    """
    result = [Activation(name) for name in names]
    if result and names[0] in _AS_SHARE and values is not None and values.ndim:
        if axis is None:
            axis = _axis_of_shares(np.exp(values) if names[0] == "log_softmax" else values)
        if axis is not None and -values.ndim <= axis < values.ndim:
            axis %= values.ndim
            result[0] = Activation(names[0], axis, int(values.shape[axis]))
    return result


def _axis_of_shares(values: NDArray[Any]) -> int | None:
    """Return the only axis along which values sum to 1; None if there is none or several."""
    numbers = values.astype(np.float64)
    axes = [axis for axis in range(numbers.ndim) if np.allclose(numbers.sum(axis), 1, atol=1e-2)]
    return axes[0] if len(axes) == 1 else None


def loss_facts(
    function: str,
    called: str,
    values: NDArray[Any] | None,
    target: NDArray[Any] | None,
    before: Sequence[Activation],
    *,
    ids: NDArray[Any] | None,
    ignored_index: int = -100,
    class_weights: NDArray[Any] | None = None,
    line: Callable[[str], str],
) -> dict[str, Any]:
    """Return the facts of a loss function.

    Parameters
    ----------
    function : str
    called : str
        As the script calls it.
    values, target : ndarray or None
        Its input and target, as far as known.
    before : sequence of Activation
        What made the input.
    ids : ndarray or None
        The ids of words that the network read in this step.
    ignored_index : int
    class_weights : ndarray, shape (classes,), optional
    line : callable (function) -> str
        Returns where it, or an activation, was called.
    """
    if function == "nll_loss" and before and before[0].name == "log_softmax":
        is_of_classes = values is None or before[0].axis in (-1, 1 if values.ndim > 1 else 0)
        if is_of_classes:
            function, before = "cross_entropy", before[1:]
    facts: dict[str, Any] = {
        "function": function,
        "called": called,
        "line": line(function),
        **before_facts(before, line),
    }
    if values is not None:
        facts |= input_facts(function, values.shape, values)
        if target is not None and function in _PAIRED and values.shape != target.shape:
            facts |= _broadcast(values.shape, target.shape)
    if target is None or not target.size:
        return facts
    if function in ("cross_entropy", "nll_loss") and target.dtype.kind == "f":
        facts |= _shares(target)
        return facts
    return facts | target_facts(
        function,
        target.shape,
        target,
        before,
        ids=ids,
        ignored_index=ignored_index,
        class_weights=class_weights,
    )


_PAIRED = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")


def _broadcast(shape: Sequence[int], other: Sequence[int]) -> dict[str, Any]:
    try:
        both = np.broadcast_shapes(tuple(shape), tuple(other))
    except ValueError:
        return {}
    return {"made_shape": shape_text(shape), "input_shape": shape_text(both)}


def _shares(target: NDArray[Any]) -> dict[str, Any]:
    """Return the facts of targets that are shares of the classes, in place of numbers of classes."""
    numbers = target.astype(np.float64)
    facts: dict[str, Any] = {
        "target_shape": shape_text(target.shape),
        "target_min": float(numbers.min()),
        "target_max": float(numbers.max()),
        "ignored": 0.0,
        "offset": -1,
    }
    if numbers.ndim == 2:
        facts["target_row_sum"] = float(numbers.sum(1).mean())
    is_one_hot = (
        numbers.ndim == 2 and bool(((numbers == 0) | (numbers == 1)).all()) and bool((numbers.sum(1) == 1).all())
    )
    if is_one_hot:
        classes, counts = np.unique(numbers.argmax(1), return_counts=True)
        facts |= {
            "target_classes": " ".join(map(str, classes.tolist())),
            "target_counts": " ".join(map(str, counts.tolist())),
        }
    return facts


def reduction_of(cell: nn.Cell, output: Any) -> str:
    """Return the reduction of a loss cell: none, mean or sum; empty if it is unknown."""
    chosen = getattr(cell, "reduction", None)
    if isinstance(chosen, str) and chosen in ("none", "mean", "sum"):
        return chosen
    if output.size > 1:
        return "none"
    if getattr(cell, "reduce", None) is True:
        return "mean" if getattr(cell, "average", False) else "sum"
    return ""


def given_to(reading: Reading, tensors: Sequence[Any]) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """Return input and target of a loss cell."""
    values = reading.part(tensors[0]) if tensors else None
    target = reading.part(tensors[1]) if len(tensors) > 1 else None
    return values, target
