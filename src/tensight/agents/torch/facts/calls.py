"""Follows the calls of outermost models in a step: what they are given, and what becomes of what they put out."""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from tensight.agents.core.call_stack import call_of_user
from tensight.agents.facts.calls import MOST_INPUTS, note_ranges
from tensight.agents.facts.samples import MOST_ELEMENTS, fingerprint, shape_text
from tensight.agents.torch.discovery import weights_of
from tensight.agents.torch.facts.autograd_functions import inputs_of
from tensight.agents.torch.facts.copies import is_name_of_target
from tensight.agents.torch.facts.lines import DropLines
from tensight.agents.torch.facts.reading import (
    array_of,
    deviation_between_samples,
    part_of,
    plain,
    readable_tensors,
    sample,
    storage_key,
    strided_tensors,
    weak_storage,
)
from tensight.agents.torch.inner_modules import held_tensors, inner_modules, is_in_training, own_tensor
from tensight.agents.torch.modules import is_compiled_somewhere

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch.multiprocessing.reductions import StorageWeakRef

    from tensight.agents.eager.names import Names
    from tensight.agents.torch.parameters import Parameters

MOST_OUTPUTS = 256
"""Number of calls of a model in a step whose outputs are followed to the loss."""

MOST_EVALUATIONS = 8
"""Number of evaluations of a step in which functions that drop elements are looked for."""

_MOST_LATER = 3
"""Number of further inputs of words, as of a decoder."""

_MOST_FOLLOWED, _MOST_TEXTS = 2000, 8
"""Number of calls whose names in the script are looked up, and of such names of a model."""

_LEAST_ROWS = 4
"""Number of samples from which on a batch of equal halves is none by chance."""

_LEAST_SIDE, _MOST_CHANNELS, _LEAST_TIMES, _FEW_ELEMENTS = 8, 16, 64, 32
"""Of pictures and of signals, from which on one without content is none by chance; elements compared at first."""

_BEHIND_OUTPUT = 12
"""Number of functions between a loss function and the output of a model that are followed."""

_CAUSAL = re.compile("(?<!Masked)LM(?![a-z])|GPT|Causal|Language")


