"""Calls of compiled graphs, noticed where MindSpore's own executors compile and run them.

Every way to a graph leads through two executors: one of cells in GRAPH_MODE, one of functions that `jit` compiles. What
they are given and what they return stays as it is, and so do MindSpore's caches of compiled graphs.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import mindspore

from tensight.agents.mindspore.executors import cell_executor_class, executor_classes, pynative_executor
from tensight.agents.replacing import Replacements

if TYPE_CHECKING:
    from collections.abc import Callable


class Compiled(NamedTuple):
    """What an executor compiled, or had compiled before.

    Attributes
    ----------
    phase : str
        MindSpore's name of it, one for each kind of arguments.
    owner : object
        The cell, or the function.
    arguments : tuple
        Of the call, once it is done; what the executor itself wants is among them.
    result : object
        Likewise.
    """

    phase: str
    owner: Any
    arguments: tuple[Any, ...] = ()
    result: Any = None


class GraphCalls:
    """Follows the executors, in one thread.

    None of the functions given may raise, but for what is to end the training.

    Parameters
    ----------
    before_compile : callable (owner) -> None
        Told before a graph is looked up, and compiled if it is new.
    compiled : callable (Compiled) -> None
        Told afterwards, before it runs.
    done : callable (Compiled) -> None
        Told when an outermost call has returned; what it computes may not be there yet.
    begins : callable (owner) -> bool, optional
        Asked of what another thread compiles: whether the training begins there, so that this thread is followed.
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
        """Follow this thread, and no other one."""
        self._thread = threading.get_ident()

    def remove(self) -> None:
        """Leave the executors as they were, unless somebody else has replaced what is ours."""
        self._replaced.take_back()
        self._running.clear()

    def _compile(self, original: Callable[..., Any], executor: Any, *arguments: Any, **named: Any) -> Any:
        # The executor of cells is one for all of them.
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
    """Wait until what was called has been computed, and dumped."""
    pynative_executor().sync()
    runtime = getattr(mindspore, "runtime", None)
    if runtime is not None and mindspore.get_context("device_target") != "CPU":
        runtime.synchronize()


def is_graph_mode() -> bool:
    """Whether cells are compiled as a whole."""
    return bool(mindspore.get_context("mode") == mindspore.GRAPH_MODE) and os.environ.get("MS_JIT") != "0"
