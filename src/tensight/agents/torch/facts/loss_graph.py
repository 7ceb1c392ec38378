"""The functions between a loss and the model, read from autograd's graph before the backward pass frees it.

Every loss function of PyTorch keeps its input and its target for the backward pass, so neither modes nor replaced
functions are needed. Where the training has hooks on saved tensors, those are not called: such tensors are not read.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from tensight.agents.facts.loss_functions import OF_CLASSES, Activation, before_facts, input_facts, target_facts
from tensight.agents.facts.samples import MOST_ELEMENTS, shape_text
from tensight.agents.torch.facts.autograd_functions import (
    MOST_BEFORE,
    PASSING,
    RESHAPING,
    SCALING,
    SUMS,
    exponent_of,
    factor_of,
    first_behind,
    input_of,
    input_of_kind,
    inputs_of,
    is_of_layer,
    kind_of,
    maker_of,
    only_input_of,
    other_factor,
    output_shape,
    saved_by,
)
from tensight.agents.torch.facts.composed_losses import (
    answer_of,
    directions_of,
    divergence_of,
    is_attached_advantage,
    is_divergence,
    is_of_shares,
    is_square,
    is_within_distance,
    margin_of,
    overlap_of,
    product_of_probabilities,
    scale_of_pairs,
    sign_of_divergence,
    sums_of,
)
from tensight.agents.torch.facts.reading import array_of, part_of, plain
from tensight.agents.torch.facts.straight_through import cancels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MOST_FUNCTIONS = 3000
_NEAR_THE_LOSS = 400
"""Number of functions from the loss on among which loss functions are looked for."""

_LOSSES = {
    "NllLoss": "nll_loss",
    "NllLoss2D": "nll_loss",
    "NllLossNd": "nll_loss",
    "BinaryCrossEntropy": "bce",
    "BinaryCrossEntropyWithLogits": "bce_with_logits",
    "MseLoss": "mse_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "HuberLoss": "huber_loss",
    "KlDiv": "kl_div",
    "CtcLoss": "ctc_loss",
}


_ACTIVATIONS = {
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "Sigmoid": "sigmoid",
    "LogSigmoid": "logsigmoid",
    "LogSigmoidForward": "logsigmoid",
    "Tanh": "tanh",
    "Relu": "relu",
    "Softplus": "softplus",
    "Exp": "exp",
    "Log": "log",
    "Clamp": "clamp",
    "Hardsigmoid": "hardsigmoid",
    "Hardtanh": "hardtanh",
    "Mul": "mul",
    "Div": "div",
    "Add": "add",
    "Sub": "sub",
    "Neg": "neg",
    "Mean": "mean",
    "Sum": "sum",
    "Pow": "pow",
    "Sqrt": "sqrt",
    "Abs": "abs",
}

_REDUCTIONS = ("none", "mean", "sum")


MOST_WEIGHTINGS = 64
"""Number of attentions that are written out, of a loss."""

_DROPPED = (*PASSING, "Mul", "Div", "NativeDropout")
_SCORED = (*PASSING, "Mul", "Div", "Add", "Sub", "Where")
"""What stands between the product of queries and keys and its softmax: a scale, and a mask."""


class LossFunction(NamedTuple):
    """A loss function in the graph.

    Attributes
    ----------
    function : str
    node : object
        Its autograd function.
    factor : float
        By which what it returned was multiplied before the backward pass begins, as far as that is known.
    before : list of Activation
        The functions that made its input, the last one first.
    made_shape : tuple of int
        Shape of the input before it was expanded.
    input, target : Tensor or None
    is_alone : bool
        Whether the loss is what it returned, times a factor.
    is_mean : bool
        Whether the loss is the mean of what it returned, times a factor.
    answer : float
        Towards which a logistic loss that is written out leads; NaN for others.
    """

    function: str
    node: Any
    factor: float
    before: list[Activation]
    made_shape: tuple[int, ...]
    input: torch.Tensor | None
    target: torch.Tensor | None
    is_alone: bool = False
    is_mean: bool = False
    answer: float = math.nan


class LossGraph(NamedTuple):
    """What is functions between a loss and the model.

    Attributes
    ----------
    function : str
        Name of the function that made the loss; empty if it was not computed.
    is_connected : bool
        Whether a leaf that requires a gradient is reached; also if the graph is too large to say.
    functions : list of LossFunction
    leaves : list of Tensor
        The tensors that require gradients and were reached.
    elements : int
        Number of elements whose mean the loss is; -1 if that is unknown.
    numbers : frozenset of int
        Sequence numbers of the functions that were reached.
    attentions : tuple of (bool, int, int)
        Of each fused attention, whether it has a mask, and for how many queries and keys it is.
    weightings : tuple of Tensor
        What softmaxes of products of two tensors have put out, with which others are weighed, as in an attention that
        is written out: shape (..., queries, keys).
    cancelling : tuple of int
        Sequence numbers of the sums that add and subtract the same.
    """

    function: str
    is_connected: bool
    functions: list[LossFunction]
    leaves: list[torch.Tensor]
    elements: int = -1
    numbers: frozenset[int] = frozenset()
    attentions: tuple[tuple[bool, int, int], ...] = ()
    weightings: tuple[torch.Tensor, ...] = ()
    cancelling: tuple[int, ...] = ()


class _Path(NamedTuple):
    """A function, and how a loss depends on it."""

    node: Any
    factor: float
    is_alone: bool = True
    is_linear: bool = True


def read(root: torch.Tensor, outputs: Mapping[int, torch.Tensor] = MappingProxyType({})) -> LossGraph:
    """Return what is functions between a loss and the model.

    Parameters
    ----------
    root : Tensor
        The loss.
    outputs : mapping of int to Tensor
        What models have put out, by the sequence numbers of the functions that made it.
    """
    if root.grad_fn is None:
        return LossGraph("", isinstance(root, torch.nn.Parameter), [], [])
    functions: list[LossFunction] = []
    leaves: list[torch.Tensor] = []
    attentions: list[tuple[bool, int, int]] = []
    weightings: list[torch.Tensor] = []
    cancelling: list[int] = []
    is_connected = False
    seen = {root.grad_fn}
    queue = [_Path(root.grad_fn, 1.0)]
    for at, (node, factor, is_alone, is_linear) in enumerate(_growing(queue)):
        name = kind_of(node)
        if name == "AccumulateGrad":
            is_connected = True
            leaves.append(node.variable)
            continue
        # A function of a custom class, or of compiled code, may hide the rest.
        is_connected |= name.startswith(("CompiledFunction", "CheckpointFunction"))
        if at >= MOST_FUNCTIONS:
            is_connected = True
            break
        if name.startswith("ScaledDotProduct"):
            attentions += _attention(node)
        if name == "Bmm" and len(weightings) < MOST_WEIGHTINGS:
            weightings += _weighting(node)
        if name in ("Add", "Sub") and cancels(node):
            cancelling.append(node._sequence_nr())
        if at < _NEAR_THE_LOSS:
            count = len(functions)
            _add_loss(node, name, factor, functions, outputs)
            answer = answer_of(node, factor) if is_linear else None
            if answer is not None:
                before = list(_chain(only_input_of(node)))
                function = LossFunction("logistic", node, answer[1], before, (), answer[2], None, answer=answer[0])
                functions.append(function)
            if is_alone and len(functions) > count:
                functions[count] = functions[count]._replace(is_alone=True)
        # What adds a number, or takes a mean, leaves no room for another term.
        is_single = sum(following is not None for following, _ in node.next_functions) == 1
        is_alone &= name in (*SCALING, "Sum") and is_single
        is_linear &= name in SUMS or (name in (*SCALING, "Sum") and is_single)
        for index, (following, _) in enumerate(node.next_functions):
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(_Path(following, factor * factor_of(node, name, index), is_alone, is_linear))
    numbers = frozenset(node._sequence_nr() for node in seen)
    elements, made_by = _elements(root.grad_fn), kind_of(root.grad_fn)
    functions = [
        each._replace(is_mean=each.is_alone and math.prod(output_shape(each.node)) == elements) for each in functions
    ]
    return LossGraph(
        *(made_by, is_connected, functions, leaves, elements, numbers),
        *(tuple(attentions), tuple(weightings), tuple(cancelling)),
    )


def _attention(node: Any) -> Iterator[tuple[bool, int, int]]:
    """Yield whether a fused attention has a mask, and for how many queries and keys it is, if that is known."""
    query, key = saved_by(node, "query"), saved_by(node, "key")
    if query is not None and key is not None and query.dim() == key.dim() == 4:
        has_mask = any(getattr(node, f"_saved_{name}", None) is not None for name in ("attn_mask", "attn_bias"))
        yield has_mask or bool(getattr(node, "_saved_is_causal", True)), query.shape[-2], key.shape[-2]


def _weighting(node: Any) -> Iterator[torch.Tensor]:
    """Yield what a softmax of scores has put out, if a product weighs something else with that."""
    softmax = first_behind(input_of(node, 0), _DROPPED)
    if kind_of(softmax) != "Softmax":
        return
    scores = first_behind(input_of(softmax, 0), _SCORED)
    weights, shape = saved_by(softmax, "result"), output_shape(softmax)
    is_last = bool(shape) and int(softmax._saved_dim) in (len(shape) - 1, 2**64 - 1)
    if kind_of(scores) == "Bmm" and _is_of_pairs(scores) and is_last and weights is not None:
        yield plain(weights)


def _elements(node: Any, depth: int = 0) -> int:
    """Return the number of elements whose mean a loss is, or 0 if one of its terms is a mean over nothing; else -1."""
    for _ in range(MOST_BEFORE):
        name = kind_of(node)
        inputs = inputs_of(node)
        if name in SUMS and len(inputs) > 1:
            return 0 if depth < MOST_BEFORE and any(_elements(term, depth + 1) == 0 for term in inputs) else -1
        if name == "Mean":
            count = getattr(node, "_saved_self_sym_numel", getattr(node, "_saved_self_numel", -1))
            # Of a mean along axes, only the shape is kept.
            sizes = getattr(node, "_saved_self_sym_sizes", None)
            return int(count) if sizes is None else math.prod(map(int, sizes))
        if name == "Div" and input_of(node, 1) is None:
            other = saved_by(node, "other")
            if other is not None and other.numel() == 1 and not bool(plain(other)):
                return 0
        if name not in (*SCALING, *SUMS) or len(inputs) != 1:
            return -1
        node = inputs[0]
    return -1


def _growing(queue: list[_Path]) -> Iterator[_Path]:
    at = 0
    while at < len(queue):
        yield queue[at]
        at += 1


def is_unscaled(root: torch.Tensor, scale: float) -> bool:
    """Whether a backward pass begins from a loss function, times numbers other than a loss scale."""
    node, index = root.grad_fn, 0
    while kind_of(node) in ("Mul", "Div", "Neg"):
        index = 0 if input_of(node, 0) is not None else 1
        if factor_of(node, kind_of(node), index) in (1.0, scale):
            return False
        node = input_of(node, index)
    return kind_of(node) in _LOSSES


def _add_loss(
    node: Any, name: str, factor: float, functions: list[LossFunction], outputs: Mapping[int, torch.Tensor]
) -> None:
    """Add the loss function that a node is, if it is one."""
    function, after = _LOSSES.get(name, ""), node
    values, target = (saved_by(node, "self"), saved_by(node, "target")) if function else (None, None)
    if function == "ctc_loss":
        values = saved_by(node, "log_probs")
    if not function and ((name == "Pow" and exponent_of(node) == 2.0) or name == "Abs"):
        after = input_of_kind(node, "Sub")
        if after is not None:
            function = "mse_loss" if name == "Pow" else "l1_loss"
            values, target = _subtraction(after, saved_by(node, "self"), _put_out(only_input_of(after), outputs))
    if not function and name == "Sub" and is_divergence(node):
        function, after = "kl_div", input_of(node, 1)
        target = other_factor(after)
    is_of_divergence = any(other.function == "kl_div" and input_of(other.node, 1) is node for other in functions)
    if not function and name == "Mul" and not is_of_divergence and is_of_shares(node):
        function, target = "soft_cross_entropy", other_factor(node)
    if not function and name == "Mul" and factor < 0 and not is_of_divergence:
        function, values, target = product_of_probabilities(node)
    if not function and name == "Div" and (overlap := overlap_of(node)) is not None:
        functions.append(LossFunction("dice", overlap, factor, list(_chain(only_input_of(overlap))), (), None, None))
        return
    if not function and name in ("Index", "Gather") and kind_of(input_of(node, 0)) == "LogSoftmax":
        function = "log_likelihood"
    if any(other.function == "triplet" and is_within_distance(other.node, node) for other in functions):
        return
    if not function and name in ("Relu", "ClampMin", "Clamp") and not math.isnan(margin_of(node)):
        functions.append(LossFunction("triplet", node, factor, [], (), None, None))
        return
    if not function and name == "Mul" and directions_of(node) is not None:
        functions.append(LossFunction("cosine", node, factor, [], (), None, None))
        return
    if not function and name == "Mul" and is_attached_advantage(node):
        functions.append(LossFunction("policy_gradient", node, factor, [], (), None, None))
        return
    is_inner = any(node in sums_of(other.node) for other in functions if other.function == "gaussian_kl")
    if not function and name in SUMS and not is_inner and (sign := sign_of_divergence(node)):
        functions.append(LossFunction("gaussian_kl", node, sign * factor, [], (), None, None))
        return
    if not function and name in ("Sub", "Mul") and is_square(node):
        function = name.lower()
    if not function:
        return
    start, made = (
        only_input_of(after),
        _made_shape(after, is_arithmetic=after is not node or function in ("sub", "mul")),
    )
    before = list(_chain(start))
    if function == "nll_loss" and before and before[0].name == "log_softmax" and _is_of_classes(start, before[0]):
        function = "cross_entropy"
        before = before[1:]
    if function == "soft_cross_entropy":
        before = before[1:]
    if function in ("sub", "mul") and any(
        other.node is node or only_input_of(other.node) is node for other in functions
    ):
        return
    functions.append(LossFunction(function, node, factor, before, made, values, target))


def _is_of_classes(start: Any, softmax: Activation) -> bool:
    """Whether a softmax is over the axis that cross_entropy takes."""
    shape = output_shape(start)
    axes = len(shape)
    if axes and softmax.size not in (-1, shape[1 if axes > 1 else 0]):
        return False
    return kind_of(start) != "LogSoftmax" or softmax.axis == (1 if axes > 1 else 0)


def _put_out(node: Any, outputs: Mapping[int, torch.Tensor]) -> torch.Tensor | None:
    """Return the result of a function, if autograd has kept it, or if it is what a model has put out."""
    kept = None if node is None else saved_by(node, "result")
    for _ in range(MOST_BEFORE):
        if node is None or kept is not None:
            return kept
        kept = outputs.get(node._sequence_nr())
        if kept is None and kind_of(node) not in RESHAPING:
            return None
        node = input_of(node, 0)
    return kept


def _subtraction(
    node: Any, difference: torch.Tensor | None, output: torch.Tensor | None
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return an output and the target that was subtracted from it, in the shape of their difference."""
    if output is None or difference is None or output.numel() != difference.numel():
        return None, None
    values, apart = plain(output).reshape(difference.shape), plain(difference)
    target = values - apart if input_of(node, 0) is not None else values + apart
    # Whole numbers are so but for what rounding has left.
    whole = target.round()
    rounding = 4 * torch.finfo(target.dtype).eps * (values.abs() + apart.abs())
    return values, whole if bool(((target - whole).abs() <= rounding).all()) else target


