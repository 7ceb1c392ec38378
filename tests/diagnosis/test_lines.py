"""Facts as lines of JSON: what is written is read again, and no line can do harm."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from tensight.diagnosis import facts as facts_module
from tensight.diagnosis.facts import SCHEMA, Facts
from tensight.diagnosis.lines import AGAIN, KIND, MOST_LINE, OVER, about, line_of, read_folder, take
from tensight.errors import InputError
from tensight.ranks import RankFile

if TYPE_CHECKING:
    from pathlib import Path

LOSS = {"name": "loss", "value": 0.5, "is_connected": True, "function": "mse_loss", "line": "train.py:3"}


def test_rows_are_the_same_after_they_were_a_line() -> None:
    facts = Facts()
    parameter = {"name": "weight", "elements": 12, "fingerprint": 2**64 - 1, "moved": 0.25, "is_trainable": True}
    take(facts, line_of("losses", 1, [LOSS, {**LOSS, "name": "loss 2", "value": math.nan}]))
    take(facts, line_of("losses", 2, [{**LOSS, "value": math.inf}]))
    take(facts, line_of("parameters", 2, [parameter]))
    values = [row["value"] for row in facts["losses"].rows()]
    assert values[0] == 0.5
    assert math.isnan(values[1])
    assert values[2] == math.inf
    assert facts["losses"].names == ["loss", "loss 2"]
    (row,) = facts["parameters"].rows()
    assert {name: row[name] for name in parameter} == parameter
    assert (row["dtype"], row["owners"], math.isnan(row["lost"])) == ("", -1, True)


def test_unknown_facts_take_no_room() -> None:
    assert json.loads(line_of("losses", 7, [{"name": "loss", "line": ""}])) == {
        "subject": "losses",
        "step": 7,
        "columns": {"name": ["loss"]},
    }
    assert line_of("losses", 7, []) == b""


def test_a_training_that_begins_again_and_ends() -> None:
    facts = Facts()
    for line in (line_of("losses", 1, [LOSS]), AGAIN, line_of("losses", 2, [LOSS]), OVER):
        take(facts, line)
    assert facts["losses"].steps.tolist() == [2]
    assert facts.is_over


def test_the_framework_and_what_is_not_known_of_it_stay_when_a_training_begins_again() -> None:
    facts = Facts()
    for line in (about("mindspore", {"groups": "not seen"}), about("mindspore", {"layers": "one graph"}), AGAIN):
        take(facts, line)
    assert (facts.framework, facts.absent) == ("mindspore", {"groups": "not seen", "layers": "one graph"})


def test_subjects_and_facts_of_a_newer_version_are_left_out() -> None:
    facts = Facts()
    take(facts, b'{"subject": "moods", "step": 1, "columns": {"name": ["good"]}}')
    take(facts, b'{"subject": "losses", "step": 1, "columns": {"name": ["loss"], "mood": ["good"]}}')
    assert facts["losses"].names == ["loss"]


def _line(**changed: Any) -> bytes:
    return json.dumps(
        {"subject": "losses", "step": 1, "columns": {"name": ["loss"], "value": [0.5]}, **changed}
    ).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"[1, 2]",
        b"[" * 100_000,
        b"\xff\xfe",
        b" " * (MOST_LINE + 1),
        _line(step="1"),
        _line(step=-1),
        _line(step=2**60),
        _line(columns=None),
        _line(columns={"value": [0.5]}),
        _line(columns={"name": []}),
        _line(columns={"name": ["loss"] * 100_001}),
        _line(columns={"name": [["loss"]]}),
        _line(columns={"name": ["loss"], "value": [0.5, 0.5]}),
        _line(columns={"name": ["loss"], "value": ["much"]}),
        _line(columns={"name": ["loss"], "value": [[0.5]]}),
        _line(columns={"name": ["loss"], "value": 0.5}),
        b'{"framework": 7, "absent": {}}',
        b'{"framework": "torch", "absent": [1]}',
        b'{"framework": "torch", "absent": {"groups": 1}}',
        _line(subject="parameters", columns={"name": ["w"], "elements": [2**70]}),
        _line(subject="parameters", columns={"name": ["w"], "fingerprint": [-1]}),
    ],
)
def test_damaged_lines_are_refused_and_nothing_is_added(line: bytes) -> None:
    facts = Facts()
    with pytest.raises(InputError, match=r"facts|fact "):
        take(facts, line)
    assert all(not len(facts[subject]) for subject in SCHEMA)


def test_of_long_trainings_the_first_and_the_last_steps_are_kept() -> None:
    facts = Facts()
    for step in range(1, 1001):
        take(facts, line_of("losses", step, [LOSS]))
    steps = facts["losses"].steps.tolist()
    assert steps == [*range(1, 33), *range(905, 1001)]


def test_the_steps_are_kept_in_which_something_new_begins() -> None:
    facts = Facts()
    for step in range(1, 1001):
        take(facts, line_of("losses", step, [{**LOSS, "name": f"loss {step // 300}"}]))
    steps = facts["losses"].steps.tolist()
    assert steps == [*range(1, 33), 300, 600, 900, *range(905, 1001)]


def test_of_large_models_fewer_steps_are_kept() -> None:
    facts = Facts()
    rows = [{"name": f"w{number}"} for number in range(20_000)]
    for step in range(1, 13):
        take(facts, line_of("parameters", step, rows))
    assert facts["parameters"].steps.tolist() == [1, 2, 3, 4, 9, 10, 11, 12]


def test_the_memory_of_facts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "MOST_BYTES", 100_000)
    facts = Facts()
    for step in range(1, 100):
        take(facts, line_of("losses", step, [{"name": f"{step} {number}" * 50} for number in range(10)]))
    assert 0 < facts["losses"].bytes < 200_000


def test_a_folder_has_a_file_for_each_process(tmp_path: Path) -> None:
    for rank, steps in ((1, 20), (0, 20), (2, 3)):
        file = RankFile(tmp_path, KIND, rank, 77)
        for step in range(1, steps + 1):
            file.write([line_of("steps", step, [{"name": "step"}])])
    with (tmp_path / "facts-1-77.jsonl").open("ab") as cut_off:
        cut_off.write(b'{"subject": "ste')
    # A process that trained only a little is not one of the ranks.
    assert [(facts.rank, facts.last_step) for facts in read_folder(tmp_path)] == [(0, 20), (1, 20)]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "facts-0-1.jsonl"
    path.write_bytes(b"nonsense\n")
    with pytest.raises(InputError, match=r"facts-0-1\.jsonl"):
        read_folder(tmp_path)


def test_files_have_a_maximum_size(tmp_path: Path) -> None:
    file = RankFile(tmp_path, KIND, 0, 1, most_bytes=200)
    for step in range(10):
        file.write([line_of("losses", step, [LOSS])])
    assert 0 < (tmp_path / "facts-0-1.jsonl").stat().st_size <= 200
