"""Ports: who has one that we cannot have, and which addresses only this machine reaches."""

from __future__ import annotations

import os
import socket

import pytest

from tensight.server.listening import PortError, address_text, is_loopback, open_socket, reachable_host


def test_a_port_in_use_is_explained_with_its_holder() -> None:
    with open_socket("127.0.0.1", 0, "--port") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortError) as caught:
            open_socket("127.0.0.1", port, "--debugger-port")
    assert f"port {port} is in use by process {os.getpid()} (" in str(caught.value)
    assert "choose another port with --debugger-port (0: any)" in str(caught.value)


def test_a_port_can_be_had_again_at_once() -> None:
    with open_socket("127.0.0.1", 0, "--port") as first:
        port = first.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = first.accept()
    accepted.close()
    client.close()
    open_socket("127.0.0.1", port, "--port").close()


@pytest.mark.parametrize(
    ("host", "message"),
    [("203.0.113.1", "is not an address of this machine"), ("no.such.host.invalid", "give a name or an address")],
)
def test_a_host_that_is_not_ours_is_refused(host: str, message: str) -> None:
    with pytest.raises(PortError, match=message):
        open_socket(host, 0, "--port")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False)],  # noqa: S104
)
def test_loopback_is_what_only_this_machine_reaches(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


def test_a_name_that_leads_nowhere_is_no_loopback() -> None:
    assert not is_loopback("no.such.host.invalid")


def test_addresses_are_written_as_clients_take_them() -> None:
    assert address_text("::1", 80) == "[::1]:80"
    assert address_text("localhost", 80) == "localhost:80"
    assert [reachable_host(host) for host in ("0.0.0.0", "::", "10.0.0.1")] == ["127.0.0.1", "::1", "10.0.0.1"]  # noqa: S104
