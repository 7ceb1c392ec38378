"""Comparison of the set-ups of two trainings: whether a difference can change results, only rounding, or neither.

The descriptions come from `tensight.agents.setup`. They are untrusted, so nothing about their form is assumed.
"""

from __future__ import annotations

import fnmatch
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tensight.compare.renamed_setups import with_names_of
from tensight.compare.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MOST_NAMES = 5
"""Number of names that a difference lists; the total is always given."""

MOST_DIFFERENCES = 1000
LONGEST_VALUE = 200
_DEEPEST = 6
_FORMAT = 1
_STD_RATIO = 1.05
_LARGEST = 1e300


class Importance(Enum):
    """The possible effect of a difference."""

    RESULTS = "can change results"
    ROUNDING = "can change rounding"
    REST = "changes no result by itself"


@dataclass(frozen=True, slots=True)
class SetupDifference:
    """A difference between two set-ups.

    Attributes
    ----------
    importance : Importance
    part : str
        Part of the set-up, such as ``initial weights``.
    what : str
        What differs, with the names that it concerns.
    a, b : str
        The values; empty if `what` is sufficient.
    """

    importance: Importance
    part: str
    what: str
    a: str = ""
    b: str = ""

    def __str__(self) -> str:
        """Return the difference in one line."""
        return f"{self.what}: {self.a} in A, {self.b} in B" if self.a or self.b else self.what


@dataclass(frozen=True, slots=True)
class SetupComparison:
    """The result of comparing two set-ups.

    Attributes
    ----------
    verdict : Verdict
    sentence : str
    differences : tuple of SetupDifference
        The most important first.
    equal : tuple of str
        Parts that both recorded and that are equal.
    not_recorded : tuple of str
        Parts that at least one of them did not record.
    """

    verdict: Verdict
    sentence: str
    differences: tuple[SetupDifference, ...]
    equal: tuple[str, ...]
    not_recorded: tuple[str, ...]

    def as_data(self) -> dict[str, object]:
        """Return the comparison as JSON data."""
        return {
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "differences": [
                {
                    "importance": difference.importance.name.lower(),
                    "part": difference.part,
                    "what": difference.what,
                    "a": difference.a,
                    "b": difference.b,
                }
                for difference in self.differences
            ],
            "equal": list(self.equal),
            "not_recorded": list(self.not_recorded),
        }


class _Part(NamedTuple):
    """A part of a set-up.

    Attributes
    ----------
    name : str
    key : str
        Key in the description, or in that of each model.
    of_models : bool
        Whether each model has this part.
    differences : callable
        Yields the differences between the contents of two descriptions.
    """

    name: str
    key: str
    of_models: bool
    differences: Callable[[object, object], Iterator[SetupDifference]]


def compare_setups(a: Mapping[str, object], b: Mapping[str, object]) -> SetupComparison:
    """Compare the set-ups of two trainings.

    Parameters
    ----------
    a, b : mapping
        As `tensight.agents.setup.describe` returns.

    Returns
    -------
    SetupComparison
    """
    formats = [entry.get("format") for entry in (a, b)]
    if any(isinstance(number, int) and number > _FORMAT for number in formats):
        return _not_comparable("a newer version of Tensight has written one of the descriptions; update this one")
    a, renamed = with_names_of(a, b)
    a, b = _with_modes(a), _with_modes(b)
    differences: list[SetupDifference] = []
    equal: list[str] = []
    not_recorded: list[str] = []
    for part in _PARTS:
        sides = [_content(entry, part) for entry in (a, b)]
        if None in sides:
            missing = "A and B" if sides == [None, None] else "A" if sides[0] is None else "B"
            not_recorded.append(f"{part.name} ({missing})")
            continue
        part_differences = list(part.differences(*sides))
        differences += part_differences[:MOST_DIFFERENCES]
        if not part_differences:
            equal.append(part.name)
    if not equal and not differences:
        return _not_comparable("the descriptions have no part in common")
    differences = _weighed(a, b, differences, equal)
    # Sorting keeps the order of the parts.
    differences.sort(key=lambda difference: list(Importance).index(difference.importance))
    matters = any(difference.importance is not Importance.REST for difference in differences)
    return SetupComparison(
        verdict=Verdict.DIFFERENT if matters else Verdict.SAME,
        sentence=_sentence(differences) + _renamed_text(renamed),
        differences=tuple(differences),
        equal=tuple(equal),
        not_recorded=tuple(not_recorded),
    )


