"""The origin of an anomaly: the first operator whose output shows it while its inputs do not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tensight.analysis.anomalies import NON_FINITE, Anomaly, InputState, Shown, shown
from tensight.analysis.collectives import across_ranks
from tensight.analysis.consequences import NO_EFFECTS, Effect, Effects
from tensight.analysis.coverage import Coverage, coverage
from tensight.analysis.observed_steps import ObservedSteps
from tensight.analysis.origins import Origin, OriginInput
from tensight.errors import InputError
from tensight.graph import Node, TensorAddress
from tensight.graph.layer_node import OUTSIDE, READS_UNSEEN
from tensight.graph.layers import graph_layers
from tensight.graph.node import PARAMETER
from tensight.graph.operator_facts import (
    CONSTANT_MAKERS,
    FILLING,
    GATHERED,
    VIEWS,
    ZERO_MAKERS,
    normalizes,
    plain_type,
)
from tensight.graph.optimizers import is_gradient_scope, is_optimizer
from tensight.graph.shared_lines import calls_with_same_line
from tensight.tensors import EXPLOSION_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from numpy.typing import NDArray

    from tensight.analysis.analysis import Analysis
    from tensight.analysis.observations import Observations, ObservedTensor
    from tensight.analysis.observed_steps import ObservedStep
    from tensight.analysis.statistics_table import StatisticsTable
    from tensight.dumps import Dump, TensorFile
    from tensight.graph import Graph

KINDS = (Anomaly.NAN, Anomaly.INF, Anomaly.EXPLOSION, Anomaly.ALL_ZERO)
"""The anomalies that are searched for by default."""

_UNBOUNDED = 2**63 - 1
"""An end of a slice that means unbounded."""


def origins(
    analysis: Analysis,
    anomalies: Sequence[Anomaly] = KINDS,
    *,
    ranks: Sequence[int] | None = None,
    explosion_limit: float = EXPLOSION_LIMIT,
    hits: Mapping[Anomaly, Sequence[Effect]] | None = None,
) -> list[Origin]:
    """Find where anomalies began.

    Parameters
    ----------
    analysis : Analysis
        The dump to search.
    anomalies : sequence of Anomaly
        The kinds of anomalies to search for.
    ranks : sequence of int, optional
        The ranks to search; all by default.
    explosion_limit : float
        Finite values whose magnitude is above this count as an explosion.
    hits : mapping of Anomaly to sequence of Effect, optional
        Hits of watchpoints, by the anomaly that may explain them. Zeros and explosions that caused none of these hits,
        and no NaN or Inf either, are left out, as are NaN and Inf that do not spread if none of these hits is one. By
        default none are left out.

    Returns
    -------
    list of Origin
        At most one for each kind and rank, the first in iteration and execution order. NaN, Inf and explosions that led
        to them come first, in this order. NaN and Inf that every reader leaves out, such as missing data, count only
        on a rank with no others.

    Raises
    ------
    InputError
        If the limit is not a positive number.
    """
    require_positive(explosion_limit)
    # An anomaly received from another rank is recognized only if that rank is searched, too.
    raw = origins_by_rank(analysis, anomalies, explosion_limit=explosion_limit, hits=hits)
    all_origins = in_causal_order(across_ranks(raw))
    return [origin for origin in all_origins if ranks is None or origin.address.rank in ranks]


def require_positive(explosion_limit: float) -> None:
    """Raise an `InputError` if the limit of an explosion is not a positive number.

    Parameters
    ----------
    explosion_limit : float
    """
    if not explosion_limit > 0:
        raise InputError(f"the explosion limit must be a positive number, not {explosion_limit}")


def origins_by_rank(
    analysis: Analysis,
    anomalies: Sequence[Anomaly] = KINDS,
    *,
    explosion_limit: float = EXPLOSION_LIMIT,
    hits: Mapping[Anomaly, Sequence[Effect]] | None = None,
) -> list[Origin]:
    """Find where anomalies began on each rank, without asking which of them came from another rank.

    Parameters
    ----------
    analysis, anomalies, explosion_limit, hits
        As for `origins`.

    Returns
    -------
    list of Origin
        For `across_ranks`, by rank.
    """
    table = analysis.statistics()
    shows = {}
    for anomaly in anomalies:
        shows[anomaly] = shown(anomaly, table, explosion_limit)
        if anomaly is Anomaly.OVERFLOW:
            # The device reports overflows of operators, so their outputs count, even if they are finite.
            put_out = _rows_where(table, lambda file: file.io == "output")
            certainly = shows[anomaly].certainly | (analysis.overflowed() & put_out)
            shows[anomaly] = replace(shows[anomaly], certainly=certainly)
    observed = _Dumped(analysis.dump, table)
    steps, all_origins = ObservedSteps(observed), []
    for rank in analysis.dump.ranks:

        def find(
            anomaly: Anomaly, effects: Effects, begin: int, *, left_out: bool = False, rank: int = rank
        ) -> Origin | None:
            showing = steps.that_show(shows[anomaly], rank, begin)
            return _first_origin(shows[anomaly], showing, effects, left_out=left_out)

        all_origins += origins_of_rank(tuple(shows), rank, find, observed.graph, hits=hits)
    return all_origins


class _Dumped:
    """A dump as `Observations`."""

    def __init__(self, dump: Dump, table: StatisticsTable) -> None:
        self._dump = dump
        self.tensors: Sequence[ObservedTensor] = table.files
        self._files = table.files
        self.rows: NDArray[np.void] = table.rows
        self.bounds = table.bounds

    def graph(self, rank: int, name: str) -> Graph | None:
        return next((graph for graph in self._dump.graphs(rank) if graph.name == name), None)

    def position(self, rank: int, node: Node) -> int:
        return self._dump.node_position(rank, node)

    def moments(self, row: int) -> tuple[int, int]:
        tensor = self._files[row]
        return (tensor.older[-1].timestamp if tensor.older else tensor.timestamp), tensor.timestamp

    def graphs(self, rank: int) -> Sequence[Graph]:
        return self._dump.graphs(rank)

    def printed_names(self, rank: int, graph: str) -> Mapping[str, str]:
        return self._dump.printed_names(rank, graph)

    @property
    def is_whole(self) -> bool:
        return self._dump.metadata.is_whole

    @property
    def is_as_read(self) -> bool:
        return self._dump.metadata.is_as_read

    def unseen_before(self, rank: int, iteration: int) -> tuple[int, int] | None:
        observed = self._dump.iterations(rank)
        last_seen = max((number for number in observed if 0 <= number < iteration), default=-1)
        history = self._dump.history(rank)
        ran = None if history is None else {number for iterations in history.values() for number in iterations}
        if ran is None:
            return (last_seen + 1, iteration - 1) if last_seen + 1 < iteration else None
        unseen = [number for number in ran if last_seen < number < iteration]
        return (min(unseen), max(unseen)) if unseen else None


class Find(Protocol):
    """Finds the first origin of a kind on a rank."""

    def __call__(self, anomaly: Anomaly, effects: Effects, begin: int, *, left_out: bool = False) -> Origin | None:
        """Return the first origin from iteration `begin` on; None if there is none.

        Parameters
        ----------
        anomaly : Anomaly
        effects : Effects
            Of several origins in an iteration, the first one that caused an effect is returned.
        begin : int
        left_out : bool
            Whether NaN and Inf count that every operator that reads them leaves out.
        """


def first_origin(
    observed: Observations,
    shows: Shown,
    rank: int,
    effects: Effects = NO_EFFECTS,
    since: int = 0,
    *,
    left_out: bool = False,
) -> Origin | None:
    """Return where an anomaly began on a rank.

    Parameters
    ----------
    observed : Observations
    shows : Shown
        The rows that show the anomaly.
    rank : int
    effects : Effects
        Of several origins in an iteration, the first one that caused an effect is returned.
    since : int
        The first iteration to search.
    left_out : bool
        Whether NaN and Inf count that every operator that reads them leaves out.
    """
    return _first_origin(shows, ObservedSteps(observed).that_show(shows, rank, since), effects, left_out=left_out)


def origins_of_rank(
    anomalies: Sequence[Anomaly],
    rank: int,
    find: Find,
    graph: Callable[[int, str], Graph | None],
    since: int = 0,
    hits: Mapping[Anomaly, Sequence[Effect]] | None = None,
) -> list[Origin]:
    """Return the origins of a rank, at most one for each kind of anomaly.

    Parameters
    ----------
    anomalies : sequence of Anomaly
        The anomalies to search for; non-finite ones are searched first.
    rank : int
    find : Find
    graph : callable (rank, name) -> Graph or None
    since : int
        The first iteration to search.
    hits : mapping of Anomaly to sequence of Effect, optional
        As for `origins`.
    """
    first_origins: list[Origin] = []
    lost: list[Effect] = []
    for anomaly in sorted(anomalies, key=lambda kind: kind not in NON_FINITE):
        effects = [] if anomaly in NON_FINITE else _on_rank(hits, anomaly, rank)
        if anomaly is Anomaly.EXPLOSION:
            effects += lost
        if hits is not None and anomaly not in NON_FINITE and not effects:
            continue
        origin = _with_effect(anomaly, rank, find, Effects(effects, graph), since)
        if origin is None or (hits is not None and origin.leads is False):
            continue
        first_origins.append(origin)
        if anomaly in NON_FINITE:
            at = origin.address
            lost.append(Effect(rank, at.graph, origin.operator, at.iteration, is_origin=True))
    if not lost:
        for anomaly in NON_FINITE:
            if anomaly in anomalies and (hits is None or _on_rank(hits, anomaly, rank)):
                origin = find(anomaly, NO_EFFECTS, since, left_out=True)
                first_origins += [] if origin is None else [origin]
    return first_origins


def _on_rank(hits: Mapping[Anomaly, Sequence[Effect]] | None, anomaly: Anomaly, rank: int) -> list[Effect]:
    return [hit for hit in (hits or {}).get(anomaly, ()) if hit.rank == rank]


def _with_effect(
    anomaly: Anomaly,
    rank: int,
    find: Find,
    effects: Effects,
    since: int,
) -> Origin | None:
    """Return the first origin of a kind or, if that did not cause an effect, the first later one that did."""
    first = find(anomaly, effects, since)
    if first is None or first.leads:
        return first
    for iteration in effects.iterations(rank):
        later = find(anomaly, effects, max(iteration, since))
        if later is None or later.address.iteration != iteration or not later.leads:
            continue
        # An anomaly that arrived with a weight or a state existed before this step.
        is_kept = later.arrived and later.op_type == PARAMETER and "." in later.operator
        return replace(first, leads=True) if is_kept else later
    return first


def in_causal_order(origins: Iterable[Origin]) -> list[Origin]:
    """Return origins in display order: NaN, Inf and explosions that led to them first, in execution order.

    Zeros and other large values come later, because they are often intended. Anomalies that came from another rank
    follow those that began on their rank.

    Parameters
    ----------
    origins : iterable of Origin
        Origins of any ranks.
    """
    return sorted(origins, key=_urgency)


def _urgency(origin: Origin) -> tuple[object, ...]:
    kinds = list(Anomaly)
    group = not (origin.anomaly in NON_FINITE or (origin.anomaly is Anomaly.EXPLOSION and origin.leads))
    came = origin.from_rank is not None
    when = origin.address.rank, origin.address.iteration, origin.position, origin.arrived
    return (group, came, *when, kinds.index(origin.anomaly))


def _first_origin(shows: Shown, steps: Iterable[ObservedStep], effects: Effects, *, left_out: bool) -> Origin | None:
    """Return the origin in the first iteration of a rank in which a node is the root cause of the anomaly.

    Of several, it is the first that caused effects or may have, otherwise the first that is not intended.
    """
    for _, group in groupby(steps, key=lambda step: step.iteration):
        executions = list(group)
        behind = [_zeros_behind_gradients(shows, step, effects) for step in executions]
        root_causes = [
            (step.when(node), at, step, cause)
            for at, step in enumerate(executions)
            for node in step.nodes
            if (left_out or node.name not in step.left_out) and (cause := _root_cause(shows, step, node)) is not None
        ]
        root_causes.sort(key=lambda cause: (*cause[:2], not cause[3].node.is_operator))
        chosen = next((cause for cause in root_causes if _may_lead(effects, behind[cause[1]], *cause[2:])), None)
        chosen = chosen or next((cause for cause in root_causes if not cause[3].is_meant), None)
        if chosen is not None:
            position, at, step, first = chosen
            # Root causes with unknown inputs may follow from the chosen one.
            others = (cause for cause in root_causes if cause is not chosen and not cause[3].is_meant)
            also = tuple(cause.node.name for *_, cause in others if not cause.candidates and not cause.may_read_unseen)
            return Origin(
                anomaly=shows.anomaly,
                address=TensorAddress(step.rank, step.graph.name, first.shown_by, first.slot, step.iteration),
                operator=first.node.name,
                op_type=first.node.type,
                frames=first.node.frames,
                inputs=first.inputs,
                row=first.row,
                position=position,
                candidates=first.candidates,
                arrived=not first.node.is_operator,
                also=also,
                changed=step.was_changed(first.node),
                unseen=step.unseen_before,
                may_read_unseen=first.may_read_unseen,
                leads=_leads(effects, behind[at], step, first),
                is_left_out=left_out,
                calls_with_same_line=calls_with_same_line(step.graph, first.node),
            )
    return None


def _may_lead(effects: Effects, behind: Set[str], step: ObservedStep, cause: _RootCause) -> bool:
    leads = _leads(effects, behind, step, cause)
    return leads is True or (leads is None and not cause.is_meant)


def _leads(effects: Effects, behind: Set[str], step: ObservedStep, cause: _RootCause) -> bool | None:
    if cause.node.name in behind:
        return True
    return effects.follow_from(step.rank, step.graph.name, cause.node.name, step.iteration)


def _zeros_behind_gradients(shows: Shown, step: ObservedStep, effects: Effects) -> set[str]:
    """Return the operators of a step from which the gradients that are to be explained got their zeros."""
    graph = step.graph
    names = effects.of_gradients(step.rank, graph.name, step.iteration)
    nodes = [node for name in names if (node := graph.get(name)) is not None]
    updates = [reader for node in nodes for reader in graph.consumers(node) if is_optimizer(reader)]
    waiting = [node for node in nodes if node.is_operator]
    waiting += [source for update in updates for _, source, _ in step.inputs(update) if source.is_operator]
    seen: set[str] = set()
    behind: set[str] = set()
    while waiting:
        node = waiting.pop()
        if node.name in seen:
            continue
        seen.add(node.name)
        rows = [row for *_, row in step.outputs(node)]
        if any(shows.certainly[row] for row in rows):
            behind.add(node.name)
        elif any(not shows.passes[row] for row in rows):
            continue
        waiting += [source for _, source, _ in step.inputs(node) if source.is_operator]
    return behind


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Numbers of tensors whose anomalies `origins` cannot place, by anomaly; those without such tensors are left out.

    Attributes
    ----------
    undecided : dict of Anomaly to int
        Tensors whose recorded statistics leave open whether they show it.
    unlocated : dict of Anomaly to int
        Tensors that show it and belong to no node.
    """

    undecided: dict[Anomaly, int]
    unlocated: dict[Anomaly, int]


