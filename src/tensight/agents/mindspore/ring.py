"""What MindSpore dumps while it trains: a ring of files, of which only those of the last steps are there.

MindSpore writes one file for each tensor of each launch of a graph. When a launch is over its files are complete; they
are found here, read by `dumped`, and removed when nobody needs them any more.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensight.agents.forking import silent_in_children
from tensight.agents.mindspore.ring_folder import RingFolder, free_on, is_in_ring, make_folder, remove_stale
from tensight.dumps.names import original_name, parse_mapping, split_name
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping, Sequence

__all__ = ["DumpRing", "Launch", "remove_stale"]

VARIABLE = "MINDSPORE_DUMP_CONFIG"
_CONFIG_NAME = "dump.json"
_MAPPING = "mapping.csv"
_MOST_CONFIG_BYTES = 64 * 2**20

_ALL_DEVICES = 1024
"""MindSpore dumps only on devices that are listed, and which one this process gets is not known yet."""

_TIME_DIGITS = 16
_SETTLED_S = 0.1
"""Disks note times only to some milliseconds: a folder that changed just now may change again and show the same."""

_GRAPH = re.compile(r"ms_output_trace_code_graph_(\d{1,18})\.pb", re.ASCII)
_RANK = re.compile(r"rank_(\d{1,9})", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)
_TITLE = "NodeExecutionOrder-FullNameWithScope"


class Files:
    """The files of one launch, while they are there.

    Attributes
    ----------
    descriptor : int
        Of their folder; -1 once they were released.
    names : list of str
        All of them, also those that a newer one of the same tensor has replaced.
    """

    __slots__ = ("descriptor", "folder", "names")

    def __init__(self, folder: _Folder, names: list[str]) -> None:
        self.folder = folder
        self.names = names
        self.descriptor = folder.descriptor


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A run of a graph as it was dumped.

    A graph that ran several times since it was last asked for launches, in one iteration, is one launch: the last.

    Attributes
    ----------
    graph, iteration : int
        As MindSpore numbers them.
    folder : str
    files : tuple of str
        Names, the oldest first; of each tensor only the newest.
    keys : tuple of str
        What each file is called in every launch: its own name (never the digits that stand for a long one) with a
        time stamp of 0.
    held : Files
        For the readers of its tensors.
    """

    graph: int
    iteration: int
    folder: str
    files: tuple[str, ...]
    keys: tuple[str, ...]
    held: Files = field(repr=False)


class _Folder:
    """The folder of an iteration of a graph."""

    __slots__ = ("descriptor", "graph", "is_private", "iteration", "launches", "path", "seen", "settled_ns")

    def __init__(self, graph: int, iteration: int, path: str, *, is_private: bool) -> None:
        self.is_private = is_private
        self.graph = graph
        self.iteration = iteration
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.launches = 0
        self.seen: set[str] = set()
        self.settled_ns = -1

    def new_names(self) -> list[str]:
        """Return the files of tensors that were not there before."""
        changed_ns = os.fstat(self.descriptor).st_mtime_ns
        if changed_ns == self.settled_ns:
            return []
        if time.time_ns() - changed_ns > _SETTLED_S * 1e9:
            self.settled_ns = changed_ns
        seen = self.seen
        names = [name for name in os.listdir(self.descriptor) if name not in seen and name.endswith(".npy")]
        seen.update(names)
        return names

    def mapping(self) -> dict[str, str]:
        """Return the long names by the digits that stand for them."""
        try:
            with open(f"{self.path}/{_MAPPING}", encoding="utf-8", errors="replace") as file:
                return parse_mapping(file.read())[0]
        except OSError:
            return {}


