"""Debug an unchanged script: the agent is installed the moment the script imports its framework.

If the environment requests the debugger, the interpreter runs `arrange` while it starts, because the wheel puts a line
into site-packages (`tensight_debug.pth`). That happens in every Python process that inherits the environment, so this
module imports next to nothing; what the agent needs is imported after the framework, in processes that use one.
"""

from __future__ import annotations

import functools
import gc
import importlib
import sys
from typing import TYPE_CHECKING, Any

from tensight.frameworks import FRAMEWORKS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

START_FILE = "tensight_debug.pth"
"""The file that the wheel puts into site-packages, which the interpreter runs whenever it starts."""


def arrange() -> None:
    """Install the agent as soon as this process imports a framework that has an adapter."""
    for framework in FRAMEWORKS:
        debug = _DEBUG[framework.module]
        # The line runs twice if its folder is in the search path twice, as lib and lib64.
        if not any(isinstance(finder, _Expectation) and finder.calls is debug for finder in sys.meta_path):
            when_imported(framework.module, debug)


def when_imported(module: str, call: Callable[[], None]) -> None:
    """Call a function once, as soon as a top-level module has been imported; at once if it has been.

    Parameters
    ----------
    module : str
        Its name; this does not import the module.
    call : callable
        Runs in the thread that imports the module, before the importer goes on. It must not raise.
    """
    if module in sys.modules:
        call()
    else:
        sys.meta_path.insert(0, _Expectation(module, call))


class _Expectation:
    """A finder that returns what the other finders return, and notices when that has been executed."""

    def __init__(self, module: str, call: Callable[[], None]) -> None:
        self.calls = call
        self._module = module
        self._searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders return; it need not be imported."""
        # Two expectations of the same module call each other.
        if name != self._module or self._searching:
            return None
        self._searching = True
        try:
            spec = self._found_by_others(name, path, target)
        finally:
            self._searching = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._notice_execution(spec.loader)
        return spec

    def _found_by_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in tuple(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _notice_execution(self, loader: Any) -> None:
        """Shadow the loader's method, so that the loader keeps its type."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if module.__name__ == self._module and self in sys.meta_path:
                sys.meta_path.remove(self)
                loader.__dict__.pop("exec_module", None)
                self.calls()

        loader.exec_module = exec_module


def _debug(framework: str) -> None:
    """Install the agent of a framework's adapter; if that fails, the script goes on."""
    # The imported objects are permanent: with a framework in memory, one search for reference cycles takes a tenth of a
    # second, and this many new objects would trigger several.
    collects = gc.isenabled()
    gc.disable()
    try:
        from tensight.agents.core.settings import AgentSettings
        from tensight.installations import require_one_version

        require_one_version()
        settings = AgentSettings.from_environment()
        importlib.import_module(f"tensight.agents.{framework}.install").install(settings)
    except Exception as error:
        _log_failure(error)
    finally:
        if collects:
            gc.enable()


_DEBUG = {framework.module: functools.partial(_debug, framework.module) for framework in FRAMEWORKS}


def _log_failure(error: Exception) -> None:
    from tensight.agents.core.notices import log
    from tensight.errors import TensightError

    what = str(error) if isinstance(error, TensightError) else f"{type(error).__name__}: {error}"
    log(f"the training goes on without the debugger: {what}")
