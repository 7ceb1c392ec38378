"""What the readers of the documentation have already: trainings of their own, in which a block is put."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.agents.mindspore.mindspore_stage import python_of
from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from tests.docs.walk import Walk

A_TRAINING = """
import tensight
import torch

model, optimizer = torch.nn.Linear(4, 1), None
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train():
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    print("trained")

"""
A_MINDSPORE_TRAINING = """
import mindspore
import numpy
import tensight
from mindspore import nn, train

network = nn.Dense(4, 1)
model = train.Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.1))
columns = {"data": numpy.random.randn(40, 4).astype("float32"), "label": numpy.ones((40, 1), "float32")}
dataset = mindspore.dataset.NumpySlicesDataset(columns).batch(8)

"""
A_SEARCHED_TRAINING = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--optimizer")
parser.add_argument("--momentum", type=float, default=0.9)
arguments = parser.parse_args()
for step in range(1, 4):
    print("step", step, "accuracy", 1 - abs(arguments.lr - 0.1) / step)
"""
A_TRAINING_OF_MINDSPORE_INSIGHT = f"""
import shutil

config = HyperConfig()
print(config.params.learning_rate)
shutil.copy({str(ROOT / "tests/fixtures/curves/events.summary.mindspore-2.10.0_MS")!r}, config.summary_dir)
"""
A_CONFIGURATION_OF_MINDSPORE_INSIGHT = """
command: python train.py
summary_base_dir: ./summaries
tuner: {name: gp, args: {method: ei}}
target: {name: loss}
parameters:
  learning_rate: {bounds: [0.0001, 0.1], type: float}
"""
BATCHES = """
import lightning
import tensight
import torch
import transformers

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = torch.nn.MSELoss()
batches = [(torch.randn(8, 4), torch.zeros(8, 1)) for _ in range(3)]
arguments = transformers.TrainingArguments("checkpoints", report_to=[])

"""
CELLS = """
import mindspore
import numpy
from mindspore import nn, train

network = nn.Dense(4, 1)
optimizer = nn.SGD(network.trainable_params(), 0.1)
train_step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), optimizer)
model = train.Model(network, nn.MSELoss(), optimizer)
columns = {"data": numpy.random.randn(40, 4).astype("float32"), "label": numpy.ones((40, 1), "float32")}
batches = mindspore.dataset.NumpySlicesDataset(columns).batch(8)

"""


def use_mindspore(walk: Walk) -> None:
    """Activate the environment with MindSpore; ``train.py`` is the LeNet of the examples."""
    walk.activate(python_of("2.10"))
    shutil.copytree(ROOT / "examples", walk.folder / "examples")
    write_lenet(walk)


def write_lenet(walk: Walk, fault: str = "none") -> None:
    """Write the LeNet of the examples with one of its faults, whatever the command line of who runs it says."""
    script = (ROOT / "examples" / "lenet_mindspore.py").read_text()
    script = script.replace('default="none"', f'default="{fault}"')
    script = script.replace("parser.parse_args()", "parser.parse_known_args()[0]")
    (walk.folder / "train.py").write_text(script)


RANKS_WITH_A_BAD_BATCH = """\
import torch
from torch import distributed, nn

distributed.init_process_group("gloo")
torch.set_num_threads(1)
rank = distributed.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(rank)
for step in range(1, 56):
    inputs = torch.randn(4, 8)
    if rank == 5 and step == 30:
        inputs[0, 0] = float("nan")
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
distributed.destroy_process_group()
"""
"""A training of several ranks, one of which reads a bad batch."""
