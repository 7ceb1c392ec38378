"""Responds to requests for the step at which the training is stopped: values, shapes, statistics and views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.agents.core.notices import log_once
from tensight.errors import TensightError
from tensight.graph.optimizers import is_of_optimizer
from tensight.tensors import ViewResult, compute_view, slice_text, statistics
from tensight.wire import (
    data_type_of,
    missing_base,
    missing_summary,
    received_request,
    summary_of,
    tensor_messages,
    view_failure,
    view_of,
    view_pieces,
)
from tensight.wire.debugger_pb2 import TensorBase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from tensight.agents.core.observation import Observation
    from tensight.agents.core.program import Program, Source
    from tensight.agents.core.recording.recording import Recorder
    from tensight.tensors import TensorStatistics
    from tensight.wire import TensorRequest
    from tensight.wire.debugger_pb2 import TensorProto, TensorSummary, ViewRequest
    from tensight.wire.telemetry_pb2 import ViewPiece


class MissingError(TensightError):
    """There is no such value; the message gives the reason."""


class TensorResponses:
    """Responds to requests for tensors, in the order of the requests.

    Parameters
    ----------
    observed : Observation
    recorder : Recorder
        Source of earlier steps.
    has_run : callable (slot_id) -> bool
        Whether a slot has its value of this step where the training is stopped.
    as_left : callable (slot_id) -> tensor or None
        Returns a weight that is unchanged since the last step, if the training is stopped within a step.
    program : callable
        Returns what ran; None if nothing is known yet.
    """

    def __init__(
        self,
        observed: Observation,
        recorder: Recorder,
        *,
        has_run: Callable[[int], bool],
        as_left: Callable[[int], Any | None],
        program: Callable[[], Program | None],
    ) -> None:
        self._slot_table = observed.slot_table
        self._columns = observed.columns
        self._retention = observed.retention
        self._reader = observed.reader
        self._recorder = recorder
        self._has_run = has_run
        self._as_left = as_left
        self._program = program
        self._known_program: Program | None = None
        self._sources: dict[str, tuple[Source | None, ...]] = {}
        self._updated: frozenset[Source | None] = frozenset()

    def values(self, tensors: Iterable[TensorProto]) -> Iterator[TensorProto]:
        """Yield tensors in pieces."""
        for message in tensors:
            request = received_request(message)
            try:
                # All pieces first: a tensor that cannot be sent must not break off in the middle.
                pieces = list(tensor_messages(request, self._array_or_none(request)))
            except Exception as error:
                _tell(request, error)
                pieces = list(tensor_messages(request, None))
            yield from pieces

    def bases(self, tensors: Iterable[TensorProto]) -> Iterator[TensorBase]:
        """Yield dtypes and shapes."""
        for message in tensors:
            yield self._base_or_none(message) or missing_base()

    def summaries(self, tensors: Iterable[TensorProto], *, complete: bool) -> Iterator[TensorSummary]:
        """Yield statistics; `complete` adds what only Tensight's server understands."""
        for message in tensors:
            row = self._statistics_or_none(message)
            yield missing_summary() if row is None else summary_of(row, complete)

    def views(self, views: Iterable[ViewRequest]) -> Iterator[ViewPiece]:
        """Yield views, in pieces."""
        for index, message in enumerate(views):
            try:
                pieces = list(view_pieces(index, self._view(message)))
            except Exception as error:
                pieces = [view_failure(index, str(error))]
            yield from pieces

    def _view(self, message: ViewRequest) -> ViewResult:
        view_request = view_of(message)
        request, view = view_request.tensor, view_request.view
        iteration = message.iteration if message.HasField("iteration") else self._now
        if view.kind == "statistics" and view_request.which == "current" and not view.slice and iteration == self._now:
            row = self._row(request)
            if row is not None:
                whole = slice_text((slice(None),) * len(row.shape), row.shape)
                return ViewResult(None, whole, row.shape, row.dtype, statistics=row)
        current = None if view_request.which == "previous" else self._array(request, iteration)
        before = None if view_request.which == "current" else self._array(request, iteration - 1)
        return compute_view(view, view_request.which, current, before)

    @property
    def _now(self) -> int:
        """The iteration at which the training is stopped."""
        return self._columns.current_iteration

    def _slot_id(self, request: TensorRequest) -> int:
        slot_id = self._slot_table.find(request.node, request.slot, request.io)
        if slot_id is None:
            # The original puts the scope of its tree before the name of a parameter.
            slot_id = self._slot_table.find(request.node.rpartition("/")[2], request.slot, request.io)
        if slot_id is None and request.io == "input":
            source = self._source(request.node, request.slot)
            slot_id = None if source is None else self._slot_table.find(*source)
        if slot_id is None:
            raise MissingError(f"{request.node}:{request.slot} was never seen in this process")
        return slot_id

    def _source(self, node: str, slot: int) -> Source | None:
        """Return the source of an operator's input from the program, for adapters that observe only outputs."""
        self._note_program()
        inputs = self._sources.get(node, ())
        return inputs[slot] if slot < len(inputs) else None

    def _note_program(self) -> None:
        """Note the sources of each operator's inputs, and those that optimizers take, which they may overwrite."""
        program = self._program()
        if program is None or program is self._known_program:
            return
        self._known_program = program
        self._sources = {node.name: node.inputs for node in program.nodes}
        updates = (node.inputs for node in program.nodes if is_of_optimizer(node.type, node.scope))
        self._updated = frozenset(source for inputs in updates for source in inputs)

    def _is_updated(self, request: TensorRequest, slot_id: int) -> bool:
        """Whether an input is a parameter that the step updates: its own slot has the value after the update."""
        tensor_slot = self._slot_table[slot_id]
        if request.io != "input" or tensor_slot.io != "output" or tensor_slot.node.role in ("operator", "input"):
            return False
        self._note_program()
        return (tensor_slot.node.name, tensor_slot.slot) in self._updated

    def _requested_value(self, request: TensorRequest) -> NDArray[Any]:
        return self._array(request, self._now - request.previous)

    def _array(self, request: TensorRequest, iteration: int) -> NDArray[Any]:
        """Return the value of a tensor in an iteration.

        Raises
        ------
        MissingError
            There is none.
        """
        number = self._slot_id(request)
        read = self._as_read(request, number) if iteration == self._now else None
        if read is not None:
            return read
        if iteration == self._now and not self._has_run(number):
            raise MissingError(f"{request.node}:{request.slot} comes later in this step than the stop")
        # For an operator that runs after the stop, the value of the step before is shown.
        if iteration != self._now - 1 and self._is_updated(request, number):
            raise MissingError(f"the step has overwritten the input {request.node}:{request.slot}")
        tensor, why = None, ""
        if iteration in (self._now, self._now - 1):
            previous = iteration != self._now
            tensor = self._retention.previous(number) if previous else self._retention.current(number)
            why = self._retention.why_missing(number, previous)
            if tensor is None and previous:
                tensor = self._as_left(number)
        array = None if tensor is None else self._reader.host(tensor)
        if array is None:
            tensor_slot = self._slot_table[number]
            array = self._recorder.value(tensor_slot.node.name, tensor_slot.slot, tensor_slot.io, iteration)
        if array is None:
            why = why or ("its values cannot be read" if tensor is not None else self._recorder.why_missing(iteration))
            raise MissingError(f"{request.node}:{request.slot}: {why}")
        return array

    def _as_read(self, request: TensorRequest, number: int) -> NDArray[Any] | None:
        """Return a weight as an operator of this step has read it; None if it was written to since."""
        is_of_weight = request.io == "input" and self._slot_table[number].io == "output"
        tensor = self._as_left(number) if is_of_weight else None
        return None if tensor is None else self._reader.host(tensor)

    def _is_written(self, slot_id: int) -> bool:
        """Whether a slot has a row of this step."""
        written = self._columns.iteration
        return slot_id < len(written) and bool(written[slot_id] == self._now)

    def _array_or_none(self, request: TensorRequest) -> NDArray[Any] | None:
        try:
            return self._requested_value(request)
        except MissingError:
            return None

    def _base_or_none(self, message: TensorProto) -> TensorBase | None:
        try:
            return self._base(received_request(message))
        except Exception as error:
            log_once(f"the shape of a tensor is not available: {error}")
            return None

    def _base(self, request: TensorRequest) -> TensorBase:
        try:
            array = self._requested_value(request)
        except MissingError:
            row = None if request.previous else self._row(request)
            if row is None:
                return missing_base()
            return TensorBase(data_type=data_type_of(row.dtype), shape=row.shape, data_size=row.size_bytes)
        return TensorBase(data_type=data_type_of(array.dtype), shape=array.shape, data_size=array.nbytes)

    def _statistics_or_none(self, message: TensorProto) -> TensorStatistics | None:
        try:
            return self._statistics(received_request(message))
        except MissingError:
            return None
        except Exception as error:
            log_once(f"the statistics of a tensor are not available: {error}")
            return None

    def _statistics(self, request: TensorRequest) -> TensorStatistics | None:
        row = None if request.previous else self._row(request)
        return row if row is not None else statistics(self._requested_value(request))

    def _row(self, request: TensorRequest) -> TensorStatistics | None:
        """Return the row of a tensor, if it was written in the step at which the training is stopped."""
        slot_id = self._slot_id(request)
        if self._is_updated(request, slot_id):
            name, slot = self._slot_table[slot_id].node.name, self._slot_table[slot_id].slot
            read = self._slot_table.find(name, slot, "input")
            if read is None:
                return None
            slot_id = read
        is_there = self._is_written(slot_id) and self._has_run(slot_id)
        return self._columns.statistics(slot_id) if is_there else None


def _tell(request: TensorRequest, error: Exception) -> None:
    log_once(f"{request.node}:{request.slot} cannot be sent: {error}")
