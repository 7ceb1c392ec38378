"""Dumps that hold only statistics: made from the real ones by computing the statistics and deleting the values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.analysis import Analysis, Anomaly, CheckRequest, InputState, check, origins, unplaced
from tensight.analysis.recorded_statistics import BOUNDED, MEASURES, recorded_statistics
from tensight.dumps import StatisticRow
from tensight.tensors import statistics
from tensight.watchpoints import Selector, Status, Watchpoint, evaluate, parse_check, recommended_watchpoints
from tests.dumps.statistics_writer import COUNTS, DEFAULT, EVERYTHING, OLD, record, record_dump, values_of

Analyse = Callable[..., Analysis]
Copy = Callable[[str], Path]
DUMPS = ("sick-2.0.0", "sick-2.10.0")
ALL_DUMPS = (*DUMPS, "healthy-2.0.0", "healthy-2.10.0")
PLENTY = {"up to 2.2": OLD, "everything": EVERYTHING, "default": DEFAULT}
FEW = {"counts": COUNTS, "mean": ("avg",), "maximum": ("max",), "norm": ("l2norm",), "digest": ("md5",)}
CHECKS = (
    "TO", "TL(max_gt=2.5)", "TL(abs_mean_gt=1.5)", "TL(mean_gt=0.5)", "TS(min_lt=-1)", "TS(abs_mean_lt=1e-9)",
    "TZ(zero_percentage_ge=100)", "TZ(zero_percentage_ge=30)", "TR(max_min_gt=3)", "TR(max_min_lt=0.001)",
    "TR(range_start_inclusive=-1, range_end_inclusive=0, range_percentage_gt=99.9)",
    "TR(range_start_inclusive=-2, range_end_inclusive=2, range_percentage_lt=60)", "WCL(abs_mean_update_ratio_gt=1)",
    "WNC(rtol=1e-5)",
)  # fmt: skip

RECORDED_UP_TO_22 = tuple(
    text for text in CHECKS if "abs_mean" not in text and "range_p" not in text and text[0] != "W"
)


def names(found: list[Any]) -> set[tuple[Any, ...]]:
    return {(origin.anomaly, origin.address.node, origin.address.iteration) for origin in found}


def hits_of(analysis: Analysis, text: str) -> set[tuple[Any, ...]]:
    (result,) = check(analysis, [Watchpoint(1, "", parse_check(text), Selector.parse("all"))])
    return {(hit.tensor.graph, hit.tensor.node, hit.tensor.slot, hit.tensor.iteration) for hit in result.hits}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("columns", PLENTY.values(), ids=PLENTY)
@pytest.mark.parametrize("name", ALL_DUMPS)
def test_origins_are_those_of_the_full_dump(
    name: str, columns: tuple[str, ...], analyse: Analyse, unpacked: Callable[[str], Path], dump_copy: Copy
) -> None:
    dump = dump_copy(name)
    assert record_dump(dump, columns) > 600
    full, recorded = origins(analyse(unpacked(name))), origins(analyse(dump))
    assert names(recorded) == names(full)
    assert all(origin.certain for origin in recorded)
    assert [[entry.state for entry in origin.inputs] for origin in recorded] == [
        [entry.state for entry in origin.inputs] for origin in full
    ]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("columns", [OLD, DEFAULT], ids=["up to 2.2", "default"])
@pytest.mark.parametrize("name", DUMPS)
def test_the_planted_operators_and_their_lines_are_named(
    name: str, columns: tuple[str, ...], analyse: Analyse, dump_copy: Copy, planted: dict[str, Any]
) -> None:
    dump = dump_copy(name)
    record_dump(dump, columns)
    analysis = analyse(dump)
    for anomaly in (Anomaly.NAN, Anomaly.INF):
        expected = planted[name]["planted"][anomaly.value]
        (found,) = origins(analysis, (anomaly,))
        assert (found.address.node, found.address.iteration) == (expected["operator"], expected["first_iteration"])
        assert found.user_frame is not None
        assert (found.user_frame.file, found.user_frame.line) == (expected["file"], expected["line"])


@pytest.mark.sampled(8)
@pytest.mark.parametrize("columns", [*PLENTY.values(), *FEW.values()], ids=[*PLENTY, *FEW])
@pytest.mark.parametrize("name", DUMPS)
def test_no_hit_is_wrong_and_none_is_missed_in_silence(
    name: str, columns: tuple[str, ...], analyse: Analyse, unpacked: Callable[[str], Path], dump_copy: Copy
) -> None:
    dump = dump_copy(name)
    record_dump(dump, columns)
    full, recorded = analyse(unpacked(name)), analyse(dump)
    for text in CHECKS:
        parsed = parse_check(text)
        files = {_key(file): file for file in full.dump.tensors() if not file.is_constant and file.node is not None}
        here = {_key(file): file for file in recorded.statistics_table.files}
        pairs = [(files[key], here[key]) for key in sorted(files)]
        (truth,) = full.evaluate([CheckRequest(parsed, [file for file, _ in pairs])])
        (found,) = recorded.evaluate([CheckRequest(parsed, [file for _, file in pairs])])
        assert not (found.hit & ~truth.hit).any()
        missed = truth.hit & ~found.hit
        assert (found.status[missed] == Status.NOT_RECORDED).all()
        assert not found.undecided.any()
        if columns == OLD and text in RECORDED_UP_TO_22:
            assert not missed.any(), text
        told = [values[found.hit] for values in found.actual.values()]
        truth_told = [values[found.hit] for values in truth.actual.values()]
        for mine, right in zip(told, truth_told, strict=True):
            known = ~np.isnan(mine)
            np.testing.assert_allclose(mine[known], right[known], rtol=1e-4, atol=1e-12)


def _key(file: Any) -> tuple[Any, ...]:
    return (file.rank, file.graph, file.node, file.io, file.slot, file.iteration)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DUMPS)
def test_recommended_watchpoints_say_what_was_not_recorded(name: str, analyse: Analyse, dump_copy: Copy) -> None:
    dump = dump_copy(name)
    record_dump(dump, DEFAULT)
    results = {result.watchpoint.name: result for result in check(analyse(dump), recommended_watchpoints())}
    weights = results["recommend_weight_not_changed_watchpoint"]
    assert weights.not_checked == ((Status.NOT_RECORDED, weights.tensors),)
    assert not weights.hits
    overflow = results["recommend_tensor_overflow_watchpoint"]
    assert overflow.not_checked == ()
    assert overflow.hits


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ALL_DUMPS)
def test_a_dump_with_both_gives_the_results_of_its_tensor_files(
    name: str, analyse: Analyse, unpacked: Callable[[str], Path], dump_copy: Copy, tmp_path: Path
) -> None:
    dump = dump_copy(name)
    record_dump(dump, DEFAULT, keep_values=True)
    both, alone = analyse(dump), analyse(unpacked(name), cache_dir=tmp_path / "other")
    assert both.dump.recorded_tensors() == []
    columns = [column for column in alone.table().column_names if column not in ("path", "file_mtime_ns")]
    # NaN is not equal to itself, but its text is.
    assert str(both.table().select(columns).to_pylist()) == str(alone.table().select(columns).to_pylist())
    assert names(origins(both)) == names(origins(alone))
    for text in CHECKS:
        assert hits_of(both, text) == hits_of(alone, text)


@pytest.mark.long
def test_files_and_recorded_tensors_of_one_dump_are_checked_together(
    analyse: Analyse, unpacked: Callable[[str], Path], dump_copy: Copy
) -> None:
    dump = dump_copy("sick-2.10.0")
    (folder,) = (path for path in dump.rglob("2") if next(path.glob("*.npy"), None))
    count = record(folder, OLD)
    analysis = analyse(dump)
    assert len(analysis.statistics_table.recorded) == count
    assert names(origins(analysis)) == names(origins(analyse(unpacked("sick-2.10.0"))))
    assert hits_of(analysis, "TO") == hits_of(analyse(unpacked("sick-2.10.0")), "TO")
    (result,) = check(analysis, [Watchpoint(1, "", parse_check("TO"))])
    assert [hit.tensor.iteration for hit in result.hits] == sorted(hit.tensor.iteration for hit in result.hits)


def test_a_second_look_uses_the_cache_for_files_and_the_csv_for_the_rest(analyse: Analyse, dump_copy: Copy) -> None:
    dump = dump_copy("sick-2.10.0")
    (folder,) = (path for path in dump.rglob("2") if next(path.glob("*.npy"), None))
    record(folder, OLD)
    first = analyse(dump).table()
    assert str(analyse(dump).table().to_pylist()) == str(first.to_pylist())
    path = folder / "statistic.csv"
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, *lines[1:]]) + "\n")
    assert analyse(dump).table().num_rows == first.num_rows - 1


def test_what_hides_the_origin_is_a_candidate_when_too_little_was_recorded(analyse: Analyse, dump_copy: Copy) -> None:
    dump = dump_copy("sick-2.10.0")
    record_dump(dump, ("max",))
    (found,) = origins(analyse(dump), (Anomaly.INF,))
    assert not found.certain
    assert InputState.NOT_RECORDED in [entry.state for entry in found.inputs]
    assert any(name.endswith("Log-op0") for name in found.candidates)
    assert "do not decide it" in found.sentence


def test_anomalies_that_were_not_recorded_are_counted(analyse: Analyse, dump_copy: Copy) -> None:
    dump = dump_copy("sick-2.10.0")
    record_dump(dump, ("md5",))
    analysis = analyse(dump)
    assert origins(analysis) == []
    assert set(unplaced(analysis, tuple(Anomaly)).undecided) == set(Anomaly)
    assert unplaced(analysis, tuple(Anomaly), ranks=[7]).undecided == {}


def row(array: Any, columns: tuple[str, ...], *, skip: bool = False, **fields: Any) -> StatisticRow:
    """A line of a statistics file, as the reader gives it."""
    text = values_of(array, skip_non_finite=skip)
    keys = [column.lower().removesuffix(" value") for column in columns]
    values: dict[str, Any] = {
        key: int(text[key]) if key.endswith("count") else text[key] if key == "md5" else float(text[key])
        for key in keys
    }
    defaults: dict[str, Any] = {
        "rank": 0, "graph_id": 0, "iteration": 0, "op_type": "Add", "op_name": "Add-op1", "task_id": 0, "stream_id": 0,
        "timestamp": 1, "io": "output", "slot": 0, "data_size": array.nbytes, "data_type": str(array.dtype),
        "shape": array.shape, "values": values | fields.pop("values", {}), "row": {},
    }  # fmt: skip
    return StatisticRow(**(defaults | fields))


ELEMENTS = st.one_of(
    st.floats(-1e4, 1e4, width=32), st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-30, -1e-30, 1.0])
)


@settings(deadline=None, max_examples=3 * settings().max_examples)
@given(
    st.lists(ELEMENTS, max_size=12),
    st.sets(st.sampled_from(EVERYTHING)),
    st.sampled_from(["new", "old"]),
    st.sampled_from(["float32", "int32", "bool"]),
)
def test_the_true_statistics_lie_between_the_bounds(
    elements: list[float], columns: set[str], version: str, dtype: str
) -> None:
    numbers = np.array(elements, np.float32)
    array = numbers if dtype == "float32" else np.nan_to_num(numbers, posinf=9, neginf=-9).astype(dtype)
    old = version == "old"
    found = recorded_statistics([row(array, OLD if old else tuple(sorted(columns)), skip=old)])
    assert found.errors == [""]
    truth = statistics(array)
    true = {**truth.as_row(), "non_finite_count": truth.nan_count + truth.neg_inf_count + truth.pos_inf_count}
    for name in BOUNDED:
        low, high, value = float(found.low[name][0]), float(found.high[name][0]), float(true[name])
        if name not in MEASURES:
            assert low <= value <= high, name
        elif not math.isnan(value) and truth.finite_count:
            margin = 2e-5 * max(abs(truth.min), abs(truth.max), abs(value))
            assert low - margin <= value <= high + margin, name
        else:
            assert truth.finite_count or math.isnan(low) or low <= high


def columns_of(arrays: list[Any]) -> dict[Any, Any]:
    rows = [statistics(array).as_row() for array in arrays]
    return {name: np.array([entry[name] for entry in rows]) for name in rows[0] if name not in ("dtype", "shape")}


def recorded_columns(arrays: list[Any], chosen: tuple[str, ...], *, skip: bool) -> dict[Any, Any]:
    found = recorded_statistics([row(array, chosen, skip=skip) for array in arrays])
    columns: dict[Any, Any] = {"recorded": np.ones(len(arrays), np.bool_)}
    for name in BOUNDED:
        columns["low", name], columns["high", name] = found.low[name], found.high[name]
        columns[name] = found.exact(name) if name in MEASURES else found.low[name].astype(np.int64)
    return columns


@settings(deadline=None, max_examples=2 * settings().max_examples)
@given(
    st.lists(st.lists(ELEMENTS, max_size=8), min_size=1, max_size=12),
    st.sets(st.sampled_from(EVERYTHING)),
    st.booleans(),
    st.sampled_from(
        [
            "TO",
            "TL(max_gt={0})",
            "TL(mean_gt={0})",
            "TL(abs_mean_gt={1})",
            "TS(abs_mean_lt={1})",
            "TS(min_lt={0})",
            "TZ(zero_percentage_ge={2})",
            "TR(max_min_gt={1})",
            "TR(max_min_lt={1})",
            "TR(range_start_inclusive={0}, range_end_inclusive={3}, range_percentage_gt={2})",
            "TR(range_start_inclusive={0}, range_end_inclusive={3}, range_percentage_lt={2})",
        ]
    ),
    st.floats(-20, 20).map(lambda x: round(x) + 0.25) | st.just(0.0) | st.just(-1.0),
    st.floats(0.25, 50).map(lambda x: round(x) + 0.25),
    st.sampled_from([0, 10, 30, 60, 99.9, 100]),
)
def test_a_verdict_on_recorded_statistics_is_the_verdict_on_the_values(
    tensors: list[list[float]], columns: set[str], skip: bool, text: str, place: float, size: float, percentage: float
) -> None:
    arrays = [np.array(elements, np.float32) for elements in tensors]
    chosen = OLD if skip else tuple(sorted(columns))
    check_text = text.format(place, size, percentage, place + size)
    parsed = parse_check(check_text)
    values = columns_of(arrays)
    for low, high in parsed.needs.ranges:
        values["in_range", low, high] = np.array([np.sum((array >= low) & (array <= high)) for array in arrays])
    truth = evaluate(parsed, values)
    found = evaluate(parsed, recorded_columns(arrays, chosen, skip=skip))
    open_ = found.status == Status.NOT_RECORDED
    # A digit that the file does not have may be the one that decides: thresholds are chosen off the elements.
    close = np.zeros(len(arrays), np.bool_)
    for name in truth.actual:
        threshold = parsed.values[name]
        close |= np.abs(truth.actual[name] - threshold) <= 1e-4 * (1 + np.abs(values["l2_norm"]))
    np.testing.assert_array_equal(found.hit[~open_ & ~close], truth.hit[~open_ & ~close])
    assert not found.hit[open_].any()


def test_a_nan_that_large_tensors_hide_is_not_ruled_out_by_the_extremes() -> None:
    """Pieces of 10,000 elements: the maximum of a piece with NaN was lost; the sum of squares was not."""
    values = np.arange(30_000, dtype=np.float32)
    line = row(values, ("max", "min"))
    found = recorded_statistics([line, row(values, DEFAULT)])
    assert (found.low["nan_count"][0], found.high["nan_count"][0]) == (0, 30_000)
    assert found.high["max"][0] == math.inf
    assert found.high["nan_count"][1] == 0
    assert found.high["max"][1] == 29_999


def test_the_mean_of_a_large_tensor_is_only_bounded() -> None:
    values = np.repeat(np.float32([1, 3]), 15_000)
    found = recorded_statistics([row(values, OLD, values={"avg": 1.0}), row(values[:19_999], OLD)])
    assert (found.low["mean"][0], found.high["mean"][0]) == (1, 3)
    assert found.low["mean"][1] == found.high["mean"][1]


def test_the_norm_of_the_finite_elements_bounds_the_mean_of_these_alone() -> None:
    array = np.array([math.nan] * 9 + [0.1, 0.2, 0.05, -0.01, 0.26, 0.22, 0.1], np.float32)
    exact = statistics(array)
    # As Tensight records a tensor: measures are of the finite elements, the norm, too.
    measures = {"max": exact.max, "min": exact.min, "avg": exact.mean, "l2norm": exact.l2_norm}
    found = recorded_statistics([row(array, EVERYTHING, skip=True, values=measures)])
    assert found.errors == [""]
    for name in ("nan_count", *MEASURES):
        true = getattr(exact, name)
        assert found.low[name][0] - 1e-6 <= true <= found.high[name][0] + 1e-6, name


def test_counts_with_and_without_infinite_elements_are_told_apart() -> None:
    values = np.float32([-math.inf, -1, 0, 2, 3, math.inf, math.nan])
    new, old = (recorded_statistics([row(values, COUNTS, skip=skip)]) for skip in (False, True))
    for found in (new, old):
        assert found.exact("negative_count").tolist() == [1]
        assert found.exact("positive_count").tolist() == [2]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"values": {"nan count": 9}}, "contradict"),
        ({"values": {"max": -5.0}}, "contradict"),
        ({"values": {"zero count": -1}}, "contradict"),
        ({"values": {"count": -3}}, "number of elements"),
        ({"values": {"count": 2**60}}, "number of elements"),
    ],
)
def test_a_record_that_no_values_can_have_is_refused(fields: dict[str, Any], message: str) -> None:
    found = recorded_statistics([row(np.float32([1, 2, 3, 4]), OLD, **fields)])
    assert message in found.errors[0]


def test_a_shape_gives_the_count_unless_it_is_incomplete() -> None:
    array = np.float32([[1, 2], [3, 4]])
    found = recorded_statistics([row(array, DEFAULT), row(array, DEFAULT, shape=(-1, 2))])
    assert found.exact("count").tolist()[0] == 4
    assert "complete shape" in found.errors[1]


def test_what_a_device_makes_of_complex_numbers_is_not_used() -> None:
    found = recorded_statistics([row(np.float32([1, 2]), DEFAULT, data_type="complex64")])
    assert (found.low["max"][0], found.high["max"][0]) == (-math.inf, math.inf)


def test_problems_of_the_csv_are_problems_of_the_analysis(analyse: Analyse, dump_copy: Copy) -> None:
    dump = dump_copy("sick-2.10.0")
    (folder,) = (path for path in dump.rglob("2") if next(path.glob("*.npy"), None))
    record(folder, OLD)
    path = folder / "statistic.csv"
    header, first, second, *others = path.read_text().splitlines()
    broken = [first.replace("float32", "float32,extra", 1), second.rsplit(",", 4)[0] + ",99999,0,0,0", *others]
    path.write_text("\n".join([header, *broken]) + "\n")
    analysis = analyse(dump)
    texts = [f"{problem.where}: {problem.what}" for problem in analysis.problems if "statistic.csv" in problem.where]
    texts += [f"{problem.where}: {problem.what}" for problem in analysis.problems]
    assert any("statistic.csv:2" in text and "fields" in text for text in texts)
    assert any("contradict each other" in text for text in texts)


def test_statistics_that_contradict_each_other_are_said_once(
    analyse: Analyse, dump_copy: Copy, tensight: Callable[..., Any]
) -> None:
    dump = dump_copy("sick-2.10.0")
    record_dump(dump, DEFAULT)
    for path in dump.rglob("statistic.csv"):
        header, first, *others = path.read_text().splitlines()
        path.write_text(
            "\n".join([header, *(f"{line.rsplit(',', 3)[0]},-5,6,1" for line in (first, *others[:1])), *others[1:]])
        )
    (problem,) = analyse(dump).unusable_records()
    steps = len(list(dump.rglob("statistic.csv")))
    assert problem.what.startswith(f"of {2 * steps} of ")
    assert "the recorded statistics contradict each other, such as 0/" in problem.what
    assert tensight("check", dump).err.count("contradict each other") == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("columns", [OLD, DEFAULT], ids=["up to 2.2", "default"])
def test_the_commands_say_that_only_statistics_were_recorded(
    columns: tuple[str, ...], tensight: Callable[..., Any], dump_copy: Copy
) -> None:
    dump = dump_copy("sick-2.10.0")
    count = record_dump(dump, columns)
    info = tensight("info", dump)
    assert f"{count:,} tensors with recorded statistics only" in info.out
    assert json.loads(tensight("info", dump, "--json").out)["ranks"][0]["recorded"] == count
    shown = tensight("show", dump, "Log-op0@3")
    assert (shown.code, "Only statistics were recorded" in shown.out, "-inf" in shown.out) == (
        0, True, columns == DEFAULT,
    )  # fmt: skip
    data = json.loads(tensight("show", dump, "Log-op0@3", "--json").out)
    assert (data["values"], data["recorded"]["shape"]) == (None, [4, 1])
    rows = json.loads(tensight("stats", dump, "--json", "--top", 2000).out)
    assert len(rows) == count
    assert {entry["file_bytes"] for entry in rows} == {None}
    assert "recorded statistics only" in tensight("stats", dump).out
    checked = tensight("check", dump)
    assert (checked.code, "Not decided by the statistics that were recorded" in checked.out) == (1, True)
    points = json.loads(tensight("check", dump, "--json").out)["watchpoints"]
    assert any(point["not_checked"].get("not_recorded") for point in points)
    assert "Inf began at step 3" in tensight("origin", dump).out
    compared = tensight("compare-steps", dump, "network.gate.weight", 2, 3)
    assert compared.code != 0
    assert "only statistics were recorded" in compared.err


def test_origin_does_not_call_a_dump_clean_that_it_cannot_judge(tensight: Callable[..., Any], dump_copy: Copy) -> None:
    dump = dump_copy("healthy-2.10.0")
    record_dump(dump, ("md5",))
    outcome = tensight("origin", dump)
    assert "which does not tell everything" in outcome.out
    assert "NaN: what was recorded of" in outcome.out
    assert json.loads(tensight("origin", dump, "--json").out)["not_recorded"]["nan"] > 0
