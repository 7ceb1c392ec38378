"""A training of calls of modules is looked at closer from the page; what goes on hitting is said there."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import tensight
from tests.page.browsing import ATTACH_WITHIN_S, visit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from tensight.client import Session
    from tests.server.running import RunningServer

pytestmark = pytest.mark.long

SCRIPT = """
import sys, torch, tensight
from torch import nn
torch.manual_seed(3)
torch.set_num_threads(1)

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.is_sick = nn.Linear(6, 6), nn.Linear(6, 4), False

    def forward(self, x):
        hidden = self.a(x)
        spread = hidden.std() * (not self.is_sick)
        scaled = hidden / spread  # here
        return self.b(scaled)

network = Network()
optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
with tensight.torch.debug(network, optimizer, port=int(sys.argv[1]), job=sys.argv[2], break_at_start=True):
    for step in range(1, 10):
        network.is_sick = step >= 3
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(torch.randn(8, 6)), torch.randint(0, 4, (8,)))
        loss.backward()
        if not loss.isfinite():
            optimizer.zero_grad()
        optimizer.step()
"""
LINE = next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith("# here"))


@contextmanager
def stopped_training(page_server: RunningServer, tmp_path: Path, text: str = SCRIPT) -> Iterator[Session]:
    """Give a training that has stopped at a range of lines."""
    script = tmp_path / "train.py"
    script.write_text(text)
    port = str(page_server.debugger).rpartition(":")[2]
    training = subprocess.Popen([sys.executable, str(script), port, tmp_path.name], stdout=subprocess.DEVNULL)
    try:
        with tensight.connect(page_server.url) as server:
            session = server.wait_for_session(ATTACH_WITHIN_S, name=tmp_path.name)
            session.wait(ATTACH_WITHIN_S)
            session.watch("tensor_overflow")
            assert session.continue_().wait(ATTACH_WITHIN_S).step == 3
            yield session
    finally:
        training.kill()
        training.wait()


@pytest.fixture
def stopped(page_server: RunningServer, tmp_path: Path) -> Iterator[Session]:
    """A training that has stopped at a range of lines, and whose weights are finite."""
    with stopped_training(page_server, tmp_path) as session:
        yield session


def test_another_run_is_offered_where_the_weights_are_lost(
    page: Page, page_server: RunningServer, tmp_path: Path
) -> None:
    with stopped_training(page_server, tmp_path, SCRIPT.replace("if not loss.isfinite():", "if False:")) as session:
        visit(page, page_server, run=session.id)
        banner = page.get_by_test_id("origin-banner")
        command = banner.get_by_test_id("origin-command")
        expect(command).to_have_text(session.summary.closer_command)
        expect(command).to_contain_text("TENSIGHT_CAPTURE=ops")
        expect(banner.get_by_role("button", name="Look closer")).to_have_count(0)
        expect(banner.get_by_role("button", name="Copy the command")).to_be_visible()


def test_the_operator_is_named_at_the_next_stop(page: Page, page_server: RunningServer, stopped: Session) -> None:
    visit(page, page_server, run=stopped.id)
    banner = page.get_by_test_id("origin-banner")
    expect(banner).to_contain_text(f"train.py:{LINE - 1}")
    button = banner.get_by_role("button", name="Look closer")
    expect(button).to_be_visible()
    page.keyboard.press("Alt+c")
    expect(banner).to_contain_text("div-op0")
    expect(banner).to_contain_text(f"train.py:{LINE}")
    expect(button).to_have_count(0)


def test_what_goes_on_hitting_is_said(page: Page, page_server: RunningServer, stopped: Session) -> None:
    stopped.continue_(3).wait(ATTACH_WITHIN_S)
    ongoing = stopped.summary.ongoing
    assert ongoing is not None
    visit(page, page_server, run=stopped.id, left="hits")
    said = page.get_by_test_id("hits-ongoing")
    expect(said).to_contain_text(f"Since step {ongoing.since}, tensors keep hitting ({ongoing.tensors} at step")
