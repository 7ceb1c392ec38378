"""Selection of the nodes that a watchpoint watches: a rule, then edits that add and remove nodes, in order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tensight.errors import InputError
from tensight.sessions.patterns import matching, require_pattern, require_short
from tensight.watchpoints import Selector, SelectorKind, selected_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tensight.graph import Graph
    from tensight.sessions.graph_index import GraphIndex, Stretch
    from tensight.sessions.records import Edit, Watched

NOTHING = "none"
"""The empty selection, to which edits add nodes."""

MOST_EDITS = 10_000
MOST_EDITS_BY_TEXT = 500
"""Edits that match a text; each of them searches all names."""

NO_NODE = Selector(SelectorKind.NAME, "(?!)")
"""The empty selection as a selector: it matches no name."""

_WORDS = {
    SelectorKind.ALL: "all tensors",
    SelectorKind.WEIGHTS: "the weights",
    SelectorKind.TRAINABLE_WEIGHTS: "the trainable weights",
    SelectorKind.GRADIENTS: "the gradients",
    SelectorKind.ACTIVATIONS: "the outputs of activation functions",
    SelectorKind.ACTIVATION: "the outputs of the activation functions {}",
    SelectorKind.HIDDEN: "the outputs of hidden layers",
    SelectorKind.HIDDEN_ACTIVATION: "the outputs of the activation functions {} in hidden layers",
    SelectorKind.MATRICES: "the weights of two or more dimensions",
    SelectorKind.INNER_MATRICES: "the weights of two or more dimensions in layers that everything has to pass",
    SelectorKind.MATRIX_GRADIENTS: "the gradients of the weights of two or more dimensions",
    SelectorKind.NAME: "the nodes whose names match {}",
    SelectorKind.TYPE: "the outputs of the operators {}",
}


def parse_selection(text: str) -> Selector | None:
    """Parse a selection; None is the empty selection.

    Raises
    ------
    InputError
        The selection is unknown, or its regular expression cannot be used.
    """
    if text.strip().lower() == NOTHING:
        return None
    selector = Selector.parse(text)
    if selector.kind is SelectorKind.NAME:
        require_pattern(selector.argument)
    return selector


def selection_text(base: Selector | None) -> str:
    """Return a selection as text; the inverse of `parse_selection`."""
    return NOTHING if base is None else str(base)


def selection_words(base: Selector | None, edits: Sequence[Edit]) -> str:
    """Describe the watched nodes in words."""
    if base is None:
        return "chosen nodes"
    words = _WORDS[base.kind].format(repr(base.argument) if base.kind is SelectorKind.NAME else ", ".join(base.names))
    return f"{words}, with changes" if edits else words


def effective_edits(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Return the edits without those that a later edit overrides; toggling a node repeatedly leaves the last edit.

    Raises
    ------
    InputError
        There are too many edits to apply in reasonable time, or a text is too long.
    """
    kept: dict[tuple[str, str, str], Edit] = {}
    for edit in edits:
        key = (edit.path, edit.graph, edit.containing.lower())
        if key == ("", "", ""):
            kept.clear()
        kept.pop(key, None)
        kept[key] = edit
        require_short(edit.containing, "the text of an edit")
    by_text = sum(bool(edit.containing) for edit in kept.values())
    if len(kept) > MOST_EDITS or by_text > MOST_EDITS_BY_TEXT:
        raise InputError(
            f"{len(kept):,} edits, {by_text:,} of them by text; a watchpoint takes at most {MOST_EDITS:,}, and"
            f" {MOST_EDITS_BY_TEXT:,} by text: choose scopes instead of nodes, or a selection by name"
        )
    return tuple(kept.values())


