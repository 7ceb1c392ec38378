"""Tensors of which only a row is wanted are read by the extension alone; every other one is handed on."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tensight.agents.columns import StatisticsColumns
from tensight.agents.places import Need
from tensight.agents.torch.arrays import READ_WHERE_THEY_LIE, TorchReader, is_in_memory
from tensight.tensors import native, statistics

if TYPE_CHECKING:
    from collections.abc import Callable

ROW, TRACED = int(Need.ROW), int(Need.ROW | Need.HASH)


class Observed:
    """Columns with what observes tensors, and what that has handed on."""

    def __init__(self) -> None:
        self.columns = StatisticsColumns()
        self.columns.read_where_they_lie(*READ_WHERE_THEY_LIE)
        self.seen: list[int] = []
        self.handed_on: list[tuple[Any, ...]] = []
        self.observe: Callable[..., None] = self.columns.observer(self.seen, self.take)

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


@pytest.mark.parametrize("need", [Need.VALUE, Need.ROW | Need.VALUE, Need.FINITE, Need.ROW | Need.HASH | Need.VALUE])
def test_where_more_is_wanted_than_a_row_it_is_handed_on(observed: Observed, need: Need) -> None:
    tensor = torch.ones(3)
    observed.observe(2, tensor, int(need))
    observed.observe(4, tensor, TRACED, 2)
    assert observed.handed_on == [(2, tensor, int(need)), (4, tensor, TRACED, 2)]
    assert observed.seen == []


def test_places_beyond_the_rows_are_handed_on(observed: Observed) -> None:
    for place in (-1, 10**7, 2**40):
        observed.observe(place, torch.ones(3), TRACED)
    assert [place for place, *_ in observed.handed_on] == [-1, 10**7, 2**40]


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
    observed = Observed()
    gone = weakref.ref(observed)
    del observed
    gc.collect()
    assert gone() is None
