"""`tensight diagnose`: say why a training does not learn, of a run for a while or of a recorded one."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.exit_codes import FOUND, WRONG_INPUT
from tensight.cli.options import Json, Rules
from tensight.cli.output import console, print_json
from tensight.cli.plain_run import MODULE_HELP
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tensight.cli.diagnosis.report import Ending, Report
    from tensight.diagnosis.catalogue import Diagnosis

STEPS, MINUTES = 500, 10.0
_POLL_S = 0.05
_REMARK = "tensight: "
_SEARCHED_BYTES = 1 << 16


class ReportFormat(str, Enum):
    """What is printed."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    GITHUB = "github"
    SARIF = "sarif"
    JUNIT = "junit"


class Language(str, Enum):
    """The language of sentences."""

    EN = "en"
    ZH = "zh"


def diagnose(
    script: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT|FOLDER",
            help="What `python` would run, or a command such as torchrun; or a recording, a trace, or logs.",
        ),
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its arguments.")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help=MODULE_HELP)] = False,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="End the training after N steps.")] = STEPS,
    minutes: Annotated[float, typer.Option(min=0.01, metavar="M", help="End it after M minutes.")] = MINUTES,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the facts in this new folder, to be diagnosed again.")
    ] = None,
    format_: Annotated[
        ReportFormat | None, typer.Option("--format", help="What is printed; --json is short for json. (default text)")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report that a browser shows, one file.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="64KB", help="With --json: at most so much, what matters most first.")
    ] = None,
    rules: Rules = None,
    language: Annotated[Language, typer.Option(help="Of sentences.")] = Language.EN,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also make experiments with the models on the batch of a step.")
    ] = False,
    json: Json = False,
) -> None:
    """Say why a training does not learn: run it for a while, or read what it has recorded."""
    from tensight.cli.diagnosis.checkpoints import is_checkpoint
    from tensight.cli.diagnosis.logs import diagnose_logs, is_log
    from tensight.cli.diagnosis.probes import NONE
    from tensight.cli.diagnosis.report import Ending, make_report
    from tensight.diagnosis.catalogue import diagnose as judge
    from tensight.diagnosis.catalogue import load_user_rules
    from tensight.diagnosis.lines import PATTERN, read_folder, read_losses
    from tensight.sessions.diagnosis import diagnosis_record

    chosen = _chosen_format(format_, json=json)
    budget_bytes = _budget_bytes(budget, chosen)
    user_rules = () if rules is None else load_user_rules(rules)
    ending = Ending("", [])
    losses: Mapping[str, Sequence[tuple[int, float]]] = {}
    written_s = math.inf
    logs: list[str] = []
    judgement: Diagnosis | None = None
    if not module and (Path(script).is_dir() or is_log(Path(script)) or is_checkpoint(Path(script))):
        if arguments:
            raise InputError(f"{script} is not run; write options before it: tensight diagnose --json {script}")
        runs = read_folder(Path(script)) if Path(script).is_dir() else []
        if runs:
            losses = read_losses(Path(script), runs[0].rank)
            written_s = max(path.stat().st_mtime for path in Path(script).glob(PATTERN))
        else:
            judgement, runs, losses, logs, written_s = diagnose_logs(Path(script), user_rules)
    else:
        from tensight.cli.trials import require_framework

        require_framework()
        with _facts_folder(out) as folder:
            ending = run_training([script, *(arguments or ())], folder, steps, minutes, module=module, probe=probe)
            runs = read_folder(folder)
            if runs:
                losses = read_losses(folder, runs[0].rank)
    judgement = judgement or judge(runs, user_rules)
    diagnosis = diagnosis_record(judgement)
    report = make_report(
        diagnosis,
        judgement.rules,
        ending,
        runs,
        losses,
        [script, *(arguments or ())],
        language=list(Language).index(language),
        script="" if module or not script.endswith(".py") else script,
        written_s=written_s,
        logs=logs,
    )
    if html is not None:
        from tensight.cli.diagnosis.page import write_diagnosis_page

        write_diagnosis_page(html, report)
    _print(report, chosen, budget_bytes)
    if probe and diagnosis.steps and not report.probes:
        console(stderr=True).print(NONE)
    if not diagnosis.steps:
        raise typer.Exit(WRONG_INPUT)
    raise typer.Exit(FOUND if diagnosis.findings else 0)


def _chosen_format(chosen: ReportFormat | None, *, json: bool) -> ReportFormat:
    if json and chosen not in (None, ReportFormat.JSON):
        raise InputError(f"--json and --format {chosen.value} exclude each other")
    return ReportFormat.JSON if json else chosen or ReportFormat.TEXT


def _budget_bytes(budget: str | None, chosen: ReportFormat) -> int | None:
    from tensight.cli.diagnosis.json_budget import require_budget
    from tensight.cli.starting import size_bytes

    if budget is None:
        return None
    if chosen is not ReportFormat.JSON:
        raise InputError("--budget is about JSON: write --json --budget 64KB")
    # A mistake is reported before the training runs.
    size = size_bytes(budget, "the budget")
    require_budget(size)
    return size


def _print(report: Report, chosen: ReportFormat, budget_bytes: int | None) -> None:
    from tensight.cli.diagnosis import github, json_budget, junit, markdown, sarif
    from tensight.cli.diagnosis.text import print_report

    if chosen is ReportFormat.TEXT:
        print_report(console(), report)
    elif chosen is ReportFormat.JSON and budget_bytes is None:
        print_json(report.as_data())
    else:
        made = {
            ReportFormat.JSON: lambda: json_budget.within_budget(report, budget_bytes or 0) + "\n",
            ReportFormat.MARKDOWN: lambda: markdown.as_markdown(report),
            ReportFormat.GITHUB: lambda: github.as_github(report),
            ReportFormat.SARIF: lambda: sarif.as_sarif(report),
            ReportFormat.JUNIT: lambda: junit.as_junit(report),
        }
        sys.stdout.write(made[chosen]())


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


def run_training(
    command: Sequence[str], folder: Path, steps: int, minutes: float, *, module: bool, probe: bool
) -> Ending:
    """Run a training whose facts are written.

    Parameters
    ----------
    command : sequence of str
        A script, a program or a module, and its arguments.
    folder : Path
        For the facts.
    steps, minutes : int, float
        After which the training is ended.
    module : bool
        Whether the command is the name of a module.
    probe : bool
        Whether experiments are made.
    """
    from tensight.agents.core.settings import as_variables
    from tensight.cli.diagnosis.report import Ending
    from tensight.cli.starting import command_line
    from tensight.cli.trials import failure_text

    chosen = {"diagnose": str(folder), "diagnose_steps": steps, "probe": probe, "quiet": not probe}
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
            with _progress(folder, steps, output.fileno()) as show:
                while process.poll() is None:
                    if time.monotonic() > until:
                        is_late = True
                        break
                    show()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_POLL_S)
                show()
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
def _progress(folder: Path, steps: int, output: int) -> Iterator[Callable[[], None]]:
    """Show on stderr how long experiments take at most, and on a terminal how long the training has run.

    Parameters
    ----------
    folder : Path
        With the facts.
    steps : int
    output : int
        Descriptor of the file with the output of the training.
    """
    from tensight.cli.diagnosis.probes import announcement
    from tensight.diagnosis.lines import PATTERN

    out = console(stderr=True)
    began = time.monotonic()
    announced: list[str] = []
    with out.status("") if sys.stderr.isatty() else contextlib.nullcontext() as status:

        def show() -> None:
            if not announced and (line := announcement(os.pread(output, _SEARCHED_BYTES, 0))):
                announced.append(line)
                out.print(f"[dim]{line}[/]")
            if status is not None:
                seconds = time.monotonic() - began
                what = "facts arrive" if any(folder.glob(PATTERN)) else "waiting for the first step"
                status.update(f"Running the training, at most {steps:,} steps: {seconds:.0f} s, {what}")

        yield show
