"""The configuration of a search: the original's as it is, what goes beyond it, and what is wrong with others."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tensight.search.configuration import (
    Configuration,
    ConfigurationError,
    Parameter,
    parse_configuration,
    read_configuration,
)
from tensight.search.samplers import notices_about

ORIGINALS = """
# As "Use Mindoptimizer to Tune Hyperparameters" of MindInsight 2.0 has it.
command: python /home/example_user/lenet/train.py
summary_base_dir: /home/example_user/summaries
tuner:
    name: gp
    args:
        method: ucb
target:
    group: metric
    name: Accuracy
    goal: maximize
parameters:
    learning_rate:
        bounds: [0.0001, 0.001]
        type: float
    batch_size:
        choice: [16, 32, 64]
    epoch:
        bounds: [1, 5]
        type: int
        source: system_defined
    momentum:
        choice: [0.8, 0.9]
        source: user_defined
"""

OURS = r"""
command: python train.py --lr {learning_rate} --optimizer {optimizer} --momentum {momentum} --set {{x}}
summary_base_dir: ./search
name: lenet
trials: 40
watch: off
record: ring:5
timeout_s: 3600
tuner: {name: tpe, args: {seed: 3, startup_trials: 5}}
pruner: {name: median, warmup_steps: 2}
target:
  name: accuracy
  goal: maximize
  from: {pattern: 'step (?P<step>\d+) accuracy (?P<value>\S+)'}
  take: best
parameters:
  learning_rate: {bounds: [1e-5, 1e-1], type: float, log: true}
  optimizer: {choice: [adam, sgd]}
  momentum: {bounds: [0.5, 0.99], type: float, when: {optimizer: sgd}}
