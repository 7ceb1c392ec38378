"""Where in a folder tree the ranks of a dump are, and what each rank's folder holds."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensight.dumps import metadata
from tensight.dumps.msprobe.folders import find_msprobe, looks_like_msprobe
from tensight.dumps.storage import MissingFileError, Storage, open_storage
from tensight.errors import DumpError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.dumps.msprobe.folders import StepFolder

_RANK = re.compile(r"rank_(\d{1,9})", re.ASCII)
_TRACE = re.compile(r"rank_(\d{1,9})\.trace", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_OLD_DEVICE = re.compile(r".+_graph_\d+", re.ASCII)
_ACL = re.compile(r"acl_dump(_\d+)?\.json", re.ASCII)
_TIME = re.compile(r"20\d{12}", re.ASCII)

INITIAL = "init"
"""Folder of the values before the first step, in runs that Tensight recorded; MindSpore has no number for them."""

#: What a rank's folder holds beside the folder of the network.
_KNOWN = frozenset({metadata.FOLDER, "graphs", "execution_order", "debug_files"})

#: How many folders are looked into while searching for a dump below the folder that was named.
_MAX_LOOKED_INTO = 2_000


@dataclass(frozen=True, slots=True)
class RankFolder:
    """The folder of one rank.

    Attributes
    ----------
    rank : int
    path : str
        Relative to the storage's root; empty if the person named the rank's folder itself.
    is_trace : bool
        Whether it is no folder but a trace, a file of its own.
    """

    rank: int
    path: str
    is_trace: bool = False

    def child(self, *names: str) -> str:
        """Return the path of something in it."""
        return "/".join((self.path, *names) if self.path else names)


@dataclass(frozen=True, slots=True)
class DumpLayout:
    """A dump that was found.

    Attributes
    ----------
    storage : Storage
        Its root is the dump's folder.
    ranks : tuple of RankFolder
        Sorted by rank; at least one.
    problems : tuple of Problem
    msprobe : mapping of int to tuple of StepFolder
        Of a dump of msprobe the folders of each rank's steps; empty for any other.
    """

    storage: Storage
    ranks: tuple[RankFolder, ...]
    problems: tuple[Problem, ...] = ()
    msprobe: Mapping[int, tuple[StepFolder, ...]] = field(default_factory=dict)


def find_dump(path: str | os.PathLike[str]) -> DumpLayout:
    """Find the dump at, or up to two levels below, a folder.

    Parameters
    ----------
    path : str or path-like
        The dump's folder (which holds ``rank_0``, …), the folder of one rank, or a folder with exactly one dump in it.

    Returns
    -------
    DumpLayout

    Raises
    ------
    DumpError
        If there is no dump, more than one, or one of a layout that cannot be read.
    """
    own = _as_trace(os.fspath(path))
    if own is not None:
        return own
    storage = open_storage(path)
    ranks, problems = _ranks_in(storage, "")
    if ranks:
        return DumpLayout(storage, ranks, problems)
    own = _as_rank(storage) or _as_msprobe(storage)
    if own is not None:
        return own
    found = _dumps_below(storage)
    if len(found) > 1:
        listed = "\n  ".join(storage.full_path(folder) for folder in found[:20])
        more = f"\n  … and {len(found) - 20} more" if len(found) > 20 else ""
        raise DumpError(f"{storage.root}: holds {len(found)} dumps; name one of them:\n  {listed}{more}")
    if found:
        storage = open_storage(storage.full_path(found[0]))
        ranks, problems = _ranks_in(storage, "")
        return DumpLayout(storage, ranks, problems) if ranks else _as_msprobe(storage) or DumpLayout(storage, ())
    why = f"is no dump: {'; '.join(map(str, problems))}." if problems else _why_not(storage)
    raise DumpError(f"{storage.root}: {why}")


@dataclass(frozen=True, slots=True)
class TensorFolders:
    """The folders of one rank that hold tensors.

    Attributes
    ----------
    network : str
        Relative path of ``{net_name}``; empty if there is none.
    iterations : dict of int to dict of int to str
        Relative folder by root graph id and iteration, both in increasing order.
    constants : dict of int to str
        Relative folder of ``constants`` by root graph id.
    initial : dict of int to str
        Relative folder of ``init`` by root graph id.
    """

    network: str
    iterations: dict[int, dict[int, str]]
    constants: dict[int, str]
    initial: dict[int, str] = field(default_factory=dict)


def tensor_folders(storage: Storage, rank: RankFolder, net_name: str, problems: list[Problem]) -> TensorFolders:
    """List the iteration folders of a rank. Only all-digit names count as graphs and iterations."""
    network = _network_folder(storage, rank, net_name, problems)
    if not network:
        return TensorFolders("", {}, {})
    iterations: dict[int, dict[int, str]] = {}
    constants: dict[int, str] = {}
    initial: dict[int, str] = {}
    for graph_id, graph_path in _numbered(storage, network, problems).items():
        try:
            names = storage.list_folder(graph_path).folders
        except DumpError as error:
            problems.append(Problem(graph_path, str(error)))
            continue
        iterations[graph_id] = _by_number(graph_path, names, problems)
        if "constants" in names:
            constants[graph_id] = f"{graph_path}/constants"
        if INITIAL in names:
            initial[graph_id] = f"{graph_path}/{INITIAL}"
    if not any(iterations.values()):
        problems.append(Problem(network, "holds no iteration", "is the dump complete?"))
    return TensorFolders(network, iterations, constants, initial)


def _network_folder(storage: Storage, rank: RankFolder, net_name: str, problems: list[Problem]) -> str:
    try:
        listing = storage.list_folder(rank.path)
    except DumpError as error:
        problems.append(Problem(rank.path, str(error)))
        return ""
    problems.extend(
        Problem(rank.child(name), "leads out of the dump, or is no file or folder", "it is not followed")
        for name in listing.refused
    )
    if net_name and net_name in listing.folders:
        return rank.child(net_name)
    candidates = [
        name
        for name in listing.folders
        if name not in _KNOWN and any(map(_NUMBER.fullmatch, _quiet_folders(storage, rank.child(name))))
    ]
    expected = f"no folder {net_name!r} with tensors" if net_name else "the name of the network is unknown"
    if not candidates:
        if net_name:
            problems.append(Problem(rank.path or "rank folder", expected, "is the dump complete?"))
        return ""
    problems.append(Problem(rank.path or "rank folder", f"{expected}; {candidates[0]!r} is read instead"))
    return rank.child(candidates[0])


def _numbered(storage: Storage, folder: str, problems: list[Problem]) -> dict[int, str]:
    try:
        listing = storage.list_folder(folder)
    except DumpError as error:
        problems.append(Problem(folder, str(error)))
        return {}
    problems.extend(
        Problem(f"{folder}/{name}", "leads out of the dump; it is not followed") for name in listing.refused
    )
    return _by_number(folder, listing.folders, problems)


def _by_number(folder: str, names: tuple[str, ...], problems: list[Problem]) -> dict[int, str]:
    found: dict[int, str] = {}
    # "7" comes before "007", so the usual spelling wins.
    for name in sorted((name for name in names if _NUMBER.fullmatch(name)), key=lambda name: (int(name), len(name))):
        if int(name) in found:
            problems.append(Problem(f"{folder}/{name}", f"is numbered like {found[int(name)]}; it is not read"))
        else:
            found[int(name)] = f"{folder}/{name}"
    return found


def _ranks_in(storage: Storage, folder: str) -> tuple[tuple[RankFolder, ...], tuple[Problem, ...]]:
    listing = storage.list_folder(folder)
    ranks: dict[int, RankFolder] = {}
    problems = [
        Problem(name, "leads out of the dump; it is not followed", "put the folder itself there, or name its target")
        for name in listing.refused
        if _RANK.fullmatch(name) or _TRACE.fullmatch(name)
    ]
    for name in sorted(listing.folders, key=lambda name: (len(name), name)):
        match = _RANK.fullmatch(name)
        path = f"{folder}/{name}".lstrip("/")
        if match is None:
            continue
        if int(match[1]) in ranks:
            problems.append(Problem(path, f"is numbered like {ranks[int(match[1])].path}; it is not read"))
        elif not _is_rank(storage, path):
            problems.append(Problem(path, "holds nothing of a dump; it is not read"))
        else:
            ranks[int(match[1])] = RankFolder(int(match[1]), path)
    for file in listing.files:
        match = _TRACE.fullmatch(file.name)
        if match is None:
            continue
        path = f"{folder}/{file.name}".lstrip("/")
        if int(match[1]) in ranks:
            problems.append(Problem(path, f"is numbered like {ranks[int(match[1])].path}; it is not read"))
        else:
            ranks[int(match[1])] = RankFolder(int(match[1]), path, is_trace=True)
    return tuple(ranks[rank] for rank in sorted(ranks)), tuple(problems)


def _is_rank(storage: Storage, path: str) -> bool:
    try:
        folders = storage.folders(path)
    except DumpError:
        return False
    if not _KNOWN.isdisjoint(folders):
        return True
    return any(
        _NUMBER.fullmatch(inner)
        for name in folders
        for inner in _quiet_folders(storage, f"{path}/{name}" if path else name)
    )


def _as_trace(path: str) -> DumpLayout | None:
    """Return the layout if the file of a trace was named itself."""
    folder, _, name = path.rpartition("/")
    match = _TRACE.fullmatch(name)
    if match is None:
        return None
    try:
        storage = open_storage(folder or ("/" if path.startswith("/") else "."))
        files = storage.list_folder("").files
    except DumpError:
        return None
    if not any(file.name == name for file in files):
        return None
    return DumpLayout(storage, (RankFolder(int(match[1]), name, is_trace=True),))


def _as_rank(storage: Storage) -> DumpLayout | None:
    """Return the layout if the folder that was named is a rank's own."""
    name = storage.root.rstrip("/").rpartition("/")[2]
    match = _RANK.fullmatch(name)
    folders = storage.folders("")
    if match and _is_rank(storage, ""):
        return DumpLayout(storage, (RankFolder(int(match[1]), ""),))
    if metadata.FOLDER in folders or {"graphs", "execution_order"} <= set(folders):
        problem = Problem(name, "looks like the folder of a rank but is not called rank_N", "it is read as rank 0")
        return DumpLayout(storage, (RankFolder(0, ""),), (problem,))
    return None


