"""What facts for rules cost a PyTorch training: the mean and the median step, as a ratio to the step beside it.

    python benchmarks/facts.py [--only mlp resnet gpt tensors] [--ways plain attached facts] [--lives 3] [--steps 500]

Each life of a training is a process of its own from its first step to its last, under one of these ways:

plain          no tool
attached       attached to a debug server, nothing watched, no facts
facts          the same with facts for all rules, as with `tensight run`
watched        the recommended watchpoints on everything, no facts
watched-facts  the same with facts for all rules

The lives of all ways take turns. Shown are ratios of a training's mean step, with the first ones, and of its median
step; then those of the processor's time of all threads, which counts the work, not what else the machine does: the mean
step, the median step, the mean of all but the first 16, and the mean of those but for the very first. Each is that of
the medians over the lives. The last column is the share of its time that a training spends in functions of facts, with
the first step, which does not depend on what else the machine does to the other lives; what PyTorch takes to call their
hooks, and other threads to send them, is not in it. Losses and final weights must have the same bits as those of plain.

The programs resnet and gpt need the packages timm and transformers, as benchmarks/programs do.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import torch
from server import started
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch_training import WORDS, Workload, plain, tensight, workload

from tensight.agents.torch.facts.source import FactSource

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
PACKAGES = (HERE / "programs" / "start", HERE.parent / ".venvs" / "programs")
"""Where timm is, and what makes it importable without torchvision's operators."""

FIRST = 16
"""Number of first steps that are shown apart."""

BESIDE = {"attached": "plain", "facts": "attached", "watched": "plain", "watched-facts": "watched"}
"""The way that another one is compared with."""

BARS = {"facts": 1.02, "watched-facts": 1.05}
SETTINGS: dict[str, dict[str, Any]] = {
    "attached": {"findings": "off"},
    "facts": {"findings": "list"},
    "watched": {"findings": "off", "recommended": True},
    "watched-facts": {"findings": "list", "recommended": True},
}


# --- programs ---


def mlp() -> Workload:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    inputs, labels = torch.randn(64, 64), torch.randint(0, 10, (64,))
    return trained(model, lambda: F.cross_entropy(model(inputs), labels))


def resnet() -> Workload:
    import timm

    model = timm.create_model("resnet18", num_classes=10)
    images, labels = torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))
    return trained(model, lambda: F.cross_entropy(model(images), labels))


def gpt() -> Workload:
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = {"n_positions": 128, "n_embd": 256, "n_layer": 4, "n_head": 8}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, **shape))
    text = torch.randint(0, WORDS, (8, 64))
    return trained(model, lambda: model(input_ids=text, labels=text).loss)


class Sum(nn.Module):
    """Many small layers whose outputs are added up."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(layers))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        total = values
        for layer in self.layers:
            total = total + layer(values)
        return total


def tensors() -> Workload:
    model = Sum(1000)
    values = torch.randn(8, 32)
    return trained(model, lambda: model(values).square().mean())


def trained(model: nn.Module, loss_of: Callable[[], torch.Tensor]) -> Workload:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return workload(model, optimizer, loss_of)


PROGRAMS: dict[str, tuple[str, Callable[[], Workload]]] = {
    "mlp": ("three dense layers", mlp),
    "resnet": ("ResNet-18, 16 images of 64x64", resnet),
    "gpt": ("GPT-2 of 4 layers, 8 texts of 64 words", gpt),
    "tensors": ("1,000 small layers: 2,000 parameters", tensors),
}


# --- one life ---

_EVENTS = (
    *("_enter", "_leave", "begin", "backward_begins", "backward_ended"),
    *("update_begins", "update_ended", "clipped", "step_done"),
)


class Spent:
    """The time that the training's thread spends in functions of facts, in seconds."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        self._is_within = False

    def measure(self) -> None:
        """Measure from now on."""
        for name in _EVENTS:
            setattr(FactSource, name, self._timed(getattr(FactSource, name)))

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            if self._is_within:
                return original(*arguments, **named)
            self._is_within, begin = True, time.perf_counter()
            try:
                return original(*arguments, **named)
            finally:
                self._is_within = False
                self.spent_s += time.perf_counter() - begin

        return timed


