from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.dumps.device_formats import DECODABLE_FORMATS, decode, decode_blocks, host_layout
from tensight.errors import InputError
from tests.dumps import ascend_writer as device

FOUR_AXES = [(1, 1, 1, 1), (2, 3, 4, 5), (17, 33, 1, 3), (16, 16, 2, 2), (5, 40, 3, 1)]
FIVE_AXES = [(1, 1, 1, 1, 1), (2, 3, 2, 4, 5), (17, 33, 2, 1, 3), (16, 16, 3, 2, 2)]
MATRICES = [(1, 1), (7,), (16, 16), (17, 33), (3, 2, 20, 18), (2, 5, 31)]

CASES = (
    [(name, shape) for name in ("NC1HWC0", "NC1HWC0_C04", "FRACTAL_Z", "C1HWNCoC0") for shape in FOUR_AXES]
    + [(name, shape) for name in ("NDC1HWC0", "FRACTAL_Z_3D") for shape in FIVE_AXES]
    + [("FRACTAL_NZ", shape) for shape in MATRICES]
)
DTYPES = [np.float16, np.float32, np.int8, np.uint8, np.int32, np.bool_, ml_dtypes.bfloat16]


def counted(shape: tuple[int, ...], dtype: object) -> np.ndarray:
    values = np.arange(1, math.prod(shape) + 1).reshape(shape)
    return (values % 120 + 1).astype(dtype) if np.dtype(dtype).itemsize < 4 else values.astype(dtype)


def block_of(name: str, dtype: object) -> int:
    if name.endswith("C04"):
        return 4
    return 32 if np.dtype(dtype).itemsize == 1 else 16


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_decoding_gives_back_what_was_packed(name, shape, dtype):
    host = counted(shape, dtype)
    packed = device.PACKERS[name](host, block_of(name, dtype))
    layout = host_layout(name, packed.shape, shape)
    decoded = decode(packed.reshape(-1), layout)
    assert decoded.dtype == host.dtype
    assert decoded.flags.c_contiguous
    np.testing.assert_array_equal(decoded, host)


@pytest.mark.parametrize("elements", [1, 7, 64, 10**6])
@pytest.mark.parametrize(("name", "shape"), CASES)
def test_blocks_follow_each_other_in_the_order_of_the_host(name, shape, elements):
    host = counted(shape, np.int32)
    packed = device.PACKERS[name](host, block_of(name, np.int32))
    blocks = list(decode_blocks(packed, host_layout(name, packed.shape, shape), elements))
    assert all(0 < block.size <= elements for block in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks), host.reshape(-1))


@pytest.mark.parametrize(
    ("shape", "groups"), [((8, 1, 3, 3), 8), ((6, 2, 1, 2), 3), ((40, 5, 2, 1), 4), ((64, 1, 1, 1), 64)]
)
@pytest.mark.parametrize("elements", [5, 10**6])
def test_convolution_weights_of_several_groups_come_apart(shape, groups, elements):
    host = counted(shape, np.float16)
    packed = device.pack_grouped_fractal_z(host, 16, groups)
    layout = host_layout("FRACTAL_Z", packed.shape, shape, groups)
    np.testing.assert_array_equal(decode(packed, layout), host)
    np.testing.assert_array_equal(np.concatenate(list(decode_blocks(packed, layout, elements))), host.reshape(-1))


@pytest.mark.parametrize("shape", [(5,), (3, 20), (2, 17, 3)])
def test_nc1hwc0_of_fewer_than_four_axes_is_padded_with_ones(shape):
    four = {1: (1, *shape, 1, 1), 2: (*shape, 1, 1), 3: (*shape, 1)}[len(shape)]
    host = counted(shape, np.float32)
    packed = device.pack_nc1hwc0(host.reshape(four), 16)
    np.testing.assert_array_equal(decode(packed, host_layout("NC1HWC0", packed.shape, shape)), host)


@given(
    st.sampled_from(sorted(DECODABLE_FORMATS)),
    st.lists(st.integers(0, 20), min_size=1, max_size=5),
    st.sampled_from([1, 4, 16, 32]),
    st.integers(1, 50),
)
@settings(deadline=None)
def test_any_shape_survives_the_way_there_and_back(name, dims, c0, elements):
    axes = {"NDC1HWC0": 5, "FRACTAL_Z_3D": 5, "FRACTAL_NZ": len(dims)}.get(name, 4)
    shape = tuple((dims * 5)[:axes])
    if math.prod(shape) > 3000:
        shape = tuple(min(size, 4) for size in shape)
    host = counted(shape, np.int32)
    packed = device.PACKERS[name](host, c0)
    layout = host_layout(name, packed.shape, shape)
    np.testing.assert_array_equal(decode(packed, layout), host)
    joined = np.concatenate([np.empty(0, np.int32), *decode_blocks(packed, layout, elements)])
    np.testing.assert_array_equal(joined, host.reshape(-1))


@settings(deadline=None)
@given(
    st.sampled_from([*sorted(DECODABLE_FORMATS), "NHWC", "FRACTAL_ZZ"]),
    st.lists(st.integers(0, 2**62), max_size=7),
    st.lists(st.integers(0, 2**62), max_size=7),
    st.integers(-5, 2**31),
)
def test_shapes_that_do_not_belong_together_are_refused_before_anything_is_allocated(name, buffer, host, groups):
    try:
        layout = host_layout(name, buffer, host, groups)
    except InputError:
        return
    assert math.prod(layout.split_shape) == math.prod(buffer)
    assert math.prod(layout.host_shape) <= math.prod(buffer)


def test_the_refusal_names_both_shapes():
    with pytest.raises(InputError, match=r"FRACTAL_Z buffer of shape \(9, 1, 16, 16\) cannot hold .*\(2, 3, 4, 5\)"):
        host_layout("FRACTAL_Z", (9, 1, 16, 16), (2, 3, 4, 5))


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"NHWC has no decoder; known: .*NC1HWC0"):
        host_layout("NHWC", (1, 2, 3, 4), (1, 4, 2, 3))


def test_a_buffer_of_another_size_is_refused():
    layout = host_layout("NC1HWC0", (1, 1, 1, 1, 16), (1, 3, 1, 1))
    with pytest.raises(InputError, match="15 elements"):
        decode(np.zeros(15), layout)
