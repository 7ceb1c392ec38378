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
from tensight.agents.torch.facts.reading import array_of, part_of, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

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
_PASSING = frozenset(
    (
        *("View", "UnsafeView", "Reshape", "ReshapeAlias", "Permute", "Transpose", "T", "Squeeze", "Unsqueeze"),
        *("Expand", "ToCopy", "Clone", "Slice", "Select", "Index", "IndexSelect", "Gather", "Alias", "Contiguous"),
        *("Cat", "Stack", "Unbind", "Split", "SplitWithSizes", "Narrow", "Flatten", "Unflatten", "AsStrided"),
        *("MaskedSelect", "Pad", "ConstantPadNd", "MaskedFill", "Chunk"),
    )
)
"""Functions that hand on values."""

_ORDERING = _PASSING - {"Gather", "Index"}
"""Those that pick no values of a class."""

_RESHAPING = frozenset(("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Select", "Alias"))
"""Functions after which values are in the same order, if none is left out."""

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
_SCALING = frozenset(("Mul", "Div", "Neg", "ToCopy", "Clone", "View", "Squeeze", "Mean"))
"""Functions that multiply a loss, or take its mean."""

_SUMS = ("Add", "Sub", "Rsub")
_REDUCTIONS = ("none", "mean", "sum")
_MOST_BEFORE = 12


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
    """

    function: str
    is_connected: bool
    functions: list[LossFunction]
    leaves: list[torch.Tensor]
    elements: int = -1
    numbers: frozenset[int] = frozenset()
    attentions: tuple[tuple[bool, int, int], ...] = ()


class _Path(NamedTuple):
    """A function, and how a loss depends on it."""

    node: Any
    factor: float
    is_alone: bool = True


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
    is_connected = False
    seen = {root.grad_fn}
    queue = [_Path(root.grad_fn, 1.0)]
    for at, (node, factor, is_alone) in enumerate(_growing(queue)):
        name = _kind(node)
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
        if at < _NEAR_THE_LOSS:
            count = len(functions)
            _add_loss(node, name, factor, functions, outputs)
            if is_alone and len(functions) > count:
                functions[count] = functions[count]._replace(is_alone=True)
        # What adds a number, or takes a mean, leaves no room for another term.
        is_alone &= (
            name in (*_SCALING, "Sum") and sum(following is not None for following, _ in node.next_functions) == 1
        )
        for index, (following, _) in enumerate(node.next_functions):
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(_Path(following, factor * _factor(node, name, index), is_alone))
    numbers = frozenset(node._sequence_nr() for node in seen)
    elements, made_by = _elements(root.grad_fn), _kind(root.grad_fn)
    functions = [
        each._replace(is_mean=each.is_alone and math.prod(output_shape(each.node)) == elements) for each in functions
    ]
    return LossGraph(made_by, is_connected, functions, leaves, elements, numbers, tuple(attentions))


def _attention(node: Any) -> Iterator[tuple[bool, int, int]]:
    """Yield whether a fused attention has a mask, and for how many queries and keys it is, if that is known."""
    query, key = _saved(node, "query"), _saved(node, "key")
    if query is not None and key is not None and query.dim() == key.dim() == 4:
        has_mask = any(getattr(node, f"_saved_{name}", None) is not None for name in ("attn_mask", "attn_bias"))
        yield has_mask or bool(getattr(node, "_saved_is_causal", True)), query.shape[-2], key.shape[-2]


def _elements(node: Any, depth: int = 0) -> int:
    """Return the number of elements whose mean a loss is, or 0 if one of its terms is a mean over nothing; else -1."""
    for _ in range(_MOST_BEFORE):
        name = _kind(node)
        inputs = [following for following, _ in node.next_functions if following is not None]
        if name in _SUMS and len(inputs) > 1:
            return 0 if depth < _MOST_BEFORE and any(_elements(term, depth + 1) == 0 for term in inputs) else -1
        if name == "Mean":
            count = getattr(node, "_saved_self_sym_numel", getattr(node, "_saved_self_numel", -1))
            # Of a mean along axes, only the shape is kept.
            sizes = getattr(node, "_saved_self_sym_sizes", None)
            return int(count) if sizes is None else math.prod(map(int, sizes))
        if name == "Div" and _edge(node, 1) is None:
            other = _saved(node, "other")
            if other is not None and other.numel() == 1 and not bool(plain(other)):
                return 0
        if name not in (*_SCALING, *_SUMS) or len(inputs) != 1:
            return -1
        node = inputs[0]
    return -1


def _growing(queue: list[_Path]) -> Iterator[_Path]:
    at = 0
    while at < len(queue):
        yield queue[at]
        at += 1


_NO_MEAN = ("Sub", "Div", "Exp", "AccumulateGrad")
"""What makes a tensor whose square is of no mean of a sample's distribution: a difference, a deviation, a weight."""


