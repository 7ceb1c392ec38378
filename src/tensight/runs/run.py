"""A run of any number of ranks: computes queries on each rank by an engine, and keeps the results for the next time."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from tensight.cache import cache_for
from tensight.dumps import open_dump
from tensight.errors import DumpError, Problem
from tensight.runs.engines import Here, LostTaskError, engine_named
from tensight.runs.rank import RankResults, RankTask, compute
from tensight.runs.stored import StoredResults, file_name, load, writing
from tensight.tensors.cores import available_cores

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from tensight.dumps import Dump
    from tensight.runs.programs import Programs
    from tensight.runs.rank import Query


class Run:
    """A dump, recording or trace of any number of ranks.

    Parameters
    ----------
    path : str or path-like
        Folder or URL.
    cache_dir : path, optional
        Folder of caches; by default ``TENSIGHT_CACHE_DIR`` or the platform's user cache.
    threads : int, optional
        Threads that read the tensors of a rank; by default as many as there are cores.
    engine : str, optional
        Name of the engine, see `engine_named`; by default threads for a few ranks, and processes for many.

    Attributes
    ----------
    progress : callable or None
        Called with ``"ranks"`` or ``"bytes"``, how many are done, and how many there are.

    Raises
    ------
    DumpError
        There is no dump, or one that cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        engine: str | None = None,
    ) -> None:
        self.dump: Dump = open_dump(path)
        self.path = self.dump.path
        self.ranks = self.dump.ranks
        self.progress: Callable[[str, int, int], None] | None = None
        self._cache_dir = cache_dir
        self._cache = cache_for(self.path, cache_dir)
        self._threads = threads
        self._engine = engine
        self._id = uuid.uuid4().hex
        self._problems: list[Problem] = []

    def problems_with(self, about: Iterable[Mapping[str, Any]]) -> list[Problem]:
        """Return the problems of ranks, each once, and the ranks that could not be read.

        Parameters
        ----------
        about : iterable of mapping
            What is known of each rank.
        """
        problems = (Problem(**problem) for each in about for problem in each["problems"])
        return list(dict.fromkeys((*problems, *self._problems)))

    def ranks_with(self, programs: Programs, graph: str, node: str | None) -> tuple[int, ...]:
        """Return the ranks of which the program has a node; all if the node is None.

        Parameters
        ----------
        programs : Programs
            The ranks by their program.
        graph : str
        node : str or None
        """
        if node is None or len(programs) == 1:
            return tuple(sorted(rank for ranks in programs for rank in ranks))
        return tuple(sorted(rank for ranks in programs if self._has_node(ranks[0], graph, node) for rank in ranks))

    def _has_node(self, rank: int, graph: str, node: str) -> bool:
        return any(each.name == graph and each.get(node) is not None for each in self.dump.graphs(rank))

    def query(self, *queries: Query, ranks: Collection[int] | None = None) -> list[StoredResults]:
        """Compute queries on ranks, all at once; the stored results of ranks whose files have not changed are used.

        Parameters
        ----------
        *queries : Query
            The queries.
        ranks : collection of int, optional
            The ranks; all by default.

        Returns
        -------
        list of StoredResults
            For each query, the results of the ranks that could be read.

        Raises
        ------
        DumpError
            No rank can be read.
        """
        requested = self.ranks if ranks is None else tuple(sorted(set(ranks)))
        stored = [load(self._cache, query) for query in queries]
        outdated = self._outdated(requested, stored)
        if outdated:
            stored = self._computed(queries, outdated, stored)
        others = [set(results.fingerprints).difference(requested) for results in stored]
        return [results.without(other) for results, other in zip(stored, others, strict=True)]

    def _outdated(self, requested: Sequence[int], stored: Sequence[StoredResults]) -> list[int]:
        """Return the ranks of which a result is missing, or whose files have changed."""
        stored_fingerprints = {rank: {results.fingerprints.get(rank) for results in stored} for rank in requested}
        candidates = [rank for rank in requested if None not in stored_fingerprints[rank]]
        with ThreadPoolExecutor(available_cores()) as threads:
            fingerprints = dict(zip(candidates, threads.map(self._fingerprint, candidates), strict=True))
        return [rank for rank in requested if stored_fingerprints[rank] != {fingerprints.get(rank, "")}]

    def _fingerprint(self, rank: int) -> str | None:
        try:
            return self.dump.of_rank(rank).fingerprint(every_file=True)
        except DumpError:
            return None

    def _computed(
        self, queries: Sequence[Query], ranks: Sequence[int], stored: Sequence[StoredResults]
    ) -> list[StoredResults]:
        """Compute queries on ranks, and store the results beside those of the others."""
        cache_dir = None if self._cache_dir is None else str(self._cache_dir)
        tasks = [RankTask(self._id, self.path, rank, tuple(queries), cache_dir, self._threads) for rank in ranks]
        gone = {rank for results in stored for rank in results.fingerprints if rank not in self.ranks}
        paths = []
        with ExitStack() as files:
            writers = []
            for query, results in zip(queries, stored, strict=True):
                valid = results.without({*ranks, *gone})
                writer, path = files.enter_context(writing(self._cache, file_name(query), valid))
                writers.append(writer)
                paths.append(path)
            errors = []
            for result in self._results(tasks):
                if result.error:
                    errors.append(Problem(f"rank {result.rank}", result.error))
                for writer, rank_result in zip(writers, result.results, strict=False):
                    writer.add(result.rank, result.fingerprint, rank_result)
            if len(errors) == len(self.ranks):
                raise DumpError(errors[0].what)
            self._problems.extend(errors)
        return [writer.results(path) for writer, path in zip(writers, paths, strict=True)]

    def _results(self, tasks: Sequence[RankTask]) -> Iterator[RankResults]:
        engine = engine_named(self._engine, len(tasks))
        work = compute
        if isinstance(engine, Here) and len(tasks) == 1:
            work = partial(compute, progress=self._bytes_read)
        for done, (task, result) in enumerate(engine.map(work, tasks), 1):
            if len(tasks) > 1 and self.progress is not None:
                self.progress("ranks", done, len(tasks))
            if isinstance(result, LostTaskError):
                yield RankResults(task.rank, "", (), str(result))
            else:
                yield result

    def _bytes_read(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress("bytes", done, total)
