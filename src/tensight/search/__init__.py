"""The search of hyper-parameters: Optuna chooses, trials run under the debugger, and those that fall ill are dropped.

A script that is tried reads what was chosen for it with `HyperConfig`, or gets it on its command line. What drives the
search is in the modules of this package; they are imported when a search runs, and never in a training.
"""

from __future__ import annotations

from tensight.search.hyper_config import HyperConfig

__all__ = ["HyperConfig"]
