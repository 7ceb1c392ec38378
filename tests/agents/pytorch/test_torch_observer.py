"""Tensors are read, searched and kept by the extension alone where it can be; every other one is handed on."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensight.agents.core.agent import Agent
from tensight.agents.core.columns import StatisticsColumns
from tensight.agents.core.reader import Framework
from tensight.agents.core.retention import Retention
from tensight.agents.core.settings import AgentSettings
from tensight.agents.core.slots import Need
from tensight.agents.torch.arrays import HOLDING_BYTES, READ_WHERE_THEY_LIE, TorchReader, is_in_memory
from tensight.tensors import native, statistics

if TYPE_CHECKING:
    from collections.abc import Callable

ROW, TRACED = int(Need.ROW), int(Need.ROW | Need.HASH)
FINITE, VALUE, BOTH = int(Need.FINITE), int(Need.VALUE), int(Need.ROW | Need.VALUE)


class Observed:
    """Columns with what observes tensors, and what that has handed on."""

    def __init__(self, retention: Retention | None = None) -> None:
        self.columns = StatisticsColumns()
        self.columns.read_where_they_lie(*READ_WHERE_THEY_LIE)
        self.seen: list[int] = []
        self.handed_on: list[tuple[Any, ...]] = []
        books = None if retention is None else retention.books
        self.observe: Callable[..., None] = self.columns.observer(self.seen, self.take, books)

    def take(self, *given: Any) -> None:
        self.handed_on.append(given)


@pytest.fixture(params=native.instruction_sets())
def observed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Observed:
    monkeypatch.setenv("TENSIGHT_KERNELS", request.param)
    return Observed()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.bool])
@pytest.mark.parametrize("shape", [(), (3,), (5, 7), (1, 4, 1), (300, 400)])
def test_rows_are_those_of_the_statistics(observed: Observed, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape) * 40).to(dtype)
    observed.observe(3, tensor, TRACED)
    (row,) = observed.columns.take([3]).statistics()
    assert row == statistics(TorchReader().host(tensor))
    assert (observed.seen, observed.handed_on) == ([3], [])


@pytest.mark.parametrize(
    "view",
    [
        lambda tensor: tensor.T,
        lambda tensor: tensor[:, ::2],
        lambda tensor: tensor[3:, 1:],
        lambda tensor: tensor.expand(2, 3, *tensor.shape),
        lambda tensor: tensor.reshape(2, 10, 30, 1).permute(3, 2, 0, 1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_elements_that_lie_apart_are_read_in_their_order(
    observed: Observed, view: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    tensor = view((torch.randn(20, 30) * 10).to(dtype))
    observed.observe(0, tensor, TRACED)
    (row,) = observed.columns.take([0]).statistics()
    assert row == statistics(np.ascontiguousarray(TorchReader().host(tensor)))
    assert (observed.seen, observed.handed_on) == ([0], [])


def test_a_weight_is_read_and_a_row_without_a_hash_has_none(observed: Observed) -> None:
    weight = torch.nn.Parameter(torch.arange(6.0))
    observed.observe(1, weight, ROW)
    (row,) = observed.columns.take([1]).statistics()
    assert row is not None
    assert (row.max, row.content_hash) == (5.0, 0)


class Wrapped(torch.Tensor):
    """A tensor that answers as its class likes."""


def unusual_tensors() -> dict[str, Any]:
    meta = torch.empty(3, device="meta")
    return {
        "of another class": torch.ones(3).as_subclass(Wrapped),
        "an array": np.ones(3),
        "nowhere": meta,
        "sparse": torch.ones(3, 3).to_sparse(),
        "complex": torch.ones(3, dtype=torch.complex64),
        "negated later": torch.ones(3, dtype=torch.complex64).conj().imag,
        "only said to be zero": torch._efficientzerotensor(3),
        "strided, of doubles": torch.ones(3, 4, dtype=torch.float64).T,
        "nothing": None,
    }


@pytest.mark.parametrize("what", unusual_tensors())
def test_what_takes_more_than_a_scan_is_handed_on(observed: Observed, what: str) -> None:
    tensor = unusual_tensors()[what]
    observed.observe(2, tensor, TRACED)
    assert observed.handed_on == [(2, tensor, TRACED)]
    assert observed.seen == []
    assert observed.columns.take([2]).statistics().__next__() is None


@pytest.mark.parametrize("need", [Need.VALUE, Need.ROW | Need.VALUE, Need.ROW | Need.HASH | Need.VALUE])
def test_values_are_handed_on_where_there_are_no_books(observed: Observed, need: Need) -> None:
    tensor = torch.ones(3)
    observed.observe(2, tensor, int(need))
    assert observed.handed_on == [(2, tensor, int(need))]
    assert observed.seen == []


def test_what_may_be_the_same_as_another_is_handed_on(observed: Observed) -> None:
    tensor = torch.ones(3)
    observed.observe(4, tensor, TRACED, 2)
    assert observed.handed_on == [(4, tensor, TRACED, 2)]
    assert observed.seen == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32])
def test_a_finite_tensor_leaves_no_row_and_every_other_one_is_handed_on(observed: Observed, dtype: torch.dtype) -> None:
    finite = torch.ones(300_001).to(dtype)
    observed.observe(1, finite, FINITE)
    assert (observed.seen, observed.handed_on) == ([1], [])
    assert next(observed.columns.take([1]).statistics()) is None
    if dtype.is_floating_point:
        for value in (float("nan"), float("-inf")):
            sick = finite.clone()
            sick[-1] = value
            observed.observe(1, sick, FINITE)
            assert observed.handed_on.pop() == (1, sick, FINITE)
        apart = torch.ones(4, 5).to(dtype).T
        observed.observe(1, apart, FINITE)
        assert observed.handed_on == [(1, apart, FINITE)]


class Kept:
    """Values that an observer keeps, and the same kept by calls alone."""

    def __init__(self, budget: int = 10_000) -> None:
        self.retention = Retention(TorchReader(), budget)
        self.called = Retention(TorchReader(), budget)
        self.observed = Observed(self.retention)

    def show(self, slot_id: int, tensor: torch.Tensor, need: int = BOTH) -> bool:
        """Show a tensor to both; tell whether the observer has kept it without a call."""
        calls = len(self.observed.handed_on)
        self.observed.observe(slot_id, tensor, need)
        is_handed_on = len(self.observed.handed_on) > calls
        if is_handed_on:
            self.retention.keep(slot_id, tensor)
        self.called.keep(slot_id, tensor)
        self.compare()
        return not is_handed_on

    def turn_over(self) -> None:
        for retention in (self.retention, self.called):
            retention.turn_over()
        self.compare()

    def compare(self) -> None:
        assert self.retention.kept_bytes == self.called.kept_bytes
        for slot_id in range(6):
            for one, other in (
                (self.retention.current(slot_id), self.called.current(slot_id)),
                (self.retention.previous(slot_id), self.called.previous(slot_id)),
            ):
                assert (one is None) == (other is None)
                assert one is None or torch.equal(one, other)
            assert self.retention.why_missing(slot_id) == self.called.why_missing(slot_id)


def same_memory(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    return one is not None and one.data_ptr() == other.data_ptr() and torch.equal(one, other)


def test_the_memory_of_a_value_is_kept_until_the_end_of_the_next_step() -> None:
    kept, tensor = Kept(), torch.arange(6.0)
    assert kept.show(1, tensor)
    assert same_memory(kept.retention.current(1), tensor)
    assert kept.retention.kept_bytes == 24 + HOLDING_BYTES
    (row,) = kept.observed.columns.take([1]).statistics()
    assert row == dataclasses.replace(statistics(tensor.numpy()), content_hash=0)
    kept.turn_over()
    assert kept.show(1, tensor)
    assert same_memory(kept.retention.previous(1), tensor)
    kept.turn_over()
    kept.turn_over()
    assert kept.retention.kept_bytes == 0
    assert kept.observed.seen == [1, 1]


def test_what_is_known_copied_or_too_large_is_handed_on() -> None:
    kept, tensor = Kept(budget=1000 + 3 * HOLDING_BYTES), torch.ones(10)
    assert kept.show(0, tensor)
    assert not kept.show(1, tensor)  # it is there
    assert not kept.show(0, torch.zeros(10))  # its slot is taken
    assert not kept.show(2, torch.ones(10_000))
    assert kept.show(3, torch.ones(200))
    assert not kept.show(4, torch.ones(100))  # others give way
    for retention in (kept.retention, kept.called):
        retention.copy_values(5)
    assert not kept.show(5, tensor)


def test_a_tensor_that_counts_no_versions_is_kept() -> None:
    kept = Kept()
    with torch.inference_mode():
        tensor = torch.ones(3)
    assert kept.show(0, tensor, VALUE)
    assert same_memory(kept.retention.current(0), tensor)


@pytest.mark.parametrize("what", ["of another class", "an array", "nothing"])
@pytest.mark.parametrize("need", [VALUE, BOTH, FINITE | VALUE])
def test_what_is_no_plain_tensor_is_not_kept_without_a_call(what: str, need: int) -> None:
    kept, tensor = Kept(), unusual_tensors()[what]
    kept.observed.observe(2, tensor, need)
    assert [slot_id for slot_id, *_ in kept.observed.handed_on] == [2]
    assert kept.retention.kept_bytes == 0
    assert kept.retention.current(2) is None


@given(
    steps=st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=8), min_size=1, max_size=6
    ),
    budget=st.integers(0, 300),
)
def test_observed_values_are_those_that_calls_keep(steps: list[list[tuple[int, int, bool]]], budget: int) -> None:
    kept = Kept(budget)
    tensors = [torch.ones(size) for size in (1, 5, 20, 60)]
    for step in steps:
        for slot_id, number, is_written in step:
            kept.show(slot_id, tensors[number])
            if is_written:
                tensors[number].add_(1)
        kept.turn_over()


def test_books_refuse_what_they_cannot_keep() -> None:
    compiled = native.kernels()
    assert compiled is not None
    with pytest.raises(TypeError, match="three dicts"):
        compiled.Kept([], {}, set(), {}, TorchReader().hold, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a dict"):
        compiled.Kept({}, {}, set(), {}, TorchReader().hold, 1).begin(None)  # type: ignore[arg-type]


def test_slots_beyond_the_rows_are_handed_on(observed: Observed) -> None:
    for slot_id in (-1, 10**7, 2**40):
        observed.observe(slot_id, torch.ones(3), TRACED)
    assert [slot_id for slot_id, *_ in observed.handed_on] == [-1, 10**7, 2**40]


def freed_views() -> list[torch.Tensor]:
    """Return tensors whose memory was given back while they live, as sharded trainings do it."""
    views = []
    for view in (lambda whole: whole, lambda whole: whole[400:], lambda whole: whole.view(20, 50).T[7:]):
        whole = torch.ones(1000)
        views.append(view(whole))
        whole.untyped_storage().resize_(0)
    whole = torch.ones(1000)
    views.append(whole[400:])
    whole.untyped_storage().resize_(900)
    return views


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("kernels", [*native.instruction_sets(), "numpy"])
def test_memory_that_was_given_back_is_not_read(number: int, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSIGHT_KERNELS", kernels)
    observed, reader = Observed(), TorchReader()
    tensor = freed_views()[number]
    assert not is_in_memory(tensor)
    observed.observe(2, tensor, TRACED)
    assert observed.handed_on == [(2, tensor, TRACED)]
    assert not reader.scan(tensor, observed.columns, 2)
    assert not reader.has_non_finite(tensor)
    assert reader.host(tensor) is None


def test_an_exception_of_who_takes_the_others_is_passed_on(observed: Observed) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("not this one")

    observe = observed.columns.observer([], refuse)
    with pytest.raises(ValueError, match="not this one"):
        observe(2, None, TRACED)
    with pytest.raises(TypeError):
        observe(2, torch.ones(3))
    with pytest.raises(TypeError):
        observe("2", torch.ones(3), TRACED)


def test_an_observer_that_is_held_by_what_it_holds_is_freed() -> None:
    kept, tensor = Kept(), torch.ones(3)
    kept.show(0, tensor)
    tensor.retention = kept.retention  # type: ignore[attr-defined]
    gone = [weakref.ref(one) for one in (kept.observed, kept.retention, tensor)]
    del kept, tensor
    gc.collect()
    assert [one() for one in gone] == [None, None, None]


def test_a_tensor_that_is_kept_where_it_has_no_row_gets_one_where_that_is_needed() -> None:
    agent = Agent(AgentSettings(capture="ops"), Framework("torch", torch.__version__), TorchReader())
    nodes = [agent.slot_table.node(f"Default/view-op{number}", "view") for number in range(2000)]
    slot_ids = [agent.slot_table.slot_id(node, 0) for node in nodes]
    agent.observed.columns.current_iteration = 0
    tensor = torch.ones(3)
    for slot_id, need in ((slot_ids[-1], VALUE), (slot_ids[0], BOTH)):
        # As where the memory of a tensor cannot be read in place.
        agent.observed._observe(slot_id, tensor, need)
    row = agent.observed.columns.statistics(slot_ids[0])
    assert row is not None
    assert row.count == 3
    agent.close()
