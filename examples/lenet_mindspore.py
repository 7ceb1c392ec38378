"""LeNet-5 tells synthetic digits apart, trained by ``Model.train`` with callbacks.

``--fault log-of-zero`` writes the loss by hand, and the sixth batch has pixels from 0 to 255 that nobody scaled.
"""

import argparse

import mindspore as ms
import numpy as np
from mindspore import dataset, nn, ops

BATCH = 32
UNSCALED_BATCH = 6


class LeNet5(nn.Cell):
    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.fc1 = nn.Dense(16 * 5 * 5, 120)
        self.fc2 = nn.Dense(120, 84)
        self.fc3 = nn.Dense(84, classes)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()

    def construct(self, pictures):
        features = self.pool(self.relu(self.conv1(pictures)))
        features = self.pool(self.relu(self.conv2(features)))
        features = self.relu(self.fc1(self.flatten(features)))
        features = self.relu(self.fc2(features))
        return self.fc3(features)


class HandWrittenLoss(nn.Cell):
    """Cross entropy as the textbook has it."""

    def construct(self, scores, digits):
        probabilities = ops.softmax(scores, axis=1)
        surprise = -ops.log(probabilities)  # FAULT: a probability that is rounded to 0 has no logarithm
        right = ops.one_hot(digits, scores.shape[1], ms.Tensor(1.0), ms.Tensor(0.0))
        return (right * surprise).sum(axis=1).mean()


class Digits:
    """Noisy pictures of ten patterns, each batch made from its number."""

    def __init__(self, batches, unscaled_batch=0):
        self.batches = batches
        self.unscaled_batch = unscaled_batch
        coarse = np.random.default_rng(0).random((10, 1, 8, 8), np.float32)
        self.patterns = coarse.repeat(4, axis=2).repeat(4, axis=3)

    def __len__(self):
        return self.batches

    def __getitem__(self, index):
        random = np.random.default_rng(1000 + index)
        digits = random.integers(0, 10, BATCH).astype(np.int32)
        noise = random.standard_normal((BATCH, 1, 32, 32), np.float32)
        pictures = self.patterns[digits] + 0.3 * noise - 0.5
        if index + 1 == self.unscaled_batch:
            pictures *= 255
        return pictures, digits


class PrintLoss(ms.train.Callback):
    """Print the loss of each step."""

    def on_train_step_end(self, run_context):
        state = run_context.original_args()
        print(f"step {state.cur_step_num}  loss {float(state.net_outputs.asnumpy()):.9g}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--fault", choices=["none", "log-of-zero"], default="none")
    parser.add_argument("--mode", choices=["graph", "pynative"], default="graph")
    parser.add_argument("--device", default="CPU")
    parser.add_argument("--save", metavar="FILE", help="write the weights there at the end")
    arguments = parser.parse_args()

    ms.set_context(mode=ms.GRAPH_MODE if arguments.mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_device(arguments.device)
    ms.set_seed(0)

    faulty = arguments.fault == "log-of-zero"
    digits = Digits(arguments.steps, UNSCALED_BATCH if faulty else 0)
    batches = dataset.GeneratorDataset(digits, ["pictures", "digits"], shuffle=False, num_parallel_workers=1)
    network = LeNet5()
    loss = HandWrittenLoss() if faulty else nn.CrossEntropyLoss()
    optimizer = nn.Adam(network.trainable_params(), learning_rate=0.002)
    model = ms.Model(network, loss_fn=loss, optimizer=optimizer, metrics={"accuracy"})
    model.train(1, batches, callbacks=[PrintLoss()], dataset_sink_mode=False)
    unseen = dataset.GeneratorDataset(Digits(2), ["pictures", "digits"], shuffle=False, num_parallel_workers=1)
    print("accuracy", model.eval(unseen, dataset_sink_mode=False)["accuracy"])
    if arguments.save:
        ms.save_checkpoint(network, arguments.save)


if __name__ == "__main__":
    main()
