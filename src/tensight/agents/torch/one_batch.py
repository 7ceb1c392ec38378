"""Repeats the first batch of a training, for `tensight doctor`: its loss should fall.

The batch is that of the script's `DataLoader`. If there is none, the arguments of the model's first call are repeated,
provided that the model computes the loss itself: only then is everything known that the loss depends on. The generators
are reset with each batch, so that dropout and noise are the same in every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from tensight.agents.replacing import Replacements
from tensight.agents.torch.framework import tensors_in
from tensight.agents.torch.inner_modules import weights_in
from tensight.agents.torch.kept_states import Generators, copied
from tensight.agents.torch.trial import outermost_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SCALINGS = 6
"""Limit of the multiplications and divisions by numbers between a model's loss and the root of the backward pass."""

_OUTSIDE = (
    "the batches come from no DataLoader, and the loss is not computed by the model, so its targets are not known"
)
_SEVERAL = "there are several losses, with an optimizer for each"
_NO_SCALAR = "no gradients of a single number were computed"


class OneBatch:
    """Replays the first batch from now on, and reports the losses after every step.

    Parameters
    ----------
    report : callable (dict)
        Called with ``losses``, one for each step of the first optimizer, their ``source``, and whether a network
        ``follows`` the one that is trained; or with an ``error``, the reason why they are meaningless.
    """

    def __init__(self, report: Callable[[dict[str, Any]], None]) -> None:
        self._report = report
        self._losses: list[float] = []
        self._of_step: list[float] = []
        self._optimizers: list[Any] = []
        self._error = ""
        self._batches = _Batches()
        self._calls = _Calls()
        self._scaled: tuple[Any, Any] = (None, None)
        self._others: list[tuple[Any, Any]] = []
        self._replaced = Replacements()
        self._replaced.put(DataLoader, "__iter__", self._batches.replay)
        self._replaced.put(torch.autograd, "backward", self._backward)
        self._replaced.put(torch.amp.GradScaler, "scale", self._scale)
        self._replaced.put(torch.nn.Module, "__call__", self._calls.call)
        register_optimizer_step_post_hook(self._stepped)

    def _scale(self, original: Any, scaler: Any, outputs: Any) -> Any:
        scaled = original(scaler, outputs)
        self._scaled = scaled, outputs
        return scaled

    def _backward(self, original: Any, tensors: Any, *arguments: Any, **named: Any) -> Any:
        root = tensors[0] if isinstance(tensors, (tuple, list)) and len(tensors) == 1 else tensors
        if isinstance(root, torch.Tensor) and root.numel() == 1:
            loss = self._scaled[1] if root is self._scaled[0] else root
            self._of_step.append(float(loss.detach()))
            if not self._batches.has_any:
                self._error = self._error or self._calls.why_not(root)
        self._scaled = None, None
        return original(tensors, *arguments, **named)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if not any(optimizer is other for other in self._optimizers):
            self._optimizers.append(optimizer)
        if optimizer is not self._optimizers[0]:
            return
        if len(self._optimizers) > 1 and len(self._of_step) > 1:
            self._error = _SEVERAL
        if self._of_step:
            self._losses.append(sum(self._of_step) / len(self._of_step))
        self._of_step.clear()
        self._calls.end_step(replays=not self._batches.has_any)
        replayed = self._batches if self._batches.has_any else self._calls
        error = self._error or replayed.error or ("" if self._losses else _NO_SCALAR)
        source = "batch of the DataLoader" if replayed is self._batches else "inputs of the model"
        if len(self._losses) == 1:
            self._others = [(parameter, parameter.detach().clone()) for parameter in self._untrained()]
        findings = {"losses": self._losses, "source": source, "follows": self._has_followers}
        self._report({"error": error} if error else findings)

    def _untrained(self) -> Iterator[Any]:
        """Yield the parameters that no optimizer updates."""
        owned = {
            id(held) for optimizer in self._optimizers for group in optimizer.param_groups for held in group["params"]
        }
        for module in outermost_modules():
            yield from (parameter for parameter in weights_in(module) if id(parameter) not in owned)

    @property
    def _has_followers(self) -> bool:
        """Whether parameters change that no optimizer updates, such as those of a teacher that follows its pupil."""
        return any(not torch.equal(parameter, first) for parameter, first in self._others)


class _Batches:
    """The first batch of each data set."""

    def __init__(self) -> None:
        self.error = ""
        self.has_any = False
        self._first: dict[tuple[int, Any], tuple[Any, Any]] = {}
        self._generators: Generators | None = None

    def replay(self, original: Any, loader: Any) -> Iterator[Any]:
        """Yield a copy of the first batch for each batch of the loader."""
        # A reference to the data set keeps its identity from being reused.
        key = id(loader.dataset), loader.batch_size
        for batch in original(loader):
            self.has_any = True
            try:
                given = copied(self._first.setdefault(key, (copied(batch), loader.dataset))[0])
            except Exception as error:
                self.error = f"its batches cannot be copied: {error!r}"
                given = batch
            if self._generators is None:
                self._generators = Generators()
            self._generators.put_back()
            yield given


class _Calls:
    """The arguments with which models were called in the first step."""

    def __init__(self) -> None:
        self.error = ""
        self._first: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._counts: dict[int, int] = {}
        self._outputs: list[Any] = []
        self._replays = True
        self._depth = 0
        self._generators: Generators | None = None

    def call(self, original: Any, module: Any, *arguments: Any, **named: Any) -> Any:
        """Call a model with its arguments of the first step, unless another module calls it."""
        if self._depth or not torch.is_grad_enabled():
            return original(module, *arguments, **named)
        if self._replays:
            arguments, named = self._given(module, arguments, named)
        self._depth = 1
        try:
            output = original(module, *arguments, **named)
        finally:
            self._depth = 0
        self._outputs += [
            tensor.grad_fn for tensor in tensors_in(output) if tensor.numel() == 1 and tensor.grad_fn is not None
        ]
        return output

    def _given(self, module: Any, arguments: Any, named: Any) -> Any:
        count = self._counts[id(module)] = self._counts.get(id(module), 0) + 1
        if self._generators is None:
            self._generators = Generators()
        self._generators.put_back()
        first = self._first.get((id(module), count))
        if first is not None:
            arguments, named = copied(first[0])
            return arguments, named
        if any(tensor.requires_grad for tensor in tensors_in((arguments, named))):
            return self._give_up("gradients flow through the inputs of the model", arguments, named)
        try:
            # A reference to the model keeps its identity from being reused.
            self._first[id(module), count] = copied((arguments, named)), module
        except Exception:
            return self._give_up("what the model is called with cannot be copied", arguments, named)
        return arguments, named

    def _give_up(self, error: str, *given: Any) -> Any:
        """Call models with what they are given, from now on, because that cannot be repeated."""
        self.error, self._replays = error, False
        return given

    def why_not(self, root: torch.Tensor) -> str:
        """Return why a loss may depend on more than the model's arguments; empty if it does not."""
        function: Any = root.grad_fn
        for _ in range(_SCALINGS):
            if any(function is output for output in self._outputs):
                return ""
            before = [inner for inner, _ in getattr(function, "next_functions", ()) if inner is not None]
            if len(before) != 1 or not type(function).__name__.startswith(("Mul", "Div", "ToCopy")):
                break
            function = before[0]
        return _OUTSIDE

    def end_step(self, *, replays: bool) -> None:
        """Start counting the calls of the next step."""
        self._replays = self._replays and replays
        self._counts.clear()
        self._outputs.clear()
