"""What operators do, by their type: the one table, for MindSpore and PyTorch alike.

A set holds types as `plain_type` gives them, in lower case without underscores, unless it says otherwise. Who adds an
operator looks through all sets: it may belong to several.
"""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- names ---

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

# Modules and operators that compute the same, though differently called or put together.
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


def plain_type(kind: str) -> str:
    """Return what operators of a type compute, in lower case without underscores: ``add`` for ``Add`` and ``add_``.

    Examples
    --------
    >>> plain_type("masked_fill"), plain_type("Select"), plain_type("select")
    ('maskedfill', 'where', 'select')
    """
    return _SAME.get(kind) or kind.replace("_", "").lower()


def comparable_type(kind: str) -> str:
    """Return the type of an operator under the name that several frameworks share: ``linear`` for ``Dense``."""
    plain = plain_type(kind)
    stem, grad = (plain[:-4], "grad") if plain.endswith("grad") else (plain, "")
    return _ALIKE.get(stem, stem) + grad


# --- what becomes of zeros ---

ZERO_MAKERS = _words(
    """zeroslike zeros zero newzeros fill fillv2 full fulllike newfull scalartensor dropoutgenmask tensorshape shape
    onehot"""
)
"""Operators whose zeros are what they were asked for."""

SUMS = _words(
    """add addv2 addn biasadd sub rsub cat concat stack where select selectv2 maximum minimum lerp addcmul addcdiv copy
    indexput maskedscatter scatter indexadd indexcopy"""
)
"""Operators whose result is zero only if everything in it is."""

GATES = _words("mul div maskedfill where")
"""Operators that let something through, or not."""

PREDICATES = _words(
    """eq ne gt ge lt le equal notequal greater greaterequal less lessequal isnan isinf isfinite isneginf isposinf
    logicaland logicalor logicalnot logicalxor any all"""
)
"""Operators that answer with truth values; that all of them are false is no fault."""

_FORM_TAKERS = ("like", "newzeros", "newones", "newfull", "newempty")


def takes_only_form(kind: str) -> bool:
    """Whether operators of a type take nothing but shape and dtype of what they read: ``zeros_like``, ``new_zeros``."""
    return plain_type(kind).endswith(_FORM_TAKERS)


# --- what becomes of NaN and Inf ---

CONSTANT_MAKERS = _words(
    """full fulllike newfull fill fillv2 filltensor fills scalartensor liftfresh liftfreshcopy pad constantpadnd"""
)
"""Operators that put values where somebody has written them down: Inf is what was wanted."""

SELECTING = _words(
    """where select selectv2 maskedfill maskedselect maskedscatter nantonum indexput index gather take takealongdim
    indexselect indexcopy indexfill scatter minimum maximum min max amin amax aminmax fmin fmax clamp clampmin clampmax
    clip clipbyvalue topk sort argmax argmin median nanmedian kthvalue nansum nanmean scatterreduce"""
)
"""Operators that take some elements, and leave out others."""

SATURATING = _words(
    """sigmoid logsigmoid tanh hardtanh hardsigmoid relu relu6 elu celu selu softplus softsign erf atan arctan
    reciprocal rsqrt div pow inv truediv floordiv"""
)
"""Operators that turn Inf into a number as if nothing was wrong."""

VIEWS = _words(
    """view reshape unsafeview expand expandas broadcastto permute transpose t unsqueeze squeeze slice narrow select
    split splitwithsizes chunk unbind alias detach asstrided diagonal unfold movedim flatten lift"""
)
"""Operators that show elements which are there; nobody looks at them once more."""

ELEMENTWISE = VIEWS | _words(
    """add addv2 sub rsub mul muls div truediv realdiv neg abs log log2 log10 log1p sqrt rsqrt reciprocal square pow exp
    exp2 sign floor ceil round trunc remainder fmod tocopy to cast copy clone contiguous cat concat stack repeat tile
    softmax logsoftmax cumsum cumprod logaddexp logsumexp sum mean atan2 sin cos asin acos lerp addcmul addcdiv where"""
)
"""Operators after which somebody may still choose among elements."""

MASK_MAKERS = _words(
    """maskedfill where full fulllike newfull fill filltensor scalartensor triu tril constantpadnd pad liftfresh
    liftfreshcopy indexput maskedscatter selectv2"""
)
"""Operators that create masks of -Inf, which keep something from being seen."""

MASK_CARRIERS = MASK_MAKERS | _words(
    """add addv2 addn sub rsub mul div neg maximum minimum max min amax amin view reshape unsafeview expand expandas
    broadcastto permute transpose t unsqueeze squeeze slice index select indexselect gather cat concat stack split
    unbind clone contiguous detach alias tocopy to cast copy repeat flatten asstrided baddbmm logsoftmax logsumexp
    topk sort dropout nativedropout"""
)
"""Operators that propagate masks of -Inf."""

# --- what happens to values and memory ---

SAME_VALUES = _words(
    """detach alias liftfresh view unsafeview reshape reshapealias t transpose permute squeeze unsqueeze expand
    contiguous clone tensormove identity"""
)
"""Operators whose output has the values of their first input."""

