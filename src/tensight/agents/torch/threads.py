"""PyTorch's own threads, which also compute statistics: between two operators they are idle.

PyTorch computes on the CPU with OpenMP, if it was built with it (as on Linux). Its threads spin while they wait, and
threads of our own would compete with them.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import torch

from tensight.tensors.shared_scan import Team

_ENTRANCES = "GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads"
"""Functions of the OpenMP library that PyTorch is linked to, by GCC's names, which other libraries have, too."""


@functools.lru_cache(maxsize=1)
def threads_of_torch() -> Team | None:
    """Return PyTorch's threads as a team, as many as PyTorch is set to use; None if they are not accessible."""
    library = Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"
    try:
        loaded = ctypes.CDLL(str(library))
        functions = [ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value for name in _ENTRANCES]
    except (OSError, AttributeError):
        return None
    return Team(*(address or 0 for address in functions)) if all(functions) else None
