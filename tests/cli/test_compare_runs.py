"""`tensight compare runs` on recordings of two trainings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.compare.two_runs import make_network, record

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    record(folder / "a", make_network())
    record(folder / "b", make_network(eps=1e-6))
    return folder


def test_the_operator_its_line_and_what_it_rests_on_are_printed(tensight: Run, recordings: Path) -> None:
    different = tensight("compare", "runs", recordings / "a", recordings / "b")
    assert different.code == 1
    printed = different.out
    assert "Step 1, forward: Default/blocks/1/norm1/LayerNorm-op0 (LayerNorm, two_runs.py:" in printed
    assert "is the first operator whose inputs agree and whose output does not" in printed
    assert "1 of 1 input agrees before" in printed
    assert re.search(r"→ +\d+ +q, k, v = ", printed)
    same = tensight("compare", "runs", recordings / "a", recordings / "a")
    assert (same.code, "are the same" in same.out) == (0, True)


def test_json_and_the_report_say_the_same(tensight: Run, recordings: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    ended = tensight("compare", "runs", "--json", "--html", report, recordings / "a", recordings / "b")
    (result,) = json.loads(ended.out)["ranks"]
    assert (result["verdict"], result["finding"], result["step"]) == ("different", "forward", 1)
    assert result["first"]["name"] == "Default/blocks/1/norm1/LayerNorm-op0"
    assert not result["only_a"]
    text = report.read_text()
    assert result["first"]["name"] in text
    assert "<script" not in text
    assert not re.search(r"(src|href)=", text)


def test_what_repeated_runs_of_a_differ_by_is_allowed(tensight: Run, recordings: Path) -> None:
    both = (recordings / "a", recordings / "b")
    assert tensight("compare", "runs", *both, "--noise", recordings / "a").code == 1
    assert tensight("compare", "runs", *both, "--noise", recordings / "b").code == 0


def test_a_mapping_that_was_written_is_read(tensight: Run, recordings: Path, tmp_path: Path) -> None:
    mapping = tmp_path / "names.toml"
    both = (recordings / "a", recordings / "b")
    tensight("compare", "runs", "--write-mapping", mapping, *both)
    assert '"embed.weight" = "embed.weight"  # name' in mapping.read_text()
    printed = tensight("compare", "runs", "--mapping", mapping, *both).out
    assert "blocks/1/norm1/LayerNorm-op0" in printed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tolerance", "x"), "write a name and a number"),
        (("--mapping", "none.toml"), "cannot be read as a mapping"),
        (("--steps", "x"), "--steps 'x'"),
    ],
)
def test_what_cannot_be_understood_is_refused(
    tensight: Run, recordings: Path, options: tuple[str, ...], words: str
) -> None:
    refused = tensight("compare", "runs", *options, recordings / "a", recordings / "b")
    assert refused.code == 2
    assert words in refused.err
