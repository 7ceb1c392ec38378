"""Losses that a script composes of PyTorch's functions, recognised in autograd's graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tensight.agents.torch.facts.autograd_functions import (
    MOST_BEFORE,
    ORDERING,
    PASSING,
    SCALING,
    SUMS,
    exponent_of,
    factor_of,
    first_behind,
    input_of,
    inputs_of,
    is_normalised,
    is_of_layer,
    is_power_of_two,
    kind_of,
    maker_of,
    only_input_of,
    other_factor,
    output_shape,
    saved_by,
    terms_of,
)
from tensight.agents.torch.facts.reading import array_of, part_of, plain

_NO_MEAN = ("Sub", "Div", "Exp", "AccumulateGrad")
"""What makes a tensor whose square is of no mean of a sample's distribution: a difference, a deviation, a weight."""

_LEAST = 1e-7
"""Least probability whose logit is taken."""


def is_of_shares(node: Any) -> bool:
    """Whether a product is that of a target with a share for each class, and of logarithms of probabilities."""
    inputs = inputs_of(node)
    target = other_factor(node)
    if len(inputs) != 1 or kind_of(inputs[0]) != "LogSoftmax" or target is None or not target.is_floating_point():
        return False
    values, shape = plain(target), output_shape(node)
    return len(shape) > 1 and tuple(values.shape) == shape and bool(((values >= 0) & (values <= 1)).all())


def is_divergence(node: Any) -> bool:
    """Whether a difference is what kl_div computes: a constant less the product of its input and its target."""
    product = input_of(node, 1)
    if input_of(node, 0) is not None or kind_of(product) != "Mul":
        return False
    target = other_factor(product)
    inputs = inputs_of(product)
    if len(inputs) != 1 or target is None or not target.is_floating_point() or target.dim() < 1 or not target.numel():
        return False
    values = plain(target)
    return values.shape == output_shape(node) and bool(((values >= 0) & (values <= 1)).all())


def product_of_probabilities(node: Any) -> tuple[str, None, torch.Tensor | None]:
    """Return what a KL divergence or a cross entropy by hand looks like whose input is not a logarithm."""
    start = only_input_of(node)
    inputs = inputs_of(node)
    target = other_factor(node)
    if len(inputs) != 1 or target is None or kind_of(start) not in ("Softmax", "Sigmoid"):
        return "", None, None
    values = plain(target)
    is_share = values.shape == output_shape(start) and values.is_floating_point() and values.dim() > 1
    if not is_share or not bool(((values >= 0) & (values <= 1)).all()):
        return "", None, None
    is_share = bool(torch.allclose(values.float().sum(-1), torch.ones(()), atol=1e-2))
    return ("kl_div", None, target) if is_share else ("", None, None)


def answer_of(node: Any, factor: float) -> tuple[float, float, torch.Tensor] | None:
    """Return the answer towards which a logistic loss that is written out leads, its factor and logits; else None.

    ``softplus(z)`` leads towards 0, ``-logsigmoid(z)`` and ``-log(sigmoid(z))`` towards 1.
    """
    name, given, answer = kind_of(node), input_of(node, 0), 0.0
    logits = saved_by(node, "self")
    if name in ("LogSigmoid", "LogSigmoidForward", "Log"):
        answer, factor = 1.0, -factor
    elif name != "Softplus":
        return None
    if name == "Log":
        given = first_behind(given, (*ORDERING, "Add", "Clamp", "ClampMin"))
        if kind_of(given) in ("Rsub", "Sub") and len(inputs_of(given)) == 1:
            given, answer = first_behind(only_input_of(given), ORDERING), 0.0
        probabilities = saved_by(given, "result") if kind_of(given) == "Sigmoid" else None
        logits = None if probabilities is None else plain(probabilities).logit(_LEAST)
        given = input_of(given, 0)
    if logits is None:
        return None
    logits = plain(logits)
    if kind_of(given) == "Neg":
        given, answer, logits = input_of(given, 0), 1.0 - answer, -logits
    return (answer, factor, logits) if is_of_layer(first_behind(given, PASSING)) else None


def directions_of(node: Any) -> torch.Tensor | None:
    """Return the vectors of length 1 with which those of a model are multiplied; None if a product is no such."""
    if kind_of(node) != "Mul" or len(output_shape(node)) != 2:
        return None
    for index, name in enumerate(("other", "self")):
        vectors = saved_by(node, name)
        if vectors is None or not is_normalised(first_behind(input_of(node, index), ("Expand", "Clone"))):
            continue
        lengths = torch.linalg.vector_norm(plain(vectors).float(), dim=-1)
        if tuple(vectors.shape) == output_shape(node) and bool(((lengths - 1).abs() < 1e-3).all()):
            return plain(vectors)
    return None


