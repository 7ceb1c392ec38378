"""What MindSpore runs graphs and cells with; later versions have given it another place."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any


def executor_classes() -> tuple[type, type]:
    """Return the class that runs compiled functions, and the one that PyNative mode runs on."""
    module = _executors()
    return getattr(module, "_JitExecutor", None) or module._MindsporeFunctionExecutor, module._PyNativeExecutor


def cell_executor_class() -> type:
    """Return the class that runs cells in GRAPH_MODE."""
    return type(_executors()._cell_graph_executor)


def pynative_executor() -> Any:
    """Return what PyNative mode runs on."""
    return _executors()._pynative_executor


@functools.cache
def _executors() -> Any:
    # Since 2.9 the old name is only there to warn people who use it.
    for name in ("mindspore.graph.api", "mindspore.common.api"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "_cell_graph_executor"):
            return module
    return importlib.import_module("mindspore.common.api")
