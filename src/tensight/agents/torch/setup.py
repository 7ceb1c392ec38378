"""Describes the setup of a PyTorch training: flags, generators, optimizers, schedulers, models and initial weights."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from tensight.agents.setup import attempt, digest, plain
from tensight.agents.torch.arrays import TorchReader
from tensight.agents.torch.inner_modules import held_tensors, inner_modules, is_in_training
from tensight.tensors import statistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MOST_TENSORS = 20_000
"""Limit of the parameters and buffers of a model, and the parameters of an optimizer. Further ones are counted."""

MOST_MODULES = 20_000
MOST_ATTRIBUTES = 60
MOST_INPUTS = 32
MOST_SCHEDULERS = 100
HASHED_BYTES = 2 << 30
"""Bytes of a model whose elements are all hashed, in the order of its weights. Later weights are sampled."""

_SAMPLED = 1 << 16
_RANDOM_WORDS = ("dropout", "droppath", "stochasticdepth", "rrelu", "gumbel", "noise", "dropblock")
_RATES = ("p", "drop_prob", "drop", "drop_rate", "std", "sigma")
_NOT_CONFIGURATION = frozenset({"training", "call_super_init", "dump_patches"})


def describe_torch(
    model: nn.Module | Iterable[nn.Module] | None = None, optimizers: Iterable[torch.optim.Optimizer] = ()
) -> dict[str, object]:
    """Return the setup of a PyTorch training, in the form that `tensight.agents.setup.describe` takes.

    Nothing is changed, no operator is visible to hooks or dispatch modes, and no exception is raised. A device that has
    not been used yet is not initialised. Weights on devices are copied one by one.

    Parameters
    ----------
    model : Module or iterable of Module, optional
        The models.
    optimizers : iterable of Optimizer

    Returns
    -------
    dict
        ``framework``, ``flags``, ``threads``, ``random``, ``optimizers``, ``schedulers``, ``models``; ``left_out``
        names the parts that could not be read.
    """
    models = [model] if isinstance(model, nn.Module) else list(model or ())
    used = list(optimizers)
    left_out: list[object] = []
    parts = {
        "framework": _framework,
        "flags": _flags,
        "threads": lambda: {
            "torch": torch.get_num_threads(),
            "torch_between_operators": torch.get_num_interop_threads(),
        },
        "random": _generators,
        "optimizers": lambda: [_optimizer(optimizer, _names(models)) for optimizer in used],
        "schedulers": lambda: _schedulers(used),
        "models": lambda: [_model(module) for module in models],
    }
    result = {name: attempt(name, part, left_out) for name, part in parts.items()}
    return {**result, "left_out": left_out} if left_out else result


def describe_inputs(arguments: Sequence[object], named: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the shape, dtype, range and hash of each tensor among the arguments of a call.

    Parameters
    ----------
    arguments : sequence of object
        Positional arguments; tensors in lists, tuples and dictionaries are included.
    named : mapping of str to object
        Keyword arguments.

    Returns
    -------
    list of dict
        One entry for each of at most `MOST_INPUTS` tensors; empty if something cannot be read.
    """
    try:
        inputs: list[dict[str, object]] = []
        for name, tensor in _tensors_in(
            (*((str(at), argument) for at, argument in enumerate(arguments)), *named.items())
        ):
            if len(inputs) >= MOST_INPUTS:
                break
            inputs.append({"name": name, **_values_of(tensor, HASHED_BYTES)})
    except Exception:
        return []
    return inputs