def _renamed_text(renamed: int) -> str:
    if not renamed:
        return ""
    return f" {renamed:,} weights have other names in B; they were found by their values, and B's names are shown."


def _not_comparable(why: str) -> SetupComparison:
    return SetupComparison(Verdict.NOT_COMPARABLE, f"Not comparable: {why}.", (), (), ())


def _sentence(differences: Sequence[SetupDifference]) -> str:
    def parts(importance: Importance) -> str:
        return ", ".join(
            dict.fromkeys(difference.part for difference in differences if difference.importance is importance)
        )

    results, rounding, rest = (parts(importance) for importance in Importance)
    if results:
        more = f"; rounding can differ by: {rounding}" if rounding else ""
        return f"Different in what can change results: {results}{more}."
    if rounding:
        return f"Different in what can change rounding only: {rounding}."
    more = f" Different without a consequence for results: {rest}." if rest else ""
    return f"Same: nothing that was recorded and can change results differs.{more}"


def _weighed(
    a: Mapping[str, object], b: Mapping[str, object], differences: list[SetupDifference], equal: Sequence[str]
) -> list[SetupDifference]:
    """Return the differences, with those of random generators as `REST` if nothing known still draws from them."""
    if not {"initial weights", "first batches"} <= set(equal):
        return differences
    layers = [
        layer
        for entry in (a, b)
        for model in _list(entry.get("models"))
        for layer in _list(_mapping(model).get("random_layers"))
    ]
    draws = any(_draws(layer) for layer in layers)
    why = "weights and first batches agree, no random layer " + ("draws from it" if draws else "is known")
    return [
        replace(difference, importance=Importance.REST, what=f"{difference.what} ({why})")
        # Layers draw from the generators of their framework.
        if difference.part == "generators" and (not draws or difference.what in _NOT_OF_LAYERS)
        else difference
        for difference in differences
    ]


_NOT_OF_LAYERS = ("python", "numpy")
_RATES = ("p", "drop_prob", "drop", "drop_rate", "dropout", "attention_dropout")


def _draws(layer: object) -> bool:
    """Whether a random layer may draw numbers: not if its rate is 0."""
    rates = [rate for key, rate in _mapping(layer).items() if key in _RATES or "dropout" in key]
    return not rates or any(rate != 0 for rate in rates)


def _with_modes(description: Mapping[str, object]) -> Mapping[str, object]:
    """Return a description in which each model has its mode in one place."""
    models: list[object] = []
    for content in _list(description.get("models")):
        model = _mapping(content)
        mode = {key: model[key] for key in ("training", "modules_in_evaluation") if model.get(key) is not None}
        layers = [_mapping(layer) for key in ("batch_norms", "random_layers") for layer in _list(model.get(key))]
        evaluating = [f"{layer.get('name')} {layer.get('class')}" for layer in layers if layer.get("training") is False]
        if mode:
            model = {**model, "mode": {**mode, _LAYERS_IN_EVALUATION: sorted(evaluating)}}
        models.append(model)
    return {**description, "models": models} if models else description


_LAYERS_IN_EVALUATION = "modules with dropout or batch norm in evaluation mode"


def _modes(a: object, b: object) -> Iterator[SetupDifference]:
    """Yield the differences of modes; of layers that compute otherwise in training, by name."""
    left, right = _mapping(a), _mapping(b)
    for name in sorted({*left, *right}):
        values = left.get(name, _ABSENT), right.get(name, _ABSENT)
        if values[0] != values[1]:
            is_list = name.endswith(_LAYERS_IN_EVALUATION)
            texts = (_layers(value) if is_list else _given(value) for value in values)
            yield SetupDifference(Importance.RESULTS, "mode of the model", name[:LONGEST_VALUE], *texts)


def _layers(names: object) -> str:
    texts = [str(name) for name in _list(names)]
    return f"{len(texts):,} ({_names(texts)})" if texts else "none"


# --- reading untrusted descriptions ---


def _mapping(content: object) -> Mapping[str, object]:
    return content if isinstance(content, dict) else {}


