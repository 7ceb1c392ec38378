"""Decides which hits stop the training: those that are new and do not follow from earlier hits.

A watchpoint that hit on a tensor when it was last checked there goes on hitting. This is reported once, and again only
after it has cleared and come back. Each time it must have been away twice as long as the time before, so a hit that
clears and comes back every few steps is reported a few times only. A NaN makes everything NaN that is computed from
it, in this step and, through the parameters that it is written into, in all later steps; that is one cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tensight.graph import is_after_forward

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable, Mapping, Sequence, Set

ONLY_NON_FINITE = frozenset({"nan_count", "inf_count", "non_finite_count", "unmasked_non_finite_count"})
"""Names of the quantities that are greater than 0 only where a tensor has NaN or Inf."""


class Since(NamedTuple):
    """Since when the condition of a watchpoint has held without interruption.

    Attributes
    ----------
    iteration : int
        The first iteration.
    may_be_older : bool
        Whether it may have held before, when it was not checked.
    """

    iteration: int
    may_be_older: bool = False


class HitFacts(NamedTuple):
    """The facts about a hit that decide whether it is new.

    Attributes
    ----------
    watchpoint : int
    tensor : hashable
        The tensor, in any form.
    node : str
        Name of its node.
    is_persistent : bool
        Whether the node keeps its value from one step to the next: a parameter, a buffer, optimizer state.
    is_non_finite : bool
        Whether the watchpoint hits on NaN and Inf only.
    is_input : bool
        Whether the node is input data: a tensor without known inputs.
    """

    watchpoint: int
    tensor: Hashable
    node: str
    is_persistent: bool
    is_non_finite: bool
    is_input: bool = False

    @property
    def key(self) -> tuple[int, Hashable]:
        """Identifies an ongoing hit: a watchpoint on a tensor."""
        return self.watchpoint, self.tensor


@dataclass(slots=True)
class _Reported:
    """A hit that stopped the training.

    Attributes
    ----------
    last_step : int
        The last step with this hit.
    rest : int
        Number of steps for which the hit must be away before it stops the training again.
    """

    last_step: int
    rest: int


class Causes:
    """Separates new hits of a process from ongoing ones and from consequences of others.

    Parameters
    ----------
    is_persistent : callable
        Returns whether a node that is not an operator keeps its value from one step to the next.
    checked : callable
        Returns the names of the nodes that watchpoints check for NaN and Inf.
    passes_on : callable, optional
        Returns whether NaN or Inf may have passed through an operator in this step although it is not a hit: a view is
        checked with its base, and elements that later operators may ignore are known only when those have run.
    """

    def __init__(
        self,
        is_persistent: Callable[[str], bool],
        checked: Callable[[], Set[str]],
        passes_on: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._is_persistent = is_persistent
        self._checked = checked
        self._passes_on = passes_on
        self._inputs: Mapping[str, Sequence[str]] = {}
        self._ongoing: dict[tuple[int, Hashable], HitFacts] = {}
        self._reported: dict[tuple[int, Hashable], _Reported] = {}
        self._step = 0
        self._now: dict[tuple[int, Hashable], HitFacts] = {}
        self._new: set[tuple[int, Hashable]] = set()
        self._latest_new: set[tuple[int, Hashable]] = set()
        self._sick: set[str] = set()
        # Whether one of these is of the forward pass is asked at every hit: those of which it is not known yet.
        self._unasked: list[str] = []
        self._is_forward_sick = False
        self._poisoned: set[str] = set()
        self._is_poisoned = False

    def forget(self, watchpoint: int | None = None) -> None:
        """Forget the hits of a watchpoint whose check has changed, or all hits."""
        for hits in (self._ongoing, self._reported):
            for key in [key for key in hits if watchpoint is None or key[0] == watchpoint]:
                del hits[key]
        if watchpoint is None:
            self._poisoned, self._is_poisoned = set(), False

    def judge(
        self,
        hits: Sequence[HitFacts],
        inputs: Mapping[str, Sequence[str]],
        running: Callable[[], Mapping[str, Sequence[str]]] | None = None,
    ) -> list[bool]:
        """Return for each hit of a step, or of a node in it, whether it is a reason to stop.

        Parameters
        ----------
        hits : sequence of HitFacts
        inputs : mapping of str to sequence of str
            The inputs of each operator of the step, as far as known.
        running : callable, optional
            Returns the inputs for a step in progress, whose operators may differ from those of earlier steps.
        """
        self._follow(inputs)
        for hit in hits:
            self._now[hit.key] = hit
            if hit.is_non_finite and hit.node not in self._sick:
                self._sick.add(hit.node)
                self._unasked.append(hit.node)
        marks = list(map(self._is_new, hits))
        is_unsure = any(marks) or any(hit.node not in inputs for hit in hits)
        if running is not None and len(self._sick) > 1 and is_unsure:
            self._follow(running())
            marks = list(map(self._is_new, hits))
        reported = {key: self._now[key] for key in self._new}
        if reported:
            marks = [is_new and not self._is_behind(reported, hit) for hit, is_new in zip(hits, marks, strict=True)]
        self._new.update(hit.key for hit, is_new in zip(hits, marks, strict=True) if is_new)
        return marks

    def judge_again(self, hits: Sequence[HitFacts]) -> list[bool]:
        """Return the same for a step that has ended and was checked again, perhaps for other watchpoints."""
        marks = [hit.key in self._latest_new or hit.key not in self._ongoing for hit in hits]
        self._latest_new.update(hit.key for hit, is_new in zip(hits, marks, strict=True) if is_new)
        self._ongoing.update((hit.key, hit) for hit in hits)
        return marks

    def end_step(self, seen: Callable[[], Container[Hashable]]) -> None:
        """Note that a step has ended.

        Parameters
        ----------
        seen : callable
            Returns the tensors that were checked in it; hits on them that did not recur have cleared.
        """
        self._step += 1
        if not (self._ongoing or self._now):
            return
        self._note_reported()
        cleared = seen()
        still = {key: fact for key, fact in self._ongoing.items() if key[1] not in cleared}
        self._ongoing = {**still, **self._now}
        sick = [fact for fact in self._ongoing.values() if fact.is_non_finite]
        self._poisoned = {fact.node for fact in sick if fact.is_persistent}
        self._is_poisoned = bool(sick)
        self._latest_new, self._new = self._new, set()
        self._now, self._sick = {}, set()
        self._unasked, self._is_forward_sick = [], False

    def _note_reported(self) -> None:
        """Store the hits that were reasons in the step that ends, and which earlier reasons recurred."""
        for key in self._new:
            earlier = self._reported.get(key)
            self._reported[key] = _Reported(self._step, 1 if earlier is None else 2 * earlier.rest)
        for key in self._now.keys() & self._reported.keys():
            self._reported[key].last_step = self._step

    def _comes_back_soon(self, hit: HitFacts) -> bool:
        """Whether a reported hit has not been away for long enough to be reported again."""
        earlier = self._reported.get(hit.key)
        return earlier is not None and self._step - earlier.last_step < earlier.rest

    def _is_new(self, hit: HitFacts) -> bool:
        if hit.key in self._ongoing or self._comes_back_soon(hit):
            return False
        if hit.is_persistent:
            # Its NaN comes from this step's update, or from an earlier update that poisoned it.
            by_operators = any(name in self._inputs for name in self._sick)
            return not (by_operators or hit.node in self._poisoned)
        if not hit.is_non_finite and hit.node in self._sick:
            return False
        if hit.is_input:
            # What is computed from it in this step follows from it. But it may come from a poisoned weight itself,
            # as the latest loss does where losses are summed.
            return not self._poisoned
        if hit.node not in self._inputs:
            # An operator that runs for the first time: its inputs are unknown.
            return self._sick <= {hit.node}
        return not self._inherits(hit.node)

    def _inherits(self, name: str) -> bool:
        """Whether a reported NaN or Inf went into an operator, directly or through operators without a hit."""
        inputs, checked = self._inputs, self._checked()
        if is_after_forward(name) and self._any_sick_in_forward():
            return True
        waiting, visited = list(inputs[name]), {name}
        while waiting:
            at = waiting.pop()
            if at in visited:
                continue
            visited.add(at)
            if at not in inputs:
                if self._is_poisoned_data(at, checked):
                    return True
            elif at in self._sick:
                return True
            elif at not in checked or self._passes_on(at):
                waiting += inputs[at]
        return False

    def _follow(self, inputs: Mapping[str, Sequence[str]]) -> None:
        if inputs is not self._inputs:
            self._inputs = inputs
            self._unasked, self._is_forward_sick = list(self._sick), False

    def _any_sick_in_forward(self) -> bool:
        while self._unasked and not self._is_forward_sick:
            self._is_forward_sick = self._is_sick_in_forward(self._unasked.pop())
        return self._is_forward_sick

    def _is_sick_in_forward(self, name: str) -> bool:
        """Whether an operator with a hit is of the forward pass; those that check or clip gradients read gradients."""
        read = self._inputs.get(name)
        return read is not None and not is_after_forward(name) and not any(map(is_after_forward, read))

    def _is_behind(self, reported: Mapping[tuple[int, Hashable], HitFacts], hit: HitFacts) -> bool:
        """Whether a hit is the source of a NaN or Inf that was reported earlier in this step, where it was seen first.

        Whether later operators ignore parts of an output is known only when they have run.
        """
        if not hit.is_non_finite or hit.is_persistent or hit.is_input:
            return False
        waiting = [name for fact in reported.values() if fact.is_non_finite for name in self._inputs.get(fact.node, ())]
        visited: set[str] = set()
        while waiting:
            at = waiting.pop()
            if at == hit.node:
                return True
            if at not in visited and at in self._sick:
                visited.add(at)
                waiting += self._inputs.get(at, ())
        return False

    def _is_poisoned_data(self, name: str, checked: Set[str]) -> bool:
        """Whether a parameter or data that an operator read contains a NaN or Inf that was reported."""
        if not self._is_persistent(name):
            # Parts of a distributed weight, and values computed from one in the step before, count as data, too.
            return name in self._sick or bool(self._poisoned)
        # In this step only its value after the update is known; the value before it counts.
        return name in self._poisoned or (self._is_poisoned and name not in checked)
