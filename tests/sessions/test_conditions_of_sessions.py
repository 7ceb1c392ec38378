"""The conditions that a session offers."""

from __future__ import annotations

import pytest

from tensight.sessions.conditions import condition_records, unavailable_because
from tensight.sessions.records import ParameterRecord
from tensight.watchpoints import Condition, Platform, Target, condition, register, unregister
from tensight.watchpoints.quantities import QUANTITIES


def test_the_conditions_come_by_what_they_are_for_and_then_by_name() -> None:
    records = condition_records()
    assert [record.abbreviation for record in records] == [
        *("OO", "TZ", "TO", "TR", "TL", "TS", "UO", "UZ"),
        *("WCL", "WCS", "WG", "WI", "WNC", "WO", "WL", "WS", "WD"),
        *("AR", "DU", "SU"),
        *("GE", "GG", "GI", "GL", "GV"),
    ]
    assert all(record.available and record.meaning and record.advice for record in records)


def test_parameters_tell_what_they_accept_and_need() -> None:
    (record,) = (record for record in condition_records() if record.id == "tensor_range")
    parameters = {parameter.name: parameter for parameter in record.parameters}
    assert parameters["range_start_inclusive"] == ParameterRecord(
        name="range_start_inclusive", kind="support", values="a finite number"
    )
    assert parameters["range_percentage_lt"] == ParameterRecord(
        name="range_percentage_lt",
        kind="check",
        values="a percentage from 0 to 100",
        requires=("range_start_inclusive", "range_end_inclusive"),
    )
    (unchanged,) = (record for record in condition_records() if record.id == "weight_not_changed")
    assert unchanged.parameters[2] == ParameterRecord(
        name="equal_nan", kind="hidden", values="false", boolean=True, default=False
    )


def unavailable(**session: object) -> dict[str, str]:
    records = condition_records(**session)  # type: ignore[arg-type]
    return {record.id: record.unavailable_because for record in records if not record.available}


@pytest.mark.parametrize("platform", [Platform.GPU, Platform.CPU])
def test_operator_overflow_is_for_ascend(platform: Platform) -> None:
    assert unavailable(platform=platform) == {
        "operator_overflow": f"it can be checked on Ascend; this run is on {platform.value}"
    }


def test_the_initial_weights_are_only_there_before_the_first_step_of_a_live_run() -> None:
    assert unavailable(platform=Platform.ASCEND, live=True, step=0) == {}
    assert list(unavailable(platform=Platform.ASCEND, live=True, step=1)) == ["weight_initialization"]
    assert unavailable(platform=Platform.ASCEND, live=False, step=7) == {}


def test_the_oldest_conditions_are_not_offered() -> None:
    assert "newer ones replace" in unavailable_because(condition("max_gt"), platform=None, live=False, step=0)
    assert "max_gt" not in [record.id for record in condition_records()]


def test_a_persons_own_condition_is_offered_with_its_meaning() -> None:
    own = Condition("own_nan", "ON", Target.GRADIENT, flag=QUANTITIES["nan_count"], meaning="My gradient is sick.")
    register(own)
    try:
        (record,) = (record for record in condition_records() if record.id == "own_nan")
        assert (record.meaning, record.target) == ("My gradient is sick.", "gradient")
        assert record.advice
    finally:
        unregister(own.id)
