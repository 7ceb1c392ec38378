"""The ids with which sequences of words are filled up to a common length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.facts.samples import distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray


def filled(ids: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Return the positions with which sequences are filled up at their ends; None if they are not.

    Parameters
    ----------
    ids : ndarray, shape (sequences, positions)
    """
    sequences, positions = ids.shape
    if sequences < 4 or not positions:
        return None
    values, counts = distinct(ids[:, -1])
    differs = ids != values[counts.argmax()]
    lengths = np.where(differs.any(1), positions - differs[:, ::-1].argmax(1), 0)
    is_filled: NDArray[np.bool_] = np.arange(positions) >= lengths[:, None]
    # The same id may begin or end each sequence. Where it is within them, it is a word, or the black of a picture.
    is_word = bool((~differs & ~is_filled)[:, 1:].any())
    has_lengths = int((lengths < positions - 1).sum()) >= sequences // 2 and len(distinct(lengths)[0]) >= 3
    return None if is_word or not has_lengths else is_filled


def masked_by(hidden: NDArray[np.bool_], ids: NDArray[Any]) -> str:
    """Return what a mask hides: ``padding``, ``words`` (all but the padding), or an empty text for anything else.

    Parameters
    ----------
    hidden : ndarray of bool, shape (sequences, positions)
    ids : ndarray, shape (sequences, positions)
    """
    is_filled = filled(ids)
    if is_filled is None:
        return ""
    return "padding" if (hidden == is_filled).all() else "words" if (hidden != is_filled).all() else ""


def within(ids: NDArray[Any], index: int) -> NDArray[np.bool_]:
    """Return where an id is between others of its sequence.

    Parameters
    ----------
    ids : ndarray, shape (sequences, positions)
    index : int
    """
    differs = ids != index
    after = np.logical_or.accumulate(differs, 1)
    before = np.logical_or.accumulate(differs[:, ::-1], 1)[:, ::-1]
    result: NDArray[np.bool_] = ~differs & after & before
    return result
