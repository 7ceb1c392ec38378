"""Definitions shared by the compiled and the NumPy scan: block size, layout of the results, content hash.

Both fill the same two small arrays (`REALS` float64 numbers, `COUNTS` int64 numbers, then one per range), so that the
code after them does not depend on which of the two ran.

The compiled kernels have the same numbers in ``kernels/interface.h``.

The content hash
----------------
64 bits over the little-endian bytes of the elements. The bytes are cut into blocks of `BLOCK` elements; block ``b`` is
read as 64-bit words ``w[i]`` (the last one padded with zeros) and reduced to two sums of 32 x 32 -> 64 bit products,
the NH function of UMAC (RFC 4418, section 5.2.2) with keys that are arithmetic progressions::

    first  = sum over i of low(w[i] ^ k) * high(w[i] ^ k),     k = FIRST_KEY + i * FIRST_STEP    (mod 2**64)
    second = sum over i of low(w[i] + k) * high(w[i] + k),     k = SECOND_KEY + i * SECOND_STEP  (mod 2**64)
    block hash = scramble(scramble(first + (b + 1) * BLOCK_STEP) ^ second)

The hash of a tensor is the sum of its block hashes, mixed with its size and element type. A sum does not depend on
order, so segments can be scanned by any thread in any order; a block hash contains the block's position, so moving data
changes it. The hash detects changed data; it is not cryptographic, so collisions can be constructed.
"""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SEGMENT_ELEMENTS = 2**20
"""Number of elements in every segment of a tensor but the last: the unit of work of the engines."""

BLOCK = 1024
"""Number of elements that are scanned while in the first-level cache; divides the size of a segment."""

CHUNK = 2**16
"""Number of elements that NumPy converts at once; they stay in the cache."""

EXPLOSION_LIMIT = 1e6
"""Finite values beyond this count as an explosion, unless the user sets another limit."""

NO_HASH = -1
"""In place of a block number: skip the hash, which takes a third of the time; its total stays 0."""

PART = 2**15
"""Number of elements whose totals are computed separately and then merged: the unit of work of a thread."""

MOST_AXES = 6
"""Maximum number of axes of strided elements, without axes of length one and after merging contiguous ones."""

MOST_DIMENSIONS = 8
"""Maximum number of dimensions of the tensors in files that are scanned many at a time."""

# indices in the array of reals
TOTAL, ABSOLUTE_TOTAL, SQUARED_DEVIATION, MINIMUM, MAXIMUM = range(5)
REALS = 5
# indices in the array of counts; counts of the ranges follow
FINITE, NAN, NEGATIVE_INFINITE, POSITIVE_INFINITE, NEGATIVE, POSITIVE, HASH = range(7)
COUNTS = 7
# indices in the totals of a comparison of two tensors
CHANGE_TOTAL, CHANGE_SQUARES, PREVIOUS_TOTAL, CHANGE_MAXIMUM, REQUIRED_RTOL = range(5)
CHANGES = 5

FIRST_KEY, FIRST_STEP = 0x2D358DCCAA6C78A5, 0x1E3779B97F4A7C15
SECOND_KEY, SECOND_STEP = 0x0BB84B93962EACC9, 0x4F1BBCDCBFA53E0B
BLOCK_STEP = 0x369DEA0F31A53F85
SCRAMBLE_1, SCRAMBLE_2 = 0x3C79AC492BA7B653, 0x1CE4E5B9BF58476D  # odd, below 2**63 so that they are int64 literals

_MASK = 2**64 - 1


def scramble(word: int) -> int:
    """Return a 64-bit word whose every bit depends on every bit of `word` (multiply and shift, a bijection)."""
    word = (word ^ (word >> 32)) * SCRAMBLE_1 & _MASK
    word = (word ^ (word >> 29)) * SCRAMBLE_2 & _MASK
    return word ^ (word >> 32)


