"""Loss functions and gradients in the graphs of a step, as MindSpore has compiled them."""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tensight.agents.core.call_stack import is_user_file
from tensight.agents.mindspore.facts.loss_cells import ACTIVATIONS, MOST_BEFORE, PASSING
from tensight.graph.operator_facts import may_write_inputs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tensight.agents.core.program import Source, TracedNode

_GRADIENTS = "Gradients/"
_LOSSES = {
    "SparseSoftmaxCrossEntropyWithLogits": ("cross_entropy", "SoftmaxCrossEntropyWithLogits"),
    "SoftmaxCrossEntropyWithLogits": ("cross_entropy", "SoftmaxCrossEntropyWithLogits"),
    "NLLLoss": ("nll_loss", "NLLLoss"),
    "BinaryCrossEntropy": ("bce", "BCELoss"),
    "BCEWithLogitsLoss": ("bce_with_logits", "BCEWithLogitsLoss"),
    "SigmoidCrossEntropyWithLogits": ("bce_with_logits", "SigmoidCrossEntropyWithLogits"),
    "MSELossExt": ("mse_loss", "MSELoss"),
    "SmoothL1Loss": ("smooth_l1_loss", "SmoothL1Loss"),
    "KLDivLoss": ("kl_div", "KLDivLoss"),
}
"""Operators, the functions of ``loss_functions``, and what scripts call."""

_SQUARES = {"Square": ("mse_loss", "MSELoss"), "Abs": ("l1_loss", "L1Loss")}
_MEANS = ("ReduceMean", "MeanExt")
_SUMS = ("ReduceSum", "SumExt")
_DIFFERENCES = ("Sub", "SubExt")
_SHAPING = PASSING | {"MaskedFill"}
_ZEROS = ("ZerosLike", "ZerosLikeExt", "Zeros")
_GRADIENT_AT = {"ApplyMomentum": 3, "SGD": 1, "Adam": 9, "AdamWeightDecay": 8, "ApplyAdagrad": 3, "ApplyRMSProp": 4}
"""Which input of an optimizer's operator is the gradient."""

_MOST_NODES = 100
_INTEGER = re.compile(r"-?\d{1,2}")


class GraphLoss(NamedTuple):
    """A loss function in a graph.

    Attributes
    ----------
    function, called : str
        See ``loss_functions``.
    given, target : Source
    before : list of str
        The functions that made the input, the last one first.
    axis : int or None
        Of a softmax before all others, if it is known.
    factor : float
        By which what it returned was multiplied.
    reduction : str
    is_alone : bool
        Whether the loss is what it returned, times a factor.
    line, before_line : str
    """

    function: str
    called: str
    given: Source
    target: Source
    before: list[str]
    axis: int | None
    factor: float
    reduction: str
    is_alone: bool
    line: str
    before_line: str


class GraphGradient(NamedTuple):
    """The gradient of a parameter in a graph with an update.

    Attributes
    ----------
    read : Source or None
        What the update reads; None if the loss does not depend on the parameter.
    raw : Source or None
        What the backward pass has computed; None if it is unknown.
    """

    read: Source | None
    raw: Source | None


