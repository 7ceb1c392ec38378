"""What a live session kept of a run besides the dump: its name, the hits of its steps, source texts."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tensight.dumps import open_dump
from tensight.sessions.errors import StorageError
from tensight.sessions.live.overview import reported_scalars
from tensight.sessions.live.recording import HITS, SESSION, SOURCES, Recording, hits_from_json
from tensight.sessions.live.statistics_store import FILE, StatisticsStore
from tensight.sessions.workspace import RUNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tensight.dumps import Dump
    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.workspace import Workspace


class RecordedRun:
    """The folder of a run in the workspace; missing or damaged files are treated as empty.

    Parameters
    ----------
    workspace : Workspace
    number : str
        Id of the session that recorded it.
    is_left : bool
        Whether the session that recorded it no longer exists, so that nothing else writes to the folder.

    Attributes
    ----------
    name : str
        Name of the job; the name of the run if unknown.
    framework : str
        Empty if unknown.
    network : str or None
        Fingerprint of the trained network; see `WatchpointList`. None if unknown.
    folder : Path
        Its folder.
    problems : list of str
        Problems with files that could not be used.
    """

    def __init__(self, workspace: Workspace, number: str, *, is_left: bool = False) -> None:
        self._workspace = workspace
        self._number = number
        self._folder = f"{RUNS}/{number}"
        self.folder = workspace.folder / self._folder
        self.problems: list[str] = []
        about = self._read(SESSION)
        identity = about.get("identity")
        framework = identity.get("framework") if isinstance(identity, dict) else None
        # A server that ended while the training was attached did not write the statistics into the dump.
        self._is_unfinished = is_left and about.get("is_live") is True
        name = about.get("name")
        self.name = name if isinstance(name, str) and name else self._folder
        self.framework = framework if isinstance(framework, str) else ""
        network = about.get("network")
        self.network = network if isinstance(network, str) and network else None

    def complete(self, dump: Dump, report: Callable[[str, int, int], None]) -> Dump:
        """Return the dump of the run, adding statistics that its server did not write into it before it ended.

        Parameters
        ----------
        dump : Dump
            Dump in the run's folder.
        report : callable
            Called with a description of the work, the amount done, and the total.
        """
        statistics = self._workspace.folder / self._folder / FILE
        if not self._is_unfinished or not statistics.is_file():
            return dump
        try:
            is_changed = self._export(dump, report)
        except StorageError as error:
            self.problems.append(str(error))
            return dump
        return open_dump(dump.path) if is_changed else dump

    def _export(self, dump: Dump, report: Callable[[str, int, int], None]) -> bool:
        recording = Recording(
            self._workspace,
            self._number,
            dump.metadata,
            most_rows=sys.maxsize,
        )
        with closing(recording):
            for device in dump.devices():
                recording.rank(device.rank, device)
            return recording.export_statistics(
                {rank: dump.graphs(rank) for rank in dump.ranks},
                # The newest step may have been written in part.
                first=max(recording.dump.last_with_statistics(), 0),
                report=lambda done, total: report("writing down the statistics", done, total),
            )

    def hits(self) -> Mapping[int, tuple[SessionHit, ...]]:
        """Return the hits of the run by step."""
        data = self._read(HITS)
        if not data:
            return {}
        try:
            return hits_from_json(data)
        except StorageError as error:
            self.problems.append(str(error))
            return {}

    def scalars(self, ranks: Iterable[int]) -> dict[int, dict[tuple[str, int], list[tuple[int, float]]]]:
        """Return for each rank the values that its training reported; see `reported_scalars`."""
        path = self._workspace.folder / self._folder / FILE
        if not path.is_file():
            return {}
        try:
            with closing(StatisticsStore(path, sys.maxsize)) as store:
                return {rank: reported_scalars(store, rank) for rank in ranks}
        except StorageError as error:
            self.problems.append(str(error))
            return {}

    def texts(self) -> Mapping[str, str]:
        """Return the texts of source files by path."""
        data = self._read(SOURCES)
        return {file: text for file, text in data.items() if isinstance(text, str)}

    def _read(self, name: str) -> dict[str, Any]:
        try:
            data = self._workspace.read_json(f"{self._folder}/{name}")
        except StorageError as error:
            self.problems.append(str(error))
            return {}
        return data if isinstance(data, dict) else {}
