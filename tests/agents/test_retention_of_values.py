"""Values are kept by reference, are never shown when they are not what they were, and stay within their budget."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.agents.core.process import memory
from tensight.agents.core.retention import SHARE_OF_FREE, Retention

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20


class Tensor:
    """A tensor that counts what is written to it."""

    def __init__(self, value: int = 0, size_bytes: int = 100) -> None:
        self.value = value
        self.version = 0
        self.size_bytes = size_bytes

    def write(self, value: int) -> None:
        self.value = value
        self.version += 1


class Reader:
    def __init__(self) -> None:
        self.copies = 0
        self.reused = 0

    def version(self, tensor: Tensor) -> int:
        return tensor.version

    def describe(self, tensor: Tensor) -> tuple[str, tuple[int, ...], int]:
        return "uint8", (tensor.size_bytes,), tensor.size_bytes

    def hold(self, tensor: Tensor) -> tuple[Tensor, int, int]:
        return tensor, id(tensor), tensor.size_bytes

    def copy(self, tensor: Tensor, into: Tensor | None = None) -> Tensor:
        self.copies += 1
        if into is None:
            return Tensor(tensor.value, tensor.size_bytes)
        self.reused += 1
        into.value = tensor.value
        return into


def retention(budget: int = 10_000, **options: Any) -> Retention:
    return Retention(Reader(), budget, **options)  # type: ignore[arg-type]


def value_of(tensor: Any) -> int | None:
    return None if tensor is None else int(tensor.value)


def test_values_of_this_and_of_the_previous_step_are_there_and_no_others() -> None:
    kept = retention()
    for step in range(4):
        kept.turn_over()
        kept.keep(3, Tensor(step))
        assert value_of(kept.current(3)) == step
        assert value_of(kept.previous(3)) == (step - 1 if step else None)
        assert kept.kept_bytes == (200 if step else 100)
    kept.turn_over()
    assert kept.current(3) is None
    assert "was not kept" in kept.why_missing(3)
    kept.clear()
    assert kept.previous(3) is None
    assert kept.kept_bytes == 0


def test_nothing_is_copied_before_it_was_seen_to_be_written_to() -> None:
    kept = retention()
    tensor = Tensor(1)
    kept.keep(0, tensor)
    assert kept.current(0) is tensor
    tensor.write(2)
    assert kept.current(0) is None
    assert "has overwritten its value of this step" in kept.why_missing(0)
    assert "from now on it is copied" in kept.why_missing(0)
    for step in range(2, 6):
        kept.turn_over()
        kept.keep(0, tensor)
        tensor.write(step + 1)
        assert value_of(kept.current(0)) == step
        assert value_of(kept.previous(0)) == (None if step == 2 else step - 1)


def test_places_that_are_written_to_are_found_without_anybody_asking() -> None:
    kept = retention()
    tensor = Tensor(0)
    for step in range(4):
        kept.turn_over()
        kept.keep(0, tensor)
        tensor.write(step + 1)
    assert value_of(kept.current(0)) == 3


def test_memory_of_copies_is_used_again() -> None:
    reader = Reader()
    kept = Retention(reader, 10_000)  # type: ignore[arg-type]
    kept.copy_values(0)
    tensor = Tensor()
    seen = []
    for step in range(5):
        kept.turn_over()
        tensor.write(step)
        kept.keep(0, tensor)
        seen.append(kept.current(0))
        assert value_of(kept.previous(0)) == (step - 1 if step else None)
    assert (reader.copies, reader.reused) == (5, 3)
    kept.copy_values(0, is_wanted=False)
    kept.turn_over()
    kept.keep(0, tensor)
    assert kept.current(0) is tensor


def test_what_is_written_to_in_every_step_is_only_shown_later_as_a_copy() -> None:
    kept = retention()
    weight, state = Tensor(1), Tensor(2)
    kept.copy_values(0)
    kept.copy_values(1, is_wanted=False)
    kept.keep(0, weight)
    kept.keep(1, state)
    assert [value_of(kept.current(slot_id)) for slot_id in (0, 1)] == [1, 2]
    # what a fused optimizer does: nothing counts it
    weight.value = state.value = 9
    kept.turn_over()
    assert value_of(kept.previous(0)) == 1
    assert kept.previous(1) is None
    assert "has overwritten its value of the previous step" in kept.why_missing(1, previous=True)


def test_what_nobody_wants_copied_is_not() -> None:
    kept = retention(wants_copies=lambda slot_id: slot_id == 1)
    tensors = [Tensor(), Tensor()]
    for _ in range(6):
        kept.turn_over()
        for slot_id, tensor in enumerate(tensors):
            kept.keep(slot_id, tensor)
            tensor.write(7)
    assert kept.current(0) is None
    assert kept.why_missing(0) == "the training has overwritten its value of this step"
    assert value_of(kept.current(1)) == 7


def test_a_tensor_seen_at_several_places_counts_once_and_is_known_again() -> None:
    kept = retention(budget=150)
    tensor = Tensor()
    assert kept.same_as(tensor) is None
    kept.keep(4, tensor)
    assert kept.same_as(tensor) == 4
    kept.keep(9, tensor)
    kept.keep(2, tensor)
    assert kept.kept_bytes == 100
    assert all(kept.current(slot_id) is tensor for slot_id in (4, 9, 2))
    tensor.write(1)
    assert kept.same_as(tensor) is None
    kept.turn_over()
    assert kept.same_as(tensor) is None


def test_the_oldest_values_give_way_with_all_their_places() -> None:
    kept = retention(budget=250)
    first, second, third = Tensor(1), Tensor(2), Tensor(3)
    kept.keep(0, first)
    kept.keep(1, first)
    kept.turn_over()
    kept.keep(0, second)
    kept.keep(1, second)
    kept.keep(2, third)
    assert kept.previous(0) is kept.previous(1) is None
    assert "was dropped for others" in kept.why_missing(1, previous=True)
    assert "TENSIGHT_MEMORY_BUDGET" in kept.why_missing(1, previous=True)
    assert value_of(kept.current(0)) == value_of(kept.current(1)) == 2
    kept.keep(3, Tensor(4))
    assert kept.current(0) is kept.current(1) is None
    assert kept.same_as(second) is None
    assert [value_of(kept.current(slot_id)) for slot_id in (2, 3)] == [3, 4]
    assert kept.kept_bytes == 200


def test_a_value_larger_than_everything_drives_nothing_out() -> None:
    kept = retention(budget=250)
    kept.keep(0, Tensor(1))
    kept.keep(1, Tensor(2, size_bytes=251))
    assert value_of(kept.current(0)) == 1
    assert kept.current(1) is None
    assert "was dropped" in kept.why_missing(1)


def test_without_a_budget_nothing_is_kept() -> None:
    kept = retention(budget=0)
    kept.copy_values(1)
    for slot_id in range(2):
        kept.keep(slot_id, Tensor())
        assert kept.current(slot_id) is None
    assert kept.kept_bytes == 0


def test_a_value_that_another_one_replaces_leaves_its_memory_to_the_places_that_see_it() -> None:
    kept = retention(budget=250)
    shared, other = Tensor(1), Tensor(2)
    kept.keep(0, shared)
    kept.keep(1, shared)
    kept.keep(0, other)
    assert kept.kept_bytes == 200
    assert [value_of(kept.current(slot_id)) for slot_id in (0, 1)] == [2, 1]
    assert kept.same_as(shared) == 1
    kept.keep(1, other)
    assert kept.kept_bytes == 100
    assert value_of(kept.current(1)) == 2


@settings(deadline=None, max_examples=2 * settings().max_examples)
@given(
    budget=st.integers(0, 12),
    actions=st.lists(
        st.one_of(
            st.tuples(st.just("keep"), st.integers(0, 5), st.integers(0, 3)),
            st.tuples(st.just("write"), st.integers(0, 3), st.integers(0, 0)),
            st.tuples(st.just("turn"), st.just(0), st.just(0)),
        ),
        max_size=60,
    ),
)
def test_whatever_happens_a_value_is_that_of_its_step_or_missing(
    budget: int, actions: list[tuple[str, int, int]]
) -> None:
    kept = retention(budget)
    tensors = [Tensor(number, size_bytes=number + 1) for number in range(4)]
    now: dict[int, int] = {}
    before: dict[int, int] = {}
    written = 10
    for action, one, other in actions:
        if action == "keep":
            kept.keep(one, tensors[other])
            now[one] = tensors[other].value
        elif action == "write":
            written += 1
            tensors[one].write(written)
        else:
            kept.turn_over()
            before, now = now, {}
        assert 0 <= kept.kept_bytes <= budget
        for slot_id in range(6):
            assert value_of(kept.current(slot_id)) in (None, now.get(slot_id))
            assert value_of(kept.previous(slot_id)) in (None, before.get(slot_id))
            assert bool(kept.why_missing(slot_id)) == (kept.current(slot_id) is None)
        for tensor in tensors:
            same = kept.same_as(tensor)
            assert same is None or kept.current(same) is tensor


def test_a_tenth_of_what_is_free_is_set_aside() -> None:
    free = memory.free_bytes()
    kept = Retention(Reader())  # type: ignore[arg-type]
    assert 0.5 * free < kept.budget_bytes / SHARE_OF_FREE < 2 * free


def test_a_device_with_little_memory_limits_what_is_set_aside() -> None:
    kept = Retention(Reader(), device_bytes=5000)  # type: ignore[arg-type]
    assert kept.budget_bytes == 500
    assert Retention(Reader(), 700, device_bytes=5000).budget_bytes == 700  # type: ignore[arg-type]


def test_the_tightest_limit_says_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CGROUP_2", tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text(f"{90 * MIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon {5 * MIB}\ninactive_file {20 * MIB}\n")
    unlimited = memory.free_bytes()
    assert unlimited > 100 * MIB
    (tmp_path / "memory.max").write_text(f"{100 * MIB}\n")
    assert memory.free_bytes() == 30 * MIB
    (tmp_path / "memory.max").write_text(f"{50 * MIB}\n")
    assert memory.free_bytes() == 0


def test_the_limit_of_the_process_itself_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 2**46
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    before = memory.free_bytes()
    limit = 2**30
    assert memory.free_bytes() < min(before, 2**30)


def test_values_survive_only_as_long_as_they_are_kept() -> None:
    arrays = [np.zeros(10) for _ in range(2)]

    class Arrays(Reader):
        def version(self, _: Any) -> int:
            return 0

        def hold(self, tensor: Any) -> tuple[Any, int, int]:
            return tensor, id(tensor), int(tensor.nbytes)

    kept = Retention(Arrays(), 1000)  # type: ignore[arg-type]
    kept.keep(0, arrays[0])
    assert kept.same_as(arrays[1]) is None
    assert kept.current(0) is arrays[0]
