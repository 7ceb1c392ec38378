"""Mistakes of people, planted into the trainings of `networks`: each with what must be found, and where.

The line where a mistake was made ends with ``# planted: NAME``. A mistake that is no operator (a weight that nobody
trains) is found at the line that reads the weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networks
import torch
from networks import CLASSES, Attention, Bag, Cnn, Mlp, Training, Transformer, Vae, batches_of, descend, points
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

if TYPE_CHECKING:
    from collections.abc import Callable

MARK = "# planted:"

OVERFLOW = frozenset({"unintended_overflow", "tensor_overflow"})
TOO_LARGE = frozenset({"gradient_imbalance", "gradient_growth", "weight_growth"})
UNTRAINED = frozenset({"weight_not_changed", "weight_change_too_small"})
VANISHING = frozenset({"gradient_imbalance", "gradient_vanishing"})
DEAD = frozenset({"dead_units", "activation_range", "tensor_all_zero", "unintended_zeros"})
SATURATED = frozenset({"saturated_units", "activation_range"})
ZERO = frozenset({"tensor_all_zero", "unintended_zeros", "dead_units"})


@dataclass(frozen=True)
class Fault:
    """A training with a planted mistake.

    Attributes
    ----------
    name : str
        As in the comment in the source.
    build : callable
        Builds the training.
    conditions : frozenset of str
        The watchpoint that stops the training first has one of these.
    node : str
        Regular expression for the name of the operator or weight where it began, as ``capture="ops"`` names it.
    module : str
        The same for ``capture="modules"``; empty where modules cannot tell.
    step : int or None
        The step in which it shows for the first time, counted from 1; None where it builds up.
    within : int
        The steps after which it must have been found.
    """

    name: str
    build: Callable[[], Training]
    conditions: frozenset[str]
    node: str
    module: str = ""
    step: int | None = None
    within: int = 60

    @property
    def line(self) -> int:
        """Number of the line of the mistake in this file."""
        return planted_lines()[self.name]


@cache
def planted_lines() -> dict[str, int]:
    """Return the numbers of the lines with a planted mistake, by its name."""
    found: dict[str, int] = {}
    for number, line in enumerate(Path(__file__).read_text().splitlines(), 1):
        _, marked, name = line.partition(f"  {MARK} ")
        if marked:
            found[name] = number
    return found


SICK_BATCH = 5
"""The number, from 0, of the step whose batch brings the mistake out where data does that."""


def sick(number: int) -> bool:
    """Whether a step is the one with the sick batch."""
    return number == SICK_BATCH


# --- values that overflow, or are not numbers ---


class CertainCnn(Cnn):
    """Computes the cross entropy itself, without caring for probabilities of 0."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the probability of each class."""
        probabilities = torch.softmax(5 * super().forward(images), -1)
        return torch.log(probabilities)  # planted: log of zero


