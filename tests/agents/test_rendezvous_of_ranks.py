"""Ranks of one run come to one name, and those of another run to another."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tensight.agents.core.connection.rendezvous import as_one_run
from tensight.agents.core.reader import Framework
from tensight.agents.core.settings import AgentSettings

MEETINGS = (("ADDRESS_OF_MEETING", "PORT_OF_MEETING"), ("JOB_OF_MEETING",))
RANKS = """\
import sys
from tensight.agents.core.connection.rendezvous import as_one_run
from tensight.agents.core.reader import Framework
from tensight.agents.core.settings import AgentSettings
print(as_one_run(AgentSettings(), Framework("torch", "2", "CPU", 0, int(sys.argv[1]), 2), ()).run)
"""


def of(world_size: int) -> Framework:
    return Framework("torch", "2.13", "CPU", 0, 0, world_size)


def test_the_name_says_where_ranks_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_OF_MEETING", "77")
    assert as_one_run(AgentSettings(), of(2), MEETINGS).run == "torch-77"
    monkeypatch.setenv("ADDRESS_OF_MEETING", "node1")
    monkeypatch.setenv("PORT_OF_MEETING", "8118")
    assert as_one_run(AgentSettings(), of(2), MEETINGS).run == "torch-node1-8118"


def test_what_has_a_name_or_is_alone_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_OF_MEETING", "77")
    assert as_one_run(AgentSettings(job="night"), of(2), MEETINGS).run == ""
    assert as_one_run(AgentSettings(run="4711"), of(2), MEETINGS).run == "4711"
    assert as_one_run(AgentSettings(), of(1), MEETINGS).run == ""


def test_without_a_rendezvous_those_are_one_run_which_one_process_started() -> None:
    names = [subprocess.check_output([sys.executable, "-c", RANKS, str(rank)], text=True) for rank in range(2)]
    assert names == [f"torch-{socket.gethostname()}-{os.getpid()}\n"] * 2
