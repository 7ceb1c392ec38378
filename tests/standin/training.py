"""Starts stand-ins for old MindSpore processes, and reads the timelines that they write."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.processes.forked import Imports, popen

if TYPE_CHECKING:
    from types import TracebackType

ROOT = Path(__file__).parents[2]
CLIENT = "tests.standin.mindspore_client"
IMPORTS = Imports(
    ("numpy", "numpy.random", "grpc", "google.protobuf.descriptor_pool", "google.protobuf.message_factory"),
    deferred=False,
    variables=(("GRPC_VERBOSITY", "NONE"),),
)
PATIENCE_S = 60.0
BESIDE = ("> SendHeartbeat", "< SendHeartbeat", "start", "hold ")
"""What the story leaves out: heartbeats come whenever they come."""


class Training:
    """A process of its own that trains and obeys the debug server.

    Parameters
    ----------
    debugger : str
        ``HOST:PORT``.
    scenario : str
    **options : object
        Options of the stand-in: ``steps=5``, ``nan_at=2``, ``hold=["in SendGraph"]``, ``announce_twice=True``.
    """

    def __init__(self, debugger: str, scenario: str = "single-graph", **options: Any) -> None:
        self.device = options.get("device", 0)
        words = [f"--scenario={scenario}", f"--debugger={debugger}"]
        for name, value in options.items():
            option = "--" + name.replace("_", "-")
            given = value if isinstance(value, list) else [value]
            words.extend(option if each is True else f"{option}={each}" for each in given)
        self.timeline: list[dict[str, Any]] = []
        self.noise: list[str] = []
        self._changed = threading.Condition()
        self._over = False
        self.process = popen(
            [sys.executable, "-m", CLIENT, *words],
            IMPORTS,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self.process.stdout
        self._pipe = self.process.stdout.fileno()
        self._unread = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Training:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self)
        self.kill()

    def __str__(self) -> str:
        return "\n".join([f"device {self.device}:", *(each["text"] for each in self.timeline), *self.noise])

    def report(self) -> str:
        """Return what it said, and how it ended or where each of its threads is: for the report of a failed test."""
        code = self.process.poll()
        if code is None:
            known = len(self.noise)
            self.process.send_signal(signal.SIGUSR1)
            with self._changed:
                # The thread that took the signal is the last one.
                self._changed.wait_for(lambda: any("<module>" in line for line in self.noise[known:]) or self._over, 2)
        return f"{self}\n{'still runs' if code is None else f'exit code {code}'}"

    def _read(self) -> None:
        while not self._over:
            select.select([self._pipe], [], [])
            with self._changed:
                self._take()
                self._changed.notify_all()

    def _take(self) -> None:
        """Take in what the process has written so far; whoever calls holds the lock, so the order is kept."""
        while not self._over and select.select([self._pipe], [], [], 0)[0]:
            data = os.read(self._pipe, 2**16)
            self._over = not data
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                if line.startswith(b"{"):
                    self.timeline.append(json.loads(line))
                else:
                    self.noise.append(line.decode(errors="replace"))

    @property
    def now(self) -> dict[str, Any]:
        """The last entry of the timeline."""
        with self._changed:
            self._take()
            return self.timeline[-1]

    def wait_for(self, text: str, *, count: int = 1, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """Return the entry of the timeline that is the `count`-th to begin with `text`, as soon as there is one."""

        def found() -> list[dict[str, Any]]:
            return [each for each in self.timeline if each["text"].startswith(text)]

        with self._changed:
            self._changed.wait_for(lambda: len(found()) >= count or self._over, timeout_s)
            assert len(found()) >= count, f"no {text!r} number {count} in\n{self}"
            return found()[count - 1]

    def all(self, text: str) -> list[dict[str, Any]]:
        """Return all entries so far that begin with `text`."""
        with self._changed:
            self._take()
            return [each for each in self.timeline if each["text"].startswith(text)]

    def story(self, after: dict[str, Any] | None = None) -> list[str]:
        """Return the texts in order, without heartbeats; only what came after an entry, if one is given.

        What the process has sent is in it by the time that the server has answered to it.
        """
        first = after["number"] if after else 0
        with self._changed:
            self._take()
            return [
                each["text"] for each in self.timeline if each["number"] > first and not each["text"].startswith(BESIDE)
            ]

    def release(self) -> None:
        """Let a held process go on."""
        assert self.process.stdin
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def freeze(self) -> None:
        """Stop the process where it is; its connections stay open."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def finish(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the end of the process and return its exit code."""
        code = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        return code

    def kill(self) -> None:
        """End the process at once, whatever it does."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()


def in_order(story: list[str], expected: list[str]) -> bool:
    """Whether the expected texts stand in the story in this order, others between them allowed."""
    rest = iter(story)
    return all(any(text == wanted for text in rest) for wanted in expected)
