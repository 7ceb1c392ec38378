"""Several ranks: what one of them brought to the others began there, and not at the operator that averages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensight.analysis import Analysis, Anomaly, origins
from tensight.analysis.collectives import across_ranks
from tests.dumps.dump_writer import DumpWriter, GraphWriter

Analyse = Callable[..., Analysis]
FINE = (1.0, 2.0)


def dump_of_two(folder: Path, gradients: tuple[Any, Any], average: Any, kind: str = "AllReduce") -> Path:
    """A gradient of each rank, and the average over both."""
    writer = DumpWriter(folder)
    for rank, gradient in enumerate(gradients):
        graph = GraphWriter().parameter("x").operator("Gradients/MatMul-op1", inputs=("x",))
        writer.graph(graph.operator(f"Default/{kind}-op2", inputs=("1",)), rank=rank)
        writer.tensor(0, "Parameter.x", FINE, rank=rank)
        writer.tensor(0, "MatMul.MatMul-op1", gradient, rank=rank)
        writer.tensor(0, f"{kind}.{kind}-op2", average, rank=rank)
    return writer.root


@pytest.mark.parametrize("kind", ["AllReduce", "AccumulateGrad"])
def test_what_came_from_another_rank_is_said_to_and_named_after_where_it_began(
    analyse: Analyse, tmp_path: Path, kind: str
) -> None:
    analysis = analyse(dump_of_two(tmp_path / "dump", (FINE, (np.nan, 2.0)), (np.nan, 2.0), kind))
    first, second = origins(analysis, [Anomaly.NAN])
    assert (first.address.rank, first.operator, first.from_rank) == (1, "Gradients/MatMul-op1", None)
    assert (second.address.rank, second.operator, second.from_rank) == (0, f"Default/{kind}-op2", 1)
    assert second.sentence == f"NaN came from rank 1 at step 1 in Default/{kind}-op2"
    assert second.arrived
    assert origins(analysis, [Anomaly.NAN], ranks=[0]) == [second]


@pytest.mark.parametrize("kind", ["c10d.allreduce_", "_c10d_functional.all_reduce", "c10d._allgather_base_"])
def test_pytorchs_collective_operators_are_known_with_their_library(
    analyse: Analyse, tmp_path: Path, kind: str
) -> None:
    analysis = analyse(dump_of_two(tmp_path / "dump", (FINE, (np.nan, 2.0)), (np.nan, 2.0), "Add"))
    first, second = origins(analysis, [Anomaly.NAN])
    assert {first.from_rank, second.from_rank} == {None}
    there, here = sorted((first, second), key=lambda origin: -origin.address.rank)
    assert across_ranks([there, replace(here, op_type=kind)])[1].from_rank == 1
    assert across_ranks([there, replace(here, op_type="gather")])[1].from_rank is None


def test_what_no_rank_had_before_began_where_they_were_added_up(analyse: Analyse, tmp_path: Path) -> None:
    analysis = analyse(dump_of_two(tmp_path / "dump", (FINE, FINE), (np.inf, 2.0)))
    for rank, found in enumerate(origins(analysis, [Anomaly.INF])):
        assert (found.address.rank, found.from_rank, found.certain) == (rank, None, True)
        assert found.sentence.startswith("Inf began at step 1 in Default/AllReduce-op2")


def test_what_is_seen_first_behind_a_collective_whose_result_nobody_has_seen_came_from_the_other_rank(
    analyse: Analyse, tmp_path: Path
) -> None:
    analysis = analyse(dump_of_two(tmp_path / "dump", (FINE, (np.nan, 2.0)), (np.nan, 2.0), "Add"))
    there, here = sorted(origins(analysis, [Anomaly.NAN]), key=lambda origin: -origin.address.rank)
    hidden = (here.operator, "Gradients/Default/fc/weight/c10d.allreduce_-op0")
    assert across_ranks([there, replace(here, candidates=hidden)])[1].from_rank == 1
    assert across_ranks([there, replace(here, candidates=(here.operator, "Default/Mul-op0"))])[1].from_rank is None
    both = [replace(one, candidates=hidden) for one in (there, here)]
    assert [one.from_rank for one in across_ranks(both)] == [None, None]
    zeros = [replace(one, anomaly=Anomaly.ALL_ZERO) for one in (there, replace(here, candidates=hidden))]
    assert across_ranks(zeros)[1].from_rank is None
