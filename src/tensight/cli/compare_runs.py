"""`tensight compare runs`: the first operator whose inputs agree in two runs and whose output does not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.opening import numbers, open_analysis
from tensight.cli.options import CacheDir, Html, Json, Quiet, Ranks, Steps, Threads
from tensight.cli.output import console, count, number, print_json, print_problems, progress, table
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from tensight.analysis import Analysis
    from tensight.compare.runs import Compared, RunComparison, TensorDifference

ROWS_SHOWN = 12
UNMATCHED_SHOWN = 5


def runs(
    a: Annotated[str, typer.Argument(metavar="A", help="The reference: a dump, a recording or a trace.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The run that is compared with it.")],
    ranks: Ranks = None,
    steps: Steps = None,
    exact: Annotated[bool, typer.Option("--exact", help="A difference of one bit is a finding.")] = False,
    rtol: Annotated[
        float | None,
        typer.Option("--rtol", metavar="X", min=0, help="Relative difference of a tensor that counts as equal."),
    ] = None,
    atol: Annotated[
        float, typer.Option("--atol", metavar="X", min=0, help="Norm of a difference that always counts as equal.")
    ] = 0.0,
    tolerance: Annotated[
        list[str] | None,
        typer.Option("--tolerance", metavar="NAME=X", help="--rtol of some operators, * and ? allowed. Repeatable."),
    ] = None,
    noise: Annotated[
        list[str] | None,
        typer.Option("--noise", metavar="C", help="A repeated run of A: what differs there is noise. Repeatable."),
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option("--mapping", metavar="FILE", help="TOML: names or scopes of A = those of B.")
    ] = None,
    write_mapping: Annotated[
        Path | None, typer.Option("--write-mapping", metavar="FILE", help="Write which names were matched, as TOML.")
    ] = None,
    html: Html = None,
    json: Json = False,
    quiet: Quiet = False,
    cache_dir: CacheDir = None,
    threads: Threads = None,
) -> None:
    """Name the first operator whose inputs agree in two runs and whose output does not.

    Ends with 0 if the runs are the same in the steps that both have, 1 if they differ, 2 if they cannot be compared.
    """
    from tensight.compare import mapping_files
    from tensight.compare.runs import Tolerance, compare_runs, first_of_all, noise_floor

    chosen_ranks, chosen_steps = numbers(ranks, "--ranks"), numbers(steps, "--steps")
    overrides = dict(map(_override, tolerance or ()))
    names = {} if mapping is None else mapping_files.read_mapping(mapping)
    reference, other = open_analysis(a, cache_dir, threads), open_analysis(b, cache_dir, threads)
    with progress(reference, quiet=quiet):
        reference.statistics()
    with progress(other, quiet=quiet):
        other.statistics()
    floor = noise_floor(reference, [open_analysis(path, cache_dir, threads) for path in noise or ()], chosen_ranks)
    results = compare_runs(
        reference,
        other,
        ranks=chosen_ranks,
        steps=chosen_steps,
        tolerance=Tolerance(rtol, atol, overrides, floor),
        mapping=names,
        exact=exact,
    )
    if write_mapping is not None:
        mapping_files.write_mapping(write_mapping, _mapped(results[0]))
    if html is not None:
        from tensight.cli.reports import runs as report
        from tensight.cli.reports.parts import write_report

        write_report(html, report, comparison_data(reference, other, results))
    if json:
        print_json(comparison_data(reference, other, results))
    else:
        out = console()
        shown: set[tuple[object, ...]] = set()
        for result in results:
            what = result.finding, result.step, None if result.first is None else result.first.pair.a.name
            print_comparison(out, result, several=len(results) > 1, in_detail=what not in shown)
            shown.add(what)
        print_problems([*reference.problems, *other.problems])
    raise typer.Exit(first_of_all(results).verdict.exit_code)


def _override(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        rtol = float(value)
    except ValueError:
        rtol = math.nan
    if not name or not rtol >= 0:
        raise InputError(f"--tolerance {text!r}: write a name and a number, for example '*/softmax*=1e-3'")
    return name, rtol


def _mapped(result: RunComparison) -> Iterator[str]:
    from tensight.compare.mapping_files import mapping_line

    for name, (other, rule) in result.matching.parameters.items():
        yield mapping_line(name, other, rule.value)
    for pair in result.matching.pairs:
        if pair.a.name != pair.b.name:
            yield mapping_line(pair.a.name, pair.b.name, pair.rule.value)


def print_comparison(out: Console, result: RunComparison, *, several: bool, in_detail: bool = True) -> None:
    """Print the verdict for one rank, its evidence, and the operators around the first divergence.

    Parameters
    ----------
    out : Console
    result : RunComparison
    several : bool
        Whether there are several ranks.
    in_detail : bool
        Whether to print the operators; False if another rank already showed the same.
    """
    from rich.markup import escape

    from tensight.compare import Verdict
    from tensight.compare.runs import Finding
    from tensight.compare.runs.words import notes, sentence

    colour = {Verdict.SAME: "green", Verdict.DIFFERENT: "red", Verdict.NOT_COMPARABLE: "yellow"}[result.verdict]
    rank = f"Rank {result.rank}: " if several else ""
    out.print(f"[bold {colour}]● {rank}{escape(sentence(result))}[/]")
    in_detail = in_detail and result.finding is not Finding.ANOTHER_RANK
    if result.first is not None and in_detail:
        _print_operator(out, result.first)
    for note in notes(result):
        out.print(f"  {escape(note)}")
    _print_proof(out, result)
    if result.first is not None and in_detail:
        _print_around(out, result)
    out.print()


def _print_operator(out: Console, first: Compared) -> None:
    from rich.markup import escape

    from tensight.cli.origin import print_source
    from tensight.compare.runs.words import difference_text
    from tensight.graph import user_frame

    for index, (slot, difference) in enumerate(first.inputs):
        mark = "[green]✓[/]" if difference.from_values or difference.is_bit_equal else "[yellow]≈[/]"
        out.print(f"    input {index}  {mark} {escape(slot.name)}[dim]  {escape(difference_text(difference))}[/]")
    for slot, difference in first.outputs:
        mark = "[green]✓[/]" if difference.is_bit_equal else "[red]≠[/]"
        where = f"{slot.name} after it" if slot.is_parameter else f"output {slot.index}"
        out.print(f"    {escape(where)}  {mark} {escape(_measures(difference))}")
    frame = user_frame(first.pair.a.node.frames)
    if frame is not None:
        print_source(out, frame)


def _measures(difference: TensorDifference) -> str:
    from tensight.compare.runs.words import difference_text

    parts = [difference_text(difference)]
    if difference.from_values and not difference.is_bit_equal and difference.is_comparable:
        parts += [
            f"largest {number(difference.max_absolute, 2)}",
            f"cosine {difference.cosine:.6f}",
            f"norm of B / A {difference.norm_ratio:.6f}",
            f"{difference.over_1:.1%} of elements beyond 1 ‰, {difference.over_5:.1%} beyond 5 ‰",
        ]
        if difference.max_ulps == difference.max_ulps:
            parts.append(f"up to {number(difference.max_ulps, 2)} ulp")
    return "; ".join(parts)


def _print_proof(out: Console, result: RunComparison) -> None:
    from rich.markup import escape

    for tensors, noun in ((result.data, "input"), (result.weights, "weight")):
        agreeing = sum(tensor.agrees for tensor in tensors)
        if tensors:
            colour = "green" if agreeing == len(tensors) else "yellow"
            verb = "agrees" if agreeing == 1 else "agree"
            out.print(f"  [{colour}]{agreeing} of {count(len(tensors), noun)} {verb} before the first step.[/]")
    matching = result.matching
    rules = ", ".join(f"{amount:,} by {rule.value}" for rule, amount in matching.rules.items())
    out.print(f"  [dim]Matched operators: {rules or 'none'}.[/]")
    for operators, run in ((matching.only_a, "A"), (matching.only_b, "B")):
        if operators:
            names = ", ".join(op.name for op in operators[:UNMATCHED_SHOWN])
            more = " …" if len(operators) > UNMATCHED_SHOWN else ""
            out.print(f"  [yellow]Only in {run}: {count(len(operators), 'operator')}: {escape(names)}{more}[/]")
    for parameters, run in ((matching.parameters_only_a, "A"), (matching.parameters_only_b, "B")):
        if parameters:
            names = ", ".join(parameters[:UNMATCHED_SHOWN])
            more = " …" if len(parameters) > UNMATCHED_SHOWN else ""
            out.print(f"  [yellow]Only in {run}: {count(len(parameters), 'parameter')}: {escape(names)}{more}[/]")


def _print_around(out: Console, result: RunComparison) -> None:
    from rich.markup import escape

    from tensight.compare.runs.words import number_text

    compared = result.steps[-1].compared
    at = next((index for index, operator in enumerate(compared) if operator is result.first), 0)
    rows = compared[max(0, at - 3) : at - 3 + ROWS_SHOWN if at >= 3 else ROWS_SHOWN]
    shown = table("", "operator", "matched by", "difference", "added", right=("difference", "added"))
    for operator in rows:
        worst = operator.worst
        difference = "–" if worst is None else number_text(worst[1].relative)
        mark = "[red]→[/]" if operator is result.first else ""
        shown.add_row(
            mark, escape(operator.pair.a.name), operator.pair.rule.value, difference, number_text(operator.added)
        )
    out.print(shown)


def comparison_data(a: Analysis, b: Analysis, results: list[RunComparison]) -> dict[str, object]:
    """Return a comparison of runs as JSON data: the HTTP API's record of each rank, with all of the last step."""
    from tensight.sessions.comparison_records import ComparisonRecords

    records = ComparisonRecords(a, b)
    ranks = [records.rank_detail(result).model_dump(mode="json") for result in results]
    return {"a": a.dump.path, "b": b.dump.path, "ranks": ranks}
