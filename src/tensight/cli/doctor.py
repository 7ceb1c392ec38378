"""`tensight doctor`: check whether a training is repeatable, and common reasons why a training does not learn."""

from __future__ import annotations

import contextlib
import json as json_format
import math
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tensight.cli.exit_codes import FOUND
from tensight.cli.options import Json
from tensight.cli.output import console, print_json
from tensight.cli.run import Capture
from tensight.errors import DumpError, InputError, TensightError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.cli.trials import Measured
    from tensight.compare.traces import TraceDifference
    from tensight.diagnosis.facts import Facts
    from tensight.dumps.trace_rank import TraceRank

State = Literal["ok", "wrong", "not checked"]

NAMES_SHOWN = 8
_MARKS = {"ok": "[green]✓ ok[/]", "wrong": "[bold red]✗ wrong[/]", "not checked": "[yellow]? not checked[/]"}
_SEEDS = "set the seeds: random.seed, numpy.random.seed, torch.manual_seed, and PYTHONHASHSEED=0 before Python starts"
_ALGORITHMS = (
    "torch.use_deterministic_algorithms(True), torch.backends.cudnn.benchmark = False, and"
    " CUBLAS_WORKSPACE_CONFIG=:4096:8 before Python starts"
)
_WORKERS = "seed the workers of data loaders (worker_init_fn, generator), or use num_workers=0"
_PARAMETERS, _ONE_BATCH, _RESUME = "every parameter is trained", "loss falls on one batch", "resume equals going on"
_LEAST_LOSSES, _STEPS_ON_ONE_BATCH = 4, 5
_LEAST_STEPS = 3
"""Number of steps after which rules say what never happens."""
_OF_PARAMETERS = frozenset(
    (
        *("gradient-cut", "gradient-zero", "accumulated-gradients", "not-in-optimizer", "optimizer", "learning-rate"),
        *("frozen", "undone", "precision"),
    )
)
"""Categories of rules about parameters."""
_LEAST_FALL = 0.01
"""Share of the first loss by which it must fall: a fall by less may be due to anything."""
_LARGE_LOSS = 1e6
"""A loss of this size has not been normalized, or its targets have not."""
_WITH_DROPOUT = ("scaled_dot_product_attention", "multi_head_attention_forward", "lstm", "gru", "rnn_tanh", "rnn_relu")
"""Functions that draw random numbers for nothing but dropout, besides those with that name."""
_NOT_REPEATABLE = "the training is not repeatable, so a difference would say nothing"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes
    ----------
    name : str
    state : {"ok", "wrong", "not checked"}
    why : str
        What the check found, or why it was not possible.
    """

    name: str
    state: State
    why: str


def doctor(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="What `python` would run.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its arguments.")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help="Run a module, as `python -m` does.")] = False,
    steps: Annotated[int, typer.Option(min=2, max=10_000, metavar="N", help="Steps of the optimizer.")] = 4,
    capture: Annotated[
        Capture, typer.Option(help="What is compared: calls of modules, or every operator.")
    ] = Capture.OPS,
    json: Json = False,
) -> None:
    """Run a training a few times for some steps, and tell whether it is repeatable and the usual things are right."""
    from tensight.cli.trials import require_framework

    require_framework()
    command = [*(["-m"] if module else []), script, *(arguments or ())]
    with tempfile.TemporaryDirectory(prefix="tensight-doctor-") as folder:
        checks = _Examination(command, steps, capture.value, Path(folder)).checks()
    if json:
        print_json({"checks": [asdict(check) for check in checks]})
    else:
        _print(checks)
    raise typer.Exit(FOUND if any(check.state == "wrong" for check in checks) else 0)


def _print(checks: Sequence[Check]) -> None:
    from rich.markup import escape

    out = console()
    for check in checks:
        out.print(f"{_MARKS[check.state]}  [bold]{escape(check.name)}[/]: {escape(check.why)}")


class _Examination:
    """Run a script several times, and check the results.

    Parameters
    ----------
    command : sequence of str
    steps : int
    capture : str
    folder : Path
        For traces and reports.
    """

    def __init__(self, command: Sequence[str], steps: int, capture: str, folder: Path) -> None:
        self._command = command
        self._steps = steps
        self._capture = capture
        self._folder = folder

    def checks(self) -> list[Check]:
        """Run the script, and return the results of all checks."""
        from tensight.diagnosis.lines import read_folder

        first, second = self._traced("plain", "first"), self._traced("plain", "second")
        difference, unstable = self._difference("first", "second"), _differing(first, second)
        is_repeatable = difference is None and not unstable
        checks = [
            self._repeatable(difference, unstable, first),
            _parameters_check(read_folder(self._folder / "facts" / "first")),
        ]
        if first.framework != "torch":
            why = "only for PyTorch"
            names = ("evaluation is deterministic", "checkpoint round trip", _ONE_BATCH, _RESUME)
            return [*checks, *(Check(name, "not checked", why) for name in names)]
        return [
            *checks,
            self._evaluation(self._tried("evaluate")),
            self._round_trip(first, is_repeatable=is_repeatable),
            self._one_batch(),
            self._resume(first, is_repeatable=is_repeatable),
        ]

    # --- runs ---

    def _run(self, mode: str, variables: dict[str, str], report: str = "report", steps: int | None = None) -> Measured:
        from tensight.cli.trials import run_steps

        runner = ("tensight.agents.doctor", str(self._folder / report), mode)
        return run_steps(self._command, steps or self._steps, variables, lambda: None, runner)

    def _traced(self, mode: str, name: str) -> Measured:
        from tensight.agents.settings import as_variables

        facts = self._folder / "facts" / name
        facts.mkdir(parents=True)
        chosen = {
            "trace": str(self._folder / name),
            "diagnose": str(facts),
            "capture": self._capture,
            "quiet": True,
        }
        variables = {"TENSIGHT_DEBUG": "1", **as_variables(chosen)}
        if mode != "plain":
            variables["PYTHONHASHSEED"] = "0"
        if mode == "deterministic":
            variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        return self._run(mode, variables)

    def _difference(self, first: str, second: str) -> TraceDifference | None:
        from tensight.compare.traces import first_difference

        traces = [_open_traces(self._folder / name) for name in (first, second)]
        for rank in sorted(traces[0].keys() & traces[1].keys()):
            difference = first_difference(traces[0][rank], traces[1][rank], rank)
            if difference is not None:
                return difference
        return None

    # --- checks ---

    def _repeatable(self, difference: TraceDifference | None, unstable: Sequence[str], first: Measured) -> Check:
        name = "repeatable"
        if difference is None and not unstable:
            what = "operators" if self._capture == "ops" else "calls of modules"
            return Check(name, "ok", f"two runs of {first.steps} steps are bit-identical in all {what} and parameters")
        seen = (
            str(difference) if difference is not None else f"no operator that was seen differs, but {_some(unstable)}"
        )
        if first.framework != "torch":
            return Check(name, "wrong", f"{seen}; {_SEEDS}")
        return Check(name, "wrong", f"{seen}; {self._remedy()}")

    def _remedy(self) -> str:
        """Find settings that make the training repeatable."""
        for mode, advice in (("seeded", _SEEDS), ("deterministic", f"{_SEEDS}; {_ALGORITHMS}")):
            runs = [self._traced(mode, f"{mode}-{number}") for number in range(2)]
            if self._difference(f"{mode}-0", f"{mode}-1") is None and not _differing(*runs):
                return f"it is repeatable with these settings: {advice}"
        return (
            "seeds and deterministic algorithms that doctor has set do not make it repeatable (the script may set"
            f" others); also {_WORKERS}"
        )

    def _evaluation(self, report: dict[str, Any]) -> Check:
        name = "evaluation is deterministic"
        if "error" in report:
            return Check(name, "not checked", f"the model could not be evaluated on its inputs: {report['error']}")
        if not report.get("outputs"):
            return Check(name, "not checked", "the model returns no tensors")
        return Check(name, *_evaluation_verdict(report))

    def _round_trip(self, first: Measured, *, is_repeatable: bool) -> Check:
        name = "checkpoint round trip"
        if not is_repeatable:
            return Check(name, "not checked", _NOT_REPEATABLE)
        try:
            after = self._run("reload", {}, "reload")
        except InputError as error:
            return Check(name, "wrong", str(error))
        report = self._read("reload")
        if "error" in report:
            return Check(name, "wrong", f"the state cannot be saved as data and loaded again: {report['error']}")
        changed = _differing(first, after)
        if changed:
            return Check(name, "wrong", f"after state_dict and load_state_dict the next steps differ: {_some(changed)}")
        what = "models and optimizers saved and loaded into the same objects, without schedulers and generators"
        return Check(name, "ok", f"the next steps are bit-identical ({what})")

    def _one_batch(self) -> Check:
        report = self._tried("one-batch", steps=_STEPS_ON_ONE_BATCH * self._steps)
        if "error" in report:
            return Check(_ONE_BATCH, "not checked", report["error"])
        how = f"the first {report['source']} in every step"
        return Check(_ONE_BATCH, *_loss_verdict(report["losses"], how, follows=report["follows"]))

    def _resume(self, first: Measured, *, is_repeatable: bool) -> Check:
        if not is_repeatable:
            return Check(_RESUME, "not checked", _NOT_REPEATABLE)
        try:
            after = self._run("resume", {}, "resume")
        except InputError as error:
            return Check(_RESUME, "not checked", str(error))
        report = self._read("resume")
        if "error" in report:
            return Check(_RESUME, "not checked", f"the state cannot be put back: {report['error']}")
        changed = _differing(first, after)
        if changed:
            lacking = f"; state_dict lacks {_some(report['lacking'])}" if report["lacking"] else ""
            why = f"with the content of state_dict the next steps differ: {_some(changed)}{lacking}"
            return Check(_RESUME, "wrong", f"{why}: a checkpoint must contain that, too")
        parts = ["models", "optimizers", *(name for name in ("schedulers", "scalers") if report[name])]
        drawn = report["generators"]
        needs = f"; a checkpoint also needs the states of the generators: {', '.join(drawn)}" if drawn else ""
        why = f"with the state_dict of {', '.join(parts)} the next steps are bit-identical, on the batches that follow"
        return Check(_RESUME, "ok", why + needs)

    def _tried(self, mode: str, steps: int | None = None) -> dict[str, Any]:
        try:
            self._run(mode, {}, mode, steps)
        except InputError as error:
            return {"error": str(error)}
        return self._read(mode)

    def _read(self, mode: str) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError, TensightError):
            report: dict[str, Any] = json_format.loads((self._folder / mode).read_text())
            return report
        return {"error": "nothing was reported"}


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


def _parameters_check(runs: Sequence[Facts]) -> Check:
    """Return what rules find of parameters in some steps."""
    from tensight.diagnosis.catalogue import diagnose
    from tensight.sessions.diagnosis import diagnosis_record

    count = max((len(_trained_parameters(facts)) for facts in runs), default=0)
    if not count:
        return Check(_PARAMETERS, "not checked", "no parameter that an optimizer updates was seen")
    diagnosis = diagnosis_record(diagnose(runs))
    if diagnosis.steps < _LEAST_STEPS:
        why = f"rules need {_LEAST_STEPS} steps, and {diagnosis.steps} were read: try more --steps"
        return Check(_PARAMETERS, "not checked", why)
    findings = [finding for finding in diagnosis.findings if finding.category in _OF_PARAMETERS]
    # A warm-up may begin at 0.
    is_wrong = any(each.certainty == "certain" and each.category != "learning-rate" for each in findings)
    parts = ["; ".join((finding.title, *finding.evidence)) for finding in findings]
    waiting = list(dict.fromkeys(name for facts in runs for name in _waiting_parameters(facts)))
    if waiting:
        parts.append(f"{len(waiting)} of {count} are not updated by their optimizer yet: {_some(waiting)}")
    state: State = "wrong" if is_wrong else "not checked" if parts else "ok"
    return Check(_PARAMETERS, state, "; ".join(parts) or f"all {count}")


def _trained_parameters(facts: Facts) -> list[str]:
    """Return the names of the parameters that an optimizer holds, and that require gradients."""
    rows = facts["parameters"].rows()
    return list(dict.fromkeys(row["name"] for row in rows if row["owners"] > 0 and row["is_trainable"]))


def _waiting_parameters(facts: Facts) -> list[str]:
    """Return the names of those whose optimizer has not updated yet."""
    updated = {row["name"] for row in facts["parameters"].rows() if row["optimizers"] > 0}
    return [name for name in _trained_parameters(facts) if name not in updated]


def _evaluation_verdict(report: dict[str, Any]) -> tuple[State, str]:
    """Judge two evaluations with the same inputs and the same random numbers."""
    model = f"{report['model']} in eval mode"
    if not report["is_repeatable"]:
        unknown = "nothing that doctor can see of its state changes"
        changed = f"it keeps state from call to call: {_some(report['changed'])}" if report["changed"] else unknown
        return "not checked", f"{model} gives other outputs when it is called again, with the same inputs; {changed}"
    dropouts = [line for name, line in report["draws"] if "dropout" in name or name in _WITH_DROPOUT]
    if dropouts:
        where = _some([line for line in dict.fromkeys(dropouts) if line])
        return "wrong", f"{model} applies dropout{f' at {where}' if where else ''}, so its outputs are random"
    same = "gives the same for the same inputs"
    if report["draws"] or report["drawn"]:
        drawn = [f"{name} at {line}" if line else name for name, line in report["draws"]] or report["drawn"]
        return "ok", f"{model} {same} and random numbers; it draws some itself: {_some(drawn)}"
    return "ok", f"{model} {same}"


def _loss_verdict(losses: Sequence[float], how: str, *, follows: bool = False) -> tuple[State, str]:
    """Judge the losses of a training that gets the same batch and the same random numbers in every step.

    Parameters
    ----------
    losses : sequence of float
    how : str
        What is the same in every step.
    follows : bool
        Whether parameters change that no optimizer updates, so that the loss need not fall.
    """
    if len(losses) < _LEAST_LOSSES:
        return "not checked", f"only {len(losses)} steps have a loss"
    first, last = losses[0], losses[-1]
    course = f"{how}: from {first:.6g} to {last:.6g} in {len(losses)} steps"
    unusable = next((number for number, loss in enumerate(losses, 1) if not math.isfinite(loss)), 0)
    if unusable:
        return "wrong", f"{how}: it is {losses[unusable - 1]} in step {unusable}"
    if len(set(losses)) == 1:
        return (
            "not checked",
            f"{how}: it stays {first:.6g}; is the learning rate still 0, as at the start of a warm-up?",
        )
    later = losses[len(losses) // 2 :]
    if statistics.median(later) < first:
        reservation = _reservation(first, statistics.median(later))
        return ("not checked", f"{course}, {reservation}") if reservation else ("ok", course)
    if min(later) < first:
        return "not checked", f"{course}, but it rises and falls: try more --steps"
    if follows:
        return "not checked", f"{course}, but parameters change that no optimizer updates, such as those of a teacher"
    return "wrong", f"{course}: is the learning rate too large, or a sign wrong?"


def _reservation(first: float, later: float) -> str:
    """Return why a loss that falls may be wrong all the same; empty if nothing speaks for that."""
    if later < 0:
        return (
            "which is below 0: right for a log-likelihood, or a similarity that shall grow; for an error, the sign is"
            " wrong"
        )
    if first - later < _LEAST_FALL * first:
        return f"which is {(first - later) / first:.2g} of it: is the learning rate too small? Try more --steps"
    if later > _LARGE_LOSS:
        return "which is still large: are inputs and targets normalized, and is the loss a mean?"
    return ""


def _differing(first: Measured, second: Measured) -> tuple[str, ...]:
    names = dict.fromkeys((*first.digests, *second.digests))
    return tuple(name for name in names if first.digests.get(name) != second.digests.get(name))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
