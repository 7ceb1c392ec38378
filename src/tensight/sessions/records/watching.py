"""Conditions, watchpoints, and their hits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tensight.sessions.records.base import Io, Number, Record
from tensight.sessions.records.graphs import Frame
from tensight.watchpoints import MOST_PERSISTENCE


class ParameterRecord(Record):
    """A parameter that a condition can have."""

    name: str
    kind: Literal["check", "support", "hidden"]
    values: str
    """In words what it accepts."""
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
    """What to look at when it hits."""
    available: bool = True
    """Whether it can be checked in the session asked about, now."""
    unavailable_because: str = ""


class Edit(Record):
    """A change of what a watchpoint watches: nodes added to, or removed from, those it selects."""

    add: bool = True
    path: str
    """A node's name, or a scope: everything below it. Empty: all nodes."""
    graph: str = ""
    """Only in this graph; empty: in all."""
    containing: str = ""
    """Only nodes whose name contains this, in any case."""


class WatchpointSpec(Record):
    """What a person wants to watch for."""

    condition: str
    """Id or abbreviation of a condition."""
    parameters: dict[str, float | bool] = Field(default_factory=dict)
    name: str = Field(default="", max_length=200)
    """A watchpoint with a name is kept in the workspace under it."""
    selection: str | None = Field(default=None, max_length=1000)
    """Which tensors: ``all``, ``weights``, ``name:conv1.*``…; ``none`` to start from nothing; by default what the
    condition is meant for."""
    edits: tuple[Edit, ...] = Field(default=(), max_length=10_000)
    """Applied after the selection, in this order."""
    severity: Literal["error", "warning"] = "warning"
    enabled: bool = True
    persistence: int = Field(default=1, ge=1, le=MOST_PERSISTENCE)
    """In how many steps in a row the condition must hold on a tensor before it is a hit."""


class WatchpointChange(Record):
    """What to change of a watchpoint; what is None stays."""

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
    """From 1, never used twice in a session."""
    name: str
    condition: str
    abbreviation: str
    parameters: dict[str, float | bool]
    """Every value in effect, hidden ones included."""
    selection: str
    edits: tuple[Edit, ...] = ()
    severity: Literal["error", "warning"]
    enabled: bool
    nodes: int
    """How many nodes it watches, all ranks together."""
    text: str
    """The check as text: ``tensor_too_large(max_gt=1000)``, ``tensor_overflow() persist=3``."""
    words: str
    """What it does, in one sentence."""
    persistence: int = 1
    """In how many steps in a row the condition must hold on a tensor before it is a hit."""
    hits: int = 0
    """Tensors on which it hit in the current step."""


class HitParameter(Record):
    """A threshold of a watchpoint, and what the tensor has."""

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
    """False if the check could not be made; `errors` says why."""
    parameters: tuple[HitParameter, ...] = ()
    error_code: int = 0
    errors: tuple[str, ...] = ()
    """The error code in words."""


class TensorHits(Record):
    """All hits on one tensor."""

    slot: int
    io: Io = "output"
    address: str
    hits: tuple[HitRecord, ...]


class NodeHits(Record):
    """All hits on one node."""

    rank: int
    graph: str
    node: str
    type: str = ""
    step: int
    position: int | None = None
    """Place in the order of execution of its step, from 1; parameters come after the operators, constants have none."""
    line: Frame | None = None
    """The person's line of code behind it."""
    tensors: tuple[TensorHits, ...]


class HitPage(Record):
    """Nodes with hits, in the order of execution."""

    total: int
    """Nodes with hits in all, after the filters."""
    offset: int = 0
    nodes: tuple[NodeHits, ...]
    outdated: bool = False
    step: int = 0
