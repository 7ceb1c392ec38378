"""What `tensight doctor` tries out in a training of PyTorch, in a process of its own that ends afterwards."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as module_hooks
from torch.optim.optimizer import register_optimizer_step_post_hook

from tensight.agents.torch.trial import owners_of, versions_kept

if TYPE_CHECKING:
    from collections.abc import Callable

    Report = Callable[[dict[str, Any]], None]


def seed(number: int, *, deterministic: bool) -> None:
    """Seed PyTorch's generators; choose deterministic algorithms, too, where there are some."""
    torch.manual_seed(number)
    if deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False


def follow(mode: str, steps: int, report: Report) -> None:
    """Do what a mode of `tensight.agents.doctor` asks for, from now on.

    Parameters
    ----------
    mode : {"reload", "evaluate", "one-batch", "resume"}
    steps : int
        After so many the process ends.
    report : callable
        Told what was found.
    """
    if mode == "reload":
        _Reload(max(steps // 2, 1), report)
    elif mode == "resume":
        from tensight.agents.torch.resuming import Resuming

        Resuming(max(steps // 2, 1), report)
    elif mode == "one-batch":
        from tensight.agents.torch.one_batch import OneBatch

        OneBatch(report)
    else:
        _Evaluation(max(steps - 1, 1), report)


class _AtStep:
    """Does something once, when the first optimizer has done a step of a number."""

    def __init__(self, step: int, report: Report) -> None:
        self._step = step
        self._report = report
        self._optimizers: list[Any] = []
        self._steps = 0
        register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if not any(optimizer is known for known in self._optimizers):
            self._optimizers.append(optimizer)
        if optimizer is self._optimizers[0]:
            self._steps += 1
            if self._steps == self._step:
                try:
                    self._report(self._found())
                except Exception as error:
                    self._report({"error": f"{type(error).__name__}: {error}"})

    def _found(self) -> dict[str, Any]:
        raise NotImplementedError


class _Reload(_AtStep):
    """Saves the state of the models and optimizers, loads it as data, and puts it back into the live objects."""

    def _found(self) -> dict[str, Any]:
        owners = owners_of(self._optimizers)
        objects = [*owners, *self._optimizers]
        buffer = io.BytesIO()
        torch.save([one.state_dict() for one in objects], buffer)
        buffer.seek(0)
        with versions_kept(owners):
            for one, state in zip(objects, torch.load(buffer, weights_only=True), strict=True):
                one.load_state_dict(state)
        return {"models": len(owners), "optimizers": len(self._optimizers), "step": self._steps}


class _Evaluation(_AtStep):
    """Evaluates the model that was called last, twice with what it was called with."""

    def __init__(self, step: int, report: Report) -> None:
        super().__init__(step, report)
        self._depth = 0
        self._call: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None
        module_hooks.register_module_forward_pre_hook(self._enter)
        module_hooks.register_module_forward_hook(self._leave, with_kwargs=True, always_call=True)

    def _enter(self, *_: Any) -> None:
        self._depth += 1

    def _leave(self, module: Any, arguments: tuple[Any, ...], named: dict[str, Any], _: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and torch.is_grad_enabled() and any(True for _ in module.parameters()):
            self._call = module, arguments, named

    def _found(self) -> dict[str, Any]:
        if self._call is None:
            return {"error": "no call of a module with parameters was seen"}
        module, arguments, named = self._call
        modes = [(one, one.training) for one in module.modules()]
        module.eval()
        try:
            with torch.no_grad():
                outputs = [list(_tensors_in(module(*arguments, **named))) for _ in range(2)]
        finally:
            for one, training in modes:
                one.training = training
        first, second = outputs
        different = len(first) != len(second) or any(
            not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) for a, b in zip(first, second, strict=True)
        )
        return {"outputs": len(first), "is_deterministic": not different, "model": type(module).__name__}


def _tensors_in(value: Any, depth: int = 0) -> Any:
    """Yield the tensors in what a model has returned."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 8:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        for one in inner:
            yield from _tensors_in(one, depth + 1)
