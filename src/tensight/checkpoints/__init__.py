"""Checkpoints at rest: every format read as data, never as code."""

from __future__ import annotations