def _kind(node: Any) -> str:
    if node is None:
        return ""
    name: str = node.name().rpartition("::")[2]
    return name.rstrip("0123456789").removesuffix("Backward")


def is_unscaled(root: torch.Tensor, scale: float) -> bool:
    """Whether a backward pass begins from a loss function, times numbers other than a loss scale."""
    node, index = root.grad_fn, 0
    while _kind(node) in ("Mul", "Div", "Neg"):
        index = 0 if _edge(node, 0) is not None else 1
        if _factor(node, _kind(node), index) in (1.0, scale):
            return False
        node = _edge(node, index)
    return _kind(node) in _LOSSES


def _factor(node: Any, name: str, index: int) -> float:
    """Return the number by which a function multiplies what it is given at an index; 1 for other functions."""
    if name in ("Neg", "Rsub") or (name == "Sub" and index == 1):
        return -1.0
    if name in ("Mul", "Div"):
        other = _saved(node, "other" if index == 0 else "self")
        if other is not None and other.numel() == 1 and other.device.type == "cpu" and not other.is_complex():
            value = float(plain(other))
            return value if name == "Mul" else 1 / value if value and index == 0 else 1.0
    return 1.0


def _add_loss(
    node: Any, name: str, factor: float, functions: list[LossFunction], outputs: Mapping[int, torch.Tensor]
) -> None:
    """Add the loss function that a node is, if it is one."""
    function, after = _LOSSES.get(name, ""), node
    values, target = (_saved(node, "self"), _saved(node, "target")) if function else (None, None)
    if function == "ctc_loss":
        values = _saved(node, "log_probs")
    if not function and ((name == "Pow" and _exponent(node) == 2.0) or name == "Abs"):
        after = _previous(node, "Sub")
        if after is not None:
            function = "mse_loss" if name == "Pow" else "l1_loss"
            values, target = _subtraction(after, _saved(node, "self"), _put_out(_only_edge(after), outputs))
    if not function and name == "Sub" and _is_divergence(node):
        function, after = "kl_div", _edge(node, 1)
        target = _saved(after, "other" if _edge(after, 0) is not None else "self")
    is_of_divergence = any(other.function == "kl_div" and _edge(other.node, 1) is node for other in functions)
    if not function and name == "Mul" and not is_of_divergence and _is_of_shares(node):
        function, target = "soft_cross_entropy", _saved(node, "other" if _edge(node, 0) is not None else "self")
    if not function and name == "Mul" and factor < 0 and not is_of_divergence:
        function, values, target = _product_of_probabilities(node)
    if not function and name == "Div" and (overlap := _overlap(node)) is not None:
        functions.append(LossFunction("dice", overlap, factor, list(_chain(_only_edge(overlap))), (), None, None))
        return
    if not function and name in ("Index", "Gather") and _kind(_edge(node, 0)) == "LogSoftmax":
        function = "log_likelihood"
    if any(other.function == "triplet" and _is_within_distance(other.node, node) for other in functions):
        return
    if not function and name in ("Relu", "ClampMin", "Clamp") and not math.isnan(_margin(node)):
        functions.append(LossFunction("triplet", node, factor, [], (), None, None))
        return
    if not function and name == "Mul" and _directions(node) is not None:
        functions.append(LossFunction("cosine", node, factor, [], (), None, None))
        return
    if not function and name == "Mul" and _is_attached_advantage(node):
        functions.append(LossFunction("policy_gradient", node, factor, [], (), None, None))
        return
    is_inner = any(node in _sums(other.node) for other in functions if other.function == "gaussian_kl")
    if not function and name in _SUMS and not is_inner and (sign := _sign_of_divergence(node)):
        functions.append(LossFunction("gaussian_kl", node, sign * factor, [], (), None, None))
        return
    if not function and name in ("Sub", "Mul") and _is_square(node):
        function = name.lower()
    if not function:
        return
    start, made = _only_edge(after), _made_shape(after, is_arithmetic=after is not node or function in ("sub", "mul"))
    before = list(_chain(start))
    if function == "nll_loss" and before and before[0].name == "log_softmax" and _is_of_classes(start, before[0]):
        function = "cross_entropy"
        before = before[1:]
    if function == "soft_cross_entropy":
        before = before[1:]
    if function in ("sub", "mul") and any(other.node is node or _only_edge(other.node) is node for other in functions):
        return
    functions.append(LossFunction(function, node, factor, before, made, values, target))


