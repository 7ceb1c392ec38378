"""Collects the facts of a MindSpore training's steps, from what its debugger sees of cells, graphs and updates."""

from __future__ import annotations

import math
import time
import weakref
from typing import TYPE_CHECKING, Any

from mindspore import nn

from tensight.agents.core.call_stack import line_of_user
from tensight.agents.core.live_instances import live_instances
from tensight.agents.facts.calls import note_ranges
from tensight.agents.facts.samples import fingerprint, shape_text
from tensight.agents.facts.weights import rank_row
from tensight.agents.mindspore.facts.optimizers import has_scale
from tensight.agents.mindspore.facts.reading import Reading, norm_of
from tensight.agents.mindspore.facts.structure import Ties, longest_data_set, module_rows
from tensight.agents.mindspore.facts.weights import Weights
from tensight.agents.mindspore.framework import networks_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.agents.core.diagnosing import Diagnosing
    from tensight.agents.core.reader import TensorReader

MOST_LOSSES = 16
"""Number of backward passes, and of loss functions, of a step that are distinguished."""

_SEARCHES = frozenset((1, 2, 8, 32, 128, 512, 2048))
"""Steps after which data sets are looked for, which takes a while."""

_NOT_ADDED_UP = "MindSpore returns gradients to the script, and adds nothing up that had to be cleared"
_NOT_SEEN = "not read of trainings on MindSpore"
ABSENT: Mapping[str, str] = {
    "parameters.is_kept": _NOT_ADDED_UP,
    "groups.is_cleared": _NOT_ADDED_UP,
    "groups.cleared_between": _NOT_ADDED_UP,
    "losses.finds_gradients": _NOT_ADDED_UP,
    "steps.clips": f"calls that clip gradients are {_NOT_SEEN}",
    "steps.checkpoint_line": f"recomputation is {_NOT_SEEN}",
    "leaves": f"tensors outside of cells are {_NOT_SEEN}",
    "models": f"copies of a network are {_NOT_SEEN}",
    "schedules": f"schedulers are {_NOT_SEEN}; the rates that they set are",
    "modules.apart": f"the inputs of normalizations are {_NOT_SEEN}",
    "steps.drop_line": f"functions that drop elements are {_NOT_SEEN}",
    "calls.drops": f"functions that drop elements are {_NOT_SEEN}",
    "loss_functions.ends_ignored": f"the ends of sequences are {_NOT_SEEN}",
    "loss_functions.padding_words": f"what embeddings take for padding is {_NOT_SEEN}",
    "attentions": f"the masks of attention layers are {_NOT_SEEN}",
    "loss_functions.is_of_outputs": f"of what else than data a loss function is a distance is {_NOT_SEEN}",
    "loss_functions.is_of_layer": f"which layer has made the input of a loss function is {_NOT_SEEN}",
    "loss_functions.pair_scale": f"from which products the input of a loss function is made is {_NOT_SEEN}",
    "loss_functions.answer": f"losses that are composed of functions are {_NOT_SEEN}",
    "loss_functions.given_by": f"whose output a network is given is {_NOT_SEEN}",
    "loss_functions.same_rows": f"which rows of outputs and targets a script chooses is {_NOT_SEEN}",
    "loss_functions.empty": f"which samples a network is given beside its targets is {_NOT_SEEN}",
    "loss_functions.features": f"which features a network is given beside its targets is {_NOT_SEEN}",
    "steps.workers": f"loaders are {_NOT_SEEN}",
    "generators": f"the generators of loaders are {_NOT_SEEN}",
    "layers.silent": f"what activation functions put out is {_NOT_SEEN}",
    "layers.common": f"the ids that embeddings are given are {_NOT_SEEN}",
    "layers.pixels": f"the pictures that the first layer is given are {_NOT_SEEN}",
    "layers.mixed": f"the pictures that the first layer is given are {_NOT_SEEN}",
    "weightings": f"the weights of attentions are {_NOT_SEEN}",
    "evaluations": f"what is computed without gradients is {_NOT_SEEN}",
    "calls.input_deviation": f"the scale of what a network is given is {_NOT_SEEN}",
    "calls.also_called": f"by which names a network is called is {_NOT_SEEN}",
    "calls.is_twice": f"whether two calls are given the same is {_NOT_SEEN}",
    "views": f"views are {_NOT_SEEN}",
    "cancelling": f"sums that cancel are {_NOT_SEEN}",
    "derivatives": f"derivatives that a script computes are {_NOT_SEEN}",
    "experts": f"which rows the cells of a list are given is {_NOT_SEEN}",
    "cells": f"the states of cells are {_NOT_SEEN}",
    "made": f"where cells are made is {_NOT_SEEN}",
    "loads": f"calls that load weights are {_NOT_SEEN}",
    "files": f"calls that read files are {_NOT_SEEN}",
    "groups.accumulates": "Accelerate trains on PyTorch",
    "modules.switch": "cells of MindSpore have no attribute requires_grad",
}
"""Facts that no training on MindSpore has, and why."""


