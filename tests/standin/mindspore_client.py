"""A stand-in for a training process of MindSpore 1.9 or 2.0 with its debugger enabled.

It follows the description of the protocol and nothing else: it trains a small network in NumPy, obeys the debug server
and writes its timeline to standard output.

    python -m tests.standin.mindspore_client --scenario single-graph --debugger 127.0.0.1:50051
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.standin.mindspore_checks import CHANGES, Parameter, Watchpoint, check
from tests.standin.mindspore_link import (
    Heartbeats,
    Link,
    graph_chunks,
    tensor_base,
    tensor_summary,
    value_pieces,
    watchpoint_hit,
)
from tests.standin.mindspore_messages import CONDITION, STATUS, messages
from tests.standin.mindspore_network import Array, BigTensor, Network, Operator, graph_of, make_network
from tests.standin.mindspore_timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_FAILURES = 5
EXIT_TERMINATED, EXIT_GAVE_UP, EXIT_REFUSED = 0, 3, 4


@dataclass(frozen=True)
class Scenario:
    """What kind of training process this is."""

    backend: str = "Ascend"
    version: str = "2.0.0"
    device: int = 0
    steps: int = 3
    seed: int = 0
    several_graphs: bool = False
    partial_memory: bool = False
    nan_at: int | None = None
    big_mib: int = 0
    padding_mib: int = 0
    heartbeat_period: int = 30
    retry_unit_s: float = 1.0
    announce_twice: bool = False
    leave_silently: bool = False
    stray_hit: bool = False
    counts_late: bool = False
    """Within a step, the steps that are done count; else the step that runs is one of them."""


SCENARIOS = {
    "single-graph": Scenario(),
    "several-graphs": Scenario(several_graphs=True, steps=4),
    "gpu": Scenario(backend="GPU"),
    "partial-memory": Scenario(partial_memory=True),
    "big-graph": Scenario(padding_mib=8),
    "big-tensor": Scenario(big_mib=32),
}


@dataclass
class Loader:
    """Tensors that the process holds for the debugger, by ``name:slot``; of parameters also the previous value."""

    current: dict[str, Array | BigTensor] = field(default_factory=dict)
    previous: dict[str, Array | BigTensor] = field(default_factory=dict)
    parameters: set[str] = field(default_factory=set)

    def load(self, key: str, value: Array | BigTensor, *, keep_previous: bool = False) -> None:
        self.current[key] = value if isinstance(value, BigTensor) else value.copy()
        if keep_previous:
            self.parameters.add(key)

    def next_step(self, *, same_graph: bool) -> None:
        """Parameters move to the previous step; without them in the step before there is nothing to compare with."""
        kept = {key: value for key, value in self.current.items() if key in self.parameters}
        self.previous = kept if same_graph else {}
        self.current = {}

    def find(self, asked: Any) -> Array | BigTensor | None:
        name = asked.node_name.rpartition("/")[2] if asked.truncate else asked.node_name
        held = self.previous if asked.iter == "prev" else self.current
        return held.get(f"{name}:{asked.slot}")


class TerminatedError(Exception):
    """The person, or a failure, ends the training; the message says why."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


