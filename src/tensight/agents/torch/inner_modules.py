"""The modules in a model and their tensors, read without calling methods of the model, which a script may override."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


def inner_modules(model: nn.Module, *, each_once: bool = True) -> Iterator[tuple[str, nn.Module]]:
    """Yield a model and the modules in it with their paths, as ``nn.Module.named_modules`` does.

    Parameters
    ----------
    model : Module
    each_once : bool
        Leave out further paths of a module.
    """
    seen: set[int] = set()

    def inside(path: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        if each_once and id(module) in seen:
            return
        seen.add(id(module))
        yield path, module
        for name, child in module._modules.items():
            if child is not None:
                yield from inside(f"{path}.{name}" if path else name, child)

    return inside("", model)


def is_in_training(module: nn.Module) -> bool:
    """Whether a module is in training mode, as it is at first; also if a script's own ``training`` cannot be read."""
    try:
        return bool(module.training)
    except Exception:
        return True


def has_children(module: nn.Module) -> bool:
    """Whether there are modules in a module."""
    return any(child is not None for child in module._modules.values())


def own_tensor(module: nn.Module, kind: Literal["_parameters", "_buffers"], name: str) -> torch.Tensor | None:
    """Return a parameter or a buffer of a module itself; those of TorchScript are no dictionary."""
    tensors: Any = getattr(module, kind)
    held = tensors[name] if name in tensors else None  # noqa: SIM401 - what TorchScript has lacks "get"
    return held if isinstance(held, torch.Tensor) else None


def held_tensors(
    model: nn.Module, kind: Literal["_parameters", "_buffers"], *, each_once: bool = True
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters or the buffers in a model with their names, as ``nn.Module.named_parameters`` does.

    Parameters
    ----------
    model : Module
    kind : {"_parameters", "_buffers"}
    each_once : bool
        Leave out further names of a tensor.
    """
    seen: set[int] = set()
    for path, module in inner_modules(model, each_once=each_once):
        for name, tensor in getattr(module, kind).items():
            if tensor is not None and not (each_once and id(tensor) in seen):
                seen.add(id(tensor))
                yield f"{path}.{name}" if path else name, tensor


def weights_in(model: nn.Module) -> Iterator[torch.Tensor]:
    """Yield the parameters in a model, each once."""
    return (weight for _, weight in held_tensors(model, "_parameters"))
