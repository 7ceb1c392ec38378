"""Which modules belong to a training: those of the models that are debugged, and what is called beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import nn

from tensight.agents.live_instances import live_instances

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tensight.agents.eager.names import Names


class Discovery:
    """Gives names to modules as they are met.

    Parameters
    ----------
    names : Names
    models : sequence of Module
        That are debugged; if there are none, every model with parameters that is called is.

    Attributes
    ----------
    follows_all : bool
        Whether every model with parameters is debugged as soon as it is called.
    """

    def __init__(self, names: Names, models: Sequence[nn.Module] = ()) -> None:
        self._names = names
        self.follows_all = not models
        for model in models:
            names.add(model)
        names.meet = self.meet

    def meet(self, module: nn.Module, alive: Iterable[object] | None = None) -> None:
        """Give a name to a module that was never seen, or have it passed over.

        Parameters
        ----------
        module : Module
        alive : iterable of object, optional
            All modules that there are, and what else; they are looked for if they are not given.
        """
        names = self._names
        top = outermost_owner(module, alive)
        if id(top) in names.modules:
            # The model got new modules since it was looked at.
            names.add(top)
        elif self.follows_all or not any(True for _ in top.parameters()):
            names.add(top)
        if id(module) not in names.modules:
            names.pass_over(module)

    def meet_trained(self, optimizer: torch.optim.Optimizer) -> None:
        """Give names to the models that an optimizer trains: while nobody watches, no call of them was seen."""
        if self.follows_all:
            for module in owners_of_weights(optimizer):
                self._names.name(module)

    def uncalled(self, knows: Callable[[torch.optim.Optimizer], bool]) -> list[torch.optim.Optimizer]:
        """Return the optimizers of models that have not been called yet, and are debugged as soon as they are.

        Parameters
        ----------
        knows : callable (optimizer) -> bool
            Whether an optimizer updates a model that is known; asked for each one that there is.
        """
        alive: list[object] = live_instances((nn.Module, torch.optim.Optimizer))
        others = [one for one in alive if is_optimizer(one) and not knows(one)]
        if not others or not self.follows_all:
            return []
        held = {id(weight) for one in alive if _is_module(one) for weight in vars(one).get("_parameters", {}).values()}
        # The rest updates plain tensors, or weights that no model has any more.
        return [one for one in others if not held.isdisjoint(map(id, weights_of(one)))]

    def is_evaluation(self, module: nn.Module) -> bool:
        """Whether a call of an outermost module looks like an evaluation, which is no part of a training step."""
        return not module.training and not torch.is_grad_enabled()


def outermost_owner(module: nn.Module, alive: Iterable[object] | None = None) -> nn.Module:
    """Return the module that a module belongs to and that belongs to no other one."""
    owners: dict[int, nn.Module] = {}
    modules = live_instances(nn.Module) if alive is None else [one for one in alive if _is_module(one)]
    for owner in modules:
        # One that is only half made has none.
        for child in vars(owner).get("_modules", {}).values():
            if child is not None:
                owners.setdefault(id(child), owner)
    seen = {id(module)}
    while (owner := owners.get(id(module))) is not None and id(owner) not in seen:
        seen.add(id(owner))
        module = owner
    return module


def owners_of_weights(optimizer: torch.optim.Optimizer) -> Iterator[nn.Module]:
    """Yield the modules in this process that hold any of the weights that an optimizer updates."""
    updated = set(map(id, weights_of(optimizer)))
    for module in live_instances(nn.Module):
        if any(id(weight) in updated for weight in module.parameters()):
            yield module


def weights_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return what an optimizer updates."""
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def is_optimizer(one: object) -> TypeGuard[torch.optim.Optimizer]:
    """Whether an object is an optimizer, and whole: one whose making failed may live on in a traceback."""
    kind = type(one)
    return issubclass(kind, torch.optim.Optimizer) and ("param_groups" in vars(one) or hasattr(kind, "param_groups"))


def _is_module(one: object) -> TypeGuard[nn.Module]:
    return issubclass(type(one), nn.Module)
