"""The facts of a training in PyNative mode, from calls of cells, backward passes and updates."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.core.call_stack import line_of_user
from tensight.agents.mindspore.executors import pynative_executor
from tensight.agents.mindspore.facts.loss_cells import (
    ACTIVATIONS,
    LOSSES,
    before_of,
    given_to,
    loss_facts,
    read_root,
    reduction_of,
)
from tensight.agents.mindspore.facts.structure import changes_in_training
from tensight.agents.mindspore.framework import tensors_in, wraps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mindspore import nn
    from numpy.typing import NDArray

    from tensight.agents.mindspore.facts.source import FactSource

_LAYERS_IN_STEPS = 4


class CellFacts:
    """What is seen of cells.

    Parameters
    ----------
    source : FactSource
    """

    def __init__(self, source: FactSource) -> None:
        self._source = source
        self._outermost: nn.Cell | None = None
        self._inner: tuple[int, set[int]] = (0, set())
        self._lines: dict[str, str] = {}
        self._functions: list[tuple[dict[str, Any], Any, Any]] = []
        self._met: weakref.WeakSet[Any] = weakref.WeakSet()

    def call_begins(self, cell: nn.Cell) -> bool:
        """Note a call of a cell; return whether it is the outermost one of a network."""
        if self._outermost is not None:
            self._meet_nested(cell)
            return False
        if wraps(cell) or not any(True for _ in cell.get_parameters()):
            return False
        self._outermost = cell
        self._source.meet(cell)
        self._source.step_begins()
        return True

    def _meet_nested(self, cell: nn.Cell) -> None:
        """Note a cell that the network calls without holding it."""
        if not self._source.reads or not cell._params or self._outermost is None:
            return
        if self._inner[0] != id(self._outermost) or id(cell) not in self._inner[1]:
            self._inner = id(self._outermost), {id(inner) for _, inner in self._outermost.cells_and_names()}
        if id(cell) not in self._inner[1]:
            self._source.meet(cell, is_nested=True)

    def call_ended(self, cell: nn.Cell, given: Any, output: Any, *, is_outermost: bool) -> None:
        """Note what a cell has returned.

        Parameters
        ----------
        cell : Cell
        given : object
            Its arguments.
        output : object
        is_outermost : bool
            What `call_begins` has returned.
        """
        source, kind = self._source, type(cell).__name__
        if is_outermost:
            has_gradients = bool(pynative_executor().requires_grad())
            is_evaluation = not has_gradients and changes_in_training(cell)
            source.called(cell, tensors_in(given), has_gradients=has_gradients, is_evaluation=is_evaluation)
        if not source.reads:
            return
        is_of_mindspore = type(cell).__module__.startswith("mindspore.")
        if is_of_mindspore and kind in ACTIVATIONS:
            self._lines[ACTIVATIONS[kind]] = line_of_user()
        if is_of_mindspore and kind in LOSSES:
            self._loss_called(cell, tensors_in(given), next(iter(tensors_in(output)), None))
        elif source.step < _LAYERS_IN_STEPS and self._outermost is not None:
            self._layer_called(cell, tensors_in(given), output)

    def outermost_ended(self) -> None:
        """Note that the outermost call is over, also if it has raised an exception."""
        self._outermost = None

    def _loss_called(self, cell: nn.Cell, tensors: list[Any], output: Any) -> None:
        if output is None or not bool(pynative_executor().requires_grad()):
            return
        values, target = given_to(self._source.reading, tensors)
        line = line_of_user()
        weight = getattr(cell, "weight", None)
        row = loss_facts(
            LOSSES[type(cell).__name__],
            type(cell).__name__,
            values,
            target,
            before_of(tensors[0], values) if tensors else [],
            ids=self._source.ids,
            ignored_index=int(getattr(cell, "ignore_index", -100)),
            class_weights=self._source.reading.array(weight) if hasattr(weight, "shape") else None,
            line=lambda function: line if function not in ACTIVATIONS.values() else self._lines.get(function, ""),
        )
        node = getattr(output, "_grad_node", None)
        row["reduction"] = reduction_of(cell, output)
        self._functions.append((row, None if node is None else node._unique_id(), output))

    def _layer_called(self, cell: nn.Cell, tensors: list[Any], output: Any) -> None:
        """Note what a layer with a matrix, or a normalization, returns."""
        results = tensors_in(output)
        if cell._cells or len(results) != 1 or not tensors or not results[0].is_floating_point():
            return
        has_matrix = any(weight is not None and len(weight.shape) > 1 for weight in cell._params.values())
        elements, samples = _normalised(cell, tensors[0])
        values = self._source.reading.part(results[0]) if has_matrix or elements >= 0 else None
        if values is None or not values.size:
            return
        first = next((weight.name for weight in cell._params.values() if weight is not None), "")
        self._source.layer(
            {
                "name": first.rpartition(".")[0] or type(cell).__name__,
                "type": type(cell).__name__,
                "deviation": float(values.astype(np.float64).std()),
                "normalised": elements,
                "samples": samples,
            }
        )

    # --- backward passes and updates ---

    def backward_begins(self, root: Any, before_scaling: Any) -> None:
        """Note the tensor from which a backward pass begins, and its value before a loss scaler has scaled it."""
        source = self._source
        source.weights.backward_ended()
        row: dict[str, Any] = {"line": line_of_user()}
        graph = read_root(root) if source.reads else None
        if graph is not None:
            read = {
                identity: _end_of(weight) in graph.leaves
                for identity, weight in source.parameters()
                if weight.requires_grad
            }
            row |= {"function": graph.function, "is_connected": any(read.values())}
            source.computed_from(read)
        scaled = root if before_scaling is None else before_scaling
        name = source.loss(scaled, row)
        for function, identity, output in self._functions:
            is_root = output is root
            factor = 1.0 if is_root else math.nan if graph is None else graph.signs.get(identity, math.nan)
            # The gradients of the elements of a loss that is not reduced are added up.
            is_summed = is_root and output.size > 1
            source.loss_function(
                {**function, "loss": name, "factor": factor, "is_alone": math.isfinite(factor)}
                | ({"reduction": "sum"} if is_summed else {})
            )
        self._functions = []

    def backward_ended(self, result: Any) -> None:
        """Note what a backward pass has returned."""
        if self._source.reads:
            self._source.returned(tensors_in(result))

    def update_begins(self, optimizer: nn.Optimizer, gradients: Any) -> None:
        """Note that an optimizer is about to update with gradients."""
        source = self._source
        source.update_begins(optimizer)
        if source.reads:
            source.gradients(optimizer, self._by_parameter(optimizer, gradients))

    def _by_parameter(self, optimizer: nn.Optimizer, gradients: Any) -> Mapping[int, NDArray[Any] | None]:
        """Return the gradients that an optimizer is given, by the identities of its parameters."""
        source, result = self._source, dict[int, Any]()
        given = list(gradients) if isinstance(gradients, (tuple, list)) else []
        reached = source.reached
        for weight, gradient in zip(optimizer.parameters, given, strict=False):
            tensors = tensors_in(gradient)
            values = source.reading.array(tensors[0]) if len(tensors) == 1 else None
            if values is None:
                continue
            is_cut = reached.get(id(weight)) is False and not values.any()
            result[id(weight)] = None if is_cut else values
        return result

    def update_ended(self, optimizer: nn.Optimizer, *, is_strange: bool) -> None:
        """Note that an optimizer has updated; a strange one holds no parameter of a network that was called."""
        self._source.update_ended(optimizer)
        if is_strange:
            self._source.strange_update_ended()

    def scaled_by(self, scaler: Any) -> None:
        """Note that a loss scaler has scaled something."""
        scale = getattr(scaler, "scale_value", None)
        if hasattr(scale, "shape"):
            self._source.scale = self._source.reading.number(scale)
        elif isinstance(scale, (int, float)):
            self._source.scale = float(scale)


def _end_of(weight: Any) -> Any:
    node = getattr(weight, "_grad_node", None)
    return None if node is None else node._unique_id()


def _normalised(cell: nn.Cell, given: Any) -> tuple[int, int]:
    """Return over how many elements a cell computes each of its statistics, and over how many samples; -1 if none."""
    kind, shape = type(cell).__name__, tuple(given.shape)
    if kind == "LayerNorm":
        normalised = getattr(cell, "normalized_shape", ())
        return math.prod(normalised), -1
    if kind == "GroupNorm" and len(shape) >= 2:
        return shape[1] // cell.num_groups * math.prod(shape[2:]), -1
    if kind.startswith("BatchNorm") and len(shape) >= 2:
        return shape[0] * math.prod(shape[2:]), shape[0]
    return -1, -1
