"""Bottlenecks: operators that no path to later layers bypasses.

A layer of zeros blocks the signal only at a bottleneck. Beside another branch, a layer may be initialized to zero on
purpose, such as an adapter, a modulation, or the last layer of a residual branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph.dominators import passed_by_all
from tensight.graph.operator_facts import SUMS, applies_matrix, plain_type

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence, Set

    from tensight.graph.layer_node import LayerNode


class Bottlenecks:
    """Finds the layers of a network that are bottlenecks.

    Parameters
    ----------
    nodes : sequence of LayerNode
        All nodes.
    forward : sequence of LayerNode
        The operators of the forward pass in execution order.
    of_weights : collection of str
        Weights, and views of them.
    fed : collection of str
        Operators whose results depend on weights.
    masks : set of str
        From `find_masks`.

    Attributes
    ----------
    weights_in : dict of str to set of str
        The weights of which each weight, and each view of weights, consists.
    """

    def __init__(
        self,
        nodes: Sequence[LayerNode],
        forward: Sequence[LayerNode],
        of_weights: Collection[str],
        fed: Collection[str],
        masks: Set[str],
    ) -> None:
        self._forward = forward
        self._weights = {node.name: node for node in nodes if node.kind in ("weight", "frozen")}
        self.weights_in = views = _weights_in_views(forward, of_weights, self._weights)
        self._layers: dict[str, set[str]] = {}
        for node in forward:
            if node.name not in of_weights:
                taken = {weight for name in node.inputs for weight in views.get(name, ())}
                matrices = {weight for weight in taken if _is_matrix(self._weights[weight])}
                if matrices and plain_type(node.type) not in SUMS:
                    self._layers[node.name] = matrices
        goes_on: set[str] = set()
        for node in reversed(forward):
            if node.name in self._layers or node.name in goes_on:
                goes_on.update(node.inputs)
        data = {node.name for node in nodes if node.kind == "data"} - masks | {""}
        self._parts = _made_of(forward, data, {*fed, *of_weights, *masks})
        self._single = {
            node.name: next(iter(self._layers[node.name]))
            for node in forward
            if len(self._layers.get(node.name, ())) == 1 and applies_matrix(node.type)
        }
        self._between = self._passed_by_all(goes_on, {*fed} - {*of_weights}, data) & goes_on

    def weights(self) -> frozenset[str]:
        """Return the weights of layers that are bottlenecks before later layers."""
        return frozenset(weight for name, weight in self._single.items() if name in self._between)

    def between_trained(self) -> frozenset[str]:
        """Return the frozen weights of bottlenecks between trained weights."""
        after_trained: set[str] = set()
        before_trained: set[str] = set()
        for node in self._forward:
            if self._trains(node.name) or not after_trained.isdisjoint(node.inputs):
                after_trained.add(node.name)
        for node in reversed(self._forward):
            if self._trains(node.name) or node.name in before_trained:
                before_trained.update(node.inputs)
        return frozenset(
            weight
            for name, weight in self._single.items()
            if name in self._between and name in after_trained and name in before_trained
            if self._weights[weight].kind == "frozen"
        )

    def _trains(self, name: str) -> bool:
        return any(self._weights[weight].kind == "weight" for weight in self._layers.get(name, ()))

    def _passed_by_all(self, goes_on: Collection[str], signals: Collection[str], data: Collection[str]) -> set[str]:
        """Return the operators through which everything passes that later layers read."""
        numbers = {node.name: number for number, node in enumerate(self._forward)}
        read: list[list[int]] = []
        for node, more in zip(self._forward, self._read_unseen(signals), strict=True):
            if node.name not in goes_on and node.name not in self._layers:
                read.append([])
                continue
            # Other parts of the data that go through the layers, such as the next words, do not bypass them.
            parts = () if node.name in self._layers else self._parts
            inputs = [name for name in (*node.inputs, *more) if name in signals or name in data or name in parts]
            read.append([numbers.get(name, -1) for name in inputs])
        passed = passed_by_all(read)
        return {node.name for node, by_all in zip(self._forward, passed, strict=True) if by_all}

    def _read_unseen(self, signals: Collection[str]) -> Iterator[Sequence[str]]:
        """Yield for each operator the unread results that it may use, because a module uses those of its submodules."""
        read = {name for node in self._forward for name in node.inputs}
        unread: dict[str, list[str]] = {}
        for node in self._forward:
            scope = node.name.rpartition("/")[0]
            yield unread.pop(scope, ())
            if node.name in signals and node.name not in read:
                unread.setdefault(scope.rpartition("/")[0], []).append(node.name)


def _made_of(forward: Sequence[LayerNode], data: Collection[str], others: Collection[str]) -> set[str]:
    """Return the operators that process only data: views, parts, conversions."""
    operators: set[str] = set()
    for node in forward:
        if node.name not in others and any(name in operators or name in data for name in node.inputs if name):
            operators.add(node.name)
    return operators


def _weights_in_views(
    forward: Sequence[LayerNode], of_weights: Collection[str], weights: Mapping[str, LayerNode]
) -> dict[str, set[str]]:
    """Return the weights of which each weight, and each view of weights, consists."""
    weights_in = {name: {name} for name in weights}
    for node in forward:
        if node.name in of_weights:
            views = [weights_in[name] for name in node.inputs if name in weights_in]
            largest = max(views, key=len, default=set[str]())
            # Most views consist of the same weights as another one, so they share the set.
            weights_in[node.name] = largest if all(view <= largest for view in views) else largest.union(*views)
    return weights_in


def _is_matrix(weight: LayerNode) -> bool:
    return weight.shape is not None and len(weight.shape) > 1
