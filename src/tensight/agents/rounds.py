"""When a step ends, if there are several optimizers: when each of them has updated its weights once.

If one does so twice before that, as in adversarial trainings with several steps of the critic, every update ends a step
from then on.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class Rounds:
    """The updates of the optimizers of a training."""

    def __init__(self) -> None:
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        self._updated: set[int] = set()
        self._ever: set[int] = set()
        self._idle: set[int] = set()
        self._each_update = False
        self._is_first = True

    @property
    def any(self) -> bool:
        """Whether there are optimizers."""
        return bool(self._optimizers)

    def learn(self, optimizers: Iterable[Any]) -> None:
        """Take note of the optimizers that there are."""
        for optimizer in optimizers:
            known = self._optimizers.get(id(optimizer))
            if known is None or known() is not optimizer:
                self._optimizers[id(optimizer)] = weakref.ref(optimizer)

    def ends_step(self, updating: frozenset[int]) -> bool:
        """Note that optimizers, by their identities, have updated weights; return whether that ends a step.

        Nobody knows of none at all what they are: that ends a step.
        """
        live = {identity for identity, optimizer in self._optimizers.items() if optimizer() is not None}
        if self._is_first and not updating & self._ever:
            # Optimizers of networks that come to be known one after the other: all of it is one round.
            self._updated |= self._ever
        else:
            self._is_first = False
        if updating & self._updated:
            waiting = live - self._updated - self._idle
            self._each_update = self._each_update or bool(waiting & self._ever)
            self._idle |= waiting - self._ever
        self._updated |= updating
        self._ever |= updating
        self._idle -= updating
        if updating and not self._each_update and not live - self._idle <= self._updated:
            return False
        self._updated.clear()
        return True