class Calls:
    """The calls of outermost models since the step before.

    Parameters
    ----------
    names : Names
    parameters : Parameters

    Attributes
    ----------
    ids : Tensor or None
        The first ids of words that a model was given.
    later_ids : list of Tensor
        Further ones, as those of a decoder.
    mask : Tensor or None
        Which of the ids count.
    samples : Tensor or None
        The first samples that a trained model was given, if they are vectors or sequences of vectors.
    empty : ndarray of bool, shape (samples,), or None
        Which samples have one value everywhere, if a trained model is given pictures or signals and nothing else.
    put_out : dict of int to Tensor
        What models have put out, by the sequence numbers of the functions that made it.
    reached : set of int
        The sequence numbers of the functions to which losses lead.
    """

    def __init__(self, names: Names, parameters: Parameters) -> None:
        self._names = names
        self._parameters = parameters
        self._labels: dict[str, str] = {}
        self._called_as: dict[str, str] = {}
        self._texts: dict[str, dict[tuple[str, str], str]] = {}
        self._followed = 0
        self._drops = DropLines()
        self.begin_step()

    def begin_step(self) -> None:
        """Forget the calls of a step."""
        self._rows: dict[str, dict[str, Any]] = {}
        self._unread_inputs: list[tuple[dict[str, Any], list[torch.Tensor]]] = []
        self._evaluated: dict[str, set[int]] = {}
        self._dropped: dict[str, set[int]] = {}
        self._evaluations = 0
        self._outputs: dict[str, list[set[int]]] = {}
        self._shapes: dict[str, str] = {}
        self._firsts: dict[str, tuple[torch.Size, torch.Size, int]] = {}
        self._storages: dict[int, tuple[StorageWeakRef, str]] = {}
        self._given_by: dict[int, tuple[str, bool]] = {}
        self.ids: torch.Tensor | None = None
        self.later_ids: list[torch.Tensor] = []
        self.mask: torch.Tensor | None = None
        self.samples: torch.Tensor | None = None
        self.empty: NDArray[np.bool_] | None = None
        self.put_out: dict[int, torch.Tensor] = {}
        self.reached: set[int] = set()

    def stop(self) -> None:
        """Look for no functions that drop elements any more."""
        self._drops.leave()

    def begins(self, module: nn.Module) -> None:
        """Note by which names the script calls a model, and from where first."""
        name = self._names.modules.get(id(module))
        if name is None or (self._followed >= _MOST_FOLLOWED and name.root.scope in self._called_as):
            return
        self._followed += 1
        text, function = call_of_user()
        self._called_as.setdefault(name.root.scope, text)
        texts = self._texts.setdefault(name.scope, {})
        if len(texts) < _MOST_TEXTS:
            texts.setdefault((function, text.partition(" ")[0]), text)

    def evaluation_begins(self, module: nn.Module) -> None:
        """Look for functions that drop elements, in the first evaluations of a step."""
        if self._evaluations < MOST_EVALUATIONS and not is_compiled_somewhere() and not _acts_in_training(module):
            self._evaluations += 1
            self._drops.line = ""
            self._drops.enter()

    def evaluation_fails(self) -> None:
        """End looking for them, if a call ended by an exception."""
        if self._drops.is_entered:
            self._drops.leave()

    def ended(
        self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], result: Any, *, reads: bool
    ) -> None:
        """Note a call of an outermost module with parameters.

        Parameters
        ----------
        module : Module
        arguments : tuple
        named : dict of str to object
        result : object
        reads : bool
            Whether more is read of this step than what costs next to nothing.
        """
        name = self._label(module)
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = {"name": name, "calls": 0, "with_gradients": 0, "in_training": 0}
            of_module = self._names.modules.get(id(module))
            if of_module is not None:
                models = [each for each in self._names.roots if each.module() is not None]
                target, other = _name_of_target(self._texts.get(of_module.scope, {}))
                called = other or self._called_as.get(of_module.root.scope, "")
                row |= {"model": models.index(of_module.root), "called": called, "also_called": target}
        if self._drops.is_entered:
            self._evaluation_ends(row, arguments, named)
        row["calls"] += 1
        row["is_training"] = is_in_training(module)
        row["is_causal"] = _CAUSAL.search(type(module).__name__) is not None
        has_gradients = torch.is_grad_enabled()
        row["with_gradients"] += has_gradients
        if not has_gradients and _acts_in_training(module):
            row["in_training"] += 1
            given = next(readable_tensors((*arguments[:1], *named.values(), *arguments[1:])), None)
            if given is not None and row["in_training"] < MOST_INPUTS:
                self._evaluated.setdefault(name, set()).add(fingerprint([sample(given)]))
                row["evaluated"] = len(self._evaluated[name])
        if not has_gradients:
            return
        # Labels are no input, though models that compute their loss are given them.
        read = (value for key, value in named.items() if not any(word in key for word in ("label", "target")))
        inputs = list(readable_tensors((*arguments[:1], *read, *arguments[1:])))
        if reads:
            self._note_output(row, arguments, result)
            self._note_inputs(row, module, inputs, named.get("attention_mask"), result)
            note_ranges(row, _ranges(inputs))
        elif row["with_gradients"] == 1:
            self._unread_inputs.append((row, inputs))

    def read_ranges(self) -> None:
        """Read the ranges of the inputs of this step, though it is not read otherwise."""
        for row, inputs in self._unread_inputs:
            note_ranges(row, _ranges(inputs))

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``calls``."""
        for name, numbers in self._outputs.items():
            if len(numbers) == self._rows[name]["with_gradients"]:
                used = [not self.reached.isdisjoint(each) for each in numbers]
                self._rows[name] |= {"used": sum(used), "is_last_used": used[-1]}
        return list(self._rows.values())

    def given_by(self, function: Any) -> tuple[str, bool]:
        """Return whose output the model was given whose output a loss function is given, and whether attached.

        Parameters
        ----------
        function : autograd function
            That of the loss.
        """
        for _ in range(_BEHIND_OUTPUT):
            if function is None:
                break
            given = self._given_by.get(function._sequence_nr())
            if given is not None:
                return given
            inputs = inputs_of(function)
            function = inputs[0] if len(inputs) == 1 else None
        return "", False

    def _evaluation_ends(self, row: dict[str, Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Note whether a function has dropped elements of an evaluated input."""
        self._drops.leave()
        given = next(readable_tensors((*arguments[:1], *named.values(), *arguments[1:])), None)
        if not self._drops.line or given is None:
            return
        inputs = self._dropped.setdefault(row["name"], set())
        mark = fingerprint([sample(given)])
        row["samples"] = row.get("samples", False) or mark in inputs
        inputs.add(mark)
        row["drops"], row["drop_line"] = len(inputs), self._drops.line

    def _note_output(self, row: dict[str, Any], arguments: tuple[Any, ...], result: Any) -> None:
        """Note the function that made an output, by which a backward pass that reaches it is recognised."""
        numbers = self._outputs.setdefault(row["name"], [])
        made = [each.grad_fn for each in readable_tensors((result,)) if each.grad_fn is not None]
        if made and len(numbers) < MOST_OUTPUTS:
            numbers.append({node._sequence_nr() for node in made})
            self.put_out |= {
                each.grad_fn._sequence_nr(): plain(each)
                for each in readable_tensors((result,))
                if each.grad_fn is not None and each.numel() <= MOST_ELEMENTS and len(self.put_out) < MOST_INPUTS
            }
        given = next(readable_tensors(arguments[:1]), None)
        shape = "" if given is None else shape_text(given.shape)
        # What gradients are asked of, as to attack a model, is used without a backward pass.
        is_data = given is None or not given.requires_grad
        row["is_alike"] = row.get("is_alike", True) and self._shapes.setdefault(row["name"], shape) == shape and is_data
        if len(numbers) <= MOST_INPUTS and given is not None:
            self._note_chain(row["name"], given, result, numbers[-1] if made and numbers else ())
            row["is_twice"] = row.get("is_twice", False) or self._is_twice(row["name"], given, result)

    def _note_chain(self, name: str, given: torch.Tensor, result: Any, made: Sequence[int] | set[int]) -> None:
        """Note whether a model is given what another one has put out in this step."""
        before = self._storages.get(storage_key(given)) if given.layout == torch.strided else None
        if before is not None and before[1] != name and not before[0].expired():
            self._given_by |= dict.fromkeys(made, (before[1], given.requires_grad))
        for each in strided_tensors(result):
            self._storages[storage_key(each)] = weak_storage(each), name

    def _is_twice(self, name: str, given: torch.Tensor, result: Any) -> bool:
        """Whether a model was given and put out the same as in its first call, or a batch of two equal halves."""
        output = next(readable_tensors((result,)), None)
        if output is None or given.dim() < 2 or output.dim() < 2 or len(given) != len(output):
            return False
        # A tensor would keep its graph alive.
        marks = given.shape, output.shape, fingerprint([sample(given), sample(output)])
        if self._firsts.setdefault(name, marks) is not marks:
            return self._firsts[name] == marks
        middle, odd = divmod(len(given), 2)
        if odd or len(given) < _LEAST_ROWS:
            return False
        halves = (slice(0, middle), slice(middle, None)), (slice(0, None, 2), slice(1, None, 2))
        return any(
            _are_equal(given[0], given[rest.start])
            and all(_are_equal(each[half], each[rest]) for each in (given, output))
            for half, rest in halves
        )

    def _note_inputs(
        self, row: dict[str, Any], module: nn.Module, inputs: Sequence[torch.Tensor], mask: Any, result: Any
    ) -> None:
        """Note what a model is given in its first call."""
        if "fingerprint" in row:
            return
        output = next(readable_tensors((result,)), None)
        row["spread"] = math.nan if output is None else deviation_between_samples(output)
        weights = {id(weight) for _, weight in held_tensors(module, "_parameters")}
        row["is_trained"] = any(
            id(weight) in weights for optimizer in self._parameters.optimizers for weight in weights_of(optimizer)
        )
        if len(inputs) == 1 and row["is_trained"] and self.empty is None:
            self.empty = _empty_samples(inputs[0])
        for value in inputs:
            if "fingerprint" not in row:
                row["fingerprint"] = fingerprint([sample(value)])
                row["input_shape"] = shape_text(value.shape)
                row["is_ids"] = not (value.is_floating_point() or value.is_complex())
                if value.is_floating_point() and value.numel():
                    deviation, mean = torch.std_mean(part_of(value).float(), correction=0)
                    row["input_mean"], row["input_deviation"] = float(mean), float(deviation)
            is_data = value.is_floating_point() and not value.requires_grad
            if self.samples is None and row["is_trained"] and value.dim() in (2, 3) and is_data:
                self.samples = plain(value)
            if self.ids is None and value.dim() == 2 and not (value.is_floating_point() or value.is_complex()):
                self.ids, self.mask = plain(value), next(readable_tensors((mask,)), None)
            elif value.dim() == 2 and value.dtype == torch.long and len(self.later_ids) < _MOST_LATER:
                self.later_ids.append(plain(value))

    def _label(self, module: nn.Module) -> str:
        """Return the name of an outermost module, with a number if others have the same."""
        root = self._names.name(module)
        kind = type(module).__name__
        scope = kind if root is None or not root.scope else root.scope
        label = self._labels.get(scope)
        if label is None:
            first = kind if root is None or not root.scope else root.scope.partition("/")[2] or root.type
            numbered = itertools.chain((first,), (f"{first} {number}" for number in itertools.count(2)))
            label = self._labels[scope] = next(each for each in numbered if each not in self._labels.values())
        return label


