"""The lines of code that created the nodes of a run, by file, with the number of nodes from each line."""

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
    """Return the records of the frames of a stack, innermost first, with the frame of user code marked."""
    user_code_frame = user_frame(frames)
    return tuple(_frame(frame, is_user_code=frame is user_code_frame) for frame in frames)


def user_line(node: Node | None) -> Frame | None:
    """Return the frame of a node that is most likely user code; None if there is none."""
    frame = user_frame(node.frames) if node is not None else None
    return None if frame is None else _frame(frame, is_user_code=True)


def node_of_use(graph: Graph, node: Node, position: Callable[[Node], int]) -> Node | None:
    """Return the operator whose line of code represents a node without one.

    For a parameter, it is the first operator of the forward pass that reads it; for a gradient, the first that reads
    its parameter. None if there is no such operator with a line.

    Parameters
    ----------
    graph : Graph
        The graph of the node.
    node : Node
    position : callable
        Returns the position of a node in execution order.
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
    """Return the operators that read a parameter; in graphs of MindSpore they read it through a ``Load`` operator."""
    direct = graph.consumers(parameter)
    loaded = [reader for load in direct if load.type == "Load" for reader in graph.consumers(load)]
    return [reader for reader in direct if reader.type != "Load"] + loaded


def _parameter_of(node: Node) -> str:
    """Return the parameter whose gradient an operator accumulates, or that it updates; empty for other operators."""
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
    """A line of a file, and the lower-case text that queries are matched against."""

    record: SourceLine
    text: str


class SourceIndex:
    """A searchable index of the lines of code of programs.

    Parameters
    ----------
    programs : iterable of Program
        Programs of all ranks. A node counts once for each line of its stacks, however many graphs have it.
    """

    def __init__(self, programs: Iterable[Program]) -> None:
        stacks = Counter(node_stacks for program in programs for node_stacks in program.stacks())
        nodes: Counter[tuple[str, int]] = Counter()
        frames: dict[tuple[str, int], SourceFrame] = {}
        with_substack: set[tuple[str, int]] = set()
        # Many nodes share their stacks.
        for node_stacks, amount in stacks.items():
            lines = {}
            for frame in map(parse_frame, chain.from_iterable(node_stacks)):
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
        """Return a page of files with their matching lines, user code before libraries.

        Parameters
        ----------
        query : str
            A case-insensitive part of ``path:line code``; empty matches all lines.
        offset, limit : int
            Index of the first file, and the maximum number of files.
        texts : collection of str
            Files whose text is known.
        """
        lower_query = require_short(query, "the query").lower()
        matching_files: list[tuple[str, list[_Line]]] = []
        for file, lines in self._files.items():
            matching = [line for line in lines if lower_query in line.text] if lower_query else lines
            if matching:
                matching_files.append((file, matching))
        return SourcePage(
            total=len(matching_files),
            offset=offset,
            files=tuple(
                SourceFile(
                    file=file,
                    is_library=_is_library(file),
                    has_text=file in texts,
                    lines=tuple(line.record for line in lines),
                )
                for file, lines in matching_files[offset : offset + limit]
            ),
        )


class Sources:
    """The lines of code of a session, cached until its graphs change."""

    def __init__(self) -> None:
        self._cached: tuple[tuple[Program, ...], SourceIndex] | None = None

    def of(self, programs: tuple[Program, ...]) -> SourceIndex:
        """Return the lines of code of the programs of all ranks; for large graphs the first call takes a second."""
        cached = self._cached
        if cached is None or cached[0] != programs:
            cached = self._cached = (programs, SourceIndex(programs))
        return cached[1]


def _is_library(file: str) -> bool:
    return any(name in file for name in _LIBRARIES)