class Debugger:
    """The debugger inside the process: talks with the server whenever the training stands still."""

    def __init__(self, scenario: Scenario, link: Link, timeline: Timeline, networks: list[Network]) -> None:
        self.scenario = scenario
        self.link = link
        self.timeline = timeline
        self.networks = networks
        self.root = networks[0]
        self.loader = Loader()
        self.watchpoints: dict[int, Watchpoint] = {}
        self.step = 0
        self.node = ""
        self.initial = True
        self.inside = False
        self.run_level, self.target = "", ""
        self.analysed: set[tuple[str, int]] = set()
        self.overflowed: set[str] = set()
        self.order: list[str] = []
        self.retained: frozenset[str] | None = None

    @property
    def on_gpu(self) -> bool:
        return self.scenario.backend == "GPU"

    @property
    def shown_step(self) -> int:
        return self.step - (self.inside and self.scenario.counts_late)

    # --- the beginning ---

    def begin(self) -> bool:
        """Announce the process and send its graphs; False if the versions do not match."""
        for network in self.networks:
            self._load_parameters_and_constants(network)
        reply = self.link.call("SendMetadata", self.metadata(first=True), note=f"version {self.scenario.version}")
        if reply.status != STATUS["OK"] or reply.WhichOneof("cmd") != "version_matched":
            raise TerminatedError("the debug server is too old, or refused", EXIT_REFUSED)
        if not reply.version_matched:
            return False
        graphs = [
            graph_of(network, padding_mib=self.scenario.padding_mib).SerializeToString() for network in self.networks
        ]
        several = len(graphs) > 1
        call = "SendMultiGraphs" if several else "SendGraph"
        chunks = list(graph_chunks(graphs, mark_last=several))
        self.link.stream(call, chunks, note=f"{len(chunks)}", bytes=sum(map(len, graphs)))
        return True

    def metadata(self, *, first: bool = False, done: bool = False) -> Any:
        message = messages.Metadata(
            device_name=f"{self.scenario.device}:{self.root.root}",
            cur_step=self.shown_step,
            backend=self.scenario.backend,
            cur_node=self.node,
            training_done=done,
        )
        if first:
            message.ms_version = self.scenario.version
            message.graph_num = len(self.networks)
        return message

    # --- the command loop ---

    def command_loop(self) -> None:
        """Ask for commands and obey until one of them says to run."""
        failures = 0
        while True:
            note = f"step {self.shown_step}" + (f" at {self.node}" if self.node else "")
            reply = self.link.call("WaitCMD", self.metadata(), note=note, root=self.root.root)
            if reply.status != STATUS["OK"]:
                failures += 1
                self._after_failure(failures)
                continue
            failures = 0
            if self._obey(reply):
                return

    def _after_failure(self, failures: int) -> None:
        if failures > MOST_FAILURES:
            raise TerminatedError("too many failures", EXIT_GAVE_UP)
        self.timeline.add(f"failure {failures}")
        threading.Event().wait(failures * self.scenario.retry_unit_s)

    def _obey(self, reply: Any) -> bool:
        kind = reply.WhichOneof("cmd")
        if kind == "exit":
            raise TerminatedError("terminated", EXIT_TERMINATED)
        if kind == "version_matched":
            raise TerminatedError("an answer about versions to WaitCMD", EXIT_REFUSED)
        if kind == "set_cmd":
            self._set_watchpoint(reply.set_cmd)
        elif kind == "view_cmd":
            self._show(reply.view_cmd)
        elif kind == "run_cmd" and reply.run_cmd.run_level == "recheck":
            self.check_watchpoints(again=True)
        elif kind == "run_cmd":
            self.run_level, self.target = reply.run_cmd.run_level, reply.run_cmd.node_name
            self.initial = False
            return True
        return False

    def _set_watchpoint(self, command: Any) -> None:
        self.watchpoints.pop(command.id, None)
        if not command.delete:
            condition = command.watch_condition
            self.watchpoints[command.id] = Watchpoint(
                command.id,
                condition.condition,
                tuple(Parameter(each.name, each.disabled, each.value) for each in condition.params),
                tuple(each.node_name for each in command.watch_nodes),
            )

    def _show(self, command: Any) -> None:
        found = [(asked, self.loader.find(asked)) for asked in command.tensors]
        sent = [
            {"tensor": f"{asked.node_name}:{asked.slot}", "bytes": 0 if value is None else value.nbytes}
            for asked, value in found
        ]
        if command.level == 0:
            newer = self.link.has_key
            pieces = (piece for asked, value in found for piece in value_pieces(asked, value, echo_all=newer))
            self.link.stream("SendTensors", pieces, tensors=sent)
        elif command.level == 1:
            self.link.stream("SendTensorStats", [tensor_summary(value) for _, value in found], tensors=sent)
        else:
            self.link.stream("SendTensorBase", [tensor_base(value) for _, value in found], tensors=sent)

    # --- running ---

    def run_step(self) -> None:
        """Execute one graph once, and stop where the debugger has to."""
        network = self.networks[self.step % len(self.networks)]
        self.loader.next_step(same_graph=network is self.root)
        self.root = network
        self.step += 1
        self.inside = True
        self.analysed.clear()
        self.overflowed.clear()
        self.order = []
        if self.retained is None:
            self.retained = frozenset(node for each in self.watchpoints.values() for node in each.nodes)
        self.timeline.place("in step")
        network.feed(self.step, broken=self.step == self.scenario.nan_at)
        for operator in network.run():
            self._note_overflow(network, operator)
            if self.on_gpu:
                self._after_node_on_gpu(network, operator)
            elif not self.scenario.partial_memory or operator.full_name in self.retained:
                self._load_outputs(network, operator)
        self.inside = False
        if not self.on_gpu:
            self._load_parameters_and_constants(network)
        self.check_watchpoints()
        self.command_loop()

    def _note_overflow(self, network: Network, operator: Operator) -> None:
        if any(value.dtype.kind == "f" and not _finite(value) for value in network.values[operator.full_name]):
            self.overflowed.add(operator.full_name)

    def _load_parameters_and_constants(self, network: Network) -> None:
        for name, value in network.parameters.items():
            self.loader.load(f"{name}:0", value, keep_previous=True)
        for full_name, constant in network.constants.values():
            if constant is not None:
                self.loader.load(f"{full_name}:0", constant)

    def _load_outputs(self, network: Network, operator: Operator) -> None:
        for slot, value in enumerate(network.values[operator.full_name]):
            self.loader.load(f"{operator.full_name}:{slot}", value)

    def _after_node_on_gpu(self, network: Network, operator: Operator) -> None:
        self.node = operator.full_name
        self.timeline.place(f"at {self.node}")
        stop_here = self.run_level == "node" and self.target in ("", self.node)
        read = {key.rpartition(":")[0] for reference in operator.inputs if (key := network.key_of(reference))}
        watched = {node.rpartition("/")[2] for each in self.watchpoints.values() for node in each.nodes}
        directly = any(self.node in each.nodes for each in self.watchpoints.values())
        by_parameter = bool(watched & read & set(network.parameters))
        if not (stop_here or directly or by_parameter):
            return
        for reference in operator.inputs:
            key = network.key_of(reference)
            if key is not None:
                self.loader.load(key, network.read(reference), keep_previous=key[:-2] in network.parameters)
        self._load_outputs(network, operator)
        hit = (directly or by_parameter) and self.check_watchpoints(at_node=True)
        if hit or stop_here:
            self.command_loop()

    # --- watchpoints ---

    def check_watchpoints(self, *, again: bool = False, at_node: bool = False) -> bool:
        """Check what is loaded, and send the hits; whether there were any."""
        found = []
        for key in list(self.loader.current):
            for watchpoint in self.watchpoints.values():
                node = watchpoint.node_of(key)
                if node is None or not self._is_due(watchpoint, key, again=again, at_node=at_node):
                    continue
                self.analysed.add((key, watchpoint.id))
                value, before = self.loader.current[key], self.loader.previous.get(key)
                if isinstance(value, BigTensor):
                    continue
                assert not isinstance(before, BigTensor)
                name, _, slot = key.rpartition(":")
                outcome = check(watchpoint, value, before, overflowed=name in self.overflowed)
                if outcome.reported:
                    found.append(watchpoint_hit(watchpoint, node, slot, outcome))
        if found and self.scenario.stray_hit:
            found.append(messages.WatchpointHit())
            found[-1].CopyFrom(found[0])
            found[-1].tensor.node_name = "Default/unknown/Add-op999"
        if found:
            told = [[f"{hit.tensor.node_name}:{hit.tensor.slot}", hit.id, hit.error_code] for hit in found]
            self.link.stream("SendWatchpointHits", found, note=str(len(found)), hits=told)
        return bool(found)

    def _is_due(self, watchpoint: Watchpoint, key: str, *, again: bool, at_node: bool) -> bool:
        if self.initial != (watchpoint.condition == CONDITION["tensor_initialization"]):
            return False
        if at_node and watchpoint.condition in CHANGES:
            return False
        return again or (key, watchpoint.id) not in self.analysed


