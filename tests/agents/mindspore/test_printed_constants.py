"""Constants that MindSpore leaves out of its graph files, taken from the text that it prints beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tensight.agents.mindspore.printed_constants import with_printed_constants
from tensight.graph.ms_graph_pb2 import GraphProto, InputProto, NamedValueProto, NodeProto, ValueProto
from tensight.graph.values import decode_value

if TYPE_CHECKING:
    from pathlib import Path

PRINTED = """\
subgraph @kernel_graph0() {
  %0(CNode_1) = PrimFunc_MatMul(%para1_x, %para2_w, Bool(0), Bool(1)) primitive_attrs: {format: "a(b, c"}
      : (<Tensor[Float32], (8, 3)>, <Tensor[Float32], (3, 3)>) -> (<Tensor[Float32], (8, 3)>)
      # Fullname with scope: (Default/MatMul-op0)
  %1([CNode]2) = PrimFunc_RealDiv(Tensor(shape=[8, 3], dtype=Float32, value=
[[ 1.00000000e+00  inf]
 ...
 [ 1.00000000e+00  1.00000000e+00]]), %0, Tensor(shape=[], dtype=Float32, value=24)) {instance name: a}
      # Fullname with scope: (Default/network-Net/RealDiv-op0)
      # In file /home/me/train.py:3, 1~2/    x = f(y, (z/
  %2(CNode_3) = UpdateState(UMonad[U], %1)
      # Fullname with scope: (Default/UpdateState-op0)
"""


def reading(*constants: str) -> GraphProto:
    """A graph of what is printed, in which constants are empty but for the second of the product."""
    graph = GraphProto(name=b"kernel_graph0")
    for key in constants:
        graph.const_vals.append(NamedValueProto(key=key.encode(), full_name=f"Default_data-{key}".encode()))
    graph.const_vals[0].value = ValueProto(dtype=1, bool_val=True).SerializeToString()
    operators = {
        "Default/MatMul-op0": ("x", "w", "no", "yes"),
        "Default/network-Net/RealDiv-op0": ("ones", "1", "number"),
        "Default/UpdateState-op0": ("monad", "2"),
    }
    for number, (name, inputs) in enumerate(operators.items(), 1):
        node = NodeProto(name=str(number).encode(), full_name=name.encode())
        node.input.extend(InputProto(name=source.encode()) for source in inputs)
        graph.node.append(node)
    return graph


def values(data: bytes) -> dict[str, object]:
    return {
        one.key.decode(): decode_value(one.value) if one.value else None
        for one in GraphProto.FromString(data).const_vals
    }


@pytest.fixture
def graph() -> bytes:
    return reading("yes", "no", "ones", "number", "monad").SerializeToString()


def test_empty_constants_get_the_text_that_is_printed_for_them(graph: bytes, tmp_path: Path) -> None:
    (tmp_path / "graph_0.ir").write_text(PRINTED)
    assert values(with_printed_constants(graph, str(tmp_path / "graph_0.pb"))) == {
        "yes": True,
        "no": None,
        "ones": "Tensor(shape=[8, 3], dtype=Float32, value= [[ 1.00000000e+00 inf] ..."
        " [ 1.00000000e+00 1.00000000e+00]])",
        "number": "Tensor(shape=[], dtype=Float32, value=24)",
        "monad": None,
    }


@pytest.mark.parametrize("printed", [None, "", PRINTED[:400], PRINTED.replace("%0, Tensor", "%0, %9, Tensor")])
def test_without_a_text_that_fits_they_stay_empty(graph: bytes, tmp_path: Path, printed: str | None) -> None:
    if printed is not None:
        (tmp_path / "graph_0.ir").write_text(printed)
    found = values(with_printed_constants(graph, str(tmp_path / "graph_0.pb")))
    assert found["ones"] is found["number"] is None
    assert found["yes"] is True
