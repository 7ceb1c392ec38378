"""Checks that look at several steps, at the units of a tensor, or at other tensors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensight.analysis import Analysis, check
from tensight.graph.layers import graph_layers
from tensight.watchpoints import Hit, Selector, Watchpoint, parse_watch

Analyse = Callable[..., Analysis]


def hits_of(analysis: Analysis, text: str, selector: str, **where: Any) -> list[Hit]:
    parsed, persistence = parse_watch(text)
    (result,) = check(analysis, [Watchpoint(1, "", parsed, Selector.parse(selector), persistence=persistence)], **where)
    return list(result.hits)


def steps_of(hits: list[Hit], node: str) -> list[int]:
    return sorted(hit.tensor.step for hit in hits if hit.tensor.node == node)


@pytest.fixture
def relu(analyse: Analyse, dump_copy: Callable[[str], Path]) -> tuple[Analysis, list[Path]]:
    """A dump in which a ReLU lives in step 2 and is dead in all others."""
    dump = dump_copy("sick-2.10.0")
    files = [file for file in analyse(dump).dump.tensors() if file.op_type == "ReLU" and file.io == "output"]
    node = files[0].node
    files = [file for file in files if file.node == node]
    for file in files:
        values = np.zeros_like(np.load(file.path))
        if file.step == 2:
            values[:] = 1
        np.save(file.path, values)
    analysis = analyse(dump)
    return analysis, [Path(file.path) for file in files]


def test_a_condition_must_hold_in_steps_in_a_row(relu: tuple[Analysis, list[Path]], analyse: Analyse) -> None:
    analysis, files = relu
    node = next(file.node for file in analysis.dump.tensors() if Path(file.path) == files[0])
    assert node is not None
    dead = [1, 3, 4]
    assert steps_of(hits_of(analysis, "TZ", f"name:^{node}$"), node) == dead
    assert steps_of(hits_of(analysis, "TZ persist=2", f"name:^{node}$"), node) == dead[2:]
    # Asked about one step, those before it are looked at, too.
    assert steps_of(hits_of(analysis, "TZ persist=2", f"name:^{node}$", steps=[4]), node) == [4]
    assert hits_of(analysis, "TZ persist=2", f"name:^{node}$", steps=[3]) == []


def test_dead_units_are_counted_in_the_files(relu: tuple[Analysis, list[Path]], analyse: Analyse) -> None:
    analysis, files = relu
    file = next(file for file in analysis.dump.tensors() if Path(file.path) == files[0])
    values = np.load(files[0])
    values[:] = 0
    axis = 1 if values.ndim >= 4 else values.ndim - 1
    units = values.shape[axis]
    np.moveaxis(values, axis, -1)[..., 0] = 1
    np.save(files[0], values)
    fresh = analyse(analysis.dump.path)
    hits = hits_of(fresh, "dead_units(dead_unit_percentage_gt=10)", f"name:^{file.node}$", steps=[file.step])
    assert [hit.actual["dead_unit_percentage_gt"] for hit in hits] == [pytest.approx(100 * (units - 1) / units)]
    # What was counted is known, and what statistics exclude is not read.
    assert hits_of(fresh, "dead_units(dead_unit_percentage_gt=99)", f"name:^{file.node}$", steps=[1]) == []
    assert np.isfinite(fresh.statistics_table.snapshot().units[hits[0].watchpoint.check.needs.units[0]]).any()


def test_saturated_units_are_found_in_a_dump(relu: tuple[Analysis, list[Path]]) -> None:
    analysis, files = relu
    node = next(file.node for file in analysis.dump.tensors() if Path(file.path) == files[0])
    text = "saturated_units(range_start_inclusive=-0.5, range_end_inclusive=0.5, saturated_unit_percentage_gt=50)"
    hits = hits_of(analysis, text, f"name:^{node}$")
    assert [hit.tensor.iteration for hit in hits] == [1]


def test_weights_that_differ_between_ranks_hit_on_all_of_them(
    analyse: Analyse, dump_copy: Callable[[str], Path]
) -> None:
    dump = dump_copy("sick-2.10.0")
    shutil.copytree(dump / "rank_0", dump / "rank_1")
    assert hits_of(analyse(dump), "weights_differ", "trainable_weights") == []
    opened = analyse(dump).dump
    file = next(
        f for f in opened.tensors(ranks=[1], iterations=[2]) if f.op_type == "Parameter" and "weight" in f.op_name
    )
    values = np.load(file.path)
    values.flat[0] += 1
    np.save(file.path, values)
    hits = hits_of(analyse(dump), "weights_differ", "trainable_weights")
    assert {(hit.tensor.rank, hit.tensor.node, hit.tensor.iteration) for hit in hits} == {
        (0, file.node, 2),
        (1, file.node, 2),
    }


def test_a_weight_that_jumps_is_compared_with_the_iteration_before(
    analyse: Analyse, dump_copy: Callable[[str], Path]
) -> None:
    dump = dump_copy("sick-2.10.0")
    opened = analyse(dump).dump
    matrix = "network.dead.conv.weight"
    assert matrix in graph_layers(opened.graphs(0)[0]).matrices
    for file in opened.tensors(iterations=[2]):
        if file.node == matrix:
            np.save(file.path, np.load(file.path) * 1e4)
    text = "weight_growth(norm_growth_gt=100)"
    assert steps_of(hits_of(analyse(dump), text, "matrices"), matrix) == [3]
    assert steps_of(hits_of(analyse(dump), text, "matrices", steps=[3]), matrix) == [3]
    assert steps_of(hits_of(analyse(dump), text, "matrices", steps=[4]), matrix) == []


@pytest.mark.parametrize("selector", ["hidden", "hidden_activation:relu", "matrices", "matrix_gradients"])
def test_a_selector_by_layers_finds_nodes_of_a_dump(analyse: Analyse, dump_210: Path, selector: str) -> None:
    analysis = analyse(dump_210)
    (result,) = check(analysis, [Watchpoint(1, "", parse_watch("TO")[0], Selector.parse(selector))])
    assert 0 < result.tensors < len(analysis.dump.tensors())


def test_an_overflow_is_unintended_where_no_mask_can_be(analyse: Analyse, dump_210: Path) -> None:
    analysis = analyse(dump_210)
    overflows = {(hit.tensor.node, hit.tensor.iteration) for hit in hits_of(analysis, "TO", "all")}
    unintended = {(hit.tensor.node, hit.tensor.iteration) for hit in hits_of(analysis, "UO", "all")}
    assert unintended
    assert unintended <= overflows


def test_zeros_of_a_dump_are_unintended_where_they_are_born(analyse: Analyse, dump_210: Path) -> None:
    analysis = analyse(dump_210)
    zero = {(hit.tensor.node, hit.tensor.iteration) for hit in hits_of(analysis, "TZ", "all")}
    born = {(hit.tensor.node, hit.tensor.iteration) for hit in hits_of(analysis, "UZ", "all")}
    assert born
    assert born < zero
