"""Access to tensors of attached processes: those on disk, and those that a stopped process still has."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from tensight.errors import TensightError
from tensight.graph import TensorAddress, iteration_of
from tensight.graph.optimizers import parameter_roles
from tensight.sessions.errors import NotFoundError, StateError, StorageError, UnavailableError
from tensight.sessions.live.pending_requests import PendingRequest, RequestKind
from tensight.sessions.live.reported_tensors import ReportedRow, TensorKey
from tensight.sessions.live.statistics_store import received_statistics, statistics_of
from tensight.sessions.live.values import KeptValues
from tensight.sessions.records import State, TensorRecord
from tensight.sessions.records.tensors import address_fields
from tensight.sessions.value_texts import scalar_text
from tensight.tensors import View, ViewResult, statistics
from tensight.tensors.views import MOST_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tensight.graph import Graph, Node, OutputSlot
    from tensight.sessions.events import EventLog
    from tensight.sessions.hit_list import HitList
    from tensight.sessions.live.process import TrainingProcess
    from tensight.sessions.live.recording import Recording
    from tensight.sessions.live.settings import LiveSettings
    from tensight.sessions.live.values import KeptValue, ValueWriters
    from tensight.sessions.records import Statistics, StatisticsRow, TensorStatus
    from tensight.tensors import Which

MOST_SLOTS = 10_000
"""Inputs and outputs of a node that are listed; damaged graphs may have more."""

_MOST_REQUESTED = 500
"""Tensors of a node whose statistics are requested from the process."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A requested tensor.

    Attributes
    ----------
    address : TensorAddress
        As requested; the iteration of a constant is -1.
    process : TrainingProcess
    graph : Graph
    node : Node
        The node of which it is an input or output for the process.
    keys : tuple of TensorKey
        Keys under which it may be stored; the first is the key used by the process.
    producer : Node
        The node that computes it.
    declared : OutputSlot or None
        Its type and shape in the graph.
    """

    address: TensorAddress
    process: TrainingProcess
    graph: Graph
    node: Node
    keys: tuple[TensorKey, ...]
    producer: Node
    declared: OutputSlot | None

    @property
    def iteration(self) -> int:
        return self.address.iteration


class InspectedSession(Protocol):
    """The part of a session that `Inspection` needs; see `LiveSession`."""

    settings: LiveSettings
    recording: Recording
    events: EventLog
    hit_list: HitList

    def process_of(self, rank: int) -> TrainingProcess:
        """Return the process of a rank. NotFoundError if there is none."""

    def iteration_of(self, process: TrainingProcess) -> int:
        """Return the shown iteration of a process."""

    def advance(self) -> None:
        """Send waiting processes their next commands."""


class Inspection:
    """The tensors of a session.

    Parameters
    ----------
    session : InspectedSession
    writers : ValueWriters
        Write arriving values.

    Attributes
    ----------
    kept : KeptValues
        The values on disk.
    """

    def __init__(self, session: InspectedSession, writers: ValueWriters) -> None:
        self._session = session
        self.writers = writers
        self.kept = KeptValues(session.settings.kept_bytes)

    def announce(self, key: TensorKey, iteration: int, status: TensorStatus) -> None:
        """Tell the clients that a tensor has arrived, or that the process does not have it."""
        self._session.events.append("tensor", address=str(key.at(iteration)), status=status)

    # --- values ---

    async def value(self, address: TensorAddress) -> NDArray[np.generic]:
        """Return a tensor, memory-mapped read-only; see `Session.value`."""
        tensor = self._find(address)
        kept = self._kept(tensor)
        if kept is None and self._is_earlier(tensor):
            return await self._earlier_value(tensor)
        if kept is None:
            kept = await self._response(self._request_for(tensor, RequestKind.VALUE), tensor.process)
        return await asyncio.to_thread(kept.open)

    async def _earlier_value(self, tensor: _Tensor) -> NDArray[np.generic]:
        """Return a tensor of an earlier step that the process keeps; of these, only views can be requested."""
        numbers = (await asyncio.to_thread(self._known_statistics, [tensor])).get(tensor.address)
        shape = numbers.shape if numbers is not None else (await self._view(tensor, View("statistics"))).shape
        count = math.prod(shape)
        if count > MOST_ELEMENTS:
            raise UnavailableError(
                f"{tensor.address} has {count:,} elements; of a step that has passed at most {MOST_ELEMENTS:,} can be"
                " fetched at once: look at slices, or at the folder in which the training records"
            )
        whole = f"[{', '.join(':' * len(shape))}]"
        array = (await self._view(tensor, View("values", slice=whole, limit=max(count, 1)))).array
        if array is None:
            raise UnavailableError(f"{tensor.address}: the training process has no value of it")
        array.flags.writeable = False
        return array

    def previous(self, address: TensorAddress) -> TensorAddress | None:
        """Return the address of the same tensor in the previous step; None if it cannot be requested."""
        try:
            tensor = self._find(address)
        except NotFoundError:
            return None
        if tensor.producer.is_constant or tensor.iteration < 0:
            return None
        earlier = replace(tensor, address=replace(tensor.address, iteration=tensor.iteration - 1))
        is_available = self._kept(earlier) is not None or self._may_be_requested(earlier)
        return earlier.address if is_available else None

    async def view_at_source(self, address: TensorAddress, view: View, which: Which) -> ViewResult | None:
        """Return a view computed by the process; None if it cannot compute it, or the values are on disk."""
        tensor = self._find(address)
        process = tensor.process
        if not process.identity.abilities.views or not (self._is_current(tensor) or self._is_earlier(tensor)):
            return None
        before = self.previous(tensor.address)
        if which != "current" and before is None:
            return None
        needed = [tensor] if which != "previous" else []
        if which != "current" and before is not None:
            needed.append(replace(tensor, address=before))
        if all(self._kept(needed_tensor) is not None for needed_tensor in needed):
            return None
        return await self._view(tensor, view, which)

    async def _view(self, tensor: _Tensor, view: View, which: Which = "current") -> ViewResult:
        request = self._request_for(tensor, RequestKind.VIEW)
        request.view, request.which = view, which
        result: ViewResult = await self._response(request, tensor.process)
        return result

    def _request_for(self, tensor: _Tensor, kind: RequestKind) -> PendingRequest:
        """Return a request for a tensor. StateError or UnavailableError if it cannot be requested now."""
        process = tensor.process
        if process.state.has_ended:
            raise UnavailableError(f"{tensor.address}: the value was not kept, and the training has ended")
        if not self._may_be_requested(tensor):
            raise UnavailableError(
                f"{tensor.address}: the value was not kept; only those of the step at which the"
                " training is stopped can be requested, and of parameters those of the step before"
            )
        if process.state is not State.PAUSED:
            raise StateError(
                f"{tensor.address} has to come from the training process, and that is"
                f" {process.state.value}; pause the training first",
                code="not-paused",
            )
        earlier = self._is_earlier(tensor)
        previous = not earlier and not self._is_current(tensor)
        return PendingRequest(kind, tensor.graph, tensor.node, tensor.keys[0], tensor.iteration, previous, earlier)

    async def _response(self, request: PendingRequest, process: TrainingProcess) -> Any:
        """Send a request, and wait for the response as long as the process keeps sending data."""
        patience_s = self._session.settings.answer_within_s
        response = process.requests.add(request).response
        sent_at = time.monotonic()
        # Yield once, so that simultaneous requests are sent in the same command.
        await asyncio.sleep(0)
        self._session.advance()
        while not response.done():
            silent_s = time.monotonic() - max(sent_at, process.connection.last_answer)
            if silent_s >= patience_s:
                raise UnavailableError(
                    f"{request.key.at(request.iteration)}: the training process did not answer in {patience_s:g} s",
                    code="training-silent",
                )
            await asyncio.wait({response}, timeout=patience_s - silent_s)
        return response.result()

    def _is_current(self, tensor: _Tensor) -> bool:
        return tensor.producer.is_constant or tensor.iteration == tensor.process.progress.iteration

    def _may_be_requested(self, tensor: _Tensor) -> bool:
        """Whether the process may have the value."""
        return not tensor.process.state.has_ended and (
            self._is_current(tensor) or self._is_previous(tensor) or self._is_earlier(tensor)
        )

    def _is_previous(self, tensor: _Tensor) -> bool:
        """Whether it is a value of the previous step that the process keeps: of parameters, or of all if it can."""
        process = tensor.process
        before = tensor.iteration == process.progress.iteration - 1 >= -1
        return before and (tensor.producer.is_parameter or process.identity.abilities.previous)

    def _is_earlier(self, tensor: _Tensor) -> bool:
        """Whether it is of an older step, from which the process may keep values."""
        process = tensor.process
        if process.progress.oldest is None or self._is_current(tensor) or self._is_previous(tensor):
            return False
        return process.progress.oldest <= tensor.iteration < process.progress.iteration

    def _is_within(self, tensor: _Tensor) -> bool:
        """Whether its process is stopped at an operator within its step."""
        process = tensor.process
        is_between = bool(process.progress.node) and process.state is State.PAUSED
        return is_between and not tensor.producer.is_constant and tensor.iteration == process.progress.iteration

    def _is_open(self, tensor: _Tensor) -> bool:
        """Whether its process is stopped at an operator within its step, and may have gone back to it."""
        return tensor.process.identity.abilities.back and self._is_within(tensor)

    def _known_keys(self, tensor: _Tensor) -> Iterator[TensorKey]:
        """Yield the keys whose stored data are valid now; others may be from when the process was further on."""
        is_open, here = self._is_open(tensor), tensor.process.responses.here
        # The parameter itself is shown only if the operator comes after the one at which the process is stopped.
        is_before = tensor.iteration == tensor.process.progress.iteration - 1
        keys = tensor.keys if is_before or not _is_updated(tensor) else tensor.keys[:1]
        return (key for key in keys if not is_open or (key, tensor.iteration) in here)

    def _kept(self, tensor: _Tensor) -> KeptValue | None:
        candidates = (self.kept.get(key, tensor.iteration) for key in self._known_keys(tensor))
        return next((kept for kept in candidates if kept is not None), None)

    # --- resolving addresses ---

    def _find(self, address: TensorAddress) -> _Tensor:
        """Return the tensor of an address. NotFoundError if there is none."""
        process = self._session.process_of(address.rank)
        graph, node = self._node(process, address.graph, address.node)
        tensor = self._tensor(process, graph, node, address)
        if tensor is None:
            raise NotFoundError(
                f"{node.name} has no {address.io} {address.slot}; look at its record to see which it has"
            )
        return tensor

    def _node(self, process: TrainingProcess, graph: str, name: str) -> tuple[Graph, Node]:
        graph_and_node = process.graphs.node(graph, name) if graph else None
        if graph_and_node is None:
            raise NotFoundError(
                f"graph {graph[:200]!r} of rank {process.rank} has no node {name[:200]!r}", code="node-unknown"
            )
        return graph_and_node

    def _tensor(self, process: TrainingProcess, graph: Graph, node: Node, address: TensorAddress) -> _Tensor | None:
        key = TensorKey(process.rank, graph.name, node.name, address.io, address.slot)
        if address.io == "output":
            # A graph may not declare the outputs; then assume a single one.
            if address.slot >= max(len(node.outputs), 1):
                return None
            declared = node.outputs[address.slot] if node.outputs else None
            address = replace(address, iteration=-1) if node.is_constant else address
            return _Tensor(address, process, graph, node, (key,), node, declared)
        producers = graph.flat_producers(node)
        producer = producers[address.slot] if address.slot < len(producers) else None
        if producer is None:
            return None
        source, slot = producer
        declared = source.outputs[slot] if slot < len(source.outputs) else None
        address = replace(address, iteration=-1) if source.is_constant else address
        output = TensorKey(process.rank, graph.name, source.name, "output", slot)
        # MindSpore's own client has no inputs; an agent may have seen a value other than the producer's.
        if process.identity.is_agent:
            return _Tensor(address, process, graph, node, (key, output), source, declared)
        return _Tensor(address, process, graph, source, (output,), source, declared)

    # --- inputs and outputs of a node ---

    async def tensors_of(
        self, rank: int, graph_name: str, node_name: str, step: int | None
    ) -> tuple[TensorRecord, ...]:
        """Return the inputs and outputs of a node at a step, with statistics; see `Session.tensors_of`."""
        process = self._session.process_of(rank)
        graph, node = self._node(process, graph_name, node_name)
        shown = self._session.iteration_of(process)
        at = TensorAddress(rank, graph.name, node.name, 0, shown if step is None else iteration_of(step))
        slots = [replace(at, io="input", slot=slot) for slot in range(min(len(graph.flat_producers(node)), MOST_SLOTS))]
        slots += [replace(at, slot=slot) for slot in range(min(max(len(node.outputs), 1), MOST_SLOTS))]
        resolved = [self._tensor(process, graph, node, address) for address in slots]
        tensors = [tensor for tensor in resolved if tensor is not None]
        by_address = await self._statistics(tensors)
        if step is None and any(map(self._is_within, tensors)):
            tensors = [self._as_it_is(tensor, by_address) for tensor in tensors]
            by_address.update(
                await self._statistics([tensor for tensor in tensors if tensor.address not in by_address])
            )
        return tuple(await asyncio.to_thread(lambda: [self._record(tensor, by_address) for tensor in tensors]))

    def _as_it_is(self, tensor: _Tensor, by_address: dict[TensorAddress, Statistics | None]) -> _Tensor:
        """Return the tensor of the previous step if its operator comes after the one where the process is stopped."""
        may_come_later = self._is_open(tensor) or (tensor.node.is_parameter and self._is_within(tensor))
        if not may_come_later or tensor.address not in by_address:
            return tensor
        numbers = by_address[tensor.address]
        if numbers is not None and not self._is_of_step_before(tensor):
            return tensor
        before = self.previous(tensor.address)
        if before is None:
            return tensor
        if numbers is not None:
            by_address[before] = numbers
        return replace(tensor, address=before)

    def _is_of_step_before(self, tensor: _Tensor) -> bool:
        """Whether the known statistics of an operator's input are of a parameter after the previous step."""
        here, store = tensor.process.responses.here, self._session.recording.statistics
        if any((key, tensor.iteration) in here for key in tensor.keys):
            return False
        lags = (lag for key, lag in _as_read(tensor) if store.of(key, tensor.iteration - lag) is not None)
        return next(lags, 0) > 0

    async def _statistics(self, tensors: Sequence[_Tensor]) -> dict[TensorAddress, Statistics | None]:
        """Return the statistics of tensors that are stored here or sent by the process."""
        by_address = await asyncio.to_thread(self._known_statistics, tensors)
        by_address.update(
            await self._requested_statistics([tensor for tensor in tensors if tensor.address not in by_address])
        )
        return by_address

    def _known_statistics(self, tensors: Sequence[_Tensor]) -> dict[TensorAddress, Statistics | None]:
        """Return the statistics that were reported, or computed from values on disk."""
        store = self._session.recording.statistics
        by_address: dict[TensorAddress, Statistics | None] = {}
        for tensor in tensors:
            candidates = chain(
                (store.of(key, tensor.iteration - lag) for key, lag in _as_read(tensor)),
                (store.of(key, tensor.iteration) for key in self._known_keys(tensor)),
            )
            numbers = next((candidate for candidate in candidates if candidate is not None), None)
            if numbers is None or numbers.partial:
                numbers = self._computed_statistics(tensor) or numbers
            if numbers is not None or (tensor.keys[0], tensor.iteration) in tensor.process.responses.missing:
                by_address[tensor.address] = numbers
        return by_address

    def _computed_statistics(self, tensor: _Tensor) -> Statistics | None:
        """Compute and store the statistics of a value on disk."""
        kept = self._kept(tensor)
        if kept is None:
            return None
        try:
            received = received_statistics(statistics(kept.open()))
        except TensightError:
            # Dropped meanwhile, or of a type without statistics.
            return None
        position = tensor.process.graphs.number(tensor.node)
        # If they cannot be stored, they can be computed again.
        with suppress(StorageError):
            row = ReportedRow(tensor.keys[0], tensor.iteration, received, tensor.node.type, position)
            self._session.recording.statistics.add([row])
        return statistics_of(received)

    async def _requested_statistics(self, tensors: Sequence[_Tensor]) -> dict[TensorAddress, Statistics | None]:
        """Return statistics requested from processes, None for tensors that they do not have; omit failed requests."""
        requests: list[tuple[TensorAddress, PendingRequest, TrainingProcess]] = []
        for tensor in tensors[:_MOST_REQUESTED]:
            if tensor.process.responses.has_levels:
                try:
                    request = self._request_for(tensor, RequestKind.STATISTICS)
                except (StateError, UnavailableError):
                    continue
                if request.is_earlier:
                    request.kind, request.view = RequestKind.VIEW, View("statistics")
                requests.append((tensor.address, tensor.process.requests.add(request), tensor.process))
        waiting = (self._response(request, process) for _, request, process in requests)
        responses = await asyncio.gather(*waiting, return_exceptions=True)
        received: dict[TensorAddress, Statistics | None] = {}
        for (address, _, _), response in zip(requests, responses, strict=True):
            if response is None:
                received[address] = None
            elif isinstance(response, ViewResult):
                numbers = response.statistics
                received[address] = None if numbers is None else statistics_of(received_statistics(numbers))
            elif not isinstance(response, BaseException):
                received[address] = statistics_of(response)
            elif not isinstance(response, TensightError):
                raise response
        return received

    def _record(self, tensor: _Tensor, by_address: dict[TensorAddress, Statistics | None]) -> TensorRecord:
        address, process, declared = tensor.address, tensor.process, tensor.declared
        numbers = by_address.get(address)
        kept = self._kept(tensor)
        is_scalar = numbers is not None and numbers.count == 1 and "count" not in numbers.unknown
        is_missing = address in by_address and numbers is None
        status: TensorStatus = "statistics_only" if numbers is not None else "not_kept"
        if kept is not None:
            status = "available"
        elif not is_missing and self._may_be_requested(tensor):
            status = "at_source"
        source = next((key for key in tensor.keys if key.io == "output"), tensor.keys[0])
        hits = self._session.hit_list
        # Constants can be watched, too; their hits are of the shown step.
        iteration = self._session.iteration_of(process) if tensor.producer.is_constant else address.iteration
        # A hit on a parameter that the step updates is on its value after the step, not on this input.
        hits_on_source = () if _is_updated(tensor) else hits.abbreviations(source.at(iteration))
        return TensorRecord(
            **address_fields(address),
            type=tensor.producer.type,
            status=status,
            dtype=numbers.dtype if numbers is not None else declared.dtype if declared is not None else "",
            shape=numbers.shape if numbers is not None else declared.shape if declared is not None else None,
            size_bytes=numbers.size_bytes if numbers is not None else 0,
            has_previous=self.previous(address) is not None,
            scalar=str(kept.open().reshape(-1)[0]) if kept is not None and is_scalar else scalar_text(numbers),
            statistics=numbers,
            abbreviations=hits.abbreviations(address) or hits_on_source,
        )

    async def statistics_over_steps(
        self, address: TensorAddress, graphs: Sequence[str] = ()
    ) -> tuple[StatisticsRow, ...]:
        """Return the statistics of a tensor at all steps at which they are known, in order.

        Parameters
        ----------
        address : TensorAddress
        graphs : sequence of str
            Graphs in which its node is the same; for a step that several have, the first counts.
        """
        by_step: dict[int, StatisticsRow] = {}
        for graph in graphs or (address.graph,):
            tensor = self._find(replace(address, graph=graph))
            for row in await asyncio.to_thread(self._rows_over_steps, tensor):
                by_step.setdefault(row.step, row)
        return tuple(by_step[step] for step in sorted(by_step))

    def _rows_over_steps(self, tensor: _Tensor) -> Iterator[StatisticsRow]:
        """Yield the stored statistics of a tensor, under its address; the first row of a step counts.

        Rows are searched under the same keys as in `_known_statistics`.
        """
        store = self._session.recording.statistics
        for key, lag in _as_read(tensor) if _is_updated(tensor) else ((key, 0) for key in tensor.keys):
            for row in store.history(key):
                at = replace(tensor.address, iteration=iteration_of(row.step) + lag)
                if lag and at.iteration > tensor.process.progress.iteration:
                    # No step has read this value yet.
                    continue
                named = {"address": str(at), "node": at.node, "slot": at.slot, "io": at.io, "step": at.step}
                yield row.model_copy(update=named)


def _as_read(tensor: _Tensor) -> Iterator[tuple[TensorKey, int]]:
    """Yield the keys under which the input value of an updated parameter is stored, each with its lag.

    As an output, the parameter has this value one iteration earlier; then the lag is 1.
    """
    if _is_updated(tensor):
        key, output = tensor.keys
        yield key, 0
        yield output._replace(io="input"), 0
        yield output, 1


def _is_updated(tensor: _Tensor) -> bool:
    """Whether it is an input from a parameter that the step updates at its end."""
    source, roles = tensor.producer, parameter_roles(tensor.graph)
    is_input = tensor.keys[0].io == "input" and source.is_parameter and len(tensor.keys) > 1
    return is_input and (source.name in roles.trainable or source.name in roles.states)
