"""Watchpoints, selectors, hits, the recommended set and advice."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tensight.errors import InputError
from tensight.watchpoints import (
    CONDITIONS,
    ErrorCode,
    Hit,
    Platform,
    Selector,
    SelectorKind,
    Severity,
    Watchpoint,
    advice,
    error_words,
    evaluate,
    hits,
    parse_check,
    recommended,
    recommended_watchpoints,
)
from tests.watchpoints.brute_force_rows import columns_for


def test_hits_carry_the_tensor_the_thresholds_and_the_actual_values() -> None:
    watchpoint = Watchpoint(1, "", parse_check("TL(max_gt=2, mean_gt=2)"))
    columns = columns_for([np.ones(2), np.array([0.0, 3.0]), np.array([np.nan, 9.0])])
    found = hits(watchpoint, evaluate(watchpoint.check, columns), ["a", "b", "c"])
    assert found == [
        Hit("b", watchpoint, True, 0, {"max_gt": 3.0, "mean_gt": 1.5}, ("max_gt",)),
        Hit("c", watchpoint, True, ErrorCode.NAN, {"max_gt": 9.0, "mean_gt": 9.0}, ("max_gt", "mean_gt")),
    ]


def test_under_the_originals_rule_a_failed_check_is_reported_too() -> None:
    watchpoint = Watchpoint(1, "", parse_check("TL(max_gt=2)"))
    columns = columns_for([np.array([np.nan, 9.0])])
    (hit,) = hits(watchpoint, evaluate(watchpoint.check, columns, non_finite="report"), ["c"])
    assert hit == Hit("c", watchpoint, False, ErrorCode.NAN, {"max_gt": 0.0}, ())
    assert hit.error_words == ("Tensor contains NaN.",)


def test_hits_need_one_tensor_per_row() -> None:
    watchpoint = Watchpoint(1, "", parse_check("TO"))
    with pytest.raises(InputError, match="2 tensors"):
        hits(watchpoint, evaluate(watchpoint.check, columns_for([np.ones(1)])), ["a", "b"])


def test_error_codes_are_spelled_as_scripts_for_the_original_expect() -> None:
    assert error_words(0) == ()
    assert error_words(63) == (
        "Tensor contains NaN.",
        "A tensor contains +/-INF.",
        "The previous step value cannot be found.",
        "The tensor size exceeds the memory limit.",
        "Graph history file is not available.",
        "Tensor has no value.",
    )
    assert error_words(ErrorCode.NO_PREVIOUS | 64) == ("The previous step value cannot be found.",)


def test_a_watchpoint_has_a_number_that_the_protocol_can_carry() -> None:
    assert str(Watchpoint(3, "", parse_check("TO"))) == "3: tensor_overflow() on all"
    assert str(Watchpoint(3, "mine", parse_check("TO"), Selector.parse("gradients"))) == "3: mine on gradients"
    for number in (0, -1, 2**31):
        with pytest.raises(InputError, match="id of a watchpoint"):
            Watchpoint(number, "", parse_check("TO"))


@pytest.mark.parametrize(
    "text", ["all", "weights", "trainable_weights", "gradients", "activations", "activation:relu,reluv2", "name:a:b.*"]
)
def test_selectors_read_back(text: str) -> None:
    assert str(Selector.parse(text)) == text
    assert Selector.parse(str(Selector.parse(text))) == Selector.parse(text)


def test_a_selector_lists_its_names() -> None:
    assert Selector.parse("type: MatMul, ,Conv2D ").names == ("MatMul", "Conv2D")
    assert Selector(SelectorKind.ALL).names == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("everything", "no selector 'everything'"),
        ("", "no selector"),
        ("activation", "needs an argument"),
        ("all:x", "takes no argument"),
        ("name:(", "not a valid regular expression"),
    ],
)
def test_a_wrong_selector_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Selector.parse(text)


def test_the_recommended_set_is_the_originals_and_what_it_could_not_recommend() -> None:
    assert [
        (spec.check.condition.abbreviation, str(spec.selection), spec.severity.value) for spec in recommended()
    ] == [
        ("WI", "weights", "warning"),
        ("WCL", "weights", "warning"),
        ("WNC", "trainable_weights", "warning"),
        ("WCS", "trainable_weights", "warning"),
        ("GV", "gradients", "warning"),
        ("OO", "all", "error"),
        ("TO", "all", "error"),
        ("TZ", "all", "warning"),
        ("AR", "activation:tanh", "warning"),
        ("AR", "activation:sigmoid", "warning"),
        ("AR", "activation:relu,reluv2", "warning"),
    ]
    original = [spec.check.condition.abbreviation for spec in recommended(as_original=True)]
    assert original == ["WI", "WCL", "GV", "OO", "TO", "TZ", "AR", "AR", "AR"]


def test_the_recommended_thresholds_are_the_originals() -> None:
    texts = {spec.name: spec.check.text for spec in recommended()}
    sigmoid = {end: 1 / (1 + math.exp(-end)) for end in (-16.2, 16.2)}
    assert texts == {
        "recommend_weight_initialization_watchpoint": "weight_initialization(zero_percentage_ge=100)",
        "recommend_weight_change_too_large_watchpoint": "weight_change_too_large(abs_mean_update_ratio_gt=1)",
        "recommend_weight_not_changed_watchpoint": "weight_not_changed(rtol=1e-05)",
        "recommend_weight_change_too_small_watchpoint": "weight_change_too_small(abs_mean_update_ratio_lt=0.0001)",
        "recommend_gradient_vanishing_watchpoint": "gradient_vanishing(abs_mean_lt=1e-09)",
        "recommend_operator_overflow_watchpoint": "operator_overflow()",
        "recommend_tensor_overflow_watchpoint": "tensor_overflow()",
        "recommend_tensor_all_zero_watchpoint": "tensor_all_zero(zero_percentage_ge=100)",
        "recommend_tanh_activation_range_watchpoint": f"activation_range(range_start_inclusive={math.tanh(-8.8)!r}, "
        f"range_end_inclusive={math.tanh(8.8)!r}, range_percentage_lt=0.1)",
        "recommend_sigmoid_activation_range_watchpoint": f"activation_range(range_start_inclusive={sigmoid[-16.2]!r}, "
        f"range_end_inclusive={sigmoid[16.2]!r}, range_percentage_lt=0.1)",
        "recommend_relu_activation_range_watchpoint": "activation_range(range_start_inclusive=-1, "
        "range_end_inclusive=0, range_percentage_gt=99.9)",
    }


def test_a_part_of_the_recommended_set_is_named_by_condition() -> None:
    assert [spec.name for spec in recommended("TO", "tensor_all_zero")] == [
        "recommend_tensor_overflow_watchpoint",
        "recommend_tensor_all_zero_watchpoint",
    ]
    with pytest.raises(InputError):
        recommended("none")


def test_recommended_watchpoints_are_numbered_and_fit_the_situation() -> None:
    on_cpu = recommended_watchpoints(first_id=5, platform=Platform.CPU)
    assert [w.id for w in on_cpu] == list(range(5, 5 + len(on_cpu)))
    assert {"WI", "OO"}.isdisjoint(w.check.condition.abbreviation for w in on_cpu)
    assert len(recommended_watchpoints(initial=True)) == len(recommended())
    assert [w.severity for w in on_cpu if w.severity is Severity.ERROR] == [Severity.ERROR]


@pytest.mark.parametrize("condition_id", CONDITIONS)
def test_every_condition_has_advice(condition_id: str) -> None:
    found = advice(condition_id)
    assert found.summary.endswith(".")
    assert 2 <= len(found.steps) <= 5
    assert len(set(found.steps)) == len(found.steps)
    assert all(step.endswith(".") and step[0].isupper() for step in found.steps)


@pytest.mark.parametrize(
    ("condition_id", "topics"),
    [
        ("WI", ["initializer"]),
        ("WO", ["learning rate", "gradient", "optimizer"]),
        ("WL", ["learning rate", "gradient", "optimizer", "before this update"]),
        ("WS", ["learning rate", "gradient", "optimizer", "before this update"]),
        ("WNC", ["learning rate", "gradient", "optimizer", "meant to be trained"]),
        ("WCL", ["learning rate", "gradient", "optimizer"]),
        ("WCS", ["learning rate", "gradient", "optimizer"]),
        *(
            (name, ["inputs", "upstream"])
            for name in ("GE", "GL", "GV", "AR", "TO", "OO", "TL", "TS", "TZ", "TR", "nan")
        ),
    ],
)
def test_advice_covers_the_topics_of_the_originals_guide(condition_id: str, topics: list[str]) -> None:
    text = " ".join(advice(condition_id).steps)
    assert [topic for topic in topics if topic not in text] == []
