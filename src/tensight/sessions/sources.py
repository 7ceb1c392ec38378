"""The lines of code behind the nodes of a run: which files, which lines, and how many nodes came from each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from tensight.graph import is_gradient_scope, is_optimizer, parse_frame, user_frame
from tensight.sessions.patterns import require_short
from tensight.sessions.records import Frame, SourceFile, SourceLine, SourcePage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from tensight.graph import Graph, Node, SourceFrame
    from tensight.sessions.programs import Program

_LIBRARIES = ("site-packages", "dist-packages")


def frame_records(frames: tuple[SourceFrame, ...]) -> tuple[Frame, ...]:
    """Return the frames of a stack, innermost first, with a mark at the person's own."""
    own = user_frame(frames)
    return tuple(_frame(frame, is_user_code=frame is own) for frame in frames)


def user_line(node: Node | None) -> Frame | None:
    """Return the line of code that is most likely the person's own; None if a node has no stack."""
    own = user_frame(node.frames) if node is not None else None
    return None if own is None else _frame(own, is_user_code=True)


def node_of_use(graph: Graph, node: Node, position: Callable[[Node], int]) -> Node | None:
    """Return the operator in whose line a person looks for a node that has no line of its own.

    Of a parameter it is the first operator of the forward pass that reads it, of a gradient the first that reads its
    parameter; None if there is none with a line.

    Parameters
    ----------
    graph : Graph
        That has the node.
    node : Node
    position : callable
        Returns the position of a node in the order of execution.
    """
    parameter = node if node.is_parameter else graph.get(_parameter_of(node))
    if parameter is None:
        return None
    readers = [
        reader
        for reader in _readers(graph, parameter)
        if reader.is_operator and not is_optimizer(reader) and not is_gradient_scope(reader.name)
    ]
    return next((reader for reader in sorted(readers, key=position) if user_frame(reader.frames) is not None), None)


def _readers(graph: Graph, parameter: Node) -> list[Node]:
    """Return the operators that read a parameter; in graphs of MindSpore they do so through one that only loads it."""
    direct = graph.consumers(parameter)
    loaded = [reader for load in direct if load.type == "Load" for reader in graph.consumers(load)]
    return [reader for reader in direct if reader.type != "Load"] + loaded


def _parameter_of(node: Node) -> str:
    """Return the name of the parameter whose gradient an operator gathers, or that it updates; empty for others."""
    scope = node.scope.removeprefix("Gradients/").removeprefix("Optimizer/").removeprefix("Default/")
    gathers = node.type == "AccumulateGrad" or is_optimizer(node)
    return scope.replace("/", ".") if gathers else ""


def _frame(frame: SourceFrame, *, is_user_code: bool) -> Frame:
    return Frame(
        file=frame.file,
        line=frame.line,
        end_line=frame.end_line,
        code=frame.code,
        has_substack=frame.has_substack,
        is_user_code=is_user_code,
    )


@dataclass(slots=True)
class _Line:
    """One line of a file, and in lower case what a query looks for."""

    record: SourceLine
    text: str


class SourceIndex:
    """The lines of code of some graphs; made once, asked often.

    Parameters
    ----------
    programs : iterable of Program
        Of all ranks. A node counts once for each line of its stack, in whichever graphs it is.
    """

    def __init__(self, programs: Iterable[Program]) -> None:
        stacks = Counter(found for program in programs for found in program.stacks())
        nodes: Counter[tuple[str, int]] = Counter()
        frames: dict[tuple[str, int], SourceFrame] = {}
        with_substack: set[tuple[str, int]] = set()
        # Most nodes share their stack with others.
        for found, amount in stacks.items():
            lines = {}
            for frame in map(parse_frame, chain.from_iterable(found)):
                if frame.file and frame.line is not None:
                    lines[frame.file, frame.line] = frame
            for at, frame in lines.items():
                nodes[at] += amount
                if at not in frames or not frame.is_range:
                    frames[at] = frame
                if frame.has_substack:
                    with_substack.add(at)
        self._files: dict[str, list[_Line]] = {}
        for at in sorted(frames, key=lambda at: (_is_library(at[0]), at)):
            frame = frames[at]
            line = SourceLine(
                line=at[1],
                end_line=frame.end_line,
                code=frame.code,
                has_substack=at in with_substack,
                nodes=nodes[at],
            )
            text = f"{frame.file}:{line.line} {frame.code}".lower()
            self._files.setdefault(frame.file, []).append(_Line(line, text))

    def page(self, query: str, offset: int, limit: int, texts: Collection[str] = ()) -> SourcePage:
        """Return some of the files, the person's own first, with the lines that match.

        Parameters
        ----------
        query : str
            A part of ``path:line code``, in any case; all if empty.
        offset, limit : int
            The first file, and how many.
        texts : collection of str
            The files whose text is known.
        """
        wanted = require_short(query, "the query").lower()
        found: list[tuple[str, list[_Line]]] = []
        for file, lines in self._files.items():
            matching = [line for line in lines if wanted in line.text] if wanted else lines
            if matching:
                found.append((file, matching))
        return SourcePage(
            total=len(found),
            offset=offset,
            files=tuple(
                SourceFile(
                    file=file,
                    is_library=_is_library(file),
                    has_text=file in texts,
                    lines=tuple(line.record for line in lines),
                )
                for file, lines in found[offset : offset + limit]
            ),
        )


class Sources:
    """The lines of code of a session, gathered again only when its graphs are others."""

    def __init__(self) -> None:
        self._known: tuple[tuple[Program, ...], SourceIndex] | None = None

    def of(self, programs: tuple[Program, ...]) -> SourceIndex:
        """Return the lines of code of the programs of all ranks; for large ones this takes a second at first."""
        known = self._known
        if known is None or known[0] != programs:
            known = self._known = (programs, SourceIndex(programs))
        return known[1]


def _is_library(file: str) -> bool:
    return any(name in file for name in _LIBRARIES)
