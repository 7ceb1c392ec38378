"""Where an anomaly was born: the first operator whose output shows it while its inputs do not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tensight.analysis.anomalies import EXPLOSION_LIMIT, NON_FINITE, Anomaly, InputState, Shown, shown
from tensight.errors import InputError
from tensight.graph import Node, SourceFrame, TensorAddress
from tensight.graph.optimizers import OPTIMIZER_SIGNATURES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensight.analysis.analysis import Analysis
    from tensight.analysis.statistics_table import StatisticsTable
    from tensight.dumps import Dump
    from tensight.graph import Graph

ZERO_MAKERS = frozenset({"ZerosLike", "Zeros", "Fill", "FillV2", "DropoutGenMask", "TensorShape", "Shape", "OneHot"})
"""Operators whose zeros are what they were asked for."""


@dataclass(frozen=True, slots=True)
class OriginInput:
    """One input of the operator where an anomaly began.

    Attributes
    ----------
    index : int
        Position among the operator's inputs.
    source : str
        Name of the node that produced it.
    state : InputState
        Whether it shows the anomaly.
    row : int
        Row of the statistics table that was looked at, -1 when none was dumped.
    """

    index: int
    source: str
    state: InputState
    row: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an anomaly began on one rank.

    Attributes
    ----------
    anomaly : Anomaly
        What began.
    address : TensorAddress
        The first output that shows it.
    op_type : str
        Type of the operator; "Parameter" when the anomaly came from outside the step.
    frames : tuple of SourceFrame
        The operator's stack, innermost frame first as MindSpore wrote it.
    inputs : tuple of OriginInput
        The operator's inputs.
    row : int
        Row of the first output in the statistics table.
    position : int
        Where the output stands in the order of execution.
    candidates : tuple of str
        Empty when the origin is certain. Else the nodes where it may have begun: this one, and producers whose
        values were not dumped, or of which too little was recorded to tell.
    arrived : bool
        True when the node only carries the anomaly in: a network input, or a weight from the previous iteration.
    also : tuple of str
        Other nodes where the same anomaly began independently in the same iteration, in execution order.
    """

    anomaly: Anomaly
    address: TensorAddress
    op_type: str
    frames: tuple[SourceFrame, ...]
    inputs: tuple[OriginInput, ...]
    row: int
    position: int
    candidates: tuple[str, ...]
    arrived: bool
    also: tuple[str, ...]

    @property
    def certain(self) -> bool:
        """Whether what is known of all inputs rules out that they show the anomaly."""
        return not self.candidates

    @property
    def user_frame(self) -> SourceFrame | None:
        """The frame most likely to be the person's own code."""
        return user_frame(self.frames)

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        where = f"iteration {self.address.iteration} in {self.address.node}"
        if self.arrived:
            return f"{self.anomaly.words} came in at {where}, which no operator of this step computed"
        if self.certain:
            return f"{self.anomaly.words} began at {where} ({self.anomaly.absent} went in)"
        if any(entry.state is InputState.NOT_DUMPED for entry in self.inputs):
            return f"{self.anomaly.words} was first seen at {where}; not all of its inputs were dumped"
        return f"{self.anomaly.words} was first seen at {where}; what was recorded of its inputs leaves it open"


def user_frame(frames: Sequence[SourceFrame]) -> SourceFrame | None:
    """Return the frame most likely to be the person's own code: the innermost outside of an installed package.

    Parameters
    ----------
    frames : sequence of SourceFrame
        A node's stack, innermost frame first.
    """
    located = [frame for frame in frames if frame.file]
    own = [frame for frame in located if "site-packages" not in frame.file and "dist-packages" not in frame.file]
    return next(iter(own or located), None)


