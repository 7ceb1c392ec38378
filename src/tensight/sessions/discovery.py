"""Which dumps can be opened: those below the base directory, and the runs recorded in the workspace."""

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
"""What the names of recorded runs begin with. A folder of this name in the base directory is called ``./runs``."""

SEARCH_DATABASE = "search.db"
"""In the folder of a search: its trials."""

LEVELS = 2
"""How many levels below the base directory are looked into."""

MOST_ENTRIES = 10_000
"""Entries of folders that are looked at in one search; a base directory should hold runs, not a file system."""

_RUN = re.compile(r"\d{1,18}", re.ASCII)
_METADATA = ".dump_metadata"


@dataclass(frozen=True, slots=True)
class FoundDump:
    """A folder that holds a dump.

    Attributes
    ----------
    name : str
        Path relative to the base directory (``.`` for itself), or ``runs/ID``; the only way to ask for it.
    path : Path
        The folder that holds ``rank_0``, …
    ranks : tuple of int
        Empty if it cannot be read.
    framework, framework_version : str
    modified : float or None
        When something was last added to it, as far as its first two levels tell; seconds since 1970.
    problem : str
        Why it cannot be opened; empty if it can.
    run : str
        Id of the session that recorded it; empty for a dump.
    title : str
        What a person calls it: the job of a recorded run, otherwise the name.
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
    """A folder that holds the database of a search.

    Attributes
    ----------
    name : str
        Path relative to the base directory; ``.`` for itself.
    path : Path
    """

    name: str
    path: Path


class Discovery:
    """Looks for dumps now and then; people name what they want to open by the names found here, never by a path.

    Links are followed as long as they stay below the base directory. Hidden folders are not looked into.

    Parameters
    ----------
    base_dir : Path, optional
        Where dumps and searches are looked for, itself and two levels below, and two levels below a search for what
        its trials recorded; None for nowhere.
    runs : Path, optional
        Where runs are recorded, one folder for each session.
    title_of : callable, optional
        Returns the name of the job of a recorded run, which is given by its id; called in a thread.
    reload_interval_s : float
        A list younger than this is given again without a look at the disk.
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
        self._found: dict[str, FoundDump] = {}
        self._searches: list[FoundSearch] = []
        self._searched: float | None = None
        self._incomplete = False

    async def dumps(self, refresh: bool = False) -> list[FoundDump]:
        """Return what was found, by name; `refresh` looks at the disk even if that was done just now."""
        asked = time.monotonic()
        async with self._search:
            # Who waited for a search that began after the question need not search again.
            fresh = self._searched is not None and self._searched >= (asked if refresh else asked - self._interval_s)
            if not fresh:
                self._searched = time.monotonic()
                found, self._searches, self._incomplete = await asyncio.to_thread(self._look)
                self._found = {dump.name: dump for dump in sorted(found, key=lambda dump: dump.name)}
        return list(self._found.values())

    async def searches(self, refresh: bool = False) -> list[FoundSearch]:
        """Return the searches that were found, those nearest to the base directory first; `refresh` as of `dumps`."""
        await self.dumps(refresh)
        return list(self._searches)

    async def find(self, name: str) -> FoundDump:
        """Return the dump of a name.

        Raises
        ------
        NotFoundError
            `dumps` lists no such name, or what was there has been replaced by something that leads elsewhere.
        """
        if name not in self._found:
            await self.dumps(refresh=True)
        found = self._found.get(name)
        if found is None or not await asyncio.to_thread(self._is_still_inside, found):
            where = f"below {self._base_dir}" if self._base_dir else "in the workspace; no base directory is set"
            more = f" (only the first {MOST_ENTRIES:,} entries were looked at)" if self._incomplete else ""
            raise NotFoundError(f"there is no dump {name[:200]!r} {where}{more}; list the dumps to see their names")
        return found

    def _look(self) -> tuple[list[FoundDump], list[FoundSearch], bool]:
        found: list[FoundDump] = []
        searches: list[FoundSearch] = []
        incomplete = False
        if self._base_dir is not None:
            search = _Search(self._base_dir)
            for name, path in search.folders_of_dumps():
                # "runs/7" is the run of session 7.
                clashes = name == RUNS or name.startswith(f"{RUNS}/")
                dump = describe(f"./{name}" if clashes else name, path)
                if dump is not None:
                    found.append(dump)
            searches = search.searches
            incomplete = search.incomplete
        if self._runs is not None:
            search = _Search(self._runs)
            for name, path in search.recorded_runs():
                run = describe(f"{RUNS}/{name}", path, run=name)
                if run is not None:
                    found.append(run if self._title_of is None else replace(run, title=self._title_of(name)))
            incomplete |= search.incomplete
        return found, searches, incomplete

    def _is_still_inside(self, found: FoundDump) -> bool:
        top = self._runs if found.run else self._base_dir
        return top is not None and found.path.is_dir() and _is_inside(str(found.path), os.path.realpath(top))


