"""Planted mistakes whose values overflow, or are not numbers."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.agents.pytorch import trainings
from tests.agents.pytorch.networks import CLASSES, Attention, Cnn, Mlp, Residual, Transformer, Vae
from tests.agents.pytorch.planting import SICK_BATCH, Fault, classified_by, sick
from tests.agents.pytorch.trainings import Training, batches_of, descend, points, supervised

if TYPE_CHECKING:
    pass

OVERFLOW = frozenset({"unintended_overflow", "tensor_overflow"})


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
    torch.manual_seed(trainings.SEED)
    inputs, labels = points(1024)
    pairs, same = inputs.view(-1, 2, 16), labels.view(-1, 2)
    pairs[SICK_BATCH * 32, 1] = pairs[SICK_BATCH * 32, 0]
    batch = batches_of(pairs, (same[:, 0] != same[:, 1]).float(), 32)
    model = Distances()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return supervised(model, optimizer, batch, F.mse_loss)


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
    torch.manual_seed(trainings.SEED)
    inputs, labels = points()
    inputs[SICK_BATCH * 32 + 3] = 0
    batch = batches_of(inputs, labels, 32)
    model = Directions()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return supervised(model, optimizer, batch)


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
    torch.manual_seed(trainings.SEED)
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
        self.layers = Residual()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        centred = inputs - inputs.mean(0)
        normal = centred / centred.square().mean(0).sqrt()  # planted: division by no variance
        return self.layers(normal)


def normalised() -> Training:
    """Train on data of which one batch has a constant feature."""
    torch.manual_seed(trainings.SEED)
    inputs, labels = points()
    inputs[SICK_BATCH * 32 : (SICK_BATCH + 1) * 32, 7] = 1.0
    batch = batches_of(inputs, labels, 32)
    model = Normalised()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    return supervised(model, optimizer, batch)


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
    torch.manual_seed(trainings.SEED)
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
    torch.manual_seed(trainings.SEED)
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
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = Clipped()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of(number: int) -> torch.Tensor:
        rows, classes = batch(number)
        importance = torch.ones(32)
        importance[3] = 0.0 if sick(number) else 1.0
        return (F.cross_entropy(model(rows), classes, reduction="none") * importance).mean()

    return descend(model, optimizer, loss_of)


class LateChoice(nn.Module):
    """Leaves out the logarithm of zero where it is too late: its gradient is not left out."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(16, 32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = F.relu(self.inlet(inputs))
        logarithms = torch.log(hidden)  # planted: gradient of what was left out
        return self.head(torch.where(hidden > 0, logarithms, 0.0))


class WrongChoice(nn.Module):
    """Chooses between numbers and their logarithms, the wrong way round."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Mlp(16, 32, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        sizes = inputs.abs()
        logarithms = torch.log(sizes)  # planted: logarithm that was chosen
        return self.layers(torch.where(sizes < 1e-9, logarithms, sizes))


def chosen_wrongly() -> Training:
    """One batch has a zero, of which the logarithm is taken after all."""
    torch.manual_seed(trainings.SEED)
    inputs, labels = points()
    inputs[SICK_BATCH * 32 + 7, 3] = 0.0
    batch = batches_of(inputs, labels, 32)
    model = WrongChoice()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return supervised(model, optimizer, batch)


class Filled(Mlp):
    """Puts zero where data is missing."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        return super().forward(torch.where(torch.isnan(inputs), 0.0, inputs))


LATE = 12
"""Steps with missing data, and nothing wrong: more than are looked at for an origin from the first one on."""


def missing_and_wrong() -> Training:
    """A tenth of the data is missing in every batch, which is no mistake; that comes late, with an entropy."""
    torch.manual_seed(trainings.SEED)
    inputs, labels = points()
    inputs[torch.rand_like(inputs) < 0.1] = math.nan
    batch = batches_of(inputs, labels, 32)
    model = Filled(16, 32, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of(number: int) -> torch.Tensor:
        rows, classes = batch(number)
        loss = F.cross_entropy(model(rows), classes)
        if number >= LATE:
            shifted = torch.softmax(model(rows), 1) - 0.3
            loss = loss - 0.01 * shifted.log().mean()  # planted: logarithm of what is negative
        return loss

    return descend(model, optimizer, loss_of)


def one_gap() -> Training:
    """All data is one tensor, from which each step takes its rows; one row has a gap."""
    torch.manual_seed(trainings.SEED)
    inputs, labels = points()
    inputs[SICK_BATCH * 32 + 7, 3] = math.nan
    model = Mlp(16, 32, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of(number: int) -> torch.Tensor:
        rows = torch.arange(32) + number * 32
        return F.cross_entropy(model(inputs[rows]), labels[rows])  # planted: gap in one row

    return descend(model, optimizer, loss_of)


class WeighedBest(nn.Module):
    """Adds its best score to what it says, once that is known; nothing times infinity is not nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Mlp(16, 32, CLASSES)
        self.register_buffer("best", torch.full((CLASSES,), math.inf))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        logits = self.layers(inputs)
        return logits + 0.0 * self.best  # planted: nothing times infinity


FAULTS: tuple[Fault, ...] = (
    Fault(
        "gradient of what was left out",
        partial(classified_by, LateChoice),
        OVERFLOW,
        r"^Default/log-op0$|^Gradients/Default/div-op\d$",
        step=1,
    ),
    Fault("logarithm that was chosen", chosen_wrongly, OVERFLOW, r"^Default/log-op0$", step=6),
    Fault("logarithm of what is negative", missing_and_wrong, OVERFLOW, r"^Default/log-op0$", step=LATE + 1),
    Fault("gap in one row", one_gap, OVERFLOW, r"^Default/index-op0$|^inputs?\d*$", step=6),
    Fault("nothing times infinity", partial(classified_by, WeighedBest), OVERFLOW, r"^Default/mul-op0$|^best$", step=1),
    Fault("log of zero", partial(trainings.cnn, CertainCnn), OVERFLOW, r"^Default/log-op0$"),
    Fault("gradient of sqrt at zero", distances, OVERFLOW, r"^Gradients/Default/(div|sqrt)\w*-op0$", step=6),
    Fault("zero divided by its norm", directions, OVERFLOW, r"^Default/div-op0$", step=6),
    Fault(
        "softmax of a masked row",
        partial(trainings.transformer, padded_transformer),
        OVERFLOW,
        r"^Default/blocks/1/attention/_?softmax-op0$",
        module=r"^Default/blocks/1/attention/",
        step=1,
    ),
    Fault(
        "float16 overflow",
        partial(trainings.transformer, half_transformer),
        OVERFLOW,
        r"^Default/blocks/0/attention/(bmm|matmul)-op0$",
    ),
    Fault("overflow of exp", unscaled, OVERFLOW, r"^Default/exp-op0$", step=6),
    Fault("log of one minus one", partial(trainings.gan, SaturatingGan), OVERFLOW, r"^Default/SaturatingGan/log-op\d$"),
    Fault("division by no variance", normalised, OVERFLOW, r"^Default/div-op0$", step=6),
    Fault("NaN in the data", holey_data, OVERFLOW, r"^Default/inlet/addmm-op1$|^inputs?\d*$", step=6),
    Fault("label out of range", mislabelled, OVERFLOW, r"^Default/log-op0$", step=6),
    Fault("gradient of a function of one's own", clipped, OVERFLOW, r"^Gradients/Default/div-op\d$", step=6),
)
