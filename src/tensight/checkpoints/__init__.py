"""Checkpoints: every format is read as data, never as code."""

from __future__ import annotations

from tensight.checkpoints.checkpoint import Checkpoint, Entry, Scalar
from tensight.checkpoints.opening import open_checkpoint

__all__ = ["Checkpoint", "Entry", "Scalar", "open_checkpoint"]
