"""Networks: where gradients end, modes, running statistics, shared weights, initialization; and what they are given."""

from __future__ import annotations

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Model, Tensor, nn, ops
from mindspore.common.initializer import initializer
from mindspore.train.callback import Callback
from start import BATCH, batches, blobs, curve, report, run, trained, words


class Encoder(nn.Cell):
    """A body, and a head that reads what it makes of the points."""

    def __init__(self, *, is_cut: bool = False, is_dead: bool = False) -> None:
        super().__init__()
        self.body = nn.SequentialCell(nn.Dense(8, 24), nn.ReLU(), nn.Dense(24, 16))
        self.head = nn.Dense(16, 4)
        self.is_cut, self.is_dead = is_cut, is_dead

    def construct(self, x: Tensor) -> Tensor:
        x = self.body(x)
        if self.is_cut:
            x = ops.stop_gradient(x)
        if self.is_dead:
            x = ops.relu(x - 100.0)
        return self.head(ops.tanh(x))


def encoder(fault: str) -> None:
    network = Encoder(is_cut=fault == "gradient-stopped")
    network.set_train()
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()))


def encoder_graph(fault: str) -> None:
    network = Encoder(is_cut=fault == "stopped-in-graph", is_dead=fault == "never-active")
    network.set_train()
    trained(network, nn.CrossEntropyLoss(), nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()), "jit")


def frozen_body(fault: str) -> None:
    """Healthy: the head alone is trained, and the body still wants gradients."""
    network = Encoder()
    network.set_train()
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    trained(network, loss_of, nn.Adam(network.head.trainable_params(), 1e-2), batches(*blobs()))


def frozen_body_graph(fault: str) -> None:
    """The body is frozen for good, or everything is from some step on."""
    network = Encoder()
    network.set_train()
    for weight in network.body.get_parameters():
        weight.requires_grad = False
    loss_of, data = nn.CrossEntropyLoss(), batches(*blobs())
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), data, "cell")


def frozen_later(fault: str) -> None:
    """A function that exports the network freezes it meanwhile."""
    network = Encoder()
    network.set_train()

    def after(number: int) -> None:
        if number == 30 and fault == "frozen-by-export":
            for weight in network.body.get_parameters():
                weight.requires_grad = False

    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()), after=after)


class Normalised(nn.Cell):
    def __init__(self, momentum: float = 0.9) -> None:
        super().__init__()
        self.layers = nn.SequentialCell(
            nn.Dense(8, 24), nn.BatchNorm1d(24, momentum=momentum), nn.ReLU(), nn.Dropout(p=0.1), nn.Dense(24, 4)
        )

    def construct(self, x: Tensor) -> Tensor:
        return self.layers(x)


def normalised(fault: str) -> None:
    network = Normalised(0.1 if fault == "momentum-of-pytorch" else 0.9)
    if fault != "never-set-to-train":
        network.set_train()
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()))


def normalised_graph(fault: str) -> None:
    network = Normalised()
    network.set_train(fault != "evaluating-in-graph")
    trained(network, nn.CrossEntropyLoss(), nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()), "jit")


def evaluated(fault: str) -> None:
    """The network is evaluated now and then."""
    network = Normalised()
    network.set_train()
    points, classes = blobs()

    def after(number: int) -> None:
        if number % 30 == 0:
            network.set_train(False)
            for rows in range(0, len(points), 128):
                network(Tensor(points[rows : rows + 128]))
            if fault != "left-in-evaluation":
                network.set_train()

    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), batches(points, classes), after=after)


def kept_statistics(fault: str) -> None:
    """Healthy: the statistics of a normalization are kept, while all else is trained."""
    network = Normalised()
    network.set_train()
    network.layers[1].set_train(False)
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()))


class Language(nn.Cell):
    """Predicts the next word."""

    def __init__(self, size: int = 16, width: int = 24) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, width)
        self.mix = nn.Dense(width, width)
        self.output = nn.Dense(width, size, has_bias=False)

    def construct(self, ids: Tensor) -> Tensor:
        logits = self.output(ops.tanh(self.mix(self.embedding(ids))))
        return logits.reshape((-1, logits.shape[-1]))


def language(fault: str) -> None:
    network = Language()
    network.set_train()
    ids = words()
    ahead = 2 if fault == "two-ahead" else 1
    read, wanted = ids[:, :-ahead], ids[:, ahead:]
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    data = ((inputs, targets.reshape((-1,))) for inputs, targets in batches(read.copy(), wanted.copy()))
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), data)


