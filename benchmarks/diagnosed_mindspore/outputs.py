"""Outputs, loss functions and targets that do not fit."""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, nn, ops
from start import batches, blobs, curve, run, trained


class Classifier(nn.Cell):
    def __init__(self, *last: nn.Cell, out: int = 4) -> None:
        super().__init__()
        self.body = nn.SequentialCell(nn.Dense(8, 24), nn.ReLU())
        self.head = nn.Dense(24, out)
        self.last = nn.SequentialCell(*last) if last else None

    def construct(self, x: Tensor) -> Tensor:
        x = self.head(self.body(x))
        return x if self.last is None else self.last(x)


def classifier(fault: str) -> None:
    network = Classifier(*([nn.Softmax()] if fault == "softmax-first" else []))
    network.set_train()
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()))


def classifier_graph(fault: str) -> None:
    network = Classifier(*([nn.Softmax(axis=-1)] if fault == "softmax-in-graph" else []))
    network.set_train()
    trained(network, nn.CrossEntropyLoss(), nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()), "jit")


class LogProbabilities(nn.Cell):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.scores = Classifier()
        self.fault = fault

    def construct(self, x: Tensor) -> Tensor:
        scores = self.scores(x)
        if self.fault == "scores-for-nll":
            return scores
        if self.fault == "axis-of-batch":
            return ops.log_softmax(scores, axis=0)
        return ops.log_softmax(scores, axis=1)


def likelihood(fault: str) -> None:
    network = LogProbabilities(fault)
    network.set_train()
    trained(network, nn.NLLLoss(), nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()))


def likelihood_graph(fault: str) -> None:
    network = LogProbabilities(fault)
    network.set_train()
    trained(network, nn.NLLLoss(), nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()), "cell")


def labels_graph(fault: str) -> None:
    """Each point has several labels."""
    points, _ = blobs()
    labels = (points[:, :4] > 0).astype(np.float32)
    network = Classifier(*([nn.Sigmoid()] if fault == "sigmoid-twice" else []))
    network.set_train()
    trained(network, nn.BCEWithLogitsLoss(), nn.Adam(network.trainable_params(), 1e-2), batches(points, labels), "cell")


def labels(fault: str) -> None:
    points, _ = blobs()
    truth = (points[:, :4] > 0).astype(np.float32)
    network = Classifier(nn.Softmax() if fault == "softmax-over-labels" else nn.Sigmoid())
    network.set_train()
    loss_of = nn.BCELoss(reduction="mean")
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), batches(points, truth))


def regression(fault: str) -> None:
    points, values = curve()
    if fault == "column-against-row":
        values = values[:, 0]
    network = Classifier(out=1)
    network.set_train()
    trained(network, nn.MSELoss(), nn.Adam(network.trainable_params(), 1e-2), batches(points, values))


def regression_graph(fault: str) -> None:
    points, values = curve()
    if fault == "pairs-in-graph":
        values = values[:, 0]
    network = Classifier(out=1)
    network.set_train()
    trained(network, nn.MSELoss(), nn.Adam(network.trainable_params(), 1e-2), batches(points, values), "cell")


def bounded_graph(fault: str) -> None:
    """The targets are within -1 … 1, or beyond."""
    points, values = curve()
    values = values * 4 if fault == "beyond-tanh" else np.tanh(values)
    network = Classifier(nn.Tanh(), out=1)
    network.set_train()
    trained(network, nn.MSELoss(), nn.Adam(network.trainable_params(), 1e-2), batches(points, values), "jit")


class Loss(nn.Cell):
    """The loss of a person's own making."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.inner = nn.CrossEntropyLoss()
        self.is_negative = sign < 0

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        loss = self.inner(logits, labels)
        return ops.neg(loss) if self.is_negative else loss


def signed(fault: str) -> None:
    network = Classifier()
    network.set_train()
    loss_of = Loss(-1 if fault == "negated" else 1)
    trained(network, loss_of, nn.SGD(network.trainable_params(), 1e-2), batches(*blobs()))


def one_hot(fault: str) -> None:
    """Healthy: the labels are one-hot, for the loss that wants them so."""
    points, labels = blobs()
    network = Classifier()
    network.set_train()
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=False, reduction="mean")
    shares = np.eye(4, dtype=np.float32)[labels]
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), batches(points, shares))


def reduction(fault: str) -> None:
    """The loss function does not reduce unless it is told to."""
    network = Classifier()
    network.set_train()
    chosen = "none" if fault == "not-reduced" else "mean"
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction=chosen)
    trained(network, loss_of, nn.SGD(network.trainable_params(), 0.1), batches(*blobs()))


def attention_graph(fault: str) -> None:
    """Healthy: a softmax within the network, whose weights are shares."""

    class Gated(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.value, self.head = nn.Dense(8, 8), nn.Dense(8, 8), nn.Dense(8, 4)

        def construct(self, x: Tensor) -> Tensor:
            return self.head(ops.softmax(self.gate(x), axis=-1) * self.value(x))

    network = Gated()
    network.set_train()
    trained(network, nn.CrossEntropyLoss(), nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()), "jit")


if __name__ == "__main__":
    run(
        {
            "classifier": classifier,
            "classifier-graph": classifier_graph,
            "likelihood": likelihood,
            "likelihood-graph": likelihood_graph,
            "labels": labels,
            "labels-graph": labels_graph,
            "regression": regression,
            "regression-graph": regression_graph,
            "bounded-graph": bounded_graph,
            "signed": signed,
            "one-hot": one_hot,
            "reduction": reduction,
            "attention-graph": attention_graph,
        }
    )
