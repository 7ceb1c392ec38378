from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensight.errors import GraphError
from tensight.graph import (
    Edge,
    EdgeKind,
    Graph,
    OutputSlot,
    data_type_name,
    numpy_dtype_name,
    parse_graph,
    parse_graph_proto,
)
from tensight.graph import ms_graph_pb2 as pb
from tests.graph.graphs import names, parsed

if TYPE_CHECKING:
    from pathlib import Path


def graph_of(dump: Path, number: int = 0) -> Graph:
    path = dump / "rank_0" / "graphs" / f"ms_output_trace_code_graph_{number}.pb"
    return parse_graph(path.read_bytes(), where=path.name)


def execution_order(dump: Path) -> list[str]:
    path = dump / "rank_0" / "execution_order" / "ms_execution_order_graph_0.csv"
    return path.read_text().splitlines()[1:]


class TestRealGraphs:
    def test_both_spellings_of_the_graphs_name_give_its_number(self, dump_200: Path, dump_210_second: Path) -> None:
        assert [(graph.name, graph.graph_id, graph.root_id) for graph in (graph_of(dump_200),)] == [
            ("kernel_graph_0", 0, 0)
        ]
        last = graph_of(dump_210_second, 5)
        assert (last.name, last.graph_id) == ("kernel_graph5", 5)

    def test_every_input_leads_to_a_node(self, dump_200: Path, dump_210: Path, dump_210_second: Path) -> None:
        for graph in (graph_of(dump_200), graph_of(dump_210), *(graph_of(dump_210_second, i) for i in range(6))):
            assert graph.problems == ()
            assert all(edge.source in graph for node in graph.nodes for edge in node.inputs)

    def test_executed_operators_are_in_the_graph(self, dump_200: Path) -> None:
        graph = graph_of(dump_200)

        assert [name for name in execution_order(dump_200) if name not in graph] == []

    def test_constants_have_the_names_of_their_generation(self, dump_200: Path, dump_210: Path) -> None:
        assert graph_of(dump_200).constants[0].name == "Default--data-0"
        assert graph_of(dump_210).constants[0].name == "Default_data-0"
        assert graph_of(dump_210).constants[0].id == "cst1"

    def test_planted_operators_lead_to_their_lines(
        self, dump_200: Path, dump_210: Path, planted: dict[str, Any]
    ) -> None:
        for name, dump in (("sick-2.0.0", dump_200), ("sick-2.10.0", dump_210)):
            graph = graph_of(dump)
            for sickness in ("inf", "nan", "dead_relu", "exploding_gradient"):
                expected = planted[name]["planted"][sickness]
                node = graph.node(expected["operator"])
                assert node.type == expected["op_type"]
                assert (expected["file"], expected["line"]) in [(frame.file, frame.line) for frame in node.frames]
                assert node in graph.source_lines()[expected["file"], expected["line"]]

    def test_attributes_shapes_and_types_are_those_of_the_network(self, dump_210: Path) -> None:
        graph = graph_of(dump_210)
        convolution = next(node for node in graph.operators if node.type == "Conv2D")

        assert convolution.outputs == (OutputSlot(11, "float32", (4, 4, 6, 6)),)
        assert convolution.attributes["kernel_size"] == (3, 3)
        assert convolution.attributes["pad_mode"] == "valid"
        assert convolution.attributes["input_names"] == ["x", "w"]
        assert graph.node("momentum").outputs == (OutputSlot(11, "float32", ()),)

    def test_the_source_address_is_kept_to_the_letter(self, dump_200: Path) -> None:
        path = dump_200 / "rank_0" / "graphs" / "ms_output_trace_code_graph_0.pb"
        model = pb.ModelProto.FromString(path.read_bytes())

        written = [node.source_address.decode() for node in model.graph.node]
        assert [node.source_address for node in graph_of(dump_200).operators] == written

    def test_a_graph_that_was_sent_equals_the_one_in_the_file(self, dump_200: Path) -> None:
        path = dump_200 / "rank_0" / "graphs" / "ms_output_trace_code_graph_0.pb"
        sent = pb.ModelProto.FromString(path.read_bytes()).graph.SerializeToString()

        assert names(parse_graph_proto(sent, where="online").nodes) == names(graph_of(dump_200).nodes)


def small_model(**changes: Any) -> pb.GraphProto:
    model = pb.GraphProto(name=b"kernel_graph_7", root_name=b"3")
    model.parameters.add(name=b"x")
    model.const_vals.add(key=b"cst1", full_name=b"Default--data-0")
    first = model.node.add(name=b"1", op_type=b"ReLU", scope=b"Default", full_name=b"Default/ReLU-op1")
    first.input.add(name=b"x")
    second = model.node.add(name=b"2", op_type=b"Add", scope=b"Default", full_name=b"Default/Add-op2")
    second.input.add(name=b"1")
    second.input.add(name=b"cst1", type=1)
    for field, value in changes.items():
        setattr(model, field, value)
    return model


