"""Tensight: a debugger for neural-network training."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensight.client import Certificate, Server, Verify
    from tensight.version import __version__ as __version__


def connect(
    url: str | None = None,
    token: str | None = None,
    *,
    verify: Verify = True,
    certificate: Certificate | None = None,
) -> Server:
    """Connect to a debug server that `tensight start` started.

    Parameters
    ----------
    url : str, optional
        The address that the server printed, with its prefix if it has one; ``http://`` may be left out. By default that
        in the variable ``TENSIGHT_URL``, else ``http://127.0.0.1:8080``.
    token : str, optional
        The token that the server printed, where it asks for one; by default that in the variable ``TENSIGHT_TOKEN``.
    verify : bool, path or ssl.SSLContext
        For https, which certificates are trusted: those the system trusts (True), those in a file, or any (False).
    certificate : (path, path), optional
        For https, certificate and key of this client, where the server asks for one.

    Returns
    -------
    Server

    Raises
    ------
    InputError
        The address is none, or a file with certificates cannot be read.
    UnreachableError
        No server answers there.
    AccessError
        It asks for a token, or for another one; or its certificate is not trusted.

    Examples
    --------
    >>> server = tensight.connect(server.url)
    >>> session = server.open("sick-2.10.0")
    """
    # Most of what imports this package never talks to a server.
    try:
        from tensight.client import Server
    except ModuleNotFoundError as error:
        if error.name != "tensight.client":
            raise
        raise _needs_all("connect") from None

    return Server(url, token, verify=verify, certificate=certificate)


def __getattr__(name: str) -> Any:
    """Import the modules that people use when they use them: each process that may be debugged imports this one."""
    if name == "__version__":
        return importlib.import_module("tensight.version").__version__
    if name in ("analysis", "client", "debugger", "dumps", "errors", "mindspore", "torch", "watchpoints"):
        try:
            return importlib.import_module(f"tensight.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"tensight.{name}":
                raise
            raise _needs_all(name) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _needs_all(name: str) -> ImportError:
    """Return what is raised where only the light agent is installed."""
    return ImportError(f"tensight.{name} needs the full installation: pip install tensight", name=f"tensight.{name}")
