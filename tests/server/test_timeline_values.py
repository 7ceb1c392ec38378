"""Tensors of an old MindSpore process: whole values, statistics, previous values, missing ones, and huge ones."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest

from tests.standin.mindspore_network import BigTensor, make_network, replay
from tests.standin.nodes import CAST, CONV, CROSS_ENTROPY, DENSE, GRAPH, GREATER, MEAN, RELU, address

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.server.running import RunningServer
    from tests.standin.attached import Attached

NPY_HEADER_BYTES = 128


@pytest.mark.parametrize(
    "tensor",
    ["fc1.weight:0", f"{DENSE}:0", f"{CAST}:0", f"{CROSS_ENTROPY}:1", f"{GREATER}:0", f"{MEAN}:0", "inputs1:0"],
)
def test_values_arrive_as_they_are_in_the_process(attach: Callable[..., Attached], tensor: str) -> None:
    training, session = attach()
    session.proceed(steps=2)
    expected = replay(2)[tensor]
    whole = f"[{', '.join(':' * expected.ndim)}]" if expected.ndim <= 2 else "[0, 0, :, :]"
    before = training.now
    values = session.values(f"0/{GRAPH}/{tensor}@2", slice=whole)
    np.testing.assert_array_equal(values, expected if expected.ndim <= 2 else expected[0, 0])
    assert values.dtype == expected.dtype
    training.wait_for("> WaitCMD step 2", count=2)
    assert training.story(before) == [
        "< WaitCMD view_cmd value",
        "> SendTensors",
        "< SendTensors OK",
        "> WaitCMD step 2",
    ]
    assert training.wait_for("< WaitCMD view_cmd")["tensors"] == [tensor]
    assert session.record()["state"] == "paused"


def test_a_value_that_was_fetched_is_not_asked_for_again(attach: Callable[..., Attached]) -> None:
    training, session = attach()
    session.proceed(steps=1)
    first = session.values(address(DENSE, step=1))
    for _ in range(2):
        np.testing.assert_array_equal(session.values(address(DENSE, step=1)), first)
    assert session.statistics(address(DENSE, step=1))["statistics"]["count"] == 12
    assert len(training.all("< WaitCMD view_cmd value")) == 1


def test_a_constant_and_a_parameter_are_asked_for_by_their_own_names(attach: Callable[..., Attached]) -> None:
    _, session = attach()
    session.proceed(steps=1)
    assert session.values(address("Default--data-4", step=1)) == np.float32(0.9)
    assert session.values(address("learning_rate", step=1)) == np.float32(0.01)


def test_initial_values_can_be_read_before_the_first_step(attach: Callable[..., Attached]) -> None:
    _, session = attach(seed=5)
    expected = make_network(seed=5).parameters["fc1.weight"]
    assert isinstance(expected, np.ndarray)
    np.testing.assert_array_equal(session.values(address("fc1.weight", step=0)), expected)


def test_a_parameter_can_be_compared_with_its_previous_value(attach: Callable[..., Attached]) -> None:
    training, session = attach()
    session.proceed(steps=2)
    now, before = (replay(steps)["fc1.weight:0"] for steps in (2, 1))
    here = address("fc1.weight", step=2)
    np.testing.assert_array_equal(session.values(here, which="previous"), before)
    np.testing.assert_array_equal(session.values(here, which="current"), now)
    difference = session.values(here, which="difference")
    np.testing.assert_allclose(difference, now - before, rtol=1e-6)
    asked = [tensor for each in training.all("< WaitCMD view_cmd") for tensor in each["tensors"]]
    assert sorted(asked) == ["fc1.weight:0", "fc1.weight:0:prev"]


def test_a_value_read_in_a_step_serves_as_the_previous_one_in_the_next(attach: Callable[..., Attached]) -> None:
    training, session = attach()
    session.proceed(steps=1)
    session.values(address("fc1.weight", step=1))
    session.proceed(steps=1)
    np.testing.assert_array_equal(
        session.values(address("fc1.weight", step=2), which="previous"), replay(1)["fc1.weight:0"]
    )
    asked = [tensor for each in training.all("< WaitCMD view_cmd value") for tensor in each["tensors"]]
    assert "fc1.weight:0:prev" not in asked


def test_an_operator_has_no_previous_value_and_that_is_said(attach: Callable[..., Attached]) -> None:
    _, session = attach()
    session.proceed(steps=2)
    answer = session.try_values(address(DENSE, step=2), which="previous")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"]


def test_statistics_are_asked_for_without_the_values(attach: Callable[..., Attached]) -> None:
    training, session = attach(nan_at=2)
    session.proceed(steps=2)
    records = {(each["node"], each["io"]): each for each in session.tensors(RELU)}
    statistics = records[RELU, "output"]["statistics"]
    expected = replay(2, nan_at=2)[f"{RELU}:0"]
    finite = expected[np.isfinite(expected)]
    assert statistics["count"] == expected.size
    assert statistics["nan_count"] == int(np.isnan(expected).sum()) > 0
    assert statistics["zero_count"] == int((expected == 0).sum())
    assert statistics["max"] == pytest.approx(float(finite.max()), rel=1e-6)
    assert statistics["mean"] == pytest.approx(float(finite.mean()), rel=1e-5)
    assert (records[RELU, "output"]["dtype"], records[RELU, "output"]["shape"]) == ("float32", [4, 2, 4, 4])
    assert training.all("< WaitCMD view_cmd statistics")
    assert not training.all("< WaitCMD view_cmd value")


def test_a_tensor_that_the_process_does_not_have_is_named_missing(attach: Callable[..., Attached]) -> None:
    training, session = attach("gpu")
    session.proceed(steps=1)
    answer = session.try_values(address(DENSE, step=1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "value-unavailable")
    assert DENSE in answer.json()["error"]["message"]
    assert training.wait_for("> SendTensors")["tensors"] == [{"tensor": f"{DENSE}:0", "bytes": 0}]
    assert {each["status"] for each in session.tensors(DENSE) if each["io"] == "output"} == {"not_kept"}
    assert session.record()["state"] == "paused"


def test_with_partial_memory_only_nodes_watched_from_the_start_have_values(attach: Callable[..., Attached]) -> None:
    training, session = attach("partial-memory")
    session.watch("tensor_too_large", DENSE, max_gt=1e9)
    session.proceed(steps=1)
    np.testing.assert_array_equal(session.values(address(DENSE, step=1)), replay(1)[f"{DENSE}:0"])
    np.testing.assert_array_equal(session.values(address("fc1.bias", step=1)), replay(1)["fc1.bias:0"])
    session.watch("tensor_too_large", CONV, max_gt=-1e9)
    session.proceed(steps=1)
    answer = session.try_values(address(CONV, step=2), slice="[0, 0, :, :]")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "value-unavailable")
    assert session.hit_list() == []
    sent = [tensor for each in training.all("> SendTensors") for tensor in each["tensors"]]
    assert sent[-1] == {"tensor": f"{CONV}:0", "bytes": 0}


def test_values_cannot_be_fetched_while_the_training_runs(attach: Callable[..., Attached]) -> None:
    training, session = attach(hold=["in step#2"])
    session.proceed(steps=1)
    session.command("continue")
    training.wait_for("hold in step")
    answer = session.try_values(address(DENSE, step=2))
    assert answer.status_code in (404, 409)
    assert answer.json()["error"]["message"]
    training.release()


def test_values_of_an_earlier_step_are_those_that_were_looked_at(attach: Callable[..., Attached]) -> None:
    _, session = attach()
    session.proceed(steps=1)
    session.values(address(DENSE, step=1))
    session.proceed(steps=1)
    np.testing.assert_array_equal(session.values(address(DENSE, step=1)), replay(1)[f"{DENSE}:0"])
    assert session.try_values(address(MEAN, step=1)).status_code == 404


def test_a_tensor_comes_in_pieces_and_is_put_together(attach: Callable[..., Attached]) -> None:
    _, session = attach("big-tensor", big_mib=10)
    session.proceed(steps=1)
    expected = b"".join(BigTensor.of_size(10).pieces())
    response = session.person.http.get(
        f"{session.path}/tensor/file", params={"address": address("embedding.weight", step=1)}
    )
    assert response.status_code == 200
    assert response.content[NPY_HEADER_BYTES:] == expected


def peak_resident_kib(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


@pytest.mark.long
def test_a_tensor_of_one_and_a_half_gibibytes_is_shown_and_downloaded_in_bounded_memory(
    debug_server: RunningServer, attach: Callable[..., Attached]
) -> None:
    training, session = attach("big-tensor", big_mib=1536)
    session.proceed(steps=1)
    here = address("embedding.weight", step=1)
    corner = session.values(here, slice="[0, :5]")
    np.testing.assert_array_equal(corner, np.arange(5, dtype="f4"))
    assert training.wait_for("> SendTensors")["tensors"] == [{"tensor": "embedding.weight:0", "bytes": 1536 * 2**20}]
    expected = hashlib.blake2b()
    for piece in BigTensor.of_size(1536).pieces():
        expected.update(piece)
    received = hashlib.blake2b()
    skip = NPY_HEADER_BYTES
    path = f"{session.path}/tensor/file"
    with session.person.http.stream("GET", path, params={"address": here}, timeout=httpx.Timeout(120)) as response:
        for data in response.iter_bytes():
            received.update(data[skip:])
            skip = max(0, skip - len(data))
    assert received.hexdigest() == expected.hexdigest()
    assert peak_resident_kib(debug_server.process.pid) < 600 * 1024
    session.command("terminate")
    training.finish()
