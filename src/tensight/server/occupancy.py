"""The lock on a workspace, held as long as the server process lives, and `server.json` with its addresses."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import ssl
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tensight.errors import TensightError
from tensight.sessions.errors import StorageError

LOCK_NAME = "lock"
RECORD_NAME = "server.json"


class OccupiedError(TensightError):
    """Another server serves this workspace."""

    code = "workspace-occupied"


@dataclass(frozen=True, slots=True)
class Announcement:
    """Public facts about a running server, stored as `server.json` in its workspace.

    Attributes
    ----------
    pid : int
    machine : str
        Host name of the server's machine: several machines may share the file system of a workspace.
    http : str
        Address of the page and of the HTTP API, with the path prefix.
    debugger : str or None
        ``host:port`` to which training processes attach; None if disabled.
    started : float
        Seconds since 1970.
    version : str
    workspace : str
    token_file : str or None
        File with the access token, None if none is needed.
    tls_cert : str or None
        Certificate of the server, None without TLS.
    client_certificates : bool
        Clients must present a certificate.
    """

    pid: int
    machine: str
    http: str
    debugger: str | None
    started: float
    version: str
    workspace: str
    token_file: str | None = None
    tls_cert: str | None = None
    client_certificates: bool = False

    @property
    def here(self) -> bool:
        """Whether the server runs on this machine."""
        return self.machine == socket.gethostname()

    def token(self) -> str | None:
        """Return the access token, None if none is needed.

        Raises
        ------
        OSError
            This user may not read it.
        """
        return None if self.token_file is None else Path(self.token_file).read_text(encoding="ascii").strip()

    def trust(self) -> ssl.SSLContext | bool:
        """Return how to verify the server: by the certificate it was started with, regardless of the name in it."""
        if self.tls_cert is None:
            return True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.tls_cert)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    @property
    def uptime_s(self) -> float:
        """Seconds since the server was ready."""
        return max(time.time() - self.started, 0.0)


@dataclass(frozen=True, slots=True)
class Ready:
    """A server that accepts requests.

    Attributes
    ----------
    record : Announcement
    http_elsewhere : str or None
        Address for other machines, if it differs from that in the record.
    debugger_elsewhere : str or None
        ``host:port`` for training processes on other machines; None if they cannot attach.
    token_file : str or None
        File with the access token, None if none is needed.
    new_token : str or None
        An access token that was generated just now, so that clients do not know it yet.
    in_the_clear : bool
        Other machines reach the server, and the connection is not encrypted.
    token_was_open : bool
        Other users of the machine could read the token file until now.
    workspace_is_open : bool
        Other users of the machine can enter the workspace.
    debugger_token_file : str or None
        File with the access token for training processes, None if they need none.
    """

    record: Announcement
    http_elsewhere: str | None
    debugger_elsewhere: str | None
    token_file: str | None
    new_token: str | None
    in_the_clear: bool
    token_was_open: bool = False
    workspace_is_open: bool = False
    debugger_token_file: str | None = None


class WorkspaceLock:
    """An exclusive lock on a workspace; the system releases it when the process ends, however it ends.

    Parameters
    ----------
    workspace : Path
        Created if it does not exist.

    Raises
    ------
    OccupiedError
        Another process has the lock.
    StorageError
        The workspace cannot be written.
    """

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        try:
            workspace.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(workspace / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"the workspace {workspace} cannot be used: {error.strerror}; name another") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise OccupiedError(_occupied(workspace)) from None
        (workspace / RECORD_NAME).unlink(missing_ok=True)

    def announce(self, record: Announcement) -> None:
        """Write `server.json`: the server is ready."""
        handle, name = tempfile.mkstemp(dir=self._workspace, prefix=RECORD_NAME)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(asdict(record), file, indent=2)
            os.replace(name, self._workspace / RECORD_NAME)
        except OSError as error:
            os.unlink(name)
            raise StorageError(f"{self._workspace / RECORD_NAME} cannot be written: {error.strerror}") from None

    def withdraw(self) -> None:
        """Remove `server.json`: the server ends. The workspace stays locked until the process is gone."""
        (self._workspace / RECORD_NAME).unlink(missing_ok=True)

    def release(self) -> None:
        """Release the workspace."""
        self.withdraw()
        os.close(self._file)


def running_server(workspace: Path) -> Announcement | None:
    """Return the server that serves a workspace and is ready; None if there is none.

    A `server.json` left behind by a killed server does not count, because the lock is free.
    """
    if not in_use(workspace):
        return None
    try:
        data = json.loads((workspace / RECORD_NAME).read_text(encoding="utf-8"))
        return Announcement(**{field.name: data[field.name] for field in fields(Announcement)})
    except (OSError, ValueError, LookupError, TypeError):
        return None


def wait_until_free(workspace: Path, timeout_s: float) -> bool:
    """Wait until the process that serves a workspace is gone; return whether it is."""

    def wait() -> None:
        with open(workspace / LOCK_NAME, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)

    # The system call has no timeout; the thread ends with this process.
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(timeout_s)
    return not waiting.is_alive()


def in_use(workspace: Path) -> bool:
    """Return whether a process serves a workspace, or is about to."""
    try:
        with open(workspace / LOCK_NAME, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _occupied(workspace: Path) -> str:
    server = running_server(workspace)
    who = "a server that is starting or stopping"
    if server is not None:
        where = "" if server.here else f" on {server.machine}"
        who = f"the server at {server.http} (process {server.pid}{where})"
    return (
        f"the workspace {workspace} is in use by {who}; "
        f"stop it with `tensight stop --workspace {workspace}`, or name another folder with --workspace"
    )
