"""Distinguishes workers, which serve a training, from processes that the user wants to debug.

Workers of data loaders and of pools may call models themselves (to transform data, to score candidates). They are left
alone, whether they were started by fork, by spawn or by a fork server. A process that a script starts to train in, with
`multiprocessing.Process` or `torch.multiprocessing.spawn`, is not a worker.
"""

from __future__ import annotations

import sys

_PROCESSES = ("multiprocessing.process", "multiprocess.process", "billiard.process")
_POOLS = (
    "billiard.pool",
    "concurrent.futures.process",
    "joblib.externals.loky.process_executor",
    "loky.process_executor",
    "multiprocess.pool",
    "multiprocessing.pool",
    "torch.utils.data._utils.worker",
)
"""Modules of the functions that workers run."""


def pool_of_worker() -> str:
    """Return the module of the pool that this process works for; empty if it is not a worker.

    Python knows this only when the worker's function begins, after everything that the worker imports at its start.
    """
    for name in _PROCESSES:
        process = sys.modules.get(name)
        if process is not None:
            target = getattr(process.current_process(), "_target", None)
            module = str(getattr(target, "__module__", ""))
            if module in _POOLS:
                return module
    return ""
