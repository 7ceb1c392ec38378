"""Who a training process is, as it says itself, and whether two of them are the same."""

from __future__ import annotations

import itertools
import os
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tensight import wire
from tensight.dumps import Device, DumpMetadata
from tensight.watchpoints import Platform

if TYPE_CHECKING:
    from tensight.sessions.live.settings import Caller
    from tensight.wire.debugger_pb2 import Abilities as AbilitiesMessage
    from tensight.wire.debugger_pb2 import Metadata

_LONGEST_NAME = 200
_LONGEST_COMMAND = 10_000
_MOST_RANKS = 2**20
_MOST_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a process can do beyond MindSpore's own client; see ``Abilities`` in ``debugger.proto``."""

    views: bool = False
    nodes: bool = False
    run_to_node: bool = False
    pause: bool = False
    steps: bool = False
    previous: bool = False
    history: bool = False
    conditions: bool = False
    back: bool = False
    closer: bool = False

    @classmethod
    def of(cls, message: AbilitiesMessage) -> Abilities:
        """Read what a process says it can do."""
        return cls(**{field.name: getattr(message, field.name) for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a training process is.

    Attributes
    ----------
    host : str
        The peer without its port.
    device : str
        Number of its device, as it sends it.
    backend : str
        ``GPU``, ``Ascend`` or ``CPU``.
    key : str
        Unique for the life of the process; empty for MindSpore's own client, as everything below.
    job : str
        What processes of one run have in common; empty if it has one.
    called : str
        The name of the run.
    rank, world_size : int
    framework, framework_version : str
    process_id : int or None
    machine : str
        Name of its machine.
    script : str
        What it runs: the name of a file, without its ending, or of a module.
    abilities : Abilities
    run_at_start : bool
        Its training goes on at once, unless a person stops it.
    recommended : bool
        The recommended watchpoints are to be set before it goes on.
    """

    host: str
    device: str
    backend: str
    key: str = ""
    job: str = ""
    called: str = ""
    rank: int = 0
    world_size: int = 1
    framework: str = "mindspore"
    framework_version: str = ""
    process_id: int | None = None
    machine: str = ""
    script: str = ""
    abilities: Abilities = field(default_factory=Abilities)
    run_at_start: bool = False
    recommended: bool = False

    @property
    def is_agent(self) -> bool:
        """Whether it is one of Tensight's agents, and not MindSpore's own client."""
        return bool(self.key)

    @property
    def metadata(self) -> DumpMetadata:
        """What a recording of the run says about itself."""
        return DumpMetadata(
            framework=self.framework,
            by_agent=self.is_agent,
            framework_version=self.framework_version,
            device_target=self.backend,
        )

    @property
    def stops_at_nodes(self) -> bool:
        """Whether it can run operator by operator; MindSpore's own client does on a GPU."""
        return self.abilities.nodes if self.is_agent else self.backend == "GPU"

    @property
    def platform(self) -> Platform | None:
        """The kind of its device; None for one that is not known here."""
        known = {platform.value.lower(): platform for platform in Platform}
        return known.get(self.backend.lower())

    @property
    def name(self) -> str:
        """What its session is called."""
        return self.called or self.script or f"{self.framework or 'training'}-{self.device or self.rank}"

    def placement(self, address: str) -> Device:
        """Return where it runs, as a dump says it; `address` is the host and port that it calls from."""
        is_number = self.device.isdecimal() and len(self.device) < _MOST_DIGITS
        machine = self.machine or address.rpartition(":")[0]
        return Device(self.rank, machine, int(self.device) if is_number else self.rank)

    def may_be_same(self, other: Identity) -> bool:
        """Whether this may be the same process with a new connection: same machine, device and backend.

        Ports change from connection to connection, so of a process without a key nothing else is known.
        """
        if self.key or other.key:
            return self.key == other.key
        return (self.host, self.device, self.backend) == (other.host, other.device, other.backend)

    def as_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Identity:
        """Read what `as_json` wrote; TypeError or KeyError if it is something else."""
        return cls(**{**data, "abilities": Abilities(**data["abilities"])})


def identity_of(caller: Caller, message: Metadata) -> Identity:
    """Read who a process is from what it sends with each request for a command, or when it announces itself."""
    device = wire.text(message.device_name, _LONGEST_NAME).partition(":")[0]
    backend = wire.text(message.backend, _LONGEST_NAME) or "Ascend"
    if not message.HasField("process"):
        version = wire.text(message.ms_version, _LONGEST_NAME)
        return Identity(caller.host, device, backend, framework_version=version, key=caller.process_key)
    process = message.process
    called, _, job = wire.text(process.job, _LONGEST_COMMAND).partition("\n")
    return Identity(
        host=caller.host,
        device=device,
        backend=backend,
        key=caller.process_key or wire.text(process.key, _LONGEST_NAME),
        job=job or called,
        called=called[:_LONGEST_NAME],
        rank=min(max(process.rank, 0), _MOST_RANKS),
        world_size=min(max(process.world_size, 1), _MOST_RANKS),
        framework=wire.text(process.framework, _LONGEST_NAME),
        framework_version=wire.text(process.framework_version or message.ms_version, _LONGEST_NAME),
        process_id=process.process_id or None,
        machine=wire.text(process.host, _LONGEST_NAME),
        script=_script_of(wire.text(process.script, _LONGEST_COMMAND)),
        abilities=Abilities.of(process.abilities),
        run_at_start=process.run_at_start,
        recommended=process.recommended,
    )


def _script_of(command_line: str) -> str:
    """Return what a command line runs: the name of the first file of Python, or of the module; empty if it has none."""
    words = command_line.split()
    for word in words:
        if word.endswith(".py"):
            return os.path.basename(word).removesuffix(".py")[:_LONGEST_NAME]
    modules = [module for option, module in itertools.pairwise(words) if option == "-m" and module != "tensight"]
    return modules[0][:_LONGEST_NAME] if modules else ""


def root_graph_of(message: Metadata) -> int | None:
    """Return the number of the root graph that a process stands in; None if it does not say."""
    number = wire.text(message.device_name, _LONGEST_NAME).partition(":")[2]
    return int(number) if number.isascii() and number.isdigit() and len(number) <= 18 else None
