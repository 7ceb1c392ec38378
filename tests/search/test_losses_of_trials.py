"""How often a training of a search sends its loss."""

from __future__ import annotations

import pytest

from tensight.agents.core.settings import AgentSettings, as_variables
from tensight.errors import InputError


def test_the_pace_of_losses_reaches_the_training() -> None:
    assert AgentSettings.from_environment(as_variables({"losses_every_s": 0.02})).losses_every_s == 0.02
    assert AgentSettings.from_environment({}).losses_every_s is None


@pytest.mark.parametrize("text", ["often", "0", "-1", "inf", "nan"])
def test_a_pace_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="give a number"):
        AgentSettings.from_environment({"TENSIGHT_LOSSES_EVERY_S": text})