def _is_of_shares(node: Any) -> bool:
    """Whether a product is that of a target with a share for each class, and of logarithms of probabilities."""
    inputs = [following for following, _ in node.next_functions if following is not None]
    target = _saved(node, "other" if _edge(node, 0) is not None else "self")
    if len(inputs) != 1 or _kind(inputs[0]) != "LogSoftmax" or target is None or not target.is_floating_point():
        return False
    values, shape = plain(target), output_shape(node)
    return len(shape) > 1 and tuple(values.shape) == shape and bool(((values >= 0) & (values <= 1)).all())


def _is_divergence(node: Any) -> bool:
    """Whether a difference is what kl_div computes: a constant less the product of its input and its target."""
    product = _edge(node, 1)
    if _edge(node, 0) is not None or _kind(product) != "Mul":
        return False
    target = _saved(product, "other" if _edge(product, 0) is not None else "self")
    inputs = [following for following, _ in product.next_functions if following is not None]
    if len(inputs) != 1 or target is None or not target.is_floating_point() or target.dim() < 1 or not target.numel():
        return False
    values = plain(target)
    return values.shape == output_shape(node) and bool(((values >= 0) & (values <= 1)).all())


def _product_of_probabilities(node: Any) -> tuple[str, None, torch.Tensor | None]:
    """Return what a KL divergence or a cross entropy by hand looks like whose input is not a logarithm."""
    start = _only_edge(node)
    inputs = [following for following, _ in node.next_functions if following is not None]
    target = _saved(node, "other" if _edge(node, 0) is not None else "self")
    if len(inputs) != 1 or target is None or _kind(start) not in ("Softmax", "Sigmoid"):
        return "", None, None
    values = plain(target)
    is_share = values.shape == output_shape(start) and values.is_floating_point() and values.dim() > 1
    if not is_share or not bool(((values >= 0) & (values <= 1)).all()):
        return "", None, None
    is_share = bool(torch.allclose(values.float().sum(-1), torch.ones(()), atol=1e-2))
    return ("kl_div", None, target) if is_share else ("", None, None)


def _directions(node: Any) -> torch.Tensor | None:
    """Return the vectors of length 1 with which those of a model are multiplied; None if a product is no such."""
    if _kind(node) != "Mul" or len(output_shape(node)) != 2:
        return None
    for index, name in enumerate(("other", "self")):
        vectors = _saved(node, name)
        if vectors is None or not _is_normalised(_behind(_edge(node, index), ("Expand", "Clone"))):
            continue
        lengths = torch.linalg.vector_norm(plain(vectors).float(), dim=-1)
        if tuple(vectors.shape) == output_shape(node) and bool(((lengths - 1).abs() < 1e-3).all()):
            return plain(vectors)
    return None