class StepGraph:
    """The nodes of the graphs that a call runs.

    Parameters
    ----------
    nodes : iterable of TracedNode
    root : Source or None
        The loss, if it is known.
    """

    def __init__(self, nodes: Iterable[TracedNode], root: Source | None) -> None:
        self._nodes: dict[str, TracedNode] = {}
        for node in nodes:
            self._nodes.setdefault(node.name, node)
        self._readers: dict[str, list[TracedNode]] = {}
        for node in self._nodes.values():
            for source in node.inputs:
                if source is not None:
                    self._readers.setdefault(source[0], []).append(node)
        self.root = root
        self.has_backward = any(name.startswith(_GRADIENTS) for name in self._nodes)

    @property
    def root_type(self) -> str:
        """Type of the operator that computes the loss; empty if it is unknown."""
        node = None if self.root is None else self._nodes.get(self.root[0])
        return "" if node is None or node.role != "operator" else node.type

    @cached_property
    def read(self) -> frozenset[str]:
        """Names of the nodes from which the loss is computed; empty if the loss is unknown."""
        return frozenset(() if self.root is None else self._ancestors([self.root[0]]))

    def parameters_read(self) -> set[str]:
        """Return the names of the parameters from which the loss is computed."""
        return {name for name in self.read if self._nodes[name].role in ("weight", "frozen_weight")}

    def _ancestors(self, names: Sequence[str]) -> Iterator[str]:
        seen, queue = set(names), list(names)
        while queue:
            node = self._nodes.get(queue.pop())
            if node is None:
                continue
            yield node.name
            for source in node.inputs:
                if source is not None and source[0] not in seen:
                    seen.add(source[0])
                    queue.append(source[0])

    @cached_property
    def _weighted(self) -> frozenset[str]:
        """Names of the operators that depend on a weight."""
        result = {node.name for node in self._nodes.values() if node.role == "weight"}
        queue = list(result)
        while queue:
            for reader in self._readers.get(queue.pop(), ()):
                if reader.name not in result and reader.role == "operator":
                    result.add(reader.name)
                    queue.append(reader.name)
        return frozenset(result)

    # --- loss functions ---

    @cached_property
    def losses(self) -> list[GraphLoss]:
        """The loss functions from which the loss is computed."""
        result = []
        for node in self._nodes.values():
            if node.name not in self.read or node.role != "operator" or node.name.startswith(_GRADIENTS):
                continue
            loss = self._loss_of(node)
            if loss is not None:
                result.append(loss)
        return result

    def _loss_of(self, node: TracedNode) -> GraphLoss | None:
        names = _LOSSES.get(node.type)
        pair: Sequence[Source | None] = (None, None)
        if names is not None and len(node.inputs) >= 2:
            pair = node.inputs[0], node.inputs[1]
        elif node.type in _SQUARES or (node.type == "Pow" and self._constant(node, 1) == "2"):
            names = _SQUARES.get(node.type, _SQUARES["Square"])
            pair = self._difference(node)
        elif node.type == "GatherD":
            names, *pair = self._picked(node)
        given, target = pair
        if names is None or given is None or target is None or given[0] not in self._weighted:
            return None
        after, factor = self._towards_root(node)
        if not after and node.type in _SQUARES and self.root is not None and self.root[0] != node.name:
            return None
        if node.type == "GatherD":
            # The negative logarithm of what was picked is the loss.
            factor = -factor
            kinds = [other.type for other in after if other.type not in _SHAPING]
            is_weighted = any(kind in ("Mul", "Muls") and not has_number for kind, has_number in self._kinds(after))
            if kinds[:1] != ["Neg"] or is_weighted:
                return None
        before, activation = self._before(given)
        axis = self._axis(activation) if before and before[0] in ("softmax", "log_softmax") else None
        return GraphLoss(
            *names,
            given,
            target,
            before,
            axis,
            factor,
            self._reduction(node, after),
            self._is_alone(node, after),
            _line(node),
            "" if activation is None else _line(activation),
        )

    def _difference(self, node: TracedNode) -> tuple[Source | None, Source | None]:
        """Return prediction and target of a square, or of an absolute value, of their difference."""
        minus = self._node_at(node, 0)
        if minus is None or minus.type not in _DIFFERENCES or len(minus.inputs) < 2:
            return None, None
        first, second = minus.inputs[:2]
        if first is None or second is None:
            return None, None
        is_first, is_second = first[0] in self._weighted, second[0] in self._weighted
        if is_first == is_second:
            return None, None
        return (first, second) if is_first else (second, first)

    def _is_alone(self, node: TracedNode, after: Sequence[TracedNode]) -> bool:
        last = after[-1] if after else node
        if self.root is None or last.name != self.root[0]:
            return False
        plain = {*_SHAPING, *_MEANS, *_SUMS, "Neg"}
        return all(kind in plain or (kind in ("Mul", "Muls") and has_number) for kind, has_number in self._kinds(after))

    def _kinds(self, after: Sequence[TracedNode]) -> Iterator[tuple[str, bool]]:
        """Yield the types of operators, and whether each has an input that is a constant."""
        for node in after:
            inputs = [self._nodes.get(source[0]) for source in node.inputs if source is not None]
            yield node.type, any(other is not None and other.role == "constant" for other in inputs)

    def _picked(self, node: TracedNode) -> tuple[tuple[str, str] | None, Source | None, Source | None]:
        """Return a loss function, its input and the classes, where logarithms of probabilities are picked by class."""
        logarithms = self._through(node.inputs[0] if node.inputs else None, PASSING)
        index = self._through(next((source for source in node.inputs[2:3]), None), _SHAPING)
        picked = None if logarithms is None else self._nodes.get(logarithms[0])
        if picked is None or index is None:
            return None, None, None
        if picked.type in _DIFFERENCES and picked.inputs[0] is not None:
            # The scores less the logarithm of the sum of their exponentials.
            near = set(self._near(picked.inputs[1]))
            types = {self._nodes[name].type for name in near}
            if {"Log", "Exp"} <= types and picked.inputs[0][0] in near:
                return ("cross_entropy", "cross_entropy"), picked.inputs[0], index
        return ("nll_loss", "NLLLoss"), logarithms, index

    def _near(self, source: Source | None) -> Iterator[str]:
        """Yield the nodes from which a value is computed, up to some steps back."""
        queue = [(source, 0)]
        seen: set[str] = set()
        while queue:
            at, depth = queue.pop()
            node = None if at is None else self._nodes.get(at[0])
            if node is None or node.name in seen or depth > 6:
                continue
            seen.add(node.name)
            yield node.name
            if node.role == "operator":
                queue += [(before, depth + 1) for before in node.inputs]

    def _through(self, source: Source | None, passing: Collection[str]) -> Source | None:
        """Return where a value comes from, through operators that only give it another shape or dtype."""
        for _ in range(_MOST_NODES):
            node = None if source is None else self._nodes.get(source[0])
            if node is None or node.type not in passing or not node.inputs:
                break
            source = node.inputs[0]
        return source

    def _before(self, source: Source) -> tuple[list[str], TracedNode | None]:
        """Return the functions that made a value, the last one first, and the first activation."""
        names: list[str] = []
        first: TracedNode | None = None
        at: Source | None = source
        while at is not None and len(names) < MOST_BEFORE:
            node = self._nodes.get(at[0])
            if node is None or node.role != "operator":
                break
            if node.type in ACTIVATIONS:
                first = first or node
                names.append(ACTIVATIONS[node.type])
            elif node.type not in PASSING:
                break
            inputs = [each for each in node.inputs if each is not None and each[0] in self._weighted]
            at = inputs[0] if len(inputs) == 1 else None
        return names, first

    def _axis(self, node: TracedNode | None) -> int | None:
        text = "" if node is None else self._constant(node, 1)
        match = _INTEGER.search(text)
        return int(match[0]) if match else None

    def _towards_root(self, node: TracedNode) -> tuple[list[TracedNode], float]:
        """Return the operators between a loss function and the loss, and the factor by which they multiply."""
        path: list[TracedNode] = []
        factor = 1.0
        while self.root is not None and node.name != self.root[0] and len(path) < _MOST_NODES:
            readers = [
                reader
                for reader in self._readers.get(node.name, ())
                if reader.name in self.read and not reader.name.startswith(_GRADIENTS)
            ]
            if len(readers) != 1:
                break
            reader = readers[0]
            if reader.type == "Neg":
                factor = -factor
            elif reader.type in ("Mul", "Muls"):
                other = [source for source in reader.inputs if source is not None and source[0] != node.name]
                factor *= _number(self._nodes[other[0][0]]) if len(other) == 1 and other[0][0] in self._nodes else 1.0
            node = reader
            path.append(node)
        return path, factor

    def _reduction(self, node: TracedNode, after: Sequence[TracedNode]) -> str:
        types = [other.type for other in after]
        if any(kind in _MEANS for kind in types):
            return "mean"
        if any(kind in _SUMS for kind in types):
            return "mean" if any(kind in ("Div", "RealDiv", "Divs") for kind in types) else "sum"
        text = next(
            (
                str(constant.attributes.get("value", ""))
                for source in node.inputs
                if source is not None and (constant := self._nodes.get(source[0])) is not None
                if constant.role == "constant" and constant.attributes.get("value") in ("mean", "sum", "none")
            ),
            "",
        )
        if text:
            return text
        is_scalar = bool(node.outputs) and node.outputs[0].shape == ()
        return "mean" if is_scalar and node.type == "SparseSoftmaxCrossEntropyWithLogits" else ""

    def _constant(self, node: TracedNode, index: int) -> str:
        source = node.inputs[index] if len(node.inputs) > index else None
        constant = None if source is None else self._nodes.get(source[0])
        return "" if constant is None or constant.role != "constant" else str(constant.attributes.get("value", ""))

    def _node_at(self, node: TracedNode, index: int) -> TracedNode | None:
        source = self._through(node.inputs[index] if len(node.inputs) > index else None, PASSING)
        return None if source is None else self._nodes.get(source[0])

    # --- gradients ---

    def gradients(self, parameters: Mapping[str, tuple[int, ...]]) -> dict[str, GraphGradient]:
        """Return the gradients of parameters that operators of an optimizer update, as far as they are seen.

        Parameters
        ----------
        parameters : mapping of str to tuple of int
            Names in the graph, and shapes.
        """
        result: dict[str, GraphGradient] = {}
        for node in self._nodes.values():
            if node.role != "operator" or node.type not in _GRADIENT_AT or not may_write_inputs(node.type):
                continue
            name = node.inputs[0][0] if node.inputs and node.inputs[0] is not None else ""
            at = _GRADIENT_AT[node.type]
            source = node.inputs[at] if len(node.inputs) > at else None
            if name not in parameters or source is None or source[0] not in self._nodes:
                continue
            raw = self._raw(source, parameters[name])
            if raw is None and not self._is_computed(source):
                result[name] = GraphGradient(None, None)
            elif self._nodes[source[0]].role == "operator":
                result[name] = GraphGradient(source, raw)
        return result

    def _is_computed(self, source: Source) -> bool:
        """Whether a gradient comes from a backward pass, or from outside; if not, it is made of constants."""
        for name in self._ancestors([source[0]]):
            node = self._nodes[name]
            if name.startswith(_GRADIENTS) and node.type not in _ZEROS:
                return True
            if node.role == "input":
                return True
        return False

    def _raw(self, source: Source, shape: tuple[int, ...]) -> Source | None:
        """Return the gradient that a backward pass has computed, before it was clipped, unscaled or decayed."""
        queue, seen = [source], {source[0]}
        while queue and len(seen) < _MOST_NODES:
            at = queue.pop(0)
            node = self._nodes.get(at[0])
            if node is None or node.role != "operator":
                continue
            if node.name.startswith(_GRADIENTS) and node.type not in _ZEROS:
                return at
            for before in node.inputs:
                other = None if before is None else self._nodes.get(before[0])
                if other is None or before is None or other.name in seen or other.role != "operator":
                    continue
                known_shape = other.outputs[before[1]].shape if before[1] < len(other.outputs) else None
                if known_shape is None or tuple(known_shape) == shape:
                    seen.add(other.name)
                    queue.append(before)
        return None


def _number(node: TracedNode) -> float:
    value = node.attributes.get("value")
    return float(value) if node.role == "constant" and isinstance(value, (int, float)) else 1.0


def _line(node: TracedNode) -> str:
    """Return the line of the user's code that has called an operator, as train.py:31; empty if there is none."""
    frame = next((frame for frame in node.stack if is_user_file(frame.file)), None)
    return "" if frame is None else f"{os.path.basename(frame.file)}:{frame.line}"
