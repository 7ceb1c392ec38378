"""A person who follows a page of the documentation: runs its blocks in a folder, in terminals and in a notebook."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_client.manager import KernelManager

import tensight
from tensight.errors import TensightError
from tensight.sessions.records import State
from tests.docs.blocks import Block, blocks_of
from tests.processes.ports import kept_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

PATIENCE_S = 400.0
LOOKS_AFTER_S = 0.5
"""How often the person looks whether a training waits: events wake them before."""
SCRIPTS = Path(__file__).parent / "scripts"
PRINTED_PORTS = {"8080": "http", "50051": "debugger"}
NOT_INHERITED = ("TENSIGHT_", "MS_DEBUGGER_", "ENABLE_MS_", "MINDSPORE_DUMP_")


class Walk:
    """A page that is followed from the top to the bottom; nothing of it may be left out.

    The blocks are run as they are printed, but for the two ports of the server: tests run beside one another.

    Parameters
    ----------
    page : str
        Path from the root of the project.
    folder : Path
        Where the person works; ``train.py`` is there.
    python : Path
        The interpreter that is active; `activate` takes another one.

    Attributes
    ----------
    errors : str
        What the last command of a terminal wrote to stderr.
    """

    def __init__(self, page: str, folder: Path, *, python: Path, **variables: str) -> None:
        self.blocks = blocks_of(page)
        self.folder = folder
        self.errors = ""
        self._ports = {port: kept_port() for port in PRINTED_PORTS}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._notebooks: dict[str, Notebook] = {}
        self._environment = self._prepare(variables)
        self.activate(python)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for notebook in self._notebooks.values():
            notebook.close()
        if _answers(self._ports["8080"]):
            subprocess.run(["tensight", "stop"], env=self._environment, check=False, capture_output=True)
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)
        if kind is None:
            assert not self.blocks, f"{self.blocks[0]} was not run"

    def next(self, language: str = "") -> Block:
        """Take the next block, which must be of a language if one is named."""
        block = self.blocks.pop(0)
        assert not language or block.language == language, f"{block} is of {block.language!r}, not {language!r}"
        return block

    def server(self) -> tensight.client.Server:
        """Connect as a script of the person would."""
        return tensight.connect(f"http://127.0.0.1:{self._ports['8080']}", self._environment.get("TENSIGHT_TOKEN"))

    def terminal(self, *, leave: str = "", finds: str = "", language: str = "sh") -> str:
        """Run the next block in terminals, a line each; return what they printed.

        A server is left running. Where a training stops, a person lets it go on until it has ended.

        Parameters
        ----------
        leave : str
            A command with this in it is left to the next block.
        finds : str
            Commands with this in them find something wrong: they exit with 1.
        language : str
        """
        block = self.next(language)
        output = ""
        for command in block.commands:
            code = 1 if finds and finds in command else 0
            output += self.run(command, leave=bool(leave and leave in command), code=code)
        return output

    def run(self, command: str, *, leave: bool = False, code: int = 0) -> str:
        """Run a command in a terminal; return what it printed.

        Parameters
        ----------
        command : str
        leave : bool
            Do not wait for it.
        code : int
            With which it must end.
        """
        text = self._with_free_ports(command)
        if text.startswith("export "):
            self._environment.update(self._exported(text))
            return ""
        if text.startswith("tensight start"):
            return self._start_server(text)
        process = self._spawn(text)
        if leave:
            return ""
        self._let_go_until_end(process)
        output = self._read(process, "out")
        self.errors = self._read(process, "err")
        assert process.returncode == code, f"{command}\n{output[-2000:]}\n{self.errors[-4000:]}"
        return output

    def activate(self, python: Path) -> None:
        """Activate another interpreter in the terminals."""
        self._environment["PATH"] = f"{python.parent}{os.pathsep}{os.environ['PATH']}"

    def set(self, **variables: str) -> None:
        """Set variables in the terminals and notebooks that are opened from now on."""
        self._environment.update(variables)

    def cell(self, notebook: str = "one", *, before: str = "") -> str:
        """Run the next block in a cell of a notebook, after another cell; return all that it showed."""
        if before:
            self._notebook(notebook).run(before)
        return self._notebook(notebook).run(self._with_free_ports(self.next("python").text))

    def begin_cell(self, notebook: str = "one") -> None:
        """Begin to run the next block in a cell; `end_cell` waits for it."""
        self._notebook(notebook).begin(self._with_free_ports(self.next("python").text))

    def end_cell(self, notebook: str = "one") -> str:
        """Wait until the cell that was begun has ended; return all that it showed."""
        return self._notebook(notebook).end()

    def wait_until_paused(self) -> None:
        """Wait until a training waits for a person."""
        with self.server() as server:
            events = server.events()
            end = time.monotonic() + PATIENCE_S
            while not any(session.state is State.PAUSED for session in server.sessions()):
                assert time.monotonic() < end, "no training has stopped"
                events.next(LOOKS_AFTER_S)

    def script(self, *, before: str = "", indent: bool = False, code: int = 0) -> str:
        """Run the next block as a part of a script, after other lines of it; return what it printed."""
        block = self.next("python")
        text = textwrap.indent(block.text, "    ") if indent else block.text
        (self.folder / "script.py").write_text(before + "\n" + self._with_free_ports(text))
        process = self._spawn("python script.py")
        self._let_go_until_end(process)
        self.errors = self._read(process, "err")
        assert process.returncode == code, f"{block}: {self.errors[-4000:]}"
        return self._read(process, "out")

    def assert_said(self) -> None:
        """The last command wrote what the next block shows, but for numbers, paths and names."""
        block = self.next()
        written = [re.split(r"[\d/]", line)[0] for line in self.errors.splitlines()]
        for line in block.text.splitlines():
            beginning = re.split(r"[\d/]", line)[0]
            assert any(each.startswith(beginning) for each in written), f"{block}: {line}\n{self.errors}"

    def file(self, name: str, language: str) -> None:
        """Put the next block into a file."""
        (self.folder / name).write_text(self._with_free_ports(self.next(language).text))

    def _prepare(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of all that is run; the server's settings are those by default, but for its ports."""
        home = self.folder / "home"
        home.mkdir()
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(NOT_INHERITED)}
        return {
            **inherited,
            "HOME": str(home),
            "TENSIGHT_CACHE_DIR": os.environ["TENSIGHT_CACHE_DIR"],
            "TENSIGHT_PORT": str(self._ports["8080"]),
            "TENSIGHT_DEBUGGER_PORT": str(self._ports["50051"]),
            "TENSIGHT_URL": f"http://127.0.0.1:{self._ports['8080']}",
            "MASTER_PORT": str(kept_port()),
            "GLOG_v": "3",
            **variables,
        }

    def _with_free_ports(self, text: str) -> str:
        for printed, free in self._ports.items():
            text = re.sub(rf"\b{printed}\b", str(free), text)
        return text

    def _spawn(self, command: str) -> subprocess.Popen[bytes]:
        number = len(self._processes)
        with (
            open(self.folder / f"home/{number}.out", "wb") as out,
            open(self.folder / f"home/{number}.err", "wb") as err,
        ):
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _read(self, process: subprocess.Popen[bytes], stream: str) -> str:
        return (self.folder / f"home/{self._processes.index(process)}.{stream}").read_text(errors="replace")

    def _start_server(self, command: str) -> str:
        """Start it in a terminal of its own, in place of the one that runs, and wait until it answers."""
        if _answers(self._ports["8080"]):
            subprocess.run(["tensight", "stop"], env=self._environment, check=True, capture_output=True)
        process = self._spawn(command)
        end = time.monotonic() + PATIENCE_S
        while not _answers(self._ports["8080"]):
            assert process.poll() in (None, 0), self._read(process, "err")
            assert time.monotonic() < end, "the server did not answer"
        return self._read(process, "out")

    def _let_go_until_end(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until a command has ended; where a training stops, let it go on."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                process.wait(LOOKS_AFTER_S)
                return
            except subprocess.TimeoutExpired:
                assert time.monotonic() < end, f"{process.args!r} has not ended\n{self._read(process, 'err')}"
            if _answers(self._ports["8080"]):
                # The server may end meanwhile, and so may a session, or another person may be faster.
                with suppress(TensightError), self.server() as server:
                    for session in server.sessions():
                        if session.summary.capabilities.live and session.state is State.PAUSED:
                            with suppress(TensightError):
                                session.continue_()

    def _exported(self, command: str) -> dict[str, str]:
        """Return the variables that a command exports, with their values."""
        names = re.findall(r"(\w+)=", command)
        printed = subprocess.run(
            ["bash", "-c", command + "; " + "; ".join(f'printf "%s\\0" "${name}"' for name in names)],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return dict(zip(names, printed.stdout.split("\0"), strict=False))

    def _notebook(self, name: str) -> Notebook:
        if name not in self._notebooks:
            environment = {**self._environment, "TENSIGHT_DEBUGGER_PORT": str(self._ports["50051"])}
            self._notebooks[name] = Notebook(environment, self.folder)
        return self._notebooks[name]


class Notebook:
    """A notebook with a kernel of its own, as Jupyter runs it.

    Parameters
    ----------
    environment : mapping of str to str
    folder : Path
        Where it lies.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._kernel = KernelManager(kernel_name="python3")
        self._kernel.start_kernel(env=dict(environment), cwd=str(folder))
        self._client = self._kernel.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=PATIENCE_S)
        self._running = ("", "")

    def run(self, code: str) -> str:
        """Run a cell to its end; return all that it showed, text and tables in HTML."""
        self.begin(code)
        return self.end()

    def begin(self, code: str) -> None:
        """Begin to run a cell."""
        self._running = (self._client.execute(code, stop_on_error=False), code)

    def end(self) -> str:
        """Wait for the cell that was begun; return all that it showed.

        Raises
        ------
        AssertionError
            It raised an exception, or has not ended in time.
        """
        request, code = self._running
        shown: list[str] = []
        while True:
            message = self._client.get_iopub_msg(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            if message["msg_type"] == "error":
                traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))
                raise AssertionError(f"{code}\n{traceback}")
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                return "".join(shown)
            data = content.get("data", {})
            shown.append(content.get("text") or data.get("text/html") or data.get("text/plain") or "")

    def interrupt(self) -> None:
        """Press ■."""
        self._kernel.interrupt_kernel()

    def close(self) -> None:
        """Close it, whatever it does."""
        self._client.stop_channels()
        self._kernel.shutdown_kernel(now=True)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