def tied(fault: str) -> None:
    """The output layer shares its weight with the embedding."""
    network = Language()
    if fault == "tied-by-copy":
        network.output.weight.set_data(Tensor(network.embedding.embedding_table.asnumpy()))
    else:
        network.output.weight = network.embedding.embedding_table
    network.set_train()
    ids = words()
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    data = ((inputs, targets.reshape((-1,))) for inputs, targets in batches(ids[:, :-1].copy(), ids[:, 1:].copy()))
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), data)


def constant_graph(fault: str) -> None:
    network = nn.SequentialCell(nn.Dense(8, 24, bias_init="zeros"), nn.Tanh(), nn.Dense(24, 4, bias_init="zeros"))
    for layer in (network[0], network[2]):
        if fault == "all-units-equal":
            layer.weight.set_data(initializer(0.05, layer.weight.shape))
    network.set_train()
    trained(network, nn.CrossEntropyLoss(), nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()), "jit")


def zeros_at_first(fault: str) -> None:
    """Healthy: the last layer begins with zeros."""
    network = nn.SequentialCell(nn.Dense(8, 24), nn.Tanh(), nn.Dense(24, 4, weight_init="zeros"))
    network.set_train()
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()))


def data_set(fault: str) -> None:
    """Batches of a data set of MindSpore."""
    points, classes = blobs()
    data = ds.NumpySlicesDataset({"points": points, "classes": classes}, shuffle=False).batch(BATCH)
    network = Encoder()
    network.set_train()
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    steps = 40

    def first() -> tuple[Tensor, Tensor]:
        return next(data.create_tuple_iterator())

    def epochs() -> object:
        while True:
            yield from data.create_tuple_iterator()

    endless = epochs()
    batches_of = (first() if fault == "same-batch" else next(endless) for _ in range(steps))
    trained(network, loss_of, nn.Adam(network.trainable_params(), 1e-2), batches_of)


class Printed(Callback):
    def on_train_step_end(self, run_context: object) -> None:
        parameters = run_context.original_args()
        report(parameters.cur_step_num, parameters.net_outputs)


def model_graph(fault: str) -> None:
    """`Model.train`, with data that are sorted or not."""
    points, classes = blobs()
    if fault == "sorted-by-class":
        order = np.argsort(classes, kind="stable")
        points, classes = points[order], classes[order]
    data = ds.NumpySlicesDataset({"points": points, "classes": classes}, shuffle=fault == "").batch(BATCH)
    network = Encoder()
    model = Model(
        network,
        nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"),
        nn.Adam(network.trainable_params(), 1e-2),
    )
    model.train(5, data, callbacks=[Printed()], dataset_sink_mode=False)


def unscaled(fault: str) -> None:
    """Targets of a regression in their own unit."""
    points, values = curve()
    values = values * 1e4 + 3e5 if fault == "targets-in-grams" else values
    network = nn.SequentialCell(nn.Dense(8, 24), nn.Tanh(), nn.Dense(24, 1))
    network.set_train()
    data = batches(points, values.astype(np.float32))
    trained(network, nn.MSELoss(), nn.Adam(network.trainable_params(), 1e-3), data)


def deep_graph(fault: str) -> None:
    """Ten layers whose initialization fits their width, or does not."""
    network = nn.SequentialCell(*[nn.SequentialCell(nn.Dense(32, 32), nn.ReLU()) for _ in range(8)], nn.Dense(32, 4))
    for cell in network.cells():
        layer = cell[0] if isinstance(cell, nn.SequentialCell) else cell
        scale = 1.0 if fault == "too-large-for-depth" else float(np.sqrt(2 / 32))
        values = scale * np.random.randn(*layer.weight.shape)  # noqa: NPY002
        layer.weight.set_data(Tensor(values.astype(np.float32)))
    network.set_train()
    points, classes = blobs(features=32)
    optimizer = nn.Adam(network.trainable_params(), 1e-3)
    trained(network, nn.CrossEntropyLoss(), optimizer, batches(points, classes), "cell")


if __name__ == "__main__":
    ms.dataset.config.set_num_parallel_workers(1)
    run(
        {
            "encoder": encoder,
            "encoder-graph": encoder_graph,
            "frozen-body": frozen_body,
            "frozen-body-graph": frozen_body_graph,
            "frozen-later": frozen_later,
            "normalised": normalised,
            "normalised-graph": normalised_graph,
            "evaluated": evaluated,
            "kept-statistics": kept_statistics,
            "language": language,
            "tied": tied,
            "constant-graph": constant_graph,
            "zeros-at-first": zeros_at_first,
            "data-set": data_set,
            "model-graph": model_graph,
            "unscaled": unscaled,
            "deep-graph": deep_graph,
        }
    )
