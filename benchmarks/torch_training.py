"""A training process for torch_overhead.py: one workload, under one tool or none.

    python torch_training.py WORKLOAD TOOL [--host HOST --port PORT --job NAME]

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
from torch.utils.checkpoint import checkpoint

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


class Tagger(nn.Module):
    """A recurrent network that reads sentences of different lengths, packed, and tags their words."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.memory = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, 8)

    def forward(self, text: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.words(text), lengths, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.memory(packed)[0], batch_first=True, total_length=24)
        return self.head(states)


def lstm() -> Workload:
    """Every step has other lengths, so that it runs another number of operators."""
    model = Tagger()
    text = torch.randint(0, WORDS, (16, 24))
    tags = torch.randint(0, 8, (16, 24))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss() -> torch.Tensor:
        return F.cross_entropy(model(text, torch.randint(4, 25, (16,))).flatten(0, 1), tags.flatten())

    return workload(model, optimizer, loss)


class Recomputing(nn.Module):
    """A deep network whose blocks are computed again in the backward pass."""

    def __init__(self, width: int = 64, blocks: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(blocks)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            values = values + checkpoint(block, values, use_reentrant=False)
        return self.head(values)


def checkpointed() -> Workload:
    model = Recomputing()
    values = torch.randn(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return workload(model, optimizer, lambda: model(values).square().mean())


def llama() -> Workload:
    """Return a small Llama, with the loss and the backward pass of the Transformers library's `Trainer`."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, max_position_embeddings=64, **shape))
    text = torch.randint(0, WORDS, (8, 32))
    arguments = TrainingArguments(tempfile.mkdtemp(prefix="tensight-bench-"), use_cpu=True, report_to=[])
    trainer = Trainer(model, arguments)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        trainer.training_step(model, {"input_ids": text, "labels": text})
        optimizer.step()
        optimizer.zero_grad()

    return Workload(model, optimizer, step)


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
def tensight_watched_operators(work: Workload, options: argparse.Namespace) -> Iterator[Callable[[], None]]:
    with tensight_operators(work, options) as step:
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
def tensight_alone(work: Workload, options: argparse.Namespace, **settings: Any) -> Iterator[Callable[[], None]]:
    """Watch as a rank alone: the recommended set, and facts, appended to files; no server."""
    with (
        tempfile.TemporaryDirectory(prefix="tensight-bench-") as folder,
        tensight(work, options, alone=folder, **settings) as step,
    ):
        yield step


@contextlib.contextmanager
def tensight_alone_hits(work: Workload, options: argparse.Namespace) -> Iterator[Callable[[], None]]:
    """Do the same without facts."""
    with tensight_alone(work, options, findings="off") as step:
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


WORKLOADS = {work.__name__: work for work in (transformer, cnn, lstm, checkpointed, llama)}

TOOLS = {
    tool.__name__.replace("_", "-"): tool
    for tool in (
        plain,
        tensight,
        tensight_watched,
        tensight_operators,
        tensight_watched_operators,
        tensight_alone,
        tensight_alone_hits,
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
    parser.add_argument("workload", choices=sorted(WORKLOADS))
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
    work = WORKLOADS[options.workload]()
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
