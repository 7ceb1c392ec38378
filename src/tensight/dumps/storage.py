"""The storage of a dump: a local folder, or anything that fsspec can list and read.

Both have the same small interface (list a folder, read bytes of a file), so readers do not depend on the kind. Nothing
is written, and nothing outside the folder that the user named is opened.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import stat
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from tensight.errors import DumpError, MissingFileError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from _typeshed import WriteableBuffer

#: Text files of a dump (configuration, execution order) are read whole; MindSpore's are much smaller than this.
MAX_TEXT_BYTES = 256 * 2**20


#: Kinds of folder entries other than files. Gone: removed since the folder was opened.
_FOLDER, _REFUSED, _GONE = "folder", "refused", "gone"


class FileEntry(NamedTuple):
    """One file of a folder.

    Attributes
    ----------
    name : str
    size_bytes : int
    mtime_ns : int
        Time of the last change, nanoseconds since 1970; 0 if the storage does not provide it.
    """

    name: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The contents of a folder, sorted by name.

    Attributes
    ----------
    folders : tuple of str
    files : tuple of FileEntry
    refused : tuple of str
        Ignored names: links out of the dump, broken links, pipes, devices, names that are not UTF-8.
    """

    folders: tuple[str, ...]
    files: tuple[FileEntry, ...]
    refused: tuple[str, ...] = ()

    def no_files(self, folder: str, names: Callable[[str], object] = bool) -> Iterator[Problem]:
        """Yield a problem for each file name that belongs to a folder or to a refused entry.

        Parameters
        ----------
        folder : str
            The listed folder.
        names : callable
            Returns whether a name is that of a file; by default all are.
        """
        for name in filter(names, self.folders):
            yield Problem(f"{folder}/{printable(name)}", "is a folder in place of a file", "it is not read")
        for name in filter(names, self.refused):
            what = "leads out of the dump, is not a file, or its name is not UTF-8"
            yield Problem(f"{folder}/{name}", what, "it is not read")


class OpenFile(ABC):
    """A file that is open for random access. Use it in a ``with`` statement."""

    path: str
    size_bytes: int

    @abstractmethod
    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from an offset; return the number of bytes read."""

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes from an offset, fewer only at the end of the file."""
        length = max(0, min(length, self.size_bytes - offset))
        buffer = bytearray(length)
        return bytes(memoryview(buffer)[: self.read_into(offset, memoryview(buffer))])

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Storage(ABC):
    """A folder tree. Paths are relative to its root, with ``/`` between the names; the root itself is ``""``."""

    root: str

    @abstractmethod
    def full_path(self, path: str) -> str:
        """Return the absolute path or the URL of a file."""

    @abstractmethod
    def list_folder(self, path: str) -> Listing:
        """List a folder. Raises `MissingFileError` if it does not exist, `DumpError` if it cannot be listed."""

    @abstractmethod
    def folder_mtime_ns(self, path: str) -> int:
        """Return the time when entries were last added to or removed from a folder, nanoseconds; 0 if unknown."""

    def folder_digest(self, path: str) -> int:
        """Return a number of 64 bits that changes with name, size and time of any file of a folder; 0 if unknown."""
        try:
            listing = self.list_folder(path)
        except DumpError:
            return 0
        text = repr((listing.files, listing.folders, listing.refused))
        digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8)
        return int.from_bytes(digest.digest(), "little")

    @abstractmethod
    def open(self, path: str) -> OpenFile:
        """Open a file. Raises `MissingFileError` or `DumpError`."""

    def read_bytes(self, path: str, limit: int = MAX_TEXT_BYTES) -> bytes:
        """Return a file's content. Raises `DumpError` if it is larger than ``limit`` bytes."""
        with self.open(path) as file:
            if file.size_bytes > limit:
                raise DumpError(f"{self.full_path(path)}: {file.size_bytes:,} bytes, more than the {limit:,} expected.")
            return file.read(0, file.size_bytes)

    def open_text(self, path: str) -> IO[str]:
        """Open a UTF-8 text file for reading line by line; invalid bytes become U+FFFD."""
        return io.TextIOWrapper(io.BufferedReader(_Stream(self.open(path))), "utf-8", "replace")

    def folders(self, path: str) -> tuple[str, ...]:
        """Return the names of a folder's sub-folders; none if the folder does not exist."""
        try:
            return self.list_folder(path).folders
        except MissingFileError:
            return ()


