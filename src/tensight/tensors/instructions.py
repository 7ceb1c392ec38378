"""The instructions that numba has no word for: what the loops of `kernels` are made of.

Each is a line or two of LLVM code. They exist for three reasons: to read memory by address (so that one compiled kernel
serves arrays of any kind), to keep counters as narrow as the values (or loops lose half their speed), and to free the
order of those additions, and only those, whose order is free.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tensight.tensors.layout import SCRAMBLE_1, SCRAMBLE_2, TILE

if TYPE_CHECKING:
    from collections.abc import Callable

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_FLOAT, _DOUBLE = ir.FloatType(), ir.DoubleType()
_types: Any = types
_NO_NAN = ("nnan", "nsz")
_ANY_ORDER = ("reassoc", "nsz", "contract")


def _instruction(result: Any, emit: Callable[..., Any]) -> Any:
    """Return a function that kernels can call.

    Parameters
    ----------
    result : numba type or int
        The type of the result, or the place of the operand that has the same type.
    emit : callable (builder, LLVM type of the result, operands…) -> LLVM value, or None for no result
        Writes the instruction.
    """

    def typed(_typing: Any, *operands: Any) -> Any:
        kind = operands[result] if isinstance(result, int) else result

        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            emitted = emit(builder, context.get_value_type(kind), *values)
            return context.get_dummy_value() if emitted is None else emitted

        return kind(*operands), generate

    # numba reads the number of operands off the signature: those of `emit`, after the typing context
    _, _, *operands = inspect.signature(emit).parameters
    places = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("typing", *operands)]
    typed.__signature__ = inspect.Signature(places)  # type: ignore[attr-defined]
    return intrinsic(typed)


def _element(builder: Any, address: Any, index: Any, kind: Any) -> Any:
    return builder.gep(builder.inttoptr(address, ir.PointerType(kind)), [index])


def _load(builder: Any, kind: Any, address: Any, index: Any) -> Any:
    return builder.load(_element(builder, address, index, kind), align=1)


def _store(builder: Any, _kind: Any, address: Any, index: Any, bits: Any) -> None:
    builder.store(bits, _element(builder, address, index, bits.type), align=1)


def _load_like(builder: Any, kind: Any, address: Any, index: Any, _like: Any) -> Any:
    return _load(builder, kind, address, index)


def _take_number(builder: Any, _kind: Any, address: Any, index: Any) -> Any:
    return builder.atomic_rmw("add", _element(builder, address, index, _I64), _I64(1), "monotonic")


def _ahead(builder: Any, _kind: Any, address: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
    name = "llvm.prefetch.p0i8"
    prefetch = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(prefetch, [builder.inttoptr(address, _I8.as_pointer()), _I32(0), _I32(3), _I32(1)])


def _transpose_tile(builder: Any, _kind: Any, source: Any, below: Any, target: Any, next_row: Any, like: Any) -> None:
    lane = like.type
    tile = ir.VectorType(lane, TILE)

    def line(start: Any, step: Any, number: int) -> Any:
        return builder.inttoptr(builder.add(start, builder.mul(step, _I64(number))), tile.as_pointer())

    rows = [builder.load(line(source, below, number), align=1) for number in range(TILE)]
    # Lanes of pairs of rows take turns; after three times each row has one lane of all.
    lanes = ir.VectorType(_I32, TILE)
    half = TILE // 2
    first = lanes([at // 2 + at % 2 * TILE for at in range(TILE)])
    second = lanes([half + at // 2 + at % 2 * TILE for at in range(TILE)])
    for _ in range(TILE.bit_length() - 1):
        pairs = list(zip(rows[:half], rows[half:], strict=True))
        rows = [builder.shuffle_vector(*pair, mask) for pair in pairs for mask in (first, second)]
    for number, row in enumerate(rows):
        builder.store(row, line(target, next_row, number), align=1)


def _pointer(builder: Any, kind: Any, address: Any) -> Any:
    return builder.inttoptr(address, kind)


load_byte = _instruction(types.uint8, _load)
load_half = _instruction(types.uint16, _load)
load_word = _instruction(types.int64, _load)
load_like = _instruction(2, _load_like)
"""Load the bits of a value, ``(address, index, like)``, as an integer of the width of `like`."""
store_bits = _instruction(types.void, _store)
take_number = _instruction(types.int64, _take_number)
"""Return a word and add one to it, whatever other threads do with it; it lies at a multiple of eight bytes."""
ahead = _instruction(types.void, _ahead)
"""Ask for the line of the cache at an address, which may be nobody's."""
transpose_tile = _instruction(types.void, _transpose_tile)
"""Write as rows what lies below each other, `TILE` elements of the width of `like` in both directions.

``(source, bytes between two columns, target, bytes between two rows, like)``.
"""
reals_at = _instruction(_types.CPointer(types.float64), _pointer)
counts_at = _instruction(_types.CPointer(types.int64), _pointer)
"""Return a pointer from an address."""


