"""Runs in motion: the messages between a training process and the debug server, and what they mean.

The messages themselves are in `debugger_pb2` and `telemetry_pb2`. What is read from a message is checked here: it is a
plain object within known bounds, or a `WireError`.
"""

from __future__ import annotations

from tensight.wire.blocks import (
    BLOCK_COUNTS,
    BLOCK_NUMBERS,
    BlockReader,
    BlockTensor,
    ReceivedBlock,
    block_message,
)
from tensight.wire.chunks import chunks
from tensight.wire.commands import (
    delete_command,
    exit_command,
    failed,
    ok,
    recheck,
    run_back,
    run_node,
    run_step,
    set_command,
    set_reply,
    version_reply,
    view_command,
    views_command,
)
from tensight.wire.data_types import data_type_of, numpy_dtype, shape_of
from tensight.wire.errors import WireError
from tensight.wire.hits import ReceivedHit, ReceivedParameter, received_hit
from tensight.wire.protocol import (
    CHUNK_BYTES,
    MAX_MESSAGE_BYTES,
    MOST_COMMAND_BYTES,
    MOST_DIMENSIONS,
    MOST_NAME,
    MOST_PARAMETERS,
    MOST_TEXT,
    NOTICE,
    PROCESS_KEY_METADATA,
    PROTOCOL,
    TOKEN_METADATA,
)
from tensight.wire.statistics import (
    ReceivedBase,
    ReceivedRow,
    ReceivedStatistics,
    missing_base,
    missing_summary,
    received_base,
    received_row,
    received_statistics,
    summary_of,
)
from tensight.wire.tensor_pieces import (
    TensorPiece,
    TensorRequest,
    received_request,
    tensor_messages,
    tensor_piece,
    tensor_request,
)
from tensight.wire.text import encoded, name, slot_number, text
from tensight.wire.versions import VersionCheck, check_metadata, check_version
from tensight.wire.views import (
    AssembledView,
    RequestedView,
    ViewAssembler,
    view_failure,
    view_of,
    view_pieces,
    view_request,
)

__all__ = [
    "BLOCK_COUNTS",
    "BLOCK_NUMBERS",
    "CHUNK_BYTES",
    "MAX_MESSAGE_BYTES",
    "MOST_COMMAND_BYTES",
    "MOST_DIMENSIONS",
    "MOST_NAME",
    "MOST_PARAMETERS",
    "MOST_TEXT",
    "NOTICE",
    "PROCESS_KEY_METADATA",
    "PROTOCOL",
    "TOKEN_METADATA",
    "AssembledView",
    "BlockReader",
    "BlockTensor",
    "ReceivedBase",
    "ReceivedBlock",
    "ReceivedHit",
    "ReceivedParameter",
    "ReceivedRow",
    "ReceivedStatistics",
    "RequestedView",
    "TensorPiece",
    "TensorRequest",
    "VersionCheck",
    "ViewAssembler",
    "WireError",
    "block_message",
    "check_metadata",
    "check_version",
    "chunks",
    "data_type_of",
    "delete_command",
    "encoded",
    "exit_command",
    "failed",
    "missing_base",
    "missing_summary",
    "name",
    "numpy_dtype",
    "ok",
    "received_base",
    "received_hit",
    "received_request",
    "received_row",
    "received_statistics",
    "recheck",
    "run_back",
    "run_node",
    "run_step",
    "set_command",
    "set_reply",
    "shape_of",
    "slot_number",
    "summary_of",
    "tensor_messages",
    "tensor_piece",
    "tensor_request",
    "text",
    "version_reply",
    "view_command",
    "view_failure",
    "view_of",
    "view_pieces",
    "view_request",
    "views_command",
]
