"""GPU: an old MindSpore process stops at single operators; the server walks it to where the person wants to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.standin.mindspore_network import make_network, replay
from tests.standin.nodes import CONV, DENSE, FLATTEN, MEAN, RELU, UPDATE_KERNEL, address

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.standin.attached import Attached

KERNELS = [kernel.full_name for kernel in make_network().kernels()]
NODE = "< WaitCMD run_cmd node"


def walk(step: int, *nodes: str) -> list[str]:
    return [text for node in nodes for text in (NODE, f"> WaitCMD step {step} at {node}")]


counts = pytest.mark.parametrize("late", [False, True], ids=["the step that runs counts", "only done steps count"])
"""The description leaves open what a process says within a step; the server must understand both."""


@counts
def test_next_node_stops_at_each_operator_in_turn(attach: Callable[..., Attached], late: bool) -> None:
    training, session = attach("gpu", **({"counts_late": True} if late else {}))
    assert session.record()["capabilities"]["can_next_node"]
    before = training.now
    step = 0 if late else 1
    for node in KERNELS[:3]:
        record = session.proceed("next_node")
        assert (record["node"], record["step"]) == (node, step)
    assert training.story(before) == walk(step, *KERNELS[:3])


@counts
def test_run_to_node_goes_there_by_single_operators_without_ever_naming_it(
    attach: Callable[..., Attached], late: bool
) -> None:
    training, session = attach("gpu", **({"counts_late": True} if late else {}))
    before = training.now
    step = 0 if late else 1
    record = session.proceed("run_to_node", node=DENSE)
    assert (record["node"], record["step"]) == (DENSE, step)
    assert training.story(before) == walk(step, *KERNELS[: KERNELS.index(DENSE) + 1])


def test_run_to_an_earlier_node_goes_on_into_the_next_step(attach: Callable[..., Attached]) -> None:
    training, session = attach("gpu")
    session.proceed("run_to_node", node=DENSE)
    record = session.proceed("run_to_node", node=CONV)
    assert (record["node"], record["step"]) == (CONV, 2)
    assert training.story()[-1] == f"> WaitCMD step 2 at {CONV}"


def test_a_hit_at_a_node_stops_there_and_ends_the_walk(attach: Callable[..., Attached]) -> None:
    training, session = attach("gpu")
    number = session.watch("tensor_too_large", RELU, max_gt=-1000)["id"]
    record = session.proceed("run_to_node", node=MEAN)
    assert record["node"] == RELU
    assert session.hit_list() == [(f"{RELU}:0", number, 0)]
    assert training.story()[-3:] == [
        "> SendWatchpointHits 1",
        "< SendWatchpointHits OK",
        f"> WaitCMD step 1 at {RELU}",
    ]


def test_a_hit_at_a_node_stops_a_training_that_runs_by_steps(attach: Callable[..., Attached]) -> None:
    training, session = attach("gpu", counts_late=True)
    session.watch("tensor_too_large", DENSE, max_gt=-1000)
    assert session.proceed(steps=3)["node"] == DENSE
    before = training.now
    record = session.proceed(steps=1)
    # The rest of the step ran; what had hit already is not reported twice.
    assert record["step"] == 1
    assert training.story(before) == ["< WaitCMD run_cmd step 1", f"> WaitCMD step 1 at {UPDATE_KERNEL}"]


def test_at_a_node_its_inputs_and_outputs_can_be_read_and_others_cannot(attach: Callable[..., Attached]) -> None:
    _, session = attach("gpu")
    session.proceed("run_to_node", node=RELU)
    values = replay(1)
    np.testing.assert_array_equal(
        session.values(address(RELU, step=1), slice="[0, 0, :, :]"), values[f"{RELU}:0"][0, 0]
    )
    np.testing.assert_array_equal(
        session.values(address(CONV, step=1), slice="[0, 0, :, :]"), values[f"{CONV}:0"][0, 0]
    )
    answer = session.try_values(address(FLATTEN, step=1))
    assert answer.status_code == 404
    assert answer.json()["error"]["message"]


def test_pause_ends_a_walk_between_two_nodes(attach: Callable[..., Attached]) -> None:
    training, session = attach("gpu", hold=[f"at {RELU}"])
    session.command("run_to_node", node=MEAN)
    training.wait_for("hold at")
    session.command("pause")
    training.release()
    assert session.wait("paused")["node"] == RELU
    assert training.story()[-1] == f"> WaitCMD step 1 at {RELU}"
    assert session.proceed("next_node")["node"] != RELU


def test_an_ascend_process_cannot_go_node_by_node(attach: Callable[..., Attached]) -> None:
    _, session = attach()
    assert not session.record()["capabilities"]["can_next_node"]
    for action in ({"action": "next_node"}, {"action": "run_to_node", "node": RELU}):
        assert session.try_command(**action).status_code == 409
    assert session.record()["state"] == "paused"


def test_an_unknown_node_to_run_to_is_refused(attach: Callable[..., Attached]) -> None:
    training, session = attach("gpu")
    answer = session.try_command("run_to_node", node="Default/nowhere/Add-op1")
    assert answer.status_code == 404
    assert "Default/nowhere/Add-op1" in answer.json()["error"]["message"]
    assert training.story()[-1] == "> WaitCMD step 0"
