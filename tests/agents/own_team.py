"""Threads that pass for those of OpenMP."""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor

from tensight.tensors.shared_scan import Team

PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
NUMBER = ctypes.CFUNCTYPE(ctypes.c_int)


class OwnTeam:
    """Threads of ours that pass for those of OpenMP: they call a function all at the same time."""

    def __init__(self, threads: int) -> None:
        self._numbers = threading.local()
        self._threads = threads
        self._functions = PARALLEL(self._parallel), NUMBER(lambda: self._numbers.own), NUMBER(lambda: threads)
        addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in self._functions]
        self.team = Team(*(address or 0 for address in addresses))

    def _parallel(self, function: int, argument: int, _threads: int, _flags: int) -> None:
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
        together = threading.Barrier(self._threads)

        def work(number: int) -> None:
            self._numbers.own = number
            together.wait()
            call(argument)

        with ThreadPoolExecutor(self._threads) as pool:
            for done in [pool.submit(work, number) for number in range(self._threads)]:
                done.result()
