"""The steps of a run for a comparison: operators in order of execution, each with its inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tensight.analysis.recorded_statistics import BOUNDED
from tensight.analysis.statistics_table import KNOWN, RECORDED, STATISTICS
from tensight.dumps import read_tensor
from tensight.errors import TensightError
from tensight.graph.layer_node import READS_UNSEEN
from tensight.graph.operator_facts import VIEWS, normalizes, plain_type
from tensight.graph.optimizers import (
    OPTIMIZER_SIGNATURES,
    is_gathered,
    is_gradient_scope,
    is_optimizer,
    parameter_roles,
)
from tensight.tensors.elements import doubles_of, element_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tensight.analysis import Analysis
    from tensight.graph import Graph, Node

NO_ROW = -1
"""Used instead of a row if nothing is known about the tensor."""


class Phase(Enum):
    """The part of a training step in which an operator runs."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor that an operator read or wrote.

    Attributes
    ----------
    name : str
        Name of the node that produced it.
    index : int
        Index of the node's output.
    row : int
        Row of the run's statistics; `NO_ROW` if nothing is known.
    is_parameter : bool
        Whether the node is a parameter, an optimizer state or an input of the network.
    """

    name: str
    index: int
    row: int
    is_parameter: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operator or module call of a step.

    Attributes
    ----------
    node : Node
    phase : Phase
    position : int
        Position in the step's order of execution, from 0.
    inputs, outputs : tuple of Slot
        Tensors that it read and wrote. An optimizer without outputs has the parameters and states that it wrote.
    written_beforehand : tuple of str
        Parameters that it writes to in place, outside of an optimizer, such as those that it clamps.
    """

    node: Node
    phase: Phase
    position: int
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    written_beforehand: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Full name of the node."""
        return self.node.name

    @property
    def type(self) -> str:
        """Type of the operator."""
        return self.node.type


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a rank.

    Attributes
    ----------
    iteration : int
        From 0.
    graphs : tuple of str
        Names of the graphs that ran.
    operations : tuple of Operation
        In order of execution.
    weights : mapping of str to int
        Row of each parameter as it was before the step.
    data : mapping of str to int
        Row of each input of the network.
    unseen : mapping of str to int
        Row of each value that operators of the step read and that unobserved code, or an earlier step, has computed.
    """

    iteration: int
    graphs: tuple[str, ...]
    operations: tuple[Operation, ...]
    weights: Mapping[str, int]
    data: Mapping[str, int]
    unseen: Mapping[str, int] = field(default_factory=dict)


