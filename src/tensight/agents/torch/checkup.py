"""The trials of `tensight doctor` in a PyTorch training, in a separate process that ends afterwards."""

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
    """Seed PyTorch's generators; optionally select deterministic algorithms, if there are any."""
    torch.manual_seed(number)
    if deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False


def follow(mode: str, steps: int, report: Report) -> None:
    """Run the trial of a mode of `tensight.agents.doctor`, from now on.

    Parameters
    ----------
    mode : {"reload", "evaluate", "one-batch", "resume"}
    steps : int
        Number of steps after which the process ends.
    report : callable (dict)
        Called with what the trial has found.
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
    """Runs a trial once, after the given step of the first optimizer."""

    def __init__(self, step: int, report: Report) -> None:
        self._step = step
        self._report = report
        self._optimizers: list[Any] = []
        self._steps = 0
        register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if not any(optimizer is other for other in self._optimizers):
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
    """Saves the state of the models and optimizers, loads it as data, and restores it in the live objects."""

    def _found(self) -> dict[str, Any]:
        owners = owners_of(self._optimizers)
        subjects = [*owners, *self._optimizers]
        buffer = io.BytesIO()
        torch.save([subject.state_dict() for subject in subjects], buffer)
        buffer.seek(0)
        with versions_kept(owners):
            for subject, state in zip(subjects, torch.load(buffer, weights_only=True), strict=True):
                subject.load_state_dict(state)
        return {"models": len(owners), "optimizers": len(self._optimizers), "step": self._steps}


class _Evaluation(_AtStep):
    """Evaluates the model that was called last twice, with the same arguments."""

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
        modes = [(submodule, submodule.training) for submodule in module.modules()]
        module.eval()
        try:
            with torch.no_grad():
                outputs = [list(_tensors_in(module(*arguments, **named))) for _ in range(2)]
        finally:
            for submodule, training in modes:
                submodule.training = training
        first, second = outputs
        different = len(first) != len(second) or any(
            not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) for a, b in zip(first, second, strict=True)
        )
        return {"outputs": len(first), "is_deterministic": not different, "model": type(module).__name__}


def _tensors_in(value: Any, depth: int = 0) -> Any:
    """Yield the tensors in the return value of a model."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 8:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        for element in inner:
            yield from _tensors_in(element, depth + 1)
