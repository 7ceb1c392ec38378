"""The previous iteration of a tensor, by the rules of the original."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.dumps.execution import parse_history
from tensight.dumps.storage import open_storage
from tensight.errors import DumpError, MissingFileError

if TYPE_CHECKING:
    from tensight.debugger.nodes import DumpNodes
    from tensight.dumps import Dump, TensorFile


class History:
    """The iterations in which the root graphs of a dump ran according to its history files, dumped or not.

    Parameters
    ----------
    dump : Dump
        The dump.
    """

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        self._storage = open_storage(dump.path)
        self._iterations: dict[tuple[int, int], tuple[int, ...] | None] = {}

    def iterations(self, rank: int, graph_id: int) -> tuple[int, ...] | None:
        """Return the iterations of a root graph, None if the history file is missing or damaged."""
        key = (rank, graph_id)
        if key not in self._iterations:
            path = f"rank_{rank}/execution_order/ms_global_execution_order_graph_{graph_id}.csv"
            try:
                self._iterations[key] = parse_history(self._storage.read_bytes(path).decode("utf-8", "replace"))
            except (MissingFileError, DumpError, ValueError):
                self._iterations[key] = None
        return self._iterations[key]

    def contradicts(self, nodes: DumpNodes) -> bool:
        """Return whether a dumped iteration is missing in an existing history."""
        for rank in self._dump.ranks:
            for graph_id in self._dump.graph_ids(rank):
                ran = self.iterations(rank, graph_id)
                if ran is not None and not set(nodes.iterations_of_graph(rank, graph_id)) <= set(ran):
                    return True
        return False


class DumpByHistory:
    """A dump in which previous iterations are determined by the history files only.

    Everything else is as in the dump. The rest of Tensight ignores a history that contradicts the folders, and takes
    the iteration dumped before; the original trusts it, and finds no previous value for an iteration that the history
    does not list.

    Parameters
    ----------
    dump : Dump
        The dump.
    history : History
        Its history.
    """

    def __init__(self, dump: Dump, history: History) -> None:
        self._dump = dump
        self._history = history

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dump, name)

    def previous(self, tensor: TensorFile) -> TensorFile | None:
        """Return the same tensor in the previous iteration, None if there is none."""
        ran = self._history.iterations(tensor.rank, tensor.graph_id) or ()
        before = [iteration for iteration in ran if iteration < tensor.iteration]
        if not before or tensor.iteration not in ran or tensor.node is None:
            return None
        return self._dump.at(tensor.rank, tensor.graph_id, before[-1], tensor.node, tensor.slot, tensor.io)
