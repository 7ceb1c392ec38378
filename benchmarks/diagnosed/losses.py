from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points


def by_hand(fault):
    """The negative log-likelihood without a function of the library."""
    x, y = points(512, 16, 1.0)
    model = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(120):
        i = torch.randint(0, 512, (32,))
        log_probs = torch.log_softmax(model(x[i]), dim=1)
        if fault == "sign":
            loss = log_probs[torch.arange(32), y[i]].mean()
        else:
            loss = -log_probs[torch.arange(32), y[i]].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            acc = (log_probs.argmax(1) == y[i]).float().mean().item()
            print(f"step {step + 1} loss {loss.item():.4f} accuracy {acc:.2f}")


def too_fast(fault):
    """Linear regression with a fixed rate."""
    x = torch.randn(300, 20) + 2.0
    y = x @ torch.randn(20, 1) + 0.1 * torch.randn(300, 1)
    model = nn.Linear(20, 1)
    lr = 0.013 if fault == "rate-too-large" else 0.01
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for epoch in range(60):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1} mse {loss.item():.4g}")


def collapse(fault):
    """A network whose hidden units may all die in the first updates."""
    x = torch.randn(600, 10)
    y = (x**2).sum(1, keepdim=True) + 0.3 * torch.randn(600, 1)
    lr = 3.0 if fault == "rate-too-large" else 0.01
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    for epoch in range(12):
        total = 0.0
        for i in torch.randperm(600).split(50):
            loss = F.mse_loss(net(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 12
        print(f"epoch {epoch} loss {total:.4f}")


def ascent(fault):
    """An optimizer that was set up for a reward, and a loss."""
    x = torch.rand(512, 3) * 2 - 1
    y = torch.sin(x.sum(1, keepdim=True))
    net = nn.Sequential(nn.Linear(3, 48), nn.Tanh(), nn.Linear(48, 1))
    if fault == "maximised":
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, maximize=True)
    else:
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for step in range(150):
        i = torch.randint(0, 512, (64,))
        loss = F.huber_loss(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1}/150 huber {loss.item():.5f}")


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.logvar = nn.Linear(30, 48), nn.Linear(48, 4), nn.Linear(48, 4)
        self.dec = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 30))

    def forward(self, x):
        h = torch.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h).clamp(-8, 8)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def vae(fault):
    x = torch.tanh(torch.randn(600, 4) @ torch.randn(4, 30))
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(240):
        batch = x[torch.randint(0, 600, (64,))]
        out, mu, logvar = model(batch)
        reconstruction = ((out - batch) ** 2).sum(1).mean()
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        if fault == "sign-of-kl":
            loss = reconstruction - kl
        else:
            loss = reconstruction + 0.5 * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1} elbo {-loss.item():.3f} rec {reconstruction.item():.3f} kl {kl.item():.3f}")


def triplets(fault):
    """Things of a kind are to lie together."""
    x, y = points(480, 16, 1.8)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    criterion = nn.TripletMarginLoss(margin=1.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    kinds = [torch.nonzero(y == k).flatten() for k in range(CLASSES)]
    for step in range(150):
        a = torch.randint(0, 480, (48,))
        same = torch.stack([kinds[k][torch.randint(0, len(kinds[k]), ())] for k in y[a].tolist()])
        other = torch.stack(
            [kinds[(k + 1) % CLASSES][torch.randint(0, len(kinds[(k + 1) % CLASSES]), ())] for k in y[a].tolist()]
        )
        anchor, positive, negative = net(x[a]), net(x[same]), net(x[other])
        if fault == "swapped":
            loss = criterion(anchor, negative, positive)
        else:
            loss = criterion(anchor, positive, negative)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1}: triplet {loss.item():.4f}")


def dropped(fault):
    """Regularised by dropout."""
    images, labels = pictures(320, 16)
    keep = 0.0 if fault == "drops-everything" else 0.8
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Dropout(1 - keep),
        nn.Linear(256, CLASSES),
    )  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for step in range(100):
        i = torch.randint(0, 320, (32,))
        loss = F.cross_entropy(net(images[i]), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"{step + 1}: {loss.item():.4f}")


def bandit(fault):
    """REINFORCE with a baseline; ten arms."""
    means = torch.linspace(-1, 1, 10)[torch.randperm(10)]
    logits = nn.Parameter(torch.zeros(10))
    optimizer = torch.optim.Adam([logits], lr=0.05)
    baseline = 0.0
    for step in range(200):
        policy = torch.distributions.Categorical(logits=logits)
        arms = policy.sample((32,))
        reward = means[arms] + 0.3 * torch.randn(32)
        advantage = reward - baseline
        baseline = 0.9 * baseline + 0.1 * reward.mean().item()
        if fault == "sign-of-the-return":
            loss = (policy.log_prob(arms) * advantage).mean()
        else:
            loss = -(policy.log_prob(arms) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1} loss {loss.item():.4f} mean reward {reward.mean().item():.3f}")


if __name__ == "__main__":
    run(
        {
            "by-hand": by_hand,
            "too-fast": too_fast,
            "collapse": collapse,
            "ascent": ascent,
            "vae": vae,
            "triplets": triplets,
            "dropped": dropped,
            "bandit": bandit,
        }
    )
