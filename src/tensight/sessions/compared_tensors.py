"""Values of two compared runs: views and statistics of their tensors and of the differences."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tensight.compare.runs.measures import in_layout
from tensight.compare.runs.steps import NO_ROW
from tensight.errors import InputError
from tensight.sessions.comparison_records import difference_record
from tensight.sessions.errors import NotFoundError, UnavailableError
from tensight.sessions.offline.index import TensorIndex, address_of
from tensight.sessions.offline.statistics import computed_statistics, statistics_record
from tensight.sessions.records import ComparedStatistics, Statistics
from tensight.tensors.views import View, ViewResult, compute_view

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tensight.analysis import Analysis
    from tensight.compare.runs import RunComparison, TensorDifference
    from tensight.graph import TensorAddress
    from tensight.sessions.offline.value_memory import ValueMemory

WhichRun = Literal["a", "b", "difference"]

_DOUBLE_BYTES = 16
"""Bytes that an element takes in both tensors in double precision."""


@dataclass(frozen=True, slots=True)
class ComparedView:
    """A view of a tensor of a comparison.

    Attributes
    ----------
    result : ViewResult
    layout : str
        How the axes of B were ordered to fit A; empty if that was not needed.
    """

    result: ViewResult
    layout: str


@dataclass(frozen=True, slots=True)
class _Pair:
    """Rows of two tensors, and their difference if they were compared."""

    rows: tuple[int, int]
    difference: TensorDifference | None

    @property
    def layout(self) -> str:
        return "" if self.difference is None else self.difference.layout


class ComparedTensors:
    """Reads tensors of two runs that were compared.

    Parameters
    ----------
    sides : tuple of (Analysis, Analysis)
        A and B, with all statistics computed.
    results : sequence of RunComparison
    memory : ValueMemory
    owner : str
        Owner of the values in `memory`.
    """

    def __init__(
        self, sides: tuple[Analysis, Analysis], results: Sequence[RunComparison], memory: ValueMemory, owner: str
    ) -> None:
        self._tables = tuple(side.statistics_table for side in sides)
        self._indices = tuple(TensorIndex(side.dump, side.statistics_table) for side in sides)
        self._memory, self._owner = memory, owner
        self._differences = {
            difference.rows[0]: difference for difference in _differences(results) if difference.rows[0] != NO_ROW
        }

    def view(self, a: TensorAddress, b: TensorAddress | None, view: View, which: WhichRun) -> ComparedView:
        """Return a slice, picture or distribution of a tensor of A, of its counterpart in B, or of B minus A.

        Parameters
        ----------
        a : TensorAddress
        b : TensorAddress or None
            By default the tensor that `a` was compared with.
        view : View
        which : {"a", "b", "difference"}

        Raises
        ------
        NotFoundError
            There is no such tensor, or it was not compared with a tensor of B.
        UnavailableError
            Only its statistics were recorded.
        InputError
            The shapes differ, so there is no difference.
        """
        pair = self._pair(a, b)
        values_a = None if which == "b" else self._values(0, pair.rows[0])
        values_b = None if which == "a" else self._in_layout_of_a(pair)
        if values_a is None:
            return ComparedView(compute_view(view, "current", values_b), pair.layout)
        if values_b is None:
            return ComparedView(compute_view(view, "current", values_a), pair.layout)
        with self._of_one_type(values_a, values_b) as (current, previous):
            return ComparedView(compute_view(view, "difference", previous, current), pair.layout)

    def statistics(self, a: TensorAddress, b: TensorAddress | None, slice_: str) -> ComparedStatistics:
        """Return the statistics of two tensors and of their difference; without values, the recorded statistics."""
        pair = self._pair(a, b)
        measures = None if pair.difference is None else difference_record(pair.difference)
        address_b = str(address_of(self._tables[1].files[pair.rows[1]]))
        if not slice_.strip() and not all(map(self._has_values, (0, 1), pair.rows)):
            statistics_a, statistics_b = (
                statistics_record(*entry) for entry in zip(self._tables, pair.rows, strict=True)
            )
            if statistics_a is None or statistics_b is None:
                raise UnavailableError(f"there are no statistics of {a if statistics_a is None else address_b}")
            return ComparedStatistics(
                address=str(a),
                address_b=address_b,
                layout=pair.layout,
                a=statistics_a,
                b=statistics_b,
                measures=measures,
            )
        view = View("statistics", slice_)
        return ComparedStatistics(
            address=str(a),
            address_b=address_b,
            layout=pair.layout,
            a=_statistics(self.view(a, b, view, "a")),
            b=_statistics(self.view(a, b, view, "b")),
            difference=_statistics(self.view(a, b, view, "difference")),
            measures=measures,
        )

    def _pair(self, a: TensorAddress, b: TensorAddress | None) -> _Pair:
        row_a = self._row(0, a)
        difference = self._differences.get(row_a)
        if b is None:
            if difference is None:
                raise NotFoundError(f"{a} was not compared with a tensor of B; name one")
            return _Pair(difference.rows, difference)
        row_b = self._row(1, b)
        return _Pair((row_a, row_b), difference if difference is not None and difference.rows[1] == row_b else None)

    def _row(self, side: int, address: TensorAddress) -> int:
        row = self._indices[side].row(address)
        if row is None:
            raise NotFoundError(f"{address} was not recorded in {'AB'[side]}")
        return row

    def _has_values(self, side: int, row: int) -> bool:
        return self._tables[side].files[row].recorded is None

    def _values(self, side: int, row: int) -> NDArray[Any]:
        file = self._tables[side].files[row]
        if file.recorded is not None:
            raise UnavailableError(
                f"{address_of(file)} has no values: only statistics were recorded in {'AB'[side]}",
                code="statistics-only",
            )
        return self._memory.read(self._owner, file)

    def _in_layout_of_a(self, pair: _Pair) -> NDArray[Any]:
        values = self._values(1, pair.rows[1])
        shape = self._tables[0].shapes[pair.rows[0]]
        if values.shape == shape and not pair.layout:
            return values
        if pair.difference is None or not pair.difference.is_comparable:
            return values
        return in_layout(values, shape, pair.layout)

    @contextmanager
    def _of_one_type(self, a: NDArray[Any], b: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield two arrays with a common element type; memory for conversions is reserved in this context."""
        if a.shape != b.shape:
            raise InputError(f"the shapes differ, {a.shape} in A and {b.shape} in B: there is no difference to show")
        if a.dtype == b.dtype:
            yield a, b
            return
        size_bytes = _DOUBLE_BYTES * a.size
        self._memory.hold(size_bytes, "the difference of tensors of two element types")
        try:
            dtype = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
            yield a.astype(dtype), b.astype(dtype)
        finally:
            self._memory.release(size_bytes)


def _differences(results: Sequence[RunComparison]) -> Iterator[TensorDifference]:
    """Yield all differences of a comparison; outputs last, which take precedence if a row is also an input."""
    for result in results:
        for tensor in (*result.weights, *result.data, *result.tensors):
            if tensor.difference is not None:
                yield tensor.difference
        for step in result.steps:
            yield from (difference for compared in step.compared for _, difference in compared.inputs)
            yield from (difference for compared in step.compared for _, difference in compared.outputs)


def _statistics(view: ComparedView) -> Statistics:
    statistics = view.result.statistics
    if statistics is None:
        raise UnavailableError("no statistics were computed")
    return computed_statistics(statistics)
