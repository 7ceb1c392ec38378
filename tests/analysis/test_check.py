from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensight.analysis import Analysis, check
from tensight.errors import InputError
from tensight.watchpoints import Selector, Watchpoint, parse_check, recommended_watchpoints
from tests.dumps.dump_writer import DumpWriter, GraphWriter

Analyse = Callable[..., Analysis]
DUMPS = ("sick-2.0.0", "sick-2.10.0")


def hits_of(analysis: Analysis, text: str, selector: str = "all", **where: Any) -> set[tuple[str, int]]:
    (result,) = check(analysis, [Watchpoint(1, "", parse_check(text), Selector.parse(selector))], **where)
    return {(hit.tensor.node, hit.tensor.iteration) for hit in result.hits}


@pytest.mark.parametrize("name", DUMPS)
def test_the_recommended_watchpoints_find_every_planted_sickness(
    name: str, analyse: Analyse, unpacked: Callable[[str], Path], planted: dict[str, Any]
) -> None:
    results = check(analyse(unpacked(name)), recommended_watchpoints())
    found = {
        result.watchpoint.name: {(hit.tensor.node, hit.tensor.iteration) for hit in result.hits} for result in results
    }
    sick = planted[name]["planted"]
    overflow = found["recommend_tensor_overflow_watchpoint"]
    assert {(sick[kind]["operator"], sick[kind]["first_iteration"]) for kind in ("inf", "nan")} <= overflow
    assert (sick["dead_relu"]["operator"], 0) in found["recommend_relu_activation_range_watchpoint"]
    assert (sick["dead_relu"]["operator"], 0) in found["recommend_tensor_all_zero_watchpoint"]
    unchanged = {node for node, _ in found["recommend_weight_not_changed_watchpoint"]}
    assert {*sick["unchanged_weights"]["zero_gradient"], *sick["unchanged_weights"]["zero_learning_rate"]} <= unchanged
    assert not unchanged & set(sick["unchanged_weights"]["frozen"])


@pytest.mark.parametrize("name", DUMPS)
def test_an_exploding_gradient_hits_at_the_planted_operators_and_not_before(
    name: str, analyse: Analyse, unpacked: Callable[[str], Path], planted: dict[str, Any]
) -> None:
    sick = planted[name]["planted"]["exploding_gradient"]
    found = hits_of(analyse(unpacked(name)), f"GL(max_gt={sick['threshold']})", "gradients") | hits_of(
        analyse(unpacked(name)), f"tensor_too_small(min_lt=-{sick['threshold']})", "gradients"
    )
    for node, first in sick["gradients"].items():
        assert min((iteration for name_, iteration in found if name_ == node), default=None) == first


@pytest.mark.parametrize("name", DUMPS)
def test_hits_agree_with_numpy_over_every_file(name: str, analyse: Analyse, unpacked: Callable[[str], Path]) -> None:
    analysis = analyse(unpacked(name))
    expected = set()
    for file in analysis.dump.tensors():
        if file.io == "output" and not file.is_constant:
            values = np.load(file.path)
            finite = values[np.isfinite(values)].astype(np.float64)
            if finite.size and (finite.max() > 2.5 or np.abs(finite).mean() > 1.5):
                expected.add((file.node, file.iteration))
    assert hits_of(analysis, "tensor_too_large(max_gt=2.5, abs_mean_gt=1.5)") == expected


def test_a_second_check_with_other_thresholds_reads_no_tensor(
    analyse: Analyse, dump_copy: Callable[[str], Path]
) -> None:
    dump = dump_copy("sick-2.10.0")
    texts = ("TL(max_gt={})", "TZ(zero_percentage_ge={})", "WNC(rtol=0.{:03d})")
    ranged = "TR(range_start_inclusive=-1, range_end_inclusive=0.5, range_percentage_gt={})"
    first = [hits_of(analyse(dump), text.format(50)) for text in (*texts, ranged)]
    for path in dump.rglob("*.npy"):
        stamp = path.stat()
        path.write_bytes(b"\0" * stamp.st_size)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    reopened = analyse(dump)
    assert [hits_of(reopened, text.format(50)) for text in (*texts, ranged)] == first
    assert hits_of(reopened, texts[0].format(0)) > first[0]


def test_a_changed_file_is_read_again(analyse: Analyse, dump_copy: Callable[[str], Path]) -> None:
    dump = dump_copy("sick-2.10.0")
    before = hits_of(analyse(dump), "tensor_overflow()")
    file = next(f for f in analyse(dump).dump.tensors(iterations=[0]) if f.io == "output" and f.op_type == "Conv2D")
    values = np.load(file.path)
    values.flat[3] = np.inf
    np.save(file.path, values)
    assert hits_of(analyse(dump), "tensor_overflow()") == before | {(file.node, 0)}


def test_a_new_iteration_in_between_gives_new_comparisons(analyse: Analyse, dump_copy: Callable[[str], Path]) -> None:
    dump = dump_copy("sick-2.10.0")
    iterations = dump / "rank_0" / "Sick" / "0"
    shutil.move(iterations / "1", dump / "hidden")
    weights = "trainable_weights"
    without = hits_of(analyse(dump), "WNC(rtol=10)", weights)
    shutil.move(dump / "hidden", iterations / "1")
    assert hits_of(analyse(dump), "WNC(rtol=10)", weights) == hits_of(
        analyse(dump, cache_dir=dump.parent / "fresh"), "WNC(rtol=10)", weights
    )
    assert {iteration for _, iteration in without} <= {2, 3}


