"""Observations of each step of a run: the row of statistics for each slot of each node.

Dumps and running trainings provide the same: rows, graphs, and the order of execution.
"""

from __future__ import annotations

from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from tensight.analysis.anomalies import NON_FINITE, Anomaly, InputState
from tensight.analysis.constants import is_clean
from tensight.analysis.given_values import GivenValues
from tensight.analysis.left_out import LeftOut
from tensight.analysis.statistics_table import STATISTICS
from tensight.graph.operator_facts import SAME_VALUES, WITHOUT_RESULTS, may_write_inputs, plain_type
from tensight.graph.optimizers import OPTIMIZER_SIGNATURES, is_gathered, is_optimizer, parameter_roles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tensight.analysis.anomalies import Shown
    from tensight.analysis.observations import Observations
    from tensight.graph import Graph, Node
    from tensight.graph.declared import Given, GivenSource

_COMPARED = tuple(name for name in STATISTICS if name != "content_hash")
_LONGEST_CHAIN = 16
_NOT_KNOWN = (InputState.NOT_DUMPED, InputState.NOT_RECORDED)


class ObservedSteps:
    """The iterations of a run, each with the rows of its tensors.

    Parameters
    ----------
    observed : Observations
    """

    def __init__(self, observed: Observations) -> None:
        self._observed = observed
        self._left_out = LeftOut(observed)
        self._rows: dict[tuple[int, int, int], list[int]] = {}
        for row, tensor in enumerate(observed.tensors):
            if tensor.node is not None:
                self._rows.setdefault((tensor.rank, tensor.iteration, tensor.graph_id), []).append(row)

    def that_show(self, shows: Shown, rank: int, since: int = 0) -> Iterator[ObservedStep]:
        """Yield the graph executions of a rank with a row that shows an anomaly, in chronological order."""
        before: dict[str, int] = {}
        keys = sorted((key for key in self._rows if key[0] == rank), key=lambda key: key[1])
        for iteration, group in groupby(keys, key=lambda key: key[1]):
            ran = list(group)
            if len(ran) > 1:
                ran.sort(key=lambda key: (self._began(key), key))
            is_yielded = iteration >= since and any(shows.certainly[self._rows[key]].any() for key in ran)
            executions: list[ObservedStep] = []
            left: dict[str, int] = {}
            for key in ran:
                rows = self._rows[key]
                if is_yielded:
                    # Rows that several graphs of a call left are recorded when all of them have ended.
                    began = self._began(key) if len(ran) > 1 else 0
                    parameters_before = before | {name: row for name, row in left.items() if self._moment(row) < began}
                    executions += [
                        ObservedStep(self._observed, graph, rows, parameters_before, shows, self._left_out)
                        for graph in self._graphs(rank, rows)
                    ]
                left.update(
                    (tensor.node, row)
                    for row in rows
                    if (tensor := self._observed.tensors[row]).op_type == "Parameter"
                    and tensor.io == "output"
                    and tensor.node is not None
                )
            if not self._observed.is_as_read:
                before.update(left)
            around = GivenValues(self._observed, rank, executions) if len(executions) > 1 else None
            for step in executions:
                step.around = around
                if shows.certainly[step.rows].any():
                    yield step

    def _moment(self, row: int) -> int:
        return self._observed.moments(row)[1]

    def _began(self, key: tuple[int, int, int]) -> int:
        """Return when the first operator of a graph execution had run."""
        tensors = self._observed.tensors
        operators = (row for row in self._rows[key] if tensors[row].op_type != "Parameter")
        return min((self._observed.moments(row)[0] for row in operators), default=0)

    def _graphs(self, rank: int, rows: Sequence[int]) -> list[Graph]:
        """Return the graphs (a root graph and its sub-graphs) that the tensors of an execution belong to."""
        graphs = {}
        for name in sorted({self._observed.tensors[row].graph for row in rows}):
            graph = self._observed.graph(rank, name)
            if graph is not None:
                graphs[name] = graph
        return list(graphs.values())


