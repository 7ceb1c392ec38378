from __future__ import annotations

import random
from collections import deque

import torch
from launch import run
from learning import points
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def housing(fault):
    x = torch.randn(600, 13)
    y = x[:, 0] * 2 - x[:, 3] + torch.relu(x[:, 5]) + 0.1 * torch.randn(600)
    if fault != "column":
        y = y.unsqueeze(1)
    model = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 1))
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(12):
        for X_batch, y_batch in DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True):
            y_pred = model(X_batch)
            loss = loss_fn(y_pred, y_batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"Epoch {epoch}, MSE {loss.item():.4f}")


class Pinball(nn.Module):
    """The loss of quantile regression."""

    def __init__(self, q=0.5):
        super().__init__()
        self.q = q

    def forward(self, prediction, target):
        error = target - prediction
        return torch.maximum(self.q * error, (self.q - 1) * error).mean()


def quantile(fault):
    x = torch.rand(512, 1) * 6 - 3
    y = torch.sin(2 * x) + 0.1 * torch.randn(512, 1)
    net = nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
    pinball = Pinball()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(300):
        i = torch.randint(0, 512, (64,))
        if fault == "squeezed":
            loss = pinball(net(x[i]).squeeze(-1), y[i])
        else:
            loss = pinball(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 59:
            print(f"step {step + 1} loss {loss.item():.4f}")


def dqn(fault):
    """A corridor: go right to the end. Smooth L1 on the values of the actions that were taken."""
    n = 6
    q, target_q = nn.Sequential(nn.Linear(n, 32), nn.ReLU(), nn.Linear(32, 2)), None
    target_q = nn.Sequential(nn.Linear(n, 32), nn.ReLU(), nn.Linear(32, 2))
    target_q.load_state_dict(q.state_dict())
    opt = torch.optim.RMSprop(q.parameters(), lr=1e-3)
    eye, memory, state, moves = torch.eye(n), deque(maxlen=2000), 0, 0
    for step in range(500):
        action = random.randrange(2) if random.random() < 0.5 else int(q(eye[state]).argmax())
        following = min(n - 1, state + 1) if action == 1 else max(0, state - 1)
        done = following == n - 1
        memory.append((state, action, 1.0 if done else 0.0, following, done))
        moves += 1
        state = 0 if done or moves > 20 else following
        moves = 0 if state == 0 else moves
        if step < 100:
            continue
        s, a, r, s2, d = (torch.tensor(column) for column in zip(*random.sample(memory, 32), strict=True))
        with torch.no_grad():
            goal = r + 0.9 * (~d) * target_q(eye[s2]).max(1).values
        value = q(eye[s]).gather(1, a.unsqueeze(1))
        if fault != "gathered":
            value = value.squeeze(1)
        loss = F.smooth_l1_loss(value, goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            target_q.load_state_dict(q.state_dict())
        if step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.5f} values {q(eye).max(1).values.tolist()}")


def weighted(fault):
    """Rare rows count more."""
    x, four = points(600, 12, 2.5)
    y = (four == 0).float()
    weight = torch.where(y > 0, 3.0, 1.0)
    if fault == "weights-in-a-column":
        weight = weight.unsqueeze(1)
    net = nn.Sequential(nn.Linear(12, 32), nn.ELU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for step in range(150):
        i = torch.randint(0, 600, (40,))
        logit = net(x[i]).squeeze(1)
        loss = (weight[i] * F.binary_cross_entropy_with_logits(logit, y[i], reduction="none")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            found = ((logit > 0) == (y[i] > 0)).float().mean()
            print(f"[{step + 1}] loss {loss.item():.4f} acc {found.item():.2f}")


def masked_series(fault):
    """Forecasts of several series; what is missing does not count."""
    t = torch.arange(64).float()
    phase = torch.rand(24, 1) * 6
    series = torch.sin(t / 5 + phase) + 0.05 * torch.randn(24, 64)
    present = (torch.rand(24, 64) < 0.8).float()
    rnn, out = nn.GRU(1, 24, batch_first=True), nn.Linear(24, 1)
    optimizer = torch.optim.Adam([*rnn.parameters(), *out.parameters()], lr=1e-2)
    for step in range(80):
        hidden, _ = rnn(series[:, :-1, None])
        forecast = out(hidden)
        if fault == "last-step":
            error = (forecast[:, -1] - series[:, -1]) ** 2
            loss = error.mean()
        else:
            error = (forecast.squeeze(-1) - series[:, 1:]) ** 2
            loss = (error * present[:, 1:]).sum() / present[:, 1:].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 16 == 15:
            print(step + 1, round(loss.item(), 5))


if __name__ == "__main__":
    run({"housing": housing, "quantile": quantile, "dqn": dqn, "weighted": weighted, "masked-series": masked_series})
