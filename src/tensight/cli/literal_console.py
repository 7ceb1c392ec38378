"""A terminal that shows what it is given: names come from strangers, and may hold commands for terminals."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from tensight.cli.visible import visible


class LiteralConsole(Console):
    """A console on which only its own styles are commands; control characters in texts are shown as escapes."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text with its markup applied: what every string comes to, before it is measured and printed."""
        return super().render_str(visible(text), **options)
