"""Two runs, checkpoints, loss curves or set-ups compared: what differs, where it began, and whether they can be compared."""

from __future__ import annotations

from tensight.compare.verdict import Verdict

__all__ = ["Verdict"]
