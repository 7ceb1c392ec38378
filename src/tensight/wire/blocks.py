"""Statistics of many tensors in one message, in columns.

A training process writes its rows as they are in memory, without a Python operation for each. The server reads them
with the bounds and checks of every other message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensight.tensors import COUNTS, MEASURES
from tensight.tensors.narrow_types import dtype_name
from tensight.tensors.schema import FIRST_MEASURES
from tensight.wire.data_types import numpy_dtype, shape_of
from tensight.wire.errors import WireError
from tensight.wire.protocol import MOST_DIMENSIONS
from tensight.wire.statistics import ReceivedStatistics
from tensight.wire.telemetry_pb2 import BlockTensor as BlockTensorMessage
from tensight.wire.telemetry_pb2 import StatisticsBlock, StatisticsRows
from tensight.wire.text import encoded, name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tensight.wire.tensor_pieces import Io

MOST_BLOCK_ROWS = 200_000
"""Maximum rows of a message; that many need some 20 MB, which exceeds the limit of a message."""

MOST_MEASURES = 64
"""Measures of a row: more than any version will have."""

MOST_DECLARED = 1_000_000
"""Maximum number of tensors that a stream may declare."""

_MOST_KINDS = 2**14
"""Types and shapes that a stream remembers; a network has some hundreds."""

MOST_DECLARED_CHARACTERS = 256 * 2**20
"""Maximum number of characters in all their names."""


class BlockTensor(NamedTuple):
    """A tensor that rows of a block refer to.

    Attributes
    ----------
    number : int
        The number in rows, valid until the stream ends, or until another tensor has it.
    graph, node : str
        The node's full name.
    slot : int
    io : {"output", "input"}
    position : int
        Position in the execution order.
    """

    number: int
    graph: str
    node: str
    slot: int
    io: Io = "output"
    position: int = 0


def block_message(
    iteration: int,
    declared: Iterable[BlockTensor],
    tensors: NDArray[np.integer],
    data_types: NDArray[np.integer],
    shapes: Sequence[tuple[int, ...]],
    counts: NDArray[np.int64],
    numbers: NDArray[np.float64],
    hashes: NDArray[np.uint64],
) -> StatisticsRows:
    """Return rows of statistics as a message.

    Parameters
    ----------
    iteration : int
    declared : iterable of BlockTensor
        Tensors whose declaration is new or has changed since an earlier message of the stream.
    tensors : array of int, shape (n,)
        Number of the tensor of each row.
    data_types : array of int, shape (n,)
        DataType numbers; see `data_type_of`.
    shapes : sequence of tuple of int
    counts : array of int64, shape (n, len(COUNTS))
    numbers : array of float64, shape (n, len(MEASURES))
        NaN where there is no finite element.
    hashes : array of uint64, shape (n,)
        Hashes of the content.
    """
    block = StatisticsBlock(
        tensors=tensors.tolist(),
        data_types=data_types.tolist(),
        dimensions=list(map(len, shapes)),
        dims=list(chain.from_iterable(shapes)),
        counts=np.ascontiguousarray(counts, "<i8").tobytes(),
        numbers=np.ascontiguousarray(numbers, "<f8").tobytes(),
        hashes=hashes.tolist(),
    )
    block.declared.extend(
        BlockTensorMessage(
            number=tensor.number,
            graph=encoded(tensor.graph),
            node=encoded(tensor.node),
            slot=tensor.slot,
            input=tensor.io == "input",
            position=tensor.position,
        )
        for tensor in declared
    )
    return StatisticsRows(iteration=iteration, block=block)


@dataclass(frozen=True, slots=True)
class ReceivedBlock:
    """Rows of statistics of one iteration, in columns; each row is consistent.

    Attributes
    ----------
    iteration : int
    tensors : list of BlockTensor
        The tensor of each row.
    dtypes : list of str
        Names; empty for a type without a name here.
    shapes : list of tuple of int
    sizes : array of int64, shape (n,)
        In bytes.
    counts : array of int64, shape (n, len(COUNTS))
    numbers : array of float64, shape (n, len(MEASURES))
        NaN where there is no finite element.
    hashes : array of uint64, shape (n,)
    """

    iteration: int
    tensors: list[BlockTensor]
    dtypes: list[str]
    shapes: list[tuple[int, ...]]
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]
    numbers: NDArray[np.float64]
    hashes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.tensors)

    def only(self, rows: Sequence[int]) -> ReceivedBlock:
        """Return some of the rows."""
        at = np.array(rows, np.int64)
        return ReceivedBlock(
            iteration=self.iteration,
            tensors=[self.tensors[row] for row in rows],
            dtypes=[self.dtypes[row] for row in rows],
            shapes=[self.shapes[row] for row in rows],
            sizes=self.sizes[at],
            counts=self.counts[at],
            numbers=self.numbers[at],
            hashes=self.hashes[at],
        )

    def statistics(self) -> Iterator[ReceivedStatistics]:
        """Yield the rows one by one, as if each had come in a separate message."""
        columns = zip(
            *(self.dtypes, self.shapes, self.sizes.tolist()),
            *(self.counts.tolist(), self.numbers.tolist(), self.hashes.tolist()),
            strict=True,
        )
        for dtype, shape, size, counts, numbers, content_hash in columns:
            values = dict(zip((*COUNTS, *MEASURES), (*counts, *numbers), strict=True))
            yield ReceivedStatistics(dtype, shape, size, values, content_hash or None, partial=False)


class BlockReader:
    """Reads the blocks of a stream, which refer to tensors by numbers that earlier blocks declared."""

    def __init__(self) -> None:
        self._declared: dict[int, BlockTensor] = {}
        self._characters = 0
        self._kinds: dict[tuple[int, tuple[int, ...]], tuple[str, int]] = {}

    def rows(self, message: StatisticsRows) -> ReceivedBlock:
        """Read a block.

        Raises
        ------
        WireError
            Columns are inconsistent, a tensor is not declared or cannot be, or numbers contradict each other.
        """
        block = message.block
        self._declare(block)
        amount = len(block.tensors)
        if amount > MOST_BLOCK_ROWS:
            raise WireError(f"a block has {amount:,} rows of statistics; at most {MOST_BLOCK_ROWS:,} are accepted")
        if not amount == len(block.data_types) == len(block.dimensions) == len(block.hashes):
            raise WireError(
                f"a block has {amount:,} rows, {len(block.data_types):,} types, {len(block.dimensions):,} shapes and"
                f" {len(block.hashes):,} hashes"
            )
        counts = np.frombuffer(_sized(block.counts, 8 * len(COUNTS) * amount), "<i8")
        shapes = _shapes(block)
        kinds = [self._kind(data_type, shape) for data_type, shape in zip(block.data_types, shapes, strict=True)]
        counts = _checked(counts.astype(np.int64).reshape(amount, len(COUNTS)), shapes)
        return ReceivedBlock(
            iteration=max(message.iteration, -1),
            tensors=[self._tensor(number) for number in block.tensors],
            dtypes=[dtype for dtype, _ in kinds],
            shapes=shapes,
            sizes=counts[:, 0] * np.array([item for _, item in kinds], np.int64),
            counts=counts,
            numbers=_measures(block.numbers, counts),
            hashes=np.array(block.hashes, np.uint64),
        )

    def _declare(self, block: StatisticsBlock) -> None:
        for message in block.declared:
            if message.number < 0 or message.slot < 0:
                raise WireError(f"a block declares tensor {message.number} of slot {message.slot}; both count from 0")
            tensor = BlockTensor(
                number=message.number,
                graph=name(message.graph),
                node=name(message.node),
                slot=message.slot,
                io="input" if message.input else "output",
                position=message.position,
            )
            former = self._declared.get(message.number)
            self._characters += _characters(tensor) - (0 if former is None else _characters(former))
            self._declared[message.number] = tensor
        if len(self._declared) > MOST_DECLARED or self._characters > MOST_DECLARED_CHARACTERS:
            raise WireError(
                f"a stream declares {len(self._declared):,} tensors, with {self._characters:,} characters in their"
                f" names; at most {MOST_DECLARED:,} and {MOST_DECLARED_CHARACTERS:,} are accepted"
            )

    def _tensor(self, number: int) -> BlockTensor:
        tensor = self._declared.get(number)
        if tensor is None:
            raise WireError(f"a block has a row of tensor {number}, which no block of the stream declares")
        return tensor

    def _kind(self, data_type: int, shape: tuple[int, ...]) -> tuple[str, int]:
        """Return name and element size of a type, cached because they recur in every step."""
        kind = self._kinds.get((data_type, shape))
        if kind is None:
            dtype = numpy_dtype(data_type)
            item_bytes = dtype.itemsize if dtype is not None else 1
            shape_of(shape, item_bytes)
            kind = (dtype_name(dtype) if dtype is not None else "", item_bytes)
            if len(self._kinds) < _MOST_KINDS:
                self._kinds[data_type, shape] = kind
        return kind


def _characters(tensor: BlockTensor) -> int:
    return len(tensor.graph) + len(tensor.node)


def _sized(data: bytes, size_bytes: int) -> bytes:
    if len(data) != size_bytes:
        raise WireError(f"the numbers of a block have {len(data):,} bytes; its rows need {size_bytes:,}")
    return data


def _shapes(block: StatisticsBlock) -> list[tuple[int, ...]]:
    dims = list(block.dims)
    shapes: list[tuple[int, ...]] = []
    start = 0
    for dimensions in block.dimensions:
        if not 0 <= dimensions <= MOST_DIMENSIONS:
            raise WireError(f"a tensor has {dimensions:,} dimensions; at most {MOST_DIMENSIONS} are accepted")
        shapes.append(tuple(dims[start : start + dimensions]))
        start += dimensions
    if start != len(dims):
        raise WireError(f"the shapes of a block have {len(dims):,} lengths; its rows need {start:,}")
    return shapes


def _checked(counts: NDArray[np.int64], shapes: Sequence[tuple[int, ...]]) -> NDArray[np.int64]:
    """Refuse impossible counts: the counts by kind of element must add up to the number of elements."""
    elements = np.array([math.prod(shape) for shape in shapes], np.int64)
    possible = ((counts >= 0) & (counts <= elements[:, None])).all(axis=1) & (counts[:, 0] == elements)
    wrong = ~possible | (counts[:, 1:].sum(axis=1, dtype=np.float64) != elements)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise WireError(
            f"statistics of a tensor of shape {list(shapes[row])} count {counts[row, 0]:,} elements,"
            f" by kind {counts[row, 1:].tolist()}"
        )
    return counts


def _measures(sent: bytes, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the measures, with NaN in rows without finite elements, whatever was received.

    An older process sends fewer measures per row, and a newer one more; new ones come last.
    """
    rows = len(counts)
    each = len(sent) // (8 * rows) if rows else 0
    if len(sent) != 8 * rows * each or (rows and not len(FIRST_MEASURES) <= each <= MOST_MEASURES):
        raise WireError(f"the numbers of a block have {len(sent):,} bytes; its rows need {8 * len(MEASURES) * rows:,}")
    numbers = np.full((rows, len(MEASURES)), np.nan)
    columns = min(each, len(MEASURES))
    numbers[:, :columns] = np.frombuffer(sent, "<f8").reshape(rows, each)[:, :columns]
    numbers[counts[:, 4:].sum(axis=1) == 0] = np.nan
    return numbers
