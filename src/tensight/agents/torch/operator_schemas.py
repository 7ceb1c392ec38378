"""What an operator's declaration says: its name, what it writes to, its settings, and what its tensors are."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tensight.agents.torch.operator_steps import Path

NEVER = "never"
"""Gate of what cannot hold NaN or Inf."""

_GATES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    **{getattr(torch, name): name for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)},
}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
# What they return was not written yet.
_UNSET = frozenset(
    {
        *("empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided"),
        *("new_empty", "new_empty_strided", "resize", "resize_"),
        "set_",  # memory that is about to be filled, as in a deep copy
    }
)
# They return memory that a collective operator is about to fill, with some of it written: not theirs to show.
_PREPARING = frozenset({"fsdp::all_gather_copy_in"})
# They return at once, and what they return is filled until somebody has waited.
_COMMUNICATING = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd"})
_WAITING = frozenset({"wait_tensor"})
# They read nothing of what they write to; nor do operators of what is called `out`.
_OVERWRITING = frozenset(
    {
        *("copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_"),
        *("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_"),
    }
)
# They write to these without declaring it.
_BATCH_NORMS = frozenset({"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"})
_RUNNING = frozenset({"running_mean", "running_var"})

_aten = torch.ops.aten
DETACH = _aten.detach.default
NEW_EMPTY = _aten.new_empty_strided.default
ACCUMULATING = frozenset(
    {DETACH, NEW_EMPTY, _aten.clone.default, _aten.copy_.default, _aten.add_.Tensor, _aten.add.Tensor}
)
"""With which autograd adds up the gradients of weights."""

_MOST_SETTINGS = 16
_LONGEST_SETTING = 200


class Declaration(NamedTuple):
    """What is known of an operator before it runs.

    Attributes
    ----------
    type : str
        ``convolution``, ``add_``; with its library for what is not PyTorch's own: ``torchvision.nms``.
    arguments : tuple of str
    written : frozenset of str
        Names of the arguments that it writes to.
    overwritten : frozenset of str
        Those of which it reads nothing.
    is_unset : bool
        Whether what it returns was not written yet.
    is_trusted : bool
        Whether it declares all that it writes to; those of other libraries may not.
    is_pending : bool
        Whether what it returns or writes may not be there yet when it has returned.
    is_view : bool
        Whether it only returns another view of what it is given.
    makes_tensors : bool
        Whether it returns or writes tensors; else it only reads them, as ``item()`` does.
    """

    type: str
    arguments: tuple[str, ...]
    written: frozenset[str]
    overwritten: frozenset[str]
    is_unset: bool
    is_trusted: bool
    is_pending: bool
    is_view: bool
    makes_tensors: bool


@cache
def declaration(func: Any) -> Declaration:
    """Return what the declaration of an operator says."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        # Operators of higher order (control flow, attention of one's own) declare nothing.
        return Declaration(
            type=str(getattr(func, "_name", func)).replace("/", "_"),
            arguments=(),
            written=frozenset(),
            overwritten=frozenset(),
            is_unset=False,
            is_trusted=False,
            is_pending=False,
            is_view=False,
            makes_tensors=True,
        )
    library, _, name = schema.name.partition("::")
    written = frozenset(
        argument.name
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    overwritten = written if name in _OVERWRITING else {each.name for each in schema.arguments if each.is_out}
    if name in _BATCH_NORMS:
        written |= _RUNNING
    is_own = library in ("aten", "prims", "prim")
    return Declaration(
        type=name if is_own else f"{library}.{name}",
        arguments=tuple(argument.name for argument in schema.arguments),
        written=written,
        overwritten=frozenset(overwritten),
        is_unset=name in _UNSET,
        is_trusted=is_own or schema.name in _PREPARING,
        is_pending=library in _COMMUNICATING and name not in _WAITING,
        is_view=bool(getattr(func, "is_view", False)),
        makes_tensors=bool(written) or any("Tensor" in str(returned.type) for returned in schema.returns),
    )


def tensors_in(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Iterator[tuple[Path, torch.Tensor]]:
    """Go through the tensors among the arguments of a call, those in lists included."""
    for position, value in enumerate(args):
        yield from _tensors(("args", position), value)
    for name, value in (kwargs or {}).items():
        yield from _tensors(("kwargs", name), value)


def results_in(result: Any) -> Iterator[tuple[Path, Any]]:
    """Go through what an operator returned, tensor or not, one entry for each output slot."""
    if isinstance(result, (tuple, list)):
        for position, value in enumerate(result):
            if isinstance(value, (tuple, list)):
                for inner, element in enumerate(value):
                    yield ("result", position, inner), element
            else:
                yield ("result", position), value
    elif result is not None:
        yield ("result",), result


def argument_name(declared: Declaration, path: Path) -> str:
    """Return the name of the argument that a path leads to."""
    if path[0] == "kwargs":
        return str(path[1])
    position = int(path[1])
    return declared.arguments[position] if position < len(declared.arguments) else ""


def settings(
    declared: Declaration, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None
) -> dict[str, str | int | float | bool]:
    """Return the arguments that are no tensors, as people read them."""
    found: dict[str, str | int | float | bool] = {}
    named = [*zip(declared.arguments, args, strict=False), *(kwargs or {}).items()]
    for name, value in named:
        if isinstance(value, (bool, int, float, str)):
            found[name] = value if not isinstance(value, str) else value[:_LONGEST_SETTING]
        elif isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            found[name] = str(value)
        elif isinstance(value, (tuple, list)) and all(isinstance(element, (bool, int, float)) for element in value):
            found[name] = str(list(value))[:_LONGEST_SETTING]
        if len(found) == _MOST_SETTINGS:
            break
    return found


def gate(tensor: torch.Tensor) -> str:
    """Return as which dtype the memory of a tensor may be searched for NaN and Inf; empty if it may not."""
    dtype = tensor.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        return NEVER
    # Their data is somewhere else, or nowhere; those on devices must not be waited for.
    if type(tensor) not in _PLAIN or tensor.layout is not torch.strided or tensor.is_nested or not tensor.is_cpu:
        return ""
    return _GATES.get(dtype, "")


def _tensors(path: Path, value: Any) -> Iterator[tuple[Path, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (tuple, list)):
        for position, element in enumerate(value):
            if isinstance(element, torch.Tensor):
                yield (*path, position), element
