"""Memory of parameters that MindSpore 2.7 frees too early.

MindSpore frees the memory that a parameter had before `set_data`, although code compiled for an optimizer still uses
it: trainings in PyNative mode crash on the CPU, with or without the debugger.
"""

from __future__ import annotations

import weakref

import mindspore
from mindspore import Parameter, Tensor

_IS_NEEDED = tuple(map(int, mindspore.__version__.split(".")[:2])) < (2, 10)
"""It crashes with 2.7, but not with 2.10."""
_MOST = 3
"""How often the memory of a parameter is kept. Optimizers use that of their first update, and scripts may load weights
before it."""


class HeldMemory:
    """Keeps the memory that parameters had before their first calls of `set_data`."""

    def __init__(self) -> None:
        self._held: dict[int, list[Tensor]] = {}

    def hold(self, parameter: object) -> None:
        """Keep the memory of a parameter before `set_data`. Errors that MindSpore raises pass through."""
        if not _IS_NEEDED or not isinstance(parameter, Parameter):
            return
        if parameter.has_init or mindspore.get_context("device_target") != "CPU":
            return
        if mindspore.get_context("mode") != mindspore.PYNATIVE_MODE:
            return
        held = self._held.get(id(parameter))
        if held is None:
            held = self._held[id(parameter)] = []
            weakref.finalize(parameter, self._held.pop, id(parameter), None).atexit = False
        if len(held) < _MOST:
            # Another tensor of the same memory: nothing is copied.
            held.append(Tensor(parameter))
