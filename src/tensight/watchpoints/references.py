"""References for norms: the same tensor before, its peers before, or the layer nearest to the loss.

Such comparisons need no absolute threshold, so they do not depend on the scale of the loss. The peers of a tensor are
the other tensors of the same watchpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.watchpoints.columns import float_column, unless_propagated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.watchpoints.columns import Arguments, BoolColumn, Columns, FloatColumn

PREVIOUS = "previous"
"""The norm in the previous step, or a tenth of the usual norm for a tensor of this size if that is larger."""
EARLIER = "earlier"
"""The largest norm of any peer in several steps, all at least `SURGE_STEPS` steps ago."""
LAST_LAYER = "last_layer"
"""The norm, in this step, of the peer nearest to the loss; none for a tiny norm that goes no further."""

SURGE_STEPS = 5
FEWEST_EARLIER = 5
"""Minimum number of steps for a meaningful maximum: with gradient clipping, in each of the first steps the norm of one
vector may be nearly all of the gradient, and the others tiny beside it."""
USUAL_SHARE = 0.1
MUCH_LARGER = 100.0
"""Vanishing gradients stay small from a layer on, as seen from the loss: none further away is so many times larger."""


def norm_growth(columns: Columns, _: Arguments) -> FloatColumn:
    """Return the factor by which a norm has grown in one step."""
    return _ratio(columns, PREVIOUS)


def norm_surge(columns: Columns, _: Arguments) -> FloatColumn:
    """Return the factor by which a norm exceeds all earlier ones."""
    return _ratio(columns, EARLIER)


def depth_ratio(columns: Columns, _: Arguments) -> FloatColumn:
    """Return the ratio of a norm to that of the last layer."""
    return unless_propagated(columns, _ratio(columns, LAST_LAYER))


def _ratio(columns: Columns, name: str) -> FloatColumn:
    norms = float_column(columns, "l2_norm")
    reference = columns.get(("reference", name))
    if reference is None:
        return np.full(len(norms), np.nan)
    ratio: FloatColumn = np.where(reference > 0, norms / reference, np.nan)
    return ratio


class References:
    """The references for the norms of a watchpoint's tensors, updated step by step.

    Parameters
    ----------
    name : str
        `PREVIOUS`, `EARLIER` or `LAST_LAYER`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._norms = np.empty(0)
        self._usual = np.nan
        self._largest: list[float] = []
        self._steps = 0

    def step(
        self,
        tensor_ids: NDArray[np.int64],
        norms: FloatColumn,
        counts: NDArray[np.int64],
        finite: BoolColumn,
        depths: FloatColumn,
    ) -> FloatColumn:
        """Return the reference of each tensor of a step, and store the norms of the step.

        Parameters
        ----------
        tensor_ids : int64 array, shape (rows,)
            The id of each tensor, the same in every step.
        norms, counts : array, shape (rows,)
            L2 norms and numbers of elements.
        finite : bool array, shape (rows,)
            Which tensors have neither NaN nor Inf; the others neither are nor have references.
        depths : float64 array, shape (rows,)
            Greater for tensors of layers nearer to the loss; NaN if unknown.

        Returns
        -------
        float64 array, shape (rows,)
            NaN where there is no reference.
        """
        norms = np.where(finite, norms, np.nan)
        if self.name == LAST_LAYER:
            references = _last_layer(norms, depths)
        elif self.name == EARLIER:
            references = np.full(
                len(norms), self._largest[0] if self._steps >= SURGE_STEPS + FEWEST_EARLIER - 1 else np.nan
            )
            self._remember_largest(norms)
        else:
            references = self._previous(tensor_ids, norms, counts)
        return np.where(finite, references, np.nan)

    def _previous(self, tensor_ids: NDArray[np.int64], norms: FloatColumn, counts: NDArray[np.int64]) -> FloatColumn:
        missing = int(tensor_ids.max(initial=-1)) + 1 - len(self._norms)
        if missing > 0:
            self._norms = np.concatenate([self._norms, np.full(missing, np.nan)])
        sizes = np.sqrt(counts)
        before = self._norms[tensor_ids]
        usual = USUAL_SHARE * self._usual * sizes
        # Before the second step there is no usual norm; fmax ignores NaN.
        references = np.where(np.isnan(before), np.nan, np.fmax(before, usual))
        is_finite = ~np.isnan(norms)
        self._norms[tensor_ids[is_finite]] = norms[is_finite]
        some = norms > 0
        per_element = np.sort(norms[some] / sizes[some])
        if len(per_element):
            self._usual = float(per_element[len(per_element) // 2])
        return references

    def _remember_largest(self, norms: FloatColumn) -> None:
        largest = float(np.fmax.reduce(norms, initial=0.0))
        self._steps += 1
        # The running maximum over all steps except the last few.
        self._largest.append(max(largest, self._largest[-1] if self._largest else 0.0))
        if len(self._largest) > SURGE_STEPS:
            del self._largest[0]


def _last_layer(norms: FloatColumn, depths: FloatColumn) -> FloatColumn:
    is_finite = ~np.isnan(depths) & ~np.isnan(norms)
    if np.count_nonzero(is_finite) < 2:
        return np.full(len(norms), np.nan)
    deepest = depths[is_finite].max()
    compared = is_finite & ~_is_alone(norms, depths, is_finite)
    return np.where(compared, norms[is_finite & (depths == deepest)].max(), np.nan)


def _is_alone(norms: FloatColumn, depths: FloatColumn, is_finite: BoolColumn) -> BoolColumn:
    """Return which norms are tiny beside that of a layer further from the loss: the gradient has not vanished there.

    The gradient takes another path then: the queries and keys of an attention with similar values have hardly any
    gradient, nor does a level of a feature pyramid without detections.
    """
    order = np.flatnonzero(is_finite)
    order = order[np.argsort(depths[order], kind="stable")]
    further = np.maximum.accumulate(norms[order])
    alone = np.zeros(len(norms), np.bool_)
    alone[order] = (norms[order] > 0) & (further > MUCH_LARGER * norms[order])
    return alone
