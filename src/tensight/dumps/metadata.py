"""The metadata of a dump: ``.dump_metadata/`` with the settings, the framework and the device table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tensight.errors import DumpError, MissingFileError, Problem
from tensight.frameworks import name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.dumps.storage import Storage

FOLDER = ".dump_metadata"

SETUP = "setup.json"
"""The set-up of the training, in recordings of Tensight."""

_MAX_JSON_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class DumpMetadata:
    """How a dump was made.

    Attributes
    ----------
    framework : str
        ``mindspore``, ``torch``, or the name of another framework with an agent.
    by_agent : bool
        Whether Tensight's agent recorded it in the training process, with the names, the roles and the order that the
        agent saw there.
    framework_version : str
        Such as ``2.0.0``; empty if unknown.
    device_target : str
        ``CPU``, ``GPU`` or ``Ascend``; empty if unknown.
    net_name : str
        Name of the folder with the tensors; empty if unknown.
    synchronous : bool
        Whether the host wrote the tensors during the run, rather than the device asynchronously.
    file_format : str
        ``npy`` or ``bin``.
    input_output : int
        0: inputs and outputs were dumped; 1: inputs; 2: outputs.
    saved_data : str
        ``tensor``, ``statistic`` or ``full``.
    config : mapping
        The whole dump configuration as written; empty if missing.
    tool : str
        ``msprobe`` if this tool wrote it; empty for MindSpore and Tensight.
    traces : str
        What a trace, which has statistics and no values, captured: ``modules`` or ``ops``; empty for other dumps.
    """

    framework: str = "mindspore"
    by_agent: bool = False
    framework_version: str = ""
    device_target: str = ""
    net_name: str = ""
    synchronous: bool = True
    file_format: str = "npy"
    input_output: int = 0
    saved_data: str = "tensor"
    config: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    tool: str = ""
    traces: str = ""

    @property
    def is_as_read(self) -> bool:
        """Whether parameters and overwritten tensors have the values that calls read, not those of the step's end."""
        return self.tool == "msprobe"

    @property
    def framework_name(self) -> str:
        """Display name of the framework."""
        return name_of(self.framework)

    @property
    def is_whole(self) -> bool:
        """Whether everything that ran in the dumped iterations was dumped; False if unknown."""
        return _section(self.config, "common_dump_settings").get("dump_mode") == 0


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """The device on which a rank ran.

    Attributes
    ----------
    rank : int
        Rank of the process.
    server : str
        Name or address of the machine.
    device_id : int
        Number of the device in its machine.
    device_ip : str
        Empty if unknown.
    """

    rank: int
    server: str = "localhost"
    device_id: int = 0
    device_ip: str = ""


def read_metadata(storage: Storage, rank_folder: str, problems: list[Problem]) -> DumpMetadata:
    """Read the settings beside a rank's tensors; missing or invalid ones become a problem, and defaults are used.

    Parameters
    ----------
    storage : Storage
    rank_folder : str
        Relative to the storage's root.
    problems : list of Problem
        Problems are appended.

    Returns
    -------
    DumpMetadata
    """
    folder = f"{rank_folder}/{FOLDER}".lstrip("/")
    config = _read_object(storage, f"{folder}/data_dump.json", problems)
    machine = _read_object(storage, f"{folder}/config.json", problems)
    common, e2e = _section(config, "common_dump_settings"), _section(config, "e2e_dump_settings")
    device = _text(machine, "device_target")
    where = f"{folder}/data_dump.json"
    input_output = common.get("input_output", 0)
    if isinstance(input_output, bool) or input_output not in (0, 1, 2):
        problems.append(Problem(where, f"input_output is {_short(input_output)}, not 0, 1 or 2; taken as 0"))
        input_output = 0
    net_name = _text(common, "net_name")
    if net_name in {".", ".."} or set(net_name) & set("/\\\0"):
        problems.append(Problem(where, f"net_name {_short(net_name)} is not a folder name; it is not used"))
        net_name = ""
    # CPU and GPU can only dump synchronously, regardless of the settings.
    synchronous = device in {"CPU", "GPU", ""} or e2e.get("enable") is True
    return DumpMetadata(
        framework=_text(machine, "framework") or "mindspore",
        by_agent=machine.get("tensight_agent") is True,
        framework_version=_text(machine, "ms_version"),
        device_target=device,
        net_name=net_name,
        synchronous=synchronous,
        file_format="npy" if synchronous else _text(common, "file_format") or "bin",
        input_output=int(input_output),
        saved_data=_text(common, "saved_data") or "tensor",
        config=MappingProxyType(config),
    )


