from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points, sentences
from torch.utils.data import DataLoader, Dataset, TensorDataset


def first_batch(fault):
    """A fixed number of iterations, without epochs."""
    x, y = points(640, 16, 1.6)
    train, val = TensorDataset(x[:512], y[:512]), TensorDataset(x[512:], y[512:])
    loader = DataLoader(train, batch_size=32, shuffle=False)
    net = nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, CLASSES))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    iterator = iter(loader)
    for it in range(160):
        if fault == "always-the-first":
            inputs, targets = next(iter(loader))
        else:
            try:
                inputs, targets = next(iterator)
            except StopIteration:
                iterator = iter(loader)
                inputs, targets = next(iterator)
        loss = F.cross_entropy(net(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 32 == 31:
            with torch.no_grad():
                val_loss = F.cross_entropy(net(val.tensors[0]), val.tensors[1])
            print(f"iteration {it + 1} loss {loss.item():.4f} val {val_loss.item():.4f}")


class Photographs(Dataset):
    """Bytes on the disk, numbers between 0 and 1 for the network."""

    def __init__(self, count, fault):
        images, self.labels = pictures(count, 16)
        self.bytes = (images * 40 + 100).clamp(0, 255).to(torch.uint8)
        self.fault = fault

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        if self.fault == "integer-division":
            image = self.bytes[index] // 255
        else:
            image = self.bytes[index] / 255
        return image.float(), self.labels[index]


def photographs(fault):
    data = Photographs(320, fault)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, CLASSES),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(5):
        for x, y in DataLoader(data, batch_size=32, shuffle=True):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


def sensors(fault):
    """Measured in many units: pascals, degrees, metres."""
    x, y = points(600, 12, 1.2)
    scales = torch.tensor([1e5, 1.0, 1e-2, 3e4, 1.0, 1e3, 1.0, 1e-1, 2e5, 1.0, 1.0, 1e2])
    raw = x * scales + 3 * scales
    if fault == "not-normalised":
        inputs = raw
    else:
        inputs = (raw - raw.mean(0)) / raw.std(0)
    net = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, CLASSES))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for step in range(150):
        i = torch.randint(0, 600, (32,))
        loss = F.cross_entropy(net(inputs[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"step {step + 1} loss {loss.item():.4f}")


def sorted_rows(fault):
    """A table whose rows lie sorted by their class."""
    x, y = points(800, 16, 1.2)
    order = y.argsort()
    x, y = x[order], y[order]
    loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=fault != "not-shuffled")
    net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, CLASSES))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(6):
        for xb, yb in loader:
            loss = F.cross_entropy(net(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (net(x).argmax(1) == y).float().mean().item()
        print(f"epoch {epoch} last loss {loss.item():.4f} accuracy {accuracy:.3f}")


def unknown_words(fault):
    """Words are looked up in a vocabulary."""
    text = sentences(400, 10, 30)
    vocabulary = {f"w{i}": i for i in range(30)}
    words = [[f"w{i}" for i in row] for row in text.tolist()]
    if fault == "all-unknown":
        ids = torch.tensor([[vocabulary.get(w.upper(), 0) for w in row] for row in words])
    else:
        ids = torch.tensor([[vocabulary.get(w, 0) for w in row] for row in words])
    labels = text[:, 0] % CLASSES
    net = nn.Sequential(nn.Embedding(30, 16), nn.Flatten(), nn.Linear(160, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(150):
        i = torch.randint(0, 400, (32,))
        loss = F.cross_entropy(net(ids[i]), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f}")


def one_batch(fault):
    """A single batch is learnt by heart, to see that the network can."""
    x, y = points(32, 16, 2.5)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(120):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"{step + 1} {loss.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "first-batch": first_batch,
            "photographs": photographs,
            "sensors": sensors,
            "sorted-rows": sorted_rows,
            "unknown-words": unknown_words,
            "one-batch": one_batch,
        }
    )