def watched(
    index: GraphIndex, base: Selector | None, edits: Sequence[Edit], graphs: Sequence[Graph] = ()
) -> NDArray[np.bool_]:
    """Return a mask of the watched nodes of a graph.

    Parameters
    ----------
    index : GraphIndex
        The graph.
    base : Selector or None
        Selection before the edits; None for the empty one.
    edits : sequence of Edit
        For each node, the last edit that covers it decides.
    graphs : sequence of Graph
        All graphs of the rank: a weight that one of them trains counts as trainable in all.

    Returns
    -------
    ndarray of bool, shape (nodes,)
        In the order of the index; constants are never watched.
    """
    mask = np.zeros(len(index), bool) if base is None else _selected(index, base, graphs)
    for edit in edits:
        if edit.graph in ("", index.graph.name):
            _apply(index, edit, mask)
    return mask & index.watchable


def _selected(index: GraphIndex, selector: Selector, graphs: Sequence[Graph]) -> NDArray[np.bool_]:
    if selector.kind is SelectorKind.NAME:
        # Matches the same names as `selected_nodes`, in linear time.
        return matching(index.names, selector.argument)
    if selector.kind is SelectorKind.ALL:
        return np.ones(len(index), bool)
    mask = np.zeros(len(index), bool)
    mask[[index.positions[name] for name in selected_nodes(index.graph, selector, graphs)]] = True
    return mask


def is_known(index: GraphIndex, edit: Edit) -> bool:
    """Return whether a graph has the scope, group or node at the path of an edit."""
    return edit.graph in ("", index.graph.name) and (edit.path in index.scopes or edit.path in index.positions)


def _apply(index: GraphIndex, edit: Edit, mask: NDArray[np.bool_]) -> None:
    """Set the flags of the nodes that an edit covers: of a scope or group, and of a node with that name."""
    text = edit.containing.lower()
    scope = index.scopes.get(edit.path)
    if scope is not None:
        stretch = slice(scope.start, scope.end)
        if text:
            names = index.lower_names[stretch]
            mask[stretch][np.fromiter((text in name for name in names), bool, len(names))] = edit.add
        else:
            mask[stretch] = edit.add
    position = index.positions.get(edit.path)
    if position is not None and text in index.lower_names[position]:
        mask[position] = edit.add


@dataclass(frozen=True, eq=False)
class Watching:
    """Counts of watched nodes in a tree.

    Attributes
    ----------
    amounts, possible : ndarray of int64, shape (nodes,)
        Number of graphs in which each node is watched, and in which it could be, in the order of the tree.
    """

    amounts: NDArray[np.int64]
    possible: NDArray[np.int64]

    @cached_property
    def count(self) -> int:
        """Number of watched nodes."""
        return int(np.count_nonzero(self.amounts))

    @cached_property
    def _sums(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        amounts, possible = (np.concatenate(([0], np.cumsum(counts))) for counts in (self.amounts, self.possible))
        return amounts, possible

    def of_stretch(self, stretch: Stretch) -> Watched:
        """Return whether all, some or none of the nodes in a scope are watched."""
        amount, possible = (int(sums[stretch.end] - sums[stretch.start]) for sums in self._sums)
        return _how_far(amount, possible)

    def of_node(self, position: int) -> Watched:
        """Return whether a node is watched."""
        return _how_far(int(self.amounts[position]), int(self.possible[position]))


def _how_far(amount: int, possible: int) -> Watched:
    if not possible:
        return "never"
    return "none" if not amount else "all" if amount == possible else "some"


@dataclass(frozen=True, eq=False)
class WatchedNodes:
    """The nodes of a graph that a watchpoint watches.

    Attributes
    ----------
    index : GraphIndex
        The graph.
    mask : ndarray of bool, shape (nodes,)
        Mask of the watched nodes, in the order of the index.
    """

    index: GraphIndex
    mask: NDArray[np.bool_]

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the nodes."""
        names = self.index.names
        return frozenset(names[position] for position in self.mask.nonzero()[0].tolist())

    @cached_property
    def count(self) -> int:
        """Number of nodes."""
        return int(np.count_nonzero(self.mask))

    @cached_property
    def watching(self) -> Watching:
        """Counts of watched nodes in the tree of the graph."""
        return Watching(self.mask.astype(np.int64), self.index.watchable.astype(np.int64))
