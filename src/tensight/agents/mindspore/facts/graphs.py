"""The facts of a training whose steps run as compiled graphs, from their structure, their dump and live parameters."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

import mindspore
from mindspore import Tensor, nn

from tensight.agents.core.call_stack import line_of_user
from tensight.agents.core.live_instances import live_instances
from tensight.agents.mindspore.environment import cells_in
from tensight.agents.mindspore.facts.loss_cells import activations, loss_facts
from tensight.agents.mindspore.facts.reading import norm_of
from tensight.agents.mindspore.facts.step_graphs import StepGraph
from tensight.agents.mindspore.facts.structure import changes_in_training
from tensight.agents.mindspore.framework import networks_of, tensors_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.agents.core.program import Source
    from tensight.agents.facts.loss_functions import Activation
    from tensight.agents.mindspore.calls import Compiled
    from tensight.agents.mindspore.dumped import DumpedTensor
    from tensight.agents.mindspore.facts.source import FactSource
    from tensight.agents.mindspore.facts.step_graphs import GraphLoss
    from tensight.agents.mindspore.graph_capture import Phase

_ONE_GRAPH = "in GRAPH_MODE layers are not read one by one"


class GraphFacts:
    """What is seen of compiled graphs.

    Parameters
    ----------
    source : FactSource
    """

    def __init__(self, source: FactSource) -> None:
        self._source = source
        self._graphs: dict[tuple[int, ...], StepGraph] = {}
        self._line = ""
        self._scalers: list[weakref.ref[Any]] = []
        source.lacks("layers", _ONE_GRAPH)

    @property
    def reads(self) -> bool:
        """Whether everything is read of the step that runs."""
        return self._source.reads

    def begins(self, compiled: Compiled, phase: Phase, optimizers: Sequence[nn.Optimizer]) -> None:
        """Note that a graph is about to run, with the optimizers that may update in it."""
        source = self._source
        for cell in cells_in(compiled.owner):
            for network in networks_of(cell):
                if not isinstance(network, nn.Optimizer):
                    source.meet(network)
        self._line = line_of_user()
        if phase.trains:
            source.step_begins()
            if self._graph_of(phase).has_backward:
                source.weights.backward_ended()
        if phase.updates:
            for optimizer in optimizers:
                source.update_begins(optimizer)

    def ended(
        self,
        compiled: Compiled,
        phase: Phase,
        optimizers: Sequence[nn.Optimizer],
        values: Mapping[Source, DumpedTensor],
    ) -> None:
        """Note what a graph has computed.

        Parameters
        ----------
        compiled : Compiled
        phase : Phase
        optimizers : sequence of Optimizer
            Those that may have updated in it.
        values : mapping of Source to DumpedTensor
            What it has dumped.
        """
        source = self._source
        self._read_scale(compiled.owner)
        graph = self._graph_of(phase)
        given = tensors_in(tuple(each for each in compiled.arguments[1:] if not isinstance(each, nn.Cell)))
        is_of_optimizer = isinstance(compiled.owner, nn.Optimizer)
        networks = [network for cell in cells_in(compiled.owner) for network in networks_of(cell)]
        networks = [network for network in networks if any(True for _ in network.get_parameters())]
        if networks and not is_of_optimizer:
            is_evaluation = not phase.trains and changes_in_training(networks[0])
            source.called(networks[0], given, has_gradients=phase.trains, is_evaluation=is_evaluation)
        results = [] if is_of_optimizer else tensors_in(compiled.result)
        if graph.has_backward and results:
            self._note_loss(graph, results, values)
        if graph.has_backward and not phase.updates:
            source.returned(results[1:])
        if not phase.updates:
            return
        for optimizer in optimizers:
            if source.reads:
                if is_of_optimizer:
                    source.gradients(optimizer, self._given_gradients(optimizer, given))
                elif values:
                    gradients, norm = self._dumped_gradients(graph, optimizer, values)
                    source.gradients(optimizer, gradients, norm)
            source.update_ended(optimizer)

    def _graph_of(self, phase: Phase) -> StepGraph:
        programs = list(phase.programs.values())
        key = tuple(map(id, programs))
        graph = self._graphs.get(key)
        if graph is None:
            root = next((program.results[0] for program in programs if program.results), None)
            nodes = [node for program in programs for node in program.program.nodes]
            graph = self._graphs[key] = StepGraph(nodes, root)
        return graph

    def _read_scale(self, owner: Any) -> None:
        """Read the factor of a loss scaler, in the cell that trains or of the script."""
        scale = getattr(owner, "scale_sense", None)
        if self._source.is_searching:
            # They are no cells, and none of their methods is called while a compiled graph runs.
            scalers = live_instances((mindspore.amp.DynamicLossScaler, mindspore.amp.StaticLossScaler))
            self._scalers = list(map(weakref.ref, scalers))
        if not isinstance(scale, Tensor):
            alive = [scaler for reference in self._scalers if (scaler := reference()) is not None]
            scale = next((getattr(scaler, "scale_value", None) for scaler in alive), None)
        if isinstance(scale, Tensor):
            self._source.scale = self._source.reading.number(scale)
        elif isinstance(scale, (int, float)):
            self._source.scale = float(scale)

    def _note_loss(self, graph: StepGraph, results: Sequence[Any], values: Mapping[Source, DumpedTensor]) -> None:
        source = self._source
        names = source.names()
        read = graph.parameters_read()
        row: dict[str, Any] = {"line": self._line, "function": graph.root_type}
        if read or graph.root is not None:
            by_identity = {identity: names[identity] in read for identity, _ in source.parameters()}
            row["is_connected"] = any(by_identity.values())
            source.computed_from(by_identity)
        name = source.loss(results[0], row)
        if not source.reads:
            return
        is_summed = results[0].size > 1
        for loss in graph.losses:
            facts = self._facts_of(loss, values)
            reduction = "sum" if is_summed else loss.reduction
            facts |= {"loss": name, "factor": loss.factor, "is_alone": loss.is_alone, "reduction": reduction}
            source.loss_function(facts)

    def _facts_of(self, loss: GraphLoss, values: Mapping[Source, DumpedTensor]) -> dict[str, Any]:
        reading = self._source.reading
        given, target = values.get(loss.given), values.get(loss.target)
        numbers = None if given is None else reading.part(given)
        before: list[Activation] = activations(loss.before, numbers, loss.axis)
        squashing = {"softmax", "log_softmax", "sigmoid", "logsigmoid", "tanh", "relu"}
        return loss_facts(
            loss.function,
            loss.called,
            numbers,
            None if target is None else reading.part(target),
            before,
            ids=self._source.ids,
            line=lambda function: loss.before_line if function in squashing else loss.line,
        )

    def _given_gradients(self, optimizer: nn.Optimizer, given: Sequence[Any]) -> Mapping[int, NDArray[Any] | None]:
        """Return the gradients that an optimizer is called with, by the identities of its parameters."""
        weights, reached = list(optimizer.parameters), self._source.reached
        if len(weights) != len(given):
            return {}
        result: dict[int, NDArray[Any] | None] = {}
        for weight, tensor in zip(weights, given, strict=True):
            values = self._source.reading.array(tensor)
            if values is not None:
                is_cut = reached.get(id(weight)) is False and not values.any()
                result[id(weight)] = None if is_cut else values
        return result

    def _dumped_gradients(
        self, graph: StepGraph, optimizer: nn.Optimizer, values: Mapping[Source, DumpedTensor]
    ) -> tuple[Mapping[int, NDArray[Any] | None], float]:
        """Return the gradients of a graph with an update, and their norm when the backward pass had computed them."""
        weights = {weight.name: weight for weight in optimizer.parameters}
        sources = graph.gradients({name: tuple(weight.shape) for name, weight in weights.items()})
        result: dict[int, NDArray[Any] | None] = {}
        norms: list[float] = []
        for name, gradient in sources.items():
            if gradient.read is None:
                result[id(weights[name])] = None
                continue
            array = self._array(values, gradient.read)
            raw = None if gradient.raw is None else self._array(values, gradient.raw)
            if array is not None:
                result[id(weights[name])] = array
            norms.append(math.nan if raw is None else norm_of(raw))
        return result, math.hypot(*norms) if norms else math.nan

    def _array(self, values: Mapping[Source, DumpedTensor], source: Source) -> NDArray[Any] | None:
        tensor = values.get(source)
        return None if tensor is None else self._source.reading.array(tensor)
