from __future__ import annotations

import time

import pytest

from tensight.errors import InputError
from tensight.graph import Edge, EdgeKind, Graph, Node
from tensight.graph import ms_graph_pb2 as pb
from tests.graph.graphs import constant, graph, index, names, operator, parameter


def chain() -> Graph:
    return graph(
        parameter("x"),
        operator("a/ReLU-op1", "x"),
        operator("a/Mul-op2", "a/ReLU-op1", "x"),
        operator("b/Add-op3", "a/Mul-op2", "a/Mul-op2"),
        operator("b/Exp-op4", "b/Add-op3"),
    )


class TestNodes:
    def test_an_unknown_name_is_refused_with_similar_ones(self) -> None:
        with pytest.raises(InputError, match=r"no node 'a/ReLU-op7'; similar: a/ReLU-op1"):
            chain().node("a/ReLU-op7")
        with pytest.raises(InputError, match=r"similar: a/Mul-op2"):
            chain().node("wrong/scope/Mul-op2")

    def test_two_nodes_of_one_name_are_no_graph(self) -> None:
        with pytest.raises(InputError, match="unique"):
            graph(parameter("x"), parameter("x"))

    def test_the_short_name_has_no_scope(self) -> None:
        assert [node.short_name for node in chain().nodes[:2]] == ["x", "ReLU-op1"]


class TestNeighbours:
    def test_nearest_come_first(self) -> None:
        model = chain()
        middle = model.node("a/Mul-op2")

        assert names(model.neighbours(middle, 0)) == []
        assert names(model.neighbours(middle, 1)) == ["a/ReLU-op1", "x", "b/Add-op3"]
        assert names(model.neighbours(middle, 9)) == ["a/ReLU-op1", "x", "b/Add-op3", "b/Exp-op4"]

    def test_one_direction_only(self) -> None:
        model = chain()
        middle = model.node("a/Mul-op2")

        assert names(model.neighbours(middle, 9, "inputs")) == ["a/ReLU-op1", "x"]
        assert names(model.neighbours(middle, 9, "outputs")) == ["b/Add-op3", "b/Exp-op4"]

    def test_wrong_arguments_are_named(self) -> None:
        node = chain().node("x")
        with pytest.raises(InputError, match="hops is -1"):
            chain().neighbours(node, -1)
        with pytest.raises(InputError, match="'sideways'"):
            chain().neighbours(node, 1, "sideways")  # type: ignore[arg-type]

    def test_a_consumer_that_takes_a_value_twice_is_one(self) -> None:
        model = chain()

        assert names(model.consumers(model.node("a/Mul-op2"))) == ["b/Add-op3"]

    def test_consumers_of_one_output_only(self) -> None:
        model = graph(
            constant("zero", index(0)),
            constant("one", index(1)),
            operator("BatchNorm-op1", slots=2),
            operator("TupleGetItem-op2", "BatchNorm-op1", "zero"),
            operator("TupleGetItem-op3", "BatchNorm-op1", "one"),
            operator("Depend-op4", "BatchNorm-op1", "zero"),
        )
        batch_norm = model.node("BatchNorm-op1")

        assert names(model.consumers(batch_norm, 1)) == ["TupleGetItem-op3", "Depend-op4"]
        assert len(model.consumers(batch_norm)) == 3


def producers(model: Graph, name: str) -> list[tuple[str, int] | None]:
    return [found and (found[0].name, found[1]) for found in model.producers(model.node(name))]


def flat_producers(model: Graph, name: str) -> list[tuple[str, int] | None]:
    return [found and (found[0].name, found[1]) for found in model.flat_producers(model.node(name))]