def unplaced(
    analysis: Analysis,
    anomalies: Sequence[Anomaly],
    *,
    ranks: Sequence[int] | None = None,
    explosion_limit: float = EXPLOSION_LIMIT,
) -> Unplaced:
    """Count the tensors whose anomalies have no origin that can be found.

    Parameters
    ----------
    analysis, anomalies, ranks, explosion_limit
        As for `origins`.
    """
    table = analysis.statistics()
    in_ranks = _rows_where(table, lambda file: ranks is None or file.rank in ranks)
    without_node = in_ranks & _rows_where(table, lambda file: file.node is None and not file.is_constant)
    shows = {anomaly: shown(anomaly, table, explosion_limit) for anomaly in anomalies}
    return Unplaced(
        _counts({anomaly: each.perhaps & in_ranks for anomaly, each in shows.items()}),
        _counts({anomaly: each.certainly & without_node for anomaly, each in shows.items()}),
    )


def in_nodes(analysis: Analysis, ranks: Sequence[int] | None = None) -> Coverage:
    """Return what `origins` looks at: the tensors that belong to nodes.

    Parameters
    ----------
    analysis : Analysis
        The dump that was searched.
    ranks : sequence of int, optional
        The ranks that were searched; all by default.
    """
    table = analysis.statistics()
    requested = np.flatnonzero(_rows_where(table, lambda file: ranks is None or file.rank in ranks))
    return coverage(table, requested, requested[_rows_where(table, lambda file: file.node is not None)[requested]])


