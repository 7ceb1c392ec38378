"""`tensight run`: a training under the debugger, its script unchanged."""

from __future__ import annotations

import os
import re
import shutil
import site
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

SCRIPT_SUFFIXES = (".py", ".pyw", ".pyc", ".pyz")
_SIZE = re.compile(r"(?P<amount>\d{1,12}(\.\d{1,3})?) ?(?P<unit>[KMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class Capture(str, Enum):
    """`tensight.agents.settings.Capture`, for ``--help``."""

    MODULES = "modules"
    OPS = "ops"


class StepOn(str, Enum):
    """`tensight.agents.settings.StepOn` without what needs a call in the script."""

    OPTIMIZER = "optimizer"
    FORWARD = "forward"


class OnDisconnect(str, Enum):
    """`tensight.agents.settings.OnDisconnect`."""

    CONTINUE = "continue"
    WAIT = "wait"


def run(
    script: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="What `python` would run, or a command such as torchrun.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its own, as they are.")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help="Run a module, as `python -m` does.")] = False,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Of the debug server. (default localhost)")] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Of the debug server. (default 50051)")] = None,
    capture: Annotated[
        Capture | None, typer.Option(help="What is seen: calls of modules (default), or every operator.")
    ] = None,
    step_on: Annotated[
        StepOn | None, typer.Option(help="What ends a step: the optimizer (default), or the forward pass.")
    ] = None,
    break_at_start: Annotated[
        bool | None, typer.Option("--break-at-start", help="Wait for a person before the first step.")
    ] = None,
    recommended: Annotated[
        bool | None, typer.Option("--recommended", help="Set the recommended watchpoints before the first step.")
    ] = None,
    record: Annotated[
        str | None, typer.Option(metavar="ring:K|full", help="Record the last K steps, or all, as a dump.")
    ] = None,
    record_folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to. (default: a new folder in the current one)")
    ] = None,
    on_disconnect: Annotated[
        OnDisconnect | None, typer.Option(help="While no server answers: train on (default), or wait.")
    ] = None,
    memory_budget: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="For values of two steps. (default: a tenth of free memory)"),
    ] = None,
    partial_memory: Annotated[
        bool | None, typer.Option("--partial-memory", help="Keep only values of what is watched.")
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the run. (default: the script and a number)")
    ] = None,
) -> None:
    """Run a training script under the debugger, unchanged: everything after its name is its own."""
    from tensight.agents.settings import AgentSettings, as_variables

    chosen: dict[str, Any] = {
        "host": host,
        "port": port,
        "capture": capture and capture.value,
        "step_on": step_on and step_on.value,
        "break_at_start": break_at_start,
        "recommended": recommended,
        "record": record,
        "record_folder": record_folder and os.path.abspath(record_folder),
        "on_disconnect": on_disconnect and on_disconnect.value,
        "memory_budget_bytes": None if memory_budget is None else size_bytes(memory_budget),
        "partial_memory": partial_memory,
        "job": job or os.environ.get("TENSIGHT_JOB") or _name_of([script, *(arguments or ())]),
    }
    # What cannot be used is refused here, in words, and not by a line in the training's output.
    AgentSettings.from_environment(**chosen)
    _become(command_line([script, *(arguments or ())], module=module), {"TENSIGHT_DEBUG": "1", **as_variables(chosen)})


def _name_of(command: list[str]) -> str:
    """Return a name for a run that all its processes have, and no other run: that of the script with our number."""
    script = next((word for word in command if word.endswith(SCRIPT_SUFFIXES)), command[0])
    return f"{Path(script).stem}-{os.getpid()}"


def command_line(command: list[str], *, module: bool = False) -> list[str]:
    """Return the program to run with its arguments; scripts are run by the interpreter that runs this.

    Parameters
    ----------
    command : list of str
        A script or a program, and its arguments.
    module : bool
        It is the name of a module instead.

    Raises
    ------
    InputError
        It is neither, or this interpreter would not start the debugger.
    """
    from tensight.errors import InputError

    name = command[0]
    if module:
        return [*_python(), "-m", *command]
    is_script = name.endswith(SCRIPT_SUFFIXES) or os.path.isfile(os.path.join(name, "__main__.py"))
    if is_script and os.path.exists(name):
        return [*_python(), *command]
    if re.fullmatch(r"python(3(\.\d+)?)?", name):
        return [*_python(), *command[1:]]
    # torchrun and its like lie beside this interpreter, whether or not its environment is activated.
    beside = os.path.dirname(sys.executable)
    program = None if is_script else shutil.which(name, path=os.pathsep.join((beside, os.environ.get("PATH", ""))))
    if program is not None:
        return [program, *command[1:]]
    if os.path.isfile(name):
        return [*_python(), *command]
    what = "there is no such script" if is_script else "it is no script and no command"
    raise InputError(f"{name}: {what}; write `tensight run [OPTIONS] train.py ARGUMENTS`")


def size_bytes(text: str) -> int:
    """Return the number of bytes that a text such as "2GB" means.

    Raises
    ------
    InputError
        It means none.
    """
    from tensight.errors import InputError

    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"the memory budget is {text[:80]!r}; write for example 500MB or 2GB")
    return int(float(match["amount"]) * _UNITS[match["unit"].upper()])


def _python() -> list[str]:
    """Return the interpreter that runs this; it must be one that starts the debugger."""
    from tensight.agents.launch import START_FILE
    from tensight.errors import InputError

    folders = [*site.getsitepackages(), site.getusersitepackages()]
    if not any(os.path.isfile(os.path.join(folder, START_FILE)) for folder in folders):
        raise InputError(
            f"{sys.executable} would not start the debugger, because {START_FILE} is not in {folders[0]}; "
            "install tensight with pip, or call tensight.torch.debug in the script"
        )
    return [sys.executable]


def _become(command: list[str], variables: dict[str, str]) -> NoReturn:
    """Replace this process: the training is started as if it had been without us, and nothing of ours is left in it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, {**os.environ, **variables})  # noqa: S606 - what the person asked for
