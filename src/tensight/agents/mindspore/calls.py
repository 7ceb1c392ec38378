"""Calls of compiled graphs, observed where MindSpore's executors compile and run them.

Every graph runs through one of two executors: one for cells in GRAPH_MODE, one for functions that `jit` compiles. Their
arguments and results stay unchanged, and so do MindSpore's caches of compiled graphs.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import mindspore

from tensight.agents.core.replacing import Replacements
from tensight.agents.mindspore.executors import cell_executor_class, executor_classes, pynative_executor

if TYPE_CHECKING:
    from collections.abc import Callable


class Compiled(NamedTuple):
    """A graph that an executor has compiled, now or earlier.

    Attributes
    ----------
    phase : str
        MindSpore's name of it, different for each kind of arguments.
    owner : object
        The cell, or the function.
    arguments : tuple
        Of the call, once it is done, including those for the executor itself.
    result : object
        Of the call, once it is done.
    """

    phase: str
    owner: Any
    arguments: tuple[Any, ...] = ()
    result: Any = None


class GraphCalls:
    """Follows the executors, in one thread.

    None of these functions may raise, except to end the training.

    Parameters
    ----------
    before_compile : callable (owner) -> None
        Called before a graph is looked up, and compiled if it is new.
    compiled : callable (Compiled) -> None
        Called after that, before the graph runs.
    done : callable (Compiled) -> None
        Called when an outermost call has returned; its values may not be computed yet.
    begins : callable (owner) -> bool, optional
        Called for what another thread compiles: whether the training begins there, so that its thread is followed.
    """

    def __init__(
        self,
        before_compile: Callable[[Any], None],
        compiled: Callable[[Compiled], None],
        done: Callable[[Compiled], None],
        begins: Callable[[Any], bool] | None = None,
    ) -> None:
        self._before_compile = before_compile
        self._compiled = compiled
        self._done = done
        self._begins = begins
        self._thread = threading.get_ident()
        self._latest: Compiled | None = None
        self._running: list[Compiled | None] = []
        self._replaced = Replacements()

    def install(self) -> None:
        """Follow the executors from now on, in this thread."""
        self.follow_thread()
        for executor in (cell_executor_class(), executor_classes()[0]):
            self._replaced.put(executor, "compile", self._compile)
            self._replaced.put(executor, "__call__", self._call)

    def follow_thread(self) -> None:
        """Follow this thread, and no other."""
        self._thread = threading.get_ident()

    def remove(self) -> None:
        """Restore the executors, except where other code has replaced our functions."""
        self._replaced.take_back()
        self._running.clear()

    def _compile(self, original: Callable[..., Any], executor: Any, *arguments: Any, **named: Any) -> Any:
        # One executor serves all cells.
        is_function = hasattr(executor, "fn")
        owner = (executor.obj or executor.fn) if is_function else next(iter(arguments), named.get("obj"))
        if threading.get_ident() != self._thread and not (self._begins is not None and self._begins(owner)):
            return original(executor, *arguments, **named)
        self._before_compile(owner)
        result = original(executor, *arguments, **named)
        compiled = Compiled(str(result[0] if isinstance(result, tuple) else result), owner)
        self._latest = compiled
        if is_function and self._running:
            self._running[-1] = compiled
        self._compiled(compiled)
        return result

    def _call(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if threading.get_ident() != self._thread:
            return original(*arguments, **named)
        self._running.append(self._latest)
        try:
            result = original(*arguments, **named)
        finally:
            compiled = self._running.pop() if self._running else None
        if compiled is not None and not self._running:
            self._done(compiled._replace(arguments=arguments, result=result))
        return result


def wait_for_results() -> None:
    """Wait until everything that was called has been computed and dumped."""
    pynative_executor().sync()
    runtime = getattr(mindspore, "runtime", None)
    if runtime is not None and mindspore.get_context("device_target") != "CPU":
        runtime.synchronize()


def is_graph_mode() -> bool:
    """Whether cells are compiled as a whole."""
    return bool(mindspore.get_context("mode") == mindspore.GRAPH_MODE) and os.environ.get("MS_JIT") != "0"