def margin_of(node: Any) -> float:
    """Return what a hinge adds to the difference of two distances of outputs; NaN if it is none.

    If all outputs are the same, that is its value.
    """
    terms = list(terms_of(input_of(node, 0), 1.0, 0))
    distances = [_distance(term) for _, term in terms]
    if len(terms) != 2 or sorted(factor for factor, _ in terms) != [-1.0, 1.0]:
        return math.nan
    apart = saved_by(node, "result" if kind_of(node) == "Relu" else "self")
    near, far = distances if terms[0][0] > 0 else distances[::-1]
    if apart is None or near is None or far is None or not apart.shape == near.shape == far.shape:
        return math.nan
    # Where it is 0, it is not known by how much the difference is below that.
    margins = (plain(apart) - near + far)[plain(apart) > 0]
    is_constant = margins.numel() > 0 and float(margins.max() - margins.min()) <= 1e-4 * float(margins.abs().max())
    return float(margins.mean()) if is_constant and float(margins.mean()) > 0 else math.nan


def _distance(node: Any) -> torch.Tensor | None:
    """Return the distances that a function has computed of two outputs each; None if it computes no such."""
    if kind_of(node) in ("Norm", "LinalgVectorNorm", "Sqrt"):
        result = saved_by(node, "result")
        return None if result is None else plain(result)
    square = input_of(node, 0) if kind_of(node) == "Sum" else None
    differences = saved_by(square, "self") if kind_of(square) == "Pow" and exponent_of(square) == 2.0 else None
    if differences is None:
        return None
    sums = plain(differences).square().sum(-1)
    return sums if tuple(sums.shape) == output_shape(node) else None


def is_within_distance(hinge: Any, node: Any) -> bool:
    """Whether a function is a part of one of the distances of which a hinge is."""
    return any(node in (term, input_of(term, 0)) for _, term in terms_of(input_of(hinge, 0), 1.0, 0))


def is_attached_advantage(node: Any) -> bool:
    """Whether a product is that of a logarithm of a probability and of a difference, and leads on from both."""
    left, right = input_of(node, 0), input_of(node, 1)
    return (_is_log_probability(left) and _is_advantage(right)) or (_is_log_probability(right) and _is_advantage(left))


def is_weighed_probability(node: Any) -> bool:
    """Whether a product is that of a logarithm of a probability and of numbers that lead to no weights."""
    inputs = input_of(node, 0), input_of(node, 1)
    return None in inputs and any(each is not None and _is_log_probability(each) for each in inputs)


def _is_log_probability(node: Any) -> bool:
    """Whether a function is the logarithm of a probability of what was drawn: of classes, or normally distributed."""
    node = first_behind(node, (*ORDERING, *SCALING, "Sum"))
    before = input_of(node, 0)
    if kind_of(node) in ("Gather", "Index"):
        is_normalised = kind_of(before) == "Sub" and kind_of(input_of(before, 1)) == "Logsumexp"
        return kind_of(before) in ("LogSoftmax", "Log") or is_normalised
    if kind_of(node) == "Log":
        return kind_of(first_behind(before, ORDERING)) in ("Gather", "Index")
    is_sum = kind_of(node) in SUMS
    return kind_of(node) == "NllLoss" or (
        is_sum and any(_is_negative_square(factor, term) for factor, term in terms_of(node, 1.0, 0))
    )


def _is_negative_square(factor: float, node: Any) -> bool:
    """Whether a function is a square of a difference, possibly divided by a variance, times a number below 0."""
    while kind_of(node) in ("Div", "Neg"):
        factor = -factor if kind_of(node) == "Neg" else factor
        node = input_of(node, 0)
    return factor < 0 and is_power_of_two(node) and kind_of(input_of(node, 0)) in SUMS


def _is_advantage(node: Any) -> bool:
    """Whether a function is the difference of numbers and of what a layer has put out, possibly normalised."""
    node = first_behind(node, (*PASSING, "Mul", "Div", "Neg"))
    while kind_of(node) == "Sub" and input_of(node, 0) is not None and input_of(node, 1) is not None:
        node = first_behind(input_of(node, 0), (*PASSING, "Mul", "Div", "Neg"))
    # A number instead of a tensor is no input.
    if kind_of(node) != "Sub" or len(node.next_functions) != 2:
        return False
    return is_of_layer(first_behind(only_input_of(node), PASSING))