class TestProducers:
    def test_virtual_operators_are_looked_through(self) -> None:
        model = graph(
            parameter("weight"),
            constant("monad"),
            constant("one", index(1)),
            operator("Load-op1", "weight", "monad"),
            operator("UpdateState-op2", "monad", "Load-op1"),
            operator("BatchNorm-op3", slots=5),
            operator("Depend-op4", "BatchNorm-op3", "UpdateState-op2"),
            operator("TupleGetItem-op5", "Depend-op4", "one"),
            operator("MakeTuple-op6", "Load-op1", "TupleGetItem-op5"),
            operator("TupleGetItem-op7", "MakeTuple-op6", "one"),
            operator("MatMul-op8", "TupleGetItem-op7", "Load-op1", "UpdateState-op2", "monad"),
            operator("Return-op9", "MatMul-op8"),
            operator("Switch-op10", "Return-op9"),
        )

        assert producers(model, "MatMul-op8") == [("BatchNorm-op3", 1), ("weight", 0), None, None]
        assert producers(model, "Switch-op10") == [("MatMul-op8", 0)]

    def test_a_call_of_another_graph_is_a_producer(self) -> None:
        model = graph(operator("Partial-op1"), operator("call-op2", "Partial-op1"), operator("ReLU-op3", "call-op2"))

        assert producers(model, "ReLU-op3") == [("call-op2", 0)]

    def test_an_index_known_only_at_run_time_stops_the_way(self) -> None:
        model = graph(
            operator("Split-op1", slots=2),
            operator("Argmax-op2"),
            operator("TupleGetItem-op3", "Split-op1", "Argmax-op2"),
            operator("ReLU-op4", "TupleGetItem-op3"),
        )

        assert producers(model, "ReLU-op4") == [("TupleGetItem-op3", 0)]

    def test_a_monad_is_known_by_its_type_too(self) -> None:
        model = graph(constant("u", pb.ValueProto(dtype=43)), operator("Assign-op1", "u"))

        assert producers(model, "Assign-op1") == [None]

    def test_a_constant_without_a_value_is_no_monad(self) -> None:
        model = graph(constant("scale"), operator("Mul-op1", "scale"))

        assert producers(model, "Mul-op1") == [("scale", 0)]

    def test_control_and_dangling_inputs_carry_no_value(self) -> None:
        node = Node("ReLU-op2", "ReLU", inputs=(Edge("Mul-op1", EdgeKind.CONTROL), Edge("gone")))
        model = graph(operator("Mul-op1"), node)

        assert producers(model, "ReLU-op2") == flat_producers(model, "ReLU-op2") == [None, None]

    def test_a_whole_tuple_counts_slot_by_slot_when_flat(self) -> None:
        model = graph(
            operator("Exp-op1"),
            operator("Log-op2"),
            operator("MakeTuple-op3", "Exp-op1", "Log-op2"),
            operator("MakeTuple-op4", "MakeTuple-op3", "Exp-op1"),
            operator("Concat-op5", "MakeTuple-op4", "Log-op2"),
        )

        assert producers(model, "Concat-op5") == [("MakeTuple-op4", 0), ("Log-op2", 0)]
        assert flat_producers(model, "Concat-op5") == [
            (name, 0) for name in ("Exp-op1", "Log-op2", "Exp-op1", "Log-op2")
        ]


class TestDamagedGraphs:
    def test_cycles_end(self) -> None:
        model = graph(
            constant("zero", index(0)),
            operator("Depend-op1", "Depend-op2"),
            operator("Depend-op2", "Depend-op1"),
            operator("MakeTuple-op3", "MakeTuple-op3", "TupleGetItem-op4"),
            operator("TupleGetItem-op4", "TupleGetItem-op4", "zero"),
            operator("TupleGetItem-op5", "MakeTuple-op3", "zero"),
            operator("ReLU-op6", "Depend-op1", "MakeTuple-op3", "TupleGetItem-op5"),
        )
        node = model.node("ReLU-op6")

        assert all(found is not None for found in model.producers(node))
        assert len(model.flat_producers(node)) >= 3
        assert len(model.neighbours(node, 99)) == 6

    def test_operators_without_their_inputs_are_opaque(self) -> None:
        model = graph(
            operator("Load-op1"), operator("TupleGetItem-op2"), operator("Add-op3", "Load-op1", "TupleGetItem-op2")
        )

        assert producers(model, "Add-op3") == [("Load-op1", 0), ("TupleGetItem-op2", 0)]

    def test_tuples_that_double_again_and_again_are_not_flattened(self) -> None:
        tuples = [operator("MakeTuple-op0")]
        tuples += [operator(f"MakeTuple-op{n}", *(f"MakeTuple-op{n - 1}",) * 8) for n in range(1, 15)]
        model = graph(*tuples, operator("Concat-op99", "MakeTuple-op14"))

        start = time.perf_counter()
        assert flat_producers(model, "Concat-op99") == [("MakeTuple-op14", 0)]
        assert time.perf_counter() - start < 5

    def test_long_chains_are_followed_once(self) -> None:
        length = 20_000
        nodes = [operator("Exp-op0"), operator("Depend-op1", "Exp-op0")]
        nodes += [operator(f"Depend-op{n}", f"Depend-op{n - 1}") for n in range(2, length)]
        model = graph(*nodes)

        start = time.perf_counter()
        assert {producers(model, f"Depend-op{n}")[0] for n in range(length - 1, 0, -1)} == {("Exp-op0", 0)}
        assert time.perf_counter() - start < 5


class TestScopes:
    def test_operators_hang_in_a_tree(self) -> None:
        root = chain().scopes

        assert [scope.path for scope in root.walk()] == ["", "a", "b"]
        assert names(root.children[0].nodes) == ["a/ReLU-op1", "a/Mul-op2"]
        assert root.child("a") is root.children[0]
        assert root.child("c") is None

    def test_a_scope_without_end_stays_walkable(self) -> None:
        model = graph(operator("/".join(["s"] * 100_000) + "/ReLU-op1"))
        depths = [scope.path.count("s") for scope in model.scopes.walk()]

        assert len(depths) <= 201
        assert depths[-1] == 100_000
