"""The identity of a training process, as it reports it, and whether two identities may be the same process."""

from __future__ import annotations

import itertools
import os
import shlex
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
    """Abilities of a process beyond MindSpore's own client; see ``Abilities`` in ``debugger.proto``."""

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
        """Read the abilities from a message."""
        return cls(**{field.name: getattr(message, field.name) for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a training process.

    Attributes
    ----------
    host : str
        The peer without its port.
    device : str
        Number of its device, as reported.
    backend : str
        ``GPU``, ``Ascend`` or ``CPU``.
    key : str
        Unique during the lifetime of the process; empty for MindSpore's own client, as are the attributes below.
    job : str
        Common to the processes of a run; empty if the run has a single process.
    called : str
        The name of the run.
    rank, world_size : int
    framework, framework_version : str
    process_id : int or None
    machine : str
        Name of its machine.
    script : str
        The script that it runs: name of a file, without extension, or of a module.
    command : str
        The command line by which a user started it.
    abilities : Abilities
    run_at_start : bool
        Whether its training starts without waiting for a user.
    recommended : bool
        Whether to set the recommended watchpoints before it starts.
    findings : str
        Which findings stop it: "certain", "every" or other text for none.
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
    command: str = ""
    abilities: Abilities = field(default_factory=Abilities)
    run_at_start: bool = False
    recommended: bool = False
    findings: str = "list"

    @property
    def is_agent(self) -> bool:
        """Whether it runs Tensight's agent, rather than MindSpore's own client."""
        return bool(self.key)

    @property
    def metadata(self) -> DumpMetadata:
        """Metadata of a recording of the run."""
        return DumpMetadata(
            framework=self.framework,
            by_agent=self.is_agent,
            framework_version=self.framework_version,
            device_target=self.backend,
        )

    @property
    def stops_at_nodes(self) -> bool:
        """Whether it can run operator by operator; MindSpore's own client can on a GPU."""
        return self.abilities.nodes if self.is_agent else self.backend == "GPU"

    @property
    def platform(self) -> Platform | None:
        """The kind of its device; None for an unknown backend."""
        platforms = {platform.value.lower(): platform for platform in Platform}
        return platforms.get(self.backend.lower())

    @property
    def name(self) -> str:
        """Name of its session."""
        return self.called or self.script or f"{self.framework or 'training'}-{self.device or self.rank}"

    def placement(self, address: str) -> Device:
        """Return the device that it runs on, as recorded in a dump; `address` is the host and port of its calls."""
        is_number = self.device.isdecimal() and len(self.device) < _MOST_DIGITS
        machine = self.machine or address.rpartition(":")[0]
        return Device(self.rank, machine, int(self.device) if is_number else self.rank)

    def may_be_same(self, other: Identity) -> bool:
        """Return whether this may be the same process with a new connection.

        Without a key, that means the same host, device and backend; ports change with each connection.
        """
        if self.key or other.key:
            return self.key == other.key
        return (self.host, self.device, self.backend) == (other.host, other.device, other.backend)

    def as_json(self) -> dict[str, Any]:
        """Return the identity as data for JSON; the inverse of `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Identity:
        """Create an identity from the value of `as_json`; TypeError or KeyError for other data."""
        return cls(**{**data, "abilities": Abilities(**data["abilities"])})


def identity_of(caller: Caller, message: Metadata) -> Identity:
    """Read the identity of a process from the metadata of its announcement or of a request for a command."""
    device = wire.text(message.device_name, _LONGEST_NAME).partition(":")[0]
    backend = wire.text(message.backend, _LONGEST_NAME) or "Ascend"
    if not message.HasField("process"):
        version = wire.text(message.ms_version, _LONGEST_NAME)
        return Identity(caller.host, device, backend, framework_version=version, key=caller.process_key)
    process = message.process
    command = wire.text(process.script, _LONGEST_COMMAND)
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
        script=_script_of(command),
        command=command,
        abilities=Abilities.of(process.abilities),
        run_at_start=process.run_at_start,
        recommended=process.recommended,
        findings=wire.text(process.findings, _LONGEST_NAME),
    )


def closer_command(command_line: str) -> str:
    """Return the command of another run of a training in which every operator is captured; empty if it is unknown."""
    try:
        words = shlex.split(command_line)
    except ValueError:
        return ""
    if not words or len(command_line) >= _LONGEST_COMMAND:
        return ""
    if words[:2] != ["tensight", "run"]:
        return f"TENSIGHT_CAPTURE=ops {command_line}"
    options = words[2:]
    for position, word in enumerate(options):
        # What follows the script is its own.
        if word.endswith(".py"):
            break
        if word in ("--capture=modules", "--capture=ops"):
            del options[position]
            break
        if options[position : position + 2] == ["--capture", "modules"]:
            del options[position : position + 2]
            break
    return shlex.join(["tensight", "run", "--capture", "ops", *options])


def _script_of(command_line: str) -> str:
    """Return the name of the first Python file or of the module in a command line; empty if there is none."""
    words = command_line.split()
    for word in words:
        if word.endswith(".py"):
            return os.path.basename(word).removesuffix(".py")[:_LONGEST_NAME]
    modules = [module for option, module in itertools.pairwise(words) if option == "-m" and module != "tensight"]
    return modules[0][:_LONGEST_NAME] if modules else ""


def root_graph_of(message: Metadata) -> int | None:
    """Return the number of the root graph in which a process is stopped; None if not reported."""
    number = wire.text(message.device_name, _LONGEST_NAME).partition(":")[2]
    return int(number) if number.isascii() and number.isdigit() and len(number) <= 18 else None
