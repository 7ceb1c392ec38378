from __future__ import annotations

import dataclasses
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.dumps import ascend
from tensight.dumps.ascend import read_dump_data, read_slot, read_slot_segments
from tensight.dumps.ascend_names import AscendName, parse_ascend_name
from tensight.errors import InputError, TensightError, TensorFileError
from tests.dumps import ascend_writer as device


def counted(shape, dtype=np.float32):
    return (np.arange(np.prod(shape, dtype=int)) % 100 + 1).reshape(shape).astype(dtype)


@pytest.fixture
def conv(tmp_path):
    """A convolution: two inputs in device layouts, a plain one, and an output."""
    tensors = {
        "input:0": counted((2, 3, 4, 5), np.float16),
        "input:1": counted((7, 3, 3, 3), np.float16),
        "input:2": counted((7,)),
        "output:0": counted((2, 7, 2, 3), np.float16),
    }
    path = tmp_path / "Conv2D.Default_conv1_Conv2D-op1.3.7.1630000000000000"
    path.write_bytes(
        device.dump_data(
            inputs=[
                device.device_tensor(tensors["input:0"], "NC1HWC0", 16),
                device.device_tensor(tensors["input:1"], "FRACTAL_Z", 16),
                device.host_tensor(tensors["input:2"]),
            ],
            outputs=[device.device_tensor(tensors["output:0"], "NC1HWC0", 16)],
            op_name="Default/conv1/Conv2D-op1",
        )
    )
    return path, tensors


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Conv2D.Default_c-op1.3.7.1630000000000000", AscendName("Conv2D", "Default_c-op1", 3, 7, 1630000000000000)),
        ("Conv2D.Default_c-op1.3.1630000000000000", AscendName("Conv2D", "Default_c-op1", 3, -1, 1630000000000000)),
        ("Add.a.1.2.3.4.1.0.0", AscendName("Add", "a", 1, 2, 3, (4, 1, 0, 0))),
        ("Opdebug.Node_OpDebug.3.7.16", AscendName("Opdebug", "Node_OpDebug", 3, 7, 16)),
        ("Conv2D.a.3.7.16.output.0.NCHW.npy", None),
        ("Opdebug.Node_OpDebug.3.7.16.output.0.json", None),
        ("Add.a.1.2.3.4.1.0.0.9", None),
        ("statistic.csv", None),
        ("Add.a.3", None),
        ("Add..3.7.16", None),
        ("Add.a.3.7.\u0663", None),
        ("Add.a.3.7." + "9" * 5000, None),
        ("", None),
    ],
)
def test_file_names_are_taken_apart(name, expected):
    assert parse_ascend_name(name) == expected


def test_overflow_records_are_told_from_tensors_by_name():
    assert parse_ascend_name("Opdebug.Node_OpDebug.3.7.16").is_overflow
    assert parse_ascend_name("OpDebug.Node_Opdebug.3.7.16").is_overflow
    assert not parse_ascend_name("Add.Opdebug.3.7.16").is_overflow


def test_the_header_lists_inputs_then_outputs(conv):
    path, tensors = conv
    file = read_dump_data(path)
    assert (file.op_name, file.version, file.dump_time) == ("Default/conv1/Conv2D-op1", "2.0", 17)
    assert [slot.label for slot in file.slots] == list(tensors)
    assert [slot.format for slot in file.slots] == ["NC1HWC0", "FRACTAL_Z", "ND", "NC1HWC0"]
    assert [slot.host_format for slot in file.slots] == ["NCHW", "NCHW", "ND", "NCHW"]
    assert [slot.shape for slot in file.slots] == [array.shape for array in tensors.values()]
    assert [slot.dtype for slot in file.slots] == [array.dtype for array in tensors.values()]
    assert [slot.note + slot.problem for slot in file.slots] == [""] * 4
    assert file.slots[-1].offset + file.slots[-1].size_bytes == file.size_bytes == path.stat().st_size


