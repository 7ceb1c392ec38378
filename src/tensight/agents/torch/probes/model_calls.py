"""Probes of a model's call: its inputs are changed, and the outputs compared.

Each call is made in evaluation mode, with the same random numbers and in the same state of the model.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as module_hooks

from tensight.agents.torch.facts.reading import is_readable
from tensight.agents.torch.framework import tensors_in
from tensight.agents.torch.inner_modules import held_tensors, inner_modules
from tensight.agents.torch.probes.batch import LATE, UntriedError
from tensight.agents.torch.probes.calls import (
    Dropouts,
    Functions,
    Origin,
    SelfAttention,
    changed_elements,
    is_from_position,
    is_of_samples,
    rounding_of,
)
from tensight.agents.torch.probes.functions import check_functions
from tensight.agents.torch.probes.states import evaluating

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from tensight.agents.torch.probes.batch import Axis, Batch, Changes, Input
    from tensight.agents.torch.probes.forks import Clock
    from tensight.agents.torch.probes.states import Rows, State

_FEWEST_POSITIONS = 4
_MOST_FEATURES = 4096
_OF_POSITIONS = re.compile(r"(^|[._])(pos|pe|wpe)([._]|$)|posit|pos_", re.IGNORECASE)
"""Names of parameters and buffers that tell positions apart."""

_UNLIKE = "it does not put out the same for the same inputs"
Row = dict[str, Any]


class ModelProbes:
    """Experiments with the call of a model.

    Parameters
    ----------
    model : Module
    batch : Batch
        What it was called with.
    state : State
    clock : Clock
    batch_size : int
        That of the script's loader of data; -1 if it has none.
    predicts_next : bool
        Whether the targets are the words that the model reads, one position ahead.
    """

    def __init__(
        self, model: nn.Module, batch: Batch, state: State, clock: Clock, *, batch_size: int, predicts_next: bool
    ) -> None:
        self._model = model
        self._batch = batch
        self._state = state
        self._clock = clock
        self._batch_size = batch_size
        self._predicts_next = predicts_next
        self._rounding = rounding_of(model)
        self._outputs: list[torch.Tensor] = []
        self._axes: list[Axis] = []

    def rows(self) -> Rows:
        """Run all probes; return a row for each."""
        rows: Rows = []
        is_repeatable = True
        for name, probe in {
            "evaluation": self._evaluation,
            "samples": self._samples,
            "inputs": self._inputs,
            "positions": self._positions,
            "order": self._order,
            "arrangement": self._arrangement,
            "padding": self._padding,
            "backward": self._backward,
        }.items():
            row: Row = {"name": name, "probe": name, "model": type(self._model).__name__}
            try:
                if not is_repeatable:
                    raise UntriedError(_UNLIKE)
                if not self._clock.left_s:
                    raise UntriedError(LATE)
                row |= probe()
            except UntriedError as reason:
                row |= {"outcome": "untried", "why": str(reason)}
            except Exception as error:
                row |= {"outcome": "untried", "why": f"{type(error).__name__}: {error}"[:200]}
            is_repeatable = is_repeatable and not (name == "evaluation" and row["outcome"] in ("untried", "warn"))
            rows.append(row)
        self._state.put_back()
        return rows

    # --- probes ---

    def _evaluation(self) -> Row:
        """Call the model twice, with the same random numbers and with others."""
        # Without modes: layers may compute otherwise with one.
        first, second = self._evaluate(), self._evaluate()
        self._outputs = [output for output in first if output.dim() and output.is_floating_point()]
        if len(first) != len(second) or any(map(_differ, first, second)):
            kept = Functions()
            self._evaluate(mode=kept)
            again = Functions(kept)
            self._evaluate(mode=again)
            return {
                "outcome": "warn",
                "why": "it keeps a state from call to call, or what its calls compute differs by chance",
                **_where(again.first),
            }
        if not any(map(_differ, first, self._evaluate(skip=1))):
            return {"outcome": "pass"}
        dropouts = Dropouts()
        self._evaluate(mode=dropouts)
        kind = {"function": "dropout", "line": dropouts.line} if dropouts.line else {}
        return {"outcome": "pass", "why": "it draws random numbers in evaluation mode, too", **kind}

    def _samples(self) -> Row:
        """Change one sample: the outputs of the others must stay."""
        self._axes = self._batch.axes(self._model, self._outputs)
        mixing = [(axis, *mixed) for axis in self._axes if (mixed := self._mixes(axis))]
        is_known = [axis for axis in self._axes if axis.size == self._batch_size]
        if len(is_known) == 1 and len(self._axes) > 1:
            mixing = [each for each in mixing if each[0] is is_known[0]]
            self._axes = is_known
        elif mixing and len(mixing) < len(self._axes):
            if mixing[0][0] is not self._axes[0]:
                mixing = []
            else:
                raise UntriedError("which axis is that of the samples is not known: the second may be")
        if not mixing:
            return {"outcome": "pass"}
        axis, change, scale, changes, is_changed = mixing[0]
        if not self._passes_gradients(axis, is_changed):
            return {"outcome": "pass", "why": "samples compete for a choice, as tokens for an expert"}
        origin, module = self._origin(changes, lambda changed: is_of_samples(changed, is_changed))
        if "batch" in module.lower():
            return {"outcome": "pass", "why": f"{module} computes over the batch, as its name tells"}
        return {"outcome": "fail", "change": change, "scale": scale, "total": axis.size, "module": module} | _where(
            origin
        )

    def _mixes(self, axis: Axis) -> tuple[float, float, Changes, torch.Tensor] | None:
        """Return how much outputs change with other samples, and with their own; and that change, and its samples."""
        pairs = self._batch.differing(axis)
        if not pairs:
            raise UntriedError("all samples of the batch are alike")
        tries = [(slice(sample, sample + 1), other) for sample, other in pairs]
        # A maximum of the batch, say, changes with one sample only.
        for samples, other in (*tries, (slice(1, None), 0)):
            changes = self._batch.with_samples_like(axis, samples, other)
            is_changed = torch.zeros(axis.size, dtype=torch.bool)
            is_changed[samples] = True
            outputs = self._evaluate(changes)
            before, after = self._outputs[0].movedim(axis.put_out, 0), outputs[0].movedim(axis.put_out, 0)
            changed = changed_elements(before, after, self._rounding)
            others = changed.clone()
            others[is_changed] = False
            if bool(others.any()):
                difference = (after.double() - before.double()).abs()
                return float(difference[others].max()), float(difference[is_changed].max()), changes, is_changed
        return None

    def _passes_gradients(self, axis: Axis, is_changed: torch.Tensor) -> bool:
        """Whether a gradient passes from the outputs of other samples to the inputs of some; also if there is none."""
        rows: list[torch.Tensor] = []

        def note(module: nn.Module, _: Any, vectors: torch.Tensor) -> None:
            if isinstance(module, torch.nn.Embedding) and vectors.requires_grad:
                rows.append(vectors)

        handle = module_hooks.register_module_forward_hook(note)
        try:
            outputs, inputs = self._call_with_gradients()
        finally:
            handle.remove()
        rows += inputs.values()
        rows = [each for each in rows if axis.of(each) is not None]
        if not rows or not outputs:
            return True
        output = outputs[0].movedim(axis.put_out, 0)
        gradients = torch.autograd.grad(_random_sum([output[~is_changed]]), rows, allow_unused=True)
        return any(
            gradient is not None and bool(gradient.movedim(axis.of(gradient) or 0, 0)[is_changed].any())
            for gradient in gradients
        )

    def _inputs(self) -> Row:
        """Change each input, and each feature without a gradient: the outputs must change."""
        axis = self._axis()
        gradients = self._gradients()
        outputs = self._of_samples(axis)
        if not any(map(_differs_by_sample, outputs)):
            if not any(bool(output.any()) for output in outputs):
                raise UntriedError("all outputs are 0")
            if all(bool(((output == 0) | (output.abs() == 1)).all()) for output in outputs):
                # Running statistics of the first steps alone can lead there.
                raise UntriedError("all outputs are at the ends of the range of a sigmoid or tanh")
            if not self._batch.differing(axis):
                raise UntriedError("all samples of the batch are alike")
            if any(bool(gradient.any()) for gradient in gradients.values()):
                return {"outcome": "warn", "why": "the outputs are the same for all samples, although gradients pass"}
            return {"outcome": "fail", "why": "same", "total": axis.size}
        ignored, features, untried = [], [], []
        for given in self._batch.inputs:
            at = axis.of(given.tensor)
            if at is None or given.is_label:
                continue
            gradient = gradients.get(id(given.tensor))
            if gradient is not None and bool(gradient.any()):
                features += self._ignored_features(given, gradient, at)
                continue
            rolled = given.tensor.roll(1, at)
            if torch.equal(rolled, given.tensor):
                untried.append(given.name)
            elif not self._matters({id(given.tensor): rolled}):
                ignored.append(given.name)
        names = [*ignored, *(f"{given.name}[..., {feature}]" for given, feature in features)]
        why = f"{', '.join(untried)}: the same for all samples" if untried else ""
        if not names:
            return {"outcome": "pass", "why": why}
        return {
            "outcome": "fail",
            "why": "features" if features and not ignored else "inputs",
            "inputs": ", ".join(names[:8]) + (" …" if len(names) > 8 else ""),
            "count": len(names),
            "total": features[0][0].tensor.shape[-1] if features else len(self._batch.inputs),
        }

    def _ignored_features(self, given: Input, gradient: torch.Tensor, at: int) -> list[tuple[Input, int]]:
        """Return the features of an input that have no gradient and no influence."""
        tensor = given.tensor
        if tensor.dim() not in (2, 3) or at == tensor.dim() - 1 or tensor.shape[-1] > _MOST_FEATURES:
            return []
        others = tuple(range(tensor.dim() - 1))
        rolled = tensor.roll(1, at)
        is_suspect = ~gradient.ne(0).any(others[0]) if tensor.dim() == 2 else ~gradient.ne(0).flatten(0, 1).any(0)
        # A feature that is the same everywhere tells nothing, whether it is used or not.
        is_suspect &= (rolled != tensor).flatten(0, -2).any(0)
        suspects = torch.nonzero(is_suspect).flatten().tolist()
        if not suspects:
            return []
        changed = torch.where(is_suspect, rolled, tensor)
        if self._matters({id(tensor): changed}):
            return []
        return [(given, feature) for feature in suspects]

    def _gradients(self) -> dict[int, torch.Tensor]:
        """Return the gradient of a random sum of the outputs with respect to each input, by the input's identity."""
        if not any(given.tensor.is_floating_point() for given in self._batch.inputs):
            return {}
        outputs, inputs = self._call_with_gradients()
        if not outputs:
            return {}
        gradients = torch.autograd.grad(_random_sum(outputs), list(inputs.values()), allow_unused=True)
        return {key: gradient for key, gradient in zip(inputs, gradients, strict=True) if gradient is not None}

    def _call_with_gradients(self) -> tuple[list[torch.Tensor], dict[int, torch.Tensor]]:
        """Call the model with inputs that require gradients; return its outputs, and these inputs by identity."""
        self._state.put_back()
        arguments, named = self._batch.given()
        given = tensors_in((arguments, named))
        inputs = {
            id(each.tensor): tensor.requires_grad_()
            for each, tensor in zip(self._batch.inputs, given, strict=True)
            if tensor.is_floating_point()
        }
        with evaluating(self._model), torch.enable_grad():
            outputs = tensors_in(self._model(*arguments, **named))
        return [each for each in outputs if each.requires_grad and each.is_floating_point() and each.dim()], inputs

    def _positions(self) -> Row:
        """Change all positions of a sequence but one: the outputs must change."""
        axis = self._axis()
        given = next((each for each in self._batch.inputs if not each.is_label), None)
        if (
            given is None
            or axis.given
            or axis.put_out
            or given.tensor.dim() not in (2, 3)
            or self._outputs[0].dim() > 2
        ):
            raise UntriedError("the model does not put out one vector for each sequence")
        tensor = given.tensor
        if tensor.dim() == 2 and tensor.is_floating_point():
            raise UntriedError("the model is given no sequences")
        if tensor.shape[1] < _FEWEST_POSITIONS:
            raise UntriedError("the sequences are short")
        rolled = tensor.roll(1, 0)
        for name, kept in (("first", 0), ("last", tensor.shape[1] - 1)):
            changed = rolled.clone()
            changed.select(1, kept).copy_(tensor.select(1, kept))
            if torch.equal(changed, tensor):
                raise UntriedError("all sequences are alike")
            if not self._matters({id(tensor): changed}):
                return {"outcome": "fail", "why": name, "inputs": given.name, "total": tensor.shape[1]}
        return {"outcome": "pass"}

    def _order(self) -> Row:
        """Change later words: the outputs of earlier positions must stay, if the next word is to be predicted."""
        output = self._outputs[0] if self._outputs else None
        given = next(
            (
                each
                for each in self._batch.inputs
                if not each.is_label
                and output is not None
                and _are_ids(each.tensor)
                and _position_axis(output, each.tensor)
            ),
            None,
        )
        if not self._predicts_next:
            raise UntriedError("the targets are not the words that the model reads, one position ahead")
        if given is None or output is None or given.tensor.shape[1] < _FEWEST_POSITIONS:
            raise UntriedError("the model reads no words in rows, or puts out no vector for each")
        words, position = given.tensor, given.tensor.shape[1] // 2
        changed = words.clone()
        changed[:, position:] = torch.cat([words[:, position:].roll(1, 1)[:1], words[:-1, position:]])
        if torch.equal(changed, words):
            raise UntriedError("all sequences are alike")
        changes = {id(words): changed}
        axis = _position_axis(output, words)
        output, after = output.movedim(axis, 1), self._evaluate(changes)[0].movedim(axis, 1)
        early = changed_elements(output[:, :position], after[:, :position], self._rounding)
        if not bool(early.any()):
            return {"outcome": "pass"}
        difference = (after.double() - output.double()).abs()
        origin, module = self._origin(changes, lambda each: is_from_position(each, words.shape[1], position))
        return {
            "outcome": "fail",
            "change": float(difference[:, :position].max()),
            "scale": float(difference[:, position:].max()),
            "inputs": given.name,
            "total": words.shape[1],
            "count": position,
            "module": module,
        } | _where(origin)

    def _arrangement(self) -> Row:
        """Turn around the words between the first and the last one: the outputs must not just be turned around."""
        given = next((each for each in self._batch.inputs if not each.is_label and _are_ids(each.tensor)), None)
        if given is None or not self._outputs or given.tensor.shape[1] < _FEWEST_POSITIONS:
            raise UntriedError("the model reads no words in rows")
        words, output = given.tensor, self._outputs[0]
        self._evaluate(mode=(attention := SelfAttention(words.shape[1])))
        if not attention.is_used:
            raise UntriedError("the words are not weighed for one another")
        # A mask, or the numbers of segments, belong to the words; numbers of positions do not.
        changes = {
            id(each.tensor): _turned(each.tensor, 1)
            for each in self._batch.inputs
            if each is given
            or (each.tensor.shape == words.shape and bool(((each.tensor == 0) | (each.tensor == 1)).all()))
        }
        if torch.equal(changes[id(words)], words):
            raise UntriedError("all sequences are alike")
        axis = _position_axis(output, words)
        expected = _turned(output, axis) if axis else output
        if bool(changed_elements(expected, self._evaluate(changes)[0], self._rounding).any()):
            return {"outcome": "pass"}
        named = [name for name, _ in held_tensors(self._model, "_parameters")]
        named += [name for name, _ in held_tensors(self._model, "_buffers")]
        positions = [name for name in named if _OF_POSITIONS.search(name)]
        if not positions:
            return {"outcome": "warn", "why": "words in another order are the same to it"}
        return {"outcome": "fail", "inputs": given.name, "total": words.shape[1], "module": positions[0]}

    def _padding(self) -> Row:
        """Change what a mask hides: the outputs of the rest must stay."""
        mask, given, hidden = self._masked()
        tensor, output = given.tensor, self._outputs[0]
        values = tensor[~hidden]
        filled = tensor.clone()
        filled[hidden] = values[torch.arange(int(hidden.sum()), device=values.device) % len(values)]
        if torch.equal(filled, tensor):
            raise UntriedError("what the mask hides is like the rest")
        after = self._evaluate({id(tensor): filled})[0]
        before = output
        if output.shape[:2] == hidden.shape and output.dim() >= 2:
            before, after = output[~hidden], after[~hidden]
        if not bool(changed_elements(before, after, self._rounding).any()):
            return {"outcome": "pass"}
        reference = tensor.roll(1, 0)
        moved = self._evaluate({id(tensor): torch.where(_like(hidden, tensor), tensor, reference)})[0]
        if output.shape[:2] == hidden.shape:
            moved = moved[~hidden]
        change = float((after.double() - before.double()).abs().max())
        scale = float((moved.double() - before.double()).abs().max())
        if change < 0.01 * scale:
            return {
                "outcome": "warn",
                "why": f"what {mask.name} hides counts a little",
                "change": change,
                "scale": scale,
            }
        return {"outcome": "fail", "inputs": mask.name, "change": change, "scale": scale, "count": int(hidden.sum())}

    def _masked(self) -> tuple[Input, Input, torch.Tensor]:
        """Return a mask, what it masks, and which positions it hides: shape (samples, positions).

        Which of its two values hides is read from what is at these positions: the same everywhere, as padding is.
        """
        for mask in self._batch.inputs:
            if mask.is_label or mask.tensor.dim() != 2 or "mask" not in mask.name.lower():
                continue
            if not bool(((mask.tensor == 0) | (mask.tensor == 1)).all()):
                continue
            for given in self._batch.inputs:
                tensor = given.tensor
                if (
                    given is mask
                    or given.is_label
                    or tensor.dim() not in (2, 3)
                    or tensor.shape[:2] != mask.tensor.shape
                ):
                    continue
                for value in (0, 1):
                    hidden = mask.tensor == value
                    if not bool(hidden.any()) or bool(hidden.all()):
                        continue
                    values = tensor[hidden]
                    if bool((values == values[:1]).all()) and int(hidden.sum()) > 1:
                        return mask, given, hidden
        raise UntriedError("the model is given no mask that hides padding")

    def _backward(self) -> Row:
        """Compare the backward functions that the script wrote itself with differences."""
        self._state.put_back()
        arguments, named = self._batch.given()
        with evaluating(self._model), torch.enable_grad():
            return check_functions(lambda: self._model(*arguments, **named), self._clock)

    # --- calls ---

    def _evaluate(self, changes: Changes | None = None, mode: Any = None, skip: int = 0) -> list[torch.Tensor]:
        """Call the model in evaluation mode; return what it puts out."""
        if not self._clock.left_s:
            raise UntriedError(LATE)
        self._state.put_back()
        if skip:
            torch.rand(skip)
        arguments, named = self._batch.given(changes)
        with evaluating(self._model), torch.no_grad(), mode or contextlib.nullcontext():
            result = self._model(*arguments, **named)
        outputs = [output.detach().clone() for output in tensors_in(result) if is_readable(output)]
        if changes is not None:
            outputs = [output for output in outputs if output.dim() and output.is_floating_point()]
        return outputs

    def _matters(self, changes: Mapping[int, torch.Tensor]) -> bool:
        """Whether any output changes with the inputs, by however little."""
        after = self._evaluate(changes)
        return len(after) != len(self._outputs) or any(map(_differ, self._outputs, after))

    def _origin(self, changes: Changes, is_allowed: Callable[[torch.Tensor], bool]) -> tuple[Origin, str]:
        """Return the first function, and the innermost module around it, where more changes than is allowed."""
        kept = Functions()
        self._evaluate(mode=kept)
        compared = Functions(kept, is_allowed, self._rounding)
        around: list[nn.Module] = []
        entered: list[bool] = []

        def enter(*_: Any) -> None:
            entered.append(not compared.first.function)

        def leave(module: nn.Module, *_: Any) -> None:
            if entered.pop() and compared.first.function and not around:
                around.append(module)

        # Global hooks, as those of a module are part of the state that is restored before each call.
        handles = [
            module_hooks.register_module_forward_pre_hook(enter),
            module_hooks.register_module_forward_hook(leave),
        ]
        try:
            self._evaluate(changes, mode=compared)
        finally:
            for handle in handles:
                handle.remove()
        for path, module in inner_modules(self._model):
            if around and module is around[0]:
                return compared.first, f"{path} ({type(module).__name__})" if path else type(module).__name__
        return compared.first, ""

    def _axis(self) -> Axis:
        if not self._axes:
            self._axes = self._batch.axes(self._model, self._outputs)
        return self._axes[0]

    def _of_samples(self, axis: Axis) -> list[torch.Tensor]:
        """Return the outputs with an axis of samples, that first."""
        return [
            output.movedim(axis.put_out, 0)
            for output in self._outputs
            if output.dim() > axis.put_out and output.shape[axis.put_out] == axis.size
        ]


