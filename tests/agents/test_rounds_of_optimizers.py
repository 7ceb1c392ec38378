"""When a step ends where there are several optimizers."""

from __future__ import annotations

from tensight.agents.rounds import Rounds


class Optimizer:
    """Something that updates weights."""


def ends(rounds: Rounds, *optimizers: Optimizer) -> list[bool]:
    return [rounds.ends_step(frozenset({id(optimizer)})) for optimizer in optimizers]


def test_a_step_ends_when_each_has_updated_once() -> None:
    rounds, one, two = Rounds(), Optimizer(), Optimizer()
    rounds.learn((one, two))
    assert ends(rounds, one, two, one, two) == [False, True, False, True]


def test_networks_that_come_to_be_known_one_after_the_other_end_their_steps_together_from_then_on() -> None:
    rounds, one, two, three = Rounds(), Optimizer(), Optimizer(), Optimizer()
    rounds.learn((one,))
    assert ends(rounds, one) == [True]
    rounds.learn((one, two))
    assert ends(rounds, two) == [True]
    rounds.learn((one, two, three))
    assert ends(rounds, three) == [True]
    assert ends(rounds, one, two, three, one, two, three) == [False, False, True] * 2


def test_an_optimizer_that_comes_later_takes_its_place_in_the_round() -> None:
    rounds, one, two = Rounds(), Optimizer(), Optimizer()
    rounds.learn((one,))
    assert ends(rounds, one, one) == [True, True]
    rounds.learn((one, two))
    assert ends(rounds, two, one, two, one) == [False, True, False, True]


def test_each_update_ends_a_step_where_one_updates_more_often() -> None:
    rounds, critic, generator = Rounds(), Optimizer(), Optimizer()
    rounds.learn((critic, generator))
    assert ends(rounds, *(critic, critic, generator) * 4)[-3:] == [True, True, True]
