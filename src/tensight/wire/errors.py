"""Errors in messages."""

from __future__ import annotations

from tensight.errors import TensightError


class WireError(TensightError):
    """A message of a peer is invalid, or something cannot be expressed in the protocol."""

    code = "message-invalid"
