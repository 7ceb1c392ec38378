"""Reads the declarations of operators: their names, the arguments that they write to, their settings and tensors."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tensight.agents.torch.operator_steps import Path

NEVER = "never"
"""Gate of tensors that cannot contain NaN or Inf."""

_GATES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    **{getattr(torch, name): name for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)},
}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
# Operators that return uninitialized memory.
_UNSET = frozenset(
    {
        *("empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided"),
        *("new_empty", "new_empty_strided", "resize", "resize_"),
        "set_",  # memory that is about to be filled, as in a deep copy
    }
)
# They return partly written memory that a collective operator is about to fill; it is observed there.
_PREPARING = frozenset({"fsdp::all_gather_copy_in"})
# They return at once; their results are only complete after a wait.
_COMMUNICATING = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd"})
_WAITING = frozenset({"wait_tensor"})
# They do not read what they write to. Nor do operators with an `out` argument.
_OVERWRITING = frozenset(
    {
        *("copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_"),
        *("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_"),
    }
)
# They write to their running statistics without declaring it.
_BATCH_NORMS = frozenset({"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"})
_RUNNING = frozenset({"running_mean", "running_var"})

_aten = torch.ops.aten
DETACH = _aten.detach.default
NEW_EMPTY = _aten.new_empty_strided.default
ACCUMULATING = frozenset(
    {DETACH, NEW_EMPTY, _aten.clone.default, _aten.copy_.default, _aten.add_.Tensor, _aten.add.Tensor}
)
"""Operators with which autograd accumulates the gradients of weights."""

_MOST_SETTINGS = 16
_LONGEST_SETTING = 200


class Declaration(NamedTuple):
    """The properties of an operator that are known before it runs.

    Attributes
    ----------
    type : str
        ``convolution``, ``add_``; for an operator of another library with its name: ``torchvision.nms``.
    arguments : tuple of str
        Names of the arguments.
    written : frozenset of str
        Names of the arguments that it writes to.
    overwritten : frozenset of str
        Names of the arguments that it writes to without reading them.
    is_unset : bool
        Whether it returns uninitialized memory.
    is_trusted : bool
        Whether it declares all arguments that it writes to; operators of other libraries may not.
    is_pending : bool
        Whether its results may still be incomplete when it returns.
    is_view : bool
        Whether it only returns a view of its input.
    makes_tensors : bool
        Whether it returns or writes tensors; if not, it only reads them, as ``item()`` does.
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
    """Return the declaration of an operator."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        # Higher-order operators (control flow, flex attention) declare nothing.
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
    """Yield the tensors among the arguments of a call, including those in lists, with their paths."""
    for position, value in enumerate(args):
        yield from _tensors(("args", position), value)
    for name, value in (kwargs or {}).items():
        yield from _tensors(("kwargs", name), value)


def results_in(result: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the results of an operator, tensors or not, one for each output slot, with their paths."""
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
    """Return the name of the argument at a path; empty if the operator does not declare it."""
    if path[0] == "kwargs":
        return str(path[1])
    position = int(path[1])
    return declared.arguments[position] if position < len(declared.arguments) else ""


def settings(
    declared: Declaration, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None
) -> dict[str, str | int | float | bool]:
    """Return the arguments that are not tensors, in a readable form."""
    attributes: dict[str, str | int | float | bool] = {}
    named = [*zip(declared.arguments, args, strict=False), *(kwargs or {}).items()]
    for name, value in named:
        if isinstance(value, (bool, int, float, str)):
            attributes[name] = value if not isinstance(value, str) else value[:_LONGEST_SETTING]
        elif isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            attributes[name] = str(value)
        elif isinstance(value, (tuple, list)) and all(isinstance(element, (bool, int, float)) for element in value):
            attributes[name] = str(list(value))[:_LONGEST_SETTING]
        if len(attributes) == _MOST_SETTINGS:
            break
    return attributes


def gate(tensor: torch.Tensor) -> str:
    """Return the dtype as which the memory of a tensor can be searched for NaN and Inf; empty if it cannot."""
    dtype = tensor.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        return NEVER
    # Other tensors have their values elsewhere, or have none; and devices must not be waited for.
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
