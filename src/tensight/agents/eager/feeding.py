"""Finds the tensors of a step that are inputs of layers with trained weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph import is_after_forward

if TYPE_CHECKING:
    from collections.abc import Collection

    from tensight.agents.eager.traced_programs import Trace

_NUMBERS = ("float", "bfloat")


def feeding(trace: Trace, trained: Collection[str], *, guesses: bool = True) -> frozenset[str]:
    """Return the names of nodes whose values go into layers with trained weights.

    The source of a tensor can get lost. So the output of a node without known readers is assumed to go into any later
    operator with an input of unknown source, or with a floating-point input from outside that nothing has read before.

    Parameters
    ----------
    trace : Trace
        The operators of the step.
    trained : collection of str
        Names of the trained weights.
    guesses : bool
        Whether that is assumed.
    """
    outside = {node.name for node in trace.inputs if node.outputs and node.outputs[0].dtype.startswith(_NUMBERS)}
    forward = [node for node in trace.operators if not is_after_forward(node.name)]
    first_reader: dict[str, str] = {}
    for node in forward:
        for source in node.inputs:
            if source is not None:
                first_reader.setdefault(source[0], node.name)
    feeds: set[str] = set()
    any_may_feed = False
    for node in reversed(forward):
        inputs = [source[0] for source in node.inputs if source is not None]
        leads_on = node.name in feeds or (any_may_feed and node.name not in first_reader)
        if leads_on or any(name in trained for name in inputs):
            feeds.update(inputs)
            is_lost = any(name in outside and first_reader[name] == node.name for name in inputs)
            any_may_feed = any_may_feed or (guesses and (None in node.inputs or is_lost))
    return frozenset(feeds)
