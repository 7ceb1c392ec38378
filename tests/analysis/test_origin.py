from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensight.analysis import Analysis, Anomaly, InputState, origins
from tensight.analysis.consequences import Effect
from tensight.analysis.origin import KINDS
from tensight.dumps import open_dump
from tensight.errors import InputError
from tensight.graph.shared_lines import calls_with_same_line
from tests.dumps.dump_writer import DumpWriter, GraphWriter

Analyse = Callable[..., Analysis]
DUMPS = ("sick-2.0.0", "sick-2.10.0")


def one(analysis: Analysis, anomaly: Anomaly, **options: Any) -> Any:
    found = origins(analysis, (anomaly,), **options)
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", DUMPS)
@pytest.mark.parametrize("anomaly", [Anomaly.NAN, Anomaly.INF])
def test_the_planted_operator_its_iteration_and_its_line_are_named(
    name: str, anomaly: Anomaly, analyse: Analyse, unpacked: Callable[[str], Path], planted: dict[str, Any]
) -> None:
    expected = planted[name]["planted"][anomaly.value]
    found = one(analyse(unpacked(name)), anomaly)
    assert (found.address.node, found.address.iteration) == (expected["operator"], expected["first_iteration"])
    assert found.user_frame is not None
    assert (found.user_frame.file, found.user_frame.line) == (expected["file"], expected["line"])


@pytest.mark.parametrize("name", DUMPS)
def test_inf_is_certain_because_its_inputs_were_dumped_and_clean(
    name: str, analyse: Analyse, unpacked: Callable[[str], Path]
) -> None:
    found = one(analyse(unpacked(name)), Anomaly.INF)
    assert found.certain
    assert [entry.state for entry in found.inputs] == [InputState.CLEAN]


@pytest.mark.parametrize("name", DUMPS)
def test_the_dead_relu_is_where_the_zeros_begin(
    name: str, analyse: Analyse, unpacked: Callable[[str], Path], planted: dict[str, Any]
) -> None:
    expected = planted[name]["planted"]["dead_relu"]
    found = one(analyse(unpacked(name)), Anomaly.ALL_ZERO)
    assert expected["operator"] in (found.address.node, *found.also)
    assert found.address.iteration == expected["first_iteration"]


@pytest.mark.parametrize("name", DUMPS)
def test_the_explosion_begins_at_the_planted_operator(
    name: str, analyse: Analyse, unpacked: Callable[[str], Path], planted: dict[str, Any]
) -> None:
    expected = planted[name]["planted"]["exploding_gradient"]
    found = one(analyse(unpacked(name)), Anomaly.EXPLOSION, explosion_limit=expected["threshold"])
    assert (found.address.node, found.address.iteration) == (expected["operator"], expected["first_iteration"])


@pytest.mark.parametrize("name", ["healthy-2.0.0", "healthy-2.10.0"])
def test_a_healthy_run_has_no_nan_inf_or_explosion(
    name: str, analyse: Analyse, unpacked: Callable[[str], Path]
) -> None:
    assert origins(analyse(unpacked(name)), (Anomaly.NAN, Anomaly.INF, Anomaly.EXPLOSION)) == []


@pytest.mark.parametrize("name", DUMPS)
def test_without_input_files_the_producers_outputs_decide(
    name: str, analyse: Analyse, dump_copy: Callable[[str], Path], planted: dict[str, Any]
) -> None:
    dump = dump_copy(name)
    for path in dump.rglob("*.input.*.npy"):
        path.unlink()
    found = one(analyse(dump), Anomaly.INF)
    assert found.address.node == planted[name]["planted"]["inf"]["operator"]
    assert found.certain


@pytest.mark.parametrize("name", DUMPS)
def test_what_was_not_dumped_is_named_as_a_candidate_and_not_assumed_clean(
    name: str, analyse: Analyse, dump_copy: Callable[[str], Path], planted: dict[str, Any]
) -> None:
    dump = dump_copy(name)
    inf = planted[name]["planted"]["inf"]["operator"]
    producer = analyse(dump).dump.graphs(0)[0].flat_producers(analyse(dump).dump.graphs(0)[0].node(inf))[0]
    assert producer is not None
    for file in analyse(dump).dump.tensors():
        if file.node == producer[0].name or (file.node == inf and file.io == "input"):
            Path(file.path).unlink()
    found = one(analyse(dump), Anomaly.INF)
    assert found.address.node == inf
    assert not found.certain
    assert found.candidates[:2] == (inf, producer[0].name)
    assert "not all of its inputs are known" in found.sentence


