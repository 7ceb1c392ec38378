"""The hits of all ranks in columns: which count, which belong to one tensor, and each of them in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from tensight.runs.stored import StoredResults

_OF_TENSOR = ("watchpoint", "graph", "node", "op_name", "io", "slot")
_NUMBERS = ("watchpoint", "rank", "row", "slot", "step", "content_hash")
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class TensorHits:
    """The hits of a watchpoint on one tensor, in all steps and on all ranks.

    Attributes
    ----------
    first : dict
        The columns of the first hit: of the first step, the lowest rank.
    steps : tuple of int
        In increasing order.
    ranks : tuple of int
        The ranks that have a hit, in increasing order. Of a check that compares ranks, those whose values are not those
        of most ranks.
    """

    first: Mapping[str, Any]
    steps: tuple[int, ...]
    ranks: tuple[int, ...]


class Hits:
    """The stored hits of some ranks.

    Parameters
    ----------
    results : StoredResults
        Rows of `checking.HITS`.
    persistences : mapping of int to int
        The persistence in steps of each watchpoint that compares ranks; all tensors that it compares have rows.
    """

    def __init__(self, results: StoredResults, persistences: Mapping[int, int]) -> None:
        self._path = results.path
        columns = self._columns(results.fingerprints)
        self._watchpoint, self._rank, self._row = columns["watchpoint"], columns["rank"], columns["row"]
        self._step = columns["step"]
        self._tensor = np.zeros(len(self._rank), np.int64)
        for name in _OF_TENSOR:
            self._tensor = _combined(self._tensor, columns[name])
        self._counts = np.isin(self._rank, sorted(results.fingerprints))
        self._deviates = np.ones(len(self._rank), np.bool_)
        for number, persistence in persistences.items():
            rows = np.flatnonzero(self._counts & (self._watchpoint == number))
            self._compare_ranks(rows, columns["content_hash"], persistence)

    def _columns(self, ranks: Collection[int]) -> dict[str, NDArray[np.int64]]:
        """Return the columns that tell hits apart as numbers; the file has none if no rank could be read."""
        names = list(dict.fromkeys((*_NUMBERS, *_OF_TENSOR)))
        if not ranks:
            return {name: np.zeros(0, np.int64) for name in names}
        with pq.ParquetFile(self._path) as stored:
            table = stored.read(names, use_threads=False).unify_dictionaries()
        numbers = {}
        for name in names:
            column: Any = table[name].combine_chunks()
            codes = column.indices if pa.types.is_dictionary(column.type) else column
            if name == "content_hash":
                codes = codes.view(pa.int64())
            numbers[name] = codes.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers

    def _compare_ranks(self, rows: NDArray[np.int64], hashes: NDArray[np.int64], persistence: int) -> None:
        """Keep the rows of a watchpoint whose tensors have differed between ranks for some steps in a row."""
        same = _combined(self._tensor[rows], self._step[rows])
        equal = _combined(same, hashes[rows])
        in_same, in_equal = np.bincount(same)[same], np.bincount(equal)[equal]
        differs = in_equal < in_same
        order = np.lexsort((self._step[rows], self._rank[rows], self._tensor[rows]))
        of_rank = _combined(self._tensor[rows], self._rank[rows])[order]
        # A streak ends with a step in which the tensor does not differ, and with the tensor of a rank.
        is_end = ~differs[order]
        begins = np.r_[True, of_rank[1:] != of_rank[:-1]] if len(rows) else np.zeros(0, np.bool_)
        positions = np.arange(len(rows))
        last_end = np.maximum.accumulate(np.where(is_end, positions, np.where(begins, positions - 1, -1)))
        persists = np.zeros(len(rows), np.bool_)
        persists[order] = positions - last_end >= persistence
        self._counts[rows] = differs & persists
        self._deviates[rows] = 2 * in_equal <= in_same

    def amounts(self, watchpoint: int) -> tuple[int, int]:
        """Return the number of hits of a watchpoint, and of tensors, of which equal ones on several ranks count once.

        Parameters
        ----------
        watchpoint : int
            Its number in the query, from 0.
        """
        rows = self._rows_of(watchpoint)
        return len(rows), len(np.unique(self._tensor[rows]))

    def tensors(self, watchpoint: int, limit: int) -> list[TensorHits]:
        """Return the first tensors that a watchpoint hit, by their first step, in the order of execution.

        Parameters
        ----------
        watchpoint : int
            Its number in the query, from 0.
        limit : int
            Maximum number of tensors.
        """
        rows = self._rows_of(watchpoint)
        rows = rows[np.lexsort((self._row[rows], self._rank[rows], self._step[rows]))]
        numbers, firsts = np.unique(self._tensor[rows], return_index=True)
        chosen = np.argsort(firsts)[:limit]
        first_hits = self._read(rows[firsts[chosen]])
        tensors = []
        for number, first in zip(numbers[chosen].tolist(), first_hits, strict=True):
            of_tensor = rows[self._tensor[rows] == number]
            steps = np.unique(self._step[of_tensor]).tolist()
            deviating = of_tensor[self._deviates[of_tensor]]
            ranks = np.unique(self._rank[deviating if len(deviating) else of_tensor]).tolist()
            tensors.append(TensorHits(first, tuple(steps), tuple(ranks)))
        return tensors

    def of(self, watchpoint: int) -> Iterator[dict[str, Any]]:
        """Yield the hits of a watchpoint, by rank, in the order of execution.

        Parameters
        ----------
        watchpoint : int
            Its number in the query, from 0.
        """
        rows = self._rows_of(watchpoint)
        rows = rows[np.lexsort((self._row[rows], self._rank[rows]))]
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            yield from self._read(rows[start : start + _ROWS_AT_ONCE])

    def _rows_of(self, watchpoint: int) -> NDArray[np.int64]:
        return np.flatnonzero(self._counts & (self._watchpoint == watchpoint))

    def _read(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Return rows of the file with all columns."""
        if not len(rows):
            return []
        parts: list[pa.Table] = []
        with pq.ParquetFile(self._path) as stored:
            sizes = [stored.metadata.row_group(group).num_rows for group in range(stored.num_row_groups)]
            starts = np.cumsum([0, *sizes])
            groups = np.searchsorted(starts, rows, side="right") - 1
            order = np.argsort(groups, kind="stable")
            for group in np.unique(groups).tolist():
                here = rows[order][groups[order] == group] - starts[group]
                parts.append(stored.read_row_group(group, use_threads=False).take(here))
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        every: list[dict[str, Any]] = pa.concat_tables(parts).take(back).to_pylist()
        return every


def _combined(codes: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number for each pair of numbers, from 0; equal pairs have equal ones."""
    _, others = np.unique(others, return_inverse=True)
    _, pairs = np.unique(codes * (others.max(initial=0) + 1) + others, return_inverse=True)
    return pairs
