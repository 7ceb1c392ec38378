"""`tensight run` and `tensight trace` without the library that parses the options of all commands.

Importing that library takes longer than the rest, and the light agent does not have it. Only options as written in the
manual are parsed here. Any other command line, such as one with a mistake, is left to the library, which reports what
is wrong; in the light agent to `tensight.cli.agent_only`.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.cli.starting import size_bytes, start_training

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class PlainOption(NamedTuple):
    """An option of a command that starts a training.

    Attributes
    ----------
    field : str
        Field of `AgentSettings`.
    help : str
        One line of help.
    metavar : str
        Placeholder for its value; empty if it has none, or if there are `choices`.
    convert : callable or None
        Converts a text to the value; None for an option without a value.
    choices : tuple of str
        Allowed texts; empty if all are.
    """

    field: str
    help: str
    metavar: str = ""
    convert: Callable[[str], Any] | None = None
    choices: tuple[str, ...] = ()


_CAPTURES, _STEPS = ("modules", "ops"), ("optimizer", "forward")
_STEP_ON = "What ends a step: the optimizer (default), or the forward pass."

RUN: dict[str, PlainOption] = {
    "--host": PlainOption("host", "Of the debug server. (default localhost)", "HOST", str),
    "--port": PlainOption("port", "Of the debug server. (default 50051)", "PORT", int),
    "--capture": PlainOption(
        "capture", "What is seen: calls of modules (default), or every operator.", "", str, _CAPTURES
    ),
    "--step-on": PlainOption("step_on", _STEP_ON, "", str, _STEPS),
    "--break-at-start": PlainOption("break_at_start", "Wait for the user before the first step."),
    "--recommended": PlainOption("recommended", "Set the recommended watchpoints before the first step."),
    "--stop-on": PlainOption(
        "stop_on",
        "Stop for hits that are new and follow from nothing reported (default), or for every one.",
        *("", str, ("new", "every")),
    ),
    "--findings": PlainOption(
        "findings",
        "Say why it does not learn: off, list (default), or stop for certain ones (default with --recommended) or all.",
        *("", str, ("off", "list", "certain", "every")),
    ),
    "--rules": PlainOption(
        "rules", "Rules of your own: a Python file, which the training runs.", "FILE", os.path.abspath
    ),
    "--record": PlainOption("record", "Record the last K steps, or all, as a dump.", "ring:K|full", str),
    "--record-folder": PlainOption(
        "record_folder", "Where to. (default: a new folder in the current one)", "DIR", os.path.abspath
    ),
    "--alone": PlainOption(
        "alone", "Without a server: each rank watches itself, and writes there.", "DIR", os.path.abspath
    ),
    "--every": PlainOption("alone_every", "With --alone: watch every Nth step. (default 1)", "N", int),
    "--against": PlainOption(
        "against", "Compare with a trace, and stop at the first difference.", "TRACE", os.path.abspath
    ),
    "--keep-going": PlainOption("keep_going", "With --against: report the first difference, and train on."),
    "--on-disconnect": PlainOption(
        "on_disconnect", "While no server answers: train on (default), or wait.", "", str, ("continue", "wait")
    ),
    "--memory-budget": PlainOption(
        "memory_budget_bytes", "For values of two steps. (default: a tenth of free memory)", "SIZE", size_bytes
    ),
    "--partial-memory": PlainOption("partial_memory", "Keep only values of what is watched."),
    "--job": PlainOption("job", "Name of the run. (default: the script's name)", "NAME", str),
    "--quiet": PlainOption("quiet", "Print only problems on stderr, not that it stops or resumes."),
}
TRACE: dict[str, PlainOption] = {
    "--out": PlainOption("trace", "Where to. (default: a new folder in the current one)", "DIR", os.path.abspath),
    "--capture": PlainOption(
        "capture", "What is traced: calls of modules (default), or every operator.", "", str, _CAPTURES
    ),
    "--step-on": PlainOption("step_on", _STEP_ON, "", str, _STEPS),
    "--steps": PlainOption("trace_steps", "Trace the first N steps; the training goes on. (default all)", "N", int),
    "--perturb": PlainOption(
        "perturb", "Move all initial weights by one unit in the last place, for `compare runs --noise`."
    ),
    "--quiet": PlainOption("quiet", "Print only problems on stderr."),
}
COMMANDS: dict[str, dict[str, PlainOption]] = {"run": RUN, "trace": TRACE}
"""Options of each command, by their names."""

MODULE = ("-m", "--module")
MODULE_HELP = "Run a module, as `python -m` does."


class NotPlainError(Exception):
    """A command line that is not parsed here.

    Parameters
    ----------
    why : str
        The reason, for messages.
    word : str
        The word at which parsing ended; empty at the end of the line.
    """

    def __init__(self, why: str, word: str = "") -> None:
        super().__init__(why)
        self.word = word


class PlainLine(NamedTuple):
    """A parsed command line.

    Attributes
    ----------
    command : list of str
        A script, a program or a module, and its arguments.
    chosen : dict
        Values by field of `AgentSettings`.
    module : bool
        Whether the command is the name of a module.
    """

    command: list[str]
    chosen: dict[str, Any]
    module: bool


def run_plainly(name: str, arguments: Sequence[str]) -> None:
    """Replace this process by the training of a plain command line; return if the line is not plain.

    Parameters
    ----------
    name : str
        One of `COMMANDS`.
    arguments : sequence of str
        Arguments after the name.

    Raises
    ------
    InputError
        There is no such script, or an option has an unusable value.
    """
    try:
        line = read_plainly(arguments, COMMANDS[name])
    except NotPlainError:
        return
    chosen = line.chosen if name == "run" else {"trace": trace_folder(), **line.chosen}
    start_training(line.command, chosen, module=line.module)


def trace_folder(chosen: str | os.PathLike[str] | None = None) -> str:
    """Return the folder for a trace: the given one, else a new one in the current folder."""
    return os.path.abspath(chosen or time.strftime("tensight-trace-%Y%m%d-%H%M%S"))


def read_plainly(arguments: Sequence[str], options: Mapping[str, PlainOption]) -> PlainLine:
    """Parse a plain command line.

    Raises
    ------
    NotPlainError
        The line is not plain.
    """
    chosen: dict[str, Any] = {}
    module = False
    left = list(arguments)
    while left and left[0].startswith("-"):
        name, given, text = left.pop(0).partition("=")
        option = options.get(name)
        if option is None and name not in MODULE:
            raise NotPlainError(f"there is no option {name[:80]}", name)
        if option is None or option.convert is None:
            if given:
                raise NotPlainError(f"{name} takes no value", name)
            if option is None:
                module = True
            else:
                chosen[option.field] = True
            continue
        if not given:
            if not left:
                raise NotPlainError(f"{name} needs a value", name)
            text = left.pop(0)
        if option.choices and text not in option.choices:
            raise NotPlainError(f"{name} is {text[:80]!r}; choose one of {', '.join(option.choices)}", name)
        if option.convert is int and not (text.isascii() and text.isdecimal()):
            raise NotPlainError(f"{name} is {text[:80]!r}; give a whole number", name)
        chosen[option.field] = option.convert(text)
    if not left:
        raise NotPlainError("there is no script")
    return PlainLine(left, chosen, module)