def describe(name: str, path: Path, run: str = "") -> FoundDump | None:
    """Return what is known of a folder that has rank folders at a glance; None if it is no dump after all."""
    try:
        dump = open_dump(path)
        if os.path.realpath(dump.path) != os.path.realpath(path):
            # It was found further below, and has a name of its own.
            return None
        about = dump.metadata
        return FoundDump(
            name, path, dump.ranks, about.framework, about.framework_version, _modified(path), run=run, title=name
        )
    except DumpError as error:
        # Other programs have folders called rank_0 as well.
        names = _names(path)
        has_ranks = any(_may_be_a_rank(path / rank) for rank in names if RANK_NAME.fullmatch(rank))
        if not has_ranks and not any(map(TRACE_NAME.fullmatch, names)):
            return None
        return FoundDump(name, path, modified=_modified(path), problem=str(error), run=run, title=name)


class _Search:
    """One look through a folder tree, bounded."""

    def __init__(self, top: Path) -> None:
        self._top = str(top)
        self._real_top = os.path.realpath(top)
        self._seen: set[str] = set()
        self._entries = 0
        self.incomplete = False
        self.searches: list[FoundSearch] = []

    def folders_of_dumps(self) -> Iterator[tuple[str, Path]]:
        """Yield relative name and path of each folder that may hold a dump, those nearest to the top first."""
        waiting = deque([("", 0)])
        while waiting:
            name, level = waiting.popleft()
            path = f"{self._top}/{name}" if name else self._top
            real = os.path.realpath(path)
            if real in self._seen:
                continue
            self._seen.add(real)
            below, files = self._look(path)
            if SEARCH_DATABASE in files:
                self.searches.append(FoundSearch(name or ".", Path(path)))
                # Its trials record further below.
                level = 0
            if may_be_dump(below, files):
                yield name or ".", Path(path)
            elif level < LEVELS:
                waiting.extend((f"{name}/{one}".lstrip("/"), level + 1) for one in below if not one.startswith("."))

    def recorded_runs(self) -> Iterator[tuple[str, Path]]:
        """Yield id and dump folder of each recorded run."""
        for name in self._look(self._top)[0]:
            path = Path(self._top, name, "dump")
            if _RUN.fullmatch(name) and path.is_dir() and _is_inside(str(path), self._real_top):
                yield name, path

    def _look(self, path: str) -> tuple[list[str], list[str]]:
        """Return the names of the folders and of the files in a folder, in order, as far as the bound allows."""
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
    """Tell whether a folder has the metadata of a dump, or cannot be looked into."""
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
    """Return the newest time of a dump's rank folders and of what is directly in them."""
    ranks = [path / rank for rank in _names(path) if RANK_NAME.fullmatch(rank) or TRACE_NAME.fullmatch(rank)]
    times = (_time(place) for rank in ranks for place in (rank, *(rank / name for name in _names(rank))))
    return max((time for time in times if time is not None), default=None)


def _time(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
