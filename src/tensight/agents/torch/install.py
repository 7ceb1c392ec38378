"""Debugs an unchanged script: everything that PyTorch trains in this process."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

from tensight.agents.torch.debugger import Debugger

if TYPE_CHECKING:
    from tensight.agents.core.settings import AgentSettings

_installed: list[Debugger] = []


def install(settings: AgentSettings) -> None:
    """Debug what this process trains, from the first call of a model with parameters on; idempotent.

    Parameters
    ----------
    settings : AgentSettings
    """
    if not _installed:
        if settings.diagnose:
            from tensight.agents.torch.facts import clip_calls, made_lines

            clip_calls.replace()
            made_lines.replace()
        debugger = Debugger((), settings, is_requested=False)
        _installed.append(debugger)
        debugger.start()
        atexit.register(debugger.close_at_exit)


def installed() -> Debugger | None:
    """Return the debugger of this process, if `install` was called."""
    return _installed[0] if _installed else None
