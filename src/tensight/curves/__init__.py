"""Loss curves at rest: logs and event files of any trainer."""

from __future__ import annotations