def _rows_where(table: StatisticsTable, applies: Callable[[TensorFile], bool]) -> NDArray[np.bool_]:
    return np.fromiter(map(applies, table.files), np.bool_, len(table.files))


def _counts(rows: Mapping[Anomaly, NDArray[np.bool_]]) -> dict[Anomaly, int]:
    amounts = {anomaly: int(np.count_nonzero(shown_rows)) for anomaly, shown_rows in rows.items()}
    return {anomaly: amount for anomaly, amount in amounts.items() if amount}


def _are_zeros_intended(graph: Graph, node: Node, sources: Sequence[tuple[int, Node, int | None]]) -> bool:
    """Whether the code intends zeros: made of nothing or constants, or by multiplication with an unobserved constant.

    Zeros that a backward pass makes are intended if they are a buffer, as in the gradient of an index; otherwise a
    user-defined backward pass may return them as a gradient.
    """
    if plain_type(node.type) in ZERO_MAKERS:
        return not is_gradient_scope(node.name) or _is_buffer(graph, node)
    if not sources:
        return not is_gradient_scope(node.name)
    constants = [row for _, source, row in sources if source.is_constant]
    if not constants:
        return False
    return len(constants) == len(sources) or (plain_type(node.type) == "mul" and None in constants)


def _is_buffer(graph: Graph, node: Node) -> bool:
    """Whether the output of a node is a buffer: elements are written into it or a view of it, or it into another."""
    waiting, names = [node], {node.name}
    while waiting:
        written = waiting.pop()
        for reader in graph.consumers(written):
            kind = plain_type(reader.type)
            if kind in FILLING:
                return True
            if kind in VIEWS and reader.name not in names:
                names.add(reader.name)
                waiting.append(reader)
    return False


