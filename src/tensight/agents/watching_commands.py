"""Watchpoints as the server sends them: read, checked, and turned into what an agent evaluates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.errors import InputError
from tensight.watchpoints import (
    MOST_PERSISTENCE,
    ConditionCheck,
    Selector,
    Source,
    conditions_by_wire_number,
)
from tensight.watchpoints.causes import ONLY_NON_FINITE
from tensight.wire.text import name, text

if TYPE_CHECKING:
    from tensight.watchpoints import Condition, Quantity
    from tensight.wire.debugger_pb2 import SetCMD, WatchCondition

MOST_NAMES = 1_000_000
_LONGEST_SELECTION = 1000
_LONGEST_PARAMETER = 64


@dataclass(frozen=True, slots=True)
class WatchRule:
    """What a watchpoint looks for and on which nodes, before any node is known.

    Attributes
    ----------
    id : int
        Its number.
    wire_number : int
        The condition's number in the protocol.
    check : ConditionCheck or None
        None if no threshold is set: such a watchpoint never hits.
    selector : Selector or None
        The rule that stands for nodes.
    names : frozenset of str
        Full names of nodes.
    tails : dict of str to str
        The same by what comes after the last slash: a parameter may be named with a scope before it.
    persistence : int
        Steps in a row.
    """

    id: int
    wire_number: int
    check: ConditionCheck | None
    selector: Selector | None
    names: frozenset[str]
    tails: dict[str, str]
    persistence: int = 1

    @property
    def flag(self) -> Quantity | None:
        """The quantity that hits by being greater than 0, of a condition without thresholds."""
        return None if self.check is None else self.check.condition.flag

    @property
    def only_finite(self) -> bool:
        """Whether a tensor without NaN and Inf can never hit."""
        return self.flag is not None and self.flag.name in ONLY_NON_FINITE

    @property
    def compares_ranks(self) -> bool:
        """Whether the server compares hashes, and nothing is checked here."""
        return self.check is not None and self.check.needs.ranks

    @property
    def compares_steps(self) -> bool:
        """Whether it compares a tensor with its previous value."""
        return self.check is not None and any(q.source is Source.CHANGE for q in self.check.quantities)

    @property
    def is_exact(self) -> bool:
        """Whether it only asks if a tensor is the same, bit for bit: then its hash answers."""
        if self.check is None or not self.compares_steps:
            return False
        values = self.check.values
        only_tolerance = all(quantity.name == "required_rtol" for quantity in self.check.quantities)
        return only_tolerance and not values.get("rtol") and not values.get("atol")


def read_rule(command: SetCMD) -> WatchRule:
    """Read the command that sets a watchpoint.

    Raises
    ------
    InputError, WireError
        The condition, a parameter, the selection, a name or the persistence cannot be used.
    """
    selection = text(command.selection, _LONGEST_SELECTION).strip()
    if len(command.watch_nodes) > MOST_NAMES:
        raise InputError(f"a watchpoint watches at most {MOST_NAMES:,} nodes; got {len(command.watch_nodes):,}")
    names = frozenset(name(node.node_name) for node in command.watch_nodes)
    persistence = command.persistence or 1
    if not 1 <= persistence <= MOST_PERSISTENCE:
        raise InputError(f"the persistence of a watchpoint is from 1 to {MOST_PERSISTENCE:,} steps; got {persistence}")
    return WatchRule(
        id=command.id,
        wire_number=command.watch_condition.condition,
        check=_read_check(command.watch_condition),
        selector=Selector.parse(selection) if selection else None,
        names=names,
        tails={full_name.rpartition("/")[2]: full_name for full_name in names},
        persistence=persistence,
    )


def _read_check(message: WatchCondition) -> ConditionCheck | None:
    conditions = conditions_by_wire_number(message.condition)
    if not conditions:
        raise InputError(
            f"condition {message.condition} is not known to this agent; install the version of tensight that the server"
            " has",
            code="condition-unknown",
        )
    found = conditions[0]
    given = {text(parameter.name, _LONGEST_PARAMETER): parameter for parameter in message.params}
    values = {key: _value(found, key, one.value) for key, one in given.items() if not one.disabled}
    if found.checks and not any(parameter.name in values for parameter in found.checks):
        return None
    # The original's Python API sets values outside of the ranges, too.
    return ConditionCheck(found, values, strict=False)


def _value(condition: Condition, parameter: str, value: float) -> float | bool:
    declared = condition.parameter(parameter)
    return bool(value) if declared is not None and declared.values.is_boolean else value
