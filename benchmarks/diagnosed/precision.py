from __future__ import annotations

import torch
from launch import run
from learning import CLASSES, pictures, points, sentences
from torch import nn
from torch.nn import functional as F


class GPT(nn.Module):
    def __init__(self, words=24, dim=48, depth=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, dim), nn.Embedding(16, dim)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 4, 2 * dim, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, words, bias=False)

    def forward(self, ids):
        t = ids.shape[1]
        x = self.wte(ids) + self.wpe.weight[:t]
        mask = nn.Transformer.generate_square_subsequent_mask(t, dtype=x.dtype)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(self.ln(x))


def language(fault):
    """All in bfloat16, as a model that fits nowhere else."""
    text = sentences(320, 12, 24)
    model = GPT().to(torch.bfloat16)
    lr = 1e-5 if fault == "tiny-rate" else 3e-3
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    for step in range(100):
        ids = text[torch.randint(0, 320, (32,))]
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 or step == 99:
            print(f"step {step:3d} | loss {loss.item():.4f}")


def halved(fault):
    """Convolutions in float16 by .half(), plain SGD, the loss in float32."""
    images, labels = pictures(320, 16)
    images = images + torch.randn_like(images)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, CLASSES),
    )
    if fault == "half":
        net, images = net.half(), images.half()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-5, momentum=0.9)
    if fault != "half":
        for group in optimizer.param_groups:
            group["lr"] = 1e-2
    for step in range(150):
        i = torch.randint(0, 320, (32,))
        loss = F.cross_entropy(net(images[i]).float(), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1}: {loss.item():.4f}")


def years(fault):
    """A trend over calendar years; the offset starts at the mean."""
    year = torch.randint(1950, 2020, (400, 1)).float()
    y = 16_800_000 + 40 * (year - 1985) + 20 * torch.randn(400, 1)
    slope = nn.Parameter(torch.zeros(1))
    if fault == "large-offset":
        offset = nn.Parameter(torch.tensor([16_800_100.0]))
    else:
        offset = nn.Parameter(torch.tensor([100.0]))
        y = y - 16_800_000
    optimizer = torch.optim.Adam([{"params": [slope], "lr": 5.0}, {"params": [offset], "lr": 0.4}])
    for step in range(400):
        i = torch.randint(0, 400, (64,))
        prediction = slope * (year[i] - 1985) / 10 + offset
        loss = ((prediction - y[i]) / 100).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1} loss {loss.item():.4f} slope {slope.item():.2f} offset {offset.item():.2f}")


class Deep(nn.Module):
    """Small activations, tiny gradients."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, CLASSES)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.last(x)


def autocast(fault):
    """Half precision by autocast; the loss is a mean over many positions."""
    x, y = points(1024, 16, 0.8)
    model = Deep()
    optimizer = torch.optim.SGD(model.parameters(), lr=4000.0, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, enabled=fault != "no-scaler")
    for step in range(150):
        i = torch.randint(0, 1024, (256,))
        with torch.autocast("cpu", torch.float16):
            logits = model(x[i])
            loss = F.cross_entropy(logits, y[i]) * 2.5e-5
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        if step % 30 == 29:
            print(f"{step + 1} loss {loss.item() * 40000:.4f}")


def running_gradient(fault):
    """A network in bfloat16 over many small batches."""
    x, y = points(512, 16, 1.2)
    net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, CLASSES)).bfloat16()
    x = x.bfloat16()
    master = [p.detach().float().clone() for p in net.parameters()]
    optimizer = torch.optim.Adam(
        net.parameters() if fault == "no-master" else master, lr=1e-5 if fault == "no-master" else 3e-3
    )
    for step in range(160):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(net(x[i]).float(), y[i])
        net.zero_grad()
        loss.backward()
        if fault != "no-master":
            for copy, p in zip(master, net.parameters(), strict=True):
                copy.grad = p.grad.float()
        optimizer.step()
        if fault != "no-master":
            with torch.no_grad():
                for copy, p in zip(master, net.parameters(), strict=True):
                    p.copy_(copy)
        if step % 32 == 31:
            print(step + 1, round(loss.item(), 4))


def bf16_autocast(fault):
    images, labels = pictures(320, 16)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, CLASSES),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for step in range(100):
        i = torch.randint(0, 320, (32,))
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(net(images[i]), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(step + 1, loss.item())


def stochastic(fault):
    """Weights in bfloat16 whose updates are rounded up or down at random."""
    text = sentences(320, 12, 24)
    model = GPT().to(torch.bfloat16)
    moments = {p: torch.zeros_like(p, dtype=torch.float32) for p in model.parameters()}
    squares = {p: torch.zeros_like(p, dtype=torch.float32) for p in model.parameters()}

    def rounded(value):
        bits = value.view(torch.int32) + torch.randint(0, 1 << 16, value.shape, dtype=torch.int32)
        return (bits & -65536).view(torch.float32).to(torch.bfloat16)

    for step in range(1, 121):
        ids = text[torch.randint(0, 320, (32,))]
        loss = F.cross_entropy(model(ids[:, :-1]).float().flatten(0, 1), ids[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                g = p.grad.float()
                moments[p].lerp_(g, 0.1)
                squares[p].lerp_(g * g, 0.01)
                update = moments[p] / (1 - 0.9**step) / ((squares[p] / (1 - 0.99**step)).sqrt() + 1e-8)
                p.copy_(rounded(p.float() - 1e-3 * update))
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")


def fp16_growing(fault):
    """The scale begins too high, and the first updates are left out."""
    images, labels = pictures(256, 16)
    net = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(256, CLASSES))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    for step in range(80):
        i = torch.randint(0, 256, (32,))
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(net(images[i]), labels[i])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 16 == 15:
            print(f"{step + 1} loss {loss.item():.4f} scale {scaler.get_scale()}")


if __name__ == "__main__":
    run(
        {
            "language": language,
            "halved": halved,
            "years": years,
            "autocast": autocast,
            "running-gradient": running_gradient,
            "bf16-autocast": bf16_autocast,
            "stochastic": stochastic,
            "fp16-growing": fp16_growing,
        }
    )
