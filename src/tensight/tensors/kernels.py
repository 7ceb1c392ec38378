"""The compiled scan: one fused pass over the elements that fills the arrays of `layout`.

Importing this module imports numba. Only what compiles does it (`warm`): a process that scans tensors loads the object
code that comes out of here (`native`), which needs neither numba nor anything else of Python.

How it gets its speed
---------------------
A block of `BLOCK` elements is scanned by two loops while it lies in the first-level cache: the first takes all moments
and counts, the second the content hash. (Asking for the next block in advance gained nothing.) Loops are written so
that LLVM turns them into vector code: additions may be reordered (and only additions: the flag is set on those
instructions alone, because reordering ``x - shift`` would lose the accuracy that the shift is there for). Blocks with
an element that is not finite go a slower way, in which the finite ones are first gathered.

float16 and bfloat16 blocks are first widened to float32, exactly, into a scratch block; what has no kernel of its own
(integers, bool, complex magnitudes) arrives here as float32 or float64 values beside the raw bytes for the hash.

How it gets its accuracy
------------------------
Signs are counted on the bits, so that they are right for subnormal numbers whatever the host program made of them.
Ranges are compared by *order keys*: the bits as a signed integer, with the lower bits of negative numbers flipped. Keys
order exactly as the numbers do, -0.0 is -1 and +0.0 is 0, and NaN has keys beyond those of the infinities.

Deviations are summed in double precision around a shift, the block's first element: with
``s1 = sum(x - shift)`` and ``s2 = sum((x - shift)**2)`` the sum of squared deviations is ``s2 - s1**2 / n``. Because
the shift is one of the elements, ``s1**2 / n <= (n - 1) / n * s2``, so the subtraction loses at most a factor n = 1024
of double precision whatever the data (about 1e-13 relative). Blocks are joined by the pairwise formula of
Chan, Golub and LeVeque (1979), first to parts of `PART` elements, then these: so threads can each take some.

A kernel is given the address of a *task*, 64-bit words that say where things are (`layout`): a call with many arguments
takes longer than a small tensor. There is one compiled version per width of the values, whether the array is writable,
aligned, mapped or not. And all of it is compiled without numba's counting of references and its exceptions, so that the
object code calls nothing outside of itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from tensight.tensors.instructions import (
    add,
    add_product,
    add_square,
    ahead,
    count_if,
    counts_at,
    double_bits,
    double_of,
    greater_magnitude,
    greatest,
    is_negative,
    least,
    load_byte,
    load_half,
    load_like,
    load_word,
    narrow,
    order_key,
    real,
    reals_at,
    required_rtol,
    scramble,
    store_bits,
    take_number,
    transpose_tile,
    widen_brain,
    widen_half,
)
from tensight.tensors.layout import (
    ABSOLUTE_TOTAL,
    AHEAD,
    BLOCK,
    BLOCK_STEP,
    BRAIN,
    CHANGE_MAXIMUM,
    CHANGE_SQUARES,
    CHANGE_TOTAL,
    COUNTS,
    DOUBLE,
    FINITE,
    FINITE_BLOCK,
    FIRST_KEY,
    FIRST_STEP,
    HALF,
    HASH,
    MAXIMUM,
    MINIMUM,
    NAN,
    NEGATIVE,
    NEGATIVE_INFINITE,
    PART,
    POSITIVE,
    POSITIVE_INFINITE,
    PREVIOUS_TOTAL,
    REALS,
    REQUIRED_RTOL,
    ROW_BYTES,
    SECOND_KEY,
    SECOND_STEP,
    SHARED_SCRATCH,
    SQUARED_DEVIATION,
    TILE,
    TOTAL,
    VALUES,
)
from tensight.tensors.native import INFINITY_32, INFINITY_64, INFINITY_BRAIN, INFINITY_HALF, Kernel, object_code

if TYPE_CHECKING:
    from collections.abc import Callable

_OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""No counting of references (there are no objects) and no exceptions (nothing divides by zero)."""

