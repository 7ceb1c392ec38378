"""Conditions, watchpoints, and their hits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tensight.sessions.records.base import Io, Number, Record
from tensight.sessions.records.graphs import Frame
from tensight.watchpoints import MOST_PERSISTENCE


class ParameterRecord(Record):
    """A parameter of a condition."""

    name: str
    kind: Literal["check", "support", "hidden"]
    values: str
    """Accepted values, in words."""
    boolean: bool = False
    default: float | bool | None = None
    requires: tuple[str, ...] = ()


class ConditionRecord(Record):
    """A condition that can be watched for."""

    id: str
    abbreviation: str
    target: Literal["tensor", "weight", "gradient", "activation"]
    parameters: tuple[ParameterRecord, ...] = ()
    platforms: tuple[str, ...] = ()
    initial_only: bool = False
    meaning: str = ""
    advice: tuple[str, ...] = ()
    """What to check when it hits."""
    available: bool = True
    """Whether it can be checked in the session now."""
    unavailable_because: str = ""


class Edit(Record):
    """An edit of the nodes of a watchpoint: adds nodes to its selection, or removes them."""

    add: bool = True
    path: str
    """Name of a node, or a scope with everything below it. Empty for all nodes."""
    graph: str = ""
    """Only in this graph; empty for all graphs."""
    containing: str = ""
    """Only nodes whose name contains this text, case-insensitive."""


class WatchpointSpec(Record):
    """Specification of a watchpoint."""

    condition: str
    """Id or abbreviation of a condition."""
    parameters: dict[str, float | bool] = Field(default_factory=dict)
    name: str = Field(default="", max_length=200)
    """Name of the watchpoint, unique in the session."""
    selection: str | None = Field(default=None, max_length=1000)
    """Selected tensors: ``all``, ``weights``, ``name:conv1.*``…; ``none`` for an empty selection; by default the target
    of the condition."""
    edits: tuple[Edit, ...] = Field(default=(), max_length=10_000)
    """Applied after the selection, in this order."""
    severity: Literal["error", "warning"] = "warning"
    enabled: bool = True
    persistence: int = Field(default=1, ge=1, le=MOST_PERSISTENCE)
    """Number of consecutive steps for which the condition must hold on a tensor before it is a hit."""


class WatchpointChange(Record):
    """Changes of a watchpoint; None leaves a field unchanged."""

    parameters: dict[str, float | bool] | None = None
    name: str | None = Field(default=None, max_length=200)
    selection: str | None = Field(default=None, max_length=1000)
    edits: tuple[Edit, ...] | None = Field(default=None, max_length=10_000)
    """Replaces the edits."""
    further_edits: tuple[Edit, ...] = Field(default=(), max_length=10_000)
    """Appended to the edits."""
    severity: Literal["error", "warning"] | None = None
    enabled: bool | None = None
    persistence: int | None = Field(default=None, ge=1, le=MOST_PERSISTENCE)


class WatchpointRecord(Record):
    """A watchpoint of a session."""

    id: int
    """From 1; never reused in a session."""
    name: str
    condition: str
    abbreviation: str
    parameters: dict[str, float | bool]
    """Every value in effect, including hidden parameters."""
    selection: str
    edits: tuple[Edit, ...] = ()
    severity: Literal["error", "warning"]
    enabled: bool
    nodes: int
    """Number of watched nodes, all ranks together."""
    text: str
    """The check as text: ``tensor_too_large(max_gt=1000)``, ``tensor_overflow() persist=3``."""
    words: str
    """Description in one sentence."""
    persistence: int = 1
    """Number of consecutive steps for which the condition must hold on a tensor before it is a hit."""
    hits: int = 0
    """Tensors on which it hit in the current step."""


class HitParameter(Record):
    """A threshold of a watchpoint, and the actual value of the tensor."""

    name: str
    preset: float | bool
    actual: Number = None
    hit: bool = False


class HitRecord(Record):
    """A watchpoint that hit on a tensor, or could not be checked on it."""

    watchpoint: int
    name: str = ""
    condition: str
    abbreviation: str
    severity: Literal["error", "warning"] = "warning"
    hit: bool = True
    """False if the check could not be made; `errors` contains the reasons."""
    parameters: tuple[HitParameter, ...] = ()
    error_code: int = 0
    errors: tuple[str, ...] = ()
    """The error code in words."""
    since: int | None = None
    """Step since which the condition has held in a row, if the watchpoint requires several; None if unknown."""
    may_be_older: bool = False
    """Whether it may have held before `since`, when it was not checked."""


class TensorHits(Record):
    """All hits on a tensor."""

    slot: int
    io: Io = "output"
    address: str
    hits: tuple[HitRecord, ...]


class NodeHits(Record):
    """All hits on a node."""

    rank: int
    graph: str
    node: str
    type: str = ""
    step: int
    position: int | None = None
    """Position in the execution order of its step, from 1; parameters come after the operators, constants have none."""
    line: Frame | None = None
    """The line of user code that created it."""
    tensors: tuple[TensorHits, ...]


class HitPage(Record):
    """Nodes with hits, in execution order."""

    total: int
    """Number of all nodes with hits that match the filters."""
    tensors: int = 0
    """Number of all tensors with a hit that match the filters; a check that could not be made is not a hit."""
    offset: int = 0
    nodes: tuple[NodeHits, ...]
    outdated: bool = False
    step: int = 0