@pytest.mark.parametrize("elements", [1, 11, 10**6])
def test_every_slot_is_read_in_the_layout_of_the_host(conv, elements):
    path, tensors = conv
    file = read_dump_data(path)
    for slot in file.slots:
        array = read_slot(path, slot)
        np.testing.assert_array_equal(array, tensors[slot.label])
        assert not array.flags.writeable
        segments = list(read_slot_segments(path, slot, elements))
        assert {segment.size for segment in segments[:-1]} <= {elements}
        np.testing.assert_array_equal(np.concatenate(segments), tensors[slot.label].reshape(-1))


def test_bytes_read_like_a_file(conv):
    path, tensors = conv
    data = path.read_bytes()
    slot = read_dump_data(data).slot("input", 1)
    np.testing.assert_array_equal(read_slot(data, slot), tensors["input:1"])
    with pytest.raises(InputError, match="no output 3"):
        read_dump_data(data).slot("output", 3)


def test_a_remote_file_reads_like_a_local_one(conv):
    import fsspec

    path, tensors = conv
    url = "memory://ascend/Op.a.0.0.1"
    fsspec.filesystem("memory").pipe("/ascend/Op.a.0.0.1", path.read_bytes())
    for slot in read_dump_data(url).slots:
        np.testing.assert_array_equal(read_slot(url, slot), tensors[slot.label])


@pytest.mark.parametrize("name", list(device.DATA_TYPES))
def test_every_element_type_is_read(tmp_path, name):
    dtype = ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
    array = np.array([0, 1, 1, 0, 1]).astype(dtype)
    path = tmp_path / "Op.a.0.0.1"
    path.write_bytes(device.dump_data(outputs=[device.host_tensor(array)]))
    result = read_slot(path, read_dump_data(path).slots[0])
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, array)


def test_weights_of_several_groups_are_read(tmp_path):
    weights = counted((6, 2, 1, 3), np.float16)
    path = tmp_path / "Op.a.0.0.1"
    path.write_bytes(device.dump_data(inputs=[device.device_tensor(weights, "FRACTAL_Z", 16, groups=3)]))
    (slot,) = read_dump_data(path).slots
    assert slot.host_format == "NCHW"
    np.testing.assert_array_equal(read_slot(path, slot), weights)


def test_scalars_and_empty_tensors_keep_their_shape(tmp_path):
    path = tmp_path / "Op.a.0.0.1"
    path.write_bytes(
        device.dump_data(
            outputs=[device.host_tensor(np.float32(3)[...]), device.host_tensor(np.empty((2, 0), np.int8))]
        )
    )
    scalar, empty = read_dump_data(path).slots
    assert read_slot(path, scalar).shape == ()
    assert read_slot(path, scalar) == 3
    assert read_slot(path, empty).shape == (2, 0)
    assert list(read_slot_segments(path, empty, 5)) == []


def test_a_large_plain_buffer_is_mapped_and_a_large_device_buffer_is_decoded_in_pieces(tmp_path):
    plain = np.arange(200_000, dtype=np.float32)
    weights = np.arange(300 * 500, dtype=np.float32).reshape(300, 500)
    nz = weights
    padded = np.zeros((304, 512), np.float32)
    padded[:300, :500] = nz
    blocks = np.ascontiguousarray(padded.reshape(19, 16, 32, 16).transpose(2, 0, 1, 3))
    path = tmp_path / "Op.a.0.0.1"
    tensor = device.Tensor(blocks.tobytes(), 1, device.FORMATS["FRACTAL_NZ"], blocks.shape, weights.shape)
    path.write_bytes(device.dump_data(inputs=[device.host_tensor(plain)], outputs=[tensor]))
    file = read_dump_data(path)
    mapped = read_slot(path, file.slot("input", 0))
    assert mapped.base is not None
    np.testing.assert_array_equal(mapped, plain)
    np.testing.assert_array_equal(read_slot(path, file.slot("output", 0)), weights)
    pieces = list(read_slot_segments(path, file.slot("output", 0), 4096))
    assert [piece.size for piece in pieces] == [4096] * 36 + [2544]
    np.testing.assert_array_equal(np.concatenate(pieces), weights.reshape(-1))


