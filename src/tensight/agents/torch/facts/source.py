"""Reads the facts of a PyTorch training's steps, from what its debugger sees of calls, backward passes and updates."""

from __future__ import annotations

import functools
import itertools
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from tensight.agents.core.call_stack import line_of_user
from tensight.agents.facts.ids import LEAST_ROWS, id_facts
from tensight.agents.facts.loss_functions import copied_facts, empty_facts
from tensight.agents.facts.pictures import picture_facts
from tensight.agents.facts.samples import MOST_ELEMENTS, shape_text
from tensight.agents.facts.weights import rank_row
from tensight.agents.torch.discovery import weights_of
from tensight.agents.torch.facts import clip_calls, files, loss_graph, made_lines
from tensight.agents.torch.facts.activations import activation_facts, share_between_samples
from tensight.agents.torch.facts.attentions import Sequences
from tensight.agents.torch.facts.calls import Calls
from tensight.agents.torch.facts.cells import Cells
from tensight.agents.torch.facts.copies import Copies
from tensight.agents.torch.facts.cuts import UNREAD
from tensight.agents.torch.facts.evaluations import Evaluations
from tensight.agents.torch.facts.experts import Experts
from tensight.agents.torch.facts.lines import FUNCTIONS, FunctionLines
from tensight.agents.torch.facts.loaders import batches_of, copied_generators, longest_loader, workers_of_streams
from tensight.agents.torch.facts.reading import array_of, is_ordinary, is_readable, part_of, plain, readable_tensors
from tensight.agents.torch.facts.repeated import Repeated
from tensight.agents.torch.facts.structure import (
    NormCalls,
    Schedules,
    Ties,
    accumulating,
    leaf_rows,
    left_out_by_libraries,
    made_rows,
    module_rows,
    normalised,
)
from tensight.agents.torch.facts.weights import Weights
from tensight.agents.torch.framework import is_scripted
from tensight.agents.torch.inner_modules import held_tensors, inner_modules, is_in_training, own_tensor, weights_in
from tensight.agents.torch.modules import is_compiled_somewhere
from tensight.diagnosis.facts import SCHEMA, Jumps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch.utils.hooks import RemovableHandle

    from tensight.agents.core.diagnosing import Diagnosing
    from tensight.agents.eager.names import Names
    from tensight.agents.torch.boundary import Boundary
    from tensight.agents.torch.parameters import Parameters

MOST_LOSSES = 16
"""Number of backward passes of a step that are distinguished."""

MOST_FUNCTIONS = 16
"""Number of loss functions of a step."""

MOST_LAYERS = 1000

_NOT_ORDINARY = "weights of tensor classes of their own (shards, quantized weights) are not read"

_MOST_UNREAD = 16
"""Number of steps whose losses stay on a device."""

_LAYERS_IN_STEPS = 4
_COMPARED_STEPS = 32
"""Number of steps in which targets are looked for in the inputs."""

_LINES_IN_STEPS = 2
_SEARCHES = (1, 2, 8, 32, 128, 512, 2048)
"""Steps after which schedulers and copies are looked for, which takes a while."""

_HOOKS_OF_CALL = 3
"""What it takes PyTorch to call both hooks of a module, in times of what a hook takes."""

_Method = TypeVar("_Method", bound=Callable[..., None])
_backward_task: Callable[[], int] = torch._C._current_graph_task_id


def _event(method: _Method) -> _Method:
    """Skip a method in steps of which nothing is noted; otherwise its time counts as part of the step's."""

    @functools.wraps(method)
    def event(self: FactSource, *arguments: Any, **named: Any) -> None:
        if not self._is_on:
            return
        began, before_s = time.perf_counter(), self._cost_s
        method(self, *arguments, **named)
        self._cost_s = before_s + time.perf_counter() - began

    return cast("_Method", event)