class TestOddGraphs:
    def test_control_edges_are_told_from_data(self) -> None:
        assert parsed(small_model()).node("Default/Add-op2").inputs == (
            Edge("Default/ReLU-op1"),
            Edge("Default--data-0", EdgeKind.CONTROL),
        )

    def test_a_sub_graph_knows_its_root(self) -> None:
        graph = parsed(small_model())

        assert (graph.graph_id, graph.root_id) == (7, 3)

    @pytest.mark.parametrize("name", [b"", b"main", "графѣ".encode(), b"\xff\xfe", b"9" * 5000 + b"x"])
    def test_a_graph_without_a_number_is_read_and_reported(self, name: bytes) -> None:
        graph = parsed(small_model(name=name))

        assert graph.graph_id == 3
        assert "does not end with its number" in str(graph.problems[0])

    def test_a_repeated_name_is_made_unique_and_reported(self) -> None:
        model = small_model()
        for number in (b"3", b"4"):
            model.node.add(name=number, op_type=b"ReLU", scope=b"Default", full_name=b"Default/ReLU-op1")
        graph = parsed(model)

        assert names(graph.operators)[2:] == ["Default/ReLU-op1#2", "Default/ReLU-op1#3"]
        assert graph.node("Default/ReLU-op1#2").full_name == "Default/ReLU-op1"
        assert [problem.what for problem in graph.problems] == ["several nodes have the name 'Default/ReLU-op1'"]

    def test_an_input_from_nowhere_is_reported(self) -> None:
        model = small_model()
        model.node[1].input.add(name=b"99")
        graph = parsed(model)

        assert [str(problem) for problem in graph.problems] == [
            "a.pb: an input refers to '99', which is not in the graph"
        ]
        assert names(graph.inputs(graph.node("Default/Add-op2"))) == ["Default/ReLU-op1", "Default--data-0"]

    def test_a_dangling_input_is_not_taken_for_a_node_of_that_name(self) -> None:
        model = small_model()
        model.node[1].input.add(name=b"Default--data-0")
        graph = parsed(model)

        assert graph.node("Default/Add-op2").inputs[2].source not in graph

    def test_an_input_may_refer_to_an_operator_further_down(self) -> None:
        model = small_model()
        model.node[0].input.add(name=b"2")

        assert parsed(model).node("Default/ReLU-op1").inputs == (Edge("x"), Edge("Default/Add-op2"))

    def test_an_operator_without_a_name_gets_one(self) -> None:
        model = small_model()
        model.node.add(name=b"8", op_type=b"Mul", scope=b"Default/a")
        model.node.add(name=b"9", op_type=b"Mul")

        assert names(parsed(model).operators)[2:] == ["Default/a/Mul-op8", "Mul-op9"]

    def test_thousands_of_problems_are_listed_in_short(self) -> None:
        model = small_model()
        for number in range(5000):
            model.node[1].input.add(name=b"missing%d" % number)
        problems = parsed(model).problems

        assert len(problems) == 21
        assert "4980 more" in problems[-1].what

    def test_bytes_that_are_no_text_stay_visible(self) -> None:
        model = small_model()
        model.node[0].source_address = b"# In file /p/\xff.py:3/  x/"

        assert parsed(model).node("Default/ReLU-op1").frames[0].file == "/p/\\xff.py"

    @pytest.mark.parametrize(
        ("sizes", "shape"),
        [
            ((), ()),
            ((2, -1), (2, -1)),
            ((-2,), None),
            ((0, 3), (0, 3)),
            ((2**62, 2**62), (2**62, 2**62)),
            ((1,) * 65, None),
        ],
    )
    def test_absurd_shapes_count_as_unknown(self, sizes: tuple[int, ...], shape: tuple[int, ...] | None) -> None:
        declared = pb.TypeProto(data_type=14, tensor_type=pb.TypeProto.Tensor(elem_type=46))
        declared.tensor_type.shape.dim.extend(pb.TensorShapeProto.Dimension(size=size) for size in sizes)
        model = small_model()
        model.node[0].output_type = declared.SerializeToString()

        assert parsed(model).node("Default/ReLU-op1").outputs == (OutputSlot(46, "bfloat16", shape),)

    def test_a_tuple_is_one_slot_for_each_element(self) -> None:
        element = pb.TypeProto(data_type=14, tensor_type=pb.TypeProto.Tensor(elem_type=10))
        inner = pb.TypeProto(data_type=31, sequence_type=pb.TypeProto.Sequence(elem_types=[element, element]))
        outer = pb.TypeProto(data_type=31, sequence_type=pb.TypeProto.Sequence(elem_types=[inner, element]))
        model = small_model()
        model.node[0].output_type = outer.SerializeToString()

        assert parsed(model).node("Default/ReLU-op1").outputs == (OutputSlot(10, "float16", None),) * 3

    def test_an_unknown_data_type_keeps_its_number(self) -> None:
        declared = pb.TypeProto(data_type=14, tensor_type=pb.TypeProto.Tensor(elem_type=77))
        model = small_model()
        model.node[0].output_type = declared.SerializeToString()
        slot = parsed(model).node("Default/ReLU-op1").outputs[0]

        assert (slot.data_type, slot.dtype) == (77, "")
        assert data_type_name(77) == "DT_UNKNOWN_77"

    def test_a_graph_in_two_pieces_is_merged_as_protobuf_merges(self) -> None:
        first, second = small_model(), pb.GraphProto(name=b"kernel_graph_8")
        second.node.add(name=b"5", op_type=b"Mul", full_name=b"Mul-op5").input.add(name=b"2")
        data = pb.ModelProto(graph=first).SerializeToString() + pb.ModelProto(graph=second).SerializeToString()
        graph = parse_graph(data, where="a.pb")

        assert (graph.graph_id, names(graph.operators)[-1]) == (8, "Mul-op5")