class DumpRing:
    """The dump of this process. Use `create`.

    Attributes
    ----------
    folder : str
        Where MindSpore dumps.
    is_private : bool
        Whether the dump is ours; nothing is ever removed of one that a person asked for.
    notice : str
        What a person should know of it; may be empty.
    """

    def __init__(
        self, folder: str, network: str, environment: MutableMapping[str, str], own: RingFolder | None, notice: str
    ) -> None:
        self.folder = folder
        self.is_private = own is not None
        self.notice = notice
        self._network = network
        self._environment = environment
        self._own = own
        self._process_id = os.getpid()
        self._rank_folder = ""
        self._folders: dict[tuple[str, str], _Folder] = {}
        self._newest: dict[str, int] = {}
        self._since_us = 0 if own is not None else time.time_ns() // 1000
        silent_in_children(self)
        atexit.register(self.close)

    @classmethod
    def create(
        cls, environment: MutableMapping[str, str], *, operators: Sequence[str] = (), name: str = ""
    ) -> DumpRing:
        """Have MindSpore dump; to be called before it compiles the first graph.

        Parameters
        ----------
        environment : mutable mapping of str to str
            Of the process. Where it asks for a dump already, that one is read, and nothing is changed.
        operators : sequence of str
            Types of operators, full names, or ``name-regex(…)`` of those that are dumped, with all parameters; empty
            for everything.
        name : str
            Of the network.

        Raises
        ------
        InputError
            The configuration that the environment names cannot be read, or there is no place for a dump.
        """
        remove_stale()
        given = environment.get(VARIABLE, "")
        if given and not is_in_ring(given):
            return cls(*_of_person(given, environment), environment, None, _words_for_person(given))
        own, notice = make_folder()
        network = _NOT_IN_NAMES.sub("-", name).strip("-") or "network"
        config = f"{own.path}/{_CONFIG_NAME}"
        with open(config, "w", encoding="ascii") as file:
            json.dump(_config(own.path, network, operators), file)
        environment[VARIABLE] = config
        return cls(own.path, network, environment, own, notice)

    @property
    def rank(self) -> int:
        """Number of this process among those that train together, as its dump has it; 0 before there is one."""
        folder = self._find_rank()
        return int(folder.rpartition("_")[2]) if folder else 0

    def graphs(self) -> dict[int, str]:
        """Return the paths of the graph files that are there, by the number in their names."""
        folder = f"{self._find_rank()}/graphs"
        try:
            found = map(_GRAPH.fullmatch, os.listdir(folder))
        except OSError:
            return {}
        return {int(match[1]): f"{folder}/{match[0]}" for match in found if match}

    def order_of(self, graph: int) -> tuple[str, ...]:
        """Return the full names of a graph's operators in the order of execution; none if that was not written."""
        path = f"{self._find_rank()}/execution_order/ms_execution_order_graph_{graph}.csv"
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file]
        except OSError:
            return ()
        return tuple(line for line in lines if line and line != _TITLE)

    def launches(self) -> list[Launch]:
        """Return the launches that are over and were not returned before, in the order in which they ended."""
        found = []
        for folder, names in self._new():
            launch = self._launch(folder, names)
            if launch is not None:
                found.append(launch)
        if len(found) > 1:
            found.sort(key=lambda one: one[0])
        return [launch for _, launch in found]

    def release(self, launch: Launch) -> None:
        """Remove the files of a launch; its tensors are gone then."""
        files = launch.held
        if files.descriptor < 0:
            return
        folder, descriptor, files.descriptor = files.folder, files.descriptor, -1
        folder.launches -= 1
        if self.is_private:
            _unlink(files.names, descriptor)
            folder.seen.difference_update(files.names)
        if not folder.launches:
            self._leave(folder)

    def discard(self) -> None:
        """Remove what was dumped since, without looking at it."""
        for folder, names in list(self._new()):
            if self.is_private:
                _unlink(names, folder.descriptor)
                folder.seen.difference_update(names)
            if not folder.launches:
                self._leave(folder)

    def used_bytes(self) -> int:
        """Return how much there is of the dump now."""
        found = 0
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with suppress(OSError):
                    found += os.lstat(f"{folder}/{name}").st_size
        return found

    def free_bytes(self) -> int:
        """Return how much more there may be."""
        return free_on(self.folder) or 0

    def close(self) -> None:
        """Remove everything that is ours. MindSpore must not dump any more, or it makes the folder again."""
        if os.getpid() != self._process_id or self._process_id < 0:
            return
        self._process_id = -1
        atexit.unregister(self.close)
        for folder in self._folders.values():
            os.close(folder.descriptor)
            folder.descriptor = -1
        self._folders.clear()
        if self._own is not None:
            if self._environment.get(VARIABLE) == f"{self._own.path}/{_CONFIG_NAME}":
                del self._environment[VARIABLE]
            self._own.remove()

    def silence(self) -> DumpRing:
        """Be of no use in a forked process, and do not hold the lock there: the ring is the parent's."""
        self._process_id = -1
        if self._own is not None:
            self._own.let_go()
        return self

    def _new(self) -> Iterator[tuple[_Folder, list[str]]]:
        """Yield the folders in which there is something new, with the names of that."""
        if self._process_id < 0:
            return
        network = f"{self._find_rank()}/{self._network}"
        for graph in _listed(network):
            for iteration in _listed(f"{network}/{graph}"):
                folder = self._folders.get((graph, iteration))
                if folder is None:
                    folder = self._enter(network, graph, iteration)
                    if folder is None:
                        continue
                names = folder.new_names()
                if names:
                    yield folder, names
        if not self.is_private:
            self._forget_old()

    def _enter(self, network: str, graph: str, iteration: str) -> _Folder | None:
        if not (_NUMBER.fullmatch(graph) and _NUMBER.fullmatch(iteration)):
            return None
        if int(iteration) < self._newest.get(graph, 0):
            return None
        path = f"{network}/{graph}/{iteration}"
        try:
            if os.lstat(path).st_mtime_ns // 1000 < self._since_us:
                # An earlier run's.
                return None
            folder = _Folder(int(graph), int(iteration), path, is_private=self.is_private)
        except OSError:
            return None
        self._folders[graph, iteration] = folder
        return folder

    def _leave(self, folder: _Folder) -> None:
        """Remove a folder of which all launches were released, unless something new has come into it."""
        if not self.is_private:
            return
        folder.settled_ns = -1
        if not _remove_folder(folder.path):
            # The long names belong to files that are gone, unless there are others by now.
            if os.listdir(folder.descriptor) != [_MAPPING]:
                return
            _unlink([_MAPPING], folder.descriptor)
            if not _remove_folder(folder.path):
                return
        os.close(folder.descriptor)
        del self._folders[str(folder.graph), str(folder.iteration)]

    def _forget_old(self) -> None:
        """Let go of iterations of a person's dump that are over: there is a newer one of the same graph."""
        for key, folder in list(self._folders.items()):
            newest = self._newest.get(key[0], 0)
            if folder.iteration < newest and not folder.launches:
                os.close(folder.descriptor)
                del self._folders[key]

    def _launch(self, folder: _Folder, names: list[str]) -> tuple[str, Launch] | None:
        """Return a launch with the time at which it ended; None if its files are older than this process."""
        timed = []
        mapping: dict[str, str] | None = None
        for name in names:
            own_name = name
            if name[:-4].isdigit():
                mapping = folder.mapping() if mapping is None else mapping
                own_name = original_name(name, mapping)
            timed.append((*_time_and_key(own_name), name))
        timed.sort()
        if self._since_us:
            since = str(self._since_us).rjust(_TIME_DIGITS, "0")
            timed = [one for one in timed if one[0] >= since]
            if not timed:
                return None
            self._newest[str(folder.graph)] = max(folder.iteration, self._newest.get(str(folder.graph), 0))
        last = {key: place for place, (_, key, _) in enumerate(timed)}
        kept = timed if len(last) == len(timed) else [timed[place] for place in sorted(last.values())]
        folder.launches += 1
        _, keys, files = zip(*kept, strict=True)
        held = Files(folder, names)
        return timed[-1][0], Launch(folder.graph, folder.iteration, folder.path, files, keys, held)

    def _find_rank(self) -> str:
        """Return the folder of this process's rank; empty as long as there is none."""
        if self._rank_folder:
            return self._rank_folder
        found = sorted(name for name in _listed(self.folder) if _RANK.fullmatch(name))
        if not found:
            return ""
        chosen = found[0]
        if len(found) > 1 or not self.is_private:
            environment = self._environment
            number = environment.get("RANK_ID") or environment.get("OMPI_COMM_WORLD_RANK") or ""
            if f"rank_{number}" in found:
                chosen = f"rank_{number}"
        folder = f"{self.folder}/{chosen}"
        if self.is_private:
            self._rank_folder = folder
        return folder


