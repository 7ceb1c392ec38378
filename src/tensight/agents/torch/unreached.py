"""Finds weights that a gradient should reach, though optimizers find them without one.

- They belong to blocks under reentrant activation checkpointing, and no input of these blocks requires gradients.
- Their output is detached before it goes into trained layers. Where only calls of modules are captured, this is
  unknown; then the operators of one forward pass are followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.core.call_stack import line_of_user
from tensight.agents.core.oversights import UPDATES
from tensight.agents.torch.operator_mode import BottomMode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set

    from tensight.agents.eager.adapter import Named
    from tensight.agents.torch.boundary import Boundary
    from tensight.agents.torch.parameters import Parameters

_backward_task: Callable[[], int] = torch._C._current_graph_task_id


class UnreachedWeights:
    """The weights of a training that optimizers find without a gradient.

    Parameters
    ----------
    boundary : Boundary
    entered : callable () -> set of str
        Returns the scopes that this step has entered only with gradients switched off.

    Attributes
    ----------
    checkpointed_scopes : set of str
        Scopes that this step has entered in blocks under reentrant checkpointing without an input that requires
        gradients.
    checkpoint_line : str
        Where a block was called last under reentrant checkpointing with inputs that cut it off.
    cut_off : frozenset of str
        Names of weights whose values go into trained layers, although no gradient reaches them.
    """

    def __init__(self, boundary: Boundary, entered: Callable[[], Set[str]]) -> None:
        self.checkpointed_scopes: set[str] = set()
        self.cut_off: frozenset[str] = frozenset()
        self._boundary = boundary
        self._entered = entered
        self.checkpoint_line = ""
        self._suspects: frozenset[str] = frozenset()
        self._suspected_steps = 0
        self._path: PathToTrained | None = None

    # --- calls in the training ---

    def backward_begins(self) -> None:
        """Note that a backward pass begins."""
        if self._path is not None:
            self._path.leave()

    def checkpoint(self, original: Callable[..., Any], function: Any, *arguments: Any) -> Any:
        """Run a block under reentrant checkpointing; note what it enters if its inputs cut it off from gradients."""
        inputs = (argument for argument in arguments if isinstance(argument, torch.Tensor))
        if not torch.is_grad_enabled() or any(tensor.requires_grad for tensor in inputs):
            return original(function, *arguments)
        before = set(self._entered())
        result = original(function, *arguments)
        self._boundary.call(self._note_checkpoint, before)
        return result

    def _note_checkpoint(self, before: Set[str]) -> None:
        self.checkpointed_scopes |= self._entered() - before
        self.checkpoint_line = line_of_user()

    # --- steps ---

    def begin_step(self) -> None:
        """Follow the operators of the forward pass that begins, if that has been decided."""
        self.checkpointed_scopes.clear()
        if self._path is not None:
            self._path.enter()

    def end_step(
        self,
        parameters: Parameters,
        checkpointed: Collection[str],
        without_gradients: Collection[str],
        *,
        follows: bool,
        named: Callable[[], Iterable[Named]],
    ) -> None:
        """Note which weights optimizers have found without a gradient in a step.

        Parameters
        ----------
        parameters : Parameters
        checkpointed, without_gradients : collection of str
            Names of weights that were read in `checkpointed_scopes`, and only with gradients switched off.
        follows : bool
            Whether the operators of a forward pass may be followed.
        named : callable
            Returns the weights with their names.
        """
        passed_over = parameters.without_gradient
        is_untrained = bool(passed_over) and not parameters.any_gradient
        self.leave()
        suspects = frozenset(passed_over.difference(without_gradients, checkpointed))
        is_same = suspects == self._suspects
        self._suspected_steps = self._suspected_steps + 1 if is_same else 1
        self._suspects = suspects
        if not is_same:
            self.cut_off = frozenset()
        if suspects and follows and not is_untrained and self._suspected_steps == UPDATES:
            self._path = PathToTrained(named(), suspects)

    def leave(self) -> None:
        """Stop following operators, and keep what was found."""
        path, self._path = self._path, None
        if path is not None:
            path.leave()
            self.cut_off = frozenset(path.names)


class PathToTrained(BottomMode):
    """Follows the values of some weights through the operators of a forward pass, by the memory that holds them.

    Parameters
    ----------
    named : iterable of Named
        Weights with their names.
    suspects : collection of str
        Names of the weights that are followed.

    Attributes
    ----------
    names : set of str
        Those whose values were read together with another weight that requires gradients.
    """

    def __init__(self, named: Iterable[Named], suspects: Collection[str]) -> None:
        super().__init__()
        self.names: set[str] = set()
        self._weights: dict[int, frozenset[str]] = {}
        self._trained: set[int] = set()
        self._held: dict[int, frozenset[str]] = {}
        for entry in named:
            tensor = entry.tensor()
            if tensor is None or not entry.is_parameter or not tensor.requires_grad:
                continue
            if entry.name in suspects:
                self._weights[_memory(tensor)] = frozenset((entry.name,))
            else:
                self._trained.add(_memory(tensor))

    def __torch_dispatch__(
        self, func: Any, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator."""
        result = func(*args, **(kwargs or {}))
        try:
            if _backward_task() == -1:
                self._follow([*args, *(kwargs or {}).values()], result)
        except Exception:
            # Memory of a kind that has no address.
            self._weights.clear()
        return result

    def _follow(self, given: Sequence[Any], result: Any) -> None:
        nothing: frozenset[str] = frozenset()
        with torch._C.DisableTorchFunction():
            memories = [_memory(tensor) for tensor in _tensors(given)]
            names = nothing.union(*(self._held.get(memory, nothing) for memory in memories))
            if torch.is_grad_enabled():
                names = names.union(*(self._weights.get(memory, nothing) for memory in memories))
            if names and not self._trained.isdisjoint(memories):
                self.names |= names
            for tensor in _tensors([result]):
                # Memory is used again, so what it has held before is forgotten.
                self._held[_memory(tensor)] = names


def _memory(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage().data_ptr()
    return address


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
