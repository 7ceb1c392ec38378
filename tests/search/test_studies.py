"""Studies in a real database that several workers share: lost trials, grids that are filled twice, and pruners."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import optuna
import pytest

from tensight.search.attributes import COMBINATION, HALF_LOSS, NOWHERE, STEPS, WORKER
from tensight.search.configuration import parse_configuration
from tensight.search.studies import GRACE_S, Outcome, Study, Suggestion
from tests.agents.agent_stage import until
from tests.search.searches import BLOCKED, BLOCKING, outcome_of, prepare, start

RANDOM = """
command: train.py {x}
summary_base_dir: runs
watch: off
tuner: {name: random}
target: {name: loss}
parameters:
  x: {bounds: [0.0, 1.0], type: float}
"""
GRID = RANDOM.replace("random", "grid").replace("bounds: [0.0, 1.0], type: float", "choice: [1, 2, 3]")
ELSEWHERE = {"host": "another machine", "pid": 1, "began": "0"}


def open_study(folder: Path, text: str) -> Study:
    return Study(parse_configuration(text, "search.yaml"), f"sqlite:///{folder}/search.db")


def begun(study: Study) -> Suggestion:
    suggestion = study.ask(100)
    assert suggestion is not None
    return suggestion


def make_silent(folder: Path, seconds: int) -> None:
    """Move the last heartbeats back."""
    with sqlite3.connect(folder / "search.db") as database:
        database.execute("UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, ?)", (f"-{seconds} seconds",))


def states(study: Study) -> dict[int, str]:
    """Return the states of the trials that count, by number."""
    return {trial.number: trial.state.name for trial in study.trials()}


def test_a_trial_of_another_machine_is_lost_when_nothing_was_heard_of_it_for_long(tmp_path: Path) -> None:
    study = open_study(tmp_path, RANDOM)
    lost = begun(study)
    study.note(lost, WORKER, ELSEWHERE)

    make_silent(tmp_path, GRACE_S - 30)
    study.give_up_lost()
    assert states(study) == {0: "RUNNING"}
    study.heartbeat([lost])
    make_silent(tmp_path, GRACE_S - 30)
    study.give_up_lost()
    assert states(study) == {0: "RUNNING"}, "its last heartbeat counts, not the first one"
    make_silent(tmp_path, 60)
    study.give_up_lost()
    assert states(study) == {1: "WAITING"}

    again = begun(study)
    assert (again.number, again.values) == (1, lost.values)
    study.tell(lost, Outcome((0.0,)))
    study.tell(again, Outcome((1.0,)))
    assert states(study) == {1: "COMPLETE"}, "what the lost one says later is not kept"


KILLED = """
import os, sys
from tensight.search.configuration import parse_configuration
from tensight.search.studies import Study
study = Study(parse_configuration(sys.argv[2], "search.yaml"), f"sqlite:///{sys.argv[1]}/search.db")
study._storage.record_heartbeat = lambda _: os._exit(9)
study.ask(100)
"""
"""A worker that dies between the storage's giving it a trial and its saying so."""


@pytest.mark.long
def test_a_trial_whose_worker_died_before_it_said_so_is_lost_at_once(tmp_path: Path) -> None:
    study = open_study(tmp_path, RANDOM)
    died = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), RANDOM], check=False)
    assert died.returncode == 9
    assert states(study) == {0: "RUNNING"}

    study.give_up_lost()

    assert states(study) == {}


def test_a_trial_without_a_worker_is_left_alone_while_somebody_may_be_about_to_begin_it(tmp_path: Path) -> None:
    study, other = open_study(tmp_path, RANDOM), open_study(tmp_path, RANDOM)
    optuna.load_study(study_name=study._study.study_name, storage=study.url).ask()
    study.give_up_lost()
    assert states(study) == {0: "RUNNING"}, "nobody of ours has asked for it"

    def record_heartbeat(_: int) -> None:
        study.give_up_lost()
        assert states(study) == {0: "RUNNING", 1: "RUNNING"}, "a worker that lives is about to begin it"

    other._storage.record_heartbeat = record_heartbeat
    assert begun(other).number == 1


@pytest.mark.long
def test_workers_that_notice_a_lost_trial_in_the_same_moment_have_it_tried_again_once(tmp_path: Path) -> None:
    study = open_study(tmp_path, RANDOM)
    for _ in range(3):
        study.note(begun(study), WORKER, ELSEWHERE)
    make_silent(tmp_path, GRACE_S + 1)
    workers = [open_study(tmp_path, RANDOM) for _ in range(4)]
    together = threading.Barrier(len(workers))

    def notice(worker: Study) -> None:
        together.wait()
        worker.give_up_lost()

    with ThreadPoolExecutor(len(workers)) as threads:
        list(threads.map(notice, workers))

    assert states(study) == {3: "WAITING", 4: "WAITING", 5: "WAITING"}