@pytest.mark.parametrize("name", DUMPS)
def test_a_nan_that_comes_in_with_the_data_is_reported_as_arriving(
    name: str, analyse: Analyse, dump_copy: Callable[[str], Path]
) -> None:
    dump = dump_copy(name)
    opened = analyse(dump).dump
    graph = opened.graphs(0)[0]
    data = next(node for node in graph.parameters if node.name.startswith("inputs"))
    readers = {consumer.name for consumer in graph.consumers(data)}
    for file in opened.tensors(iterations=[0]):
        node = graph.get(file.node or "")
        source = graph.flat_producers(node)[file.slot] if node and file.io == "input" and node.is_operator else None
        is_computed = file.node in readers and file.io == "output"
        if file.node == data.name or is_computed or (source is not None and source[0].name == data.name):
            values = np.load(file.path)
            if values.dtype.kind == "f":
                values[...] = np.nan
                np.save(file.path, values)
    assert readers
    found = one(analyse(dump), Anomaly.NAN)
    assert found.arrived
    assert (found.address.node, found.address.iteration) == (data.name, 0)
    assert "came in" in found.sentence


@pytest.mark.parametrize("name", DUMPS)
def test_a_weight_that_the_optimizer_made_nan_begins_at_the_optimizer(
    name: str, analyse: Analyse, dump_copy: Callable[[str], Path]
) -> None:
    """In-place operators are dumped after they ran: their input 0 already shows what they wrote."""
    dump = dump_copy(name)
    opened = analyse(dump).dump
    graph = opened.graphs(0)[0]
    optimizer = next(node for node in graph.operators if node.type == "ApplyMomentum")
    weight = graph.flat_producers(optimizer)[0]
    assert weight is not None
    for file in opened.tensors(iterations=[1]):
        written = file.node == optimizer.name and (file.io, file.slot) in {("input", 0), ("output", 0)}
        if written or (file.node == weight[0].name and file.io == "output"):
            values = np.load(file.path)
            values[...] = np.nan
            np.save(file.path, values)
    found = one(analyse(dump), Anomaly.NAN)
    assert (found.address.node, found.address.iteration) == (optimizer.name, 1)
    assert found.certain


def test_an_overflow_that_the_device_reported_is_an_origin_even_if_the_output_looks_finite(
    analyse: Analyse, dump_copy: Callable[[str], Path]
) -> None:
    dump = dump_copy("sick-2.10.0")
    opened = analyse(dump).dump
    conv = next(node for node in opened.graphs(0)[0].operators if node.type == "Conv2D")
    for file in opened.tensors(iterations=[1]):
        if file.node == conv.name:
            Path(file.path).rename(file.path.replace(".0.0.", ".7.3.", 1))
    unit = {"model_id": 0, "stream_id": 3, "task_id": 7, "task_type": 0, "pc_start": "0x0", "para_base": "0x0"}
    record = dump / "rank_0" / "debug_files" / "1" / "Opdebug.Node_OpDebug.1.2.5.output.0.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"AI Core": {**unit, "status": 32, "kernel_code": "0x0", "block_idx": 0}}))
    found = one(analyse(dump), Anomaly.OVERFLOW)
    assert (found.address.node, found.address.iteration) == (conv.name, 1)
    assert found.certain


def test_each_rank_has_its_own_origin(analyse: Analyse, dump_copy: Callable[[str], Path]) -> None:
    dump = dump_copy("sick-2.10.0")
    shutil.copytree(dump / "rank_0", dump / "rank_3")
    found = origins(analyse(dump), (Anomaly.INF,))
    assert [origin.address.rank for origin in found] == [0, 3]
    assert [origin.address.rank for origin in origins(analyse(dump), (Anomaly.INF,), ranks=[3])] == [3]


def test_the_limit_of_an_explosion_must_be_positive(analyse: Analyse, dump_210: Path) -> None:
    with pytest.raises(InputError, match="positive"):
        origins(analyse(dump_210), explosion_limit=0.0)


