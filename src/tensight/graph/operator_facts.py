"""Facts about operators by type, in a single table for MindSpore and PyTorch.

Unless stated otherwise, sets contain types as `plain_type` returns them, in lower case without underscores. A new
operator may belong to several sets, so check all of them.
"""

from __future__ import annotations

import re
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Fact = TypeVar("_Fact")
_LONGEST_KEPT = 256
"""A graph may come from anywhere, and must not fill the memory with long names."""


def kept_if_short(function: Callable[[str], _Fact]) -> Callable[[str], _Fact]:
    """Return a function that keeps what it says of a text, as of the few types of a hundred thousand nodes."""
    kept = lru_cache(maxsize=4096)(function)

    @wraps(function)
    def of(text: str) -> _Fact:
        return kept(text) if len(text) <= _LONGEST_KEPT else function(text)

    return of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- names ---

# MindSpore's exact types, and PyTorch's names for them. PyTorch's `select` is a different operator.
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

# Modules and operators that compute the same under other names or in other combinations.
_ALIKE = {
    "dense": "linear",
    "addmm": "linear",
    "matmul": "mm",
    "batchmatmul": "bmm",
    "batchnorm2d": "batchnorm",
    "batchnorm1d": "batchnorm",
    "batchnorm3d": "batchnorm",
    "flatten": "reshape",
    "view": "reshape",
    "unsafeview": "reshape",
}


@kept_if_short
def plain_type(kind: str) -> str:
    """Return the normalized type of operators, in lower case without underscores: ``add`` for ``Add`` and ``add_``.

    Examples
    --------
    >>> plain_type("masked_fill"), plain_type("Select"), plain_type("select")
    ('maskedfill', 'where', 'select')
    """
    return _SAME.get(kind) or kind.replace("_", "").lower()


def comparable_type(kind: str) -> str:
    """Return the type of an operator under a name that is common to all frameworks: ``linear`` for ``Dense``."""
    plain = plain_type(kind)
    stem, grad = (plain[:-4], "grad") if plain.endswith("grad") else (plain, "")
    return _ALIKE.get(stem, stem) + grad


# --- zeros ---

ZERO_MAKERS = _words(
    """zeroslike zeros zero newzeros fill fillv2 full fulllike newfull scalartensor dropoutgenmask tensorshape shape
    onehot"""
)
"""Operators whose zeros are intended."""

FILLING = _words(
    """indexput indexputimpl indexadd indexcopy indexreduce scatter scatteradd scatterreduce slicescatter selectscatter
    diagonalscatter maskedscatter put copy"""
)
"""Operators that write elements into their first input."""

GATHERED = _words("index indexselect gather take takealongdim embedding maskedselect")
"""Operators that copy elements of an input by index or condition."""

SUMS = _words(
    """add addv2 addn biasadd sub rsub cat concat stack where select selectv2 maximum minimum lerp addcmul addcdiv copy
    indexput maskedscatter scatter indexadd indexcopy"""
)
"""Operators whose result is zero only if all inputs are."""

GATES = _words("mul div maskedfill where")
"""Operators that pass or block values."""

PREDICATES = _words(
    """eq ne gt ge lt le equal notequal greater greaterequal less lessequal isnan isinf isfinite isneginf isposinf
    logicaland logicalor logicalnot logicalxor any all"""
)
"""Operators that return booleans; a result that is false everywhere is not a fault."""

_FORM_TAKERS = ("like", "newzeros", "newones", "newfull", "newempty")


@kept_if_short
def takes_only_form(kind: str) -> bool:
    """Whether operators of a type use only shape and dtype of their input: ``zeros_like``, ``new_zeros``."""
    return plain_type(kind).endswith(_FORM_TAKERS)


# --- NaN and Inf ---

CONSTANT_MAKERS = _words(
    """full fulllike newfull fill fillv2 filltensor fills scalartensor liftfresh liftfreshcopy pad constantpadnd"""
)
"""Operators that write values given in the code, where Inf is intended."""

