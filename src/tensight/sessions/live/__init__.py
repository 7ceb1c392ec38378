"""Sessions of training processes that are attached: what each says, what it is told, and what is recorded of it."""

from __future__ import annotations

from tensight.sessions.live.attachments import Attachments
from tensight.sessions.live.settings import Caller, LiveSettings, PageAddress

__all__ = ["Attachments", "Caller", "LiveSettings", "PageAddress"]
