"""Sessions of attached training processes: their messages, the commands sent to them, and their recordings."""

from __future__ import annotations

from tensight.sessions.live.attachments import Attachments
from tensight.sessions.live.settings import Caller, LiveSettings, PageAddress

__all__ = ["Attachments", "Caller", "LiveSettings", "PageAddress"]
