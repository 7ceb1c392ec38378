"""`tensight diagnose`: run a training for a while, and say why it does not learn."""

from __future__ import annotations

import contextlib
import json as json_format
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tensight.cli.exit_codes import FOUND, WRONG_INPUT
from tensight.cli.options import Json
from tensight.cli.output import console, count, print_json
from tensight.cli.plain_run import MODULE_HELP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.diagnosis.catalogue import Diagnosis, Explained
    from tensight.diagnosis.facts import Facts
    from tensight.diagnosis.findings import Finding

STEPS, MINUTES = 500, 10.0
_POLL_S = 0.05
_REMARK = "tensight: "
_ENDED = "debugging ends here"
_MARKS = {"certain": "[bold red]✗[/]", "likely": "[yellow]![/]", "possible": "[dim]?[/]"}


def diagnose(
    script: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="What `python` would run, or a command such as torchrun.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its arguments.")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help=MODULE_HELP)] = False,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="End the training after N steps.")] = STEPS,
    minutes: Annotated[float, typer.Option(min=0.01, metavar="M", help="End it after M minutes.")] = MINUTES,
    json: Json = False,
) -> None:
    """Run a training for a while, stop nowhere, and say why it does not learn."""
    from tensight.cli.trials import require_framework

    require_framework()
    with tempfile.TemporaryDirectory(prefix="tensight-diagnose-") as folder:
        ending = _run([script, *(arguments or ())], Path(folder), steps, minutes, module=module)
        runs = _read(Path(folder))
    from tensight.diagnosis.catalogue import diagnose as judge

    diagnosis = judge(runs)
    if json:
        print_json(as_data(diagnosis, ending))
    else:
        _print(diagnosis, ending)
    if not diagnosis.steps:
        raise typer.Exit(WRONG_INPUT)
    raise typer.Exit(FOUND if diagnosis.findings else 0)


class Ending(NamedTuple):
    """How a training ended.

    Attributes
    ----------
    failure : str
        What it printed last, if it failed.
    remarks : list of str
        What the debugger remarked meanwhile.
    """

    failure: str
    remarks: list[str]


def _run(command: Sequence[str], folder: Path, steps: int, minutes: float, *, module: bool) -> Ending:
    """Run a training."""
    from tensight.agents.settings import as_variables
    from tensight.cli.starting import command_line
    from tensight.cli.trials import failure_text

    chosen = {"diagnose": str(folder), "diagnose_steps": steps, "quiet": True}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603 - what the person asked for
            command_line(list(command), module=module),
            env={**os.environ, "TENSIGHT_DEBUG": "1", **as_variables(chosen)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        until = time.monotonic() + 60 * minutes
        is_late = False
        try:
            with _progress(folder, steps) as show:
                while process.poll() is None:
                    if time.monotonic() > until:
                        is_late = True
                        break
                    show()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_POLL_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    remarks = [line.removeprefix(_REMARK) for line in lines if line.startswith(_REMARK)]
    if is_late or process.returncode == 0:
        return Ending("", remarks)
    return Ending(failure_text(" ".join(command), process.returncode, lines), remarks)


@contextlib.contextmanager
def _progress(folder: Path, steps: int) -> Any:
    """Show how long the training has run, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    began = time.monotonic()
    with console(stderr=True).status("") as status:

        def show() -> None:
            seconds = time.monotonic() - began
            what = "facts arrive" if any(folder.glob("*.json")) else "waiting for the first step"
            status.update(f"Running the training, at most {steps:,} steps: {seconds:.0f} s, {what}")

        yield show


def _read(folder: Path) -> list[Facts]:
    """Return the facts that the processes of a training have written, by rank."""
    from tensight.diagnosis.facts import Facts

    runs = [Facts.from_record(json_format.loads(path.read_text())) for path in sorted(folder.glob("facts-*.json"))]
    # A launcher or a process that exports a model may have trained a little itself.
    longest = max((facts.last_step for facts in runs), default=0)
    return sorted((facts for facts in runs if facts.last_step >= 0.5 * longest), key=lambda facts: facts.rank)


# --- output ---


def texts(finding: Finding) -> tuple[str, list[str], str]:
    """Return the sentence of a finding, its evidence and the advice."""
    from tensight.diagnosis.catalogue import words_of

    message, evidence, advice = words_of(finding)
    measured = [evidence[0].format(**finding.values)] if evidence else []
    return message[0].format(**finding.values), measured, advice[0]


def as_data(diagnosis: Diagnosis, ending: Ending) -> dict[str, Any]:
    """Return a diagnosis as data for JSON."""
    return {
        "steps": diagnosis.steps,
        "findings": [_finding_data(explained) for explained in diagnosis.findings],
        "undecided": [{"rule": rule, "why": why} for rule, why in diagnosis.undecided.items()],
        "failure": ending.failure,
        "remarks": ending.remarks,
    }


def _finding_data(explained: Explained) -> dict[str, Any]:
    from tensight.diagnosis.catalogue import RULES

    finding = explained.finding
    title, evidence, advice = texts(finding)
    return {
        "rule": finding.rule,
        "category": RULES[finding.rule].category,
        "certainty": finding.certainty,
        "step": finding.step,
        "title": title,
        "where": {name: value for name, value in finding.where.items() if value},
        "evidence": evidence,
        "advice": advice,
        "values": dict(finding.values),
        "explains": [texts(other)[0] for other in explained.explains],
    }


def _print(diagnosis: Diagnosis, ending: Ending) -> None:
    from rich.markup import escape

    out = console()
    if ending.failure:
        out.print(f"[red]{escape(ending.failure)}[/]\n")
    if not diagnosis.steps:
        out.print("No step of an optimizer of PyTorch or MindSpore was seen: nothing can be judged.")
        for remark in ending.remarks:
            out.print(f"  {escape(remark)}")
        return
    for remark in ending.remarks:
        if remark.startswith(_ENDED):
            out.print(f"[yellow]After {count(diagnosis.steps, 'step')}: {escape(remark)}[/]\n")
    for explained in diagnosis.findings:
        finding = explained.finding
        title, evidence, advice = texts(finding)
        line = finding.where.get("line", "")
        at_line = f" [cyan]{escape(line)}[/]" if line and line not in title else ""
        out.print(f"{_MARKS[finding.certainty]} [bold]{escape(title)}[/]{at_line}")
        for text in evidence:
            out.print(f"    {escape(text)}")
        since = "" if finding.step <= 1 else f", since step {finding.step}"
        out.print(f"    [dim]{finding.certainty}{since} · {finding.rule}[/]")
        out.print(f"    → {escape(advice)}")
        for other in explained.explains:
            out.print(f"    [dim]explains: {escape(texts(other)[0])}[/]")
        out.print()
    summary = f"{count(diagnosis.steps, 'step')} looked at"
    if not diagnosis.findings:
        out.print(f"Nothing found. {summary}.")
    else:
        out.print(f"{count(len(diagnosis.findings), 'finding')}. {summary}.")
    by_reason: dict[str, list[str]] = {}
    for rule, why in diagnosis.undecided.items():
        by_reason.setdefault(why, []).append(rule)
    for why, rules in by_reason.items():
        out.print(f"[dim]Could not judge {', '.join(rules)}: {escape(why)}.[/]")