def _made_shape(node: Any, *, is_arithmetic: bool) -> tuple[int, ...]:
    """Return the shape of the prediction of a loss function, before it was expanded; empty if it was not."""
    before = only_input_of(node)
    if before is None:
        return ()
    if kind_of(before) == "Expand":
        before = only_input_of(before)
    elif not is_arithmetic:
        return ()
    return () if before is None else output_shape(before)


def _chain(node: Any) -> Iterator[Activation]:
    """Yield the functions from a node towards the model, until one has weights or several inputs."""
    count = 0
    while node is not None and count < 4 * MOST_BEFORE:
        count += 1
        name = kind_of(node)
        if name in _ACTIVATIONS:
            axis, size = -1, -1
            if name in ("Softmax", "LogSoftmax"):
                shape = output_shape(node)
                axis = int(node._saved_dim)
                # Axes from the back are stored as unsigned numbers.
                axis = axis - 2**64 if axis >= 2**63 else axis
                axis = axis + len(shape) if axis < 0 else axis
                size = shape[axis] if axis < len(shape) else -1
            yield Activation(_ACTIVATIONS[name], axis, size)
        elif name not in PASSING:
            return
        inputs = inputs_of(node)
        if len(inputs) != 1:
            return
        node = inputs[0]


# --- facts ---


