from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points


class ResBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = nn.Conv2d(cin, cout, 1, stride, bias=False) if stride != 1 or cin != cout else nn.Identity()

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.down(x))


class SmallResNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        self.layer1 = ResBlock(width, width, 1)
        self.layer2 = ResBlock(width, 2 * width, 2)
        self.layer10 = ResBlock(2 * width, 2 * width, 2)
        self.fc = nn.Linear(2 * width, CLASSES)

    def forward(self, x):
        x = self.layer10(self.layer2(self.layer1(self.stem(x))))
        return self.fc(x.mean((2, 3)))


def freeze(model, prefixes):
    for name, parameter in model.named_parameters():
        if any(name.startswith(prefix) for prefix in prefixes):
            parameter.requires_grad_(False)


def by_name(fault):
    """The first stages stay as they are."""
    images, labels = pictures(256, 16)
    model = SmallResNet()
    if fault == "too-many":
        freeze(model, ["stem", "layer"])
    else:
        freeze(model, ["stem", "layer1."])
    optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-3)
    model.train()
    for step in range(60):
        i = torch.randint(0, 256, (24,))
        loss = F.cross_entropy(model(images[i]), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 12 == 11:
            print(f"step {step + 1} loss {loss.item():.4f}")


class Finetuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x):
        return self.head(self.encoder(x))


def warm_head(fault):
    """For two epochs the head alone, then everything."""
    x, y = points(480, 16, 1.2)
    model = Finetuned()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(10):
        if fault == "wrong-way":
            for p in model.encoder.parameters():
                p.requires_grad = epoch < 2
        else:
            for p in model.encoder.parameters():
                p.requires_grad = epoch >= 2
        total = 0.0
        for i in torch.randperm(480).split(32):
            loss = F.cross_entropy(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 15
        print(f"epoch {epoch} loss {total:.4f}")


def unfreeze_module(fault):
    """Frozen when it was loaded, and made trainable again."""
    x, y = points(480, 16, 1.2)
    model = Finetuned()
    for p in model.encoder.parameters():
        p.requires_grad = False
    if fault == "attribute-of-the-module":
        model.encoder.requires_grad = True
    else:
        model.encoder.requires_grad_(True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(120):
        i = torch.randint(0, 480, (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"{step + 1}: {loss.item():.4f}")


def gradual(fault):
    """A stage more each few steps, from the head down."""
    x, y = points(512, 16, 1.2)
    stages = nn.ModuleList([nn.Linear(16, 48), nn.Linear(48, 48), nn.Linear(48, 48), nn.Linear(48, CLASSES)])
    for stage in stages[:-1]:
        stage.requires_grad_(False)
    if fault == "only-at-first":
        optimizer = torch.optim.Adam([p for p in stages.parameters() if p.requires_grad], lr=2e-3)
    else:
        optimizer = torch.optim.Adam(stages.parameters(), lr=2e-3)
    for step in range(160):
        if step in (40, 60, 80):
            stages[2 - (40, 60, 80).index(step)].requires_grad_(True)
        i = torch.randint(0, 512, (32,))
        h = x[i]
        for stage in stages[:-1]:
            h = torch.relu(stage(h))
        loss = F.cross_entropy(stages[-1](h), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}")


def adversarial(fault):
    """Generator and critic: the one is frozen while the other learns."""
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    g_opt = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
    c_opt = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
    target = torch.tensor([1.5, -1.0])
    for step in range(150):
        if step > 0 and fault != "never-thawed":
            critic.requires_grad_(True)
        real = target + 0.2 * torch.randn(64, 2)
        fake = generator(torch.randn(64, 4))
        if step == 0 or next(critic.parameters()).requires_grad:
            c_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
            c_opt.zero_grad()
            c_loss.backward()
            c_opt.step()
        critic.requires_grad_(False)
        g_loss = F.softplus(-critic(fake)).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        if step % 30 == 29:
            print(f"[{step + 1}] critic {c_loss.item():.3f} generator {g_loss.item():.3f} {fake.mean(0).tolist()}")


if __name__ == "__main__":
    run(
        {
            "by-name": by_name,
            "warm-head": warm_head,
            "unfreeze-module": unfreeze_module,
            "gradual": gradual,
            "adversarial": adversarial,
        }
    )
