"""Ports that one test uses several times, or late, while other tests run beside it."""

from __future__ import annotations

import socket


def kept_port(port: int = 0) -> int:
    """Return a port of 127.0.0.1 on which only those listen who name it, until the process of the tests ends.

    A socket is bound to it and does not listen. So the system gives the port to nobody who asks for any; who names it
    may listen there, one after another, with ``SO_REUSEADDR``, as servers do.

    Parameters
    ----------
    port : int
        One on which nobody listens; 0 for any that is free.

    Raises
    ------
    OSError
        Somebody listens there.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", port))
    port = int(keeper.getsockname()[1])
    keeper.detach()  # open to the end of the process
    return port
