"""The engine that visits many tensors: threads that share a queue of items.

The kernels release the interpreter's lock and files are read into buffers outside it, so threads use all cores
without copying a tensor between processes. An engine for several machines has the same interface.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Protocol, TypeVar

from tensight.tensors.cores import available_cores

Item = TypeVar("Item")

Progress = Callable[[int, int], None]
"""Called with the number of bytes visited so far and the total number, from any thread, one call at a time."""


class Engine(Protocol):
    """Processes items, such as tensors to read."""

    def run(
        self,
        items: Sequence[Item],
        work: Callable[[Item], None],
        *,
        weight: Callable[[Item], int],
        progress: Progress | None,
    ) -> None:
        """Call `work` once for each item, in any order, on any thread.

        Parameters
        ----------
        items : sequence
            The items to process.
        work : callable (item)
            Processes an item and stores the result where no other item writes. An exception stops the run.
        weight : callable (item) -> int
            Returns the size of an item in bytes, for the progress and for starting with the largest.
        progress : Progress or None
            Called after each item.
        """


class ThreadEngine:
    """An engine with threads of this process.

    Parameters
    ----------
    threads : int, optional
        Number of threads; by default the number of cores available to this process.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or available_cores()

    def run(
        self,
        items: Sequence[Item],
        work: Callable[[Item], None],
        *,
        weight: Callable[[Item], int],
        progress: Progress | None,
    ) -> None:
        """Call `work` once for each item; see `Engine.run`.

        Parameters
        ----------
        items : sequence
            The items to process.
        work : callable (item)
            Processes an item.
        weight : callable (item) -> int
            Returns the size of an item in bytes.
        progress : Progress or None
            Called after each item.
        """
        queue = iter(sorted(items, key=weight, reverse=True))
        total = sum(map(weight, items))
        lock = threading.Lock()
        failures: list[BaseException] = []
        done = 0

        def drain() -> None:
            nonlocal done
            try:
                while not failures:
                    with lock:
                        item = next(queue, None)
                    if item is None:
                        return
                    work(item)
                    with lock:
                        done += weight(item)
                        if progress is not None:
                            progress(done, total)
            except BaseException as error:  # raised in the caller's thread below
                failures.append(error)

        count = min(self.threads, len(items))
        if count <= 1:
            drain()
        else:
            self._drain_in_threads(drain, count, failures)
        if failures:
            raise failures[0]

    def _drain_in_threads(self, drain: Callable[[], None], count: int, failures: list[BaseException]) -> None:
        """Run `drain` in threads until the queue is empty; after an interrupt, each thread ends with its current item.

        The caller's thread only waits, because an interrupt in the middle of an item could leave a lock taken that
        others wait for, such as that of a module that is being imported. It does not wait in join(), because Python
        3.11 takes an interrupted join() for completed.
        """
        ended: SimpleQueue[None] = SimpleQueue()

        def drain_and_report() -> None:
            drain()
            ended.put(None)

        workers = [threading.Thread(target=drain_and_report, daemon=True) for _ in range(count)]
        try:
            for worker in workers:
                worker.start()
            for _ in workers:
                ended.get()
        except BaseException as error:
            failures.append(error)
            for worker in workers:
                if worker.is_alive():
                    worker.join()
