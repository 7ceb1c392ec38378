"""A search whose trials are watched, beside plain Optuna with the same sampler: how many steps until the same target.

    python benchmarks/search.py [PROBLEM ...] [--seeds 5] [--first-seed 0] [--trials 24] [--sampler tpe]
                                [--pruner NAME] [--workers 2] [--keep FILE]

Each problem (searched/*.py) is a script that takes its hyper-parameters on the command line and knows nothing of
Tensight. Plain Optuna runs all steps of each trial; a target that is no number fails the trial. `tensight search` runs
the same script, with the same seed, until a trial is as good as the best of the plain ones; it may do twice as many
trials. Both read the target from what the script prints. Trials count the steps that they have begun, so a trial
that is ended has only those that it did.

Then every trial that a watchpoint has ended is trained to its end without one: it was a good trial if it is better than
the median of all plain trials of its problem that reached a target. Those that Optuna's pruner has ended are judged
alike, and counted apart: to end trials that might have become good is the bargain of such a pruner. All of it takes
about half an hour on two cores that others use, too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import optuna
import yaml

from tensight.cli.search import debugger_for, folder_of, open_study, read
from tensight.cli.starting import command_line
from tensight.search.commands import command_words
from tensight.search.configuration import Configuration, Tuner, TunerArguments
from tensight.search.results import read_result
from tensight.search.running import Ended, Search, guarded
from tensight.search.samplers import make_sampler
from tensight.search.spaces import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.sessions.records import TrialResult

SEARCHED = Path(__file__).resolve().parent / "searched"
BAR = 0.6


@dataclass(frozen=True)
class Problem:
    """A training with the bounds between which it is searched.

    Attributes
    ----------
    name : str
        Of its script.
    steps : int
        Of a trial.
    target, goal : str
        As it is printed, and "minimize" or "maximize".
    parameters : dict
        As in the configuration of a search.
    """

    name: str
    steps: int
    target: str
    goal: str
    parameters: dict[str, dict[str, Any]]

    @property
    def sign(self) -> int:
        """1 where small values are good."""
        return 1 if self.goal == "minimize" else -1

    @property
    def pattern(self) -> str:
        """What finds the target in what a trial prints."""
        return rf"step (?P<step>\d+) {self.target} (?P<value>\S+)"


def floats(low: float, high: float, *, log: bool = False) -> dict[str, Any]:
    return {"bounds": [low, high], "type": "float", "log": log}


PROBLEMS = (
    Problem(
        "transformer",
        120,
        "held-out loss",
        "minimize",
        {
            "lr": floats(1e-5, 10.0, log=True),
            "optimizer": {"choice": ["adamw", "sgd"]},
            "beta1": floats(0.0, 0.99),
            "init": floats(1e-2, 10.0, log=True),
            "clip": floats(1e-2, 1e3, log=True),
            "warmup": {"bounds": [0, 41], "type": "int"},
            "layers": {"bounds": [1, 4], "type": "int"},
            "dropout": floats(0.0, 0.5),
        },
    ),
    Problem(
        "convolutions",
        100,
        "accuracy",
        "maximize",
        {
            "lr": floats(1e-5, 10.0, log=True),
            "momentum": floats(0.0, 0.99),
            "decay": floats(1e-6, 1.0, log=True),
            "init": floats(1e-2, 10.0, log=True),
            "depth": {"bounds": [1, 4], "type": "int"},
            "width": {"choice": [4, 8, 16, 32]},
            "norm": {"choice": ["batch", "none"]},
        },
    ),
    Problem(
        "adversarial",
        200,
        "distance",
        "minimize",
        {
            "lr": floats(1e-5, 10.0, log=True),
            "ratio": floats(1e-2, 1e2, log=True),
            "beta1": floats(0.0, 0.99),
            "init": floats(1e-2, 10.0, log=True),
            "depth": {"bounds": [1, 4], "type": "int"},
            "activation": {"choice": ["relu", "tanh", "leaky"]},
        },
    ),
)

OTHERS = (
    Problem(
        "recurrent",
        120,
        "error",
        "minimize",
        {
            "lr": floats(1e-5, 10.0, log=True),
            "beta1": floats(0.0, 0.99),
            "init": floats(1e-2, 10.0, log=True),
            "clip": floats(1e-2, 1e3, log=True),
            "width": {"choice": [8, 16, 32, 64]},
            "layers": {"bounds": [1, 3], "type": "int"},
            "cell": {"choice": ["lstm", "gru", "tanh"]},
        },
    ),
    Problem(
        "regression",
        150,
        "error",
        "minimize",
        {
            "lr": floats(1e-5, 10.0, log=True),
            "momentum": floats(0.0, 0.99),
            "decay": floats(1e-6, 1.0, log=True),
            "init": floats(1e-2, 10.0, log=True),
            "depth": {"bounds": [1, 5], "type": "int"},
            "width": {"choice": [8, 16, 32, 64]},
            "activation": {"choice": ["relu", "tanh", "sigmoid"]},
            "optimizer": {"choice": ["sgd", "adam", "rmsprop"]},
        },
    ),
)
"""Problems on which none of the rules by which trials are ended was chosen."""


@dataclass(frozen=True)
class Trial:
    """What came of one trial.

    Attributes
    ----------
    params : dict of str to value
    value : float or None
        None unless it reached a target.
    steps : int
        That it began.
    state : str
        "complete", "pruned", "failed".
    illness : str
        The condition that ended it.
    reason : str
    """

    params: dict[str, Any]
    value: float | None
    steps: int
    state: str = "complete"
    illness: str = ""
    reason: str = ""


@dataclass
class Pair:
    """Both searches of a problem from one seed.

    Attributes
    ----------
    problem : str
    seed : int
    plain, watched : list of Trial
        In the order of their numbers.
    pruned_plain : list of Trial
        Watched ones that were ended, trained to their end.
    """

    problem: str
    seed: int
    plain: list[Trial]
    watched: list[Trial]
    pruned_plain: list[Trial] = field(default_factory=list)

    @property
    def pruned(self) -> list[Trial]:
        """Watched trials that were ended."""
        return [trial for trial in self.watched if trial.state == "pruned"]


def steps_until(trials: list[Trial], sign: int, goal: float) -> float:
    """Return the steps of all trials until one is as good as a goal; infinite if none is."""
    steps = 0
    for trial in trials:
        steps += trial.steps
        if trial.value is not None and trial.value * sign <= goal * sign:
            return steps
    return math.inf


def best_of(trials: list[Trial], sign: int) -> float:
    return min(trial.value * sign for trial in trials if trial.value is not None) * sign


# --- trials ---


@contextmanager
def trainings(folder: Path) -> Iterator[list[str]]:
    """Start a process that trials are forked from, and yield the first words of their command."""
    address = str(folder / "trainings")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, str(SEARCHED / "start.py"), "--serve", address], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield [sys.executable, "-I", "-S", str(SEARCHED / "start.py"), address]
        finally:
            process.terminate()


def command_of(problem: Problem, start: list[str]) -> str:
    options = [f"--{name} {{{name}}}" for name in problem.parameters]
    return " ".join(
        [*map(shlex.quote, start), str(SEARCHED / f"{problem.name}.py"), "--steps-file {summary_dir}/steps", *options]
    )


def configuration_of(problem: Problem, seed: int, folder: Path, start: list[str], chosen: argparse.Namespace) -> Path:
    """Write the configuration of a search, as a person does."""
    path = folder / "search.yaml"
    target = {"name": problem.target, "goal": problem.goal, "from": {"pattern": problem.pattern}}
    configuration: dict[str, Any] = {
        "command": command_of(problem, start),
        "summary_base_dir": str(folder / "trials"),
        "tuner": {"name": chosen.sampler, "args": {"seed": seed}},
        "target": target,
        "parameters": problem.parameters,
    }
    if chosen.pruner:  # else nothing is said of one
        configuration["pruner"] = {"name": chosen.pruner}
    path.write_text(yaml.safe_dump(configuration))
    return path


def train(problem: Problem, configuration: Configuration, params: dict[str, Any], folder: Path) -> Trial:
    """Run a training to its end, without anything around it."""
    folder.mkdir(parents=True, exist_ok=True)
    words = command_words(configuration.command, {**params, "summary_dir": str(folder)})
    ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    values = [float(match["value"]) for match in re.finditer(problem.pattern, ended.stdout)]
    steps = int((folder / "steps").read_text())
    is_reached = ended.returncode == 0 and math.isfinite(values[-1])
    return Trial(params, values[-1] if is_reached else None, steps, "complete" if is_reached else "failed")


def plain_search(
    problem: Problem, configuration: Configuration, seed: int, folder: Path, chosen: argparse.Namespace
) -> list[Trial]:
    """Search as Optuna's documentation does."""
    trials: list[Trial] = []
    sampler = make_sampler(Tuner(name=chosen.sampler, args=TunerArguments()), seed)
    study = optuna.create_study(direction=problem.goal, sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        params = suggest(trial, configuration.parameters)
        trials.append(train(problem, configuration, params, folder / f"plain-{trial.number}"))
        value = trials[-1].value
        return math.nan if value is None else value

    study.optimize(objective, chosen.trials)
    return trials


class Reached(Exception):  # noqa: N818 - it is no error
    """A trial is as good as it was to be."""


def watched_search(problem: Problem, config: Path, goal: float, chosen: argparse.Namespace) -> list[Trial]:
    """Search as `tensight search` does, until a trial is as good as a goal."""
    configuration = read(config)
    study = open_study(configuration, None)

    def look(ended: Ended) -> None:
        values = ended.outcome.values
        if values and values[0] * problem.sign <= goal * problem.sign:
            raise Reached

    with guarded() as guard, debugger_for(configuration, guard) as debugger:
        search = Search(configuration, study, folder_of(configuration), command_line, debugger, guard)
        with suppress(Reached):
            search.run(2 * chosen.trials, 1, look, print)
    return [as_trial(trial) for trial in read_result(configuration, study).trials]


def as_trial(result: TrialResult) -> Trial:
    file = Path(result.summary_dir) / "steps"
    steps = int(file.read_text()) if file.exists() else 0
    value = result.values[0] if result.values else None
    illness = result.illness.condition if result.illness else ""
    return Trial(result.params, value, steps, result.state, illness, result.reason)


def run_pair(chosen: argparse.Namespace, start: list[str], both: tuple[Problem, int]) -> Pair:
    """Do both searches of a problem from a seed, and train what was ended to its end."""
    problem, seed = both
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="tensight-bench-search-") as name:
        folder = Path(name)
        config = configuration_of(problem, seed, folder, start, chosen)
        configuration = read(config)
        plain = plain_search(problem, configuration, seed, folder, chosen)
        watched = watched_search(problem, config, best_of(plain, problem.sign), chosen)
        pair = Pair(problem.name, seed, plain, watched)
        pair.pruned_plain = [
            train(problem, configuration, trial.params, folder / f"pruned-{number}")
            for number, trial in enumerate(pair.pruned)
        ]
    return pair