def _finite(value: Array) -> bool:
    return bool(np.isfinite(value).all())


def train(debugger: Debugger, heartbeats: Heartbeats) -> None:
    """Do what the process does from its first graph to its end."""
    scenario, timeline = debugger.scenario, debugger.timeline
    try:
        matched = debugger.begin()
        if matched and scenario.announce_twice:
            debugger.begin()
        debugger.command_loop()
        while matched and debugger.step < scenario.steps:
            debugger.run_step()
    finally:
        heartbeats.stop()
        if not scenario.leave_silently:
            debugger.link.call("SendMetadata", debugger.metadata(done=True), note="training done")
    timeline.add("end")


def with_process(arguments: argparse.Namespace) -> Callable[[Any], bytes]:
    """Return how SendMetadata is written by a process that says which rank of a job it is, as newer ones do."""
    from tensight.wire import debugger_pb2

    process = debugger_pb2.Process(
        key=arguments.key.encode(),
        job=arguments.job.encode(),
        rank=arguments.rank,
        world_size=arguments.world_size,
        framework=b"mindspore",
        process_id=os.getpid(),
        protocol=1,
    )
    further = debugger_pb2.Metadata(process=process).SerializeToString()
    return lambda message: message.SerializeToString() + further


def parse(words: list[str] | None = None) -> tuple[argparse.Namespace, Scenario]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, default="single-graph")
    parser.add_argument("--debugger", required=True, metavar="HOST:PORT")
    parser.add_argument("--hold", action="append", default=[], metavar="PLACE[#N]")
    parser.add_argument("--job", default="")
    parser.add_argument("--key", default="")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=1)
    defaults = Scenario()
    for name, default in vars(defaults).items():
        option = "--" + name.replace("_", "-")
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true", default=None)
        else:
            parser.add_argument(option, type=int if default is None else type(default))
    arguments = parser.parse_args(words)
    given = {name: getattr(arguments, name) for name in vars(defaults) if getattr(arguments, name) is not None}
    return arguments, replace(SCENARIOS[arguments.scenario], **given)


def main() -> int:
    np.seterr(all="ignore")
    # So that a failed test can say where it hangs.
    faulthandler.register(signal.SIGUSR1)
    arguments, scenario = parse()
    holds = {place: int(number or 1) for place, _, number in (each.partition("#") for each in arguments.hold)}
    timeline = Timeline(holds)
    first = make_network(seed=scenario.seed + arguments.rank, big_mib=scenario.big_mib)
    networks = [first]
    if scenario.several_graphs:
        networks.append(make_network(graph_id=1, training=False, shared=first))
    key = {"key": arguments.key, "encode": with_process(arguments)} if arguments.key else {}
    link = Link(arguments.debugger, timeline, **key)
    timeline.add("start", process=os.getpid())
    heartbeats = Heartbeats(link, period=scenario.heartbeat_period)
    heartbeats.start()
    try:
        train(Debugger(scenario, link, timeline, networks), heartbeats)
    except TerminatedError as stop:
        timeline.add(f"end {stop}")
        return stop.code
    finally:
        link.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
