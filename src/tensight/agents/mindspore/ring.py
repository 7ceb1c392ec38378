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
from typing import TYPE_CHECKING

from tensight.agents.forking import silent_in_children
from tensight.agents.mindspore.dump_settings import (
    VARIABLE,
    is_dumped,
    network_folder,
    own_settings,
    settings_of_person,
)
from tensight.agents.mindspore.launches import Launch, LaunchFolder, time_stamp
from tensight.agents.mindspore.removal import Removal
from tensight.agents.mindspore.ring_folder import (
    MEMORY_BACKED,
    RingFolder,
    free_on,
    is_in_ring,
    make_folder,
    remove_stale,
)
from tensight.agents.mindspore.ring_room import RingRoom

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping, Sequence

    from tensight.agents.mindspore.dump_switch import DumpSwitch
    from tensight.agents.program import TracedNode

__all__ = ["DumpRing", "Launch", "remove_stale"]

_CONFIG_NAME = "dump.json"
_GRAPH = re.compile(r"ms_output_trace_code_graph_(\d{1,18})\.pb", re.ASCII)
_RANK = re.compile(r"rank_(\d{1,9})", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_TITLE = "NodeExecutionOrder-FullNameWithScope"

_RECENT = 4
"""Folders of each graph of a person's dump that are looked into again, beside those that come next."""

_SLACK_US = 1_000_000
"""By which the time of a folder may lag behind the clock."""


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
    room : RingRoom
        Whether there is enough for the next step.
    switch : DumpSwitch or None
        What can have MindSpore dump nothing; whoever has one sets it.
    number : int or None
        That of this process among those that train together; None if they have not met. Whoever knows it sets it: into
        the folder that a person has chosen all of them dump.
    """

    def __init__(
        self, folder: str, network: str, notice: str, environment: MutableMapping[str, str], own: RingFolder | None
    ) -> None:
        self.folder = folder
        self.is_private = own is not None
        self.notice = notice
        self.room = RingRoom(folder)
        self.switch: DumpSwitch | None = None
        self.number: int | None = None
        self._network = network
        self._environment = environment
        self._own = own
        self._process_id = os.getpid()
        self._rank_folder = ""
        self._counts_entries = False
        self._operators: tuple[str, ...] = ()
        self._removal = Removal()
        self._folders: dict[tuple[str, str], LaunchFolder] = {}
        self._over: set[tuple[str, str]] = set()
        self._recent: dict[str, list[int]] = {}
        self._ended: dict[int, str] = {}
        self._since_us = time.time_ns() // 1000
        self._begun = time_stamp(self._since_us)
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
            As for `own_settings`.
        name : str
            Of the network.

        Raises
        ------
        InputError
            The configuration that the environment names cannot be used, or there is no place for a dump.
        """
        remove_stale()
        given = environment.get(VARIABLE, "")
        if given and not is_in_ring(given):
            return cls(*settings_of_person(given, environment), environment, None)
        own, notice = make_folder()
        network = network_folder(name)
        ring = cls(own.path, network, notice, environment, own)
        ring._operators = tuple(operators)
        empty_bytes = os.lstat(own.path).st_size
        config = f"{own.path}/{_CONFIG_NAME}"
        with open(config, "w", encoding="ascii") as file:
            json.dump(own_settings(own.path, network, operators), file)
        # A folder in memory is larger by each entry, so that none comes unnoticed, however soon after another.
        ring._counts_entries = own.path.startswith(MEMORY_BACKED) and os.lstat(own.path).st_size > empty_bytes
        environment[VARIABLE] = config
        return ring

    @property
    def is_in_memory(self) -> bool:
        """Whether it is ours, and takes memory instead of disk."""
        return self.is_private and self.folder.startswith(MEMORY_BACKED)

    @property
    def rank(self) -> int:
        """Number of this process among those that train together, as its dump has it; 0 before there is one."""
        folder = self._find_rank()
        return int(folder.rpartition("_")[2]) if folder else 0

    def graphs(self) -> dict[int, str]:
        """Return the paths of the graph files that are there, by the number in their names."""
        folder = f"{self._find_rank()}/graphs"
        matches = filter(None, map(_GRAPH.fullmatch, _listed(folder)))
        return {int(match[1]): f"{folder}/{match[0]}" for match in matches}

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
        """Return the launches that were not returned before, in the order in which they ended.

        All of them must be over: MindSpore can return from a call while it is still writing.
        """
        found = []
        for folder, names in self._new():
            after = "" if self.is_private else self._ended.get(folder.graph, self._begun)
            launch = folder.launch(names, after)
            if launch is not None:
                found.append(launch)
                if self.is_private:
                    self.room.note(folder.graph, len(names), self._removal.size_bytes(folder, names))
                if not self.is_private:
                    self._ended[folder.graph] = launch[0]
                    self._recent.setdefault(str(folder.graph), []).append(folder.iteration)
        if len(found) > 1:
            found.sort(key=lambda one: one[0])
        if not self.is_private:
            self._forget_old()
        if found and self.switch is not None:
            self.switch.advance()
        return [launch for _, launch in found]

    def release(self, launch: Launch) -> None:
        """Remove the files of a launch; its tensors are gone then."""
        files = launch.held
        if files.descriptor >= 0:
            files.descriptor = -1
            if files.folder.descriptor >= 0:
                self._remove(files.folder, files.names)

    def discard(self) -> None:
        """Remove what was dumped and not returned, without looking at it."""
        for folder, names in list(self._new()):
            folder.launches += 1
            self._remove(folder, names)
        if not self.is_private:
            self._begun = time_stamp(time.time_ns() // 1000)
            self._ended.clear()
            self._forget_old()

    def dump(self, *, wanted: bool) -> None:
        """Have what runs next dumped, or nothing, if that can be chosen.

        Raises
        ------
        NoRoomError
            It is wanted, and there is no room for it.
        """
        if wanted and self.is_private:
            self.room.check()
        if self.switch is not None:
            self.switch.turn(on=wanted)

    def expect(self, graph: int, nodes: Iterable[TracedNode]) -> None:
        """Take note of a graph that has been compiled, and of its nodes."""
        if self.is_private:
            self.room.guess(graph, filter(self.is_dumped, nodes))

    def is_dumped(self, node: TracedNode) -> bool:
        """Whether outputs of a node are dumped, as far as that is our choice."""
        return is_dumped(node.name, node.type, self._operators)

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
        if os.getpid() != self._process_id:
            return
        self._process_id = -1
        atexit.unregister(self.close)
        self._removal.close()
        for folder in self._folders.values():
            folder.close()
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

    def _new(self) -> Iterator[tuple[LaunchFolder, list[str]]]:
        """Yield the folders in which there is something new, with the names of that."""
        rank = self._find_rank()
        if self._process_id < 0 or not rank:
            return
        for gone, names in self._removal.removed():
            self._leave(gone, names)
        network = f"{rank}/{self._network}"
        for graph in _listed(network):
            for iteration in _listed(f"{network}/{graph}"):
                folder = self._folders.get((graph, iteration)) or self._enter(network, graph, iteration)
                if folder is not None:
                    names = folder.new_names()
                    if names:
                        yield folder, names

    def _enter(self, network: str, graph: str, iteration: str) -> LaunchFolder | None:
        """Open a folder; None if it is none of an iteration, or nothing comes into it any more."""
        key = graph, iteration
        if key in self._over and not self._may_come_next(graph, int(iteration)):
            return None
        if not (_NUMBER.fullmatch(graph) and _NUMBER.fullmatch(iteration)):
            return None
        path = f"{network}/{graph}/{iteration}"
        try:
            if not self.is_private and os.lstat(path).st_mtime_ns // 1000 < self._since_us - _SLACK_US:
                # An earlier training's.
                self._over.add(key)
                return None
            folder = LaunchFolder(
                int(graph), int(iteration), path, is_private=self.is_private, counts_entries=self._counts_entries
            )
        except OSError:
            return None
        self._folders[key] = folder
        return folder

    def _remove(self, folder: LaunchFolder, names: list[str]) -> None:
        if not self.is_private:
            folder.launches -= 1
        elif self._removal.remove(folder, names):
            self._leave(folder, names)

    def _leave(self, folder: LaunchFolder, names: list[str]) -> None:
        """Take note that a launch is gone, and remove its folder unless there is another in it."""
        folder.launches -= 1
        folder.forget(names)
        if not folder.launches and folder.remove():
            del self._folders[str(folder.graph), str(folder.iteration)]

    def _forget_old(self) -> None:
        """Look no more into folders of a person's dump that are over; in a long training there are many."""
        for recent in self._recent.values():
            del recent[:-_RECENT]
        for key, folder in list(self._folders.items()):
            if not folder.launches and folder.iteration not in self._recent.get(key[0], ()):
                folder.close()
                del self._folders[key]
                self._over.add(key)

    def _may_come_next(self, graph: str, iteration: int) -> bool:
        return any(0 <= iteration - recent <= _RECENT for recent in self._recent.get(graph, (0,)))

    def _find_rank(self) -> str:
        """Return the folder of this process's rank; empty as long as there is none."""
        if self._rank_folder:
            return self._rank_folder
        found = sorted(filter(_RANK.fullmatch, _listed(self.folder)))
        if not self.is_private and self.number is not None:
            return f"{self.folder}/rank_{self.number}" if f"rank_{self.number}" in found else ""
        if not found:
            return ""
        # Before it knows its rank, MindSpore writes settings as rank 0; the tensors are where it counts.
        dumped = [name for name in found if os.path.isdir(f"{self.folder}/{name}/{self._network}")]
        environment = self._environment
        number = environment.get("RANK_ID") or environment.get("OMPI_COMM_WORLD_RANK") or ""
        candidates = dumped or found
        chosen = f"rank_{number}" if f"rank_{number}" in candidates else candidates[0]
        folder = f"{self.folder}/{chosen}"
        if self.is_private and dumped:
            self._rank_folder = folder
        return folder


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