def _differs_by_sample(output: torch.Tensor) -> bool:
    return bool(changed_elements(output, output[:1].expand_as(output)).any())


def _random_sum(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return a sum of all elements with random factors, always the same ones."""
    numbers = torch.Generator().manual_seed(0)
    sums = [
        (tensor.double() * torch.randn(tensor.shape, generator=numbers, dtype=torch.double).to(tensor.device)).sum()
        for tensor in tensors
    ]
    return torch.stack(sums).sum()


def _differ(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether any element of two tensors differs; NaN is equal to NaN."""
    if first.shape != second.shape:
        return True
    is_same = first == second
    if first.is_floating_point():
        is_same |= first.isnan() & second.isnan()
    return not bool(is_same.all())


def _position_axis(output: torch.Tensor, words: torch.Tensor) -> int:
    """Return the axis of an output that is that of the words, before its classes or behind; 0 if it is unclear."""
    if output.dim() < 3 or output.shape[0] != words.shape[0]:
        return 0
    axes = [axis for axis in range(1, output.dim()) if output.shape[axis] == words.shape[1]]
    return axes[0] if len(axes) == 1 and axes[0] <= 2 else 0


def _are_ids(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 2 and tensor.dtype in (torch.long, torch.int) and int(tensor.max()) > 1


def _turned(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """Turn around all along an axis but the first and the last, which may stand for the whole."""
    order = list(range(tensor.shape[axis]))
    return tensor.index_select(axis, torch.tensor([0, *order[-2:0:-1], order[-1]], device=tensor.device))


def _like(hidden: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return hidden.reshape(*hidden.shape, *(1,) * (tensor.dim() - hidden.dim()))


def _where(origin: Origin) -> dict[str, str]:
    return {"function": origin.function, "line": origin.line}
