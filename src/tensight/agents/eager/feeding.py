"""Which of the tensors that a step reads go into layers that the step trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph import is_after_forward

if TYPE_CHECKING:
    from collections.abc import Collection

    from tensight.agents.eager.traced_programs import Trace

_NUMBERS = ("float", "bfloat")


def feeding(trace: Trace, trained: Collection[str]) -> frozenset[str]:
    """Return the names of nodes whose values go into layers with trained weights.

    What nobody sees to be read may go into any later operator that reads a tensor of numbers which nobody has seen
    before: between two calls of modules its origin can get lost.

    Parameters
    ----------
    trace : Trace
        What ran.
    trained : collection of str
        Names of weights.
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
