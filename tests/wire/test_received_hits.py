"""Hits as a process reports them."""

from __future__ import annotations

import math

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.wire import MOST_PARAMETERS, ReceivedHit, ReceivedParameter, WireError, received_hit
from tensight.wire.debugger_pb2 import TensorProto, WatchCondition, WatchpointHit


def test_a_hit_of_an_old_process_is_read() -> None:
    message = WatchpointHit(
        tensor=TensorProto(node_name=b"Default/ReLU-op4", slot=b"1", finished=True),
        watch_condition=WatchCondition(
            condition=15,
            params=[
                WatchCondition.Parameter(name=b"abs_mean_gt", disabled=True),
                WatchCondition.Parameter(name=b"max_gt", value=3.0, hit=True, actual_value=7.5),
            ],
        ),
        id=2,
        error_code=1,
    )
    assert received_hit(message) == ReceivedHit(
        node="Default/ReLU-op4",
        slot=1,
        io="output",
        graph="",
        watchpoint=2,
        condition=15,
        error_code=1,
        parameters=(
            ReceivedParameter("abs_mean_gt", True, 0.0, False, 0.0),
            ReceivedParameter("max_gt", False, 3.0, True, 7.5),
        ),
    )


def test_an_agent_says_graph_and_input() -> None:
    hit = received_hit(WatchpointHit(tensor=TensorProto(node_name=b"a", io=b"input"), graph=b"g"))
    assert (hit.graph, hit.io, hit.slot) == ("g", "input", 0)
    assert received_hit(WatchpointHit(tensor=TensorProto(node_name=b"a", graph=b"g"))).graph == "g"


def test_numbers_and_codes_that_are_not_known_are_kept() -> None:
    message = WatchpointHit(id=-1, error_code=1 << 20, watch_condition=WatchCondition(condition=99))
    message.watch_condition.params.add(name=b"later", actual_value=math.nan)
    hit = received_hit(message)
    assert (hit.watchpoint, hit.error_code, hit.condition) == (-1, 1 << 20, 99)
    assert math.isnan(hit.parameters[0].actual)


def test_far_too_many_parameters_or_a_slot_that_is_none_are_refused() -> None:
    many = WatchCondition(params=[WatchCondition.Parameter()] * (MOST_PARAMETERS + 1))
    with pytest.raises(WireError, match="65 parameters"):
        received_hit(WatchpointHit(watch_condition=many))
    with pytest.raises(WireError, match="is not a number"):
        received_hit(WatchpointHit(tensor=TensorProto(slot=b"-1")))


@settings(deadline=None)
@given(raw=st.binary(max_size=100))
def test_any_message_is_a_hit_or_an_error(raw: bytes) -> None:
    try:
        message = WatchpointHit.FromString(raw)
    except DecodeError:
        return
    try:
        received_hit(message)
    except WireError:
        return
