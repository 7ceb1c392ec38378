"""Optuna's samplers and pruners, as a configuration asks for them."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import optuna

    from tensight.search.configuration import Pruner, Tuner

NO_TORCH = "the tuner gp of Optuna needs PyTorch, which is not installed here; tpe is used instead"


def notice_about(tuner: Tuner) -> str:
    """Return what a person must know of the tuner that was asked for; empty if it is used as it is."""
    if tuner.name == "gp" and importlib.util.find_spec("torch") is None:
        return NO_TORCH
    return ""


def make_sampler(tuner: Tuner, seed: int | None) -> optuna.samplers.BaseSampler:
    """Return who chooses the next values.

    Parameters
    ----------
    tuner : Tuner
    seed : int or None
        Goes before the one of the configuration.
    """
    from optuna import samplers

    name = "tpe" if notice_about(tuner) else tuner.name
    startup: dict[str, Any] = (
        {} if tuner.args.startup_trials is None else {"n_startup_trials": tuner.args.startup_trials}
    )
    if name == "gp":
        return samplers.GPSampler(seed=seed, warn_independent_sampling=False, **startup)
    if name == "tpe":
        # Trials that run meanwhile count as bad ones, so that several workers do not all try the same.
        return samplers.TPESampler(seed=seed, constant_liar=True, **startup)
    if name == "cmaes":
        return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False, **startup)
    # The combinations of a grid wait in the storage when the first trial begins.
    return samplers.RandomSampler(seed=seed)


def make_pruner(pruner: Pruner) -> optuna.pruners.BasePruner:
    """Return who ends trials that are worse than others."""
    from optuna import pruners

    if pruner.name == "median":
        return pruners.MedianPruner(n_startup_trials=pruner.startup_trials, n_warmup_steps=pruner.warmup_steps)
    if pruner.name == "hyperband":
        most: Any = "auto" if pruner.max_steps is None else pruner.max_steps
        return pruners.HyperbandPruner(
            min_resource=pruner.min_steps, max_resource=most, reduction_factor=pruner.reduction
        )
    return pruners.NopPruner()
