"""Finds the modules that belong to a training: those of the debugged models, and others that it calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import nn

from tensight.agents.core.live_instances import live_instances
from tensight.agents.torch.inner_modules import is_in_training, weights_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tensight.agents.eager.names import Names


class Discovery:
    """Gives names to modules when they are first seen.

    Parameters
    ----------
    names : Names
    models : sequence of Module
        The models to debug; if there are none, every model with parameters that is called.

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
        """Give a name to a module that was not seen before, or pass it over.

        Parameters
        ----------
        module : Module
        alive : iterable of object, optional
            Live objects, with all modules among them; found by default.
        """
        names = self._names
        top = outermost_owner(module, alive)
        if id(top) in names.modules:
            # The model got new modules since it was named.
            names.add(top)
        elif self.follows_all or not any(True for _ in weights_in(top)):
            names.add(top)
        if id(module) not in names.modules:
            names.pass_over(module)

    def meet_trained(self, optimizer: torch.optim.Optimizer) -> None:
        """Give names to the models that an optimizer trains; their calls are not seen while nothing is captured."""
        if self.follows_all:
            for module in owners_of_weights(optimizer):
                self._names.name(module)

    def meet_copies(self) -> None:
        """Give names to models that are not called and have weights like a known one: averages of it, for example.

        Several of one class get none: another run could find them in another order, and confuse their names.
        """
        if not self.follows_all:
            return
        names = self._names
        models = [model for root in names.roots if root.has_parameters and (model := root.module()) is not None]
        shapes = {_shapes(model) for model in models}
        weights = {id(weight) for model in models for weight in weights_in(model)}
        modules = live_instances(nn.Module)
        inner = {id(child) for module in modules for child in vars(module).get("_modules", {}).values()}
        copies: dict[type, list[nn.Module]] = {}
        for module in modules:
            is_other = id(module) not in inner and id(module) not in names.modules
            if is_other and _shapes(module) in shapes and weights.isdisjoint(map(id, weights_in(module))):
                copies.setdefault(type(module), []).append(module)
        for of_class in copies.values():
            if len(of_class) == 1:
                names.add(of_class[0])

    def uncalled(self, knows: Callable[[torch.optim.Optimizer], bool]) -> list[torch.optim.Optimizer]:
        """Return the optimizers of models that have not been called yet, and will be debugged when they are.

        Parameters
        ----------
        knows : callable (optimizer) -> bool
            Whether an optimizer updates a known model; called for each live optimizer.
        """
        alive: list[object] = live_instances((nn.Module, torch.optim.Optimizer))
        others = [instance for instance in alive if is_optimizer(instance) and not knows(instance)]
        if not others or not self.follows_all:
            return []
        held = {
            id(weight)
            for instance in alive
            if _is_module(instance)
            for weight in vars(instance).get("_parameters", {}).values()
        }
        # The others update plain tensors, or weights that no model has any more.
        return [optimizer for optimizer in others if not held.isdisjoint(map(id, weights_of(optimizer)))]

    def is_evaluation(self, module: nn.Module) -> bool:
        """Whether a call of an outermost module looks like an evaluation, which does not belong to a step."""
        return not is_in_training(module) and not torch.is_grad_enabled()


def _shapes(module: nn.Module) -> tuple[torch.Size, ...]:
    is_complete = "_parameters" in vars(module)
    return tuple(weight.shape for weight in weights_in(module)) if is_complete else ()


def outermost_owner(module: nn.Module, alive: Iterable[object] | None = None) -> nn.Module:
    """Return the outermost module that contains a module."""
    owners: dict[int, nn.Module] = {}
    modules = live_instances(nn.Module) if alive is None else [instance for instance in alive if _is_module(instance)]
    for owner in modules:
        # A module that is still being constructed has no `_modules`.
        for child in vars(owner).get("_modules", {}).values():
            if child is not None:
                owners.setdefault(id(child), owner)
    seen = {id(module)}
    while (owner := owners.get(id(module))) is not None and id(owner) not in seen:
        seen.add(id(owner))
        module = owner
    return module


def owners_of_weights(optimizer: torch.optim.Optimizer) -> Iterator[nn.Module]:
    """Yield the modules in this process with any of the weights that an optimizer updates."""
    updated = set(map(id, weights_of(optimizer)))
    for module in live_instances(nn.Module):
        if any(id(weight) in updated for weight in weights_in(module)):
            yield module


def weights_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the weights that an optimizer updates."""
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def is_optimizer(instance: object) -> TypeGuard[torch.optim.Optimizer]:
    """Whether an object is a complete optimizer; one whose construction failed may live on in a traceback."""
    kind = type(instance)
    return issubclass(kind, torch.optim.Optimizer) and (
        "param_groups" in vars(instance) or hasattr(kind, "param_groups")
    )


def _is_module(instance: object) -> TypeGuard[nn.Module]:
    return issubclass(type(instance), nn.Module)