def origins(
    analysis: Analysis,
    anomalies: Sequence[Anomaly] = (Anomaly.NAN, Anomaly.INF, Anomaly.EXPLOSION, Anomaly.ALL_ZERO),
    *,
    ranks: Sequence[int] | None = None,
    explosion_limit: float = EXPLOSION_LIMIT,
) -> list[Origin]:
    """Find where anomalies began.

    Parameters
    ----------
    analysis : Analysis
        The dump to look at.
    anomalies : sequence of Anomaly
        Which kinds to look for.
    ranks : sequence of int, optional
        Which ranks; all by default.
    explosion_limit : float
        Finite values whose magnitude is above this count as an explosion.

    Returns
    -------
    list of Origin
        At most one for each kind and rank: the first in iteration and execution order, certain ones first. NaN and Inf
        come first, the earlier of the two before the other.

    Raises
    ------
    InputError
        If the limit is not a positive number.
    """
    if not explosion_limit > 0:
        raise InputError(f"the explosion limit must be a positive number, not {explosion_limit}")
    table = analysis.statistics()
    steps = _Steps(analysis.dump, table)
    found = []
    for anomaly in anomalies:
        shows = shown(anomaly, table, explosion_limit)
        if anomaly is Anomaly.OVERFLOW:
            # What the device reported is about the operator, so about what it put out, even if that looks finite.
            put_out = np.fromiter((file.io == "output" for file in table.files), np.bool_, len(table.files))
            shows = replace(shows, certainly=shows.certainly | (analysis.overflowed() & put_out))
        for rank in analysis.dump.ranks if ranks is None else ranks:
            origin = _first_origin(anomaly, shows, steps.that_show(shows, rank))
            if origin is not None:
                found.append(origin)
    return sorted(found, key=_urgency)


def undecided(
    analysis: Analysis,
    anomalies: Sequence[Anomaly],
    *,
    ranks: Sequence[int] | None = None,
    explosion_limit: float = EXPLOSION_LIMIT,
) -> dict[Anomaly, int]:
    """Count the tensors of which only statistics were recorded that do not tell whether they show an anomaly.

    Parameters
    ----------
    analysis, anomalies, ranks, explosion_limit
        As for `origins`.

    Returns
    -------
    dict of Anomaly to int
        Without the anomalies that all tensors decide.
    """
    table = analysis.statistics()
    wanted = np.fromiter((ranks is None or file.rank in ranks for file in table.files), np.bool_, len(table.files))
    amounts = {
        anomaly: int(np.count_nonzero(shown(anomaly, table, explosion_limit).perhaps & wanted)) for anomaly in anomalies
    }
    return {anomaly: amount for anomaly, amount in amounts.items() if amount}


def _urgency(origin: Origin) -> tuple[object, ...]:
    kinds = list(Anomaly)
    group = 0 if origin.anomaly in NON_FINITE else kinds.index(origin.anomaly)
    return (group, origin.address.rank, origin.address.iteration, origin.position, kinds.index(origin.anomaly))


def _first_origin(anomaly: Anomaly, shows: Shown, steps: Iterator[_Step]) -> Origin | None:
    """Return the origin in the first iteration of a rank in which a node brings the anomaly into the world."""
    for step in steps:
        births = [birth for node in step.nodes if (birth := _birth(anomaly, shows, step, node)) is not None]
        births.sort(key=lambda birth: bool(birth.candidates))
        if births:
            first = births[0]
            also = tuple(birth.node.name for birth in births[1:])
            return Origin(
                anomaly=anomaly,
                address=TensorAddress(step.rank, step.graph.name, first.node.name, first.slot, step.iteration),
                op_type=first.node.type,
                frames=first.node.frames,
                inputs=first.inputs,
                row=first.row,
                position=step.position(first.row),
                candidates=first.candidates,
                arrived=not first.node.is_operator,
                also=also,
            )
    return None


@dataclass(frozen=True, slots=True)
class _Birth:
    node: Node
    slot: int
    row: int
    inputs: tuple[OriginInput, ...]
    candidates: tuple[str, ...]


def _birth(anomaly: Anomaly, shows: Shown, step: _Step, node: Node) -> _Birth | None:
    """Return how the anomaly began at a node, None if the node does not show it or only passes it on."""
    if anomaly is Anomaly.ALL_ZERO and (node.type in ZERO_MAKERS or not node.is_operator):
        # Biases and optimizer states start at zero.
        return None
    outputs = [(slot, row) for slot, row in step.outputs(node) if shows.certainly[row]]
    if not outputs:
        return None
    slot, row = outputs[0]
    inputs = tuple(step.inputs(node, shows))
    if anomaly is Anomaly.ALL_ZERO:
        inputs = tuple(entry for entry in inputs if not step.is_small_parameter(entry.source))
    if any(entry.state is InputState.SHOWS_IT for entry in inputs):
        return None
    hidden = [entry.source for entry in inputs if entry.state is not InputState.CLEAN]
    candidates = tuple(dict.fromkeys([node.name, *step.hidden_upstream(hidden, shows)])) if hidden else ()
    return _Birth(node, slot, row, inputs, candidates)


