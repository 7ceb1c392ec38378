"""Which hits are a reason to stop: what is new and follows from nothing that was reported."""

from __future__ import annotations

from tensight.watchpoints.causes import Causes, HitFacts

INPUTS = {
    "Default/fc1": ["x", "fc1.weight"],
    "Default/relu": ["Default/fc1"],
    "Default/fc2": ["Default/relu", "fc2.weight"],
    "Default/side": ["x"],
    "Gradients/Default/fc2": ["Default/relu"],
    "Optimizer/fc1/weight/ApplySGD-op0": ["fc1.weight", "Gradients/Default/fc2"],
}
PARAMETERS = {"fc1.weight", "fc2.weight"}


class Training:
    """A training of which only hits are known."""

    def __init__(self, *checked: str) -> None:
        self.checked = set(checked)
        self.causes = Causes(PARAMETERS.__contains__, lambda: self.checked)

    def step(self, *nodes: str, seen: set[str] | None = None, non_finite: bool = True) -> list[str]:
        """Return the hits of a step that are a reason to stop, by their nodes."""
        hits = [
            HitFacts(1 + (not non_finite), node, node, node in PARAMETERS, non_finite, node == "x") for node in nodes
        ]
        judged = self.causes.judge(hits, INPUTS)
        self.causes.end_step(lambda: {*INPUTS, *PARAMETERS, "x"} if seen is None else seen)
        return [node for node, is_new in zip(nodes, judged, strict=True) if is_new]


ALL = (*INPUTS, *PARAMETERS, "x")


def test_what_goes_on_is_a_reason_once_and_again_when_it_has_cleared_and_come_back() -> None:
    training = Training()
    assert [training.step("Default/fc1", non_finite=False) for _ in range(3)] == [["Default/fc1"], [], []]
    assert training.step() == []
    assert training.step("Default/fc1", non_finite=False) == ["Default/fc1"]


def test_what_clears_and_comes_back_all_the_time_is_a_reason_less_and_less_often() -> None:
    training = Training()
    stops = [step for step in range(1, 201) if training.step(*["Default/fc1"] * (step % 5 == 0), non_finite=False)]
    # Four steps without it are enough for three times; then they would have to be eight.
    assert stops == [5, 10, 15, 20]
    assert [training.step() for _ in range(8)] == [[]] * 8
    assert training.step("Default/side", "Default/fc1", non_finite=False) == ["Default/side", "Default/fc1"]
    training.causes.forget()
    assert training.step("Default/fc1", non_finite=False) == ["Default/fc1"]


def test_a_tensor_that_was_not_seen_has_not_cleared() -> None:
    training = Training()
    assert training.step("Default/side", non_finite=False) == ["Default/side"]
    assert training.step(seen={"Default/fc1"}) == []
    assert training.step("Default/side", non_finite=False) == []


def test_what_is_computed_from_a_nan_follows_from_it_through_parameters_too() -> None:
    training = Training(*ALL)
    everything = ("Default/relu", "Default/fc2", "Gradients/Default/fc2", "fc1.weight", "fc2.weight")
    assert training.step(*everything) == ["Default/relu"]
    assert training.step("Default/fc1", *everything) == []
    assert training.step("Default/fc1", *everything) == []


def test_a_second_cause_beside_one_that_goes_on_is_a_reason() -> None:
    training = Training(*ALL)
    assert training.step("Default/side") == ["Default/side"]
    assert training.step("Default/side", "Default/relu", "Default/fc2") == ["Default/relu"]
    # A warning on a tensor is no reason for a NaN further on.
    assert training.step("Default/fc1", non_finite=False) == ["Default/fc1"]


def test_a_nan_that_comes_with_the_data_is_a_reason_and_what_is_computed_from_it_is_none() -> None:
    training = Training(*ALL)
    everything = ("x", "Default/fc1", "Default/relu", "Default/fc2", "Gradients/Default/fc2", "fc1.weight")
    assert training.step(*everything) == ["x"]
    assert training.step(*everything) == []


def test_a_nan_of_the_backward_pass_alone_is_a_reason() -> None:
    training = Training(*ALL)
    assert training.step("Gradients/Default/fc2", "fc1.weight") == ["Gradients/Default/fc2"]


def test_a_nan_that_comes_with_the_data_is_a_reason_though_everything_of_the_step_follows_from_it() -> None:
    training = Training(*ALL)
    everything = ("Default/fc1", "Default/relu", "x", "fc1.weight")
    assert training.step(*everything) == ["x"]
    assert training.step(*everything) == []
    # What is computed elsewhere from a poisoned weight may come as data.
    assert training.step(*everything, "y") == []


def test_bad_data_beside_a_nan_that_goes_on_is_a_reason() -> None:
    training = Training(*ALL)
    assert training.step("Default/side") == ["Default/side"]
    assert training.step("Default/side", "Default/fc1", "x") == ["x"]


def test_data_that_may_have_been_computed_from_a_poisoned_weight_is_none() -> None:
    training = Training(*ALL)
    assert training.step("Default/relu", "fc1.weight") == ["Default/relu"]
    assert training.step("Default/fc1", "Default/relu", "x", "fc1.weight") == []
    # What reads it is judged before it is.
    assert training.step("Default/side", "Default/relu", "fc1.weight") == []


def test_what_nobody_checks_is_looked_through() -> None:
    training = Training("Default/fc1", "Default/fc2", *PARAMETERS)
    assert training.step("Default/fc1", "Default/fc2") == ["Default/fc1"]
    checked = Training("Default/fc1", "Default/relu", "Default/fc2", *PARAMETERS)
    # The NaN of fc1 was gone in between.
    assert checked.step("Default/fc1", "Default/fc2") == ["Default/fc1", "Default/fc2"]


def test_a_weight_that_jumps_between_steps_is_a_reason_and_what_reads_it_is_none_later() -> None:
    training = Training(*ALL)
    assert training.step("fc2.weight") == ["fc2.weight"]
    assert training.step("fc2.weight", "Default/fc2") == []


def test_parameters_that_nobody_checks_are_taken_to_be_poisoned_while_something_goes_on() -> None:
    training = Training(*INPUTS)
    assert training.step("Default/fc2") == ["Default/fc2"]
    assert training.step("Default/fc1", "Default/fc2") == []
    assert training.step() == []
    assert training.step("Default/fc1") == ["Default/fc1"]


def test_what_has_been_checked_again_goes_on_from_there() -> None:
    training = Training()
    hit = HitFacts(5, "Default/fc1", "Default/fc1", False, False)
    assert training.causes.judge_again([hit]) == [True]
    assert training.causes.judge_again([hit]) == [True]
    assert training.causes.judge([hit], INPUTS) == [False]
    training.causes.forget(5)
    assert training.causes.judge([hit], INPUTS) == [True]


def test_where_a_nan_came_from_that_was_reported_within_the_step_is_no_second_reason() -> None:
    causes = Causes(PARAMETERS.__contains__, lambda: set(ALL))

    def judge(*nodes: str) -> list[bool]:
        return causes.judge([HitFacts(1, node, node, False, True) for node in nodes], INPUTS)

    # What the first one puts out might have been left out; that it was not is known only later.
    assert judge("Default/relu") == [True]
    assert judge("Default/fc1", "Default/relu", "Default/side") == [False, False, True]