def _list(content: object) -> Sequence[object]:
    return content if isinstance(content, list) else ()


def _content(description: Mapping[str, object], part: _Part) -> object:
    """Return the content of a part, merged from all models; None if the description lacks it."""
    if not part.of_models:
        content = description.get(part.key)
        is_left_out = any(str(what).startswith(f"{part.key}:") for what in _list(description.get("left_out")))
        return None if content == {} and is_left_out else content
    models = [_mapping(model) for model in _list(description.get("models"))]
    contents = [model[part.key] for model in models if model.get(part.key) is not None]
    if not contents:
        return None
    if all(isinstance(content, list) for content in contents):
        return [entry for content in contents for entry in _list(content)]
    merged: dict[str, object] = {}
    for number, content in enumerate(contents, 1):
        prefix = f"model {number}: " if len(contents) > 1 else ""
        entries = content if isinstance(content, dict) else {part.key: content}
        merged |= {f"{prefix}{name}": entry for name, entry in entries.items()}
    return merged


def _text(value: object) -> str:
    """Return a value as text."""
    if value is None:
        return "none"
    if isinstance(value, dict):
        text = ", ".join(f"{key} {_text(entry)}" for key, entry in list(value.items())[:20])
    elif isinstance(value, list):
        text = "[" + ", ".join(_text(entry) for entry in value[:20]) + "]"
    elif isinstance(value, float):
        text = f"{value:.7g}"
    else:
        text = str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _names(names: Sequence[str]) -> str:
    """Return the first names and, if there are more, their number."""
    shown = ", ".join(name[:LONGEST_VALUE] or "(the model)" for name in names[:MOST_NAMES])
    return shown + (f", … ({len(names):,})" if len(names) > MOST_NAMES else "")


def _flat(content: object, prefix: str = "", depth: int = 0) -> dict[str, object]:
    """Flatten a nested mapping, with dots between the names."""
    result: dict[str, object] = {}
    for key, value in _mapping(content).items():
        if isinstance(value, dict) and depth < _DEEPEST:
            result |= _flat(value, f"{prefix}{key}.", depth + 1)
        else:
            result[f"{prefix}{key}"] = value
    return result


_ABSENT = object()


def _entries(
    part: str, importance: Callable[[str], Importance]
) -> Callable[[object, object], Iterator[SetupDifference]]:
    """Return a function that compares two mappings entry by entry."""

    def differences(a: object, b: object) -> Iterator[SetupDifference]:
        left, right = _flat(a), _flat(b)
        for name in sorted({*left, *right}):
            values = left.get(name, _ABSENT), right.get(name, _ABSENT)
            if values[0] != values[1]:
                texts = ("not set" if value is _ABSENT else _text(value) for value in values)
                yield SetupDifference(importance(name), part, name[:LONGEST_VALUE], *texts)

    return differences


def _always(importance: Importance) -> Callable[[str], Importance]:
    return lambda name: importance  # noqa: ARG005 - whatever the name is


# --- weights, batches, layers ---


def _only_in_one(
    part: str, noun: str, left: Mapping[str, object], right: Mapping[str, object]
) -> Iterator[SetupDifference]:
    for mine, other, side in ((left, right, "A"), (right, left, "B")):
        names = [name for name in mine if name not in other]
        if names:
            what = f"{_amount(len(names), noun)} only in {side} ({_names(names)})"
            yield SetupDifference(Importance.RESULTS, part, what)


def _by_values(
    part: str, importance: Importance, pairs: Mapping[str, tuple[object, object]], what: Callable[[list[str]], str]
) -> Iterator[SetupDifference]:
    """Yield one difference for each distinct pair of values, with all names that have it.

    Parameters
    ----------
    part : str
    importance : Importance
    pairs : mapping of str to (object, object)
        Values of A and B by name; equal values are skipped.
    what : callable
        Returns the text of `SetupDifference.what` for names.
    """
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, (first, second) in pairs.items():
        if first != second:
            groups[_given(first), _given(second)].append(name)
    for (first_text, second_text), names in groups.items():
        yield SetupDifference(importance, part, what(names), first_text, second_text)


def _given(value: object) -> str:
    return "not set" if value is _ABSENT else _text(value)


