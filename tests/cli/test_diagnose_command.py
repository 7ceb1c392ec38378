"""`tensight diagnose` and `tensight explain`, as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tensight import connect
from tensight.sessions.records import State
from tests.processes.ports import kept_port
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.client import Server, Session
    from tensight.sessions.records import FindingRecord

TRAINING = """
import sys
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), *([nn.Softmax(1)] if "twice" in sys.argv else []))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
inputs = torch.randn(256, 8)
labels = (inputs[:, 0] > 0).long() + 2 * (inputs[:, 1] > 0).long()
for step in range(int(sys.argv[1])):
    rows = torch.randint(0, 256, (32,))
    loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("parameters", sum(float(p.double().abs().sum()) for p in model.parameters()).hex())
if "fails" in sys.argv:
    raise ValueError("after all")
"""


PAIR = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
class Adam(torch.optim.Adam):
    def __init__(self, weights):
        super().__init__(weights, lr=1e-3)
class Pair:
    def __init__(self):
        self.first, self.second = (nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2))
        self.optimizer = Adam([*self.first[:1].parameters(), self.second[0].weight])
    def loss(self, inputs):
        hidden = self.first(inputs)
        return (self.second(hidden.detach()) - inputs.clamp(-0.9, 0.9)).square().mean()
pair = Pair()
for step in range(20):
    pair.optimizer.zero_grad()
    pair.loss(torch.randn(16, 8)).backward()
    pair.optimizer.step()
"""

MODES = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
inputs = torch.randn(256, 8)
labels = (inputs[:, 0] > 0).long()
for step in range(100):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
    if step == 15:
        model.eval()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    return path


def tensight(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("tensight")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_fault_is_named_with_its_line(script: Path) -> None:
    done = tensight("diagnose", "--json", script, 40, "twice")
    assert done.returncode == 1, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["rule"], finding["category"], finding["certainty"], finding["step"]) == (
        "activation-twice",
        "output-and-loss",
        "certain",
        1,
    )
    assert finding["where"] == {"operator": "cross_entropy", "line": "train.py:13"}
    text = tensight("diagnose", script, 40, "twice").stdout
    assert "softmax before a cross entropy" in text
    assert "train.py:13" in text
    assert "40 steps looked at" in text


def test_probes_are_listed_and_leave_the_training_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mixing.py"
    path.write_text(TRAINING.replace("nn.ReLU()", "nn.Softmax(0)"))
    done = tensight("diagnose", "--json", "--probe", path, 40)
    assert done.returncode == 1, done.stderr
    assert "Experiments with the batch of step 3 take at most 10 s." in done.stderr
    read = json.loads(done.stdout)
    assert "samples-mixed" in [finding["rule"] for finding in read["findings"]]
    outcomes = {row["probe"]: row["outcome"] for row in read["probes"]}
    assert (outcomes["evaluation"], outcomes["samples"], outcomes["inputs"]) == ("pass", "fail", "pass")
    text = tensight("diagnose", "--probe", path, 40).stdout
    assert "FAIL a sample does not change the outputs of others" in text
    assert "not tried padding does not count" in text
    assert json.loads(tensight("diagnose", "--json", path, 40).stdout)["probes"] == []
    environment = {**os.environ, "TENSIGHT_DEBUG": "1", "TENSIGHT_DIAGNOSE": str(tmp_path), "TENSIGHT_QUIET": "1"}
    command = [sys.executable, str(path), "40"]
    plain, probed = (
        subprocess.run(command, capture_output=True, text=True, env=variables, check=True).stdout
        for variables in (os.environ, {**environment, "TENSIGHT_PROBE": "1"})
    )
    assert plain == probed


