"""Two runs, checkpoints, loss curves or set-ups compared: what differs, where it began, if they are comparable."""

from __future__ import annotations

from tensight.compare.verdict import Verdict

__all__ = ["Verdict"]
