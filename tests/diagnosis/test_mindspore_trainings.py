"""Trainings on MindSpore, in PyNative and graph mode, and what is found of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensight.diagnosis.catalogue import Diagnosis, diagnose
from tensight.diagnosis.facts import Facts
from tensight.diagnosis.lines import read_folder
from tensight.sessions.diagnosis import diagnosis_record
from tests.agents.mindspore.mindspore_stage import Run

SCRIPT = Path(__file__).with_name("mindspore_training.py")
VERSION = "2.10"

FAULTY = (
    ("pynative", "twice", "activation-twice", "SoftmaxCrossEntropyWithLogits"),
    ("pynative", "listed", "not-in-optimizer", "list"),
    ("pynative", "evaluating", "evaluation-mode", "set_train"),
    ("jit", "cut", "no-gradient", "body.0.weight"),
    ("jit", "twice", "activation-twice", "SoftmaxCrossEntropyWithLogits"),
    ("jit", "left", "not-in-optimizer", "hidden.weight"),
    ("cell", "zero", "learning-rate-zero", "Adam"),
    ("cell", "scheduled", "learning-rate-zero", "from step 11 on"),
    ("cell", "restored", "update-undone", "body.0.weight"),
    ("pynative", "loaded", "update-without-effect", "ops.assign"),
)
PASSED_OVER = {
    "gradients-not-cleared": "MindSpore returns gradients to the script",
    "average-still": "copies of a network are not read",
}


def run(folder: Path, *arguments: str) -> list[str]:
    """Train, and return what the training printed."""
    with Run(VERSION, *arguments, folder=folder, script=SCRIPT) as training:
        outcome = training.outcome()
    assert outcome.code == 0, outcome.errors
    return outcome.output


def diagnosis_of(folder: Path) -> tuple[Facts, Diagnosis]:
    (facts,) = read_folder(folder)
    return facts, diagnose([facts])


@pytest.mark.parametrize(("style", "fault", "rule", "names"), FAULTY)
def test_a_fault_is_found_and_named_in_the_words_of_mindspore(
    tmp_path: Path, style: str, fault: str, rule: str, names: str
) -> None:
    run(tmp_path, str(tmp_path), style, fault)
    _, diagnosis = diagnosis_of(tmp_path)
    assert [explained.finding.rule for explained in diagnosis.findings] == [rule]
    (record,) = diagnosis_record(diagnosis).findings
    assert names in " ".join((record.title, *record.evidence, record.advice))


@pytest.mark.parametrize("style", ["pynative", "jit", "cell"])
def test_of_a_healthy_training_nothing_is_found_and_its_losses_have_the_same_bits(tmp_path: Path, style: str) -> None:
    plain = run(tmp_path, "-", style)
    assert run(tmp_path, str(tmp_path), style) == plain
    facts, diagnosis = diagnosis_of(tmp_path)
    assert diagnosis.findings == []
    assert facts.last_step == len(plain)
    assert [float.fromhex(line.split()[1]) for line in plain] == facts["losses"]["value"].tolist()
    # Everything is read in both modes: gradients, updates, and what the loss function is given.
    parameters = facts["parameters"]
    assert (parameters.panel("gradient") == 2).all()
    assert (parameters.panel("moved") > 0).all()
    functions = facts["loss_functions"]
    assert set(functions["function"].tolist()) == {"cross_entropy"}
    assert set(functions["classes"].tolist()) == {4}
    for rule, why in PASSED_OVER.items():
        assert why in diagnosis.undecided[rule]
