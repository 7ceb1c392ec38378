"""Planted mistakes by which units and weights do not take part."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.agents.pytorch import trainings
from tests.agents.pytorch.networks import CLASSES, Bag, Cnn, Mlp
from tests.agents.pytorch.planting import TOO_LARGE, UNTRAINED, Fault, classified_by
from tests.agents.pytorch.trainings import Training, batches_of, points, supervised

DEAD = frozenset({"dead_units", "activation_range", "tensor_all_zero", "unintended_zeros"})
SATURATED = frozenset({"saturated_units", "activation_range"})
ZERO = frozenset({"tensor_all_zero", "unintended_zeros", "dead_units"})


class DyingCnn(Cnn):
    """Begins with biases so negative that hardly a ReLU is ever on."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.constant_(self.norm1.bias, -8.0)

    def first(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features that the first layer sees."""
        return F.relu(self.norm1(self.conv1(images)))  # planted: ReLUs that begin dead


class Killed(Mlp):
    """An ordinary network with ReLUs."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what the last layer says."""
        hidden = F.relu(self.layers[0](hidden))
        hidden = F.relu(self.layers[1](hidden))  # planted: ReLUs killed by updates
        return self.layers[-1](hidden)


def killed() -> Training:
    """Train with a learning rate for biases that was written for something else."""
    torch.manual_seed(trainings.SEED)
    inputs, _ = points()
    batch = batches_of(inputs, inputs.sum(1, keepdim=True) / 8, 32)
    model = Killed(16, 32, 32, 1)
    bias = model.layers[1].bias
    others = [parameter for parameter in model.parameters() if parameter is not bias]
    optimizer = torch.optim.SGD([{"params": others}, {"params": [bias], "lr": 30.0}], lr=0.01)
    return supervised(model, optimizer, batch, F.mse_loss)


class Saturated(nn.Module):
    """Weights a hundred times too large before a tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(16, 32)
        self.head = nn.Linear(32, CLASSES)
        with torch.no_grad():
            self.inlet.weight *= 200

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        return self.head(torch.tanh(self.inlet(inputs)))  # planted: saturated tanh


class Zeroed(nn.Module):
    """Begins with a layer of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(16, 32)
        self.middle = nn.Linear(32, 32)
        self.head = nn.Linear(32, CLASSES)
        nn.init.zeros_(self.middle.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = F.silu(self.inlet(inputs))
        hidden = F.silu(self.middle(hidden))  # planted: weights that begin at zero
        return self.head(hidden)


class HalfTrained(nn.Module):
    """One layer was left frozen from another experiment; the optimizer has it all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(16, 32)
        self.middle = nn.Linear(32, 32)
        self.head = nn.Linear(32, CLASSES)
        self.middle.requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = torch.tanh(self.inlet(inputs))
        hidden = torch.tanh(self.middle(hidden))  # planted: weight frozen by mistake
        return self.head(hidden)


class Forgotten(nn.Module):
    """A network with a part that the optimizer was not told of."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(16, 32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = torch.tanh(self.encoder(inputs))  # planted: weight missing from the optimizer
        return self.head(hidden)


def forgotten() -> Training:
    """Train only the head, though all would be trained."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = Forgotten()
    optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-3)
    return supervised(model, optimizer, batch)


class Detached(nn.Module):
    """Cuts the graph in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(16, 32)
        self.head = Mlp(32, 16, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = self.encoder(inputs).detach()  # planted: branch that is cut off
        return self.head(torch.tanh(hidden))


class Deaf(Bag):
    """Reads indices that are all the padding's."""

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        vectors = self.embedding(text // 200)  # planted: dead embedding
        return self.head(vectors.mean(1))


class Mute(torch.autograd.Function):
    """Somebody's own operator whose backward was never finished."""

    @staticmethod
    def forward(_: Any, hidden: torch.Tensor) -> torch.Tensor:
        """Return what went in."""
        return hidden * 1

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Return a gradient."""
        return gradient * 0


class Muted(Forgotten):
    """Has such an operator in the middle."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = self.encoder(inputs)  # planted: backward that returns zeros
        return self.head(Mute.apply(torch.tanh(hidden)))


class Masked(nn.Module):
    """Multiplies its activations in place with a mask of the wrong sign."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(16, 32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = self.inlet(inputs)
        empty = (inputs.abs().sum(1, keepdim=True) == 0).float()
        hidden.mul_(empty)  # planted: activations zeroed in place
        return self.head(torch.sigmoid(hidden))


FAULTS: tuple[Fault, ...] = (
    Fault("ReLUs that begin dead", partial(trainings.cnn, DyingCnn), DEAD, r"^Default/relu-op0$"),
    Fault("ReLUs killed by updates", killed, DEAD | TOO_LARGE, r"^Default/relu-op1$|^layers\.1\.bias$"),
    Fault("saturated tanh", partial(classified_by, Saturated), SATURATED, r"^Default/tanh-op0$"),
    Fault(
        "weights that begin at zero",
        partial(classified_by, Zeroed),
        frozenset({"weight_initialization"}),
        r"^middle\.weight$",
        module=r"^middle\.weight$",
        step=1,
    ),
    Fault("weight frozen by mistake", partial(classified_by, HalfTrained), UNTRAINED, r"^middle\.(weight|bias)$"),
    Fault("weight missing from the optimizer", forgotten, UNTRAINED, r"^encoder\.(weight|bias)$"),
    Fault("branch that is cut off", partial(classified_by, Detached), UNTRAINED, r"^encoder\.(weight|bias)$"),
    Fault("dead embedding", partial(trainings.embedding, Deaf), ZERO | UNTRAINED, r"^Default/embedding/embedding-op0$"),
    Fault(
        "backward that returns zeros",
        partial(classified_by, Muted),
        frozenset({"gradient_imbalance"}),
        r"^Gradients/Default/encoder/weight/AccumulateGrad-op0$",
    ),
    Fault("activations zeroed in place", partial(classified_by, Masked), ZERO, r"^Default/mul_?-op0$"),
)
