"""One damaged file in a whole dump: every command goes on without it, and says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tensight.debugger import DumpAnalyzer, TensorOverflowCondition, Watchpoint
from tensight.errors import TensightError
from tests.robustness.damages import FILE_DAMAGES, NPY_HEADERS, NPY_ODD
from tests.robustness.whole_dump import KINDS, file_of, snapshot

Run = Callable[..., Any]
NPY_KINDS = ("output", "input", "parameter", "constant", "long name")
CHECKS = ("TO", "TL(max_gt=1e3)", "TZ(zero_percentage_ge=90)", "OO", "WNC")


#: Commands that look at one kind of file only, or print what others do; they run where it may make a difference.
ONLY_FOR = {
    "xlsx": ("graph", "order"),
    "stats": ("output", "parameter", "graph"),
    "nodes": ("graph", "settings"),
    "convert": ("ascend", "overflow", "overflow json", "mapping", "output", "statistic"),
    "table": ("output", "graph", "order", "machine", "settings", "ascend"),
}


def commands(out: Path, kind: str) -> list[tuple[str, ...]]:
    every = [
        ("info", "--json"),
        ("info", "--table"),
        ("nodes", "conv", "--json"),
        ("check", "--json", "--recommended", *(word for check in CHECKS for word in ("--watch", check))),
        ("check", "--table"),
        ("origin", "--json", *(word for kind in ("nan", "inf", "overflow", "all_zero") for word in ("--kind", kind))),
        ("stats", "--top", "200"),
        ("show", "Log-op144:0@3"),
        ("show", "network.probe.outer.weight@4", "--json"),
        ("compare-steps", "network.probe.outer.weight", "3", "4"),
        ("export", "--json", "--npz", "--out", str(out)),
        ("export", "--xlsx", "--out", str(out)),
        ("convert", str(out / "converted"), "--json"),
    ]
    left_out = {name for name, kinds in ONLY_FOR.items() if kind not in kinds}
    chosen = [words for words in every if left_out.isdisjoint(word.strip("-") for word in words)]
    return [tuple(word for word in words if word != "--table") for words in chosen]


def run_all(tensight: Run, dump: Path, out: Path, kind: str) -> dict[str, Any]:
    """Run every command; what they print as JSON by the command's name, with the exit code."""
    found: dict[str, Any] = {}
    for name, *arguments in commands(out, kind):
        code, printed, said = tensight(name, dump, *arguments)
        label = " ".join((name, *arguments))
        assert code in (0, 1, 2), label
        assert "Traceback" not in printed + said, label
        assert "Warning" not in said, label
        if code == 2:
            assert said.startswith(("tensight: ", "Nothing was ", "No origin was ")), label
            assert said.count("\n") == 1, label
        elif "--json" in arguments:
            found[name] = json.loads(printed)
    return found


def hits_of(checked: Any, *, everywhere: bool) -> set[tuple[object, ...]]:
    """Return the hits, or those of watchpoints that need no graph, each with its tensor's file."""
    return {
        (hit["file"], hit["slot"], hit["io"], point["check"], tuple(hit["parameters_hit"]), str(hit["actual"]))
        for point in checked["watchpoints"]
        for hit in point["hits"]
        if everywhere or point["selection"] == "all"
    }


@pytest.fixture(scope="session")
def sound() -> dict[str, Any]:
    return {}


@pytest.fixture
def undamaged(sound: dict[str, Any], tensight: Run, whole: Path, damaged: Path, tmp_path: Path) -> dict[str, Any]:
    """What the commands find in the dump before it is damaged, with the paths of the copy."""
    if not sound:
        out = run_all(tensight, whole, tmp_path / "out of the sound one", "")
        sound["text"] = json.dumps(out).replace(str(whole), "{dump}")
    return json.loads(sound["text"].replace("{dump}", str(damaged)))


def examine(tensight: Run, dump: Path, out: Path, undamaged: dict[str, Any], kind: str, path: Path) -> Any:
    before = snapshot(dump)
    found = run_all(tensight, dump, out, kind)
    use_drop_in(dump)
    assert snapshot(dump) == before
    graph_lost = kind == "graph"
    expected = hits_of(undamaged["check"], everywhere=not graph_lost)
    actual = hits_of(found["check"], everywhere=not graph_lost)
    # What was compared with the damaged tensor, or replaced it, may differ; nothing else may.
    names = [path.name.split(".0.0.")[0].split(".3.7.")[0], "[red]", *(["123456789.npy"] if kind == "mapping" else [])]
    others = {hit for hit in expected | actual if not any(name in str(hit[0]) for name in names)}
    if kind not in ("overflow", "overflow json"):
        assert expected & others == actual & others
    return found


def reported(found: Any, path: Path) -> bool:
    """Tell whether what is wrong with a file, or with all files of its folder, is said."""
    listed = [problem for name in ("info", "check", "export") for problem in found[name]["problems"]]
    texts = [f"{problem['where']} {problem['what']}" for problem in listed]
    return any(path.name in text or text.startswith(f"rank_0/{path.parent.name} ") for text in texts)


def use_drop_in(dump: Path) -> None:
    analyzer = DumpAnalyzer(dump)
    tensors = analyzer.select_tensors("conv|Log|probe", use_regex=True)
    for tensor in tensors:
        with suppress(TensightError):
            tensor.value()
    analyzer.check_watchpoints([Watchpoint(tensors, TensorOverflowCondition())])
    with suppress(FileNotFoundError, TensightError):
        analyzer.select_tensor_statistics()


#: What leaves nothing to be read, and is noticed by whoever reads the file.
UNREADABLE = (
    "empty", "cut in its head", "noise", "noise behind its magic", "a folder", "a link to nowhere", "a link to itself",
    "a link out of the dump", "a link to a device", "a link to its folder", "a pipe",
)  # fmt: skip
#: Files that none of these commands reads; a mapping without lines is seen at the files that it leaves without names.
UNNOTICED = {"devices": UNREADABLE, "statistic": UNREADABLE, "mapping": ("empty",), "history": ("cut in its head",)}


@pytest.mark.sampled(35)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", FILE_DAMAGES)
def test_the_rest_of_the_dump_is_analysed_as_before(
    tensight: Run, damaged: Path, tmp_path: Path, undamaged: dict[str, Any], kind: str, damage: str
) -> None:
    path = file_of(damaged, kind)
    FILE_DAMAGES[damage](path)
    found = examine(tensight, damaged, tmp_path / "out", undamaged, kind, path)
    if damage in UNREADABLE and damage not in UNNOTICED.get(kind, ()):
        assert reported(found, path)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("number", "header"), list(enumerate([*NPY_HEADERS, *NPY_ODD])))
def test_a_header_is_believed_only_as_far_as_it_makes_sense(
    tensight: Run, damaged: Path, tmp_path: Path, undamaged: dict[str, Any], number: int, header: str
) -> None:
    kind = NPY_KINDS[number % len(NPY_KINDS)]
    path = file_of(damaged, kind)
    path.write_bytes((NPY_HEADERS | NPY_ODD)[header])
    found = examine(tensight, damaged, tmp_path / "out", undamaged, kind, path)
    assert reported(found, path) == (header in NPY_HEADERS)