def tensor_hash(block_hashes: int, size_bytes: int, dtype_name: str) -> int:
    """Return the content hash of a tensor from the sum of its blocks' hashes, unsigned 64 bits."""
    kind = zlib.crc32(dtype_name.encode())
    return scramble((block_hashes + scramble((size_bytes * SCRAMBLE_2 + kind) & _MASK)) & _MASK)


def tensor_hashes(
    block_hashes: NDArray[np.uint64], sizes_bytes: NDArray[np.int64], kinds: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Return the content hashes of many tensors; see `tensor_hash`. `kinds` are `hash_kinds` of their types."""
    salts = sizes_bytes.astype(np.uint64) * np.uint64(SCRAMBLE_2) + kinds
    return _scramble_words(block_hashes + _scramble_words(salts))


def hash_kinds(dtype_names: Sequence[str]) -> NDArray[np.uint64]:
    """Return the numbers of element types in content hashes."""
    return np.array([zlib.crc32(name.encode()) for name in dtype_names], np.uint64)


def block_hashes(content_hash: int, size_bytes: int, dtype_name: str) -> int:
    """Return the sum of the block hashes of a content hash: the inverse of `tensor_hash`."""
    salt = scramble((size_bytes * SCRAMBLE_2 + zlib.crc32(dtype_name.encode())) & _MASK)
    return (_unscramble(content_hash) - salt) & _MASK


def _unscramble(word: int) -> int:
    word = _unshift(word, 32) * pow(SCRAMBLE_2, -1, 2**64) & _MASK
    word = _unshift(word, 29) * pow(SCRAMBLE_1, -1, 2**64) & _MASK
    return _unshift(word, 32)


def _unshift(word: int, bits: int) -> int:
    """Return x where ``x ^ (x >> bits)`` is the word."""
    unshifted = word
    for _ in range(64 // bits):
        unshifted = word ^ (unshifted >> bits)
    return unshifted


def hash_blocks(elements: NDArray[np.generic], first_block: int) -> int:
    """Return the sum of the block hashes of contiguous `elements`, unsigned 64 bits, with NumPy.

    Parameters
    ----------
    elements : ndarray, 1-D, contiguous, native byte order
    first_block : int
        Position in the tensor of the block that starts with ``elements[0]``.
    """
    raw = elements.view(np.uint8)
    block_bytes = BLOCK * elements.itemsize
    whole = raw.size // block_bytes
    total = 0
    if whole:
        total += _hash_words(raw[: whole * block_bytes].reshape(whole, block_bytes), first_block)
    rest = raw[whole * block_bytes :]
    if rest.size:
        padded = np.zeros((1, -(-rest.size // 8) * 8), np.uint8)
        padded[0, : rest.size] = rest
        total += _hash_words(padded, first_block + whole)
    return total & _MASK


def _hash_words(blocks: NDArray[np.uint8], first_block: int) -> int:
    """Return the sum of the block hashes of a (blocks, bytes) array whose second axis is a multiple of 8."""
    words = blocks.view(np.uint64)
    if sys.byteorder == "big":
        words = words.byteswap()
    position = np.arange(words.shape[1], dtype=np.uint64)
    number = np.arange(first_block + 1, first_block + 1 + words.shape[0], dtype=np.uint64)
    first = _products(words ^ (position * np.uint64(FIRST_STEP) + np.uint64(FIRST_KEY)))
    second = _products(words + (position * np.uint64(SECOND_STEP) + np.uint64(SECOND_KEY)))
    positioned = np.add(first, np.multiply(number, np.uint64(BLOCK_STEP)), dtype=np.uint64)
    hashes = _scramble_words(_scramble_words(positioned) ^ second)
    return int(hashes.sum(dtype=np.uint64))


def _products(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    products = (words & np.uint64(0xFFFFFFFF)) * (words >> np.uint64(32))
    return np.asarray(products.sum(axis=1, dtype=np.uint64))


def _scramble_words(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(32))) * np.uint64(SCRAMBLE_1)
    words = (words ^ (words >> np.uint64(29))) * np.uint64(SCRAMBLE_2)
    return np.asarray(words ^ (words >> np.uint64(32)))