def _as_msprobe(storage: Storage) -> DumpLayout | None:
    """Return the layout if the folder holds steps of msprobe, or is one of them."""
    found = find_msprobe(storage)
    if found is None:
        return None
    ranks = tuple(RankFolder(rank, steps[0].path) for rank, steps in found.ranks.items())
    return DumpLayout(storage, ranks, found.problems, found.ranks)


def _dumps_below(storage: Storage) -> list[str]:
    found: list[str] = []
    looked_into = 0
    level = [""]
    for _ in range(2):
        below = [f"{folder}/{name}".lstrip("/") for folder in level for name in _quiet_folders(storage, folder)]
        level = []
        for folder in below:
            looked_into += 1
            if looked_into > _MAX_LOOKED_INTO:
                return found
            if _is_dump(storage, folder):
                found.append(folder)
            else:
                level.append(folder)
    return found


def _is_dump(storage: Storage, folder: str) -> bool:
    try:
        listing = storage.list_folder(folder)
    except DumpError:
        return False
    has_trace = any(_TRACE.fullmatch(file.name) for file in listing.files)
    if (has_trace or any(map(_RANK.fullmatch, listing.folders))) and _ranks_in(storage, folder)[0]:
        return True
    names = listing.folders
    return looks_like_msprobe(names) and find_msprobe(open_storage(storage.full_path(folder))) is not None


def _quiet_folders(storage: Storage, folder: str) -> tuple[str, ...]:
    """Return sub-folders; none where listing fails, because a neighbour's folder is not our concern."""
    try:
        return storage.folders(folder)
    except DumpError:
        return ()


def _why_not(storage: Storage) -> str:
    """Say what a folder without a rank layout is, as far as it can be recognised."""
    try:
        listing = storage.list_folder("")
    except MissingFileError:
        return "there is no such folder."
    below = {name: _quiet_folders(storage, name) for name in listing.folders[:100]}
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
        "is no dump: there is no folder rank_N with .dump_metadata, graphs or tensors in it, nor up to two levels "
        "below. Name the folder given as `path` in the dump configuration."
    )
