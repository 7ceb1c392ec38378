"""A training in a process of its own, as a test sees it: what it writes, and how it ends."""

from __future__ import annotations

import re
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.processes.forked import popen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Self

    from tests.processes.forked import Imports


ORDINARY = re.compile(
    r"^tensight: (attached to the debug server|stopped |the training goes on( to |$)|terminated from the debug server)"
    r"|the training waits at http|^tensight: \S+:\d+(-\d+)?$"
)


@dataclass
class Outcome:
    """How a training ended.

    Attributes
    ----------
    code : int
    output : list of str
        Lines that it wrote.
    errors : list of str
        Lines on stderr that are not the debugger's.
    notices : list of str
        Lines on stderr that are.
    """

    code: int
    output: list[str]
    errors: list[str]
    notices: list[str]

    @property
    def complaints(self) -> list[str]:
        """What the debugger has said but for what happens in its ordinary course."""
        return [line for line in self.notices if not ORDINARY.search(line)]

    def own(self) -> tuple[int, list[str], list[str]]:
        """What the training itself did and said."""
        return self.code, self.output, self.errors


class TrainingProcess:
    """A process that is killed where the block ends.

    Parameters
    ----------
    command : sequence of str
    folder : Path
        Where it runs.
    environment : mapping of str to str, optional
        By default that of the test.
    patience_s : float
        How long it may say nothing.
    imports : Imports, optional
        What it imports: it is forked off an interpreter that has. By default it is started.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        patience_s: float = 60.0,
        imports: Imports | None = None,
    ) -> None:
        self._patience_s = patience_s
        self._lines: list[str] = []
        self._errors = folder / "training.stderr"
        with self._errors.open("w") as errors:
            self.process = popen(
                command,
                imports,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env=environment,
            )
        assert self.process.stdin
        assert self.process.stdout
        self._stdin, self._stdout = self.process.stdin, self.process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def until(self, line: str) -> None:
        """Wait until it has written a line; one that says nothing for too long is killed."""
        impatience = threading.Timer(self._patience_s, self.process.kill)
        impatience.start()
        try:
            while line not in self._lines:
                written = self._stdout.readline()
                assert written, f"it ended without {line!r}: {self._lines[-3:]} {self._errors.read_text()}"
                self._lines.append(written.rstrip("\n"))
        finally:
            impatience.cancel()

    def go_on(self) -> None:
        """Let it leave the place where it waits for a word."""
        self._stdin.write("\n")
        self._stdin.flush()

    def resident_bytes(self) -> int:
        """Return how much memory it has."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))

    def outcome(self) -> Outcome:
        """Wait until it has ended."""
        rest, _ = self.process.communicate(timeout=self._patience_s)
        lines = [*self._lines, *rest.splitlines()]
        errors = self._errors.read_text().splitlines()
        notices = [line for line in errors if line.startswith("tensight:")]
        return Outcome(self.process.returncode, lines, [line for line in errors if line not in notices], notices)