@dataclass(frozen=True, slots=True)
class _RootCause:
    """A node at which an anomaly began in a step, according to the observations of the step."""

    node: Node
    shown_by: str
    slot: int
    row: int
    inputs: tuple[OriginInput, ...]
    candidates: tuple[str, ...]
    is_meant: bool
    may_read_unseen: bool


def _root_cause(shows: Shown, step: ObservedStep, node: Node) -> _RootCause | None:
    """Return the root cause if an anomaly began at a node; None if the node does not show it or only propagates it."""
    anomaly = shows.anomaly
    if anomaly is Anomaly.ALL_ZERO and not node.is_operator:
        # Biases and optimizer states start at zero.
        return None
    outputs = [output for output in step.outputs(node) if shows.certainly[output[2]]]
    if not outputs:
        return None
    sources = list(step.inputs(node))
    if anomaly is Anomaly.ALL_ZERO and _are_zeros_intended(step.graph, node, sources):
        return None
    if shows.masks[outputs[0][2]] and (node.name in graph_layers(step.graph).may_mask or step.is_kept(node)):
        return None
    inputs: tuple[OriginInput, ...] | None = tuple(
        OriginInput(index, source.name, _state(step, source, row), -1 if row is None else row)
        for index, source, row in sources
    )
    if inputs and anomaly is Anomaly.ALL_ZERO and not is_optimizer(node):
        inputs = _that_can_be_zero(step, node, inputs)
    if inputs is None or any(_propagates(shows, entry) for entry in inputs):
        return None
    if anomaly is Anomaly.ALL_ZERO and _may_be_zeros_of_input(shows, node, outputs[0][2], inputs):
        return None
    is_meant = anomaly is Anomaly.EXPLOSION and _is_written_down(node, step, shows.explosion_limit)
    may_read_unseen = anomaly is not Anomaly.ALL_ZERO and _may_read_unseen(node, inputs)
    return _RootCause(node, *outputs[0], inputs, _candidates(step, node, inputs), is_meant, may_read_unseen)


