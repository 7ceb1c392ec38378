"""Dumps that msprobe wrote, read as runs: `fixtures/msprobe-26.2.tar.xz`."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.analysis import Analysis, check, origins
from tensight.analysis.recorded_statistics import BOUNDED
from tensight.dumps import Dump, open_dump, read_tensor, tensor_header
from tensight.dumps.msprobe.entries import MAX_NAME, read_step
from tensight.dumps.msprobe.program import Names, build_program, tensors_in_slots
from tensight.errors import DumpError, Problem, TensorFileError
from tensight.graph import kinds, search
from tensight.graph.layers import graph_layers
from tensight.graph.optimizers import parameter_roles
from tensight.watchpoints import Selector, Watchpoint, parse_check

if TYPE_CHECKING:
    from tensight.analysis.statistics_table import StatisticsTable
    from tensight.graph import Graph

NAN, INF = float("nan"), float("inf")


def producers(graph: Graph, name: str) -> list[tuple[str, int]]:
    return [(one[0].name, one[1]) for one in graph.flat_producers(graph.node(name)) if one is not None]


def tensor(*shape: int, dtype: str = "torch.float32", **more: Any) -> dict[str, Any]:
    return {"type": "torch.Tensor", "dtype": dtype, "shape": list(shape), **more}


def measured(largest: Any, smallest: Any, mean: Any, norm: Any, *shape: int, **more: Any) -> dict[str, Any]:
    return tensor(*(shape or (4,)), Max=largest, Min=smallest, Mean=mean, Norm=norm, **more)


def write(folder: Path, data: Any, step: int = 0, rank: str = "rank0", **top: Any) -> Path:
    """Write one step as msprobe does; return the folder of the dump."""
    own = folder / f"step{step}" / rank
    own.mkdir(parents=True)
    (own / "dump.json").write_text(json.dumps({"task": "statistics", "framework": "pytorch", **top, "data": data}))
    return folder


def only_graph(dump: Dump) -> Graph:
    [graph] = dump.graphs(dump.ranks[0])
    assert dump.problems == []
    return graph


# --- what is found ---


@pytest.mark.parametrize(
    ("name", "ranks", "tool"),
    [("mix", (0,), "msprobe"), ("L1-statistics", (0,), "msprobe"), ("ranks", (0, 1), "msprobe")],
)
def test_a_dump_opens_by_its_folder_by_a_step_and_by_a_rank(
    dumps_of_msprobe: Path, name: str, ranks: tuple[int, ...], tool: str
) -> None:
    folder = dumps_of_msprobe / name
    dump = open_dump(folder)
    assert (dump.ranks, dump.iterations(), dump.metadata.tool) == (ranks, (0, 1, 2), tool)
    assert (dump.metadata.framework_name, dump.problems) == ("PyTorch", [])
    one = open_dump(folder / "step1")
    assert (one.ranks, one.iterations(), one.problems) == (ranks, (1,), [])
    own = open_dump(next((folder / "step1").iterdir()))
    assert (own.iterations(), own.problems) == ((1,), [])


def test_a_folder_with_several_dumps_of_msprobe_names_them(dumps_of_msprobe: Path) -> None:
    with pytest.raises(DumpError, match=r"holds 6 dumps(.|\n)*L1-statistics"):
        open_dump(dumps_of_msprobe)


def test_links_that_lead_out_of_the_dump_are_not_followed(dumps_of_msprobe: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    shutil.copytree(dumps_of_msprobe / "L1-statistics", dump)
    (dump / "step7").symlink_to(dumps_of_msprobe / "L1-statistics/step0")
    opened = open_dump(dump)
    assert opened.iterations() == (0, 1, 2)
    assert [problem.where for problem in opened.problems] == ["step7"]


def test_a_step_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"Torch.log.0.forward": {"output": [measured(1, 0, 0.5, 1.0)]}})
    write(tmp_path, {}, step=1)
    (tmp_path / "step1/rank0/dump.json").write_text('{"data": {"Torch')
    (tmp_path / "step2/rank0").mkdir(parents=True)
    dump = open_dump(tmp_path)
    assert dump.iterations() == (0,)
    problems = {problem.where: problem.what for problem in dump.problems}
    assert "not JSON" in problems["step1/rank0"]
    assert "has no dump.json" in problems["step2/rank0"]


# --- the graph ---


def test_modules_and_functions_are_joined_by_equal_data(dumps_of_msprobe: Path) -> None:
    graph = only_graph(open_dump(dumps_of_msprobe / "mix"))
    assert producers(graph, "Default/energy/log-op0") == [("Default/energy/mean-op0", 0)]
    # What a module has put out was computed in it.
    assert ("Default/energy/log-op0", 0) in producers(graph, "Default/energy/Energy-op0")
    assert producers(graph, "Default/head/3/linear-op1")[:3] == [
        ("Default/head/2/Dropout-op0", 0),
        ("head.3.weight", 0),
        ("head.3.bias", 0),
    ]
    gradient = "Gradients/Default/head/3/weight/AccumulateGrad-op0"
    assert producers(graph, gradient) == [("Gradients/Default/head/3/linearGrad-op1", 2)]
    updates = [node.name for node in graph.operators if node.name.startswith("Optimizer/")]
    assert len(updates) == 6
    assert (gradient, 0) in [source for update in updates for source in producers(graph, update)]
    assert parameter_roles(graph).trainable == {
        f"{module}.{kind}" for module in ("conv", "head.0", "head.3") for kind in ("weight", "bias")
    }
    assert {kind.value for kind in kinds(graph, graph.node(gradient))} == {"tensor", "gradient"}


def test_cells_of_mindspore_are_read_like_modules(cells_of_msprobe: Path) -> None:
    dump = open_dump(cells_of_msprobe)
    graph = only_graph(dump)
    assert (dump.metadata.framework_name, dump.iterations()) == ("MindSpore", (0, 1))
    # The cell and the primitive in it are both called ReLU.
    assert producers(graph, "Default/relu/ReLU-op0") == [
        ("Default/first/Dense-op0", 0),
        ("Default/relu/Primitive.ReLU-op0", 0),
    ]
    assert producers(graph, "Default/last/MatMul-op1") == [("Default/relu/ReLU-op0", 0), ("last.weight", 0)]
    assert parameter_roles(graph).trainable == {"first.weight", "first.bias", "last.weight", "last.bias"}
    np.testing.assert_array_equal(
        read_tensor(dump.find("Default/last/MatMul-op1:input.1@2")), read_tensor(dump.find("last.weight@2"))
    )
    assert [(one.anomaly.value, one.operator) for one in origins(Analysis(dump))] == [
        ("inf", "Default/log-op0"),
        ("nan", "Default/last/MatMul-op1"),
    ]


def test_levels_call_a_module_by_one_name(dumps_of_msprobe: Path) -> None:
    names = [
        {node.name for node in only_graph(open_dump(dumps_of_msprobe / name)).operators if node.type != "TupleGetItem"}
        for name in ("L0", "mix")
    ]
    assert names[0] < names[1]


def test_a_gradient_that_no_call_has_put_out_is_computed_from_what_its_module_read(dumps_of_msprobe: Path) -> None:
    graph = only_graph(open_dump(dumps_of_msprobe / "L0"))
    assert producers(graph, "Gradients/Default/head/0/weight/AccumulateGrad-op0") == [
        ("input_2", 0),
        ("Gradients/Default/head/1/ReLUGrad-op0", 0),
    ]


def test_calls_of_several_kinds_with_one_name_are_kept_apart(tmp_path: Path) -> None:
    calls = ("Functional.relu.0", "Torch.relu.0", "Primitive.a.relu.0", "Primitive.b.relu.0", "Primitive.c.relu.0")
    graph = only_graph(open_dump(write(tmp_path, {f"{call}.forward": {} for call in calls})))
    assert [node.full_name for node in graph.operators] == [f"{call}.forward" for call in calls]
    assert {node.type for node in graph.operators} == {"relu"}


def test_a_module_call_has_the_line_that_made_it(dumps_of_msprobe: Path) -> None:
    graph = only_graph(open_dump(dumps_of_msprobe / "L0"))
    [frame] = [one for one in graph.node("Default/energy/Energy-op0").frames if "msprobe_network" in one.file][:1]
    assert (frame.line, frame.code) == (41, "return self.head(torch.cat((seen, self.energy(pictures)), 1))")
    assert "Default/energy/Energy-op0" in {node.name for node in search(graph, "self.energy", by="stack")}


def test_an_input_that_nothing_is_known_to_have_computed_is_an_input_of_the_step(tmp_path: Path) -> None:
    data = {
        "Torch.log.0.forward": {"input_args": [measured(3.5, 1.25, 2.0, 4.5)], "output": [measured(1, 0.5, 0.7, 1.5)]},
        "Torch.exp.0.forward": {"input_args": [measured(9.5, 8.25, 9.0, 18.5)], "output": [measured(7, 5, 6, 12.5)]},
    }
    graph = only_graph(open_dump(write(tmp_path, data)))
    assert producers(graph, "Default/log-op0") == [("input_1", 0)]
    assert producers(graph, "Default/exp-op0") == [("input_2", 0)]


def test_constants_that_are_equal_by_chance_are_not_joined(tmp_path: Path) -> None:
    zeros = measured(0, 0, 0, 0)
    data = {
        "Torch.sin.0.forward": {"input_args": [measured(3.5, 1.25, 2.0, 4.5)], "output": [zeros]},
        "Torch.cos.0.forward": {"input_args": [measured(9.5, 8.25, 9.0, 18.5)], "output": [zeros]},
        "Torch.tan.0.forward": {"input_args": [zeros], "output": [zeros]},
    }
    graph = only_graph(open_dump(write(tmp_path, data)))
    assert producers(graph, "Default/tan-op0") == [("input_3", 0)]


def test_what_is_equal_in_one_step_only_is_not_joined(tmp_path: Path) -> None:
    def data(read: float) -> dict[str, Any]:
        return {
            "Torch.sin.0.forward": {"input_args": [], "output": [measured(3.5, 1.25, 2.0, 4.5)]},
            "Torch.tan.0.forward": {"input_args": [measured(read, 1.25, 2.0, 4.5)], "output": []},
        }

    write(tmp_path / "equal", data(3.5))
    assert producers(only_graph(open_dump(tmp_path / "equal")), "Default/tan-op0") == [("Default/sin-op0", 0)]
    write(tmp_path / "apart", data(3.5))
    write(tmp_path / "apart", data(3.6), step=1)
    assert producers(only_graph(open_dump(tmp_path / "apart")), "Default/tan-op0") == [("input_1", 0)]


def test_steps_with_other_calls_are_other_graphs(tmp_path: Path) -> None:
    write(tmp_path, {"Torch.sin.0.forward": {"output": [measured(1, 0, 0.5, 1.0)]}})
    write(tmp_path, {"Torch.cos.0.forward": {"output": [measured(1, 0, 0.5, 1.0)]}}, step=4)
    dump = open_dump(tmp_path)
    assert [graph.name for graph in dump.graphs(0)] == ["graph_0", "graph_1"]
    assert [dump.iterations(0, number) for number in dump.graph_ids(0)] == [(0,), (4,)]


# --- statistics ---


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (measured(2.0, -1.0, 0.5, 2.5), {"max": 2.0, "min": -1.0, "avg": 0.5, "l2norm": 2.5}),
        (
            measured(2.0, -1.0, 0.5, 2.5, md5="1f00"),
            {"max": 2.0, "min": -1.0, "avg": 0.5, "l2norm": 2.5, "md5": "1f00"},
        ),
        (measured("nan", "nan", "nan", "nan"), {"max": NAN, "min": NAN, "l2norm": NAN}),
        # Sums of finite elements may overflow.
        (measured(60000.0, 1.0, INF, INF, dtype="torch.float16"), {"max": 60000.0, "min": 1.0}),
        # Squares of tiny elements vanish.
        (measured(1e-30, 0.0, 1e-31, 0.0), {"max": 1e-30, "min": 0.0, "avg": 1e-31}),
        (measured(INF, 0.0, INF, INF), {"max": INF, "min": 0.0}),
        (measured(True, False, None, None, dtype="torch.bool"), {"max": 1.0, "min": 0.0}),
        # Of complex numbers they are about magnitudes, of a scalar the norm is its value.
        (measured(2.0, 1.0, 1.5, 2.5, dtype="torch.complex64"), {}),
        ({**measured(-2.0, -2.0, -2.0, -2.0), "shape": []}, {"max": -2.0, "min": -2.0, "avg": -2.0, "l2norm": 2.0}),
        (measured(None, None, None, None), {}),
    ],
)
def test_statistics_say_no_more_than_msprobe_computed(
    tmp_path: Path, written: dict[str, Any], read: dict[str, Any]
) -> None:
    dump = open_dump(write(tmp_path, {"Torch.log.0.forward": {"output": [written]}}))
    [row] = dump.statistic_rows()
    assert {name: repr(value) for name, value in row.values.items()} == {k: repr(v) for k, v in read.items()}


def test_mindspore_casts_float64_before_it_computes(tmp_path: Path) -> None:
    data = {"Cell.net.Dense.forward.0": {"output": [measured(INF, -1.0, INF, INF, dtype="Float64")]}}
    [row] = open_dump(write(tmp_path, data, framework="mindspore")).statistic_rows()
    assert (row.data_type, dict(row.values)) == ("float64", {"min": -1.0})


def test_tensors_are_listed_in_the_order_of_execution(dumps_of_msprobe: Path) -> None:
    dump = open_dump(dumps_of_msprobe / "mix-md5")
    recorded = dump.recorded_tensors(iterations=[2])
    positions = [dump.execution_position(file) for file in recorded]
    assert positions == sorted(positions)
    assert {file.step for file in recorded} == {3}
    assert all(file.recorded is not None and "md5" in file.recorded.values for file in recorded)
    names = [file.node for file in recorded]
    assert names.index("Default/conv/conv2d-op0") < names.index("Default/energy/log-op0") < names.index("conv.weight")


# --- values ---


def test_values_are_read_where_they_lie_in_the_files_of_pytorch(dumps_of_msprobe: Path) -> None:
    dump = open_dump(dumps_of_msprobe / "mix")
    assert dump.recorded_tensors() == []
    files = dump.tensors(iterations=[2])
    for file in files:
        header = tensor_header(file)
        assert (header.dtype.name, header.offset % 64) == (file.declared_dtype, 0)
    energy = read_tensor(dump.find("Default/energy/mean-op0:0@3"))
    logarithm = read_tensor(dump.find("Default/energy/log-op0:0@3"))
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(logarithm, np.log(energy), rtol=1e-6)
    assert (logarithm.shape, int(np.isneginf(logarithm).sum())) == ((2, 8), 1)


def test_what_msprobe_computed_bounds_the_statistics_of_the_values(dumps_of_msprobe: Path) -> None:
    def table(name: str) -> StatisticsTable:
        return Analysis(open_dump(dumps_of_msprobe / name)).statistics()

    read = table("mix")
    told = table("mix-md5")
    rows = {(file.node, file.io, file.slot, file.step): row for row, file in enumerate(read.files)}
    compared = 0
    for row, file in enumerate(told.files):
        other = rows[file.node, file.io, file.slot, file.step]
        # msprobe adds up in float32, so that a mean is as exact as the largest elements are.
        reach = np.nanmax([0.0, *(abs(read.bounds(name)[0][other]) for name in ("min", "max"))])
        for name in BOUNDED:
            low, high = (side[row] for side in told.bounds(name))
            value = read.bounds(name)[0][other]
            compared += 1
            slack = 1e-6 * reach + 1e-5 * abs(value)
            assert np.isnan(value) or low - slack <= value <= high + slack, (file.node, file.io, file.slot, name)
    assert compared > 3_000


def test_a_pickle_that_would_run_code_is_refused(dumps_of_msprobe: Path, tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "was here"),))

    dump = Path(shutil.copytree(dumps_of_msprobe / "mix", tmp_path / "dump"))
    victim = next(dump.glob("step0/*/dump_tensor_data/Torch.log.0.forward.output.0.pt"))
    with zipfile.ZipFile(victim, "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps(Runs()))
    file = open_dump(dump).find("Default/energy/log-op0:0@1")
    with pytest.raises(TensorFileError, match=r"mkdir"):
        read_tensor(file)
    assert not (tmp_path / "was here").exists()


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "gone"])
def test_a_damaged_file_of_values_is_an_error_of_its_own(dumps_of_msprobe: Path, tmp_path: Path, damage: str) -> None:
    dump = Path(shutil.copytree(dumps_of_msprobe / "L0", tmp_path / "dump"))
    victim = next(dump.glob("step0/*/dump_tensor_data/Module.conv.Conv2d.forward.0.output.0.pt"))
    content = victim.read_bytes()
    victim.write_bytes(
        {"cut": content[: len(content) // 2], "empty": b"", "text": b"no tensor at all"}.get(damage, b"")
    )
    opened = open_dump(dump)
    if damage == "gone":
        victim.unlink()
        [recorded] = opened.recorded_tensors()
        assert (recorded.node, recorded.step) == ("Default/conv/Conv2d-op0", 1)
        assert "missing" in opened.problems[0].what
    else:
        with pytest.raises(TensorFileError):
            read_tensor(opened.find("Default/conv/Conv2d-op0:0@1"))


# --- commands ---


@pytest.mark.parametrize("name", ["mix", "mix-md5"])
def test_the_first_inf_and_nan_are_found_with_their_lines(dumps_of_msprobe: Path, tensight: Any, name: str) -> None:
    outcome = tensight("origin", str(dumps_of_msprobe / name), "--json")
    found = {one["anomaly"]: one for one in json.loads(outcome.out)["origins"]}
    assert (found["inf"]["operator"], found["inf"]["step"]) == ("Default/energy/log-op0", 3)
    assert (found["nan"]["operator"], found["nan"]["step"]) == ("Default/head/2/dropout-op0", 3)
    assert found["inf"]["source"]["code"] == "return torch.log(energy)"
    # Everything after them follows from them.
    assert (found["inf"]["also"], found["nan"]["also"], len(found)) == ([], [], 2)


def test_a_tensor_is_shown_by_the_name_that_msprobe_gave_its_call(dumps_of_msprobe: Path, tensight: Any) -> None:
    values = tensight("show", str(dumps_of_msprobe / "mix"), "Torch.log.0.forward@3")
    assert "0/graph_0/Default/energy/log-op0:0@3" in values.out
    assert "-inf" in values.out
    recorded = tensight("show", str(dumps_of_msprobe / "mix-md5"), "Torch.log.0.forward@3")
    assert "Only statistics were recorded, in dump.json" in recorded.out
    # What the first call of the step read is there by itself.
    assert "float32, shape [2, 1, 8, 8]" in tensight("show", str(dumps_of_msprobe / "mix"), "input_1").out


def test_parameters_of_the_first_step_are_initial_weights(tmp_path: Path) -> None:
    zeros = measured(0, 0, 0, 0, requires_grad=True)
    data = {
        "Module.norm.LayerNorm.forward.0": {
            "input_args": [measured(3.5, 1.25, 2.0, 4.5)],
            "output": [measured(1, 0.5, 0.7, 1.5)],
            "parameters": {"bias": zeros, "weight": zeros},
        }
    }
    write(tmp_path, data)
    analysis = Analysis(open_dump(write(tmp_path, data, step=1)))

    def hits(condition: str, selector: str) -> set[tuple[str | None, int]]:
        watchpoint = Watchpoint(1, "", parse_check(condition), Selector.parse(selector))
        [result] = check(analysis, [watchpoint])
        return {(hit.tensor.node, hit.tensor.step) for hit in result.hits}

    weights = {"norm.bias", "norm.weight"}
    assert hits("tensor_all_zero(zero_percentage_ge=100)", "all") == {(name, 2) for name in weights}
    assert hits("weight_initialization(zero_percentage_ge=100)", "weights") == {(name, 1) for name in weights}


def test_what_an_in_place_call_reads_is_what_was_there_before(tmp_path: Path) -> None:
    moment, gradient = measured(0, 0, 0, 0), measured(3.5, 1.25, 2.0, 4.5)
    data = {
        "Tensor.mul_.0.forward": {"input_args": [moment, {"type": "float", "value": 0.9}], "output": [moment]},
        "Tensor.add_.0.forward": {"input_args": [moment, gradient], "output": [gradient]},
        "Tensor.log_.0.forward": {
            "input_args": [measured(NAN, NAN, NAN, NAN)],
            "output": [measured(NAN, NAN, NAN, NAN)],
        },
    }
    found = origins(Analysis(open_dump(write(tmp_path, data))))
    assert [(one.anomaly.value, one.operator, one.arrived) for one in found] == [("nan", "input_4", True)]


def test_comparing_runs_knows_inputs_that_an_unseen_call_has_computed(tmp_path: Path, tensight: Any) -> None:
    def run(name: str, shift: float) -> str:
        read = measured(3.5, 1.25, 2.0, 5.5)
        data = {
            "Torch.exp.0.forward": {"input_args": [read], "output": [measured(9.5 + shift, 1.0, 4.0 + shift, 11.0)]},
            "Torch.sin.0.forward": {
                "input_args": [measured(7.5 + shift, 0.5, 3.0 + shift, 9.0)],
                "output": [measured(6.5 + shift, 0.25, 2.5 + shift, 8.0)],
            },
        }
        return str(write(tmp_path / name, data))

    outcome = tensight("compare", "runs", run("a", 0.0), run("b", 0.5))
    assert outcome.code == 1
    assert "Default/exp-op0 (exp) is the first operator whose inputs agree" in outcome.out
    assert "Later operators" not in outcome.out


# --- bad input ---


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "not a JSON object"),
        (b'{"data": []}', "no object 'data'"),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_a_file_that_is_no_dump_is_refused_with_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(DumpError, match=reason):
        read_step(content, b"", b"", "step0/rank0", [])


def test_entries_of_unknown_form_are_counted_and_left_out(tmp_path: Path) -> None:
    data = {"what": {}, "Module.forward": 3, "Torch.log.0.forward": [], "Torch.sin.0.forward": {}, "x" * 9_000: {}}
    dump = open_dump(write(tmp_path, data))
    assert [node.name for node in dump.graphs(0)[0].operators] == ["Default/sin-op0"]
    assert sorted(problem.what.partition(":")[0] for problem in dump.problems) == [
        "1 entries are damaged",
        "3 entries have names of an unknown form",
    ]
    assert len(dump.graphs(0)[0].operators[0].name) < MAX_NAME


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("torch.float32")
_KEYS = st.text(max_size=4) | st.sampled_from(
    ("type", "dtype", "shape", "Max", "Min", "md5", "data_name", "value", "input_args", "output", "parameters")
)
_JSON = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4), max_leaves=5
)
_TENSORS = st.fixed_dictionaries(
    {"type": st.just("torch.Tensor"), "dtype": st.sampled_from(["torch.float32", "torch.int64", "Ä", ""])},
    optional={"shape": st.lists(st.integers(-1, 2**60), max_size=3), "Max": _LEAVES, "Min": _LEAVES, "Norm": _LEAVES},
)
_CALLS = st.fixed_dictionaries(
    {},
    optional={key: st.lists(_TENSORS | _JSON, max_size=3) | _JSON for key in ("input_args", "input", "output")}
    | {"parameters": st.dictionaries(st.text(max_size=3), _TENSORS, max_size=2) | _JSON},
)
_NAMES = st.sampled_from(
    [
        "Module.a.Linear.forward.0",
        "Module.a.Linear.backward.0",
        "Module.a.Linear.parameters_grad.0",
        "Module..forward.0",
        "Cell.B.forward.1",
        "Functional.relu.0.forward",
        "Functional.relu.0.backward",
        "Torch.relu.0.forward",
        "Tensor.__add__.0.forward",
        "a/b.c/d.0.forward",
        "\ud800.x.0.forward",
    ]
)
_PARENTS = st.dictionaries(_NAMES, _NAMES | st.just("optimizer") | _JSON, max_size=4)
_STACKS = st.dictionaries(st.sampled_from("01"), st.tuples(st.lists(_NAMES), st.lists(st.text(max_size=40))) | _JSON)


@settings(max_examples=settings().max_examples // 2)
@given(data=st.dictionaries(_NAMES, _CALLS, max_size=5), parents=_PARENTS | _JSON, stacks=_STACKS | _JSON)
def test_whatever_the_files_say_nothing_but_our_errors_is_raised(data: Any, parents: Any, stacks: Any) -> None:
    files = [json.dumps(content).encode() for content in ({"data": data}, parents, stacks)]
    problems: list[Problem] = []
    step = read_step(*files, where="step0/rank0", problems=problems)
    names = Names()
    program = build_program({0: step}, 0, names)
    graph = program.graph
    assert graph_layers(graph) is not None
    for node in graph.nodes:
        assert node.attributes is not None
        assert len(graph.producers(node)) == len(node.inputs)
    for tensor_in_slot in tensors_in_slots(step, names, program):
        assert tensor_in_slot.node_slot.node in graph
        str(tensor_in_slot).encode()