class ObservedStep:
    """One execution of a graph, with the row for the value of each slot.

    Parameters
    ----------
    observed : Observations
    graph : Graph
    rows : sequence of int
        Rows of the execution, at least one.
    parameters_before : mapping of str to int
        The last row of each parameter before the execution.
    shows : Shown
        The rows that show the anomaly in question.
    left_out : LeftOut
        Determines the nodes whose NaN and Inf have no effect.

    Attributes
    ----------
    graph : Graph
    rows : sequence of int
    rank, iteration : int
    around : GivenValues or None
        All graphs that ran in the same step if there are several; set once all are known.
    """

    def __init__(
        self,
        observed: Observations,
        graph: Graph,
        rows: Sequence[int],
        parameters_before: Mapping[str, int],
        shows: Shown,
        left_out: LeftOut,
    ) -> None:
        tensors = observed.tensors
        self._observed = observed
        self.graph = graph
        self.rows = rows
        self.around: GivenValues[ObservedStep] | None = None
        self.rank, self.iteration = tensors[rows[0]].rank, tensors[rows[0]].iteration
        self._before = parameters_before
        self._shows = shows
        self._left_out = left_out
        self._outputs: dict[str, dict[int, int]] = {}
        self._inputs: dict[str, dict[int, int]] = {}
        for row in rows:
            tensor = tensors[row]
            if tensor.graph == graph.name and tensor.node is not None:
                side = self._outputs if tensor.io == "output" else self._inputs
                side.setdefault(tensor.node, {})[tensor.slot] = row

    @cached_property
    def moments(self) -> tuple[int, int, bool]:
        """Times of the first and the last operator, in any unit, and whether operators ran several times."""
        tensors = self._observed.tensors
        moments = [self._observed.moments(row) for row in self.rows if tensors[row].op_type != "Parameter"]
        first = min((first for first, _ in moments), default=0)
        return first, max((last for _, last in moments), default=0), any(first != last for first, last in moments)

    @cached_property
    def nodes(self) -> list[Node]:
        """Nodes with a value in this step: parameters and constants first, then operators in execution order."""
        names = {*self._outputs, *self._inputs, *self._updates}
        seen = [node for name in names if (node := self.graph.get(name)) is not None]
        # The row of a parameter is its value after the update; its consumers show the value before.
        outside = [node for node in self.graph.nodes if not node.is_operator and self._outside_row(node) is not None]
        operators = [node for node in seen if node.is_operator]
        return outside + sorted(operators, key=lambda node: (self.order(node), node.name))

    @cached_property
    def left_out(self) -> frozenset[str]:
        """Nodes that show the anomaly without an effect on the step, such as missing data or an initial best score."""
        if self._shows.anomaly not in NON_FINITE:
            return frozenset()
        rows = {node.name: tuple(row for *_, row in self.outputs(node)) for node in self.nodes}
        results = (producer for _, producer in self.graph.results) if self.around is not None else ()
        passed_on = {producer[0].name for producer in results if producer is not None}
        return self._left_out.nodes(self.graph, rows, self._before, passed_on)

    @property
    def unseen_before(self) -> tuple[int, int] | None:
        """The first and last of the unobserved iterations that ran directly before, if any."""
        return self._observed.unseen_before(self.rank, self.iteration)

    def order(self, node: Node) -> int:
        """Return the position of a node in the order of execution."""
        return self._observed.position(self.rank, node)

    def when(self, node: Node) -> int:
        """Return the position at which a node has its value; for parameters and constants, before the first read."""
        readers = () if node.is_operator else self._direct_consumers(node)
        return next((self.order(reader) - 1 for reader, _ in readers), self.order(node))

    def was_changed(self, node: Node) -> bool:
        """Return whether a parameter had certainly changed between the end of the previous step and its first read."""
        if node.is_operator or node.is_constant or (_is_data(node) and node.name not in self._updated):
            return False
        row, earlier = self._outside_row(node), self._before.get(node.name)
        if row is None or earlier is None or row == earlier or not self._is_fresh(node, earlier):
            return False
        current, previous = self._observed.rows[row], self._observed.rows[earlier]
        if current["content_hash"] and previous["content_hash"]:
            return bool(current["content_hash"] != previous["content_hash"])
        return any(not np.array_equal(current[name], previous[name], equal_nan=True) for name in _COMPARED)

    def outputs(self, node: Node) -> list[tuple[str, int, int]]:
        """Return name, slot and row of each output of a node.

        For an output without a row, a consumer's input is used; for an optimizer without outputs, the parameters that
        it wrote to.
        """
        if not node.is_operator:
            row = self._outside_row(node)
            return [] if row is None else [(node.name, 0, row)]
        rows = dict(self._outputs.get(node.name, {}))
        for slot in range(len(node.outputs)):
            if slot not in rows and (row := self._seen_by_consumer(node, slot)) is not None:
                rows[slot] = row
        outputs = [(node.name, slot, row) for slot, row in sorted(rows.items())]
        return outputs or [(name, 0, row) for name, row in self._updates.get(node.name, ())]

    def inputs(self, node: Node) -> Iterator[tuple[int, Node, int | None]]:
        """Yield index, producer and row of each data input of an operator, with its value before the operator ran."""
        for index, producer in enumerate(self.graph.flat_producers(node) if node.is_operator else ()):
            if producer is not None:
                source, slot = producer
                yield index, source, self._input_row(node, index, source, slot)

    def is_constant(self, name: str) -> bool:
        """Return whether a node is a constant of the program."""
        node = self.graph.get(name)
        return node is not None and node.is_constant

    def is_small_parameter(self, name: str) -> bool:
        """Return whether a node is a bias or a setting, whose zeros are added to something or intended."""
        node = self.graph.get(name)
        shape = node.outputs[0].shape if node is not None and node.outputs else None
        return node is not None and node.is_parameter and shape is not None and len(shape) <= 1

    def is_kept(self, node: Node) -> bool:
        """Return whether a node is kept by the network but not trained, such as a mask or a table."""
        if node.is_operator or node.name in parameter_roles(self.graph).trainable:
            return False
        return node.is_constant or not _is_data(node)

    def stays_as_it_is(self, node: Node) -> bool:
        """Return whether a node that the network keeps is never written, neither in a step nor from outside."""
        roles = parameter_roles(self.graph)
        if node.is_constant:
            return True
        is_gathered_or_state = node.name in self._updated or node.name in roles.states or is_gathered(node.name)
        return self.is_kept(node) and not is_gathered_or_state and not self.was_changed(node)

    def hidden_upstream(self, names: Sequence[str]) -> list[str]:
        """Return the nodes that may hide the origin, among the given ones and, recursively, their unknown inputs."""
        hidden: dict[str, None] = {}
        waiting, seen = list(names), set()
        while waiting:
            name = waiting.pop(0)
            if name in seen or (node := self.graph.get(name)) is None:
                continue
            seen.add(name)
            given = self._given(node)
            if given is None or not given.is_complete:
                hidden[name] = None
            inputs = self.inputs(node)
            waiting += [source.name for _, source, row in inputs if self.state(source, row) in _NOT_KNOWN]
            for source in self._sources(node):
                if source.graph == self.graph.name:
                    waiting.append(source.node)
                elif self._source_state(source) is not InputState.CLEAN:
                    hidden[source.node] = None
        return list(hidden)

    def state(self, source: Node, row: int | None) -> InputState:
        """Return the state of an input that comes from a node, from its row if there is one."""
        if row is not None:
            return self._shows.state(row)
        given = self._given(source)
        if given is not None and given.is_complete:
            states = {self._source_state(given_source) for given_source in given.sources}
            if len(states) == 1:
                return states.pop()
        clean = is_clean(source, self._shows.anomaly, self._shows.explosion_limit)
        return InputState.CLEAN if clean else InputState.NOT_DUMPED

    def _input_row(self, node: Node, index: int, source: Node, slot: int, passed: int = 0) -> int | None:
        input_row = self._inputs.get(node.name, {}).get(index)
        in_place = input_row is not None and self._updated_in_place(node, index, input_row)
        if input_row is not None and not in_place:
            return input_row
        if source.is_parameter:
            # The row shows the value after an in-place update; the input was the value before.
            row = self._outside_row(source, before=self.order(node))
            return self._given_row(source) if row is None else row
        produced = self._outputs.get(source.name, {}).get(slot)
        if produced is not None or input_row is not None:
            return input_row if produced is None else produced
        seen = self._seen_by_consumer(source, slot)
        if seen is None and plain_type(source.type) in SAME_VALUES and passed < _LONGEST_CHAIN:
            first = next(iter(self.graph.flat_producers(source)), None)
            return None if first is None else self._input_row(source, 0, *first, passed + 1)
        return seen

    def _given(self, node: Node) -> Given | None:
        """Return the possible values of a parameter that was computed elsewhere."""
        if not node.is_parameter:
            return None
        given = self.graph.given.get(node.name)
        return given if given is not None or self.around is None else self.around.of(self.graph, node)

    def _sources(self, node: Node) -> tuple[GivenSource, ...]:
        given = self._given(node)
        return () if given is None else given.sources

    def _given_row(self, node: Node) -> int | None:
        """Return the row of a parameter's only possible value."""
        given = self._given(node)
        if given is None or not given.is_complete or len(given.sources) != 1:
            return None
        return self._source_row(given.sources[0])

    def _step_of(self, source: GivenSource) -> ObservedStep | None:
        if source.graph == self.graph.name:
            return self
        return None if self.around is None else self.around.step(source.graph)

    def _source_row(self, source: GivenSource) -> int | None:
        step = self._step_of(source)
        node = None if step is None else step.graph.get(source.node)
        if step is None or node is None:
            return None
        return next((row for _, slot, row in step.outputs(node) if slot == source.slot), None)

    def _source_state(self, source: GivenSource) -> InputState:
        row = self._source_row(source)
        if row is not None:
            return self._shows.state(row)
        graph = self._observed.graph(self.rank, source.graph)
        node = None if graph is None else graph.get(source.node)
        if node is not None and is_clean(node, self._shows.anomaly, self._shows.explosion_limit):
            return InputState.CLEAN
        return InputState.NOT_DUMPED

    def _updated_in_place(self, node: Node, index: int, row: int) -> bool:
        """Return whether an operator writes to one of its inputs, so that the row shows the written value."""
        if self._observed.is_as_read:
            return False
        signature = OPTIMIZER_SIGNATURES.get(node.type)
        if signature is not None:
            return index in (*signature.variables, *signature.states)
        if plain_type(node.type) in SAME_VALUES:
            return False
        outputs, hashes = self._outputs.get(node.name, {}), self._observed.rows["content_hash"]
        return bool(hashes[row]) and any(hashes[row] == hashes[output] for output in outputs.values())

    def _outside_row(self, node: Node, before: int | None = None) -> int | None:
        """Return the row of a parameter or constant with the value read by the step, or by the operator at `before`."""
        parameter_row = self._outputs.get(node.name, {}).get(0)
        if self._observed.is_as_read and parameter_row is not None:
            return parameter_row
        writers = [reader for reader, index in self._direct_consumers(node) if index == 0 and _writes(reader)]
        for writer in reversed(writers):
            if before is not None and self.order(writer) < before:
                return self._outputs.get(writer.name, {}).get(0)
        read = self._row_that_was_read(node, before, is_written=bool(writers))
        return self._row_that_was_left(node, parameter_row, is_written=bool(writers)) if read is None else read

    def _row_that_was_read(self, node: Node, before: int | None, *, is_written: bool) -> int | None:
        """Return the row of a parameter or constant as an input, if the value was observed when it was read."""
        read = self._inputs.get(node.name, {}).get(0)
        if read is not None and not is_written:
            return read
        for consumer, index in self._direct_consumers(node):
            row = self._inputs.get(consumer.name, {}).get(index)
            early = before is None or (row is not None and self.order(consumer) < before)
            if row is not None and early and not self._updated_in_place(consumer, index, row):
                return row
        return None

    def _row_that_was_left(self, node: Node, parameter_row: int | None, *, is_written: bool) -> int | None:
        """Return the row that this or an earlier step left, if it is the value that this step read."""
        earlier = self._before.get(node.name)
        if _is_data(node) and node.name not in self._updated and (parameter_row is not None or not node.is_constant):
            # Data differ in each step.
            return parameter_row
        if earlier is not None and self._shows.certainly[earlier]:
            return earlier
        is_fresh = earlier is not None and self._is_fresh(node, earlier)
        # An update never removes an anomaly, except zeros. A value without one may have received it in the update, or
        # before it was read.
        stays = node.name not in self._updated or self._shows.anomaly is not Anomaly.ALL_ZERO
        if (
            parameter_row is not None
            and stays
            and not (self._shows.certainly[parameter_row] or self._shows.perhaps[parameter_row])
        ):
            return parameter_row
        adds_information = (
            not is_written
            and parameter_row is not None
            and self._shows.certainly[parameter_row]
            and self._readers_show_it(node)
        )
        if is_fresh and not adds_information:
            return earlier
        return None if node.name in self._updated or is_fresh else parameter_row

    def _readers_show_it(self, node: Node) -> bool:
        """Return whether outputs computed from a parameter show the anomaly, apart from those of optimizers."""
        return any(
            self._shows.certainly[row]
            for consumer, _ in self._direct_consumers(node)
            if not is_optimizer(consumer)
            for row in self._outputs.get(consumer.name, {}).values()
        )

    def _is_fresh(self, node: Node, row: int) -> bool:
        """Return whether a value cannot have changed between an earlier row and this step."""
        # Rows of this step come only from graphs that ran earlier.
        return node.is_constant or self._observed.tensors[row].iteration >= self.iteration - 1

    @cached_property
    def _updated(self) -> frozenset[str]:
        """Parameters whose rows show a value that an operator of this step wrote."""
        if self.around is None:
            return self._written
        return self._written.union(
            name
            for other in self.around.steps
            if other is not self
            for name in other._written & self._outputs.keys()
            for row in self._outputs[name].values()
            if self.moments[0] <= other.moments[0] <= self._observed.moments(row)[1]
        )

    @cached_property
    def _written(self) -> frozenset[str]:
        """Parameters that an operator of this graph wrote to."""
        observed = frozenset(
            source.name
            for name, inputs in self._inputs.items()
            if (node := self.graph.get(name)) is not None
            for index, producer in enumerate(self.graph.flat_producers(node))
            if producer is not None
            and (source := producer[0]).is_parameter
            and index in inputs
            and self._updated_in_place(node, index, inputs[index])
        )
        written = frozenset(
            producers[0][0].name
            for node in self.graph.operators
            if may_write_inputs(node.type)
            and (producers := self.graph.flat_producers(node))
            and producers[0] is not None
        )
        gathered = frozenset(node.name for node in self.graph.parameters if is_gathered(node.name))
        # Without an optimizer, this graph does not train a parameter, even if it has the name of a weight.
        roles = parameter_roles(self.graph)
        trained = roles.trainable | roles.states | self._states if self._has_optimizer else frozenset()
        return observed | written | gathered | trained

    @cached_property
    def _states(self) -> frozenset[str]:
        """Parameters named after another one, as optimizers name states; includes new states, not read yet."""
        names = {node.name for node in self.graph.parameters}
        return frozenset(name for name in names if name.partition(".")[2] in names)

    @cached_property
    def _has_optimizer(self) -> bool:
        return any(map(is_optimizer, self.graph.operators))

    @cached_property
    def _updates(self) -> Mapping[str, list[tuple[str, int]]]:
        """For each optimizer operator without outputs, the parameters that it wrote to, with their rows."""
        updates: dict[str, list[tuple[str, int]]] = {}
        for node in self.graph.operators:
            if (not node.outputs or node.type in WITHOUT_RESULTS) and is_optimizer(node):
                producers = self.graph.flat_producers(node)
                written = [
                    producer[0].name
                    for producer in producers
                    if producer is not None and producer[0].name in self._updated
                ]
                rows = [(name, self._outputs.get(name, {}).get(0)) for name in written]
                if any(row is not None for _, row in rows):
                    updates[node.name] = [(name, row) for name, row in rows if row is not None]
        return updates

    def _seen_by_consumer(self, node: Node, slot: int) -> int | None:
        for consumer, index in self._direct_consumers(node, slot):
            row = self._inputs.get(consumer.name, {}).get(index)
            if row is not None:
                return row
        return None

    def _direct_consumers(self, node: Node, slot: int = 0) -> Iterator[tuple[Node, int]]:
        """Yield the operators that read a slot, directly or through virtual nodes, with the index of the input."""
        yield from self._readers.get((node.name, slot), ())

    @cached_property
    def _readers(self) -> dict[tuple[str, int], list[tuple[Node, int]]]:
        readers: dict[tuple[str, int], list[tuple[Node, int]]] = {}
        for node in self.graph.operators:
            if node.name in self._inputs or node.name in self._outputs:
                for index, producer in enumerate(self.graph.flat_producers(node)):
                    if producer is not None:
                        readers.setdefault((producer[0].name, producer[1]), []).append((node, index))
        for readers_of_slot in readers.values():
            readers_of_slot.sort(key=lambda reader: self.order(reader[0]))
        return readers


def _writes(node: Node) -> bool:
    """Return whether a PyTorch operator other than an optimizer's writes to its first input: ``mul_``, ``copy_``."""
    return node.type.endswith("_") and not is_optimizer(node)


def _is_data(node: Node) -> bool:
    """Return whether a node is an input of the network, which differs in each step; its name has no dots."""
    return not node.is_constant and "." not in node.name