CONVERSIONS = _words("cast transdata")
"""Operators that hand on their first input in another dtype or layout."""

OVERWRITING = _words("copy fill zero")
"""Operators that write over all of their first input, and read none of it."""

WITHOUT_RESULTS = frozenset(
    {"Adam", "AdamWeightDecay", "FusedAdam", "FusedAdamWeightDecay", "FusedCastAdamWeightDecay"}
    | {"ApplyRMSProp", "ApplyCenteredRMSProp"}
    | {"FusedSparseAdam", "FusedSparseLazyAdam", "FusedSparseFtrl", "FusedSparseProximalAdagrad"}
)
"""MindSpore's types, exactly, of operators that write to parameters, and to none of their outputs."""

UPDATED_IN_PLACE = frozenset(
    {"ApplyAdadelta", "ApplyAdagrad", "ApplyAdaMax", "ApplyAdamWithAmsgradV2", "ApplyFtrl", "ApplyMomentum"}
    | {"ApplyProximalAdagrad", "SGD"}
)
"""MindSpore's types, exactly, whose first output is their first input after the update, whose second is their second …

So these outputs are parameters."""

_WRITING = ("Apply", "Assign", "Scatter")


def may_write_inputs(kind: str) -> bool:
    """Return whether operators of a type may write to parameters that they are given."""
    return kind in UPDATED_IN_PLACE or kind in WITHOUT_RESULTS or kind.startswith(_WRITING)


# --- layers, activations, passes ---

_LAYER = re.compile("linear|dense|conv|embedding|gather|mm$|matmul|mv$|bilinear|einsum")


def applies_matrix(kind: str) -> bool:
    """Whether operators of a type apply a single matrix; of any other one nobody knows what it does with it."""
    return _LAYER.search(kind.lower()) is not None


MIXED_PRECISION_PRODUCTS = frozenset({"linear", "conv1d", "conv2d", "conv3d", "convolution", "mm", "bmm", "baddbmm"})
"""Operators, by `comparable_type`, that automatic mixed precision computes in the narrower type."""

LINEAR = frozenset({"linear", "conv1d", "conv2d", "conv3d", "mm", "bmm", "embedding", "add", "mul", "sub", "baddbmm"})
"""Operators, by `comparable_type`, whose relative error does not grow with the magnitude of their inputs."""

ELEMENTWISE_PRODUCTS = frozenset({"mul", "div"})
"""Operators, by `comparable_type`, whose rounding is relative to each element of the result."""

# The original's list.
ORIGINAL_ACTIVATIONS = _words(
    """elu fastgelu gelu hsigmoid hswish leakyrelu logsigmoid logsoftmax prelu relu relu6 reluv2 sigmoid softmax tanh"""
)
"""What MindInsight takes for activations; types in lower case, underscores kept."""

_ACTIVATIONS = ORIGINAL_ACTIVATIONS | _words(
    "celu hardtanh mish selu silu softplus softsign swish hardsigmoid hardswish softmax2d"
)
# MindSpore 2.10 has several implementations of one function: GeluExt, InplaceReLU, SoftmaxV2. PyTorch's operators are
# called relu_, _softmax, log_sigmoid_forward.
_PREFIXES = ("inplace", "npu")
_SUFFIXES = ("ext", "v2", "forward")


def activation_name(kind: str) -> str:
    """Return which activation function operators of a type compute, in lower case; empty if none.

    Implementations of one function have one name: ``ReLU``, ``relu_`` and ``InplaceReLU`` are ``relu``.
    """
    name = kind.replace("_", "").lower()
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    for found in (name, kind.lower()):
        if found in _ACTIVATIONS:
            return found
    return "relu" if kind.endswith("ReluFusion") else ""


_BACKWARD_TYPES = ("Grad", "GradExt", "GradV2")


def is_named_backward(kind: str) -> bool:
    """Whether a type is named as those of operators of the backward pass are."""
    return kind.endswith(_BACKWARD_TYPES)


# --- several ranks ---

_COLLECTIVES = _words(
    # A cell averages gradients, or what wraps a model does, before parameters get them.
    """allreduce allgather reducescatter broadcast reduce collectivescatter collectivegather alltoall alltoallv
    neighborexchange neighborexchangev2 receive allswap distributedgradreducer accumulategrad"""
)
# Those that only PyTorch's library for communication has.
_COLLECTIVES_OF_PYTORCH = _words(
    """allgatherintotensor allgatherbase reducescattertensor reducescatterbase alltoallsingle recv allreducecoalesced
    allgathercoalesced scatter gather waittensor alltoallbase"""
)
_LIBRARY = "c10d"


def is_collective(kind: str) -> bool:
    """Whether other ranks contribute to what operators of a type return."""
    library, _, name = kind.rpartition(".")
    plain = plain_type(name)
    if library:
        return _LIBRARY in library and (plain in _COLLECTIVES or plain in _COLLECTIVES_OF_PYTORCH)
    return plain in _COLLECTIVES
