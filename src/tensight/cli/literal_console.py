"""A terminal that shows what it is given: names come from strangers, and may hold commands for terminals."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tensight.cli.output import visible


class LiteralConsole(Console):
    """A console on which only its own styles are commands; control characters in texts are shown as escapes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object into segments of text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