def _name_of_target(texts: Mapping[tuple[str, str], str]) -> tuple[str, str]:
    """Return the call of a module that is named as a target, and another one in the same function; empty if none is."""
    are_targets = {key: is_name_of_target(key[1].rpartition(".")[2]) for key in texts}
    for (function, called), is_target in are_targets.items():
        others = [key for key, other in are_targets.items() if key[0] == function and key[1] and not other]
        if is_target and others:
            return texts[function, called], texts[others[0]]
    return "", ""


def _are_equal(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same, as far as samples of them show."""
    return tensor.shape == other.shape and np.array_equal(sample(tensor), sample(other))


def _empty_samples(given: torch.Tensor) -> NDArray[np.bool_] | None:
    """Return which pictures or signals have one value everywhere; None if they are neither, or no data."""
    shape = given.shape
    is_picture = given.dim() == 4 and min(shape[2:]) >= _LEAST_SIDE
    is_signal = given.dim() == 3 and shape[1] <= _MOST_CHANNELS and shape[2] >= _LEAST_TIMES
    if not (is_picture or is_signal) or shape[0] < _LEAST_ROWS or given.is_complex() or given.requires_grad:
        return None
    rows = plain(given).reshape(shape[0], -1)
    # Most samples differ in a few of their elements already.
    few = rows[:, :: rows.shape[1] // _FEW_ELEMENTS | 1]
    empty: NDArray[np.bool_] = array_of((few == few[:, :1]).all(1))
    for at in np.flatnonzero(empty).tolist():
        empty[at] = bool((rows[at] == rows[at, 0]).all())
    return empty


def _ranges(inputs: Sequence[torch.Tensor]) -> Iterator[tuple[float, float]]:
    """Yield the smallest and the greatest value of each input."""
    for value in inputs:
        values = part_of(value)
        if values.numel() and not values.is_complex():
            yield float(values.min()), float(values.max())


def _acts_in_training(module: nn.Module) -> bool:
    """Whether a call behaves otherwise than in evaluation: it drops elements, or its statistics move."""
    for _, inner in inner_modules(module):
        if not is_in_training(inner):
            continue
        held = vars(inner)
        drops = isinstance(inner, nn.modules.dropout._DropoutNd) and bool(held.get("p"))
        if drops or own_tensor(inner, "_buffers", "running_mean") is not None:
            return True
    return False