_ENTRY_OPTIONS = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_numba: Any = numba  # decorators lose the types of what they decorate


def _inner(function: Callable[..., Any]) -> Any:
    """Return the compiled form of a part of a kernel; it becomes part of its callers."""
    return _numba.njit(**_OPTIONS)(function)


@_inner
def widen(kind: int, source: int, target: int, count: int) -> None:
    """Write float16 or bfloat16 elements as float32."""
    if kind == HALF:
        for i in range(count):
            store_bits(target, i, widen_half(load_half(source, i)))
    else:
        for i in range(count):
            store_bits(target, i, widen_brain(load_half(source, i)))


@_inner
def hash_block(source: int, size_bytes: int, number: int) -> int:
    """Return the hash of one block (`layout`) as the signed integer with the same bits."""
    words = size_bytes // 8
    first = 0
    second = 0
    for i in range(words):
        word = load_word(source, i)
        first = add_product(first, word ^ (FIRST_KEY + i * FIRST_STEP))
        second = add_product(second, word + (SECOND_KEY + i * SECOND_STEP))
    if size_bytes % 8:
        word = 0
        for i in range(size_bytes - 1, words * 8 - 1, -1):
            word = (word << 8) | load_byte(source, i)
        first = add_product(first, word ^ (FIRST_KEY + words * FIRST_STEP))
        second = add_product(second, word + (SECOND_KEY + words * SECOND_STEP))
    block_hash: int = scramble(scramble(first + (number + 1) * BLOCK_STEP) ^ second)
    return block_hash


@_inner
def keep_finite(source: int, target: int, count: int, infinity: Any, counts: Any) -> int:
    """Copy the finite values, count the others, return how many were copied; without branches, which NaN spoil."""
    kept = 0
    above = 0
    below = 0
    for i in range(count):
        bits = load_like(source, i, infinity)
        key = order_key(bits)
        store_bits(target, kept, bits)
        kept += (key < infinity) & (key > ~infinity)
        above += key == infinity
        below += key == ~infinity
    counts[POSITIVE_INFINITE] += above
    counts[NEGATIVE_INFINITE] += below
    counts[NAN] += count - kept - above - below
    return kept


@_inner
def add_moments(count: int, total: float, spread: float, low: float, high: float, reals: Any, counts: Any) -> None:
    """Add so many finite values to the totals, of which sum, squared deviations and extremes are known."""
    before = counts[FINITE]
    if before:
        gap = total / count - reals[TOTAL] / before
        spread += gap * gap * (count * (before / (before + count)))
    counts[FINITE] = before + count
    reals[TOTAL] += total
    reals[SQUARED_DEVIATION] += spread
    reals[MINIMUM] = min(reals[MINIMUM], low)
    reals[MAXIMUM] = max(reals[MAXIMUM], high)


@_inner
def scan_values(source: int, count: int, infinity: Any, finite: bool, reals: Any, counts: Any) -> bool:
    """Add one block of values to the totals.

    Unless they are known to be finite, return False and add nothing if one of them seems not to be: the sum of
    magnitudes says so. (It may also overflow.) Until then nothing looks at the extremes, which a NaN makes undefined.
    """
    zero = narrow(0, infinity)
    lowest = load_like(source, 0, infinity)
    highest = lowest
    shift = real(lowest)
    negative = zero
    positive = zero
    total = 0.0
    squares = 0.0
    absolutes = 0.0
    for i in range(count):
        bits = load_like(source, i, infinity)
        lowest = least(bits, lowest)
        highest = greatest(bits, highest)
        negative = count_if(negative, is_negative(bits))
        positive = count_if(positive, bits > 0)
        value = real(bits)
        deviation = value - shift
        total = add(total, deviation)
        squares = add_square(squares, deviation)
        absolutes = add(absolutes, abs(value))
    if not finite and not absolutes < np.inf:
        return False
    spread = max(squares - total * (total / count), 0.0)
    total += shift * count
    counts[NEGATIVE] += negative
    counts[POSITIVE] += positive
    reals[ABSOLUTE_TOTAL] += absolutes
    add_moments(count, total, spread, real(lowest), real(highest), reals, counts)
    return True