@pytest.mark.long
def test_workers_that_ask_in_the_same_moment_get_trials_of_their_own(tmp_path: Path) -> None:
    text = GRID.replace("[1, 2, 3]", str(list(range(40))))
    workers = [open_study(tmp_path, text) for _ in range(4)]
    workers[0].fill_grid()
    together = threading.Barrier(len(workers))

    def ask_for_all(worker: Study) -> list[int]:
        together.wait()
        numbers = []
        while suggestion := worker.ask(100):
            numbers.append(suggestion.number)
        return numbers

    with ThreadPoolExecutor(len(workers)) as threads:
        given = [number for numbers in threads.map(ask_for_all, workers) for number in numbers]

    assert sorted(given) == list(range(40))


def test_a_trial_that_is_lost_three_times_is_given_up(tmp_path: Path) -> None:
    study = open_study(tmp_path, RANDOM)
    for _ in range(3):
        study.set_aside(begun(study).number, "its worker has died", again=True)

    assert states(study) == {}


@pytest.mark.long
def test_two_workers_run_a_lost_trial_once(tmp_path: Path) -> None:
    script = "import sys\nopen('../begun', 'a').write(f'{sys.argv[1]} {sys.argv[2]}\\n')\nprint('loss', 1.0)"
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        prepare(folder, script, BLOCKED)
    study = Study(parse_configuration(BLOCKED, "search.yaml"), f"sqlite:///{tmp_path}/search.db")
    lost = begun(study)
    study.note(lost, WORKER, ELSEWHERE)
    make_silent(tmp_path, GRACE_S + 1)

    options = ("--storage", study.url, "--trials", "4", "--json")
    ended = [outcome_of(worker) for worker in [start(folder, *options) for folder in folders]]

    assert [code for code, _, _ in ended] == [0, 0], ended
    lines = [line.split() for line in (tmp_path / "begun").read_text().splitlines()]
    assert sorted(int(number) for number, _ in lines) == [1, 2, 3, 4]
    assert [x for _, x in lines].count(str(lost.values["x"])) == 1


@pytest.mark.long
def test_the_last_trial_of_a_worker_that_dies_is_tried_again_by_the_others(tmp_path: Path) -> None:
    prepare(tmp_path, BLOCKING, BLOCKED)
    os.mkfifo(tmp_path / "gate")
    os.mkfifo(tmp_path / "ready")
    dying = start(tmp_path, "--trials", "3")
    assert (tmp_path / "ready").read_text() == "here"
    other = start(tmp_path, "--trials", "3", "--json")
    assert other.stderr is not None
    until(lambda: "other workers run the last trials" in other.stderr.readline(), "it waits")
    (tmp_path / "gate").unlink()
    dying.kill()
    outcome_of(dying)
    code, out, err = outcome_of(other)

    assert code == 0, err
    trials = json.loads(out)["trials"]
    assert [trial["state"] for trial in trials] == ["complete"] * 3
    begun_x = [line.split()[1] for line in (tmp_path / "begun").read_text().splitlines()]
    assert begun_x[-1] == begun_x[1]


@pytest.mark.long
def test_a_grid_that_two_workers_fill_at_once_is_run_once(tmp_path: Path) -> None:
    study = open_study(tmp_path, GRID)
    study.fill_grid()
    # As if the other one had looked before this one wrote.
    storage = optuna.storages.RDBStorage(study.url)
    for index in range(3):
        optuna.load_study(study_name="search", storage=storage).enqueue_trial(
            {"x": index + 1}, user_attrs={COMBINATION: index}
        )

    seen = []
    while suggestion := study.ask(100):
        seen.append(suggestion.values["x"])
        study.tell(suggestion, Outcome((1.0,)))

    assert seen == [1, 2, 3]
    assert states(study) == {0: "COMPLETE", 1: "COMPLETE", 2: "COMPLETE"}


def test_a_grid_has_no_more_trials_than_combinations(tmp_path: Path) -> None:
    study, other = open_study(tmp_path, GRID), open_study(tmp_path, GRID)
    study.fill_grid()
    seen = [begun(worker).values["x"] for worker in (study, other, study)]

    assert (sorted(seen), study.ask(100), other.ask(100)) == ([1, 2, 3], None, None)


