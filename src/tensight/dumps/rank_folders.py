"""MindSpore's rank layout: find the folders ``rank_0``, … and the folders in them that contain tensors."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensight.dumps import metadata
from tensight.errors import DumpError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.dumps.storage import Storage

RANK_NAME = re.compile(r"rank_(\d{1,9})", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)

INITIAL = "init"
"""Folder of the values before the first step, in recordings of Tensight; MindSpore has no number for them."""

#: Contents of a rank's folder besides the folder of the network.
_KNOWN = frozenset({metadata.FOLDER, "graphs", "execution_order", "debug_files"})


@dataclass(frozen=True, slots=True)
class RankFolder:
    """The folder of one rank.

    Attributes
    ----------
    rank : int
    path : str
        Relative to the storage's root; empty if the user named the rank's folder itself.
    """

    rank: int
    path: str

    def child(self, *names: str) -> str:
        """Return the path of a file or folder in it."""
        return "/".join((self.path, *names) if self.path else names)


@dataclass(frozen=True, slots=True)
class TensorFolders:
    """The folders of one rank that contain tensors.

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
        problems.append(Problem(network, "has no iterations", "is the dump complete?"))
    return TensorFolders(network, iterations, constants, initial)


def _network_folder(storage: Storage, rank: RankFolder, net_name: str, problems: list[Problem]) -> str:
    try:
        listing = storage.list_folder(rank.path)
    except DumpError as error:
        problems.append(Problem(rank.path, str(error)))
        return ""
    problems.extend(
        Problem(rank.child(name), "leads out of the dump, or is not a file or folder", "it is not followed")
        for name in listing.refused
    )
    if net_name and net_name in listing.folders:
        return rank.child(net_name)
    candidates = [
        name
        for name in listing.folders
        if name not in _KNOWN and any(map(_NUMBER.fullmatch, quiet_folders(storage, rank.child(name))))
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
    folders: dict[int, str] = {}
    # "7" comes before "007", so the usual spelling wins.
    for name in sorted((name for name in names if _NUMBER.fullmatch(name)), key=lambda name: (int(name), len(name))):
        if int(name) in folders:
            problems.append(Problem(f"{folder}/{name}", f"is numbered like {folders[int(name)]}; it is not read"))
        else:
            folders[int(name)] = f"{folder}/{name}"
    return folders


def may_be_ranks(folders: Sequence[str], files: Sequence[str]) -> bool:  # noqa: ARG001
    """Return whether the names in a folder may be those of ranks; see `Layout.may_match`."""
    return any(map(RANK_NAME.fullmatch, folders))


def rank_folders(storage: Storage, problems: list[Problem]) -> tuple[RankFolder, ...]:
    """Return the folders of the ranks in a folder, or that folder if it belongs to a rank.

    Parameters
    ----------
    storage : Storage
    problems : list of Problem
        Problems are appended.

    Returns
    -------
    tuple of RankFolder
        Sorted by rank; of two with the same number the usual spelling comes first.

    Raises
    ------
    DumpError
        The folder cannot be listed.
    """
    listing = storage.list_folder("")
    problems.extend(
        Problem(name, "leads out of the dump; it is not followed", "put the folder itself there, or name its target")
        for name in listing.refused
        if RANK_NAME.fullmatch(name)
    )
    ranks: list[RankFolder] = []
    for name in sorted(listing.folders, key=lambda name: (len(name), name)):
        match = RANK_NAME.fullmatch(name)
        if match is not None and _is_rank(storage, name):
            ranks.append(RankFolder(int(match[1]), name))
        elif match is not None:
            problems.append(Problem(name, "contains no dump; it is not read"))
    if not ranks:
        return _own_rank(storage, listing.folders, problems)
    return tuple(sorted(ranks, key=lambda folder: folder.rank))


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
        for inner in quiet_folders(storage, f"{path}/{name}" if path else name)
    )


def _own_rank(storage: Storage, folders: Sequence[str], problems: list[Problem]) -> tuple[RankFolder, ...]:
    """Return the rank whose folder the storage's root is, if it is one."""
    name = storage.root.rstrip("/").rpartition("/")[2]
    match = RANK_NAME.fullmatch(name)
    if match and _is_rank(storage, ""):
        return (RankFolder(int(match[1]), ""),)
    if metadata.FOLDER in folders or {"graphs", "execution_order"} <= set(folders):
        problems.append(
            Problem(name, "looks like the folder of a rank but is not called rank_N", "it is read as rank 0")
        )
        return (RankFolder(0, ""),)
    return ()


def quiet_folders(storage: Storage, folder: str) -> tuple[str, ...]:
    """Return sub-folders; none if listing fails, because unreadable folders beside a dump do not matter."""
    try:
        return storage.folders(folder)
    except DumpError:
        return ()