"""


def test_the_originals_configuration_is_read_as_it_is() -> None:
    configuration = parse_configuration(ORIGINALS, "config.yaml")

    assert configuration.parameters == {
        "learning_rate": Parameter(bounds=(0.0001, 0.001), type="float"),
        "batch_size": Parameter(choice=(16, 32, 64)),
        "epoch": Parameter(bounds=(1, 5), type="int", source="system_defined"),
        "momentum": Parameter(choice=(0.8, 0.9), source="user_defined"),
    }
    (target,) = configuration.all_targets
    assert (target.name, target.direction, target.source) == ("Accuracy", "maximize", None)
    assert (configuration.tuner.name, configuration.tuner.args.method) == ("gp", "ucb")
    assert configuration.watch == "prune"


def test_a_metric_without_a_goal_is_minimized_and_that_is_said() -> None:
    text = ORIGINALS.replace("    goal: maximize\n", "")
    configuration = parse_configuration(text, "config.yaml")

    (target,) = configuration.all_targets
    assert target.direction == "minimize"
    assert [notice.partition(":")[0] for notice in notices_about(configuration)] == ["tuner.args.method", "Accuracy"]
    assert notices_about(parse_configuration(OURS, "config.yaml")) == []


@pytest.mark.parametrize(
    ("command", "script", "unused"),
    [
        ("python train.py --lr {learning_rate} --momentum {momentum}", None, []),
        ("python train.py --lr {learning_rate}", None, ["momentum"]),
        ("python train.py --lr {learning_rate}", "from mindinsight import HyperConfig", []),
        ("python train.py", None, []),
        ("python train.py", "from tensight.search import HyperConfig", []),
        ("python train.py", "import argparse", ["learning_rate", "momentum"]),
    ],
)
def test_a_parameter_that_no_trial_passes_on_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, script: str | None, unused: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if script is not None:
        (tmp_path / "train.py").write_text(script)
    # The optimizer decides whether there is a momentum.
    notices = notices_about(_changed(command=command))
    assert [notice.partition(":")[0] for notice in notices] == [f"parameters.{name}" for name in unused]


def test_what_goes_beyond_the_original_is_read() -> None:
    configuration = parse_configuration(OURS, "config.yaml")

    assert configuration.parameters["learning_rate"].bounds == (1e-5, 1e-1)
    assert configuration.parameters["momentum"].when == {"optimizer": "sgd"}
    assert (configuration.watch, configuration.record, configuration.timeout_s) == ("off", "ring:5", 3600)
    assert (configuration.study_name, configuration.trials) == ("lenet", 40)


def _changed(**changes: Any) -> Configuration:
    """Read our configuration after changes: a key with dots for ``__``, and what is there then; None removes it."""
    data = copy.deepcopy(yaml.safe_load(OURS.replace("1e-5", "0.00001").replace("1e-1", "0.1")))
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = data
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return parse_configuration(yaml.safe_dump(data), "config.yaml")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no command": ({"command": None}, "command: is missing"),
    "an empty command": ({"command": " "}, "command: is empty"),
    "a quote that does not end": ({"command": "python 'train.py"}, "command: cannot be split"),
    "an unknown placeholder": ({"command": "python train.py {rate}"}, "command: {rate} is not a parameter"),
    "no folder": ({"summary_base_dir": None}, "summary_base_dir: is missing"),
    "a folder that is a number": ({"summary_base_dir": 3}, "summary_base_dir: is 3"),
    "an unknown key": ({"epochs": 3}, "epochs: there is no such key"),
    "an unknown key of a parameter": ({"parameters__optimizer__choices": [1]}, "parameters.optimizer.choices: there"),
    "an unknown key of a source": ({"target__from__file": "x"}, "target.from.file: there is no such key"),
    "no target": ({"target": None}, "target: is missing"),
    "a target and targets": ({"targets": [{"name": "loss"}]}, "targets: there is also a target"),
    "two targets of one name": ({"target": None, "pruner": None, "targets": [{"name": "loss"}] * 2}, "targets: two"),
    "a pruner and two targets": (
        {"target": None, "targets": [{"name": "loss"}, {"name": "size", "goal": "minimize"}]},
        "pruner.name: Optuna prunes",
    ),
    "an unknown goal": ({"target__goal": "max"}, "target.goal: is 'max'; choose one of minimize or maximize"),
    "a metric that is system-defined": ({"target__group": "system_defined"}, "target: 'accuracy' is not system"),
    "an unknown group": ({"target__group": "mine"}, "target.group: is 'mine'"),
    "no pattern": ({"target__from": {}}, "target.from: names nothing"),
    "two sources": ({"target__from__events": "runs"}, "target.from: names pattern and events"),
    "a broken pattern": ({"target__from__pattern": "loss (("}, "target.from.pattern: is not a regular expression"),
    "a pattern without a group": ({"target__from__pattern": "loss"}, "target.from.pattern: has no group"),
    "the agent without the debugger": ({"target__from": "agent"}, "watch: is off, but a target"),
    "an unknown tuner": ({"tuner__name": "bayes"}, "tuner.name: is 'bayes'; choose one of gp, tpe, cmaes, random or"),
    "an unknown method": ({"tuner__args": {"method": "x"}}, "tuner.args.method: is 'x'; choose one of ucb, pi or ei"),
    "an unknown pruner": ({"pruner__name": "best"}, "pruner.name: is 'best'"),
    "no parameters": ({"parameters": {}}, "parameters: has no parameters"),
    "a parameter that is a number": ({"parameters__optimizer": 3}, "parameters.optimizer: is 3; write keys below it"),
    "a name with a hyphen": ({"parameters__weight-decay": {"choice": [1]}}, "parameters.'weight-decay': the name has"),
    "a name that is taken": ({"parameters__trial": {"choice": [1]}}, "parameters.'trial': the name is taken"),
    "neither bounds nor choice": ({"parameters__optimizer": {}}, "parameters.optimizer: has neither"),
    "bounds and choice": ({"parameters__optimizer__bounds": [1, 2]}, "parameters.optimizer: has bounds and choice"),
    "one bound": ({"parameters__learning_rate__bounds": [0.1]}, "parameters.learning_rate.bounds: [0.1] is not a pair"),
    "bounds of text": ({"parameters__learning_rate__bounds": ["a", 1.0]}, "parameters.learning_rate.bounds.0: 'a' is"),
    "an infinite bound": ({"parameters__momentum__bounds": [0.0, float("inf")]}, "parameters.momentum.bounds.1: inf"),
    "bounds upside down": ({"parameters__momentum__bounds": [0.9, 0.5]}, "parameters.momentum.bounds: the upper"),
    "bounds without type": ({"parameters__momentum__type": None}, "parameters.momentum.type: is missing"),
    "an unknown type": ({"parameters__momentum__type": "double"}, "parameters.momentum.type: is 'double'"),
    "a range without an integer": ({"parameters__momentum__type": "int"}, "parameters.momentum.bounds: no integer"),
    "an empty choice": ({"parameters__optimizer__choice": []}, "parameters.optimizer.choice: [] is not a list"),
    "a value twice": ({"parameters__optimizer__choice": ["a", "a"]}, "parameters.optimizer.choice: 'a' occurs twice"),
    "a list as a value": ({"parameters__optimizer__choice": [[1]]}, "parameters.optimizer.choice: [1] is not a value"),
    "texts of a type": ({"parameters__optimizer__type": "int"}, "parameters.optimizer.type: is int, but"),
    "a logarithm of zero": ({"parameters__learning_rate__bounds": [0, 0.1]}, "parameters.learning_rate.bounds: the lo"),
    "a logarithm of a choice": ({"parameters__optimizer__log": True}, "parameters.optimizer.log: applies to bounds"),
    "a learning rate above 1": (
        {"parameters__learning_rate__bounds": [0.1, 2.0]},
        "parameters.learning_rate.bounds: a",
    ),
    "a learning rate of 1": ({"parameters__learning_rate": {"choice": [0.1, 1]}}, "parameters.learning_rate.choice: a"),
    "a batch of nothing": (
        {"parameters__batch_size": {"choice": [0]}},
        "parameters.batch_size.choice: batch_size is p",
    ),
    "an unknown source": ({"parameters__momentum__source": "me"}, "parameters.momentum.source: is 'me'"),
    "system-defined by the person": (
        {"parameters__momentum__source": "system_defined"},
        "parameters.momentum.source: only learning_rate",
    ),
    "a condition on nobody": ({"parameters__momentum__when": {"x": 1}}, "parameters.momentum.when.x: there is no such"),
    "a condition on a range": (
        {"parameters__momentum__when": {"learning_rate": 0.1}},
        "parameters.momentum.when.learning_rate: has bounds",
    ),
    "a condition that is never true": (
        {"parameters__momentum__when": {"optimizer": "rprop"}},
        "parameters.momentum.when.optimizer: 'rprop' is not among",
    ),
    "a condition on itself": (
        {"parameters__optimizer__when": {"optimizer": "sgd"}},
        "parameters.optimizer.when: leads",
    ),
    "a grid of floats": ({"tuner__name": "grid"}, "parameters.learning_rate.bounds: a grid has no floats"),
    "trials without end": ({"trials": 0}, "trials: is 0; greater than or equal to 1 is possible"),
    "a seed below zero": ({"tuner__args__seed": -1}, "tuner.args.seed: is -1"),
    "no time": ({"timeout_s": 0}, "timeout_s: is 0"),
    "an unknown recording": ({"record": "all"}, "record: 'all' is not a recording"),
    "an unknown way of watching": ({"watch": "always"}, "watch: is 'always'; choose one of prune, note or off"),
}


@pytest.mark.parametrize(("changes", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_gets_one_line_with_its_key(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        _changed(**changes)

    (line,) = str(wrong.value).splitlines()
    assert line.startswith(f"config.yaml: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("command: [", "config.yaml: line 1, column 11:"),
        ("command: a\ncommand: b", "config.yaml: line 2, column 1: 'command' is written twice"),
        ("- command", "config.yaml: has no keys"),
        ("", "config.yaml: has no keys"),
        ("command: !!python/object/apply:os.getcwd []", "config.yaml: line 1, column 10: could not determine"),
        ("\x00", "config.yaml: is not YAML"),
        ("[" * 100_000, "config.yaml: "),
    ],
)
def test_what_is_no_configuration_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        parse_configuration(text, "config.yaml")

    (line,) = str(wrong.value).splitlines()
    assert line.startswith(said)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml: No such file or directory; name the YAML file"):
        read_configuration(tmp_path / "nowhere.yaml")


def test_bad_trials_are_ended_unless_something_else_is_said_but_none_of_a_grid() -> None:
    written = yaml.safe_load(ORIGINALS)
    assert parse_configuration(yaml.safe_dump(written), "search.yaml").effective_pruner.name == "median"
    written["tuner"] = {"name": "grid"}
    written["parameters"]["learning_rate"] = {"choice": [0.001, 0.01]}
    assert parse_configuration(yaml.safe_dump(written), "search.yaml").effective_pruner.name == "none"
    written["pruner"] = {"name": "median"}
    assert parse_configuration(yaml.safe_dump(written), "search.yaml").effective_pruner.name == "median"
