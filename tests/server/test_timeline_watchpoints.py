"""Watchpoints reach an old MindSpore process as differences, just before it goes on; its hits come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.standin.mindspore_network import replay
from tests.standin.nodes import BIAS, CONV, DENSE, GRAPH, MEAN, RELU, UPDATE_BIAS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.standin.attached import Attached

RUN = "< WaitCMD run_cmd step 1"


def test_a_watchpoint_is_sent_just_before_the_training_goes_on(attach: Callable[..., Attached]) -> None:
    training, session = attach()
    at_one = session.proceed(steps=1)
    before = training.now
    watchpoint = session.watch("tensor_too_large", DENSE, max_gt=1e9)
    assert training.story(before) == []
    session.proceed(steps=1)
    number = watchpoint["id"]
    assert training.story(before) == [f"< WaitCMD set_cmd {number}", "> WaitCMD step 1", RUN, "> WaitCMD step 2"]
    assert at_one["watchpoints"] == 0
    assert session.record()["watchpoints"] == 1


def test_a_watchpoint_has_every_parameter_in_declared_order_and_the_last_value_apart(
    attach: Callable[..., Attached],
) -> None:
    training, session = attach()
    session.proceed(steps=1)
    session.watch("tensor_too_large", DENSE, "fc1.weight", max_gt=2.5)
    session.watch("weight_not_changed", "fc1.weight", rtol=1e-3)
    session.watch("tensor_overflow", DENSE)
    session.watch("activation_range", RELU, range_start_inclusive=0, range_end_inclusive=1, range_percentage_lt=50)
    session.proceed(steps=1)
    sent = {each["condition"]: each for each in training.all("< WaitCMD set_cmd")}
    assert sorted(sent) == [13, 15, 20, 21]
    assert sent[15]["parameters"] == [
        ["abs_mean_gt", True, 0.0],
        ["max_gt", False, 2.5],
        ["min_gt", True, 0.0],
        ["mean_gt", True, 0.0],
    ]
    assert sent[15]["value"] == 2.5
    assert sorted(zip(sent[15]["nodes"], sent[15]["types"], strict=True)) == [
        (DENSE, "MatMul"),
        ("fc1.weight", "Parameter"),
    ]
    assert sent[20]["parameters"] == [["rtol", False, 1e-3], ["atol", False, 1e-8], ["equal_nan", False, 0.0]]
    assert sent[13]["parameters"] == []
    assert [name for name, disabled, _ in sent[21]["parameters"] if not disabled] == [
        "range_start_inclusive",
        "range_end_inclusive",
        "range_percentage_lt",
    ]


def test_a_watchpoint_on_everything_names_every_operator_and_parameter_but_no_constant(
    attach: Callable[..., Attached],
) -> None:
    training, session = attach()
    session.proceed(steps=1)
    session.watch("tensor_overflow")
    session.proceed(steps=1)
    nodes = training.wait_for("< WaitCMD set_cmd")["nodes"]
    assert {CONV, RELU, DENSE, UPDATE_BIAS, "fc1.weight", "inputs0", "learning_rate"} <= set(nodes)
    assert not [node for node in nodes if "data-" in node]
    assert len(nodes) == len(set(nodes))


def test_only_what_changed_is_sent(attach: Callable[..., Attached]) -> None:
    training, session = attach(steps=20)
    session.proceed(steps=1)
    first = session.watch("tensor_too_large", DENSE, max_gt=1e9)["id"]
    second = session.watch("tensor_overflow", CONV)["id"]
    third = session.watch("tensor_all_zero", RELU, zero_percentage_ge=100)["id"]
    session.proceed(steps=1)
    assert len(training.all("< WaitCMD set_cmd")) == 3

    before = training.now
    session.proceed(steps=1)
    assert training.story(before) == [RUN, "> WaitCMD step 3"]

    before = training.now
    session.change(first, parameters={"max_gt": 1e8})
    session.change(second, further_edits=[{"path": DENSE}])
    session.delete(third)
    unsent = session.watch("tensor_overflow", RELU)["id"]
    session.delete(unsent)
    session.proceed(steps=1)
    told = [text for text in training.story(before) if text.startswith("< ")]
    assert sorted(told[:-1]) == sorted(
        [f"< WaitCMD set_cmd {first}", f"< WaitCMD set_cmd {second}", f"< WaitCMD set_cmd delete {third}"]
    )
    assert told[-1] == RUN
    assert sorted(training.all(f"< WaitCMD set_cmd {second}")[-1]["nodes"]) == sorted([CONV, DENSE])


def test_a_disabled_watchpoint_is_deleted_in_the_process_and_comes_back_when_enabled(
    attach: Callable[..., Attached],
) -> None:
    training, session = attach(steps=20)
    session.proceed(steps=1)
    number = session.watch("tensor_overflow", CONV)["id"]
    session.proceed(steps=1)
    session.change(number, enabled=False)
    before = training.now
    session.proceed(steps=1)
    assert training.story(before)[0] == f"< WaitCMD set_cmd delete {number}"
    session.change(number, enabled=True)
    before = training.now
    session.proceed(steps=1)
    assert training.story(before)[0] == f"< WaitCMD set_cmd {number}"


def test_before_the_first_step_watchpoints_are_checked_first_and_a_hit_keeps_the_training_from_starting(
    attach: Callable[..., Attached],
) -> None:
    training, session = attach()
    number = session.watch("weight_initialization", zero_percentage_ge=100)["id"]
    before = training.now
    record = session.proceed()
    assert training.story(before) == [
        f"< WaitCMD set_cmd {number}",
        "> WaitCMD step 0",
        "< WaitCMD run_cmd recheck",
        "> SendWatchpointHits 1",
        "< SendWatchpointHits OK",
        "> WaitCMD step 0",
    ]
    assert (record["step"], record["hits"]) == (0, 1)
    assert session.hit_list() == [("fc1.bias:0", number, 0)]
    assert session.proceed(steps=1)["step"] == 1


def test_before_the_first_step_without_a_hit_the_training_starts(attach: Callable[..., Attached]) -> None:
    training, session = attach()
    number = session.watch("weight_initialization", "fc1.weight", zero_percentage_ge=100)["id"]
    before = training.now
    assert session.proceed(steps=1)["step"] == 1
    assert training.story(before) == [
        f"< WaitCMD set_cmd {number}",
        "> WaitCMD step 0",
        "< WaitCMD run_cmd recheck",
        "> WaitCMD step 0",
        RUN,
        "> WaitCMD step 1",
    ]


def test_a_hit_stops_a_training_that_runs_without_end(attach: Callable[..., Attached]) -> None:
    training, session = attach(steps=1_000_000, nan_at=4)
    number = session.watch("tensor_overflow", DENSE)["id"]
    record = session.proceed()
    assert record["step"] == 4
    assert session.hit_list() == [(f"{DENSE}:0", number, 0)]
    assert training.story()[-3:] == ["> SendWatchpointHits 1", "< SendWatchpointHits OK", "> WaitCMD step 4"]


def test_hits_stand_in_the_order_of_execution_with_thresholds_and_actual_values(
    attach: Callable[..., Attached],
) -> None:
    _, session = attach()
    low = session.watch("tensor_too_large", MEAN, RELU, CONV, max_gt=-1000)["id"]
    session.watch("tensor_too_large", BIAS, max_gt=1e9)
    session.proceed(steps=1)
    page = session.hits()
    assert [node["node"] for node in page["nodes"]] == [CONV, RELU, MEAN]
    assert (page["total"], page["step"], page["outdated"]) == (3, 1, False)
    values = replay(1)
    for node in page["nodes"]:
        (tensor,) = node["tensors"]
        (hit,) = tensor["hits"]
        assert tensor["address"] == f"0/{GRAPH}/{node['node']}:0@1"
        assert (hit["watchpoint"], hit["condition"], hit["abbreviation"]) == (low, "tensor_too_large", "TL")
        assert (hit["hit"], hit["error_code"], hit["errors"]) == (True, 0, [])
        (parameter,) = hit["parameters"]
        assert (parameter["name"], parameter["preset"], parameter["hit"]) == ("max_gt", -1000, True)
        assert parameter["actual"] == pytest.approx(float(values[f"{node['node']}:0"].max()))
    assert page["nodes"][0]["line"]["file"] == "/home/user/train.py"


def test_hits_of_a_parameter_carry_what_changed(attach: Callable[..., Attached]) -> None:
    _, session = attach()
    session.proceed(steps=1)
    session.watch("weight_change_too_small", "fc1.weight", abs_mean_update_ratio_lt=1e9)
    session.proceed(steps=1)
    (node,) = session.hits()["nodes"]
    (parameter,) = node["tensors"][0]["hits"][0]["parameters"]
    now, before = (replay(steps)["fc1.weight:0"].astype("float64") for steps in (2, 1))
    expected = np.abs(now - before).mean() / (np.abs(before).mean() + 1e-9)
    assert parameter["actual"] == pytest.approx(expected, rel=1e-5)


def test_what_could_not_be_checked_is_said_in_words(attach: Callable[..., Attached]) -> None:
    _, session = attach(nan_at=2)
    session.proceed(steps=1)
    large = session.watch("tensor_too_large", CONV, max_gt=0)["id"]
    changed = session.watch("weight_change_too_large", RELU, abs_mean_update_ratio_gt=1)["id"]
    session.proceed(steps=1)
    found = {
        hit["watchpoint"]: hit
        for node in session.hits()["nodes"]
        for tensor in node["tensors"]
        for hit in tensor["hits"]
    }
    assert (found[large]["hit"], found[large]["error_code"]) == (False, 1)
    assert "nan" in " ".join(found[large]["errors"]).lower()
    # NaN of the convolution went through ReLU, so there both reasons could stand; the process says the first.
    assert (found[changed]["hit"], found[changed]["error_code"]) == (False, 1)


def test_a_missing_previous_value_is_said_in_words(attach: Callable[..., Attached]) -> None:
    _, session = attach()
    session.proceed(steps=1)
    session.watch("weight_change_too_large", RELU, abs_mean_update_ratio_gt=1)
    session.proceed(steps=1)
    (node,) = session.hits()["nodes"]
    (hit,) = node["tensors"][0]["hits"]
    assert (hit["hit"], hit["error_code"]) == (False, 4)
    assert "prev" in " ".join(hit["errors"]).lower()


def test_a_hit_on_a_node_that_is_in_no_graph_is_kept(attach: Callable[..., Attached]) -> None:
    _, session = attach(stray_hit=True)
    session.watch("tensor_too_large", CONV, max_gt=-1000)
    session.proceed(steps=1)
    assert {node for node, _, _ in session.hit_list()} == {f"{CONV}:0", "Default/unknown/Add-op999:0"}


def test_recheck_sends_the_differences_and_replaces_the_hits(attach: Callable[..., Attached]) -> None:
    training, session = attach()
    number = session.watch("tensor_too_large", CONV, RELU, max_gt=-1000)["id"]
    session.proceed(steps=1)
    assert len(session.hit_list()) == 2
    session.change(number, edits=[{"path": MEAN}])
    assert session.record()["outdated"]
    before = training.now
    session.proceed("recheck")
    assert training.story(before) == [
        f"< WaitCMD set_cmd {number}",
        "> WaitCMD step 1",
        "< WaitCMD run_cmd recheck",
        "> SendWatchpointHits 1",
        "< SendWatchpointHits OK",
        "> WaitCMD step 1",
    ]
    record = session.record()
    assert session.hit_list() == [(f"{MEAN}:0", number, 0)]
    assert (record["step"], record["hits"], record["outdated"]) == (1, 1, False)


def test_a_new_step_forgets_the_hits_of_the_one_before(attach: Callable[..., Attached]) -> None:
    _, session = attach()
    number = session.watch("tensor_too_large", CONV, max_gt=-1000)["id"]
    session.proceed(steps=1)
    assert session.hit_list()
    session.delete(number)
    session.proceed(steps=1)
    assert session.hit_list() == []


def test_operator_overflow_is_what_the_device_says(attach: Callable[..., Attached]) -> None:
    training, session = attach(nan_at=2)
    number = session.watch("operator_overflow", CONV, DENSE)["id"]
    assert session.proceed()["step"] == 2
    assert training.wait_for("< WaitCMD set_cmd")["condition"] == 2
    assert session.hit_list() == [(f"{CONV}:0", number, 0), (f"{DENSE}:0", number, 0)]
