"""Compiling the kernels without anybody waiting for it.

Measured on a 2-core server (AMD EPYC 9005, numba 0.68): importing numba 0.25 s, compiling the scan of float32, float16
and bfloat16 1.0 s, that of float64 and everything converted to it 0.6 s, the comparison of two tensors 0.3 s each.
Slower machines take three times as long. So nobody is made to wait: until a kernel lies in the cache of compiled code,
tensors are scanned by `portable`, which gives the same results at a fraction of the speed, and one detached process of
low priority fills the cache. From then on a kernel is loaded in about 0.1 s (0.3 s with the import of numba).

Compiled code lies in ``$NUMBA_CACHE_DIR``, else ``$TENSIGHT_CACHE_DIR``, else the platform's cache folder of the user;
in a subfolder for this version of the kernels, of numba, of Python and this kind of processor. It is code: the folder
must be writable by nobody else. Where no such folder can be written, a thread compiles for this process alone.

``$TENSIGHT_KERNELS`` changes that: ``numpy`` never uses compiled kernels, ``compiled`` waits for them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import InputError
from tensight.tensors.elements import element_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

LOOK_AGAIN_S = 0.05
"""Seconds between two looks whether the background process has finished a kernel."""


class Kernel(Enum):
    """A compiled version of a kernel, by the width of the values it reads."""

    SCAN_SINGLE = "scan-single"
    SCAN_DOUBLE = "scan-double"
    CHANGE_SINGLE = "change-single"
    CHANGE_DOUBLE = "change-double"


class _State:
    """What this process knows about its kernels; guarded by `lock`, except for reads of `loaded`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loaded: dict[Kernel, ModuleType] = {}
        self.look_again = 0.0
        self.background_started = False


_state = _State()


def kernels_ready(dtype: Any) -> bool:
    """Return whether statistics of `dtype` can run compiled now, without waiting for a compiler."""
    kernel = _scan_kernel(dtype)
    return kernel in _state.loaded or _is_cached(kernel)


def warm_up(dtypes: Iterable[Any] | None = None) -> None:
    """Compile (or load) in this process, and wait: the scans of `dtypes`, or all kernels.

    Raises
    ------
    InputError
        A dtype has no statistics.
    """
    wanted = list(Kernel) if dtypes is None else list(dict.fromkeys(_scan_kernel(dtype) for dtype in dtypes))
    for kernel in wanted:
        with _state.lock:
            if kernel not in _state.loaded:
                _load(kernel)


def compiled(kernel: Kernel) -> ModuleType | None:
    """Return the module of kernels if `kernel` can run compiled now, else None, and see that one day it can."""
    mode = _mode()
    if mode == "numpy":
        return None
    module = _state.loaded.get(kernel)
    if module is not None or (mode == "auto" and time.monotonic() < _state.look_again):
        return module
    if not _state.lock.acquire(blocking=mode == "compiled"):
        return None  # another thread is loading
    try:
        if kernel not in _state.loaded and (mode == "compiled" or _is_cached(kernel)):
            _load(kernel)
        elif kernel not in _state.loaded:
            start_background_compile()
            _state.look_again = time.monotonic() + LOOK_AGAIN_S
        return _state.loaded.get(kernel)
    finally:
        _state.lock.release()


def prepare() -> None:
    """Load in a thread what is compiled already, and have the rest compiled, so that the first tensor need not wait."""
    threading.Thread(target=lambda: [compiled(kernel) for kernel in Kernel], name="tensight-kernels").start()


def start_background_compile() -> None:
    """Have the cache filled by a detached process, once; return at once."""
    if _state.background_started:
        return
    _state.background_started = True
    if cache_folder() is None or not sys.executable:
        threading.Thread(target=warm_up, name="tensight-kernels").start()
        return
    with suppress(OSError):  # no process to be had: NumPy does it all
        _start_process()


def _start_process() -> None:
    # in the folder of our package "-c" finds it, and nothing in the folder that the person happens to be in
    process = subprocess.Popen(
        [sys.executable, "-c", "from tensight.tensors.warm import main; main()"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # somebody must take note of its end, or it stays behind as a zombie
    threading.Thread(target=process.wait, name="tensight-kernels", daemon=True).start()


def main() -> None:
    """Fill the cache: what the background process does. Leaves at once if another one is doing it."""
    folder = cache_folder()
    if folder is None:
        return
    with suppress(OSError), _only_one(folder) as alone:
        if alone:
            with suppress(OSError, AttributeError):
                os.nice(5)
            warm_up()


@contextmanager
def _only_one(folder: Path) -> Iterator[bool]:
    """Hold the lock of a cache folder, yielding whether it was free."""
    import fcntl

    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


@functools.lru_cache(maxsize=1)
def cache_folder() -> Path | None:
    """Return the folder of this version's compiled kernels, or None if none can be written."""
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("TENSIGHT_CACHE_DIR")
    if not base:
        import platformdirs

        base = platformdirs.user_cache_dir("tensight", appauthor=False)
    folder = Path(base) / "kernels" / _version()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def _version() -> str:
    """Return a name for all that compiled code depends on: sources, numba, Python, processor."""
    parts = [importlib.metadata.version("numba"), sys.version, platform.machine(), _processor()]
    here = Path(__file__).parent
    parts += [(here / name).read_text(encoding="utf-8") for name in ("instructions.py", "kernels.py", "layout.py")]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Return what the processor is and can do, as far as the system tells."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0]
    except OSError:
        return platform.processor()
    return "\n".join(line for line in first.splitlines() if line.startswith(("model name", "flags", "Features")))


def _mode() -> str:
    mode = os.environ.get("TENSIGHT_KERNELS", "auto")
    if mode not in ("auto", "numpy", "compiled"):
        raise InputError(f"TENSIGHT_KERNELS is {mode!r}; set it to auto, numpy or compiled")
    return mode


def _scan_kernel(dtype: Any) -> Kernel:
    double = element_type(np.dtype(dtype)).route.is_double
    return Kernel.SCAN_DOUBLE if double else Kernel.SCAN_SINGLE


def _marker(kernel: Kernel) -> Path | None:
    folder = cache_folder()
    return folder / f"{kernel.value}.ready" if folder else None


def _is_cached(kernel: Kernel) -> bool:
    marker = _marker(kernel)
    return marker is not None and marker.exists()


def _load(kernel: Kernel) -> None:
    """Load a kernel from the cache, or compile it; afterwards its first call takes no longer than any other."""
    from tensight.tensors import kernels

    kernels.run_empty(kernel.value)
    marker = _marker(kernel)
    if marker is not None:
        with suppress(OSError):
            marker.touch()
    _state.loaded[kernel] = kernels
