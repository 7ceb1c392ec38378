"""Decides which cells belong to a training: those of the debugged networks, and those called beside them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from mindspore import nn

from tensight.agents.core.live_instances import live_instances
from tensight.agents.mindspore.framework import networks_of, wraps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tensight.agents.eager.names import ModuleName, Names

# Cells of a training step that gradients pass through.
_REDUCERS = (nn.Identity, nn.DistributedGradReducer)


class CellDiscovery:
    """Names cells when they are first met. Cells that wrap networks to train them get no name, but what they call does.

    Parameters
    ----------
    names : Names
    cells : sequence of Cell
        Cells to debug, with or without the cells that wrap them.
    follows_all : bool
        Whether all other networks that are called are debugged, too.

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
        """Return the name of a cell that is called; None if it belongs to no network, or only wraps networks.

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
        """Whether a cell without a name only wraps networks, so that the cells that it calls count."""
        return id(cell) in self._transparent

    def meet_trained(self, optimizer: nn.Optimizer) -> None:
        """Do nothing: only networks that are called, or were given, are debugged."""

    def uncalled(self, knows: Callable[[nn.Optimizer], bool]) -> list[nn.Optimizer]:
        """Return the optimizers of networks that have not been called yet, but will be debugged when they are.

        Parameters
        ----------
        knows : callable (optimizer) -> bool
            Whether an optimizer updates a known network; called for each existing optimizer.
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
            # The network has new cells since it was last inspected.
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
