"""Large files are written past the page cache where that works and is fast, and are the same everywhere."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensight.dumps import direct_writes
from tensight.dumps.direct_writes import DirectWrites
from tensight.dumps.growing_files import PartFile

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 8192
CONTENT = os.urandom(BLOCK * 7 + 123)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_writes, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(direct_writes, "TRIED_BYTES", 3 * BLOCK)
    monkeypatch.setattr(direct_writes, "SLOWEST_BYTES_PER_S", 0.0)


@pytest.fixture(params=["disk", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file on a disk, and one on a file system that may refuse such writes."""
    if request.param == "disk":
        yield tmp_path / "file"
        return
    shared = Path("/dev/shm")  # noqa: S108 - a name of its own below
    if not os.access(shared, os.W_OK):
        pytest.skip("no file system in memory")
    target = shared / f"tensight-test-{os.getpid()}"
    yield target
    target.unlink(missing_ok=True)


def cut(content: bytes, sizes: list[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(content[at : at + size])
        at += size
    return [*pieces, content[at:]]


def is_direct(file: int) -> bool:
    return bool(fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT)


@settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(sizes=st.lists(st.integers(0, 3 * BLOCK), max_size=8), total=st.integers(0, len(CONTENT)))
def test_the_file_has_all_bytes_however_they_are_cut(path: Path, sizes: list[int], total: int) -> None:
    with path.open("wb", buffering=0) as file:
        writes = DirectWrites(file.fileno())
        for piece in cut(CONTENT[:total], sizes):
            writes.write([piece])
        writes.end()
    assert path.read_bytes() == CONTENT[:total]


def test_a_slow_disk_gets_the_rest_through_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_writes, "SLOWEST_BYTES_PER_S", 1e30)
    with (tmp_path / "file").open("wb", buffering=0) as file:
        writes = DirectWrites(file.fileno())
        if not is_direct(file.fileno()):
            pytest.skip("this file system knows no direct writes")
        writes.write([CONTENT[: 2 * BLOCK]])
        assert is_direct(file.fileno())
        writes.write([CONTENT[2 * BLOCK : 5 * BLOCK]])
        assert not is_direct(file.fileno())
        writes.write([CONTENT[5 * BLOCK :]])
        writes.end()
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_of_a_large_file_is_seen_before_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = PartFile(tmp_path / "part", expected_bytes=direct_writes.WORTH_IT_BYTES)
    part.write([CONTENT[:BLOCK], memoryview(CONTENT)[BLOCK : BLOCK + 100]])
    assert part.size_bytes == BLOCK + 100
    assert bytes(part.map()) == CONTENT[: BLOCK + 100]
    part.write([CONTENT[BLOCK + 100 :]])
    part.move_to(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["file"]


def test_what_is_discarded_leaves_nothing(tmp_path: Path) -> None:
    part = PartFile(tmp_path / "part", expected_bytes=direct_writes.WORTH_IT_BYTES)
    part.write([CONTENT])
    part.discard()
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_an_error_and_the_file_can_still_be_discarded(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    writes = DirectWrites(full)
    with pytest.raises(OSError, match="No space left"):
        writes.write([CONTENT])
    writes.discard()
    os.close(full)
