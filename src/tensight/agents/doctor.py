"""The process that `tensight doctor` runs: some steps of an unchanged script, with an experiment.

``python -m tensight.agents.doctor REPORT MODE FD STEPS [-m] SCRIPT ARGUMENTS`` is `tensight.agents.trial` with a mode:

- ``plain``: nothing else;
- ``seeded``: seeds are set when the framework has been imported;
- ``deterministic``: that, and only deterministic algorithms are used;
- ``reload``: in the middle of the steps, the contents of a checkpoint are saved, loaded, and put back;
- ``evaluate``: before the last step the model is evaluated twice on the same inputs;
- ``one-batch``: every batch is the first one;
- ``resume``: in the middle of the steps everything is reset to its initial state, and the contents of a checkpoint are
  loaded into it.

The last four write their findings to the file REPORT, as JSON.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensight.agents import trial
from tensight.agents.launch import when_imported

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = 20261123


def main(arguments: Sequence[str]) -> None:
    """Run a script as `python` would, in one of the modes."""
    report, mode, steps = Path(arguments[0]), arguments[1], int(arguments[3])
    if mode in ("seeded", "deterministic"):
        random.seed(SEED)
        when_imported("numpy", _seed_numpy)
        when_imported("torch", partial(_seed_torch, deterministic=mode == "deterministic"))
    elif mode in ("reload", "evaluate", "one-batch", "resume"):
        when_imported("torch", partial(_follow, mode, report, steps))
    trial.main(arguments[2:])


def _seed_numpy() -> None:
    import numpy as np

    np.random.seed(SEED % 2**32)  # noqa: NPY002 - the generator that scripts use


def _seed_torch(*, deterministic: bool) -> None:
    _checkup().seed(SEED, deterministic=deterministic)


def _follow(mode: str, report: Path, steps: int) -> None:
    _checkup().follow(mode, steps, lambda findings: _write(report, findings))


def _checkup() -> Any:
    return importlib.import_module("tensight.agents.torch.checkup")


def _write(report: Path, findings: dict[str, Any]) -> None:
    report.write_text(json.dumps(findings))


if __name__ == "__main__":
    main(sys.argv[1:])
