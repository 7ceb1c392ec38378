"""Sessions of training processes that are attached: what each says, what it is told, and what is recorded of it."""

from __future__ import annotations

from tensight.sessions.online.attachments import Attachments
from tensight.sessions.online.settings import Caller, OnlineSettings, PageAddress

__all__ = ["Attachments", "Caller", "OnlineSettings", "PageAddress"]
