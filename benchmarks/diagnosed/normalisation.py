from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures
from waves import gratings


class ConvNet(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16, **options)
        self.conv2 = nn.Conv2d(16, 32, 3, 2, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(32, **options)
        self.fc = nn.Linear(128, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 2).flatten(1))


def evaluate(model, images, labels):
    model.eval()
    with torch.no_grad():
        out = model(images)
    model.train()
    return F.cross_entropy(out, labels).item(), (out.argmax(1) == labels).float().mean().item()


def classifier(fault):
    """Bright pictures, which are not centred."""
    images, labels = gratings(480)
    images = 3.0 * images + 5.0
    batch_size, options = 8, {}
    if fault == "momentum-zero":
        options = {"momentum": 0.0}
    if fault == "momentum-of-keras":
        options = {"momentum": 0.99, "eps": 1e-3}
    if fault == "batch-of-one":
        batch_size = 1
    model = ConvNet(**options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002 * batch_size**0.5, momentum=0.9)
    for epoch in range(6 if batch_size > 1 else 1):
        for i in torch.randperm(400).split(batch_size):
            loss = F.cross_entropy(model(images[i]), labels[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        val, acc = evaluate(model, images[400:], labels[400:])
        print(f"epoch {epoch} train {loss.item():.4f} val {val:.4f} acc {acc:.3f}")


def domains(fault):
    """Source pictures with labels, target pictures of another camera in batches of their own."""
    images, labels = pictures(320, 16)
    cameras = 4.0 * images + 8.0
    model, norms = ConvNet(), None
    if fault != "one-norm-for-both":
        norms = [(nn.BatchNorm2d(16), nn.BatchNorm2d(32)) for _ in range(2)]

    def forward(x, domain):
        if norms is not None:
            model.bn1, model.bn2 = norms[domain]
        return model(x)

    parameters = list(model.parameters())
    if norms is not None:
        parameters = [p for p in parameters if p.dim() != 1 or len(p) == CLASSES]
        parameters += [p for pair in norms for norm in pair for p in norm.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    for step in range(100):
        i, j = torch.randint(0, 320, (32,)), torch.randint(0, 320, (32,))
        supervised = F.cross_entropy(forward(images[i], 0), labels[i])
        p = forward(cameras[j], 1).softmax(1)
        entropy = -(p * p.clamp_min(1e-6).log()).sum(1).mean()
        loss = supervised + 0.1 * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            model.eval()
            with torch.no_grad():
                source = F.cross_entropy(forward(images, 0).float(), labels) if norms is None else None
                if norms is not None:
                    for pair in norms:
                        for norm in pair:
                            norm.eval()
                    source = F.cross_entropy(forward(images, 0), labels)
            model.train()
            if norms is not None:
                for pair in norms:
                    for norm in pair:
                        norm.train()
            print(f"step {step + 1} supervised {supervised.item():.4f} evaluated {source.item():.4f}")


class Regressor(nn.Module):
    def __init__(self, normed):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 1))
        self.norm = nn.LayerNorm(1) if normed else nn.Identity()

    def forward(self, x):
        return self.norm(self.body(x))


def one_unit(fault):
    """Regression to a single number."""
    x = torch.randn(512, 8)
    y = torch.tanh(x @ torch.randn(8, 1)) + 0.05 * torch.randn(512, 1)
    model = Regressor(normed=fault == "norm-of-one-unit")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(120):
        i = torch.randint(0, 512, (32,))
        loss = F.mse_loss(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"step {step + 1} mse {loss.item():.5f}")


def pooled(fault):
    """Global pooling, then a bottleneck with a norm, as in squeeze and excitation."""
    images, labels = pictures(320, 16)
    quarters = nn.AdaptiveAvgPool2d(2)
    conv = nn.Conv2d(3, 16, 3, 1, 1)
    squeeze = nn.Conv2d(64, 32, 1)
    norm = nn.GroupNorm(32, 32) if fault == "a-group-for-each-channel" else nn.GroupNorm(4, 32)
    fc = nn.Linear(32, CLASSES)
    parts = nn.ModuleDict({"conv": conv, "squeeze": squeeze, "norm": norm, "fc": fc})
    optimizer = torch.optim.Adam(parts.parameters(), lr=3e-3)
    for step in range(100):
        i = torch.randint(0, 320, (32,))
        h = quarters(F.relu(conv(images[i]))).flatten(1)[:, :, None, None]
        h = F.relu(norm(squeeze(h))).flatten(1)
        loss = F.cross_entropy(fc(h), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"{step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    run({"classifier": classifier, "domains": domains, "one-unit": one_unit, "pooled": pooled})
