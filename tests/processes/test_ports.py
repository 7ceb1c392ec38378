from __future__ import annotations

import socket
import struct

import pytest

from tests.processes.ports import kept_port

IP_LOCAL_PORT_RANGE = 51
"""Of linux/in.h, which Python does not name."""


def test_servers_listen_on_a_kept_port_one_after_another() -> None:
    port = kept_port()
    for _ in range(2):
        with (
            socket.create_server(("127.0.0.1", port)) as listening,
            socket.create_connection(("127.0.0.1", port)),
        ):
            # Closed by the server first, as when it ends: the connection then keeps its port for a minute.
            listening.accept()[0].close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_who_asks_for_any_port_does_not_get_a_kept_one() -> None:
    port = kept_port()
    with socket.socket() as asking:
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            asking.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("=HH", port, port))
        except OSError:
            pytest.skip("Linux before 6.3 cannot narrow the ports that a socket may get to one")
        with pytest.raises(OSError, match="in use"):
            asking.bind(("127.0.0.1", 0))
