"""The `tensight` command."""

from __future__ import annotations

import os
import sys

FOUND, WRONG_INPUT, INTERRUPTED = 1, 2, 130
"""Exit codes beside 0: a check hit; the usage or the input is wrong; stopped by the person."""


def main() -> None:
    """Run the command line; errors meant for a person become one line on stderr, never a traceback."""
    from tensight.cli.app import app
    from tensight.errors import TensightError

    try:
        app()
    except TensightError as error:
        sys.stderr.write(f"tensight: {error}\n")
        sys.exit(WRONG_INPUT)
    except KeyboardInterrupt:
        sys.stderr.write("tensight: stopped; what was read so far is kept\n")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader (head, less) went away; Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