def test_a_combination_whose_worker_was_killed_before_it_could_say_so_is_tried_again(tmp_path: Path) -> None:
    study = open_study(tmp_path, GRID)
    study.fill_grid()
    lost = begun(study)
    # Killed between the end of the lost trial and the next attempt: nothing waits for it.
    study.set_aside(lost.number, "its worker has died")
    assert lost.values["x"] not in [begun(study).values["x"] for _ in range(2)]

    study.fill_grid()

    assert begun(study).values == lost.values


@pytest.mark.long
def test_hyperband_ends_bad_trials_and_no_good_one(tmp_path: Path) -> None:
    text = RANDOM + "pruner: {name: hyperband, min_steps: 1, max_steps: 9, reduction: 3}\n"
    study = open_study(tmp_path, text)
    ended: dict[int, int] = {}
    for number in range(12):
        suggestion = begun(study)
        value = 1.0 if number % 4 == 0 else 10.0 + number
        for step in range(1, 10):
            if study.report(suggestion, step, value / step):
                ended[number] = step
                break
        study.tell(suggestion, Outcome(is_pruned=True) if number in ended else Outcome((value,)))

    assert ended
    assert all(number % 4 for number in ended), "a good one was ended"
    assert set(ended.values()) <= {1, 3}, "others are compared at the rungs only"


def report_all(study: Study, values: list[float], losses: list[float] | None = None) -> int:
    """Run a trial that reports values at steps from 1, and return the step at which it is ended; 0 if it is not."""
    suggestion = begun(study)
    for step, value in enumerate(values, 1):
        if study.report(suggestion, step, value, None if losses is None else losses[step - 1]):
            study.tell(suggestion, Outcome(is_pruned=True))
            return step
    study.tell(suggestion, Outcome((values[-1],)))
    return 0


def test_a_trial_with_a_bad_target_goes_on_while_its_loss_is_no_worse_than_that_of_others(tmp_path: Path) -> None:
    study = open_study(tmp_path, RANDOM)
    for value in (1.0, 2.0):
        assert report_all(study, [value] * 4, [5.0, 4.0, 3.0, 2.0]) == 0

    assert report_all(study, [9.0] * 4, [4.0, 3.0, 2.0, 1.0]) == 0, "the loss is better than that of others"
    assert report_all(study, [9.5] * 4, [4.0, 6.0, 7.0, 8.0]) == 2, "the loss is worse at the second step"
    assert report_all(study, [1.0] * 4, [9.0] * 4) == 0, "the target alone decides what is good"
    assert report_all(study, [9.5] * 4, [math.inf, 1.0, 1.0, 1.0]) == 1
    assert report_all(study, [math.nan, 1.0, 1.0, 1.0], [1.0] * 4) == 1, "no loss speaks for a target without a value"


def test_a_trial_must_be_worse_than_half_of_all_that_came_as_far(tmp_path: Path) -> None:
    study = open_study(tmp_path, RANDOM)
    for _ in range(2):
        report_all(study, [1.0] * 2, [1.0] * 2)
    for value in (9.0, 9.5, 10.0):
        assert report_all(study, [value] * 2, [value] * 2) == 1

    assert report_all(study, [8.0] * 2, [20.0] * 2) == 0


@pytest.mark.long
def test_a_pruner_whose_trials_have_no_loss_waits_for_five(tmp_path: Path) -> None:
    study = open_study(tmp_path, RANDOM)
    for _ in range(4):
        assert report_all(study, [1.0, 1.0]) == 0
    assert report_all(study, [9.0, 9.0]) == 0
    assert report_all(study, [9.0, 9.0]) == 1

    (tmp_path / "asked").mkdir()
    asked = open_study(tmp_path / "asked", RANDOM + "pruner: {name: median, startup_trials: 1}\n")
    report_all(asked, [1.0, 1.0])
    assert report_all(asked, [9.0, 9.0]) == 1


def test_trials_that_still_run_have_not_ended(tmp_path: Path) -> None:
    study = open_study(tmp_path, RANDOM)
    first, _ = begun(study), begun(study)
    study.tell(first, Outcome((1.0,)))
    assert (study.ended(), study.counted()) == (1, 2)


def test_the_steps_of_a_whole_trial_are_those_of_complete_ones(tmp_path: Path) -> None:
    study = open_study(tmp_path, RANDOM)
    assert study.whole_steps() is None
    study.tell(begun(study), Outcome((1.0,), attributes={STEPS: 70}))
    study.tell(begun(study), Outcome(is_pruned=True, attributes={STEPS: 900}))

    assert study.whole_steps() == 70


def complete(study: Study, values: list[float], **attributes: Any) -> None:
    """Run a trial that reports values at steps from 1 and comes to its end."""
    suggestion = begun(study)
    for step, value in enumerate(values, 1):
        study.report(suggestion, step, value)
    study.tell(suggestion, Outcome((values[-1],), attributes=attributes))