class FactSource:
    """The facts of a training.

    Parameters
    ----------
    diagnosing : Diagnosing
        Decides what is read, and receives it.
    names : Names
    parameters : Parameters
    boundary : Boundary
    """

    def __init__(self, diagnosing: Diagnosing, names: Names, parameters: Parameters, boundary: Boundary) -> None:
        self._diagnosing = diagnosing
        self._names = names
        self._parameters = parameters
        self._boundary = boundary
        self._thread = threading.get_ident()
        self._weights = Weights()
        self._lines = FunctionLines()
        self._notes_lines, self._steps_with_lines = False, 0
        self._without_line: set[str] = set()
        self._renews_lines = False
        self._schedules, self._copies = Schedules(), Copies()
        self._ties: Ties | None = None
        self._repeated = Repeated(())
        self._experts = Experts(())
        self._losses: list[tuple[torch.Tensor, dict[str, Any]]] = []
        self._functions: list[dict[str, Any]] = []
        self._leaves: dict[int, torch.Tensor] = {}
        self._cancelling: set[int] = set()
        self._step = self._without_optimizer = 0
        self._calls = Calls(names, parameters)
        self._cells = Cells(self._lines.cuts.detached_line)
        self._evaluations = Evaluations(boundary.call)
        self._jumps, self._was_nan = Jumps(), False
        self._norms = NormCalls()
        self._accumulating: dict[int, dict[str, Any]] = {}
        self._depth = 0
        self.is_in_scaler = False
        self.checkpoint_line = ""
        self.predicts_next = False
        """Whether the targets of a loss were the words that a model reads, one position ahead."""
        self.has_targets = False
        """Whether a loss function compares with targets."""
        self._clips = self._clips_of_none = self._unscaled_passes = 0
        self._unscaled_line = self._clip_line = ""
        self._is_made_known = False
        self._batches = self._batch_size = -1
        self._workers = 0
        self._loader_line = ""
        self._updated: set[int] = set()
        self._layers: dict[str, dict[str, Any]] = {}
        self._recurrent: dict[str, dict[str, Any]] = {}
        self._sequences = Sequences()
        self._nested: set[str] = set()
        self._entered: set[int] = set()
        self._entered_unread: set[int] = set()
        """The modules that were called with gradients in steps that are not read otherwise."""
        self._outermost: Any = None
        self._backward_passes = self._updates = 0
        self._update_line = self._backward_line = ""
        self._scale = float("nan")
        self._tensor_names: tuple[int, dict[int, str]] = (-1, {})
        self._unfollow = clip_calls.follow(lambda has_gradients: boundary.call(self.clipped, has_gradients))
        self._unread_losses: list[tuple[int, list[tuple[torch.Tensor, dict[str, Any]]]]] = []
        self._cost_s = 0.0
        self._is_ordinary = True
        self._hooks: list[RemovableHandle] = []
        self._calls_of_modules = 0
        self._hook_s = _time_of(boundary.hook(lambda *_: None))
        self._searched = 0
        self._follow()

    @property
    def _is_on(self) -> bool:
        # Without an optimizer, only what is noted shows the steps.
        notes = self._diagnosing.notes if self._step else self._diagnosing.is_received
        return notes and self._is_ordinary

    @property
    def _reads_layers(self) -> bool:
        """Whether what layers are given and put out is read: in the first steps, and in some later ones."""
        return self._step < _LAYERS_IN_STEPS or not self._step & (self._step + 1)

    def _check_weights(self) -> None:
        """End reading where weights are of classes of their own, such as shards: what is in them may have no memory."""
        weights = (weight for optimizer in self._parameters.optimizers for weight in weights_of(optimizer))
        if not all(map(is_ordinary, weights)):
            self._is_ordinary = False
            self._diagnosing.tell("torch", dict.fromkeys(SCHEMA, _NOT_ORDINARY))
            self._unfollow_calls()
            self._lines.leave()
            self._calls.stop()
            self._evaluations.ends()

    def _follow(self) -> None:
        """Follow calls of modules only in steps of which anything is noted."""
        if self._is_on and not self._hooks:
            hook = self._boundary.hook
            self._depth = 0
            self._hooks = [
                module_hooks.register_module_forward_pre_hook(hook(self._enter)),
                # Not called after an exception: PyTorch then iterates over hooks that must not be removed meanwhile.
                module_hooks.register_module_forward_hook(hook(self._leave), with_kwargs=True),
            ]
        elif not self._is_on:
            self._unfollow_calls()
            self._lines.leave()

    def _unfollow_calls(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def is_within_call(self) -> None:
        """Note that the hooks were installed while an outermost module is called."""
        self._depth = 1

    def begin(self, *, notes_lines: bool) -> None:
        """Begin the first step, after a server may have been attached.

        Parameters
        ----------
        notes_lines : bool
            Whether to note where functions are called from now on.
        """
        self._notes_lines = notes_lines
        self._diagnosing.decide()
        self._follow()
        self._follow_lines()

    def _follow_lines(self) -> None:
        """Note lines in the first steps that are read; a server may be attached late."""
        reads = self._diagnosing.reads and self._is_ordinary and self._notes_lines
        if self._renews_lines and self._steps_with_lines > _LINES_IN_STEPS:
            self._steps_with_lines, self._renews_lines = _LINES_IN_STEPS - 1, False
        if self._steps_with_lines > _LINES_IN_STEPS or not (reads or self._lines.is_entered):
            return
        if self._steps_with_lines == _LINES_IN_STEPS:
            self._steps_with_lines += 1
            self._lines.leave()
        elif reads and not is_compiled_somewhere():
            self._lines.enter()
        else:
            self._lines.leave()

    def stop(self) -> None:
        """Remove everything from PyTorch, and write what is known."""
        self._unfollow_calls()
        self._unfollow()
        self._read_losses()
        self._lines.leave()
        self._calls.stop()
        self._evaluations.ends()
        self._diagnosing.add("evaluations", self._step + 1, self._evaluations.take())
        self._diagnosing.close()

    # --- events ---

    def _enter(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if threading.get_ident() != self._thread or _backward_task() != -1:
            return
        self._depth += 1
        self._calls_of_modules += 1
        if self._diagnosing.reads:
            self._entered.add(id(module))
            if module in self._repeated:
                self._repeated.enters(module, arguments)
            if module in self._experts and torch.is_grad_enabled():
                self._experts.called(module, arguments)
            if self._step < _LAYERS_IN_STEPS:
                self._cells.enters(module, self._label(module), arguments)
        elif torch.is_grad_enabled():
            self._entered_unread.add(id(module))
        if self._depth == 1:
            # What looks for dropout in the call of a model must be the only mode; a loss may be a module, too.
            if torch.is_grad_enabled() or any(True for _ in held_tensors(module, "_parameters")):
                self._evaluations.ends()
            self._outermost = self._names.modules.get(id(module))
            self._calls.begins(module)
            if self._diagnosing.reads and not torch.is_grad_enabled() and not is_in_training(module):
                self._calls.evaluation_begins(module)
        elif self._diagnosing.reads and self._outermost is not None:
            # One that was put into a model since that was read is met here first.
            name = self._names.name(module)
            if name is not None and name.root is not self._outermost.root:
                self._nested.add(name.root.prefix)

    def _leave(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        if threading.get_ident() != self._thread or _backward_task() != -1:
            return
        self._depth = max(self._depth - 1, 0)
        if module in self._repeated:
            self._repeated.leaves(module, result)
        if self._diagnosing.reads and self._reads_layers and torch.is_grad_enabled():
            self._note_layer(module, arguments, result)
        if self._diagnosing.reads and self._step < _LAYERS_IN_STEPS and torch.is_grad_enabled():
            self._cells.leaves(module, result)
            if isinstance(module, nn.RNNBase):
                self._note_recurrent(module, arguments)
            self._sequences.called(self._label(module), module, arguments, named)
        if (
            self._diagnosing.reads
            and own_tensor(module, "_buffers", "running_mean") is not None
            and is_in_training(module)
        ):
            given = next(readable_tensors(arguments[:1]), None)
            if given is not None and torch.is_grad_enabled():
                self._norms.called(module, given)
        if not self._depth and any(True for _ in held_tensors(module, "_parameters")):
            self._calls.ended(module, arguments, named, result, reads=self._diagnosing.reads)
            if not torch.is_grad_enabled() and not is_compiled_somewhere():
                self._evaluations.begins(arguments, result)
        if not self._depth:
            self._calls.evaluation_fails()

    def _note_recurrent(self, module: nn.RNNBase, arguments: tuple[Any, ...]) -> None:
        """Note what a recurrent layer is given."""
        given, label = arguments[0] if arguments else None, self._label(module)
        if not label or not isinstance(given, torch.Tensor) or given.dim() != 3:
            return
        self._recurrent[label] = {
            "name": label,
            "type": type(module).__name__,
            "shape": shape_text(given.shape),
            "is_batch_first": bool(module.batch_first),
            "is_bidirectional": bool(module.bidirectional),
        }

    def _label(self, module: nn.Module) -> str:
        """Return the name of a module within its model, or else its class; empty if it belongs to none."""
        name = self._names.modules.get(id(module))
        return "" if name is None else name.scope.partition("/")[2].replace("/", ".") or name.type

    def _note_layer(self, module: nn.Module, arguments: tuple[Any, ...], result: Any) -> None:
        """Note what a layer with weights, or a normalization, puts out."""
        given = arguments[0] if arguments else None
        if not isinstance(result, torch.Tensor) or not isinstance(given, torch.Tensor) or module._modules:
            return
        if not is_readable(result):
            return
        elements, samples = normalised(module, given)
        has_weights = any(weight is not None and weight.dim() > 1 for weight in module._parameters.values())
        name = self._names.modules.get(id(module))
        if name is None or not (has_weights or elements >= 0) or not result.is_floating_point() or not result.numel():
            return
        label = name.scope.partition("/")[2].replace("/", ".") or name.type
        if label not in self._layers and len(self._layers) < MOST_LAYERS:
            self._layers[label] = {
                "name": label,
                "type": name.type,
                "deviation": float(part_of(result).float().std(correction=0)),
                "has_input": is_readable(given) and bool(part_of(given).any()),
                "normalised": elements,
                "samples": samples,
                "spread": share_between_samples(given),
                **activation_facts(module, given),
                **self._input_facts(module, given),
            }

    def _input_facts(self, module: nn.Module, given: torch.Tensor) -> dict[str, Any]:
        """Return what is wrong with the pictures that the first layer is given, or with the ids of an embedding."""
        if not is_readable(given):
            return {}
        if isinstance(module, nn.Embedding) and module.num_embeddings >= LEAST_ROWS:
            return id_facts(array_of(part_of(given)), module.padding_idx)
        return {} if self._layers else picture_facts(array_of(part_of(given)))

    @_event
    def backward_begins(
        self, roots: Sequence[torch.Tensor], unscaled: Callable[[torch.Tensor], Any], scale: Callable[[], float | None]
    ) -> None:
        """Note the tensors from which a backward pass begins.

        Parameters
        ----------
        roots : sequence of Tensor
        unscaled : callable (Tensor) -> Tensor or None
            Returns a loss before a loss scaler scaled it, if the script still holds it.
        scale : callable () -> float or None
            Returns the factor of the loss scaler, after waiting for a device; None if it is unknown.
        """
        self._evaluations.ends()
        if self._diagnosing.reads:
            self._check_weights()
            if not self._is_ordinary:
                return
        if self._backward_passes and not self._step and not self._updates:
            # Nothing but backward passes shows the steps of a training by hand.
            self._without_optimizer += 1
            self._hand_over(self._without_optimizer, skipped=False)
        if self._ties is None:
            self._ties = Ties(self._models())
            self._repeated = Repeated(self._models())
            self._experts = Experts(self._models())
        if self._diagnosing.reads:
            self._weights.backward_begins(self._parameters.optimizers, self._named())
            if self._weights.has_moved_outside:
                self._copies.weights_written()
        self._depth = 0
        self._calls.evaluation_fails()
        self._backward_passes += 1
        if self._backward_passes == 1:
            self._backward_line = line_of_user()
        finds = not self._step and any(
            weight.grad is not None and bool(plain(weight.grad).any())
            for _, model in self._models()
            for _, weight in held_tensors(model, "_parameters")
        )
        for root in roots:
            if len(self._losses) >= MOST_LOSSES:
                break
            number = len(self._losses) + 1
            row: dict[str, Any] = {
                "name": "loss" if number == 1 else f"loss {number}",
                "line": self._backward_line,
                "is_connected": True,
                "finds_gradients": finds,
            }
            loss = unscaled(root)
            factor = scale() if loss is None else 1.0
            if loss is None and loss_graph.is_unscaled(root, self._scale):
                self._unscaled_passes += 1
                self._unscaled_line = line_of_user()
            if factor is None:
                # What was scaled is unknown, as if several scaled losses were added.
                continue
            loss = root if loss is None else loss
            value = plain(loss)
            value = (value if value.numel() == 1 else value.double().mean()) / factor
            self._losses.append((value, row))
            if number == 1 and value.device.type == "cpu" and self._is_exceptional(float(value)):
                self._calls.read_ranges()
            row["made_line"] = self._lines.cuts.begins(root)
            self._lines.derivatives.begins(root)
            if self._diagnosing.reads:
                graph = loss_graph.read(loss, self._calls.put_out)
                row |= {"is_connected": graph.is_connected, "function": graph.function, "elements": graph.elements}
                self._read_functions(graph.functions, row["name"], factor)
                self._calls.reached |= graph.numbers
                self._cancelling |= set(graph.cancelling)
                if self._step < _LAYERS_IN_STEPS:
                    self._sequences.read(graph.attentions, self._lines.of("attention"))
                    self._sequences.weighed(graph.weightings, self._lines.of("softmax"))
                self._leaves |= {id(leaf): leaf for leaf in graph.leaves if id(leaf) not in self._named()}

    def _is_exceptional(self, loss: float) -> bool:
        """Whether the inputs of this step are worth a look: the loss jumps, or is NaN for the first time."""
        is_first = math.isnan(loss) and not self._was_nan
        self._was_nan |= is_first
        return is_first or self._jumps.is_jump(loss)

    def _read_functions(self, functions: Sequence[loss_graph.LossFunction], loss: str, factor: float) -> None:
        for function in functions:
            if len(self._functions) >= MOST_FUNCTIONS:
                return
            calls = self._calls
            padding = -1 if calls.ids is None else self._sequences.padding_index(calls.ids)
            row = loss_graph.facts_of(function, calls.ids, calls.mask, self._lines.of, padding, calls.later_ids)
            row["given_by"], row["leads_on"] = calls.given_by(function.node)
            row |= self._lines.chosen.facts_of(function.function, function.node, function.target)
            if calls.samples is not None and function.target is not None and self._step < _COMPARED_STEPS:
                row |= _copied(function.target, calls.samples)
            if calls.empty is not None and function.target is not None:
                row |= _empty(function.target, calls.empty)
            if function.function == "policy_gradient":
                row["line"] = self._lines.of_product(row["input_shape"])
            self.predicts_next = self.predicts_next or row.get("offset", -1) == 1
            self.has_targets = self.has_targets or row.get("target_shape", "") not in ("", "1")
            if not row["line"] and row["function"] in FUNCTIONS and row["function"] not in self._without_line:
                # A later stage may use other functions.
                self._without_line.add(row["function"])
                self._renews_lines = True
            count = 1 + sum(other["function"] == row["function"] for other in self._functions)
            name = row["function"] if count == 1 else f"{row['function']} {count}"
            self._functions.append({**row, "name": name, "loss": loss, "factor": row["factor"] / factor})

    @_event
    def backward_ended(self, scale: Callable[[], float | None]) -> None:
        """Note that a backward pass has ended.

        Parameters
        ----------
        scale : callable () -> float or None
            Returns the factor of a loss scaler, after waiting for a device; None if it is unknown.
        """
        factor = scale() if self._diagnosing.reads else None
        if factor is not None and factor != 1.0:
            self._scale = factor
        self._weights.backward_ended(self._parameters.optimizers, factor or 1.0, reads=self._diagnosing.reads)

    @_event
    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer is about to update."""
        if not self._updates and self._step < _LAYERS_IN_STEPS:
            models = (model for _, model in self._models())
            self._diagnosing.add("files", self._step + 1, files.take_rows(models, self._parameters.optimizers))
        self._updates += 1
        self._updated.add(id(optimizer))
        if self._diagnosing.reads:
            self._update_line = self._update_line or line_of_user()
            self._weights.update_begins(
                optimizer,
                self._named(),
                is_through_scaler=self.is_in_scaler,
                more=self._accumulating.get(id(optimizer), {}),
            )
        else:
            self._weights.skip_update(optimizer)

    def before_swap(self) -> None:
        """Drop all references to tensors: PyTorch is about to swap their contents."""
        self._weights.before_swap()

    def clipped(self, has_gradients: bool) -> None:
        """Note a call of a function that clips gradients."""
        self._clips += 1
        if self._diagnosing.reads and not self._clip_line:
            self._clip_line = line_of_user()
        self._clips_of_none += not self._backward_passes or not has_gradients

    @_event
    def update_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer has updated."""
        if self._diagnosing.reads:
            self._weights.update_ended(optimizer, self._named())

    @_event
    def strange_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Note an update by an optimizer that holds no parameter of a model that runs."""
        if self._step:
            return
        self._updates += 1
        self._update_line = self._update_line or line_of_user()
        self._weights.update_begins(optimizer, self._named())
        self._without_optimizer += 1
        self._hand_over(self._without_optimizer, skipped=False)

    def step_done(self, step: int, *, skipped: bool) -> None:
        """Hand over the facts of a step that has ended.

        Parameters
        ----------
        step : int
            From 1.
        skipped : bool
            Whether a loss scaler has skipped the update.
        """
        if not self._step and self._without_optimizer:
            self._diagnosing.begin_again()
        was_on = self._is_on
        self._step = step
        if was_on:
            self._hand_over(step, skipped=skipped)
        else:
            self._diagnosing.step_done(step)
            self._follow_lines()
        if was_on != self._is_on:
            self._forget()
            self._follow()

    def _forget(self) -> None:
        """Forget what only the next step could be compared with: of that, nothing is noted."""
        self._weights.forget()
        self._entered.clear()
        self._clips = self._clips_of_none = 0

    def _hand_over(self, step: int, *, skipped: bool) -> None:
        began = time.perf_counter()
        diagnosing = self._diagnosing
        add = diagnosing.add
        self._unread_losses.append((step, self._losses))
        on_device = any(value.device.type != "cpu" for value, _ in self._losses)
        if diagnosing.reads or not on_device or len(self._unread_losses) >= _MOST_UNREAD:
            self._read_losses()
        add(
            "steps",
            step,
            [
                {
                    "name": "step",
                    "backward_passes": self._backward_passes,
                    "updates": self._updates,
                    "is_skipped": skipped,
                    "scale": self._scale,
                    "update_line": self._update_line,
                    "checkpoint_line": self.checkpoint_line,
                    "clips": self._clips,
                    "clips_of_none": self._clips_of_none,
                    "clip_line": self._clip_line,
                    "unscaled_passes": self._unscaled_passes,
                    "unscaled_line": self._unscaled_line,
                    "batches": self._batches,
                    "batch_size": self._batch_size,
                    "workers": self._workers,
                    "drop_line": self._lines.drop_line,
                    "drop_rate": self._lines.drop_rate,
                    "drawn_line": self._lines.cuts.drawn_line,
                }
            ],
        )
        calls = self._calls.rows()
        add("calls", step, calls)
        self._cost_s += self._evaluations.cost_s
        add("evaluations", step, self._evaluations.take())
        updated = [optimizer for optimizer in self._parameters.optimizers if id(optimizer) in self._updated]
        add("rates", step, self._weights.rates(updated))
        if diagnosing.reads:
            self._read_step(step, calls)
        self._calls.begin_step()
        self._losses, self._functions, self._leaves = [], [], {}
        self._backward_passes = self._updates = 0
        self._clips = self._clips_of_none = self._unscaled_passes = 0
        self._updated.clear()
        if self._steps_with_lines < _LINES_IN_STEPS and self._lines.is_entered:
            self._steps_with_lines += 1
            self._lines.cuts.forget()
        in_hooks_s = _HOOKS_OF_CALL * self._hook_s * self._calls_of_modules
        cost_s = self._cost_s + in_hooks_s + time.perf_counter() - began
        self._cost_s, self._calls_of_modules = 0.0, 0
        diagnosing.step_done(step, cost_s)
        self._follow_lines()

    def _read_losses(self) -> None:
        """Hand over the losses of the last steps; a training must not wait for its device in each."""
        for step, losses in self._unread_losses:
            self._diagnosing.add("losses", step, [{**row, "value": float(value)} for value, row in losses])
        self._unread_losses = []

    def _read_step(self, step: int, calls: list[dict[str, Any]]) -> None:
        diagnosing = self._diagnosing
        add = diagnosing.add
        optimizers = self._parameters.optimizers
        trained = {id(weight) for optimizer in optimizers for weight in weights_of(optimizer)}
        models = list(self._models())
        named = self._named()
        due = sum(step >= each for each in _SEARCHES)
        if due > self._searched and diagnosing.searches():
            self._searched = due
            began = time.perf_counter()
            add("leaves", step, leaf_rows(list(self._leaves.values()), trained))
            self._schedules.find()
            self._accumulating = accumulating(optimizers)
            loader = longest_loader()
            self._batches, self._batch_size = batches_of(loader)
            self._loader_line = made_lines.made_line(loader)
            add("generators", step, copied_generators(loader))
            # Processes of its own end with it.
            del loader
            self._workers = workers_of_streams()
            self._copies.find([(prefix.rstrip(".") or "model", model) for prefix, model in models], trained)
            diagnosing.searched(time.perf_counter() - began)
        add("loads", step, made_lines.take_loads())
        add("models", step, self._copies.rows())
        add("groups", step, self._weights.groups)
        add("loss_functions", step, self._functions)
        add("schedules", step, self._schedules.rows(self._weights.labels.of, optimizers))
        add("ties", step, [] if self._ties is None else self._ties.rows())
        add("repeated", step, self._repeated.rows())
        add("experts", step, self._experts.rows())
        add("layers", step, list(self._layers.values()))
        self._layers = {}
        add("recurrent", step, list(self._recurrent.values()))
        self._lines.chosen.forget()
        add("cancelling", step, self._lines.take_cancelling(self._cancelling))
        self._cancelling.clear()
        add("derivatives", step, self._lines.derivatives.take())
        add("views", step, list(self._lines.views.values()))
        self._lines.views = {}
        add("cells", step, self._cells.take(self._calls.reached))
        add("attentions", step, self._sequences.rows(self._calls.ids))
        add("weightings", step, self._sequences.take_weightings())
        self._recurrent = {}
        updated = {
            id(weight)
            for optimizer in optimizers
            if id(optimizer) in self._updated
            for weight in weights_of(optimizer)
            if weight.requires_grad
        }
        add("modules", step, module_rows(models, updated, self._norms.rows()))
        if not self._is_made_known:
            self._is_made_known = True
            add("made", step, made_rows(models))
        owners: dict[int, int] = {}
        for optimizer in optimizers:
            for weight in weights_of(optimizer):
                owners[id(weight)] = owners.get(id(weight), 0) + 1
        entries = list(_entries(models, named))
        rows = self._weights.take(entries, owners)
        unused, elsewhere = self._unused(models, named)
        weights, cuts = {name: weight for name, weight, *_ in entries}, self._lines.cuts
        without = {id(weights[row["name"]]) for row in rows if row.get("gradient") == 0}
        left_out = left_out_by_libraries((model for _, model in models), without) if without else set()
        for row in rows:
            weight = weights[row["name"]]
            row["is_unused"], row["is_used_unread"] = row["name"] in unused, row["name"] in elsewhere
            if row.get("gradient", -1) < 2:
                row["cut"], row["cut_line"] = cuts.of(weight, has_gradient=row.get("gradient") == 1) or ("", "")
                row["is_left_out"] = id(weight) in left_out and (row["is_unused"] or row["cut"] == UNREAD)
            row["is_nested"] = bool(self._nested) and models[row["model"]][0] in self._nested
        add("parameters", step, rows)
        rank = diagnosing.rank
        row = rank_row(rank, _world_size(), rows, calls, self._weights.norm_backward)
        called = next((call["called"] for call in calls if call.get("called")), "")
        add("ranks", step, [{**row, "loader_line": self._loader_line, "called": called}])

    def _unused(self, models: Sequence[tuple[str, nn.Module]], named: dict[int, str]) -> tuple[set[str], set[str]]:
        """Return the names of the parameters of modules none of which was called since the step before.

        And of those that were called with gradients in steps before that were not read.
        """
        entered, self._entered = self._entered, set()
        unread, self._entered_unread = self._entered_unread, set()
        modules = [module for _, model in models for _, module in inner_modules(model)]
        if not entered or is_compiled_somewhere() or any(map(is_scripted, modules)):
            # Of compiled code, calls are not seen.
            return set(), set()
        used, elsewhere = _weights_of(modules, entered), _weights_of(modules, unread)
        weights = [id(weight) for module in modules for weight in module._parameters.values()]
        return {named.get(each, "") for each in weights if each not in used}, {
            named.get(each, "") for each in elsewhere
        }

    # --- names ---

    def _named(self) -> dict[int, str]:
        generation = self._names.generation
        if self._tensor_names[0] != generation:
            self._tensor_names = generation, self._names.tensor_names()
        return self._tensor_names[1]

    def _models(self) -> Iterator[tuple[str, nn.Module]]:
        for root in self._names.roots:
            model = root.module()
            if model is not None:
                yield root.prefix, model


def _copied(target: torch.Tensor, samples: torch.Tensor) -> dict[str, Any]:
    """Return the facts of targets, one for each sample, that are among the features of these samples."""
    if target.numel() != len(samples) or samples.numel() > MOST_ELEMENTS or samples.is_complex():
        return {}
    return copied_facts(array_of(target), array_of(samples))


def _empty(target: torch.Tensor, empty: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the facts of samples without content, if there is a target for each sample."""
    is_of_samples = target.dim() in (1, 2) and len(target) == len(empty) and target.numel() <= MOST_ELEMENTS
    return empty_facts(array_of(target), empty) if is_of_samples else {}


def _time_of(hook: Callable[..., Any]) -> float:
    """Return what a hook of a module takes, in seconds: the shortest of some calls, as others may be held up."""
    times = [time.perf_counter()]
    for _ in range(20):
        hook(None, ())
        times.append(time.perf_counter())
    return min(after - before for before, after in itertools.pairwise(times))


def _weights_of(modules: Sequence[nn.Module], called: set[int]) -> set[int]:
    """Return the identities of the parameters of the modules that were called."""
    weights: set[int] = set()
    for module in modules:
        if id(module) in called:
            # An attention reads the parameters of its last layer without calling it.
            is_attention = isinstance(module, nn.MultiheadAttention)
            weights.update(map(id, weights_in(module) if is_attention else module._parameters.values()))
    return weights


def _world_size() -> int:
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _entries(
    models: Sequence[tuple[str, nn.Module]], named: dict[int, str]
) -> Iterator[tuple[str, torch.Tensor, str, str, int]]:
    """Yield the parameters of models, each once."""
    seen: set[int] = set()
    for number, (prefix, model) in enumerate(models):
        for path, module in inner_modules(model):
            for key, weight in module._parameters.items():
                if weight is None or id(weight) in seen or id(weight) not in named:
                    continue
                if isinstance(weight, nn.parameter.UninitializedParameter):
                    continue
                seen.add(id(weight))
                name = named[id(weight)] or f"{prefix}{path}.{key}"
                yield name, weight, (prefix + path).rstrip("."), type(module).__name__, number