# --- what is shown ---


@dataclass(frozen=True)
class Ratios:
    """Steps of the watched search until it reached the best of the plain one, beside those of the plain one.

    Attributes
    ----------
    until_best : float
        Beside its steps until it reached its best.
    of_all : float
        Beside all its steps.
    """

    until_best: float
    of_all: float


def ratios_of(problem: Problem, pair: Pair) -> Ratios:
    goal = best_of(pair.plain, problem.sign)
    steps = steps_until(pair.watched, problem.sign, goal)
    return Ratios(steps / steps_until(pair.plain, problem.sign, goal), steps / sum(trial.steps for trial in pair.plain))


def show_pair(problem: Problem, pair: Pair) -> None:
    """Print a line."""
    ratios = ratios_of(problem, pair)
    goal = best_of(pair.plain, problem.sign)
    first = next(number for number, trial in enumerate(pair.plain, 1) if trial.value == goal)
    ill = sum(bool(trial.illness) for trial in pair.watched)
    others = sum(trial.state == "pruned" and not trial.illness for trial in pair.watched)
    failed = sum(trial.value is None for trial in pair.plain)
    print(
        f"{problem.name:13} seed {pair.seed}  plain {goal:9.5g} in trial {first:2} of {len(pair.plain)}"
        f" ({failed:2} failed)  watched {len(pair.watched):2} trials, {ill:2} ill, {others:2} pruned"
        f"  steps {ratios.until_best:5.2f} of those until its best, {ratios.of_all:5.2f} of all",
        flush=True,
    )


