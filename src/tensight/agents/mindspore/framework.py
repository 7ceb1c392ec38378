"""What MindSpore's cells are, for the code that all eager frameworks share."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from mindspore import Parameter, nn

from tensight.agents.eager.adapter import InnerModule, ModuleKind, Named

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where MindSpore's own wrappers hold what they wrap.
_WRAPPED = ("_backbone", "network", "_network", "net")
# Their own code only calls their cells one after the other, or does not exist.
_PLAIN_CONTAINERS = (nn.SequentialCell, nn.CellList)
_MOVING = ("moving_mean", "moving_variance")


class PyNativeFramework:
    """The `EagerFramework` of MindSpore in PyNative mode; parameters have the names that MindSpore gives them."""

    has_own_names = True

    def modules(self, model: nn.Cell) -> Iterator[InnerModule]:
        """Yield a network and the cells in it, each once, the network first; optimizers are none of it."""
        for path, cell in model.cells_and_names():
            if not isinstance(cell, nn.Optimizer):
                yield InnerModule(tuple(step for step in path.split(".") if step and step != "_backbone"), cell)

    def kind(self, module: nn.Cell) -> ModuleKind:
        """Return what a cell is to a graph."""
        is_plain = isinstance(module, _PLAIN_CONTAINERS) and type(module).__module__.startswith("mindspore.")
        return ModuleKind(type(module).__name__.replace("/", "_"), not module._cells and not is_plain, is_plain)

    def wrapped(self, module: nn.Cell) -> None:  # noqa: ARG002 - see `CellDiscovery`
        """Return None: what wraps networks of MindSpore may wrap several, and their optimizer."""
        return

    def held(self, module: nn.Cell, path: str) -> Iterator[Named]:
        """Yield the parameters and buffers that a cell holds itself."""
        for parameter in module._params.values():
            if isinstance(parameter, Parameter):
                moves = parameter.name.rpartition(".")[2] in _MOVING and not parameter.requires_grad
                yield Named(weakref.ref(parameter), parameter.name, not moves)
        for key, buffer in getattr(module, "_buffers", {}).items():
            if buffer is not None:
                yield Named(weakref.ref(buffer), path + key, False)


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