@_inner
def count_range(source: int, count: int, low: Any, high: Any) -> int:
    """Return how many values have an order key from `low` to `high`, both included."""
    inside = narrow(0, low)
    for i in range(count):
        key = order_key(load_like(source, i, low))
        inside = count_if(inside, (key >= low) & (key <= high))
    return int(inside)


@_inner
def scan_block(
    kind: int, raw: int, values: int, count: int, scratch: int, infinity: Any, reals: Any, counts: Any
) -> int:
    """Add one block of elements to the totals, but for its hash; return where its values are."""
    width = 4 if infinity == INFINITY_32 else 8
    source = values
    if kind != VALUES:
        widen(kind, raw, scratch, count)
        source = scratch
    if not scan_values(source, count, infinity, False, reals, counts):
        kept = scratch + BLOCK * width
        finite = keep_finite(source, kept, count, infinity, counts)
        if finite:
            scan_values(kept, finite, infinity, True, reals, counts)
    return source


@_inner
def clear(reals: Any, counts: Any, range_count: int) -> None:
    """Make totals those of nothing."""
    for i in range(REALS):
        reals[i] = 0.0
    reals[MINIMUM] = np.inf
    reals[MAXIMUM] = -np.inf
    for i in range(COUNTS + range_count):
        counts[i] = 0


@_inner
def offset(number: int, axis_count: int, axes: Any) -> int:
    """Return where the element with a number in C order lies, in elements, over the first axes of a strided tensor."""
    found = 0
    for axis in range(axis_count - 1, -1, -1):
        found += number % axes[2 * axis] * axes[2 * axis + 1]
        number //= axes[2 * axis]
    return found