def _order_key(builder: Any, kind: Any, bits: Any) -> Any:
    return builder.xor(bits, builder.lshr(builder.ashr(bits, kind(kind.width - 1)), kind(1)))


def _real(builder: Any, kind: Any, bits: Any) -> Any:
    if bits.type.width == 64:
        return builder.bitcast(bits, kind)
    return builder.fpext(builder.bitcast(bits, _FLOAT), kind)


def _narrow(builder: Any, kind: Any, number: Any, _like: Any) -> Any:
    return number if kind.width == 64 else builder.trunc(number, kind)


def _count_if(builder: Any, kind: Any, count: Any, condition: Any) -> Any:
    return builder.add(count, builder.zext(condition, kind))


def _least(builder: Any, _kind: Any, one: Any, other: Any) -> Any:
    return _choose(builder, "<", one, other)


def _greatest(builder: Any, _kind: Any, one: Any, other: Any) -> Any:
    return _choose(builder, ">", one, other)


def _choose(builder: Any, relation: str, one: Any, other: Any) -> Any:
    """Emit the bits of the number that stands in a relation to the other.

    Only a loop that is told not to care about NaN and the sign of zero becomes vector code.
    """
    kind = _FLOAT if one.type.width == 32 else _DOUBLE
    numbers = builder.bitcast(one, kind), builder.bitcast(other, kind)
    chosen = builder.fcmp_ordered(relation, *numbers, flags=_NO_NAN)
    return builder.bitcast(builder.select(chosen, *numbers, flags=_NO_NAN), one.type)


def _greater_magnitude(builder: Any, kind: Any, largest: Any, bits: Any) -> Any:
    magnitude = builder.and_(bits, kind((1 << (kind.width - 1)) - 1))
    return builder.select(builder.icmp_signed(">", magnitude, largest), magnitude, largest)


def _is_negative(builder: Any, _kind: Any, bits: Any) -> Any:
    return builder.icmp_unsigned(">", bits, bits.type(1 << (bits.type.width - 1)))


order_key = _instruction(0, _order_key)
"""Return the order key of a value's bits, or the bits of an order key: the function is its own inverse."""
least = _instruction(0, _least)
"""Return the bits of the smaller of two numbers, undefined if one is NaN."""
greatest = _instruction(0, _greatest)
"""Return the bits of the larger of two numbers, undefined if one is NaN."""
greater_magnitude = _instruction(0, _greater_magnitude)
"""Return the larger one of a magnitude's bits and the bits of a value without their sign."""
is_negative = _instruction(types.boolean, _is_negative)
"""Return whether bits are those of a number below zero (for which -0.0 is not)."""
real = _instruction(types.float64, _real)
"""Return the value that has these bits as a double."""
narrow = _instruction(1, _narrow)
"""Return an int64 as an integer of the width of the second operand."""
count_if = _instruction(0, _count_if)
"""Return ``count + condition`` in the counter's width."""


