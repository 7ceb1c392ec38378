"""Parameters of several graphs, as two networks with two optimizers have them, and tuples that are handed on."""

from __future__ import annotations

from tensight.agents.mindspore.parameter_names import ParameterNames
from tensight.agents.mindspore.written_graphs import link_tuples
from tensight.graph import Graph, parse_graph_proto
from tensight.graph import ms_graph_pb2 as pb
from tensight.graph.data_types import DT_TENSOR

_FLOAT32 = 11


def tensor(*shape: int) -> pb.TypeProto:
    kind = pb.TypeProto(data_type=DT_TENSOR)
    kind.tensor_type.elem_type = _FLOAT32
    for length in shape:
        kind.tensor_type.shape.dim.add(size=length)
    return kind


def tuple_of(length: int) -> bytes:
    kind = pb.TypeProto()
    for _ in range(length):
        kind.sequence_type.elem_types.add(data_type=DT_TENSOR).tensor_type.elem_type = _FLOAT32
    return kind.SerializeToString()


def graph(
    number: int, operators: dict[str, tuple[str, tuple[str, ...]]], given: int = 0, indices: int = 0
) -> pb.GraphProto:
    """Return a graph: names of operators, each with its type and inputs; all else that is read is a parameter."""
    message = pb.GraphProto(name=b"kernel_graph%d" % number, root_name=b"%d" % number)
    known = set(operators) | {f"index{place}" for place in range(indices)}
    for name in dict.fromkeys(one for _, inputs in operators.values() for one in inputs if one not in known):
        kind = tuple_of(given) if name == "success" else tensor(4, 4).SerializeToString()
        message.parameters.add(name=name.encode(), type=kind)
    for place in range(indices):
        value = pb.ValueProto(dtype=5, int_val=place).SerializeToString()
        message.const_vals.add(key=b"index%d" % place, value=value)
    for name, (kind, inputs) in operators.items():
        node = message.node.add(name=name.encode(), op_type=kind.encode(), full_name=f"Default/{name}".encode())
        node.output_type = tensor(4, 4).SerializeToString()
        for one in inputs:
            node.input.add(name=one.encode())
    return message


def read(message: pb.GraphProto) -> Graph:
    return parse_graph_proto(message.SerializeToString(), where="here")


def optimizer(number: int, weight: str) -> pb.GraphProto:
    reads = (f"net.{weight}", f"moments.net.{weight}", "learning_rate", "gradient", "momentum")
    operators = {
        "whole": ("MakeTuple", ("success", "success")),
        "gradient": ("TupleGetItem", ("whole", "index1")),
        "update": ("ApplyMomentum", reads),
        "count": ("AssignAdd", ("global_step", "whole")),
    }
    return graph(number, operators, given=2, indices=2)


def test_states_of_two_optimizers_and_what_they_are_given_are_different_tensors() -> None:
    names = ParameterNames()
    first, second, again = (optimizer(number, weight) for number, weight in enumerate(("one", "two", "one")))
    own = names.names_of(read(first))
    assert own == {name: name for name in own}
    other = names.names_of(read(second))
    assert other["net.two"] == "net.two"
    assert (other["learning_rate"], other["momentum"]) == ("learning_rate#2", "momentum#2")
    assert other["success"] == "success#2"
    assert names.names_of(read(again)) == own


def test_what_networks_are_given_is_told_apart_by_who_reads_it() -> None:
    names = ParameterNames()
    training = {
        "layer": ("MatMul", ("args0", "net.one")),
        "out": ("MatMul", ("layer", "net.two")),
        "back": ("MatMul", ("args0", "out")),
    }
    evaluation = {name: training[name] for name in ("layer", "out")}
    another = {"layer": ("MatMul", ("args0", "critic.one"))}
    assert names.names_of(read(graph(0, evaluation)))["args0"] == "args0"
    assert names.names_of(read(graph(1, another)))["args0"] == "args0#2"
    assert names.names_of(read(graph(2, training)))["args0"] == "args0"
    assert names.names_of(read(graph(3, another)))["args0"] == "args0#2"


def test_a_tuple_that_is_handed_on_is_what_others_put_out() -> None:
    whole = optimizer(0, "one")
    given = read(whole)
    assert given.flat_producers(given.node("Default/update"))[3] == (given.node("success"), 1)
    assert given.flat_producers(given.node("Default/count"))[1:] == (
        (given.node("success"), 0),
        (given.node("success"), 1),
    )
    whole.node.add(name=b"back", op_type=b"MatMul", full_name=b"Gradients/MatMul-op0").input.add(name=b"net.one")
    linked = link_tuples(whole.SerializeToString(), {"success": (("net.one", 0), ("Gradients/MatMul-op0", 0))})
    shown = parse_graph_proto(linked, where="here")
    assert not shown.problems
    assert "success" not in shown
    producers = shown.flat_producers(shown.node("Default/update"))
    assert producers[3] == (shown.node("Gradients/MatMul-op0"), 0)
    counted = [producer and producer[0].name for producer in shown.flat_producers(shown.node("Default/count"))]
    assert counted == ["global_step", "net.one", "Gradients/MatMul-op0"]


def test_of_a_tuple_that_is_handed_on_in_parts_the_rest_comes_from_outside() -> None:
    whole = optimizer(0, "one")
    linked = link_tuples(whole.SerializeToString(), {"success": (("net.one", 0), ("success", 1))})
    shown = parse_graph_proto(linked, where="here")
    assert not shown.problems
    assert shown.flat_producers(shown.node("Default/update"))[3] == (shown.node("success"), 1)
