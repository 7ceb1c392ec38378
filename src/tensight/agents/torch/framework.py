"""PyTorch's modules and tensors, for the code that all eager frameworks share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tensight.agents.eager.adapter import GradientEdge, InnerModule, ModuleKind, Named
from tensight.agents.eager.calls import tensors_in_value
from tensight.agents.torch.arrays import outline, version_of
from tensight.agents.torch.inner_modules import has_children, held_tensors, inner_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.graph import OutputSlot

# Classes of wrappers that compute nothing of their own, and the attribute with the wrapped module.
_WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "OffloadWrapper": "_checkpoint_wrapped_module",
}
tensors_in = partial(tensors_in_value, torch.Tensor)
"""Return the tensors in a value, in their order in it; see `tensors_in_value`."""

_NO_NUMBER = 2**63
"""Autograd numbers its functions in the order of their creation, but for those that accumulate gradients."""

_WRAPPED = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
# Their forward only calls their children one after the other, or does not exist.
_PLAIN_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


class TorchFramework:
    """The `EagerFramework` of PyTorch."""

    tensor_type = torch.Tensor
    has_own_names = False

    # --- modules ---

    def modules(self, model: nn.Module) -> Iterator[InnerModule]:
        """Yield a model and the modules in it, each once, the model first."""
        scripted: tuple[str, ...] = ()
        for path, module in inner_modules(model):
            steps = tuple(step for step in path.split(".") if step and step not in _WRAPPED)
            # To Python a TorchScript module is a single one: those inside it are never called.
            yield InnerModule(steps, module, not path.startswith(scripted))
            if is_scripted(module):
                scripted = (*scripted, f"{path}." if path else "")

    def kind(self, module: nn.Module) -> ModuleKind:
        """Return how a module appears in a graph."""
        if is_compiled(module):
            compiled = module
            while (inner := self.wrapped(compiled)) is not None:
                compiled = inner
            return ModuleKind(type(compiled).__name__, is_leaf=True, is_plain=False, is_compiled=True)
        if is_scripted(module):
            return ModuleKind(str(module.original_name).replace("/", "_"), is_leaf=True, is_plain=False)
        is_wrapper = self.wrapped(module) is not None
        is_leaf = not is_wrapper and not has_children(module)
        is_own = type(module).__module__.startswith("torch.")
        is_plain = is_wrapper or (isinstance(module, _PLAIN_CONTAINERS) and is_own)
        # A lazy module changes its class with its first call.
        class_ = getattr(type(module), "cls_to_become", None) or type(module)
        return ModuleKind(class_.__name__.replace("/", "_"), is_leaf and not is_plain, is_plain)

    def wrapped(self, module: nn.Module) -> nn.Module | None:
        """Return the wrapped module of a wrapper that computes nothing of its own; None for other modules."""
        attribute = _WRAPPERS.get(type(module).__name__)
        inner: Any = None if attribute is None else module._modules.get(attribute)
        return inner if isinstance(inner, nn.Module) and type(module).__module__.startswith("torch.") else None

    def held(self, module: nn.Module, path: str) -> Iterator[Named]:
        """Yield the weights and buffers that belong to a module directly."""
        for held, is_parameter in ((module._parameters, True), (module._buffers, False)):
            holder: Any = _ScriptedTensors(held) if is_scripted(module) else held
            for key in holder:
                yield Named(partial(holder.get, key), path + key, is_parameter)

    def read_by(self, module: nn.Module, *, is_opaque: bool = False) -> list[torch.Tensor]:
        """Return the weights and buffers that a call of a module may read; those of inner modules if it is opaque."""
        if is_opaque or is_scripted(module) or is_compiled(module):
            return [tensor for kind in ("_parameters", "_buffers") for _, tensor in held_tensors(module, kind)]
        return [tensor for tensor in (*module._parameters.values(), *module._buffers.values()) if tensor is not None]

    # --- tensors ---

    def outline(self, tensor: torch.Tensor) -> OutputSlot:
        """Return the dtype and shape of a tensor, as a slot of a graph."""
        return outline(tensor)

    def version(self, tensor: torch.Tensor) -> int:
        """Return the version of a tensor, which grows with each write in place."""
        return version_of(tensor)

    # --- the backward pass ---

    def edge(self, tensor: torch.Tensor) -> GradientEdge | None:
        """Return the function that computed a tensor; None if there is none, or it needs no gradient."""
        function = tensor.grad_fn
        return None if function is None else _edge(function, tensor.output_nr)

    def edges_into(self, edge: GradientEdge) -> list[GradientEdge]:
        """Return the functions that computed the inputs of a function, as far as they need gradients."""
        return [_edge(*following) for following in edge.function.next_functions if following[0] is not None]

    def weight_at(self, edge: GradientEdge) -> int | None:
        """Return the identity of the weight at which the backward pass ends; None if it continues."""
        variable = getattr(edge.function, "variable", None)
        return None if variable is None else id(variable)


FRAMEWORK = TorchFramework()


def is_compiled(module: nn.Module) -> bool:
    """Whether a module is what ``torch.compile`` returns for another one."""
    return type(module).__name__ == "OptimizedModule" and FRAMEWORK.wrapped(module) is not None


def is_scripted(module: nn.Module) -> bool:
    """Whether a module is a TorchScript module, scripted or traced."""
    return isinstance(module, torch.jit.ScriptModule)


def _edge(function: Any, output: int) -> GradientEdge:
    """Return an edge whose key does not keep the function alive, nor what autograd has saved for it, where possible."""
    number = function._sequence_nr()
    if number >= _NO_NUMBER:
        return GradientEdge(function, (function, output))
    return GradientEdge(function, (number, function.name(), output), is_unique=True)


class _ScriptedTensors:
    """The weights or buffers of a TorchScript module, with the interface of a dictionary."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def get(self, key: str) -> torch.Tensor | None:
        # TorchScript's container has no `get`.
        return self._held[key] if key in self._held else None  # noqa: SIM401

    def __iter__(self) -> Iterator[str]:
        return iter(self._held.keys())
