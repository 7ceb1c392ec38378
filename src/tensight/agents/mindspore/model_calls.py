"""Calls of `mindspore.Model` and of `data_sink`: batches that end without an update, and sink mode, which is refused.

In sink mode a device runs whole epochs at once, and nobody can look at a step of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import mindspore
from mindspore.train.callback import Callback
from mindspore.train.model import Model

from tensight.agents.call_stack import user_stack
from tensight.agents.notices import say_once
from tensight.agents.replacing import Replacements

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.agents.mindspore.debugger import Debugger

_METHODS = ("train", "fit", "eval")
_SINKS = ("dataset_sink_mode", "valid_dataset_sink_mode")


class ModelCalls:
    """Follows the calls of every `Model`.

    Parameters
    ----------
    debugger : Debugger
        It is told when a batch ends, and closed when sink mode is used.
    """

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger
        self._replaced = Replacements()

    def install(self) -> None:
        """Follow the calls from now on."""
        for name in _METHODS:
            self._replaced.put(Model, name, self._model_called)
        if hasattr(mindspore, "data_sink"):
            self._replaced.put(mindspore, "data_sink", self._sink_made)

    def remove(self) -> None:
        """Leave everything as it was, unless somebody else has replaced what is ours."""
        self._replaced.take_back()

    def _model_called(self, original: Callable[..., Any], model: Any, *arguments: Any, **named: Any) -> Any:
        try:
            bound = inspect.signature(original).bind(model, *arguments, **named)
            self._look(original.__name__, bound.arguments)
        except Exception as error:
            # A call that is wrong is refused by MindSpore.
            say_once(f"this call of Model.{original.__name__} is not followed: {error}")
            return original(model, *arguments, **named)
        return original(*bound.args, **bound.kwargs)

    def _look(self, method: str, given: dict[str, Any]) -> None:
        for name in _SINKS:
            if given.get(name) is True:
                self._refuse(f"{name}=True", f"{name}=False")
        if method != "eval":
            callbacks = given.get("callbacks")
            others = [] if callbacks is None else list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
            given["callbacks"] = [*others, _BatchEnds(self._debugger)]

    def _sink_made(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self._refuse("data_sink", "the function itself, called with each batch of the dataset")
        return original(*arguments, **named)

    def _refuse(self, what: str, instead: str) -> None:
        """Tell a person which line to change; where sink mode has no effect the training is debugged all the same."""
        stack = user_stack()
        at = f"{stack[0].file}:{stack[0].line}: {stack[0].code}" if stack else "the script"
        if mindspore.get_context("device_target") == "CPU":
            say_once(
                f"{at} — write {instead} there: {what} sends whole epochs to a GPU or Ascend device, of which no step"
                " can be looked at; MindSpore ignores it on the CPU, so this training is debugged"
            )
            return
        say_once(
            f"{at} — sink mode cannot be debugged, because whole epochs run on the device at once; write {instead} in"
            f" place of {what}. The training goes on without the debugger"
        )
        self._debugger.close()


class _BatchEnds(Callback):
    """Tells a debugger of batches that no update has ended, such as those whose gradients are only added up."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger

    def on_train_step_end(self, run_context: Any) -> None:  # noqa: ARG002 - MindSpore's signature
        """End a step, unless an update has ended it."""
        self._debugger.end_batch()
