"""Whether `tensight` and `tensight-agent` are installed over each other: both bring the package `tensight`."""

from __future__ import annotations

import os
import re

from tensight.errors import TensightError

_RECORD = re.compile(r"(?P<name>tensight(?:_agent)?)-(?P<version>[^-]+)\.dist-info")


def require_one_version(folder: str | None = None) -> None:
    """Refuse a mixture of two versions; the same version twice is the same files twice.

    Parameters
    ----------
    folder : str, optional
        Where packages are installed; by default where this one is.

    Raises
    ------
    TensightError
        Two versions are there, and each has replaced files of the other.
    """
    folder = folder or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        records = [match for match in map(_RECORD.fullmatch, sorted(os.listdir(folder))) if match]
    except OSError:  # in a zip file, for example
        return
    if len({match["version"] for match in records}) > 1:
        both = " and ".join(f"{match['name'].replace('_', '-')} {match['version']}" for match in records)
        raise TensightError(
            f"{both} are installed over each other in {folder}; "
            "`pip uninstall tensight tensight-agent`, then install one of them: tensight holds the agent, too"
        )
