"""Starts programs in Python of which many are started: each is forked off an interpreter that has imported the same.

Most of what a short training or a debug server costs is imports: PyTorch takes seconds, and so does MindSpore. So each
process of tests keeps a fork server (`fork_server.py`) for each interpreter, each set of imports, and each environment.
A process that it forks sees its command, its folder, its environment and its streams, and `sys.modules`, as if it had
been started; and what one does is not seen by the next. Only `gc.get_objects` leaves out what was imported.
What `tensight run` puts in its own place is run in the same process, after what a fresh interpreter does at its start.

What cannot be so is started, whoever asks:

- with any other option of `subprocess.Popen` than `OPTIONS`;
- another command than ``python SCRIPT``, ``python -m MODULE`` or ``python -c CODE``: flags of the interpreter, or a
  program such as `prlimit` around it;
- with one of `STARTS_UP` in the environment: something is to happen while the interpreter starts;
- with an environment that is not that of the tests: libraries read variables when they are imported. But those of
  `READ_LATER` and `READ_WHEN_USED` may be others; and so may those that its `Imports` name: each choice of these has a
  fork server of its own;
- where the system has no `pidfd_open` (Linux 5.3).

Tests of how a program starts, and of what it imports, use `subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import socket
import subprocess
import threading
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OPTIONS = {"stdin", "stdout", "stderr", "text", "cwd", "env", "start_new_session"}
STARTS_UP = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
READ_LATER = ("TENSIGHT_", "MS_DEBUGGER_", "ENABLE_MS_DEBUGGER", "GLOO_", "PYTEST_")
"""How variables begin that nothing reads before it has been imported ..."""
READ_EARLY = ("TENSIGHT_KERNELS",)
"""... but for these."""
READ_WHEN_USED = ("COLUMNS", "HOME", "LINES", "MASTER_PORT", "OLDPWD", "PATH", "PWD", "SHLVL", "_")
"""Further ones that nothing reads before."""

_SERVER = Path(__file__).with_name("fork_server.py")
# In angle brackets, as generated code: what looks for the lines of the user passes over it.
_BOOTSTRAP = """
import json, socket, sys
scope = {"__name__": "fork_server", "__file__": "<fork server>"}
exec(compile(open(sys.argv[1]).read(), scope["__file__"], "exec"), scope)
control, worker, modules, deferred = json.loads(sys.argv[2])
scope["main"](socket.socket(fileno=control), worker, modules, deferred=deferred)
"""


@dataclass(frozen=True)
class Imports:
    """What programs of a kind import.

    Attributes
    ----------
    modules : tuple of str
        Each after those that it needs.
    deferred : bool
        Whether a program finds each imported only when it imports it.
    chosen : tuple of str
        Names of environment variables in which programs of this kind may differ from the tests.
    variables : tuple of tuple of str
        Names and values of environment variables that programs of this kind set before they import, where they are not
        set.
    """

    modules: tuple[str, ...]
    deferred: bool = True
    chosen: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


PYTORCH = Imports(("numpy", "torch", "torch._dynamo"), chosen=("OMP_NUM_THREADS", "GLOG_v"))
MINDSPORE = Imports(("numpy", "mindspore"), chosen=("GLOG_v",))
DEBUG_SERVER = Imports(
    ("tensight.cli.app", "tensight.cli.start", "tensight.server.app"),
    deferred=False,
    variables=(("GRPC_VERBOSITY", "NONE"),),
)


def popen(command: Sequence[object], imports: Imports | None, **options: Any) -> subprocess.Popen[Any]:
    """Start a program as `subprocess.Popen` does, or fork it.

    Parameters
    ----------
    command : sequence of str or Path
    imports : Imports or None
        What it is going to import; if None, it is started.
    **options
        Of `subprocess.Popen`.
    """
    words = [os.fspath(word) for word in command]  # type: ignore[call-overload]
    if imports is None or not _can_be_forked(words, imports, options):
        return subprocess.Popen(words, **options)
    return _ForkedProcess(words, imports, **options)


def run(
    command: Sequence[object],
    imports: Imports,
    *,
    timeout: float,
    check: bool = False,
    capture_output: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end as `subprocess.run` does, or fork it.

    Parameters
    ----------
    command : sequence of str or Path
    imports : Imports
        What it is going to import.
    timeout : float
        Seconds.
    check : bool
        Whether another exit code than 0 is an error.
    capture_output : bool
    **options
        Of `subprocess.Popen`.

    Raises
    ------
    subprocess.TimeoutExpired, subprocess.CalledProcessError
    """
    if capture_output:
        options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with popen(command, imports, **options) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args, output, errors)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def fork(interpreter: str, start: dict[str, Any], descriptors: list[int], imports: Imports) -> bool:
    """Fork a process for another one that has been started; return False where that has to run the command itself.

    Parameters
    ----------
    interpreter : str
    start : dict
        The fields of a `fork_server.Start`.
    descriptors : list of int
        Those of the process, and where its id and its exit code are reported.
    imports : Imports
    """
    environment = start["environment"]
    command = [interpreter, *start["command"][1:]]
    if not _can_be_forked(command, imports, {"env": environment, "cwd": start["folder"]}):
        return False
    _server_of(interpreter, imports, environment).send(json.dumps(start).encode(), descriptors)
    return True


