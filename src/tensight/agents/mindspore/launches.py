"""Launches of graphs: which files in the folder of an iteration belong to which run of a graph.

MindSpore names a folder after graph and iteration, but its iterations are not training steps: after a graph was
evaluated between two steps, a later step of the training uses a folder again. The files that have arrived since the
last check are the launch.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from tensight.dumps.names import original_name, parse_mapping, split_name

MAPPING = "mapping.csv"

_PARAMETER = "Parameter."
_TIME_DIGITS = 16
_SETTLED_NS = 10**8
"""File systems note times to some milliseconds: a folder that has just changed may change again and show the same."""

_UNKNOWN = (-1, -1)


class Files:
    """The files of one launch, while they exist.

    Attributes
    ----------
    descriptor : int
        Of their folder; -1 after they were released.
    folder : LaunchFolder
    names : list of str
        All of them, including those that a newer file of the same tensor has replaced.
    """

    __slots__ = ("descriptor", "folder", "names")

    def __init__(self, folder: LaunchFolder, names: list[str]) -> None:
        self.folder = folder
        self.names = names
        self.descriptor = folder.descriptor


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A run of a graph as it was dumped.

    Several runs of a graph in one folder since the last check are one launch: the last.

    Attributes
    ----------
    graph, iteration : int
        As MindSpore numbers them.
    folder : str
    files : tuple of str
        Names, oldest first; only the newest of each tensor.
    keys : tuple of str
        The name that each file has in every launch: its original name (never the digits that replace a long one) with
        a time stamp of 0.
    held : Files
        For the readers of its tensors.
    began, ended : int
        When the first and the last operator had run, microseconds.
    is_repeated : bool
        Whether operators ran several times.
    """

    graph: int
    iteration: int
    folder: str
    files: tuple[str, ...]
    keys: tuple[str, ...]
    held: Files = field(repr=False)
    began: int = 0
    ended: int = 0
    is_repeated: bool = False


class LaunchFolder:
    """The folder of an iteration of a graph.

    Parameters
    ----------
    graph, iteration : int
    path : str
    is_private : bool
        Whether we may remove its files.
    counts_entries : bool
        Whether the size of the folder shows that something was added.

    Attributes
    ----------
    descriptor : int
    launches : int
        Number of its launches that are not released yet.

    Raises
    ------
    OSError
        It cannot be read.
    """

    __slots__ = (
        "_counts_entries",
        "_seen",
        "_state",
        "descriptor",
        "graph",
        "is_private",
        "iteration",
        "launches",
        "path",
    )

    def __init__(self, graph: int, iteration: int, path: str, *, is_private: bool, counts_entries: bool) -> None:
        self.graph = graph
        self.iteration = iteration
        self.path = path
        self.is_private = is_private
        self.launches = 0
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._counts_entries = counts_entries
        self._seen: set[str] = set()
        self._state = _UNKNOWN

    def new_names(self) -> list[str]:
        """Return the files that are new since the last call."""
        status = os.fstat(self.descriptor)
        state = status.st_mtime_ns, status.st_size
        if state == self._state:
            return []
        if self._counts_entries or time.time_ns() - status.st_mtime_ns > _SETTLED_NS:
            self._state = state
        names = os.listdir(self.descriptor)
        seen = self._seen
        if not seen:
            self._seen = set(names)
            return names
        names = [name for name in names if name not in seen]
        seen.update(names)
        return names

    def launch(self, names: list[str], after: str = "") -> tuple[str, Launch] | None:
        """Return the launch that left some files, and when it ended; None if no tensor is among them.

        Parameters
        ----------
        names : list of str
            As `new_names` returned them.
        after : str
            Time stamp; files that are not newer are left out.
        """
        timed = []
        mapping: dict[str, str] | None = None
        for name in names:
            end = name.rfind(".output.")
            begin = end - _TIME_DIGITS
            moment = name[begin:end]
            if moment.isdigit() and begin > 0 and name[begin - 1] == ".":
                timed.append((moment, f"{name[:begin]}0{name[end:]}", name))
            elif name.endswith(".npy"):
                mapping = self._mapping() if mapping is None else mapping
                timed.append((*_time_and_key(original_name(name, mapping)), name))
        timed.sort()
        if after:
            timed = [entry for entry in timed if entry[0] > after]
        if not timed:
            return None
        ended = timed[-1][0]
        _, keys, files = zip(*timed, strict=True)
        held = Files(self, list(files))
        # Parameters are dumped after all operators.
        moments = [int(moment) for moment, key, _ in timed if not key.startswith(_PARAMETER)] or [0]
        is_repeated = len(set(keys)) < len(keys)
        if is_repeated:
            newest = sorted({key: index for index, key in enumerate(keys)}.values())
            keys, files = tuple(keys[index] for index in newest), tuple(files[index] for index in newest)
        self.launches += 1
        launch = Launch(self.graph, self.iteration, self.path, files, keys, held, moments[0], moments[-1], is_repeated)
        return ended, launch

    def forget(self, names: list[str]) -> None:
        """Note that files in it were removed."""
        self._seen.difference_update(names)
        self._state = _UNKNOWN

    def remove(self) -> bool:
        """Remove the folder if it is empty; return whether it is gone."""
        if not _removed(self.path):
            # Without files, their long names are of no use.
            if os.listdir(self.descriptor) != [MAPPING]:
                return False
            unlink([MAPPING], self.descriptor)
            if not _removed(self.path):
                return False
        self.close()
        return True

    def close(self) -> None:
        """Close the folder."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _mapping(self) -> dict[str, str]:
        """Return the long names by the digits that replace them."""
        try:
            with open(f"{self.path}/{MAPPING}", encoding="utf-8", errors="replace") as file:
                return parse_mapping(file.read())[0]
        except OSError:
            return {}


def time_stamp(time_us: int) -> str:
    """Return a time in the form of the time stamps in names."""
    return str(time_us).rjust(_TIME_DIGITS, "0")


def unlink(names: list[str], descriptor: int) -> None:
    """Remove files of a folder; missing files do not matter."""
    for name in names:
        try:
            os.unlink(name, dir_fd=descriptor)
        except OSError:  # noqa: PERF203 - costs nothing where nothing is raised
            continue


def _time_and_key(name: str) -> tuple[str, str]:
    """Return the time stamp in a file's name, and the name with a time stamp of 0."""
    split = split_name(name)
    if split is None:
        return time_stamp(0), name
    head, task, stream, moment_us, io, slot, layout, dtype = split
    rest = ".".join((io, str(slot), layout, *([dtype] if dtype else []), "npy"))
    return time_stamp(moment_us), f"{head}.{task}.{stream}.0.{rest}"


def _removed(path: str) -> bool:
    try:
        os.rmdir(path)  # noqa: PTH106 - once for each step
    except OSError:
        return False
    return True
