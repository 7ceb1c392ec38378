"""Data types, as numbered in MindSpore's graph files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_PLAIN = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FLOAT16", "FLOAT32", "FLOAT64")
_LISTS = tuple(re.sub(r"(\d+)", r"S\1", name) for name in _PLAIN)
_KINDS = (
    *("UNDEFINED", "BOOL", *_PLAIN, "STRING", "TENSOR", "GRAPH"),
    *("BOOLS", *_LISTS, "STRINGS", "TENSORS", "GRAPHS"),
    *("TUPLE", "LIST", "DICT", "NONE", "SYM_INST", "BASE_INT", "BASE_UINT", "BASE_FLOAT", "TYPE", "ANY"),
    *("REFKEY", "REF", "UMONAD", "IOMONAD"),
)
_NAMES: dict[int, str] = {number: f"DT_{kind}" for number, kind in enumerate(_KINDS)}
_NAMES |= {46: "DT_BFLOAT16", 47: "DT_BFLOATS16", 48: "DT_INT4", 49: "DT_SLICE"}
# MindSpore's graph files (up to 2.10) have no known numbers for 8-bit floats. These are Tensight's own, above 1000 like
# those of complex types on the wire: 18, followed by the bits of exponent and mantissa.
_NAMES |= {1843: "DT_FLOAT8_E4M3FN", 1852: "DT_FLOAT8_E5M2"}
_NUMBERS = {name: number for number, name in _NAMES.items()}

_NUMPY_NAMES: dict[int, str] = {
    number: _NAMES[number].removeprefix("DT_").lower() for number in (*range(1, 13), _NUMBERS["DT_BFLOAT16"])
}
_NUMPY_NAMES[_NUMBERS["DT_INT4"]] = "int4"
_NUMPY_NAMES |= {_NUMBERS["DT_FLOAT8_E4M3FN"]: "float8_e4m3fn", _NUMBERS["DT_FLOAT8_E5M2"]: "float8_e5m2"}

DT_TENSOR = _NUMBERS["DT_TENSOR"]
DT_STRING = _NUMBERS["DT_STRING"]
DT_TUPLE = _NUMBERS["DT_TUPLE"]
DT_LIST = _NUMBERS["DT_LIST"]
DT_DICT = _NUMBERS["DT_DICT"]
DT_NONE = _NUMBERS["DT_NONE"]
MONADS = frozenset({_NUMBERS["DT_UMONAD"], _NUMBERS["DT_IOMONAD"]})

# No framework allows more dimensions, so a larger shape is damaged.
_MOST_DIMENSIONS = 64


def data_type_name(number: int) -> str:
    """Return MindSpore's name of a DataType number; ``DT_UNKNOWN_77`` for an unknown number."""
    return _NAMES.get(number, f"DT_UNKNOWN_{number}")


def data_type_number(name: str) -> int | None:
    """Return the DataType number of a name such as ``DT_FLOAT32``, None for an unknown name."""
    return _NUMBERS.get(name)


def numpy_dtype_name(number: int) -> str:
    """Return the dtype name of a DataType number; empty if it is not an element type.

    Names are those of NumPy, and for ``bfloat16``, ``int4`` and 8-bit floats those of ml_dtypes.
    """
    return _NUMPY_NAMES.get(number, "")


@dataclass(frozen=True, slots=True)
class OutputSlot:
    """Type and shape of an output of a node.

    Attributes
    ----------
    data_type : int
        MindSpore's DataType number, of the elements for a tensor, otherwise of the value itself.
    dtype : str
        Name of the elements' dtype, such as ``float32`` or ``bfloat16``; empty for an unknown type and for a value
        that is not a tensor.
    shape : tuple of int or None
        -1 for a dimension that is known only at run time. None for a value that is not a tensor, for a tensor with an
        unknown number of dimensions, and for the elements of a tuple (the file does not contain their shapes).
    """

    data_type: int
    dtype: str
    shape: tuple[int, ...] | None

    @staticmethod
    def of_tensor(data_type: int, shape: tuple[int, ...] | None) -> OutputSlot:
        """Describe a tensor; an invalid shape is treated as unknown.

        The many tensors of a network have few shapes, so each description is kept and shared.
        """
        if shape is not None and (len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < -1):
            shape = None
        return _output_slot(data_type, shape)


@lru_cache(maxsize=4096)
def _output_slot(data_type: int, shape: tuple[int, ...] | None) -> OutputSlot:
    return OutputSlot(data_type, numpy_dtype_name(data_type), shape)
