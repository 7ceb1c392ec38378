"""HTML tables of records for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.client.rows import Cells, RowFormat, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.sessions.records import (
        ComparedOperator,
        ComparisonRecord,
        DumpRecord,
        Execution,
        FindingRecord,
        FoundNode,
        Frame,
        HitParameter,
        NodeHits,
        OriginRecord,
        SessionRecord,
        SourceFile,
        Statistics,
        StatisticsRow,
        TensorRecord,
        TreeEntry,
        UnmatchedRow,
        WatchpointRecord,
    )

_STATISTICS_TITLES = ("dtype", "shape", "min", "max", "mean", "std", "L2 norm", "NaN", "−Inf", "+Inf", "zero")


def session_html(record: SessionRecord) -> str:
    """Return a summary of a session as HTML."""
    step = f"{record.step} of {record.total_steps}" if record.total_steps is not None else record.step
    lines: list[Cells] = [
        ("session", f"{record.id} ({record.name})"),
        ("state", record.state.value + (f": {record.message}" if record.message else "")),
        ("step", step),
        ("node", record.node),
        ("framework", f"{record.framework} {record.framework_version} {record.backend}".strip()),
        ("ranks", ", ".join(f"{rank.rank} ({rank.state.value})" for rank in record.ranks[:64])),
        ("watchpoints", record.watchpoints),
        ("hits", f"{record.hits}{', outdated: recheck' if record.outdated else ''}"),
    ]
    return table(("", ""), [line for line in lines if line[1] != ""])


def comparison_html(record: ComparisonRecord) -> str:
    """Return a summary of a comparison as HTML."""
    lines: list[Cells] = [("A", record.a.title), ("B", record.b.title)]
    if record.verdict is None:
        about = record.message or (f"{record.what}, {record.done} of {record.total}" if record.total else record.what)
        return table(("", ""), [*lines, (record.state.value, about)])
    for rank in record.ranks:
        name = f"rank {rank.rank}: " if len(record.ranks) > 1 else ""
        lines.append((f"{name}{rank.verdict}", rank.sentence))
        if rank.first is not None:
            lines.append(("line", line_of_code(rank.first.source)))
        lines += [("", note) for note in rank.notes]
    return table(("", ""), lines)


def statistics_html(statistics: Statistics) -> str:
    """Return the statistics of a tensor as HTML."""
    return table(_STATISTICS_TITLES, [_statistics(statistics)])


def line_of_code(frame: Frame | None) -> str:
    """Return ``file:line  code``, or ``file:first-last  code …``; empty if there is none."""
    if frame is None:
        return ""
    if frame.line is None:
        return f"{frame.file}  {frame.code}"
    return f"{frame.file}:{frame.lines}  {frame.code}" + (" …" if "-" in frame.lines else "")


def _statistics(it: Statistics) -> Cells:
    numbers = (it.min, it.max, it.mean, it.std, it.l2_norm)
    counts = (it.nan_count, it.neg_inf_count, it.pos_inf_count, it.zero_count)
    return (it.dtype, _shape(it.shape), *numbers, *counts)


def _shape(shape: tuple[int, ...] | None) -> str:
    return "" if shape is None else str(list(shape))


def _hits(node: NodeHits) -> Iterator[Cells]:
    for tensor in node.tensors:
        for hit in tensor.hits:
            what = "; ".join(map(_parameter, hit.parameters)) if hit.hit else ", ".join(hit.errors)
            slot = f"{'input ' if tensor.io == 'input' else ''}{tensor.slot}"
            yield node.rank, node.node, slot, hit.name or hit.watchpoint, hit.condition, what, line_of_code(node.line)


def _parameter(parameter: HitParameter) -> str:
    actual = "" if parameter.actual is None else f" (is {parameter.actual:.6g})"
    return f"{parameter.name}={parameter.preset}{actual}"


def _found(node: FoundNode) -> Iterator[Cells]:
    yield node.rank, node.graph, node.entry.path, node.entry.type, ", ".join(node.entry.roles), node.entry.hits


def _entry(entry: TreeEntry) -> Iterator[Cells]:
    yield entry.label, entry.kind, entry.type, entry.nodes, entry.watched, entry.hits


def _row(row: StatisticsRow) -> Iterator[Cells]:
    slot = f"{'input ' if row.io == 'input' else ''}{row.slot}"
    yield (row.rank, row.node, slot, row.step, row.type, *_statistics(row.statistics))


def _tensor(tensor: TensorRecord) -> Iterator[Cells]:
    numbers = tensor.statistics
    extremes = (numbers.min, numbers.max, numbers.mean) if numbers else (None, None, None)
    what = (tensor.dtype, _shape(tensor.shape), tensor.status, tensor.scalar)
    yield (f"{tensor.io} {tensor.slot}", tensor.address, *what, *extremes, ", ".join(tensor.abbreviations))


def _source(file: SourceFile) -> Iterator[Cells]:
    for line in file.lines:
        yield file.file, line.line, line.code, line.nodes


def _watchpoint(record: WatchpointRecord) -> Iterator[Cells]:
    yield record.id, record.name, record.text, record.selection, record.nodes, record.enabled, record.hits


def _dump(dump: DumpRecord) -> Iterator[Cells]:
    ranks, by = ", ".join(map(str, dump.ranks[:64])), f"{dump.framework} {dump.framework_version}".strip()
    yield dump.name, ranks, by, dump.session, dump.problem


def _finding(finding: FindingRecord) -> Iterator[Cells]:
    yield finding.certainty, finding.title, finding.step, finding.where.get("line", ""), finding.rule


def _origin(origin: OriginRecord) -> Iterator[Cells]:
    yield origin.sentence, origin.step, line_of_code(origin.line), "" if origin.certain else "not certain"


def _execution(execution: Execution) -> Iterator[Cells]:
    yield execution.step, execution.graph, ", ".join(execution.graphs), execution.has_data


def _compared(operator: ComparedOperator) -> Iterator[Cells]:
    mark = "→" if operator.is_divergent else ""
    name_b = "" if operator.name_b == operator.name else operator.name_b
    yield (
        mark, operator.step, operator.phase, operator.name, name_b, operator.type, operator.rule, operator.text,
        operator.added, line_of_code(operator.source)
    )  # fmt: skip


def _unmatched(row: UnmatchedRow) -> Iterator[Cells]:
    yield row.kind, row.name, row.type, row.phase


HITS: RowFormat[NodeHits] = RowFormat(
    "nodes with hits", ("rank", "node", "slot", "watchpoint", "condition", "threshold (actual value)", "line"), _hits
)
FOUND: RowFormat[FoundNode] = RowFormat("nodes", ("rank", "graph", "node", "type", "roles", "hits"), _found)
TREE: RowFormat[TreeEntry] = RowFormat("entries", ("name", "kind", "type", "nodes", "watched", "hits"), _entry)
STATISTICS: RowFormat[StatisticsRow] = RowFormat(
    "tensors", ("rank", "node", "slot", "step", "type", *_STATISTICS_TITLES), _row
)
TENSORS: RowFormat[TensorRecord] = RowFormat(
    "tensors", ("slot", "address", "dtype", "shape", "status", "value", "min", "max", "mean", "hits"), _tensor
)
SOURCES: RowFormat[SourceFile] = RowFormat("files of code", ("file", "line", "code", "nodes"), _source)
WATCHPOINTS: RowFormat[WatchpointRecord] = RowFormat(
    "watchpoints", ("id", "name", "condition", "tensors", "nodes", "enabled", "hits"), _watchpoint
)
DUMPS: RowFormat[DumpRecord] = RowFormat("dumps", ("name", "ranks", "written by", "session", "problem"), _dump)
ORIGINS: RowFormat[OriginRecord] = RowFormat("origins", ("what", "step", "line", ""), _origin)
FINDINGS: RowFormat[FindingRecord] = RowFormat("findings", ("", "what", "since step", "line", "rule"), _finding)
EXECUTIONS: RowFormat[Execution] = RowFormat("executions", ("step", "graph", "with", "has data"), _execution)
COMPARED: RowFormat[ComparedOperator] = RowFormat(
    "compared operators",
    ("", "step", "phase", "A", "B, if another name", "type", "matched by", "difference", "added", "line"),
    _compared,
)
UNMATCHED: RowFormat[UnmatchedRow] = RowFormat("without a counterpart", ("", "name", "type", "phase"), _unmatched)
