"""`tensight search`: real trials in processes, a real database, kills and two workers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from tests.processes.process_end import ProcessEnd
from tests.search.postgresql import postgresql
from tests.search.searches import BLOCKED, BLOCKING, CONFIGURATION, PATIENCE_S, outcome_of, prepare, search, start


def test_the_best_is_found_and_can_be_run_again(tmp_path: Path) -> None:
    prepare(
        tmp_path,
        configuration=CONFIGURATION.replace("--x {x}", "--x {x} --kind {kind} --extra {extra}")
        + "  kind: {choice: [plain, more]}\n  extra: {bounds: [1.0, 2.0], type: float, when: {kind: more}}\n",
    )

    result = search(tmp_path, "--trials", "8", "--jobs", "2")
    code, out, err = outcome_of(start(tmp_path, "--results"))

    trials = result["trials"]
    assert [trial["state"] for trial in trials] == ["complete"] * 8
    (best,) = result["best"]
    assert trials[best]["values"] == [min(trial["values"][0] for trial in trials)]
    plain = next(trial for trial in trials if trial["params"]["kind"] == "plain")
    assert plain["command"] == f"train.py --x {plain['params']['x']} --kind plain"
    assert {"extra", "kind", "x"} == set(next(t for t in trials if t["params"]["kind"] == "more")["params"])
    again = subprocess.run(
        [sys.executable, *result["best_command"].split()], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert float(again.stdout.split()[1]) == trials[best]["values"][0]
    assert (code, err) == (0, "")
    shown = out.partition(f"Best: trial {best}\n")[2]
    parameters, _, command = shown.strip().rpartition("\n\n")
    assert (yaml.safe_load(parameters), command) == (trials[best]["params"], result["best_command"])
    assert sum(result["importance"].values()) == pytest.approx(1)


@pytest.mark.long
def test_a_trial_that_fails_is_one_result(tmp_path: Path) -> None:
    script = """
    import os, signal, sys
    from tensight.search import HyperConfig
    config = HyperConfig()
    kind = config.params.kind
    if kind == "raises":
        raise RuntimeError("no memory left")
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "silent":
        sys.exit()
    with open(os.path.join(config.summary_dir, "log.jsonl"), "w") as log:
        log.write('{"step": 3, "loss": %s}' % (0.5 if kind == "fine" else "NaN"))
    """
    prepare(
        tmp_path,
        script,
        """
        command: train.py
        summary_base_dir: runs
        watch: off
        tuner: {name: grid}
        target: {name: loss, from: {json_lines: log.jsonl}}
        parameters:
          kind: {choice: [raises, killed, silent, nan, fine]}
        """,
    )

    code, out, err = outcome_of(start(tmp_path))
    result = search(tmp_path, "--results")

    trials = {trial["params"]["kind"]: trial for trial in result["trials"]}
    assert {kind: trial["state"] for kind, trial in trials.items()} == {
        "raises": "failed",
        "killed": "failed",
        "silent": "failed",
        "nan": "pruned",
        "fine": "complete",
    }
    assert trials["raises"]["exit_code"] == 1
    assert trials["raises"]["reason"].startswith("exit code 1: ")
    assert trials["raises"]["reason"].endswith("RuntimeError: no memory left")
    assert trials["killed"]["reason"].startswith("signal 9")
    assert trials["silent"]["reason"].startswith("no value of loss: no line of ")
    assert trials["nan"]["reason"] == "loss is nan"
    assert trials["fine"]["values"] == [0.5]
    assert (code, "RuntimeError: no memory left" in out) == (0, True)
    assert re.search(r"trial \d failed: exit code 1: RuntimeError: no memory left", err)
    assert re.search(r"\d of [\d,]+; best loss 0\.5 in trial \d", err)


@pytest.mark.long
def test_a_command_that_does_not_exist_says_so(tmp_path: Path) -> None:
    prepare(tmp_path, configuration=CONFIGURATION.replace("train.py", "nowhere.py"))

    code, out, err = outcome_of(start(tmp_path))

    assert (code, out) == (2, "")
    assert "nowhere.py: there is no such script" in err


@pytest.mark.long
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_search_that_is_killed_goes_on_where_it_was(tmp_path: Path, kill: signal.Signals) -> None:
    prepare(tmp_path, BLOCKING, BLOCKED)
    os.mkfifo(tmp_path / "gate")
    os.mkfifo(tmp_path / "ready")
    running = start(tmp_path, "--trials", "4")
    # Returns when the second trial has opened its end.
    assert (tmp_path / "ready").read_text() == "here"
    number, x, process = (tmp_path / "begun").read_text().splitlines()[-1].split()

    end = ProcessEnd(int(process))
    running.send_signal(kill)
    outcome_of(running)
    gone = end.comes_within(PATIENCE_S)
    (tmp_path / "gate").unlink()
    result = search(tmp_path, "--trials", "4")

    assert gone, "the trial outlived the search"
    begun = [line.split()[:2] for line in (tmp_path / "begun").read_text().splitlines()]
    assert [number for number, _ in begun] == ["0", "1", "2", "3", "4"]
    assert begun[2] == ["2", x], "what was lost is tried again, with the same values"
    assert [trial["state"] for trial in result["trials"]] == ["complete"] * 4
    assert [trial["number"] for trial in result["trials"]] == [0, 2, 3, 4]
    assert number == "1"


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_two_workers_never_run_the_same_trial(database: str, tmp_path: Path) -> None:
    with nullcontext(f"sqlite:///{tmp_path / 'shared.db'}") if database == "sqlite" else postgresql() as url:
        folders = [tmp_path / "a", tmp_path / "b"]
        script = "import sys\nopen('../begun', 'a').write(sys.argv[1] + '\\n')\nprint('loss', sys.argv[2])"
        for folder in folders:
            prepare(folder, script, BLOCKED)
        workers = [start(folder, "--storage", url, "--trials", "10", "--jobs", "2", "--json") for folder in folders]
        ended = [outcome_of(worker) for worker in workers]
        result = search(folders[0], "--storage", url, "--results")

    assert [code for code, _, _ in ended] == [0, 0], ended
    begun = (tmp_path / "begun").read_text().splitlines()
    assert len(begun) == len(set(begun)) == 10
    assert len(result["trials"]) == 10
    assert len({trial["params"]["x"] for trial in result["trials"]}) == 10
    assert "secret" not in json.dumps(result)
    homes = {Path(trial["summary_dir"]).parent for trial in result["trials"]}
    assert homes <= {folder / "runs" for folder in folders}


@pytest.mark.long
def test_a_trial_that_is_worse_than_others_is_pruned(tmp_path: Path) -> None:
    script = """
    import sys, time
    from tensight.search import HyperConfig
    for step in range(1, 4):
        print("step", step, "loss", HyperConfig().params.x / step)
    if HyperConfig().params.x > 5:
        open(sys.argv[1]).read()
    """
    prepare(
        tmp_path,
        script,
        r"""
        command: train.py gate
        summary_base_dir: runs
        watch: off
        tuner: {name: grid}
        pruner: {name: median, startup_trials: 2}
        target: {name: loss, from: {pattern: 'step (?P<step>\d+) loss (?P<value>\S+)'}}
        parameters:
          x: {bounds: [4, 7], type: int}
        """,
    )
    os.mkfifo(tmp_path / "gate")

    result = search(tmp_path)

    good, better, bad = sorted(result["trials"], key=lambda trial: trial["params"]["x"])
    assert good["values"] == [4 / 3]
    assert better["values"] == [5 / 3]
    assert (bad["state"], bad["reason"]) == ("pruned", "median: loss 6 at step 1 is worse than that of others")


@pytest.mark.long
def test_a_bad_trial_is_pruned_but_not_at_its_last_value_and_none_of_a_grid_unless_asked(tmp_path: Path) -> None:
    script = """
    import sys, time
    x, last, gate = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for step in range(1, last + 1):
        print("step", step, "loss", x / step, flush=True)
        if x > 5 and step == 1 and last > 1:
            open(gate).read()
    # As interpreters do that have much to tear down; it is looked at meanwhile.
    end = time.monotonic() + (0.5 if x > 5 else 0)
    while time.monotonic() < end:
        pass
    """
    configuration = r"""
    command: train.py {x} STEPS gate
    name: NAME
    summary_base_dir: runs
    watch: off
    tuner: {name: grid}
    target: {name: loss, from: {pattern: 'step (?P<step>\d+) loss (?P<value>\S+)'}}
    parameters:
      x: {bounds: [1, 7], type: int}
    """

    def states(name: str, steps: str, pruner: str) -> dict[int, str]:
        prepare(tmp_path, script, configuration.replace("STEPS", steps).replace("NAME", name) + pruner)
        return {trial["params"]["x"]: trial["state"] for trial in search(tmp_path)["trials"]}

    complete = dict.fromkeys(range(1, 7), "complete")
    (tmp_path / "gate").write_text("")
    assert states("unasked", "2", "") == complete
    (tmp_path / "gate").unlink()
    os.mkfifo(tmp_path / "gate")
    assert states("one-step", "1", "pruner: {name: median}\n") == complete
    assert states("two-steps", "2", "pruner: {name: median}\n") == {**complete, 6: "pruned"}


@pytest.mark.long
def test_several_targets_have_several_best_trials(tmp_path: Path) -> None:
    prepare(
        tmp_path,
        "import sys\nprint('loss', sys.argv[1])\nprint('speed', sys.argv[1])",
        r"""
        command: train.py {x}
        summary_base_dir: runs
        watch: off
        tuner: {name: grid}
        targets:
          - {name: loss, from: {pattern: 'loss (\S+)'}}
          - {name: speed, goal: maximize, from: {pattern: 'speed (\S+)'}}
        parameters:
          x: {choice: [1, 2]}
        """,
    )

    result = search(tmp_path)

    assert sorted(result["best"]) == [0, 1]
    assert sorted(trial["values"] for trial in result["trials"]) == [[1, 1], [2, 2]]


@pytest.mark.long
def test_another_search_under_the_same_name_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path)
    search(tmp_path, "--trials", "1")
    (tmp_path / "search.yaml").write_text(CONFIGURATION.replace("minimize", "maximize"))

    code, _, err = outcome_of(start(tmp_path, "--trials", "2"))

    assert code == 2
    assert "the study 'search' has other targets; write another `name`" in err


@pytest.mark.long
def test_where_no_database_of_searches_can_be_is_one_error(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "notes.txt").write_text("no database\n" * 1000)

    code, out, err = outcome_of(start(tmp_path, "--storage", "sqlite:///notes.txt", "--trials", "1"))

    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("tensight: sqlite:///notes.txt: the storage cannot be opened: ")
    assert (tmp_path / "notes.txt").read_text() == "no database\n" * 1000

    prepare(tmp_path, configuration=CONFIGURATION.replace("summary_base_dir: runs", 'summary_base_dir: "ru?ns"'))
    code, out, err = outcome_of(start(tmp_path, "--trials", "1"))
    assert (code, out) == (2, "")
    assert "write another summary_base_dir" in err


def test_what_was_never_begun_has_no_results(tmp_path: Path) -> None:
    prepare(tmp_path)

    code, _, err = outcome_of(start(tmp_path, "--results"))

    assert (code, "nothing has been tried yet" in err) == (2, True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
def test_results_are_read_from_a_database_that_cannot_be_written(tmp_path: Path) -> None:
    prepare(tmp_path)
    result = search(tmp_path, "--trials", "3")
    database = tmp_path / "runs" / "search.db"
    content = database.read_bytes()

    again = search(tmp_path, "--results", "--storage", f"sqlite:///file:{database}?mode=ro&uri=true")

    assert again["trials"] == result["trials"]
    assert database.read_bytes() == content


@pytest.mark.long
def test_mindoptimizer_takes_the_originals_options(tmp_path: Path) -> None:
    prepare(tmp_path)

    def mindoptimizer(*options: str) -> subprocess.CompletedProcess[str]:
        program = "from tensight.cli.mindoptimizer import main; main()"
        return subprocess.run(
            [sys.executable, "-c", program, *options], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
        )

    assert mindoptimizer("--version").stdout.startswith("tensight ")
    assert mindoptimizer("--config", "search.yaml").returncode == 0
    assert mindoptimizer("--config", "search.yaml", "--iter", "2").returncode == 0
    assert len(json.loads(outcome_of(start(tmp_path, "--results", "--json"))[1])["trials"]) == 3
    assert mindoptimizer("--config", "none.yaml").stderr.startswith("tensight: none.yaml: No such file")
