"""The recording of a run on disk, which survives a restart of the server and can be opened as a dump.

The folder of a run, ``runs/ID`` in the workspace, contains::

    session.json        the processes, their steps, and whether the run was live
    hits.json           the hits of all steps with hits
    sources.json        texts of the user's source files
    statistics.sqlite   statistics, until the run has ended and they are in the dump
    dump/rank_N/…       graphs, values and statistics in MindSpore's layout
    arriving/           incomplete files
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tensight.dumps.recorder import DumpRecorder, RecordedRow
from tensight.sessions.errors import StorageError
from tensight.sessions.hit_list import SessionHit
from tensight.sessions.live.statistics_store import FILE, StatisticsStore
from tensight.sessions.records import Frame, HitRecord
from tensight.sessions.workspace import RUNS, as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tensight.dumps import Device, DumpMetadata
    from tensight.dumps.recorder import RankRecorder
    from tensight.graph import Graph
    from tensight.sessions.records import StatisticsRow
    from tensight.sessions.workspace import Workspace

SESSION = "session.json"
HITS = "hits.json"
SOURCES = "sources.json"
DUMP = "dump"
ARRIVING = "arriving"

_HITS_AT_ONCE = 500

MOST_EXPORTED = 10_000
"""Iterations whose statistics are written into the dump, which has a folder for each."""

_REPORT_EVERY = 50
"""Iterations written between two progress reports."""


class JsonStateFile:
    """A JSON file that is written again whenever its content changes, with a single write at a time.

    Parameters
    ----------
    workspace : Workspace
    relative : str
        The file's path in the workspace.
    content : callable
        Returns the content; called in the event loop.
    encode : callable
        Encodes the content as JSON; called in a thread.
    failed : callable
        Called when a write has failed.
    """

    def __init__(
        self,
        workspace: Workspace,
        relative: str,
        content: Callable[[], Any],
        failed: Callable[[StorageError], None],
        encode: Callable[[Any], bytes] = as_json,
    ) -> None:
        self._workspace = workspace
        self._relative = relative
        self._content = content
        self._failed = failed
        self._encode = encode
        self._is_dirty = False
        self._writing: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Schedule a write of the file, and return immediately."""
        self._is_dirty = True
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def written(self) -> None:
        """Wait until the file is up to date."""
        while self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        try:
            while self._is_dirty:
                self._is_dirty = False
                await asyncio.to_thread(self._write_now, self._content())
        except StorageError as error:
            self._failed(error)
        finally:
            self._writing = None

    def _write_now(self, content: Any) -> None:
        self._workspace.write(self._relative, self._encode(content))


class HitsEncoder:
    """Encodes the content of ``hits.json``; caches the encoded steps, since usually only one step is new."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[tuple[SessionHit, ...], bytes]] = {}

    def __call__(self, steps: Mapping[int, tuple[SessionHit, ...]]) -> bytes:
        """Return the content for these hits, by step."""
        made = {step: self._encoded(step, hits) for step, hits in sorted(steps.items())}
        self._made = made
        return b'{"format":1,"steps":[%s]}' % b",".join(content for _, content in made.values())

    def _encoded(self, step: int, hits: tuple[SessionHit, ...]) -> tuple[tuple[SessionHit, ...], bytes]:
        cached = self._made.get(step)
        if cached is not None and cached[0] is hits:
            return cached
        # In parts: encoding a list as JSON holds the interpreter's lock.
        parts = (hits[first : first + _HITS_AT_ONCE] for first in range(0, len(hits), _HITS_AT_ONCE))
        listed = b",".join(as_json([_hit_as_json(hit) for hit in part])[1:-1] for part in parts)
        return hits, b'{"step":%d,"hits":[%s]}' % (step, listed)


def _hit_as_json(hit: SessionHit) -> dict[str, Any]:
    return {
        "rank": hit.rank,
        "graph": hit.graph,
        "node": hit.node,
        "slot": hit.slot,
        "io": hit.io,
        "iteration": hit.iteration,
        "position": hit.position,
        "type": hit.type,
        "line": None if hit.line is None else hit.line.model_dump(mode="json"),
        "hit": hit.hit.model_dump(mode="json"),
    }


def hits_from_json(data: Any) -> dict[int, tuple[SessionHit, ...]]:
    """Read the hits of a run, by step, from the content of ``hits.json``.

    Raises
    ------
    StorageError
        The content is invalid.
    """
    try:
        return {int(entry["step"]): tuple(map(_hit_from_json, entry["hits"])) for entry in data["steps"]}
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise StorageError(f"{HITS} does not hold the hits of a run ({error}); they are not shown") from None


def _hit_from_json(entry: Any) -> SessionHit:
    return SessionHit(
        rank=int(entry["rank"]),
        graph=str(entry["graph"]),
        node=str(entry["node"]),
        slot=int(entry["slot"]),
        iteration=int(entry["iteration"]),
        hit=HitRecord.model_validate(entry["hit"]),
        io="input" if entry["io"] == "input" else "output",
        position=None if entry["position"] is None else int(entry["position"]),
        type=str(entry["type"]),
        line=None if entry["line"] is None else Frame.model_validate(entry["line"]),
    )


@contextmanager
def storing(where: Path) -> Iterator[None]:
    """Convert an OSError into a StorageError that names the folder."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"{where}: cannot be written: {reason}; free space, or choose another --workspace"
        ) from error


