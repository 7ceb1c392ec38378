"""Hyper-parameter search: Optuna chooses values, trials run under the debugger, and unhealthy trials end early.

A script reads the chosen values with `HyperConfig`, or takes them from its command line. The other modules of this
package run the search; they are imported when a search runs, and never in a training.
"""

from __future__ import annotations

from tensight.search.hyper_config import HyperConfig

__all__ = ["HyperConfig"]
