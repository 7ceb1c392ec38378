"""What optimizers hold, their learning rates and decay, and what happens to gradients and updates."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, amp, nn, ops
from start import batches, blobs, curve, report, run, trained


class Stack(nn.Cell):
    """Layers one after the other."""

    def __init__(self, *, in_list: bool = False, width: int = 16) -> None:
        super().__init__()
        layers = [nn.Dense(width, width, activation="relu") for _ in range(2)]
        self.first = nn.Dense(8, width, activation="relu")
        self.layers = tuple(layers) if in_list else nn.CellList(layers)
        if in_list:
            # As a tuple of cells would be taken for a part of the network.
            self.layers = {"hidden": layers}
        self.in_list = in_list
        self.head = nn.Dense(width, 4)

    def construct(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers["hidden"] if self.in_list else self.layers:
            x = layer(x)
        return self.head(x)


def _loss() -> nn.Cell:
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


def stack(fault: str) -> None:
    network = Stack(in_list=fault == "plain-list")
    network.set_train()
    trained(network, _loss(), nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()))


def stack_graph(fault: str) -> None:
    network = Stack()
    network.set_train()
    weights = network.trainable_params()
    if fault == "layer-left-out":
        weights = [weight for weight in weights if not weight.name.startswith("layers.1")]
    trained(network, nn.CrossEntropyLoss(), nn.Adam(weights, 1e-2), batches(*blobs()), "jit")


def replaced(fault: str) -> None:
    """A network whose head is exchanged for one of four classes."""
    network = Stack()
    network.head = nn.Dense(16, 10)
    weights = network.trainable_params()
    network.head = nn.Dense(16, 4)
    network.head.weight.name, network.head.bias.name = "head.weight", "head.bias"
    network.set_train()
    if fault != "head-replaced-later":
        weights = network.trainable_params()
    trained(network, _loss(), nn.Adam(weights, 1e-2), batches(*blobs()))


def other_network(fault: str) -> None:
    """Two networks, of which one is trained."""
    network, spare = Stack(), Stack()
    network.set_train()
    optimizer = nn.Adam((spare if fault == "of-the-spare" else network).trainable_params(), 1e-2)
    trained(network, _loss(), optimizer, batches(*blobs()))


def rate_graph(fault: str) -> None:
    network = Stack()
    network.set_train()
    rate = 0.0 if fault == "rate-zero" else 1e-2
    trained(network, nn.CrossEntropyLoss(), nn.Adam(network.trainable_params(), rate), batches(*blobs()), "cell")


def schedule(fault: str) -> None:
    """The rate falls over the training, or over its first part."""
    network = Stack()
    network.set_train()
    steps = 25 if fault == "ends-early" else 70
    rate = nn.PolynomialDecayLR(2e-2, 0.0, steps, 1.0)
    trained(network, _loss(), nn.Adam(network.trainable_params(), rate), batches(*blobs()))


def warm_up_graph(fault: str) -> None:
    """Healthy: the rate begins at 0 and rises."""
    network = Stack()
    network.set_train()
    optimizer = nn.Adam(network.trainable_params(), nn.WarmUpLR(1e-2, 20))
    trained(network, nn.CrossEntropyLoss(), optimizer, batches(*blobs()), "cell")


def listed_graph(fault: str) -> None:
    """Rates for each step, as a list."""
    network = Stack()
    network.set_train()
    count = 20 if fault == "list-of-zeros" else 80
    rates = [0.1 * (1 - at / count) if at < count else 0.0 for at in range(71)]
    trained(
        network, nn.CrossEntropyLoss(), nn.Momentum(network.trainable_params(), rates, 0.9), batches(*blobs()), "cell"
    )


def decay_graph(fault: str) -> None:
    network = Stack()
    network.set_train()
    decay = 20.0 if fault == "decay-takes-all" else 0.01
    optimizer = nn.AdamWeightDecay(network.trainable_params(), 1e-2, weight_decay=decay)
    trained(network, nn.CrossEntropyLoss(), optimizer, batches(*blobs()), "jit")


def clipped(fault: str) -> None:
    """Gradients are clipped by their norm."""
    network, loss_of = Stack(), _loss()
    network.set_train()
    optimizer = nn.SGD(network.trainable_params(), 0.5)
    limit = 1e-6 if fault == "clipped-away" else 5.0

    def forward(inputs: Tensor, labels: Tensor) -> Tensor:
        return loss_of(network(inputs), labels)

    gradients_of = ms.value_and_grad(forward, None, optimizer.parameters)
    for number, batch in enumerate(batches(*blobs()), 1):
        loss, gradients = gradients_of(*batch)
        optimizer(ops.clip_by_global_norm(gradients, limit))
        report(number, loss)


def clipped_graph(fault: str) -> None:
    network, loss_of = Stack(), nn.CrossEntropyLoss()
    network.set_train()
    optimizer = nn.SGD(network.trainable_params(), 0.5)
    limit = 1e-6 if fault == "clipped-in-graph" else 5.0

    def forward(inputs: Tensor, labels: Tensor) -> Tensor:
        return loss_of(network(inputs), labels)

    gradients_of = ms.value_and_grad(forward, None, optimizer.parameters)

    @ms.jit
    def step(inputs: Tensor, labels: Tensor) -> Tensor:
        loss, gradients = gradients_of(inputs, labels)
        return ops.depend(loss, optimizer(ops.clip_by_global_norm(gradients, limit)))

    for number, batch in enumerate(batches(*blobs()), 1):
        report(number, step(*batch))


def scaled(fault: str) -> None:
    """A loss is scaled, and its gradients are unscaled."""
    network, loss_of = Stack(), _loss()
    network.set_train()
    optimizer = nn.SGD(network.trainable_params(), 1e-3 if fault else 0.5)
    scaler = amp.DynamicLossScaler(scale_value=2**10, scale_factor=2, scale_window=1000)

    def forward(inputs: Tensor, labels: Tensor) -> Tensor:
        return scaler.scale(loss_of(network(inputs), labels))

    gradients_of = ms.value_and_grad(forward, None, optimizer.parameters)
    for number, batch in enumerate(batches(*blobs()), 1):
        loss, gradients = gradients_of(*batch)
        if fault != "not-unscaled":
            gradients = scaler.unscale(gradients)
        optimizer(gradients)
        report(number, loss)


def overflowing(fault: str) -> None:
    """Updates are skipped while gradients are not finite."""
    network, loss_of = Stack(), _loss()
    network.set_train()
    optimizer = nn.SGD(network.trainable_params(), 0.5)
    scaler = amp.DynamicLossScaler(scale_value=2**16, scale_factor=2, scale_window=50)
    factor = float("inf") if fault == "infinite-factor" else 1.0

    def forward(inputs: Tensor, labels: Tensor) -> Tensor:
        return scaler.scale(factor * loss_of(network(inputs), labels))

    gradients_of = ms.value_and_grad(forward, None, optimizer.parameters)
    for number, batch in enumerate(batches(*blobs()), 1):
        loss, gradients = gradients_of(*batch)
        gradients = scaler.unscale(gradients)
        is_finite = amp.all_finite(gradients)
        if is_finite:
            optimizer(gradients)
        scaler.adjust(is_finite)
        report(number, loss)


def half(fault: str) -> None:
    """The weights themselves are float16."""
    points, values = curve()
    network = nn.SequentialCell(nn.Dense(8, 32), nn.Tanh(), nn.Dense(32, 1))
    network.to_float(ms.float16)
    for weight in network.get_parameters():
        weight.set_dtype(ms.float16)
    network.set_train()
    rate = 1e-6 if fault == "below-half-an-ulp" else 0.05
    data = batches(points.astype(np.float16), values.astype(np.float16))
    trained(network, nn.MSELoss(), nn.SGD(network.trainable_params(), rate), data)


def restored(fault: str) -> None:
    """A copy of the weights is kept, to go back to it if a step was bad."""
    network = Stack()
    network.set_train()
    best = {weight.name: weight.asnumpy().copy() for weight in network.get_parameters()}

    def after(number: int) -> None:
        if fault == "restored-each-step":
            for weight in network.get_parameters():
                ops.assign(weight, Tensor(best[weight.name]))
        elif fault == "loaded-meanwhile" and number == 20:
            parameters = {name: Parameter(Tensor(values), name=name) for name, values in best.items()}
            ms.load_param_into_net(network, parameters)
        elif number % 40 == 0:
            best.update({weight.name: weight.asnumpy().copy() for weight in network.get_parameters()})

    trained(network, _loss(), nn.Adam(network.trainable_params(), 1e-2), batches(*blobs()), after=after)


def restored_graph(fault: str) -> None:
    network = Stack()
    network.set_train()
    best = {weight.name: weight.asnumpy().copy() for weight in network.get_parameters()}

    def after(number: int) -> None:
        if fault == "set-back-in-graph":
            for weight in network.get_parameters():
                weight.set_data(Tensor(best[weight.name]))

    optimizer = nn.SGD(network.trainable_params(), 0.5)
    trained(network, nn.CrossEntropyLoss(), optimizer, batches(*blobs()), "cell", after)


def anew(fault: str) -> None:
    """The optimizer is made before the loop, or within."""
    network, loss_of = Stack(), _loss()
    network.set_train()
    optimizer = nn.Adam(network.trainable_params(), 1e-2)

    def forward(inputs: Tensor, labels: Tensor) -> Tensor:
        return loss_of(network(inputs), labels)

    gradients_of = ms.value_and_grad(forward, None, network.trainable_params())
    for number, batch in enumerate(batches(*blobs()), 1):
        if fault == "made-in-the-loop":
            optimizer = nn.Adam(network.trainable_params(), 1e-2)
        loss, gradients = gradients_of(*batch)
        optimizer(gradients)
        report(number, loss)


def turns(fault: str) -> None:
    """Healthy: two networks with an optimizer each, as in a GAN."""
    maker = nn.SequentialCell(nn.Dense(4, 16), nn.ReLU(), nn.Dense(16, 2))
    judge = nn.SequentialCell(nn.Dense(2, 16), nn.ReLU(), nn.Dense(16, 1))
    maker.set_train()
    judge.set_train()
    loss_of = nn.BCEWithLogitsLoss()
    of_maker = nn.Adam(maker.trainable_params(), 1e-3)
    of_judge = nn.Adam(judge.trainable_params(), 1e-3)

    def judged(real: Tensor, noise: Tensor) -> Tensor:
        fake = ops.stop_gradient(maker(noise))
        return loss_of(judge(real), ops.ones((32, 1))) + loss_of(judge(fake), ops.zeros((32, 1)))

    def made(noise: Tensor) -> Tensor:
        return loss_of(judge(maker(noise)), ops.ones((32, 1)))

    gradients_of_judge = ms.value_and_grad(judged, None, of_judge.parameters)
    gradients_of_maker = ms.value_and_grad(made, None, of_maker.parameters)
    points = (np.random.randn(512, 2) * 0.3 + 1).astype(np.float32)  # noqa: NPY002
    for number, (real,) in enumerate(batches(points), 1):
        noise = Tensor(np.random.randn(32, 4).astype(np.float32))  # noqa: NPY002
        loss, gradients = gradients_of_judge(real, noise)
        of_judge(gradients)
        _, gradients = gradients_of_maker(noise)
        of_maker(gradients)
        report(number, loss)


def accumulated(fault: str) -> None:
    """Healthy: gradients of four batches are added up by hand, and divided."""
    network, loss_of = Stack(), _loss()
    network.set_train()
    optimizer = nn.SGD(network.trainable_params(), 0.1)
    sums = [Parameter(ops.zeros_like(weight), f"sum.{weight.name}") for weight in optimizer.parameters]

    def forward(inputs: Tensor, labels: Tensor) -> Tensor:
        return loss_of(network(inputs), labels)

    gradients_of = ms.value_and_grad(forward, None, optimizer.parameters)
    for number, batch in enumerate(batches(*blobs(), steps=160), 1):
        loss, gradients = gradients_of(*batch)
        for total, gradient in zip(sums, gradients, strict=True):
            ops.assign_add(total, gradient)
        if number % 4 == 0:
            optimizer(tuple(total / 4 for total in sums))
            for total in sums:
                ops.assign(total, ops.zeros_like(total))
        report(number, loss)


if __name__ == "__main__":
    run(
        {
            "stack": stack,
            "stack-graph": stack_graph,
            "replaced": replaced,
            "other-network": other_network,
            "rate-graph": rate_graph,
            "schedule": schedule,
            "warm-up-graph": warm_up_graph,
            "listed-graph": listed_graph,
            "decay-graph": decay_graph,
            "clipped": clipped,
            "clipped-graph": clipped_graph,
            "scaled": scaled,
            "overflowing": overflowing,
            "half": half,
            "restored": restored,
            "restored-graph": restored_graph,
            "anew": anew,
            "turns": turns,
            "accumulated": accumulated,
        }
    )
