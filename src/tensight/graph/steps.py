"""Conversion between steps and the iterations of dumps and of MindSpore's protocol.

Users read and type steps: the first step of a training is step 1, and step 0 is the state before it (initial values,
constants). Folders of dumps, MindSpore's messages, the statistics table's column and the drop-in API count iterations
from 0. Only this module converts between the two.
"""

from __future__ import annotations


def step_of(iteration: int) -> int:
    """Return the step in which an iteration of a dump, or of a training process, ran.

    Parameters
    ----------
    iteration : int
        From 0; -1 for the state before the first.

    Returns
    -------
    int
        From 1; 0 for the state before the first.
    """
    return iteration + 1


def iteration_of(step: int) -> int:
    """Return the iteration of a dump, or of a training process, that a step is.

    Parameters
    ----------
    step : int
        From 1; 0 for the state before the first.

    Returns
    -------
    int
        From 0; -1 for the state before the first.
    """
    return step - 1
