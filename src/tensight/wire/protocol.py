"""The numbers that both ends of the protocol agree on, and the bounds that keep a hostile peer harmless."""

from __future__ import annotations

PROTOCOL = 1
"""Version of what is numbered from 1000 on; `Process.protocol` of an agent that speaks it."""

CHUNK_BYTES = 3 * 2**20
"""Content of one piece of a tensor or graph, as MindSpore cuts them: any gRPC peer accepts 4 MiB."""

MAX_MESSAGE_BYTES = 8 * 2**20
"""The largest message that a server accepts."""

MOST_COMMAND_BYTES = 4 * 2**20 - 2**10
"""The largest command that is sent: a MindSpore process accepts 4 MiB, and ends the training if it cannot have one."""

PROCESS_KEY_METADATA = "tensight-process"
"""Key of the call metadata that says which process calls."""

TOKEN_METADATA = "authorization"  # noqa: S105 - the name of the key, not a token
"""Key of the call metadata with the token, as ``Bearer TOKEN``."""

NOTICE = b"notice: "
"""Before the text of a heartbeat with which Tensight's agent tells a person something; others say that it is alive."""

OVER = b"over: "
"""Before the same text, when it is no longer so."""

STOP = b"stop"
"""A heartbeat with which Tensight's agent has the run stopped where it is next."""

MOST_TEXT = 4_096
"""Characters of a text for people."""

MOST_NAME = 16_384
"""Characters of the name of a node or graph."""

MOST_DIMENSIONS = 64
"""More than any framework allows."""

MOST_PARAMETERS = 64
"""Parameters of a watchpoint in a hit."""

MOST_SLOT = 2**31 - 1
"""Slots travel as text; this is the largest that other messages could hold."""
