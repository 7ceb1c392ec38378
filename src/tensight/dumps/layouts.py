"""The layouts of dumps, and the search for the dump that the user named."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.dumps.msprobe.rank import MSPROBE
from tensight.dumps.rank_folders import quiet_folders
from tensight.dumps.rank_index import MINDSPORE
from tensight.dumps.storage import Storage, open_storage
from tensight.dumps.trace_layout import TRACES
from tensight.errors import DumpError, MissingFileError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.dumps.reader import Layout, LocatedRank

LAYOUTS: tuple[Layout, ...] = (
    MINDSPORE,
    TRACES,
    MSPROBE,
)
"""All layouts; add a line for a new one. If a folder contains a rank in several layouts, the first is read."""

_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_OLD_DEVICE = re.compile(r".+_graph_\d+", re.ASCII)
_ACL = re.compile(r"acl_dump(_\d+)?\.json", re.ASCII)
_TIME = re.compile(r"20\d{12}", re.ASCII)

#: Maximum number of folders to list in the search for a dump below the named folder.
_MAX_OPENED_FOLDERS = 2_000


@dataclass(frozen=True, slots=True)
class LocatedDump:
    """A dump that was found.

    Attributes
    ----------
    storage : Storage
        Its root is the dump's folder.
    ranks : tuple of LocatedRank
        Sorted by rank; at least one.
    problems : list of Problem
        Problems that belong to no rank. The readers of its ranks append to them.
    """

    storage: Storage
    ranks: tuple[LocatedRank, ...]
    problems: list[Problem]


def may_be_dump(folders: Sequence[str], files: Sequence[str]) -> bool:
    """Return whether a folder may contain a dump of any layout, from the names in it.

    Parameters
    ----------
    folders, files : sequence of str
        Names of its sub-folders and of its files.
    """
    return any(layout.may_match(folders, files) for layout in LAYOUTS)


def find_dump(path: str | os.PathLike[str]) -> LocatedDump:
    """Find the dump at, or up to two levels below, a folder.

    Parameters
    ----------
    path : str or path-like
        The dump's folder (which contains ``rank_0``, …), the folder or file of one rank, or a folder with exactly one
        dump in it.

    Returns
    -------
    LocatedDump

    Raises
    ------
    DumpError
        If there is no dump, more than one, or one of a layout that cannot be read.
    """
    text = os.fspath(path)
    try:
        storage = open_storage(text)
    except MissingFileError:
        named = _named_file(text)
        if named is None:
            raise
        return named
    problems: list[Problem] = []
    ranks = _ranks_at(storage, problems)
    if ranks:
        return LocatedDump(storage, ranks, problems)
    below = _dumps_below(storage)
    if len(below) == 1:
        return below[0]
    if below:
        listed = "\n  ".join(dump.storage.root for dump in below[:20])
        more = f"\n  … and {len(below) - 20} more" if len(below) > 20 else ""
        raise DumpError(
            f"{storage.root}: holds {len(below)} dumps; name one of them:\n  {listed}{more}", code="dump-ambiguous"
        )
    why = f"is not a dump: {'; '.join(map(str, problems))}." if problems else _why_not(storage)
    raise DumpError(f"{storage.root}: {why}")


def _ranks_at(storage: Storage, problems: list[Problem]) -> tuple[LocatedRank, ...]:
    """Return the ranks in a folder, of all layouts, sorted."""
    ranks: dict[int, LocatedRank] = {}
    for layout in LAYOUTS:
        for located in layout.find(storage, problems):
            first = ranks.setdefault(located.rank, located)
            if first is not located:
                problems.append(Problem(located.path, f"is numbered like {first.path}; it is not read"))
    return tuple(ranks[rank] for rank in sorted(ranks))


def _named_file(path: str) -> LocatedDump | None:
    """Return the dump of one rank if the path is its file; else None."""
    folder, _, name = path.rpartition("/")
    if not may_be_dump((), (name,)):
        return None
    try:
        storage = open_storage(folder or ("/" if path.startswith("/") else "."))
        ranks = [located for layout in LAYOUTS for located in layout.find(storage, []) if located.path == name]
    except DumpError:
        return None
    return LocatedDump(storage, tuple(ranks), []) if ranks else None


def _dumps_below(storage: Storage) -> list[LocatedDump]:
    dumps: list[LocatedDump] = []
    opened = 0
    level = [""]
    for _ in range(2):
        below = [f"{folder}/{name}".lstrip("/") for folder in level for name in quiet_folders(storage, folder)]
        level = []
        for folder in below:
            opened += 1
            if opened > _MAX_OPENED_FOLDERS:
                return dumps
            dump = _dump_at(storage, folder)
            if dump is None:
                level.append(folder)
            else:
                dumps.append(dump)
    return dumps


def _dump_at(storage: Storage, folder: str) -> LocatedDump | None:
    """Return the dump in a folder below the named one; None if there is none, or if it cannot be opened."""
    problems: list[Problem] = []
    try:
        listing = storage.list_folder(folder)
        if not may_be_dump(listing.folders, [file.name for file in listing.files]):
            return None
        dump_storage = open_storage(storage.full_path(folder))
        ranks = _ranks_at(dump_storage, problems)
    except DumpError:
        return None
    return LocatedDump(dump_storage, ranks, problems) if ranks else None


def _why_not(storage: Storage) -> str:
    """Return why a folder is not a dump: the unsupported kind of dump that it contains, if recognised."""
    try:
        listing = storage.list_folder("")
    except MissingFileError:
        return "there is no such folder."
    below = {name: quiet_folders(storage, name) for name in listing.folders[:100]}
    inner = {name for names in below.values() for name in names}
    if any(_ACL.fullmatch(file.name) for file in listing.files) or any(map(_TIME.fullmatch, (*below, *inner))):
        return (
            "is a dump of the graph engine of Ascend (O2 / GE). It has no graphs and no rank folders, and is not "
            "supported; dump with jit_level O0 or O1, or use msprobe of MindStudio."
        )
    if any(_NUMBER.fullmatch(name) and any(map(_OLD_DEVICE.fullmatch, names)) for name, names in below.items()):
        return (
            "is an asynchronous dump of MindSpore before 1.3 (device/network_graph_N/…), which has no rank folders "
            "and no graphs; it is not supported."
        )
    if any(name.startswith("iteration_") for name in (*below, *inner)):
        return "is a dump of MindSpore up to 1.1 (iteration_N/…), which has no graphs; it is not supported."
    return (
        "is not a dump: there is no folder rank_N with .dump_metadata, graphs or tensors in it, nor up to two levels "
        "below. Name the folder given as `path` in the dump configuration."
    )