def _is_of_pairs(maker: Any) -> bool:
    """Whether a function is a product of two matrices neither of which is a parameter."""
    if kind_of(maker) not in ("Mm", "Bmm"):
        return False
    return all(kind_of(maker_of(following)) not in ("AccumulateGrad", "") for following, _ in maker.next_functions)


def _is_of_outputs(node: Any) -> bool:
    """Whether a loss function is a distance of two tensors both of which require gradients."""
    if kind_of(node) in ("Pow", "Abs"):
        node = input_of_kind(node, "Sub")
    inputs = [] if node is None else [kind_of(following) for following, _ in node.next_functions]
    # A parameter that outputs are compared with is no output.
    return len(inputs) == 2 and not {"", "AccumulateGrad"}.intersection(inputs)


def facts_of(
    function: LossFunction,
    ids: torch.Tensor | None,
    mask: torch.Tensor | None,
    line: Callable[[str], str],
    padding_index: int = -1,
    later_ids: Sequence[torch.Tensor] = (),
) -> dict[str, Any]:
    """Return the facts of a loss function.

    Parameters
    ----------
    function : LossFunction
    ids : Tensor or None
        The ids of words that the model read in this step.
    mask : Tensor or None
        Which of them count.
    line : callable (function) -> str
        Returns where a function was called.
    padding_index : int
        The id that the embedding of these words takes for padding; -1 if it takes none.
    later_ids : sequence of Tensor
        Those of further inputs, as of a decoder.
    """
    node = function.node
    maker = maker_of(only_input_of(node))
    row: dict[str, Any] = {
        "function": function.function,
        "factor": function.factor,
        "is_alone": function.is_alone,
        "is_of_pairs": _is_of_pairs(maker),
        "pair_scale": scale_of_pairs(only_input_of(node)),
        "is_of_layer": is_of_layer(maker),
        "is_of_outputs": _is_of_outputs(node),
        "line": line(function.function),
        "reduction": _reduction(node) or ("mean" if function.is_mean else ""),
        "made_shape": shape_text(function.made_shape),
        "input_shape": shape_text(output_shape(node)),
        **before_facts(function.before, line),
    }
    given, target = function.input, function.target
    if row["is_of_outputs"] and given is not None and target is not None:
        row["is_of_equals"] = torch.equal(plain(given), plain(target))
    if given is not None and given.is_floating_point():
        row |= input_facts(function.function, given.shape, array_of(part_of(given)))
    if target is not None:
        weight = saved_by(node, "weight") if function.function in OF_CLASSES else None
        row |= target_facts(
            function.function,
            target.shape,
            array_of(part_of(target)),
            function.before,
            ids=None if ids is None or target.numel() > MOST_ELEMENTS else array_of(ids),
            mask=None if mask is None else array_of(mask),
            ignored_index=_ignored_index(node),
            class_weights=None if weight is None else array_of(weight),
            padding_index=padding_index,
            decoder_ids=next((array_of(each) for each in later_ids if each.numel() == target.numel()), None),
        )
    if function.function == "ctc_loss":
        row |= _blank_facts(node)
    if function.function == "cosine":
        directions = directions_of(node)
        row["alignment"] = math.nan if directions is None else float(directions.float().mean(0).norm())
    if function.function == "logistic":
        row["answer"] = function.answer
    if function.function == "triplet":
        row["margin"] = margin_of(node)
    if function.function == "gaussian_kl":
        row["divergence"] = divergence_of(node)
    if function.function not in OF_CLASSES and any(
        saved_by(node, name) is not None for name in ("weight", "pos_weight")
    ):
        row["weightless"] = 0.0
        true_weight = saved_by(node, "pos_weight")
        if true_weight is not None and true_weight.numel() == 1:
            row["true_weight"] = float(true_weight)
    return row


def _blank_facts(node: Any) -> dict[str, Any]:
    """Return which class a `ctc_loss` takes for the blank, and the share of the targets that are it."""
    targets, blank = saved_by(node, "targets"), getattr(node, "_saved_blank", None)
    lengths = getattr(node, "_saved_target_lengths", None)
    if targets is None or not isinstance(blank, int) or targets.numel() > MOST_ELEMENTS:
        return {}
    values = array_of(targets)
    if values.ndim == 2:
        # What follows the end of a text is not read, and often the blank.
        if not isinstance(lengths, (tuple, list)) or len(lengths) != len(values):
            return {}
        values = values[np.arange(values.shape[1]) < np.array(lengths)[:, None]]
    return {"ignored_index": blank, "ignored": float((values == blank).mean()) if values.size else math.nan}


def _reduction(node: Any) -> str:
    number = getattr(node, "_saved_reduction", None)
    return _REDUCTIONS[int(number)] if number is not None and 0 <= int(number) < len(_REDUCTIONS) else ""


def _ignored_index(node: Any) -> int:
    index = int(getattr(node, "_saved_ignore_index", -100))
    # Negative numbers are stored as unsigned ones.
    return index - 2**64 if index >= 2**63 else index
