"""A diagnosis on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.cli.diagnosis.probes import print_probes
from tensight.cli.diagnosis.words import counted, text

if TYPE_CHECKING:
    from rich.console import Console

    from tensight.cli.diagnosis.report import Report
    from tensight.sessions.records import FindingRecord

_MARKS = {"certain": "[bold red]✗[/]", "likely": "[yellow]![/]", "possible": "[dim]?[/]"}


def print_report(out: Console, report: Report, *, lists_undecided: bool = True) -> None:
    """Print a diagnosis.

    Parameters
    ----------
    out : Console
    report : Report
    lists_undecided : bool
        Whether the rules that could not judge are listed, with the reasons.
    """
    from rich.markup import escape

    from tensight.diagnosis.findings import listed

    diagnosis, language = report.diagnosis, report.language
    if report.ending.failure:
        out.print(f"[red]{escape(report.ending.failure)}[/]\n")
    if not diagnosis.steps:
        out.print(text("none", language))
        for remark in report.remarks:
            out.print(f"  {escape(remark)}")
        return
    for remark in report.remarks:
        steps = counted("steps-count", diagnosis.steps, language)
        out.print(f"[yellow]{escape(text('after', language, steps=steps, remark=remark))}[/]\n")
    for finding in diagnosis.findings:
        print_finding(out, finding, language)
    print_probes(out, report.probes, language)
    out.print(report.summary)
    for log in report.setup.get("logs", ()):
        out.print(f"[dim]{escape(log)}[/]")
    for why, rules in report.undecided.items() if lists_undecided else ():
        words = counted("undecided", len(rules), language, why=why, rules=listed(rules))
        out.print(f"[dim]{escape(words)}[/]")


def print_finding(out: Console, finding: FindingRecord, language: int = 0) -> None:
    """Print a finding with its evidence and what follows from it."""
    from rich.markup import escape

    words = finding.chinese if language else finding
    line = finding.where.get("line", "")
    at_line = f" [cyan]{escape(line)}[/]" if line and line not in words.title else ""
    out.print(f"{_MARKS[finding.certainty]} [bold]{escape(words.title)}[/]{at_line}")
    for sentence in words.evidence:
        out.print(f"    {escape(sentence)}")
    since = "" if finding.step <= 1 else f", {text('since', language, step=finding.step)}"
    out.print(f"    [dim]{text(finding.certainty, language)}{since} · {escape(finding.rule)}[/]")
    if words.advice:
        out.print(f"    → {escape(words.advice)}")
    for other in words.explains:
        out.print(f"    [dim]{text('explains', language)}: {escape(other)}[/]")
    out.print()