def _can_be_forked(command: list[str], imports: Imports, options: Mapping[str, Any]) -> bool:
    if not hasattr(os, "pidfd_open") or options.keys() - OPTIONS or len(command) < 2:
        return False
    environment = _environment(options)
    if set(STARTS_UP) & environment.keys():
        return False
    changed = {name for name, _ in _read_early(environment).items() ^ _read_early(os.environ).items()}
    if changed - set(imports.chosen):
        return False
    interpreter, first, *rest = command
    if not Path(interpreter).name.startswith("python"):
        return False
    if first in ("-m", "-c"):
        return bool(rest)
    return Path(_folder(options), first).is_file()


def _environment(options: Mapping[str, Any]) -> dict[str, str]:
    given = options.get("env")
    return dict(os.environ if given is None else given)


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in environment.items()
        if name in READ_EARLY or not (name.startswith(READ_LATER) or name in READ_WHEN_USED)
    }


def _folder(options: Mapping[str, Any]) -> str:
    return os.fspath(options.get("cwd") or os.getcwd())


class _ForkedProcess(subprocess.Popen[Any]):
    """A process that a fork server has forked: it is no child of ours, so the server says how it has ended."""

    def __init__(self, command: list[str], imports: Imports, **options: Any) -> None:
        self._imports = imports
        self._options = options
        self._report = -1
        self._reading = threading.Lock()
        super().__init__(command, **options)

    # The three methods of `subprocess.Popen` that ask the system; all else is its own.

    def _execute_child(self, *given: Any) -> None:
        pipes = given[10:16]
        child_ends = pipes[0], pipes[3], pipes[5]
        streams = [number if end == -1 else end for number, end in enumerate(child_ends)]
        environment = _environment(self._options)
        start = {
            "command": self.args,
            "environment": environment,
            "folder": _folder(self._options),
            "session": bool(self._options.get("start_new_session")),
        }
        self._report, report = os.pipe()
        # Not when it has been read: another thread may be about to wait for it.
        weakref.finalize(self, os.close, self._report)
        try:
            _server_of(self.args[0], self._imports, environment).send(json.dumps(start).encode(), [*streams, report])
        finally:
            os.close(report)
            self._close_pipe_fds(*pipes)
        self.pid = self._next_number()
        self._child_created = True

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        return self._ended_within(0.0)

    def _wait(self, timeout: float | None) -> int:
        code = self._ended_within(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _ended_within(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], timeout_s)[0]:
            with self._reading:
                if self.returncode is None:
                    self.returncode = self._next_number()
        return self.returncode

    def _next_number(self) -> int:
        line = b""
        while not line.endswith(b"\n"):
            character = os.read(self._report, 1)
            if not character:
                raise ForkServerError(f"the fork server of {self.args[0]} with {self._imports.modules} has ended")
            line += character
        return int(line)


class ForkServerError(Exception):
    """A fork server has ended before the test process, or it could not import what it should."""


@dataclass
class _ForkServer:
    """A fork server that runs."""

    control: socket.socket
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, interpreter: str, imports: Imports, environment: Mapping[str, str]) -> _ForkServer:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = json.dumps([its.fileno(), os.getpid(), imports.modules, imports.deferred])
        with its:
            process = subprocess.Popen(
                [interpreter, "-c", _BOOTSTRAP, str(_SERVER), given],
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                env={**dict(imports.variables), **environment},
            )
        return cls(ours, process)

    def send(self, message: bytes, descriptors: list[int]) -> None:
        """Ask for a process."""
        # One that has ended is noticed by whoever waits for an answer.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self.control, [message], descriptors)

    def end(self) -> None:
        self.control.close()
        self.process.wait()


@dataclass
class _ForkServers:
    """The fork servers of this process."""

    owner: int = field(default_factory=os.getpid)
    lock: threading.Lock = field(default_factory=threading.Lock)
    by_use: dict[object, _ForkServer] = field(default_factory=dict)

    def end(self) -> None:
        # A process that was forked off this one has none.
        if os.getpid() == self.owner:
            for server in self.by_use.values():
                server.end()


_servers = _ForkServers()
atexit.register(_servers.end)


def _server_of(interpreter: str, imports: Imports, environment: Mapping[str, str]) -> _ForkServer:
    """Return the fork server for an interpreter, imports, and variables that are read early; start it if need be."""
    early = _read_early(environment)
    use = (interpreter, imports, frozenset(early.items()))
    with _servers.lock:
        if use not in _servers.by_use:
            _servers.by_use[use] = _ForkServer.start(interpreter, imports, early)
        return _servers.by_use[use]