class Distances(nn.Module):
    """Learns an embedding in which pictures of the same class are close."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Mlp(16, 32, 8)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        """Return the distance of each pair."""
        left, right = self.encoder(pairs).unbind(1)
        squares = (left - right).square().sum(-1)
        return torch.sqrt(squares)  # planted: gradient of sqrt at zero


def distances() -> Training:
    """Learn distances; in one batch a point is paired with itself."""
    torch.manual_seed(networks.SEED)
    inputs, labels = points(1024)
    pairs, same = inputs.view(-1, 2, 16), labels.view(-1, 2)
    pairs[SICK_BATCH * 32, 1] = pairs[SICK_BATCH * 32, 0]
    batch = batches_of(pairs, same[:, 0] != same[:, 1], 32)
    model = Distances()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of(number: int) -> torch.Tensor:
        two, differ = batch(number)
        return F.mse_loss(model(two), differ.float())

    return descend(model, optimizer, loss_of)


class Directions(nn.Module):
    """Classifies by the direction of the input alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Mlp(16, 32, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        lengths = inputs.norm(dim=-1, keepdim=True)
        unit = inputs / lengths  # planted: zero divided by its norm
        return self.layers(unit)


def directions() -> Training:
    """Classify directions; one batch has an empty input."""
    torch.manual_seed(networks.SEED)
    inputs, labels = points()
    inputs[SICK_BATCH * 32 + 3] = 0
    batch = batches_of(inputs, labels, 32)
    model = Directions()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of(number: int) -> torch.Tensor:
        rows, classes = batch(number)
        return F.cross_entropy(model(rows), classes)

    return descend(model, optimizer, loss_of)


class PaddedAttention(Attention):
    """Masks the word itself too, so that the first word has nowhere to look."""

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        """Return where to look: only at what came before."""
        unseen = torch.ones(scores.shape[-2:], dtype=torch.bool).triu()
        scores = scores.masked_fill(unseen, -math.inf)
        return torch.softmax(scores, dim=-1)  # planted: softmax of a masked row


def padded_transformer() -> nn.Module:
    """A transformer whose second layer has the wrong mask."""
    model = Transformer()
    model.blocks[1].attention = PaddedAttention(32, 4)
    return model


class HalfAttention(Attention):
    """Computes scores in float16, and scales them only afterwards."""

    def scores(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """Return how well queries and keys match."""
        with torch.autocast("cpu", enabled=False):
            products = (40 * query).half() @ (60 * key).half().transpose(-2, -1)  # planted: float16 overflow
            return products.float() / (2400 * math.sqrt(query.shape[-1]))


def half_transformer() -> nn.Module:
    """A transformer whose first layer's queries have grown."""
    model = Transformer()
    model.blocks[0].attention = HalfAttention(32, 4)
    with torch.no_grad():
        model.blocks[0].attention.project.weight *= 6
    return model


class BoldVae(Vae):
    """Takes the output of a layer for the logarithm of a variance, however large it is."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU())

    def deviation(self, log_variance: torch.Tensor) -> torch.Tensor:
        """Return the standard deviation of the latent variables."""
        return torch.exp(0.5 * log_variance)  # planted: overflow of exp


def unscaled() -> Training:
    """Learn a distribution; one batch was not normalised."""
    torch.manual_seed(networks.SEED)
    inputs, labels = points(spread=0.3)
    inputs[SICK_BATCH * 32 + 4] *= 5000
    batch = batches_of(inputs, labels, 32)
    model = BoldVae()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    return descend(model, optimizer, lambda number: model(batch(number)[0]))


class SaturatingGan(nn.Module):
    """The critic says a probability, of which the loss takes the logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return a logit, made from a probability that rounds to 1."""
        probability = torch.sigmoid(20 * self.layers(inputs) + 15)
        return torch.log(probability) - torch.log(1 - probability)  # planted: log of one minus one


class Normalised(nn.Module):
    """Normalises its features by hand, without an epsilon."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = networks.Residual()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        centred = inputs - inputs.mean(0)
        normal = centred / centred.square().mean(0).sqrt()  # planted: division by no variance
        return self.layers(normal)


def normalised() -> Training:
    """Train on data of which one batch has a constant feature."""
    torch.manual_seed(networks.SEED)
    inputs, labels = points()
    inputs[SICK_BATCH * 32 : (SICK_BATCH + 1) * 32, 7] = 1.0
    batch = batches_of(inputs, labels, 32)
    model = Normalised()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def loss_of(number: int) -> torch.Tensor:
        rows, classes = batch(number)
        return F.cross_entropy(model(rows), classes)

    return descend(model, optimizer, loss_of)


class Plain(nn.Module):
    """A classifier that trusts its data."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(16, 32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = self.inlet(inputs)  # planted: NaN in the data
        return self.head(F.relu(hidden))


def holey_data() -> Training:
    """Accumulate gradients over batches, one of which has a hole."""
    torch.manual_seed(networks.SEED)
    inputs, labels = points()
    inputs[SICK_BATCH * 64 + 17, 3] = math.nan
    batch = batches_of(inputs, labels, 16)
    model = Plain()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        for part in range(4):
            rows, classes = batch(4 * number + part)
            loss = F.cross_entropy(model(rows), classes) / 4
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Training((model,), (optimizer,), step)


class Likelihood(nn.Module):
    """Says how likely the labels are."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Mlp(16, 32, CLASSES)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean negative logarithm of the likelihood."""
        probabilities = F.pad(torch.softmax(self.layers(inputs), -1), (0, 1))
        likely = probabilities.gather(1, labels.unsqueeze(1))
        return -torch.log(likely).mean()  # planted: label out of range


def mislabelled() -> Training:
    """Train with labels of which one is of a class that does not exist."""
    torch.manual_seed(networks.SEED)
    inputs, labels = points()
    labels[SICK_BATCH * 32 + 9] = CLASSES
    batch = batches_of(inputs, labels, 32)
    model = Likelihood()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return descend(model, optimizer, lambda number: model(*batch(number)))


class Clip(torch.autograd.Function):
    """Normalises the gradient by its own length; it is 0 where nothing flows."""

    @staticmethod
    def forward(_: Any, values: torch.Tensor) -> torch.Tensor:
        """Pass the values."""
        return values.view_as(values)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient, made equally long in each row."""
        return gradient / gradient.abs().amax(1, keepdim=True)  # planted: gradient of a function of one's own


class Clipped(nn.Module):
    """A classifier with a function of its own between its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(16, 32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        return self.head(Clip.apply(torch.tanh(self.inlet(inputs))))


def clipped() -> Training:
    """Train with weights of samples, of which one batch has a zero."""
    torch.manual_seed(networks.SEED)
    batch = batches_of(*points(), 32)
    model = Clipped()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of(number: int) -> torch.Tensor:
        rows, classes = batch(number)
        importance = torch.ones(32)
        importance[3] = 0.0 if sick(number) else 1.0
        return (F.cross_entropy(model(rows), classes, reduction="none") * importance).mean()

    return descend(model, optimizer, loss_of)


# --- gradients and updates that are too large, or nothing ---


class Recurrence(nn.Module):
    """A recurrent cell written by hand, whose weight is too large."""

    def __init__(self, size: int = 48) -> None:
        super().__init__()
        self.read = nn.Linear(4, size)
        self.again = nn.Linear(size, size, bias=False)
        self.head = nn.Linear(size, 1)
        nn.init.normal_(self.again.weight, std=4 / math.sqrt(size))

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """Return one number for each sequence."""
        hidden = sequence.new_full((len(sequence), self.again.in_features), 0.1)
        for word in sequence.unbind(1):
            hidden = torch.tanh(self.again(hidden) + self.read(word))  # planted: exploding recurrence
        return self.head(hidden)


def recurrence() -> Training:
    """Read long sequences, and clip no gradient."""
    torch.manual_seed(networks.SEED)
    sequences = torch.randn(256, 60, 4) / 10
    batch = batches_of(sequences, sequences[..., 0].mean(1, keepdim=True), 32)
    model = Recurrence()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of(number: int) -> torch.Tensor:
        sequence, target = batch(number)
        return F.mse_loss(model(sequence), target)

    return descend(model, optimizer, loss_of)


class Deep(nn.Module):
    """Sigmoids, one upon another, with nothing to help the gradient through."""

    def __init__(self, layers: int = 14) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(layers))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        for layer in self.layers:
            hidden = torch.sigmoid(layer(hidden))  # planted: vanishing gradient
        return self.head(hidden)


class Fast(Mlp):
    """An ordinary network, which its learning rate does not suit."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what the last layer says."""
        for layer in self.layers[:-1]:
            hidden = F.leaky_relu(layer(hidden))
        return self.layers[-1](hidden)  # planted: learning rate too large


def too_fast() -> Training:
    """Train with a learning rate far too large."""
    torch.manual_seed(networks.SEED)
    inputs, _ = points()
    batch = batches_of(inputs, inputs.sum(1, keepdim=True), 32)
    model = Fast(16, 32, 32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=3.0)

    def step(number: int) -> torch.Tensor:
        rows, targets = batch(number)
        optimizer.zero_grad()
        loss = F.mse_loss(model(rows), targets)
        loss.backward()
        optimizer.step()
        return loss

    return Training((model,), (optimizer,), step)


class Jumping(nn.Module):
    """A classifier one of whose weights is written to behind the optimizer's back."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(16, 32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = torch.tanh(self.inlet(inputs))
        return self.head(hidden)


def jumping() -> Training:
    """Train, and scale the wrong way once."""
    torch.manual_seed(networks.SEED)
    batch = batches_of(*points(), 32)
    model = Jumping()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        rows, classes = batch(number)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(rows), classes)
        loss.backward()
        optimizer.step()
        if sick(number):
            with torch.no_grad():
                model.head.weight.mul_(1e4)  # planted: weight that jumps
        return loss

    return Training((model,), (optimizer,), step)


# --- units and weights that do not take part ---


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
    torch.manual_seed(networks.SEED)
    inputs, _ = points()
    batch = batches_of(inputs, inputs.sum(1, keepdim=True) / 8, 32)
    model = Killed(16, 32, 32, 1)
    bias = model.layers[1].bias
    others = [parameter for parameter in model.parameters() if parameter is not bias]
    optimizer = torch.optim.SGD([{"params": others}, {"params": [bias], "lr": 30.0}], lr=0.01)

    def loss_of(number: int) -> torch.Tensor:
        rows, wanted = batch(number)
        return F.mse_loss(model(rows), wanted)

    return descend(model, optimizer, loss_of)


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
    torch.manual_seed(networks.SEED)
    batch = batches_of(*points(), 32)
    model = Forgotten()
    optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-3)

    def loss_of(number: int) -> torch.Tensor:
        rows, classes = batch(number)
        return F.cross_entropy(model(rows), classes)

    return descend(model, optimizer, loss_of)


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


def classified_by(model_type: Callable[[], nn.Module], optimizer_type: Any = torch.optim.Adam) -> Training:
    """Classify points with a model."""
    torch.manual_seed(networks.SEED)
    batch = batches_of(*points(), 32)
    model = model_type()
    optimizer = optimizer_type(model.parameters(), lr=1e-3)

    def loss_of(number: int) -> torch.Tensor:
        rows, classes = batch(number)
        return F.cross_entropy(model(rows), classes)

    return descend(model, optimizer, loss_of)


FAULTS: tuple[Fault, ...] = (
    Fault("log of zero", partial(networks.cnn, CertainCnn), OVERFLOW, r"^Default/log-op0$"),
    Fault("gradient of sqrt at zero", distances, OVERFLOW, r"^Gradients/Default/(div|sqrt)\w*-op0$", step=6),
    Fault("zero divided by its norm", directions, OVERFLOW, r"^Default/div-op0$", step=6),
    Fault(
        "softmax of a masked row",
        partial(networks.transformer, padded_transformer),
        OVERFLOW,
        r"^Default/blocks/1/attention/_?softmax-op0$",
        module=r"^Default/blocks/1/attention/",
        step=1,
    ),
    Fault(
        "float16 overflow",
        partial(networks.transformer, half_transformer),
        OVERFLOW,
        r"^Default/blocks/0/attention/(bmm|matmul)-op0$",
    ),
    Fault("overflow of exp", unscaled, OVERFLOW, r"^Default/exp-op0$", step=6),
    Fault("log of one minus one", partial(networks.gan, SaturatingGan), OVERFLOW, r"^Default/SaturatingGan/log-op\d$"),
    Fault("division by no variance", normalised, OVERFLOW, r"^Default/div-op0$", step=6),
    Fault("NaN in the data", holey_data, OVERFLOW, r"^Default/inlet/addmm-op1$|^inputs?\b", step=6),
    Fault("label out of range", mislabelled, OVERFLOW, r"^Default/log-op0$", step=6),
    Fault("gradient of a function of one's own", clipped, OVERFLOW, r"^Gradients/Default/div-op\d$", step=6),
    Fault(
        "exploding recurrence",
        recurrence,
        TOO_LARGE,
        r"^Gradients/Default/",
    ),
    Fault("learning rate too large", too_fast, TOO_LARGE, r"^layers\.2\.weight$", step=1),
    Fault("weight that jumps", jumping, TOO_LARGE, r"^head\.weight$", step=7),
    Fault("vanishing gradient", partial(classified_by, Deep), VANISHING | UNTRAINED, r"layers"),
    Fault("ReLUs that begin dead", partial(networks.cnn, DyingCnn), DEAD, r"^Default/relu-op0$"),
    Fault("ReLUs killed by updates", killed, DEAD | TOO_LARGE, r"^Default/relu-op1$|^layers\.1\.bias$"),
    Fault("saturated tanh", partial(classified_by, Saturated), SATURATED, r"^Default/tanh-op0$"),
    Fault(
        "weights that begin at zero",
        partial(classified_by, Zeroed),
        frozenset({"weight_initialization"}),
        r"^middle\.weight$",
        module=r"^middle\.weight$",
        step=0,
    ),
    Fault("weight frozen by mistake", partial(classified_by, HalfTrained), UNTRAINED, r"^middle\.(weight|bias)$"),
    Fault("weight missing from the optimizer", forgotten, UNTRAINED, r"^encoder\.(weight|bias)$"),
    Fault("branch that is cut off", partial(classified_by, Detached), UNTRAINED, r"^encoder\.(weight|bias)$"),
    Fault("dead embedding", partial(networks.embedding, Deaf), ZERO | UNTRAINED, r"^Default/embedding/embedding-op0$"),
    Fault("activations zeroed in place", partial(classified_by, Masked), ZERO, r"^Default/mul_?-op0$"),
)
