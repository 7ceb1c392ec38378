"""The committed dumps, unpacked once per test session (also under pytest-xdist)."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import pytest
from hypothesis import settings

from tensight.agents.core.connection.connection import _without_fork_handlers

# As in a training: with gRPC's own handlers the children of a process that has a server, or calls one, may crash.
with _without_fork_handlers():
    import grpc  # noqa: F401

from tensight.cache import CACHE_VARIABLE
from tensight.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# How long an example takes says something of the machine, nothing of the code. A change is checked with the same few
# examples each time; `make test-long` draws many, and others each time.
settings.register_profile("short", deadline=None, max_examples=10, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=100)
settings.load_profile("short")

FIXTURES = Path(__file__).parent / "fixtures"

OLDER = "2.7"
"""The version of MindSpore whose environment only `make test-long` builds."""

WHOLLY_LONG = re.compile(r"^pytestmark = \[?pytest\.mark\.long\b", re.MULTILINE)
LENGTHY = ("docs", "search", "page", "agents", "server", "cli", "compare")
"""Folders whose tests start trainings, servers and browsers."""

MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own there
NEEDED_BYTES = 8 << 30
"""Room for the files of tests that run at the same time."""

# Hundreds of thousands of small files are written, each in a fifth of the time that a disk takes.
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > NEEDED_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# It holds assertions, and is imported by tests.
pytest.register_assert_rewrite("tests.diagnosis.diagnosed")

# What a shell starts in the background ignores Ctrl-C, and hands that on to each process of a test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of which `make test` runs nothing: importing them takes each worker seconds."""
    if collection_path.suffix != ".py" or config.option.markexpr != "not long":
        return None
    return True if WHOLLY_LONG.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make test-long` what is on an older MindSpore, and all but every n-th case of a ``sampled(n)`` test.

    Tests begin with different cases, so that together they have all captures and networks.
    """
    for item in items:
        cases = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if any(isinstance(case, str) and case == OLDER for case in cases):
            item.add_marker(pytest.mark.long)
    sampled: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is not None and item.get_closest_marker("long") is None:
            sampled[item.nodeid.partition("[")[0], marker.args[0]].append(item)
    for (test, every), of_test in sampled.items():
        distance = min(every, len(of_test))
        first = crc32(test.encode()) % distance
        for index, item in enumerate(of_test):
            if index % distance != first:
                item.add_marker(pytest.mark.long)
    # Files are handed out in this order: those that take long come first, so that all workers end together.
    items.sort(key=lambda item: LENGTHY.index(folder) if (folder := _folder_of(item)) in LENGTHY else len(LENGTHY))


def _folder_of(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


def pytest_collection_finish() -> None:
    """Have the collector pass over what stays until the end: all modules and tests, a million objects."""
    gc.collect()
    gc.freeze()


def unpack_once(archive: Path, shared: Path) -> Path:
    """Unpack into `shared` once: the rename is atomic, so of several workers one wins and the others discard theirs."""
    target = shared / archive.name.removesuffix(".tar.xz")
    if target.is_dir():
        return target
    shared.mkdir(parents=True, exist_ok=True)
    own = Path(tempfile.mkdtemp(dir=shared, prefix="unpacking-"))
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(own, filter="data")
        else:
            tar.extractall(own)  # noqa: S202 - Python before 3.10.12; the archives are ours
    own.chmod(0o755)
    try:
        own.rename(target)
    except OSError:
        shutil.rmtree(own)
    return target


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the statistics that tests compute out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the folder of a committed dump by its name in planted.json. The folder is shared: do not change it."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    return lambda name: unpack_once(FIXTURES / f"{name}.tar.xz", base / "dumps")


@pytest.fixture(scope="session")
def dump_200(unpacked: Callable[[str], Path]) -> Path:
    """The sick convolutional network, dumped by MindSpore 2.0.0."""
    return unpacked("sick-2.0.0")


@pytest.fixture(scope="session")
def dump_210(unpacked: Callable[[str], Path]) -> Path:
    """The sick convolutional network, dumped by MindSpore 2.10.0."""
    return unpacked("sick-2.10.0")


@pytest.fixture(scope="session")
def dump_200_second(unpacked: Callable[[str], Path]) -> Path:
    """The healthy perceptron with six graphs and a loop, dumped by MindSpore 2.0.0."""
    return unpacked("healthy-2.0.0")


@pytest.fixture(scope="session")
def dump_210_second(unpacked: Callable[[str], Path]) -> Path:
    """The healthy perceptron with six graphs and a loop, dumped by MindSpore 2.10.0."""
    return unpacked("healthy-2.10.0")


@pytest.fixture(scope="session")
def dumps_of_msprobe(unpacked: Callable[[str], Path]) -> Path:
    """A folder with dumps that msprobe wrote of one small PyTorch training: mix, L0, L1-statistics, mix-md5, ranks."""
    return unpacked("msprobe-26.2") / "msprobe"


@pytest.fixture(scope="session")
def cells_of_msprobe(unpacked: Callable[[str], Path]) -> Path:
    """A dump that msprobe wrote of a small MindSpore training: level mix, with values."""
    return unpacked("msprobe-26.2-mindspore") / "msprobe-mindspore" / "mix"


@pytest.fixture
def dump_copy(unpacked: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Returns a copy of a committed dump that the test may damage."""
    return lambda name: Path(shutil.copytree(unpacked(name), tmp_path / name))


@pytest.fixture(scope="session")
def planted() -> dict[str, Any]:
    """What is really in each dump: sick operators, their lines and first iterations (see fixtures/README.md)."""
    return json.loads((FIXTURES / "planted.json").read_text())


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def tensight(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Outcome]:
    """Runs the command as the shell would, with a cache of its own, and returns exit code, stdout and stderr."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["tensight", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