def test_formats_without_a_decoder_keep_the_device_layout_and_say_so(tmp_path):
    array = counted((1, 2, 3, 4))
    tensors = [device.Tensor(array.tobytes(), 1, number, array.shape, (1, 4, 2, 3)) for number in (1, 13, 77)]
    path = tmp_path / "Op.a.0.0.1"
    path.write_bytes(device.dump_data(outputs=tensors))
    slots = read_dump_data(path).slots
    assert [slot.host_format for slot in slots] == ["NHWC", "FRACTAL_Z_C04", "UNKNOWN_77"]
    for slot in slots:
        assert "kept in the device layout" in slot.note
        np.testing.assert_array_equal(read_slot(path, slot), array)


def test_shapes_that_do_not_belong_together_keep_the_device_layout_and_say_so(tmp_path):
    tensor = device.device_tensor(counted((2, 3, 4, 5)), "NC1HWC0", 16)
    path = tmp_path / "Op.a.0.0.1"
    path.write_bytes(
        device.dump_data(
            outputs=[
                dataclasses.replace(tensor, original_shape=(2, 99, 4, 5)),
                dataclasses.replace(tensor, original_shape=()),
            ]
        )
    )
    wrong, missing = read_dump_data(path).slots
    assert wrong.shape == missing.shape == (2, 1, 4, 5, 16)
    assert "cannot hold a tensor of shape (2, 99, 4, 5)" in wrong.note
    assert "own shape is not given" in missing.note


@pytest.mark.parametrize("dims", [(), (2**64 - 1, 3), (1,) * 40, (0, 2**60, 2**60)])
def test_a_buffer_without_a_usable_shape_is_shown_flat(tmp_path, dims):
    array = counted((6,))
    path = tmp_path / "Op.a.0.0.1"
    path.write_bytes(device.dump_data(outputs=[device.Tensor(array.tobytes(), 1, 2, dims, dims)]))
    (slot,) = read_dump_data(path).slots
    assert "shown flat" in slot.note
    np.testing.assert_array_equal(read_slot(path, slot), array)


def test_padding_behind_a_buffer_is_left_out_with_a_note(tmp_path):
    array = counted((5,))
    path = tmp_path / "Op.a.0.0.1"
    path.write_bytes(device.dump_data(outputs=[device.Tensor(array.tobytes() + bytes(12), 1, 2, (5,), (5,))]))
    (slot,) = read_dump_data(path).slots
    assert "3 elements more" in slot.note
    np.testing.assert_array_equal(read_slot(path, slot), array)


@pytest.mark.parametrize(
    ("tensor", "problem"),
    [
        (device.Tensor(bytes(4), 13, 2, (1,), (1,)), "type STRING have no equal"),
        (device.Tensor(bytes(4), 28, 2, (8,), (8,)), "type INT4 have no equal"),
        (device.Tensor(bytes(4), 99, 2, (1,), (1,)), "type UNKNOWN_99 have no equal"),
        (device.Tensor(bytes(6), 1, 2, (1,), (1,)), "not a whole number of 4-byte elements"),
        (device.Tensor(bytes(8), 1, 2, (2**40, 2**40), ()), "elements, the file has 2"),
        (device.Tensor(b"", 1, 2, (1,), (1,), size=4), "it is cut off"),
        (device.Tensor(b"", 1, 2, (1,), (1,), size=2**64 - 1), "it is cut off"),
    ],
)
def test_a_bad_slot_is_refused_alone(tmp_path, tensor, problem):
    good = counted((3,))
    path = tmp_path / "Op.a.0.0.1"
    path.write_bytes(device.dump_data(inputs=[device.host_tensor(good)], outputs=[tensor]))
    first, bad = read_dump_data(path).slots
    np.testing.assert_array_equal(read_slot(path, first), good)
    with pytest.raises(TensorFileError, match=problem) as caught:
        read_slot(path, bad)
    assert str(path) in str(caught.value)
    assert "output:0" in str(caught.value)
    with pytest.raises(TensorFileError, match=problem):
        list(read_slot_segments(path, bad, 10))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "does not fit a file of 0"),
        (bytes(7), "does not fit a file of 7"),
        (struct.pack("<Q", 2**63) + bytes(100), "does not fit"),
        (struct.pack("<Q", 50) + b"\xff" * 50, "header is damaged"),
        (struct.pack("<Q", 2**20 + 1) + bytes(2**20 + 1), "bytes is too long"),
        (struct.pack("<Q", 40_000) + b"\x1a\x00" * 20_000, "more than 16,384 tensors"),
    ],
)
def test_files_of_another_kind_are_refused_with_a_reason(tmp_path, data, reason):
    path = tmp_path / "Op.a.0.0.1"
    path.write_bytes(data)
    with pytest.raises(TensorFileError, match=reason) as caught:
        read_dump_data(path)
    assert str(path) in str(caught.value)


