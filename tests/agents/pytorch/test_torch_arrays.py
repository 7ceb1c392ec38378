"""Tensors of every kind: read where they lie, or declined in an orderly way; and never noticed by PyTorch."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tensight.agents.core.columns import StatisticsColumns
from tensight.agents.torch.arrays import HOLDING_BYTES, NUMPY_NAMES, READ_WHERE_THEY_LIE, TorchReader, outline
from tensight.agents.torch.threads import threads_of_torch
from tensight.tensors import statistics

READER = TorchReader()
FLOAT8 = {torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn, torch.float8_e5m2: ml_dtypes.float8_e5m2}


def scanned(tensor: torch.Tensor) -> Any:
    columns = StatisticsColumns()
    columns.current_iteration = 0
    assert READER.scan(tensor, columns, 0)
    return columns.statistics(0)


def declined(tensor: torch.Tensor) -> bool:
    return not READER.scan(tensor, StatisticsColumns(), 0) and READER.host(tensor) is None


def as_numpy(tensor: torch.Tensor) -> Any:
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    if tensor.dtype in FLOAT8:
        return tensor.contiguous().view(torch.uint8).numpy().view(FLOAT8[tensor.dtype])
    return tensor.resolve_conj().resolve_neg().contiguous().numpy()


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere PyTorch is not built with an OpenMP that has this entrance"
)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_pytorchs_own_threads_help_with_large_tensors(threads: int) -> None:
    before = torch.get_num_threads()
    columns, values = StatisticsColumns(), torch.randn(600, 500)
    columns.team = team = threads_of_torch()
    assert team is not None
    number_of, count_of = (ctypes.CFUNCTYPE(ctypes.c_int)(address) for address in team[1:])
    called: list[tuple[int | None, int, int]] = []
    noting = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda given: called.append((given, number_of(), count_of())))
    parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)(team.parallel)
    try:
        torch.set_num_threads(threads)
        parallel(ctypes.cast(noting, ctypes.c_void_p), 7, 0, 0)
        for slot_id, tensor in enumerate((values, values.t())):
            assert READER.scan(tensor, columns, slot_id)
    finally:
        torch.set_num_threads(before)
    assert sorted(called) == [(7, number, threads) for number in range(threads)]
    assert columns.statistics(0) == statistics(values.numpy())
    assert columns.statistics(1) == statistics(np.ascontiguousarray(values.numpy().T))


@pytest.mark.parametrize("dtype", list(NUMPY_NAMES), ids=str)
def test_every_dtype_has_the_rows_and_values_of_numpy(dtype: torch.dtype) -> None:
    tensor = (torch.arange(24).reshape(4, 6) - 3).clamp(min=0).to(dtype)
    expected = as_numpy(tensor)
    values = READER.host(tensor)
    assert values is not None
    assert values.dtype == expected.dtype
    assert values.tobytes() == expected.tobytes()
    assert scanned(tensor) == statistics(expected)
    assert READER.describe(tensor) == (NUMPY_NAMES[dtype], (4, 6), expected.nbytes)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4).t(),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(3).expand(5, 3),
        torch.randn(6, 6)[1::2, ::3],
        torch.randn(0, 3),
        torch.tensor(3.5),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(3, dtype=torch.complex64).conj().imag,
        torch.randn(4, 4, requires_grad=True),
        torch.nn.Parameter(torch.randn(2, 2)),
    ],
    ids=[
        "transposed",
        "channels-last",
        "expanded",
        "strided",
        "empty",
        "scalar",
        "conjugate",
        "negative",
        "leaf",
        "weight",
    ],
)
def test_strides_and_views_are_read_in_c_order(tensor: torch.Tensor) -> None:
    expected = as_numpy(tensor.detach())
    values = READER.host(tensor)
    assert values is not None
    assert np.array_equal(values, expected)
    row = scanned(tensor)
    assert row.content_hash == statistics(expected).content_hash
    assert row.shape == tuple(tensor.shape)


def test_values_are_read_where_they_lie_and_keep_their_memory() -> None:
    tensor = torch.zeros(1000)
    values = READER.host(tensor)
    assert values is not None
    tensor[0] = 7
    assert values[0] == 7
    del tensor
    assert values[0] == 7


@pytest.mark.filterwarnings("ignore")
def test_sparse_tensors_are_what_they_store() -> None:
    indices = torch.tensor([[0, 1, 1], [2, 0, 0]])
    coo = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0]), (2, 3))
    assert scanned(coo).count == 2
    assert scanned(coo).max == 5.0
    assert scanned(torch.eye(3).to_sparse_csr()).count == 3
    assert (READER.hold(coo) or (None, 0, 0))[2] == 3 * (4 + 2 * 8) + HOLDING_BYTES


@pytest.mark.filterwarnings("ignore")
def test_quantised_tensors_are_the_numbers_that_they_stand_for() -> None:
    quantised = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.5, 0, torch.qint8)
    assert scanned(quantised).max == 1.0


@pytest.mark.filterwarnings("ignore")
def test_tensors_without_values_in_this_process_are_declined() -> None:
    assert declined(torch.randn(3, device="meta"))
    assert declined(torch.nested.nested_tensor([torch.randn(3), torch.randn(2)]))
    with FakeTensorMode():
        fake = torch.randn(3)
    assert declined(fake)
    assert READER.hold(fake) is None
    assert READER.copy(fake) is None
    seen = []
    torch.func.vmap(lambda x: (seen.append(declined(x)), x * 2)[1])(torch.randn(3, 2))
    assert seen == [True]
    assert declined(torch.randn(3).to(torch.float8_e4m3fnuz))
    assert declined(torch.randn(3).to(torch.float8_e5m2fnuz))


def test_subclasses_with_storage_are_read_and_their_functions_are_not_called() -> None:
    class Picture(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.calls += 1
            return super().__torch_function__(func, types, args, kwargs)

    picture = torch.randn(3, 3).as_subclass(Picture)
    Picture.calls = 0
    assert scanned(picture).count == 9
    assert Picture.calls == 0


def test_tensors_of_inference_mode_have_a_version() -> None:
    with torch.inference_mode():
        tensor = torch.randn(3)
    assert READER.version(tensor) == 0
    assert scanned(tensor).count == 3
    other = torch.zeros(2)
    before = READER.version(other)
    other.add_(1)
    assert READER.version(other) > before


@pytest.mark.filterwarnings("ignore")
def test_no_operator_runs_that_anybody_could_see() -> None:
    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(func)

    plain, sparse = torch.randn(3, 4, requires_grad=True), torch.eye(3).to_sparse()
    strided = plain.detach().t()
    with Watching():
        for tensor in (plain, sparse, strided):
            assert scanned(tensor).count > 0
            assert READER.host(tensor) is not None
        copy = READER.copy(plain)
        assert READER.copy(plain, copy) is copy
        READER.has_non_finite(strided)
    assert not copy.requires_grad
    assert torch.is_grad_enabled()
    assert torch.equal(copy, plain.detach())
    assert READER.copy(plain, torch.zeros(1)).shape == (3, 4)


def test_a_default_device_does_not_disturb_reading() -> None:
    class Counting(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Counting():
        assert scanned(torch.ones(3)).mean == 1.0


@pytest.mark.parametrize("dtype", list(FLOAT8), ids=str)
def test_8_bit_floats_of_any_layout_are_read_where_they_lie(dtype: torch.dtype) -> None:
    tensor = torch.arange(256, dtype=torch.uint8).view(dtype).reshape(2, 4, 32)
    for view in (tensor, tensor.transpose(0, 2), tensor[:, 1:, ::3], tensor[1, 2, 3]):
        expected = as_numpy(view)
        values = READER.host(view)
        assert values is not None
        assert values.tobytes() == expected.tobytes()
        found, same = scanned(view), statistics(expected)
        assert (found.content_hash, found.nan_count) == (same.content_hash, same.nan_count)
        assert (found.shape, found.dtype, found.max) == (tuple(view.shape), NUMPY_NAMES[dtype], same.max)
    assert READER.has_non_finite(tensor)
    assert not READER.has_non_finite(tensor.reshape(-1)[:124])
    assert (outline(tensor).dtype, outline(tensor).shape) == (NUMPY_NAMES[dtype], (2, 4, 32))
    copy = READER.copy(tensor)
    assert copy.view(torch.uint8).equal(tensor.view(torch.uint8))
    assert READER.copy(tensor, copy) is copy


NOT_FINITE = [
    (dtype, bad)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, *FLOAT8)
    for bad in (math.nan, math.inf, -math.inf)
    if dtype is not torch.float8_e4m3fn or math.isnan(bad)  # it has no infinities
]


@pytest.mark.parametrize(("dtype", "bad"), NOT_FINITE, ids=str)
def test_what_is_not_finite_is_found(dtype: torch.dtype, bad: float) -> None:
    tensor = torch.zeros(5000, dtype=dtype)
    assert not READER.has_non_finite(tensor)
    tensor[4321] = bad
    assert READER.has_non_finite(tensor)
    assert READER.has_non_finite(tensor.reshape(50, 100).t())


def test_the_outline_of_a_tensor_has_its_dtype_and_shape() -> None:
    slot = outline(torch.zeros(2, 3, dtype=torch.bfloat16))
    assert (slot.dtype, slot.shape) == ("bfloat16", (2, 3))
    lazy = torch.nn.LazyLinear(3)
    assert outline(lazy.weight).shape is None


def test_plain_tensors_are_read_by_the_extension_and_others_are_left_to_us() -> None:
    columns = StatisticsColumns()
    columns.scan(0, np.ones(1))  # now there are compiled rows
    columns.read_where_they_lie(*READ_WHERE_THEY_LIE)
    plain = [torch.randn(5, 7), torch.nn.Parameter(torch.randn(3)), torch.arange(9), torch.zeros(4, dtype=torch.bool)]
    plain += [torch.randn(2**17), torch.empty(0, 3), torch.randn(6).bfloat16(), torch.randn(5, 7).t()]
    for tensor in plain:
        expected = statistics(as_numpy(tensor.detach()))
        is_read = columns.scan_tensor(3, tensor, hashed=True)
        assert is_read == (tensor.numel() > 0)
        if is_read:
            assert columns.statistics(3) == expected
    before = columns.statistics(3)
    imaginary = torch.view_as_complex(torch.randn(4, 2)).conj().imag
    others: list[object] = [
        torch.randn(5, 7, dtype=torch.float64).t(),
        imaginary,
        torch.randn(3, dtype=torch.complex64),
        torch.randn(4, 4).to_sparse(),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        torch.empty(3, device="meta"),
        torch.randn(3).as_subclass(Subclass),
        np.ones(3),
        None,
    ]
    for other in others:
        assert not columns.scan_tensor(3, other, hashed=True)
    assert columns.statistics(3) == before


class Subclass(torch.Tensor):
    """A tensor of another class."""
