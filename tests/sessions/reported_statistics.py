"""Statistics as an agent tells them of its tensors, in one block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensight import wire
from tensight.tensors import COUNTS, MEASURES, statistics
from tensight.wire.telemetry_pb2 import Receipt, StatisticsRows
from tests.sessions.live_stage import GRAPH, Agent, stream


def told(values: Mapping[str, Any], iteration: int, graph: str = GRAPH) -> StatisticsRows:
    """Return the block that tells of tensors: ``name``, ``name:slot``, ``name:input.slot``."""
    declared, rows = [], []
    for number, (name, value) in enumerate(values.items()):
        node, _, slot = name.partition(":")
        io = "input" if slot.startswith("input.") else "output"
        declared.append(wire.BlockTensor(number, graph, node, int(slot.rpartition(".")[2] or 0), io, number))
        rows.append(statistics(np.asarray(value, np.float32)))
    return wire.block_message(
        iteration,
        declared,
        np.arange(len(rows)),
        np.array([wire.data_type_of(row.dtype) for row in rows]),
        [row.shape for row in rows],
        np.array([[getattr(row, name) for name in COUNTS] for row in rows]),
        np.array([[getattr(row, name) for name in MEASURES] for row in rows]),
        np.array([row.content_hash for row in rows], np.uint64),
    )


async def tell(agent: Agent, values: Mapping[str, Any], iteration: int, graph: str = GRAPH) -> Receipt:
    """Send statistics as an agent does while its training runs."""
    return await agent.calls.send_statistics(agent.caller, stream([told(values, iteration, graph)]))
