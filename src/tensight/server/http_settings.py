"""How the HTTP API is served."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tensight.errors import InputError
from tensight.server.routes.page import BUILT_PAGE
from tensight.version import __version__


@dataclass(frozen=True)
class HttpSettings:
    """How the API is served.

    Attributes
    ----------
    url_path_prefix : str
        Before every path: empty, or with a slash before each segment.
    token : str or None
        What requests must bring; None if whoever reaches the server may use it.
    allowed_hosts : tuple of str
        Names and addresses by which the server may be called, beside those of the loopback; ``0.0.0.0`` or ``::`` for
        all addresses.
    max_subscribers : int
        Most WebSockets and waiting polls at once.
    max_body_bytes : int
        Most bytes of a request's body.
    slow_after_s : float
        A subscriber that takes no event for so long is dropped.
    version : str
        What the server says it is.
    debugger_address : str or None
        Where training processes attach: host and port; None if they cannot.
    debugger_needs_token : bool
        Whether training processes attach with an access token only.
    page_folder : Path
        What the build of the page wrote.
    """

    url_path_prefix: str = ""
    token: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    max_subscribers: int = 500
    max_body_bytes: int = 2**20
    slow_after_s: float = 10.0
    version: str = __version__
    debugger_address: str | None = None
    debugger_needs_token: bool = False
    page_folder: Path = BUILT_PAGE

    def __post_init__(self) -> None:
        """Refuse a token that everybody knows."""
        if self.token == "":
            raise InputError("the token is empty; give None if no token is wanted")
