"""Limits and timeouts for training processes, and identification of callers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageAddress:
    """Address of the page with the sessions of a server.

    Attributes
    ----------
    here : str
        Address on the server's machine, with the prefix of its paths.
    elsewhere : str
        Address on other machines; empty if it is `here`, too, or if the server cannot be reached from others.
    machine : str
        Host name of the server's machine.
    is_local : bool
        Whether the server can be reached from its own machine only.
    """

    here: str
    elsewhere: str
    machine: str
    is_local: bool

    def of(self, session_id: str, machine: str) -> str:
        """Return the address of a session's page, as seen from a machine."""
        is_here = machine == self.machine
        address = f"{(not is_here and self.elsewhere) or self.here}/?run={session_id}"
        return f"{address} on {self.machine}" if self.is_local and not is_here else address


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """Resources that training processes may use, and timeouts for them.

    Attributes
    ----------
    lost_after_s : float
        Time for a process to reconnect after its connection broke.
    answer_within_s : float
        Time that a process may be silent while a value or a view is requested from it.
    gather_within_s : float
        Time that the ranks of a training that starts without a user wait for ranks that have not attached yet.
    kept_bytes : int
        Bytes of recorded values per run; the oldest are dropped first.
    kept_rows : int
        Rows of statistics per run; the oldest iterations are dropped first.
    most_processes : int
        Maximum number of attached processes.
    most_processes_of_a_host : int
        Maximum number of processes attached from the same address, so that a machine cannot block all others.
    most_graph_bytes : int
        Maximum size of all graphs of a process together.
    most_nodes : int
        Maximum number of nodes of a graph. A node can take two bytes in a message, and half a kilobyte of memory and
        eight microseconds to parse here.
    most_parts_per_node : int
        Maximum number of inputs, attributes, outputs, scopes and lines of code, per node of `most_nodes`. Real graphs
        have a few tens.
    most_nodes_of_a_process : int
        Maximum number of nodes of all graphs of a process together.
    most_ended : int
        Ended sessions that stay listed; older ones can be opened as recorded runs.
    most_drawn_nodes : int
        Larger graphs are listed and searched, but not drawn.
    heartbeat_second_s : float
        Duration of a second of a heartbeat's period; shortened in tests.
    page : PageAddress or None
        Address of the page; without it nothing is written to the terminals of trainings.
    """

    lost_after_s: float = 30.0
    answer_within_s: float = 60.0
    gather_within_s: float = 20.0
    kept_bytes: int = 8 * 2**30
    kept_rows: int = 5_000_000
    most_processes: int = 256
    most_processes_of_a_host: int = 224
    most_graph_bytes: int = 2**31 - 1
    most_nodes: int = 500_000
    most_parts_per_node: int = 60
    most_nodes_of_a_process: int = 1_000_000
    most_ended: int = 16
    most_drawn_nodes: int = 100_000
    heartbeat_second_s: float = 1.0
    page: PageAddress | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a method.

    Attributes
    ----------
    peer : str
        The peer of the connection in gRPC's notation, ``ipv4:127.0.0.1:4711``.
    process_key : str
        Key of the process in the call's metadata; empty for MindSpore's own client.
    """

    peer: str
    process_key: str = ""

    @property
    def host(self) -> str:
        """The peer without its port, which differs between connections."""
        return self.peer.rpartition(":")[0] or self.peer

    @property
    def address(self) -> str:
        """Host and port for display: ``127.0.0.1:4711``."""
        return self.peer.partition(":")[2] or self.peer