def _tensors(part: str) -> Callable[[object, object], Iterator[SetupDifference]]:
    """Return a function that compares parameters or buffers by name."""
    noun = "weight" if part == "initial weights" else "buffer"

    def differences(a: object, b: object) -> Iterator[SetupDifference]:
        left, right = _mapping(a), _mapping(b)
        yield from _only_in_one(part, noun, left, right)
        common = [name for name in left if name in right]
        for key in ("shape", "dtype", "requires_grad", "device"):
            importance = Importance.ROUNDING if key == "device" else Importance.RESULTS
            pairs = {name: (_mapping(left[name]).get(key), _mapping(right[name]).get(key)) for name in common}
            yield from _by_values(part, importance, pairs, partial(_attribute_of, key, noun))
        agreements = {name: _hashes_agree(left[name], right[name]) for name in common}
        compared = [name for name, agree in agreements.items() if agree is not None]
        changed = [name for name in compared if not agreements[name]]
        unknown = [name for name in common if agreements[name] is None and _is_alike(left[name], right[name])]
        if unknown:
            what = f"the values of {_amount(len(unknown), noun)} were not recorded, so not compared ({_names(unknown)})"
            yield SetupDifference(Importance.REST, part, what)
        if changed:
            share = (
                f"all {len(compared):,}" if len(changed) == len(compared) else f"{len(changed):,} of {len(compared):,}"
            )
            what = f"the values of {share} {noun}s differ ({_names(changed)}){_spreads(changed, left, right)}"
            yield SetupDifference(Importance.RESULTS, part, what)

    return differences


def _attribute_of(key: str, noun: str, names: list[str]) -> str:
    return f"{key} of {_amount(len(names), noun)} ({_names(names)})"


def _amount(amount: int, noun: str) -> str:
    return f"{amount:,} {noun}" + ("" if amount == 1 else "s")


def _is_alike(a: object, b: object) -> bool:
    """Whether two tensors have the same dtype and shape."""
    left, right = _mapping(a), _mapping(b)
    return left.get("dtype") == right.get("dtype") and left.get("shape") == right.get("shape")


def _hashes_agree(a: object, b: object) -> bool | None:
    """Whether the hashes of two tensors agree; None where they cannot be compared."""
    left, right = _mapping(a), _mapping(b)
    if not _is_alike(a, b):
        return None
    for key in ("hash", "sampled_hash"):
        if key in left and key in right:
            return bool(left[key] == right[key])
    return None