class _Steps:
    """The iterations of a dump, each with the rows of its tensors."""

    def __init__(self, dump: Dump, table: StatisticsTable) -> None:
        self._dump = dump
        self._table = table
        self._rows: dict[tuple[int, int, int], list[int]] = {}
        for row, file in enumerate(table.files):
            if file.node is not None:
                self._rows.setdefault((file.rank, file.iteration, file.graph_id), []).append(row)

    def that_show(self, shows: Shown, rank: int) -> Iterator[_Step]:
        """Yield the graph executions of a rank with a tensor that shows the anomaly, in the order of time."""
        before: dict[str, int] = {}
        for key in sorted(key for key in self._rows if key[0] == rank and key[1] >= 0):
            rows = self._rows[key]
            if shows.certainly[rows].any():
                for graph in self._graphs(rows):
                    yield _Step(self._dump, self._table, graph, rows, dict(before))
            before.update(
                (file.node, row)
                for row in rows
                if (file := self._table.files[row]).op_type == "Parameter" and file.node is not None
            )

    def _graphs(self, rows: Sequence[int]) -> list[Graph]:
        """Return the graphs (a root graph and its sub-graphs) that tensors of one execution belong to."""
        graphs = {}
        for row in rows:
            graph = self._dump.graph_of(self._table.files[row])
            if graph is not None:
                graphs[graph.name] = graph
        return [graphs[name] for name in sorted(graphs)]


