"""Functions of autograd's graph, one by one: what they are called, what they are given, and what they have kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.torch.facts.reading import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

PASSING = frozenset(
    (
        *("View", "UnsafeView", "Reshape", "ReshapeAlias", "Permute", "Transpose", "T", "Squeeze", "Unsqueeze"),
        *("Expand", "ToCopy", "Clone", "Slice", "Select", "Index", "IndexSelect", "Gather", "Alias", "Contiguous"),
        *("Cat", "Stack", "Unbind", "Split", "SplitWithSizes", "Narrow", "Flatten", "Unflatten", "AsStrided"),
        *("MaskedSelect", "Pad", "ConstantPadNd", "MaskedFill", "Chunk"),
    )
)
"""Functions that hand on values."""

ORDERING = PASSING - {"Gather", "Index"}
"""Those that pick no values of a class."""

RESHAPING = frozenset(("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Select", "Alias"))
"""Functions after which values are in the same order, if none is left out."""

SCALING = frozenset(("Mul", "Div", "Neg", "ToCopy", "Clone", "View", "Squeeze", "Mean"))
"""Functions that multiply a loss, or take its mean."""

SUMS = ("Add", "Sub", "Rsub")

MOST_BEFORE = 12
MOST_BEHIND = 3000


def kind_of(node: Any) -> str:
    """Return the name of a function, without its number; empty if there is none."""
    if node is None:
        return ""
    name: str = node.name().rpartition("::")[2]
    return name.rstrip("0123456789").removesuffix("Backward")


def factor_of(node: Any, name: str, index: int) -> float:
    """Return the number by which a function multiplies what it is given at an index; 1 for other functions."""
    if name in ("Neg", "Rsub") or (name == "Sub" and index == 1):
        return -1.0
    if name in ("Mul", "Div"):
        other = saved_by(node, "other" if index == 0 else "self")
        if other is not None and other.numel() == 1 and other.device.type == "cpu" and not other.is_complex():
            value = float(plain(other))
            return value if name == "Mul" else 1 / value if value and index == 0 else 1.0
    return 1.0


def first_behind(node: Any, kinds: Collection[str]) -> Any:
    """Return the first function behind some kinds of functions, of several inputs along the first one."""
    for _ in range(4 * MOST_BEFORE):
        if node is None or kind_of(node) not in kinds:
            break
        node = next(iter(inputs_of(node)), None)
    return node


def terms_of(node: Any, factor: float, depth: int) -> Iterator[tuple[float, Any]]:
    """Yield the functions whose results a sum adds, with their factors."""
    name = kind_of(node)
    is_scaled = name in ("Mul", "Div") and sum(following is not None for following, _ in node.next_functions) == 1
    if depth > 8 or not (name in (*SUMS, "Neg") or is_scaled):
        yield factor, node
        return
    for index, (following, _) in enumerate(node.next_functions):
        if following is not None:
            yield from terms_of(following, factor * factor_of(node, name, index), depth + 1)


def is_power_of_two(node: Any) -> bool:
    """Whether a function squares what it is given."""
    name = kind_of(node)
    is_product = name == "Mul" and input_of(node, 0) is not None and input_of(node, 0) is input_of(node, 1)
    return is_product or (name == "Pow" and exponent_of(node) == 2.0)


def exponent_of(node: Any) -> float:
    """Return the exponent of a power; NaN if it is unknown."""
    exponent = getattr(node, "_saved_exponent", None)
    return float(exponent) if isinstance(exponent, (int, float)) else math.nan


def input_of_kind(node: Any, name: str) -> Any:
    """Return the function that made the first input of a function, if it is of a kind; else None."""
    before = input_of(node, 0)
    return before if before is not None and kind_of(before) == name else None


def inputs_of(node: Any) -> list[Any]:
    """Return the functions that made the inputs of a function to which a gradient leads."""
    return [] if node is None else [following for following, _ in node.next_functions if following is not None]


def other_factor(node: Any) -> torch.Tensor | None:
    """Return the number or tensor by which a product multiplies its first input that a gradient leads to."""
    return saved_by(node, "other" if input_of(node, 0) is not None else "self")


def input_of(node: Any, index: int) -> Any:
    """Return the function that made an input of a function; None if there is none, or no gradient leads there."""
    following = () if node is None else node.next_functions
    return following[index][0] if len(following) > index else None


def only_input_of(node: Any) -> Any:
    """Return the function that made the only input of a function that requires a gradient; else that of the first."""
    inputs = inputs_of(node)
    return inputs[0] if len(inputs) == 1 else input_of(node, 0)


def output_shape(node: Any) -> tuple[int, ...]:
    """Return the shape of the first result of an autograd function; empty if it is unknown."""
    try:
        return tuple(int(size) for size in node._input_metadata[0].shape)
    except (AttributeError, IndexError, TypeError, RuntimeError):
        return ()


def saved_by(node: Any, name: str) -> torch.Tensor | None:
    """Return a tensor that an autograd function has kept; None if a hook of the training has packed it."""
    raw = getattr(node, f"_raw_saved_{name}", None)
    if raw is None or getattr(raw, "unpack_hook", None) is not None:
        return None
    try:
        kept = getattr(node, f"_saved_{name}") if hasattr(raw, "unpack_hook") else None
    except RuntimeError:
        return None
    return kept if isinstance(kept, torch.Tensor) else None


def graph_behind(nodes: Iterable[Any], ends: Collection[str] = ()) -> set[Any] | None:
    """Return some functions and all behind them, with the leaves; None if these are too many.

    Parameters
    ----------
    nodes : iterable of functions or None
    ends : collection of str
        Kinds of functions behind which nothing counts.
    """
    seen = {node for node in nodes if node is not None}
    queue = list(seen)
    while queue:
        if len(seen) > MOST_BEHIND:
            return None
        node = queue.pop()
        if kind_of(node) in ends:
            continue
        before = set(inputs_of(node)) - seen
        seen |= before
        queue += before
    return seen


def maker_of(node: Any) -> Any:
    """Return the function that made an input of a loss function, behind those that pass on or scale it."""
    for _ in range(4 * MOST_BEFORE):
        name = kind_of(node)
        inputs = inputs_of(node)
        is_passing = name in PASSING or name in ("Mul", "Div", "LogSoftmax", "Softmax")
        if len(inputs) != 1 or not is_passing:
            # A temperature is often a parameter.
            scaled = [each for each in inputs if kind_of(each) not in ("AccumulateGrad", "Exp", "Clamp")]
            if name not in ("Mul", "Div") or len(scaled) != 1:
                return node
            inputs = scaled
        node = inputs[0]
    return node


def is_normalised(node: Any) -> bool:
    """Whether a function divides vectors by their lengths."""
    lengths = first_behind(input_of(node, 1), (*PASSING, "ClampMin", "Add"))
    return kind_of(node) == "Div" and "Norm" in kind_of(lengths)


def is_of_layer(maker: Any) -> bool:
    """Whether a function multiplies by a parameter."""
    if kind_of(maker) not in ("Addmm", "Mm", "Bmm", "Convolution", "MkldnnConvolution"):
        return False
    return any(kind_of(maker_of(following)) == "AccumulateGrad" for following, _ in maker.next_functions)
