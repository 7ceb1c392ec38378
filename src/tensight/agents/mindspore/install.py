"""Debugs an unchanged script: everything that MindSpore trains in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.agents.mindspore.debugger import Debugger

if TYPE_CHECKING:
    from tensight.agents.core.settings import AgentSettings

_installed: list[Debugger] = []


def install(settings: AgentSettings) -> None:
    """Debug what this process trains, from its first graph or its first cell on; idempotent.

    Parameters
    ----------
    settings : AgentSettings
    """
    if not _installed:
        debugger = Debugger((), settings)
        _installed.append(debugger)
        debugger.start()


def installed() -> Debugger | None:
    """Return the debugger of this process, if `install` was called."""
    return _installed[0] if _installed else None
