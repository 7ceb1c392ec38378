"""The name that all processes of a run have in common, by which the server makes them one session."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.agents.core.reader import Framework
    from tensight.agents.core.settings import AgentSettings

_STARTED_BY = os.getppid()
"""Read as the process begins, because the parent may end before."""


def as_one_run(settings: AgentSettings, of: Framework, rendezvous_variables: Sequence[Sequence[str]]) -> AgentSettings:
    """Return settings with a run name that all ranks derive from their rendezvous, unless they have a name.

    Parameters
    ----------
    settings : AgentSettings
    of : Framework
    rendezvous_variables : sequence of sequence of str
        Environment variables that locate the rendezvous of the ranks; the first group with a value counts. Without any,
        the processes that the same process of the same machine started are one run.
    """
    if settings.job or settings.run or of.world_size == 1:
        return settings
    run_ids = ("-".join(filter(None, map(os.environ.get, names))) for names in rendezvous_variables)
    run_id = next(filter(None, run_ids), "") or f"{socket.gethostname()}-{_STARTED_BY}"
    return replace(settings, run=f"{of.name}-{run_id}")