def read_setup(storage: Storage, rank_folder: str, problems: list[Problem]) -> dict[str, Any] | None:
    """Read the set-up of the training that an agent wrote beside its recording; None if there is none."""
    path = f"{rank_folder}/{FOLDER}/{SETUP}".lstrip("/")
    try:
        return _parse_object(storage.read_bytes(path, _MAX_JSON_BYTES))
    except MissingFileError:
        return None
    except (DumpError, ValueError) as error:
        problems.append(Problem(path, f"cannot be used: {error}", "nothing is known of the set-up"))
        return None


def read_devices(storage: Storage, rank_folder: str, problems: list[Problem]) -> dict[int, Device]:
    """Read the rank table ``hccl.json``.

    Returns
    -------
    dict of int to Device
        By rank; empty if there is no table, or if it is unusable.
    """
    where = f"{rank_folder}/{FOLDER}/hccl.json".lstrip("/")
    try:
        return _devices_of(_parse_object(storage.read_bytes(where, _MAX_JSON_BYTES)))
    except MissingFileError:
        return {}
    except (DumpError, ValueError) as error:
        problems.append(Problem(where, f"cannot be used: {error}", "devices are numbered like the ranks"))
        return {}


class RunDescription:
    """The description of a run in the folder of the dump's first rank; each file is read on first use.

    Parameters
    ----------
    storage : Storage
    rank_folder : str
        Relative to the storage's root.
    problems : list of Problem
        Problems are appended.
    """

    def __init__(self, storage: Storage, rank_folder: str, problems: list[Problem]) -> None:
        self._storage = storage
        self._folder = rank_folder
        self._problems = problems

    @cached_property
    def metadata(self) -> DumpMetadata:
        """How the dump was made."""
        return read_metadata(self._storage, self._folder, self._problems)

    @cached_property
    def setup(self) -> dict[str, Any] | None:
        """The set-up of the training; None if not recorded."""
        return read_setup(self._storage, self._folder, self._problems)

    @cached_property
    def devices(self) -> dict[int, Device]:
        """The devices by rank; empty if there is no table."""
        return read_devices(self._storage, self._folder, self._problems)


def _devices_of(table: dict[str, Any]) -> dict[int, Device]:
    servers = table.get("server_list")
    if not isinstance(servers, list):
        raise ValueError("it has no server_list")
    devices: dict[int, Device] = {}
    for server in servers:
        listed = server.get("device") if isinstance(server, dict) else None
        if not isinstance(listed, list):
            raise ValueError("a server in it has no device list")
        for item in listed:
            try:
                rank, number = int(item["rank_id"]), int(item["device_id"])
            except (KeyError, TypeError, ValueError):
                raise ValueError("a device in it has no rank_id or device_id") from None
            name = str(server.get("server_id", "localhost"))
            devices[rank] = Device(rank, name, number, str(item.get("device_ip", "")))
    return devices


def _read_object(storage: Storage, path: str, problems: list[Problem]) -> dict[str, Any]:
    try:
        return _parse_object(storage.read_bytes(path, _MAX_JSON_BYTES))
    except MissingFileError:
        problems.append(Problem(path, "is missing", "defaults are used; copy it from the machine that trained"))
    except (DumpError, ValueError) as error:
        problems.append(Problem(path, f"cannot be used: {error}", "defaults are used"))
    return {}


def _parse_object(data: bytes) -> dict[str, Any]:
    if not data.strip():
        raise ValueError("it is empty")
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, dict) else {}


def _text(section: Mapping[str, Any], name: str) -> str:
    value = section.get(name)
    return value if isinstance(value, str) else ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