SELECTING = _words(
    """where select selectv2 maskedfill maskedselect maskedscatter nantonum indexput index gather take takealongdim
    indexselect indexcopy indexfill scatter minimum maximum min max amin amax aminmax fmin fmax clamp clampmin clampmax
    clip clipbyvalue topk sort argmax argmin median nanmedian kthvalue nansum nanmean scatterreduce"""
)
"""Operators that select elements and leave out others."""

SATURATING = _words(
    """sigmoid logsigmoid tanh hardtanh hardsigmoid relu relu6 elu celu selu softplus softsign erf atan arctan
    reciprocal rsqrt div pow inv truediv floordiv"""
)
"""Operators that turn Inf into a finite number, which hides it."""

VIEWS = _words(
    """view reshape unsafeview expand expandas broadcastto permute transpose t unsqueeze squeeze slice narrow select
    split splitwithsizes chunk unbind alias detach asstrided diagonal unfold movedim flatten lift"""
)
"""Operators that return views of existing elements, which are not checked again."""

PARTS = _words("slice narrow select split splitwithsizes chunk unbind asstrided diagonal unfold")
"""Operators that return views of a part of the elements."""

ELEMENTWISE = VIEWS | _words(
    """add addv2 sub rsub mul muls div truediv realdiv neg abs log log2 log10 log1p sqrt rsqrt reciprocal square pow exp
    exp2 sign floor ceil round trunc remainder fmod tocopy to cast copy clone contiguous cat concat stack repeat tile
    softmax logsoftmax cumsum cumprod logaddexp logsumexp sum mean atan2 sin cos asin acos lerp addcmul addcdiv where"""
)
"""Operators after which another operator may still select elements."""

MASK_MAKERS = _words(
    """maskedfill where full fulllike newfull fill filltensor scalartensor triu tril constantpadnd pad liftfresh
    liftfreshcopy indexput maskedscatter selectv2"""
)
"""Operators that create masks of -Inf."""

MASK_CARRIERS = MASK_MAKERS | _words(
    """add addv2 addn sub rsub mul div neg maximum minimum max min amax amin view reshape unsafeview expand expandas
    broadcastto permute transpose t unsqueeze squeeze slice index select indexselect gather cat concat stack split
    unbind clone contiguous detach alias tocopy to cast copy repeat flatten asstrided baddbmm logsoftmax logsumexp
    topk sort dropout nativedropout"""
)
"""Operators that propagate masks of -Inf."""

# --- values and memory ---

SAME_VALUES = _words(
    """detach alias liftfresh view unsafeview reshape reshapealias t transpose permute squeeze unsqueeze expand
    contiguous clone tensormove identity"""
)
"""Operators whose output has the values of their first input."""

CONVERSIONS = _words("cast transdata")
"""Operators that return their first input in another dtype or layout."""

OVERWRITING = _words("copy fill zero")
"""Operators that overwrite all of their first input without reading it."""

WITHOUT_RESULTS = frozenset(
    {"Adam", "AdamWeightDecay", "FusedAdam", "FusedAdamWeightDecay", "FusedCastAdamWeightDecay"}
    | {"ApplyRMSProp", "ApplyCenteredRMSProp"}
    | {"FusedSparseAdam", "FusedSparseLazyAdam", "FusedSparseFtrl", "FusedSparseProximalAdagrad"}
)
"""Exact MindSpore types of operators that write to parameters and to none of their outputs."""

UPDATED_IN_PLACE = frozenset(
    {"ApplyAdadelta", "ApplyAdagrad", "ApplyAdaMax", "ApplyAdamWithAmsgradV2", "ApplyFtrl", "ApplyMomentum"}
    | {"ApplyProximalAdagrad", "SGD"}
)
"""Exact MindSpore types of operators whose outputs are their first inputs after the update, in the same order.

So these outputs are parameters."""

_WRITING = ("Apply", "Assign", "Scatter")


def may_write_inputs(kind: str) -> bool:
    """Return whether operators of a type may write to parameters among their inputs."""
    return kind in UPDATED_IN_PLACE or kind in WITHOUT_RESULTS or kind.startswith(_WRITING)


