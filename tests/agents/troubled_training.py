"""A training that is run with and without the debugger; at the end it says what it arrived at.

    python troubled_training.py [--steps N] [--stop-at STEP ...] [--fork-at STEP] [--workers N]
                                [--failing-hooks] [--end-at STEP --end-by WAY]

It writes a line after each step. At a step of ``--stop-at`` it waits for a line on standard input, so that a test can
do something in the middle. With ``--linger FILE`` it trains on after it has said what it arrived at, until there is
that file. With ``--failing-hooks`` one hook after the other fails, each before one of the first steps; the script
prints the exception and trains on. ``--end-at`` ends it in the middle of a step, in one of the ways of `ENDINGS`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.data import DataLoader, TensorDataset

if TYPE_CHECKING:
    from collections.abc import Callable


def fail(*_: object) -> None:
    """Raise what no script expects."""
    raise ValueError("the training's own mistake")


def end_at_once() -> None:
    """End the process without anything that Python does at its end."""
    sys.stdout.flush()
    os._exit(4)


ENDINGS: dict[str, Callable[[], None]] = {"raise": fail, "exit": lambda: sys.exit(3), "_exit": end_at_once}

HOOKS: tuple[Callable[[Network, torch.optim.Optimizer], Any], ...] = (
    lambda model, _: model.head.register_forward_pre_hook(fail),
    lambda model, _: model.head.register_forward_hook(fail),
    lambda model, _: model.head.register_full_backward_hook(fail),
    lambda model, _: model.head.weight.register_hook(fail),
    lambda model, _: model.head.weight.register_post_accumulate_grad_hook(fail),
    lambda _, optimizer: optimizer.register_step_pre_hook(fail),
    lambda _, optimizer: optimizer.register_step_post_hook(fail),
)
"""All kinds of hooks that a script may have."""


class Network(nn.Module):
    """A small classifier, with something to do between its layers on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(16, 4)
        self.between: Callable[[], None] = lambda: None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = self.layers(inputs)
        self.between()
        return self.head(hidden)


def in_a_child(step: object) -> None:
    """Fork; the child trains on by itself and says so, the parent waits for it."""
    child = os.fork()
    if child == 0:
        step()
        os._exit(7)
    _, status = os.waitpid(child, 0)
    print("child ended with", os.waitstatus_to_exitcode(status), flush=True)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--stop-at", type=int, nargs="*", default=[])
    parser.add_argument("--failing-hooks", action="store_true")
    parser.add_argument("--end-at", type=int)
    parser.add_argument("--end-by", choices=ENDINGS)
    parser.add_argument("--fork-at", type=int)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--linger")
    options = parser.parse_args()
    # Newer versions of Python warn when a process with threads forks, and PyTorch has threads of its own.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,)))
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step_on(inputs: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    step = 0
    while step < options.steps or (options.linger and not os.path.exists(options.linger)):
        for inputs, labels in DataLoader(data, batch_size=16, shuffle=True, num_workers=options.workers):
            if options.failing_hooks and step < len(HOOKS):
                hook = HOOKS[step](model, optimizer)
                try:
                    step_on(inputs, labels)
                except ValueError:
                    traceback.print_exc()
                hook.remove()
            if step == options.end_at:
                print("arrived at", fingerprint(model), flush=True)
                model.between = ENDINGS[options.end_by]
            if step == options.fork_at:
                in_a_child(lambda batch=(inputs, labels): step_on(*batch))
            step_on(inputs, labels)
            step += 1
            if step <= options.steps:
                print("step", step, flush=True)
            if step in options.stop_at:
                sys.stdin.readline()
            if step == options.steps:
                print("arrived at", fingerprint(model), flush=True)
                break


def fingerprint(model: nn.Module) -> str:
    """Tell bits of weights apart."""
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
