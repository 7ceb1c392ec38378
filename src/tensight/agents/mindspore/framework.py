"""Implements for MindSpore's cells what the code for all eager frameworks needs."""

from __future__ import annotations

import inspect
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from mindspore import Parameter, Tensor, nn

from tensight.agents.eager.adapter import GradientEdge, InnerModule, ModuleKind, Named
from tensight.agents.eager.call_sites import call_site
from tensight.agents.eager.calls import tensors_in_value
from tensight.agents.mindspore.arrays import outline

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from types import FrameType

    from tensight.agents.eager.call_sites import CallSite
    from tensight.graph import OutputSlot

# Attributes in which MindSpore's own wrappers keep what they wrap.
_WRAPPED = ("_backbone", "network", "_network", "net")
# Their own code only calls their cells one after the other, or does not exist.
_PLAIN_CONTAINERS = (nn.SequentialCell, nn.CellList)
_MOVING = ("moving_mean", "moving_variance")


_CELL_FILE = inspect.getfile(nn.Cell)
_HOOKS = ("_forward_hook", "_forward_pre_hook", "_lazy_forward_hook", "_lazy_forward_pre_hook")
# Prefixes of the names of functions that multiply: a factor without gradient is not linked.
_PRODUCTS = ("Mul", "MatMul", "BatchMatMul", "Matmul", "Bmm", "Mm", "Dense")
_FACTORS = 2

tensors_in = partial(tensors_in_value, Tensor)
"""Returns the tensors in a value, in the order in which it contains them."""


class PyNativeFramework:
    """`ReportedFramework` for MindSpore in PyNative mode; parameters keep the names that MindSpore gives them."""

    tensor_type = Tensor
    has_own_names = True

    # --- modules ---

    def modules(self, model: nn.Cell) -> Iterator[InnerModule]:
        """Yield a network and the cells in it, each once, the network first; optimizers are left out."""
        for path, cell in model.cells_and_names():
            if not isinstance(cell, nn.Optimizer):
                yield InnerModule(tuple(step for step in path.split(".") if step and step != "_backbone"), cell)

    def kind(self, module: nn.Cell) -> ModuleKind:
        """Return how graphs represent a cell."""
        is_plain = isinstance(module, _PLAIN_CONTAINERS) and type(module).__module__.startswith("mindspore.")
        return ModuleKind(type(module).__name__.replace("/", "_"), not module._cells and not is_plain, is_plain)

    def wrapped(self, module: nn.Cell) -> None:  # noqa: ARG002 - see `CellDiscovery`
        """Return None: MindSpore's wrappers may wrap several networks, and their optimizer."""
        return

    def held(self, module: nn.Cell, path: str) -> Iterator[Named]:
        """Yield the parameters and buffers of a cell itself."""
        for parameter in module._params.values():
            if isinstance(parameter, Parameter):
                moves = parameter.name.rpartition(".")[2] in _MOVING and not parameter.requires_grad
                yield Named(weakref.ref(parameter), parameter.name, not moves)
        for key, buffer in getattr(module, "_buffers", {}).items():
            if buffer is not None:
                yield Named(weakref.ref(buffer), path + key, False)

    def read_by(self, module: nn.Cell, *, is_opaque: bool = False) -> list[Any]:
        """Return the parameters that a call of a cell may read."""
        return list(module.get_parameters() if is_opaque else module._params.values())

    def forward(self, module: nn.Cell) -> Callable[..., Any]:
        """Return the function of a cell's class that computes what a call of it returns."""
        function: Callable[..., Any] = type(module).construct
        return function

    def call_site(self) -> CallSite:
        """Return the location of the user's code that has called a cell."""
        site, running = call_site(_called, (_CELL_FILE,))
        has_hooks = any(vars(call.module).get(name) for call in running[:1] for name in _HOOKS)
        return site._replace(is_direct=False) if has_hooks else site

    # --- tensors ---

    def outline(self, tensor: Any) -> OutputSlot:
        """Return dtype and shape of a tensor as graphs describe them."""
        return outline(tensor)

    def version(self, tensor: Any) -> int:  # noqa: ARG002 - MindSpore counts some writes and not others
        """Return 0: MindSpore does not report whether a tensor was written to."""
        return 0

    def requires_gradient(self, weight: Any) -> bool:
        """Whether a parameter is trainable."""
        return bool(weight.requires_grad)

    def has_gradient(self, tensor: Any) -> bool:
        """Whether a tensor was computed, and takes part in a backward pass that may come."""
        # Before 2.9 the second condition is unknown.
        return bool(tensor._has_auto_grad()) and getattr(tensor, "_requires_grad", None) is not False

    def on_gradient(self, tensor: Any, on_arrival: Callable[[Any], None]) -> Any | None:
        """Call a function with the gradient of a tensor; return a handle with ``remove``, None if none will come."""
        try:
            return tensor.register_hook(on_arrival)
        except RuntimeError:
            # Before 2.9 only this error shows that no gradient comes: it was stopped, or is not required.
            return None

    # --- the backward pass; its functions are linked since 2.9 ---

    def edge(self, tensor: Any) -> GradientEdge | None:
        """Return the function that computed a tensor; None if there is none, or it is unknown."""
        function = getattr(tensor, "_grad_node", None)
        if not hasattr(function, "next_functions"):
            return None
        return _edge(function, tensor._output_index)

    def edges_into(self, edge: GradientEdge) -> list[GradientEdge]:
        """Return the functions that computed the inputs of a function, as far as gradients flow there."""
        return [_edge(*following) for following in edge.function.next_functions if following[0] is not None]

    def has_unlinked_input(self, edge: GradientEdge) -> bool:
        """Whether a function has a factor without gradient."""
        function = edge.function
        return function.name().startswith(_PRODUCTS) and len(self.edges_into(edge)) < _FACTORS

    def weight_at(self, edge: GradientEdge) -> Hashable | None:
        """Return the id of the parameter at which the backward pass ends; None if it goes on."""
        function = edge.function
        return function._unique_id() if function.is_leaf() else None

    def end_of(self, weight: Any) -> Hashable | None:
        """Return what `weight_at` returns for a parameter; None if no backward pass has reached it yet."""
        end = getattr(weight, "_grad_node", None)
        return None if end is None else end._unique_id()


def networks_of(cell: nn.Cell) -> list[nn.Cell]:
    """Return the networks that a cell wraps to train them; the cell itself if it wraps none."""
    if not wraps(cell):
        return [cell]
    children = [child for child in cell.cells() if not isinstance(child, nn.Optimizer)]
    networks = [network for child in children for network in networks_of(child)]
    return [network for network in networks if network.parameters_dict()] or [cell]


def _edge(function: Any, output: int) -> GradientEdge:
    return GradientEdge(function, (function._unique_id(), output))


def _called(frame: FrameType) -> tuple[Any, object] | None:
    code = frame.f_code
    if code.co_name != "__call__" or code.co_filename != _CELL_FILE:
        return None
    names = frame.f_locals
    return names["self"], (names.get("args"), names.get("kwargs"))


def wraps(cell: nn.Cell) -> bool:
    """Whether a cell belongs to the training procedure, and not to a network."""
    if isinstance(cell, nn.Optimizer):
        return False
    if any(isinstance(inner, nn.Optimizer) for inner in cell.cells()):
        return True
    is_own = type(cell).__module__.startswith("mindspore.")
    return is_own and any(isinstance(cell._cells.get(name), nn.Cell) for name in _WRAPPED)
