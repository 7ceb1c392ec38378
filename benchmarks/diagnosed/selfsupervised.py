from __future__ import annotations

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import points


def views(x):
    return x + 0.3 * torch.randn_like(x), x * (1 + 0.2 * torch.randn(len(x), 1))


def encoder(out=16):
    return nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, out))


def dino(fault):
    """A teacher whose outputs are centred and sharpened; its momentum rises to one."""
    x, _ = points(640, 24, 0.5)
    student, teacher = encoder(32), encoder(32)
    teacher.load_state_dict(student.state_dict())
    teacher.requires_grad_(False)
    centre = torch.zeros(32)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    for step in range(150):
        a, b = views(x[torch.randint(0, 640, (64,))])
        with torch.no_grad():
            ta, tb = teacher(a), teacher(b)
        loss = 0.0
        for t, s in ((ta, student(b)), (tb, student(a))):
            target = F.softmax((t - centre) / 0.04, dim=1)
            loss = loss - (target * F.log_softmax(s / 0.1, dim=1)).sum(1).mean() / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        momentum = 1 - 0.01 * (math.cos(math.pi * step / 150) + 1) / 2
        with torch.no_grad():
            centre = 0.9 * centre + 0.1 * torch.cat([ta, tb]).mean(0)
            for s, t in zip(student.parameters(), teacher.parameters(), strict=True):
                t.mul_(momentum).add_(s, alpha=1 - momentum)
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f}")


def moco(fault):
    """A queue of keys from a slow encoder."""
    x, _ = points(640, 24, 0.5)
    query, key = encoder(), encoder()
    key.load_state_dict(query.state_dict())
    for p in key.parameters():
        p.requires_grad = False
    queue = F.normalize(torch.randn(256, 16), dim=1)
    optimizer = torch.optim.SGD(query.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for step in range(150):
        a, b = views(x[torch.randint(0, 640, (32,))])
        q = F.normalize(query(a), dim=1)
        with torch.no_grad():
            for p, k in zip(query.parameters(), key.parameters(), strict=True):
                k.data = k.data * 0.99 + p.data * 0.01
            k = F.normalize(key(b), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.2
        loss = F.cross_entropy(logits, torch.zeros(32, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue = torch.cat([k, queue])[:256]
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f}")


def simsiam(fault):
    """Negative cosine similarity; one side is detached."""
    x, _ = points(640, 24, 0.5)
    f = encoder(32)
    h = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 32))
    optimizer = torch.optim.SGD([*f.parameters(), *h.parameters()], lr=0.05, momentum=0.9)
    for step in range(120):
        a, b = views(x[torch.randint(0, 640, (64,))])
        za, zb = f(a), f(b)
        loss = -(F.cosine_similarity(h(za), zb.detach()).mean() + F.cosine_similarity(h(zb), za.detach()).mean()) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"{step + 1} {loss.item():.4f}")


def barlow(fault):
    x, _ = points(640, 24, 0.5)
    f = encoder(16)
    optimizer = torch.optim.Adam(f.parameters(), lr=1e-3)
    for step in range(150):
        a, b = views(x[torch.randint(0, 640, (64,))])
        za, zb = f(a), f(b)
        za, zb = (za - za.mean(0)) / za.std(0), (zb - zb.mean(0)) / zb.std(0)
        c = za.T @ zb / 64
        on = (c.diagonal() - 1).square().sum()
        off = c.square().sum() - c.diagonal().square().sum()
        loss = on + 0.05 * off
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f}")


def inpainting(fault):
    """A masked autoencoder for vectors: the target is a part of the input that was hidden."""
    basis = torch.randn(5, 32)
    x = torch.tanh(torch.randn(640, 5) @ basis)
    net = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 32))
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for step in range(200):
        batch = x[torch.randint(0, 640, (64,))]
        hidden = (torch.rand_like(batch) < 0.5).float()
        out = net(torch.cat([batch * (1 - hidden), hidden], 1))
        loss = (((out - batch) ** 2) * hidden).sum() / hidden.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"{step + 1} {loss.item():.4f}")


def bootstrapped(fault):
    """data2vec: regression to what the average of the network makes of the whole input, with layers' mean as target."""
    x, _ = points(640, 24, 0.5)
    online = encoder(24)
    average = copy.deepcopy(online).requires_grad_(False)
    predictor = nn.Linear(24, 24)
    optimizer = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=2e-3)
    for step in range(150):
        batch = x[torch.randint(0, 640, (64,))]
        hidden = torch.rand_like(batch) < 0.3
        with torch.no_grad():
            target = F.layer_norm(average(batch), (24,))
        loss = F.smooth_l1_loss(predictor(online(batch.masked_fill(hidden, 0.0))), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for o, a in zip(online.parameters(), average.parameters(), strict=True):
                a.lerp_(o, 0.02)
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "dino": dino,
            "moco": moco,
            "simsiam": simsiam,
            "barlow": barlow,
            "inpainting": inpainting,
            "bootstrapped": bootstrapped,
        }
    )
