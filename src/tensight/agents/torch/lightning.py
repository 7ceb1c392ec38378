"""A callback for Lightning: ``Trainer(callbacks=[tensight.torch.LightningDebugger()])``."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tensight.agents.core.settings import AgentSettings
from tensight.agents.torch.debugger import Debugger, subjects_among

# Two packages have the same classes, and a trainer only accepts the callbacks of its own package.
_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
Callback: Any = importlib.import_module(next(filter(sys.modules.__contains__, _PACKAGES), _PACKAGES[0])).Callback


class LightningDebugger(Callback):
    """Debugs what a `Trainer` fits.

    A step ends with the optimizer's step, so accumulated gradients, several optimizers and manual optimization work as
    without Lightning. Validation does not belong to a step.

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
    >>> trainer = Trainer(callbacks=[tensight.torch.LightningDebugger(recommended=True)])  # doctest: +SKIP
    """

    def __init__(self, **settings: Any) -> None:
        # Invalid settings are refused here, at the line of the script with them.
        self._settings = AgentSettings.of_script(**settings)
        self._debugger: Debugger | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin with the first batch; the sanity check before it is not training."""
        self._debugger = Debugger(subjects_among((pl_module, *trainer.optimizers)), self._settings)
        self._debugger.start()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's signature
        """End with the last batch."""
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """End with the training; the exception continues."""
        if self._debugger is not None:
            self._debugger.ended_by(exception)
        self._close()

    def _close(self) -> None:
        if self._debugger is not None:
            self._debugger.close()
            self._debugger = None
