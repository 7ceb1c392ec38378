"""Engines: where the tasks of a run are computed, one for each rank.

An engine is named by the user (``--engine``): ``threads`` and ``processes`` of this machine, ``ray`` (joins the Ray
cluster that is running) or ``ray://HOST:PORT``, and ``dask://HOST:PORT``. A task is a small picklable value and its
result a table of findings, so that an engine needs nothing of Tensight but the installed package.
"""

from __future__ import annotations

import importlib
import multiprocessing
import signal
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tensight.errors import InputError, TensightError
from tensight.ranks import FEW_RANKS
from tensight.tensors.cores import available_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Task = TypeVar("Task")
Result = TypeVar("Result")

RETRIES = 2
"""How often a task is tried again whose process or machine was lost."""

AHEAD = 2
"""Tasks that are waiting for each worker, so that none is idle; the driver holds no more results than that."""

_PRELOADED = ["numpy", "pyarrow.parquet", "tensight.runs.rank"]

NAMES = "threads, processes, ray, ray://HOST:PORT or dask://HOST:PORT"


class LostTaskError(TensightError):
    """The process or machine that computed a task was lost, again and again."""

    code = "worker-lost"


class Engine(Protocol):
    """Computes tasks; see `engine_named`."""

    def map(
        self, work: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result | LostTaskError]]:
        """Yield each task with its result, in any order, as they are completed.

        A task whose worker is lost is tried again; if that does not help, its result is a `LostTaskError`, and the
        others are not affected. An error that `work` raises is raised here. If the iterator is closed, tasks that have
        not begun are cancelled.

        Parameters
        ----------
        work : callable (task) -> result
            A function of a module.
        tasks : sequence
            Picklable.
        """
        ...


def engine_named(name: str | None, tasks: int) -> Engine:
    """Return the engine with a name.

    Parameters
    ----------
    name : str or None
        See the module; None to choose between threads and processes by the number of tasks.
    tasks : int
        Number of tasks that it will compute.

    Raises
    ------
    InputError
        There is no such engine, its package is not installed, or its cluster cannot be reached.
    """
    if name is None:
        name = "processes" if tasks > FEW_RANKS and available_cores() > 1 else "threads"
    if name == "threads":
        return Here()
    if name == "processes":
        return Processes()
    if name == "ray":
        return RayCluster()
    if name.startswith("ray://"):
        return RayCluster(name)
    if name.startswith("dask://"):
        return DaskCluster(f"tcp://{name.partition('://')[2]}")
    raise InputError(f"there is no engine {name!r}; name {NAMES}")


class Here:
    """One task after the other in this process; each reads its tensors with threads."""

    def map(
        self, work: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result | LostTaskError]]:
        """Yield each task with its result; see `Engine.map`."""
        for task in tasks:
            yield task, work(task)


