"""What a trial reads of the environment."""

from __future__ import annotations

import pytest

from tensight.errors import InputError
from tensight.search import HyperConfig
from tensight.search.hyper_config import LARGEST, VARIABLE, hyper_config_text


def test_a_trial_reads_what_was_chosen_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, hyper_config_text({"learning_rate": 0.5, "opt": "sgd"}, "runs/train_1", {"a": 1}))
    config = HyperConfig()

    assert (config.params.learning_rate, config.params.opt) == (0.5, "sgd")
    assert (config.summary_dir, config.custom_lineage_data) == ("runs/train_1", {"a": 1})
    assert (config.params["opt"], dict(config.params)) == ("sgd", {"learning_rate": 0.5, "opt": "sgd"})
    with pytest.raises(AttributeError, match="no hyper-parameter 'momentum'; it has: learning_rate, opt"):
        _ = config.params.momentum


def test_outside_a_search_there_are_no_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)

    assert HyperConfig().summary_dir is None
    assert not hasattr(HyperConfig().params, "learning_rate")


@pytest.mark.parametrize("text", ["{", "[]", '{"params": 3}', '{"summary_dir": 3}', " " * (LARGEST + 1)])
def test_what_no_search_wrote_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)

    with pytest.raises(InputError, match=VARIABLE):
        HyperConfig()


def test_what_no_trial_would_read_is_not_written() -> None:
    with pytest.raises(InputError, match="shorten choices"):
        hyper_config_text({"text": "x" * LARGEST}, "runs", {})
