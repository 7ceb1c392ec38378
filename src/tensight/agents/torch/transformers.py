"""A callback for Hugging Face Transformers: ``Trainer(callbacks=[tensight.torch.TransformersDebugger()])``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from tensight.agents.core.settings import AgentSettings
from tensight.agents.torch.debugger import Debugger, subjects_among


class TransformersDebugger(TrainerCallback):
    """Debugs what a `Trainer` trains.

    A step ends with the optimizer's step, so gradients that are accumulated over several batches are one step.
    Evaluation does not belong to a step.

    Parameters
    ----------
    **settings
        Settings of `tensight.torch.debug`.

    Raises
    ------
    InputError
        A setting cannot be used.

    Examples
    --------
    >>> trainer = Trainer(model, arguments, callbacks=[tensight.torch.TransformersDebugger()])  # doctest: +SKIP
    """

    def __init__(self, **settings: Any) -> None:
        # Invalid settings are refused here, at the line of the script with them.
        self._settings = AgentSettings.of_script(**settings)
        self._debugger: Debugger | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Begin with the first batch."""
        # Accelerate wraps the optimizer.
        optimizer = kwargs["optimizer"]
        optimizer = getattr(optimizer, "optimizer", optimizer)
        self._debugger = Debugger(subjects_among((kwargs["model"], optimizer)), self._settings)
        self._debugger.start()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """End with the last batch; after an exception debugging ends with the process."""
        if self._debugger is not None:
            self._debugger.close()
            self._debugger = None