# --- layers, activations, passes ---

_LAYER = re.compile("linear|dense|conv|embedding|gather|mm$|matmul|mv$|bilinear|einsum")


@kept_if_short
def applies_matrix(kind: str) -> bool:
    """Whether operators of a type apply a single matrix; how others use a matrix is unknown."""
    return _LAYER.search(kind.lower()) is not None


def normalizes(kind: str) -> bool:
    """Return whether operators of a type normalize, or compute norms, or the gradient of either."""
    return "norm" in plain_type(kind)


MIXED_PRECISION_PRODUCTS = frozenset({"linear", "conv1d", "conv2d", "conv3d", "convolution", "mm", "bmm", "baddbmm"})
"""Operators, by `comparable_type`, that automatic mixed precision computes in the lower precision."""

LINEAR = frozenset({"linear", "conv1d", "conv2d", "conv3d", "mm", "bmm", "embedding", "add", "mul", "sub", "baddbmm"})
"""Operators, by `comparable_type`, whose relative error does not grow with the magnitude of their inputs."""

ELEMENTWISE_PRODUCTS = frozenset({"mul", "div"})
"""Operators, by `comparable_type`, whose rounding is relative to each element of the result."""

ORIGINAL_ACTIVATIONS = _words(
    """elu fastgelu gelu hsigmoid hswish leakyrelu logsigmoid logsoftmax prelu relu relu6 reluv2 sigmoid softmax tanh"""
)
"""MindInsight's list of activations; types in lower case, with underscores."""

_ACTIVATIONS = ORIGINAL_ACTIVATIONS | _words(
    "celu hardtanh mish selu silu softplus softsign swish hardsigmoid hardswish softmax2d"
)
# MindSpore 2.10 has several implementations of a function: GeluExt, InplaceReLU, SoftmaxV2. PyTorch's operators have
# names such as relu_, _softmax, log_sigmoid_forward.
_PREFIXES = ("inplace", "npu")
_SUFFIXES = ("ext", "v2", "forward")


@kept_if_short
def activation_name(kind: str) -> str:
    """Return the activation function that operators of a type compute, in lower case; empty if none.

    All implementations of a function have the same name: ``ReLU``, ``relu_`` and ``InplaceReLU`` are ``relu``.
    """
    name = kind.replace("_", "").lower()
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    for candidate in (name, kind.lower()):
        if candidate in _ACTIVATIONS:
            return candidate
    return "relu" if kind.endswith("ReluFusion") else ""


def is_rounded_once(kind: str) -> bool:
    """Return whether operators of a type compute narrow elements in float32, and round only the result."""
    return applies_matrix(kind) or normalizes(kind) or "attention" in kind.lower() or bool(activation_name(kind))


_BACKWARD_TYPES = ("Grad", "GradExt", "GradV2")


@kept_if_short
def is_named_backward(kind: str) -> bool:
    """Whether a type has the name of an operator of the backward pass."""
    return kind.endswith(_BACKWARD_TYPES)


# --- several ranks ---

_COLLECTIVES = _words(
    # The last two: gradients are averaged over ranks by a cell, or by the wrapper of a model before they accumulate.
    """allreduce allgather reducescatter broadcast reduce collectivescatter collectivegather alltoall alltoallv
    neighborexchange neighborexchangev2 receive allswap distributedgradreducer accumulategrad"""
)
# Operators that only PyTorch's communication library has.
_COLLECTIVES_OF_PYTORCH = _words(
    """allgatherintotensor allgatherbase reducescattertensor reducescatterbase alltoallsingle recv allreducecoalesced
    allgathercoalesced scatter gather waittensor alltoallbase"""
)
_LIBRARY = "c10d"


def is_collective(kind: str) -> bool:
    """Whether other ranks contribute to the results of operators of a type."""
    library, _, name = kind.rpartition(".")
    plain = plain_type(name)
    if library:
        return _LIBRARY in library and (plain in _COLLECTIVES or plain in _COLLECTIVES_OF_PYTORCH)
    return plain in _COLLECTIVES
