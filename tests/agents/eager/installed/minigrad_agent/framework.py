"""What minigrad's modules and tensors are, for the code that all eager frameworks share, and how they are read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import minigrad
import numpy as np

from tensight.agents.eager.adapter import GradientEdge, InnerModule, ModuleKind, Named
from tensight.agents.eager.call_sites import call_site
from tensight.graph import OutputSlot
from tensight.wire import data_type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from numpy.typing import NDArray

    from tensight.agents.core.columns import StatisticsColumns
    from tensight.agents.eager.call_sites import CallSite


class MinigradFramework:
    """The `ReportedFramework` of minigrad."""

    tensor_type = minigrad.Tensor
    has_own_names = False

    def modules(self, model: minigrad.Module) -> Iterator[InnerModule]:
        seen: set[int] = set()
        for path, module in model.modules():
            if id(module) not in seen:
                seen.add(id(module))
                yield InnerModule(path, module)

    def kind(self, module: minigrad.Module) -> ModuleKind:
        is_plain = type(module) is minigrad.Sequential
        return ModuleKind(type(module).__name__, not is_plain and not any(True for _ in module.children()), is_plain)

    def wrapped(self, module: minigrad.Module) -> None:  # noqa: ARG002 - there are no wrappers
        return

    def held(self, module: minigrad.Module, path: str) -> Iterator[Named]:
        for name, _ in module.weights():
            yield Named(partial(vars(module).get, name), path + name, is_parameter=True)

    def read_by(
        self,
        module: minigrad.Module,
        *,
        is_opaque: bool = False,  # noqa: ARG002 - nothing is compiled
    ) -> list[minigrad.Tensor]:
        return [tensor for _, tensor in module.weights()]

    def forward(self, module: minigrad.Module) -> Callable[..., Any]:
        return type(module).forward

    def call_site(self) -> CallSite:
        return call_site(_called, (minigrad.__file__,))[0]

    def outline(self, tensor: minigrad.Tensor) -> OutputSlot:
        return OutputSlot.of_tensor(data_type_of(tensor.values.dtype), tensor.values.shape)

    def version(self, tensor: minigrad.Tensor) -> int:
        return tensor.version

    def requires_gradient(self, weight: minigrad.Tensor) -> bool:
        return weight.requires_grad

    def has_gradient(self, tensor: minigrad.Tensor) -> bool:
        return tensor.function is not None

    def on_gradient(self, tensor: minigrad.Tensor, on_arrival: Callable[[Any], None]) -> Hook:
        return Hook(tensor, on_arrival)

    def edge(self, tensor: minigrad.Tensor) -> GradientEdge | None:
        return GradientEdge(tensor.function, tensor.function) if tensor.function is not None else None

    def edges_into(self, edge: GradientEdge) -> list[GradientEdge]:
        inputs = [one for one in edge.function.inputs if one.requires_grad]
        # A weight ends the backward pass; it stands for itself.
        return [GradientEdge(one.function or one, one.function or one) for one in inputs]

    def weight_at(self, edge: GradientEdge) -> int | None:
        return id(edge.function) if isinstance(edge.function, minigrad.Tensor) else None

    def end_of(self, weight: minigrad.Tensor) -> int:
        return id(weight)

    def has_unlinked_input(self, edge: GradientEdge) -> bool:
        return not all(one.requires_grad for one in edge.function.inputs)


class Hook:
    """Something that is told the gradient of a tensor."""

    def __init__(self, tensor: minigrad.Tensor, on_arrival: Callable[[Any], None]) -> None:
        self._hooks = tensor.hooks
        tensor.hooks[id(self)] = on_arrival

    def remove(self) -> None:
        self._hooks.pop(id(self), None)


class MinigradReader:
    """A `TensorReader` of minigrad's tensors, and of the arrays that are copies of them."""

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...], int]:
        values = self.host(tensor)
        return values.dtype.name, values.shape, values.nbytes

    def hold(self, tensor: Any) -> tuple[Any, int, int]:
        return tensor, id(tensor), self.host(tensor).nbytes

    def version(self, tensor: Any) -> int:
        return getattr(tensor, "version", 0)

    def host(self, tensor: Any) -> NDArray[Any]:
        return np.asarray(getattr(tensor, "values", tensor), order="C")

    def copy(self, tensor: Any, into: Any = None) -> NDArray[Any]:  # noqa: ARG002 - memory is made anew
        return self.host(tensor).copy()

    def scan(self, tensor: Any, columns: StatisticsColumns, slot_id: int, *, hashed: bool = True) -> bool:
        return columns.scan(slot_id, self.host(tensor), hashed=hashed)

    def has_non_finite(self, tensor: Any) -> bool:
        return not bool(np.isfinite(self.host(tensor)).all())

    def settle(self, columns: StatisticsColumns) -> None:
        """Nothing computes behind."""


def _called(frame: FrameType) -> tuple[Any, object] | None:
    if frame.f_code.co_name != "forward" or not isinstance(frame.f_locals.get("self"), minigrad.Module):
        return None
    return frame.f_locals["self"], ()
