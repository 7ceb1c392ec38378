"""The operators that a step is expected to run, position by position, and where their tensors are observed."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.eager.traced_programs import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from tensight.agents.program import Source, TracedNode
    from tensight.agents.slots import DeclaredNode

Path = tuple[str | int, ...]
"""Where a tensor is in a call: ``("result",)``, ``("result", 1)``, ``("args", 0, 3)``, ``("kwargs", "out")``."""


class Content(Enum):
    """What an output holds."""

    FRESH = "fresh"
    """Elements of a tensor that this operator has made."""
    WRITTEN = "written"
    """Elements of a tensor that was there, and that this operator has written to."""
    VIEW = "view"
    """Elements of another tensor."""


class Output(NamedTuple):
    """An output of an operator.

    Attributes
    ----------
    path : Path
    slot_id : int
    content : Content
    dtype : torch.dtype
    gate : str
        Name of the dtype, if NaN and Inf can be found in its memory at once; empty if not.
    base : int
        Of a view the slot that shows the same elements, -1 if there is none.
    root : int
        The slot that was the first to show the memory in which it lies, -1 if there is none.
    stale : tuple of int
        Slots that show what was in that memory before it was written to.
    is_certain : bool
        Whether every operator that has written to that memory says so.
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
    """A tensor that came from outside the step, at the operator that is given it first.

    Attributes
    ----------
    output : Output
    node : TracedNode
    is_read : bool
        False where that operator writes over it without having read it: nobody may ever have written to it before.
    """

    output: Output
    node: TracedNode
    is_read: bool


class Link(NamedTuple):
    """An argument of an operator of the forward pass that tells by its identity where it came from.

    Attributes
    ----------
    argument : int
        Position of the argument.
    distance : int
        How many operators before this one it was made; 0 of a persistent tensor.
    number : int
        Which of that operator's results it is, -1 if it is the only one; of a persistent tensor its identity.
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
        None if the operator itself does not tell that it is this one; see `declared`.
    declared : OpOverload
    scope : str
        Of the module that runs; compared by identity.
    node : DeclaredNode
    traced : TracedNode
    outputs : tuple of Output
    externals : tuple of External
    is_gradient : bool
        Whether it belongs to the backward pass.
    reads : bool
        Whether it reads tensors; else it makes one of nothing.
    is_single : bool
        Whether the result is one tensor.
    slot_id : int
        Of the only output, if that is the result itself, and new; -1 for all others.
    sequence : tuple of (int, int)
        Numbers of the autograd nodes that were made for it, from the first of the step: first, and after the last.
    owner : str
        Of an optimizer's operator the path of the weight that it works for.
    links : tuple of Link
        What it must be given to be this one.
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
        """Whether an ATen operator in a scope is this one."""
        return self.declared is func and self.scope is scope


END = Operator(None, "", None, None)
"""Stands after the last operator; no operator is like it."""


class OperatorStep:
    """The operators of a step.

    Attributes
    ----------
    operators : list of Operator
        `END` is the last. Steps that begin alike share their first operators: these are the same objects.
    gradient_sources : mapping of str to tuple of Source
    evaluation : tuple of (int, int)
        Which operators a closure runs each time that an optimizer evaluates it: the first, and the one after the last.
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
        mine, others = self.trace.operators, other.trace.operators
        return len(mine) == len(others) and all(
            one.name == another.name and one.inputs == another.inputs for one, another in zip(mine, others, strict=True)
        )

    def begins_like(self, other: Sequence[Operator], length: int) -> bool:
        """Whether the first operators are the same as those of another step."""
        return len(self.operators) > length and (length == 0 or self.operators[length - 1] is other[length - 1])


def tensor_at(path: Path, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Any:
    """Return the tensor at a path of a call; None if something else is there now."""
    first = path[0]
    found: Any = result if first == "result" else args if first == "args" else kwargs
    try:
        for step in path[1:]:
            found = found[step]
    except (IndexError, KeyError, TypeError):
        return None
    return found
