"""Matching of the operators of two runs: by values, by name, by name without counters, by module, by structure.

The operators of each run are a sequence in order of execution. Each rule gives an operator a key; equal keys in the
same order form a pair, and the next, weaker rule works in the gaps between pairs. Remaining operators are matched out
of order where a key is unique. Every pair records the rule that matched it, and unmatched operators are listed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from tensight.compare.fused import fused_parts, is_fused
from tensight.compare.renaming import paths_in_b, plain_name
from tensight.compare.runs.measures import UNIT_ROUNDOFF, difference
from tensight.compare.runs.steps import NO_ROW, Operation, Phase, scope_in_program
from tensight.graph.operator_facts import MIXED_PRECISION_PRODUCTS, comparable_type

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from tensight.compare.runs.steps import RunToCompare, Step

_ANONYMOUS = re.compile(r"input\d+")
_COUNTER = re.compile(r"-op\d+$")
_NEAR = 1e-2
"""Relative difference of outputs below which operators of one type and shape are considered the same."""

_MOST_OF = 0.6
"""Share of the operators of two scopes that must match one another for the scopes to match."""

_LONGEST_DIFF = 20_000
"""Largest number of operators of a gap that are matched in order; longer gaps are matched by unique keys only."""


class Rule(Enum):
    """Why two operators, or two parameters, match."""

    MAPPING = "mapping"
    NAME = "name"
    NAME_WITHOUT_COUNTERS = "name without counters"
    INPUTS = "inputs"
    FUSED = "fused"
    MODULE = "module"
    VALUES = "values"
    STRUCTURE = "structure"
    LAST = "end of the forward pass"


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """An operator of run A and its counterpart in run B."""

    a: Operation
    b: Operation
    rule: Rule


@dataclass(frozen=True, slots=True)
class Fused:
    """A parameter of one run, and the parameters of the other that are its rows.

    Attributes
    ----------
    whole : str
        Name of the fused parameter.
    parts : tuple of str
        Names of its parts, in order of the rows.
    is_of_b : bool
        Whether the fused parameter belongs to B.
    is_transposed : bool
        Whether the fused parameter is stored transposed.
    """

    whole: str
    parts: tuple[str, ...]
    is_of_b: bool
    is_transposed: bool

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names in A and in B."""
        return (self.parts, (self.whole,)) if self.is_of_b else ((self.whole,), self.parts)


@dataclass(slots=True)
class Matching:
    """The pairs of one step.

    Attributes
    ----------
    pairs : list of Pair
        In A's order of execution.
    only_a, only_b : list of Operation
        Operators without a counterpart.
    losses : Pair or None
        The operators of the last scalars of both forward passes.
    parameters : dict of str to (str, Rule)
        For each matched parameter of A, its name in B and the rule.
    parameters_only_a, parameters_only_b : list of str
        Parameters without a counterpart.
    fused : list of Fused
        Parameters that are fused in one run and split in the other; their optimizer states and updates are not
        compared.
    """

    pairs: list[Pair] = field(default_factory=list)
    only_a: list[Operation] = field(default_factory=list)
    only_b: list[Operation] = field(default_factory=list)
    losses: Pair | None = None
    parameters: dict[str, tuple[str, Rule]] = field(default_factory=dict)
    parameters_only_a: list[str] = field(default_factory=list)
    parameters_only_b: list[str] = field(default_factory=list)
    fused: list[Fused] = field(default_factory=list)

    def parameter_in_b(self, name: str) -> str | None:
        """Return B's name for a parameter of A, or for an optimizer state of it; None if it has no counterpart."""
        if name in self.parameters:
            return self.parameters[name][0]
        state, dot, parameter = name.partition(".")
        return state + dot + self.parameters[parameter][0] if parameter in self.parameters else None

    @property
    def rules(self) -> dict[Rule, int]:
        """Number of pairs that each rule matched."""
        return dict(Counter(pair.rule for pair in self.pairs))


