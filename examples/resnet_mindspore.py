"""A small ResNet with batch normalisation, in mixed precision: float16 where that is safe, and the loss is scaled.

``--fault float16-loss`` computes the loss in float16, too; scaled as it is from step 6 on it no longer fits.
"""

import argparse

import mindspore as ms
import numpy as np
from mindspore import amp, nn, ops

BATCH = 16
CLASSES = 10
STEPS_BETWEEN_SCALES = 5


class Block(nn.Cell):
    """Two convolutions, and a way around them."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.shortcut = nn.SequentialCell()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.SequentialCell(nn.Conv2d(inputs, outputs, 1, stride=stride), nn.BatchNorm2d(outputs))

    def construct(self, features):
        inner = self.relu(self.bn1(self.conv1(features)))
        inner = self.bn2(self.conv2(inner))
        return self.relu(inner + self.shortcut(features))


class ResNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.SequentialCell(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.stage1 = Block(8, 8)
        self.stage2 = Block(8, 16, stride=2)
        self.stage3 = Block(16, 32, stride=2)
        self.head = nn.Dense(32, CLASSES)

    def construct(self, pictures):
        features = self.stage3(self.stage2(self.stage1(self.stem(pictures))))
        return self.head(features.mean(axis=(2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--fault", choices=["none", "float16-loss"], default="none")
    parser.add_argument("--mode", choices=["graph", "pynative"], default="graph")
    parser.add_argument("--device", default="CPU")
    parser.add_argument("--save", metavar="FILE", help="write the weights there at the end")
    arguments = parser.parse_args()

    ms.set_context(mode=ms.GRAPH_MODE if arguments.mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_device(arguments.device)
    ms.set_seed(0)

    network = amp.auto_mixed_precision(ResNet(), amp_level="O2", dtype=ms.float16)
    optimizer = nn.Momentum(network.trainable_params(), learning_rate=0.05, momentum=0.9)
    scaler = amp.DynamicLossScaler(scale_value=2**14, scale_factor=2, scale_window=STEPS_BETWEEN_SCALES)
    loss_type = ms.float16 if arguments.fault == "float16-loss" else ms.float32

    def scaled_loss(pictures, kinds):
        scores = network(pictures).astype(loss_type)
        loss = ops.cross_entropy(scores, kinds)
        return scaler.scale(loss)  # FAULT: a loss in float16 that is scaled beyond 65504 is Inf

    value_and_gradients = ms.value_and_grad(scaled_loss, None, optimizer.parameters)

    def train_step(pictures, kinds):
        loss, gradients = value_and_gradients(pictures, kinds)
        finite = amp.all_finite(gradients)
        if finite:
            optimizer(scaler.unscale(gradients))
        loss = scaler.unscale(loss)
        scaler.adjust(finite)
        return loss

    if arguments.mode == "graph":
        train_step = ms.jit(train_step)
    network.set_train()
    random = np.random.default_rng(0)
    patterns = random.standard_normal((CLASSES, 3, 16, 16), np.float32)
    for step in range(1, arguments.steps + 1):
        kinds = random.integers(0, CLASSES, BATCH).astype(np.int32)
        pictures = patterns[kinds] + random.standard_normal((BATCH, 3, 16, 16), np.float32)
        loss = train_step(ms.Tensor(pictures), ms.Tensor(kinds))
        print(f"step {step}  loss {float(loss.asnumpy()):.9g}", flush=True)
    if arguments.save:
        ms.save_checkpoint(network, arguments.save)


if __name__ == "__main__":
    main()
