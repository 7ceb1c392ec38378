"""One flipped bit in the output of one operator of a transformer's training, before anybody has looked at it.

Used by tests, and by benchmarks/flipped_bits.py.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

import tensight
from tensight.agents.torch.observing import OperatorObserver
from tests.agents.pytorch.networks import Transformer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STEPS = 2


class Target(NamedTuple):
    """An operator of a training: the step, from 0, and its full name."""

    step: int
    name: str


class Faults:
    """What is flipped: the lowest bit of an element in the middle of the target's first output.

    Parameters
    ----------
    target : Target, optional
        None flips nothing.

    Attributes
    ----------
    step : int
        Set by the training.
    operators : list of Target
        Those with an output of float32, in the order of execution.
    has_flipped : bool
    """

    def __init__(self, target: Target | None = None) -> None:
        self.step = 0
        self.operators: list[Target] = []
        self.has_flipped = False
        self._target = target

    def ran(self, operator: Any, result: Any) -> None:
        """Flip the bit, if it is this operator's."""
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        is_float = isinstance(first, torch.Tensor) and first.dtype == torch.float32 and first.numel() > 0
        if operator.node is None or not is_float:
            return
        at = Target(self.step, operator.node.name)
        self.operators.append(at)
        if at == self._target:
            # No operator of PyTorch, which would be seen.
            where = np.unravel_index(first.numel() // 2, tuple(first.shape))
            offset = sum(int(index) * stride for index, stride in zip(where, first.stride(), strict=True))
            ctypes.c_uint32.from_address(first.data_ptr() + 4 * offset).value ^= 1
            self.has_flipped = True

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Flip it between the operator and whoever looks at its output."""
        original = OperatorObserver.ran

        def ran(observer: OperatorObserver, operator: Any, result: Any, args: Any, kwargs: Any) -> None:
            self.ran(operator, result)
            original(observer, operator, result, args, kwargs)

        OperatorObserver.ran = ran  # type: ignore[method-assign]
        try:
            yield
        finally:
            OperatorObserver.ran = original  # type: ignore[method-assign]


def train(layers: int = 6, faults: Faults | None = None, **settings: Any) -> None:
    """Train a transformer of some layers under the debugger, every operator captured."""
    torch.manual_seed(3)
    faults = faults or Faults()
    net = Transformer(layers=layers, width=16, heads=2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=False)
    text = torch.randint(0, 20, (2, 13))
    with faults.planted(), tensight.torch.debug(net, optimizer, capture="ops", **{"port": 1, **settings}):
        for step in range(STEPS):
            faults.step = step
            optimizer.zero_grad()
            F.cross_entropy(net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
            optimizer.step()


def named_in(lines: Iterable[str]) -> Target | None:
    """Return which operator the report of a comparison names."""
    for line in lines:
        if "differs from the trace in step" in line and "output" in line:
            step, _, rest = line.partition("in step ")[2].partition(": ")
            return Target(int(step) - 1, rest.partition(" of ")[2].partition(" (")[0])
    return None