def train(name: str, way: str, options: argparse.Namespace) -> None:
    """Train once, and print what that took as a line of JSON."""
    answers, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    work = PROGRAMS[name][1]()
    losses: list[torch.Tensor] = []
    backward = torch.Tensor.backward

    def noted(loss: torch.Tensor, *arguments: Any, **named: Any) -> None:
        losses.append(loss.detach())
        backward(loss, *arguments, **named)

    torch.Tensor.backward = noted  # type: ignore[method-assign]
    settings = {} if way == "plain" else SETTINGS[way]
    # A second run of a job has the watchpoints of the first one.
    options.job = way
    wall, processor = [], []
    spent = Spent()
    spent.measure()
    with (tensight if settings else plain)(work, options, **settings) as step:
        for _ in range(options.steps):
            begin, begin_of_processor = time.perf_counter(), time.process_time()
            step()
            wall.append(time.perf_counter() - begin)
            processor.append(time.process_time() - begin_of_processor)
    digest = hashlib.sha256()
    for tensor in (*losses, *work.model.state_dict().values()):
        digest.update(tensor.detach().numpy().tobytes())
    times = {"wall": wall, "processor": processor, "in_facts": spent.spent_s}
    print(json.dumps({**times, "bits": digest.hexdigest()}), file=answers, flush=True)


def life(name: str, way: str, port: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train once in a process of its own; return what it prints."""
    command = [sys.executable, __file__, "--train", name, way, "--port", port, "--steps", str(options.steps)]
    paths = [*map(str, PACKAGES), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    errors = None if options.verbose else subprocess.DEVNULL
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=errors)
    assert result.returncode == 0, f"{name} failed under {way}; see --verbose"
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


# --- all lives ---


def processor_name() -> str:
    """Return the name of the processor, as Linux reports it."""
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return f"{fields.get('model name', '?')} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')})"


def first_ones(seconds: list[float]) -> float:
    return fmean(seconds[1:FIRST])


def later_ones(seconds: list[float]) -> float:
    return fmean(seconds[FIRST:])


COLUMNS: tuple[tuple[str, str, Callable[[list[float]], float]], ...] = (
    ("mean", "wall", fmean),
    ("median", "wall", median),
    ("pr. mean", "processor", fmean),
    ("pr. median", "processor", median),
    ("pr. later", "processor", later_ones),
    ("pr. first", "processor", first_ones),
)


def show(title: str, lives: dict[str, list[dict[str, Any]]]) -> bool:
    """Print a row for each way; return whether no bar is missed."""
    met = True
    heads = " ".join(f"{head:>10}" for head, _, _ in COLUMNS)
    print(f"\n{title:40} {'ms a step':>9} {'beside':8} {heads} {'in facts':>8}")
    for way, mine in lives.items():
        beside = BESIDE.get(way, way)
        others = lives.get(beside, mine)
        ratios = [
            median(of(each[clock]) for each in mine) / median(of(each[clock]) for each in others)
            for _, clock, of in COLUMNS
        ]
        step_ms = 1e3 * median(median(each["wall"]) for each in mine)
        verdict = ""
        if way in BARS and beside in lives:
            is_met = ratios[2] <= BARS[way]
            met = met and is_met
            verdict = f"{BARS[way]:5.2f} {'yes' if is_met else 'NO'}"
        share = median(each["in_facts"] / sum(each["wall"]) for each in mine)
        figures = " ".join(f"{ratio:10.3f}" for ratio in ratios)
        print(f"{way:40} {step_ms:9.2f} {beside:8} {figures} {share:8.2%} {verdict}")
        if {each["bits"] for each in mine} != {each["bits"] for each in lives["plain"]}:
            met = False
            print("    losses or weights differ from those of plain")
    sys.stdout.flush()
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=sorted(PROGRAMS))
    parser.add_argument("--ways", nargs="*", choices=list(BESIDE), help="these beside plain; all by default")
    parser.add_argument("--lives", type=int, default=3, help="how often each is trained")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--verbose", action="store_true", help="show what trainings write to standard error")
    parser.add_argument("--train", nargs=2, metavar=("PROGRAM", "WAY"), help="train once, in this process")
    parser.add_argument("--port", default="50051", help="of the debug server, with --train")
    parser.set_defaults(host="127.0.0.1")
    options = parser.parse_args()
    if options.train:
        options.port = int(options.port)
        train(*options.train, options)
        return
    print(f"{processor_name()}; PyTorch {torch.__version__}, one thread; {options.steps} steps, {options.lives} lives")
    ways = ["plain", *(way for way in BESIDE if way in (options.ways or BESIDE))]
    met = True
    for name in options.only or PROGRAMS:
        lives: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        with started() as server:
            port = server.debugger.rpartition(":")[2]
            for number in range(options.lives):
                for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
                    lives[way].append(life(name, way, port, options))
        met = show(PROGRAMS[name][0], lives) and met
    raise SystemExit(not met)


if __name__ == "__main__":
    main()
