"""Graphs of an old MindSpore process: several, long ones, those of a version that does not fit, and new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.standin.attached import devices
from tests.standin.mindspore_network import NETWORK, replay
from tests.standin.nodes import DENSE, address

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.standin.attached import Attached
    from tests.standin.person import Person

DENSE_OF_SECOND = f"{NETWORK}/fc1-Dense/MatMul-op107"


def test_several_graphs_come_in_one_stream(attach: Callable[..., Attached]) -> None:
    training, session = attach("several-graphs")
    assert training.story() == [
        "> SendMetadata version 2.0.0",
        "< SendMetadata version_matched true",
        "> SendMultiGraphs 2",
        "< SendMultiGraphs OK",
        "> WaitCMD step 0",
    ]
    assert [graph["name"] for graph in session.graphs()] == ["kernel_graph_0", "kernel_graph_1"]
    assert session.nodes(name="MatMul", graph="kernel_graph_1") == [DENSE_OF_SECOND]


def test_the_session_names_the_graph_that_ran(attach: Callable[..., Attached]) -> None:
    training, session = attach("several-graphs")
    ran = [session.proceed(steps=1)["graph"] for _ in range(3)]
    assert ran == ["kernel_graph_0", "kernel_graph_1", "kernel_graph_0"]
    assert [each["root"] for each in training.all("> WaitCMD")] == [0, 0, 1, 0]


def test_tensors_of_a_graph_that_did_not_run_are_missing(attach: Callable[..., Attached]) -> None:
    _, session = attach("several-graphs")
    session.proceed(steps=2)
    second = address(DENSE_OF_SECOND, step=2, graph="kernel_graph_1")
    assert session.values(second).shape == (4, 3)
    answer = session.try_values(address(DENSE, step=2))
    assert answer.status_code == 404
    assert answer.json()["error"]["message"]


def test_watchpoints_cover_the_nodes_of_all_graphs(attach: Callable[..., Attached]) -> None:
    training, session = attach("several-graphs")
    number = session.watch("tensor_too_large", DENSE, DENSE_OF_SECOND, max_gt=-1000)["id"]
    session.proceed(steps=1)
    assert sorted(training.wait_for("< WaitCMD set_cmd")["nodes"]) == sorted([DENSE, DENSE_OF_SECOND])
    assert session.hit_list() == [(f"{DENSE}:0", number, 0)]
    session.proceed(steps=1)
    assert session.hit_list() == [(f"{DENSE_OF_SECOND}:0", number, 0)]


def test_a_long_graph_comes_in_chunks(attach: Callable[..., Attached]) -> None:
    training, session = attach("big-graph")
    assert training.story()[2:4] == ["> SendGraph 3", "< SendGraph OK"]
    assert DENSE in session.nodes(name="MatMul")
    session.proceed(steps=1)
    np.testing.assert_array_equal(session.values(address(DENSE, step=1)), replay(1)[f"{DENSE}:0"])


@pytest.mark.parametrize("version", ["1.1.0", "1.9.0", "2.0.0-alpha", "2.3.1", "2.6.0"])
def test_versions_that_speak_the_protocol_are_accepted(attach: Callable[..., Attached], version: str) -> None:
    training, session = attach(version=version)
    assert training.story()[:2] == [f"> SendMetadata version {version}", "< SendMetadata version_matched true"]
    assert session.record()["framework_version"] == version


@pytest.mark.parametrize("version", ["", "0.7.0", "1.0.1", "3.0.0", "nonsense"])
def test_a_version_that_does_not_fit_waits_without_graphs_until_it_is_terminated(
    attach: Callable[..., Attached], version: str
) -> None:
    training, session = attach(version=version, state="mismatch")
    record = session.record()
    training.wait_for("> WaitCMD")
    assert training.story() == [
        f"> SendMetadata version {version}".strip(),
        "< SendMetadata version_matched false",
        "> WaitCMD step 0",
    ]
    assert "MindSpore" in record["message"]
    assert record["capabilities"]["can_terminate"]
    assert not record["capabilities"]["can_step"]
    assert session.try_command("continue").status_code == 409
    session.command("terminate")
    assert training.finish() == 0
    assert training.story()[-1] == "end terminated"
    session.wait("terminated")


def test_metadata_sent_again_is_a_new_session_and_the_old_one_is_given_up(
    attach: Callable[..., Attached], person: Person
) -> None:
    training, first = attach(announce_twice=True, hold=["before SendMetadata#2"], state="connecting")
    training.wait_for("hold")
    training.release()
    session = person.session_of(training.device, besides=(first.id,))
    session.wait("paused")
    assert training.story() == [
        *["> SendMetadata version 2.0.0", "< SendMetadata version_matched true", "> SendGraph 1", "< SendGraph OK"] * 2,
        "> WaitCMD step 0",
    ]
    given_up = first.wait("lost")
    assert given_up["message"]
    assert given_up["id"] != session.id
    assert session.proceed(steps=1)["step"] == 1
    assert session.values(address(DENSE, step=1)).shape == (4, 3)


def test_the_next_process_on_a_device_gets_the_watchpoints_of_the_one_before(
    attach: Callable[..., Attached],
) -> None:
    device = next(devices)
    training, session = attach(device=device)
    session.watch("tensor_too_large", DENSE, max_gt=-1000)
    session.command("terminate")
    training.finish()
    session.wait("terminated")
    again, new = attach(device=device)
    assert new.id != session.id
    assert [each["text"] for each in new.watchpoints()] == [each["text"] for each in session.watchpoints()]
    new.proceed(steps=1)
    assert again.wait_for("< WaitCMD set_cmd")["nodes"] == [DENSE]
    assert len(new.hit_list()) == 1
