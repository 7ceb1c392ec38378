"""What an online session kept of a run beside the dump: its name, the hits of its steps, texts of code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.sessions.errors import StorageError
from tensight.sessions.online.recording import HITS, SESSION, SOURCES, hits_from_json
from tensight.sessions.workspace import RUNS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.workspace import Workspace


class RecordedRun:
    """The folder of a run in the workspace; whatever in it is missing or damaged is simply not there.

    Parameters
    ----------
    workspace : Workspace
    number : str
        Id of the session that recorded it.

    Attributes
    ----------
    name : str
        Of the job; the run's own if that is not known.
    framework : str
    problems : list of str
        What could not be used.
    """

    def __init__(self, workspace: Workspace, number: str) -> None:
        self._workspace = workspace
        self._folder = f"{RUNS}/{number}"
        self.problems: list[str] = []
        about = self._read(SESSION)
        identity = about.get("identity")
        framework = identity.get("framework") if isinstance(identity, dict) else None
        name = about.get("name")
        self.name = name if isinstance(name, str) and name else self._folder
        self.framework = framework if isinstance(framework, str) and framework else "mindspore"

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

    def texts(self) -> Mapping[str, str]:
        """Return the text of files of code by path."""
        data = self._read(SOURCES)
        return {file: text for file, text in data.items() if isinstance(text, str)}

    def _read(self, name: str) -> dict[str, Any]:
        try:
            data = self._workspace.read_json(f"{self._folder}/{name}")
        except StorageError as error:
            self.problems.append(str(error))
            return {}
        return data if isinstance(data, dict) else {}