class RunToCompare:
    """One rank of a run, opened for comparison.

    Parameters
    ----------
    analysis : Analysis
        A dump, a recording or a trace.
    rank : int
    """

    def __init__(self, analysis: Analysis, rank: int) -> None:
        self.analysis = analysis
        self.rank = rank
        self.table = analysis.statistics()
        self._rows: dict[int, list[int]] = {}
        for row, file in enumerate(self.table.files):
            if file.rank == rank and file.node is not None:
                self._rows.setdefault(file.iteration, []).append(row)

    @cached_property
    def iterations(self) -> tuple[int, ...]:
        """Iterations with at least one operator, in increasing order."""
        files = self.table.files
        return tuple(
            iteration
            for iteration, rows in sorted(self._rows.items())
            if iteration >= 0 and any(files[row].op_type not in ("Parameter", "Const") for row in rows)
        )

    def step(self, iteration: int) -> Step:
        """Return one step.

        Parameters
        ----------
        iteration : int
            One of `iterations`.
        """
        return _StepReader(self, iteration).read()

    def rows_at(self, iteration: int) -> Sequence[int]:
        """Return the rows of an iteration; iteration -1 is the state before the first."""
        return self._rows.get(iteration, ())

    def is_known(self, row: int) -> bool:
        """Return whether a row has statistics to compare."""
        return row != NO_ROW and int(self.table.rows["state"][row]) in (KNOWN, RECORDED)

    def shape(self, row: int) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self.table.shapes[row]

    def dtype(self, row: int) -> str:
        """Return the element type of a tensor as NumPy names it."""
        return self.table.dtypes[row]

    def has_values(self, row: int) -> bool:
        """Return whether the elements of a tensor can be read."""
        return row != NO_ROW and row < self.table.with_values and int(self.table.rows["state"][row]) == KNOWN

    def values(self, row: int) -> NDArray[Any] | None:
        """Return the elements of a tensor as float64 (complex: magnitudes); None if they cannot be read."""
        if not self.has_values(row):
            return None
        try:
            array = read_tensor(self.table.files[row])
        except TensightError:
            return None
        return doubles_of(array.reshape(-1), element_type(array.dtype)).reshape(array.shape)

    def statistics(self, row: int) -> dict[str, float]:
        """Return the statistics of a row by name."""
        record = self.table.rows[row]
        return {name: float(record[name]) for name in STATISTICS if name != "content_hash"}

    def bounds(self, row: int) -> dict[str, tuple[float, float]]:
        """Return the lower and upper bound of each statistic of a row; NaN where there is none."""
        return {name: (float(low[row]), float(high[row])) for name, (low, high) in self._bounds.items()}

    @cached_property
    def _bounds(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        return {name: self.table.bounds(name) for name in BOUNDED if name != "non_finite_count"}

    def content_hash(self, row: int) -> int:
        """Return the hash of the elements; 0 if none was computed."""
        return int(self.table.rows["content_hash"][row]) if int(self.table.rows["state"][row]) == KNOWN else 0

    @cached_property
    def graphs(self) -> Mapping[str, Graph]:
        """The graphs of the rank by name."""
        return {graph.name: graph for graph in self.analysis.dump.graphs(self.rank)}

    @cached_property
    def trained(self) -> frozenset[str]:
        """Parameters that an optimizer writes, and their optimizer states; also those that are frozen later."""
        names: set[str] = set()
        for graph in self.graphs.values():
            roles = parameter_roles(graph)
            gradients = {accumulated_parameter(node) for node in graph.operators}
            once = gradients | {state.partition(".")[2] for state in roles.states}
            names |= roles.trainable | roles.states
            names |= {node.name for node in graph.parameters if node.name in once}
        return frozenset(names)

    @cached_property
    def states(self) -> frozenset[str]:
        """Optimizer states."""
        return frozenset().union(*(parameter_roles(graph).states for graph in self.graphs.values()))

    @cached_property
    def states_of(self) -> Mapping[str, Sequence[str]]:
        """Names of the optimizer states of each weight."""
        states: dict[str, list[str]] = {}
        for name in sorted(self.states):
            states.setdefault(name.partition(".")[2], []).append(name)
        return states

    def rows_of(self, name: str, iteration: int) -> Iterator[int]:
        """Yield the known rows of a parameter after each step up to an iteration."""
        rows = (self.after(step).get(name, NO_ROW) for step in self.iterations if step <= iteration)
        yield from filter(self.is_known, rows)

    def was_made_before(self, iteration: int, row: int) -> bool:
        """Return whether an operator of an earlier step made the content of a row: a state of the script, not data."""
        return self._made_first.get(self.content_hash(row), iteration) < iteration

    @cached_property
    def _made_first(self) -> Mapping[int, int]:
        """The first iteration in which an operator made a content, by its hash."""
        files = self.table.files
        first: dict[int, int] = {}
        for step in self.iterations:
            for row in self._rows[step]:
                if files[row].io == "output" and files[row].op_type != "Parameter" and (made := self.content_hash(row)):
                    first.setdefault(made, step)
        return first

    def before(self, iteration: int) -> Mapping[str, int]:
        """Return the row of each parameter after the previous iteration; empty if that was not recorded."""
        return self.after(iteration - 1)

    def after(self, iteration: int) -> Mapping[str, int]:
        """Return the row of each parameter after an iteration."""
        files = self.table.files
        return {
            str(files[row].node): row
            for row in self._rows.get(iteration, ())
            if files[row].op_type == "Parameter" and files[row].io == "output"
        }


class _StepReader:
    """Reads one step of a run."""

    def __init__(self, run: RunToCompare, iteration: int) -> None:
        self._run, self._iteration = run, iteration
        self._before = run.before(iteration)
        self._outputs: dict[tuple[str, str], dict[int, int]] = {}
        self._inputs: dict[tuple[str, str], dict[int, int]] = {}
        self._names: dict[str, dict[str, None]] = {}
        self._first_reads: dict[str, dict[str, int]] = {}
        for row in run.rows_at(iteration):
            file = run.table.files[row]
            side = self._outputs if file.io == "output" else self._inputs
            key = (file.graph, str(file.node))
            side.setdefault(key, {})[file.slot] = row
            self._names.setdefault(file.graph, {})[str(file.node)] = None

    def read(self) -> Step:
        """Return the step."""
        dump, rank = self._run.analysis.dump, self._run.rank
        nodes = [
            (dump.node_position(rank, node), name, graph, node)
            for name, graph in self._run.graphs.items()
            if name in self._names
            for node in self._ran(graph)
        ]
        nodes.sort(key=lambda entry: (entry[0], entry[1], entry[3].name))
        phases = [phase_of(node) for *_, node in nodes]
        computing = (
            index
            for index, phase in enumerate(phases)
            if phase is Phase.BACKWARD and nodes[index][3].type != "AccumulateGrad"
        )
        last = max(computing, default=len(phases))
        # Operators between the backward pass and the update, such as clipping, belong to the update. The gradients of
        # weights are those that the update reads.
        phases[last:] = [Phase.UPDATE if phase is Phase.FORWARD else phase for phase in phases[last:]]
        operations = [
            Operation(
                node,
                phases[index],
                index,
                tuple(self._read_by(graph, node)),
                tuple(self._written(graph, node)),
                tuple(self._written_in_place(graph, node)),
            )
            for index, (_, _, graph, node) in enumerate(nodes)
        ]
        graphs = tuple(sorted(self._names))
        data = self._data(graphs)
        unseen = {name: row for name, row in data.items() if self._may_be_computed(graphs, name, row)}
        data = {name: row for name, row in data.items() if name not in unseen}
        return Step(self._iteration, graphs, tuple(operations), self._weights(graphs), data, unseen)

    def _may_be_computed(self, graphs: Iterable[str], name: str, row: int) -> bool:
        if self._run.was_made_before(self._iteration, row):
            return True
        nodes = (self._run.graphs[graph_name].get(name) for graph_name in graphs if graph_name in self._run.graphs)
        return any(node is not None and node.attributes.get(READS_UNSEEN) for node in nodes)

    def _ran(self, graph: Graph) -> Iterator[Node]:
        for node in graph.operators:
            key = (graph.name, node.name)
            has_row = key in self._outputs or key in self._inputs
            if has_row or (is_optimizer(node) and any(slot.row != NO_ROW for slot in self._written(graph, node))):
                yield node

    def _written(self, graph: Graph, node: Node) -> Iterator[Slot]:
        output_rows = self._outputs.get((graph.name, node.name), {})
        if is_optimizer(node) and not output_rows:
            # The outputs are the parameters and states that the optimizer wrote.
            signature = OPTIMIZER_SIGNATURES.get(node.type)
            for index, producer in enumerate(graph.flat_producers(node)):
                if producer is None or not producer[0].is_parameter:
                    continue
                name = producer[0].name
                if name in self._run.trained if signature is None else index in signature.variables + signature.states:
                    yield Slot(name, 0, self._after(graph, name), is_parameter=True)
            return
        for index in sorted(output_rows):
            yield Slot(node.name, index, output_rows[index])
        may_gather = node.type[:1].isupper() or node.type.endswith("_") or normalizes(node.type)
        if phase_of(node) is Phase.FORWARD and may_gather:
            # Running means and variances are outputs of a normalisation, too.
            for producer in graph.flat_producers(node):
                if producer is not None and producer[0].is_parameter and is_gathered(producer[0].name):
                    yield Slot(producer[0].name, 0, self._after(graph, producer[0].name), is_parameter=True)

    def _written_in_place(self, graph: Graph, node: Node) -> Iterator[str]:
        """Yield the parameters that an operator outside of optimizers writes to in place, also through views of them.

        PyTorch's operators in place end with an underscore, and have an output for each input that they write to.
        """
        if not node.type.endswith("_") or phase_of(node) is not Phase.FORWARD:
            return
        outputs = len(self._outputs.get((graph.name, node.name), {}))
        for producer in list(graph.flat_producers(node))[:outputs]:
            source = None if producer is None else producer[0]
            while source is not None and source.is_operator and plain_type(source.type) in VIEWS:
                producers = list(graph.flat_producers(source))
                source = producers[0][0] if producers and producers[0] is not None else None
            if source is not None and source.is_parameter:
                yield source.name

    def _read_by(self, graph: Graph, node: Node) -> Iterator[Slot]:
        input_rows = self._inputs.get((graph.name, node.name), {})
        writes = is_optimizer(node)
        in_place = set(self._written_in_place(graph, node))
        for index, producer in enumerate(graph.flat_producers(node)):
            if producer is None:
                continue
            source, slot = producer
            if source.name in in_place and source.name in self._before:
                # What the step reads is what this operator leaves behind.
                yield Slot(source.name, 0, self._before[source.name], is_parameter=True)
            elif source.is_parameter:
                yield Slot(source.name, 0, self._before_row(graph, source), is_parameter=True)
            elif index in input_rows and not writes:
                yield Slot(source.name, slot, input_rows[index])
            elif source.is_operator:
                yield Slot(source.name, slot, self._outputs.get((graph.name, source.name), {}).get(slot, NO_ROW))

    def _after(self, graph: Graph, name: str) -> int:
        return self._outputs.get((graph.name, name), {}).get(0, NO_ROW)

    def _before_row(self, graph: Graph, parameter: Node) -> int:
        """Return the row of a parameter as the step read it: most dumps record it as the step left it."""
        name = parameter.name
        if self._run.analysis.dump.metadata.is_as_read:
            row = self._after(graph, name)
            return row if row != NO_ROW else self._first_read(graph, parameter)
        read = self._inputs.get((graph.name, name), {}).get(0)
        if read is not None:
            return read
        if name not in self._run.trained and not is_gathered(name):
            row = self._after(graph, name)
            return row if row != NO_ROW else self._before.get(name, NO_ROW)
        if name in self._before:
            return self._before[name]
        # Without the previous step, the value is that which an operator read.
        return self._first_read(graph, parameter)

    def _first_read(self, graph: Graph, parameter: Node) -> int:
        """Return the row of a parameter as the first operator read it, not counting optimizers; `NO_ROW` if none."""
        if graph.name not in self._first_reads:
            self._first_reads[graph.name] = self._reads_of_parameters(graph)
        return self._first_reads[graph.name].get(parameter.name, NO_ROW)

    def _reads_of_parameters(self, graph: Graph) -> dict[str, int]:
        """Return the row of each parameter as the first operator read it, not counting optimizers."""
        reads: dict[str, int] = {}
        for reader in graph.operators:
            input_rows = self._inputs.get((graph.name, reader.name))
            if input_rows is None or is_optimizer(reader):
                continue
            for index, producer in enumerate(graph.flat_producers(reader)):
                if producer is not None and producer[0].is_parameter and index in input_rows:
                    reads.setdefault(producer[0].name, input_rows[index])
        return reads

    def _weights(self, graphs: Iterable[str]) -> Mapping[str, int]:
        rows: dict[str, int] = {}
        for name in graphs:
            graph = self._run.graphs.get(name)
            for parameter in () if graph is None else graph.parameters:
                if graph is not None and not is_data(parameter, self._run.trained):
                    row = self._before_row(graph, parameter)
                    if row != NO_ROW:
                        rows.setdefault(parameter.name, row)
        return rows

    def _data(self, graphs: Iterable[str]) -> Mapping[str, int]:
        rows: dict[str, int] = {}
        for name in graphs:
            graph = self._run.graphs.get(name)
            for parameter in () if graph is None else graph.parameters:
                if graph is not None and is_data(parameter, self._run.trained):
                    row = self._before_row(graph, parameter)
                    if row != NO_ROW:
                        rows.setdefault(parameter.name, row)
        return rows


def phase_of(node: Node) -> Phase:
    """Return the part of a step in which an operator runs."""
    if is_optimizer(node):
        return Phase.UPDATE
    return Phase.BACKWARD if is_gradient_scope(node.name) else Phase.FORWARD


def is_data(parameter: Node, trained: frozenset[str]) -> bool:
    """Return whether a parameter is an input of the network: not trained, and a name without dots."""
    return parameter.is_parameter and "." not in parameter.name and parameter.name not in trained


def scope_in_program(scope: str) -> tuple[str, str]:
    """Split a scope into the prefix that every run has (``Gradients/Default/``) and the module's path."""
    lead = ""
    for word in ("Gradients/", "Optimizer/", "Default/"):
        if scope.startswith(word):
            lead, scope = lead + word, scope[len(word) :]
    return lead, scope


def accumulated_parameter(node: Node) -> str | None:
    """Return the parameter whose gradient an operator accumulates; None for all other operators."""
    return scope_in_program(node.scope)[1].replace("/", ".") if node.type == "AccumulateGrad" else None
