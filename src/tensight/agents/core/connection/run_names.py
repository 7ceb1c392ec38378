"""The name of a run, which comes from its script, however the debugger was requested."""

from __future__ import annotations

import os
import sys
from typing import Any

NOTEBOOK = "notebook"

_LONGEST = 100


def run_name() -> str:
    """Return the name of the script, the module or the notebook that this process runs; empty if it is none of them."""
    main: Any = sys.modules.get("__main__")
    if "ipykernel" in sys.modules and not getattr(main, "__file__", None):
        return _notebook(main)
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in ("__main__", "__mp_main__"):
        return str(spec.name).removesuffix(".__main__")[:_LONGEST]
    path = str(getattr(main, "__file__", None) or "")
    if os.path.basename(path) == "__main__.py":
        path = os.path.dirname(os.path.abspath(path))
    return _stem(path)


def _notebook(main: Any) -> str:
    """Return the name of the notebook, if VS Code or Jupyter has passed it to the kernel."""
    paths = (getattr(main, "__vsc_ipynb_file__", None), os.environ.get("JPY_SESSION_NAME"))
    names = (_stem(str(path)) for path in paths if path and str(path).endswith(".ipynb"))
    return next(names, NOTEBOOK)


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0][:_LONGEST]