def _margin(node: Any) -> float:
    """Return what a hinge adds to the difference of two distances of outputs; NaN if it is none.

    If all outputs are the same, that is its value.
    """
    terms = list(_terms(_edge(node, 0), 1.0, 0))
    distances = [_distance(term) for _, term in terms]
    if len(terms) != 2 or sorted(factor for factor, _ in terms) != [-1.0, 1.0]:
        return math.nan
    apart = _saved(node, "result" if _kind(node) == "Relu" else "self")
    near, far = distances if terms[0][0] > 0 else distances[::-1]
    if apart is None or near is None or far is None or not apart.shape == near.shape == far.shape:
        return math.nan
    # Where it is 0, it is not known by how much the difference is below that.
    margins = (plain(apart) - near + far)[plain(apart) > 0]
    is_constant = margins.numel() > 0 and float(margins.max() - margins.min()) <= 1e-4 * float(margins.abs().max())
    return float(margins.mean()) if is_constant and float(margins.mean()) > 0 else math.nan


def _distance(node: Any) -> torch.Tensor | None:
    """Return the distances that a function has computed of two outputs each; None if it computes no such."""
    if _kind(node) in ("Norm", "LinalgVectorNorm", "Sqrt"):
        result = _saved(node, "result")
        return None if result is None else plain(result)
    square = _edge(node, 0) if _kind(node) == "Sum" else None
    differences = _saved(square, "self") if _kind(square) == "Pow" and _exponent(square) == 2.0 else None
    if differences is None:
        return None
    sums = plain(differences).square().sum(-1)
    return sums if tuple(sums.shape) == output_shape(node) else None


def _is_within_distance(hinge: Any, node: Any) -> bool:
    """Whether a function is a part of one of the distances of which a hinge is."""
    return any(node in (term, _edge(term, 0)) for _, term in _terms(_edge(hinge, 0), 1.0, 0))


def _is_attached_advantage(node: Any) -> bool:
    """Whether a product is that of a logarithm of a probability and of a difference, and leads on from both."""
    left, right = _edge(node, 0), _edge(node, 1)
    return (_is_log_probability(left) and _is_advantage(right)) or (_is_log_probability(right) and _is_advantage(left))


def _is_log_probability(node: Any) -> bool:
    """Whether a function is the logarithm of a probability of what was drawn: of classes, or normally distributed."""
    node = _behind(node, (*_ORDERING, *_SCALING, "Sum"))
    before = _edge(node, 0)
    if _kind(node) in ("Gather", "Index"):
        is_normalised = _kind(before) == "Sub" and _kind(_edge(before, 1)) == "Logsumexp"
        return _kind(before) in ("LogSoftmax", "Log") or is_normalised
    if _kind(node) == "Log":
        return _kind(_behind(before, _ORDERING)) in ("Gather", "Index")
    is_sum = _kind(node) in _SUMS
    return _kind(node) == "NllLoss" or (
        is_sum and any(_is_negative_square(factor, term) for factor, term in _terms(node, 1.0, 0))
    )


def _is_negative_square(factor: float, node: Any) -> bool:
    """Whether a function is a square of a difference, possibly divided by a variance, times a number below 0."""
    while _kind(node) in ("Div", "Neg"):
        factor = -factor if _kind(node) == "Neg" else factor
        node = _edge(node, 0)
    return factor < 0 and _is_power_of_two(node) and _kind(_edge(node, 0)) in _SUMS


def _is_advantage(node: Any) -> bool:
    """Whether a function is the difference of numbers and of what a layer has put out, possibly normalised."""
    node = _behind(node, (*_PASSING, "Mul", "Div", "Neg"))
    while _kind(node) == "Sub" and _edge(node, 0) is not None and _edge(node, 1) is not None:
        node = _behind(_edge(node, 0), (*_PASSING, "Mul", "Div", "Neg"))
    # A number instead of a tensor is no input.
    if _kind(node) != "Sub" or len(node.next_functions) != 2:
        return False
    return _is_of_layer(_behind(_only_edge(node), _PASSING))


def _behind(node: Any, kinds: Collection[str]) -> Any:
    """Return the first function behind some kinds of functions, of several inputs along the first one."""
    for _ in range(4 * _MOST_BEFORE):
        if node is None or _kind(node) not in kinds:
            break
        node = next((following for following, _ in node.next_functions if following is not None), None)
    return node


