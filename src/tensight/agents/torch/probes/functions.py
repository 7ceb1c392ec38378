"""Backward functions that a script has written itself, compared with differences of their forward functions."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.core.call_stack import is_user_code, line_of_user
from tensight.agents.torch.framework import tensors_in
from tensight.agents.torch.probes.batch import UntriedError, copied_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensight.agents.torch.probes.forks import Clock

_MOST_FUNCTIONS = 8
_MOST_ELEMENTS = 12
"""Number of elements of each input whose derivative is compared."""
_STEP = 1e-6
_LARGEST_ERROR = 1e-3


def check_functions(call: Callable[[], Any], clock: Clock) -> dict[str, Any]:
    """Compare the backward of each function that a call applies with differences, in double precision.

    Parameters
    ----------
    call : callable () -> object
    clock : Clock

    Returns
    -------
    dict
        A row of facts.

    Raises
    ------
    UntriedError
        The script has written none.
    """
    applied: dict[Any, tuple[tuple[Any, ...], str]] = {}
    with _noting(applied):
        call()
    if not applied:
        raise UntriedError("the model applies no function with a backward of the script's own")
    untried, checked = [], 0
    for function, (arguments, line) in applied.items():
        if not clock.left_s:
            break
        try:
            error = _error(function, arguments)
        except Exception as reason:
            untried.append(f"{function.__name__}: {type(reason).__name__}")
            continue
        checked += 1
        if error is not None:
            analytic, measured, position = error
            return {
                "outcome": "fail",
                "function": function.__name__,
                "line": line,
                "change": analytic,
                "scale": measured,
                "count": position,
            }
    if not checked:
        raise UntriedError("; ".join(untried))
    return {"outcome": "pass", "count": checked}


@contextlib.contextmanager
def _noting(applied: dict[Any, tuple[tuple[Any, ...], str]]) -> Iterator[None]:
    """Note the first call of each function of the script."""
    owner = torch.autograd.Function
    original = vars(owner)["apply"]

    def apply(function: Any, *arguments: Any, **named: Any) -> Any:
        is_users = is_user_code(getattr(inspect.unwrap(function.forward), "__code__", apply.__code__))
        if is_users and not named and function not in applied and len(applied) < _MOST_FUNCTIONS:
            with contextlib.suppress(Exception):
                applied[function] = copied_with(arguments, {}), line_of_user()
        return original.__get__(None, function)(*arguments, **named)

    owner.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        owner.apply = original  # type: ignore[method-assign]


def _error(function: Any, arguments: tuple[Any, ...]) -> tuple[float, float, int] | None:
    """Return a derivative as the backward computes it, as it is measured, and of which input; None if all agree.

    Functions that are constant almost everywhere (a rounding), and those that return what they are given (a reversal of
    gradients), have another backward on purpose: derivatives that are measured as 0, and such functions, are left out.
    """
    floats = [tensor for tensor in tensors_in(arguments) if tensor.is_floating_point()]
    changes = {id(tensor): tensor.double() for tensor in floats}

    def results(leaves: dict[int, torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        memo = {**changes, **leaves}
        given = [memo.get(id(each), each) if isinstance(each, torch.Tensor) else each for each in arguments]
        return [output for output in tensors_in(function.apply(*given)) if output.is_floating_point()]

    leaves = {key: tensor.clone().requires_grad_() for key, tensor in changes.items()}
    outputs = results(leaves)
    is_identity = any(
        output.shape == leaf.shape and torch.equal(output.detach(), leaf.detach())
        for output in outputs
        for leaf in leaves.values()
    )
    if is_identity:
        return None
    numbers = torch.Generator().manual_seed(0)
    weights = [torch.randn(output.shape, generator=numbers, dtype=torch.double).to(output.device) for output in outputs]

    def total(outputs: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([(o.double() * w).sum() for o, w in zip(outputs, weights, strict=True)]).sum()

    gradients = torch.autograd.grad(total(outputs), list(leaves.values()), allow_unused=True)
    for number, (key, gradient) in enumerate(zip(leaves, gradients, strict=True), 1):
        if gradient is None:
            # The script declares that there is none.
            continue
        wrong = []
        elements = changes[key].numel()
        count = min(elements, _MOST_ELEMENTS)
        for at in {index * elements // count for index in range(count)}:
            analytic = float(gradient.reshape(-1)[at])
            measured = [_measured(results, total, changes[key], key, at, size) for size in (_STEP, 0.1 * _STEP)]
            is_smooth = abs(measured[0] - measured[1]) <= _LARGEST_ERROR * max(abs(measured[0]), 1e-3)
            if not is_smooth or abs(measured[0]) < 1e-6:
                continue
            if abs(analytic - measured[0]) > _LARGEST_ERROR * max(abs(analytic), abs(measured[0]), 1e-3):
                wrong.append((analytic, measured[0], number))
        if len(wrong) >= min(2, count):
            return wrong[0]
    return None


def _measured(results: Any, total: Any, values: torch.Tensor, key: int, at: int, size: float) -> float:
    with torch.no_grad():
        sums = []
        for sign in (1, -1):
            changed = values.clone(memory_format=torch.contiguous_format)
            changed.view(-1)[at] += sign * size
            sums.append(float(total(results({key: changed}))))
    return (sums[0] - sums[1]) / (2 * size)
