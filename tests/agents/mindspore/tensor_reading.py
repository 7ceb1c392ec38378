"""Reads tensors of MindSpore as the agent does, and says of each whether it was read well; a name and a word a line.

It is run by the Python of an environment with MindSpore, never by that of the tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from tensight.agents.core.columns import StatisticsColumns
from tensight.agents.mindspore.arrays import MindSporeReader

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = (40, 1000)


def told(what: str, is_well: object) -> None:
    print(what, "yes" if is_well else "no", flush=True)


@ms.jit
def turned(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 3, x.T


def read_all(reader: MindSporeReader) -> None:
    """Read tensors of every kind: what is read is what MindSpore says itself."""
    fresh = Tensor(np.random.RandomState(0).randn(6, 5).astype(np.float32))
    made = fresh * 2
    kinds = {
        "never computed": Tensor(np.arange(6.0, dtype=np.float32)),
        "given to an operator": fresh,
        "computed": made,
        "a row": made[2],
        "a column": made[:, 1],
        "a part": made[2:5, 1:3],
        "transposed": made.T,
        "spread": ops.broadcast_to(made[0], (3, 5)),
        "empty": Tensor(np.zeros((0, 3), np.float32)),
        "a number": Tensor(3.0) * 2,
        "half": made.astype(ms.float16),
        "of a graph": turned(made)[0],
        "turned in a graph": turned(made)[1],
        "a parameter": Parameter(Tensor(np.ones(3, np.float32)), name="p"),
    }
    for what, tensor in kinds.items():
        columns = StatisticsColumns()
        array = reader.host(tensor)
        read = None if array is None else np.array(array)
        scanned = reader.scan(tensor, columns, 0)
        own = np.array(tensor.asnumpy())
        is_same = read is not None and (read.dtype, read.shape, read.tobytes()) == (own.dtype, own.shape, own.tobytes())
        row = columns.statistics(0)
        largest = float(own.max()) if own.size else None
        told(f"{what}:", is_same and scanned and row is not None and (not own.size or row.max == largest))


def leave_arrays(reader: MindSporeReader) -> None:
    """Arrays that the training has got from MindSpore stay as it left them, and show what it writes later."""

    def look(tensor: Any) -> None:
        reader.host(tensor)
        reader.version(tensor)
        reader.copy(tensor)
        reader.scan(tensor, StatisticsColumns(), 0)

    computed = Tensor(np.ones(7, np.float32)) * 2
    got = computed.asnumpy()
    got += 1
    look(computed)
    told("what the training wrote to its array:", (got == 3).all())
    weight = Parameter(Tensor(np.ones(7, np.float32)) * 1, name="w")
    got = weight.asnumpy()
    nn.SGD([weight], 0.5)((Tensor(np.ones(7, np.float32)),))
    ms.common.api._pynative_executor.sync()
    before = got.copy()
    look(weight)
    told("an array of a weight that was updated:", (got == before).all())
    given = np.zeros(7, np.float32)
    tensor = Tensor.from_numpy(given)
    look(tensor)
    told("an array that a tensor was made from:", (given == 0).all())
    given[0] = 4
    array = reader.host(tensor)
    told("what it is now:", array is not None and array[0] == 4)


def notice_writes(reader: MindSporeReader) -> None:
    """However a tensor is written to, its version tells."""
    weight = Parameter(Tensor(np.ones(LARGE, np.float32)), name="w")
    state = Parameter(Tensor(np.ones(3, np.float32)), name="s")
    momentum = nn.Momentum([weight], 0.1, 0.9)
    norm = nn.BatchNorm2d(2).set_train()
    large, small = Tensor(np.ones(LARGE, np.float32)) * 2, Tensor(np.ones(5, np.float32)) * 2
    other = large * 3 + 1
    pictures = Tensor(np.random.RandomState(0).randn(2, 2, 3, 3).astype(np.float32))

    def one_element(tensor: Any) -> None:
        tensor[-1] = 7.0

    def through_a_part(tensor: Any) -> None:
        part = tensor[20:21]
        part[0, 501] = 9.0

    def swapped(tensor: Any) -> None:
        array = np.array(tensor.asnumpy())
        array[0, 0], array[39, 999] = array[39, 999], array[0, 0]
        tensor.assign_value(Tensor(array))

    writes: dict[str, tuple[Any, Callable[[Any], object]]] = {
        "an element of a small one": (small, one_element),
        "an element of a large one": (large, lambda tensor: tensor.__setitem__((17, 333), 5.0)),
        "through a part": (large, through_a_part),
        "two elements change places": (other, swapped),
        "copied over": (large, lambda tensor: tensor.copy_(other)),
        "assigned": (weight, lambda tensor: ops.assign(tensor, other)),
        "added to": (state, lambda tensor: ops.assign_add(tensor, Tensor(np.ones(3, np.float32)))),
        "other data": (weight, lambda tensor: tensor.set_data(other * 2)),
        "an optimizer": (weight, lambda _: momentum((other,))),
        "an optimizer's state": (momentum.moments[0], lambda _: momentum((other,))),
        "a running mean": (norm.moving_mean, lambda _: norm(pictures)),
    }
    other[0, 0] = 11.0
    for what, (tensor, write) in writes.items():
        before = reader.version(tensor), reader.version(tensor)
        write(tensor)
        told(f"{what}:", before[0] == before[1] != reader.version(tensor))


def main() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
    reader = MindSporeReader()
    read_all(reader)
    leave_arrays(reader)
    notice_writes(reader)


if __name__ == "__main__":
    main()
