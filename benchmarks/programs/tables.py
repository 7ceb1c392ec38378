"""Rows and graphs: python tables.py missing-data|recommender|graph|tied|frozen|unfreezing|contrastive."""

from __future__ import annotations

import argparse
import itertools

import torch
from learning import CLASSES, pictures, points, report
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it


class Tabular(nn.Module):
    """Fills what is missing with a learnt value, and says where it was."""

    def __init__(self, features: int = 16, width: int = 64) -> None:
        super().__init__()
        self.fill = nn.Parameter(0.1 * torch.randn(features))
        self.body = nn.Sequential(
            nn.Linear(2 * features, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, CLASSES),
        )  # fmt: skip

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        missing = rows.isnan()
        return self.body(torch.cat([torch.where(missing, self.fill, rows), missing.float()], 1))


class Recommender(nn.Module):
    """Factors of users and things, most of which a batch does not meet."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.users = nn.Embedding(500, width, sparse=True)
        self.things = nn.EmbeddingBag(300, width, mode="mean", sparse=True)
        self.top = nn.Sequential(nn.Linear(2 * width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, users: torch.Tensor, things: torch.Tensor) -> torch.Tensor:
        left, right = self.users(users), self.things(things)
        return self.top(torch.cat([left * right, left + right], 1))[:, 0]


class Graph(nn.Module):
    """Sums up messages of neighbours."""

    def __init__(self, features: int = 16, width: int = 48) -> None:
        super().__init__()
        sizes = [features, width, width]
        self.own = nn.ModuleList(nn.Linear(*pair) for pair in itertools.pairwise(sizes))
        self.theirs = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in itertools.pairwise(sizes))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        degree = torch.zeros(len(nodes)).index_add(0, target, torch.ones(len(target))).clamp_min(1)
        for own, theirs in zip(self.own, self.theirs, strict=True):
            messages = torch.zeros(len(nodes), own.out_features).index_add(0, target, theirs(nodes)[source])
            nodes = F.elu(own(nodes) + messages / degree[:, None])
        return self.head(nodes)


class Tied(nn.Module):
    """An autoencoder whose decoder is its encoder turned round."""

    def __init__(self, features: int = 16, width: int = 12) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, features) / features**0.5)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return F.linear(torch.tanh(F.linear(rows, self.weight, self.bias)), self.weight.T)


def train(
    model: nn.Module, optimizers: list[torch.optim.Optimizer], loss_of, steps: int, *, falls_to: float = 0.9
) -> None:
    losses = []
    for step in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    report(losses, model, *optimizers, falls_to=falls_to)


def missing_data(fault: str) -> None:
    rows, labels = points(512, 16)
    if fault != "nan-in-data":
        rows[torch.rand(rows.shape) < 0.15] = torch.nan
        model = Tabular()
    else:
        rows[300, 3] = torch.nan
        model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    batches = list(zip(rows.split(64), labels.split(64), strict=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss_of(step: int) -> torch.Tensor:
        inputs, classes = batches[step % 8]
        loss = F.cross_entropy(model(inputs), classes)
        if fault == "nan-loss" and step > 5:
            entropy = -(model(inputs).softmax(1) - 0.3).log().mean()
            loss = loss + 0.01 * entropy
        return loss

    train(model, [optimizer], loss_of, 60)


def recommender(fault: str) -> None:
    users, things = torch.randint(0, 500, (1024,)), torch.randint(0, 300, (1024, 5))
    likes = ((users[:, None] + things) % 3 == 0).float().mean(1) * 2 - 0.5
    model = Recommender()
    sparse = [*model.users.parameters(), *model.things.parameters()]
    optimizers = [torch.optim.SparseAdam(sparse, lr=0.01), torch.optim.Adam(model.top.parameters(), lr=3e-3)]

    def loss_of(step: int) -> torch.Tensor:
        rows = torch.arange(256) + step * 256 % 1024
        return F.mse_loss(model(users[rows], things[rows]), likes[rows])

    train(model, optimizers, loss_of, 60)


def graph(fault: str) -> None:
    nodes, labels = points(200, 16, 1.0)
    edges = torch.randint(0, 200, (2, 3000))
    edges = edges[:, labels[edges[0]] == labels[edges[1]]]
    known = torch.rand(200) < 0.5
    model = Graph()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    train(model, [optimizer], lambda step: F.cross_entropy(model(nodes, edges)[known], labels[known]), 50)


def tied(fault: str) -> None:
    rows, _ = points(512, 16)
    rows = rows / rows.std()
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    train(model, [optimizer], lambda step: F.mse_loss(model(rows), rows), 60)


def frozen(fault: str) -> None:
    """A head on a network that is not trained."""
    from torchvision.models import resnet18

    images, labels = pictures(64, 32)
    model = resnet18(num_classes=CLASSES)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith("fc.")
    model.eval()
    optimizer = torch.optim.Adam(model.fc.parameters(), lr=1e-2)
    train(model, [optimizer], lambda step: F.cross_entropy(model(images[:32]), labels[:32]), 15)


def unfreezing(fault: str) -> None:
    """The head first, then the rest, layer by layer."""
    rows, labels = points(256, 16)
    model = nn.Sequential(
        nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, CLASSES)
    )
    model.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss_of(step: int) -> torch.Tensor:
        if step % 15 == 0 and step < 60:
            model[6 - 2 * (step // 15)].requires_grad_(True)
        return F.cross_entropy(model(rows), labels)

    train(model, [optimizer], loss_of, 75)


def contrastive(fault: str) -> None:
    """Pull together what belongs together; a temperature is learnt."""
    rows, labels = points(512, 16)
    model = nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(), nn.Linear(64, 32))
    temperature = nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.Adam([*model.parameters(), temperature], lr=3e-3)

    def loss_of(step: int) -> torch.Tensor:
        chosen = torch.arange(64) + step * 64 % 512
        vectors = F.normalize(model(rows[chosen] + 0.1 * torch.randn(64, 16)), dim=1)
        scores = (vectors @ vectors.T * temperature.exp()).fill_diagonal_(float("-inf"))
        same = (labels[chosen, None] == labels[chosen]).fill_diagonal_(False)
        return -scores.log_softmax(1)[same].mean()

    # With so many that belong together it cannot become less than the logarithm of their number.
    train(model, [optimizer], loss_of, 80, falls_to=0.95)


PROGRAMS = {
    "missing-data": missing_data,
    "recommender": recommender,
    "graph": graph,
    "tied": tied,
    "frozen": frozen,
    "unfreezing": unfreezing,
    "contrastive": contrastive,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=sorted(PROGRAMS))
    parser.add_argument("--fault", default="")
    options = parser.parse_args()
    torch.manual_seed(12)
    PROGRAMS[options.program](options.fault)
