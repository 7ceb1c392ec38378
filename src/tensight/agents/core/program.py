"""What a step computes, as an adapter has traced it: nodes in the order of execution, and the sources of inputs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.graph import OutputSlot
    from tensight.graph.declared import Given

Role = Literal["operator", "weight", "frozen_weight", "state", "buffer", "input", "constant"]
"""What a node is. A state belongs to an optimizer; a buffer is a module's tensor that is not a weight; an input is a
tensor that the step got from outside; a constant is written into the code."""

Source = tuple[str, int]
"""Full name of the node that produced a tensor, and which of its outputs that is."""


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A line of the user's code, or several if it is unknown which of them ran.

    Attributes
    ----------
    file : str
    line : int
        The first of several.
    function : str
    code : str
        The line itself, without indentation; the first of several.
    end_line : int or None
        The last of several.
    """

    file: str
    line: int
    function: str
    code: str
    end_line: int | None = None

    @property
    def file_line(self) -> str:
        """Its file and line, as train.py:31."""
        return f"{os.path.basename(self.file)}:{self.line}"


@dataclass(frozen=True, slots=True)
class TracedNode:
    """A node of a step.

    Attributes
    ----------
    name : str
        Full name, unique in the program: ``Default/layer1/conv1/Conv2d-op0``, ``Gradients/Default/…``; for everything
        but operators the plain name: ``layer1.conv1.weight``, ``exp_avg.layer1.conv1.weight``.
    type : str
        ``Conv2d``, ``convolution``; ``Const`` for constants, ``Parameter`` for everything else but operators.
    role : Role
    inputs : tuple of Source or None
        One for each input slot; None if the source is not in the program.
    outputs : tuple of OutputSlot
        dtype and shape of each output slot when the node was traced.
    stack : tuple of StackFrame
        The user's code that ran it, innermost first; for a gradient, that of its forward node.
    attributes : mapping of str to value
        Details to show: strides, epsilon; for a constant its ``value``, if known.
    """

    name: str
    type: str
    role: Role = "operator"
    inputs: tuple[Source | None, ...] = ()
    outputs: tuple[OutputSlot, ...] = ()
    stack: tuple[StackFrame, ...] = ()
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    @property
    def scope(self) -> str:
        """The scope of an operator; empty for everything else."""
        return self.name.rpartition("/")[0] if self.role == "operator" else ""


@dataclass(frozen=True, slots=True)
class Program:
    """What a step computes. Steps that compute the same share one program.

    Attributes
    ----------
    name : str
        Name of its graph, such as ``kernel_graph_0``.
    number : int
        0 for the first program of a run, and so on.
    nodes : tuple of TracedNode
        First everything but operators, then operators in the order of execution.
    written : bytes
        The graph as the framework wrote it (a serialized GraphProto), with these names; empty if there is none.
    given : mapping of str to Given
        Possible sources of nodes that are not operators, among the values that others compute, by their names.
    """

    name: str
    number: int
    nodes: tuple[TracedNode, ...]
    written: bytes = field(default=b"", repr=False)
    given: Mapping[str, Given] = field(default_factory=dict, repr=False)
