"""Copies of this process, in which experiments are made: the training itself stays as it is.

A copy either runs an experiment and returns its results (`in_child`), or goes on with the training for a while and ends
where that is enough, or where it would do more than compute (`end_at_effects`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import select
import signal
import sys
import time
import warnings
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from tensight.agents.torch.probes.states import Rows

_WRITING = os.O_WRONLY | os.O_RDWR
_EFFECTS = frozenset(
    (
        *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.kill"),
        *("os.system", "os.fork", "os.posix_spawn", "subprocess.Popen"),
        *("socket.connect", "socket.bind", "socket.sendto", "sqlite3.connect"),
    )
)
"""Audit events of what a process that only tries something must not do."""


class Clock:
    """The time that is left for probes.

    Parameters
    ----------
    seconds : float
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return max(self._until - time.monotonic(), 0.0)


def in_child(experiments: Callable[[], Rows], clock: Clock) -> Rows | str:
    """Run experiments in a child of this process, which has a copy of all its memory; return their results.

    So nothing of the training can change, whatever its model does when it is called: it may count its calls, keep what
    it is given, or print. A child has one thread of PyTorch, as a worker of a data loader.

    Parameters
    ----------
    experiments : callable () -> list of dict
    clock : Clock

    Returns
    -------
    list of dict or str
        The results, or why there are none.
    """
    child, pipe = fork()
    if not child:
        try:
            _quieten()
            try:
                results: Rows | str = experiments()
            except GoingOn:
                raise
            except Exception as error:
                results = f"{type(error).__name__}: {error}"
            content = json.dumps(results).encode() + b"\n"
            while content:
                content = content[os.write(pipe, content) :]
        except GoingOn:
            raise
        except BaseException:
            os._exit(1)
        os._exit(0)
    content = wait_for(child, pipe, clock)
    if not content.endswith(b"\n"):
        return "they took too long" if not clock.left_s else "the process that tried them has crashed"
    read: Rows | str = json.loads(content)
    return read


class GoingOn(BaseException):
    """Raised in a child that is to go on with the training."""


def fork() -> tuple[int, int]:
    """Fork; return the id of the child, and the end of a pipe from it. In the child they are 0 and its end."""
    reading, writing = os.pipe()
    numbers = random.getstate()
    with warnings.catch_warnings():
        # Of threads that hold locks. The child is ended if it waits for one.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        # Python seeds its generator anew in a child.
        random.setstate(numbers)
    os.close(writing if child else reading)
    return child, reading if child else writing


def end_at_effects(end: Callable[[str], None], *, reads_data: bool) -> None:
    """Let this process, a copy that goes on with the training, end before it does more than compute.

    Parameters
    ----------
    end : callable (why)
        Ends the process.
    reads_data : bool
        Whether it may take the next batch of a loader that has no workers.
    """

    def trace(_: Any, event: str, raised: Any) -> Any:
        if event == "exception" and not issubclass(raised[0], (StopIteration, GeneratorExit, GoingOn)):
            end(f"the script raises {raised[0].__name__} when it goes on")
        return trace

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EFFECTS or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING):
            end(f"the script does more than compute when it goes on ({event})")

    # What is read from a pipe is gone for the training, which has the same one.
    loader = _MultiProcessingDataLoaderIter if reads_data else _BaseDataLoaderIter
    for owner, names in (
        (loader, ("__next__",)),
        (Connection, ("recv", "recv_bytes", "recv_bytes_into", "send", "send_bytes", "poll")),
    ):
        for name in names:
            setattr(owner, name, lambda *_, **__: end("the script reads or sends data when it goes on"))
    sys.addaudithook(audit)
    atexit.register(end, "the training ends")
    # Whatever handles an exception, this process must not: it is here for one thing only.
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        frame.f_trace, frame.f_trace_lines = trace, False
        frame = frame.f_back
    sys.settrace(lambda *_: None)


@contextlib.contextmanager
def positions_kept() -> Iterator[None]:
    """Put the positions in open files back at the end, which this process and its copies have in common."""
    positions = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                positions[int(name)] = os.lseek(int(name), 0, os.SEEK_CUR)
    try:
        yield
    finally:
        for descriptor, position in positions.items():
            with contextlib.suppress(OSError):
                if os.lseek(descriptor, 0, os.SEEK_CUR) != position:
                    os.lseek(descriptor, position, os.SEEK_SET)


def wait_for(child: int, pipe: int, clock: Clock) -> bytes:
    """Return what a child has written to a pipe, to the end of a line or its own end; it is ended then."""
    content = b""
    with open(pipe, "rb", buffering=0) as reading:
        while not content.endswith(b"\n") and select.select([reading], [], [], clock.left_s)[0]:
            piece = reading.read(1 << 16)
            if not piece:
                break
            content += piece
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    return content


def _quieten() -> None:
    """Let this process, a child, print nothing, write no file, and compute with one thread."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    # A write then fails, instead of ending the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    torch.set_num_threads(1)
