"""Starts a training under the debugger: what `tensight run` does when its options have been read."""

from __future__ import annotations

import os
import re
import site
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCRIPT_SUFFIXES = (".py", ".pyw", ".pyc", ".pyz")
_SIZES = ("WORLD_SIZE", "RANK_SIZE", "OMPI_COMM_WORLD_SIZE")
"""Variables that say of how many ranks a process is one."""

_SIZE = re.compile(r"(?P<amount>\d{1,12}(\.\d{1,3})?) ?(?P<unit>[KMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def start_training(command: Sequence[str], chosen: Mapping[str, Any], *, module: bool = False) -> NoReturn:
    """Become a training that is debugged.

    Parameters
    ----------
    command : sequence of str
        A script, a program or a module, and its arguments.
    chosen : mapping of str to value
        Fields of `AgentSettings`; None means not chosen.
    module : bool
        It is the name of a module.

    Raises
    ------
    InputError
        There is no such script, or something that was chosen cannot be used.
    """
    from tensight.agents.settings import AgentSettings, as_variables

    command = list(command)
    # All its processes have it, and no other run.
    chosen = {**chosen, "run": None if _is_one_of_several() else f"{os.getpid()}-{os.uname().nodename}"}
    if chosen.get("against"):
        chosen["capture"] = _traced_capture(chosen["against"], chosen.get("capture"))
    # What cannot be used is refused here, in words, and not by a line in the training's output.
    AgentSettings.from_environment(**chosen)
    _become(command_line(command, module=module), {"TENSIGHT_DEBUG": "1", **as_variables(chosen)})


def _traced_capture(path: str, chosen: str | None) -> str:
    """Return what a training must capture that is compared with a trace: what that has captured.

    Raises
    ------
    InputError
        It is no trace, or something else was chosen.
    """
    from tensight.dumps import open_dump
    from tensight.errors import InputError

    captured = open_dump(path).metadata.traces
    if not captured:
        raise InputError(f"{path}: is no trace; `tensight trace train.py` makes one")
    if chosen not in (None, captured):
        raise InputError(f"{path}: was traced with --capture {captured}; leave --capture out")
    return captured


def _is_one_of_several() -> bool:
    """Whether others of its run are started, too, so that our number would keep them apart."""
    return any(os.environ.get(name, "1") not in ("", "0", "1") for name in _SIZES)


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
    program = None if is_script else _program(name)
    if program is not None:
        return [program, *command[1:]]
    if os.path.isfile(name):
        return [*_python(), *command]
    what = "there is no such script" if is_script else "it is no script and no command"
    raise InputError(f"{name}: {what}; write `tensight run [OPTIONS] train.py ARGUMENTS`")


def _program(name: str) -> str | None:
    """Return the path of a command; torchrun and its like lie beside this interpreter, activated or not."""
    # Not at the top: a script needs none of it, and archives of all kinds come with it.
    import shutil

    beside = os.path.dirname(sys.executable)
    return shutil.which(name, path=os.pathsep.join((beside, os.environ.get("PATH", ""))))


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
