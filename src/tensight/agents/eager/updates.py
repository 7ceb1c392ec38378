"""Ends steps with the optimizers' updates, as `MultiOptimizerSteps` decides.

A model that has not been called yet may still be trained in the same step. Only the next call shows whether the last
update has ended the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tensight.agents.eager.multi_optimizer import MultiOptimizerSteps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tensight.agents.eager.persistent_tensors import PersistentTensors


class Discovery(Protocol):
    """Finds models and optimizers that the script has not passed to the debugger."""

    follows_all: bool
    """Whether every model is debugged as soon as it is called."""

    def meet_trained(self, optimizer: Any) -> None:
        """Give names to the models that an optimizer trains, if no call of them was seen."""

    def uncalled(self, knows: Callable[[Any], bool]) -> Sequence[Any]:
        """Return the optimizers of models that have not been called yet, and will be debugged when they are.

        Parameters
        ----------
        knows : callable (optimizer) -> bool
            Whether an optimizer updates a known model; called for each live optimizer.
        """


class Updates:
    """The updates of a training.

    Parameters
    ----------
    parameters : PersistentTensors
        Knows the optimizers that train the models.
    discovery : Discovery
    on_step : callable (skipped) -> None
        Called when a step has ended, with whether a loss scaler has skipped its update.
    """

    def __init__(self, parameters: PersistentTensors, discovery: Discovery, on_step: Callable[[bool], None]) -> None:
        self._parameters = parameters
        self._discovery = discovery
        self._on_step = on_step
        self._multi_optimizer = MultiOptimizerSteps(parameters.weights_of)
        self._foreign: set[int] = set()
        self._foreign_generation = -1
        # If the script has passed the models to debug, there are no others to find.
        self._checked_generation = -1 if discovery.follows_all else parameters.names_generation
        self._is_skipped = False

    def knows(self, optimizer: Any) -> bool:
        """Whether an optimizer that is about to update trains the models; if it is new, it is added."""
        parameters = self._parameters
        if any(optimizer is other for other in parameters.optimizers):
            return True
        if self._foreign_generation != parameters.names_generation:
            self._foreign_generation = parameters.names_generation
            self._foreign.clear()
        if id(optimizer) in self._foreign:
            return False
        if parameters.knows(optimizer, is_updating=True):
            return True
        self._discovery.meet_trained(optimizer)
        if parameters.knows(optimizer, is_updating=True):
            return True
        self._foreign.add(id(optimizer))
        return False

    def updated(self, optimizer: Any, *, skipped: bool = False) -> None:
        """Note that an optimizer has updated the models, which may end the step.

        Parameters
        ----------
        optimizer : object
        skipped : bool
            Whether a loss scaler has skipped the update.
        """
        self._find_optimizers()
        self._is_skipped = skipped
        if self._multi_optimizer.ends_step(frozenset((id(optimizer),))):
            self._on_step(skipped)

    @property
    def may_be_over(self) -> bool:
        """Whether it is still unknown if the last update has ended the step."""
        return self._multi_optimizer.is_open

    def end_before(self, weights: Iterable[Any]) -> None:
        """End the step before a model with these weights is called or updated, if the last update was its end."""
        if self._multi_optimizer.is_open and self._multi_optimizer.was_over(set(map(id, weights))):
            self._on_step(self._is_skipped)

    def end_open_step(self) -> None:
        """End the step if the last update may have been its end, because nothing follows."""
        if self._multi_optimizer.ends_late():
            self._on_step(self._is_skipped)

    def begin_step(self) -> None:
        """Stop waiting for optimizers, because the step has ended otherwise."""
        self._multi_optimizer.ends_late()

    def _find_optimizers(self) -> None:
        """Find the optimizers of models first called since the debugger attached, before they update."""
        parameters = self._parameters
        uncalled = None
        if self._checked_generation != parameters.names_generation:
            self._checked_generation = parameters.names_generation
            uncalled = self._discovery.uncalled(parameters.knows)
        self._multi_optimizer.learn(parameters.optimizers, uncalled)