MAXIMIZED = RANDOM.replace("{name: loss}", "{name: accuracy, goal: maximize}")
SEVERAL = RANDOM.replace("target: {name: loss}", "targets: [{name: loss}, {name: size, goal: minimize}]")


@pytest.mark.long
def test_a_trial_that_gets_nowhere_is_compared_with_all_that_came_as_far(tmp_path: Path) -> None:
    study = open_study(tmp_path, MAXIMIZED + "pruner: {name: none}\n")
    complete(study, [5.0] * 3)
    assert study.rank(begun(study), 2, 4.0) is None, "one other says nothing"
    complete(study, [6.0] * 3)
    assert study.rank(begun(study), 2, 4.0) == "2 of 2 other trials"
    assert study.rank(begun(study), 2, 5.2) is None, "of two, both must be better"
    complete(study, [7.0] * 3)
    suggestion = begun(study)

    assert study.rank(suggestion, 2, 4.0) == "3 of 3 other trials"
    assert study.rank(suggestion, 2, 5.5) is None, "only two are better"
    assert study.rank(suggestion, 3, 4.0) is None, "it has nothing more to do"
    for value in (1.0, 2.0, 3.0):
        ended = begun(study)
        study.report(ended, 2, value)
        study.tell(ended, Outcome(is_pruned=True))
    assert study.rank(suggestion, 2, 5.0) is None, "no worse than half"
    assert study.rank(suggestion, 2, 3.5) == "3 of 6 other trials"
    assert study.rank(suggestion, 2, math.nan) == "6 of 6 other trials"


def test_values_that_were_reported_at_other_steps_are_those_of_the_step_before(tmp_path: Path) -> None:
    study = open_study(tmp_path, MAXIMIZED + "pruner: {name: none}\n")
    for _ in range(3):
        suggestion = begun(study)
        for step, value in ((2, 1.0), (5, 9.0)):
            study.report(suggestion, step, value)
        study.tell(suggestion, Outcome((9.0,)))

    assert study.rank(begun(study), 4, 2.0) is None
    assert study.rank(begun(study), 4, 0.5) == "3 of 3 other trials"
    assert study.rank(begun(study), 1, 0.5) is None, "nobody had a value"


def test_where_a_good_trial_got_nowhere_none_is_lost_because_it_does(tmp_path: Path) -> None:
    study = open_study(tmp_path, RANDOM + "pruner: {name: none}\n")
    for value in (2.0, 3.0, 4.0):
        complete(study, [value] * 2)
    complete(study, [8.0] * 2, **{NOWHERE: True})
    assert study.rank(begun(study), 1, 9.0) == "4 of 4 other trials"

    complete(study, [1.0] * 2, **{NOWHERE: True})

    assert study.rank(begun(study), 1, 9.0) is None


def test_the_loss_speaks_only_where_no_target_comes_before_the_end(tmp_path: Path) -> None:
    study = open_study(tmp_path, RANDOM + "pruner: {name: none}\n")
    for loss in (1.0, 2.0, 3.0):
        complete(study, [loss], **{HALF_LOSS: loss})
    assert study.rank_of_loss(begun(study), 2.5) is None
    assert study.rank_of_loss(begun(study), 4.0) == "3 of 3 other trials"

    complete(study, [9.0, 9.0])

    assert study.rank_of_loss(begun(study), 4.0) is None


@pytest.mark.long
def test_of_several_targets_no_trial_is_lost(tmp_path: Path) -> None:
    study = open_study(tmp_path, SEVERAL)
    for _ in range(4):
        study.tell(begun(study), Outcome((1.0, 1.0), attributes={HALF_LOSS: 1.0}))

    assert study.rank(begun(study), 1, 9.0) is None
    assert study.rank_of_loss(begun(study), 9.0) is None


@pytest.mark.long
def test_of_several_targets_a_parameter_matters_as_it_does_on_average(tmp_path: Path) -> None:
    more = SEVERAL + "".join(f"  {name}: {{bounds: [0.0, 1.0], type: float}}\n" for name in ("y", "unused"))
    study = open_study(tmp_path, more.replace("{name: random}", "{name: random, args: {seed: 1}}"))
    for _ in range(30):
        suggestion = begun(study)
        study.tell(suggestion, Outcome((suggestion.values["x"], suggestion.values["y"])))

    importance = study.importance()

    assert importance["x"] == pytest.approx(0.5, abs=0.15)
    assert importance["y"] == pytest.approx(0.5, abs=0.15)
    assert list(importance)[-1] == "unused"
