"""The workspace: the folder in which the debug server stores watchpoints, recorded runs and temporary files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from tensight.errors import InputError
from tensight.sessions.errors import NotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.diagnosis.rule import Rule

WATCHPOINTS = "watchpoints"
RUNS = "runs"
TEMPORARY = "tempdata"

_IDS = "session-ids.json"
_FOLDER_MODE = 0o700
# The server never writes larger JSON files; a larger one is damaged or was not written by it.
_MOST_BYTES = 256 * 2**20


class Workspace:
    """A folder of a server process that only its owner can read.

    Files are written atomically. Files that an earlier process left in ``tempdata`` are removed.

    Parameters
    ----------
    folder : Path
        Created if it does not exist.
    user_rules : sequence of Rule
        The user's rules, with which the facts of all runs are judged.

    Attributes
    ----------
    folder : Path
    user_rules : sequence of Rule
    watchpoints, runs, tempdata : Path
        Subfolders: watchpoints by the name of their run; recorded runs; temporary files.

    Raises
    ------
    StorageError
        The folders cannot be created.
    """

    def __init__(self, folder: Path, user_rules: Sequence[Rule] = ()) -> None:
        self.user_rules = user_rules
        self.folder = Path(folder).expanduser().absolute()
        self.watchpoints = self.folder / WATCHPOINTS
        self.runs = self.folder / RUNS
        self.tempdata = self.folder / TEMPORARY
        for path in (self.folder, self.watchpoints, self.runs):
            _make_folder(path)
        self._empty_tempdata()
        self._ids, self._syncs = threading.Lock(), threading.Lock()
        self._unsynced: set[Path] = set()
        self._syncing = ThreadPoolExecutor(1, "workspace")
        self._last_id = self._find_last_id()

    def __repr__(self) -> str:
        return f"Workspace({str(self.folder)!r})"

    def write_json(self, relative: str, data: Any) -> None:
        """Write data as JSON; see `write`.

        Parameters
        ----------
        relative : str
        data : object
            Data that can be represented as JSON.
        """
        self.write(relative, as_json(data))

    def write(self, relative: str, content: bytes) -> None:
        """Write a file atomically: a reader sees the old or the new content, never a part.

        Parameters
        ----------
        relative : str
            Path below the workspace, parts separated by slashes; folders are created as needed.
        content : bytes

        Raises
        ------
        StorageError
            The file cannot be written; the old file is unchanged.
        """
        path = self._inside(relative)
        temporary = ""
        try:
            os.makedirs(path.parent, mode=_FOLDER_MODE, exist_ok=True)
            # NamedTemporaryFile makes files that only their owner can read.
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".part", delete=False) as file:
                temporary = file.name
                file.write(content)
            os.replace(temporary, path)
        except OSError as error:
            # The error of the write is reported; a leftover .part file is harmless.
            with suppress(OSError):
                os.unlink(temporary)
            raise _storage_error(path, "cannot be written", error) from error
        self._sync_soon(path)

    def _sync_soon(self, path: Path) -> None:
        """Let the system write a file to its disk, in another thread.

        That may take a second, for which a training would wait. Until then a power failure may lose the new content;
        the end of the server does not.
        """
        with self._syncs:
            if path in self._unsynced:
                return
            self._unsynced.add(path)
        with suppress(RuntimeError):  # the interpreter exits
            self._syncing.submit(self._sync, path)

    def _sync(self, path: Path) -> None:
        with self._syncs:
            self._unsynced.discard(path)
        with suppress(OSError), path.open("rb") as file:
            os.fsync(file.fileno())

    def read_json(self, relative: str) -> Any:
        """Return the data that `write_json` wrote; None if there is no such file.

        Raises
        ------
        StorageError
            The file cannot be read, or is not valid JSON.
        """
        path = self._inside(relative)
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise StorageError(f"{path} is larger than anything that is kept there; move it away")
            return json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _storage_error(path, "cannot be read", error) from error
        except (ValueError, RecursionError) as error:
            raise StorageError(f"{path} is damaged ({error}); move it away, or restore it from a backup") from error

    def set_aside(self, relative: str) -> Path:
        """Rename a damaged file, so that a new file does not replace it, and return its new path.

        Raises
        ------
        StorageError
            It cannot be renamed.
        """
        path = self._inside(relative)
        aside = path.with_name(path.name + ".damaged")
        try:
            os.replace(path, aside)
        except OSError as error:
            raise _storage_error(path, "cannot be renamed", error) from error
        return aside

    def next_session_id(self) -> str:
        """Return an id that no session of this workspace has had; ids are numbers from 1.

        An id is issued even if it cannot be stored because the disk is full; the folder of its run then prevents that
        it is issued again.
        """
        with self._ids:
            self._last_id += 1
            # If this fails, the next write into the workspace reports the reason.
            with suppress(StorageError):
                self.write_json(_IDS, {"last": self._last_id})
            return str(self._last_id)

    def run_folder(self, session_id: str) -> Path:
        """Return the folder of a session's recorded run; create it if needed.

        Raises
        ------
        NotFoundError
            The session id is invalid.
        StorageError
            The folder cannot be created.
        """
        if not session_id.isascii() or not session_id.isdigit() or len(session_id) > 18:
            raise NotFoundError(f"unknown session id {session_id[:40]!r}; ids are numbers", code="session-unknown")
        path = self.runs / session_id
        _make_folder(path)
        return path

    def _inside(self, relative: str) -> Path:
        parts = PurePosixPath(relative)
        if parts.is_absolute() or ".." in parts.parts or not parts.parts or "\0" in relative:
            raise InputError(f"{relative!r} is not a path below the workspace")
        return self.folder / parts

    def _find_last_id(self) -> int:
        """Return the largest id issued so far, from the stored id and the folders of runs."""
        try:
            noted = self.read_json(_IDS)
        except StorageError:
            noted = None
        last = noted.get("last") if isinstance(noted, dict) else None
        runs = [int(name) for name in os.listdir(self.runs) if name.isascii() and name.isdigit() and len(name) <= 18]
        return max([last if isinstance(last, int) and last > 0 else 0, *runs])

    def _empty_tempdata(self) -> None:
        try:
            # The target of a link is elsewhere, and not ours to remove.
            if self.tempdata.is_symlink() or self.tempdata.is_file():
                self.tempdata.unlink()
            else:
                shutil.rmtree(self.tempdata, ignore_errors=True)
        except OSError as error:
            raise _storage_error(self.tempdata, "cannot be emptied", error) from error
        _make_folder(self.tempdata)


def as_json(data: Any) -> bytes:
    """Return data as compact JSON; file names may contain lone surrogates."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _make_folder(path: Path) -> None:
    try:
        os.makedirs(path, mode=_FOLDER_MODE, exist_ok=True)
    except OSError as error:
        raise _storage_error(path, "cannot be created", error) from error


def _storage_error(path: Path, what: str, error: OSError) -> StorageError:
    reason = error.strerror or str(error)
    return StorageError(f"{path} {what}: {reason}. Free space or permissions, or choose another --workspace")
