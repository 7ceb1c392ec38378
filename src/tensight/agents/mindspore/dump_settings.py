"""The configuration of MindSpore's dump: ours, or the user's."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tensight.errors import InputError
from tensight.graph.operator_facts import UPDATED_IN_PLACE, WITHOUT_RESULTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VARIABLE = "MINDSPORE_DUMP_CONFIG"
"""Environment variable that names the file."""

LAST_ITERATION = 2**31 - 1
"""The last iteration that is dumped; no training reaches it."""

_NEVER_NEEDED = "|".join(sorted(UPDATED_IN_PLACE | WITHOUT_RESULTS))

EVERYTHING = (f"name-regex((?!.*/(?:{_NEVER_NEEDED})-op[0-9]+$).*)",)
"""No outputs of an optimizer's operators: they repeat the parameters' new values, or were never written."""

GRADIENTS = ("name-regex(Gradients/.+)",)
"""No parameters, which are read in place."""

_MOST_BYTES = 64 * 2**20
_REGEX = re.compile(r"name-regex\((.*)\)", re.DOTALL)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)

_ALL_DEVICES = 1024
"""MindSpore dumps only on listed devices, and the device of this process is not known yet."""


def network_folder(name: str) -> str:
    """Return the name of a network in the form that MindSpore allows for a folder."""
    return _NOT_IN_NAMES.sub("-", name).strip("-") or "network"


def own_settings(path: str, network: str, operators: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return the configuration of a private dump.

    Parameters
    ----------
    path : str
        Where MindSpore dumps.
    network : str
        As `network_folder` returns it.
    operators : sequence of str
        Types, full names, or ``name-regex(…)`` of what is dumped; parameters are selected by name, too. Empty for
        everything that MindSpore can dump.
    """
    common: dict[str, object] = {
        "op_debug_mode": 0,
        "dump_mode": 1 if operators else 0,
        "path": path,
        "net_name": network,
        "iteration": f"0-{LAST_ITERATION}",
        "saved_data": "tensor",
        # An input is the output of another node.
        "input_output": 2,
        "kernels": list(operators),
        "support_device": list(range(_ALL_DEVICES)),
    }
    return {"common_dump_settings": common, "e2e_dump_settings": {"enable": True, "trans_flag": True}}


def is_dumped(name: str, kind: str, operators: Sequence[str]) -> bool:
    """Whether a private dump contains an operator or a parameter.

    Parameters
    ----------
    name : str
        Full name.
    kind : str
        Its type.
    operators : sequence of str
        As for `own_settings`.
    """
    if not operators:
        return True
    patterns = (match[1] for match in map(_REGEX.fullmatch, operators) if match)
    return name in operators or kind in operators or any(re.fullmatch(pattern, name) for pattern in patterns)


def settings_of_person(path: str, environment: Mapping[str, str]) -> tuple[str, str, str]:
    """Read the configuration of a dump that the user requested.

    Returns
    -------
    folder, network : str
    notice : str
        What the user should know about debugging with it.

    Raises
    ------
    InputError
        It cannot be used.
    """
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read(_MOST_BYTES))
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
        raise InputError(f"{path} has no path and net_name in common_dump_settings; name both, or unset {VARIABLE}")
    notice = (
        f"MindSpore dumps as {VARIABLE} says ({path}): only what is dumped there can be watched, and nothing of it is"
        f" removed. Unset {VARIABLE}, and Tensight has everything dumped, into memory"
    )
    if common.get("saved_data", "tensor") == "statistic":
        notice = f"{path} has MindSpore dump statistics instead of tensors: nothing can be watched. Unset {VARIABLE}"
    return folder.rstrip("/") or "/", network, notice
