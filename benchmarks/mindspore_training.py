"""A training process for mindspore_overhead.py: one network in graph mode on the CPU, under one tool or none.

    python mindspore_training.py lenet|perceptron TOOL [--port PORT --job NAME]

A number on standard input means: do so many steps; the answer is a line of JSON with the seconds of each. It runs in an
environment of MindSpore.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - where dumps go, too, that are compared with


def lenet() -> tuple[nn.Cell, Tensor, Tensor]:
    """Return what has some fifty operators in a step, of small and middle size."""
    network = nn.SequentialCell(
        nn.Conv2d(1, 6, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Conv2d(6, 16, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Flatten(), nn.Dense(400, 120), nn.ReLU(), nn.Dense(120, 84), nn.ReLU(), nn.Dense(84, 10),
    )  # fmt: skip
    return network, Tensor(values(32, 1, 32, 32)), Tensor(np.arange(32, dtype=np.int32) % 10)


def perceptron() -> tuple[nn.Cell, Tensor, Tensor]:
    """Return what has few operators, with large tensors."""
    network = nn.SequentialCell(
        nn.Dense(512, 1024), nn.ReLU(), nn.Dense(1024, 1024), nn.ReLU(), nn.Dense(1024, 1024), nn.ReLU(),
        nn.Dense(1024, 10),
    )  # fmt: skip
    return network, Tensor(values(128, 512)), Tensor(np.arange(128, dtype=np.int32) % 10)


def values(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.RandomState(0).randn(*shape).astype(np.float32)


# --- tools: each is a context around the making of the step ---


@contextlib.contextmanager
def plain(_: argparse.Namespace) -> Iterator[None]:
    yield


@contextlib.contextmanager
def dump(_: argparse.Namespace) -> Iterator[None]:
    """Have MindSpore write every output and every parameter to a disk in memory."""
    with tempfile.TemporaryDirectory(prefix="tensight-bench-", dir=MEMORY_DISK) as folder:
        common = {
            "dump_mode": 0, "path": f"{folder}/dump", "net_name": "bench", "iteration": "all", "saved_data": "tensor",
            "input_output": 2, "kernels": [], "support_device": [0], "op_debug_mode": 0,
        }  # fmt: skip
        config = Path(folder) / "config.json"
        config.write_text(json.dumps({"common_dump_settings": common, "e2e_dump_settings": {"enable": True}}))
        os.environ["MINDSPORE_DUMP_CONFIG"] = str(config)
        yield


@contextlib.contextmanager
def tensight(options: argparse.Namespace, **settings: Any) -> Iterator[None]:
    import tensight

    with tensight.mindspore.debug(host="127.0.0.1", port=options.port, job=options.job, **settings):
        yield


def tensight_watched(options: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Wait before the first step, so that watchpoints can be set."""
    return tensight(options, break_at_start=True)


def tensight_parameters(options: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Have only weights and their gradients dumped."""
    return tensight(options, break_at_start=True, partial_memory=True)


TOOLS: dict[str, Callable[[argparse.Namespace], contextlib.AbstractContextManager[None]]] = {
    "plain": plain,
    "dump": dump,
    "tensight": tensight,
    "tensight-watched": tensight_watched,
    "tensight-parameters": tensight_parameters,
    "tensight-weights": tensight_watched,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workload", choices=("lenet", "perceptron"))
    parser.add_argument("tool", choices=sorted(TOOLS))
    parser.add_argument("--mode", choices=("graph", "pynative"), default="graph")
    parser.add_argument("--port", type=int, default=50051)
    parser.add_argument("--job", default="bench")
    options = parser.parse_args()
    # What tools print must not come between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    ms.set_context(mode=ms.GRAPH_MODE if options.mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
    ms.set_seed(0)
    with TOOLS[options.tool](options):
        network, images, labels = {"lenet": lenet, "perceptron": perceptron}[options.workload]()
        loss = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
        step = nn.TrainOneStepCell(loss, nn.Momentum(network.trainable_params(), 1e-3, 0.9))
        step.set_train()
        for order in sys.stdin:
            seconds = []
            for _ in range(int(order)):
                begin = time.perf_counter()
                step(images, labels).asnumpy()
                seconds.append(time.perf_counter() - begin)
            print(json.dumps(seconds), file=answers, flush=True)
            if options.tool == "dump":
                forget(json.loads(Path(os.environ["MINDSPORE_DUMP_CONFIG"]).read_text()))


def forget(config: dict[str, Any]) -> None:
    """Remove what was dumped, while nobody looks at the clock: memory is finite."""
    for iteration in Path(config["common_dump_settings"]["path"]).glob("rank_*/bench/*/*"):
        shutil.rmtree(iteration)


if __name__ == "__main__":
    main()
