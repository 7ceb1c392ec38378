"""When a step ends where there are several optimizers."""

from __future__ import annotations

from tensight.agents.eager.multi_optimizer import MultiOptimizerSteps


class Optimizer:
    """Something that updates weights, one of its own if no other says which."""

    def __init__(self, like: Optimizer | None = None) -> None:
        self.weights = [object()] if like is None else like.weights


def new_rounds() -> MultiOptimizerSteps:
    return MultiOptimizerSteps(lambda optimizer: optimizer.weights)


def called(*optimizers: Optimizer) -> set[int]:
    """Return the weights of the networks that these optimizers train, as a call of them shows them."""
    return {id(weight) for optimizer in optimizers for weight in optimizer.weights}


def ends(multi_optimizer: MultiOptimizerSteps, *optimizers: Optimizer) -> list[bool]:
    return [multi_optimizer.ends_step(frozenset({id(optimizer)})) for optimizer in optimizers]


def test_a_step_ends_when_each_has_updated_once() -> None:
    multi_optimizer, one, two = new_rounds(), Optimizer(), Optimizer()
    multi_optimizer.learn((one, two))
    assert ends(multi_optimizer, one, two, one, two) == [False, True, False, True]


def test_networks_that_come_to_be_known_one_after_the_other_end_their_steps_together_from_then_on() -> None:
    multi_optimizer, one, two, three = new_rounds(), Optimizer(), Optimizer(), Optimizer()
    multi_optimizer.learn((one,))
    assert ends(multi_optimizer, one) == [True]
    multi_optimizer.learn((one, two))
    assert ends(multi_optimizer, two) == [True]
    multi_optimizer.learn((one, two, three))
    assert ends(multi_optimizer, three) == [True]
    assert ends(multi_optimizer, one, two, three, one, two, three) == [False, False, True] * 2


def test_an_optimizer_that_comes_later_takes_its_place_in_the_round() -> None:
    multi_optimizer, one, two = new_rounds(), Optimizer(), Optimizer()
    multi_optimizer.learn((one,))
    assert ends(multi_optimizer, one, one) == [True, True]
    multi_optimizer.learn((one, two))
    assert ends(multi_optimizer, two, one, two, one) == [False, True, False, True]


def test_each_update_ends_a_step_where_one_updates_more_often() -> None:
    multi_optimizer, critic, generator = new_rounds(), Optimizer(), Optimizer()
    multi_optimizer.learn((critic, generator))
    assert ends(multi_optimizer, *(critic, critic, generator) * 4)[-3:] == [True, True, True]


def test_a_network_that_is_called_only_after_an_update_is_trained_in_the_same_step() -> None:
    multi_optimizer, one, two, third = new_rounds(), Optimizer(), Optimizer(), Optimizer()
    multi_optimizer.learn((one,), uncalled=(two, third))
    assert ends(multi_optimizer, one) == [False]
    assert not multi_optimizer.was_over(called(Optimizer()))
    assert not multi_optimizer.was_over(called(two))
    multi_optimizer.learn((one, two), uncalled=(third,))
    assert ends(multi_optimizer, two) == [False]
    assert multi_optimizer.was_over(called(one))
    assert ends(multi_optimizer, one, two, one, two) == [False, True, False, True]


def test_a_step_that_may_go_on_ends_where_nothing_is_called_any_more() -> None:
    multi_optimizer, one, other = new_rounds(), Optimizer(), Optimizer()
    multi_optimizer.learn((one,), uncalled=(other,))
    assert ends(multi_optimizer, one) == [False]
    assert multi_optimizer.ends_late()
    assert not multi_optimizer.ends_late()
    assert ends(multi_optimizer, one) == [True]


def test_nobody_waits_for_an_optimizer_that_was_replaced_by_another_one_of_the_same_weights() -> None:
    multi_optimizer, one = new_rounds(), Optimizer()
    replaced = Optimizer(like=one)
    multi_optimizer.learn((replaced, one))
    assert ends(multi_optimizer, one, one) == [True, True]


def test_one_that_takes_over_weights_of_another_in_the_middle_makes_steps_at_once() -> None:
    multi_optimizer, before = new_rounds(), Optimizer()
    multi_optimizer.learn((before,))
    assert ends(multi_optimizer, before, before) == [True, True]
    after = Optimizer(like=before)
    after.weights = [*before.weights, object()]
    multi_optimizer.learn((before, after))
    assert ends(multi_optimizer, after, after, after) == [True, True, True]


def test_a_step_was_over_before_what_has_updated_in_it_runs_again_if_others_have_never_updated() -> None:
    multi_optimizer, one, two, idle = new_rounds(), Optimizer(), Optimizer(), Optimizer()
    multi_optimizer.learn((one, two, idle))
    assert ends(multi_optimizer, one, two) == [False, False]
    assert multi_optimizer.ends_before(frozenset({id(one)}))
    assert ends(multi_optimizer, one, two) == [False, True]
    assert ends(multi_optimizer, one) == [False]
    assert not multi_optimizer.ends_before(frozenset({id(one)}))
