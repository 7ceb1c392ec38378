"""Faults that other projects show, test themselves with, or reproduce, written anew from what they say of them."""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points


def only_norms(fault):
    """A classifier for other pictures on stages that were trained before."""
    images, labels = pictures(320, 16)
    net = nn.Sequential()
    for name, layer in (
        ("conv1", nn.Conv2d(3, 16, 3, 2, 1)),
        ("bn1", nn.BatchNorm2d(16)),
        ("act1", nn.SiLU()),
        ("conv2", nn.Conv2d(16, 16, 3, 2, 1)),
        ("bn2", nn.BatchNorm2d(16)),
        ("act2", nn.SiLU()),
        ("pool", nn.AdaptiveAvgPool2d(2)),
        ("flat", nn.Flatten()),
        ("fc", nn.Linear(64, CLASSES)),
    ):
        net.add_module(name, layer)
    if fault == "head-frozen-too":
        for name, p in net.named_parameters():
            if "bn" not in name:
                p.requires_grad = False
    else:
        for name, p in net.named_parameters():
            p.requires_grad = name.startswith("fc") or "bn" in name
    optimizer = torch.optim.Adam(net.fc.parameters(), lr=5e-3)
    for epoch in range(6):
        total = 0.0
        for i in torch.randperm(320).split(32):
            loss = F.cross_entropy(net(images[i]), labels[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 10
        print(f"epoch {epoch} loss {total:.4f}")


def blown_up(fault):
    """Regression with plain gradient descent."""
    x = torch.randn(256, 8)
    y = (x @ torch.randn(8, 1)).tanh()
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e4 if fault == "rate-of-ten-thousand" else 0.05)
    for step in range(100):
        i = torch.randint(0, 256, (32,))
        loss = F.mse_loss(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4g}")


def hardly_moves(fault):
    """A classifier whose rate is given in another unit."""
    x, y = points(512, 16, 1.0)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-7 if fault == "tiny-rate" else 0.1, momentum=0.9)
    for step in range(150):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"step {step + 1} loss {loss.item():.4f}")


def corrupted(fault):
    """One batch of a sensor that had lost its calibration."""
    x = torch.randn(512, 12)
    y = torch.sin(x[:, :1]) + 0.3 * x[:, 1:2]
    net = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for step in range(160):
        i = torch.randint(0, 512, (32,))
        targets = y[i]
        if fault == "one-wild-batch" and step == 90:
            targets = 1e4 * targets
        loss = F.mse_loss(net(x[i]), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4g}")


def memorised(fault):
    """Few samples, with an evaluation on others after each epoch."""
    x, y = points(400, 24, 2.0)
    count = 12 if fault == "a-dozen-samples" else 320
    net = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3 if fault else 1e-3)
    for epoch in range(80 if fault else 6):
        net.train()
        for i in torch.randperm(count).split(32):
            loss = F.cross_entropy(net(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            other = F.cross_entropy(net(x[320:]), y[320:]).item()
        print(f"epoch {epoch} loss {loss.item():.4f} other {other:.4f}")


def sigmoids(fault):
    """Twelve layers."""
    x, y = points(512, 16, 1.0)
    activation = nn.Sigmoid if fault == "sigmoid-in-each" else nn.ReLU
    layers = [nn.Linear(16, 48), activation()]
    for _ in range(11):
        layers += [nn.Linear(48, 48), activation()]
    net = nn.Sequential(*layers, nn.Linear(48, CLASSES))
    if fault != "sigmoid-in-each":
        for layer in net:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(160):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1} loss {loss.item():.4f}")


def distances(fault):
    """An embedding whose distances are to be those of the points."""
    x, _ = points(256, 16, 1.0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(100):
        rows = x[torch.randint(0, 256, (24,))]
        z = net(rows)
        squares = (z[:, None] - z[None, :]).pow(2).sum(-1)
        apart = squares.sqrt() if fault == "root-of-zero" else (squares + 1e-8).sqrt()
        loss = (apart - 0.3 * torch.cdist(rows, rows)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1} stress {loss.item():.4f}")


def confident(fault):
    """A head that is initialised by hand."""
    x, y = points(512, 32, 1.5)
    net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, CLASSES))
    nn.init.normal_(net[2].weight, std=3.0 if fault == "large-head" else 0.02)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    for step in range(150):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"step {step + 1} loss {loss.item():.4f}")


def yes_or_no(fault):
    """A question with two answers, of which the score of one is put out."""
    x = torch.rand(1000, 22)
    y = (x[:, :11].sum(1, keepdim=True) > x[:, 11:].sum(1, keepdim=True)).float()
    first, second = nn.Linear(22, 10), nn.Linear(10, 1)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.5)
    for step in range(150):
        i = torch.randint(0, 1000, (100,))
        scores = second(F.relu(first(x[i])))
        likely = F.log_softmax(scores, dim=1) if fault == "softmax-of-one" else torch.sigmoid(scores)
        loss = F.binary_cross_entropy(likely, y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1} loss {loss.item():.4f}")


class Authors(nn.Module):
    """Reads texts, and tells three authors apart."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.embd = nn.Embedding(201, 48)
        self.lstm = nn.LSTM(48, 32, batch_first=True)
        self.lin1, self.lin2 = nn.Linear(32, 64), nn.Linear(64, 3)

    def forward(self, texts):
        _, (last, _) = self.lstm(self.embd(texts))
        out = self.lin2(F.relu(self.lin1(last)))
        return out.softmax(0) if self.fault == "softmax-over-the-layers" else out


def authors(fault):
    """Each author has words of his own."""
    y = torch.randint(0, 3, (600,))
    x = torch.where(torch.rand(600, 20) < 0.3, 1 + 60 * y[:, None] + torch.randint(0, 60, (600, 20)), 181)
    net = Authors(fault)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for step in range(120):
        i = torch.randint(0, 600, (32,))
        loss = F.cross_entropy(net(x[i]).view(-1, 3), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"step {step + 1} loss {loss.item():.4f}")


def compressed(fault):
    """An autoencoder of pictures."""
    images, _ = pictures(512, 16)
    images = images.mean(1).flatten(1)
    images = (images - images.min()) / (images.max() - images.min())
    activation = nn.Sigmoid if fault == "sigmoids-between" else nn.ReLU
    sizes = (256, 128, 64, 32, 64, 128)
    layers = [(nn.Linear(size, after), activation()) for size, after in zip(sizes, sizes[1:], strict=False)]
    net = nn.Sequential(*(each for pair in layers for each in pair), nn.Linear(128, 256), nn.Sigmoid())
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4, weight_decay=1e-5)
    for step in range(200):
        rows = images[torch.randint(0, 512, (64,))]
        loss = F.binary_cross_entropy(net(rows), rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "only-norms": only_norms,
            "blown-up": blown_up,
            "hardly-moves": hardly_moves,
            "corrupted": corrupted,
            "memorised": memorised,
            "sigmoids": sigmoids,
            "distances": distances,
            "confident": confident,
            "yes-or-no": yes_or_no,
            "authors": authors,
            "compressed": compressed,
        }
    )
