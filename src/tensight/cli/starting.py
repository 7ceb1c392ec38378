"""Start a training under the debugger, after the options of `tensight run` have been parsed."""

from __future__ import annotations

import os
import re
import shlex
import site
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCRIPT_SUFFIXES = (".py", ".pyw", ".pyc", ".pyz")
LAUNCHERS = (
    *("apptainer", "bash", "conda", "docker", "env", "mpiexec", "mpirun", "msrun", "nice", "nohup", "nsys", "numactl"),
    *("orterun", "pixi", "prun", "setsid", "sh", "singularity", "srun", "stdbuf", "strace", "sudo", "taskset", "time"),
    *("timeout", "torchrun", "uv", "xvfb-run", "zsh"),
)
"""Programs that start other programs, and that are not written in Python."""
_ENTRY_POINT_BYTES = 512
_SIZES = ("WORLD_SIZE", "RANK_SIZE", "OMPI_COMM_WORLD_SIZE")
"""Environment variables with the number of ranks."""

_SIZE = re.compile(r"(?P<amount>\d{1,12}(\.\d{1,3})?) ?(?P<unit>[KMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def start_training(command: Sequence[str], chosen: Mapping[str, Any], *, module: bool = False) -> NoReturn:
    """Replace this process by a training under the debugger.

    Parameters
    ----------
    command : sequence of str
        A script, a program or a module, and its arguments.
    chosen : mapping of str to value
        Fields of `AgentSettings`; None means not chosen.
    module : bool
        Whether the command is the name of a module.

    Raises
    ------
    InputError
        There is no such script, or an option has an unusable value.
    """
    from tensight.agents.core.settings import AgentSettings, as_variables

    command = list(command)
    chosen = {**chosen, "command": shlex.join(["tensight", *sys.argv[1:]])}
    # All processes of the run share this id, which no other run has.
    chosen = {**chosen, "run": None if _is_one_of_several() else f"{os.getpid()}-{os.uname().nodename}"}
    if chosen.get("against"):
        chosen["capture"] = _traced_capture(chosen["against"], chosen.get("capture"))
    if chosen.get("rules") and not os.path.isfile(chosen["rules"]):
        from tensight.errors import InputError

        raise InputError(f"{chosen['rules']}: there is no such file of rules")
    # Report unusable settings here, rather than in the output of the training.
    AgentSettings.from_environment(**chosen)
    _become(command_line(command, module=module), {"TENSIGHT_DEBUG": "1", **as_variables(chosen)})


def _traced_capture(path: str, chosen: str | None) -> str:
    """Return the capture setting for a training that is compared with a trace: that of the trace.

    Raises
    ------
    InputError
        The path is not a trace, or another setting was chosen.
    """
    from tensight.dumps import open_dump
    from tensight.errors import InputError

    captured = open_dump(path).metadata.traces
    if not captured:
        raise InputError(f"{path}: is not a trace; `tensight trace train.py` writes one")
    if chosen not in (None, captured):
        raise InputError(f"{path}: was traced with --capture {captured}; leave --capture out")
    return captured


def _is_one_of_several() -> bool:
    """Return whether the process is one of several ranks, for which an id with the pid would differ."""
    return any(os.environ.get(name, "1") not in ("", "0", "1") for name in _SIZES)


def command_line(command: list[str], *, module: bool = False) -> list[str]:
    """Return the program to run with its arguments; scripts are run by this interpreter.

    Parameters
    ----------
    command : list of str
        A script or a program, and its arguments.
    module : bool
        Whether the command is the name of a module instead.

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
        _refuse_unrelated(name, program, command)
        return [program, *command[1:]]
    if os.path.isfile(name):
        return [*_python(), *command]
    what = "there is no such script" if is_script else "it is not a script or a command"
    raise InputError(f"{name}: {what}; write `tensight run [OPTIONS] train.py ARGUMENTS`")


def _refuse_unrelated(name: str, program: str, command: Sequence[str]) -> None:
    """Raise InputError for a program on the path that does not start trainings.

    It was most likely meant as the value of a flag, or as a script.
    """
    if os.path.dirname(name) or name in LAUNCHERS:
        return
    with open(program, "rb") as file:
        start = file.read(_ENTRY_POINT_BYTES)
    # Installed commands name their interpreter in the first line, or in the second if its path is long.
    if start.startswith(b"#!") and b"python" in start:
        return
    from tensight.errors import InputError

    script = next((word for word in command[1:] if word.endswith(SCRIPT_SUFFIXES)), "train.py")
    raise InputError(
        f"{name} is the program {program}, not a script; to debug {script}, write `tensight run [OPTIONS] {script}` "
        f"(flags take no value), and to start the program, `tensight run env {name} ...`"
    )


def _program(name: str) -> str | None:
    """Return the path of a command; torchrun and the like are beside this interpreter, activated or not."""
    # Imported here because scripts do not need it, and it imports modules for many kinds of archives.
    import shutil

    beside = os.path.dirname(sys.executable)
    return shutil.which(name, path=os.pathsep.join((beside, os.environ.get("PATH", ""))))


def size_bytes(text: str, what: str = "the memory budget") -> int:
    """Return the number of bytes of a size such as "2GB".

    Parameters
    ----------
    text : str
    what : str
        What has that size, for the error.

    Raises
    ------
    InputError
        The text is not a size.
    """
    from tensight.errors import InputError

    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{what} is {text[:80]!r}; write for example 500MB or 2GB")
    return int(float(match["amount"]) * _UNITS[match["unit"].upper()])


def _python() -> list[str]:
    """Return this interpreter. Raises InputError if it would not start the debugger."""
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
    """Replace this process by the training, so that nothing of this command remains in it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, {**os.environ, **variables})  # noqa: S606 - what the person asked for
