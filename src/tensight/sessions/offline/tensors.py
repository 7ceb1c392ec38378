"""The inputs and outputs of a node at a step of a dump."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from tensight.analysis.statistics_table import UNREADABLE
from tensight.dumps import read_tensor
from tensight.errors import TensorFileError
from tensight.graph import TensorAddress
from tensight.sessions.errors import NotFoundError
from tensight.sessions.offline.index import INITIAL
from tensight.sessions.offline.statistics import statistics_record
from tensight.sessions.records import TensorRecord
from tensight.sessions.records.tensors import address_fields
from tensight.sessions.value_texts import scalar_text

if TYPE_CHECKING:
    from tensight.analysis import Analysis
    from tensight.graph import OutputSlot
    from tensight.sessions.offline.index import TensorIndex

MOST_SLOTS = 10_000
"""Inputs, and outputs, of a node that are listed; damaged graphs may have more."""

Abbreviations = Callable[[TensorAddress], tuple[str, ...]]
"""Returns the conditions that hit on a tensor in the shown step."""


def tensor_records(
    analysis: Analysis,
    index: TensorIndex,
    at: TensorAddress,
    abbreviations: Abbreviations,
) -> tuple[TensorRecord, ...]:
    """Return the inputs and outputs of a node at an iteration, with statistics; reads only their files.

    Parameters
    ----------
    analysis : Analysis
    index : TensorIndex
        Index of its dump.
    at : TensorAddress
        Rank, graph, node and iteration; slot and io are ignored.
    abbreviations : Abbreviations

    Raises
    ------
    NotFoundError
        The rank has no such node.
    """
    slots = _slots(index, at)
    if not slots:
        raise NotFoundError(
            f"rank {at.rank} has no node {at.node[:200]!r} in graph {at.graph[:200]!r}", code="node-unknown"
        )
    rows = {address: row for address in slots if (row := index.row(address)) is not None}
    analysis.statistics(np.fromiter(rows.values(), np.int64, len(rows)))
    return tuple(
        _record(analysis, index, address, rows.get(address), slot, abbreviations) for address, slot in slots.items()
    )


def _slots(index: TensorIndex, at: TensorAddress) -> dict[TensorAddress, OutputSlot | None]:
    """Return the addresses of a node's inputs, then of its outputs, each with its declaration in the graph."""
    node = index.node(at.rank, at.graph, at.node)
    if node is None:
        return {} if at.graph else _slots_without_node(index, at)
    iteration = INITIAL if node.is_constant else at.iteration
    slots: dict[TensorAddress, OutputSlot | None] = {}
    for number, producer in enumerate(index.producers(at.rank, at.graph, at.node)[:MOST_SLOTS]):
        if producer is not None:
            source, slot = producer
            declared = source.outputs[slot] if slot < len(source.outputs) else None
            address = _at(at, "input", number, iteration)
            # A constant is the same in every step, and belongs to none.
            slots[replace(address, iteration=INITIAL) if index.reads_constant(address) else address] = declared
    for number in range(min(max(len(node.outputs), 1), MOST_SLOTS)):
        declared = node.outputs[number] if number < len(node.outputs) else None
        slots[_at(at, "output", number, iteration)] = declared
    return slots


def _slots_without_node(index: TensorIndex, at: TensorAddress) -> dict[TensorAddress, OutputSlot | None]:
    """Return the slots of dumped files that belong to no node."""
    sides: tuple[Literal["input", "output"], ...] = ("input", "output")
    possible = (_at(at, io, number, at.iteration) for io in sides for number in range(64))
    return {address: None for address in possible if index.row(address) is not None}


def _at(at: TensorAddress, io: Literal["input", "output"], slot: int, iteration: int) -> TensorAddress:
    return replace(at, io=io, slot=slot, iteration=iteration)


def _record(
    analysis: Analysis,
    index: TensorIndex,
    address: TensorAddress,
    row: int | None,
    declared: OutputSlot | None,
    abbreviations: Abbreviations,
) -> TensorRecord:
    table = analysis.statistics_table
    statistics = None if row is None else statistics_record(table, row)
    status: Literal["available", "statistics_only", "not_kept"] = "not_kept"
    if row is not None and table.rows["state"][row] != UNREADABLE:
        status = "available" if table.files[row].recorded is None else "statistics_only"
    return TensorRecord(
        **address_fields(address),
        type=_producer_type(index, address) or ("" if row is None else table.files[row].op_type),
        status=status,
        dtype=statistics.dtype if statistics is not None else declared.dtype if declared is not None else "",
        shape=statistics.shape if statistics is not None else declared.shape if declared is not None else None,
        size_bytes=0 if statistics is None else statistics.size_bytes,
        has_previous=index.previous(address) is not None,
        scalar=_scalar(analysis, row) if status == "available" and row is not None else scalar_text(statistics),
        statistics=statistics,
        abbreviations=_hits_on(index, address, abbreviations),
    )


def _producer_type(index: TensorIndex, address: TensorAddress) -> str:
    producer = index.producer(address)
    node = producer[0] if producer is not None else index.node(address.rank, address.graph, address.node)
    return "" if node is None else node.type


def _hits_on(index: TensorIndex, address: TensorAddress, abbreviations: Abbreviations) -> tuple[str, ...]:
    """Return the conditions that hit on a tensor or, for an operator's input, on the producer's output."""
    hit_conditions = abbreviations(address)
    producer = index.producer(address)
    if hit_conditions or producer is None or not producer[0].is_operator:
        return hit_conditions
    return abbreviations(replace(address, node=producer[0].name, slot=producer[1], io="output"))


def _scalar(analysis: Analysis, row: int) -> str:
    """Return the value of a tensor with a single element, as text; empty for any other."""
    table = analysis.statistics_table
    if table.rows["count"][row] != 1:
        return ""
    try:
        return str(read_tensor(table.files[row]).reshape(-1)[0])
    except TensorFileError:
        # The file was removed after its statistics were computed, which are still shown.
        return ""
