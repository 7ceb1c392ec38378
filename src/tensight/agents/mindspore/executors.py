"""MindSpore's executors of graphs and cells, whose module depends on the version."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any


def executor_classes() -> tuple[type, type]:
    """Return the class that runs compiled functions, and the one that runs PyNative mode."""
    module = _executors()
    return getattr(module, "_JitExecutor", None) or module._MindsporeFunctionExecutor, module._PyNativeExecutor


def cell_executor_class() -> type:
    """Return the class that runs cells in GRAPH_MODE."""
    return type(_executors()._cell_graph_executor)


def pynative_executor() -> Any:
    """Return the executor of PyNative mode."""
    return _executors()._pynative_executor


@functools.cache
def _executors() -> Any:
    # Since 2.9 the old module only exists to warn users of the name.
    for name in ("mindspore.graph.api", "mindspore.common.api"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "_cell_graph_executor"):
            return module
    return importlib.import_module("mindspore.common.api")
