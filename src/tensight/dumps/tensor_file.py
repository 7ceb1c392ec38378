"""One dumped tensor, as described by its folder and file name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from tensight.graph import TensorAddress, step_of

if TYPE_CHECKING:
    from tensight.dumps.statistic_csv import StatisticRow
    from tensight.dumps.trace_files import TracedRow

CONSTANTS = -1
"""``iteration`` of the tensors in ``constants/``, which belong to no iteration."""


class TensorFile(NamedTuple):
    """A tensor in a dump, not yet read; or only its statistics, if the dump has no values (see `recorded`).

    A dump has millions of them, and a named tuple is made eight times as fast as a frozen dataclass. Two are equal if
    all but `recorded` is.

    Attributes
    ----------
    rank : int
        Rank of the process.
    graph_id : int
        Id of the root graph, which is the name of the folder.
    iteration : int
        From 0; `CONSTANTS` (-1) for the files in ``constants/``.
    node : str or None
        Name of the graph node; None if the file could not be matched to exactly one node.
    graph : str
        Name of the graph that has the node; empty if unmatched.
    op_type, op_name : str
        As in the file name.
    io : {"input", "output"}
        Whether `slot` counts outputs or inputs of the node.
    slot : int
        From 0.
    task_id, stream_id : int
        As in the file name.
    timestamp : int
        Microseconds.
    format : str
        Layout of the elements (``DefaultFormat``, ``NCHW``, ``FRACTAL_NZ``, …).
    declared_dtype : str
        Element type in the file name, such as ``BFloat16``, whose elements MindSpore stores as float32; empty if the
        name has none (MindSpore up to 2.3).
    path : str
        Full path or URL of the file.
    size_bytes : int
        Size of the file; 0 if only statistics were recorded.
    mtime_ns : int
        Time of the file's last change, nanoseconds since 1970; 0 if unknown.
    older : tuple of TensorFile
        Earlier dumps of the same tensor in the same iteration (loops, repeated sub-graphs), newest first.
    recorded : StatisticRow or TracedRow or None
        Statistics that the device recorded in ``statistic.csv``, or an agent in a trace, in place of the values; `path`
        is then that file. None if there is a file with values.
    """

    rank: int
    graph_id: int
    iteration: int
    node: str | None
    graph: str
    op_type: str
    op_name: str
    io: Literal["input", "output"]
    slot: int
    task_id: int
    stream_id: int
    timestamp: int
    format: str
    declared_dtype: str
    path: str
    size_bytes: int
    mtime_ns: int
    older: tuple[TensorFile, ...] = ()
    recorded: StatisticRow | TracedRow | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorFile) and self[:-1] == other[:-1]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])

    @property
    def address(self) -> TensorAddress | None:
        """Address of the tensor in the graph; None if the file matches no node."""
        if self.node is None:
            return None
        return TensorAddress(self.rank, self.graph, self.node, self.slot, self.iteration, self.io)

    @property
    def step(self) -> int:
        """The step, from 1; 0 for constants and initial values."""
        return step_of(self.iteration)

    @property
    def is_constant(self) -> bool:
        """Whether the tensor comes from ``constants/``."""
        return self.iteration == CONSTANTS

    @property
    def name(self) -> str:
        """The file's name."""
        path = self.path if self.path.startswith("/") else self.path.partition("::")[0]
        return path.rpartition("/")[2]