def match_steps(
    run_a: RunToCompare,
    step_a: Step,
    run_b: RunToCompare,
    step_b: Step,
    mapping: Mapping[str, str] | None = None,
    last: Matching | None = None,
) -> Matching:
    """Match the operators and parameters of two steps.

    Parameters
    ----------
    run_a, run_b : RunToCompare
    step_a, step_b : Step
    mapping : mapping of str to str, optional
        Names or scopes of A and their counterparts in B, chosen by the user.
    last : Matching, optional
        That of the step before, whose weights had the same counterparts.
    """
    return _Matcher((run_a, run_b), (step_a, step_b), mapping or {}, last).match()


def copied_from(matching: Matching, name: str) -> str | None:
    """Return the matched parameter of A that another one is a copy or an average of, by the end of its name.

    Parameters
    ----------
    matching : Matching
    name : str
        ``AveragedModel.module.layer1.weight``.

    Returns
    -------
    str or None
        ``layer1.weight``; None if there is none.
    """
    ends = (name.split(".", amount)[-1] for amount in range(1, name.count(".") + 1))
    return next((end for end in ends if end in matching.parameters), None)


def unknown_names(step: Step, names: Iterable[str]) -> set[str]:
    """Return those of some names that are no operator, scope or parameter of a step, nor begin one of these.

    Parameters
    ----------
    step : Step
    names : iterable of str
        Names as a user's mapping has them, with dots or slashes.
    """
    of_step: set[str] = set()
    for name in (*(op.name for op in step.operations), *step.weights, *step.data, *step.unseen):
        of_step.add(name)
        words = scope_in_program(name.replace(".", "/"))[1].split("/")
        of_step.update("/".join(words[:end]) for end in range(1, len(words) + 1))
    return {name for name in names if name not in of_step and _inner_path(name) not in of_step}


def _inner_path(name: str) -> str:
    return scope_in_program(name.strip("/").replace(".", "/"))[1]