def test_missing_files_folders_and_pipes_are_refused(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", ".", "pipe"):
        with pytest.raises(TensorFileError):
            read_dump_data(tmp_path / name)


def test_a_file_that_shrinks_after_its_header_was_read_is_refused(tmp_path):
    path = tmp_path / "Op.a.0.0.1"
    path.write_bytes(
        device.dump_data(outputs=[device.host_tensor(counted((200_000,))), device.host_tensor(counted((9,)))])
    )
    slots = read_dump_data(path).slots
    with path.open("r+b") as file:
        file.truncate(1000)
    for slot in slots:
        with pytest.raises(TensorFileError, match="became shorter"):
            read_slot(path, slot)
        with pytest.raises(TensorFileError, match="became shorter"):
            list(read_slot_segments(path, slot, 1000))


def test_names_of_types_and_formats_are_those_of_the_device():
    assert [ascend.data_type_name(n) for n in (0, 1, 12, 25, 27, 35, 99, -1)] == [
        "UNDEFINED", "FLOAT", "DOUBLE", "DUAL", "BF16", "FLOAT8_E4M3FN", "UNKNOWN_99", "UNKNOWN_-1",
    ]  # fmt: skip
    assert [ascend.format_name(n) for n in (0, 3, 25, 29, 33, 40, 255)] == [
        "NCHW", "NC1HWC0", "C1HWNCoC0", "FRACTAL_NZ", "FRACTAL_Z_3D", "RESERVED", "UNKNOWN_255",
    ]  # fmt: skip


SAMPLE = device.dump_data(
    inputs=[device.device_tensor(counted((2, 3, 2, 2), np.float16), "NC1HWC0", 16)],
    outputs=[device.device_tensor(counted((5, 7), np.float16), "FRACTAL_NZ", 16), device.host_tensor(counted((3,)))],
)


def read_everything(data: bytes) -> None:
    try:
        file = read_dump_data(data)
    except TensightError:
        return
    for slot in file.slots:
        try:
            array = read_slot(data, slot)
        except TensightError:
            continue
        assert array.shape == slot.shape
        assert array.nbytes <= len(data)
        assert sum(piece.size for piece in read_slot_segments(data, slot, 7)) == array.size


@settings(deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_give_tensors_or_one_clear_error(data, framed):
    read_everything(struct.pack("<Q", len(data)) + data if framed else data)


@given(
    st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), max_size=8), st.integers(0, len(SAMPLE))
)
@settings(max_examples=3 * settings().max_examples, deadline=None)
def test_damaged_and_cut_files_give_tensors_or_one_clear_error(changes, length):
    data = bytearray(SAMPLE)
    for position, value in changes:
        data[position % 200] = value
    read_everything(bytes(data[:length]))


tensors = st.builds(
    device.Tensor,
    data=st.binary(max_size=64),
    data_type=st.integers(0, 2**31 - 1) | st.integers(0, 40),
    format=st.integers(0, 2**31 - 1) | st.integers(0, 40),
    shape=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20), max_size=40).map(tuple),
    original_shape=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 20), max_size=40).map(tuple),
    sub_format=st.integers(0, 2**31 - 1) | st.integers(0, 3),
    size=st.none() | st.integers(0, 2**64 - 1),
)


@given(st.lists(tensors, max_size=3), st.lists(tensors, max_size=3))
@settings(max_examples=3 * settings().max_examples, deadline=None)
def test_absurd_headers_give_tensors_or_one_clear_error(inputs, outputs):
    read_everything(device.dump_data(inputs, outputs))


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_file_name_is_taken_apart_or_not(name):
    parsed = parse_ascend_name(name)
    assert parsed is None or parsed.timestamp >= 0