def _number(value: object) -> float:
    """Return a value as a float; NaN if it is not a number, or too large."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < _LARGEST else math.nan


def _spreads(names: Sequence[str], left: Mapping[str, object], right: Mapping[str, object]) -> str:
    """Return the tensors whose standard deviations also differ, which indicates a different initializer, as text."""
    deviations = []
    for name in names:
        first, second = (_number(_mapping(side[name]).get("std")) for side in (left, right))
        if max(first, second) > _STD_RATIO * min(first, second):
            deviations.append(f"{name[:LONGEST_VALUE]} {first:.3g} and {second:.3g}")
    return f"; their standard deviations do, too: {_names(deviations)}" if deviations else ""


def _attributes(part: str) -> Callable[[object, object], Iterator[SetupDifference]]:
    """Return a function that compares the attributes of modules by name; modules with the same values are grouped."""

    def differences(a: object, b: object) -> Iterator[SetupDifference]:
        left, right = _by_name(a), _by_name(b)
        yield from _only_in_one(part, "layer", left, right)
        common = [name for name in left if name in right]
        keys = {key: None for name in common for side in (left, right) for key in _mapping(side[name])}
        for key in keys:
            pairs = {
                name: (_mapping(left[name]).get(key, _ABSENT), _mapping(right[name]).get(key, _ABSENT))
                for name in common
            }
            yield from _by_values(
                part, Importance.RESULTS, pairs, partial(_attribute_of, str(key)[:LONGEST_VALUE], "layer")
            )

    return differences


def _by_name(content: object) -> Mapping[str, object]:
    """Return layers by name, from a mapping or from a list of layers with names."""
    if isinstance(content, list):
        return {str(_mapping(layer).get("name")): layer for layer in content}
    return _mapping(content)


def _tied(a: object, b: object) -> Iterator[SetupDifference]:
    left, right = ({tuple(sorted(map(str, _list(names)))) for names in _list(side)} for side in (a, b))
    for only, side, other in ((left - right, "A", "B"), (right - left, "B", "A")):
        for names in sorted(only):
            what = f"{_names(names)} are one tensor in {side}, not in {other}"
            yield SetupDifference(Importance.RESULTS, "tied weights", what)


def _batches(a: object, b: object) -> Iterator[SetupDifference]:
    """Yield the differences in the first step whose inputs differ, and the number of later steps that differ."""
    part, left, right = "first batches", _list(a), _list(b)
    common = min(len(left), len(right))
    hashes = [[_batch_hash(batch) for batch in side[:common]] for side in (left, right)]
    is_known = None not in hashes[0] and None not in hashes[1]
    if is_known and hashes[0] != hashes[1] and sorted(map(str, hashes[0])) == sorted(map(str, hashes[1])):
        yield SetupDifference(Importance.RESULTS, part, f"the first {common:,} batches are the same in another order")
        return
    for step, (first, second) in enumerate(zip(left, right, strict=False), 1):
        input_differences = list(_inputs(step, first, second))
        yield from input_differences
        if not input_differences:
            continue
        later = sum(1 for at in range(step, common) if hashes[0][at] != hashes[1][at])
        if later:
            what = f"of the {common - step:,} recorded batches after step {step}, {later:,} differ, too"
            yield SetupDifference(Importance.RESULTS, part, what)
        return


def _batch_hash(batch: object) -> tuple[object, ...] | None:
    hashes = tuple(_mapping(model_input).get("hash") for model_input in _list(batch))
    return None if not hashes or None in hashes else hashes


def _inputs(step: int, a: object, b: object) -> Iterator[SetupDifference]:
    part, left, right = "first batches", _by_name(a), _by_name(b)
    yield from _only_in_one(part, f"input of step {step}", left, right)
    for name in (name for name in left if name in right):
        first, second = _mapping(left[name]), _mapping(right[name])
        where = f"of input {name[:LONGEST_VALUE]} of step {step}"
        for key in ("shape", "dtype"):
            if first.get(key) != second.get(key):
                texts = (_text(side.get(key)) for side in (first, second))
                yield SetupDifference(Importance.RESULTS, part, f"{key} {where}", *texts)
        if _hashes_agree(first, second) is False:
            texts = (
                f"{_text(side.get('min'))} to {_text(side.get('max'))} with mean {_text(side.get('mean'))}"
                for side in (first, second)
            )
            yield SetupDifference(Importance.RESULTS, part, f"values {where}", *texts)


# --- optimizers ---

_HOW_IT_COMPUTES = frozenset({"foreach", "fused", "capturable", "differentiable", "initial_lr"})
"""Settings of an optimizer's implementation, which change rounding at most."""


def _optimizers(a: object, b: object) -> Iterator[SetupDifference]:
    """Yield the differences between optimizers, with hyper-parameters compared per parameter, not per group."""
    part, left, right = "optimizer", _list(a), _list(b)
    if len(left) != len(right):
        yield SetupDifference(Importance.RESULTS, part, "number of optimizers", str(len(left)), str(len(right)))
    for number, (first, second) in enumerate(zip(map(_mapping, left), map(_mapping, right), strict=False), 1):
        where = f" of optimizer {number}" if len(left) > 1 else ""
        for key, what in (("class", "class"), ("parameters_with_state", "parameters that have a state already")):
            if first.get(key) != second.get(key):
                texts = (_text(side.get(key)) for side in (first, second))
                yield SetupDifference(Importance.RESULTS, part, f"{what}{where}", *texts)
        settings = [_settings_of_parameters(optimizer) for optimizer in (first, second)]
        yield from _only_in_one(part, f"updated parameter{where}", *settings)
        yield from _settings(part, where, *settings)


