"""What a person sees of a training that stands still is what it computed, or the word that it is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.dumps import open_dump
from tensight.errors import TensightError
from tensight.sessions.errors import UnavailableError
from tests.agents.numpy_training import FORWARD, GRADIENTS, LOSS, MOMENTS, WEIGHTS, Network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from tensight.client import Session
    from tests.agents.agent_stage import Scene

Debug = Callable[..., "tuple[Scene, Session]"] if TYPE_CHECKING else object


def alone(steps: int) -> list[dict[str, NDArray[Any]]]:
    """Return what each step of the same training computes where nobody debugs it, by node and slot."""
    network = Network()
    found: list[dict[str, NDArray[Any]]] = []

    def see(name: str, _type: str, _sources: Any, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        for slot, value in enumerate(outputs):
            found[-1][f"{name}:{slot}"] = value.copy()
        for slot, value in enumerate(inputs):
            found[-1][f"{name}:input.{slot}"] = value.copy()

    for _ in range(steps):
        found.append({})
        network.step(see, lambda _: None)
        found[-1].update({f"{name}:0": value.copy() for name, value in network.weights.items()})
        found[-1].update({f"momentum_buffer.{name}:0": value.copy() for name, value in network.moments.items()})
    return found


def test_values_are_those_of_the_training_bit_for_bit(debug: Debug) -> None:
    _, session = debug(steps=5)
    session.step(3).wait(30)
    expected = alone(3)[-1]
    for name in (*FORWARD, *GRADIENTS, *WEIGHTS, *MOMENTS):
        np.testing.assert_array_equal(session.tensor(name).numpy(), expected[f"{name}:0"])
    np.testing.assert_array_equal(session.tensor(GRADIENTS[0], 1).numpy(), expected[f"{GRADIENTS[0]}:1"])


def test_inputs_are_there_as_the_node_got_them(debug: Debug) -> None:
    _, session = debug(steps=5)
    session.step(2).wait(30)
    expected = alone(2)[-1]
    batch = session.tensor(FORWARD[0], 0, io="input")
    np.testing.assert_array_equal(batch.numpy(), expected[f"{FORWARD[0]}:input.0"])
    assert batch.statistics().count == 256


def test_a_weight_as_an_operator_read_it_is_not_shown_after_the_update(debug: Debug) -> None:
    _, session = debug(steps=5)
    session.step(2).wait(30)
    with pytest.raises(UnavailableError):
        session.tensor(FORWARD[0], 1, io="input").numpy()
    # What was counted of it before it was written to is true all the same.
    assert session.tensor(FORWARD[0], 1, io="input").statistics().count == 128


def test_the_step_before_is_there_of_every_tensor(debug: Debug) -> None:
    _, session = debug(steps=5)
    session.step(3).wait(30)
    before, now = alone(3)[1:]
    for name in (FORWARD[1], GRADIENTS[1], *WEIGHTS, *MOMENTS):
        tensor = session.tensor(name)
        np.testing.assert_array_equal(tensor.previous.numpy(), before[f"{name}:0"])
        difference = tensor.difference().slice()
        np.testing.assert_allclose(difference, now[f"{name}:0"] - before[f"{name}:0"], atol=1e-6)


def test_initial_weights_are_what_the_first_step_is_compared_with(debug: Debug) -> None:
    _, session = debug(steps=5)
    initial = {name: value.copy() for name, value in Network().weights.items()}
    np.testing.assert_array_equal(session.tensor(WEIGHTS[0]).numpy(), initial[WEIGHTS[0]])
    assert session.tensor(WEIGHTS[0]).statistics().max == initial[WEIGHTS[0]].max()
    session.step().wait(30)
    np.testing.assert_array_equal(session.tensor(WEIGHTS[0]).previous.numpy(), initial[WEIGHTS[0]])
    with pytest.raises(UnavailableError):
        session.tensor(FORWARD[1]).previous.numpy()


def test_views_are_computed_where_the_tensor_is(debug: Debug) -> None:
    _, session = debug(steps=5)
    session.step(2).wait(30)
    expected = alone(2)[-1][f"{FORWARD[0]}:0"]
    tensor = session.tensor(FORWARD[0])
    np.testing.assert_array_equal(tensor.slice("[1:3, ::2]"), expected[1:3, ::2])
    assert tensor.heat_map(rows=4, columns=4).shape == (4, 4)
    assert sum(tensor.histogram(10).counts) == expected.size
    largest = tuple(map(int, np.unravel_index(np.abs(expected).argmax(), expected.shape)))
    assert tensor.locate().index == largest
    assert tensor.locate("next").index is None
    assert np.abs(tensor.slice_map("[0, :]")[0]).max() == np.abs(expected).max()
    statistics = tensor.statistics()
    assert (statistics.count, statistics.max, statistics.mean) == (
        expected.size,
        expected.max(),
        pytest.approx(expected.mean()),
    )


def test_a_scalar_is_a_tensor_without_dimensions(debug: Debug) -> None:
    _, session = debug(steps=5)
    session.step().wait(30)
    loss = session.tensor(LOSS)
    assert loss.numpy().shape == ()
    assert loss.record.shape == ()


def test_within_a_step_only_what_has_run_is_there(debug: Debug) -> None:
    _, session = debug(steps=5)
    session.step().wait(30)
    session.run_to(FORWARD[1]).wait(30)
    expected = alone(2)
    np.testing.assert_array_equal(session.tensor(FORWARD[1]).numpy(), expected[1][f"{FORWARD[1]}:0"])
    np.testing.assert_array_equal(session.tensor(FORWARD[1]).previous.numpy(), expected[0][f"{FORWARD[1]}:0"])
    with pytest.raises(UnavailableError):
        session.tensor(LOSS).numpy()
    np.testing.assert_array_equal(session.tensor(LOSS).previous.numpy(), expected[0][f"{LOSS}:0"])


def test_what_does_not_fit_into_the_memory_set_aside_keeps_its_statistics(debug: Debug) -> None:
    _, session = debug(steps=5, memory_budget_bytes=600)
    session.step(2).wait(30)
    with pytest.raises(UnavailableError):
        session.tensor(FORWARD[0]).numpy()
    with pytest.raises(UnavailableError, match="set aside"):
        session.tensor(FORWARD[0]).slice()
    assert session.tensor(FORWARD[0]).statistics().count == 512


def test_partial_memory_keeps_what_is_watched_and_nothing_else(debug: Debug) -> None:
    scene, session = debug(steps=5, partial_memory=True, capture="modules")
    session.watch(
        "tensor_range",
        range_start_inclusive=-1e9,
        range_end_inclusive=1e9,
        range_percentage_gt=100,
        on=f"name:{FORWARD[0]}",
    )
    session.step(2).wait(30)
    assert session.tensor(FORWARD[0]).statistics().count == 512
    with pytest.raises(UnavailableError):
        session.tensor(FORWARD[1]).numpy()
    assert scene.debugger.agent.observed.retention.kept_bytes <= 2 * 512 * 4


def test_partial_memory_shows_what_is_watched_for_its_statistics_alone(debug: Debug) -> None:
    _, session = debug(steps=5, partial_memory=True, capture="modules")
    session.watch("tensor_too_large", max_gt=1e9, on=f"name:{FORWARD[0]}")
    session.step(2).wait(30)
    np.testing.assert_array_equal(session.tensor(FORWARD[0]).numpy(), alone(2)[1][f"{FORWARD[0]}:0"])
    with pytest.raises(UnavailableError):
        session.tensor(FORWARD[1]).numpy()


def test_a_training_of_which_nobody_wants_anything_is_not_looked_at(debug: Debug) -> None:
    seen: list[bool] = []
    scene, session = debug(steps=20, before_step=lambda _: seen.append(scene.debugger.agent.capturing))
    session.step(10).wait(30)
    # The last two are looked at: a person compares.
    assert seen == [False] * 8 + [True] * 2
    session.continue_().wait(30)
    assert seen[10:] == [False] * 10
    assert scene.debugger.agent.observed.retention.kept_bytes == 0


def test_recorded_steps_are_shown_while_the_training_stands_still(debug: Debug, tmp_path: Path) -> None:
    _, session = debug(steps=9, record="ring:3", record_folder=str(tmp_path / "run"))
    session.step(6).wait(30)
    expected = alone(6)
    assert session.go_to(4).wait(30).step == 4
    np.testing.assert_array_equal(session.tensor(FORWARD[1]).numpy(), expected[3][f"{FORWARD[1]}:0"])
    np.testing.assert_array_equal(session.tensor(WEIGHTS[0], step=5).numpy(), expected[4][f"{WEIGHTS[0]}:0"])
    difference = session.tensor(WEIGHTS[0], step=5).difference().slice()
    np.testing.assert_allclose(difference, expected[4][f"{WEIGHTS[0]}:0"] - expected[3][f"{WEIGHTS[0]}:0"], atol=1e-6)
    with pytest.raises(TensightError):
        session.tensor(FORWARD[1], step=1).slice()
    assert session.step().wait(30).step == 7


def test_a_recorded_training_opens_as_a_dump(debug: Debug, tmp_path: Path) -> None:
    scene, session = debug(steps=4, record="full", record_folder=str(tmp_path / "run"))
    session.continue_().wait(30)
    scene.finish()
    expected = alone(4)
    found = {
        (one.address.node, one.address.iteration): np.load(one.path)
        for one in open_dump(tmp_path / "run").tensors()
        if one.address and one.address.io == "output" and one.slot == 0
    }
    for name in (LOSS, *WEIGHTS):
        for iteration in range(4):
            np.testing.assert_array_equal(found[name, iteration], expected[iteration][f"{name}:0"])


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_where_a_watchpoint_hits_weights_are_compared_with_the_step_before(debug: Debug, capture: str) -> None:
    _, session = debug(steps=9, network={"nan_at": 6}, capture=capture)
    session.watch("tensor_overflow", on=f"name:{FORWARD[2]}")
    session.step().wait(30)
    assert session.continue_().wait(30).step == 6
    if capture == "ops":
        session.delete_watchpoints()
        session.step().wait(30)
    expected = alone(5)[-1]
    np.testing.assert_array_equal(session.tensor(WEIGHTS[0]).previous.numpy(), expected[f"{WEIGHTS[0]}:0"])
