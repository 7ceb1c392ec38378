"""PyTorch's own threads, for our work: those that compute an operator wait for the next one while we look at a tensor.

PyTorch computes on the processor with OpenMP, where it was built with that (as on Linux). Threads of our own would be
in the way of its threads, which spin while they wait.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import torch

from tensight.tensors.shared_scan import Team

_ENTRANCES = "GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads"
"""Found in the library that PyTorch itself is bound to, under the names that GCC gave them and others have, too."""


@functools.lru_cache(maxsize=1)
def threads_of_torch() -> Team | None:
    """Return PyTorch's threads as a team, as many as it is told to use; None where they cannot be had."""
    library = Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"
    try:
        loaded = ctypes.CDLL(str(library))
        functions = [ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value for name in _ENTRANCES]
    except (OSError, AttributeError):
        return None
    return Team(*(address or 0 for address in functions)) if all(functions) else None
