"""Device, rank and run of this process, and the optimizers that cells and functions use."""

from __future__ import annotations

import inspect
import os
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import mindspore
from mindspore import nn

from tensight.agents.core.connection import rendezvous
from tensight.agents.core.reader import Framework

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.agents.core.settings import AgentSettings

_MOST_DEPTH = 4
_RENDEZVOUS_VARIABLES = (
    *(("MS_SCHED_HOST", "MS_SCHED_PORT"), ("OMPI_MCA_ess_base_jobid",), ("PMIX_NAMESPACE",)),
    *(("MINDSPORE_HCCL_CONFIG_PATH",), ("RANK_TABLE_FILE",)),
)
"""Variables with the same values in all processes of one run, and in no others."""

_ONLY_SERVE = ("MS_SCHED", "MS_PSERVER", "MS_SERVER")
"""Values of `MS_ROLE` for processes that help others to train."""


def optimizers_in(owner: Any) -> frozenset[int]:
    """Return the identities of the optimizers that a cell contains, or a function refers to; empty if unknown."""
    return frozenset(
        id(inner) for cell in cells_in(owner) for _, inner in cell.cells_and_names() if isinstance(inner, nn.Optimizer)
    )


def cells_in(owner: Any) -> list[nn.Cell]:
    """Return the cells that a function refers to, or the cell itself."""
    return list(_cells(owner, _MOST_DEPTH, set()))


def _cells(owner: Any, depth: int, seen: set[int]) -> Iterator[nn.Cell]:
    if depth == 0 or id(owner) in seen:
        return
    seen.add(id(owner))
    if isinstance(owner, nn.Cell):
        yield owner
    elif isinstance(owner, MethodType):
        yield from _cells(owner.__self__, depth, seen)
        yield from _cells(owner.__func__, depth, seen)
    elif isinstance(owner, FunctionType):
        names = inspect.getclosurevars(inspect.unwrap(owner))
        for value in (*names.nonlocals.values(), *names.globals.values()):
            if isinstance(value, (nn.Cell, MethodType, FunctionType)):
                yield from _cells(value, depth - 1, seen)


def framework() -> Framework:
    """Return framework, device and rank of this process."""
    rank, world_size = _rank_and_size()
    target = str(mindspore.get_context("device_target"))
    device = 0 if target == "CPU" else int(mindspore.get_context("device_id"))
    return Framework("mindspore", mindspore.__version__, target, device, rank, world_size)


def rank_among_met() -> int | None:
    """Return the rank of this process in its training; None before communication is set up."""
    met = _met()
    return None if met is None else met[0]


def _met() -> tuple[int, int] | None:
    """Return the rank of this process and the number of ranks, if communication is set up."""
    try:
        from mindspore import communication

        return int(communication.get_rank()), int(communication.get_group_size())
    except (ImportError, RuntimeError, ValueError):
        return None


def _rank_and_size() -> tuple[int, int]:
    met = _met()
    if met is not None:
        return met
    rank = os.environ.get("RANK_ID") or os.environ.get("OMPI_COMM_WORLD_RANK") or "0"
    size = os.environ.get("RANK_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE") or "1"
    return (int(rank), int(size)) if rank.isdecimal() and size.isdecimal() else (0, 1)


def is_rank() -> bool:
    """Whether this process trains as one of the ranks.

    `msrun` runs the same script in a scheduler, too. It stays in `init()` until the ranks have ended; if the script
    never calls that, it also trains, but without a rank.
    """
    return os.environ.get("MS_ROLE") not in _ONLY_SERVE


def as_one_run(settings: AgentSettings, of: Framework) -> AgentSettings:
    """Return settings with the name of the run that all ranks derive from their rendezvous."""
    return rendezvous.as_one_run(settings, of, _RENDEZVOUS_VARIABLES)
