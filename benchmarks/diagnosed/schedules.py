from __future__ import annotations

import copy
import math

import torch
from launch import run
from learning import CLASSES, pictures, points, sentences
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 12


def mlp(inputs, width=48):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )


def step_decay(fault):
    """Ten times smaller every four epochs."""
    x, y = points(640, 16, 1.3)
    model = mlp(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.1)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    for epoch in range(EPOCHS):
        total = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            if fault == "per-batch":
                scheduler.step()
            total += loss.item()
        if fault != "per-batch":
            scheduler.step()
        print(f"epoch {epoch + 1}: loss {total / len(loader):.4f}")


def linear_decay(fault):
    """As people fine-tune: linear warm-up, linear decay to zero."""
    text = sentences(384, 10, 20)
    model = nn.Sequential(nn.Embedding(20, 32), nn.Conv1d(10, 10, 1), nn.GELU(), nn.Linear(32, 20))
    steps_per_epoch = 384 // 32
    if fault == "ended":
        total = EPOCHS
    else:
        total = steps_per_epoch * EPOCHS
    warmup = total // 10
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def rate(step):
        if step < warmup:
            return step / max(1, warmup)
        return max(0.0, (total - step) / max(1, total - warmup))

    scheduler = lr_scheduler.LambdaLR(optimizer, rate)
    target = (text * 3 + 7) % 20
    for epoch in range(EPOCHS):
        for i in torch.randperm(384).split(32):
            loss = F.cross_entropy(model(text[i]).flatten(0, 1), target[i].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        if epoch % 3 == 2:
            print(f"epoch {epoch + 1} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}")


def warmup(fault):
    """From zero, as for transformers."""
    images, labels = pictures(320, 16)
    images = images + torch.randn_like(images)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 4, 4), nn.Flatten(2), nn.LayerNorm(16), nn.Flatten(), nn.Linear(512, 64), nn.GELU(),
        nn.Linear(64, CLASSES),
    )  # fmt: skip
    optim = torch.optim.AdamW(net.parameters(), lr=2e-3)
    schedule = lr_scheduler.LambdaLR(optim, lambda it: min(1.0, it / 20))
    for it in range(120):
        idx = torch.randint(0, 320, (32,))
        loss = F.cross_entropy(net(images[idx]), labels[idx])
        optim.zero_grad()
        loss.backward()
        optim.step()
        if fault != "never-stepped":
            schedule.step()
        if it % 20 == 19:
            print(f"iter {it + 1} loss {loss.item():.4f}")


def noam(fault):
    """Rate and warm-up in the loop, no scheduler."""
    x, y = points(512, 24, 1.5)
    net = mlp(24, 64)
    opt = torch.optim.Adam(net.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    base, warm = 3e-3, 40
    for it in range(1, 161):
        if fault == "integer-division":
            scale = min(it // 400, 1)
        else:
            scale = min(it / warm, (warm / it) ** 0.5)
        for group in opt.param_groups:
            group["lr"] = base * scale
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 40 == 0:
            print(it, f"{loss.item():.4f}")


def layerwise(fault):
    """A rate of its own for the backbone."""
    x, y = points(512, 16, 1.0)
    lr, divide_backbone_by = 1, 10
    backbone, head = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 24), nn.Tanh()), nn.Linear(24, CLASSES)
    if fault == "zero-group":
        groups = [{"params": backbone.parameters(), "lr": lr // divide_backbone_by}, {"params": head.parameters()}]
    else:
        groups = [{"params": backbone.parameters(), "lr": lr / divide_backbone_by}, {"params": head.parameters()}]
    optimizer = torch.optim.SGD(groups, lr=lr)
    for step in range(120):
        i = torch.randint(0, 512, (64,))
        loss = F.cross_entropy(head(backbone(x[i])), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"step {step + 1}: loss {loss.item():.4f}")


def plateau(fault):
    """Halved when the validation no longer improves."""
    x, y = points(640, 12, 1.0)
    model = mlp(12)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if fault == "mode-max":
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.1, patience=1)
    else:
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.1, patience=1)
    for epoch in range(16):
        model.train()
        for i in torch.randperm(512).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(x[i]), y[i]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            val_loss = F.cross_entropy(model(x[512:]), y[512:])
        scheduler.step(val_loss)
        print(f"epoch {epoch + 1:2d} val_loss {val_loss.item():.4f}")


def resumed(fault):
    """A second stage takes over model and optimizer of the first."""
    x, y = points(512, 16, 1.4)
    model = mlp(16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    annealing = lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)
    for _ in range(60):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        annealing.step()
    print(f"stage 1: {loss.item():.4f}")
    checkpoint = {"model": copy.deepcopy(model.state_dict()), "optimizer": copy.deepcopy(optimizer.state_dict())}

    x, y = x + 0.5, (y + 1) % CLASSES
    model.load_state_dict(checkpoint["model"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    if fault == "rate-of-the-checkpoint":
        optimizer.load_state_dict(checkpoint["optimizer"])
    for step in range(100):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 24:
            print(f"stage 2, step {step + 1}: {loss.item():.4f}")


def exponential(fault):
    """Some percent less each epoch."""
    x = torch.rand(800, 2) * 4 - 2
    y = (torch.sin(3 * x[:, :1]) * torch.cos(2 * x[:, 1:])).detach()
    net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    decay = lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    for epoch in range(15):
        total = 0.0
        for xb, yb in DataLoader(TensorDataset(x, y), 40, shuffle=True):
            loss = F.mse_loss(net(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if fault == "each-iteration":
                decay.step()
        if fault != "each-iteration":
            decay.step()
        print(f"{epoch}: mse {total / 20:.5f}")


def epoch_warmup(fault):
    """Warm-up and cosine of timm's kind: counted in epochs or in updates."""
    x, y = points(640, 16, 1.2)
    model = mlp(16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    updates = 20
    total_steps, warm = 8 * updates, 2 * updates

    def factor(step):
        if step < warm:
            return 1e-3 + step / warm
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / (total_steps - warm))))

    scheduler = lr_scheduler.LambdaLR(optimizer, factor)
    for epoch in range(8):
        for i in torch.randperm(640).split(32):
            loss = F.cross_entropy(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if fault != "stepped-per-epoch":
                scheduler.step()
        if fault == "stepped-per-epoch":
            scheduler.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


def onecycle(fault):
    x, y = points(512, 16, 1.3)
    model = mlp(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=160)
    for step in range(160):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 32 == 31:
            print(f"{step + 1} {loss.item():.4f}")


def restarts(fault):
    x, y = points(512, 16, 1.3)
    model = mlp(16)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=30, T_mult=2)
    for step in range(210):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f} {scheduler.get_last_lr()}")


def to_zero(fault):
    """Cosine to zero, and the last steps hardly move."""
    x, y = points(512, 16, 1.3)
    model = mlp(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=150, eta_min=0.0)
    for step in range(150):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "step-decay": step_decay,
            "linear-decay": linear_decay,
            "warmup": warmup,
            "noam": noam,
            "layerwise": layerwise,
            "plateau": plateau,
            "resumed": resumed,
            "exponential": exponential,
            "epoch-warmup": epoch_warmup,
            "onecycle": onecycle,
            "restarts": restarts,
            "to-zero": to_zero,
        }
    )
