"""A training of MindSpore that is debugged again and again, each time with another part of Tensight that fails.

    PYTHONPATH=. python tests/agents/mindspore/failing_training.py graph|pynative HOST PORT

Writes, as JSON, how many parts are called, how many have failed, and what came of it other than a training that
arrives where it does alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from contextlib import ExitStack
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

import tensight.agents.mindspore
from tensight.agents.core import notices
from tensight.agents.core.node_cursor import NodeCursor
from tensight.agents.core.settings import AgentSettings
from tensight.agents.mindspore.debugger import Debugger
from tests.agents.collaborators import Collaborator, Method, label, methods, packages_of_core

STEPS = 3
NOT_BROKEN = {
    "mindspore.debugger": "what the script calls; what that calls is broken",
    "mindspore.callback": "what `Model` calls; it calls a debugger",
    "mindspore.trial": "in no training but the one of `tensight selftest`",
}
"""Modules and methods below `tensight.agents`, and why each is left out."""

MODE, HOST, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
SAID: list[str] = []


class Listener(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        SAID.append(record.getMessage())


def train(debugged: bool) -> str:
    """Train a new network; return what it arrived at."""
    ms.set_seed(1)
    random = np.random.default_rng(1)
    network = nn.SequentialCell(nn.Dense(4, 6), nn.Tanh(), nn.Dense(6, 2))
    for parameter in network.get_parameters():
        parameter.set_data(Tensor(random.normal(0, 1, parameter.shape).astype(np.float32)))
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), optimizer).set_train()
    settings = AgentSettings(host=HOST, port=PORT, job=f"failing-{MODE}", recommended=True)
    with ExitStack() as stack:
        if debugged:
            stack.enter_context(Debugger((network, optimizer), settings))
        for _ in range(STEPS):
            inputs = random.normal(0, 1, (3, 4)).astype(np.float32)
            step(Tensor(inputs), Tensor(np.ones((3, 2), np.float32))).asnumpy()
    parameters: list[Any] = [*network.get_parameters(), *optimizer.moments]
    return hashlib.sha256(b"".join(parameter.asnumpy().tobytes() for parameter in parameters)).hexdigest()


def count_calls() -> dict[Method, int]:
    """Return how often each part is called that is called at all."""
    packages = *packages_of_core(), tensight.agents.mindspore
    parts = {method: Collaborator(*method) for method in methods(*packages, left_out=NOT_BROKEN) if is_broken(*method)}
    with ExitStack() as counted:
        for part in parts.values():
            counted.enter_context(part)
        train(debugged=True)
    return {method: part.calls for method, part in parts.items() if part.calls}


def is_broken(class_: type, _: str) -> bool:
    """Whether a part is let fail here; what trainings of PyTorch use, too, fails there."""
    return class_ is NodeCursor or class_.__module__.startswith("tensight.agents.mindspore.")


def main() -> None:
    """Let each part fail in turn."""
    ms.set_context(mode=ms.GRAPH_MODE if MODE == "graph" else ms.PYNATIVE_MODE)
    logger = logging.getLogger(notices.LOGGER)
    logger.handlers, logger.propagate = [Listener()], False
    logger.setLevel(logging.INFO)
    # The first graph decides for the life of a process whether it dumps.
    arrives_at = train(debugged=True)
    problems: list[str] = [] if train(debugged=False) == arrives_at else ["another result, with nothing that fails"]
    calls = count_calls()
    if MODE == "graph":
        # Compiling takes long; what PyNative mode calls, too, fails there.
        ms.set_context(mode=ms.PYNATIVE_MODE)
        for method in count_calls():
            calls.pop(method, None)
        ms.set_context(mode=ms.GRAPH_MODE)
    failed = 0
    for (class_, name), count in calls.items():
        notices._logged.clear()
        SAID.clear()
        with Collaborator(class_, name, fails_at=count // 2) as part:
            try:
                result = train(debugged=True)
            except Exception as error:
                problems.append(f"{label(class_, name)}: {error!r}")
                continue
        failed += part.has_failed
        told = [line for line in SAID if label(class_, name) in line]
        if result != arrives_at:
            problems.append(f"{label(class_, name)}: another result")
        elif part.has_failed and len(told) != 1:
            problems.append(f"{label(class_, name)}: said {told}")
    print(json.dumps({"called": len(calls), "failed": failed, "problems": problems}))


if __name__ == "__main__":
    main()
