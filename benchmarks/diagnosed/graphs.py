from __future__ import annotations

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points, sentences
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


def regression(fault):
    """Tabular regression, a plain loop."""
    X = torch.randn(512, 10)
    w = 0.3 * torch.randn(10)
    y = torch.sin(X @ w).unsqueeze(1) + 0.05 * torch.randn(512, 1)
    net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    criterion = nn.MSELoss()
    for epoch in range(12):
        running = 0.0
        for i in range(0, 512, 32):
            pred = net(X[i : i + 32])
            loss = criterion(pred, y[i : i + 32])
            if fault == "new-tensor":
                loss = torch.tensor(loss.item(), requires_grad=True)
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
        print(f"epoch {epoch} loss {running / 16:.4f}")


class Autoencoder(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 6))
        self.decoder = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 64))

    def encode(self, x):
        return self.encoder(x)

    def forward(self, x):
        z = self.encode(x)
        if self.fault == "detached":
            z = z.detach()
        return self.decoder(z)


def autoencoder(fault):
    basis = torch.randn(6, 64)
    data = torch.tanh(torch.randn(640, 6) @ basis)
    model = Autoencoder(fault)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    loader = DataLoader(TensorDataset(data), batch_size=64, shuffle=True)
    for epoch in range(20):
        total, n = 0.0, 0
        for (batch,) in loader:
            reconstruction = model(batch)
            loss = F.mse_loss(reconstruction, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
            n += len(batch)
        if epoch % 4 == 3:
            print("epoch", epoch + 1, "mse", round(total / n, 5))


class TwoTower(nn.Module):
    """A picture goes through convolutions, is pooled, and a classifier follows."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
        )
        self.classifier = nn.Sequential(nn.Linear(32 * 4, 32), nn.ReLU(), nn.Linear(32, CLASSES))

    def forward(self, x, pool):
        return self.classifier(pool(self.features(x)).flatten(1))


def pooling(fault):
    images, labels = pictures(384, 16)
    images += 1.5 * torch.randn_like(images)

    def pool_torch(maps):
        return F.adaptive_max_pool2d(maps, 2)

    def pool_numpy(maps):
        a = maps.detach().numpy()
        a = a.reshape(a.shape[0], a.shape[1], 2, 2, 2, 2).max(axis=(3, 5))
        return torch.from_numpy(np.ascontiguousarray(a))

    pool = pool_numpy if fault == "numpy" else pool_torch
    model = TwoTower()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(80):
        index = torch.randint(0, 384, (32,))
        optimizer.zero_grad()
        logits = model(images[index], pool)
        loss = F.cross_entropy(logits, labels[index])
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            accuracy = (logits.argmax(1) == labels[index]).float().mean()
            print(f"step {step + 1}: loss {loss:.4f} acc {accuracy:.2f}")


class Block(nn.Module):
    def __init__(self, dim, fault):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.fault = fault

    def forward(self, x):
        if self.fault == "data":
            return x + self.mlp(self.norm(x)).data
        return x + self.mlp(self.norm(x))


class Residual(nn.Module):
    def __init__(self, dim=32, depth=4, fault=""):
        super().__init__()
        self.stem = nn.Linear(12, dim)
        self.blocks = nn.ModuleList(Block(dim, fault if i == 2 else "") for i in range(depth))
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def residual(fault):
    inputs, targets = points(600, 12, 0.9)
    train_x, train_y, val_x, val_y = inputs[:480], targets[:480], inputs[480:], targets[480:]
    model = Residual(fault=fault)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(6):
        model.train()
        for chunk in torch.randperm(480).split(32):
            loss = F.cross_entropy(model(train_x[chunk]), train_y[chunk])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            val = F.cross_entropy(model(val_x), val_y)
        print(f"[{epoch}] train {loss.item():.3f} val {val.item():.3f}")


class Encoder(nn.Module):
    """Blocks whose activations are computed again in the backward pass."""

    def __init__(self, reentrant):
        super().__init__()
        self.blocks = nn.ModuleList(
            [nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0, batch_first=True) for _ in range(2)]
        )
        self.pool = nn.Linear(24, 24)
        self.out = nn.Linear(24, CLASSES)
        self.reentrant = reentrant

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.out(torch.tanh(self.pool(x.mean(1))))


def checkpointed(fault):
    labels = torch.randint(0, CLASSES, (320,))
    position = torch.arange(10).float()
    signal = torch.sin(position[None, :, None] * (1 + labels[:, None, None]) * 0.6 + torch.linspace(0, 3, 24))
    x = signal + 0.8 * torch.randn(320, 10, 24)
    model = Encoder(reentrant=fault == "reentrant")
    optim = torch.optim.AdamW(model.parameters(), lr=4e-3)
    dataset = TensorDataset(x, labels)
    for epoch in range(4):
        for it, (xb, yb) in enumerate(DataLoader(dataset, 32, shuffle=True)):
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            optim.step()
            optim.zero_grad(set_to_none=True)
            if it % 5 == 0:
                print(f"{epoch}.{it} {loss.item():.4f}")


class Captioner(nn.Module):
    """An encoder that was borrowed from another project, and a recurrent decoder."""

    def __init__(self, words, fault):
        super().__init__()
        self.embed = nn.Embedding(words, 24)
        self.encoder = nn.GRU(24, 32, batch_first=True)
        self.decoder = nn.GRU(24, 32, batch_first=True)
        self.out = nn.Linear(32, words)
        self.fault = fault

    @torch.no_grad()
    def extract(self, source):
        return self.encoder(self.embed(source))[1]

    def forward(self, source, target):
        if self.fault == "no-grad-method":
            state = self.extract(source)
        else:
            state = self.encoder(self.embed(source))[1]
        hidden, _ = self.decoder(self.embed(target), state)
        return self.out(hidden)


def seq2seq(fault):
    text = sentences(512, 8, 18)
    source, target = text[:, :5], text.flip(1)
    start = torch.zeros(512, 1, dtype=torch.long)
    inputs = torch.cat([start, target[:, :-1]], 1)
    model = Captioner(18, fault)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    history = []
    for step in range(150):
        b = torch.randperm(512)[:64]
        logits = model(source[b], inputs[b])
        loss = F.cross_entropy(logits.reshape(-1, 18), target[b].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        history.append(loss.item())
        if (step + 1) % 30 == 0:
            print(f"step {step + 1} loss {sum(history[-30:]) / 30:.4f}")


class Quantised(nn.Module):
    """A code of the nearest vectors in the middle."""

    def __init__(self, hard):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(20, 32), nn.SiLU(), nn.Linear(32, 8))
        self.codes = nn.Embedding(32, 8)
        self.up = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 20))
        self.hard = hard

    def forward(self, x):
        z = self.down(x)
        index = torch.cdist(z, self.codes.weight).argmin(1)
        q = self.codes(index)
        codebook = F.mse_loss(q, z.detach())
        commit = F.mse_loss(z, q.detach())
        if self.hard:
            return self.up(q), codebook
        return self.up(z + (q - z).detach()), codebook + 0.25 * commit


def vq(fault):
    centres = torch.randn(16, 20)
    data = centres[torch.randint(0, 16, (800,))] + 0.1 * torch.randn(800, 20)
    model = Quantised(fault == "hard-lookup")
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    for it in range(1, 301):
        x = data[torch.randint(0, 800, (64,))]
        out, extra = model(x)
        loss = F.mse_loss(out, x) + extra
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 50 == 0:
            print(f"iter {it} recon {F.mse_loss(out, x).item():.4f} total {loss.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "regression": regression,
            "autoencoder": autoencoder,
            "pooling": pooling,
            "residual": residual,
            "checkpointed": checkpointed,
            "seq2seq": seq2seq,
            "vq": vq,
        }
    )
