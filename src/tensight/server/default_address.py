"""The server to which `tensight.connect` connects if no address is given."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from tensight.client.connection import TOKEN_VARIABLE
from tensight.server.listening import address_text, reachable_host
from tensight.server.occupancy import running_server
from tensight.server.settings import load_settings, variable_name

if TYPE_CHECKING:
    from tensight.client import Verify

URL_VARIABLE = "TENSIGHT_URL"


class DefaultAddress(NamedTuple):
    """A server, and how to reach it.

    Attributes
    ----------
    url : str
    token : str or None
        None if the server needs none, if it is not known, or if the environment names it.
    verify : bool or ssl.SSLContext
        Trusted certificates for https.
    """

    url: str
    token: str | None = None
    verify: Verify = True


def default_address() -> DefaultAddress:
    """Return the server that the environment names, else the one that runs for this user's workspace.

    Raises
    ------
    InputError
        A setting has a wrong value.
    """
    url = os.environ.get(URL_VARIABLE)
    if url:
        return DefaultAddress(url)
    settings = load_settings({})
    server = running_server(settings.workspace)
    is_other = (
        variable_name("port") in os.environ and server is not None and urlsplit(server.http).port != settings.port
    )
    if server is None or is_other or not server.here:
        scheme = "http" if settings.tls_cert is None else "https"
        host = address_text(reachable_host(settings.host), settings.port)
        return DefaultAddress(f"{scheme}://{host}{settings.url_path_prefix}")
    token = None
    if TOKEN_VARIABLE not in os.environ:
        # A file that this user may not read: the server will say that it needs a token.
        with suppress(OSError):
            token = server.token()
    return DefaultAddress(server.http, token, server.trust())