class _Matcher:
    """Matches one step: parameters that identify themselves, the forward pass, other parameters, then the rest."""

    def __init__(
        self,
        runs: tuple[RunToCompare, RunToCompare],
        steps: tuple[Step, Step],
        mapping: Mapping[str, str],
        last: Matching | None,
    ) -> None:
        self._runs, self._steps, self._mapping, self._last = runs, steps, mapping, last
        self._result = Matching()
        self._left_a, self._left_b = ({**step.weights, **step.data, **step.unseen} for step in steps)
        # Optimizer states are identified by their weights; many states are alike.
        self._states_a, self._states_b = (
            {name: left.pop(name) for name in [name for name in left if name.partition(".")[2] in left]}
            for left in (self._left_a, self._left_b)
        )
        self._b_of: dict[str, str] = {}

    def match(self) -> Matching:
        """Return the matching."""
        self._match_parameters()
        self._match_phase(Phase.FORWARD)
        self._match_losses()
        self._match_parameters_by_readers()
        self._match_copies()
        _by_key(self._left_a, self._left_b, _structure_key, self._runs, self._take, Rule.STRUCTURE)
        self._match_states()
        self._match_phase(Phase.BACKWARD)
        self._match_phase(Phase.UPDATE)
        result = self._result
        result.parameters_only_a = [*self._left_a, *self._states_a]
        result.parameters_only_b = [*self._left_b, *self._states_b]
        result.pairs.sort(key=lambda pair: pair.a.position)
        return result

    def _take(self, a: str, b: str, rule: Rule) -> None:
        self._result.parameters[a] = (b, rule)
        del self._left_a[a], self._left_b[b]

    def _match_parameters(self) -> None:
        left_a, left_b, (run_a, run_b) = self._left_a, self._left_b, self._runs
        for name, other in self._mapped_parameters():
            self._take(name, other, Rule.MAPPING)
        for name, (other, rule) in () if self._last is None else self._last.parameters.items():
            if name in self._steps[0].weights and name in left_a and other in left_b:
                self._take(name, other, rule)
        for name in [name for name in left_a if name in left_b and not is_anonymous(name)]:
            if _same_size(run_a, left_a[name], run_b, left_b[name]):
                self._take(name, name, Rule.NAME)
        _by_key(left_a, left_b, _name_key, self._runs, self._take, Rule.MODULE)
        _by_key(left_a, left_b, _content_key, self._runs, self._take, Rule.VALUES)
        _by_key(
            left_a, left_b, _value_key, self._runs, self._take, Rule.VALUES, is_ordered=lambda n: not is_anonymous(n)
        )
        for name in [name for name in left_a if name in left_b and not is_anonymous(name)]:
            self._take(name, name, Rule.NAME)
        self._match_fused(is_of_b=False)
        self._match_fused(is_of_b=True)

    def _mapped_parameters(self) -> Iterator[tuple[str, str]]:
        """Yield the parameters that the user's mapping names, or whose module it names."""
        plain_b = {plain_name(name): name for name in self._left_b}
        for name in list(self._left_a):
            for end in range(len(name), 0, -1):
                other = self._mapping.get(name[:end]) if end == len(name) or name[end] == "." else None
                if other is not None:
                    in_b = other + name[end:]
                    in_b = in_b if in_b in self._left_b else plain_b.get(plain_name(in_b), "")
                    if in_b:
                        plain_b.pop(plain_name(in_b), None)
                        yield name, in_b
                    break

    def _match_fused(self, *, is_of_b: bool) -> None:
        """Match the fused parameters of one run with their parts in the other."""
        side = int(is_of_b)
        left, others = (self._left_b, self._left_a) if is_of_b else (self._left_a, self._left_b)
        states, other_states = (self._states_b, self._states_a) if is_of_b else (self._states_a, self._states_b)
        scopes = _Scopes(self._result.parameters, [], self._steps, self._mapping)

        def name_in_b(name: str, of: int) -> str:
            return plain_name(scopes.of_a(name.replace(".", "/")).replace("/", ".") if of == 0 else name)

        for name in [name for name in left if is_fused(name)]:
            shape = self._runs[side].shape(left[name])
            plain = {name_in_b(other, 1 - side): other for other in others}
            shapes = {key: self._runs[1 - side].shape(others[other]) for key, other in plain.items()}
            for is_transposed in (False, True):
                parts = fused_parts(name_in_b(name, side), shape[::-1] if is_transposed else shape, shapes)
                if parts:
                    names = tuple(plain[part] for part, _, _ in parts)
                    self._result.fused.append(Fused(name, names, is_of_b, is_transposed))
                    _drop(left, states, (name,))
                    _drop(others, other_states, names)
                    break

    def _match_parameters_by_readers(self) -> None:
        """Match parameters that matched operators read: by the last word of their names, else by their position."""
        for pair in self._result.pairs:
            names_a = [slot.name for slot in pair.a.inputs if slot.name in self._left_a]
            of_b = {_last_word(slot.name): slot.name for slot in pair.b.inputs if slot.name in self._left_b}
            for name in names_a:
                other = of_b.get(_last_word(name))
                if other is not None and name in self._left_a and self._is_same_size(name, other):
                    self._take(name, other, Rule.MODULE)
                    del of_b[_last_word(name)]
            for slot_a, slot_b in zip(pair.a.inputs, pair.b.inputs, strict=False):
                are_unmatched = slot_a.name in self._left_a and slot_b.name in self._left_b
                if are_unmatched and self._is_same_size(slot_a.name, slot_b.name):
                    self._take(slot_a.name, slot_b.name, Rule.MODULE)

    def _match_copies(self) -> None:
        """Match copies and averages of weights in other modules, by the weights of which their names contain that."""
        for name in list(self._left_a):
            origin = copied_from(self._result, name)
            other = None if origin is None else name.removesuffix(origin) + self._result.parameters[origin][0]
            if other in self._left_b and self._is_same_size(name, other):
                self._take(name, other, Rule.MODULE)

    def _is_same_size(self, a: str, b: str) -> bool:
        return _same_size(self._runs[0], self._left_a[a], self._runs[1], self._left_b[b])

    def _match_states(self) -> None:
        """Match states of matched weights, by PyTorch's names of the states."""
        of_b = {(plain_name(name.partition(".")[0]), name.partition(".")[2]): name for name in self._states_b}
        for name in list(self._states_a):
            state, _, weight = name.partition(".")
            counterpart = self._result.parameters.get(weight)
            other = None if counterpart is None else of_b.get((plain_name(state), counterpart[0]))
            if counterpart is not None and other in self._states_b:
                self._result.parameters[name] = (other, counterpart[1])
                del self._states_a[name], self._states_b[other]

    def _match_losses(self) -> None:
        """Match the scalars from which the backward passes start."""
        if not all(any(op.phase is Phase.BACKWARD for op in step.operations) for step in self._steps):
            return
        a, b = (_last_number(run, step) for run, step in zip(self._runs, self._steps, strict=True))
        if a is not None and b is not None:
            self._result.losses = next((pair for pair in self._result.pairs if pair.a is a and pair.b is b), None)
            self._result.losses = self._result.losses or Pair(a, b, Rule.LAST)

    def _match_phase(self, phase: Phase) -> None:
        ops_a, ops_b = ([op for op in step.operations if op.phase is phase] for step in self._steps)
        scopes = _Scopes(self._result.parameters, self._result.pairs, self._steps, self._mapping)
        aligner = _Aligner(self._runs, scopes, self._b_of, self._result.parameters, self._mapping)
        pairs, only_a, only_b = aligner.align(ops_a, ops_b)
        self._result.pairs += pairs
        # Matched operators give B's names of modules that their parameters do not identify.
        scopes = _Scopes(self._result.parameters, self._result.pairs, self._steps, self._mapping)
        aligner = _Aligner(self._runs, scopes, self._b_of, self._result.parameters, self._mapping)
        pairs, only_a, only_b = aligner.align_by_module(only_a, only_b)
        self._result.pairs += pairs
        self._result.only_a += only_a
        self._result.only_b += only_b


