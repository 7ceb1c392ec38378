"""The functions of PyTorch that a call of a model runs, compared between two calls: which is the first that differs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tensight.agents.core.call_stack import line_of_user, user_stack
from tensight.agents.torch.facts.reading import is_readable
from tensight.agents.torch.framework import tensors_in
from tensight.agents.torch.inner_modules import held_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

_MOST_ELEMENTS = 1 << 26
"""Maximum number of elements that are kept of a call."""
_SMALL = 1e-5
_DROPOUTS = (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d)
_ATTENTIONS = (
    "multi_head_attention_forward",
    "scaled_dot_product_attention",
    "_native_multi_head_attention",
    "_transformer_encoder_layer_fwd",
)
_CALL = re.compile(r"\b(F|functional)\.dropout[123]?d?\(")
_SMALL_OF_HALF = 0.03
"""Share of the largest element that counts as rounding; in computations with 8 or 11 bits it adds up."""


class Origin(NamedTuple):
    """A function of PyTorch, and where it is called."""

    function: str = ""
    line: str = ""


class Functions(TorchFunctionMode):
    """Keeps what functions return, or compares it with what was kept of another call.

    Parameters
    ----------
    kept : Functions, optional
        Those of the call to compare with.
    is_allowed : callable (changed) -> bool, optional
        Whether a difference is one that does not count, by which elements have changed.
    rounding : float
        Which share of the largest element counts as rounding.

    Attributes
    ----------
    first : Origin
        The first function that differs.
    """

    def __init__(
        self,
        kept: Functions | None = None,
        is_allowed: Callable[[torch.Tensor], bool] = lambda _: False,
        rounding: float = _SMALL,
    ) -> None:
        super().__init__()
        self.first = Origin()
        self._compared, self._is_allowed, self._rounding = kept, is_allowed, rounding
        self._results: list[tuple[str, list[torch.Tensor]]] = []
        self._number, self._elements = 0, 0

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        """Run a function."""
        result = function(*arguments, **(named or {}))
        name = getattr(function, "__name__", "")
        if name == "__get__":
            return result
        outputs = [tensor for tensor in tensors_in(result) if is_readable(tensor)]
        if self._compared is None:
            self._elements += sum(tensor.numel() for tensor in outputs)
            if self._elements < _MOST_ELEMENTS:
                self._results.append((name, [tensor.detach().clone() for tensor in outputs]))
        elif not self.first.function and self._number < len(self._compared._results):
            before, kept = self._compared._results[self._number]
            self._number += 1
            if before == name and any(map(self._differs, kept, outputs)):
                self.first = Origin(name, line_of_user())
        return result

    def _differs(self, first: torch.Tensor, second: torch.Tensor) -> bool:
        if first.shape != second.shape:
            return True
        changed = changed_elements(first, second, self._rounding)
        return bool(changed.any()) and not self._is_allowed(changed)


class Dropouts(TorchFunctionMode):
    """Notes where dropout is called as a function without saying whether it is for training.

    Attributes
    ----------
    line : str
        The first such call; empty if there is none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.line = ""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        """Run a function."""
        if function in _DROPOUTS and not self.line:
            frame = next(iter(user_stack()), None)
            # A call over several lines may say it on another one.
            is_whole = frame is not None and frame.code.count("(") == frame.code.count(")")
            if frame is not None and is_whole and _CALL.search(frame.code) and "training" not in frame.code:
                self.line = frame.file_line
        return function(*arguments, **(named or {}))


class SelfAttention(TorchFunctionMode):
    """Notes whether positions of a sequence are weighed for one another.

    Parameters
    ----------
    length : int
        Of the sequences.

    Attributes
    ----------
    is_used : bool
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.is_used = False
        self._length = length

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        """Run a function."""
        result = function(*arguments, **(named or {}))
        name = getattr(function, "__name__", "")
        if name in _ATTENTIONS:
            self.is_used = True
        elif name == "softmax" and isinstance(result, torch.Tensor) and result.dim() > 2:
            self.is_used |= result.shape[-2:] == (self._length, self._length)
        return result


def rounding_of(model: nn.Module) -> float:
    """Return which share of the largest element counts as rounding in the calls of a model."""
    is_half = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    halves = (torch.bfloat16, torch.float16)
    is_half = is_half or any(weight.dtype in halves for _, weight in held_tensors(model, "_parameters"))
    return _SMALL_OF_HALF if is_half else _SMALL


def changed_elements(first: torch.Tensor, second: torch.Tensor, rounding: float = _SMALL) -> torch.Tensor:
    """Return which elements of two tensors of the same shape differ by more than rounding: shape as theirs, bool."""
    if not first.is_floating_point():
        return first != second
    first, second = first.double(), second.double()
    largest = first[first.isfinite()].abs().max() if bool(first.isfinite().any()) else first.new_zeros(())
    is_same = (first == second) | (first.isnan() & second.isnan())
    return ~(is_same | ((first - second).abs() <= rounding * largest))


def is_of_samples(changed: torch.Tensor, is_allowed: torch.Tensor) -> bool:
    """Whether the elements that have changed may all belong to some samples, along any axis; true if none fits.

    Parameters
    ----------
    changed : Tensor of bool
    is_allowed : Tensor of bool, shape (samples,)
        These samples.
    """
    fits, samples = False, len(is_allowed)
    for axis, size in enumerate(changed.shape):
        if size % samples or not size:
            continue
        fits = True
        inner = size // samples
        for shape, at in (((samples, inner), axis), ((inner, samples), axis + 1)):
            by_sample = changed.reshape(*changed.shape[:axis], *shape, *changed.shape[axis + 1 :]).movedim(at, 0)
            if not bool((by_sample.flatten(1).any(1) & ~is_allowed).any()):
                return True
    return not fits


def is_from_position(changed: torch.Tensor, length: int, position: int) -> bool:
    """Whether the elements that have changed may all belong to positions from one on; true if no axis fits.

    In a table of pairs of positions, either of the two may be.
    """
    fits = False
    for axis, size in enumerate(changed.shape):
        if size == length:
            fits = True
            changed = changed.narrow(axis, 0, position)
    return not (fits and bool(changed.any()))