class Recording:
    """The folder of a run.

    Parameters
    ----------
    workspace : Workspace
    session_id : str
    about : DumpMetadata
        Framework, device, and whether the process has Tensight's agent.
    most_rows : int
        Maximum number of rows of statistics.

    Raises
    ------
    StorageError
        The folder cannot be created or written.
    """

    def __init__(self, workspace: Workspace, session_id: str, about: DumpMetadata, *, most_rows: int) -> None:
        self.folder = workspace.run_folder(session_id)
        self.name = f"{RUNS}/{session_id}"
        with storing(self.folder):
            self.dump = DumpRecorder(
                self.folder / DUMP,
                self.folder / ARRIVING,
                framework=about.framework,
                framework_version=about.framework_version,
                device_target=about.device_target,
                by_agent=about.by_agent,
            )
        self.statistics = StatisticsStore(self.folder / FILE, most_rows)

    def rank(self, rank: int, device: Device) -> RankRecorder:
        """Return the recorder of a rank; StorageError if its folder cannot be written."""
        with storing(self.folder):
            return self.dump.rank(rank, device)

    def export_statistics(
        self,
        graphs: Mapping[int, tuple[Graph, ...]],
        *,
        first: int = 0,
        report: Callable[[int, int], None] | None = None,
    ) -> bool:
        """Write the statistics of the newest iterations, at most `MOST_EXPORTED`, into the dump.

        Parameters
        ----------
        graphs : mapping of int to tuple of Graph
            Graphs of each rank.
        first : int
            The first iteration to write. A dump cannot store values from before iteration 0.
        report : callable
            Called with the number of written iterations and the total.

        Returns
        -------
        bool
            Whether there was anything to write.
        """
        roots = {(rank, graph.name): graph.root_id for rank, rank_graphs in graphs.items() for graph in rank_graphs}
        iterations = [iteration for iteration in self.statistics.iterations() if iteration >= first][-MOST_EXPORTED:]
        with storing(self.folder):
            for done, iteration in enumerate(iterations):
                if report is not None and done % _REPORT_EVERY == 0:
                    report(done, len(iterations))
                rows = list(self.statistics.of_iteration(iteration))
                rows.sort(key=lambda row: (row.rank, roots.get((row.rank, row.graph), 0)))
                for (rank, root), group in groupby(rows, lambda row: (row.rank, roots.get((row.rank, row.graph), 0))):
                    if rank in graphs:
                        self.dump.rank(rank).record_statistics(root, iteration, map(recorded_row, group))
        return bool(iterations)

    def close(self) -> None:
        """Close the files."""
        self.statistics.close()

    def delete(self) -> None:
        """Delete the folder, ignoring errors."""
        shutil.rmtree(self.folder, ignore_errors=True)


def recorded_row(row: StatisticsRow) -> RecordedRow:
    """Convert a row of statistics to a row of a dump."""
    numbers = row.statistics
    counts = {
        name: None if name in numbers.unknown else getattr(numbers, name)
        for name in (
            "count", "negative_count", "positive_count", "nan_count", "neg_inf_count", "pos_inf_count", "zero_count",
        )
    }  # fmt: skip
    return RecordedRow(
        op_type=row.type or "Parameter",
        op_name=row.node,
        io=row.io,
        slot=row.slot,
        dtype=numbers.dtype,
        shape=numbers.shape,
        size_bytes=numbers.size_bytes,
        max=numbers.max,
        min=numbers.min,
        mean=numbers.mean,
        l2_norm=numbers.l2_norm,
        abs_mean=numbers.abs_mean,
        std=numbers.std,
        **counts,
    )
