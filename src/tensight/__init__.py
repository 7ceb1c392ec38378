"""Tensight: a debugger for neural-network training."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensight.client import Certificate, Server, Verify
    from tensight.diagnosis.user_rules import expression_rule as expression_rule
    from tensight.diagnosis.user_rules import finding as finding
    from tensight.diagnosis.user_rules import rule as rule
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
        The address that the server printed, with its prefix if it has one; ``http://`` may be omitted. By default the
        value of the environment variable ``TENSIGHT_URL``, or else this machine's server: at ``TENSIGHT_PORT`` if that
        is set, else the one that runs for the workspace (``TENSIGHT_WORKSPACE``), else ``http://127.0.0.1:8080``.
    token : str, optional
        The token that the server printed, if it requires one; by default the value of ``TENSIGHT_TOKEN``, or that of
        the workspace's server.
    verify : bool, path or ssl.SSLContext
        Trusted certificates for https: those of the system (True), those in a file, or any (False).
    certificate : (path, path), optional
        Certificate and key of this client for https, if the server requires them.

    Returns
    -------
    Server

    Raises
    ------
    InputError
        The address is invalid, a file with certificates cannot be read, or a variable that begins with ``TENSIGHT_``
        has a wrong value.
    UnreachableError
        No server responds there.
    AccessError
        The server requires a token, or a different one; or its certificate is not trusted.

    Examples
    --------
    >>> server = tensight.connect(server.url)
    >>> session = server.open("sick-2.10.0")
    """
    # Most processes that import this package never connect to a server.
    try:
        from tensight.client import Server
    except ModuleNotFoundError as error:
        if error.name != "tensight.client":
            raise
        raise _needs_all("connect") from None

    if url is None:
        from tensight.server.default_address import default_address

        url, default_token, default_verify = default_address()
        token = token or default_token
        verify = default_verify if verify is True else verify
    return Server(url, token, verify=verify, certificate=certificate)


def __getattr__(name: str) -> Any:
    """Import submodules at first use: every process that may be debugged imports this package."""
    if name == "__version__":
        return importlib.import_module("tensight.version").__version__
    if name in ("expression_rule", "finding", "rule"):
        return getattr(importlib.import_module("tensight.diagnosis.user_rules"), name)
    if name in ("analysis", "client", "debugger", "dumps", "errors", "mindspore", "torch", "watchpoints"):
        try:
            return importlib.import_module(f"tensight.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"tensight.{name}":
                raise
            raise _needs_all(name) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _needs_all(name: str) -> ImportError:
    """Return the error for an installation of the light agent only."""
    from tensight.installations import FULL

    return ImportError(f"tensight.{name} needs {FULL}", name=f"tensight.{name}")
