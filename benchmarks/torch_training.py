"""A training process for torch_overhead.py: one workload, under one tool or none.

    python torch_training.py transformer|cnn TOOL [--host HOST --port PORT --job NAME]

A number on standard input means: do so many steps; the answer is a line of JSON with the seconds of each. It runs in
our environment and in the peers'.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORDS = 1000


class Workload(NamedTuple):
    """A model, its optimizer, and a step of the training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[], None]


class Predictor(nn.Module):
    """A transformer of six layers that predicts words."""

    def __init__(self, width: int = 256, layers: int = 6) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.words(text)))


def transformer() -> Workload:
    model = Predictor()
    text = torch.randint(0, WORDS, (6, 128))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return workload(model, optimizer, lambda: F.cross_entropy(model(text).flatten(0, 1), text.flatten()))


def cnn() -> Workload:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(32 * 64, 10),
    )  # fmt: skip
    images, labels = torch.randn(24, 3, 32, 32), torch.randint(0, 10, (24,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return workload(model, optimizer, lambda: F.cross_entropy(model(images), labels))


def workload(model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Callable[[], torch.Tensor]) -> Workload:
    def step() -> None:
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()

    return Workload(model, optimizer, step)


# --- tools: each is a context that may wrap the step ---


@contextlib.contextmanager
def plain(work: Workload, _: argparse.Namespace) -> Iterator[Callable[[], None]]:
    yield work.step


@contextlib.contextmanager
def tensight(work: Workload, options: argparse.Namespace, **settings: Any) -> Iterator[Callable[[], None]]:
    import tensight

    where = {"host": options.host, "port": options.port, "job": options.job}
    with tensight.torch.debug(work.model, work.optimizer, **where, **settings):
        yield work.step


@contextlib.contextmanager
def tensight_watched(work: Workload, options: argparse.Namespace) -> Iterator[Callable[[], None]]:
    """Wait before the first step, so that watchpoints can be set."""
    with tensight(work, options, break_at_start=True) as step:
        yield step


@contextlib.contextmanager
def tensight_operators(work: Workload, options: argparse.Namespace) -> Iterator[Callable[[], None]]:
    with tensight(work, options, capture="ops", break_at_start=True) as step:
        yield step


@contextlib.contextmanager
def tensight_traced(
    work: Workload, options: argparse.Namespace, capture: str = "modules"
) -> Iterator[Callable[[], None]]:
    """Statistics and content hashes of every step, appended to a file."""
    with (
        tempfile.TemporaryDirectory(prefix="tensight-bench-") as folder,
        tensight(work, options, trace=folder, capture=capture) as step,
    ):
        yield step


@contextlib.contextmanager
def tensight_traced_operators(work: Workload, options: argparse.Namespace) -> Iterator[Callable[[], None]]:
    with tensight_traced(work, options, "ops") as step:
        yield step


@contextlib.contextmanager
def msprobe(work: Workload, _: argparse.Namespace, level: str = "L0") -> Iterator[Callable[[], None]]:
    """Statistics of every module (L0) or API (L1), written to disk at each step."""
    from msprobe.pytorch import PrecisionDebugger

    with tempfile.TemporaryDirectory(prefix="tensight-bench-") as folder:
        settings = {"task": "statistics", "dump_path": folder, "rank": [], "step": [], "level": level}
        settings["statistics"] = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(settings))
        debugger = PrecisionDebugger(config_path=str(config))

        def step() -> None:
            debugger.start(model=work.model)
            work.step()
            debugger.stop()
            debugger.step()

        yield step


@contextlib.contextmanager
def msprobe_apis(work: Workload, options: argparse.Namespace) -> Iterator[Callable[[], None]]:
    with msprobe(work, options, "L1") as step:
        yield step


@contextlib.contextmanager
def underflow_overflow(work: Workload, _: argparse.Namespace) -> Iterator[Callable[[], None]]:
    """Look for NaN and Inf in weights, inputs and outputs of every module, forward only."""
    from transformers.debug_utils import DebugUnderflowOverflow

    DebugUnderflowOverflow(work.model)
    yield work.step


@contextlib.contextmanager
def detect_anomaly(work: Workload, _: argparse.Namespace) -> Iterator[Callable[[], None]]:
    """Look for NaN in the gradients that each operator computes, backward only."""
    with torch.autograd.detect_anomaly(check_nan=True):
        yield work.step


@contextlib.contextmanager
def debug_mode(work: Workload, _: argparse.Namespace) -> Iterator[Callable[[], None]]:
    """Record every operator of a step, with the hash of its result, which tells NaN."""
    from torch.utils._debug_mode import DebugMode

    def step() -> None:
        with DebugMode(), DebugMode.log_tensor_hashes(hash_fn="norm"):
            work.step()

    yield step


@contextlib.contextmanager
def debug_mode_names(work: Workload, _: argparse.Namespace) -> Iterator[Callable[[], None]]:
    """Record every operator of a step, and looks at no value."""
    from torch.utils._debug_mode import DebugMode

    def step() -> None:
        with DebugMode():
            work.step()

    yield step


TOOLS = {
    tool.__name__.replace("_", "-"): tool
    for tool in (
        plain,
        tensight,
        tensight_watched,
        tensight_operators,
        tensight_traced,
        tensight_traced_operators,
        msprobe,
        msprobe_apis,
        underflow_overflow,
        detect_anomaly,
        debug_mode,
        debug_mode_names,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workload", choices=("transformer", "cnn"))
    parser.add_argument("tool", choices=sorted(TOOLS))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=50051)
    parser.add_argument("--job", default="bench")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "processor", "thread"), default="wall")
    options = parser.parse_args()
    # What tools print must not come between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    now = {"wall": time.perf_counter, "processor": time.process_time, "thread": time.thread_time}[options.clock]
    torch.manual_seed(0)
    work = {"transformer": transformer, "cnn": cnn}[options.workload]()
    with TOOLS[options.tool](work, options) as step:
        for order in sys.stdin:
            seconds = []
            for _ in range(int(order)):
                begin = now()
                step()
                seconds.append(now() - begin)
            print(json.dumps(seconds), file=answers, flush=True)


if __name__ == "__main__":
    main()
