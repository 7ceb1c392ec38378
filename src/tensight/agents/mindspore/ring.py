"""The files that MindSpore dumps while it trains: a ring in which only those of the last steps exist.

MindSpore writes one file for each tensor of each launch of a graph. When a launch is over its files are complete; they
are listed here, read by `dumped`, and removed when they are no longer needed.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tensight.agents.core.process.forking import silent_in_children
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

    from tensight.agents.core.program import TracedNode
    from tensight.agents.mindspore.dump_switch import DumpSwitch

__all__ = ["DumpRing", "Launch", "remove_stale"]

_CONFIG_NAME = "dump.json"
_GRAPH = re.compile(r"ms_output_trace_code_graph_(\d{1,18})\.pb", re.ASCII)
_RANK = re.compile(r"rank_(\d{1,9})", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_TITLE = "NodeExecutionOrder-FullNameWithScope"

_RECENT = 4
"""Latest folders of each graph of a user's dump that are searched again, beside those that come next."""

_SLACK_US = 1_000_000
"""How far the time of a folder may lag behind the clock."""


class DumpRing:
    """The dump of this process. Use `create`.

    Attributes
    ----------
    folder : str
        Where MindSpore dumps.
    is_private : bool
        Whether the dump is ours; nothing is ever removed from a dump that the user requested.
    notice : str
        What the user should know about it; may be empty.
    room : RingRoom
        Checks whether there is room for the next step.
    switch : DumpSwitch or None
        Turns the dump on and off; set from outside if available.
    number : int or None
        Rank of this process in its training; None before communication is set up. Set from outside: all ranks dump into
        the folder that the user has chosen.
    """

    def __init__(
        self,
        folder: str,
        network: str,
        notice: str,
        environment: MutableMapping[str, str],
        private_folder: RingFolder | None,
    ) -> None:
        self.folder = folder
        self.is_private = private_folder is not None
        self.notice = notice
        self.room = RingRoom(folder)
        self.switch: DumpSwitch | None = None
        self.number: int | None = None
        self._network = network
        self._environment = environment
        self._private_folder = private_folder
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
        """Turn on MindSpore's dump; call this before the first graph is compiled.

        Parameters
        ----------
        environment : mutable mapping of str to str
            Of the process. If it requests a dump already, that one is read, and nothing is changed.
        operators : sequence of str
            As for `own_settings`.
        name : str
            Of the network.

        Raises
        ------
        InputError
            The configuration that the environment names cannot be used, or there is no usable folder for a dump.
        """
        remove_stale()
        given = environment.get(VARIABLE, "")
        if given and not is_in_ring(given):
            return cls(*settings_of_person(given, environment), environment, None)
        private_folder, notice = make_folder()
        network = network_folder(name)
        ring = cls(private_folder.path, network, notice, environment, private_folder)
        ring._operators = tuple(operators)
        empty_bytes = os.lstat(private_folder.path).st_size
        config = f"{private_folder.path}/{_CONFIG_NAME}"
        with open(config, "w", encoding="ascii") as file:
            json.dump(own_settings(private_folder.path, network, operators), file)
        # The size of a folder in memory grows with each entry, so no new file is missed, however soon it follows.
        ring._counts_entries = (
            private_folder.path.startswith(MEMORY_BACKED) and os.lstat(private_folder.path).st_size > empty_bytes
        )
        environment[VARIABLE] = config
        return ring

    @property
    def is_in_memory(self) -> bool:
        """Whether it is ours and takes memory, not disk."""
        return self.is_private and self.folder.startswith(MEMORY_BACKED)

    @property
    def rank(self) -> int:
        """Rank of this process according to its dump; 0 before there is one."""
        folder = self._find_rank()
        return int(folder.rpartition("_")[2]) if folder else 0

    def graphs(self) -> dict[int, str]:
        """Return the paths of the existing graph files, by the number in their names."""
        folder = f"{self._find_rank()}/graphs"
        matches = filter(None, map(_GRAPH.fullmatch, _listed(folder)))
        return {int(match[1]): f"{folder}/{match[0]}" for match in matches}

    def order_of(self, graph: int) -> tuple[str, ...]:
        """Return the full names of a graph's operators in the order of execution; empty if it was not written."""
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
        timed_launches = []
        for folder, names in self._new():
            after = "" if self.is_private else self._ended.get(folder.graph, self._begun)
            launch = folder.launch(names, after)
            if launch is not None:
                timed_launches.append(launch)
                if self.is_private:
                    self.room.note(folder.graph, len(names), self._removal.size_bytes(folder, names))
                if not self.is_private:
                    self._ended[folder.graph] = launch[0]
                    self._recent.setdefault(str(folder.graph), []).append(folder.iteration)
        if len(timed_launches) > 1:
            timed_launches.sort(key=lambda timed: timed[0])
        if not self.is_private:
            self._forget_old()
        if timed_launches and self.switch is not None:
            self.switch.advance()
        return [launch for _, launch in timed_launches]

    def release(self, launch: Launch) -> None:
        """Remove the files of a launch, and thereby its tensors."""
        files = launch.held
        if files.descriptor >= 0:
            files.descriptor = -1
            if files.folder.descriptor >= 0:
                self._remove(files.folder, files.names)

    def discard(self) -> None:
        """Remove what was dumped and not returned, without reading it."""
        for folder, names in list(self._new()):
            folder.launches += 1
            self._remove(folder, names)
        if not self.is_private:
            self._begun = time_stamp(time.time_ns() // 1000)
            self._ended.clear()
            self._forget_old()

    def dump(self, *, is_needed: bool) -> None:
        """Turn the dump of what runs next on or off, if possible.

        Raises
        ------
        NoRoomError
            It is needed, and there is no room for it.
        """
        if is_needed and self.is_private:
            self.room.check()
        if self.switch is not None:
            self.switch.turn(on=is_needed)

    def expect(self, graph: int, nodes: Iterable[TracedNode]) -> None:
        """Note a graph that has been compiled, and its nodes."""
        if self.is_private:
            self.room.guess(graph, filter(self.is_dumped, nodes))

    def is_dumped(self, node: TracedNode) -> bool:
        """Whether outputs of a node are dumped, according to our configuration."""
        return is_dumped(node.name, node.type, self._operators)

    def used_bytes(self) -> int:
        """Return the current size of the dump."""
        size_bytes = 0
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with suppress(OSError):
                    size_bytes += os.lstat(f"{folder}/{name}").st_size
        return size_bytes

    def free_bytes(self) -> int:
        """Return how many more bytes it may take."""
        return free_on(self.folder) or 0

    def close(self) -> None:
        """Remove everything that is ours. MindSpore must not dump any more, or it would create the folder again."""
        if os.getpid() != self._process_id:
            return
        self._process_id = -1
        atexit.unregister(self.close)
        self._removal.close()
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()
        if self._private_folder is not None:
            if self._environment.get(VARIABLE) == f"{self._private_folder.path}/{_CONFIG_NAME}":
                del self._environment[VARIABLE]
            self._private_folder.remove()

    def silence(self) -> DumpRing:
        """Disable the ring in a forked process, and release the lock there: the ring is the parent's."""
        self._process_id = -1
        if self._private_folder is not None:
            self._private_folder.let_go()
        return self

    def _new(self) -> Iterator[tuple[LaunchFolder, list[str]]]:
        """Yield the folders that contain new files, with the names of these."""
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
        """Open a folder; None if it does not belong to an iteration, or nothing arrives in it any more."""
        key = graph, iteration
        if key in self._over and not self._may_come_next(graph, int(iteration)):
            return None
        if not (_NUMBER.fullmatch(graph) and _NUMBER.fullmatch(iteration)):
            return None
        path = f"{network}/{graph}/{iteration}"
        try:
            if not self.is_private and os.lstat(path).st_mtime_ns // 1000 < self._since_us - _SLACK_US:
                # It belongs to an earlier training.
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
        """Note that a launch is gone, and remove its folder unless it contains another."""
        folder.launches -= 1
        folder.forget(names)
        if not folder.launches and folder.remove():
            del self._folders[str(folder.graph), str(folder.iteration)]

    def _forget_old(self) -> None:
        """Stop searching folders of a user's dump that are over; a long training has many."""
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
        """Return the folder of this process's rank; empty if there is none yet."""
        if self._rank_folder:
            return self._rank_folder
        names = sorted(filter(_RANK.fullmatch, _listed(self.folder)))
        if not self.is_private and self.number is not None:
            return f"{self.folder}/rank_{self.number}" if f"rank_{self.number}" in names else ""
        if not names:
            return ""
        # Before it knows its rank, MindSpore writes settings as rank 0; tensors are in the folder of the actual rank.
        dumped = [name for name in names if os.path.isdir(f"{self.folder}/{name}/{self._network}")]
        environment = self._environment
        number = environment.get("RANK_ID") or environment.get("OMPI_COMM_WORLD_RANK") or ""
        candidates = dumped or names
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