def _settings_of_parameters(optimizer: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """Return the settings by parameter name; by group number for groups whose parameters have no names."""
    result: dict[str, Mapping[str, object]] = {}
    for number, content in enumerate(_list(optimizer.get("groups")), 1):
        group = _mapping(content)
        settings = _mapping(group.get("settings"))
        names = [name for name in _list(group.get("parameters")) if isinstance(name, str)]
        for name in names or [f"group {number}"]:
            result[name] = settings
    return result


def _settings(
    part: str, where: str, left: Mapping[str, Mapping[str, object]], right: Mapping[str, Mapping[str, object]]
) -> Iterator[SetupDifference]:
    common = [name for name in left if name in right]
    for key in {key: None for name in common for side in (left, right) for key in side[name]}:
        pairs = {name: (left[name].get(key, _ABSENT), right[name].get(key, _ABSENT)) for name in common}
        importance = Importance.ROUNDING if key in _HOW_IT_COMPUTES else Importance.RESULTS
        yield from _by_values(
            part, importance, pairs, partial(_setting_of, f"{key[:LONGEST_VALUE]}{where}", len(common))
        )


def _setting_of(what: str, amount: int, names: list[str]) -> str:
    return what if len(names) == amount else f"{what} of {_amount(len(names), 'parameter')} ({_names(names)})"


def _schedulers(a: object, b: object) -> Iterator[SetupDifference]:
    left, right = _list(a), _list(b)
    if len(left) != len(right):
        yield SetupDifference(Importance.RESULTS, "schedule", "number of schedulers", str(len(left)), str(len(right)))
    for first, second in zip(left, right, strict=False):
        yield from _entries("schedule", _always(Importance.RESULTS))(first, second)


# --- the rest ---

_HARMLESS_VARIABLES = (
    "*CACHE*", "*DEBUG*", "*HOME*", "*_DIR", "*PATH*", "*LOG*", "*VERBOS*", "*ENDPOINT*", "*PORT", "*ADDR*", "*IFNAME*",
    "*TIMEOUT*", "TENSIGHT_*", "HF_*", "RANK", "RANK_ID", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK",
    "TOKENIZERS_PARALLELISM", "*VISIBLE_DEVICES", "*PROGRESS*", "TORCHELASTIC_*", "*TELEMETRY*",
)  # fmt: skip


def _importance_of_variable(name: str) -> Importance:
    is_harmless = any(fnmatch.fnmatchcase(name, pattern) for pattern in _HARMLESS_VARIABLES)
    return Importance.REST if is_harmless else Importance.ROUNDING


def _importance_of_flag(name: str) -> Importance:
    if name in ("default_dtype", "autocast", "grad_enabled", "fill_uninitialized_memory"):
        return Importance.RESULTS
    return Importance.REST if name in ("anomaly_detection", "deterministic_warn_only") else Importance.ROUNDING


def _importance_in_process(name: str) -> Importance:
    return {"world_size": Importance.RESULTS, "cores": Importance.ROUNDING}.get(name, Importance.REST)


def _importance_in_framework(name: str) -> Importance:
    if name in ("name", "world_size"):
        return Importance.RESULTS
    return Importance.REST if name == "rank" else Importance.ROUNDING


def _importance_of_package(name: str) -> Importance:
    return Importance.REST if name == "tensight" else Importance.ROUNDING


_PARTS: tuple[_Part, ...] = (
    _Part("initial weights", "parameters", True, _tensors("initial weights")),
    _Part("buffers", "buffers", True, _tensors("buffers")),
    _Part("tied weights", "tied", True, _tied),
    _Part("first batches", "batches", False, _batches),
    _Part("model", "modules", True, _attributes("model")),
    _Part(
        "configuration of the model",
        "config",
        True,
        _entries("configuration of the model", _always(Importance.RESULTS)),
    ),
    _Part("mode of the model", "mode", True, _modes),
    _Part("random layers", "random_layers", True, _attributes("random layers")),
    _Part("optimizer", "optimizers", False, _optimizers),
    _Part("schedule", "schedulers", False, _schedulers),
    _Part("generators", "random", False, _entries("generators", _always(Importance.RESULTS))),
    _Part("flags", "flags", False, _entries("flags", _importance_of_flag)),
    _Part("framework", "framework", False, _entries("framework", _importance_in_framework)),
    _Part("packages", "packages", False, _entries("packages", _importance_of_package)),
    _Part("processes", "process", False, _entries("processes", _importance_in_process)),
    _Part("threads", "threads", False, _entries("threads", _always(Importance.ROUNDING))),
    _Part("environment", "environment", False, _entries("environment", _importance_of_variable)),
    _Part("Python", "python", False, _entries("Python", _always(Importance.ROUNDING))),
)