def _add(builder: Any, _kind: Any, total: Any, term: Any) -> Any:
    return builder.fadd(total, term, flags=_ANY_ORDER)


def _add_square(builder: Any, _kind: Any, total: Any, term: Any) -> Any:
    return builder.fadd(total, builder.fmul(term, term, flags=("contract",)), flags=_ANY_ORDER)


def _add_product(builder: Any, _kind: Any, total: Any, word: Any) -> Any:
    return builder.add(total, builder.mul(builder.and_(word, _I64(0xFFFFFFFF)), builder.lshr(word, _I64(32))))


def _scramble(builder: Any, _kind: Any, word: Any) -> Any:
    word = builder.mul(builder.xor(word, builder.lshr(word, _I64(32))), _I64(SCRAMBLE_1))
    word = builder.mul(builder.xor(word, builder.lshr(word, _I64(29))), _I64(SCRAMBLE_2))
    return builder.xor(word, builder.lshr(word, _I64(32)))


def _double_bits(builder: Any, _kind: Any, number: Any) -> Any:
    return builder.bitcast(number, _I64)


def _double_of(builder: Any, kind: Any, bits: Any) -> Any:
    return builder.bitcast(bits, kind)


def _required_rtol(builder: Any, kind: Any, change: Any, atol: Any, previous: Any) -> Any:
    required = builder.fdiv(builder.fsub(change, atol), previous)
    return builder.select(builder.fcmp_ordered(">", change, atol), required, kind(0.0))


add = _instruction(types.float64, _add)
"""Return ``total + term``; a loop may add in any order."""
add_square = _instruction(types.float64, _add_square)
"""Return ``total + term * term``; a loop may add in any order."""
add_product = _instruction(types.int64, _add_product)
"""Return an integer total plus the product of the two halves of a 64-bit word, which is one machine instruction."""
scramble = _instruction(types.int64, _scramble)
"""Return `layout.scramble` of a 64-bit word."""
double_bits = _instruction(types.int64, _double_bits)
"""Return the bits of a double: for numbers that are not negative, integers in the same order."""
double_of = _instruction(types.float64, _double_of)
"""Return the double that has these bits."""
required_rtol = _instruction(types.float64, _required_rtol)
"""Return the rtol that lets ``change <= atol + rtol * previous`` hold, from change, atol and previous."""


def _widen_half(builder: Any, _kind: Any, half: Any) -> Any:
    """Emit float16 to float32.

    Normal numbers get the other exponent bias; a subnormal one is placed behind a hidden one and that is subtracted,
    which needs no subnormal float32 (a host program may have switched those off).
    """
    bits = builder.zext(half, _I32)
    magnitude = builder.shl(builder.and_(bits, _I32(0x7FFF)), _I32(13))
    normal = builder.add(magnitude, _I32(112 << 23))
    hidden_one = builder.bitcast(builder.add(magnitude, _I32(113 << 23)), _FLOAT)
    subnormal = builder.bitcast(builder.fsub(hidden_one, _FLOAT(2.0**-14)), _I32)
    value = builder.select(builder.icmp_unsigned("<", magnitude, _I32(1 << 23)), subnormal, normal)
    not_finite = builder.icmp_unsigned(">=", magnitude, _I32(31 << 23))
    value = builder.select(not_finite, builder.or_(magnitude, _I32(0x7F800000)), value)
    return builder.or_(value, builder.shl(builder.and_(bits, _I32(0x8000)), _I32(16)))


def _widen_brain(builder: Any, _kind: Any, brain: Any) -> Any:
    return builder.shl(builder.zext(brain, _I32), _I32(16))


widen_half = _instruction(types.int32, _widen_half)
"""Return the float32 bits of a float16."""
widen_brain = _instruction(types.int32, _widen_brain)
"""Return the float32 bits of a bfloat16: its own, above sixteen zeros."""
