"""A callback for `mindspore.Model`: ``model.train(2, data, callbacks=[tensight.mindspore.MindSporeDebugger()])``."""

from __future__ import annotations

from typing import Any

from mindspore.train.callback import Callback

from tensight.agents.core.settings import AgentSettings
from tensight.agents.mindspore.debugger import Debugger


class MindSporeDebugger(Callback):
    """Debugs what a `Model` trains or evaluates.

    A step ends with each batch. Evaluations are not part of a step, unless nothing is trained.

    Parameters
    ----------
    **settings
        As for `tensight.mindspore.debug`.

    Raises
    ------
    InputError
        A setting cannot be used.

    Examples
    --------
    >>> model.train(2, data, callbacks=[tensight.mindspore.MindSporeDebugger(recommended=True)])  # doctest: +SKIP
    """

    def __init__(self, **settings: Any) -> None:
        # Invalid settings are refused where the script gives them.
        self._settings = AgentSettings.of_script(**settings)
        self._debugger: Debugger | None = None
        self._depth = 0

    def __enter__(self) -> MindSporeDebugger:
        # Evaluations within a training enter the callback again.
        self._depth += 1
        return self

    def on_train_begin(self, run_context: Any) -> None:  # noqa: ARG002 - MindSpore's signature
        """Begin before the first batch: nothing has been compiled yet."""
        self._begin()

    def on_eval_begin(self, run_context: Any) -> None:  # noqa: ARG002
        """Begin before the first batch, unless this is an evaluation within a training."""
        self._begin()

    def on_train_step_end(self, run_context: Any) -> None:  # noqa: ARG002
        """End a step, unless an update has ended it."""
        if self._debugger is not None:
            self._debugger.end_batch()

    def __exit__(self, *error: object) -> None:
        """End with the training, however it ends; `Model` uses its callbacks as context managers."""
        self._depth -= 1
        if self._debugger is not None and self._depth <= 0:
            self._debugger.close()
            self._debugger = None

    def _begin(self) -> None:
        if self._debugger is None:
            self._debugger = Debugger((), self._settings)
            self._debugger.start()
