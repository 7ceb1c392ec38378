"""Settings of the HTTP API."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tensight.errors import InputError
from tensight.server.routes.page import BUILT_PAGE
from tensight.version import __version__


@dataclass(frozen=True)
class HttpSettings:
    """Settings of the HTTP API.

    Attributes
    ----------
    url_path_prefix : str
        Prefix of every path: empty, or with a slash before each segment.
    token : str or None
        Token that requests must present; None if everyone who reaches the server may use it.
    allowed_hosts : tuple of str
        Accepted host names and addresses, in addition to those of the loopback interface; ``0.0.0.0`` or ``::`` accepts
        all addresses.
    max_subscribers : int
        Maximum number of WebSockets and waiting polls.
    max_body_bytes : int
        Maximum size of a request body in bytes.
    slow_after_s : float
        Seconds after which a subscriber that accepts no event is dropped.
    version : str
        Version that the server reports.
    debugger_address : str or None
        Host and port to which training processes on this machine attach; None if they cannot.
    debugger_elsewhere : str or None
        Host and port for training processes on other machines; None if only this machine can reach it.
    debugger_needs_token : bool
        Whether training processes need an access token.
    page_folder : Path
        Output folder of the page's build.
    """

    url_path_prefix: str = ""
    token: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    max_subscribers: int = 500
    max_body_bytes: int = 2**20
    slow_after_s: float = 10.0
    version: str = __version__
    debugger_address: str | None = None
    debugger_elsewhere: str | None = None
    debugger_needs_token: bool = False
    page_folder: Path = BUILT_PAGE

    def __post_init__(self) -> None:
        """Refuse an empty token."""
        if self.token == "":
            raise InputError("the token is empty; give None if no token is wanted")