def _that_can_be_zero(
    step: ObservedStep, node: Node, inputs: tuple[OriginInput, ...]
) -> tuple[OriginInput, ...] | None:
    """Return the inputs of an operator whose zeros are relevant; None if its zeros come from the other inputs."""
    # Constants are axes, sizes and factors.
    values = tuple(entry for entry in inputs if not step.is_constant(entry.source))
    without_biases = tuple(entry for entry in values if not step.is_small_parameter(entry.source))
    if normalizes(node.type):
        # Scale and shift come before running statistics. Residual branches often start with both at zero.
        scale_and_shift = [entry for entry in values if step.is_small_parameter(entry.source)][:2]
        if scale_and_shift and all(entry.state is InputState.SHOWS_IT for entry in scale_and_shift):
            return None
    # Otherwise the output is a copy or a part of a bias, or a sum of settings.
    is_open = bool(without_biases) or not values or any(entry.state is InputState.CLEAN for entry in values)
    return without_biases if is_open else None


def _propagates(shows: Shown, entry: OriginInput) -> bool:
    """Whether the anomaly came from an input."""
    return entry.state is InputState.SHOWS_IT or (entry.row >= 0 and bool(shows.passes[entry.row]))


def _may_be_zeros_of_input(shows: Shown, node: Node, row: int, inputs: Sequence[OriginInput]) -> bool:
    """Whether an operator copies elements, so that the zeros may be elements of an input that has others, too.

    A view computes nothing, and shows memory into which others may have written. What several lines do whose operators
    were not observed is unknown.
    """
    kind = plain_type(node.type)
    zeros = max((shows.zeros[entry.row] for entry in inputs if entry.row >= 0), default=0)
    is_range = any(frame.end_line is not None for frame in node.frames)
    return kind in VIEWS or (kind in GATHERED and zeros > 0) or (is_range and zeros >= shows.zeros[row])


