"""Names of one model in the words of another, learnt from what is known to be the same in both."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def paths_in_b(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> dict[str, str]:
    """Return which path of A is which of B, by a vote.

    Parameters
    ----------
    pairs : iterable of (sequence of str, sequence of str)
        Parts of two paths that are the same, such as ``("blocks", "0", "norm")`` and ``("layers", "0", "ln")``; then
        what they lie in is the same, too.

    Returns
    -------
    dict of str to str
        With slashes between the parts. Of several candidates the most frequent, of equally frequent ones the shortest.
    """
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for parts_a, parts_b in pairs:
        shorter = min(len(parts_a), len(parts_b))
        for left_out in range(shorter):
            path_a, path_b = parts_a[: len(parts_a) - left_out], parts_b[: len(parts_b) - left_out]
            votes["/".join(path_a)]["/".join(path_b)] += 1
    return {a: max(of_a, key=lambda b: (of_a[b], -len(b))) for a, of_a in votes.items()}