def test_models_and_optimizers_are_named_as_the_script_names_them(tmp_path: Path) -> None:
    path = tmp_path / "pair.py"
    path.write_text(PAIR)
    findings = {each["rule"]: each for each in json.loads(tensight("diagnose", "--json", path).stdout)["findings"]}
    assert findings["not-in-optimizer"]["title"].startswith("1 parameter gets gradients, but no optimizer updates them")
    assert findings["not-in-optimizer"]["where"]["made"] == "pair.py:12"
    assert findings["not-in-optimizer"]["evidence"][-1] == "the script makes the optimizer at pair.py:12"
    if sys.version_info >= (3, 11):
        assert findings["no-gradient"]["where"]["model"] == "self.first (pair.py:14)"
        assert "the script calls its model self.first (pair.py:14)" in findings["no-gradient"]["evidence"]


def test_where_modes_are_set_and_schedules_are_made_is_said(tmp_path: Path) -> None:
    path = tmp_path / "modes.py"
    path.write_text(MODES)
    findings = {each["rule"]: each for each in json.loads(tensight("diagnose", "--json", path).stdout)["findings"]}
    assert findings["evaluation-mode"]["where"]["mode"] == "modes.py:17"
    assert findings["schedule-over"]["evidence"][-1] == "the script makes the schedule at modes.py:8"


def test_where_the_parts_of_models_are_made_is_said(tmp_path: Path) -> None:
    path = tmp_path / "dropping.py"
    path.write_text(TRAINING.replace("nn.ReLU()", "nn.Dropout(0.95)"))
    (finding,) = json.loads(tensight("diagnose", "--json", path, 40).stdout)["findings"]
    assert finding["rule"] == "dropout-rate"
    number = next(at for at, line in enumerate(path.read_text().splitlines(), 1) if "nn.Sequential(" in line)
    assert finding["evidence"][-1] == f"the script makes 1 at dropping.py:{number}"


def test_kept_facts_are_judged_again_and_never_written_over(script: Path, tmp_path: Path) -> None:
    kept = tmp_path / "new" / "facts"
    first = tensight("diagnose", "--json", "--out", kept, script, 40, "twice")
    again = tensight("diagnose", "--json", kept)
    assert (first.returncode, again.returncode) == (1, 1), first.stderr + again.stderr
    assert json.loads(first.stdout)["findings"] == json.loads(again.stdout)["findings"]
    before = sorted((path.name, path.stat().st_mtime_ns) for path in kept.iterdir())
    refused = tensight("diagnose", "--out", kept, script, 40)
    assert refused.returncode == 2
    assert "is not an empty folder" in refused.stderr
    assert tensight("diagnose", "--out", script / "facts", script, 40).returncode == 2
    assert before == sorted((path.name, path.stat().st_mtime_ns) for path in kept.iterdir())


def test_a_healthy_training_ends_after_some_steps_with_exit_code_0(script: Path) -> None:
    done = tensight("diagnose", "--json", "--steps", 30, script, 100_000)
    result = json.loads(done.stdout)
    assert (done.returncode, result["findings"], result["steps"]) == (0, [], 30)


def test_what_a_failed_training_showed_is_judged_and_how_it_failed_is_said(script: Path) -> None:
    done = tensight("diagnose", script, 40, "twice", "fails")
    assert done.returncode == 1
    assert "ValueError: after all" in done.stdout
    assert "softmax before a cross entropy" in done.stdout


