"""Comparison of two runs, checkpoints, loss curves or set-ups: what differs, and where the difference begins."""

from __future__ import annotations

from tensight.compare.verdict import Verdict

__all__ = ["Verdict"]
