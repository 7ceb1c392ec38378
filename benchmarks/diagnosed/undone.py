from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from launch import run
from learning import CLASSES, points, sentences
from torch import nn


def net(inputs, width=48):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )


def best_so_far(fault):
    """After each epoch the best weights so far are kept, or taken again."""
    x, y = points(640, 16, 1.3)
    model = net(16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best_loss = 0.0 if fault == "restored" else float("inf")
    best_state = copy.deepcopy(model.state_dict())
    for epoch in range(10):
        for i in torch.randperm(512).split(64):
            loss = F.cross_entropy(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            val_loss = F.cross_entropy(model(x[512:]), y[512:]).item()
        if val_loss < best_loss:
            best_loss = val_loss
            best_state = copy.deepcopy(model.state_dict())
        else:
            model.load_state_dict(best_state)
        print(f"epoch {epoch}: val {val_loss:.4f}")


def clamped(fault):
    """Weights within bounds, as a Lipschitz constant wants it."""
    x, y = points(512, 16, 1.2)
    model = net(16)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    bound = 1e-3 if fault == "clamped" else 0.5
    for step in range(150):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for p in model.parameters():
            p.data.clamp_(-bound, bound)
        if step % 30 == 29:
            print(f"step {step + 1} loss {loss.item():.4f}")


def decayed(fault):
    """Much weight decay."""
    text = sentences(320, 8, 16)
    model = nn.Sequential(nn.Embedding(16, 24), nn.Flatten(), nn.Linear(192, 64), nn.GELU(), nn.Linear(64, 16))
    target = (text[:, 2] * 3 + text[:, 5]) % 16
    if fault == "weight-decay":
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=100.0)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.1)
    for step in range(150):
        rows = torch.randint(0, 320, (32,))
        loss = F.cross_entropy(model(text[rows]), target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"step {step + 1} loss {loss.item():.4f}")


class Average:
    """Averaged weights that take the place of the model's for evaluation."""

    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}
        self.backup = {}

    def update(self, model):
        for n, p in model.named_parameters():
            self.shadow[n].mul_(self.decay).add_(p.detach(), alpha=1 - self.decay)

    def apply(self, model):
        for n, p in model.named_parameters():
            self.backup[n] = p.detach().clone()
            p.data.copy_(self.shadow[n])

    def restore(self, model):
        for n, p in model.named_parameters():
            p.data.copy_(self.backup[n])


def swapped(fault):
    x, y = points(640, 16, 1.4)
    model = net(16)
    ema = Average(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(160):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
        if step % 4 == 3:
            ema.apply(model)
            with torch.no_grad():
                val = F.cross_entropy(model(x[512:]), y[512:])
            if fault != "not-restored":
                ema.restore(model)
        if step % 32 == 31:
            print(f"step {step + 1} train {loss.item():.4f} averaged {val.item():.4f}")


def federated(fault):
    """Clients train copies; the server averages them each round."""
    x, y = points(600, 12, 1.0)
    shards = torch.randperm(600).view(3, 200)
    server = net(12)
    client = net(12)
    optimizer = torch.optim.SGD(client.parameters(), lr=0.1)
    for turn in range(12):
        states = []
        for shard in shards:
            client.load_state_dict(server.state_dict())
            for rows in shard[torch.randperm(200)].split(40):
                if fault == "loaded-each-batch":
                    client.load_state_dict(server.state_dict())
                loss = F.cross_entropy(client(x[rows]), y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            states.append(copy.deepcopy(client.state_dict()))
        mean = {k: sum(s[k] for s in states) / len(states) for k in states[0]}
        server.load_state_dict(mean)
        print(f"round {turn + 1}: loss {loss.item():.4f}")


def sharpness(fault):
    """SAM: up to the worst neighbour and back, then down."""
    x, y = points(512, 16, 1.3)
    model = net(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(120):
        i = torch.randint(0, 512, (32,))
        F.cross_entropy(model(x[i]), y[i]).backward()
        with torch.no_grad():
            before = [p.clone() for p in model.parameters()]
            norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
            for p in model.parameters():
                p.add_(0.05 * p.grad / norm)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[i]), y[i])
        loss.backward()
        if fault == "weights-back-after":
            optimizer.step()
        with torch.no_grad():
            for p, old in zip(model.parameters(), before, strict=True):
                p.copy_(old)
        if fault != "weights-back-after":
            optimizer.step()
        optimizer.zero_grad()
        if step % 24 == 23:
            print(f"{step + 1} loss {loss.item():.4f}")


def pruned(fault):
    """The smaller half of the weights is kept at zero."""
    x, y = points(512, 16, 1.2)
    model = net(16)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    masks = {}
    for step in range(160):
        if step == 60:
            masks = {n: (p.abs() > p.abs().median()).float() for n, p in model.named_parameters() if p.dim() == 2}
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for n, mask in masks.items():
                model.get_parameter(n).mul_(mask)
        if step % 32 == 31:
            print(step + 1, loss.item())


if __name__ == "__main__":
    run(
        {
            "best-so-far": best_so_far,
            "clamped": clamped,
            "decayed": decayed,
            "swapped": swapped,
            "federated": federated,
            "sharpness": sharpness,
            "pruned": pruned,
        }
    )
