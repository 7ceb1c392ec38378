"""What every adapter for an eager framework shows of a training: the same trainings, on each framework.

Another adapter passes these tests when it has a kit (see `eager_trainings`) and a line in `KITS`. The one for minigrad
consists of the pieces that adapters share, and of one folder: ``installed/minigrad_agent``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensight.analysis import Analysis, Anomaly, origins
from tensight.dumps import open_dump
from tests.agents.eager.eager_trainings import STEPS, TRAININGS, WEIGHTS
from tests.agents.mindspore.mindspore_stage import VERSIONS, python_of

HERE = Path(__file__).parent
PATIENCE_S = 300
LINEAR = "Linear"


@dataclass(frozen=True)
class KitOfTests:
    """How a framework's trainings are run.

    Attributes
    ----------
    module : str
    python : callable
        Returns the interpreter that has the framework.
    linear : str
        What the framework calls a linear layer.
    has_own_names : bool
        Whether the framework names weights itself, whatever the attributes are called that hold them.
    """

    module: str
    python: Callable[[], str | Path]
    linear: str = LINEAR
    has_own_names: bool = False


KITS = {
    "torch": KitOfTests("torch_kit", lambda: sys.executable),
    "mindspore": KitOfTests("mindspore_kit", lambda: python_of(VERSIONS[0]), "Dense", has_own_names=True),
    "minigrad": KitOfTests("minigrad_kit", lambda: sys.executable),
}


class Seen:
    """What was traced of a training. Linear layers are called so whatever the framework calls them."""

    def __init__(self, kit: KitOfTests, folder: Path, name: str) -> None:
        self._kit = kit
        self._cache = folder / "cache"
        self.dump = open_dump(folder / name)

    @cached_property
    def analysis(self) -> Analysis:
        return Analysis(self.dump, cache_dir=self._cache)

    @property
    def steps(self) -> int:
        return len(self.dump.iterations())

    @cached_property
    def links(self) -> dict[str, list[str]]:
        """What each operator of the last graph reads, in the order of execution."""
        graph = self.dump.graphs(0)[-1]
        found = {}
        for node in graph.operators:
            # Where a node has several outputs, what takes one of them out is no operator of the training.
            if node.type != "TupleGetItem":
                producers = [one for one in graph.producers(node) if one is not None]
                found[self._named(node.name)] = [self._named(producer.name) for producer, _ in producers]
        return found

    def forward(self) -> list[str]:
        return [name for name in self.links if name.startswith("Default/")]

    def read_by(self, name: str) -> list[str]:
        """Operators that an operator reads."""
        return [one for one in self.links[name] if "/" in one]

    @cached_property
    def weights(self) -> list[str]:
        """Names of what the network holds, without states of optimizers and inputs of the step."""
        updates = {name: read for name, read in self.links.items() if name.startswith("Optimizer/")}
        return [read[0] for read in updates.values()]

    @cached_property
    def rows(self) -> dict[tuple[int, str, str, int], dict[str, Any]]:
        """Statistics by iteration, node, io and slot."""
        table = self.analysis.statistics()
        names = ("mean", "min", "max", "l2_norm", "nan_count", "zero_count", "content_hash")
        return {
            (file.iteration, self._named(file.node), file.io, file.slot): {
                name: table.rows[name][row].item() for name in names
            }
            for row, file in enumerate(table.files)
        }

    def row(self, iteration: int, node: str, slot: int = 0) -> dict[str, Any]:
        return self.rows[iteration, node, "output", slot]

    def _named(self, name: str) -> str:
        return name.replace(self._kit.linear, LINEAR)


class Runs:
    """What the trainings of a kit have left in a folder."""

    def __init__(self, kit: KitOfTests, folder: Path, notices: list[str]) -> None:
        self.kit = kit
        self.folder = folder
        self.notices = notices

    def seen(self, name: str) -> Seen:
        return Seen(self.kit, self.folder, name)

    def kept(self, name: str) -> dict[str, Any]:
        with np.load(self.folder / f"{name}.npz") as arrays:
            return dict(arrays)


@pytest.fixture(
    scope="module", params=[pytest.param(kit, marks=pytest.mark.long) if kit == "mindspore" else kit for kit in KITS]
)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    kit = KITS[request.param]
    folder = tmp_path_factory.mktemp(kit.module)
    # What is installed is none of the user's code.
    packages = shutil.copytree(HERE / "installed", folder / "site-packages")
    paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "GLOG_v": "3"}
    command = [str(kit.python()), str(HERE / "eager_trainings.py"), kit.module, str(folder)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return Runs(kit, folder, [line for line in ended.stderr.splitlines() if line.startswith("tensight")])


def equals(row: dict[str, Any], values: Any) -> None:
    """See to it that statistics are those of some values."""
    about = {
        "mean": values.mean(),
        "min": values.min(),
        "max": values.max(),
        "l2_norm": np.sqrt(np.square(values).sum()),
    }
    assert {name: row[name] for name in about} == pytest.approx(about, rel=2e-5, abs=1e-6)
    assert row["nan_count"] == 0


@pytest.mark.sampled(3)
def test_nothing_goes_wrong_in_the_debugger(runs: Runs) -> None:
    assert runs.notices == []
    assert all(runs.seen(name).dump.problems == [] for name in TRAININGS if name != "undebugged")


def test_modules_are_nodes_in_the_order_of_their_calls_and_so_is_what_is_computed_between_them(runs: Runs) -> None:
    seen = runs.seen("layers")
    assert (seen.steps, len(seen.dump.graphs(0))) == (STEPS, 1)
    assert seen.forward() == [
        "Default/first/Linear-op0",
        "Default/Network-op0",
        "Default/second/Linear-op0",
        "Default/MeanSquare/MeanSquare-op0",
        "Default/Loss-op0",
    ]
    assert [name for name in seen.links if name.startswith("Gradients/")][:5] == [
        "Gradients/Default/LossGrad-op0",
        "Gradients/Default/MeanSquare/MeanSquareGrad-op0",
        "Gradients/Default/second/LinearGrad-op0",
        "Gradients/Default/NetworkGrad-op0",
        "Gradients/Default/first/LinearGrad-op0",
    ]
    assert seen.weights == list(WEIGHTS)


def test_tensors_that_modules_hand_to_each_other_are_links(runs: Runs) -> None:
    seen = runs.seen("layers")
    assert seen.links["Default/first/Linear-op0"] == ["first_input_0", "first.weight", "first.bias"]
    assert seen.links["Default/Network-op0"] == ["Default/first/Linear-op0"]
    assert seen.links["Default/second/Linear-op0"] == ["Default/Network-op0", "second.weight", "second.bias"]
    assert seen.links["Gradients/Default/NetworkGrad-op0"] == [
        "Gradients/Default/second/LinearGrad-op0",
        "Default/first/Linear-op0",
    ]
    assert "Gradients/Default/NetworkGrad-op0" in seen.links["Gradients/Default/first/weight/AccumulateGrad-op0"]
    residual = runs.seen("residual")
    assert set(residual.links["Default/Network-op0"]) == {"Default/first/Linear-op0", "Default/second/Linear-op0"}
    assert residual.read_by("Default/second/Linear-op0") == ["Default/first/Linear-op0"]


def test_statistics_are_those_of_the_tensors(runs: Runs) -> None:
    seen, kept = runs.seen("layers"), runs.kept("layers")
    for step in range(STEPS):
        one = {name: kept[f"{step}/before.{name}"] for name in WEIGHTS}
        x = kept[f"{step}/x"]
        first = x @ one["first.weight"].T + one["first.bias"]
        hidden = np.tanh(first)
        second = hidden @ one["second.weight"].T + one["second.bias"]
        equals(seen.row(step, "first_input_0"), x)
        equals(seen.row(step, "Default/first/Linear-op0"), first)
        equals(seen.row(step, "Default/Network-op0"), hidden)
        equals(seen.row(step, "Default/second/Linear-op0"), second)
        equals(seen.row(step, "Default/MeanSquare/MeanSquare-op0"), np.square(second).mean())
        for name in WEIGHTS:
            equals(seen.row(step, name), kept[f"{step}/after.{name}"])


def test_gradients_are_those_of_outputs_and_weights(runs: Runs) -> None:
    seen, kept = runs.seen("layers"), runs.kept("layers")
    for step in range(STEPS):
        one = {name: kept[f"{step}/before.{name}"] for name in WEIGHTS}
        hidden = np.tanh(kept[f"{step}/x"] @ one["first.weight"].T + one["first.bias"])
        second = hidden @ one["second.weight"].T + one["second.bias"]
        of_second = 2 * second / second.size
        of_hidden = of_second @ one["second.weight"]
        equals(seen.row(step, "Gradients/Default/LossGrad-op0"), np.ones(()))
        equals(seen.row(step, "Gradients/Default/MeanSquare/MeanSquareGrad-op0"), of_second)
        equals(seen.row(step, "Gradients/Default/second/LinearGrad-op0"), of_hidden)
        equals(seen.row(step, "Gradients/Default/NetworkGrad-op0"), of_hidden * (1 - hidden**2))
        for name in WEIGHTS:
            node = f"Gradients/Default/{name.replace('.', '/')}/AccumulateGrad-op0"
            equals(seen.row(step, node), kept[f"{step}/gradient.{name}"])


def test_a_training_is_the_same_as_without_the_debugger(runs: Runs) -> None:
    alone, debugged = runs.kept("undebugged"), runs.kept("layers")
    assert all(np.array_equal(values, debugged[name]) for name, values in alone.items())
    assert len(alone) == STEPS * len(WEIGHTS)


def test_a_module_that_is_called_again_has_another_node_and_containers_have_none(runs: Runs) -> None:
    seen = runs.seen("shared")
    assert seen.forward() == [
        "Default/body/layer/Linear-op0",
        "Default/body/rectified/ReLU-op0",
        "Default/body/layer/Linear-op1",
        "Default/body/rectified/ReLU-op1",
        "Default/tied/Linear-op0",
        "Default/body/layer/Linear-op2",
        "Default/body/rectified/ReLU-op2",
        "Default/MeanSquare/MeanSquare-op0",
        "Default/Loss-op0",
    ]
    assert seen.read_by("Default/body/layer/Linear-op1") == ["Default/body/rectified/ReLU-op0"]
    assert len([name for name in seen.links if name.startswith("Gradients/Default/body/layer/LinearGrad")]) == 3


def test_what_is_shared_has_one_name(runs: Runs) -> None:
    seen = runs.seen("shared")
    # MindSpore names a weight after the attribute that was set last.
    holder = "alias" if runs.kit.has_own_names else "body"
    assert seen.weights == [f"{holder}.layer.weight", f"{holder}.layer.bias", "tied.bias"]
    assert seen.links["Default/tied/Linear-op0"][1:] == [f"{holder}.layer.weight", "tied.bias"]


def test_a_module_that_is_put_elsewhere_is_still_linked_to_its_weights(runs: Runs) -> None:
    seen = runs.seen("renamed")
    inner = "first.inner" if runs.kit.has_own_names else "first"
    assert seen.forward()[:3] == [
        "Default/first/Linear-op0",
        "Default/first/rectified/ReLU-op0",
        "Default/second/Linear-op0",
    ]
    assert seen.links["Default/first/Linear-op0"] == ["first_input_0", f"{inner}.weight", f"{inner}.bias"]
    assert seen.weights == [f"{inner}.weight", f"{inner}.bias", "second.weight", "second.bias"]
    assert len(seen.dump.graphs(0)) == 2


def test_each_of_several_optimizers_updates_once_in_a_step(runs: Runs) -> None:
    seen = runs.seen("two_optimizers")
    assert (seen.steps, len(seen.dump.graphs(0))) == (STEPS, 1)
    assert seen.weights == [*WEIGHTS, *(f"Network.{name}" for name in WEIGHTS)]
    assert seen.forward().index("Default/Loss-op0") < seen.forward().index("Default/Network/first/Linear-op0")
    assert seen.read_by("Default/MeanSquare/MeanSquare-op1") == ["Default/Network/second/Linear-op0"]
    for name in seen.weights:
        hashes = {seen.row(step, name)["content_hash"] for step in range(-1, STEPS)}
        assert len(hashes) == STEPS + 1, name


def test_models_and_optimizers_that_nobody_has_named_are_found(runs: Runs) -> None:
    seen, named = runs.seen("unnamed_optimizers"), runs.seen("two_optimizers")
    assert seen.steps == STEPS
    assert seen.links == named.links
    of_last_step = {key: row for key, row in named.rows.items() if key[0] == STEPS - 1}
    assert {key: row for key, row in seen.rows.items() if key[0] == STEPS - 1} == of_last_step


def test_evaluations_between_steps_are_no_part_of_them(runs: Runs) -> None:
    with_evaluations, without = runs.seen("evaluated"), runs.seen("layers")
    assert with_evaluations.links == without.links
    assert with_evaluations.rows == without.rows


def test_an_exception_in_a_step_spoils_no_other_one(runs: Runs) -> None:
    seen, steps = runs.seen("raising"), range(STEPS)
    assert (seen.steps, len(seen.dump.graphs(0))) == (STEPS, 2)
    whole = ["Default/first/Linear-op0", "Default/middle/Part-op0", "Default/second/Linear-op0"]
    ran = {step: [name for name in seen.forward() if (step, name, "output", 0) in seen.rows] for step in steps}
    assert [ran[step][:3] for step in (0, 2)] == [whole, whole]
    # The call before the exception, and the same again.
    assert ran[1][:2] == ["Default/first/Linear-op0", "Default/first/Linear-op1"]
    assert seen.read_by("Default/middle/Part-op0") == ["Default/first/Linear-op1"]
    graphs = [seen.dump.graph_of(file) for file in seen.analysis.statistics().files if file.iteration == 2]
    assert {graph.name for graph in graphs if graph is not None} == {seen.dump.graphs(0)[0].name}


def test_a_loss_that_is_made_anew_in_each_step_is_the_same_node(runs: Runs) -> None:
    fresh, kept = runs.seen("fresh_losses"), runs.seen("layers")
    assert fresh.links == kept.links
    assert len(fresh.dump.graphs(0)) == 1
    assert all((step, "Default/MeanSquare/MeanSquare-op0", "output", 0) in fresh.rows for step in range(STEPS))


def test_a_nan_is_named_at_the_module_that_has_computed_it(runs: Runs) -> None:
    seen = runs.seen("sick")
    (origin,) = origins(seen.analysis, (Anomaly.NAN,))
    assert (origin.address.node, origin.address.iteration) == ("Default/middle/Part-op0", 1)
    assert seen.row(1, "Default/first/Linear-op0")["nan_count"] == 0
    assert seen.row(1, "Default/second/Linear-op0")["nan_count"] > 0
    # The line of the script that has called it.
    assert any("network.middle(" in line for line in seen.dump.graphs(0)[-1].node(origin.address.node).stack)


def test_nothing_stays_in_the_framework(runs: Runs) -> None:
    leftovers = json.loads((runs.folder / "leftovers.json").read_text())
    assert leftovers == {name: [] for name in TRAININGS}
