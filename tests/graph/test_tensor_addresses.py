from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.errors import InputError
from tensight.graph import TensorAddress


def test_an_address_reads_from_the_rank_to_the_step() -> None:
    output = TensorAddress(0, "kernel_graph_0", "Default/conv1/Conv2D-op3", 0, 2)
    taken = TensorAddress(3, "kernel_graph0", "fc1.weight", 1, -1, "input")

    assert str(output) == "0/kernel_graph_0/Default/conv1/Conv2D-op3:0@3"
    assert str(taken) == "3/kernel_graph0/fc1.weight:input.1@0"


@given(
    st.builds(
        TensorAddress,
        rank=st.integers(0, 10**6),
        graph=st.text().filter(lambda text: "/" not in text),
        node=st.text(min_size=1),
        slot=st.integers(0, 10**6),
        iteration=st.integers(-1, 10**9),
        io=st.sampled_from(("input", "output")),
    )
)
def test_what_was_written_is_read_back(address: TensorAddress) -> None:
    assert TensorAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "conv1", "0/g/n", "0/g/n:0", "0/g/n@2", "x/g/n:0@3", "0/g/n:output.0@1", "0/g/:0@2", "0/g/n:0@-1"]
)
def test_other_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match="Conv2D-op3:0@2"):
        TensorAddress.parse(text)


def test_addresses_sort_by_rank_graph_node_slot_step() -> None:
    later = TensorAddress(0, "g", "b", 0, 0)

    assert sorted([later, TensorAddress(0, "g", "a", 1, 0), TensorAddress(0, "g", "a", 0, 5)])[-1] is later
