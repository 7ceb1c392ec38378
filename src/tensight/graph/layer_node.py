"""What the questions about the layers of a network ask of a node, whether or not there is a graph yet."""

from __future__ import annotations

from typing import NamedTuple

OPTIMIZER_SCOPE = "Optimizer/"
"""Before the names of what an optimizer does, in graphs of Tensight's agents."""

READS_UNSEEN = "may_read_unseen"
"""Attribute, in graphs of Tensight's agents, of nodes that may read tensors of which nothing is known."""

OUTSIDE = "Default--outside"
"""Name of the constant that stands, in graphs of Tensight's agents, for inputs that come from no node."""


class LayerNode(NamedTuple):
    """What must be known of a node.

    Attributes
    ----------
    name : str
    type : str
    inputs : tuple of str
        Names of the nodes that the inputs come from; empty for one that comes from outside.
    kind : str
        ``operator``, ``weight``, ``frozen``, ``data``; ``constant`` for what does not count.
    shape : tuple of int or None
        Of the first output.
    optimizes : bool
        Whether it belongs to the optimizer.
    slots : tuple of int
        Which output of its node each input is; empty if all are the first.
    is_integer : bool
        Whether its first output holds integers or truth values.
    """

    name: str
    type: str
    inputs: tuple[str, ...]
    kind: str
    shape: tuple[int, ...] | None = None
    optimizes: bool = False
    slots: tuple[int, ...] = ()
    is_integer: bool = False
