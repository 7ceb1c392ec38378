"""The nodes from which layers are derived, independent of a `Graph`."""

from __future__ import annotations

from typing import NamedTuple

OPTIMIZER_SCOPE = "Optimizer/"
"""Prefix of the names of optimizer operators in graphs of Tensight's agents."""

READS_UNSEEN = "may_read_unseen"
"""Attribute, in graphs of Tensight's agents, of nodes that may read unobserved tensors."""

FROM_COMPILED_CODE = "from_compiled_code"
"""Beginning of the names, in graphs of Tensight's agents, of tensors that compiled code made or read, unobserved."""

OUTSIDE = "Default--outside"
"""Name of the constant that represents, in graphs of Tensight's agents, inputs without a source node."""


class LayerNode(NamedTuple):
    """The facts about a node from which layers are derived.

    Attributes
    ----------
    name : str
    type : str
    inputs : tuple of str
        Names of the nodes that the inputs come from; "" for an input from outside.
    kind : str
        ``operator``, ``weight``, ``frozen``, ``data``, or ``constant``, which is ignored.
    shape : tuple of int or None
        Shape of the first output.
    optimizes : bool
        Whether it belongs to the optimizer.
    slots : tuple of int
        For each input, the output slot of its source node; empty if all are 0.
    is_integer : bool
        Whether its first output contains integers or booleans.
    """

    name: str
    type: str
    inputs: tuple[str, ...]
    kind: str
    shape: tuple[int, ...] | None = None
    optimizes: bool = False
    slots: tuple[int, ...] = ()
    is_integer: bool = False