def test_ranks_and_steps_restrict_a_check(analyse: Analyse, dump_copy: Callable[[str], Path]) -> None:
    dump = dump_copy("sick-2.10.0")
    shutil.copytree(dump / "rank_0", dump / "rank_1")
    analysis = analyse(dump)
    both = check(analysis, [Watchpoint(1, "", parse_check("TO"))])[0]
    one = check(analysis, [Watchpoint(1, "", parse_check("TO"))], ranks=[1], steps=[3])[0]
    assert {hit.tensor.rank for hit in both.hits} == {0, 1}
    assert {(hit.tensor.rank, hit.tensor.iteration) for hit in one.hits} == {(1, 2)}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"ranks": [7]}, "rank 7 is not in the dump; it has 0"),
        ({"steps": [99]}, "step 99 is not in the dump; it has 1, 2"),
    ],
)
def test_a_rank_or_step_that_is_not_there_is_named(
    where: dict[str, Any], message: str, analyse: Analyse, dump_210: Path
) -> None:
    with pytest.raises(InputError, match=message):
        hits_of(analyse(dump_210), "TO", **where)


def test_unreadable_files_are_listed_and_the_rest_is_checked(
    analyse: Analyse, dump_copy: Callable[[str], Path]
) -> None:
    dump = dump_copy("sick-2.10.0")
    files = [f for f in analyse(dump).dump.tensors(iterations=[0]) if f.io == "output"][:4]
    damage = (b"", b"garbage", b"\x93NUMPY\x01\x00", Path(files[3].path).read_bytes()[:-1])
    for file, content in zip(files, damage, strict=True):
        Path(file.path).write_bytes(content)
    analysis = analyse(dump)
    found = hits_of(analysis, "TO")
    assert {iteration for _, iteration in found} == {2, 3}
    listed = [problem.where for problem in analysis.problems]
    assert all(any(os.path.basename(file.path) in where for where in listed) for file in files)


def test_nothing_is_written_into_the_dump(analyse: Analyse, dump_copy: Callable[[str], Path]) -> None:
    dump = dump_copy("sick-2.0.0")
    before = {path: path.stat().st_mtime_ns for path in dump.rglob("*")}
    check(analyse(dump), recommended_watchpoints())
    assert {path: path.stat().st_mtime_ns for path in dump.rglob("*")} == before


def test_initial_weights_are_seen_through_the_operators_that_first_read_them(
    analyse: Analyse, dump_copy: Callable[[str], Path]
) -> None:
    dump = dump_copy("sick-2.10.0")
    opened = analyse(dump).dump
    graph = opened.graphs(0)[0]
    conv = next(node for node in graph.operators if node.type == "Conv2D")
    reader = opened.at(0, 0, 0, conv.name, 1, "input")
    assert reader is not None
    values = np.load(reader.path)
    np.save(reader.path, np.zeros_like(values))
    assert (conv.name, 0) in hits_of(analyse(dump), "weight_initialization(zero_percentage_ge=100)", "weights")


@pytest.mark.parametrize("text", ["WNC(rtol=1e-5)", "WCL(abs_mean_update_ratio_gt=0.01)"])
def test_a_comparison_asked_for_after_the_statistics_is_the_same_as_one_asked_for_with_them(
    text: str, analyse: Analyse, dump_210: Path, tmp_path: Path
) -> None:
    analysis = analyse(dump_210)
    analysis.statistics()
    before = analysis.table()
    later = hits_of(analysis, text)
    assert later == hits_of(analyse(dump_210, cache_dir=tmp_path / "fresh"), text)
    assert later
    assert analysis.table().equals(before)


def test_nothing_of_an_empty_tensor_is_in_a_range(analyse: Analyse, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    writer.graph(GraphWriter().parameter("x").operator("Default/Where-op1", inputs=("x",), shape=(0,)))
    writer.tensor(0, "Where.Where-op1", np.zeros(0, np.float32))
    writer.tensor(1, "Where.Where-op1", [0.5])
    inside = "TR(range_start_inclusive=0, range_end_inclusive=1, range_percentage_gt=50)"
    assert hits_of(analyse(writer.root), inside) == {("Default/Where-op1", 1)}


def test_other_nodes_can_be_chosen_on_ranks_that_ran_the_same_program(tmp_path: Path, analyse: Analyse) -> None:
    writer = DumpWriter(tmp_path / "dump")
    for rank in (0, 1):
        writer.graph(GraphWriter().operator("Default/Add-op1").operator("Default/Mul-op2"), rank=rank)
        writer.tensor(0, "Add.Add-op1", [np.nan], rank=rank)
        writer.tensor(0, "Mul.Mul-op2", [np.nan], rank=rank)
    chosen = {0: {"kernel_graph_0": {"Default/Add-op1"}}, 1: {"kernel_graph_0": {"Default/Mul-op2"}}}
    (result,) = check(
        analyse(writer.root),
        [Watchpoint(1, "", parse_check("tensor_overflow"))],
        nodes=lambda _, rank: chosen[rank],
    )
    assert [(hit.tensor.rank, hit.tensor.node) for hit in result.hits] == [
        (0, "Default/Add-op1"),
        (1, "Default/Mul-op2"),
    ]
