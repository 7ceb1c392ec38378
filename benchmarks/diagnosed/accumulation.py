from __future__ import annotations

import torch
from launch import run
from learning import CLASSES, pictures, points, sentences
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def cnn(width=12):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.GroupNorm(3, width), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * width, CLASSES),
    )  # fmt: skip


def accumulate(fault):
    """Eight small batches make one."""
    images, labels = pictures(384, 16)
    images = images + 2.0 * torch.randn_like(images)
    accumulation_steps = 8
    model = cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(TensorDataset(images, labels), batch_size=4, shuffle=True)
    for epoch in range(4):
        optimizer.zero_grad()
        shown = 0.0
        for i, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x), y)
            shown += loss.item()
            if fault != "not-divided":
                loss = loss / accumulation_steps
            if fault == "cleared-each-time":
                optimizer.zero_grad()
            loss.backward()
            if (i + 1) % accumulation_steps == 0:
                if fault == "divided-twice":
                    for p in model.parameters():
                        p.grad /= accumulation_steps
                optimizer.step()
                optimizer.zero_grad()
                if (i + 1) % 32 == 0:
                    print(f"epoch {epoch} batch {i + 1} loss {shown / 32:.4f}")
                    shown = 0.0


def large_batch(fault):
    """As many batches as there are make one update, over 32."""
    x, y = points(512, 16, 1.2)
    net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, CLASSES))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    every = 32
    if fault == "never-reached":
        loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    else:
        loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    for epoch in range(12):
        opt.zero_grad()
        total = 0.0
        for i, (xb, yb) in enumerate(loader):
            loss = F.cross_entropy(net(xb), yb) / every
            loss.backward()
            total += loss.item() * every
            if (i + 1) % every == 0:
                opt.step()
                opt.zero_grad()
        print(f"{epoch + 1}: {total / len(loader):.4f}")


def forgotten(fault):
    """The usual order."""
    x, y = points(640, 16, 1.3)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(8):
        for it, (inputs, labels) in enumerate(DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)):
            if fault not in ("no-zero-grad", "zeroed-before-step"):
                optimizer.zero_grad()
            outputs = model(inputs)
            loss = nn.functional.cross_entropy(outputs, labels)
            loss.backward()
            if fault == "zeroed-before-step":
                optimizer.zero_grad(set_to_none=False)
            optimizer.step()
            if it == 0:
                print(f"Epoch {epoch}: {loss.item():.4f}")


def two_parts(fault):
    """Encoder and decoder are cleared one by one."""
    text = sentences(384, 8, 14)
    encoder = nn.Sequential(nn.Embedding(14, 16), nn.Flatten(), nn.Linear(128, 32), nn.Tanh())
    decoder = nn.Linear(32, 8 * 14)
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=1.0)
    for step in range(200):
        rows = torch.randint(0, 384, (48,))
        if fault == "one-part-only":
            encoder.zero_grad()
        else:
            encoder.zero_grad()
            decoder.zero_grad()
        scores = decoder(encoder(text[rows])).view(48, 14, 8)
        loss = F.cross_entropy(scores, text[rows])
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1} loss {loss:.4f}")


def manual(fault):
    """Updates by hand, as in tutorials."""
    x = torch.randn(256, 5)
    y = x @ torch.randn(5, 1) + 0.3
    w, b = torch.randn(5, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    rate = 0.05
    for step in range(100):
        loss = ((x @ w + b - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            w -= rate * w.grad
            b -= rate * b.grad
            if fault != "by-hand":
                w.grad.zero_()
                b.grad.zero_()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.6f}")


def summed(fault):
    """The loss of a batch is a sum, or a mean."""
    x, y = points(512, 16, 1.3)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss(reduction="sum")
    for step in range(160):
        i = torch.randint(0, 512, (64,))
        loss = criterion(net(x[i]), y[i])
        if fault != "sum":
            loss = loss / len(i)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 32 == 31:
            print(step + 1, loss.item())


def scaled(fault):
    """Half precision with a scaler."""
    images, labels = pictures(256, 16)
    images = images + 2.0 * torch.randn_like(images)
    model = cnn(24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(100):
        idx = torch.randint(0, 256, (32,))
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(images[idx]), labels[idx])
        scaler.scale(loss).backward()
        if fault == "without-scaler-step":
            torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
            optimizer.step()
        else:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        if step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "accumulate": accumulate,
            "large-batch": large_batch,
            "forgotten": forgotten,
            "two-parts": two_parts,
            "manual": manual,
            "summed": summed,
            "scaled": scaled,
        }
    )
