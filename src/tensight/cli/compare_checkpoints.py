"""`tensight compare checkpoints` and `tensight check checkpoint`."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.options import Html, Json, Quiet, Threads
from tensight.cli.output import console, count, number, print_json, problem_data, reading_progress, size, table

if TYPE_CHECKING:
    from rich.console import Console

    from tensight.checkpoints import Checkpoint, Entry
    from tensight.compare.checkpoint_health import CheckpointHealth, Finding
    from tensight.compare.checkpoints import CheckpointComparison, ComparedPair
    from tensight.tensors import TensorStatistics

MOST_NAMES = 12

_CHECKPOINT = "A file (.safetensors, .pt, .pth, .bin, .ckpt, .npz), an index of shards, or a folder."


def checkpoints(
    a: Annotated[str, typer.Argument(metavar="A", help=_CHECKPOINT)],
    b: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    rtol: Annotated[float, typer.Option("--rtol", help="Relative tolerance of every element.")] = 0.0,
    atol: Annotated[float, typer.Option("--atol", help="Absolute tolerance of every element.")] = 0.0,
    mapping: Annotated[
        Path | None, typer.Option("--mapping", metavar="FILE", help="Which name of A is which of B.")
    ] = None,
    write_mapping: Annotated[
        Path | None,
        typer.Option("--write-mapping", metavar="FILE", help="Write down which names were paired, and why."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows in the table of what differs most.")] = 20,
    threads: Threads = None,
    html: Html = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare two checkpoints: what is the same, what moved and by how much, what was lost."""
    from tensight.checkpoints import open_checkpoint
    from tensight.compare import mapping_files
    from tensight.compare.checkpoint_matching import mapping_lines
    from tensight.compare.checkpoints import compare_checkpoints

    names = mapping_files.read_mapping(mapping) if mapping is not None else None
    with ExitStack() as stack:
        first, second = (stack.enter_context(open_checkpoint(path)) for path in (a, b))
        show = stack.enter_context(reading_progress(quiet=quiet))
        result = compare_checkpoints(first, second, mapping=names, rtol=rtol, atol=atol, threads=threads, progress=show)
    if write_mapping is not None:
        mapping_files.write_mapping(write_mapping, mapping_lines(result.matching))
    if html is not None:
        from tensight.cli.reports import checkpoints as report
        from tensight.cli.reports.parts import write_report

        write_report(html, report, _comparison_data(first, second, result))
    if json:
        print_json(_comparison_data(first, second, result))
    else:
        _print_comparison(first, second, result, limit)
    raise typer.Exit(result.verdict.exit_code)


