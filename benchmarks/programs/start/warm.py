"""A process that has imported everything once, and becomes one program after another in forked children.

For each line on standard input, an order as JSON, it forks, and answers when the child has ended: with the order's
name, the exit code, the processor's seconds and the peak memory in kB of the child; it takes further orders meanwhile.
The child is a process of its own that does what `python SCRIPT ARGUMENTS` does after the imports, and installs the
debugger as the interpreter's start would if the environment of the order asks for it.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "torch.utils.checkpoint", "lightning.pytorch", "transformers.trainer", "accelerate")


def import_all() -> None:
    """Import what the programs import, as far as it is installed."""
    names = list(PACKAGES)
    for script in SCRIPTS.glob("*.py"):
        for node in ast.walk(ast.parse(script.read_text())):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                names += [node.module, *(f"{node.module}:{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                # The modules of transformers are imported when somebody asks for what is in them.
                names += [f"transformers:{node.attr}"] if node.value.id == "transformers" else []
    for module, _, name in (name.partition(":") for name in dict.fromkeys(names)):
        with contextlib.suppress(ImportError):
            imported = importlib.import_module(module)
            getattr(imported, name, None)


def become(order: dict[str, Any]) -> None:
    """Make this process what the start of an interpreter would have made it."""
    os.chdir(order["folder"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(order["environment"])
    sys.argv = order["command"]
    if os.environ.get("TENSIGHT_DEBUG"):
        from tensight.agents.launch import arrange

        arrange()
    runpy.run_path(sys.argv[0], run_name="__main__")


def serve() -> dict[str, Any] | None:
    """Run what is ordered in children of children; return the order in one, and None when there are no more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        if os.fork():
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        child = os.fork()
        if child == 0:
            return order
        _, status, used = os.wait4(child, 0)
        code, cpu_s = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        os.write(1, f"{order['name']} {code} {cpu_s} {used.ru_maxrss}\n".encode())
        os._exit(0)
    return None


if __name__ == "__main__":
    sys.path.insert(0, str(SCRIPTS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_all()
    # What is never collected stays shared with the children.
    gc.collect()
    gc.freeze()
    order = serve()
    if order is not None:
        become(order)
