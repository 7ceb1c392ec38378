"""Find msprobe's steps and ranks in a folder tree: ``step0/rank0/dump.json``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.errors import DumpError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.dumps.storage import Storage

DUMP_FILE = "dump.json"

_STEP = re.compile(r"step(\d{1,9})", re.ASCII)
#: A process without a process group has its process id in the name; older versions write ``rank`` without a number.
_RANK = re.compile(r"rank(\d{0,9})", re.ASCII)
_PROCESS = re.compile(r"proc(\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class StepFolder:
    """The folder of one rank in one step.

    Attributes
    ----------
    iteration : int
        From 0, as in msprobe.
    path : str
        Relative to the storage's root.
    """

    iteration: int
    path: str

    def child(self, name: str) -> str:
        """Return the path of a file or folder in it."""
        return f"{self.path}/{name}" if self.path else name


def may_be_msprobe(folders: Sequence[str], files: Sequence[str]) -> bool:  # noqa: ARG001
    """Return whether the names in a folder may be those of msprobe's steps; see `Layout.may_match`."""
    return any(map(_STEP.fullmatch, folders))


def step_folders(storage: Storage, problems: list[Problem]) -> dict[int, tuple[StepFolder, ...]]:
    """Return the steps of the ranks in a folder.

    Parameters
    ----------
    storage : Storage
        Its root is the dump's folder, the folder of one step, or the folder of one rank in a step.
    problems : list of Problem
        Problems are appended.

    Returns
    -------
    dict of int to tuple of StepFolder
        By rank, each in the order of the steps; empty if the folder has no dump of msprobe.

    Raises
    ------
    DumpError
        The folder cannot be listed.
    """
    listing = storage.list_folder("")
    name = storage.root.rstrip("/").rpartition("/")[2]
    if any(file.name == DUMP_FILE for file in listing.files) and (_RANK.fullmatch(name) or _PROCESS.fullmatch(name)):
        above = storage.root.rstrip("/").rpartition("/")[0].rpartition("/")[2]
        return _numbered({name: [StepFolder(_number(_STEP, above), "")]}, problems)
    problems.extend(
        Problem(folder, "leads out of the dump; it is not followed", "put the folder itself there, or name its target")
        for folder in listing.refused
        if _STEP.fullmatch(folder) or _is_rank(folder)
    )
    by_name: dict[str, list[StepFolder]] = {}
    rank_names = _ranks_in(storage, "", problems)
    for rank in rank_names:
        by_name[rank] = [StepFolder(_number(_STEP, name), rank)]
    seen: dict[int, str] = {}
    for step in (
        [] if rank_names else sorted(filter(_STEP.fullmatch, listing.folders), key=lambda folder: (len(folder), folder))
    ):
        iteration = _number(_STEP, step)
        if iteration in seen:
            problems.append(Problem(step, f"is numbered like {seen[iteration]}; it is not read"))
            continue
        seen[iteration] = step
        for rank in _ranks_in(storage, step, problems):
            by_name.setdefault(rank, []).append(StepFolder(iteration, f"{step}/{rank}"))
    return _numbered(by_name, problems)


def _is_rank(name: str) -> bool:
    return bool(_RANK.fullmatch(name) or _PROCESS.fullmatch(name))


def _ranks_in(storage: Storage, folder: str, problems: list[Problem]) -> list[str]:
    """Return the names of the folders of ranks, or of processes, in the folder of a step."""
    try:
        listing = storage.list_folder(folder)
        names = [name for name in listing.folders if _is_rank(name)]
        problems.extend(
            Problem(f"{folder}/{name}", "leads out of the dump; it is not followed")
            for name in listing.refused
            if folder and _is_rank(name)
        )
    except DumpError as error:
        problems.append(Problem(folder, str(error)))
        return []
    rank_names = []
    for name in names:
        path = f"{folder}/{name}".lstrip("/")
        try:
            files = storage.list_folder(path).files
        except DumpError as error:
            problems.append(Problem(path, str(error)))
            continue
        if any(file.name == DUMP_FILE for file in files):
            rank_names.append(name)
        elif folder:
            problems.append(Problem(path, f"has no {DUMP_FILE}", "the step was not written to its end"))
    return rank_names


def _numbered(by_name: dict[str, list[StepFolder]], problems: list[Problem]) -> dict[int, tuple[StepFolder, ...]]:
    """Assign numbers to the ranks; processes without a process group follow in the order of their ids."""
    ranks: dict[int, tuple[StepFolder, ...]] = {}
    processes: list[str] = []
    for name in sorted(by_name, key=lambda rank_name: (len(rank_name), rank_name)):
        match = _RANK.fullmatch(name)
        if match is None:
            processes.append(name)
            continue
        number = int(match[1] or 0)
        if number in ranks:
            problems.append(Problem(by_name[name][0].path, f"is a second rank {number}; it is not read"))
        else:
            ranks[number] = tuple(by_name[name])
    for name in processes:
        number = max(ranks, default=-1) + 1
        ranks[number] = tuple(by_name[name])
        if len(by_name) > 1:
            problems.append(Problem(name, f"has no rank in its name; it is read as rank {number}"))
    return {rank: ranks[rank] for rank in sorted(ranks)}


def _number(pattern: re.Pattern[str], name: str) -> int:
    match = pattern.fullmatch(name)
    return int(match[1]) if match else 0
