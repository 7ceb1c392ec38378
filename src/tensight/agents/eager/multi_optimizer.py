"""Decides when a step with several optimizers ends: when each of them has updated its weights once.

If one updates twice before that, as in adversarial trainings with several steps of the critic, every update ends a step
from then on.

Some optimizers never update, because their model has not been called yet or because they were replaced. An update of
another one may then be the end of the step, but that only shows at the next call: the step ends late, before that call.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Set


class MultiOptimizerSteps:
    """The updates of the optimizers of a training.

    Parameters
    ----------
    weights_of : callable
        Returns the weights that an optimizer updates.

    Attributes
    ----------
    is_open : bool
        Whether it is still unknown if the last update has ended the step.
    """

    def __init__(self, weights_of: Callable[[Any], Iterable[Any]]) -> None:
        self.is_open = False
        self._weights_of = weights_of
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        self._uncalled: set[int] = set()
        self._updated: set[int] = set()
        self._ever: set[int] = set()
        self._idle: set[int] = set()
        self._each_update = False
        self._is_first = True

    @property
    def any(self) -> bool:
        """Whether there are optimizers."""
        return bool(self._optimizers)

    def learn(self, optimizers: Iterable[Any], uncalled: Iterable[Any] | None = None) -> None:
        """Add optimizers.

        Parameters
        ----------
        optimizers : iterable
        uncalled : iterable, optional
            Optimizers whose models have not been called yet; by default those of the last call.
        """
        for optimizer in optimizers:
            reference = self._optimizers.get(id(optimizer))
            if reference is None or reference() is not optimizer:
                self._optimizers[id(optimizer)] = weakref.ref(optimizer)
                if reference is not None:
                    # The identity is that of one that is gone.
                    for numbers in (self._updated, self._ever, self._idle):
                        numbers.discard(id(optimizer))
        if uncalled is not None:
            self._uncalled = {id(weight) for optimizer in uncalled for weight in self._weights_of(optimizer)}

    def optimizers(self, numbers: Iterable[int]) -> list[Any]:
        """Return the optimizers with some identities, if they are known and still exist."""
        optimizers = (self._optimizers[number]() for number in numbers if number in self._optimizers)
        return [optimizer for optimizer in optimizers if optimizer is not None]

    def ends_step(self, updating: frozenset[int]) -> bool:
        """Note that optimizers, given by their identities, have updated weights; return whether that ends a step.

        An empty set means unknown optimizers, whose update always ends a step.
        """
        live = self._live()
        if self._is_first and not updating & self._ever:
            # Models, and so their optimizers, become known one after the other: these updates are one step.
            self._updated |= self._ever
        else:
            self._is_first = False
        self._idle |= self._replaced(live, updating)
        if updating & self._updated:
            waiting = live - self._updated - self._idle
            self._each_update = self._each_update or bool(waiting & self._ever)
            self._idle |= waiting - self._ever
        self._updated |= updating
        self._ever |= updating
        self._idle -= updating
        if updating and not self._each_update and not live - self._idle <= self._updated:
            return False
        self.is_open = bool(updating and self._uncalled)
        if not self.is_open:
            self._updated.clear()
        return not self.is_open

    def was_over(self, weights: Set[int]) -> bool:
        """Return whether an open step was over, when a model with weights of these identities is about to be called.

        The step continues if an optimizer was waiting for the call of that model. A model of a known optimizer begins
        the next step; other models decide nothing.
        """
        if not self.is_open:
            return False
        if not self._uncalled.isdisjoint(weights):
            self.is_open = False
            return False
        optimizers = (self._optimizers[number]() for number in self._live())
        if not any(id(weight) in weights for optimizer in optimizers for weight in self._weights_of(optimizer)):
            return False
        return self.ends_late()

    def ends_late(self) -> bool:
        """End an open step, without waiting for further optimizers; return whether there was one."""
        was_open, self.is_open = self.is_open, False
        if was_open:
            self._uncalled.clear()
            self._updated.clear()
        return was_open

    def ends_before(self, updating: frozenset[int]) -> bool:
        """Return whether a step was over before the next update by some optimizers.

        It was if they have already updated in it, and only optimizers that have never updated are still missing. Those
        are then no longer waited for.
        """
        waiting = self._live() - self._updated - self._idle
        if not updating & self._updated or waiting & self._ever:
            return False
        self._idle |= waiting
        self._updated.clear()
        return True

    def _live(self) -> set[int]:
        return {identity for identity, optimizer in self._optimizers.items() if optimizer() is not None}

    def _replaced(self, live: set[int], updating: frozenset[int]) -> set[int]:
        """Return the optimizers that have never updated, and have the same weights as one that does.

        Also those that have made earlier steps, if one that has never updated takes over some of their weights.
        """
        new = live - self._ever - updating - self._idle
        updated = [self._weights(number) for number in updating & live] if new else []
        replaced = {number for number in new if self._weights(number) in updated}
        begins = set() if self._is_first else updating & live - self._ever
        if begins:
            taken = {weight for number in begins for weight in self._weights(number)}
            others = (live & self._ever) - updating - self._updated - self._idle
            replaced |= {number for number in others if not taken.isdisjoint(self._weights(number))}
        return replaced

    def _weights(self, number: int) -> frozenset[int]:
        optimizer = self._optimizers[number]()
        return frozenset(id(weight) for weight in self._weights_of(optimizer)) if optimizer is not None else frozenset()
