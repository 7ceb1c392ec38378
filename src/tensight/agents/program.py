"""What a step computes, as an adapter saw it: nodes in the order of execution, and where their inputs came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.graph import OutputSlot
    from tensight.graph.declared import Given

Role = Literal["operator", "weight", "frozen_weight", "state", "buffer", "input", "constant"]
"""What a node is. A state belongs to an optimizer; a buffer is a module's tensor that is no weight; an input is a
tensor that the step got from outside; a constant is written into the code."""

Source = tuple[str, int]
"""Full name of the node that produced a tensor, and which of its outputs that is."""


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A line of the user's code, or several of which it is not known which one it was.

    Attributes
    ----------
    file : str
    line : int
        The first, where there are several.
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


@dataclass(frozen=True, slots=True)
class TracedNode:
    """A node of a step.

    Attributes
    ----------
    name : str
        Full name, unique in the program: ``Default/layer1/conv1/Conv2d-op0``, ``Gradients/Default/…``; of everything
        that is no operator its plain name: ``layer1.conv1.weight``, ``exp_avg.layer1.conv1.weight``.
    type : str
        ``Conv2d``, ``convolution``; ``Const`` for constants, ``Parameter`` for everything else that is no operator.
    role : Role
    inputs : tuple of Source or None
        One for each input slot; None where it came from nothing that is in the program.
    outputs : tuple of OutputSlot
        dtype and shape of each output slot, as seen when the node was traced.
    stack : tuple of StackFrame
        The user's code that ran it, innermost first; of a gradient that of its forward node.
    attributes : mapping of str to value
        What people want to know of it: strides, epsilon; of a constant its ``value``, if it is known.
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
        ``kernel_graph_0``: of the graph that it becomes.
    number : int
        0 for the first program of a run, and so on.
    nodes : tuple of TracedNode
        First everything that is no operator, then operators in the order of execution.
    written : bytes
        The graph as the framework itself wrote it (a serialized GraphProto), with these names; empty if it wrote none.
    given : mapping of str to Given
        What nodes that are no operators may be of what others compute, by their names.
    """

    name: str
    number: int
    nodes: tuple[TracedNode, ...]
    written: bytes = field(default=b"", repr=False)
    given: Mapping[str, Given] = field(default_factory=dict, repr=False)
