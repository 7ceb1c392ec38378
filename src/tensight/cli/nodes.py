"""`tensight nodes`: search the graphs of a dump."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.exit_codes import WRONG_INPUT
from tensight.cli.opening import numbers
from tensight.cli.options import DumpArgument, Json, Ranks
from tensight.cli.output import console, count, frame_data, frame_text, print_json, print_problems, problem_data, table

if TYPE_CHECKING:
    from tensight.graph import Graph, Node


class By(str, Enum):
    """The attribute of a node that a query is compared with."""

    NAME = "name"
    TYPE = "type"
    KIND = "kind"
    STACK = "stack"


def nodes(
    dump: DumpArgument,
    query: Annotated[str, typer.Argument(help="Text to find; with --by kind: weight, gradient, activation, ...")],
    by: Annotated[By, typer.Option("--by", help="Where to look for it.")] = By.NAME,
    regex: Annotated[bool, typer.Option("--regex", help="The query is a regular expression.")] = False,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Upper and lower case are the same.")
    ] = False,
    ranks: Ranks = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows in the table.")] = 50,
    json: Json = False,
) -> None:
    """Find nodes by name, operator type, kind, or a line of their stack."""
    from tensight.dumps import open_dump
    from tensight.graph import search

    opened = open_dump(dump)
    requested_ranks = numbers(ranks, "--ranks")
    graphs = [
        (rank, graph)
        for rank in opened.ranks
        if requested_ranks is None or rank in requested_ranks
        for graph in opened.graphs(rank)
    ]
    matches = [
        (rank, graph, node)
        for rank, graph in graphs
        for node in search(graph, query, by=by.value, regex=regex, case_sensitive=not ignore_case)
    ]
    if json:
        print_json({"nodes": [node_data(*entry) for entry in matches], "problems": problem_data(opened.problems)})
    else:
        _print_nodes(matches, limit, several_ranks=len(opened.ranks) > 1)
        print_problems(opened.problems)
    if not graphs:
        console(stderr=True).print("[red]Nothing was searched:[/] there is no graph.")
        raise typer.Exit(WRONG_INPUT)


def _print_nodes(matches: list[tuple[int, Graph, Node]], limit: int, *, several_ranks: bool) -> None:
    from rich.markup import escape

    from tensight.graph import user_frame
    from tensight.graph.shared_lines import calls_with_same_line

    out = console()
    rows = table(*(["rank"] if several_ranks else []), "node", "type", "output", "source")
    for rank, graph, node in matches[:limit]:
        frame = user_frame(node.frames)
        outputs = ", ".join(output_text(slot.dtype, slot.shape) for slot in node.outputs[:4])
        source = "–" if frame is None else frame_text(frame)
        if frame is not None and calls_with_same_line(graph, node) > 1:
            source += ", or of another call"
        cells = [node.name, node.type, outputs, source]
        rows.add_row(*([str(rank)] if several_ranks else []), *map(escape, cells))
    if matches:
        out.print(rows)
    more = f", {limit} shown (--limit)" if len(matches) > limit else ""
    out.print(f"{count(len(matches), 'node')}{more}")


def output_text(dtype: str, shape: tuple[int, ...] | None) -> str:
    """Return the type of an output as text: float32[2, 3]."""
    return f"{dtype or '?'}[{', '.join(map(str, shape))}]" if shape is not None else dtype or "–"


def node_data(rank: int, graph: Graph, node: Node) -> dict[str, object]:
    """Return one node as JSON data."""
    return {
        "rank": rank,
        "graph": graph.name,
        "name": node.name,
        "type": node.type,
        "scope": node.scope,
        "inputs": [edge.source for edge in node.inputs],
        "outputs": [{"dtype": slot.dtype, "shape": slot.shape} for slot in node.outputs],
        "consumers": [consumer.name for consumer in graph.consumers(node)],
        "stack": [frame_data(frame) for frame in node.frames],
    }
