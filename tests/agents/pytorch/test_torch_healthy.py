"""Nothing is reported of trainings in which nothing is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agents.pytorch.meant_overflow import MEANT_OVERFLOW
from tests.agents.pytorch.meant_rest import MEANT_REST
from tests.agents.pytorch.meant_zeros import MEANT_ZEROS
from tests.agents.pytorch.trainings import HEALTHY
from tests.agents.pytorch.watched_training import debug

if TYPE_CHECKING:
    from tests.server.running import RunningServer

STEPS = 100
FEW_STEPS = 40
"""Enough for what shows at once, or after ten steps."""

TRAININGS = {**HEALTHY, **MEANT_ZEROS, **MEANT_REST, **MEANT_OVERFLOW}


@pytest.mark.sampled(40)
@pytest.mark.parametrize("capture", ["modules", "ops"])
@pytest.mark.parametrize("name", TRAININGS)
def test_the_recommended_set_is_silent_on_a_healthy_training(
    torch_server: RunningServer, name: str, capture: str
) -> None:
    steps = FEW_STEPS if name in MEANT_REST or name in MEANT_OVERFLOW else STEPS
    finding = debug(torch_server, TRAININGS[name](), steps, capture=capture)
    assert finding.ended, finding.summary()
    assert finding.step == steps