def test_where_no_step_is_seen_nothing_is_judged(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import torch\n")
    done = tensight("diagnose", script)
    assert done.returncode == 2
    assert "nothing can be judged" in done.stdout


def test_a_diagnosed_training_computes_the_same_bits(script: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TENSIGHT_DEBUG": "1", "TENSIGHT_DIAGNOSE": str(tmp_path)}
    command = [sys.executable, str(script), "100"]
    plain = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    diagnosed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    assert plain.stdout == diagnosed.stdout
    assert list(tmp_path.glob("facts-0-*.jsonl"))


def test_explain_says_what_a_rule_finds_and_what_to_do() -> None:
    text = tensight("explain", "softmax-axis").stdout
    assert "softmax over another axis" in text
    assert "dim=1" in text
    assert tensight("explain", "softmax-axes").returncode == 2
    rules = json.loads(tensight("explain", "--json").stdout)
    assert len(rules) > 40
    assert all(words["en"] and words["zh"] for rule in rules for words in rule["messages"].values())


@pytest.mark.parametrize("how", ["trace", "recording"])
def test_a_recorded_training_is_diagnosed_without_running_it_again(script: Path, tmp_path: Path, how: str) -> None:
    folder = tmp_path / how
    if how == "trace":
        done = tensight("trace", "--out", folder, "--steps", 20, script, 40, "twice")
    else:
        options = ("--port", kept_port(), "--record", "ring:2", "--record-folder", folder)
        done = tensight("run", *options, script, 40, "twice")
    assert done.returncode == 0, done.stderr
    diagnosed = tensight("diagnose", "--json", folder)
    assert diagnosed.returncode == 1, diagnosed.stderr
    assert [finding["rule"] for finding in json.loads(diagnosed.stdout)["findings"]] == ["activation-twice"]
    losses = tensight("stats", "--json", "--sql", "select rank, step, name from losses order by step limit 2", folder)
    assert json.loads(losses.stdout) == [{"rank": 0, "step": step, "name": "loss"} for step in (1, 2)]


def test_folders_without_facts_and_options_after_a_folder_are_refused(tmp_path: Path) -> None:
    without = tensight("diagnose", tmp_path)
    assert without.returncode == 2
    assert "no facts and no log" in without.stderr
    behind = tensight("diagnose", tmp_path, "--json")
    assert behind.returncode == 2
    assert "write options before it" in behind.stderr
    (tmp_path / "facts-0-1.jsonl").write_text("nonsense\n")
    damaged = tensight("diagnose", tmp_path)
    assert damaged.returncode == 2
    assert "facts-0-1.jsonl" in damaged.stderr


@contextmanager
def debugged(
    script: Path, folder: Path, *options: str, twice: bool = True, server_options: tuple[str, ...] = ()
) -> Iterator[tuple[Server, Session, subprocess.Popen[str]]]:
    """A training that lasts until a person ends it, attached to a server."""
    with running_server(folder / "workspace", *server_options) as server, connect(server.url) as client:
        assert server.debugger
        port = server.debugger.rpartition(":")[2]
        command = [Path(sys.executable).with_name("tensight"), "run", "--port", port, *options, script, "1000000000"]
        if twice:
            command.append("twice")
        with subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True) as training:
            try:
                yield client, client.wait_for_session(60), training
            finally:
                training.kill()


def recorded_findings(client: Server, session: Session, training: subprocess.Popen[str]) -> list[FindingRecord]:
    """End a debugged training; return what is found in the facts that its run keeps."""
    session.terminate()
    training.wait(60)
    name = session.wait(60).dump
    session.close()
    recorded = client.open(name)
    recorded.wait(60)
    return recorded.findings()


def test_a_training_that_is_debugged_is_told_why_it_does_not_learn(script: Path, tmp_path: Path) -> None:
    with debugged(script, tmp_path) as (client, session, training):
        assert training.stderr is not None
        told = next(line for line in training.stderr if "certain: " in line)
        assert "softmax before a cross entropy" in told
        assert "train.py:13" in told
        (finding,) = session.findings()
        assert (finding.rule, finding.certainty) == ("activation-twice", "certain")
        assert session.summary.findings == 1
        losses = session.facts("losses").columns
        assert (losses["name"][0], losses["step"][0]) == ("loss", 1)
        assert session.state is State.RUNNING
        assert [finding.rule for finding in recorded_findings(client, session, training)] == ["activation-twice"]


def test_a_certain_finding_stops_a_training_with_the_recommended_watchpoints(script: Path, tmp_path: Path) -> None:
    with debugged(script, tmp_path, "--recommended") as (_, session, training):
        assert training.stderr is not None
        assert any("the training stops for this" in line for line in training.stderr)
        assert session.wait(60).state is State.PAUSED
        assert [finding.rule for finding in session.findings()] == ["activation-twice"]
