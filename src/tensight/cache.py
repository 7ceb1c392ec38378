"""Location of derived data: never in the dump, unless requested."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

import platformdirs

from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

CACHE_VARIABLE = "TENSIGHT_CACHE_DIR"


def cache_root() -> Path:
    """Return the folder of all caches: ``TENSIGHT_CACHE_DIR``, else the platform's user cache.

    Returns
    -------
    Path
        The folder; it may not exist yet.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(os.path.expanduser(chosen))
    return Path(platformdirs.user_cache_dir("tensight", appauthor=False))


class DumpCache:
    """The cache folder of a dump.

    Parameters
    ----------
    dump_path : str
        The dump's folder or URL; it determines the cache folder and is not touched.
    root : Path, optional
        The folder of all caches. By default `cache_root()`.
    """

    def __init__(self, dump_path: str, root: Path | None = None) -> None:
        name = dump_path if "://" in dump_path else os.path.realpath(dump_path)
        digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:24]
        self.folder = (root or cache_root()) / digest
        self._dump_name = name

    def path(self, name: str) -> Path:
        """Return the path of the cached file `name`, whether it exists or not."""
        return self.folder / name

    def write(self, name: str, fill: Callable[[IO[bytes]], object]) -> bool:
        """Write a file atomically: readers see the old or the new content, never a part.

        Parameters
        ----------
        name : str
            File name inside the cache folder.
        fill : callable
            Receives the open file.

        Returns
        -------
        bool
            False if the folder cannot be written; work continues without a cache.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=name, suffix=".part", delete=False) as file:
                try:
                    fill(file)
                except BaseException:
                    os.unlink(file.name)
                    raise
            os.replace(file.name, self.path(name))
        except OSError:
            return False
        return True

    def read_json(self, name: str, fingerprint: object) -> object | None:
        """Return the data stored with `write_json` if it was stored with the same fingerprint, else None."""
        try:
            stored = json.loads(self.path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        # Through JSON, so that tuples and lists compare equal.
        if not isinstance(stored, dict) or stored.get("fingerprint") != json.loads(json.dumps(fingerprint)):
            return None
        return stored.get("data")

    def write_json(self, name: str, fingerprint: object, data: object) -> bool:
        """Store `data` under `name`, valid while the fingerprint stays the same; return whether it was stored."""
        content = json.dumps({"dump": self._dump_name, "fingerprint": fingerprint, "data": data}).encode()
        return self.write(name, lambda file: file.write(content))


def cache_for(dump_path: str, cache_dir: str | os.PathLike[str] | None) -> DumpCache:
    """Return the cache of a dump, in a given or the default folder.

    Parameters
    ----------
    dump_path : str
        The dump.
    cache_dir : path, optional
        A folder for caches, created when needed.

    Raises
    ------
    InputError
        `cache_dir` exists and is not a folder.
    """
    if cache_dir is None:
        return DumpCache(dump_path)
    root = Path(os.path.expanduser(cache_dir))
    if root.exists() and not root.is_dir():
        raise InputError(f"{root} is not a folder, so it cannot hold the cache: name a folder, or one to be created")
    return DumpCache(dump_path, root)
