"""The measurements of `tensight selftest` in a PyTorch training."""

from __future__ import annotations

import contextlib
import gc
import hashlib
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from tensight.agents.core.replacing import Replacements
from tensight.agents.torch.inner_modules import held_tensors, inner_modules
from tensight.agents.trial import Training

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensight.agents.trial import Trial


def follow(trial: Trial) -> None:
    """Report every step to a trial from now on."""
    Replacements().put(torch.multiprocessing, "spawn", _spawn)
    TorchTraining(trial)


def _spawn(original: Any, function: Any, args: Any = (), nprocs: int = 1, *more: Any, **named: Any) -> Any:  # noqa: ARG001
    """Call a function in this process, as `torch.multiprocessing.spawn` does in another one.

    Raises
    ------
    SystemExit
        It is to run in several processes, none of which a trial follows.
    """
    if nprocs != 1:
        raise SystemExit(
            f"the script trains in {nprocs} processes (torch.multiprocessing.spawn): selftest and doctor examine one."
            " Try them with one (nprocs=1)"
        )
    function(0, *args)


class TorchTraining(Training):
    """A PyTorch training.

    Parameters
    ----------
    trial : Trial
        Receives each step of the first optimizer.
    """

    framework = "torch"

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._optimizers: list[Any] = []
        register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if not any(optimizer is other for other in self._optimizers):
            self._optimizers.append(optimizer)
        if optimizer is self._optimizers[0]:
            self._trial.stepped(self)

    def state(self) -> Iterator[tuple[str, str]]:
        """Yield each parameter, each buffer of its module, and each tensor of an optimizer's state."""
        for name, tensor in _state(self._optimizers):
            yield name, _digest(tensor)


def _state(optimizers: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield all tensors that a step may change, in an order that does not depend on memory addresses."""
    names = _names_of_parameters()
    owners: dict[int, Any] = {}
    for number, optimizer in enumerate(optimizers):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for index, parameter in enumerate(parameters):
            name, owner = names.get(id(parameter), (f"parameter {index} of optimizer {number}", None))
            yield name, parameter
            if owner is not None:
                owners.setdefault(id(owner), owner)
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"{key}.{name}", value
    for position, owner in enumerate(owners.values()):
        for name, buffer in held_tensors(owner, "_buffers"):
            yield (name if len(owners) == 1 else f"{position}.{name}"), buffer


def versions_kept(modules: Sequence[Any]) -> contextlib.AbstractContextManager[None]:
    """Return a context in which writes to parameters and buffers of modules do not change their versions.

    The values written must be the same as those that autograd has saved.
    """
    keep = getattr(torch.autograd, "_unsafe_preserve_version_counter", None)
    tensors = tuple(
        tensor for module in modules for kind in ("_parameters", "_buffers") for _, tensor in held_tensors(module, kind)
    )
    if keep is None or not tensors:
        return contextlib.nullcontext()
    kept: contextlib.AbstractContextManager[None] = keep(tensors)
    return kept


def _names_of_parameters() -> dict[int, tuple[str, Any]]:
    """Return name and outermost module of each parameter, by the identity of the parameter."""
    names: dict[int, tuple[str, Any]] = {}
    for module in outermost_modules():
        for name, parameter in held_tensors(module, "_parameters"):
            names.setdefault(id(parameter), (name, module))
    return names


def outermost_modules() -> list[torch.nn.Module]:
    """Return the modules that are in no other module."""
    # By the type, because `isinstance` would evaluate `__class__`, which may run code of lazy objects.
    modules = [instance for instance in gc.get_objects() if issubclass(type(instance), torch.nn.Module)]
    # Others have not been initialized yet.
    modules = [module for module in modules if "_modules" in vars(module)]
    inside = {id(child) for module in modules for _, child in inner_modules(module) if child is not module}
    return [module for module in modules if id(module) not in inside]


def _digest(tensor: Any) -> str:
    values = tensor.detach().to("cpu").contiguous().flatten().view(torch.uint8)
    return hashlib.sha256(memoryview(values.numpy())).hexdigest()
