"""Several things go wrong at once, anywhere in a dump: results or one clear error, and never anything else."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tensight.analysis import Analysis, Anomaly, check, origins
from tensight.dumps import open_dump
from tensight.errors import TensightError
from tensight.watchpoints import recommended_watchpoints
from tests.robustness import whole_dump
from tests.robustness.damages import FILE_DAMAGES, NPY_HEADERS, NPY_ODD

pytestmark = pytest.mark.long

Run = Callable[..., Any]
HEADERS = NPY_HEADERS | NPY_ODD
#: What an editor, a disk or a copy leaves behind: a few bytes are others, a part is missing or twice.
EDITS = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=8), st.integers(0, 40)), min_size=1, max_size=4)
DAMAGES = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from([*FILE_DAMAGES, *HEADERS]) | EDITS),
    min_size=1,
    max_size=8,
)
FUZZ = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])


def edited(data: bytes, edits: list[tuple[float, bytes, int]]) -> bytes:
    for place, new, removed in edits:
        start = int(place * len(data))
        data = data[:start] + new + data[start + removed :]
    return data


def damage(dump: Path, place: float, how: Any) -> None:
    """Damage one of the files that are still there; metadata and graphs come up as often as all tensors together."""
    files = sorted(path for path in dump.rglob("*") if path.is_file() and not path.is_symlink())
    rare = [path for path in files if path.suffix != ".npy"]
    chosen = [*rare * (len(files) // max(len(rare), 1)), *files]
    path = chosen[int(place * len(chosen))]
    note(f"{path.relative_to(dump)}: {how}")
    if isinstance(how, list):
        path.write_bytes(edited(path.read_bytes(), how))
    elif how in HEADERS:
        path.write_bytes(HEADERS[how])
    else:
        FILE_DAMAGES[how](path)


@pytest.fixture(scope="module", params=["sick-2.0.0", "sick-2.10.0"])
def template(request: pytest.FixtureRequest, unpacked: Callable[[str], Path], tmp_path_factory: Any) -> Path:
    """A small dump of each generation."""
    target = tmp_path_factory.mktemp("template") / "dump"
    source = unpacked(request.param)
    if request.param == "sick-2.0.0":
        return whole_dump.make(source, target)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("0", "1", "*fc*", "*Momentum*", "*Grad*", "*MatMul*"))
    shutil.copytree(
        source / "rank_0/Sick/0/3", target / "rank_0/Sick/0/3", ignore=shutil.ignore_patterns("*fc*", "*rad*")
    )
    return target


@settings(FUZZ, max_examples=settings().max_examples // 2)
@given(DAMAGES)
def test_whatever_happens_to_a_dump_it_is_analysed_or_refused(
    tensight: Run, template: Path, damages: list[tuple[float, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as base:
        dump = Path(shutil.copytree(template, Path(base) / "dump"))
        for place, how in damages:
            damage(dump, place, how)
        before = whole_dump.snapshot(dump)
        for name in ("info", "check", "origin"):
            code, out, err = tensight(name, dump, "--json")
            assert code in (0, 1, 2)
            assert err == "" if code != 2 else err.count("\n") == 1
            assert code == 2 or isinstance(json.loads(out), dict)
        try:
            opened = open_dump(dump)
            analysis = Analysis(opened, cache_dir=Path(base) / "cache")
            check(analysis, recommended_watchpoints())
            origins(analysis, list(Anomaly))
            opened.devices(), list(opened.statistic_rows()), opened.overflows()
            for graph in opened.graphs(0):
                for node in graph.nodes:
                    assert node.frames is not None
                    assert node.attributes is not None
        except TensightError as error:
            note(str(error))
        assert whole_dump.snapshot(dump) == before
