"""What all processes of one run have in common, and no others: by it their server makes them one session."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.agents.reader import Framework
    from tensight.agents.settings import AgentSettings

_STARTED_BY = os.getppid()
"""As the process begins; who started it may end before."""


def as_one_run(settings: AgentSettings, of: Framework, rendezvous_variables: Sequence[Sequence[str]]) -> AgentSettings:
    """Return settings with the name of the rendezvous of all ranks of the run, unless they have a name.

    Parameters
    ----------
    settings : AgentSettings
    of : Framework
    rendezvous_variables : sequence of sequence of str
        Environment variables that say where ranks find each other; the first of which one is set count. Without any
        those are one run which the same process of the same machine started.
    """
    if settings.job or settings.run or of.world_size == 1:
        return settings
    found = ("-".join(filter(None, map(os.environ.get, names))) for names in rendezvous_variables)
    run_id = next(filter(None, found), "") or f"{socket.gethostname()}-{_STARTED_BY}"
    return replace(settings, run=f"{of.name}-{run_id}")
