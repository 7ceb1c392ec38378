"""Sends rows of statistics to the server: some while the training runs, all when it stops.

While it runs, the training leaves a copy of its rows here and goes on; a background thread writes the message.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensight.agents.core.rows import NO_TYPE
from tensight.garbage_collection import without_garbage_collection
from tensight.tensors.elements import ELEMENT_NAMES
from tensight.wire import BlockTensor, block_message, data_type_of
from tensight.wire.facts import facts_messages
from tensight.wire.scalars import Scalar, scalars_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.agents.core.connection.connection import Connection
    from tensight.agents.core.program import Program
    from tensight.agents.core.rows import Rows
    from tensight.agents.core.slots import SlotTable
    from tensight.wire.telemetry_pb2 import StatisticsRows

EVERY_S = 0.2
"""Minimum interval between rows that are sent while a training runs."""

_ROWS_OF_A_MESSAGE = 20_000
_MOST_SCALARS = 1000
"""Maximum number of steps whose numbers wait for the server."""

_MOST_FACTS = 1 << 25
"""Maximum number of bytes of facts that wait for the server; further ones are lost."""

RECEIVED_WITHIN_S = 10.0

_DATA_TYPES = np.array([data_type_of(name) for name in ELEMENT_NAMES], np.int64)


class StepRows(NamedTuple):
    """The rows of a step.

    Attributes
    ----------
    iteration : int
    program : Program
        What ran.
    rows : Rows
    """

    iteration: int
    program: Program
    rows: Rows


class Telemetry:
    """Sends rows of statistics, in one stream until the training stops.

    Parameters
    ----------
    slot_table : SlotTable
    """

    def __init__(self, slot_table: SlotTable) -> None:
        self._slot_table = slot_table
        self._latest: StepRows | None = None
        self._scalars: deque[tuple[int, list[Scalar]]] = deque(maxlen=_MOST_SCALARS)
        self._facts: deque[bytes] = deque()
        self._facts_bytes = 0
        self._next_s = 0.0
        self._last_iteration: int | None = None
        self._sending = threading.Lock()
        self._stream: _Stream | None = None
        self._positions: dict[int, dict[str, int]] = {}

    @property
    def is_due(self) -> bool:
        """Whether rows of a running training are due to be sent."""
        return self._latest is None and time.monotonic() >= self._next_s

    @property
    def has_more(self) -> bool:
        """Whether numbers or facts wait to be sent."""
        return bool(self._scalars or self._facts)

    def offer(self, rows: StepRows) -> None:
        """Offer rows to be sent soon, by a call of `send_offered`."""
        self._latest = rows
        self._next_s = time.monotonic() + EVERY_S

    def offer_scalars(self, iteration: int, scalars: list[Scalar]) -> None:
        """Offer the numbers of a step to be sent soon, by a call of `send_offered` or `send`."""
        if scalars:
            self._scalars.append((iteration, scalars))

    def offer_facts(self, line: bytes) -> None:
        """Offer a line of facts, to be sent likewise."""
        if self._facts_bytes + len(line) <= _MOST_FACTS:
            self._facts_bytes += len(line)
            self._facts.append(line)

    def unsent(self, rows: StepRows | None) -> StepRows | None:
        """Return rows unless those of their step have been sent."""
        return None if rows is None or rows.iteration == self._last_iteration else rows

    def send_offered(self, connection: Connection) -> None:
        """Send the rows that were offered last, unless the server still reads earlier ones."""
        with self._sending:
            rows, self._latest = self._latest, None
            if self._stream is None or self._stream.is_ready:
                if rows is not None:
                    self._send(connection, rows)
                self._send_more(connection)

    def send(self, connection: Connection, *batches: StepRows, within_s: float = RECEIVED_WITHIN_S) -> None:
        """Send rows, and return when the server has them."""
        with self._sending:
            self._latest = None
            for rows in batches:
                self._send(connection, rows)
            self._send_more(connection)
            self._finish(within_s)

    def forget(self) -> None:
        """Give up the stream, because the server was lost or is a different one."""
        with self._sending:
            self._latest = None
            self._scalars.clear()
            self._facts.clear()
            self._facts_bytes = 0
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.give_up()

    @without_garbage_collection()
    def _send(self, connection: Connection, rows: StepRows) -> None:
        stream = self._open_stream(connection)
        for message in self._messages(rows, stream.declared):
            stream.put(message)
        self._last_iteration = rows.iteration

    def _send_more(self, connection: Connection) -> None:
        while self._scalars:
            self._open_stream(connection).put(scalars_message(*self._scalars.popleft()))
        lines = [self._facts.popleft() for _ in range(len(self._facts))]
        if lines:
            self._facts_bytes -= sum(map(len, lines))
            for message in facts_messages(lines):
                self._open_stream(connection).put(message)

    def _open_stream(self, connection: Connection) -> _Stream:
        if self._stream is None or self._stream.is_broken:
            self._stream = _Stream(connection)
        return self._stream

    def _finish(self, within_s: float) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.finish(within_s)

    def _messages(self, step: StepRows, declared: dict[int, int]) -> Iterator[StatisticsRows]:
        """Yield rows as messages; only those that were written in this step."""
        rows, program = step.rows, step.program
        written = np.flatnonzero((rows.iterations == step.iteration) & (rows.codes != NO_TYPE))
        counts, numbers, hashes = rows.counts, rows.numbers, rows.hashes
        for start in range(0, len(written), _ROWS_OF_A_MESSAGE):
            chosen = written[start : start + _ROWS_OF_A_MESSAGE]
            slot_ids = rows.slot_ids[chosen]
            yield block_message(
                step.iteration,
                self._declarations(program, slot_ids, declared),
                slot_ids,
                _DATA_TYPES[rows.codes[chosen]],
                [rows.shapes[row] for row in chosen.tolist()],
                counts[chosen],
                numbers[chosen],
                hashes[chosen],
            )

    def _declarations(
        self, program: Program, slot_ids: NDArray[np.int64], declared: dict[int, int]
    ) -> Iterator[BlockTensor]:
        positions = self._positions_of(program)
        for number in slot_ids.tolist():
            if declared.get(number) == program.number:
                continue
            declared[number] = program.number
            tensor_slot = self._slot_table[number]
            position = positions.get(tensor_slot.node.name, len(positions))
            yield BlockTensor(number, program.name, tensor_slot.node.name, tensor_slot.slot, tensor_slot.io, position)

    def _positions_of(self, program: Program) -> dict[str, int]:
        """Return the position of each node in the order of execution; nodes that are not operators come last."""
        positions = self._positions.get(program.number)
        if positions is None:
            ordered = sorted(program.nodes, key=lambda node: node.role != "operator")
            positions = self._positions[program.number] = {node.name: at for at, node in enumerate(ordered)}
        return positions


class _Stream:
    """One call of SendStatistics.

    Attributes
    ----------
    declared : dict of int to int
        Number of the program with which the stream has declared each tensor.
    """

    def __init__(self, connection: Connection) -> None:
        self.declared: dict[int, int] = {}
        self._connection = connection
        self._queue: queue.SimpleQueue[StatisticsRows | None] = queue.SimpleQueue()
        self._call: Any = connection.start_stream("SendStatistics", iter(self._queue.get, None))

    @property
    def is_broken(self) -> bool:
        return self._call is None or self._connection.has_ended(self._call)

    @property
    def is_ready(self) -> bool:
        """Whether everything that was put here is on its way."""
        return self._queue.empty()

    def put(self, message: StatisticsRows) -> None:
        self._queue.put(message)

    def finish(self, within_s: float) -> None:
        self._queue.put(None)
        if self._call is not None:
            self._connection.result(self._call, within_s)

    def give_up(self) -> None:
        self._queue.put(None)
        if self._call is not None:
            self._connection.cancel(self._call)
