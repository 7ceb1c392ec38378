"""The `tensight` command of the light agent: it starts trainings, and refers to the full installation for the rest."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

from tensight.cli.plain_run import COMMANDS, MODULE, MODULE_HELP, NotPlainError, read_plainly
from tensight.errors import InputError
from tensight.installations import FULL

if TYPE_CHECKING:
    from collections.abc import Sequence

HELP = ("-h", "--help")
SUMMARIES = {
    "run": "Run a training script under the debugger, unchanged: everything after its name is its own.",
    "trace": "Run a training script and write statistics and content hashes of everything it computes, for each rank.",
}
_COLUMN = 32


def agent_command_line(arguments: Sequence[str]) -> None:
    """Handle a command line that does not start a training.

    Raises
    ------
    InputError
        The command needs the full installation, or the command line is invalid.
    """
    name = arguments[0] if arguments else "--help"
    if name in COMMANDS:
        try:
            read_plainly(arguments[1:], COMMANDS[name])
        except NotPlainError as error:
            if error.word not in HELP:
                raise InputError(f"{error}; `tensight {name} --help` shows its usage") from None
            sys.stdout.write(_help_of(name))
    elif name in HELP:
        sys.stdout.write(_help())
    elif name == "--version":
        from tensight.installations import described

        sys.stdout.write(f"{described('tensight-agent')}\n")
    else:
        message = f"`tensight {name[:80]}` needs {FULL}"
        raise InputError(message, code="package-missing")


def _help() -> str:
    commands = "".join(_entry(f"tensight {name}", summary) for name, summary in SUMMARIES.items())
    return (
        "Usage: tensight COMMAND ...\n\n"
        f"The light agent of Tensight starts trainings under the debugger:\n\n{commands}\n"
        f"The debug server, the page and all other commands need {FULL}\n"
    )


def _help_of(name: str) -> str:
    lines = [
        _entry(f"{option} {entry.metavar or '|'.join(entry.choices)}".strip(), entry.help)
        for option, entry in COMMANDS[name].items()
    ]
    lines.append(_entry(", ".join(MODULE), MODULE_HELP))
    return f"Usage: tensight {name} [OPTIONS] SCRIPT ARGUMENTS\n\n{SUMMARIES[name]}\n\nOptions:\n{''.join(lines)}"


def _entry(term: str, meaning: str) -> str:
    indent = " " * (_COLUMN + 2)
    text = textwrap.fill(meaning, 110, initial_indent=indent, subsequent_indent=indent)
    return f"  {term:{_COLUMN - 2}}  {text.lstrip()}\n" if len(term) <= _COLUMN - 2 else f"  {term}\n{text}\n"