def _candidates(step: ObservedStep, node: Node, inputs: tuple[OriginInput, ...]) -> tuple[str, ...]:
    """Return the nodes where the anomaly may have begun, if inputs are unknown; empty if all are known."""
    hidden = [entry.source for entry in inputs if entry.state is not InputState.CLEAN and entry.source != OUTSIDE]
    # A gradient is always computed from something, even if its inputs were not observed.
    is_open = bool(hidden) or (node.type == "AccumulateGrad" and not inputs)
    return tuple(dict.fromkeys([node.name, *step.hidden_upstream(hidden)])) if is_open else ()


def _state(step: ObservedStep, source: Node, row: int | None) -> InputState:
    """Return the state of an input; `NOT_DUMPED` if it represents tensors that are not visible."""
    return InputState.NOT_DUMPED if source.name == OUTSIDE else step.state(source, row)


def _may_read_unseen(node: Node, inputs: Sequence[OriginInput]) -> bool:
    """Whether an operator may read unobserved tensors, which agents report for operators outside of modules."""
    return bool(node.attributes.get(READS_UNSEEN)) or any(entry.source == OUTSIDE for entry in inputs)


def _is_written_down(node: Node, step: ObservedStep, limit: float) -> bool:
    """Whether the code asks for large values, as a threshold, a fill value, or a table that is never written."""
    if not node.is_operator:
        return step.stays_as_it_is(node)
    if plain_type(node.type) in CONSTANT_MAKERS:
        return True
    numbers = (value for value in node.attributes.values() if isinstance(value, (int, float)))
    return any(limit < abs(value) < _UNBOUNDED for value in numbers)
