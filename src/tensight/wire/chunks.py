"""Long content in pieces that any gRPC peer accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.wire.protocol import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator


def chunks(data: bytes | bytearray | memoryview, size_bytes: int = CHUNK_BYTES) -> Iterator[memoryview]:
    """Yield content in pieces, without copying it; empty content is one empty piece, so that there is a last piece.

    Parameters
    ----------
    data : bytes-like
    size_bytes : int
        Size of every piece except the last.
    """
    view = memoryview(data).cast("B")
    for start in range(0, max(len(view), 1), size_bytes):
        yield view[start : start + size_bytes]
