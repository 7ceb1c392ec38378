"""Types of operators under one name, whichever framework runs them."""

from __future__ import annotations

# MindSpore's type, exactly, and what PyTorch calls the same; its `select` is another thing.
_SAME = {
    "AddExt": "add",
    "ArgMaxWithValue": "max",
    "ArgMinWithValue": "min",
    "ConcatD": "cat",
    "Divs": "div",
    "ExpandDims": "unsqueeze",
    "FillV2": "fill",
    "GatherD": "gather",
    "GatherNd": "gather",
    "Muls": "mul",
    "Pack": "stack",
    "RealDiv": "div",
    "ReduceMax": "amax",
    "ReduceMin": "amin",
    "Select": "where",
    "StridedSlice": "slice",
    "SubExt": "sub",
    "Tile": "repeat",
    "TransposeExt": "transpose",
}

HANDS_ON = frozenset(
    {"detach", "alias", "lift_fresh", "view", "_unsafe_view", "reshape", "_reshape_alias", "t", "transpose", "permute"}
    | {"squeeze", "unsqueeze", "expand", "contiguous", "clone"}
    | {"TensorMove", "Identity", "Reshape", "ExpandDims", "Squeeze"}
)
"""Operators whose output has the values of their first input."""


def plain_type(kind: str) -> str:
    """Return what operators of a type compute, in lower case without underscores: ``add`` for ``Add`` and ``add_``.

    Examples
    --------
    >>> plain_type("masked_fill"), plain_type("Select"), plain_type("select")
    ('maskedfill', 'where', 'select')
    """
    return _SAME.get(kind) or kind.replace("_", "").lower()
