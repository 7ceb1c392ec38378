"""Addresses of tensors: rank, graph, node, slot, step, input or output."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tensight.errors import InputError
from tensight.graph.steps import iteration_of, step_of

_ADDRESS = re.compile(
    r"(?P<rank>[0-9]{1,9})/(?P<graph>[^/]*)/(?P<node>.+):(?P<io>input\.)?(?P<slot>[0-9]{1,9})@(?P<step>[0-9]{1,18})",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, order=True)
class TensorAddress:
    """The address of a tensor in a run; as text it ends with the step, which is counted from 1.

    Attributes
    ----------
    rank : int
        Rank of the process that computed it.
    graph : str
        Name of the graph, such as ``kernel_graph_0``.
    node : str
        `Node.name`.
    slot : int
        Index of the output (or input) of the node.
    iteration : int
        The iteration from 0, as in dump folders; -1 for values from before the first iteration.
    io : {"output", "input"}
        Whether `slot` counts outputs or inputs.
    """

    rank: int
    graph: str
    node: str
    slot: int
    iteration: int
    io: Literal["input", "output"] = "output"

    @property
    def step(self) -> int:
        """The step, from 1; 0 is before the first."""
        return step_of(self.iteration)

    def __str__(self) -> str:
        """Return the text, such as ``0/kernel_graph_0/Default/Conv2D-op3:0@2``, or ``…:input.0@2`` for an input."""
        slot = f"input.{self.slot}" if self.io == "input" else str(self.slot)
        return f"{self.rank}/{self.graph}/{self.node}:{slot}@{self.step}"

    @classmethod
    def parse(cls, text: str) -> TensorAddress:
        """Parse the text that `str` returns.

        Raises
        ------
        InputError
            If `text` has a different form.
        """
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise InputError(
                f"{text!r} is not the address of a tensor; the form is RANK/GRAPH/NODE:SLOT@STEP "
                "(for an input RANK/GRAPH/NODE:input.SLOT@STEP), "
                "for instance 0/kernel_graph_0/Default/conv1/Conv2D-op3:0@2"
            )
        return cls(
            rank=int(match["rank"]),
            graph=match["graph"],
            node=match["node"],
            slot=int(match["slot"]),
            iteration=iteration_of(int(match["step"])),
            io="input" if match["io"] else "output",
        )
