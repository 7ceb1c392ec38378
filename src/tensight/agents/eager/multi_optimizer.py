"""When a step ends, if there are several optimizers: when each of them has updated its weights once.

If one does so twice before that, as in adversarial trainings with several steps of the critic, every update ends a step
from then on.

Some optimizers never update: nobody has called their network yet, or they were replaced. Such a step may be over with
an update of another one, and that shows only when something is called again: then it ends late, before the call.
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
        Returns what an optimizer updates.

    Attributes
    ----------
    is_open : bool
        Whether nobody can tell yet if the step was over with the last update.
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
        """Take note of the optimizers that there are.

        Parameters
        ----------
        optimizers : iterable
        uncalled : iterable, optional
            Those whose networks have not been called yet; by default those of the last time.
        """
        for optimizer in optimizers:
            known = self._optimizers.get(id(optimizer))
            if known is None or known() is not optimizer:
                self._optimizers[id(optimizer)] = weakref.ref(optimizer)
        if uncalled is not None:
            self._uncalled = {id(weight) for optimizer in uncalled for weight in self._weights_of(optimizer)}

    def optimizers(self, numbers: Iterable[int]) -> list[Any]:
        """Return the optimizers with some identities, as far as they are known and still there."""
        found = (self._optimizers[number]() for number in numbers if number in self._optimizers)
        return [optimizer for optimizer in found if optimizer is not None]

    def ends_step(self, updating: frozenset[int]) -> bool:
        """Note that optimizers, by their identities, have updated weights; return whether that ends a step.

        Nobody knows of none at all what they are: that ends a step.
        """
        live = self._live()
        if self._is_first and not updating & self._ever:
            # Optimizers of networks that come to be known one after the other: all of it is one step.
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
        """Return whether an open step was over, now that a network with these weights, by identity, is to be called.

        It goes on if an optimizer waited for the call of that network. A network that was updated begins the next step;
        others tell nothing.
        """
        if not self.is_open:
            return False
        if not self._uncalled.isdisjoint(weights):
            self.is_open = False
            return False
        known = (self._optimizers[number]() for number in self._live())
        if not any(id(weight) in weights for one in known for weight in self._weights_of(one)):
            return False
        return self.ends_late()

    def ends_late(self) -> bool:
        """Return whether a step is open, which ends now; nobody is waited for any more."""
        was_open, self.is_open = self.is_open, False
        if was_open:
            self._uncalled.clear()
            self._updated.clear()
        return was_open

    def ends_before(self, updating: frozenset[int]) -> bool:
        """Return whether a step was over before what runs next has optimizers update, and waited for nobody any more.

        That is so if they have updated in it already, and only some are waited for that have never done so.
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
        """Return optimizers that have never updated, and have the same weights as one that does."""
        new = live - self._ever - updating - self._idle
        if not new:
            return set()
        updated = [self._weights(number) for number in updating & live]
        return {number for number in new if self._weights(number) in updated}

    def _weights(self, number: int) -> frozenset[int]:
        optimizer = self._optimizers[number]()
        return frozenset(id(weight) for weight in self._weights_of(optimizer)) if optimizer is not None else frozenset()
