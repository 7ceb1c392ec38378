"""What can be wrong with a message."""

from __future__ import annotations

from tensight.errors import TensightError


class WireError(TensightError):
    """A message of a peer makes no sense, or something cannot be said in the protocol."""

    code = "message-invalid"