def _drop(left: dict[str, int], states: dict[str, int], names: tuple[str, ...]) -> None:
    """Remove parameters and their optimizer states."""
    for name in names:
        del left[name]
    for state in [state for state in states if state.partition(".")[2] in names]:
        del states[state]


def _by_key(
    left_a: dict[str, int],
    left_b: dict[str, int],
    key: Callable[[RunToCompare, str, int], Hashable | None],
    runs: tuple[RunToCompare, RunToCompare],
    take: Callable[[str, str, Rule], None],
    rule: Rule,
    *,
    is_ordered: Callable[[str], bool] = lambda _: True,
) -> None:
    """Match parameters with the same key if both runs have equally many of them: several only if they are ordered."""
    groups: dict[Hashable, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, (run, left) in enumerate(zip(runs, (left_a, left_b), strict=True)):
        for name, row in left.items():
            group_key = key(run, name, row)
            if group_key is not None:
                groups[group_key][side].append(name)
    for names_a, names_b in groups.values():
        if len(names_a) == len(names_b) and (len(names_a) == 1 or all(map(is_ordered, names_a))):
            for a, b in zip(names_a, names_b, strict=True):
                if _same_size(runs[0], left_a[a], runs[1], left_b[b]):
                    take(a, b, rule)


def is_anonymous(name: str) -> bool:
    """Return whether the name of a network input is only a number, as for tensors of unknown origin (``input3``)."""
    return _ANONYMOUS.fullmatch(name) is not None


def _same_size(run_a: RunToCompare, row_a: int, run_b: RunToCompare, row_b: int) -> bool:
    return sorted(run_a.shape(row_a)) == sorted(run_b.shape(row_b))


def _name_key(_run: RunToCompare, name: str, _row: int) -> Hashable | None:
    return None if is_anonymous(name) else plain_name(name)


def _content_key(run: RunToCompare, name: str, row: int) -> Hashable | None:
    """Return a key that only bit-equal tensors share; None for constant tensors that are not anonymous."""
    content = run.content_hash(row)
    return (run.shape(row), content) if content and _value_key(run, name, row) is not None else None


def _value_key(run: RunToCompare, name: str, row: int) -> Hashable | None:
    """Return a key that equal tensors share in any layout; None for constant tensors that are not anonymous."""
    statistics = run.statistics(row)
    if not run.is_known(row) or not (statistics["std"] > 0 or is_anonymous(name)):
        return None
    return (tuple(sorted(run.shape(row))), *(f"{statistics[name]:.5g}" for name in ("std", "min", "max", "abs_mean")))


def _structure_key(run: RunToCompare, name: str, row: int) -> Hashable | None:
    leaf = "" if is_anonymous(name) else _last_word(name)
    return (tuple(sorted(run.shape(row))), leaf, is_anonymous(name))


def _last_word(name: str) -> str:
    """Return the last word of a parameter's name, in PyTorch's words."""
    return plain_name(name).rpartition(".")[2]


class _Scopes:
    """Translates scopes of A to names of B, according to matched parameters and operators."""

    def __init__(
        self,
        parameters: Mapping[str, tuple[str, Rule]],
        pairs: Sequence[Pair],
        steps: tuple[Step, Step],
        mapping: Mapping[str, str],
    ) -> None:
        same = [(a.split("."), b.split(".")) for a, (b, _) in parameters.items()]
        same += [
            (scope_in_program(a)[1].split("/"), scope_in_program(b)[1].split("/"))
            for a, b in _scopes_matched(pairs, steps)
        ]
        self._paths = paths_in_b(same)
        self._words = _words_in_b(same)
        for a, b in mapping.items():
            self._paths[_inner_path(a)] = _inner_path(b)

    def of_a(self, scope: str) -> str:
        """Return B's name for a scope of A; the scope unchanged if there is none."""
        lead, inner = scope_in_program(scope)
        parts = inner.split("/")
        for end in range(len(parts), 0, -1):
            path_in_b = self._paths.get("/".join(parts[:end]))
            if path_in_b is not None:
                return lead + "/".join([path_in_b, *(self._words.get(word, word) for word in parts[end:])])
        return scope


def _words_in_b(paths: Sequence[tuple[list[str], list[str]]]) -> dict[str, str]:
    """Return B's name for each path component of A, if all paths of equal length agree on it."""
    words: dict[str, set[str]] = defaultdict(set)
    for parts_a, parts_b in paths:
        if len(parts_a) == len(parts_b):
            for a, b in zip(parts_a, parts_b, strict=True):
                words[a].add(b)
    return {a: words_b.pop() for a, words_b in words.items() if len(words_b) == 1}


def _scopes_matched(pairs: Sequence[Pair], steps: tuple[Step, Step]) -> list[tuple[str, str]]:
    """Return pairs of scopes whose operators mostly match one another."""
    sizes = [Counter(op.node.scope for op in step.operations) for step in steps]
    together = Counter((pair.a.node.scope, pair.b.node.scope) for pair in pairs)
    return [(a, b) for (a, b), amount in together.items() if amount > _MOST_OF * max(sizes[0][a], sizes[1][b])]


class _Aligner:
    """Aligns two sequences of operators, rule by rule."""

    def __init__(
        self,
        runs: tuple[RunToCompare, RunToCompare],
        scopes: _Scopes,
        b_of: dict[str, str],
        parameters: Mapping[str, tuple[str, Rule]],
        mapping: Mapping[str, str],
    ) -> None:
        self._runs, self._scopes, self._parameters, self._mapping = runs, scopes, parameters, mapping
        self._b_of = b_of
        self._containers: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())

    def align(
        self, ops_a: Sequence[Operation], ops_b: Sequence[Operation]
    ) -> tuple[list[Pair], list[Operation], list[Operation]]:
        """Return the pairs, and the unmatched operators of A and of B."""
        pairs: list[Pair] = []
        self._containers = (_containers(ops_a), _containers(ops_b))
        gaps = [(list(ops_a), list(ops_b))]
        for rule, key in self._rules():
            gaps = self._in_order(gaps, key, rule, pairs)
            if rule is not Rule.STRUCTURE:
                gaps = self._unique(gaps, key, rule, pairs)
            gaps = self._same_inputs(gaps, pairs)
        return pairs, [op for gap, _ in gaps for op in gap], [op for _, gap in gaps for op in gap]

    def align_by_module(
        self, ops_a: Sequence[Operation], ops_b: Sequence[Operation]
    ) -> tuple[list[Pair], list[Operation], list[Operation]]:
        """Return the pairs of operators of one type in matched modules, and the unmatched operators of A and of B."""
        pairs: list[Pair] = []
        gaps = [(list(ops_a), list(ops_b))]
        for rule, key in self._rules():
            if rule is Rule.MODULE:
                gaps = self._unique(self._in_order(gaps, key, rule, pairs), key, rule, pairs)
                gaps = self._same_inputs(gaps, pairs)
        return pairs, [op for gap, _ in gaps for op in gap], [op for _, gap in gaps for op in gap]

    def _rules(self) -> list[tuple[Rule, Callable[[Operation, int], Hashable | None]]]:
        return [
            (Rule.MAPPING, self._mapped),
            (Rule.NAME, lambda op, side: (op.name, values_key) if (values_key := self._values(op, side)) else None),
            (Rule.VALUES, self._values),
            (Rule.NAME, lambda op, _: (op.name, self._shape(op, _))),
            (Rule.NAME_WITHOUT_COUNTERS, lambda op, _: (_COUNTER.sub("", op.name), self._shape(op, _))),
            (Rule.MODULE, lambda op, side: (self._module(op, side), self._shape(op, side))),
            (Rule.MODULE, self._updated),
            (Rule.STRUCTURE, lambda op, side: (self._type(op, side), self._shape(op, side))),
            # Same name, different shapes: the operator was changed. Shapes of gradients only follow from that.
            (Rule.NAME, lambda op, _: op.name if op.phase is not Phase.BACKWARD else None),
        ]

    def _mapped(self, op: Operation, side: int) -> Hashable | None:
        """Return B's name of an operator that the user's mapping names."""
        if side == 1:
            return op.name if op.name in self._mapped_to else None
        return self._mapping.get(op.name)

    @cached_property
    def _mapped_to(self) -> frozenset[str]:
        return frozenset(self._mapping.values())

    def _updated(self, op: Operation, side: int) -> Hashable | None:
        """Return B's name of the weight that an optimizer's operator writes, since names of such operators vary."""
        written = [slot.name for slot in op.outputs if slot.is_parameter]
        if op.phase is not Phase.UPDATE or not written:
            return None
        if side == 1:
            return ("updates", min(written, key=len))
        counterpart = self._parameters.get(min(written, key=len))
        return None if counterpart is None else ("updates", counterpart[0])

    def _module(self, op: Operation, side: int) -> Hashable:
        scope = self._scopes.of_a(op.node.scope) if side == 0 else op.node.scope
        return (scope_in_program(scope), self._type(op, side))

    def _type(self, op: Operation, side: int) -> str:
        """Return an operator's framework-independent type; all module calls of containers have the same."""
        is_container = op.type[:1].isupper() and op.node.scope in self._containers[side]
        if is_container and self._runs[side].analysis.dump.metadata.by_agent:
            return "container grad" if op.type.endswith("Grad") else "container"
        return comparable_type(op.type)

    def _shape(self, op: Operation, side: int) -> Hashable:
        """Return the shapes of an operator's outputs; running statistics are named differently, and counted."""
        run = self._runs[side]
        outputs = [slot for slot in op.outputs if not slot.is_parameter] or op.outputs
        shapes = (run.shape(slot.row) for slot in outputs if slot.row != NO_ROW)
        return tuple(tuple(sorted(shape)) for shape in shapes)

    def _values(self, op: Operation, side: int) -> Hashable | None:
        """Return the hashes of an operator's outputs, if these distinguish it from other operators."""
        run = self._runs[side]
        rows = [slot.row for slot in op.outputs if slot.row != NO_ROW]
        if not rows or any(run.table.rows["count"][row] < 8 or run.table.rows["std"][row] == 0 for row in rows):
            return None
        hashes = tuple(run.content_hash(row) for row in rows)
        if not all(hashes):
            return None
        return (self._type(op, side), hashes, self._shape(op, side))

    def _in_order(
        self,
        gaps: list[tuple[list[Operation], list[Operation]]],
        key: Callable[[Operation, int], Hashable | None],
        rule: Rule,
        pairs: list[Pair],
    ) -> list[tuple[list[Operation], list[Operation]]]:
        left: list[tuple[list[Operation], list[Operation]]] = []
        for ops_a, ops_b in gaps:
            if not ops_a or not ops_b or max(len(ops_a), len(ops_b)) > _LONGEST_DIFF:
                left.append((ops_a, ops_b))
                continue
            keys_a, keys_b = _keys(ops_a, 0, key), _keys(ops_b, 1, key)
            at_a = at_b = 0
            for block in SequenceMatcher(None, keys_a, keys_b, autojunk=False).get_matching_blocks():
                for offset in range(block.size):
                    a, b = ops_a[block.a + offset], ops_b[block.b + offset]
                    if rule is Rule.STRUCTURE and not self._is_evident(a, b):
                        continue
                    left.append((ops_a[at_a : block.a + offset], ops_b[at_b : block.b + offset]))
                    at_a, at_b = block.a + offset + 1, block.b + offset + 1
                    self._pair(a, b, rule, pairs)
            left.append((ops_a[at_a:], ops_b[at_b:]))
        return [gap for gap in left if gap[0] or gap[1]]

    def _pair(self, a: Operation, b: Operation, rule: Rule, pairs: list[Pair]) -> None:
        pairs.append(Pair(a, b, rule))
        self._b_of[a.name] = b.name

    def _is_evident(self, a: Operation, b: Operation) -> bool:
        """Return whether two operators of one type and shape have the same inputs or nearly equal outputs."""
        if len(a.inputs) == len(b.inputs):
            matches = [
                (self._parameters[slot_a.name][0] if slot_a.is_parameter else self._b_of[slot_a.name]) == slot_b.name
                for slot_a, slot_b in zip(a.inputs, b.inputs, strict=True)
                if slot_a.name in (self._parameters if slot_a.is_parameter else self._b_of)
            ]
            if matches:
                return all(matches)
        run_a, run_b = self._runs
        for slot_a, slot_b in zip(a.outputs, b.outputs, strict=False):
            diff = difference(run_a, slot_a.row, run_b, slot_b.row, only_statistics=True)
            if diff is not None and diff.relative < _NEAR:
                return True
        return False

    def _unique(
        self,
        gaps: list[tuple[list[Operation], list[Operation]]],
        key: Callable[[Operation, int], Hashable | None],
        rule: Rule,
        pairs: list[Pair],
    ) -> list[tuple[list[Operation], list[Operation]]]:
        """Match operators that ran in a different order, if their keys are unique."""
        by_a = _once([op for gap, _ in gaps for op in gap], 0, key)
        by_b = _once([op for _, gap in gaps for op in gap], 1, key)
        matched = sorted(
            ((by_a[unique_key], by_b[unique_key]) for unique_key in by_a.keys() & by_b.keys()),
            key=lambda both: both[0].position,
        )
        for op_a, op_b in matched:
            self._pair(op_a, op_b, rule, pairs)
        taken = {op for both in matched for op in both}
        return [([op for op in a if op not in taken], [op for op in b if op not in taken]) for a, b in gaps]

    def _same_inputs(
        self, gaps: list[tuple[list[Operation], list[Operation]]], pairs: list[Pair]
    ) -> list[tuple[list[Operation], list[Operation]]]:
        """Match operators of one type that read the same tensors, in order of execution, so that matches propagate.

        If several operators of one type have the same inputs, their scopes, and their names without counters, must be
        equal, too.
        """
        readers_a, readers_b = _Readers(), _Readers()
        for ops_a, ops_b in gaps:
            for op in ops_a:
                readers_a.add(op, self._type(op, 0), self._shape(op, 0))
            for op in ops_b:
                readers_b.add(op, self._type(op, 1), self._shape(op, 1))
        taken = set()
        for (kind, shape, inputs), group_a in readers_a.groups.items():
            inputs_b = self._inputs_in_b(inputs)
            group_b = [] if inputs_b is None else readers_b.groups.get((kind, shape, inputs_b), [])
            if len(group_a) != len(group_b) or (len(group_a) > 1 and not self._are_named_alike(group_a, group_b)):
                continue
            for a, b in zip(group_a, group_b, strict=True):
                self._pair(a, b, Rule.INPUTS, pairs)
                taken |= {a, b}
        return [([op for op in a if op not in taken], [op for op in b if op not in taken]) for a, b in gaps]

    def _inputs_in_b(self, inputs: _Inputs) -> _Inputs | None:
        """Return B's names of an operator's inputs; None if it has no inputs, or one has no counterpart."""
        inputs_b = []
        for name, index, is_parameter in inputs:
            name_b = self._parameters.get(name, ("",))[0] if is_parameter else self._b_of.get(name)
            if not name_b:
                return None
            inputs_b.append((name_b, index, is_parameter))
        return tuple(inputs_b) or None

    def _are_named_alike(self, group_a: list[Operation], group_b: list[Operation]) -> bool:
        names_a, names_b = (
            [_COUNTER.sub("", op.name.rpartition("/")[2]) for op in group] for group in (group_a, group_b)
        )
        scopes = [self._scopes.of_a(op.node.scope) for op in group_a]
        return names_a == names_b and scopes == [op.node.scope for op in group_b]