def is_url(path: str) -> bool:
    """Return whether a path is an fsspec URL (``s3://bucket/run``, ``zip://::run.zip``), not a local path."""
    return ("://" in path or "::" in path) and not path.startswith(("file://", "/"))


def open_storage(path: str | os.PathLike[str]) -> Storage:
    """Return the storage of a local folder or an fsspec URL.

    Raises
    ------
    MissingFileError
        If there is no such folder.
    DumpError
        If fsspec cannot handle the URL.
    """
    text = os.fspath(path)
    # A local folder may have a name like a URL; Tensight then uses its absolute path.
    return FsspecStorage(text) if is_url(text) and not os.path.isdir(text) else LocalStorage(_without_scheme(text))


def open_file(path: str) -> OpenFile:
    """Open a file by its path from `Storage.full_path`."""
    return _open_url(path) if is_url(path) else LocalFile(_without_scheme(path))


def printable(name: str) -> str:
    """Return an untrusted name with characters escaped that control a terminal."""
    return name if name.isprintable() else ascii(name)[1:-1]


def _is_text(name: str) -> bool:
    """Return whether a name can be encoded as UTF-8; others cannot be used in tables and messages."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _entries(folder: str) -> tuple[list[FileEntry], list[str]]:
    """Return the ordinary files of a folder, sorted, and the names of all other entries."""
    from tensight.tensors.native import kernels

    compiled = kernels()
    if compiled is None or not hasattr(compiled, "list_folder"):  # an older build of the kernels lacks it
        return [], os.listdir(folder)
    files, others = compiled.list_folder(os.fsencode(folder))
    return list(map(FileEntry._make, files)), others


def _without_scheme(path: str) -> str:
    return path.removeprefix("file://") if path.startswith("file://") else path


def _refuse_escape(path: str) -> None:
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise DumpError(f"{path!r} leads out of the dump.")


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class _Stream(io.RawIOBase):
    """A file read from its beginning to its end."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer with the next bytes."""
        count = self._file.read_into(self._position, memoryview(buffer).cast("B"))
        self._position += count
        return count

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._file.close()
        super().close()


