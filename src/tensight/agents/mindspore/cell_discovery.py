"""Which cells belong to a training: those of the networks that are debugged, and what is called beside them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from mindspore import nn

from tensight.agents.live_instances import live_instances
from tensight.agents.mindspore.framework import networks_of, wraps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tensight.agents.eager.names import ModuleName, Names

# What a step of a training has gradients go through.
_REDUCERS = (nn.Identity, nn.DistributedGradReducer)


class CellDiscovery:
    """Gives names to cells as they are met. What wraps networks to train them has none: what it calls counts.

    Parameters
    ----------
    names : Names
    cells : sequence of Cell
        That are debugged, with or without what wraps them.
    follows_all : bool
        Whether every other network that is called is debugged, too.

    Attributes
    ----------
    follows_all : bool
    """

    def __init__(self, names: Names, cells: Sequence[nn.Cell], *, follows_all: bool) -> None:
        self.follows_all = follows_all
        self._names = names
        self._transparent: set[int] = set()
        self._is_outermost = False
        names.meet = self._meet
        for cell in cells:
            for network in networks_of(cell):
                self._add(network)

    def name(self, cell: nn.Cell, *, is_outermost: bool) -> ModuleName | None:
        """Return the name of a cell that is called; None if it belongs to no network, or only wraps some.

        Parameters
        ----------
        cell : Cell
        is_outermost : bool
            Whether no cell of a network has called it.
        """
        if id(cell) in self._transparent:
            return None
        self._is_outermost = is_outermost
        return self._names.name(cell)

    def is_transparent(self, cell: nn.Cell) -> bool:
        """Whether a cell without a name only wraps networks: what it calls counts."""
        return id(cell) in self._transparent

    def meet_trained(self, optimizer: nn.Optimizer) -> None:
        """Find no more: a network is debugged when it is called, or was named."""

    def uncalled(self, knows: Callable[[nn.Optimizer], bool]) -> list[nn.Optimizer]:
        """Return the optimizers of networks that have not been called yet, and are debugged as soon as they are.

        Parameters
        ----------
        knows : callable (optimizer) -> bool
            Whether an optimizer updates a network that is known; asked for each one that there is.
        """
        others = [other for other in live_instances(nn.Optimizer) if not knows(other)]
        return others if self.follows_all else []

    def _meet(self, cell: nn.Cell) -> None:
        names = self._names
        if wraps(cell) or (self._is_outermost and any(id(inner) in names.modules for inner in _inner_cells(cell))):
            self._transparent.add(id(cell))
            weakref.finalize(cell, self._transparent.discard, id(cell)).atexit = False
            return
        owner = None if self._is_outermost else names.owner_of(cell)
        if owner is not None:
            # The network got new cells since it was looked at.
            names.add(owner)
        elif not isinstance(cell, _REDUCERS) and (self.follows_all or not cell.parameters_dict()):
            names.add(cell)
        else:
            names.pass_over(cell)

    def _add(self, network: nn.Cell) -> None:
        if id(network) not in self._names.modules:
            self._names.add(network)


def _inner_cells(cell: nn.Cell) -> Iterator[nn.Cell]:
    for _, inner in cell.cells_and_names():
        if inner is not cell:
            yield inner
