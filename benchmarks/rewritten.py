"""A model written in another way: operators fused or split, matrices fused or split, its modules renamed.

Each function changes a model in place, so that it computes the same up to rounding, and raises `NothingToRewrite` if
the model has nothing of the kind. Modules whose ``forward`` was replaced before are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

Forward = Callable[..., torch.Tensor]

QKV = (("q_proj", "k_proj", "v_proj"), ("query", "key", "value"))
"""Names of the three projections of attention where each is a module."""

FUSED = ("c_attn", "qkv")
"""Names of the projection where it is one."""


class NothingToRewrite(Exception):  # noqa: N818
    """A model has nothing of a kind."""


def renamed(model: nn.Module) -> None:
    """Give every module another name, and register them in the reverse order."""
    for module in list(model.modules()):
        if not module._modules or isinstance(module, (nn.ModuleList, nn.Sequential)):
            continue
        names = {name: f"my_{name}" for name in module._modules}
        aliases = {old: property(lambda self, new=new: self._modules[new]) for old, new in names.items()}
        module.__class__ = type(type(module).__name__, (type(module),), aliases)
        module._modules = {names[name]: child for name, child in reversed(list(module._modules.items()))}


def attention(model: nn.Module) -> None:
    """Write ``scaled_dot_product_attention`` out as products and a softmax."""
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")
        return
    modules = [module for module in model.modules() if hasattr(module, "fused_attn")]
    if not modules:
        raise NothingToRewrite
    for module in modules:
        module.fused_attn = False  # type: ignore[assignment]


def activations(model: nn.Module) -> None:
    """Write activations out that are one operator, and use one operator for those that are written out."""
    forwards: dict[str, Forward] = {
        "GELU": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
        "GELUActivation": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
        "NewGELUActivation": lambda x: nn.functional.gelu(x, approximate="tanh"),
        "SiLU": lambda x: x * torch.sigmoid(x),
        "SiLUActivation": lambda x: x * torch.sigmoid(x),
        "ReLU": lambda x: torch.where(x > 0, x, 0.0),
    }
    _replace(model, lambda module: forwards.get(type(module).__name__))


def linears(model: nn.Module) -> None:
    """Compute linear layers as a product and a sum."""
    _replace(model, _linear)


def _linear(module: nn.Module) -> Forward | None:
    if isinstance(module, nn.Linear):
        return lambda x: _plus(x @ module.weight.t(), module.bias)
    if type(module).__name__ == "Conv1D":
        return lambda x: _plus(x @ module.weight, module.bias)
    return None


def _plus(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x if bias is None else x + bias


def norms(model: nn.Module) -> None:
    """Write normalisations out, and use one operator for those that are written out."""
    _replace(model, _norm)


def _norm(module: nn.Module) -> Forward | None:
    if isinstance(module, nn.LayerNorm):
        return lambda x: _layer_norm(x, module)
    if type(module).__name__.endswith("RMSNorm"):
        return lambda x: nn.functional.rms_norm(x, x.shape[-1:], module.weight, module.variance_epsilon)  # type: ignore[arg-type]
    if isinstance(module, nn.BatchNorm2d):
        return lambda x: _batch_norm(x, module)
    return None


def _layer_norm(x: torch.Tensor, module: nn.LayerNorm) -> torch.Tensor:
    is_first_axis = "2d" in type(module).__name__
    axis = 1 if is_first_axis else -1
    shape = (-1, 1, 1) if is_first_axis else (-1,)
    centred = x - x.mean(axis, keepdim=True)
    scaled = centred * torch.rsqrt(centred.square().mean(axis, keepdim=True) + module.eps)
    return scaled * module.weight.view(shape) + module.bias.view(shape)


def _batch_norm(x: torch.Tensor, module: nn.BatchNorm2d) -> torch.Tensor:
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    with torch.no_grad():
        factor, count = module.momentum or 0.1, x.numel() / x.shape[1]
        module.running_mean.mul_(1 - factor).add_(mean, alpha=factor)  # type: ignore[union-attr]
        module.running_var.mul_(1 - factor).add_(variance, alpha=factor * count / (count - 1))  # type: ignore[union-attr]
        module.num_batches_tracked.add_(1)  # type: ignore[union-attr]
    scaled = (x - mean.view(-1, 1, 1)) * torch.rsqrt(variance + module.eps).view(-1, 1, 1)
    return scaled * module.weight.view(-1, 1, 1) + module.bias.view(-1, 1, 1)


def convolutions(model: nn.Module) -> None:
    """Compute convolutions as a product with the patches of the image."""
    _replace(model, _convolution)


def _convolution(module: nn.Module) -> Forward | None:
    if not isinstance(module, nn.Conv2d) or module.groups != 1:
        return None

    def forward(x: torch.Tensor) -> torch.Tensor:
        patches = nn.functional.unfold(x, module.kernel_size, module.dilation, module.padding, module.stride)  # type: ignore[arg-type]
        y = module.weight.flatten(1) @ patches
        sizes = [
            (x.shape[axis] + 2 * module.padding[axis - 2] - module.kernel_size[axis - 2]) // module.stride[axis - 2] + 1  # type: ignore[operator]
            for axis in (2, 3)
        ]
        return _plus(y, None if module.bias is None else module.bias.view(-1, 1)).view(len(x), -1, *sizes)

    return forward


def cells(model: nn.Module) -> None:
    """Write the gates of recurrent cells out."""
    _replace(model, lambda module: _gru(module) if isinstance(module, nn.GRUCell) else None)


def _gru(cell: nn.GRUCell) -> Forward:
    def forward(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        given = nn.functional.linear(x, cell.weight_ih, cell.bias_ih).chunk(3, 1)
        kept = nn.functional.linear(state, cell.weight_hh, cell.bias_hh).chunk(3, 1)
        reset, update = (torch.sigmoid(given[gate] + kept[gate]) for gate in (0, 1))
        return (1 - update) * torch.tanh(given[2] + reset * kept[2]) + update * state

    return forward


def projections(model: nn.Module) -> None:
    """Fuse the matrices of query, key and value where they are three, and split them where they are one."""
    found = False
    for module in list(model.modules()):
        whole = next((module._modules[name] for name in FUSED if name in module._modules), None)
        names = next((names for names in QKV if all(name in module._modules for name in names)), None)
        if whole is not None and not _is_replaced(whole):
            _split(module, next(name for name in FUSED if module._modules.get(name) is whole), whole)
            found = True
        elif names is not None:
            parts = [module._modules[name] for name in names]
            if all(isinstance(part, nn.Linear) and not _is_replaced(part) for part in parts):
                _fuse(module, names, parts)  # type: ignore[arg-type]
                found = True
    if not found:
        raise NothingToRewrite


def _split(module: nn.Module, name: str, whole: Any) -> None:
    is_turned = type(whole).__name__ == "Conv1D"
    weights = whole.weight.data.chunk(3, 1 if is_turned else 0)
    biases = (None,) * 3 if whole.bias is None else whole.bias.data.chunk(3)
    for part, weight, bias in zip(QKV[0], weights, biases, strict=True):
        linear = nn.Linear(weight.shape[0 if is_turned else 1], weight.shape[1 if is_turned else 0], bias is not None)
        linear.weight.data.copy_(weight.t() if is_turned else weight)
        if bias is not None:
            linear.bias.data.copy_(bias)
        module.add_module(part, linear)
    del module._modules[name]
    # Not registered as a module: the names of the three are the attention's own.
    module.__dict__[name] = lambda x: torch.cat([module._modules[part](x) for part in QKV[0]], -1)  # type: ignore[misc]


def _fuse(module: nn.Module, names: tuple[str, ...], parts: list[nn.Linear]) -> None:
    sizes = [part.out_features for part in parts]
    whole = nn.Linear(parts[0].in_features, sum(sizes), parts[0].bias is not None)
    whole.weight.data.copy_(torch.cat([part.weight.data for part in parts]))
    if whole.bias is not None:
        whole.bias.data.copy_(torch.cat([part.bias.data for part in parts]))
    for name in names:
        del module._modules[name]
    module.add_module("qkv_proj", whole)
    results: list[torch.Tensor] = []

    def first(x: torch.Tensor) -> torch.Tensor:
        results[:] = module.qkv_proj(x).split(sizes, -1)  # type: ignore[operator]
        return results.pop(0)

    module.__dict__[names[0]] = first
    module.__dict__[names[1]] = module.__dict__[names[2]] = lambda _: results.pop(0)


def _is_replaced(module: nn.Module) -> bool:
    return "forward" in module.__dict__


def _replace(model: nn.Module, forward_of: Callable[[nn.Module], Forward | None]) -> None:
    """Replace the ``forward`` of the modules for which there is another."""
    replaced = list(_replaced(model, forward_of))
    if not replaced:
        raise NothingToRewrite


def _replaced(model: nn.Module, forward_of: Callable[[nn.Module], Forward | None]) -> Iterator[nn.Module]:
    for module in model.modules():
        forward = None if _is_replaced(module) else forward_of(module)
        if forward is not None:
            module.forward = forward  # type: ignore[method-assign]
            yield module
