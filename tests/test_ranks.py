from __future__ import annotations

import pytest

from tensight.ranks import ranges, ranks_text

MANY = range(1024)


@pytest.mark.parametrize(
    ("ranks", "of", "text"),
    [
        (MANY, MANY, "on all 1,024 ranks"),
        (set(MANY) - {17}, MANY, "on 1,023 of 1,024 ranks; not on 17"),
        (
            set(MANY) - set(range(0, 1024, 128)),
            MANY,
            "on 1,016 of 1,024 ranks; not on 0, 128, 256, 384, 512, 640, 768, 896",
        ),
        (set(MANY) - set(range(20, 1024, 64)), MANY, "on 1,008 of 1,024 ranks; not on 20, 84, 148 …"),
        (range(20, 1024, 64), MANY, "on 16 of 1,024 ranks (20, 84, 148 …)"),
        (range(64, 128), MANY, "on 64 of 1,024 ranks (64-127)"),
        ([*range(8, 16), 3, 5, 6], MANY, "on 11 of 1,024 ranks (3, 5-6, 8-15)"),
        ([3], MANY, "on rank 3"),
        ([0], [0], "on rank 0"),
        ([0, 1], [0, 1], "on all 2 ranks"),
        ([3, 0], range(4), "on 2 of 4 ranks (0, 3)"),
        ([3, 0, 1], range(4), "on 3 of 4 ranks; not on 2"),
    ],
)
def test_the_minority_is_named_by_number(ranks: object, of: object, text: str) -> None:
    assert ranks_text(ranks, of) == text  # type: ignore[arg-type]


def test_a_rank_counts_once_and_in_any_order() -> None:
    assert ranks_text([5, 1, 5, 1], [9, 5, 1, 1]) == "on 2 of 3 ranks; not on 9"


def test_a_rank_that_was_not_expected_counts_too() -> None:
    assert ranks_text([7, 8], [0, 1]) == "on 2 of 4 ranks (7-8)"


def test_a_statement_about_no_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ranks_text([], MANY)


def test_numbers_are_ranges_where_they_are_consecutive() -> None:
    assert ranges([7, 2, 1, 0, 3, 3]) == ["0-3", "7"]
    assert ranges([]) == []
