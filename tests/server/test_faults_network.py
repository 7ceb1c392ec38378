"""The network between a training process and the debug server breaks, falls silent, and heals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.standin.attached import devices
from tests.standin.mindspore_network import BigTensor, replay
from tests.standin.nodes import CONV, DENSE, address
from tests.standin.proxy import Proxy
from tests.standin.training import Training

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.running import RunningServer
    from tests.standin.person import Inspection, Person


@pytest.fixture
def network(debug_server: RunningServer) -> Iterator[Proxy]:
    assert debug_server.debugger
    with Proxy(debug_server.debugger) as proxy:
        yield proxy


def attached(person: Person, training: Training) -> Inspection:
    session = person.session_of(training.device)
    session.wait("paused")
    return session


def test_a_waiting_process_whose_connection_broke_comes_back_to_its_session(network: Proxy, person: Person) -> None:
    with Training(network.address, device=next(devices), retry_unit_s=0.1, steps=10) as training:
        session = attached(person, training)
        number = session.watch("tensor_too_large", DENSE, max_gt=-1000)["id"]
        session.proceed(steps=1)
        network.cut()
        training.wait_for("< WaitCMD broken")
        training.wait_for("> WaitCMD step 1", count=2)
        assert session.wait("paused")["step"] == 1
        assert session.hit_list() == [(f"{DENSE}:0", number, 0)]
        assert session.proceed(steps=1)["step"] == 2
        assert session.hit_list() == [(f"{DENSE}:0", number, 0)]
        ours = [
            record["id"]
            for record in person.sessions()
            if [rank["device"] for rank in record["ranks"]] == [str(training.device)]
        ]
        assert ours == [session.id]


def test_a_network_that_is_down_for_a_while_costs_only_time(network: Proxy, person: Person) -> None:
    with Training(network.address, device=next(devices), retry_unit_s=1, steps=10) as training:
        session = attached(person, training)
        network.refuse()
        training.wait_for("failure 2")
        network.heal()
        session.proceed(steps=1)
        assert training.story()[-1] == "> WaitCMD step 1"


def test_a_connection_that_breaks_in_the_middle_of_a_tensor_costs_only_that_request(
    network: Proxy, person: Person
) -> None:
    with (
        ThreadPoolExecutor(1) as asking,
        Training(
            network.address, "big-tensor", device=next(devices), retry_unit_s=0.1, hold=["in SendTensors#3"]
        ) as training,
    ):
        session = attached(person, training)
        here = address("embedding.weight", step=0)
        answer = asking.submit(session.try_values, here, slice="[0, :5]")
        training.wait_for("hold in SendTensors")
        network.cut()
        training.release()
        training.wait_for("< SendTensors broken")
        # Either the request fails in words, or the server asks the process again by itself.
        response = answer.result(timeout=60)
        assert response.status_code in (200, 404)
        if response.status_code == 404:
            assert response.json()["error"]["message"]
        session.wait("paused")
        np.testing.assert_array_equal(session.values(here, slice="[0, :5]"), np.arange(5, dtype="f4"))
        whole = session.person.http.get(f"{session.path}/tensor/file", params={"address": here}).content
        assert whole[128:] == b"".join(BigTensor.of_size(32).pieces())


def test_hits_whose_connection_broke_do_not_stop_the_session_from_going_on(network: Proxy, person: Person) -> None:
    with Training(
        network.address,
        device=next(devices),
        retry_unit_s=0.1,
        steps=10,
        hold=["in SendWatchpointHits"],
    ) as training:
        session = attached(person, training)
        session.proceed(steps=1)
        session.watch("tensor_too_large", CONV, DENSE, max_gt=-1000)
        session.command("continue", steps=1)
        training.wait_for("hold in SendWatchpointHits")
        network.cut()
        training.release()
        training.wait_for("< SendWatchpointHits broken")
        assert session.wait("paused")["step"] == 2
        np.testing.assert_array_equal(session.values(address(DENSE, step=2)), replay(2)[f"{DENSE}:0"])
        session.proceed(steps=1)
        assert len(session.hit_list()) == 2


@pytest.mark.long
def test_a_silent_network_is_a_lost_process_until_it_speaks_again(network: Proxy, person: Person) -> None:
    with Training(network.address, device=next(devices), retry_unit_s=1, heartbeat_period=5, steps=10) as training:
        session = attached(person, training)
        training.wait_for("< SendHeartbeat OK")
        network.swallow()
        record = session.wait("lost", timeout_s=60)
        assert record["message"]
        network.heal()
        session.wait("paused")
        assert session.proceed(steps=1)["step"] == 1