def _sign_of_divergence(node: Any) -> int:
    """Return with which sign a sum is the divergence of a normal distribution from another one; 0 if it is none.

    That is a multiple of the sum of a square, ``exp(v)`` and ``-v``, or of a square, a variance ``w`` and ``-log(w)``.
    """
    terms = list(_terms(node, 1.0, 0))
    squares = [(factor, term) for factor, term in terms if _is_power_of_two(term)]
    for factor, term in terms:
        name, given = _kind(term), _edge(term, 0)
        if name == "Exp":
            is_divergence = any(other is given and weight * factor < 0 for weight, other in terms)
        elif name == "Log":
            factor = -factor
            is_divergence = any(
                weight * factor > 0 and given in (other, _edge(other, 0)) for weight, other in [*terms, *squares]
            )
        else:
            continue
        if is_divergence and any(weight * factor > 0 and other is not given for weight, other in squares):
            return 1 if factor > 0 else -1
    return 0


def _overlap(node: Any) -> Any:
    """Return the product of an output and a target, if a fraction is its sum over a sum of that output; else None."""
    above, below = _edge(node, 0), _edge(node, 1)
    if above is None or below is None:
        return None
    summed = [_maker(_only_edge(term)) for _, term in _terms(below, 1.0, 0) if _kind(term) == "Sum"]
    for _, term in _terms(above, 1.0, 0):
        product = _only_edge(term) if _kind(term) == "Sum" else None
        if product is None or _kind(product) != "Mul":
            continue
        target = _saved(product, "other" if _edge(product, 0) is not None else "self")
        has_target = target is not None and target.numel() > 1 and plain(target).is_floating_point()
        if has_target and _maker(_only_edge(product)) in summed:
            return product
    return None


def _terms(node: Any, factor: float, depth: int) -> Iterator[tuple[float, Any]]:
    """Yield the functions whose results a sum adds, with their factors."""
    name = _kind(node)
    is_scaled = name in ("Mul", "Div") and sum(following is not None for following, _ in node.next_functions) == 1
    if depth > 8 or not (name in (*_SUMS, "Neg") or is_scaled):
        yield factor, node
        return
    for index, (following, _) in enumerate(node.next_functions):
        if following is not None:
            yield from _terms(following, factor * _factor(node, name, index), depth + 1)


def _sums(node: Any) -> list[Any]:
    """Return a sum and the sums that are its terms."""
    nodes = [node]
    for each in nodes:
        following = [other for other, _ in each.next_functions if _kind(other) in (*_SUMS, "Neg", "Mul", "Div")]
        nodes += following if len(nodes) < 4 * _MOST_BEFORE else []
    return nodes


def _is_power_of_two(node: Any) -> bool:
    name = _kind(node)
    is_product = name == "Mul" and _edge(node, 0) is not None and _edge(node, 0) is _edge(node, 1)
    return is_product or (name == "Pow" and _exponent(node) == 2.0)


def _is_of_classes(start: Any, softmax: Activation) -> bool:
    """Whether a softmax is over the axis that cross_entropy takes."""
    shape = output_shape(start)
    axes = len(shape)
    if axes and softmax.size not in (-1, shape[1 if axes > 1 else 0]):
        return False
    return _kind(start) != "LogSoftmax" or softmax.axis == (1 if axes > 1 else 0)


def _is_square(node: Any) -> bool:
    """Whether an operation pairs each of N numbers of the model with each of N others."""
    shape = output_shape(node)
    inputs = [following for following, _ in node.next_functions if following is not None]
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2 or len(inputs) != 1:
        return False
    # An axis that was inserted on purpose is meant to be paired.
    return math.prod(output_shape(inputs[0])) == shape[0] and _kind(inputs[0]) not in ("Unsqueeze", "Expand")


def _exponent(node: Any) -> float:
    exponent = getattr(node, "_saved_exponent", None)
    return float(exponent) if isinstance(exponent, (int, float)) else math.nan


def _previous(node: Any, name: str) -> Any:
    before = _edge(node, 0)
    return before if before is not None and _kind(before) == name else None


