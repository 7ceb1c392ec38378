"""`tensight run` without the library that reads the options of all commands: importing that takes longer than the rest.

Only options that are written as the manual writes them are read here. With anything else, a mistake for example, the
library reads the line, and says what is wrong with it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tensight.cli.starting import size_bytes, start_training

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FLAGS = {
    "--break-at-start": "break_at_start",
    "--recommended": "recommended",
    "--partial-memory": "partial_memory",
    "--quiet": "quiet",
    "--keep-going": "keep_going",
}
VALUES: dict[str, tuple[str, Callable[[str], Any], tuple[str, ...]]] = {
    "--host": ("host", str, ()),
    "--port": ("port", int, ()),
    "--capture": ("capture", str, ("modules", "ops")),
    "--step-on": ("step_on", str, ("optimizer", "forward")),
    "--stop-on": ("stop_on", str, ("new", "every")),
    "--record": ("record", str, ()),
    "--record-folder": ("record_folder", os.path.abspath, ()),
    "--against": ("against", os.path.abspath, ()),
    "--on-disconnect": ("on_disconnect", str, ("continue", "wait")),
    "--memory-budget": ("memory_budget_bytes", size_bytes, ()),
    "--job": ("job", str, ()),
}
"""The field of each option, what makes its value of a text, and which texts there are if not all."""

MODULE = ("-m", "--module")


def run_plainly(arguments: Sequence[str]) -> None:
    """Become the training that a command line asks for; return if it is not as plain as this reads.

    Raises
    ------
    InputError
        There is no such script, or something that was chosen cannot be used.
    """
    found = read_plainly(arguments)
    if found is not None:
        command, chosen, module = found
        start_training(command, chosen, module=module)


def read_plainly(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any], bool] | None:
    """Return the command of a command line, what was chosen, and whether the command is a module; None if unsure."""
    chosen: dict[str, Any] = {}
    module = False
    left = list(arguments)
    while left and left[0].startswith("-"):
        option, given, value = left.pop(0).partition("=")
        if option in VALUES:
            if not given and not left:
                return None
            field, convert, choices = VALUES[option]
            text = value if given else left.pop(0)
            if (choices and text not in choices) or (convert is int and not (text.isascii() and text.isdecimal())):
                return None
            chosen[field] = convert(text)
        elif option in FLAGS and not given:
            chosen[FLAGS[option]] = True
        elif option in MODULE and not given:
            module = True
        else:
            return None
    return (left, chosen, module) if left else None