def sign_of_divergence(node: Any) -> int:
    """Return with which sign a sum is the divergence of a normal distribution from another one; 0 if it is none.

    That is a multiple of the sum of a square, ``exp(v)`` and ``-v``, or of a square, a variance ``w`` and ``-log(w)``.
    """
    terms = list(terms_of(node, 1.0, 0))
    squares = [(factor, term) for factor, term in terms if is_power_of_two(term)]
    for factor, term in terms:
        name, given = kind_of(term), input_of(term, 0)
        if name == "Exp":
            is_divergence = any(other is given and weight * factor < 0 for weight, other in terms)
        elif name == "Log":
            factor = -factor
            is_divergence = any(
                weight * factor > 0 and given in (other, input_of(other, 0)) for weight, other in [*terms, *squares]
            )
        else:
            continue
        if is_divergence and any(weight * factor > 0 and other is not given for weight, other in squares):
            return 1 if factor > 0 else -1
    return 0


def overlap_of(node: Any) -> Any:
    """Return the product of an output and a target, if a fraction is its sum over a sum of that output; else None."""
    above, below = input_of(node, 0), input_of(node, 1)
    if above is None or below is None:
        return None
    summed = [maker_of(only_input_of(term)) for _, term in terms_of(below, 1.0, 0) if kind_of(term) == "Sum"]
    for _, term in terms_of(above, 1.0, 0):
        product = only_input_of(term) if kind_of(term) == "Sum" else None
        if product is None or kind_of(product) != "Mul":
            continue
        target = other_factor(product)
        has_target = target is not None and target.numel() > 1 and plain(target).is_floating_point()
        if has_target and maker_of(only_input_of(product)) in summed:
            return product
    return None


def sums_of(node: Any) -> list[Any]:
    """Return a sum and the sums that are its terms."""
    nodes = [node]
    for each in nodes:
        following = [other for other, _ in each.next_functions if kind_of(other) in (*SUMS, "Neg", "Mul", "Div")]
        nodes += following if len(nodes) < 4 * MOST_BEFORE else []
    return nodes


def is_square(node: Any) -> bool:
    """Whether an operation pairs each of N numbers of the model with each of N others."""
    shape = output_shape(node)
    inputs = inputs_of(node)
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2 or len(inputs) != 1:
        return False
    # An axis that was inserted on purpose is meant to be paired.
    return math.prod(output_shape(inputs[0])) == shape[0] and kind_of(inputs[0]) not in ("Unsqueeze", "Expand")


def scale_of_pairs(node: Any) -> float:
    """Return by which number products of vectors of length 1 are multiplied before a function; NaN if they are none."""
    scale = 1.0
    for _ in range(MOST_BEFORE):
        name = kind_of(node)
        if name in ("Mm", "Bmm"):
            vectors = [first_behind(following, (*PASSING, "T")) for following, _ in node.next_functions]
            return scale if all(map(is_normalised, vectors)) else math.nan
        if name not in (*PASSING, "Mul", "Div", "LogSoftmax"):
            break
        # A temperature that is learnt has a single element.
        sizes = [
            -1 if following is None else math.prod(output_shape(following)) for following, _ in node.next_functions
        ]
        index = sizes.index(max(sizes))
        scale *= factor_of(node, name, index)
        node = input_of(node, index)
    return math.nan


def divergence_of(node: Any) -> float:
    """Return the divergence of normal distributions from the standard one, by sample; NaN if it is from another one."""
    terms = [term for _, term in terms_of(node, 1.0, 0)]
    means = [
        saved_by(term, "self") for term in terms if is_power_of_two(term) and kind_of(input_of(term, 0)) not in _NO_MEAN
    ]
    variances = [saved_by(term, "result") for term in terms if kind_of(term) == "Exp"]
    variances += [saved_by(term, "self") for term in terms if kind_of(term) == "Log"]
    if len(means) != 1 or len(variances) != 1 or means[0] is None or variances[0] is None:
        return math.nan
    mean, variance = means[0], variances[0]
    if mean.shape != variance.shape or mean.dim() < 2:
        return math.nan
    squares, spreads = array_of(part_of(mean)).astype(np.float64) ** 2, array_of(part_of(variance)).astype(np.float64)
    with np.errstate(all="ignore"):
        each = 0.5 * (squares + spreads - 1 - np.log(spreads))
    return float(each.mean() * math.prod(mean.shape[1:]))
