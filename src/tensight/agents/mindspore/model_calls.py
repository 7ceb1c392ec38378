"""Calls of `mindspore.Model` and of data sinking: ends batches that have no update, and refuses sink mode.

In sink mode a device runs many steps of a compiled network in one call, so single steps cannot be observed. In PyNative
mode, in evaluations, and if one batch is sunk at a time, each step is a separate call, as without sink mode.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import mindspore
from mindspore.train.callback import Callback
from mindspore.train.dataset_helper import DatasetHelper
from mindspore.train.model import Model

from tensight.agents.core.call_stack import source_line, user_stack
from tensight.agents.core.notices import log_once
from tensight.agents.core.replacing import Replacements
from tensight.agents.mindspore.calls import is_graph_mode

if TYPE_CHECKING:
    from collections.abc import Callable

_METHODS = ("train", "fit", "eval")
_SINKS = ("dataset_sink_mode", "valid_dataset_sink_mode")
_MOST_LINES = 20
"""Lines of a call that are searched for its argument."""


class Followed(Protocol):
    """The methods of a debugger that are needed to follow the calls of a `Model`."""

    def end_batch(self) -> None:
        """Note that a batch has ended."""

    def before_compile(self, owner: Any) -> None:
        """Do what must be done before graphs are compiled."""

    def close(self) -> None:
        """End debugging; the training goes on."""


class ModelCalls:
    """Follows the calls of every `Model`.

    Parameters
    ----------
    debugger : Followed
        Called when a batch ends, and closed when sink mode is used.
    """

    def __init__(self, debugger: Followed) -> None:
        self._debugger = debugger
        self._replaced = Replacements()

    def install(self) -> None:
        """Follow the calls from now on."""
        for name in _METHODS:
            self._replaced.put(Model, name, self._model_called)
        # All ways to sink mode but one go through this.
        self._replaced.put(DatasetHelper, "__init__", self._helper_made)
        if hasattr(mindspore, "data_sink"):
            self._replaced.put(mindspore, "data_sink", self._sink_made)

    def remove(self) -> None:
        """Restore everything, except where other code has replaced our functions."""
        self._replaced.take_back()

    def _model_called(self, original: Callable[..., Any], model: Any, *arguments: Any, **named: Any) -> Any:
        try:
            bound = inspect.signature(original).bind(model, *arguments, **named)
            self._inspect(original.__name__, bound.arguments)
        except Exception as error:
            # MindSpore itself refuses an invalid call.
            log_once(f"this call of Model.{original.__name__} is not followed: {error}")
            return original(model, *arguments, **named)
        return original(*bound.args, **bound.kwargs)

    def _inspect(self, method: str, given: dict[str, Any]) -> None:
        for name in _SINKS:
            if given.get(name) is True and _is_on_cpu():
                log_once(
                    f"{_line_of(name)} — write {name}=False there before you train on a GPU or Ascend, where it sends"
                    " whole epochs to the device and single steps cannot be observed; on the CPU MindSpore ignores it,"
                    " so this training is debugged"
                )
        if method != "eval":
            callbacks = given.get("callbacks")
            others = [] if callbacks is None else list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
            given["callbacks"] = [*others, _BatchEnds(self._debugger)]

    def _helper_made(self, original: Callable[..., Any], helper: Any, *arguments: Any, **named: Any) -> Any:
        try:
            bound = inspect.signature(original).bind(helper, *arguments, **named)
            bound.apply_defaults()
            given = bound.arguments
            if given["dataset_sink_mode"] is True and is_graph_mode() and not _is_on_cpu():
                self._sinks(_steps_at_once(given["dataset"], given["sink_size"]), "dataset_sink_mode")
        except Exception as error:
            log_once(f"this use of sink mode is not followed: {error}")
        return original(helper, *arguments, **named)

    def _sink_made(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            bound = inspect.signature(original).bind(*arguments, **named)
            bound.apply_defaults()
            given = bound.arguments
            # Without a configuration it calls the function once for each batch. On the CPU MindSpore refuses it.
            if given["jit_config"] is not None and is_graph_mode() and not _is_on_cpu():
                self._sinks(int(given["sink_size"]), "data_sink")
        except Exception as error:
            log_once(f"this use of sink mode is not followed: {error}")
        return original(*arguments, **named)

    def _sinks(self, steps: int, what: str) -> None:
        """Go on debugging if each step is a call; else report which line to change, and end debugging."""
        if steps == 1:
            # The graph that feeds the device is compiled first, before any that is called.
            self._debugger.before_compile(None)
            return
        instead = "dataset_sink_mode=False" if what != "data_sink" else "a loop that calls the function with each batch"
        log_once(
            f"{_line_of(what)} — sink mode cannot be debugged, because the device may run {steps:,} steps at once;"
            f" write {instead} there. The training goes on without the debugger"
        )
        self._debugger.close()


def _is_on_cpu() -> bool:
    return bool(mindspore.get_context("device_target") == "CPU")


def _steps_at_once(dataset: Any, sink_size: int) -> int:
    """Return the number of batches that MindSpore sends to the device for one call."""
    of_dataset = getattr(dataset, "__loop_size__", None)
    if of_dataset is not None:
        return int(of_dataset)
    return sink_size if sink_size > 0 else int(dataset.get_dataset_size())


def _line_of(word: str) -> str:
    """Return the line of the script that contains a word, in the current call."""
    frame = next(iter(user_stack()), None)
    if frame is None:
        return "the script"
    lines = range(frame.line, frame.line + _MOST_LINES)
    line = next((number for number in lines if word in source_line(frame.file, number)), frame.line)
    return f"{frame.file}:{line}: {source_line(frame.file, line)}"


class _BatchEnds(Callback):
    """Reports batches that no update has ended to a debugger, such as those that only accumulate gradients."""

    def __init__(self, debugger: Followed) -> None:
        self._debugger = debugger

    def on_train_step_end(self, run_context: Any) -> None:  # noqa: ARG002 - MindSpore's signature
        """End a step, unless an update has ended it."""
        self._debugger.end_batch()
