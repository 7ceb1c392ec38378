"""Constants of the protocol, and the bounds that protect against hostile peers."""

from __future__ import annotations

PROTOCOL = 1
"""Version of the extensions numbered from 1000 on; `Process.protocol` of an agent that supports them."""

CHUNK_BYTES = 3 * 2**20
"""Content of a piece of a tensor or graph, as in MindSpore: any gRPC peer accepts 4 MiB."""

MAX_MESSAGE_BYTES = 8 * 2**20
"""The largest message that a server accepts."""

MOST_COMMAND_BYTES = 4 * 2**20 - 2**10
"""The largest command that is sent: a MindSpore process accepts 4 MiB, and ends the training on a larger one."""

PROCESS_KEY_METADATA = "tensight-process"
"""Key of the call metadata that identifies the calling process."""

TOKEN_METADATA = "authorization"  # noqa: S105 - the name of the key, not a token
"""Key of the call metadata with the token, as ``Bearer TOKEN``."""

NOTICE = b"notice: "
"""Prefix of a heartbeat with a message of Tensight's agent for users; other heartbeats mean that it is alive."""

OVER = b"over: "
"""Prefix of the same text when it no longer applies."""

STOP = b"stop"
"""A heartbeat by which Tensight's agent requests that the run stops at its next step."""

MOST_TEXT = 4_096
"""Maximum length of a text for users in characters."""

MOST_NAME = 16_384
"""Maximum length of the name of a node or graph in characters."""

MOST_DIMENSIONS = 64
"""Maximum number of dimensions; more than any framework allows."""

MOST_PARAMETERS = 64
"""Maximum number of parameters of a watchpoint in a hit."""

MOST_SLOT = 2**31 - 1
"""Slots are sent as text; this is the maximum in other messages."""
