"""`tensight diagnose`: say why a training does not learn, of a run for a while or of a recorded one."""

from __future__ import annotations

import contextlib
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
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from tensight.sessions.records import DiagnosisRecord, FindingRecord

STEPS, MINUTES = 500, 10.0
_POLL_S = 0.05
_REMARK = "tensight: "
_ENDED = "debugging ends here"
_MARKS = {"certain": "[bold red]✗[/]", "likely": "[yellow]![/]", "possible": "[dim]?[/]"}


def diagnose(
    script: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT|FOLDER",
            help="What `python` would run, or a command such as torchrun; or a recording or a trace.",
        ),
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its arguments.")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help=MODULE_HELP)] = False,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="End the training after N steps.")] = STEPS,
    minutes: Annotated[float, typer.Option(min=0.01, metavar="M", help="End it after M minutes.")] = MINUTES,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the facts in this new folder, to be diagnosed again.")
    ] = None,
    json: Json = False,
) -> None:
    """Say why a training does not learn: run it for a while, or read what it has recorded."""
    from tensight.diagnosis.lines import PATTERN, read_folder

    ending = Ending("", [])
    if not module and Path(script).is_dir():
        if arguments:
            raise InputError(f"{script} is a folder; write options before it: tensight diagnose --json {script}")
        runs = read_folder(Path(script))
        if not runs:
            raise InputError(
                f"{script}: has no facts of a training ({PATTERN}); a recording or a trace of Tensight has them, unless"
                " it is older"
            )
    else:
        from tensight.cli.trials import require_framework

        require_framework()
        with _facts_folder(out) as folder:
            ending = _run([script, *(arguments or ())], folder, steps, minutes, module=module)
            runs = read_folder(folder)
    from tensight.diagnosis.catalogue import diagnose as judge
    from tensight.sessions.diagnosis import diagnosis_record

    diagnosis = diagnosis_record(judge(runs))
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


@contextlib.contextmanager
def _facts_folder(out: Path | None) -> Iterator[Path]:
    """Yield the folder that takes the facts: the one that was named, or one that is removed afterwards."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="tensight-diagnose-") as folder:
            yield Path(folder)
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise InputError(f"{out}: is not an empty folder; name one that does not exist yet.")
    except OSError as error:
        raise InputError(f"{out}: {error.strerror or error}") from error
    yield out.absolute()


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
    from tensight.diagnosis.lines import PATTERN

    if not sys.stderr.isatty():
        yield lambda: None
        return
    began = time.monotonic()
    with console(stderr=True).status("") as status:

        def show() -> None:
            seconds = time.monotonic() - began
            what = "facts arrive" if any(folder.glob(PATTERN)) else "waiting for the first step"
            status.update(f"Running the training, at most {steps:,} steps: {seconds:.0f} s, {what}")

        yield show


# --- output ---


def as_data(diagnosis: DiagnosisRecord, ending: Ending) -> dict[str, Any]:
    """Return a diagnosis as data for JSON."""
    remarks = _still_true(ending.remarks, diagnosis)
    return {**diagnosis.model_dump(mode="json"), "failure": ending.failure, "remarks": remarks}


def _still_true(remarks: Sequence[str], diagnosis: DiagnosisRecord) -> list[str]:
    """Return the remarks that hold at the end: that nothing is counted yet, as while data are collected, may not."""
    return [remark for remark in remarks if not diagnosis.steps or remark.startswith(_ENDED)]


def print_finding(out: Console, finding: FindingRecord) -> None:
    """Print a finding with its evidence and what follows from it."""
    from rich.markup import escape

    line = finding.where.get("line", "")
    at_line = f" [cyan]{escape(line)}[/]" if line and line not in finding.title else ""
    out.print(f"{_MARKS[finding.certainty]} [bold]{escape(finding.title)}[/]{at_line}")
    for text in finding.evidence:
        out.print(f"    {escape(text)}")
    since = "" if finding.step <= 1 else f", since step {finding.step}"
    out.print(f"    [dim]{finding.certainty}{since} · {finding.rule}[/]")
    out.print(f"    → {escape(finding.advice)}")
    for other in finding.explains:
        out.print(f"    [dim]explains: {escape(other)}[/]")
    out.print()


def _print(diagnosis: DiagnosisRecord, ending: Ending) -> None:
    from rich.markup import escape

    from tensight.diagnosis.findings import listed

    out = console()
    if ending.failure:
        out.print(f"[red]{escape(ending.failure)}[/]\n")
    if not diagnosis.steps:
        out.print("No step of an optimizer of PyTorch or MindSpore was seen: nothing can be judged.")
        for remark in ending.remarks:
            out.print(f"  {escape(remark)}")
        return
    for remark in _still_true(ending.remarks, diagnosis):
        out.print(f"[yellow]After {count(diagnosis.steps, 'step')}: {escape(remark)}[/]\n")
    for finding in diagnosis.findings:
        print_finding(out, finding)
    summary = f"{count(diagnosis.steps, 'step')} looked at"
    if not diagnosis.findings:
        out.print(f"Nothing found. {summary}.")
    else:
        out.print(f"{count(len(diagnosis.findings), 'finding')}. {summary}.")
    by_reason: dict[str, list[str]] = {}
    for undecided in diagnosis.undecided:
        by_reason.setdefault(undecided.why, []).append(undecided.rule)
    for why, rules in by_reason.items():
        out.print(f"[dim]{count(len(rules), 'rule')} could not judge, {escape(why)}: {listed(rules)}.[/]")
