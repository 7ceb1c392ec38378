"""Listening sockets, and which process occupies a port."""

from __future__ import annotations

import errno
import ipaddress
import resource
import socket
from contextlib import suppress
from pathlib import Path

from tensight.errors import TensightError

LISTENING = "0A"
"""State of a listening socket in /proc/net/tcp."""


MOST_FILES = 65_536
"""Open files at once: connections, and files of tensors."""


class PortError(TensightError):
    """A port cannot be listened on."""

    code = "port-unavailable"


def open_socket(host: str, port: int, option: str) -> socket.socket:
    """Return a socket that listens on an address.

    Parameters
    ----------
    host : str
        Name or IP address of this machine.
    port : int
        0 for any free port.
    option : str
        The option that set the port, for messages.

    Raises
    ------
    PortError
        The port is taken, or not allowed for this user; the message names the process that has it, if known.
    """
    family, address = _address(host, port)
    try:
        listening = socket.create_server(address, family=family, backlog=2048)
    except OSError as error:
        raise PortError(_why_not(error, host, port, option)) from None
    # Connections inherit it. asyncio sets it only for sockets with an explicit protocol, unlike these, and without it
    # every response would wait 40 ms between header and body for the client's acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def allow_many_connections() -> None:
    """Raise the limit of open files of this process, as far as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address of this machine."""
    try:
        addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    return bool(addresses) and all(ipaddress.ip_address(str(text).partition("%")[0]).is_loopback for text in addresses)


def address_text(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable_host(host: str) -> str:
    """Return the host at which this machine reaches a server bound to a host: loopback for "all addresses"."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - only compared


def _address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise PortError(f"--host {host}: {error.strerror}; give a name or an address of this machine") from None
    return family, (str(address[0]), port)


def _why_not(error: OSError, host: str, port: int, option: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use by {_holder(port)}; end that, or choose another port with {option} (0: any)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} is only for the system's administrator; choose one from 1024 with {option}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is not an address of this machine"
    return f"{address_text(host, port)} cannot be listened on: {error.strerror}"


def _holder(port: int) -> str:
    """Return the process that listens on a port; only processes of the same user can be inspected."""
    sockets = {f"socket:[{inode}]" for inode in _listening_sockets(port)}
    for process in Path("/proc").glob("[0-9]*"):
        # It may belong to another user, or have just ended.
        with suppress(OSError):
            if any(str(file.readlink()) in sockets for file in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"process {process.name} ({command[:120]})"
    return "a process of another user or container"


def _listening_sockets(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes
