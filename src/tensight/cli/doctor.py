"""`tensight doctor`: whether a training is repeatable, and the experiments of `tensight diagnose --probe`."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensight.cli.exit_codes import FOUND
from tensight.cli.options import Json
from tensight.cli.output import console, print_json
from tensight.cli.plain_run import MODULE_HELP
from tensight.cli.run import Capture
from tensight.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.cli.diagnosis.report import Report
    from tensight.cli.trials import Measured
    from tensight.compare.traces import TraceDifference
    from tensight.dumps.trace_rank import TraceRank

NAMES_SHOWN = 8
_PROBED_STEPS = 8
"""Number of steps with experiments: these are made before the fourth one."""

_MINUTES = 10.0
_SEEDS = "set the seeds: random.seed, numpy.random.seed, torch.manual_seed, and PYTHONHASHSEED=0 before Python starts"
_ALGORITHMS = (
    "torch.use_deterministic_algorithms(True), torch.backends.cudnn.benchmark = False, and"
    " CUBLAS_WORKSPACE_CONFIG=:4096:8 before Python starts"
)
_WORKERS = "seed the workers of data loaders (worker_init_fn, generator), or use num_workers=0"


def doctor(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="What `python` would run.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its arguments.")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help=MODULE_HELP)] = False,
    steps: Annotated[
        int, typer.Option(min=2, max=10_000, metavar="N", help="Steps of the optimizer that are repeated.")
    ] = 4,
    capture: Annotated[
        Capture, typer.Option(help="What is compared: calls of modules, or every operator.")
    ] = Capture.OPS,
    json: Json = False,
) -> None:
    """Run a training a few times: whether it is repeatable, and what experiments with its models show."""
    from tensight.cli.diagnosis.probes import NONE
    from tensight.cli.diagnosis.text import print_report
    from tensight.cli.trials import require_framework

    require_framework()
    command = [script, *(arguments or ())]
    with tempfile.TemporaryDirectory(prefix="tensight-doctor-") as folder:
        runs = _Runs(["-m", *command] if module else command, steps, capture.value, Path(folder))
        repeatable = runs.repeatable()
        report = _probed(command, max(steps, _PROBED_STEPS), Path(folder), module=module)
    if not report.probes:
        console(stderr=True).print(NONE)
    report = replace(report, probes=[repeatable, *report.probes])
    if json:
        print_json(report.as_data())
    else:
        print_report(console(), report, lists_undecided=False)
    has_failed = any(row["outcome"] == "fail" for row in report.probes)
    raise typer.Exit(FOUND if has_failed or report.diagnosis.findings else 0)


def _probed(command: Sequence[str], steps: int, folder: Path, *, module: bool) -> Report:
    """Run the script with experiments; return what they and the rules of `tensight diagnose` find."""
    from tensight.cli.diagnose import run_training
    from tensight.cli.diagnosis.report import make_report
    from tensight.diagnosis.catalogue import diagnose
    from tensight.diagnosis.lines import read_folder, read_losses
    from tensight.sessions.diagnosis import diagnosis_record

    facts = folder / "facts"
    facts.mkdir()
    ending = run_training(command, facts, steps, _MINUTES, module=module, probe=True)
    runs = read_folder(facts)
    losses = read_losses(facts, runs[0].rank) if runs else {}
    judgement = diagnose(runs)
    script = "" if module else command[0]
    return make_report(diagnosis_record(judgement), judgement.rules, ending, runs, losses, command, script=script)


class _Runs:
    """Run a script several times, and compare the runs.

    Parameters
    ----------
    command : sequence of str
    steps : int
    capture : str
    folder : Path
        For traces.
    """

    def __init__(self, command: Sequence[str], steps: int, capture: str, folder: Path) -> None:
        self._command = command
        self._steps = steps
        self._capture = capture
        self._folder = folder

    def repeatable(self) -> dict[str, Any]:
        """Return whether two runs are equal, as a row of the facts ``probes``."""
        from tensight.cli.trials import differing

        row = {"name": "repeatable", "probe": "repeatable", "model": ""}
        first, second = self._traced("plain", "first"), self._traced("plain", "second")
        difference, unstable = self._difference("first", "second"), differing(first, second)
        if difference is None and not unstable:
            what = "operators" if self._capture == "ops" else "calls of modules"
            why = f"two runs of {first.steps} steps are bit-identical in all {what} and parameters"
            return {**row, "outcome": "pass", "why": why}
        seen = (
            str(difference) if difference is not None else f"no operator that was seen differs, but {_some(unstable)}"
        )
        remedy = self._remedy() if first.framework == "torch" else _SEEDS
        return {**row, "outcome": "fail", "why": f"{seen}; {remedy}"}

    def _remedy(self) -> str:
        """Find settings that make the training repeatable."""
        from tensight.cli.trials import differing

        for mode, advice in (("seeded", _SEEDS), ("deterministic", f"{_SEEDS}; {_ALGORITHMS}")):
            runs = [self._traced(mode, f"{mode}-{number}") for number in range(2)]
            if self._difference(f"{mode}-0", f"{mode}-1") is None and not differing(*runs):
                return f"it is repeatable with these settings: {advice}"
        return (
            "seeds and deterministic algorithms that doctor has set do not make it repeatable (the script may set"
            f" others); also {_WORKERS}"
        )

    def _traced(self, mode: str, name: str) -> Measured:
        from tensight.agents.core.settings import as_variables
        from tensight.cli.trials import run_steps

        chosen = {"trace": str(self._folder / name), "capture": self._capture, "quiet": True}
        variables = {"TENSIGHT_DEBUG": "1", **as_variables(chosen)}
        if mode == "plain":
            return run_steps(self._command, self._steps, variables, lambda: None)
        variables["PYTHONHASHSEED"] = "0"
        if mode == "deterministic":
            variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        return run_steps(self._command, self._steps, variables, lambda: None, ("tensight.agents.doctor", mode))

    def _difference(self, first: str, second: str) -> TraceDifference | None:
        from tensight.compare.traces import first_difference

        traces = [_open_traces(self._folder / name) for name in (first, second)]
        for rank in sorted(traces[0].keys() & traces[1].keys()):
            difference = first_difference(traces[0][rank], traces[1][rank], rank)
            if difference is not None:
                return difference
        return None


def _open_traces(folder: Path) -> dict[int, TraceRank]:
    """Open the traces of all ranks in a folder."""
    from tensight.dumps.layouts import find_dump
    from tensight.dumps.trace_files import TRACE_SUFFIX
    from tensight.dumps.trace_rank import TraceRank

    dump = find_dump(folder)
    traces = [rank for rank in dump.ranks if rank.path.endswith(TRACE_SUFFIX)]
    if not traces:
        raise DumpError(f"{dump.storage.root}: is not a trace; `tensight trace train.py` writes one.")
    return {rank.rank: TraceRank(dump.storage, rank.rank, rank.path) for rank in traces}


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
