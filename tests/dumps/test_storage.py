"""What every storage must do, over local folders and over fsspec."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tensight.dumps.storage import (
    FsspecStorage,
    LocalStorage,
    Storage,
    is_url,
    open_file,
    open_storage,
)
from tensight.errors import DumpError, MissingFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Make = "Callable[[dict[str, bytes]], Storage]"


def write_local(root: Path, files: dict[str, bytes]) -> None:
    root.mkdir(exist_ok=True)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture(params=["local", "memory", "file", "zip"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[dict[str, bytes]], Storage]]:
    """Returns a function that puts files somewhere and opens the place."""

    def build(files: dict[str, bytes]) -> Storage:
        root = tmp_path / "run"
        if request.param == "local":
            write_local(root, files)
            return open_storage(root)
        if request.param == "file":
            write_local(root, files)
            return FsspecStorage(f"file://{root}")
        if request.param == "zip":
            import zipfile

            with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
                for name, data in files.items():
                    archive.writestr(f"run/{name}", data)
            return open_storage(f"zip://run::file://{tmp_path}/run.zip")
        import fsspec

        memory = fsspec.filesystem("memory")
        memory.makedirs("/tensight-test/run", exist_ok=True)
        for name, data in files.items():
            memory.pipe(f"/tensight-test/run/{name}", data)
        return open_storage("memory://tensight-test/run")

    yield build
    if request.param == "memory":
        import fsspec

        fsspec.filesystem("memory").rm("/tensight-test", recursive=True)


def test_lists_files_with_sizes_and_folders_sorted(make: Callable[[dict[str, bytes]], Storage]) -> None:
    storage = make({"b.npy": b"12345", "a.txt": b"", "sub/inner/c": b"1", "another/d": b"1"})
    listing = storage.list_folder("")
    assert [(file.name, file.size_bytes) for file in listing.files] == [("a.txt", 0), ("b.npy", 5)]
    assert listing.folders == ("another", "sub")
    assert storage.folders("sub") == ("inner",)


def test_reads_whole_files(make: Callable[[dict[str, bytes]], Storage]) -> None:
    storage = make({"sub/data": b"0123456789"})
    assert storage.read_bytes("sub/data") == b"0123456789"


def test_a_full_path_opens_the_same_file(make: Callable[[dict[str, bytes]], Storage]) -> None:
    storage = make({"sub/data": b"0123456789"})
    with open_file(storage.full_path("sub/data")) as file:
        assert file.size_bytes == 10
        assert file.read(2, 3) == b"234"


def test_opens_a_folder_below_as_its_own_storage(make: Callable[[dict[str, bytes]], Storage]) -> None:
    below = open_storage(make({"sub/data": b"01"}).full_path("sub"))
    assert below.read_bytes("data") == b"01"


def test_reads_lines_of_text(make: Callable[[dict[str, bytes]], Storage]) -> None:
    with make({"text": b"one\nt\xffo\n"}).open_text("text") as lines:
        assert list(lines) == ["one\n", "t�o\n"]


def test_what_is_missing_is_said_to_be_missing(make: Callable[[dict[str, bytes]], Storage]) -> None:
    storage = make({"a": b"1"})
    with pytest.raises(MissingFileError, match="nothing"):
        storage.read_bytes("nothing")
    with pytest.raises(MissingFileError, match="nowhere"):
        storage.list_folder("nowhere")
    assert storage.folders("nowhere") == ()


def test_refuses_files_larger_than_allowed(make: Callable[[dict[str, bytes]], Storage]) -> None:
    storage = make({"a": b"12345"})
    with pytest.raises(DumpError, match=r"5 bytes.*4 expected"):
        storage.read_bytes("a", limit=4)


@pytest.mark.parametrize("path", ["../secret", "sub/../../secret", "/etc/passwd"])
def test_no_path_leads_out(make: Callable[[dict[str, bytes]], Storage], path: str) -> None:
    storage = make({"a": b"1"})
    with pytest.raises(DumpError, match="out of the dump"):
        storage.read_bytes(path)
    with pytest.raises(DumpError, match="out of the dump"):
        storage.list_folder(path)


def test_a_folder_is_no_file(make: Callable[[dict[str, bytes]], Storage]) -> None:
    storage = make({"sub/data": b"01"})
    with pytest.raises(DumpError):
        storage.read_bytes("sub")


def test_links_that_leave_the_folder_are_refused_and_others_followed(tmp_path: Path) -> None:
    write_local(tmp_path / "run", {"real/data": b"1"})
    write_local(tmp_path / "outside", {"secret": b"2"})
    run = tmp_path / "run"
    (run / "inner").symlink_to("real")
    (run / "file").symlink_to("real/data")
    (run / "folder-out").symlink_to(tmp_path / "outside")
    (run / "file-out").symlink_to(tmp_path / "outside" / "secret")
    (run / "dangling").symlink_to("nothing")
    storage = LocalStorage(str(run))
    listing = storage.list_folder("")
    assert listing.folders == ("inner", "real")
    assert [file.name for file in listing.files] == ["file"]
    assert listing.refused == ("dangling", "file-out", "folder-out")
    assert storage.read_bytes("inner/data") == b"1"
    for path in ("file-out", "folder-out/secret"):
        with pytest.raises(DumpError, match="leads out of the dump"):
            storage.read_bytes(path)


def test_the_named_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    write_local(tmp_path / "run", {"data": b"1"})
    (tmp_path / "link").symlink_to("run")
    assert LocalStorage(str(tmp_path / "link")).read_bytes("data") == b"1"


def test_a_pipe_is_neither_listed_nor_waited_for(tmp_path: Path) -> None:
    write_local(tmp_path / "run", {"data": b"1"})
    os.mkfifo(tmp_path / "run" / "pipe.npy")
    storage = LocalStorage(str(tmp_path / "run"))
    assert storage.list_folder("").refused == ("pipe.npy",)
    with pytest.raises(DumpError, match="not a regular file"):
        storage.read_bytes("pipe.npy")


@pytest.mark.parametrize("kernels", ["auto", "numpy"])
def test_a_folder_is_listed_alike_with_and_without_kernels(
    tmp_path: Path, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSIGHT_KERNELS", kernels)
    files = {f"file{number}": b"x" * number for number in range(600)}
    files |= {"\u00e4": b"12", "a\nb": b"", "sub/inner": b"", "\u4e2d/inner": b"", "B": b"", "a.npy": b"1"}
    write_local(tmp_path / "run", files)
    run = tmp_path / "run"
    unreadable = os.fsdecode(b"\xff.npy")
    (run / unreadable).write_bytes(b"")
    os.mkfifo(run / "pipe")
    for link, target in {
        "in": "a.npy",
        "sub-in": "sub",
        "out": "/etc/passwd",
        "broken": "no",
        "circle": "circle",
    }.items():
        (run / link).symlink_to(target)
    os.utime(run / "B", ns=(1, 1_234_567_890_123_456_789))
    listing = LocalStorage(str(run)).list_folder("")
    sizes = {name: len(data) for name, data in files.items() if "/" not in name} | {"in": 1}
    assert [(file.name, file.size_bytes) for file in listing.files] == sorted(sizes.items())
    assert next(file.mtime_ns for file in listing.files if file.name == "B") == 1_234_567_890_123_456_789
    assert listing.folders == ("sub", "sub-in", "\u4e2d")
    assert listing.refused == ("\\udcff.npy", "broken", "circle", "out", "pipe")


@pytest.mark.parametrize("kernels", ["auto", "numpy"])
def test_a_folder_that_cannot_be_listed_is_one_clear_error(
    tmp_path: Path, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSIGHT_KERNELS", kernels)
    write_local(tmp_path / "run", {"file": b""})
    storage = LocalStorage(str(tmp_path / "run"))
    with pytest.raises(MissingFileError, match="there is no such folder"):
        storage.list_folder("nothing")
    with pytest.raises(DumpError, match="cannot be listed: Not a directory"):
        storage.list_folder("file")
    (tmp_path / "run" / "empty").mkdir()
    assert storage.list_folder("empty").files == ()


def test_the_time_of_a_folder_changes_with_its_files(tmp_path: Path) -> None:
    write_local(tmp_path / "run", {"sub/a": b"1"})
    storage = LocalStorage(str(tmp_path / "run"))
    os.utime(tmp_path / "run" / "sub", ns=(1, 1))
    before = storage.folder_mtime_ns("sub")
    (tmp_path / "run" / "sub" / "b").write_bytes(b"")
    assert storage.folder_mtime_ns("sub") != before
    assert storage.folder_mtime_ns("nowhere") == 0


def test_an_unknown_kind_of_url_is_one_clear_error() -> None:
    with pytest.raises(DumpError, match=r"nosuch://bucket/run: cannot be opened"):
        open_storage("nosuch://bucket/run")


def test_a_missing_local_folder_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no such folder"):
        open_storage(tmp_path / "nowhere")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(MissingFileError, match="is a file, not a folder"):
        open_storage(tmp_path / "file")


def test_a_file_url_takes_the_fast_local_path(tmp_path: Path) -> None:
    assert isinstance(open_storage(f"file://{tmp_path}"), LocalStorage)
    assert not is_url("relative/path")
    assert is_url("s3://bucket/run")


@pytest.mark.parametrize("kernels", ["auto", "numpy"])
def test_a_digest_changes_with_name_size_and_time_of_any_file(
    tmp_path: Path, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSIGHT_KERNELS", kernels)
    write_local(tmp_path, {"a/first.npy": b"123", "a/second.npy": b"456"})
    storage = open_storage(tmp_path)
    file = tmp_path / "a" / "second.npy"
    os.utime(file, ns=(1, 1))
    digests = [storage.folder_digest("a"), storage.folder_digest("a")]
    assert digests[0] == digests.pop() != 0
    os.utime(file, ns=(1, 2))
    digests.append(storage.folder_digest("a"))
    file.write_bytes(b"45678")
    os.utime(file, ns=(1, 2))
    digests.append(storage.folder_digest("a"))
    file.rename(tmp_path / "a" / "third.npy")
    digests.append(storage.folder_digest("a"))
    assert len(set(digests)) == 4
    assert storage.folder_digest("missing") == storage.folder_digest("../a") == 0
