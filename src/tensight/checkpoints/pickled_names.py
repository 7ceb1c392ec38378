"""The names allowed in a checkpoint's pickle, as for PyTorch's `weights_only`, and our functions for them.

The arguments of every function here come from an untrusted pickle, and become plain data; a TypeError or ValueError
means that they are invalid, and the pickle counts as damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tensight.checkpoints.pickled_data import Named, PickledArray, Record, plain_key, plain_shape

DTYPES = {
    "float64": "float64", "double": "float64", "float32": "float32", "float": "float32", "float16": "float16",
    "half": "float16", "bfloat16": "bfloat16", "uint8": "uint8", "int8": "int8", "int16": "int16", "short": "int16",
    "int32": "int32", "int": "int32", "int64": "int64", "long": "int64", "uint16": "uint16", "uint32": "uint32",
    "uint64": "uint64", "bool": "bool", "complex64": "complex64", "complex128": "complex128",
    "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2", "float8_e4m3fnuz": "float8_e4m3fnuz",
    "float8_e5m2fnuz": "float8_e5m2fnuz", "float8_e8m0fnu": "float8_e8m0fnu",
    # elements with unsupported semantics: compared as bytes
    "qint8": "int8", "quint8": "uint8", "qint32": "int32", "float4_e2m1fn_x2": "uint8",
}  # fmt: skip
"""PyTorch's element types by their names under ``torch``, with our names."""

STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64", "QInt8Storage": "int8", "QUInt8Storage": "uint8", "QInt32Storage": "int32",
    "UntypedStorage": "uint8",
}  # fmt: skip
"""PyTorch's storage classes, and their element types."""


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """A range of memory that contains tensors of a checkpoint.

    Attributes
    ----------
    key : str
        Its name in the file.
    dtype : str
        Implied by its class; a tensor may have a different one.
    size : int
        Number of elements of `dtype`.
    """

    key: str
    dtype: str
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A tensor as PyTorch pickles it: a view of a storage.

    Attributes
    ----------
    storage : Storage
    dtype : str
    offset : int
        Position of the first element, in elements.
    shape, strides : tuple of int
    """

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def storage_of(identity: Any) -> Storage:
    """Return the storage of a persistent id: ``("storage", class, key, device, number of elements)``."""
    kind, storage_class, key, _, size, *_ = identity
    if kind != "storage" or not isinstance(storage_class, Named) or type(size) is not int or size < 0:
        raise TypeError("no storage")
    return Storage(str(key), STORAGES[storage_class.name], size)


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any, dtype: str | None = None) -> StoredTensor:
    shape, strides = plain_shape(size), plain_shape(stride)
    if not isinstance(storage, Storage) or type(offset) is not int or offset < 0 or len(shape) != len(strides):
        raise TypeError("no tensor")
    return StoredTensor(storage, dtype or storage.dtype, offset, shape, strides)


def _tensor_of_type(
    storage: Any, offset: Any, size: Any, stride: Any, _grad: Any, _hooks: Any, dtype: Any, *_: Any
) -> StoredTensor:
    return _tensor(storage, offset, size, stride, dtype=DTYPES[dtype.name])


def _first(value: Any, *_: Any) -> Any:
    return value


def _tensor_with_attributes(maker: Any, _kind: Any, arguments: Any, _state: Any = None) -> Any:
    if not callable(maker) or maker is _tensor_with_attributes or not isinstance(arguments, tuple):
        raise TypeError("no tensor")
    return maker(*arguments)


def _dict(items: Any = (), *_: Any) -> dict[Any, Any]:
    if isinstance(items, dict):
        return dict(items)
    if not isinstance(items, (list, tuple)):
        raise TypeError("no items")
    return {plain_key(key): value for key, value in items}


def _default_dict(_factory: Any = None, items: Any = ()) -> dict[Any, Any]:
    return _dict(items)


def _list(items: Any = (), *_: Any) -> list[Any]:
    if not isinstance(items, (list, tuple, set, frozenset)):
        raise TypeError("no items")
    return list(items)


def _set(items: Any = ()) -> set[Any]:
    return {plain_key(item) for item in _list(items)}


def _size(sizes: Any = ()) -> tuple[int, ...]:
    return plain_shape(sizes)


def _device(*parts: Any) -> str:
    return ":".join(str(part)[:40] for part in parts if isinstance(part, (str, int)))


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1", "utf-8", "utf8", "ascii"):
        raise ValueError("another encoding")
    return bytes(text.encode(encoding))


def _byte_array(data: Any = b"", encoding: Any = "latin-1") -> bytes:
    return data if isinstance(data, bytes) else _encoded(data, encoding)


def _complex(real: Any = 0.0, imaginary: Any = 0.0) -> complex:
    return complex(float(real), float(imaginary))


def _path(*parts: Any) -> str:
    joined = "/".join(part for part in parts if isinstance(part, str))
    return joined[1:] if joined.startswith("//") else joined


def _record(kind: str, *arguments: Any) -> Record:
    return Record(kind, arguments)


def _array(*_: Any) -> PickledArray:
    return PickledArray()


def _array_of_bytes(data: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> PickledArray:
    if not isinstance(data, bytes) or not isinstance(dtype, Record) or order not in ("C", "A"):
        raise TypeError("no array")
    array = PickledArray()
    array.set(dtype, shape, data)
    return array


def _number(dtype: Any, data: Any) -> PickledArray:
    array = PickledArray()
    array.set(dtype, (), data)
    return array


Maker = Callable[..., Any]


def _python() -> dict[tuple[str, str], Maker | Named]:
    makers: dict[tuple[str, str], Maker | Named] = {
        ("collections", "OrderedDict"): _dict,
        ("collections", "Counter"): _dict,
        ("collections", "defaultdict"): _default_dict,
        ("collections", "deque"): _list,
        ("_codecs", "encode"): _encoded,
        ("argparse", "Namespace"): partial(_record, "Namespace"),
        ("types", "SimpleNamespace"): partial(_record, "SimpleNamespace"),
        ("datetime", "datetime"): partial(_record, "datetime"),
        ("datetime", "date"): partial(_record, "date"),
        ("datetime", "timedelta"): partial(_record, "timedelta"),
    }
    for module in ("builtins", "__builtin__"):
        makers |= {
            (module, "set"): _set,
            (module, "frozenset"): _set,
            (module, "bytearray"): _byte_array,
            (module, "complex"): _complex,
            # default factories of a defaultdict; never called by us
            **{(module, name): Named(module, name) for name in ("dict", "list", "int", "float", "str", "bool")},
        }
    for name in ("PosixPath", "PurePosixPath", "Path", "PurePath", "WindowsPath", "PureWindowsPath"):
        makers["pathlib", name] = makers["pathlib._local", name] = _path
    return makers


def _numpy() -> dict[tuple[str, str], Maker | Named]:
    makers: dict[tuple[str, str], Maker | Named] = {
        ("numpy", "ndarray"): Named("numpy", "ndarray"),
        ("numpy", "dtype"): partial(_record, "dtype"),
    }
    for core in ("numpy.core", "numpy._core"):
        makers |= {
            (f"{core}.multiarray", "_reconstruct"): _array,
            (f"{core}.multiarray", "scalar"): _number,
            (f"{core}.numeric", "_frombuffer"): _array_of_bytes,
        }
    return makers


def _torch() -> dict[tuple[str, str], Maker | Named]:
    makers: dict[tuple[str, str], Maker | Named] = {
        ("torch", "Size"): _size,
        ("torch", "device"): _device,
        ("torch", "Tensor"): Named("torch", "Tensor"),
        ("torch.nn.parameter", "Parameter"): _first,
        ("torch.serialization", "_get_layout"): _first,
        ("torch._tensor", "_rebuild_from_type_v2"): _tensor_with_attributes,
        ("torch._utils", "_rebuild_tensor"): _tensor,
        ("torch._utils", "_rebuild_tensor_v2"): _tensor,
        ("torch._utils", "_rebuild_tensor_v3"): _tensor_of_type,
        ("torch._utils", "_rebuild_qtensor"): _tensor,
        ("torch._utils", "_rebuild_parameter"): _first,
        ("torch._utils", "_rebuild_parameter_with_state"): _first,
        ("torch._utils", "_rebuild_sparse_tensor"): partial(_record, "sparse tensor"),
        ("torch._utils", "_rebuild_nested_tensor"): partial(_record, "nested tensor"),
        ("torch._utils", "_rebuild_meta_tensor_no_storage"): partial(_record, "tensor without values"),
    }
    for name in ("per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric", "strided"):
        makers["torch", name] = Named("torch", name)
    for name in DTYPES:
        makers["torch", name] = Named("torch", name)
    for name in STORAGES:
        for module in ("torch", "torch.cuda", "torch.storage"):
            makers[module, name] = Named(module, name)
    return makers


def _distributed() -> dict[tuple[str, str], Maker | Named]:
    base = "torch.distributed.checkpoint"
    classes = (
        "Metadata", "TensorStorageMetadata", "ChunkStorageMetadata", "BytesStorageMetadata", "MetadataIndex",
        "TensorProperties", "StorageMeta", "_MEM_FORMAT_ENCODING",
    )  # fmt: skip
    makers: dict[tuple[str, str], Maker | Named] = {
        (f"{base}.metadata", name): partial(_record, name) for name in classes
    }
    makers[f"{base}.filesystem", "_StorageInfo"] = partial(_record, "_StorageInfo")
    for module in ("sharding_spec.chunk_sharding_spec", "sharded_tensor.metadata"):
        makers[f"torch.distributed._shard.{module}", "TensorProperties"] = partial(_record, "TensorProperties")
    return makers


MAKERS = _python() | _numpy() | _torch()
"""Names allowed in a file of ``torch.save``."""

DISTRIBUTED_MAKERS = MAKERS | _distributed()
"""Names allowed in the ``.metadata`` of a distributed checkpoint."""
