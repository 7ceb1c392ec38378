"""PyTorch's own threads, for our work: those that compute an operator wait for the next one while we look at a tensor.

PyTorch computes on the processor with OpenMP, where it was built with that (as on Linux). A team of OpenMP calls one C
function in each of its threads. Threads of our own would stand in their way: they wait with their eyes open.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from tensight.tensors.shared_scan import Team


@functools.lru_cache(maxsize=1)
def threads_of_torch() -> Team | None:
    """Return PyTorch's threads as a team, as many as it is told to use; None where they cannot be had."""
    parallel = _parallel_region()
    if parallel is None:
        return None

    def team(function: int, number: int) -> None:
        parallel(function, number, 0, 0)

    return team


def _parallel_region() -> Any:
    """Return OpenMP's entrance: (C function, its argument, number of threads or 0 for all, flags)."""
    library = Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"
    try:
        # Found in the library that PyTorch itself is bound to, under the name that GCC gave it and others have, too.
        region = ctypes.CDLL(str(library)).GOMP_parallel
    except (OSError, AttributeError):
        return None
    region.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
    region.restype = None
    return region