class LocalFile(OpenFile):
    """A local file, read by position, so that a file that shrinks meanwhile yields fewer bytes, not a SIGBUS."""

    __slots__ = ("_fd", "path", "size_bytes")

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            # Opening a pipe in place of a file must not block until it has a writer.
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise MissingFileError(f"{path}: there is no such file.") from None
        except (OSError, ValueError) as error:
            raise DumpError(f"{path}: cannot be opened: {_reason(error)}.") from None
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            raise DumpError(f"{path}: is not a regular file.")
        self.size_bytes = status.st_size

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from an offset; return the number of bytes read."""
        done = 0
        try:
            while done < len(buffer):
                count = os.preadv(self._fd, [buffer[done:]], offset + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            raise DumpError(f"{self.path}: cannot be read: {_reason(error)}.") from None
        return done

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._fd

    def map(self) -> mmap.mmap:
        """Map the whole file, read-only; the map outlives this object. Raises OSError or ValueError on failure."""
        return mmap.mmap(self._fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class LocalStorage(Storage):
    """A local folder.

    Parameters
    ----------
    path : str
        The folder; may be a link.
    """

    def __init__(self, path: str) -> None:
        if "\0" in path:
            raise MissingFileError(f"{path}: there is no such folder.")
        self.root = os.path.abspath(os.path.expanduser(path))
        self._real = os.path.realpath(self.root)
        if not os.path.isdir(self._real):
            what = "is a file, not a folder" if os.path.exists(self._real) else "there is no such folder"
            raise MissingFileError(f"{path}: {what}.")

    def full_path(self, path: str) -> str:
        """Return the absolute path."""
        return f"{self.root}/{path}" if path else self.root

    def list_folder(self, path: str) -> Listing:
        """List a folder; links out of the root are refused, others are followed."""
        full = self._inside(path)
        folders: list[str] = []
        refused: list[str] = []
        try:
            files, others = _entries(full)
        except FileNotFoundError:
            raise MissingFileError(f"{full}: there is no such folder.") from None
        except OSError as error:
            raise DumpError(f"{full}: cannot be listed: {_reason(error)}.") from None
        for name in others:
            kind = self._kind(full, name)
            if isinstance(kind, FileEntry):
                files.append(kind)
            elif kind == _FOLDER:
                folders.append(name)
            elif kind == _REFUSED:
                refused.append(printable(name))
        if others:
            files.sort()
        return Listing(tuple(sorted(folders)), tuple(files), tuple(sorted(refused)))

    def _kind(self, folder: str, name: str) -> FileEntry | str:
        """Return the kind of a folder entry, or the entry of a file."""
        path = f"{folder}/{name}"
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return _GONE
        except OSError:
            # For example a name that the file system cannot look up; the others are usable.
            return _REFUSED
        if not _is_text(name):
            return _REFUSED
        if stat.S_ISLNK(status.st_mode):
            if not self._stays_inside(path):
                return _REFUSED
            try:
                status = Path(path).stat()
            except OSError:  # a broken or a circular link
                return _REFUSED
        if stat.S_ISREG(status.st_mode):
            return FileEntry(name, status.st_size, status.st_mtime_ns)
        return _FOLDER if stat.S_ISDIR(status.st_mode) else _REFUSED

    def folder_mtime_ns(self, path: str) -> int:
        """Return the time when entries were last added to or removed from a folder."""
        try:
            return Path(self._inside(path)).stat().st_mtime_ns
        except OSError:
            return 0

    def folder_digest(self, path: str) -> int:
        """Return a number of 64 bits that changes with name, size and time of any file of a folder; 0 if unknown."""
        from tensight.tensors.native import kernels

        compiled = kernels()
        if compiled is None or not hasattr(compiled, "digest_folder"):  # an older build of the kernels lacks it
            return super().folder_digest(path)
        try:
            return compiled.digest_folder(os.fsencode(self._inside(path)))
        except (DumpError, OSError):
            return 0

    def open(self, path: str) -> OpenFile:
        """Open a file below the root."""
        return LocalFile(self._inside(path))

    def _inside(self, path: str) -> str:
        _refuse_escape(path)
        full = self.full_path(path)
        if path and not self._stays_inside(full):
            raise DumpError(f"{full}: is a link that leads out of the dump; it is not followed.")
        return full

    def _stays_inside(self, full: str) -> bool:
        real = os.path.realpath(full)
        return real == self._real or real.startswith(self._real.rstrip("/") + "/")


class _UrlFile(OpenFile):
    """A file that fsspec opened."""

    def __init__(self, path: str, size_bytes: int, file: Any, filesystem: Any) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._file = file
        # An archive closes its files when it is garbage collected.
        self._filesystem = filesystem

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from an offset; return the number of bytes read."""
        done = 0
        try:
            self._file.seek(offset)
            while done < len(buffer):
                data = self._file.read(len(buffer) - done)
                if not data:
                    break
                buffer[done : done + len(data)] = data
                done += len(data)
        except Exception as error:  # each file system of fsspec has its own
            raise DumpError(f"{self.path}: cannot be read: {_reason(error)}.") from error
        return done

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class FsspecStorage(Storage):
    """A folder that fsspec can list and read: S3, HDFS, a zip file, memory.

    Parameters
    ----------
    url : str
    """

    def __init__(self, url: str) -> None:
        self.root = url.rstrip("/") if not url.endswith("://") else url
        self._fs, self._base = _filesystem(url)
        try:
            is_folder = self._fs.isdir(self._base) if self._base else True
        except Exception as error:
            raise DumpError(f"{url}: cannot be reached: {_reason(error)}.") from error
        if not is_folder:
            raise MissingFileError(f"{url}: there is no such folder.")

    def full_path(self, path: str) -> str:
        """Return the URL."""
        return _join_url(self.root, path)

    def list_folder(self, path: str) -> Listing:
        """List a folder."""
        _refuse_escape(path)
        try:
            infos = self._fs.ls(self._inside(path), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingFileError(f"{self.full_path(path)}: there is no such folder.") from None
        except Exception as error:
            raise DumpError(f"{self.full_path(path)}: cannot be listed: {_reason(error)}.") from error
        return _listing_of(infos, self._inside(path))

    def folder_mtime_ns(self, path: str) -> int:
        """Return the folder's own time if it has one, else the newest time of its files plus their number."""
        try:
            folder_time = _mtime_ns(self._fs.info(self._inside(path)))
            files = () if folder_time else self.list_folder(path).files
        except Exception:
            return 0
        return folder_time or max((file.mtime_ns for file in files), default=0) + len(files)

    def open(self, path: str) -> OpenFile:
        """Open a file below the root."""
        _refuse_escape(path)
        return _open_with(self._fs, self._inside(path), self.full_path(path))

    def _inside(self, path: str) -> str:
        return f"{self._base.rstrip('/')}/{path}" if path else self._base


def _listing_of(infos: Iterable[dict[str, Any]], folder: str) -> Listing:
    folders: set[str] = set()
    files: list[FileEntry] = []
    for info in infos:
        full = str(info["name"]).rstrip("/")
        name = full.rpartition("/")[2]
        # Object stores list a folder as an entry of itself.
        if not name or name in {".", ".."} or full.strip("/") == folder.strip("/"):
            continue
        if info.get("type") == "directory":
            folders.add(name)
        elif info.get("type") == "file":
            files.append(FileEntry(name, int(info.get("size") or 0), _mtime_ns(info)))
    files.sort()
    return Listing(tuple(sorted(folders)), tuple(files))


def _mtime_ns(info: dict[str, Any]) -> int:
    """Return the time of the last change; every file system of fsspec has its own key and type for it."""
    for key in ("mtime", "LastModified", "last_modified", "modified", "updated", "modificationTime", "created"):
        value = info.get(key)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1_000_000) * 1_000
        if isinstance(value, (int, float)):
            return int(value * 1_000_000_000)
    return 0


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:  # only the light agent is installed
        from tensight.installations import FULL

        message = f"{url}: needs {FULL}"
        raise DumpError(message, code="package-missing") from None
    try:
        filesystem, base = url_to_fs(url)
    except Exception as error:  # unknown scheme, missing optional package, refused connection
        raise DumpError(f"{url}: cannot be opened: {_reason(error)}.") from error
    return filesystem, str(base)


def _open_url(url: str) -> OpenFile:
    filesystem, base = _filesystem(url)
    return _open_with(filesystem, base, url)


def _open_with(filesystem: Any, path: str, url: str) -> OpenFile:
    try:
        info = filesystem.info(path)
        if info.get("type") != "file":
            raise DumpError(f"{url}: is not a file.")
        return _UrlFile(url, int(info.get("size") or 0), filesystem.open(path, "rb"), filesystem)
    except DumpError:
        raise
    except FileNotFoundError:
        raise MissingFileError(f"{url}: there is no such file.") from None
    except Exception as error:
        raise DumpError(f"{url}: cannot be opened: {_reason(error)}.") from error


def _join_url(url: str, path: str) -> str:
    """Append a path to the part of a (chained) URL that names the outermost file system."""
    if not path:
        return url
    parts = url.split("::")
    start = next((index for index, part in enumerate(parts) if "://" in part), 0)
    parts[start] += path if parts[start].endswith("/") else f"/{path}"
    return "::".join(parts)
