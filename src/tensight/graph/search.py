"""Search for nodes by name, type, kind, or source line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from tensight.errors import InputError
from tensight.graph.kinds import NodeKind, kinds
from tensight.graph.model import Graph
from tensight.graph.source import parse_frame

if TYPE_CHECKING:
    from tensight.graph.node import Node

SearchBy = Literal["name", "type", "kind", "stack"]
_Matches = Callable[[str], bool]

LONGEST_SHOWN = 200
"""Number of characters of an invalid regular expression that a message repeats."""

_WITH_NEW_MEANING = re.compile(r"\[\[|--|&&|~~|\|\|")
"""Parts of regular expressions for which Python warns that their meaning may change in a later version."""


def search(
    graphs: Graph | Iterable[Graph],
    query: str,
    *,
    by: SearchBy = "name",
    regex: bool = False,
    case_sensitive: bool = True,
) -> tuple[Node, ...]:
    """Find the nodes that match a query, in the order of the graphs.

    Parameters
    ----------
    graphs : Graph or iterable of Graph
        The graphs to search.
    query : str
        A part of the searched text, or a regular expression that matches a part of it.
    by : {"name", "type", "kind", "stack"}
        The searched text: the node's name; its type; the value of one of its `NodeKind` (``weight``), which must
        match completely; the text of one of its source frames (``# - /p/net.py:16  x = self.relu(x)``).
    regex : bool
        Whether `query` is a regular expression.
    case_sensitive : bool
        Whether case matters, so that ``relu`` does not match ``ReLU``.

    Returns
    -------
    tuple of Node
        The nodes that match.

    Raises
    ------
    InputError
        If `by` is invalid, `query` is not a valid regular expression, or no kind matches it.
    """
    selected = (graphs,) if isinstance(graphs, Graph) else tuple(graphs)
    if by == "kind":
        return _by_kind(selected, query, regex=regex, case_sensitive=case_sensitive)
    matches = _remembering(_matcher(query, regex=regex, case_sensitive=case_sensitive, whole=False))
    if by == "name":
        return tuple(node for graph in selected for node in graph.nodes if matches(node.name))
    if by == "type":
        return tuple(node for graph in selected for node in graph.nodes if matches(node.type))
    if by == "stack":
        # Most lines occur in thousands of stacks.
        in_line = _remembering(lambda line: bool(line.strip()) and matches(parse_frame(line).text))
        return tuple(node for graph in selected for node in graph.nodes if any(map(in_line, node.stack)))
    raise InputError(f"by is {by!r}; it must be one of 'name', 'type', 'kind', 'stack'")


def text_pattern(query: str, *, case_sensitive: bool = True, ascii_classes: bool = False) -> re.Pattern[str]:
    r"""Compile a regular expression that a user typed.

    Parameters
    ----------
    query : str
    case_sensitive : bool
    ascii_classes : bool
        Whether ``\w``, ``\d``, ``\s`` and ``\b`` are limited to ASCII, as in RE2.

    Raises
    ------
    InputError
        It is not a valid regular expression, or too large to compile.
    """
    flags = (re.ASCII if ascii_classes else 0) | (0 if case_sensitive else re.IGNORECASE)
    try:
        if not _WITH_NEW_MEANING.search(query):
            return re.compile(query, flags)
        # The warning is useless to the user, and catch_warnings() makes Python repeat earlier warnings of a training.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(query, flags)
    except (re.error, RecursionError, OverflowError) as error:
        shown = query if len(query) <= LONGEST_SHOWN else f"{query[:LONGEST_SHOWN]}…"
        raise InputError(f"{shown!r} is not a valid regular expression: {error}") from None


def _by_kind(graphs: Iterable[Graph], query: str, *, regex: bool, case_sensitive: bool) -> tuple[Node, ...]:
    matches = _matcher(query, regex=regex, case_sensitive=case_sensitive, whole=True)
    matching_kinds = {kind for kind in NodeKind if matches(kind.value)}
    if not matching_kinds:
        names = ", ".join(kind.value for kind in NodeKind)
        raise InputError(f"unknown kind of node {query!r}; kinds are {names}")
    return tuple(node for graph in graphs for node in graph.nodes if not matching_kinds.isdisjoint(kinds(graph, node)))


def _matcher(query: str, *, regex: bool, case_sensitive: bool, whole: bool) -> _Matches:
    if regex:
        pattern = text_pattern(query, case_sensitive=case_sensitive)
        find = pattern.fullmatch if whole else pattern.search
        return lambda text: find(text) is not None
    needle = query if case_sensitive else query.lower()
    if case_sensitive:
        return (lambda text: needle == text) if whole else (lambda text: needle in text)
    return (lambda text: needle == text.lower()) if whole else (lambda text: needle in text.lower())


def _remembering(matches: _Matches) -> _Matches:
    """Return a cached version of `matches`, because types and source lines repeat in a graph."""
    results: dict[str, bool] = {}

    def remembered(text: str) -> bool:
        is_match = results.get(text)
        if is_match is None:
            is_match = results[text] = matches(text)
        return is_match

    return remembered