class Processes:
    """Processes of this machine.

    Parameters
    ----------
    workers : int, optional
        Number of processes; by default the number of cores available to this process.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or available_cores()

    def map(
        self, work: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result | LostTaskError]]:
        """Yield each task with its result; see `Engine.map`."""
        waiting = deque(tasks)
        suspects: deque[Task] = deque()
        while waiting or suspects:
            # A worker that dies takes the pool with it. Which task killed it is certain only if it was alone.
            alone = bool(suspects)
            queue = suspects if alone else waiting
            lost: list[Task] = []
            yield from _in_pool(work, queue, 1 if alone else self._workers, lost)
            if alone and lost:
                yield from self._again(work, lost[0])
                lost = lost[1:]
            suspects.extend(lost)

    def _again(self, work: Callable[[Task], Result], task: Task) -> Iterator[tuple[Task, Result | LostTaskError]]:
        """Try a task that killed its process."""
        for _ in range(RETRIES - 1):
            lost: list[Task] = []
            yield from _in_pool(work, deque([task]), 1, lost)
            if not lost:
                return
        yield task, LostTaskError(f"its process was killed {RETRIES + 1} times")


def _in_pool(
    work: Callable[[Task], Result], queue: deque[Task], workers: int, lost: list[Task]
) -> Iterator[tuple[Task, Result]]:
    """Compute tasks in a new pool until the queue is empty or a process dies; `lost` receives what was under way."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(workers, len(queue)), context, initializer=_ignore_interrupts)
    running: dict[Future[Result], Task] = {}
    try:
        while queue or running:
            while queue and len(running) < AHEAD * workers:
                task = queue.popleft()
                try:
                    running[pool.submit(work, task)] = task
                except BrokenProcessPool:
                    queue.appendleft(task)
                    break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                task = running.pop(future)
                try:
                    result = future.result()
                except BrokenProcessPool:
                    lost.append(task)
                else:
                    yield task, result
            if lost:
                lost.extend(running.values())
                return
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if queue or running:
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the driver, which ends its processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class RayCluster:
    """A Ray cluster that is running.

    Parameters
    ----------
    address : str
        ``ray://HOST:PORT``; empty for the cluster of this machine.

    Raises
    ------
    InputError
        Ray is not installed, or there is no such cluster.
    """

    def __init__(self, address: str = "") -> None:
        self._ray = _package("ray", "ray")
        if not self._ray.is_initialized():
            try:
                self._ray.init(address=address or "auto", log_to_driver=False, logging_level="error")
            except (ConnectionError, RuntimeError, ValueError) as error:
                where = address or "on this machine"
                raise InputError(f"there is no Ray cluster {where}: {error}") from None

    def map(
        self, work: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result | LostTaskError]]:
        """Yield each task with its result; see `Engine.map`."""
        ray = self._ray
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(work)
        waiting = deque(tasks)
        running: dict[Any, Task] = {}
        try:
            while waiting or running:
                while waiting and len(running) < AHEAD * max(int(ray.cluster_resources().get("CPU", 1)), 1):
                    task = waiting.popleft()
                    running[remote.remote(task)] = task
                done, _ = ray.wait(list(running), num_returns=1)
                for reference in done:
                    task = running.pop(reference)
                    try:
                        result = ray.get(reference)
                    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError) as error:
                        yield task, LostTaskError(f"its Ray worker was lost {RETRIES + 1} times: {error}")
                    except ray.exceptions.RayTaskError as error:
                        raise error.as_instanceof_cause() from None
                    else:
                        yield task, result
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


class DaskCluster:
    """A cluster of Dask distributed.

    Parameters
    ----------
    address : str
        Of its scheduler, ``tcp://HOST:PORT``.

    Raises
    ------
    InputError
        Dask distributed is not installed, or there is no such cluster.
    """

    def __init__(self, address: str) -> None:
        self._distributed = _package("distributed", "dask")
        try:
            self._client = self._distributed.Client(address, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"there is no Dask scheduler at {address}: {error}") from None

    def map(
        self, work: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result | LostTaskError]]:
        """Yield each task with its result; see `Engine.map`."""
        cores = max(sum(self._client.ncores().values()), 1)
        suspects: deque[Task] = deque()
        try:
            yield from self._completed(work, deque(tasks), AHEAD * cores, suspects)
            # Dask also blames tasks that waited on the killed worker. Which one it was is certain if it is alone.
            for suspect in suspects:
                lost: deque[Task] = deque()
                yield from self._completed(work, deque([suspect]), 1, lost)
                if lost:
                    yield suspect, LostTaskError("its Dask worker was lost again and again")
        finally:
            self._client.close()

    def _completed(
        self, work: Callable[[Task], Result], waiting: deque[Task], at_once: int, lost: deque[Task]
    ) -> Iterator[tuple[Task, Result]]:
        """Compute tasks; `lost` receives those whose workers were killed too often."""
        running: dict[Any, Task] = {}
        completed = self._distributed.as_completed(loop=self._client.loop)

        def fill() -> None:
            while waiting and len(running) < at_once:
                task = waiting.popleft()
                future = self._client.submit(work, task, pure=False, retries=RETRIES)
                running[future] = task
                completed.add(future)

        try:
            fill()
            for future in completed:
                task = running.pop(future)
                try:
                    result = future.result()
                except self._distributed.scheduler.KilledWorker:
                    lost.append(task)
                else:
                    yield task, result
                fill()
        finally:
            self._client.cancel(list(running), force=True)


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(
            f'the engine needs the package "{name}": pip install "tensight[{extra}]"', code="package-missing"
        ) from None
