"""When a step ends where there are several optimizers."""

from __future__ import annotations

from tensight.agents.eager.rounds import Rounds


class Optimizer:
    """Something that updates weights, one of its own if no other says which."""

    def __init__(self, like: Optimizer | None = None) -> None:
        self.weights = [object()] if like is None else like.weights


def new_rounds() -> Rounds:
    return Rounds(lambda optimizer: optimizer.weights)


def called(*optimizers: Optimizer) -> set[int]:
    """Return the weights of the networks that these optimizers train, as a call of them shows them."""
    return {id(weight) for optimizer in optimizers for weight in optimizer.weights}


def ends(rounds: Rounds, *optimizers: Optimizer) -> list[bool]:
    return [rounds.ends_step(frozenset({id(optimizer)})) for optimizer in optimizers]


def test_a_step_ends_when_each_has_updated_once() -> None:
    rounds, one, two = new_rounds(), Optimizer(), Optimizer()
    rounds.learn((one, two))
    assert ends(rounds, one, two, one, two) == [False, True, False, True]


def test_networks_that_come_to_be_known_one_after_the_other_end_their_steps_together_from_then_on() -> None:
    rounds, one, two, three = new_rounds(), Optimizer(), Optimizer(), Optimizer()
    rounds.learn((one,))
    assert ends(rounds, one) == [True]
    rounds.learn((one, two))
    assert ends(rounds, two) == [True]
    rounds.learn((one, two, three))
    assert ends(rounds, three) == [True]
    assert ends(rounds, one, two, three, one, two, three) == [False, False, True] * 2


def test_an_optimizer_that_comes_later_takes_its_place_in_the_round() -> None:
    rounds, one, two = new_rounds(), Optimizer(), Optimizer()
    rounds.learn((one,))
    assert ends(rounds, one, one) == [True, True]
    rounds.learn((one, two))
    assert ends(rounds, two, one, two, one) == [False, True, False, True]


def test_each_update_ends_a_step_where_one_updates_more_often() -> None:
    rounds, critic, generator = new_rounds(), Optimizer(), Optimizer()
    rounds.learn((critic, generator))
    assert ends(rounds, *(critic, critic, generator) * 4)[-3:] == [True, True, True]


def test_a_network_that_is_called_only_after_an_update_is_trained_in_the_same_step() -> None:
    rounds, one, two, third = new_rounds(), Optimizer(), Optimizer(), Optimizer()
    rounds.learn((one,), uncalled=(two, third))
    assert ends(rounds, one) == [False]
    assert not rounds.was_over(called(Optimizer()))
    assert not rounds.was_over(called(two))
    rounds.learn((one, two), uncalled=(third,))
    assert ends(rounds, two) == [False]
    assert rounds.was_over(called(one))
    assert ends(rounds, one, two, one, two) == [False, True, False, True]


def test_a_step_that_may_go_on_ends_where_nothing_is_called_any_more() -> None:
    rounds, one, other = new_rounds(), Optimizer(), Optimizer()
    rounds.learn((one,), uncalled=(other,))
    assert ends(rounds, one) == [False]
    assert rounds.ends_late()
    assert not rounds.ends_late()
    assert ends(rounds, one) == [True]


def test_nobody_waits_for_an_optimizer_that_was_replaced_by_another_one_of_the_same_weights() -> None:
    rounds, one = new_rounds(), Optimizer()
    replaced = Optimizer(like=one)
    rounds.learn((replaced, one))
    assert ends(rounds, one, one) == [True, True]


def test_a_step_was_over_before_what_has_updated_in_it_runs_again_if_others_have_never_updated() -> None:
    rounds, one, two, idle = new_rounds(), Optimizer(), Optimizer(), Optimizer()
    rounds.learn((one, two, idle))
    assert ends(rounds, one, two) == [False, False]
    assert rounds.ends_before(frozenset({id(one)}))
    assert ends(rounds, one, two) == [False, True]
    assert ends(rounds, one) == [False]
    assert not rounds.ends_before(frozenset({id(one)}))