@_inner
def gather(source: int, target: int, first: int, count: int, axes: Any, axis_count: int, like: Any) -> None:
    """Write elements of a strided tensor one after the other, in C order, from the `first` on.

    Of a transposed matrix some rows are written at the same time: their elements of a column lie side by side.
    """
    width = 2 if like == INFINITY_HALF else 4
    last = axis_count - 1
    length, stride = axes[2 * last], axes[2 * last + 1] * width
    row_count, row_stride = (axes[2 * last - 2], axes[2 * last - 1] * width) if last else (1, 0)
    row, column = first // length, first % length
    row_here = source + offset(row // row_count, last - 1, axes) * width
    row %= row_count
    done = 0
    while done < count:
        here, to = row_here + row * row_stride, target + done * width
        if row_stride == width and column == 0 and row_count - row >= TILE and count - done >= TILE * length:
            whole = length // TILE * TILE
            for at in range(0, whole, TILE):
                for i in range(TILE):
                    ahead(here + (at + AHEAD + i) * stride)
                transpose_tile(here + at * stride, stride, to + at * width, length * width, like)
            for at in range(whole, length):
                for i in range(TILE):
                    store_bits(to, i * length + at, load_like(here + at * stride, i, like))
            done += TILE * length
            row += TILE
        else:
            here += column * stride
            run = min(length - column, count - done)
            if stride == width:
                for i in range(run):
                    store_bits(to, i, load_like(here, i, like))
            else:
                for i in range(run):
                    store_bits(to, i, load_like(here + i * stride, 0, like))
            done += run
            column = 0
            row += 1
        if row == row_count:
            row = 0
            row_here = source + offset((first + done) // length // row_count, last - 1, axes) * width


@_inner
def scan_part(infinity: Any, task: int, first: int, raw: int, values: int, count: int, scratch: int, row: int) -> None:
    """Make a row (`layout.ROW_BYTES`) the totals of at most `PART` elements of a task, from the `first` on."""
    kind, item_bytes, first_block = load_word(task, 0), load_word(task, 2), load_word(task, 5)
    all_counts = counts_at(load_word(task, 8))
    ranges, range_count = counts_at(load_word(task, 9)), load_word(task, 10)
    reals, counts = reals_at(row), counts_at(row + REALS * 8)
    clear(reals, counts, 0)
    width = 4 if infinity == INFINITY_32 else 8
    for done in range(0, count, BLOCK):
        block = min(BLOCK, count - done)
        here = raw + done * item_bytes
        source = scan_block(kind, here, values + done * width, block, scratch, infinity, reals, counts)
        for i in range(range_count):
            low = narrow(ranges[2 * i], infinity)
            high = narrow(ranges[2 * i + 1], infinity)
            all_counts[COUNTS + i] += count_range(source, block, low, high)
        if first_block >= 0:
            counts[HASH] += hash_block(here, block * item_bytes, first_block + (first + done) // BLOCK)


@_inner
def add_row(row: int, reals: Any, counts: Any) -> None:
    """Add the totals of a part to those of the whole."""
    some, found = reals_at(row), counts_at(row + REALS * 8)
    if found[FINITE]:
        low, high = some[MINIMUM], some[MAXIMUM]
        add_moments(found[FINITE], some[TOTAL], some[SQUARED_DEVIATION], low, high, reals, counts)
    reals[ABSOLUTE_TOTAL] += some[ABSOLUTE_TOTAL]
    for i in range(FINITE + 1, COUNTS):
        counts[i] += found[i]


@_inner
def scan(infinity: Any, task: int) -> None:
    """Add the elements of a task to its totals (`layout.SCAN_TASK`)."""
    raw, item_bytes, values, count = load_word(task, 1), load_word(task, 2), load_word(task, 3), load_word(task, 4)
    scratch, reals, counts = load_word(task, 6), reals_at(load_word(task, 7)), counts_at(load_word(task, 8))
    if load_word(task, 11):
        clear(reals, counts, load_word(task, 10))
    width = 4 if infinity == INFINITY_32 else 8
    row = scratch + 2 * BLOCK * width
    for first in range(0, count, PART):
        here, those = raw + first * item_bytes, values + first * width
        scan_part(infinity, task, first, here, those, min(PART, count - first), scratch, row)
        add_row(row, reals, counts)


@_inner
def put_together(task: int) -> None:
    """Make the totals of a task those of the rows of its parts."""
    reals, counts = reals_at(load_word(task, 7)), counts_at(load_word(task, 8))
    row = load_word(task, 14)
    clear(reals, counts, 0)
    for _ in range(0, load_word(task, 4), PART):
        add_row(row, reals, counts)
        row += ROW_BYTES


def scan_shared(task: int) -> int:
    """Scan the parts of a task (`layout.SHARED_TASK`) that no other thread takes, or put together what they found.

    The totals are those of `scan`, to the last bit, however many threads there were.
    """
    raw, item_bytes, count = load_word(task, 1), load_word(task, 2), load_word(task, 4)
    rows, axis_count, axes = load_word(task, 14), load_word(task, 16), counts_at(task + 17 * 8)
    if load_word(task, 15):
        put_together(task)
        return 0
    first = take_number(task, 12) * PART
    if first >= count:
        return 0
    scratch = load_word(task, 6) + take_number(task, 13) * SHARED_SCRATCH
    while first < count:
        part = min(PART, count - first)
        here = raw + first * item_bytes
        if axis_count:
            here = scratch + 2 * BLOCK * 4
            if item_bytes == 2:
                gather(raw, here, first, part, axes, axis_count, INFINITY_HALF)
            else:
                gather(raw, here, first, part, axes, axis_count, INFINITY_32)
        scan_part(INFINITY_32, task, first, here, here, part, scratch, rows + first // PART * ROW_BYTES)
        first = take_number(task, 12) * PART
    return 0


@_inner
def change_values(current: int, previous: int, count: int, infinity: Any, atol: float, totals: Any) -> None:
    """Add one block of pairs of values to the totals; maxima are compared as bits, which orders numbers >= 0."""
    changes = 0.0
    squares = 0.0
    sizes = 0.0
    largest = 0
    required = 0
    for i in range(count):
        before = real(load_like(previous, i, infinity))
        change = abs(real(load_like(current, i, infinity)) - before)
        size = abs(before)
        changes = add(changes, change)
        squares = add_square(squares, change)
        sizes = add(sizes, size)
        bits = double_bits(change)
        largest = bits if bits > largest else largest
        bits = double_bits(required_rtol(change, atol, size))
        required = bits if bits > required else required
    totals[CHANGE_TOTAL] += changes
    totals[CHANGE_SQUARES] += squares
    totals[PREVIOUS_TOTAL] += sizes
    totals[CHANGE_MAXIMUM] = max(totals[CHANGE_MAXIMUM], double_of(largest))
    totals[REQUIRED_RTOL] = max(totals[REQUIRED_RTOL], double_of(required))


@_inner
def compare(infinity: Any, task: int) -> None:
    """Add the pairs of elements of a task to its totals (`layout.CHANGE_TASK`).

    A total that is not finite says that an element was not, or that squares left the range of float64.
    """
    kind, current, previous = load_word(task, 0), load_word(task, 1), load_word(task, 2)
    count, atol, scratch = load_word(task, 3), double_of(load_word(task, 4)), load_word(task, 5)
    totals = reals_at(load_word(task, 6))
    width = 4 if infinity == INFINITY_32 else 8
    done = 0
    while done < count:
        block = min(BLOCK, count - done)
        if kind == VALUES:
            change_values(current + done * width, previous + done * width, block, infinity, atol, totals)
        else:
            widen(kind, current + done * 2, scratch, block)
            widen(kind, previous + done * 2, scratch + BLOCK * width, block)
            change_values(scratch, scratch + BLOCK * width, block, infinity, atol, totals)
        done += block


@_inner
def reaches(infinity: Any, address: int, count: int) -> bool:
    """Whether one of the elements, whatever its sign, has the bits of infinity or those beyond, of NaN."""
    width = 2 if infinity < INFINITY_32 else 4 if infinity == INFINITY_32 else 8
    for start in range(0, count, FINITE_BLOCK):
        largest = narrow(0, infinity)
        for i in range(min(FINITE_BLOCK, count - start)):
            largest = greater_magnitude(largest, load_like(address + start * width, i, infinity))
        if largest >= infinity:
            return True
    return False


def has_non_finite(task: int) -> int:
    """Return 1 if one of the elements of a task (`layout.FINITE_TASK`) is NaN or infinite, else 0."""
    kind, address, count = load_word(task, 0), load_word(task, 1), load_word(task, 2)
    if kind == HALF:
        found = reaches(INFINITY_HALF, address, count)
    elif kind == BRAIN:
        found = reaches(INFINITY_BRAIN, address, count)
    elif kind == DOUBLE:
        found = reaches(INFINITY_64, address, count)
    else:
        found = reaches(INFINITY_32, address, count)
    return 1 if found else 0


def compile_kernel(kernel: Kernel) -> bytes:
    """Return the object code of a kernel for this processor; takes about half a second.

    Raises
    ------
    RuntimeError
        The code would need something outside of itself.
    """
    dispatcher = _numba.njit(numba.types.int64(numba.types.int64), **_ENTRY_OPTIONS)(_entry(kernel))
    (version,) = dispatcher.overloads.values()
    return object_code(version.library.get_llvm_str(), version.fndesc.llvm_func_name)


def _entry(kernel: Kernel) -> Callable[[int], int]:
    """Return what is called with the address of a task and returns a number."""
    if kernel is Kernel.NON_FINITE:
        return has_non_finite
    if kernel is Kernel.SCAN_SHARED:
        return scan_shared
    infinity = INFINITY_64 if kernel.is_double else INFINITY_32
    work = scan if kernel.is_scan else compare

    def run(task: int) -> int:
        work(infinity, task)
        return 0

    return run