class FactSource:
    """The facts of a training.

    Parameters
    ----------
    diagnosing : Diagnosing
        Decides what is read, and receives it.
    reader : TensorReader
    world : int
        Number of ranks.

    Attributes
    ----------
    reading : Reading
    weights : Weights
    scale : float
        Factor of a loss scaler in this step; NaN without one.
    """

    def __init__(self, diagnosing: Diagnosing, reader: TensorReader, world: int) -> None:
        self.reading = Reading(reader)
        self.weights = Weights(self.reading)
        self.scale = math.nan
        self._diagnosing = diagnosing
        self._world = world
        self._networks: dict[int, tuple[weakref.ref[nn.Cell], str, bool]] = {}
        self._optimizers: dict[int, weakref.ref[nn.Optimizer]] = {}
        self._names: dict[int, str] | None = None
        self._named: list[tuple[str, Any, str, str, int, bool]] = []
        self._losses: list[tuple[Any, dict[str, Any]]] = []
        self._functions: list[dict[str, Any]] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._layers: dict[str, dict[str, Any]] = {}
        self._read: dict[int, bool] = {}
        self._returned: list[list[Any]] = []
        self._rates: list[dict[str, Any]] = []
        self._ties: Ties | None = None
        self._ids: NDArray[Any] | None = None
        self._step = self._without_optimizer = 0
        self._backward_passes = self._updates = 0
        self._update_line = ""
        self._batches = self._batch_size = -1
        self._is_begun = False
        diagnosing.tell("mindspore", ABSENT)

    def stop(self) -> None:
        """Write what is known."""
        self._diagnosing.close()

    # --- what is trained ---

    @property
    def reads(self) -> bool:
        """Whether everything is read of the step that runs."""
        return self._diagnosing.reads

    @property
    def is_searching(self) -> bool:
        """Whether objects are looked for in this step, which takes a while."""
        return self._step + 1 in _SEARCHES

    @property
    def step(self) -> int:
        """Number of steps that have ended."""
        return self._step

    @property
    def ids(self) -> NDArray[Any] | None:
        """The ids of words that a network read in this step; None if it read none."""
        return self._ids

    def lacks(self, fact: str, why: str) -> None:
        """Note that a fact is not known of this training, in addition to those that MindSpore lacks."""
        self._diagnosing.tell("mindspore", {fact: why})

    def meet(self, cell: nn.Cell, *, is_nested: bool = False) -> None:
        """Note a network that is called, or the networks that a cell wraps to train them.

        Parameters
        ----------
        cell : Cell
        is_nested : bool
            Whether a network calls it without holding it.
        """
        for network in networks_of(cell):
            if id(network) in self._networks or not any(True for _ in network.get_parameters()):
                continue
            kind = type(network).__name__
            count = sum(label.partition(" ")[0] == kind for _, label, _ in self._networks.values())
            label = kind if not count else f"{kind} {count + 1}"
            self._networks[id(network)] = weakref.ref(network), label, is_nested
            self._names = None

    def label(self, network: nn.Cell) -> str:
        """Return the name of a network that was met."""
        entry = self._networks.get(id(network))
        return type(network).__name__ if entry is None else entry[1]

    def names(self) -> Mapping[int, str]:
        """Return the names of the parameters of all networks, by their identities."""
        if self._names is None:
            self._names, self._named = {}, []
            taken: set[str] = set()
            for number, (label, network, is_nested) in enumerate(self._live_networks()):
                for path, cell in network.cells_and_names():
                    for parameter in cell._params.values():
                        if parameter is None or id(parameter) in self._names or _is_statistic(parameter):
                            continue
                        name = parameter.name if parameter.name not in taken else f"{label}.{parameter.name}"
                        taken.add(name)
                        self._names[id(parameter)] = name
                        module = path or name.rpartition(".")[0] or label
                        self._named.append((name, parameter, module, type(cell).__name__, number, is_nested))
        return self._names

    def _live_networks(self) -> Iterator[tuple[str, nn.Cell, bool]]:
        for reference, label, is_nested in self._networks.values():
            network = reference()
            if network is not None:
                yield label, network, is_nested

    def parameters(self) -> list[tuple[int, Any]]:
        """Return the parameters of all networks, with their identities."""
        self.names()
        return [(id(parameter), parameter) for _, parameter, *_ in self._named]

    @property
    def reached(self) -> Mapping[int, bool]:
        """Whether the losses of this step were computed from a parameter, by its identity, as far as known."""
        return self._read

    def knows(self, optimizer: nn.Optimizer) -> bool:
        """Whether an optimizer holds a parameter of a network that was met."""
        names = self.names()
        return any(id(parameter) in names for parameter in optimizer.parameters)

    # --- events ---

    def step_begins(self) -> None:
        """Note that something of a step is about to be computed; idempotent."""
        if self._is_begun:
            return
        self._is_begun = True
        if self._ties is None:
            self._ties = Ties([network for _, network, _ in self._live_networks()], self.reading)
        if self.reads:
            self.weights.step_begins(self._live_optimizers(), self.names())

    def called(
        self, network: nn.Cell, tensors: Sequence[Any], *, has_gradients: bool, is_evaluation: bool = False
    ) -> None:
        """Note a call of a network.

        Parameters
        ----------
        network : Cell
        tensors : sequence of Tensor
            What it was given.
        has_gradients : bool
        is_evaluation : bool
            Whether it computes as in training although nothing is trained.
        """
        name = self.label(network)
        row = self._calls.setdefault(name, {"name": name, "calls": 0, "with_gradients": 0, "in_training": 0})
        row["calls"] += 1
        row["with_gradients"] += has_gradients
        row["is_training"] = bool(network.training)
        if is_evaluation and tensors:
            seen = row.setdefault("seen", set())
            row["in_training"] += 1
            if len(seen) < 64:
                seen.add(fingerprint([self.reading.sample(tensors[0])]))
            row["evaluated"] = len(seen)
        if not self.reads or not has_gradients:
            return
        parts = [self.reading.part(tensor) for tensor in tensors]
        numbers = [values for values in parts if values is not None and values.size and values.dtype.kind in "fiu"]
        note_ranges(row, ((float(values.min()), float(values.max())) for values in numbers))
        if "fingerprint" in row:
            return
        held = {id(weight) for optimizer in self._live_optimizers() for weight in optimizer.parameters}
        row["is_trained"] = any(id(weight) in held for weight in network.get_parameters())
        if not tensors:
            return
        row["fingerprint"] = fingerprint([self.reading.sample(tensors[0])])
        row["input_shape"] = shape_text(tensors[0].shape)
        values = parts[0]
        row["is_ids"] = values is not None and values.dtype.kind in "iu"
        if self._ids is None and values is not None and values.ndim == 2 and values.dtype.kind in "iu":
            self._ids = values.copy()

    def layer(self, row: dict[str, Any]) -> None:
        """Note the output of a layer, a row of ``layers``, in its first call."""
        self._layers.setdefault(row["name"], row)

    def loss(self, tensor: Any, row: Mapping[str, Any]) -> str:
        """Note a tensor from which a backward pass begins, and return its name.

        Parameters
        ----------
        tensor : Tensor
        row : mapping
            Facts of ``losses`` beside its value.
        """
        self._backward_passes += 1
        number = len(self._losses) + 1
        name = "loss" if number == 1 else f"loss {number}"
        if number <= MOST_LOSSES:
            self._losses.append((tensor, {"name": name, "is_connected": True, "elements": tensor.size, **row}))
        return name

    def loss_function(self, row: Mapping[str, Any]) -> None:
        """Note a row of ``loss_functions``; its name follows from its function."""
        if len(self._functions) < MOST_LOSSES:
            count = 1 + sum(other["function"] == row["function"] for other in self._functions)
            name = row["function"] if count == 1 else f"{row['function']} {count}"
            self._functions.append({**row, "name": name})

    def computed_from(self, parameters: Mapping[int, bool]) -> None:
        """Note which parameters, by their identities, a loss was computed from."""
        for identity, is_read in parameters.items():
            self._read[identity] = self._read.get(identity, False) or is_read

    def returned(self, gradients: Sequence[Any]) -> None:
        """Note the gradients that a backward pass has returned."""
        if self.reads:
            self._returned.append(list(gradients))

    def update_begins(self, optimizer: nn.Optimizer) -> None:
        """Note that an optimizer is about to update."""
        self._optimizers.setdefault(id(optimizer), weakref.ref(optimizer))
        self._updates += 1
        self._rates += self.weights.rates(optimizer)
        if self.reads:
            self._update_line = self._update_line or line_of_user()
            self.weights.update_begins(optimizer, self.names())
        else:
            self.weights.skip_update()

    def gradients(
        self, optimizer: nn.Optimizer, gradients: Mapping[int, NDArray[Any] | None], norm_backward: float | None = None
    ) -> None:
        """Note what an optimizer is given.

        Parameters
        ----------
        optimizer : Optimizer
        gradients : mapping of int to ndarray or None
            See `Weights.read_gradients`.
        norm_backward : float, optional
            Norm of the gradients after the backward pass, still multiplied by the loss scale; by default of those that
            a backward pass has returned for the same parameters.
        """
        if not self.reads:
            return
        norm = self._norm_returned(optimizer) if norm_backward is None else norm_backward
        scale = self.scale if math.isfinite(self.scale) and self.scale > 0 and not has_scale(optimizer) else 1.0
        self.weights.read_gradients(optimizer, gradients, self.names(), norm / scale)

    def _norm_returned(self, optimizer: nn.Optimizer) -> float:
        shapes = [tuple(weight.shape) for weight in optimizer.parameters]
        for gradients in reversed(self._returned):
            if [tuple(gradient.shape) for gradient in gradients] == shapes:
                arrays = [self.reading.array(gradient) for gradient in gradients]
                return math.hypot(*(norm_of(array) for array in arrays if array is not None))
        return math.nan

    def update_ended(self, optimizer: nn.Optimizer) -> None:
        """Note that an optimizer has updated."""
        if self.reads:
            self.weights.update_ended(optimizer, self.names())

    def strange_update_ended(self) -> None:
        """End a step with an update by an optimizer that holds no parameter of a network that runs."""
        if not self._step:
            self._without_optimizer += 1
            self._hand_over(self._without_optimizer, skipped=False)

    def step_done(self, *, skipped: bool) -> None:
        """Hand over the facts of a step that has ended.

        Parameters
        ----------
        skipped : bool
            Whether a loss scaler has skipped the update.
        """
        if not self._step and self._without_optimizer:
            self._diagnosing.begin_again()
        self._step += 1
        self._hand_over(self._step, skipped=skipped)

    # --- steps ---

    def _live_optimizers(self) -> list[nn.Optimizer]:
        optimizers = [reference() for reference in self._optimizers.values()]
        return [optimizer for optimizer in optimizers if optimizer is not None]

    def _hand_over(self, step: int, *, skipped: bool) -> None:
        began = time.perf_counter()
        diagnosing = self._diagnosing
        add = diagnosing.add
        if step in _SEARCHES:
            self._batches, self._batch_size = longest_data_set()
            for optimizer in live_instances(nn.Optimizer):
                if id(optimizer) not in self._optimizers and self.knows(optimizer):
                    self._optimizers[id(optimizer)] = weakref.ref(optimizer)
        add("losses", step, [{**row, "value": self.reading.number(tensor)} for tensor, row in self._losses])
        steps_row = {
            "name": "step",
            "backward_passes": self._backward_passes,
            "updates": self._updates,
            "is_skipped": skipped,
            "scale": self.scale,
            "update_line": self._update_line,
            "batches": self._batches,
            "batch_size": self._batch_size,
        }
        add("steps", step, [steps_row])
        calls = [{key: value for key, value in row.items() if key != "seen"} for row in self._calls.values()]
        add("calls", step, calls)
        add("rates", step, self._rates)
        if diagnosing.reads:
            self._read_step(step, calls)
        self._losses, self._functions, self._calls, self._returned, self._rates = [], [], {}, [], []
        self._layers, self._read = {}, {}
        self._names, self._ids = None, None
        self._backward_passes = self._updates = 0
        self._is_begun = False
        diagnosing.step_done(step, time.perf_counter() - began)

    def _read_step(self, step: int, calls: Sequence[dict[str, Any]]) -> None:
        add = self._diagnosing.add
        networks = [(label, network) for label, network, _ in self._live_networks()]
        owners: dict[int, int] = {}
        for optimizer in self._live_optimizers():
            for weight in optimizer.parameters:
                owners[id(weight)] = owners.get(id(weight), 0) + 1
        add("groups", step, self.weights.groups)
        add("loss_functions", step, self._functions)
        add("layers", step, list(self._layers.values()))
        add("ties", step, [] if self._ties is None else list(self._ties.rows()))
        add("modules", step, module_rows(networks, set(owners), self.reading))
        self.names()
        rows = self.weights.take(self._named, owners, self._read)
        add("parameters", step, rows)
        rank = self._diagnosing.rank
        add("ranks", step, [rank_row(rank, self._world, rows, calls, self.weights.norm_backward)])


def _is_statistic(parameter: Any) -> bool:
    """Whether a parameter is a running mean or variance, which nothing trains."""
    name = parameter.name.rpartition(".")[2]
    return not parameter.requires_grad and name.startswith(("moving_", "running_", "num_batches"))
