"""Trainings in forked children of a process that has imported PyTorch, which would take most of the time of a trial.

    python start.py --serve SOCKET
    python start.py SOCKET SCRIPT ARGUMENTS

The second is a trial's command. It hands its folder, output and environment over, and ends as the child ends; if it is
killed, so is the child. The child installs the debugger as an interpreter that starts does, if its environment asks.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def order(address: str, command: list[str]) -> int:
    """Have a script run, and return its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        said = {"command": command, "folder": os.getcwd(), "environment": dict(os.environ)}
        socket.send_fds(connection, [json.dumps(said).encode() + b"\n"], [1, 2])
        return int(connection.recv(16) or b"1")


def serve(address: str) -> None:
    """Fork a child for each order, and one between that waits for it."""
    sys.path.insert(0, str(HERE))
    import gc

    import reporting  # noqa: F401
    import torch

    from tensight.agents import launch  # noqa: F401

    weight = torch.nn.Parameter(torch.zeros(1))
    torch.optim.Adam([weight])
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        print("ready", flush=True)
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                attend(connection)
            connection.close()


def attend(connection: socket.socket) -> None:
    """Run what is ordered, and report how it ended."""
    import select

    content, files, *_ = socket.recv_fds(connection, 1 << 20, 2)
    while not content.endswith(b"\n"):
        content += connection.recv(1 << 20)
    child = os.fork()
    if child == 0:
        connection.close()
        become(json.loads(content), files)
        return
    for file in files:
        os.close(file)
    ending = os.pidfd_open(child)
    ready, _, _ = select.select([ending, connection], [], [])
    if ending not in ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if ending in ready:
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def become(said: dict, files: list[int]) -> None:
    """Do what `python SCRIPT ARGUMENTS` does after its imports."""
    import runpy

    for number, file in enumerate(files, 1):
        os.dup2(file, number)
    os.chdir(said["folder"])
    os.environ.clear()
    os.environ.update(said["environment"])
    sys.argv = said["command"]
    if os.environ.get("TENSIGHT_DEBUG"):
        from tensight.agents.launch import arrange

        arrange()
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    else:
        code = order(sys.argv[1], sys.argv[2:])
        if code < 0:
            os.kill(os.getpid(), -code)
        sys.exit(code)