_Inputs = tuple[tuple[str, int, bool], ...]


class _Readers:
    """Operators by their type, the shapes of their outputs, and their inputs."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, Hashable, _Inputs], list[Operation]] = defaultdict(list)

    def add(self, op: Operation, kind: str, shape: Hashable) -> None:
        """Add an operator."""
        inputs = tuple((slot.name, slot.index, slot.is_parameter) for slot in op.inputs)
        self.groups[kind, shape, inputs].append(op)


def _keys(ops: Sequence[Operation], side: int, key: Callable[[Operation, int], Hashable | None]) -> list[Hashable]:
    """Return the keys of operators; an operator without a key gets a unique one."""
    return [op_key if (op_key := key(op, side)) is not None else (side, index) for index, op in enumerate(ops)]


def precisions(run_a: RunToCompare, run_b: RunToCompare, pairs: Sequence[Pair]) -> tuple[str, str] | None:
    """Return the element types of most matrix products of A and of B, if these differ.

    Parameters
    ----------
    run_a, run_b : RunToCompare
    pairs : sequence of Pair
        Pairs of one step.

    Returns
    -------
    tuple of (str, str) or None
        None if the types are the same, or no combination of types has a majority.
    """
    types = Counter(
        (run_a.dtype(pair.a.outputs[0].row), run_b.dtype(pair.b.outputs[0].row))
        for pair in pairs
        if comparable_type(pair.a.type) in MIXED_PRECISION_PRODUCTS
        and all(op.outputs and op.outputs[0].row != NO_ROW for op in (pair.a, pair.b))
    )
    most = types.most_common(1)
    if not most or most[0][0][0] == most[0][0][1] or most[0][1] * 2 <= types.total():
        return None
    return most[0][0]


def _last_number(run: RunToCompare, step: Step) -> Operation | None:
    """Return the last operator of the forward pass whose first output is a floating-point scalar."""
    backward = min((op.position for op in step.operations if op.phase is Phase.BACKWARD), default=len(step.operations))
    for op in reversed(step.operations[:backward]):
        row = op.outputs[0].row if op.outputs else NO_ROW
        if run.is_known(row) and run.table.rows["count"][row] == 1 and run.dtype(row) in UNIT_ROUNDOFF:
            return op
    return None


def _containers(ops: Sequence[Operation]) -> frozenset[str]:
    """Return the scopes whose nested scopes contain operators."""
    scopes = set()
    for op in ops:
        scope = op.node.scope
        while "/" in scope:
            scope = scope.rpartition("/")[0]
            scopes.add(scope)
    return frozenset(scopes)


def _once(
    ops: Sequence[Operation], side: int, key: Callable[[Operation, int], Hashable | None]
) -> dict[Hashable, Operation]:
    """Return the operators with unique keys."""
    groups: dict[Hashable, list[Operation]] = defaultdict(list)
    for op in ops:
        op_key = key(op, side)
        if op_key is not None:
            groups[op_key].append(op)
    return {op_key: group[0] for op_key, group in groups.items() if len(group) == 1}