@pytest.mark.parametrize(
    ("number", "name", "dtype"),
    [
        (0, "DT_UNDEFINED", ""),
        (1, "DT_BOOL", "bool"),
        (5, "DT_INT64", "int64"),
        (10, "DT_FLOAT16", "float16"),
        (11, "DT_FLOAT32", "float32"),
        (14, "DT_TENSOR", ""),
        (27, "DT_FLOATS64", ""),
        (31, "DT_TUPLE", ""),
        (40, "DT_ANY", ""),
        (44, "DT_IOMONAD", ""),
        (46, "DT_BFLOAT16", "bfloat16"),
        (1843, "DT_FLOAT8_E4M3FN", "float8_e4m3fn"),
        (1852, "DT_FLOAT8_E5M2", "float8_e5m2"),
        (48, "DT_INT4", "int4"),
        (49, "DT_SLICE", ""),
        (-1, "DT_UNKNOWN_-1", ""),
    ],
)
def test_data_types_have_names(number: int, name: str, dtype: str) -> None:
    assert (data_type_name(number), numpy_dtype_name(number)) == (name, dtype)


class TestBadFiles:
    @pytest.mark.parametrize(
        "data",
        [b"", b"\x08\x01", b"garbage that is no protobuf", b"\x22\xff\xff\xff\xff\x0f", b"PK\x03\x04", b"\x00" * 100],
    )
    def test_what_is_no_graph_file_is_refused_by_name(self, data: bytes) -> None:
        with pytest.raises(GraphError, match=r"^some/a\.pb: "):
            parse_graph(data, where="some/a.pb")

    def test_nothing_sent_is_no_graph(self) -> None:
        with pytest.raises(GraphError, match="empty"):
            parse_graph_proto(b"", where="online")

    def test_every_truncation_of_a_real_file_is_noticed(self, dump_200: Path) -> None:
        data = (dump_200 / "rank_0" / "graphs" / "ms_output_trace_code_graph_0.pb").read_bytes()
        for end in range(3, len(data), 997):
            with pytest.raises(GraphError):
                parse_graph(data[:end], where="a.pb")

    @given(st.binary(max_size=400), st.booleans())
    def test_any_bytes_give_a_graph_or_a_graph_error(self, data: bytes, wrapped: bool) -> None:
        use_all_of(b"\x22" + length(data) + data if wrapped else data)

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
    @given(data=st.data())
    def test_a_damaged_real_file_gives_a_graph_or_a_graph_error(
        self, dump_210_second: Path, data: st.DataObject
    ) -> None:
        path = dump_210_second / "rank_0" / "graphs" / "ms_output_trace_code_graph_4.pb"
        content = bytearray(path.read_bytes())
        damages = data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=12))
        for position, value in damages:
            content[position] = value
        use_all_of(bytes(content))

    def test_types_nested_beyond_reason_are_refused(self) -> None:
        declared = pb.TypeProto(data_type=31).SerializeToString()
        for _ in range(500):
            sequence = b"\x0a" + length(declared) + declared
            declared = b"\x1a" + length(sequence) + sequence
        model = small_model()
        model.node[0].output_type = declared

        with pytest.raises(GraphError, match="damaged"):
            parsed(model)


def length(data: bytes) -> bytes:
    number, encoded = len(data), bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def use_all_of(data: bytes) -> None:
    """Ask a graph everything; only a GraphError may stop it."""
    from tensight.graph import kinds, search, trainable_weights

    try:
        graph = parse_graph(data, where="a.pb")
    except GraphError:
        return
    for node in graph.nodes:
        assert graph.node(node.name) is node
        _ = node.frames, dict(node.attributes), node.value, str(node)
        assert len(graph.producers(node)) == len(node.inputs)
        _ = graph.flat_producers(node), graph.neighbours(node, 3), graph.consumers(node, 0), kinds(graph, node)
    _ = trainable_weights(graph), search(graph, "a", by="stack"), list(graph.scopes.walk()), graph.source_lines()


def test_importing_graphs_loads_none_of_the_heavy_libraries() -> None:
    code = "import sys, tensight.graph; print([m for m in sys.modules if m in sys.argv])"
    heavy = ["pyarrow", "duckdb", "fsspec", "rich", "typer", "openpyxl"]
    run = subprocess.run([sys.executable, "-c", code, *heavy], check=True, capture_output=True, text=True)

    assert run.stdout.strip() == "[]"
