"""The one number of a step, and the number that dumps and MindSpore's protocol have for it.

A person reads and types steps: the first step of a training is step 1, and step 0 is the state before it (initial
values, constants). Folders of dumps, MindSpore's messages, the statistics table's column and the drop-in API count
iterations from 0. Nothing else in Tensight may turn one into the other.
"""

from __future__ import annotations


def step_of(iteration: int) -> int:
    """Return the step in which an iteration of a dump, or of a training process, ran.

    Parameters
    ----------
    iteration : int
        From 0; -1 for what was there before the first.

    Returns
    -------
    int
        From 1; 0 for what was there before the first.
    """
    return iteration + 1


def iteration_of(step: int) -> int:
    """Return which iteration of a dump, or of a training process, a step is.

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
