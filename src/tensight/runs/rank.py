"""The unit of work: one rank of a run, and the queries that are computed on it.

A task and its results are plain data without handles, so that they can be computed anywhere the run's folder can be
read: in this process, in another one, or on another machine.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from tensight.errors import DumpError

if TYPE_CHECKING:
    import pyarrow as pa

    from tensight.analysis import Analysis, Progress
    from tensight.dumps import Dump


@dataclass(frozen=True, slots=True)
class PartialResult:
    """The result of a query on one rank.

    Attributes
    ----------
    about : dict
        What can be written as JSON: numbers, problems, origins.
    rows : pyarrow.Table
        Rows, such as hits; the columns are those of the query.
    """

    about: dict[str, Any]
    rows: pa.Table


class Query(Protocol):
    """Something that is computed on each rank of a run; it can be pickled."""

    @property
    def key(self) -> str:
        """Everything on which a result depends besides the rank; equal keys have equal results."""

    def compute(self, analysis: Analysis) -> PartialResult:
        """Return the result of a rank.

        Parameters
        ----------
        analysis : Analysis
            The rank's part of the dump.
        """
        ...


@dataclass(frozen=True, slots=True)
class RankTask:
    """Queries on one rank.

    Attributes
    ----------
    run : str
        Identifies the driver's run, so that a worker opens the folder once for each.
    path : str
        Folder or URL of the dump.
    rank : int
    queries : tuple of Query
    cache_dir : str or None
        Folder of caches; None for the default one of the machine.
    threads : int or None
        Threads that read tensors; None for all cores.
    """

    run: str
    path: str
    rank: int
    queries: tuple[Query, ...]
    cache_dir: str | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class RankResults:
    """The results of one rank.

    Attributes
    ----------
    rank : int
    fingerprint : str
        Of the rank's files before they were read.
    results : tuple of PartialResult
        One for each query; empty if nothing of the rank can be read.
    error : str
        Why nothing of the rank can be read; empty if it can.
    """

    rank: int
    fingerprint: str
    results: tuple[PartialResult, ...]
    error: str = ""


def compute(task: RankTask, progress: Progress | None = None) -> RankResults:
    """Return the results of a rank.

    Parameters
    ----------
    task : RankTask
    progress : callable, optional
        Called while tensors are read, with the number of bytes visited so far and the total number.
    """
    from tensight.analysis import Analysis, store

    try:
        part = opened_rank(task.run, task.path, task.rank)
        fingerprint = part.fingerprint(every_file=True)
    except DumpError as error:
        return RankResults(task.rank, "", (), str(error))
    analysis = Analysis(part, cache_dir=task.cache_dir, threads=task.threads, progress=progress, is_part=True)
    try:
        results = tuple(query.compute(analysis) for query in task.queries)
    finally:
        store.finish_writing()
    return RankResults(task.rank, fingerprint, results)


_programs: deque[object] = deque(maxlen=8)
"""The programs of the last ranks, which those of the next ones probably are."""


def opened_rank(run: str, path: str, rank: int) -> Dump:
    """Return the dump of one rank; the folder of the run is listed once.

    Parameters
    ----------
    run : str
        Identifies the driver's run.
    path : str
        Folder or URL of the dump.
    rank : int

    Raises
    ------
    DumpError
        Nothing of the rank can be read.
    """
    part = _dump(run, path).of_rank(rank)
    _programs.append(part.program(rank))
    return part


@lru_cache(maxsize=2)
def _dump(run: str, path: str) -> Dump:  # noqa: ARG001 - another run may see other files
    from tensight.dumps import open_dump

    return open_dump(path)
