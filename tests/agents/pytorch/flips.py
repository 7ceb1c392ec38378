"""One flipped bit in the output of one operator of a transformer's training: planted below the debugger, so it is seen.

Used by tests, and by benchmarks/flipped_bits.py.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from networks import Transformer
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils._python_dispatch import TorchDispatchMode

import tensight
from tensight.analysis import Analysis
from tensight.dumps import open_dump

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

STEPS = 2


class Target(NamedTuple):
    """An operator of a training.

    Attributes
    ----------
    step : int
        From 0.
    name : str
        Of the operator: ``addmm``.
    number : int
        Which of those of that name in the step.
    """

    step: int
    name: str
    number: int


class Planter(TorchDispatchMode):
    """Counts operators, and flips the lowest bit of one element of the first output of one of them.

    Parameters
    ----------
    target : Target, optional
        None only counts.
    """

    def __init__(self, target: Target | None = None) -> None:
        super().__init__()
        self.step = 0
        self.seen: list[Counter[str]] = [Counter() for _ in range(STEPS)]
        self.can_flip: set[Target] = set()
        self.has_flipped = False
        self._target = target

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        at = Target(self.step, name, self.seen[self.step][name])
        self.seen[self.step][name] += 1
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        if isinstance(first, torch.Tensor) and first.dtype == torch.float32 and first.numel() and first.is_cpu:
            self.can_flip.add(at)
            if at == self._target:
                # No operator of PyTorch, which would be seen.
                where = np.unravel_index(first.numel() // 2, tuple(first.shape))
                offset = sum(int(index) * stride for index, stride in zip(where, first.stride(), strict=True))
                ctypes.c_uint32.from_address(first.data_ptr() + 4 * offset).value ^= 1
                self.has_flipped = True
        return result


def train(planter: Planter | None = None, layers: int = 6, **settings: Any) -> None:
    """Train a transformer of some layers under the debugger, every operator captured."""
    torch.manual_seed(3)
    net = Transformer(layers=layers, width=16, heads=2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=False)
    text = torch.randint(0, 20, (2, 13))
    with planter or Planter() as mode, tensight.torch.debug(net, optimizer, capture="ops", port=1, **settings):
        for step in range(STEPS):
            mode.step = step
            optimizer.zero_grad()
            F.cross_entropy(net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
            optimizer.step()


def operators_of(trace: Path, cache: Path, layers: int = 6) -> dict[Target, str]:
    """Return the full name of each operator of a trace, where the trace has all of the name that ran."""
    planter = Planter()
    train(planter, layers)
    found: dict[tuple[int, str], list[str]] = {}
    dump = open_dump(trace)
    order = {file.node: dump.execution_position(file) for file in dump.recorded_tensors()}
    for file in Analysis(dump, cache_dir=cache).known.files:
        if file.iteration >= 0 and file.op_type != "Parameter" and file.node is not None:
            names = found.setdefault((file.iteration, file.op_type), [])
            if file.node not in names:
                names.append(file.node)
    targets: dict[Target, str] = {}
    for (step, name), nodes in found.items():
        nodes.sort(key=lambda node: order[node])
        if len(nodes) == planter.seen[step][name]:
            targets.update((Target(step, name, number), node) for number, node in enumerate(nodes))
    return {target: node for target, node in targets.items() if target in planter.can_flip}


def named_in(lines: Iterable[str]) -> str:
    """Return which operator the report of a comparison names, and in which step; empty if none."""
    for line in lines:
        if "differs from the trace in step" in line and "output" in line:
            step, _, rest = line.partition("in step ")[2].partition(": ")
            return f"{step} {rest.partition(' of ')[2].partition(' (')[0]}"
    return ""