def checkpoint(
    path: Annotated[str, typer.Argument(metavar="A", help=_CHECKPOINT)],
    threads: Threads = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look at one checkpoint: NaN and Inf, zeros, lost optimizer states, missing shards."""
    from tensight.checkpoints import open_checkpoint
    from tensight.compare.checkpoint_health import check_checkpoint

    with open_checkpoint(path) as opened, reading_progress(quiet=quiet) as show:
        result = check_checkpoint(opened, threads=threads, progress=show)
    if json:
        print_json(_health_data(opened, result))
    else:
        _print_health(opened, result)
    raise typer.Exit(result.verdict.exit_code)


def _print_comparison(a: Checkpoint, b: Checkpoint, result: CheckpointComparison, limit: int) -> None:
    from rich.markup import escape

    out = console()
    for which, checkpoint in (("A", a), ("B", b)):
        out.print(f"[bold]{which}[/] {escape(_heading(checkpoint))}")
    colour = {"same": "green", "different": "yellow"}.get(result.verdict.value, "red")
    out.print(f"[bold {colour}]{result.verdict.value}[/]: {escape(_summary(result))}")
    _print_findings(out, result.findings)
    _print_pairs(out, result, limit)
    _print_values(out, result, limit)
    _print_rules(out, result)


def _heading(checkpoint: Checkpoint) -> str:
    files = f", {count(len(checkpoint.files), 'file')}" if len(checkpoint.files) > 1 else ""
    tensors = count(len(checkpoint.entries), "tensor")
    return f"{checkpoint.path} ({checkpoint.format}{files}): {tensors}, {size(checkpoint.size_bytes)}"


def _summary(result: CheckpointComparison) -> str:
    from tensight.compare.checkpoint_roles import is_parameter

    if not result.pairs:
        return "no tensor of A is one of B by name, values or shape"
    same = sum(pair.is_same for pair in result.pairs)
    within = sum(pair.is_within and not pair.is_same for pair in result.pairs)
    parts = [f"{same:,} of {count(len(result.pairs), 'pair')} bit-equal"]
    if within:
        parts.append(f"{within:,} within tolerance")
    different = sum(not pair.is_within for pair in result.pairs)
    if different:
        norms = sorted(
            pair.difference.relative_norm
            for pair in result.pairs
            if pair.difference and not pair.is_within and is_parameter(pair.pair.b)
        )
        middle = norms[len(norms) // 2] if norms else math.nan
        how = f" (parameters by {number(middle, 3)} of their norm in the median)" if math.isfinite(middle) else ""
        parts.append(f"{different:,} {'differs' if different == 1 else 'differ'}{how}")
    unpaired = len(result.only_a) + len(result.only_b)
    if unpaired:
        parts.append(f"{unpaired:,} without a pair")
    if result.values:
        amount = len(result.values)
        parts.append(f"{count(amount, 'other value')} {'differs' if amount == 1 else 'differ'}")
    return "; ".join(parts)


def _print_findings(out: Console, findings: tuple[Finding, ...]) -> None:
    from rich.markup import escape

    for finding in findings:
        mark = "[dim]•[/]" if finding.is_note else "[bold red]●[/]"
        out.print(f"{mark} {escape(finding.text)}")


def _print_pairs(out: Console, result: CheckpointComparison, limit: int) -> None:
    from rich.markup import escape

    differing = [
        pair
        for pair in result.pairs
        if pair.difference is not None and not pair.is_within and not _is_in_other_dtype_only(pair)
    ]
    if not differing:
        return
    differing.sort(key=_severity, reverse=True)
    rows = table(
        "tensor", "shape", "norm of change", "largest", "changed", right=("norm of change", "largest", "changed")
    )
    for pair in differing[:limit]:
        row = pair.difference
        assert row is not None  # noqa: S101 - chosen above
        share = f"{100 * row.changed / row.count:.3g} %" if row.count else "–"
        is_finite = row.a.non_finite_count == row.b.non_finite_count
        norm = number(row.relative_norm, 3) if is_finite else "NaN or Inf"
        cells = (pair.name, str(list(pair.pair.b.shape)), norm, number(row.max_abs, 3), share)
        rows.add_row(*map(escape, cells))
    out.print(rows)
    if len(differing) > limit:
        out.print(f"  [dim]… {count(len(differing) - limit, 'more tensor')} (--limit, or --json)[/]")


def _is_in_other_dtype_only(pair: ComparedPair) -> bool:
    """Return whether the values differ only by rounding to another dtype, which a finding reports."""
    row = pair.difference
    return row is not None and bool(row.rounded or row.rounded_back) and not pair.pair.has_same_dtype


def _severity(pair: ComparedPair) -> tuple[bool, float]:
    """Return the sort key: parameters first, then by the relative norm of the change."""
    from tensight.compare.checkpoint_roles import is_parameter

    row = pair.difference
    far = math.inf if row is None or not math.isfinite(row.relative_norm) else row.relative_norm
    return is_parameter(pair.pair.b), far


def _print_values(out: Console, result: CheckpointComparison, limit: int) -> None:
    from rich.markup import escape

    in_both = [value for value in result.values if not value.only_in]
    if in_both:
        rows = table("value", "A", "B")
        for value in in_both[:limit]:
            rows.add_row(escape(value.name), escape(_brief(value.a)), escape(_brief(value.b)))
        out.print(rows)
        if len(in_both) > limit:
            out.print(f"  [dim]… {count(len(in_both) - limit, 'more value')} (--limit, or --json)[/]")
    for which in ("A", "B"):
        _print_only_in(
            out, f"values only in {which}", [value.name for value in result.values if value.only_in == which]
        )


def _print_only_in(out: Console, heading: str, names: list[str]) -> None:
    from rich.markup import escape

    if names:
        more = f", … ({len(names):,})" if len(names) > MOST_NAMES else ""
        out.print(f"[dim]{heading}:[/] {escape(', '.join(names[:MOST_NAMES]))}{more}")


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _print_rules(out: Console, result: CheckpointComparison) -> None:
    """Print the rules by which names were paired, unless all names are equal."""
    from tensight.compare.checkpoint_matching import SAME_NAME

    rules: dict[str, int] = {}
    for pair in result.pairs:
        rules[pair.pair.rule] = rules.get(pair.pair.rule, 0) + 1
    turned = sum(pair.pair.is_transposed for pair in result.pairs)
    if set(rules) - {SAME_NAME} or turned:
        words = ", ".join(f"{amount:,} by {rule}" for rule, amount in rules.items())
        out.print(
            f"[dim]paired: {words}{f'; {turned:,} transposed' if turned else ''} (--write-mapping FILE lists all)[/]"
        )
    for which, entries in (("A", result.only_a), ("B", result.only_b)):
        _print_only_in(out, f"only in {which}", [entry.name for entry in entries])


def _print_health(checkpoint: Checkpoint, result: CheckpointHealth) -> None:
    from rich.markup import escape

    out = console()
    out.print(escape(_heading(checkpoint)))
    for names in checkpoint.tied:
        out.print(f"[dim]• one tensor with several names: {escape(', '.join(names[:MOST_NAMES]))}[/]")
    _print_findings(out, result.findings)
    if result.verdict.exit_code == 0:
        but = ", but see above" if result.findings else ""
        what = "neither NaN nor Inf, no lost optimizer state, no damage"
        out.print(f"[green]Nothing wrong in {count(len(result.statistics), 'tensor')}: {what}{but}.[/]")


def _finding_data(finding: Finding) -> dict[str, object]:
    return {"kind": finding.kind, "text": finding.text, "names": list(finding.names), "note": finding.is_note}


def _checkpoint_data(checkpoint: Checkpoint) -> dict[str, object]:
    return {
        "path": checkpoint.path,
        "format": checkpoint.format,
        "files": list(checkpoint.files),
        "tensors": len(checkpoint.entries),
        "size_bytes": checkpoint.size_bytes,
        "tied": [list(names) for names in checkpoint.tied],
        "problems": problem_data(checkpoint.problems),
    }


def _comparison_data(a: Checkpoint, b: Checkpoint, result: CheckpointComparison) -> dict[str, object]:
    return {
        "verdict": result.verdict.value,
        "summary": _summary(result),
        "a": _checkpoint_data(a),
        "b": _checkpoint_data(b),
        "findings": [_finding_data(finding) for finding in result.findings],
        "pairs": [_pair_data(pair) for pair in result.pairs],
        "only_a": [_entry_data(entry) for entry in result.only_a],
        "only_b": [_entry_data(entry) for entry in result.only_b],
        "values": [
            {"name": value.name, "a": value.a, "b": value.b, "only_in": value.only_in} for value in result.values
        ],
    }


def _pair_data(pair: ComparedPair) -> dict[str, object]:
    a, b, row = pair.pair.a, pair.pair.b, pair.difference
    data: dict[str, object] = {
        "a": a.name,
        "b": b.name,
        "rule": pair.pair.rule,
        "transposed": pair.pair.is_transposed,
        "shape_a": list(a.shape),
        "shape_b": list(b.shape),
        "dtype_a": a.dtype.name,
        "dtype_b": b.dtype.name,
        "same": pair.is_same,
        "within_tolerance": pair.is_within,
    }
    if row is not None:
        data |= {
            "changed": row.changed,
            "count": row.count,
            "both_nan": row.both_nan,
            "relative_norm": row.relative_norm,
            "max_abs": row.max_abs,
            "required_rtol": row.required_rtol,
            "rounded": row.rounded or None,
            "statistics_a": _statistics_data(row.a),
            "statistics_b": _statistics_data(row.b),
        }
    return data


def _statistics_data(row: TensorStatistics) -> dict[str, object]:
    return {
        "nan": row.nan_count,
        "inf": row.non_finite_count - row.nan_count,
        "zeros": row.zero_count,
        "min": row.min,
        "max": row.max,
        "mean": row.mean,
        "l2_norm": row.l2_norm,
    }


def _entry_data(entry: Entry) -> dict[str, object]:
    return {"name": entry.name, "shape": list(entry.shape), "dtype": entry.dtype.name, "file": entry.file}


def _health_data(checkpoint: Checkpoint, result: CheckpointHealth) -> dict[str, object]:
    return {
        "verdict": "nothing wrong" if result.verdict.exit_code == 0 else "something is wrong",
        "checkpoint": _checkpoint_data(checkpoint),
        "findings": [_finding_data(finding) for finding in result.findings],
        "tensors": [
            _entry_data(entry) | _statistics_data(result.statistics[name]) for name, entry in checkpoint.entries.items()
        ],
    }
