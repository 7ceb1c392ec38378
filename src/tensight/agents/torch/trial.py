"""Some steps of an unchanged script, measured: what `tensight selftest` starts, with and without the debugger.

``python -m tensight.agents.torch.trial FD STEPS [-m] SCRIPT ARGUMENTS`` runs the script as `python` would and ends the
process after so many steps of the optimizer. It writes a dot to the file descriptor after each step, and at the end a
line of JSON: `Outcome`.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from tensight.agents.launch import when_imported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensight.agents.torch.debugger import Debugger

STEP = b"."


class Outcome(NamedTuple):
    """What a trial reports.

    Attributes
    ----------
    steps : int
        Steps of the optimizer; of the first, if there are several.
    step_seconds : list of float
        From the end of a step to the end of the next one.
    peak_bytes : int
        The most memory that the process had resident.
    digests : dict of str to str
        SHA-256 of the bits of each parameter, each buffer of the module that it belongs to, and each tensor among the
        optimizers' states.
    debugged_steps : int
        How many steps the debugger saw.
    """

    steps: int
    step_seconds: list[float]
    peak_bytes: int
    digests: dict[str, str]
    debugged_steps: int


class Trial:
    """The measurement of one process.

    Parameters
    ----------
    descriptor : int
        Where to report.
    most_steps : int
        After so many the process ends.
    """

    def __init__(self, descriptor: int, most_steps: int) -> None:
        self._descriptor = descriptor
        self._most_steps = most_steps
        self._process = os.getpid()
        self._optimizers: list[Any] = []
        self._ends: list[float] = []

    def begin(self) -> None:
        """Measure every step from now on; PyTorch has been imported."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._stepped)
        atexit.register(self.report)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        # Workers that were forked inherit the hook, and have nothing to report.
        if os.getpid() != self._process:
            return
        if not any(optimizer is known for known in self._optimizers):
            self._optimizers.append(optimizer)
        if optimizer is self._optimizers[0]:
            self._ends.append(time.perf_counter())
            os.write(self._descriptor, STEP)
            if len(self._ends) == self._most_steps:
                self._end()

    def _end(self) -> NoReturn:
        self.report()
        debugger = _debugger()
        if debugger is not None:
            debugger.close()
        sys.stdout.flush()
        sys.stderr.flush()
        # No exception would get past every `except` of a script.
        os._exit(0)

    def report(self) -> None:
        """Write the outcome."""
        if os.getpid() != self._process:
            return
        seconds = [later - earlier for earlier, later in zip(self._ends, self._ends[1:], strict=False)]
        # What is digested must not count as memory.
        peak_bytes = _peak_bytes()
        digests = {name: _digest(tensor) for name, tensor in _state(self._optimizers)}
        outcome = Outcome(len(self._ends), seconds, peak_bytes, digests, _debugged_steps())
        with open(self._descriptor, "w", closefd=False) as report:
            report.write(f"\n{json.dumps(outcome._asdict())}\n")
        self._process = -1


def _debugger() -> Debugger | None:
    module = sys.modules.get("tensight.agents.torch.install")
    return None if module is None else module.installed()


def _debugged_steps() -> int:
    debugger = _debugger()
    return 0 if debugger is None or debugger.agent is None else debugger.agent.step


def _state(optimizers: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield everything that a step may change, in an order that does not depend on where objects lie."""
    import torch

    names = _names_of_parameters()
    owners: dict[int, Any] = {}
    for number, optimizer in enumerate(optimizers):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for index, parameter in enumerate(parameters):
            name, owner = names.get(id(parameter), (f"parameter {index} of optimizer {number}", None))
            yield name, parameter
            if owner is not None:
                owners.setdefault(id(owner), owner)
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"{key}.{name}", value
    for position, owner in enumerate(owners.values()):
        for name, buffer in owner.named_buffers():
            yield (name if len(owners) == 1 else f"{position}.{name}"), buffer


def _names_of_parameters() -> dict[int, tuple[str, Any]]:
    """Return name and outermost module of each parameter, by the identity of the parameter."""
    import torch

    # By the type, because asking an object for its class may wake it up.
    modules = [found for found in gc.get_objects() if issubclass(type(found), torch.nn.Module)]
    inside = {id(child) for module in modules for child in module.modules() if child is not module}
    names: dict[int, tuple[str, Any]] = {}
    for module in modules:
        if id(module) not in inside:
            for name, parameter in module.named_parameters():
                names.setdefault(id(parameter), (name, module))
    return names


def _digest(tensor: Any) -> str:
    import torch

    values = tensor.detach().to("cpu").contiguous().flatten().view(torch.uint8)
    return hashlib.sha256(memoryview(values.numpy())).hexdigest()


def _peak_bytes() -> int:
    """Return the most memory this program had resident; the kernel's other figure counts what it was forked from."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def main(arguments: Sequence[str]) -> None:
    """Run a script as `python` would, and measure it."""
    trial = Trial(int(arguments[0]), int(arguments[1]))
    when_imported("torch", trial.begin)
    if arguments[2] == "-m":
        sys.argv = list(arguments[3:])
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments[2:])
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
