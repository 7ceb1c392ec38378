"""An interpreter for whatever starts processes itself: a shell, a search, `tensight selftest`.

What it is started with is forked as by `forked.popen`, where that is possible, and so is what the forked process starts
as ``sys.executable``. See `stand_in.py` for how the process that was started stands for the forked one, which is no
child of it: its parent's id, its session and its group are others.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.processes.fork_server import LARGEST_REQUEST_BYTES, MOST_DESCRIPTORS
from tests.processes.forked import DEBUG_SERVER, PYTORCH, fork

if TYPE_CHECKING:
    from tests.processes.forked import Imports

_STAND_IN = Path(__file__).with_name("stand_in.py")


@functools.cache
def forking_interpreter() -> ForkingInterpreter:
    """Return the forking interpreter of this process."""
    return ForkingInterpreter()


class ForkingInterpreter:
    """An interpreter that forks, until the process ends that made it.

    Attributes
    ----------
    folder : Path
        Put it first on the path of a shell. It has ``python``, and those programs beside the interpreter of the tests
        that are written in Python: ``tensight``, ``torchrun``.
    python : Path
        The interpreter.
    """

    def __init__(self) -> None:
        # Not in a folder of the test: the address of a socket has at most 107 bytes.
        self._folder = tempfile.TemporaryDirectory(prefix="forking-")
        self.folder = Path(self._folder.name)
        self.python = self.folder / "python"
        address = str(self.folder / "socket")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(address)
        self._socket.listen()
        self._write(self.python, sys.executable, "-IS", _STAND_IN, address, self.python)
        for program in Path(sys.executable).parent.iterdir():
            if program.is_file() and program.read_bytes()[:2] == b"#!":
                self._write(self.folder / program.name, self.python, program)
        threading.Thread(target=self._serve, name="forking interpreter", daemon=True).start()

    def _write(self, program: Path, *command: object) -> None:
        program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
        program.chmod(0o755)

    def _serve(self) -> None:
        while True:
            stand_in, _ = self._socket.accept()
            with stand_in:
                message, descriptors, _, _ = socket.recv_fds(stand_in, LARGEST_REQUEST_BYTES, MOST_DESCRIPTORS)
                if not message:
                    continue
                start: dict[str, Any] = json.loads(message)
                is_forked = fork(sys.executable, start, descriptors, _imports(start["command"][1:]))
                for each in descriptors:
                    os.close(each)
                stand_in.send(b"y" if is_forked else b"n")


def _imports(command: list[str]) -> Imports:
    """Return what a command imports."""
    words = command[1:] if command[:1] == ["-m"] else command
    is_server = len(words) > 1 and Path(words[0]).name == "tensight" and words[1] == "start"
    return DEBUG_SERVER if is_server else PYTORCH
