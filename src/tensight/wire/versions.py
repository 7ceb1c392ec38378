"""The versions of training processes that this server supports."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.wire.protocol import PROTOCOL
from tensight.wire.text import text

if TYPE_CHECKING:
    from tensight.wire.debugger_pb2 import Metadata

OLDEST, NEWEST = (1, 1), (2, 3)
"""Range of MindSpore versions with the same protocol."""

_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?![0-9])", re.ASCII)


@dataclass(frozen=True, slots=True)
class VersionCheck:
    """Whether the server supports a process.

    Attributes
    ----------
    matched : bool
    message : str
        For the user; empty if there is nothing to know.
    """

    matched: bool
    message: str = ""


def check_version(ms_version: str) -> VersionCheck:
    """Check a version of MindSpore against those that this server supports.

    Parameters
    ----------
    ms_version : str
        As the process sent it, for example ``2.0.0-alpha``; versions up to 1.0 sent none.
    """
    supported = f"MindSpore {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    if not ms_version:
        return VersionCheck(False, f"MindSpore 1.0 or older; the debugger understands {supported}")
    match = _VERSION.match(ms_version)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if OLDEST <= version <= NEWEST:
        return VersionCheck(True)
    shown = ms_version[:40]
    if version[0] == NEWEST[0] and version > NEWEST:
        return VersionCheck(True, f"MindSpore {shown} is newer than the debugger, which was made for {supported}")
    return VersionCheck(False, f"MindSpore {shown}; the debugger understands {supported}")


def check_metadata(message: Metadata) -> VersionCheck:
    """Check the process that registers: MindSpore's own client, or an agent of Tensight."""
    if not message.HasField("process"):
        return check_version(text(message.ms_version, 80))
    protocol = message.process.protocol
    if protocol == PROTOCOL:
        return VersionCheck(True)
    agent = text(message.process.agent_version, 40) or "of unknown version"
    older = "the training process" if protocol < PROTOCOL else "the debug server"
    return VersionCheck(
        False,
        f"the agent ({agent}) speaks protocol {protocol}, the debug server {PROTOCOL}; update Tensight in {older}",
    )
