"""The text of a check reads back as the same check; what cannot be read is pointed at."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.errors import InputError
from tensight.watchpoints import (
    CONDITIONS,
    Condition,
    ConditionCheck,
    ParameterKind,
    ValueRange,
    Watchpoint,
    parse_check,
    parse_watch,
)
from tensight.watchpoints.parsing import MAX_LENGTH

NUMBERS = {
    ValueRange.FINITE: st.floats(allow_nan=False, allow_infinity=False),
    ValueRange.NOT_NEGATIVE: st.floats(min_value=0, allow_infinity=False),
    ValueRange.POSITIVE: st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    ValueRange.PERCENTAGE: st.floats(min_value=0, max_value=100),
    ValueRange.FALSE: st.just(False),
}


@st.composite
def checks(draw: st.DrawFn) -> ConditionCheck:
    condition: Condition = draw(st.sampled_from(list(CONDITIONS.values())))
    values: dict[str, Any] = {}
    if condition.checks:
        chosen = draw(st.lists(st.sampled_from(condition.checks), min_size=1, unique_by=lambda p: p.name))
        hidden = [p for p in condition.parameters if p.kind is ParameterKind.HIDDEN and draw(st.booleans())]
        values = {p.name: draw(NUMBERS[p.values]) for p in [*chosen, *hidden]}
        if any(p.requires for p in chosen):
            ends = draw(st.tuples(NUMBERS[ValueRange.FINITE], NUMBERS[ValueRange.FINITE]).map(sorted))
            values |= dict(zip(("range_start_inclusive", "range_end_inclusive"), ends, strict=True))
    return ConditionCheck(condition, values)


@given(checks())
def test_the_text_of_a_check_reads_back_as_the_same_check(check: ConditionCheck) -> None:
    assert parse_check(check.text) == check
    assert parse_check(check.text).text == check.text


@given(st.text(max_size=40) | st.text(alphabet="TLOmaxgt_(),= .0e+-19", max_size=40))
def test_any_text_is_a_check_or_an_input_error(text: str) -> None:
    try:
        check = parse_check(text)
    except InputError:
        return
    assert parse_check(check.text) == check


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("TL(max_gt=1e3)", "tensor_too_large(max_gt=1000)"),
        (" tl ( MAX_GT = 1 ) ".replace("MAX_GT", "max_gt"), "tensor_too_large(max_gt=1)"),
        ("tensor_too_large(mean_gt=5, max_gt=+.5)", "tensor_too_large(max_gt=0.5, mean_gt=5)"),
        ("Tensor_Too_Large(max_gt=-2.,)", "tensor_too_large(max_gt=-2)"),
        ("TO", "tensor_overflow()"),
        ("to()", "tensor_overflow()"),
        ("weight_not_changed", "weight_not_changed(rtol=1e-05)"),
        ("WNC(atol=0.5)", "weight_not_changed(rtol=1e-05, atol=0.5)"),
        ("WNC(equal_nan=False)", "weight_not_changed(rtol=1e-05)"),
        ("max_min_gt(param=1E+300)", "max_min_gt(param=1e+300)"),
        ("nan", "nan()"),
    ],
)
def test_short_forms_are_understood(text: str, canonical: str) -> None:
    assert parse_check(text).text == canonical


@pytest.mark.parametrize(
    ("text", "words", "character"),
    [
        ("TL(max_gt=abc)", "a number", 11),
        ("TL(max_gt=1e)", "found '1e'", 11),
        ("TL(max_gt=1", "end of the text", 12),
        ("TL(max_gt)", "'='", 10),
        ("TL(max_gt=)", "a number", 11),
        ("TL(max_gt=1))", "the end", 13),
        ("TL(max_gt=1 mean_gt=2)", "','", 13),
        ("TL(max_gt=1, max_gt=2)", "twice", 14),
        ("TL(max_gt=nan)", "finite", 11),
        ("TL(max_gt=-inf)", "finite", 11),
        ("TL(5)", "name of a parameter", 4),
        ("TL max_gt=5", "'('", 4),
        ("(max_gt=5)", "name of a condition", 1),
        ("TL(é=1)", "name of a parameter", 4),
        ("TL(max_gt=٣)", "a number", 11),
        ("TL(max_gt=1_000)", "a number", 11),
        ("TL(max_gt=__import__('os'))", "a number", 11),
    ],
)
def test_an_error_points_at_the_character(text: str, words: str, character: int) -> None:
    with pytest.raises(InputError) as caught:
        parse_check(text)
    first, shown, mark = str(caught.value).split("\n")
    assert words in first
    assert first.endswith(f"at character {character}")
    assert mark.index("^") - 2 == character - 1
    assert shown == f"  {text}"


def test_the_mark_stays_under_the_place_in_a_long_text() -> None:
    text = "TL(max_gt=1," + " " * 300 + "mean_gt=?, min_gt=2" + " " * 300 + ")"
    with pytest.raises(InputError) as caught:
        parse_check(text)
    _, shown, mark = str(caught.value).split("\n")
    assert shown[mark.index("^")] == "?"
    assert len(shown) < 110


def test_names_that_are_close_are_offered() -> None:
    with pytest.raises(InputError, match="did you mean tensor_overflow"):
        parse_check("tensor_overfow")
    with pytest.raises(InputError, match="did you mean max_gt"):
        parse_check("TL(maxgt=1)")
    with pytest.raises(InputError, match="known ones: weight_initialization"):
        parse_check("zzzzzz")


def test_an_empty_text_and_an_endless_one_are_refused() -> None:
    for text in ("", "  \n"):
        with pytest.raises(InputError, match="empty"):
            parse_check(text)
    with pytest.raises(InputError, match=f"at most {MAX_LENGTH}"):
        parse_check("TL(max_gt=" + "1" * MAX_LENGTH + ")")


def test_a_number_beyond_a_double_is_refused_as_not_finite() -> None:
    with pytest.raises(InputError, match="max_gt must be a finite number"):
        parse_check("TL(max_gt=1e999)")


def test_control_characters_do_not_reach_the_message() -> None:
    with pytest.raises(InputError) as caught:
        parse_check("TL(\x1b[31m=1)")
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "check", "persistence"),
    [
        ("TO", "tensor_overflow()", 1),
        ("TO persist=3", "tensor_overflow()", 3),
        ("TL(max_gt=2) PERSIST = 12", "tensor_too_large(max_gt=2)", 12),
    ],
)
def test_a_check_may_ask_for_several_steps_in_a_row(text: str, check: str, persistence: int) -> None:
    parsed, steps = parse_watch(text)
    assert (parsed.text, steps) == (check, persistence)
    point = Watchpoint(1, "", parsed, persistence=steps)
    assert parse_watch(point.text) == (parsed, steps)
    assert str(point) == f"1: {point.text} on all"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("TO persist=0", "from 1 to 1000000"),
        ("TO persist=1.5", "from 1 to 1000000"),
        ("TO persist", "expected '='"),
        ("TO persist=2 now", "expected '\\('"),
        ("TL(max_gt=1) persist=2 persist=3", "expected the end"),
        ("", "empty"),
    ],
)
def test_a_persistence_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_watch(text)
    with pytest.raises(InputError, match="persistence"):
        Watchpoint(1, "", parse_check("TO"), persistence=0)
