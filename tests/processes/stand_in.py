"""The program of a forking interpreter: has its command run by a forked process, and stands for it.

    python -IS stand_in.py SOCKET EXECUTABLE COMMAND...

`forking_interpreter.py` listens at SOCKET. The forked process has the streams and the pipes that this one was given;
signals go to it, and this one ends as it does. If this one is killed, so is the forked one. Where the command cannot be
forked, the interpreter that runs this runs it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys

FORWARDED = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}


def main(address: str, executable: str, command: list[str]) -> None:
    """Run a command.

    Parameters
    ----------
    address : str
        Of the socket.
    executable : str
        What the forked process takes for its interpreter.
    command : list of str
        What follows the interpreter's name.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    numbers = [number for number in map(int, os.listdir("/proc/self/fd")) if _is_passed_on(number)]
    reading, writing = os.pipe()
    start = {
        "command": [executable, *command],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "session": True,
        "numbers": numbers,
        "is_bound": True,
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as relay:
        relay.connect(address)
        socket.send_fds(relay, [json.dumps(start).encode()], [*numbers, writing])
        is_forked = relay.recv(1) == b"y"
    os.close(writing)
    if not is_forked:
        os.close(reading)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        os.execv(sys.executable, [sys.executable, *command])  # noqa: S606 - in our place
    for number in numbers:
        if number > 2:
            os.close(number)
    with open(reading, "rb", buffering=0) as report:  # nothing is read ahead of the wait
        process = int(report.readline())
        for number in FORWARDED:
            signal.signal(number, lambda number, _: os.kill(process, number))
        _wait_for(reading)
        code = int(report.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_passed_on(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:
        return False  # that of the listing


def _wait_for(descriptor: int) -> None:
    """Let signals come until there is something to read.

    One that comes just before a call that waits does not end the call, and what handles it would run after it: each
    signal also writes to a descriptor that is waited for.
    """
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    while descriptor not in select.select([descriptor, woken], [], [])[0]:
        os.read(woken, 1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
