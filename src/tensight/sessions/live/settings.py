"""Bounds and patience of the server towards training processes, and how it knows who calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageAddress:
    """Where people look at the sessions of a server.

    Attributes
    ----------
    here : str
        Address of the server's pages on its machine, with the prefix of its paths.
    elsewhere : str
        The same for other machines; empty if `here` is for all, or if only this machine reaches it.
    machine : str
        Host name of the server's machine.
    is_local : bool
        Whether only this machine reaches it.
    """

    here: str
    elsewhere: str
    machine: str
    is_local: bool

    def of(self, session_id: str, machine: str) -> str:
        """Return the address of a session's page, for who works on a machine."""
        is_here = machine == self.machine
        address = f"{(not is_here and self.elsewhere) or self.here}/?run={session_id}"
        return f"{address} on {self.machine}" if self.is_local and not is_here else address


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What a training process may cost, and how long the server waits for it.

    Attributes
    ----------
    lost_after_s : float
        How long a process whose connection broke may take to come back.
    answer_within_s : float
        How long a process may be silent while it owes a value or a view.
    gather_within_s : float
        How long the ranks of a training that goes on by itself wait for those that have not attached yet.
    kept_bytes : int
        Of recorded values per run; the oldest are dropped first.
    kept_rows : int
        Rows of statistics per run; the oldest iterations are dropped first.
    most_processes : int
        Attached at the same time.
    most_processes_of_a_host : int
        Attached at the same time from one address, so that no machine takes the room of all others.
    most_graph_bytes : int
        Of all graphs of a process together.
    most_nodes : int
        Of a graph. A node can be two bytes of a message, and half a kilobyte and eight microseconds here.
    most_parts_per_node : int
        Inputs, attributes, outputs, scopes and lines of code, on average over the most nodes. Real graphs have some
        tens.
    most_nodes_of_a_process : int
        Of all its graphs together.
    most_ended : int
        Ended sessions that stay listed; older ones can be opened as recorded runs.
    most_drawn_nodes : int
        A graph with more nodes is listed and searched, but not drawn.
    heartbeat_second_s : float
        How long a second of a heartbeat's period is; tests make it short.
    page : PageAddress or None
        Where people look at sessions; without it nothing is told to the terminals of trainings.
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
    """Who calls.

    Attributes
    ----------
    peer : str
        The other end of the connection as gRPC names it, ``ipv4:127.0.0.1:4711``.
    process_key : str
        What the process calls itself in the call's metadata; empty from MindSpore's own client.
    """

    peer: str
    process_key: str = ""

    @property
    def host(self) -> str:
        """The peer without its port, which is another one in every connection."""
        return self.peer.rpartition(":")[0] or self.peer

    @property
    def address(self) -> str:
        """Host and port for people: ``127.0.0.1:4711``."""
        return self.peer.partition(":")[2] or self.peer
