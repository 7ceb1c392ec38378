"""A small transformer tells what sentences are about. Only batches with padding need a mask: the graph has a branch.

``--fault empty-sentence`` has, in step 5, a sentence without a single word in it.
"""

import argparse
import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops

BATCH = 16
LENGTH = 12
WORDS = 40
TOPICS = 4
PADDING = 0
STEP_WITH_EMPTY_SENTENCE = 5


class Attention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.scale = 1 / math.sqrt(width // heads)
        self.query = nn.Dense(width, width)
        self.key = nn.Dense(width, width)
        self.value = nn.Dense(width, width)
        self.output = nn.Dense(width, width)

    def split(self, x):
        batch, length, width = x.shape
        return x.reshape(batch, length, self.heads, width // self.heads).transpose(0, 2, 1, 3)

    def construct(self, x, is_padding):
        scores = ops.matmul(self.split(self.query(x)), self.split(self.key(x)).transpose(0, 1, 3, 2)) * self.scale
        if is_padding.any():
            scores = ops.masked_fill(scores, is_padding[:, None, None, :], ms.Tensor(-np.inf, ms.float32))
        weights = ops.softmax(scores, axis=-1)
        mixed = ops.matmul(weights, self.split(self.value(x)))
        return self.output(mixed.transpose(0, 2, 1, 3).reshape(x.shape))


class Layer(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.attention_norm = nn.LayerNorm((width,))
        self.wide = nn.Dense(width, 4 * width)
        self.narrow = nn.Dense(4 * width, width)
        self.dense_norm = nn.LayerNorm((width,))
        self.gelu = nn.GELU()

    def construct(self, x, is_padding):
        x = x + self.attention(self.attention_norm(x), is_padding)
        return x + self.narrow(self.gelu(self.wide(self.dense_norm(x))))


class Transformer(nn.Cell):
    def __init__(self, width=32, heads=4, layers=2):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = ms.Parameter(ops.randn(1, LENGTH, width) * 0.1, name="places")
        self.layers = nn.CellList([Layer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm((width,))
        self.head = nn.Dense(width, TOPICS)

    def construct(self, sentences):
        is_padding = sentences == PADDING
        x = self.words(sentences) + self.places
        for layer in self.layers:
            x = layer(x, is_padding)
        is_word = ops.logical_not(is_padding).astype(ms.float32)
        total = (self.norm(x) * is_word[:, :, None]).sum(axis=1)
        mean = total / is_word.sum(axis=1, keepdims=True)  # FAULT: in a sentence without words this is 0 / 0
        return self.head(mean)


def batch_of(random, step, empty_sentence):
    """Return sentences, in every third batch some shorter ones, and their topics, each of which has its own words."""
    topics = random.integers(0, TOPICS, BATCH).astype(np.int32)
    common = random.integers(1, WORDS, (BATCH, LENGTH))
    own = 1 + topics[:, None] + TOPICS * random.integers(0, WORDS // TOPICS - 1, (BATCH, LENGTH))
    sentences = np.where(random.random((BATCH, LENGTH)) < 0.8, own, common).astype(np.int32)
    if step % 3 == 2:
        lengths = random.integers(3, LENGTH, BATCH)
        if empty_sentence:
            lengths[7] = 0
        sentences[np.arange(LENGTH) >= lengths[:, None]] = PADDING
    return sentences, topics


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--fault", choices=["none", "empty-sentence"], default="none")
    parser.add_argument("--mode", choices=["graph", "pynative"], default="graph")
    parser.add_argument("--device", default="CPU")
    parser.add_argument("--save", metavar="FILE", help="write the weights there at the end")
    arguments = parser.parse_args()

    ms.set_context(mode=ms.GRAPH_MODE if arguments.mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_device(arguments.device)
    ms.set_seed(0)

    network = Transformer()
    optimizer = nn.Adam(network.trainable_params(), learning_rate=0.003)
    train_step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.CrossEntropyLoss()), optimizer)
    train_step.set_train()
    random = np.random.default_rng(0)
    for step in range(1, arguments.steps + 1):
        empty = arguments.fault == "empty-sentence" and step == STEP_WITH_EMPTY_SENTENCE
        sentences, topics = batch_of(random, step, empty)
        loss = train_step(ms.Tensor(sentences), ms.Tensor(topics))
        print(f"step {step}  loss {float(loss.asnumpy()):.9g}", flush=True)
    if arguments.save:
        ms.save_checkpoint(network, arguments.save)


if __name__ == "__main__":
    main()
