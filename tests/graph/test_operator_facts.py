"""What is known of operators by their types."""

from __future__ import annotations

from tensight.graph.operator_facts import kept_if_short


def test_only_what_is_said_of_short_names_is_kept() -> None:
    asked: list[str] = []

    @kept_if_short
    def length(text: str) -> int:
        asked.append(text)
        return len(text)

    short, long = "MatMul", "x" * 10_000
    assert [length(text) for text in (short, long) * 2] == [6, 10_000] * 2
    assert asked == [short, long, long]
