"""Names of cells and of their parameters, as they appear in graphs.

A cell's scope is ``Default/layer1/conv1``; parameters have the names that MindSpore gives them. What wraps a network
to train it (a loss, an optimizer, mixed precision) leaves no trace in names.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from mindspore import Parameter, nn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT_SCOPE = "Default"

# Where MindSpore's own wrappers hold what they wrap.
_WRAPPED = ("_backbone", "network", "_network", "net")
# Their own code only calls their cells one after the other, or does not exist.
_PLAIN_CONTAINERS = (nn.SequentialCell, nn.CellList)
# What a step of a training has gradients go through.
_REDUCERS = (nn.Identity, nn.DistributedGradReducer)
_MOVING = ("moving_mean", "moving_variance")


class CellName(NamedTuple):
    """What a cell is called.

    Attributes
    ----------
    scope : str
        ``Default/layer1/conv1``.
    type : str
        Name of its class.
    is_leaf : bool
        Whether it has no cells of its own: one call of it is one operator.
    is_plain : bool
        Whether it only passes on what its cells return.
    """

    scope: str
    type: str
    is_leaf: bool
    is_plain: bool


class Root(NamedTuple):
    """A network that is trained, or a cell that is called beside it, such as a loss."""

    cell: weakref.ref[nn.Cell]
    scope: str
    prefix: str
    cells: set[int]


class ParameterEntry(NamedTuple):
    """A parameter, or a buffer, of a network.

    Attributes
    ----------
    reference : weakref of Tensor
    name : str
        ``layer1.conv1.weight``: MindSpore's, after the name of its network where two networks use the same.
    is_parameter : bool
    """

    reference: weakref.ref[Any]
    name: str
    is_parameter: bool


class CellNames:
    """Names of everything that belongs to the networks of a training; cells are held weakly.

    Parameters
    ----------
    cells : sequence of Cell
        That are debugged, with or without what wraps them.
    follows_all : bool
        Whether every other network that is called is debugged, too.

    Attributes
    ----------
    follows_all : bool
    roots : list of Root
    generation : int
        Grows whenever a network comes or goes, or is seen to have other cells than before.
    """

    def __init__(self, cells: Sequence[nn.Cell], *, follows_all: bool) -> None:
        self.roots: list[Root] = []
        self.generation = 0
        self._cells: dict[int, CellName] = {}
        self._passed_over: set[int] = set()
        self._transparent: set[int] = set()
        self._entries: dict[int, list[ParameterEntry]] = {}
        self.follows_all = follows_all
        for cell in cells:
            for network in networks_of(cell):
                self._add(network)

    def name(self, cell: nn.Cell, *, is_outermost: bool) -> CellName | None:
        """Return the name of a cell; None if it belongs to no network of the training, or only wraps some."""
        known = self._cells.get(id(cell))
        if known is None and id(cell) not in self._passed_over and id(cell) not in self._transparent:
            self._meet(cell, is_outermost)
            known = self._cells.get(id(cell))
        return known

    def is_transparent(self, cell: nn.Cell) -> bool:
        """Whether a cell without a name only wraps networks: what it calls counts."""
        return id(cell) in self._transparent

    def entries(self) -> Iterator[tuple[Any, ParameterEntry]]:
        """Yield parameters and buffers with their entries, each once, in the order of the networks."""
        seen: set[int] = set()
        for root in self.roots:
            for entry in self._entries[id(root.cell)]:
                tensor = entry.reference()
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield tensor, entry

    def tensor_names(self) -> dict[int, str]:
        """Return the names of all parameters and buffers by the identity of the tensor."""
        return {id(tensor): entry.name for tensor, entry in self.entries()}

    def leaves(self) -> Iterator[tuple[nn.Cell, CellName]]:
        """Yield the cells that have none of their own, in the order of the networks."""
        for root in self.roots:
            model = root.cell()
            for _, cell in () if model is None else model.cells_and_names():
                name = self._cells.get(id(cell))
                if name is not None and name.is_leaf:
                    yield cell, name

    def _meet(self, cell: nn.Cell, is_outermost: bool) -> None:
        if wraps(cell) or (is_outermost and any(id(inner) in self._cells for inner in _inner_cells(cell))):
            self._transparent.add(id(cell))
            weakref.finalize(cell, self._transparent.discard, id(cell)).atexit = False
            return
        if not is_outermost:
            # A network got new cells since it was looked at.
            for root in self.roots:
                model = root.cell()
                if model is not None and any(inner is cell for inner in _inner_cells(model)):
                    self._read(root, model)
                    return
        if not isinstance(cell, _REDUCERS) and (self.follows_all or not cell.parameters_dict()):
            self._add(cell)
        else:
            self._passed_over.add(id(cell))
            weakref.finalize(cell, self._passed_over.discard, id(cell)).atexit = False

    def _add(self, network: nn.Cell) -> None:
        if id(network) in self._cells:
            return
        names = {parameter.name for parameter in network.get_parameters()}
        taken = {root.scope for root in self.roots}
        type_ = type(network).__name__
        if names and ROOT_SCOPE not in taken:
            scope = ROOT_SCOPE
        else:
            taken |= {name.scope for name in self._cells.values()}
            number, own = 0, type_
            while f"{ROOT_SCOPE}/{own}" in taken:
                number += 1
                own = f"{type_}_{number}"
            scope = f"{ROOT_SCOPE}/{own}"
        known = {entry.name for _, entry in self.entries()}
        prefix = f"{scope.rpartition('/')[2]}." if names & known else ""
        root = Root(weakref.ref(network), scope, prefix, set())
        self.roots.append(root)
        self._read(root, network)
        weakref.finalize(network, self._forget, weakref.ref(self), root).atexit = False

    def _read(self, root: Root, network: nn.Cell) -> None:
        """Give names to the cells of a network as it is now."""
        entries: list[ParameterEntry] = []
        for path, cell in network.cells_and_names():
            if isinstance(cell, nn.Optimizer):
                continue
            steps = [step.replace("/", "_") for step in path.split(".") if step and step != "_backbone"]
            scope = "/".join([root.scope, *steps])
            if id(cell) not in root.cells:
                root.cells.add(id(cell))
                self._cells.setdefault(id(cell), _name_of(cell, scope))
                weakref.finalize(cell, self._forget_cell, weakref.ref(self), root, id(cell)).atexit = False
            entries += _entries_of(cell, root.prefix, ".".join(steps))
        self._entries[id(root.cell)] = entries
        self.generation += 1

    @staticmethod
    def _forget_cell(reference: weakref.ref[CellNames], root: Root, number: int) -> None:
        self = reference()
        root.cells.discard(number)
        if self is not None:
            self._cells.pop(number, None)

    @staticmethod
    def _forget(reference: weakref.ref[CellNames], root: Root) -> None:
        self = reference()
        if self is not None:
            self.roots = [other for other in self.roots if other.cell is not root.cell]
            del self._entries[id(root.cell)]
            self.generation += 1


def networks_of(cell: nn.Cell) -> list[nn.Cell]:
    """Return the networks in what wraps them to train them; the cell itself if it wraps none."""
    if not wraps(cell):
        return [cell]
    inner = [one for one in cell.cells() if not isinstance(one, nn.Optimizer)]
    found = [network for one in inner for network in networks_of(one)]
    return [network for network in found if network.parameters_dict()] or [cell]


def wraps(cell: nn.Cell) -> bool:
    """Whether a cell belongs to how networks are trained, and not to a network."""
    if isinstance(cell, nn.Optimizer):
        return False
    if any(isinstance(inner, nn.Optimizer) for inner in cell.cells()):
        return True
    is_own = type(cell).__module__.startswith("mindspore.")
    return is_own and any(isinstance(cell._cells.get(name), nn.Cell) for name in _WRAPPED)


def _inner_cells(cell: nn.Cell) -> Iterator[nn.Cell]:
    for _, inner in cell.cells_and_names():
        if inner is not cell:
            yield inner


def _name_of(cell: nn.Cell, scope: str) -> CellName:
    is_plain = isinstance(cell, _PLAIN_CONTAINERS) and type(cell).__module__.startswith("mindspore.")
    return CellName(scope, type(cell).__name__.replace("/", "_"), not cell._cells and not is_plain, is_plain)


def _entries_of(cell: nn.Cell, prefix: str, path: str) -> Iterator[ParameterEntry]:
    for parameter in cell._params.values():
        if isinstance(parameter, Parameter):
            moves = parameter.name.rpartition(".")[2] in _MOVING and not parameter.requires_grad
            yield ParameterEntry(weakref.ref(parameter), prefix + parameter.name, not moves)
    for key, buffer in getattr(cell, "_buffers", {}).items():
        if buffer is not None:
            name = f"{path}.{key}" if path else key
            yield ParameterEntry(weakref.ref(buffer), prefix + name, False)
