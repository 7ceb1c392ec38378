"""A person goes through the operators of a running step, one by one, through the real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import tensight
from tensight.sessions.errors import UnavailableError
from tests.agents.pytorch.watched_training import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.client import Session
    from tests.server.running import RunningServer

STEPS = 6
BAD_STEP = 3
READER, UPDATE = "Default/first/t-op0", "Optimizer/first/weight/add_-op1"
"""What reads a weight, and what writes to it once there is a momentum."""
MOMENTUM = "Optimizer/first/weight/add_-op0"
"""What computes the momentum; in the first step it writes to the weight."""


class Net(nn.Module):
    """Two layers; in one step the logarithm of zero is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 2)
        self.scale = 1.0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(inputs)) + 1
        hidden = torch.log(hidden * self.scale)  # the planted line
        return self.second(hidden)


def train(model: Net, batches: list[torch.Tensor]) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for step, inputs in enumerate(batches):
        model.scale = 0.0 if step == BAD_STEP else 1.0
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def debugged(server: RunningServer, person: Callable[[Session], Any], job: str, **settings: Any) -> Any:
    """Train, and return what a person found meanwhile."""

    def sit_down() -> Any:
        with tensight.connect(server.url) as connection:
            session = connection.wait_for_session(PATIENCE_S, name=job)
            session.wait(PATIENCE_S)
            try:
                return person(session)
            finally:
                if not session.state.has_ended:
                    session.delete_watchpoints()
                    session.continue_()

    torch.manual_seed(0)
    model = Net()
    batches = [torch.full((3, 4), step + 1.0) for step in range(STEPS)]
    host, _, port = str(server.debugger).rpartition(":")
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(sit_down)
        with tensight.torch.debug(
            model, host=host, port=int(port), job=job, break_at_start=True, capture="ops", **settings
        ):
            losses = train(model, batches)
        assert len(losses) == STEPS
        return found.result(PATIENCE_S)


def test_next_node_goes_from_operator_to_operator(torch_server: RunningServer) -> None:
    def person(session: Session) -> list[str]:
        session.step(2).wait(PATIENCE_S)
        return [session.next_node().wait(PATIENCE_S).node for _ in range(4)]

    assert debugged(torch_server, person, "next node") == [
        "Default/first/t-op0",
        "Default/first/addmm-op0",
        "Default/relu-op0",
        "Default/add-op0",
    ]


def test_what_ran_so_far_in_the_step_has_values(torch_server: RunningServer) -> None:
    def person(session: Session) -> tuple[Any, ...]:
        session.step(2).wait(PATIENCE_S)
        record = session.run_to("Default/relu-op0").wait(PATIENCE_S)
        before = session.tensor("Default/first/addmm-op0", step=record.step).numpy()
        now = session.tensor("Default/relu-op0", step=record.step).numpy()
        inputs = session.tensor("input0", step=record.step).numpy()
        return record.node, before, now, inputs

    node, before, now, inputs = debugged(torch_server, person, "values so far")
    assert node == "Default/relu-op0"
    np.testing.assert_array_equal(now, np.maximum(before, 0))
    np.testing.assert_array_equal(inputs, np.full((3, 4), 3.0, np.float32))


def test_a_weight_within_a_step_is_what_it_was_before_the_update(torch_server: RunningServer) -> None:
    def person(session: Session) -> tuple[Any, ...]:
        before = session.step(2).wait(PATIENCE_S).step
        weight = session.tensor("first.weight", step=before).numpy().copy()
        for node in ("Default/relu-op0", UPDATE):
            assert session.run_to(node).wait(PATIENCE_S).step == before + 1
            (record,) = session.tensors("first.weight")
            assert record.step == before
            assert record.statistics is not None
            np.testing.assert_array_equal(session.tensor(record.address).numpy(), weight)
        updated = session.tensor(UPDATE).numpy().copy()
        after = session.step().wait(PATIENCE_S).step
        assert after == before + 1
        np.testing.assert_array_equal(session.tensor("first.weight").numpy(), updated)
        with pytest.raises(UnavailableError):
            session.tensor(READER, io="input").numpy()
        assert session.tensors(MOMENTUM)[0].graph == session.node(MOMENTUM).graph == session.summary.graph
        assert session.node(MOMENTUM).inputs[0].peer == "Optimizer/first/weight/mul_-op0"
        assert session.tensors(MOMENTUM, step=1)[0].graph == session.executions()[0].graph != session.summary.graph
        return weight, updated, session.tensors(READER)[0].statistics

    weight, updated, read = debugged(torch_server, person, "weight within a step")
    assert not np.array_equal(updated, weight)
    assert read.mean == pytest.approx(weight.mean(dtype=np.float64))


def test_run_to_node_stops_in_the_backward_pass_and_in_the_optimizer(torch_server: RunningServer) -> None:
    def person(session: Session) -> list[str]:
        session.step(2).wait(PATIENCE_S)
        return [
            session.run_to(node).wait(PATIENCE_S).node
            for node in ("Gradients/Default/second/mm-op0", "Optimizer/second/weight/add_-op0")
        ]

    assert debugged(torch_server, person, "run to") == [
        "Gradients/Default/second/mm-op0",
        "Optimizer/second/weight/add_-op0",
    ]


def test_a_watchpoint_stops_at_the_very_operator_with_the_users_line(torch_server: RunningServer) -> None:
    def person(session: Session) -> tuple[Any, ...]:
        session.watch("tensor_overflow")
        record = session.continue_().wait(PATIENCE_S)
        hits = session.hits()
        origin = session.origins()[0]
        node = session.node(record.node)
        return record, hits, origin, node

    record, hits, origin, node = debugged(torch_server, person, "very operator")
    assert record.node == "Default/log-op0"
    assert record.step == BAD_STEP + 1
    assert [hit.node for hit in hits] == ["Default/log-op0"]
    assert (origin.address.partition("@")[0], origin.line.line) == ("0/kernel_graph_1/Default/log-op0:0", PLANTED)
    assert next((frame.line, frame.is_user_code) for frame in node.stack) == (PLANTED, True)


@pytest.mark.parametrize("at_once", [True, False])
def test_nodes_of_the_first_steps_can_be_walked_too(torch_server: RunningServer, at_once: bool) -> None:
    def person(session: Session) -> list[str]:
        if not at_once:
            session.step(1).wait(PATIENCE_S)
        return [session.next_node().wait(PATIENCE_S).node for _ in range(3)]

    assert debugged(torch_server, person, f"first step {at_once}") == [
        "Default/first/t-op0",
        "Default/first/addmm-op0",
        "Default/relu-op0",
    ]


PLANTED = next(
    number
    for number, line in enumerate(Path(__file__).read_text().splitlines(), 1)
    if line.endswith("# the planted line")
)
