"""A small convolutional network with sicknesses planted in it, trained for four steps while MindSpore dumps every tensor.

Run by make_fixtures.py under MindSpore 2.0.0 and 2.10.0 (GRAPH_MODE, CPU). Each planted line ends with a comment `SICK: <name>`.
The steps are numbered from 0, as dump folders are.
"""

import sys

import numpy as np

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from dump_config import write_dump_config

STEPS = 4
EMPTY_IMAGE_FROM = 2  # from this step on, the first image of every batch is black


class EnergyFeature(nn.Cell):
    """Logarithm of each image's energy, centred over the batch."""

    def __init__(self):
        super().__init__()
        self.log = ops.Log()
        self.energy = ops.ReduceSum(keep_dims=True)
        self.mean = ops.ReduceMean(keep_dims=True)

    def construct(self, images):
        energy = self.energy(images * images, 1)
        log_energy = self.log(energy)  # SICK: inf  (the energy of a black image is 0)
        return log_energy - self.mean(log_energy, 0)  # SICK: nan  (-Inf minus -Inf)


class DeadBranch(nn.Cell):
    """A convolution whose bias keeps every activation below zero, so that nothing gets through and nothing is learnt."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, pad_mode="valid", has_bias=True, weight_init=Tensor(values(2, 1, 3, 3)))
        self.conv.bias.set_data(Tensor(np.full(2, -100.0, np.float32)))
        self.relu = nn.ReLU()

    def construct(self, images):
        return self.relu(self.conv(images))  # SICK: dead relu


class Probe(nn.Cell):
    """Two dense layers whose squared output joins the loss with a far too large factor; the second has learning rate 0."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Dense(64, 4, weight_init=Tensor(values(4, 64)), has_bias=False)
        self.outer = nn.Dense(4, 1, weight_init=Tensor(values(1, 4)), has_bias=False)
        self.mean = ops.ReduceMean()

    def construct(self, pixels):
        out = self.outer(self.inner(pixels))
        penalty = self.mean(out * out)
        return penalty * 300.0  # SICK: exploding gradient


class Gate(nn.Cell):
    """float16 arithmetic, a boolean mask and an integer index: a tensor of every common kind."""

    def __init__(self):
        super().__init__()
        frozen = np.linspace(0.5, 1.5, 8).astype(np.float32)
        self.weight = Parameter(Tensor(frozen), name="weight", requires_grad=False)  # SICK: frozen weight
        self.argmax = ops.Argmax(output_type=ms.int32)
        self.cast = ops.Cast()

    def construct(self, features):
        half = self.cast(features, ms.float16) * self.cast(self.weight, ms.float16)
        strongest = self.argmax(half)
        mask = ops.logical_and(half > 0, half < 100)
        gated = half * self.cast(mask, ms.float16)
        return self.cast(gated, ms.float32), self.cast(strongest, ms.float32)


class SickNetwork(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, pad_mode="valid", weight_init=Tensor(values(4, 1, 3, 3)))
        self.relu = nn.ReLU()
        self.dead = DeadBranch()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(6 * 36, 8, weight_init=Tensor(values(8, 216)), bias_init="zeros")
        self.gate = Gate()
        self.energy = EnergyFeature()
        self.fc2 = nn.Dense(10, 3, weight_init=Tensor(values(3, 10)), bias_init="zeros")
        self.probe = Probe()
        self.concat = ops.Concat(1)
        self.expand = ops.ExpandDims()

    def construct(self, images):
        pixels = self.flatten(images)
        maps = self.concat((self.relu(self.conv(images)), self.dead(images)))
        features = self.relu(self.fc1(self.flatten(maps)))
        gated, strongest = self.gate(features)
        everything = self.concat((gated, self.expand(strongest, 1), self.energy(pixels)))
        return self.fc2(everything), self.probe(pixels)


class Loss(nn.Cell):
    def __init__(self, network):
        super().__init__()
        self.network = network
        self.entropy = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def construct(self, images, labels):
        logits, penalty = self.network(images)
        return self.entropy(logits, labels) + penalty


_random = np.random.RandomState(0)


def values(*shape):
    fan_in = int(np.prod(shape[1:]))
    return (_random.randn(*shape) / np.sqrt(fan_in)).astype(np.float32)


def main(dump_folder):
    write_dump_config(dump_folder, "Sick")
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    ms.set_seed(0)
    loss = Loss(SickNetwork())
    still = [p for p in loss.trainable_params() if "probe.outer" in p.name]
    moving = [p for p in loss.trainable_params() if "probe.outer" not in p.name]
    groups = [{"params": moving, "lr": 0.05}, {"params": still, "lr": 0.0}]  # SICK: unchanged weight
    step = nn.TrainOneStepCell(loss, nn.Momentum(groups, learning_rate=0.05, momentum=0.9))
    step.set_train()
    data = np.random.RandomState(1)
    for iteration in range(STEPS):
        images = data.rand(4, 1, 8, 8).astype(np.float32)
        if iteration >= EMPTY_IMAGE_FROM:
            images[0] = 0.0
        labels = data.randint(0, 3, 4).astype(np.int32)
        print(iteration, step(Tensor(images), Tensor(labels)))


if __name__ == "__main__":
    main(sys.argv[1])
