"""Heartbeats of an old MindSpore process: which are refused, and what happens when they stay away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.standin.attached import Attached


def test_a_heartbeat_is_answered(attach: Callable[..., Attached]) -> None:
    training, _ = attach()
    training.wait_for("< SendHeartbeat OK")


@pytest.mark.parametrize("period", [4, 0, -1, 3601])
def test_a_heartbeat_with_a_period_out_of_range_is_refused_and_the_session_lives_on(
    attach: Callable[..., Attached], period: int
) -> None:
    training, session = attach(heartbeat_period=period)
    # The first may come before the process announced itself; the second certainly comes after.
    training.wait_for("< SendHeartbeat FAILED", count=2)
    assert not training.all("< SendHeartbeat OK")
    assert session.proceed(steps=1)["step"] == 1


@pytest.mark.parametrize("period", [5, 3600])
def test_the_ends_of_the_range_are_accepted(attach: Callable[..., Attached], period: int) -> None:
    training, _ = attach(heartbeat_period=period)
    training.wait_for("< SendHeartbeat OK")


@pytest.mark.long
def test_a_process_whose_heartbeats_stay_away_is_lost_and_found_when_it_goes_on(
    attach: Callable[..., Attached],
) -> None:
    training, session = attach(heartbeat_period=5)
    session.proceed(steps=1)
    training.wait_for("< SendHeartbeat OK")
    training.freeze()
    record = session.wait("lost", timeout_s=45)
    assert record["message"]
    assert record["step"] == 1
    assert session.try_command("continue").status_code == 409
    training.thaw()
    assert session.wait("paused")["step"] == 1
    assert session.proceed(steps=1)["step"] == 2