class _Step:
    """One execution of a graph: which row of the table holds the value of which slot."""

    def __init__(
        self, dump: Dump, table: StatisticsTable, graph: Graph, rows: Sequence[int], parameters_before: dict[str, int]
    ) -> None:
        files = table.files
        self._dump = dump
        self.graph = graph
        self.rank, self.iteration = files[rows[0]].rank, files[rows[0]].iteration
        self._hashes = table.rows["content_hash"]
        self._before = parameters_before
        self._position = {row: dump.execution_position(files[row]) for row in rows}
        self._outputs: dict[str, dict[int, int]] = {}
        self._inputs: dict[str, dict[int, int]] = {}
        for row in rows:
            file = files[row]
            if file.graph == graph.name and file.node is not None:
                side = self._outputs if file.io == "output" else self._inputs
                side.setdefault(file.node, {})[file.slot] = row

    @cached_property
    def nodes(self) -> list[Node]:
        """Nodes with a value in this step: what comes in from outside first, then operators as they were executed."""
        seen = [node for name in {*self._outputs, *self._inputs} if (node := self.graph.get(name)) is not None]
        # A parameter's own file holds its value after the update: what it was before is seen by its consumers.
        outside = [node for node in self.graph.nodes if not node.is_operator and self._outside_row(node) is not None]
        operators = [node for node in seen if node.is_operator]
        return outside + sorted(operators, key=lambda node: (self._order(node), node.name))

    def _order(self, node: Node) -> int:
        return self._dump.node_position(self.rank, node)

    def position(self, row: int) -> int:
        """Return where a tensor stands in the order of execution."""
        return self._position[row]

    def outputs(self, node: Node) -> list[tuple[int, int]]:
        """Return slot and row of a node's outputs; a consumer's input stands in for an output not dumped."""
        if not node.is_operator:
            row = self._outside_row(node)
            return [] if row is None else [(0, row)]
        found = dict(self._outputs.get(node.name, {}))
        for slot in range(len(node.outputs)):
            if slot not in found and (row := self._seen_by_consumer(node, slot)) is not None:
                found[slot] = row
        return sorted(found.items())

    def inputs(self, node: Node, shows: Shown) -> Iterator[OriginInput]:
        """Yield the state of each data input of an operator, before the operator ran."""
        if not node.is_operator:
            return
        for index, producer in enumerate(self.graph.flat_producers(node)):
            if producer is None:
                continue
            source, slot = producer
            row = self._input_row(node, index, source, slot)
            if row is None:
                yield OriginInput(index, source.name, InputState.NOT_DUMPED, -1)
            else:
                yield OriginInput(index, source.name, shows.state(row), row)

    def is_small_parameter(self, name: str) -> bool:
        """Return whether a node is a bias or a setting: its zeros are added to something, or are meant."""
        node = self.graph.get(name)
        shape = node.outputs[0].shape if node is not None and node.outputs else None
        return node is not None and node.is_parameter and shape is not None and len(shape) <= 1

    def hidden_upstream(self, names: Sequence[str], shows: Shown) -> list[str]:
        """Return the producers that may hide the origin: those not known well enough, and what feeds them unseen."""
        hidden: dict[str, None] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop(0)
            if name in hidden or (node := self.graph.get(name)) is None:
                continue
            hidden[name] = None
            for index, producer in enumerate(self.graph.flat_producers(node) if node.is_operator else ()):
                row = self._input_row(node, index, *producer) if producer is not None else None
                if producer is not None and (row is None or shows.perhaps[row]):
                    waiting.append(producer[0].name)
        return list(hidden)

    def _input_row(self, node: Node, index: int, source: Node, slot: int) -> int | None:
        own = self._inputs.get(node.name, {}).get(index)
        if own is not None and not (source.is_parameter and self._updated_in_place(node, index, own)):
            return own
        if source.is_parameter:
            # The file shows the value after an in-place update; what went in is what was there before.
            return self._outside_row(source, before=self._order(node))
        if own is not None:
            return own
        produced = self._outputs.get(source.name, {}).get(slot)
        return produced if produced is not None else self._seen_by_consumer(source, slot)

    def _updated_in_place(self, node: Node, index: int, row: int) -> bool:
        """Return whether an operator writes to one of its inputs: the file then shows what it wrote."""
        signature = OPTIMIZER_SIGNATURES.get(node.type)
        if signature is not None:
            return index in (*signature.variables, *signature.states)
        outputs = self._outputs.get(node.name, {})
        return any(self._hashes[row] == self._hashes[output] for output in outputs.values())

    def _outside_row(self, node: Node, before: int | None = None) -> int | None:
        """Return the row that shows a parameter or constant as it was when the step began."""
        for consumer, index in self._direct_consumers(node):
            row = self._inputs.get(consumer.name, {}).get(index)
            early = before is None or (row is not None and self._position[row] < before)
            if row is not None and early and not self._updated_in_place(consumer, index, row):
                return row
        if node.name in self._before:
            return self._before[node.name]
        return None if node.name in self._updated else self._outputs.get(node.name, {}).get(0)

    @cached_property
    def _updated(self) -> frozenset[str]:
        """Parameters that an operator of this step wrote to."""
        return frozenset(
            source.name
            for name, inputs in self._inputs.items()
            if (node := self.graph.get(name)) is not None
            for index, producer in enumerate(self.graph.flat_producers(node))
            if producer is not None
            and (source := producer[0]).is_parameter
            and index in inputs
            and self._updated_in_place(node, index, inputs[index])
        )

    def _seen_by_consumer(self, node: Node, slot: int) -> int | None:
        for consumer, index in self._direct_consumers(node, slot):
            row = self._inputs.get(consumer.name, {}).get(index)
            if row is not None:
                return row
        return None

    def _direct_consumers(self, node: Node, slot: int = 0) -> Iterator[tuple[Node, int]]:
        """Yield the operators that read a slot, and at which input, looking through virtual nodes."""
        yield from self._readers.get((node.name, slot), ())

    @cached_property
    def _readers(self) -> dict[tuple[str, int], list[tuple[Node, int]]]:
        readers: dict[tuple[str, int], list[tuple[Node, int]]] = {}
        for node in self.graph.operators:
            if node.name in self._inputs:
                for index, producer in enumerate(self.graph.flat_producers(node)):
                    if producer is not None:
                        readers.setdefault((producer[0].name, producer[1]), []).append((node, index))
        for found in readers.values():
            found.sort(key=lambda reader: self._order(reader[0]))
        return readers
