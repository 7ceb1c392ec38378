"""Optuna's samplers and pruners for a configuration."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from tensight.search.commands import unused_parameters

if TYPE_CHECKING:
    import optuna

    from tensight.search.configuration import Configuration, Pruner, Tuner

STARTUP_WITH_LOSS, STARTUP_WITHOUT_LOSS = 2, 5
"""Complete trials before the median pruner ends any: fewer if the debugger's loss can spare a trial."""

NO_TORCH = "tuner.name: gp of Optuna needs PyTorch, which is not installed here; tpe is used instead"


def notices_about(configuration: Configuration) -> list[str]:
    """Return notices, one line each, where a search differs from what the user may expect."""
    tuner = configuration.tuner
    notices = [NO_TORCH] if _is_replaced(tuner) else []
    if tuner.args.method is not None:
        notices.append(
            f"tuner.args.method: {tuner.args.method} changes nothing; gp of Optuna uses the expected improvement"
        )
    notices += [
        f"{target.name}: no goal is given, so small values count as good; write `goal: maximize` if large ones are"
        for target in configuration.all_targets
        if target.goal is None and target.name != "loss"
    ]
    notices += [
        f"parameters.{name}: the command does not use it; unless the training reads it with HyperConfig, all its "
        f"values do the same. Write {{{name}}} into the command"
        for name in unused_parameters(configuration)
    ]
    return notices


def _is_replaced(tuner: Tuner) -> bool:
    return tuner.name == "gp" and importlib.util.find_spec("torch") is None


def make_sampler(tuner: Tuner, seed: int | None) -> optuna.samplers.BaseSampler:
    """Return the sampler that chooses the next values.

    Parameters
    ----------
    tuner : Tuner
    seed : int or None
        Takes precedence over that of the configuration.
    """
    from optuna import samplers

    name = "tpe" if _is_replaced(tuner) else tuner.name
    startup: dict[str, Any] = (
        {} if tuner.args.startup_trials is None else {"n_startup_trials": tuner.args.startup_trials}
    )
    if name == "gp":
        return samplers.GPSampler(seed=seed, warn_independent_sampling=False, **startup)
    if name == "tpe":
        # Running trials count as bad ones, so that several workers do not all try the same values.
        return samplers.TPESampler(seed=seed, constant_liar=True, **startup)
    if name == "cmaes":
        return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False, **startup)
    # The combinations of a grid are in the queue before the first trial begins.
    return samplers.RandomSampler(seed=seed)


def make_pruner(pruner: Pruner) -> optuna.pruners.BasePruner:
    """Return the pruner that ends bad trials."""
    from optuna import pruners

    if pruner.name == "median":
        startup = STARTUP_WITH_LOSS if pruner.startup_trials is None else pruner.startup_trials
        return pruners.MedianPruner(n_startup_trials=startup, n_warmup_steps=pruner.warmup_steps)
    if pruner.name == "hyperband":
        most: Any = "auto" if pruner.max_steps is None else pruner.max_steps
        return pruners.HyperbandPruner(
            min_resource=pruner.min_steps, max_resource=most, reduction_factor=pruner.reduction
        )
    return pruners.NopPruner()
