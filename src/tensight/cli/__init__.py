"""The `tensight` command."""

from __future__ import annotations

import io
import os
import sys

FOUND, WRONG_INPUT, INTERRUPTED = 1, 2, 130
"""Exit codes beside 0: a check hit; the usage or the input is wrong; stopped by the person."""


class Stopped(BaseException):
    """The person pressed Ctrl-C during a command; at a KeyboardInterrupt typer would end without a word."""


def main() -> None:
    """Run the command line; errors meant for a person become one line on stderr, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name may hold characters that this terminal cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _run()
    except (KeyboardInterrupt, Stopped):
        _say("stopped; what was read so far is kept")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader (head, less) went away; Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        _say(f"{error.filename or 'the system'}: {error.strerror or error}")
        sys.exit(WRONG_INPUT)


def _run() -> None:
    from tensight.errors import TensightError

    try:
        if sys.argv[1:2] == ["run"]:
            from tensight.cli.plain_run import run_plainly

            run_plainly(sys.argv[2:])
        from tensight.cli.app import command_line

        command_line()
    except TensightError as error:
        _say(str(error))
        sys.exit(WRONG_INPUT)


def _say(what: str) -> None:
    from tensight.cli.output import visible

    sys.stderr.write(f"tensight: {visible(what)}\n")
