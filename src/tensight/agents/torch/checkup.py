"""The trials of `tensight doctor` in a PyTorch training, in a separate process that ends afterwards."""

from __future__ import annotations

import contextlib
import io
import os
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode

from tensight.agents.call_stack import user_stack
from tensight.agents.replacing import Replacements
from tensight.agents.torch.framework import tensors_in
from tensight.agents.torch.inner_modules import inner_modules, weights_in
from tensight.agents.torch.kept_states import Generators, copied, is_equal
from tensight.agents.torch.resuming import state_of_modules
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
        self._is_called = False
        self._call: tuple[Any, Any] | None = None
        Replacements().put(torch.nn.Module, "__call__", self._called)

    def _called(self, original: Any, module: Any, *arguments: Any, **named: Any) -> Any:
        if self._is_called or not torch.is_grad_enabled() or not any(True for _ in weights_in(module)):
            return original(module, *arguments, **named)
        # The call may change what it is given, such as a cache.
        with contextlib.suppress(Exception):
            self._call = module, copied((arguments, named))
        self._is_called = True
        try:
            return original(module, *arguments, **named)
        finally:
            self._is_called = False

    def _found(self) -> dict[str, Any]:
        if self._call is None:
            return {"error": "no call of a module with parameters was seen whose inputs can be copied"}
        module, given = self._call
        modes = [(submodule, submodule.training) for _, submodule in inner_modules(module)]
        module.eval()
        try:
            return self._evaluated(module, given)
        finally:
            for submodule, training in modes:
                submodule.training = training

    def _evaluated(self, module: Any, given: Any) -> dict[str, Any]:
        """Evaluate a model, with the same random numbers each time."""
        generators, draws = Generators(), _Draws()

        def evaluate() -> list[Any]:
            generators.put_back()
            arguments, named = copied(given)
            with torch.no_grad():
                # Later calls may change what was returned in place.
                return [tensor.clone() for tensor in tensors_in(module(*arguments, **named))]

        with draws:
            first = evaluate()
        drawn = generators.drawn()
        before = dict(state_of_modules(module))
        again = evaluate()
        after = dict(state_of_modules(module))
        changed = [name for name, value in after.items() if name not in before or not is_equal(before[name], value)]
        return {
            "model": type(module).__name__,
            "outputs": len(first),
            "is_repeatable": is_equal(first, again),
            "draws": draws.functions,
            "drawn": drawn,
            "changed": changed,
        }


class _Draws(TorchFunctionMode):
    """Notes the functions of PyTorch that draw random numbers, with the lines that call them."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[tuple[str, str]] = []

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        generators = None if name == "__get__" else Generators()
        result = function(*arguments, **(named or {}))
        if generators is not None and generators.drawn():
            frame = next(iter(user_stack()), None)
            line = "" if frame is None else f"{os.path.basename(frame.file)}:{frame.line}"
            if (name, line) not in self.functions:
                self.functions.append((name, line))
        return result
