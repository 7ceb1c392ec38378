"""Translation of the names of one model to those of another, learned from parameters that were matched already."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WRAPPERS = frozenset(
    {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_flat_param", "network", "_backbone"}
)
"""Parts of names that wrappers of modules add."""

WORDS = {
    "gamma": "weight", "beta": "bias", "embedding_table": "weight", "moving_mean": "running_mean",
    "moving_variance": "running_var", "moments": "momentum_buffer", "moment1": "exp_avg", "moment2": "exp_avg_sq",
    "adam_m": "exp_avg", "adam_v": "exp_avg_sq", "accum": "momentum_buffer", "kernel": "weight", "scale": "weight",
}  # fmt: skip
"""Words of MindSpore and Flax, and PyTorch's words for them."""


def plain_name(name: str) -> str:
    """Return a parameter's name in PyTorch's words, without the names of wrappers."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    return ".".join(WORDS.get(part, part) for part in parts) or name


def paths_in_b(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> dict[str, str]:
    """Return the paths of B that correspond to the paths of A, by a vote.

    Parameters
    ----------
    pairs : iterable of (sequence of str, sequence of str)
        Parts of two corresponding paths, such as ``("blocks", "0", "norm")`` and ``("layers", "0", "ln")``; their
        parents correspond, too.

    Returns
    -------
    dict of str to str
        Paths with slashes between the parts. The most frequent candidate wins, among equally frequent ones the
        shortest.
    """
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for parts_a, parts_b in pairs:
        shorter = min(len(parts_a), len(parts_b))
        for left_out in range(shorter):
            path_a, path_b = parts_a[: len(parts_a) - left_out], parts_b[: len(parts_b) - left_out]
            votes["/".join(path_a)]["/".join(path_b)] += 1
    return {a: max(of_a, key=lambda b: (of_a[b], -len(b))) for a, of_a in votes.items()}
