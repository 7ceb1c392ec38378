"""Compiling the kernels without anybody waiting for it.

Measured on a 2-core server (AMD EPYC 9005, numba 0.68): importing numba 0.2 s, compiling the scan of float32, float16
and bfloat16 1.0 s, that of float64 and everything converted to it 0.6 s, the comparison of two tensors 0.3 s each.
Slower machines take three times as long. So nobody is made to wait long: until the object code of a kernel lies in the
cache, tensors are scanned by `portable`, which gives the same results at a fraction of the speed, and two detached
processes fill the cache, one with the scans, one with the comparisons. Who has much to scan waits for the first kernel
of each, at most `PATIENCE_S`: it costs less than scanning with both cores taken by compilers. From then on no process
needs numba: loading all kernels takes 0.03 s (0.01 s of them for the kernels, the rest for the import of LLVM's
linker), and everybody waits for that.

Object code lies in ``$NUMBA_CACHE_DIR``, else ``$TENSIGHT_CACHE_DIR``, else the platform's cache folder of the user;
in a subfolder for this version of the kernels and their compiler and this kind of processor. It is run as it is found:
so the folder must be our own and writable by nobody else, files appear as a whole, and one whose digest is wrong is not
there and is written again. Where there is no such folder, a thread compiles for this process alone.

``$TENSIGHT_KERNELS`` changes that: ``numpy`` never uses compiled kernels, ``compiled`` waits for them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import itertools
import os
import platform
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import InputError
from tensight.tensors import native
from tensight.tensors.elements import element_type
from tensight.tensors.native import Kernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tensight.tensors.native import NativeKernel

LOOK_AGAIN_S = 0.05
"""Seconds between two looks whether the background process has finished a kernel."""

PATIENCE_S = 1.8
"""Seconds that are waited for a compiler, once, by who has much to scan."""

_DIGEST_BYTES = hashlib.sha256().digest_size
"""At the beginning of a cached file: the digest of the object code that follows."""


GROUPS = {
    "scan": (Kernel.SCAN_SINGLE, Kernel.SCAN_DOUBLE, Kernel.NON_FINITE, Kernel.SCAN_SHARED),
    "change": (Kernel.CHANGE_SINGLE, Kernel.CHANGE_DOUBLE),
}
"""Kernels that one background process compiles, the most wanted first."""

_DEBUGGING = ("TENSIGHT_DEBUG", "ENABLE_MS_DEBUGGER")
"""What makes every Python process of an environment one that is debugged."""


class _State:
    """What this process knows about its kernels."""

    def __init__(self) -> None:
        self.loading = threading.Lock()
        """Held while a kernel is loaded: for so short a time that everybody may wait for it. Guards the rest."""
        self.compiling = threading.Lock()
        """Held while a kernel is compiled. Who has it may take `loading` too, never the other way round."""
        self.loaded: dict[Kernel, NativeKernel] = {}
        self.look_again = 0.0
        self.background_started = False


_state = _State()


def kernels_ready(dtype: Any) -> bool:
    """Return whether statistics of `dtype` can run compiled now, without waiting for a compiler."""
    kernel = _scan_kernel(dtype)
    return kernel in _state.loaded or _read(kernel) is not None


def warm_up(dtypes: Iterable[Any] | None = None) -> None:
    """Compile (or load) in this process, and wait: the scans of `dtypes`, or all kernels.

    Raises
    ------
    InputError
        A dtype has no statistics.
    """
    wanted = list(Kernel) if dtypes is None else list(dict.fromkeys(_scan_kernel(dtype) for dtype in dtypes))
    for kernel in wanted:
        _compile(kernel)


def compiled(kernel: Kernel, *, here: bool = True) -> NativeKernel | None:
    """Return a kernel if it can run compiled now, else None, and see that one day it can.

    Parameters
    ----------
    kernel : Kernel
    here : bool
        False in somebody else's process, which is not to compile, whatever happens.
    """
    mode = _mode()
    if mode == "numpy":
        return None
    function = _state.loaded.get(kernel)
    if function is not None or (mode == "auto" and time.monotonic() < _state.look_again):
        return function
    if mode == "compiled":
        return _load(kernel) or _compile(kernel)
    function = _load(kernel)
    if function is None:
        start_background_compile(here=here)
        _state.look_again = time.monotonic() + LOOK_AGAIN_S
    return function


def prepare() -> None:
    """Load in a thread what is compiled already, and have the rest compiled, so that the first tensor need not wait."""
    threading.Thread(target=_prepare, name="tensight-kernels").start()


def _prepare() -> None:
    with suppress(InputError):  # a wrong setting is said to who scans the first tensor
        for kernel in Kernel:
            compiled(kernel)


def wait_for_kernels() -> bool:
    """Return whether the kernels for single precision are compiled, waiting for them for at most `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while any(compiled(kernel) is None for kernel in (Kernel.SCAN_SINGLE, Kernel.CHANGE_SINGLE)):
        if _mode() == "numpy" or time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_AGAIN_S)
    return True


def start_background_compile(*, here: bool = True) -> None:
    """Have the cache filled by detached processes, once; return at once.

    Without a cache a thread of this process compiles, if that may be `here`.
    """
    with _state.loading:
        if _state.background_started:
            return
        _state.background_started = True
    if cache_folder() is None or not sys.executable:
        if not here or not _has_compiler():
            return
        threading.Thread(target=warm_up, name="tensight-kernels").start()
        return
    with suppress(OSError):  # no process to be had: NumPy does it all
        for group in GROUPS:
            _start_process(group)


def _start_process(group: str) -> None:
    # in the folder of our package "-c" finds it, and nothing in the folder that the person happens to be in
    process = subprocess.Popen(  # noqa: S603 - our own interpreter, and one of our own words
        [sys.executable, "-c", f"from tensight.tensors.warm import main; main({group!r})"],
        cwd=Path(__file__).parents[2],
        env={name: value for name, value in os.environ.items() if name not in _DEBUGGING},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # somebody must take note of its end, or it stays behind as a zombie
    threading.Thread(target=process.wait, name="tensight-kernels", daemon=True).start()


def main(group: str) -> None:
    """Fill the cache with the kernels of a group: what a background process does, unless another one is doing it."""
    folder = cache_folder()
    if folder is None:
        return
    os.nice(5)  # whoever waits for it trains or scans meanwhile
    with suppress(OSError), _only_one(folder / f"{group}.lock") as alone:
        for kernel in GROUPS[group] if alone else ():
            _compile(kernel)


@contextmanager
def _only_one(lock: Path) -> Iterator[bool]:
    """Hold a lock file, yielding whether it was free."""
    import fcntl

    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


@functools.lru_cache(maxsize=1)
def cache_folder() -> Path | None:
    """Return the folder of this version's compiled kernels, or None if none can be written, or nothing to write."""
    if not _has_compiler():
        return None
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("TENSIGHT_CACHE_DIR")
    if not base:
        import platformdirs

        base = platformdirs.user_cache_dir("tensight", appauthor=False)
    folder = Path(base) / "kernels" / _version()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        facts = folder.stat()
    except OSError:
        return None
    if facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None  # others could put code there that we would run
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def _has_compiler() -> bool:
    return importlib.util.find_spec("numba") is not None and importlib.util.find_spec("llvmlite") is not None


def _version() -> str:
    """Return a name for all that object code depends on: sources, compiler, system, processor."""
    parts = [*map(importlib.metadata.version, ("numba", "llvmlite")), sys.platform, platform.machine(), _processor()]
    here = Path(__file__).parent
    sources = ("instructions.py", "kernels.py", "layout.py", "native.py")
    parts += [(here / name).read_text(encoding="utf-8") for name in sources]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Return what the processor is and can do, as far as the system tells."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # the first of a hundred cores is enough
            first = list(itertools.takewhile(str.strip, file))
    except OSError:
        return platform.processor()
    return "".join(line for line in first if line.startswith(("model name", "flags", "Features", "CPU")))


def _mode() -> str:
    mode = os.environ.get("TENSIGHT_KERNELS", "auto")
    if mode not in ("auto", "numpy", "compiled"):
        raise InputError(f"TENSIGHT_KERNELS is {mode!r}; set it to auto, numpy or compiled")
    return mode


def _scan_kernel(dtype: Any) -> Kernel:
    double = element_type(np.dtype(dtype)).route.is_double
    return Kernel.SCAN_DOUBLE if double else Kernel.SCAN_SINGLE


def _file(kernel: Kernel) -> Path | None:
    folder = cache_folder()
    return folder / f"{kernel.value}.code" if folder else None


def _read(kernel: Kernel) -> bytes | None:
    """Return the object code of a kernel from the cache, None if it is not there or damaged."""
    file = _file(kernel)
    if file is None:
        return None
    try:
        content = file.read_bytes()
    except OSError:
        return None
    code = content[_DIGEST_BYTES:]
    return code if content[:_DIGEST_BYTES] == hashlib.sha256(code).digest() else None


def _write(kernel: Kernel, code: bytes) -> None:
    """Put object code into the cache, if there is one: as a whole or not at all."""
    file = _file(kernel)
    if file is None:
        return
    unfinished = file.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        unfinished.write_bytes(hashlib.sha256(code).digest() + code)
        unfinished.replace(file)


def _load(kernel: Kernel) -> NativeKernel | None:
    """Return a kernel from the cache, None if it is not there or this system cannot take it in."""
    with _state.loading:
        if kernel not in _state.loaded:
            code = _read(kernel)
            if code is not None:
                with suppress(OSError, RuntimeError):
                    _state.loaded[kernel] = native.load(code)
        return _state.loaded.get(kernel)


def _compile(kernel: Kernel) -> NativeKernel:
    """Return a kernel from the cache, else compiled."""
    with _state.compiling:
        function = _load(kernel)
        if function is None:
            from tensight.tensors import kernels

            code = kernels.compile_kernel(kernel)
            with _state.loading:
                function = _state.loaded[kernel] = native.load(code)
            _write(kernel, code)  # only now: what cannot be loaded is no use to others
        return function
