"""The environment of a training with MindSpore: version, device, settings and seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore

from tensight.agents.setup import attempt, plain

if TYPE_CHECKING:
    from tensight.agents.core.reader import Framework

_FLAGS = ("mode", "device_target", "deterministic", "pynative_synchronize", "jit_level", "enable_graph_kernel")


def describe_mindspore(framework: Framework) -> dict[str, object]:
    """Return the environment of a training with MindSpore, as `tensight.agents.setup.describe` takes it.

    Parameters
    ----------
    framework : Framework
        As the agent knows it.

    Returns
    -------
    dict
        ``framework``, ``flags``, ``random``; ``left_out`` names parts that were not available.
    """
    left_out: list[object] = []
    parts = {
        "framework": lambda: {
            "name": framework.name,
            "version": framework.version,
            "rank": framework.rank,
            "world_size": framework.world_size,
        },
        "flags": _flags,
        "random": lambda: {"mindspore_seed": plain(mindspore.get_seed())},
    }
    result = {name: attempt(name, part, left_out) for name, part in parts.items()}
    return {**result, "left_out": left_out} if left_out else result


def _flags() -> dict[str, object]:
    return {name: value for name in _FLAGS if (value := _flag(name)) is not None}


def _flag(name: str) -> object:
    """Return a setting; None if this version of MindSpore does not have it."""
    try:
        return plain(mindspore.get_context(name))
    except Exception:
        return None
