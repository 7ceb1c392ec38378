"""Print the findings of a live session: why it does not learn, the hits where it is stopped, and their origins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.cli.diagnosis.text import print_finding
from tensight.cli.origin import print_source
from tensight.cli.output import count, number, table
from tensight.graph.addresses import TensorAddress

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from tensight.client import Session
    from tensight.sessions.records import HitRecord, NodeHits, OriginRecord, Statistics

MOST_WATCHPOINTS = 4
MOST_ORIGINS = 3
MOST_INPUTS = 4


def print_findings(out: Console, session: Session) -> None:
    """Print why the training does not learn, which watchpoints hit in the displayed step, and the origins."""
    for finding in session.findings():
        print_finding(out, finding)
    hits = list(session.hits())
    print_hits(out, session, hits)
    origins: Sequence[OriginRecord] = session.origins()
    # Origins in earlier steps, at which the training did not stop, are shown if this step has none.
    step = session.summary.step
    origins = [origin for origin in origins if origin.step == step] or origins
    for origin in origins[:MOST_ORIGINS]:
        _print_origin(out, session, origin)
    if not origins and hits:
        _print_first_hit(out, session, _worst(hits))


def print_hits(out: Console, session: Session, hits: Iterable[NodeHits]) -> None:
    """Print a row for each watchpoint that hit: the first tensor in the order of execution, and the number of hits."""
    from rich.markup import escape

    amounts = {point.id: point.hits for point in session.watchpoints() if point.hits}
    firsts: dict[int, tuple[NodeHits, HitRecord]] = {}
    for node in hits:
        for hit in (hit for tensor in node.tensors for hit in tensor.hits if hit.hit):
            firsts.setdefault(hit.watchpoint, (node, hit))
    rows = table("watchpoint", "tensors", "first in the order of execution", "actual", right=("tensors",))
    urgent = sorted(firsts.values(), key=lambda first: first[1].severity != "error")
    for node, hit in urgent[:MOST_WATCHPOINTS]:
        colour = "red" if hit.severity == "error" else "yellow"
        amount = number(amounts.get(hit.watchpoint, 1))
        rows.add_row(f"[bold {colour}]● {escape(hit.condition)}[/]", amount, escape(node.node), escape(_actual(hit)))
    out.print(rows)
    if len(urgent) > MOST_WATCHPOINTS:
        out.print(f"[dim]… {count(len(urgent) - MOST_WATCHPOINTS, 'more watchpoint')}[/]\n")


def _print_origin(out: Console, session: Session, origin: OriginRecord) -> None:
    from rich.markup import escape

    colour = "yellow" if origin.anomaly == "all_zero" else "red"
    out.print(f"[bold {colour}]● {escape(origin.sentence)}[/]")
    _print_values(out, session, TensorAddress.parse(origin.address))
    if origin.candidates:
        out.print(f"    [yellow]It may have begun in any of:[/] {escape(', '.join(origin.candidates))}")
    if origin.line is not None:
        print_source(out, origin.line)
        record = session.summary
        if origin.line.end_line is not None and record.capabilities.can_look_closer:
            out.print("    [dim]session.look_closer() captures every operator, and the next stop names the one[/]")
        elif origin.line.end_line is not None and record.closer_command:
            out.print("    [dim]to find the operator, run it again with every operator captured:[/]")
            out.print(f"    {escape(record.closer_command)}", soft_wrap=True)
    out.print()


def _print_first_hit(out: Console, session: Session, node: NodeHits) -> None:
    """Print the first tensor that hit, for anomalies without an operator as their origin."""
    from rich.markup import escape

    tensor = node.tensors[0]
    words = {point.id: point.words for point in session.watchpoints()}
    out.print(f"[bold red]● {escape(node.node)}[/]")
    out.print(f"    {escape(words.get(tensor.hits[0].watchpoint, ''))}")
    _print_values(out, session, TensorAddress.parse(tensor.address))
    if node.line is not None:
        print_source(out, node.line)
    out.print()


def _print_values(out: Console, session: Session, address: TensorAddress) -> None:
    """Print the inputs and the output of an operator."""
    from rich.markup import escape

    node, rank, graph = address.node, address.rank, address.graph
    records = session.tensors(node, rank=rank, graph=graph, step=address.step)
    producers = {slot.slot: slot.peer for slot in session.node(node, rank=rank, graph=graph).inputs}
    inputs = [record for record in records if record.io == "input"]
    for record in inputs[:MOST_INPUTS]:
        producer = producers.get(record.slot) or "from outside the network"
        out.print(f"    input {record.slot}  {escape(producer)}[dim]  {escape(_values(record.statistics))}[/]")
    for record in (record for record in records if record.io == "output" and record.slot == address.slot):
        out.print(f"    output {record.slot}  [bold]{escape(_values(record.statistics))}[/]")


def _worst(hits: list[NodeHits]) -> NodeHits:
    severe = (node for node in hits if any(hit.severity == "error" for tensor in node.tensors for hit in tensor.hits))
    return next(severe, hits[0])


def _actual(hit: HitRecord) -> str:
    if hit.errors:
        return ", ".join(hit.errors)
    actual = (
        f"{entry.name} {number(entry.actual)}" for entry in hit.parameters if entry.hit and entry.actual is not None
    )
    since = "" if hit.since is None else f" since step {hit.since}" + (" or earlier" if hit.may_be_older else "")
    return ", ".join(actual) + since


def _values(statistics: Statistics | None) -> str:
    """Return the statistics of a tensor in a few words."""
    if statistics is None:
        return "not observed"
    parts = [] if statistics.min is None else [f"{number(statistics.min)} … {number(statistics.max)}"]
    for amount, words in (
        (statistics.nan_count, "NaN"),
        (statistics.pos_inf_count, "+Inf"),
        (statistics.neg_inf_count, "-Inf"),
        (statistics.zero_count, "zero"),
    ):
        if amount:
            parts.append(f"{amount:,} of {statistics.count:,} {words}")
    return ", ".join(parts)
