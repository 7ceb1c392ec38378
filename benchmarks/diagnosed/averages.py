from __future__ import annotations

import copy
import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, points
from waves import gratings


class ModelEma(nn.Module):
    def __init__(self, model, decay=0.95, dtype=None, reverse=False, buffers=True):
        super().__init__()
        self.module = copy.deepcopy(model).eval()
        if dtype is not None:
            self.module.to(dtype)
        for p in self.module.parameters():
            p.requires_grad_(False)
        self.decay, self.reverse, self.buffers_too = decay, reverse, buffers

    @torch.no_grad()
    def update(self, model):
        for ema, p in zip(self.module.parameters(), model.parameters(), strict=True):
            if self.reverse:
                ema.mul_(1 - self.decay).add_(p.to(ema.dtype), alpha=self.decay)
            else:
                ema.mul_(self.decay).add_(p.to(ema.dtype), alpha=1 - self.decay)
        if self.buffers_too:
            for ema, b in zip(self.module.buffers(), model.buffers(), strict=True):
                ema.copy_(b)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.BatchNorm2d(24),
        nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, CLASSES),
    )  # fmt: skip


def ema(fault):
    """An average of the weights is what is evaluated."""
    images, labels = gratings(384)
    model = network()
    decay = 0.999 if fault in ("bfloat16", "reversed") else 0.95
    if fault == "bfloat16":
        average = ModelEma(model, decay, dtype=torch.bfloat16)
    elif fault == "reversed":
        average = ModelEma(model, decay, reverse=True)
    elif fault == "without-buffers":
        average = ModelEma(model, decay, buffers=False)
    else:
        average = ModelEma(model, decay)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    for epoch in range(8):
        model.train()
        for i in torch.randperm(320).split(32):
            loss = F.cross_entropy(model(images[i]), labels[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if fault != "never-updated":
                average.update(model)
        with torch.no_grad():
            held = images[320:].to(next(average.module.parameters()).dtype)
            out = average.module(held).float()
        print(
            f"epoch {epoch + 1} train {loss.item():.4f} averaged: {F.cross_entropy(out, labels[320:]).item():.4f}"
            f" acc {(out.argmax(1) == labels[320:]).float().mean().item():.2f}"
        )


class Corridor:
    def __init__(self, n=7):
        self.n, self.at, self.moves = n, 0, 0

    def observe(self):
        return F.one_hot(torch.tensor(self.at), self.n).float()

    def step(self, action):
        self.at = min(self.n - 1, self.at + 1) if action else max(0, self.at - 1)
        self.moves += 1
        won = self.at == self.n - 1
        over = won or self.moves >= 25
        if over:
            self.at, self.moves = 0, 0
        return float(won), won, over


def dqn(fault):
    env, memory = Corridor(), deque(maxlen=3000)
    policy_net = nn.Sequential(nn.Linear(7, 48), nn.ReLU(), nn.Linear(48, 2))
    target_net = nn.Sequential(nn.Linear(7, 48), nn.ReLU(), nn.Linear(48, 2))
    if fault == "alias":
        target_net = policy_net
    else:
        target_net.load_state_dict(policy_net.state_dict())
    sync_every = 10_000 if fault == "never-synchronised" else 25
    optimizer = torch.optim.Adam(policy_net.parameters(), lr=2e-3)
    state, rewards = env.observe(), 0.0
    for step in range(1, 601):
        with torch.no_grad():
            action = random.randrange(2) if random.random() < 0.4 else int(policy_net(state).argmax())
        reward, won, _ = env.step(action)
        following = env.observe()
        memory.append((state, action, reward, following, won))
        state, rewards = following, rewards + reward
        if step < 120:
            continue
        s, a, r, s2, done = zip(*random.sample(memory, 32), strict=True)
        s, s2 = torch.stack(s), torch.stack(s2)
        with torch.no_grad():
            y = torch.tensor(r) + 0.95 * (1 - torch.tensor(done).float()) * target_net(s2).max(1).values
        q = policy_net(s).gather(1, torch.tensor(a)[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % sync_every == 0:
            target_net.load_state_dict(policy_net.state_dict())
        if step % 120 == 0:
            with torch.no_grad():
                values = policy_net(torch.eye(7)).max(1).values
            print(f"step {step} reward {rewards:.0f} loss {loss.item():.5f} first value {values[0].item():.3f}")
            rewards = 0.0


def soft_target(fault):
    """As in DDPG: the target follows the critic by tau."""
    states, actions = torch.randn(600, 4), torch.rand(600, 1) * 2 - 1
    rewards = -((actions - torch.tanh(states[:, :1])) ** 2)
    following = states * 0.9 + 0.1 * torch.randn_like(states)
    critic = nn.Sequential(nn.Linear(5, 48), nn.ReLU(), nn.Linear(48, 1))
    target = copy.deepcopy(critic)
    optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3)
    tau = 0.05
    for step in range(200):
        i = torch.randint(0, 600, (64,))
        with torch.no_grad():
            best = torch.cat([following[i], torch.tanh(following[i][:, :1])], 1)
            y = rewards[i] + 0.8 * target(best)
        loss = F.mse_loss(critic(torch.cat([states[i], actions[i]], 1)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            if fault == "wrong-direction":
                for p, t in zip(critic.parameters(), target.parameters(), strict=True):
                    p.copy_(tau * t + (1 - tau) * p)
            else:
                for p, t in zip(critic.parameters(), target.parameters(), strict=True):
                    t.copy_(tau * p + (1 - tau) * t)
        if step % 40 == 39:
            print(f"{step + 1}: td error {loss.item():.5f}")


def augmented(x):
    return x * (1 + 0.1 * torch.randn(len(x), 1)) + 0.2 * torch.randn_like(x)


def byol(fault):
    """Two views; an online network predicts what a slow copy of it sees."""
    x, _ = points(640, 24, 0.5)
    online = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
    predictor = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
    target = copy.deepcopy(online)
    for p in target.parameters():
        p.requires_grad = False
    optimizer = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=2e-3)
    momentum = 1 if fault == "momentum-of-one" else 0.97

    def distance(p, z):
        return 2 - 2 * F.cosine_similarity(p, z.detach(), dim=-1).mean()

    for step in range(150):
        i = torch.randint(0, 640, (64,))
        a, b = augmented(x[i]), augmented(x[i])
        with torch.no_grad():
            za, zb = target(a), target(b)
        loss = distance(predictor(online(a)), zb) + distance(predictor(online(b)), za)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for o, t in zip(online.parameters(), target.parameters(), strict=True):
                t.mul_(momentum).add_(o, alpha=1 - momentum)
        if step % 30 == 29:
            print(f"step {step + 1} loss {loss.item():.4f}")


def mean_teacher(fault):
    """Few labels, and a teacher that is the student's average."""
    x, y = points(640, 16, 1.0)
    known = slice(0, 64)
    student = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, CLASSES))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
    for step in range(150):
        u = torch.randint(64, 640, (64,))
        supervised = F.cross_entropy(student(x[known]), y[known])
        with torch.no_grad():
            guess = teacher(augmented(x[u])).softmax(1)
        consistency = F.mse_loss(student(augmented(x[u])).softmax(1), guess)
        loss = supervised + 2.0 * consistency
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for s, t in zip(student.parameters(), teacher.parameters(), strict=True):
                t.lerp_(s, 0.05)
        if step % 30 == 29:
            print(f"{step + 1} supervised {supervised.item():.4f} consistency {consistency.item():.5f}")


def swa(fault):
    """Weights averaged over the last epochs; the norms' statistics are computed for the average."""
    images, labels = gratings(320)
    model = network()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    batches = [(images[i], labels[i]) for i in torch.arange(320).split(32)]
    for epoch in range(7):
        model.train()
        for x, y in batches:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch >= 2:
            averaged.update_parameters(model)
        print(f"epoch {epoch} loss {loss.item():.4f}")
    torch.optim.swa_utils.update_bn(batches, averaged)
    averaged.eval()
    with torch.no_grad():
        print(f"averaged: loss {F.cross_entropy(averaged(images), labels).item():.4f}")


if __name__ == "__main__":
    run(
        {
            "ema": ema,
            "dqn": dqn,
            "soft-target": soft_target,
            "byol": byol,
            "mean-teacher": mean_teacher,
            "swa": swa,
        }
    )
