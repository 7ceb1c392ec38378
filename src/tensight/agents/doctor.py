"""The process in which `tensight doctor` makes a training repeatable: some steps of an unchanged script, with seeds.

``python -m tensight.agents.doctor seeded|deterministic FD STEPS [-m] SCRIPT ARGUMENTS`` is `tensight.agents.trial` with
seeds that are set when a framework has been imported; and, if it is to be deterministic, with such algorithms only.
"""

from __future__ import annotations

import random
import sys
from functools import partial
from typing import TYPE_CHECKING

from tensight.agents import trial
from tensight.agents.launch import when_imported

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = 20261123


def main(arguments: Sequence[str]) -> None:
    """Run a script as `python` would, with seeds."""
    random.seed(SEED)
    when_imported("numpy", _seed_numpy)
    when_imported("torch", partial(_seed_torch, deterministic=arguments[0] == "deterministic"))
    trial.main(arguments[1:])


def _seed_numpy() -> None:
    import numpy as np

    np.random.seed(SEED % 2**32)  # noqa: NPY002 - the generator that scripts use


def _seed_torch(*, deterministic: bool) -> None:
    torch = sys.modules["torch"]
    torch.manual_seed(SEED)
    if deterministic:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False


if __name__ == "__main__":
    main(sys.argv[1:])
