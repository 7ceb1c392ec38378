"""Names of one model in the words of another, learnt from what is known to be the same in both."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WRAPPERS = frozenset(
    {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_flat_param", "network", "_backbone"}
)
"""Parts of names that only say what a module is wrapped in."""

WORDS = {
    "gamma": "weight", "beta": "bias", "embedding_table": "weight", "moving_mean": "running_mean",
    "moving_variance": "running_var", "moments": "momentum_buffer", "moment1": "exp_avg", "moment2": "exp_avg_sq",
    "adam_m": "exp_avg", "adam_v": "exp_avg_sq", "accum": "momentum_buffer", "kernel": "weight", "scale": "weight",
}  # fmt: skip
"""MindSpore's and Flax's words, and PyTorch's."""


def plain_name(name: str) -> str:
    """Return a parameter's name in PyTorch's words, without the names of wrappers."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    return ".".join(WORDS.get(part, part) for part in parts) or name


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
