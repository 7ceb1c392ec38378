"""The installed distribution: the commit of its build, and whether two distributions overwrite each other.

`tensight` and `tensight-agent` both contain the package `tensight`.
"""

from __future__ import annotations

import os
import re

from tensight.errors import TensightError

FULL = "the full installation: `pip install .` in a checkout of Tensight"
"""What an environment with the light agent lacks, for messages."""
_RECORD = re.compile(r"(?P<name>tensight(?:_agent)?)-(?P<version>[^-]+)\.dist-info")


COMMIT_FILE = "COMMIT"
"""File beside this module in a wheel: the commit of its build; ``-dirty`` if files had been changed since."""

_GIT_WITHIN_S = 5


def described(name: str) -> str:
    """Return a line with the installed version, commit, and kernels.

    Parameters
    ----------
    name : str
        Name of the distribution.
    """
    from tensight.tensors.native import description
    from tensight.version import __version__

    commit = commit_of(os.path.dirname(os.path.abspath(__file__)))
    built_of = f", commit {commit}" if commit else ""
    return f"{name} {__version__}{built_of}, kernels: {description()}"


def commit_of(package: str) -> str:
    """Return the commit of which a package was built, or of its checkout; empty if unknown.

    Parameters
    ----------
    package : str
        The folder ``tensight`` of an installation, or of a checkout's ``src``.
    """
    # Every training that may be debugged imports this module.
    import subprocess

    try:
        with open(os.path.join(package, COMMIT_FILE), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        checkout, folder = os.path.split(os.path.dirname(package))
    if folder != "src" or not os.path.exists(os.path.join(checkout, ".git")):
        return ""
    command = ["git", "-C", checkout, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=7"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_WITHIN_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    return completed.stdout.strip()


def require_one_version(folder: str | None = None) -> None:
    """Refuse two installed versions; the same version twice has the same files.

    Parameters
    ----------
    folder : str, optional
        The folder of installed packages; by default that of this package.

    Raises
    ------
    TensightError
        Two versions are installed, and each has replaced files of the other.
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
            "`pip uninstall tensight tensight-agent`, then install one of them: tensight holds the agent, too",
            code="installation-mixed",
        )
