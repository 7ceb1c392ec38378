"""Finds the tensors of a step that are inputs of layers with trained weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph import is_after_forward

if TYPE_CHECKING:
    from collections.abc import Collection

    from tensight.agents.eager.traced_programs import Trace

_NUMBERS = ("float", "bfloat")


def feeding(trace: Trace, trained: Collection[str]) -> frozenset[str]:
    """Return the names of nodes whose values go into layers with trained weights.

    Between two calls of modules the source of a tensor can get lost. So the output of a node without known readers is
    assumed to go into any later operator with an input of unknown source, or a floating-point input from outside.

    Parameters
    ----------
    trace : Trace
        The operators of the step.
    trained : collection of str
        Names of the trained weights.
    """
    outside = {node.name for node in trace.inputs if node.outputs and node.outputs[0].dtype.startswith(_NUMBERS)}
    feeds: set[str] = set()
    read: set[str] = set()
    any_may_feed = False
    for node in reversed(trace.operators):
        if is_after_forward(node.name):
            continue
        inputs = [source[0] for source in node.inputs if source is not None]
        leads_on = node.name in feeds or (any_may_feed and node.name not in read)
        if leads_on or any(name in trained for name in inputs):
            feeds.update(inputs)
            any_may_feed = any_may_feed or None in node.inputs or not outside.isdisjoint(inputs)
        read.update(inputs)
    return frozenset(feeds)