def _tensors_in(entries: Iterable[tuple[str, object]], depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in entries:
        if isinstance(value, torch.Tensor):
            yield name, value
        elif depth < 4 and isinstance(value, dict):
            yield from _tensors_in(((f"{name}.{key}", element) for key, element in value.items()), depth + 1)
        elif depth < 4 and isinstance(value, (list, tuple)) and len(value) <= 1000:
            yield from _tensors_in(((f"{name}.{at}", element) for at, element in enumerate(value)), depth + 1)


def _framework() -> dict[str, object]:
    result: dict[str, object] = {
        "name": "torch",
        "version": str(torch.__version__),
        "cuda": plain(torch.version.cuda),
        "hip": plain(getattr(torch.version, "hip", None)),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    if torch.cuda.is_initialized():
        result["devices"] = [torch.cuda.get_device_name(at) for at in range(min(torch.cuda.device_count(), 64))]
        result["cudnn"] = torch.backends.cudnn.version()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        result["backend"] = torch.distributed.get_backend()
        result["rank"], result["world_size"] = torch.distributed.get_rank(), torch.distributed.get_world_size()
    return result


def _flags() -> dict[str, object]:
    """Return the settings of the process that select implementations and precisions."""
    readers = {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled,
        "fill_uninitialized_memory": lambda: torch.utils.deterministic.fill_uninitialized_memory,
        "cudnn.enabled": lambda: torch.backends.cudnn.enabled,
        "cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
        "cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
        "cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
        "cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
        "cuda.matmul.fp16_reduced_precision_reduction": (
            lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
        ),
        "cuda.matmul.bf16_reduced_precision_reduction": (
            lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        ),
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "sdp.flash": torch.backends.cuda.flash_sdp_enabled,
        "sdp.memory_efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
        "sdp.math": torch.backends.cuda.math_sdp_enabled,
        "mkldnn.enabled": lambda: torch.backends.mkldnn.enabled,
        "default_dtype": lambda: str(torch.get_default_dtype()),
        "autocast": lambda: [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)],
        "grad_enabled": torch.is_grad_enabled,
        "anomaly_detection": torch.is_anomaly_enabled,
    }
    flags: dict[str, object] = {}
    for name, read in readers.items():
        try:
            value = read()
        except Exception:  # noqa: S112 - other versions of PyTorch have other flags
            continue
        flags[name] = plain(value)
    return flags


def _generators() -> dict[str, object]:
    def of(state: torch.Tensor) -> str:
        values = TorchReader().host(state)
        return digest(values.tobytes()) if values is not None else "unknown"

    result: dict[str, object] = {"torch": of(torch.get_rng_state()), "torch_seed": torch.initial_seed()}
    if torch.cuda.is_initialized():
        for at in range(min(torch.cuda.device_count(), 64)):
            result[f"torch_cuda:{at}"] = of(torch.cuda.get_rng_state(at))
    return result


def _names(models: Sequence[nn.Module]) -> dict[int, str]:
    """Return the names of all parameters, by the identity of the parameter."""
    names: dict[int, str] = {}
    for model in models:
        for name, parameter in held_tensors(model, "_parameters"):
            names.setdefault(id(parameter), name)
    return names


def _optimizer(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> dict[str, object]:
    groups: list[object] = []
    for group in optimizer.param_groups:
        settings = {
            str(key): _setting(value) for key, value in list(group.items())[:MOST_ATTRIBUTES] if key != "params"
        }
        parameters = [names.get(id(parameter), "") for parameter in group["params"]]
        groups.append(
            {
                "settings": {key: value for key, value in settings.items() if value is not None},
                "parameters": [name for name in parameters if name][:MOST_TENSORS],
                "parameter_count": len(parameters),
            }
        )
    return {"class": type(optimizer).__name__, "groups": groups, "parameters_with_state": len(optimizer.state)}


def _setting(value: object) -> object:
    """Return the value of a hyper-parameter, which is a tensor in capturable optimizers."""
    if isinstance(value, torch.Tensor):
        values = TorchReader().host(value) if value.numel() == 1 else None
        return plain(values.item()) if values is not None else None
    return plain(value)


def _schedulers(optimizers: Sequence[torch.optim.Optimizer]) -> list[dict[str, object]]:
    """Return the schedulers of the optimizers, found through the garbage collector: optimizers do not refer to them."""
    optimizer_ids = {id(optimizer) for optimizer in optimizers}
    schedulers: list[dict[str, object]] = []
    # Only referrers of an optimizer are inspected. An object's attributes may be in a dictionary, or in itself.
    for holder in gc.get_referrers(*optimizers) if optimizers else ():
        if type(holder) is dict and "last_epoch" in holder and id(holder.get("optimizer")) in optimizer_ids:
            schedulers.append({"class": _class_of(holder), "settings": _plain_attributes(holder)})
        elif issubclass(type(holder), torch.optim.lr_scheduler.LRScheduler):
            attributes = vars(holder)
            if id(attributes.get("optimizer")) in optimizer_ids:
                schedulers.append({"class": type(holder).__name__, "settings": _plain_attributes(attributes)})
    return sorted(schedulers, key=str)[:MOST_SCHEDULERS]


def _class_of(attributes: dict[str, object]) -> str:
    """Return the class name of the object with these attributes."""
    for owner in gc.get_referrers(attributes):
        if getattr(type(owner), "__module__", "") != "builtins" and getattr(owner, "__dict__", None) is attributes:
            return type(owner).__name__
    return "unknown"


def _plain_attributes(attributes: Mapping[str, object]) -> dict[str, object]:
    """Return the public attributes with plain values."""
    result: dict[str, object] = {}
    for name, value in list(attributes.items()):
        if name.startswith("_") or name in _NOT_CONFIGURATION or len(result) >= MOST_ATTRIBUTES:
            continue
        kept = str(value) if isinstance(value, (torch.dtype, torch.device)) else plain(value)
        if kept is not None:
            result[name] = kept
    return result


def _model(model: nn.Module) -> dict[str, object]:
    modules, random_layers, batch_norms, modes = {}, [], [], {True: 0, False: 0}
    amount = 0
    for name, module in inner_modules(model):
        amount += 1
        modes[is_in_training(module)] += 1
        if amount > MOST_MODULES:
            continue
        attributes = _plain_attributes(vars(module))
        modules[name] = {"class": type(module).__name__, **attributes}
        layer = _random_layer(name, module, attributes)
        if layer is not None:
            random_layers.append(layer)
        if "batchnorm" in type(module).__name__.lower() or attributes.get("track_running_stats") is True:
            batch_norms.append({"name": name, "class": type(module).__name__, "training": is_in_training(module)})
    config = vars(model).get("config")
    return {
        "class": type(model).__name__,
        "training": is_in_training(model),
        "modules_in_training": modes[True],
        "modules_in_evaluation": modes[False],
        "modules": modules,
        "modules_left_out": max(amount - MOST_MODULES, 0),
        "random_layers": random_layers,
        "batch_norms": batch_norms,
        "config": _plain_attributes(vars(config)) if hasattr(config, "__dict__") else {},
        **_state(model),
    }


def _random_layer(name: str, module: nn.Module, attributes: Mapping[str, object]) -> dict[str, object] | None:
    """Return the random rates of a layer; None if it draws no random numbers."""
    kind = type(module).__name__.lower()
    if any(word in kind for word in _RANDOM_WORDS):
        rates = {key: attributes[key] for key in _RATES if key in attributes}
    else:
        # Attention and recurrent layers have a dropout rate of their own.
        rates = {
            key: value for key, value in attributes.items() if "dropout" in key and isinstance(value, float) and value
        }
    if not rates and not any(word in kind for word in _RANDOM_WORDS):
        return None
    return {"name": name, "class": type(module).__name__, "training": is_in_training(module), **rates}


def _state(model: nn.Module) -> dict[str, object]:
    """Return the parameters and buffers of a model, and the groups of names that share a tensor."""
    budget = HASHED_BYTES
    names_of: dict[int, list[str]] = {}
    result: dict[str, object] = {}
    left_out = 0
    for kind, entries in (
        ("parameters", held_tensors(model, "_parameters", each_once=False)),
        ("buffers", held_tensors(model, "_buffers", each_once=False)),
    ):
        tensors: dict[str, object] = {}
        for name, tensor in entries:
            if len(tensors) >= MOST_TENSORS:
                left_out += 1
                continue
            tensor_names = names_of.setdefault(id(tensor), [])
            tensor_names.append(name)
            if len(tensor_names) > 1:
                continue
            tensors[name] = {**_values_of(tensor, budget), "requires_grad": bool(tensor.requires_grad)}
            budget -= 0 if is_lazy(tensor) else tensor.nbytes
        result[kind] = tensors
    result["tied"] = [names for names in names_of.values() if len(names) > 1]
    result["tensors_left_out"] = left_out
    return result


def _values_of(tensor: torch.Tensor, budget: int) -> dict[str, object]:
    """Return shape, dtype, device, range and hash of a tensor; over the budget only a hash of some elements."""
    about: dict[str, object] = {"dtype": str(tensor.dtype).removeprefix("torch."), "device": str(tensor.device)}
    if is_lazy(tensor):
        return about
    about["shape"] = [int(size) for size in tensor.shape]
    try:
        is_whole = tensor.nbytes <= max(budget, 0)
        # A sampled tensor on a device would have to be copied first.
        values = TorchReader().host(tensor) if is_whole or (tensor.is_cpu and tensor.is_contiguous()) else None
        if values is None:
            return about
        if not is_whole:
            flat = values.reshape(-1)
            chosen = flat[:: max(len(flat) // _SAMPLED, 1)]
            return {**about, "sampled_hash": digest(np.ascontiguousarray(chosen).tobytes())}
        row = statistics(values)
    except Exception:
        return about
    ranges = {name: plain(float(getattr(row, name))) for name in ("min", "max", "mean", "std")}
    return {**about, "hash": f"{row.content_hash:016x}", **ranges, "non_finite": row.count - row.finite_count}