def _put_out(node: Any, outputs: Mapping[int, torch.Tensor]) -> torch.Tensor | None:
    """Return the result of a function, if autograd has kept it, or if it is what a model has put out."""
    kept = None if node is None else _saved(node, "result")
    for _ in range(_MOST_BEFORE):
        if node is None or kept is not None:
            return kept
        kept = outputs.get(node._sequence_nr())
        if kept is None and _kind(node) not in _RESHAPING:
            return None
        node = _edge(node, 0)
    return kept


def _subtraction(
    node: Any, difference: torch.Tensor | None, output: torch.Tensor | None
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return an output and the target that was subtracted from it, in the shape of their difference."""
    if output is None or difference is None or output.numel() != difference.numel():
        return None, None
    values, apart = plain(output).reshape(difference.shape), plain(difference)
    target = values - apart if _edge(node, 0) is not None else values + apart
    # Whole numbers are so but for what rounding has left.
    whole = target.round()
    rounding = 4 * torch.finfo(target.dtype).eps * (values.abs() + apart.abs())
    return values, whole if bool(((target - whole).abs() <= rounding).all()) else target


def _edge(node: Any, index: int) -> Any:
    following = () if node is None else node.next_functions
    return following[index][0] if len(following) > index else None


def _only_edge(node: Any) -> Any:
    """Return the function that made the only input of a function that requires a gradient; else that of the first."""
    inputs = [] if node is None else [following for following, _ in node.next_functions if following is not None]
    return inputs[0] if len(inputs) == 1 else _edge(node, 0)


def _made_shape(node: Any, *, is_arithmetic: bool) -> tuple[int, ...]:
    """Return the shape of the prediction of a loss function, before it was expanded; empty if it was not."""
    before = _only_edge(node)
    if before is None:
        return ()
    if _kind(before) == "Expand":
        before = _only_edge(before)
    elif not is_arithmetic:
        return ()
    return () if before is None else output_shape(before)


def output_shape(node: Any) -> tuple[int, ...]:
    """Return the shape of the first result of an autograd function; empty if it is unknown."""
    try:
        return tuple(int(size) for size in node._input_metadata[0].shape)
    except (AttributeError, IndexError, TypeError, RuntimeError):
        return ()


def _chain(node: Any) -> Iterator[Activation]:
    """Yield the functions from a node towards the model, until one has weights or several inputs."""
    count = 0
    while node is not None and count < 4 * _MOST_BEFORE:
        count += 1
        name = _kind(node)
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
        elif name not in _PASSING:
            return
        inputs = [following for following, _ in node.next_functions if following is not None]
        if len(inputs) != 1:
            return
        node = inputs[0]


def _saved(node: Any, name: str) -> torch.Tensor | None:
    """Return a tensor that an autograd function has kept; None if a hook of the training has packed it."""
    raw = getattr(node, f"_raw_saved_{name}", None)
    if raw is None or getattr(raw, "unpack_hook", None) is not None:
        return None
    try:
        kept = getattr(node, f"_saved_{name}") if hasattr(raw, "unpack_hook") else None
    except RuntimeError:
        return None
    return kept if isinstance(kept, torch.Tensor) else None


# --- facts ---


def _maker(node: Any) -> Any:
    """Return the function that made an input of a loss function, behind those that pass on or scale it."""
    for _ in range(4 * _MOST_BEFORE):
        name = _kind(node)
        inputs = [following for following, _ in node.next_functions if following is not None] if node else []
        is_passing = name in _PASSING or name in ("Mul", "Div", "LogSoftmax", "Softmax")
        if len(inputs) != 1 or not is_passing:
            # A temperature is often a parameter.
            scaled = [each for each in inputs if _kind(each) not in ("AccumulateGrad", "Exp", "Clamp")]
            if name not in ("Mul", "Div") or len(scaled) != 1:
                return node
            inputs = scaled
        node = inputs[0]
    return node


def _scale_of_pairs(node: Any) -> float:
    """Return by which number products of vectors of length 1 are multiplied before a function; NaN if they are none."""
    scale = 1.0
    for _ in range(_MOST_BEFORE):
        name = _kind(node)
        if name in ("Mm", "Bmm"):
            vectors = [_behind(following, (*_PASSING, "T")) for following, _ in node.next_functions]
            return scale if all(map(_is_normalised, vectors)) else math.nan
        if name not in (*_PASSING, "Mul", "Div", "LogSoftmax"):
            break
        # A temperature that is learnt has a single element.
        sizes = [
            -1 if following is None else math.prod(output_shape(following)) for following, _ in node.next_functions
        ]
        index = sizes.index(max(sizes))
        scale *= _factor(node, name, index)
        node = _edge(node, index)
    return math.nan


def _is_normalised(node: Any) -> bool:
    """Whether a function divides vectors by their lengths."""
    lengths = _behind(_edge(node, 1), (*_PASSING, "ClampMin", "Add"))
    return _kind(node) == "Div" and "Norm" in _kind(lengths)


def _is_of_pairs(maker: Any) -> bool:
    """Whether a function is a product of two matrices neither of which is a parameter."""
    if _kind(maker) not in ("Mm", "Bmm"):
        return False
    return all(_kind(_maker(following)) not in ("AccumulateGrad", "") for following, _ in maker.next_functions)


def _is_of_layer(maker: Any) -> bool:
    """Whether a function multiplies by a parameter."""
    if _kind(maker) not in ("Addmm", "Mm", "Bmm", "Convolution", "MkldnnConvolution"):
        return False
    return any(_kind(_maker(following)) == "AccumulateGrad" for following, _ in maker.next_functions)


def _is_of_outputs(node: Any) -> bool:
    """Whether a loss function is a distance of two tensors both of which require gradients."""
    if _kind(node) in ("Pow", "Abs"):
        node = _previous(node, "Sub")
    inputs = [] if node is None else [_kind(following) for following, _ in node.next_functions]
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
    maker = _maker(_only_edge(node))
    row: dict[str, Any] = {
        "function": function.function,
        "factor": function.factor,
        "is_alone": function.is_alone,
        "is_of_pairs": _is_of_pairs(maker),
        "pair_scale": _scale_of_pairs(_only_edge(node)),
        "is_of_layer": _is_of_layer(maker),
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
        weight = _saved(node, "weight") if function.function in OF_CLASSES else None
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
        directions = _directions(node)
        row["alignment"] = math.nan if directions is None else float(directions.float().mean(0).norm())
    if function.function == "triplet":
        row["margin"] = _margin(node)
    if function.function == "gaussian_kl":
        row["divergence"] = _divergence(node)
    if function.function not in OF_CLASSES and any(_saved(node, name) is not None for name in ("weight", "pos_weight")):
        row["weightless"] = 0.0
    return row


def _divergence(node: Any) -> float:
    """Return the divergence of normal distributions from the standard one, by sample; NaN if it is from another one."""
    terms = [term for _, term in _terms(node, 1.0, 0)]
    means = [_saved(term, "self") for term in terms if _is_power_of_two(term) and _kind(_edge(term, 0)) not in _NO_MEAN]
    variances = [_saved(term, "result") for term in terms if _kind(term) == "Exp"]
    variances += [_saved(term, "self") for term in terms if _kind(term) == "Log"]
    if len(means) != 1 or len(variances) != 1 or means[0] is None or variances[0] is None:
        return math.nan
    mean, variance = means[0], variances[0]
    if mean.shape != variance.shape or mean.dim() < 2:
        return math.nan
    squares, spreads = array_of(part_of(mean)).astype(np.float64) ** 2, array_of(part_of(variance)).astype(np.float64)
    with np.errstate(all="ignore"):
        each = 0.5 * (squares + spreads - 1 - np.log(spreads))
    return float(each.mean() * math.prod(mean.shape[1:]))


def _blank_facts(node: Any) -> dict[str, Any]:
    """Return which class a `ctc_loss` takes for the blank, and the share of the targets that are it."""
    targets, blank = _saved(node, "targets"), getattr(node, "_saved_blank", None)
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
