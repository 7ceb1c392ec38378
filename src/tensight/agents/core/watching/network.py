"""What is known of the network of a training: its layers and operators, as its programs have shown them."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from tensight.agents.core.watching.selection import layers_of
from tensight.graph import Layers, is_after_forward

if TYPE_CHECKING:
    from tensight.agents.core.program import Program


class KnownNetwork:
    """The network that the programs of a training run.

    Attributes
    ----------
    layers : Layers
        Of all programs together.
    operators : set of str
        Names of the operators of programs whose connections are known.
    program : Program or None
        What runs, or what ran last. Set from outside.
    """

    def __init__(self) -> None:
        self.layers = Layers()
        self.operators: set[str] = set()
        self.program: Program | None = None
        self._layers_of: dict[str, Layers] = {}
        self._weights: set[str] = set()

    def learn(self, program: Program) -> bool:
        """Add the layers that a program runs; return whether that changes the layers or the weights."""
        operators = {node.name for node in program.nodes if node.role == "operator"}
        forward = {name for name in operators if not is_after_forward(name)}
        if any(source and source[0] in forward for node in program.nodes for source in node.inputs):
            # Before anything has run, an adapter may report operators, but not yet how they are connected.
            self.operators |= operators
        self._layers_of[program.name] = layers_of(program)
        layers = reduce(or_, self._layers_of.values())
        weights = {node.name for node in program.nodes if node.role == "weight"}
        if layers == self.layers and weights == self._weights:
            return False
        self.layers, self._weights = layers, weights
        return True

    @property
    def running_layers(self) -> Layers:
        """The layers in the program that runs; names may mean something else in another one."""
        return self.layers if self.program is None else self._layers_of.get(self.program.name, self.layers)