def _time_and_key(name: str) -> tuple[str, str]:
    """Return the time stamp in a file's name, and the name with a time stamp of 0."""
    end = name.rfind(".output.")
    if end < 0:
        end = name.rfind(".input.")
    begin = end - _TIME_DIGITS
    moment = name[begin:end]
    if begin > 0 and name[begin - 1] == "." and moment.isdigit():
        return moment, f"{name[:begin]}0{name[end:]}"
    split = split_name(name)
    if split is None:
        return "0" * _TIME_DIGITS, name
    head, task, stream, moment_us, io, slot, layout, dtype = split
    rest = ".".join((io, str(slot), layout, *([dtype] if dtype else []), "npy"))
    return str(moment_us).rjust(_TIME_DIGITS, "0"), f"{head}.{task}.{stream}.0.{rest}"


def _unlink(names: list[str], descriptor: int) -> None:
    for name in names:
        try:
            os.unlink(name, dir_fd=descriptor)
        except OSError:  # noqa: PERF203 - costs nothing where nothing is raised
            # Its tensor was discarded earlier.
            continue


def _remove_folder(path: str) -> bool:
    """Remove a folder; False if something is in it."""
    try:
        os.rmdir(path)  # noqa: PTH106 - once for each step
    except OSError:
        return False
    return True


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _config(path: str, network: str, operators: Sequence[str]) -> dict[str, dict[str, object]]:
    common: dict[str, object] = {
        "op_debug_mode": 0,
        "dump_mode": 1 if operators else 0,
        "path": path,
        "net_name": network,
        "iteration": "all",
        "saved_data": "tensor",
        # An input is what another node put out.
        "input_output": 2,
        "kernels": list(operators),
        "support_device": list(range(_ALL_DEVICES)),
    }
    return {"common_dump_settings": common, "e2e_dump_settings": {"enable": True, "trans_flag": True}}


def _of_person(path: str, environment: MutableMapping[str, str]) -> tuple[str, str]:
    """Return the folder and the network's name of a dump that a person asked for."""
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read(_MOST_CONFIG_BYTES))
        common = content["common_dump_settings"]
        default = environment.get("MS_DIAGNOSTIC_DATA_PATH", "")
        folder = common.get("path") or (f"{default}/debug_dump" if default else "")
        network = common["net_name"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"{VARIABLE} names {path}, which cannot be used as the configuration of a dump: {error!r}."
            f" Unset {VARIABLE}, and Tensight has MindSpore dump what it needs"
        ) from None
    if not (isinstance(folder, str) and isinstance(network, str) and folder and network):
        raise InputError(f"{path} has no path and net_name in common_dump_settings; unset {VARIABLE}, or name both")
    return folder.rstrip("/") or "/", network


def _words_for_person(path: str) -> str:
    return (
        f"MindSpore dumps as {VARIABLE} says ({path}): only what is dumped there can be watched, and nothing of it is"
        f" removed. Unset {VARIABLE}, and Tensight has everything dumped in memory"
    )
