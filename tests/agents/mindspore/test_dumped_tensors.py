"""Tensors in dumped files: read for what they are, at the speed of memory; and those of MindSpore itself."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from tensight.agents.core.columns import StatisticsColumns
from tensight.agents.core.retention import Retention
from tensight.agents.mindspore.dumped import DumpedReader, DumpedTensor
from tensight.agents.mindspore.ring import DumpRing
from tensight.tensors import SEGMENT_ELEMENTS, statistics

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENTS = Path(__file__).resolve().parents[3] / ".venvs"
READER = DumpedReader()
NAMES = (
    *("float16", "float32", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128"),
)


@pytest.fixture
def ring() -> Iterator[DumpRing]:
    ring = DumpRing.create({}, name="N")
    yield ring
    ring.close()


class Dump:
    """Writes files as MindSpore does."""

    def __init__(self, ring: DumpRing) -> None:
        self._ring = ring
        self._moment = 1795261378520830
        self.folder = Path(ring.folder, "rank_0", "N", "0", "0")
        self.folder.mkdir(parents=True)

    def raw(self, content: bytes, dtype: str = "Float32", op: str = "ReLU") -> DumpedTensor:
        self._moment += 1
        name = f"{op}.Default_op0.0.0.{self._moment}.output.0.DefaultFormat.{dtype}.npy"
        (self.folder / name).write_bytes(content)
        (launch,) = self._ring.launches()
        return DumpedTensor(launch, 0)

    def of(self, array: Any, dtype: str = "Float32", op: str = "ReLU", descr: str = "") -> DumpedTensor:
        descr = descr or array.dtype.str
        return self.raw(header(descr, array.shape, fortran=array.flags.fnc) + array.tobytes("A"), dtype, op)


def header(descr: str, shape: tuple[int, ...], *, fortran: bool = False) -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    length = -(-(10 + len(text) + 1) // 64) * 64 - 10
    return (
        b"\x93NUMPY\x01\x00" + struct.pack("<H", max(length, 118)) + text.ljust(max(length, 118) - 1).encode() + b"\n"
    )


@pytest.fixture
def dump(ring: DumpRing) -> Dump:
    return Dump(ring)


def scanned(tensor: DumpedTensor, *, hashed: bool = True) -> Any:
    columns = StatisticsColumns()
    columns.current_iteration = 0
    return columns.statistics(0) if READER.scan(tensor, columns, 0, hashed=hashed) else None


def sample(name: str, shape: tuple[int, ...]) -> Any:
    random = np.random.default_rng(3)
    return (random.standard_normal(shape) * 5).astype(name)


def agrees(tensor: DumpedTensor, expected: Any) -> None:
    values = READER.host(tensor)
    assert values is not None
    assert (values.dtype, values.shape) == (expected.dtype, expected.shape)
    assert values.flags.c_contiguous
    assert values.tobytes() == np.ascontiguousarray(expected).tobytes()
    # Twice, because a file like one that was read before goes another way.
    assert scanned(tensor) == scanned(tensor) == statistics(expected)
    assert READER.describe(tensor) == (expected.dtype.name, expected.shape, expected.nbytes)
    assert READER.has_non_finite(tensor) == (expected.dtype.kind in "fcV" and not np.isfinite(expected).all())


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_has_the_values_and_statistics_of_numpy(dump: Dump, name: str) -> None:
    with np.errstate(invalid="ignore"):
        array = sample(name, (4, 6))
    tensor = dump.of(array)
    agrees(tensor, array)
    assert tensor.nbytes == array.nbytes
    assert READER.hold(tensor)[2] == Path(tensor.path).stat().st_size


@pytest.mark.parametrize(
    "array",
    [
        np.float32(3.5).reshape(()),
        np.zeros((0, 3), np.float32),
        np.asfortranarray(sample("float32", (3, 5))),
        sample("float32", (3, 5)).astype(">f4"),
        np.array([1, np.nan, np.inf], np.float32),
        np.ones((1,) * 30, np.float32),
    ],
    ids=["scalar", "empty", "fortran", "big-endian", "non-finite", "long header"],
)
def test_unusual_layouts_are_read(dump: Dump, array: Any) -> None:
    tensor = dump.of(array)
    plain = array.astype(array.dtype.newbyteorder("="))
    values = READER.host(tensor)
    assert values is not None
    assert np.array_equal(values, plain, equal_nan=True)
    # Of nothing, and of NaN, there are statistics that are no numbers.
    assert repr(scanned(tensor)) == repr(scanned(tensor)) == repr(statistics(plain))
    assert READER.has_non_finite(tensor) == (not np.isfinite(plain).all())


@pytest.mark.parametrize("descr", ["<E2", "<V2"])
def test_bfloat16_of_two_bytes_is_bfloat16(dump: Dump, descr: str) -> None:
    array = sample("float32", (3, 5)).astype(ml_dtypes.bfloat16)
    agrees(dump.of(array, "BFloat16", descr=descr), array)


def test_bfloat16_that_was_stored_as_float32_is_bfloat16(dump: Dump) -> None:
    array = sample("float32", (3, 5)).astype(ml_dtypes.bfloat16)
    agrees(dump.of(array.astype(np.float32), "BFloat16"), array)
    # A float32 of the same header stays what it is.
    agrees(dump.of(array.astype(np.float32), "Float32", "Cast"), array.astype(np.float32))


@pytest.mark.parametrize("shape", [(3, 5), (1200, 1000)])
def test_float32_that_was_written_under_the_name_of_float16_is_float32(dump: Dump, shape: tuple[int, ...]) -> None:
    array = sample("float32", shape)
    agrees(dump.raw(header("<f2", shape) + array.tobytes(), "Float16", "Conv2D"), array)
    half = array.astype(np.float16)
    agrees(dump.of(half, "Float16", "Conv2D"), half)
    agrees(dump.raw(header("<f2", shape) + array.tobytes(), "Float16", "Conv2D"), array)


@pytest.mark.parametrize("name", ["float32", "float64", "complex128", "int8", "bool"])
@pytest.mark.parametrize("elements", [SEGMENT_ELEMENTS + 17, 5 * SEGMENT_ELEMENTS])
def test_large_tensors_have_the_statistics_of_the_whole(dump: Dump, name: str, elements: int) -> None:
    random = np.random.default_rng(5)
    array = random.integers(0, 2, elements).astype(name)
    if name != "bool":
        array[-1] = 7
    agrees(dump.of(array.reshape(1, -1)), array.reshape(1, -1))


def test_an_infinity_at_the_end_of_a_large_tensor_is_found(dump: Dump) -> None:
    array = np.zeros(2 * SEGMENT_ELEMENTS, np.float32)
    finite = dump.of(array)
    array[-1] = np.inf
    assert [READER.has_non_finite(tensor) for tensor in (finite, dump.of(array))] == [False, True]


def test_values_of_large_tensors_outlast_their_files(ring: DumpRing, dump: Dump) -> None:
    array = sample("float32", (2 * SEGMENT_ELEMENTS,))
    tensor = dump.of(array)
    values = READER.host(tensor)
    assert values is not None
    tensor.discard()
    assert tensor.is_gone
    assert np.array_equal(values, array)


def test_a_tensor_that_changes_its_shape_is_read_each_time(dump: Dump) -> None:
    for count in (3, 7, 3, SEGMENT_ELEMENTS * 2, 5):
        array = sample("float32", (count,))
        agrees(dump.of(array), array)


CUT = header("<f4", (4, 8)) + bytes(100)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cut off"),
        (CUT[:60], "cut off"),
        (CUT, "228 of 256 bytes"),
        (header("<f4", (SEGMENT_ELEMENTS * 2,)) + bytes(4 * SEGMENT_ELEMENTS + 10**6), "disk full"),
        (header("|O", (2,)) + bytes(16), "not numbers"),
        (b"PK\x03\x04" * 40, "not an npy file"),
    ],
    ids=["empty", "in header", "in data", "large", "objects", "foreign"],
)
def test_what_cannot_be_read_is_said_once_and_has_no_statistics(
    dump: Dump, capsys: pytest.CaptureFixture[str], content: bytes, reason: str
) -> None:
    # What was read before must not be taken for the missing rest.
    assert scanned(dump.of(np.ones((4, 8), np.float32), op="Before")) is not None
    tensor = dump.raw(content, op=f"Op{len(content)}")
    assert scanned(tensor) is None
    assert READER.host(tensor) is None
    assert not READER.has_non_finite(tensor)
    assert READER.describe(tensor) == ("", (), 0)
    assert tensor.nbytes == 0
    said = capsys.readouterr().err
    assert said.count(tensor.key) == 1
    assert reason in said


def test_a_released_tensor_is_gone_quietly_and_kept_no_more(
    ring: DumpRing, dump: Dump, capsys: pytest.CaptureFixture[str]
) -> None:
    array = sample("float32", (3, 5))
    np.save(dump.folder / "ReLU.op.0.0.1795261378520830.output.0.DefaultFormat.npy", array)
    (launch,) = ring.launches()
    tensor = DumpedTensor(launch, 0)
    retention = Retention(READER, 10**6)
    retention.copy_values(4)
    retention.keep(4, tensor)
    assert retention.current(4) is tensor
    retention.turn_over()
    assert retention.previous(4) is tensor
    assert READER.version(tensor) == 0
    ring.release(launch)
    assert (tensor.is_gone, READER.version(tensor)) == (True, 1)
    assert scanned(tensor) is None
    assert READER.host(tensor) is None
    assert READER.hold(tensor)[2] == 0
    tensor.discard()
    assert capsys.readouterr().err == ""


def test_statistics_without_hash_are_the_same_but_for_it(dump: Dump) -> None:
    tensor = dump.of(sample("float32", (300,)))
    plain, full = scanned(tensor, hashed=False), scanned(tensor)
    assert (plain.min, plain.max, plain.mean) == (full.min, full.max, full.mean)
    READER.settle(StatisticsColumns())


_TRAINING = """
import json, os
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from tensight.agents.core.columns import StatisticsColumns
from tensight.agents.mindspore.dumped import DumpedReader, DumpedTensor
from tensight.agents.mindspore.ring import DumpRing
ring = DumpRing.create(os.environ, name="N")
ms.set_context(mode=ms.GRAPH_MODE)
network = nn.SequentialCell(nn.Dense(8, 8), nn.ReLU(), nn.Dense(8, 4))
cell_of_a_rather_long_name = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
step = nn.TrainOneStepCell(cell_of_a_rather_long_name, nn.Momentum(network.trainable_params(), 0.1, 0.9))
random = np.random.RandomState(0)
reader, columns, found = DumpedReader(), StatisticsColumns(), []
for number in range(6):
    loss = step(Tensor(random.randn(4, 8).astype(np.float32)), Tensor(np.arange(4, dtype=np.int32))).asnumpy()
    launches = [("step", loss, ring.launches())]
    if number % 2:
        # Writes into folders that were seen, and has the training's own numbers go back and forth.
        for _ in range(2):
            logits = network(Tensor(random.randn(4, 8).astype(np.float32))).asnumpy()
        launches.append(("evaluation", logits, ring.launches()))
    for kind, value, runs in launches:
        tensors = {run.keys[at]: DumpedTensor(run, at) for run in runs for at in range(len(run.files))}
        assert all(reader.scan(tensor, columns, slot_id) for slot_id, tensor in enumerate(tensors.values()))
        same = [key for key, tensor in tensors.items() if np.array_equal(reader.host(tensor), value)]
        weights = {parameter.name: parameter.asnumpy() for parameter in network.get_parameters()}
        equal = [
            name for name, weight in weights.items()
            for key, tensor in tensors.items()
            if key.startswith("Parameter." + name.replace(".", "_")) and np.array_equal(reader.host(tensor), weight)
        ]
        found.append([kind, sorted({run.graph for run in runs}), len(tensors), bool(same), sorted(equal)])
        for run in runs:
            ring.release(run)
graphs = sorted(ring.graphs())
files = [name for folder, _, names in os.walk(ring.folder) for name in names if name.endswith(".npy")]
print("RESULT " + json.dumps([found, graphs, len(ring.order_of(0)), files, ring.folder]))
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("version", ["2.10", "2.7"])
def test_what_mindspore_dumps_is_what_it_returns(version: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_TRAINING)
    python = ENVIRONMENTS / f"mindspore-{version}" / "bin" / "python"
    ran = subprocess.run([python, script], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    result = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert result, ran.stdout + ran.stderr
    found, graphs, operators, files, folder = json.loads(result[0].removeprefix("RESULT "))
    weights = ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert [kind for kind, *_ in found] == ["step", "step", "evaluation"] * 3
    for kind, ran_graphs, tensors, has_value, equal in found:
        assert len(ran_graphs) == 1
        assert tensors > (20 if kind == "step" else 5)
        assert has_value
        assert equal == weights
    assert len({tensors for kind, _, tensors, *_ in found if kind == "step"}) == 1
    assert graphs == [0, 1]
    assert operators > 10
    assert files == []
    assert not Path(folder).exists()
