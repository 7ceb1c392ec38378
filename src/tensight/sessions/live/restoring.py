"""Restoring live sessions from their recordings after a restart of the server."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensight.dumps import open_dump, tensor_header
from tensight.errors import DumpError, TensightError
from tensight.sessions.errors import StorageError
from tensight.sessions.hit_history import HitHistory
from tensight.sessions.live.identity import Identity
from tensight.sessions.live.process import TrainingProcess
from tensight.sessions.live.progress import Progress
from tensight.sessions.live.recording import HITS, SESSION, SOURCES, Recording, hits_from_json
from tensight.sessions.live.reported_tensors import TensorKey
from tensight.sessions.live.session import LiveSession
from tensight.sessions.live.settings import Caller
from tensight.sessions.live.values import KeptValue
from tensight.sessions.records import State
from tensight.sessions.workspace import RUNS

if TYPE_CHECKING:
    from tensight.sessions.live.settings import LiveSettings
    from tensight.sessions.live.values import ValueWriters
    from tensight.sessions.workspace import Workspace

MOST_RUNS = 1000
"""Recorded runs that are searched, the newest first."""

_RESTARTED = "the debug server was restarted; the process has not come back yet"


@dataclass(frozen=True, slots=True)
class _RecordedProcess:
    """A process in ``session.json``."""

    identity: Identity
    address: str
    is_live: bool
    state: State
    progress: Progress
    sent: tuple[int, ...]
    closer_since: int | None


@dataclass(frozen=True, slots=True)
class _RecordedRun:
    """A run in ``session.json``."""

    id: str
    name: str
    created: float
    identity: Identity
    network: str
    processes: tuple[_RecordedProcess, ...]


class RecordedRuns:
    """The runs of a workspace that were live when an earlier server ended.

    Parameters
    ----------
    workspace : Workspace
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._runs: list[_RecordedRun] | None = None

    async def restore(
        self, identity: Identity, step: int, settings: LiveSettings, writers: ValueWriters
    ) -> tuple[LiveSession, TrainingProcess] | None:
        """Restore the session of the newest run of a process; return it with the process, None if there is none.

        Parameters
        ----------
        identity : Identity
            Identity of the process.
        step : int
            Its step; runs in which it was at a later step are skipped.
        settings : LiveSettings
        writers : ValueWriters

        Raises
        ------
        TensightError
            The run cannot be read.
        """
        if self._runs is None:
            self._runs = await asyncio.to_thread(self._live_runs)
        for run in self._runs:
            rank = next((recorded.identity.rank for recorded in run.processes if _is(recorded, identity, step)), None)
            if rank is not None:
                self._runs.remove(run)
                session = await self._restore(run, settings, writers)
                return session, session.processes[rank]
        return None

    def _live_runs(self) -> list[_RecordedRun]:
        names = [name for name in os.listdir(self._workspace.runs) if name.isascii() and name.isdigit()]
        runs = (self._read(name) for name in sorted(names, key=int, reverse=True)[:MOST_RUNS])
        return [run for run in runs if run is not None]

    def _read(self, session_id: str) -> _RecordedRun | None:
        try:
            data = self._workspace.read_json(f"{RUNS}/{session_id}/{SESSION}")
            if not isinstance(data, dict) or data.get("is_live") is not True:
                return None
            return _RecordedRun(
                session_id,
                str(data["name"]),
                float(data["created"]),
                Identity.from_json(data["identity"]),
                str(data.get("network", "")),
                tuple(map(_recorded_process, data["processes"])),
            )
        except (StorageError, KeyError, TypeError, ValueError):
            # The folder can still be opened as a dump.
            return None

    async def _restore(self, run: _RecordedRun, settings: LiveSettings, writers: ValueWriters) -> LiveSession:
        identity = run.identity

        def open_recording() -> Recording:
            return Recording(self._workspace, run.id, identity.metadata, most_rows=settings.kept_rows)

        recording = await asyncio.to_thread(open_recording)
        session = LiveSession(
            run.id,
            run.name,
            workspace=self._workspace,
            recording=recording,
            identity=identity,
            settings=settings,
            writers=writers,
            network=run.network,
        )
        session.created = run.created
        try:
            await self._restore_processes(session, run)
        except TensightError:
            recording.close()
            raise
        await self._restore_contents(session, run)
        await session.graphs_changed()
        return session

    async def _restore_processes(self, session: LiveSession, run: _RecordedRun) -> None:
        for recorded in run.processes:
            identity = recorded.identity
            recorder = await asyncio.to_thread(
                session.recording.rank, identity.rank, identity.placement(recorded.address)
            )
            process = TrainingProcess(session, identity, Caller("", identity.key), recorder)
            process.progress, process.closer_since = recorded.progress, recorded.closer_since
            # It is uncertain whether it still has its watchpoints.
            process.outgoing.sent = dict.fromkeys(recorded.sent)
            process.connection.is_open = False
            state = State.LOST if recorded.is_live else recorded.state
            process.set_state(state, _RESTARTED if recorded.is_live else "")
            session.processes[identity.rank] = process
            for problem in recorder.problems:
                session.warn(str(problem))

    async def _restore_contents(self, session: LiveSession, run: _RecordedRun) -> None:
        """Restore hits, texts and values, as far as they can be read."""
        folder = f"{RUNS}/{run.id}"
        try:
            hits = await asyncio.to_thread(self._workspace.read_json, f"{folder}/{HITS}")
            if hits is not None:
                session.reported.restore(HitHistory(hits_from_json(hits)))
            texts = await asyncio.to_thread(self._workspace.read_json, f"{folder}/{SOURCES}")
            if isinstance(texts, dict):
                session.texts.update({str(file): str(text) for file, text in texts.items()})
            for key, iteration, value in await asyncio.to_thread(_values_of, session.recording.dump.folder):
                session.inspection.kept.add(key, iteration, value)
        except TensightError as error:
            session.warn(str(error))


def _is(recorded: _RecordedProcess, identity: Identity, step: int) -> bool:
    return recorded.is_live and recorded.progress.step <= step and recorded.identity.may_be_same(identity)


def _recorded_process(data: Any) -> _RecordedProcess:
    return _RecordedProcess(
        identity=Identity.from_json(data["identity"]),
        address=str(data["address"]),
        is_live=data["is_live"] is True,
        state=State(data["state"]),
        progress=Progress.from_json(data),
        sent=tuple(map(int, data["sent"])),
        closer_since=None if data.get("closer_since") is None else int(data["closer_since"]),
    )


def _values_of(folder: Path) -> list[tuple[TensorKey, int, KeptValue]]:
    """Return the values in a dump, the oldest first."""
    values = []
    for tensor in sorted(open_dump(folder).tensors(), key=lambda tensor: tensor.timestamp):
        address = tensor.address
        if address is None:
            continue
        try:
            header = tensor_header(tensor)
        except DumpError:
            continue
        size_bytes = header.offset + header.data_bytes
        value = KeptValue(Path(tensor.path), header.dtype, header.shape, header.offset, size_bytes)
        values.append((TensorKey.of(address), address.iteration, value))
    return values