def test_planted_facts_cover_both_generations(planted: dict[str, Any]) -> None:
    assert set(DUMPS) <= set(planted), json.dumps(sorted(planted))


def test_an_operator_without_any_file_is_a_candidate_and_no_obstacle(analyse: Analyse, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("w").operator("Default/Mul-op1", inputs=("w",))
    writer.graph(graph.operator("Default/Log-op2", inputs=("1",)))
    writer.tensor(0, "Log.Log-op2", [np.nan])
    (found,) = origins(analyse(writer.root), [Anomaly.NAN])
    assert found.address.node == "Default/Log-op2"
    assert found.candidates == ("Default/Log-op2", "Default/Mul-op1", "w")


def test_nan_of_missing_data_that_is_filled_is_no_origin(analyse: Analyse, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("x").parameter("c").operator("Default/Select-op1", inputs=("c", "x", "c"))
    graph = graph.operator("Default/Log-op2", inputs=("1",)).operator("Default/Mul-op3", inputs=("2", "2"))
    writer.graph(graph)
    for step, logarithm in enumerate(([0.5, 1.0], [np.nan, 1.0])):
        writer.tensor(step, "Parameter.x", [np.nan, 2.0])
        writer.tensor(step, "Select.Select-op1", [-1.0, 2.0])
        writer.tensor(step, "Log.Log-op2", logarithm)
        writer.tensor(step, "Mul.Mul-op3", logarithm)
    (found,) = origins(analyse(writer.root), [Anomaly.NAN])
    assert (found.operator, found.address.step, found.arrived) == ("Default/Log-op2", 2, False)


def test_nan_that_goes_no_further_is_named_if_there_is_no_other_or_if_a_watchpoint_hit_one(
    analyse: Analyse, tmp_path: Path
) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("x").parameter("c").operator("Default/Sqrt-op1", inputs=("x",))
    writer.graph(graph.operator("Default/Select-op2", inputs=("c", "1", "c")))
    writer.tensor(0, "Parameter.x", [-1.0, 2.0])
    writer.tensor(0, "Sqrt.Sqrt-op1", [np.nan, 2.0])
    writer.tensor(0, "Select.Select-op2", [-1.0, 2.0])
    analysis = analyse(writer.root)
    (found,) = origins(analysis, [Anomaly.NAN, Anomaly.INF])
    assert (found.operator, found.address.step, found.is_left_out) == ("Default/Sqrt-op1", 1, True)
    assert "it went no further" in found.sentence
    name = found.address.graph
    assert origins(analysis, hits={Anomaly.ALL_ZERO: [Effect(0, name, "Default/Select-op2", 0)]}) == []
    assert origins(analysis, hits={Anomaly.NAN: [Effect(0, name, "Default/Sqrt-op1", 0)]}) == [found]


def test_nan_that_a_later_operator_shows_was_not_left_out_by_one_that_nobody_saw(
    analyse: Analyse, tmp_path: Path
) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("x").parameter("c").operator("Default/Select-op1", inputs=("c", "x", "c"))
    writer.graph(graph.operator("Default/Mul-op2", inputs=("1", "1")))
    writer.tensor(0, "Parameter.x", [np.nan, 2.0])
    writer.tensor(0, "Mul.Mul-op2", [np.nan, 2.0])
    (found,) = origins(analyse(writer.root), [Anomaly.NAN])
    assert "x" in (found.operator, *found.also)


def test_infinity_that_only_the_backward_pass_makes_nan_of_is_an_origin(analyse: Analyse, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("x").parameter("c").operator("Default/Exp-op1", inputs=("x",))
    graph = graph.operator("Default/Select-op2", inputs=("c", "1", "x"))
    writer.graph(graph.operator("Gradients/Default/Mul-op3", inputs=("1", "2")))
    writer.tensor(0, "Parameter.x", [100.0, 2.0])
    writer.tensor(0, "Exp.Exp-op1", [np.inf, 2.0])
    writer.tensor(0, "Select.Select-op2", [0.0, 2.0])
    writer.tensor(0, "Mul.Mul-op3", [np.nan, 2.0])
    (found,) = origins(analyse(writer.root), [Anomaly.INF])
    assert found.operator == "Default/Exp-op1"


def test_zeros_that_are_made_of_constants_have_no_origin(analyse: Analyse, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("x", (4, 4)).constant("cst1", "Default--data-1")
    graph = graph.operator("Gradients/Default/Tile-op1", inputs=("cst1", "cst1")).operator(
        "Default/Mul-op2", inputs=("x", "x")
    )
    writer.graph(graph)
    writer.tensor(0, "Tile.Tile-op1", [0.0, 0.0])
    assert origins(analyse(writer.root), [Anomaly.ALL_ZERO]) == []
    writer.tensor(0, "Mul.Mul-op2", [0.0, 0.0])
    (found,) = origins(analyse(writer.root), [Anomaly.ALL_ZERO])
    assert found.address.node == "Default/Mul-op2"


def test_what_an_optimizer_leaves_in_its_outputs_is_no_anomaly(analyse: Analyse, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("w").parameter("m").parameter("v")
    writer.graph(graph.operator("Default/optimizer-Adam/Adam-op1", inputs=("w", "m", "v")))
    writer.tensor(0, "Parameter.w", [1.0, 2.0])
    writer.tensor(0, "Adam.Adam-op1", [np.inf, 2.0])
    assert origins(analyse(writer.root), [Anomaly.INF]) == []
    writer.tensor(1, "Adam.Adam-op1", [1.0, 2.0])
    writer.tensor(1, "Parameter.w", [np.inf, 2.0])
    (found,) = origins(analyse(writer.root), [Anomaly.INF])
    assert (found.operator, found.address.node, found.address.iteration) == (
        "Default/optimizer-Adam/Adam-op1",
        "w",
        1,
    )


def test_a_number_that_is_zero_makes_zeros_of_what_it_is_spread_to(analyse: Analyse, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("x").constant("cst1", "Default--data-1")
    graph = graph.operator("Gradients/Default/Div-op1", inputs=("cst1", "x"), shape=())
    writer.graph(graph.operator("Gradients/Default/Tile-op2", inputs=("1", "cst1")))
    writer.tensor(0, "Div.Div-op1", np.float32(0))
    writer.tensor(0, "Tile.Tile-op2", np.zeros(4, np.float32))
    assert origins(analyse(writer.root), [Anomaly.ALL_ZERO]) == []
    writer.tensor(1, "Div.Div-op1", np.float32(1))
    writer.tensor(1, "Tile.Tile-op2", np.zeros(4, np.float32))
    (found,) = origins(analyse(writer.root), [Anomaly.ALL_ZERO])
    assert (found.operator, found.address.iteration) == ("Gradients/Default/Tile-op2", 1)


def test_of_targets_that_nobody_saw_nothing_is_said(analyse: Analyse, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("scores").constant("cst1", "Default--outside")
    writer.graph(graph.operator("Default/Loss-op1", inputs=("scores", "cst1")))
    writer.tensor(0, "Parameter.scores", [1.0, 2.0])
    writer.tensor(0, "Loss.Loss-op1", [np.nan, 2.0])
    (found,) = origins(analyse(writer.root), [Anomaly.NAN])
    assert [entry.state for entry in found.inputs] == [InputState.CLEAN, InputState.NOT_DUMPED]
    assert "unless it came from targets or other tensors without gradients" in found.sentence


def test_a_part_of_a_bias_is_zero_as_the_bias_is(analyse: Analyse, tmp_path: Path) -> None:
    # The bias of queries, keys and values, split at places that constants give.
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("in_proj_bias", (6,)).constant("cst1", "Default--data-1")
    writer.graph(graph.operator("Default/Split-op1", inputs=("in_proj_bias", "cst1"), shape=(2,)))
    writer.tensor(0, "Parameter.in_proj_bias", np.zeros(6, np.float32))
    writer.tensor(0, "Split.Split-op1", np.int64(3), io="input", slot=1)
    writer.tensor(0, "Split.Split-op1", np.zeros(2, np.float32))
    assert origins(analyse(writer.root), [Anomaly.ALL_ZERO]) == []


def test_a_product_with_a_constant_that_nobody_saw_may_be_meant_to_be_zero(analyse: Analyse, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("x").constant("cst1", "Default--data-1")
    graph = graph.operator("Default/Sub-op1", inputs=("x", "x")).operator("Default/Mul-op2", inputs=("1", "cst1"))
    writer.graph(graph)
    writer.tensor(0, "Sub.Sub-op1", [1.0, 2.0])
    writer.tensor(0, "Mul.Mul-op2", [0.0, 0.0])
    assert origins(analyse(writer.root), [Anomaly.ALL_ZERO]) == []
    writer.tensor(0, "Mul.Mul-op2", np.float32(3), io="input", slot=1)
    (found,) = origins(analyse(writer.root), [Anomaly.ALL_ZERO])
    assert found.operator == "Default/Mul-op2"


def test_a_mask_that_marks_nothing_makes_zeros_of_what_it_is_converted_to(analyse: Analyse, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("x").operator("Default/Equal-op1", inputs=("x", "x"))
    writer.graph(graph.operator("Gradients/Default/Grad_MaskedFill/Cast-op2", inputs=("1",)))
    writer.tensor(0, "Equal.Equal-op1", np.array([False, False]))
    writer.tensor(0, "Cast.Cast-op2", [0.0, 0.0])
    assert origins(analyse(writer.root), [Anomaly.ALL_ZERO]) == []
    writer.tensor(1, "Equal.Equal-op1", np.array([False, True]))
    writer.tensor(1, "Cast.Cast-op2", [0.0, 0.0])
    (found,) = origins(analyse(writer.root), [Anomaly.ALL_ZERO])
    assert (found.operator, found.address.iteration) == ("Gradients/Default/Grad_MaskedFill/Cast-op2", 1)


def test_the_operator_of_a_branch_is_named_in_a_dump_of_mindspore_2_0(
    analyse: Analyse, unpacked: Callable[[str], Path], planted: dict[str, Any]
) -> None:
    inf = planted["branching-2.0.0"]["planted"]["inf"]
    found = origins(analyse(unpacked("branching-2.0.0")))
    assert [origin.anomaly for origin in found if origin.anomaly is not Anomaly.NAN] == [Anomaly.INF], found
    first = found[0]
    assert (first.operator, first.address.iteration, first.certain) == (inf["operator"], inf["first_iteration"], True)
    assert first.user_frame is not None
    assert (first.user_frame.file, first.user_frame.line) == (inf["file"], inf["line"])


def test_nan_that_another_graph_is_given_has_gone_on(analyse: Analyse, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    outer = GraphWriter().parameter("x").operator("Default/Log-op1", inputs=("x",))
    outer = outer.operator("Default/ReduceSum-op2", inputs=("1",)).operator("Default/Greater-op3", inputs=("2",))
    writer.graph(outer.operator("Default/MakeTuple-op4", inputs=("1", "3")))
    branch = GraphWriter("kernel_graph_1", "1").parameter("▸h").operator("Default/Mul-op5", inputs=("▸h",))
    writer.graph(branch, graph_id=1)
    writer.tensor(0, "Parameter.x", [-1.0, 2.0])
    writer.tensor(0, "Log.Log-op1", [np.nan, 0.5])
    writer.tensor(0, "ReduceSum.ReduceSum-op2", [np.nan, np.nan])
    writer.tensor(0, "Greater.Greater-op3", np.array([False]))
    writer.tensor(0, "Mul.Mul-op5", [np.nan, 1.0], graph_id=1)
    (found,) = origins(analyse(writer.root), [Anomaly.NAN])
    assert (found.operator, found.certain) == ("Default/Log-op1", True)


def told(analysis: Analysis, *kinds: Anomaly, **options: Any) -> list[tuple[str, str]]:
    return [(origin.anomaly.value, origin.operator) for origin in origins(analysis, kinds or KINDS, **options)]


def test_a_large_constant_is_an_origin_only_of_nan_and_inf_that_follow_from_it(
    analyse: Analyse, tmp_path: Path
) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("x").constant("cst1", "Default--data-1")
    graph = graph.operator("Default/Mul-op1", inputs=("x", "cst1")).operator("Default/Square-op2", inputs=("1",))
    writer.graph(graph.operator("Default/Add-op3", inputs=("x", "x")))
    writer.tensor(0, "Parameter.x", [1.0, 2.0])
    writer.tensor(0, "Mul.Mul-op1", np.float32(1e10), io="input", slot=1)
    writer.tensor(0, "Mul.Mul-op1", [1e10, 2e10])
    assert told(analyse(writer.root)) == []
    writer.tensor(0, "Add.Add-op3", [1e7, 2e7])
    assert told(analyse(writer.root)) == [("explosion", "Default/Add-op3")]
    writer.tensor(0, "Square.Square-op2", [np.inf, 1.0])
    assert told(analyse(writer.root)) == [("explosion", "Default--data-1"), ("inf", "Default/Square-op2")]


def test_where_watchpoints_hit_only_what_they_follow_from_is_told(analyse: Analyse, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("x").operator("Default/Mul-op1", inputs=("x", "x"))
    graph = graph.operator("Default/ReLU-op2", inputs=("x",)).operator("Default/ReLU-op3", inputs=("x",))
    writer.graph(graph.operator("Default/Add-op4", inputs=("3", "x")).operator("Default/Log-op5", inputs=("4",)))
    for step in range(2):
        writer.tensor(step, "Parameter.x", [1.0, 2.0])
        writer.tensor(step, "Mul.Mul-op1", [1e7, 1e7])
        writer.tensor(step, "ReLU.ReLU-op2", [0.0, 0.0])
        writer.tensor(step, "ReLU.ReLU-op3", [0.0, 0.0])
    writer.tensor(1, "Log.Log-op5", [np.nan, 1.0])
    nan, explosion = ("nan", "Default/Log-op5"), ("explosion", "Default/Mul-op1")
    analysis = analyse(writer.root)
    assert told(analysis) == [nan, explosion, ("all_zero", "Default/ReLU-op2")]
    assert told(analysis, hits={}) == [nan]
    sum_of_zeros = Effect(0, "kernel_graph_0", "Default/Add-op4", 1)
    assert told(analysis, hits={Anomaly.ALL_ZERO: [sum_of_zeros]}) == [nan, ("all_zero", "Default/ReLU-op3")]
    product = Effect(0, "kernel_graph_0", "Default/Mul-op1", 1)
    assert told(analysis, hits={Anomaly.EXPLOSION: [product]}) == [explosion, nan]


def test_steps_that_were_not_dumped_before_an_origin_are_named(
    analyse: Analyse, dump_copy: Callable[[str], Path], planted: dict[str, Any]
) -> None:
    dump, first = dump_copy("sick-2.10.0"), planted["sick-2.10.0"]["planted"]["inf"]["first_iteration"]
    for folder in dump.glob(f"rank_0/*/*/{first - 1}"):
        shutil.rmtree(folder)
    found = one(analyse(dump), Anomaly.INF)
    assert (found.certain, found.unseen, found.is_older) == (True, (first - 1, first - 1), False)
    assert found.sentence.endswith(f"; step {first} was not observed, so it may have begun before")
    assert "began at" not in found.sentence


def test_a_line_that_mindspore_gives_for_several_calls_of_a_cell_is_uncertain(dump_210: Path, tmp_path: Path) -> None:
    dump = open_dump(str(dump_210))
    (graph,) = dump.graphs(0)
    of_network = [node for node in graph.operators if node.name.startswith("Default/network")]
    uncertain = {node.scope.rpartition("/")[2] for node in of_network if calls_with_same_line(graph, node) > 1}
    # The network calls both on two lines; the dead branch has a ReLU of its own.
    assert uncertain == {"relu-ReLU", "flatten-Flatten"}
    assert calls_with_same_line(graph, graph.node("Default/network-Loss/network-SickNetwork/relu-ReLU/ReLU-op1")) == 2
    dead = "Default/network-Loss/network-SickNetwork/dead-DeadBranch/relu-ReLU/ReLU-op0"
    assert calls_with_same_line(graph, graph.node(dead)) == 1
    (origin,) = origins(Analysis(dump, cache_dir=tmp_path), [Anomaly.ALL_ZERO])
    assert (origin.operator, origin.calls_with_same_line) == (dead, 1)
    assert "another" not in origin.sentence
    assert "may be the line of another" in replace(origin, calls_with_same_line=2).sentence