def good_pruned(problem: Problem, pairs: list[Pair]) -> list[tuple[Trial, Trial]]:
    """Return the trials that were ended and would have been good, and what they reach."""
    reached = median(trial.value for pair in pairs for trial in pair.plain if trial.value is not None)
    return [
        (ended, trained)
        for pair in pairs
        for ended, trained in zip(pair.pruned, pair.pruned_plain, strict=True)
        if trained.value is not None and trained.value * problem.sign < reached * problem.sign
    ]


def show_problem(problem: Problem, pairs: list[Pair]) -> tuple[Ratios, int, int]:
    """Print the medians, what was pruned and by what; return medians, watched trials, and good ones that were ended."""
    all_ratios = [ratios_of(problem, pair) for pair in pairs]
    ratios = Ratios(median(each.until_best for each in all_ratios), median(each.of_all for each in all_ratios))
    watched = [trial for pair in pairs for trial in pair.watched]
    rules = Counter(trial.illness for trial in watched if trial.illness)
    ended_good = good_pruned(problem, pairs)
    good = [(ended, trained) for ended, trained in ended_good if ended.illness]
    by_pruner = sum(trial.state == "pruned" and not trial.illness for trial in watched)
    ran = sum(trial.steps for trial in watched if trial.illness)
    print(
        f"\n{problem.name}: median of {len(pairs)} seeds {ratios.until_best:.2f} of the steps until the best,"
        f" {ratios.of_all:.2f} of all steps; {len(watched)} watched trials, ended by"
        f" {', '.join(f'{name} {count}' for name, count in rules.most_common()) or 'nothing'}"
        f" after {ran} steps in all; good ones among them: {len(good)}; ended by Optuna's pruner {by_pruner}, of which"
        f" {len(ended_good) - len(good)} would have been good"
    )
    for ended, trained in good:
        print(f"  {ended.reason}: would have reached {trained.value:.5g}, {ended.params}")
    return ratios, len(watched), len(good)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ", ".join(each.name for each in PROBLEMS)
    others = ", ".join(each.name for each in OTHERS)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help=f"{names} (if none is named), {others}")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="seeds from this one on")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--sampler", default="tpe", choices=["tpe", "random", "gp", "cmaes"])
    parser.add_argument("--pruner", default="", help="by default that of `tensight search`")
    parser.add_argument("--workers", type=int, default=2, help="searches at a time")
    parser.add_argument("--keep", type=Path, help="write all trials into a file")
    chosen = parser.parse_args()
    problems = [each for each in (*PROBLEMS, *OTHERS) if each.name in chosen.problems] or list(PROBLEMS)
    pairs: dict[str, list[Pair]] = {each.name: [] for each in problems}
    with (
        tempfile.TemporaryDirectory(prefix="tensight-bench-") as folder,
        trainings(Path(folder)) as start,
        ProcessPoolExecutor(chosen.workers) as pool,
    ):
        numbers = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
        seeds = [(each, seed) for seed in numbers for each in problems]
        for (problem, _), pair in zip(seeds, pool.map(partial(run_pair, chosen, start), seeds), strict=True):
            pairs[problem.name].append(pair)
            show_pair(problem, pair)
            if chosen.keep:
                kept = [asdict(each) for several in pairs.values() for each in several]
                chosen.keep.write_text(json.dumps(kept))
    shown = [show_problem(problem, pairs[problem.name]) for problem in problems]
    good, watched = sum(each[2] for each in shown), sum(each[1] for each in shown)
    is_met_of_all = all(ratios.of_all <= BAR for ratios, *_ in shown)
    is_met = all(ratios.until_best <= BAR for ratios, *_ in shown)
    print(f"\nat most {BAR:.2f} of all steps of plain Optuna: {'yes' if is_met_of_all else 'NO'}")
    print(f"at most {BAR:.2f} of its steps until its best: {'yes' if is_met else 'NO'}")
    print(f"good trials that a watchpoint ended: {good} of {watched} watched ones")
    raise SystemExit(0 if is_met and good == 0 else 1)


if __name__ == "__main__":
    main()
