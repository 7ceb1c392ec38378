"""One server for all trainings in this process."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import pytest
import torch

from tensight.agents.core import notices
from tensight.agents.core.debugging import active_debuggers
from tests.server.running import RunningServer, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def torch_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that answers, for every test of this process."""
    with running_server(tmp_path_factory.mktemp("torch") / "workspace") as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Leave the cores to the other tests; and sums are added up in the same order always."""
    torch.set_num_threads(1)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What people at the terminal are told, once more if they were told before."""
    logger, lines = logging.getLogger(notices.LOGGER), []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    before, logger.handlers = logger.handlers, [handler]
    logger.setLevel(logging.INFO)
    notices._logged.clear()
    yield lines
    logger.handlers = before


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """See to it that no test leaves a debugger to the next one, or compiled code, which the agent takes account of."""
    yield
    assert not active_debuggers()
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and dynamo.counters["frames"]:
        torch._dynamo.reset()
        dynamo.counters.clear()
