"""Search for dumps that can be opened: below the base directory, and runs recorded in the workspace."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tensight.dumps import open_dump
from tensight.dumps.layouts import may_be_dump
from tensight.dumps.rank_folders import RANK_NAME
from tensight.dumps.trace_layout import TRACE_NAME
from tensight.errors import DumpError
from tensight.sessions.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUNS = "runs"
"""First part of the names of recorded runs. A folder with this name in the base directory is called ``./runs``."""

SEARCH_DATABASE = "search.db"
"""File in the folder of a search that contains its trials."""

LEVELS = 2
"""Levels below the base directory that are searched."""

MOST_ENTRIES = 10_000
"""Directory entries visited in one search; a base directory should contain runs, not a file system."""

_RUN = re.compile(r"\d{1,18}", re.ASCII)
_METADATA = ".dump_metadata"


@dataclass(frozen=True, slots=True)
class FoundDump:
    """A folder that contains a dump.

    Attributes
    ----------
    name : str
        Path relative to the base directory (``.`` for itself), or ``runs/ID``; clients request it by this name only.
    path : Path
        The folder that contains ``rank_0``, …
    ranks : tuple of int
        Empty if the dump cannot be read.
    framework, framework_version : str
    modified : float or None
        Latest modification time within its first two levels; seconds since 1970.
    problem : str
        Why it cannot be opened; empty if it can.
    run : str
        Id of the session that recorded it; empty for other dumps.
    title : str
        Display name: the job of a recorded run, the folder's own name if `name` is ``.``, otherwise the name.
    """

    name: str
    path: Path
    ranks: tuple[int, ...] = ()
    framework: str = ""
    framework_version: str = ""
    modified: float | None = None
    problem: str = ""
    run: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class FoundSearch:
    """A folder that contains the database of a search.

    Attributes
    ----------
    name : str
        Path relative to the base directory; ``.`` for itself.
    path : Path
    """

    name: str
    path: Path


class Discovery:
    """Finds dumps. Clients open them by the names found here, never by a path.

    Links are followed as long as they stay below the base directory. Hidden folders are skipped.

    Parameters
    ----------
    base_dir : Path, optional
        Folder in which dumps and searches are found, with two levels below it; below a search, two more levels for
        the dumps of its trials. None for no folder.
    runs : Path, optional
        Folder of the recorded runs, with one folder for each session.
    title_of : callable, optional
        Returns the job name of a recorded run, given its id; called in a thread.
    reload_interval_s : float
        A list younger than this is returned without reading the disk.
    """

    def __init__(
        self,
        base_dir: Path | None,
        runs: Path | None = None,
        *,
        title_of: Callable[[str], str] | None = None,
        reload_interval_s: float = 3.0,
    ) -> None:
        self._base_dir = base_dir
        self._runs = runs
        self._title_of = title_of
        self._interval_s = reload_interval_s
        self._search = asyncio.Lock()
        self._dumps: dict[str, FoundDump] = {}
        self._searches: list[FoundSearch] = []
        self._searched: float | None = None
        self._incomplete = False

    async def dumps(self, refresh: bool = False) -> list[FoundDump]:
        """Return the dumps, sorted by name; `refresh` reads the disk even if the list is recent."""
        since = time.monotonic() if refresh else time.monotonic() - self._interval_s
        async with self._search:
            # A caller that waited for a search that began after the call need not search again.
            fresh = self._searched is not None and self._searched >= since
            if not fresh:
                self._searched = time.monotonic()
                dumps, self._searches, self._incomplete = await asyncio.to_thread(self._search_all)
                self._dumps = {dump.name: dump for dump in sorted(dumps, key=lambda dump: dump.name)}
        return list(self._dumps.values())

    async def searches(self, refresh: bool = False) -> list[FoundSearch]:
        """Return the searches, those nearest to the base directory first; `refresh` as in `dumps`."""
        await self.dumps(refresh)
        return list(self._searches)

    async def find(self, name: str) -> FoundDump:
        """Return the dump with a name.

        Raises
        ------
        NotFoundError
            `dumps` lists no such name, or its folder now leads outside the base directory.
        """
        if name not in self._dumps:
            await self.dumps(refresh=True)
        dump = self._dumps.get(name)
        if dump is None or not await asyncio.to_thread(self._is_still_inside, dump):
            where = f"below {self._base_dir}" if self._base_dir else "in the workspace; no base directory is set"
            more = f" (only the first {MOST_ENTRIES:,} entries were looked at)" if self._incomplete else ""
            raise NotFoundError(
                f"there is no dump {name[:200]!r} {where}{more}; list the dumps to see their names", code="dump-unknown"
            )
        return dump

    def _search_all(self) -> tuple[list[FoundDump], list[FoundSearch], bool]:
        dumps: list[FoundDump] = []
        searches: list[FoundSearch] = []
        incomplete = False
        if self._base_dir is not None:
            search = _Search(self._base_dir)
            for name, path in search.folders_of_dumps():
                # "runs/7" is the run of session 7.
                clashes = name == RUNS or name.startswith(f"{RUNS}/")
                dump = describe(f"./{name}" if clashes else name, path)
                if dump is not None:
                    dumps.append(dump)
            searches = search.searches
            incomplete = search.incomplete
        if self._runs is not None:
            search = _Search(self._runs)
            for name, path in search.recorded_runs():
                run = describe(f"{RUNS}/{name}", path, run=name)
                if run is not None:
                    dumps.append(run if self._title_of is None else replace(run, title=self._title_of(name)))
            incomplete |= search.incomplete
        return dumps, searches, incomplete

    def _is_still_inside(self, dump: FoundDump) -> bool:
        top = self._runs if dump.run else self._base_dir
        return top is not None and dump.path.is_dir() and _is_inside(str(dump.path), os.path.realpath(top))


def describe(name: str, path: Path, run: str = "") -> FoundDump | None:
    """Return a description of a folder with rank folders; None if it is not a dump after all."""
    title = os.path.basename(os.path.realpath(path)) if name == "." else name
    try:
        dump = open_dump(path)
        if os.path.realpath(dump.path) != os.path.realpath(path):
            # The dump is further below, where it is found under its own name.
            return None
        about = dump.metadata
        return FoundDump(
            name, path, dump.ranks, about.framework, about.framework_version, _modified(path), run=run, title=title
        )
    except DumpError as error:
        # Other programs create folders called rank_0, too.
        names = _names(path)
        has_ranks = any(_may_be_a_rank(path / rank) for rank in names if RANK_NAME.fullmatch(rank))
        if not has_ranks and not any(map(TRACE_NAME.fullmatch, names)):
            return None
        return FoundDump(name, path, modified=_modified(path), problem=str(error), run=run, title=title)


class _Search:
    """A bounded search of a folder tree."""

    def __init__(self, top: Path) -> None:
        self._top = str(top)
        self._real_top = os.path.realpath(top)
        self._seen: set[str] = set()
        self._entries = 0
        self.incomplete = False
        self.searches: list[FoundSearch] = []

    def folders_of_dumps(self) -> Iterator[tuple[str, Path]]:
        """Yield relative name and path of each folder that may contain a dump, those nearest to the top first."""
        waiting = deque([("", 0)])
        while waiting:
            name, level = waiting.popleft()
            path = f"{self._top}/{name}" if name else self._top
            real = os.path.realpath(path)
            if real in self._seen:
                continue
            self._seen.add(real)
            below, files = self._list(path)
            if SEARCH_DATABASE in files:
                self.searches.append(FoundSearch(name or ".", Path(path)))
                # Its trials record into folders further below.
                level = 0
            if may_be_dump(below, files):
                yield name or ".", Path(path)
            elif level < LEVELS:
                waiting.extend(
                    (f"{name}/{folder}".lstrip("/"), level + 1) for folder in below if not folder.startswith(".")
                )

    def recorded_runs(self) -> Iterator[tuple[str, Path]]:
        """Yield id and dump folder of each recorded run."""
        for name in self._list(self._top)[0]:
            path = Path(self._top, name, "dump")
            if _RUN.fullmatch(name) and path.is_dir() and _is_inside(str(path), self._real_top):
                yield name, path

    def _list(self, path: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the files in a folder, sorted, up to the bound."""
        folders, files = [], []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    self._entries += 1
                    if self._entries > MOST_ENTRIES:
                        self.incomplete = True
                        break
                    if self._is_folder(entry):
                        folders.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        files.append(entry.name)
        except OSError:
            return [], []
        return sorted(folders), sorted(files)

    def _is_folder(self, entry: os.DirEntry[str]) -> bool:
        try:
            entry.name.encode()
            if entry.is_symlink() and not _is_inside(entry.path, self._real_top):
                return False
            return entry.is_dir()
        except (OSError, UnicodeEncodeError):
            return False


def _is_inside(path: str, real_top: str) -> bool:
    real = os.path.realpath(path)
    return real == real_top or real.startswith(real_top.rstrip("/") + "/")


def _may_be_a_rank(path: Path) -> bool:
    """Return whether a folder has the metadata of a dump, or cannot be read."""
    try:
        return _METADATA in os.listdir(path)
    except OSError:
        return True


def _names(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _modified(path: Path) -> float | None:
    """Return the latest modification time of a dump's rank folders and their direct entries."""
    ranks = [path / rank for rank in _names(path) if RANK_NAME.fullmatch(rank) or TRACE_NAME.fullmatch(rank)]
    times = (_time(entry) for rank in ranks for entry in (rank, *(rank / name for name in _names(rank))))
    return max((time for time in times if time is not None), default=None)


def _time(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
