"""The `tensight` command."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from tensight.cli.exit_codes import INTERRUPTED, WRONG_INPUT, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.errors import TensightError


def main() -> None:
    """Run the command line; Tensight's errors are printed as one line on stderr, without a traceback."""
    stoppable_main(_run)


def stoppable_main(run: Callable[[], None]) -> None:
    """Run a command, and end it without a traceback after a Tensight error, Ctrl-C or a closed pipe.

    Parameters
    ----------
    run : callable
        Parses and executes ``sys.argv``.
    """
    from tensight.errors import TensightError

    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name may contain characters that this terminal cannot display.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        run()
    except TensightError as error:
        _print_error(_with_code(error))
        sys.exit(WRONG_INPUT)
    except (KeyboardInterrupt, Stopped):
        _print_error("stopped; what was read so far is kept")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader (head, less) has ended; without this, closing stdout would print another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _print_error(f"{error.filename or 'the system'}: {error.strerror or error}")
        sys.exit(WRONG_INPUT)


def _run() -> None:
    from tensight.installations import require_one_version

    require_one_version()
    if sys.argv[1:2] in (["run"], ["trace"]):
        from tensight.cli.plain_run import run_plainly

        run_plainly(sys.argv[1], sys.argv[2:])
    try:
        if sys.argv[1:2] == ["info"]:
            from tensight.cli.dump_summary import info_plainly

            if info_plainly(sys.argv[2:]):
                return
        from tensight.cli.app import command_line
    except ModuleNotFoundError as error:
        if error.name not in ("tensight.cli.app", "tensight.cli.dump_summary"):
            raise
        from tensight.cli.agent_only import agent_command_line

        agent_command_line(sys.argv[1:])
    else:
        command_line()


def _with_code(error: TensightError) -> str:
    """Return the message with the code after its first line, or on a new last line if the first ends with a colon."""
    first, newline, rest = str(error).partition("\n")
    if first.endswith(":"):
        return f"{error}\n[{error.code}]"
    return f"{first} [{error.code}]{newline}{rest}"


def _print_error(message: str) -> None:
    from tensight.cli.visible import visible

    sys.stderr.write(f"tensight: {visible(message)}\n")
