"""Which slot a tensor was computed from, where a framework gives the numbers of freed functions to new ones."""

from __future__ import annotations

import weakref
from typing import Any

import minigrad
import pytest
from minigrad_agent.framework import MinigradFramework

from tensight.agents.core.slots import SlotTable
from tensight.agents.eager.adapter import GradientEdge
from tensight.agents.eager.calls import Operation, Reading, Slot, slot_id_of_gradient
from tensight.agents.eager.names import Names
from tensight.agents.eager.step_tensors import StepTensors
from tensight.graph import OutputSlot


class NumberingFramework(MinigradFramework):
    """Minigrad, but its functions are known by numbers, of which the smallest that is free is given to each."""

    def __init__(self) -> None:
        self._numbers: dict[int, weakref.ref[Any]] = {}

    def edge(self, tensor: minigrad.Tensor) -> GradientEdge | None:
        return None if tensor.function is None else self._edge(tensor.function)

    def edges_into(self, edge: GradientEdge) -> list[GradientEdge]:
        return [self._edge(one.function or one) for one in edge.function.inputs if one.requires_grad]

    def _edge(self, function: Any) -> GradientEdge:
        known = next((number for number, one in self._numbers.items() if one() is function), None)
        if known is None:
            free = (number for number in range(1000) if number not in self._numbers or self._numbers[number]() is None)
            known = next(free)
            self._numbers[known] = weakref.ref(function)
        return GradientEdge(function, known)


@pytest.fixture
def weight() -> minigrad.Tensor:
    return minigrad.Tensor([1.0, 2.0], requires_grad=True)


@pytest.fixture
def tensors() -> StepTensors[Slot]:
    return StepTensors(Names(NumberingFramework()))


def slot(number: int) -> Slot:
    return Slot(number, (f"Default/Layer-op{number}", 0), OutputSlot.of_tensor(0, (2,)))


def read_by(tensors: StepTensors[Slot], tensor: minigrad.Tensor) -> list[tuple[Slot, int]]:
    reading: Reading[Slot] = Reading()
    tensors.read_through(reading, [tensor], lambda _: None)
    return reading.read


def test_what_was_computed_from_a_tensor_reads_its_slot_though_the_tensor_is_gone(
    weight: minigrad.Tensor, tensors: StepTensors[Slot]
) -> None:
    first = slot(0)
    output = minigrad.tanh(weight)
    tensors.know(first, output)
    between = minigrad.relu(output)
    del output
    assert read_by(tensors, between) == [(first, 0)]


def test_a_function_that_is_known_keeps_its_number_until_a_backward_pass(
    weight: minigrad.Tensor, tensors: StepTensors[Slot]
) -> None:
    output = minigrad.tanh(weight)
    tensors.know(slot(0), output)
    del output
    assert read_by(tensors, minigrad.relu(minigrad.tanh(weight))) == []


def test_what_came_before_a_backward_pass_is_known_as_long_as_its_tensor_lives(
    weight: minigrad.Tensor, tensors: StepTensors[Slot]
) -> None:
    first, second = slot(0), slot(1)
    gone, kept = minigrad.tanh(weight), minigrad.tanh(weight)
    tensors.know(first, gone)
    tensors.know(second, kept)
    number = tensors._framework.edge(gone).key  # type: ignore[union-attr]
    tensors.release()
    del gone
    after = minigrad.tanh(weight)
    assert tensors._framework.edge(after).key == number  # type: ignore[union-attr]
    assert read_by(tensors, minigrad.relu(after)) == []
    assert read_by(tensors, minigrad.relu(kept)) == [(second, 0)]


def test_a_tensor_that_was_written_to_is_another_one(weight: minigrad.Tensor, tensors: StepTensors[Slot]) -> None:
    first = slot(0)
    output = minigrad.tanh(weight)
    tensors.know(first, output)
    assert tensors.find(output) is first
    output.add_(1)
    assert tensors.find(output) is None
    assert tensors.find(output, written=True) is first
    assert tensors.is_written(output)


def test_the_gradient_of_an_output_that_no_node_reads_has_a_place_of_its_own_among_the_inputs() -> None:
    slot_table = SlotTable()
    operation, reader = (Operation[Slot](slot_table.node(f"Default/{name}-op0", name)) for name in ("Pair", "Loss"))
    for number in range(3):
        slot = Slot(number, (operation.node.name, number), OutputSlot.of_tensor(43, (2,)))
        operation.outputs.append(slot)
    _, middle, last = operation.outputs
    middle.consumer = last.consumer = (reader, 0)
    last.gradient_slot_id = slot_id_of_gradient(last, slot_table)
    assert operation.gradient_sources() == [("Gradients/Default/LossGrad-op0", 0)]
    middle.consumer = None
    middle.gradient_slot_id = slot_id_of_gradient(middle, slot_table)
    seen = slot_table[middle.gradient_slot_id]
    assert (seen.node.name, seen.slot, seen.io) == ("Gradients/Default/PairGrad-op0", 1, "input")
    assert operation.gradient_sources() == [None, None, ("Gradients/Default/LossGrad-op0", 0)]
