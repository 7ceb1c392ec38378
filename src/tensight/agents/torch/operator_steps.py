"""The operators that a step is expected to run, position by position, and where their tensors are observed."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.eager.traced_programs import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from tensight.agents.core.program import Source, TracedNode
    from tensight.agents.core.slots import DeclaredNode

Path = tuple[str | int, ...]
"""Path to a tensor in a call: ``("result",)``, ``("result", 1)``, ``("args", 0, 3)``, ``("kwargs", "out")``."""


class Content(Enum):
    """Whose elements an output has."""

    FRESH = "fresh"
    """Those of a tensor that this operator has made."""
    WRITTEN = "written"
    """Those of an existing tensor that this operator has written to."""
    VIEW = "view"
    """Those of another tensor."""


class Output(NamedTuple):
    """An output of an operator.

    Attributes
    ----------
    path : Path
    slot_id : int
    content : Content
    dtype : torch.dtype
    gate : str
        Name of the dtype, if its memory can be searched for NaN and Inf directly; empty if not.
    base : int
        For a view, the slot that shows the same elements, -1 if there is none.
    root : int
        The slot that was the first to show its memory, -1 if there is none.
    stale : tuple of int
        Slots that show the previous contents of that memory.
    is_certain : bool
        Whether every operator that has written to that memory declares it.
    """

    path: Path
    slot_id: int
    content: Content
    dtype: torch.dtype
    gate: str
    base: int = -1
    root: int = -1
    stale: tuple[int, ...] = ()
    is_certain: bool = True


class External(NamedTuple):
    """A tensor from outside the step, at the first operator that receives it.

    Attributes
    ----------
    output : Output
    node : TracedNode
    is_read : bool
        False if that operator overwrites it without reading it: it may be uninitialized.
    """

    output: Output
    node: TracedNode
    is_read: bool


FROM_OUTSIDE = -1
"""Used as the distance of a tensor that no operator of the step has made."""


class Link(NamedTuple):
    """An argument of an operator of the forward pass whose identity shows where it came from.

    Attributes
    ----------
    argument : int
        Position of the argument.
    distance : int
        How many operators before this one it was made; 0 for a persistent tensor, `FROM_OUTSIDE` for a tensor from
        outside the step that an earlier operator has received, too.
    number : int
        Index among that operator's results, -1 if it is the only one; for a persistent tensor its identity.
    source : Source
    """

    argument: int
    distance: int
    number: int
    source: Source


class Operator:
    """One operator of a step.

    Attributes
    ----------
    func : OpOverload or None
        None if this operator is not recognized by its function alone; see `declared`.
    declared : OpOverload
        The function that was called.
    scope : str
        Scope of the module that runs; compared by identity.
    node : DeclaredNode
    traced : TracedNode
    outputs : tuple of Output
    externals : tuple of External
    is_gradient : bool
        Whether it belongs to the backward pass.
    reads : bool
        Whether it reads tensors; if not, it creates one.
    is_single : bool
        Whether the result is one tensor.
    slot_id : int
        Slot id of the only output, if that is the result itself, and new; otherwise -1.
    sequence : tuple of (int, int)
        Half-open range of the sequence numbers of its autograd nodes, relative to the first of the step.
    owner : str
        For an optimizer's operator, the path of the weight that it updates.
    links : tuple of Link
        Arguments that must be the same tensors for a call to match this operator.
    """

    __slots__ = (
        "declared",
        "externals",
        "func",
        "is_gradient",
        "is_single",
        "links",
        "node",
        "outputs",
        "owner",
        "reads",
        "scope",
        "sequence",
        "slot_id",
        "traced",
    )

    def __init__(
        self,
        func: Any,
        scope: str,
        node: DeclaredNode | None,
        traced: TracedNode | None,
        outputs: tuple[Output, ...] = (),
        externals: tuple[External, ...] = (),
        sequence: tuple[int, int] = (0, 0),
        owner: str = "",
        links: tuple[Link, ...] = (),
    ) -> None:
        self.func = func
        self.declared = func
        self.scope = scope
        self.node = node
        self.traced = traced
        self.outputs = outputs
        self.externals = externals
        self.sequence = sequence
        self.owner = owner
        self.links = links
        self.is_gradient = traced is not None and traced.name.startswith("Gradients/")
        self.reads = traced is not None and bool(traced.inputs)
        self.is_single = len(outputs) == 1 and outputs[0].path == ("result",)
        is_new = self.is_single and outputs[0].content is not Content.WRITTEN
        self.slot_id = outputs[0].slot_id if is_new else -1

    def is_run_by(self, func: Any, scope: str) -> bool:
        """Whether a call of an ATen operator in a scope matches this one."""
        return self.declared is func and self.scope is scope


END = Operator(None, "", None, None)
"""End marker after the last operator; no call matches it."""


class OperatorStep:
    """The operators of a step.

    Attributes
    ----------
    operators : list of Operator
        Ends with `END`. Steps that begin alike share the objects of their first operators.
    gradient_sources : mapping of str to tuple of Source
        For each weight, the operators whose outputs were accumulated into its gradient.
    evaluation : tuple of (int, int)
        Half-open range of the operators that a closure runs each time that an optimizer evaluates it.
    trace : Trace
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        gradient_sources: Mapping[str, tuple[Source | None, ...]],
        evaluation: tuple[int, int] = (-1, 0),
    ) -> None:
        self.operators = [*operators, END]
        self.evaluation = evaluation
        self.gradient_sources = dict(gradient_sources)
        self.trace = Trace(
            inputs=tuple(external.node for operator in operators for external in operator.externals),
            operators=tuple(operator.traced for operator in operators if operator.traced is not None),
            gradient_sources=self.gradient_sources,
        )

    def runs_like(self, other: OperatorStep) -> bool:
        """Whether the same operators run in the same order, linked in the same way."""
        nodes, other_nodes = self.trace.operators, other.trace.operators
        return len(nodes) == len(other_nodes) and all(
            node.name == other_node.name and node.inputs == other_node.inputs
            for node, other_node in zip(nodes, other_nodes, strict=True)
        )

    def begins_like(self, other: Sequence[Operator], length: int) -> bool:
        """Whether the first operators are the same as those of another step."""
        return len(self.operators) > length and (length == 0 or self.operators[length - 1] is other[length - 1])


def tensor_at(path: Path, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Any:
    """Return the value at a path of a call; None if the path does not exist."""
    first = path[0]
    value: Any = result if first == "result" else args if first == "args" else kwargs
    try:
        for step in path[1:]:
            value = value[step]
    except (IndexError, KeyError, TypeError):
        return None
    return value
