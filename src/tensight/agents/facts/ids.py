"""Whether most of the ids that an embedding is given are one and the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.facts.padding import filled, within
from tensight.agents.facts.samples import distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_ROWS = 1000
"""Number of rows of an embedding from which on it is one of words or items, and not of symbols, levels or flags."""

_LEAST_SEQUENCES, _LEAST_POSITIONS = 8, 12
_MOST_IDS = 1 << 15
"""Number of ids that are read."""

_RAREST = 0.1
"""Of the positions, the share whose ids may be others."""


def id_facts(ids: NDArray[Any], padding_index: int | None) -> dict[str, Any]:
    """Return the id that occurs most often between others, and its share of the ids that are no padding.

    Parameters
    ----------
    ids : ndarray of whole numbers, shape (sequences, positions)
    padding_index : int, optional
        The id that the embedding takes for padding.
    """
    if ids.ndim != 2 or len(ids) < _LEAST_SEQUENCES or ids.shape[1] < _LEAST_POSITIONS:
        return {}
    lookups = ids.size
    ids = ids[: max(_MOST_IDS // ids.shape[1], _LEAST_SEQUENCES)]
    is_filled = filled(ids)
    words = ids if is_filled is None else ids[~is_filled]
    values, counts = distinct(words)
    common = int(values[counts.argmax()])
    facts = {"lookups": lookups, "common_id": common, "common": 0.0}
    if common == padding_index or 2 * counts.max() < words.size:
        return facts
    # What is at the ends may be padding, and is left out with the ids that end it.
    ids = ids if is_filled is None else np.where(is_filled, common, ids)
    is_inner = within(ids, common)
    differs = ids != common
    is_other = differs & (np.cumsum(differs, 1) > 1) & (np.cumsum(differs[:, ::-1], 1)[:, ::-1] > 1)
    inner, others = is_inner.sum(0), is_other.sum(0)
    is_counted = inner + others >= _LEAST_SEQUENCES
    if is_counted.sum() < _LEAST_POSITIONS:
        return facts
    shares = inner[is_counted] / (inner + others)[is_counted]
    return facts | {"distinct": len(values), "common": float(np.quantile(shares, _RAREST))}
