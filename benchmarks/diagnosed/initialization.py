from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points


class Gated(nn.Module):
    """A layer of our own."""

    def __init__(self, inputs, outputs, fault):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.gate = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        if fault != "never-ran":
            self.reset_parameters()

    def reset_parameters(self):
        nn.init.xavier_uniform_(self.weight)
        nn.init.xavier_uniform_(self.gate)

    def forward(self, x):
        return (x @ self.weight.T + self.bias) * torch.sigmoid(x @ self.gate.T)


def own_layer(fault):
    x, y = points(512, 16, 1.2)
    model = nn.Sequential(Gated(16, 48, fault), nn.ReLU(), Gated(48, 24, fault), nn.ReLU(), nn.Linear(24, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(150):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1}: {loss.item():.4f}")


class DeepNet(nn.Module):
    def __init__(self, width=64, depth=10, activation=nn.Tanh):
        super().__init__()
        layers = [nn.Linear(16, width), activation()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), activation()]
        self.layers = nn.Sequential(*layers)
        self.out = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.out(self.layers(x))


def deep(fault):
    """Ten layers, initialised by a function for all of them."""
    x, y = points(512, 16, 1.0)
    model = DeepNet()

    def init_weights(m):
        if isinstance(m, nn.Linear):
            if fault == "too-large":
                nn.init.normal_(m.weight, 0.0, 1.0)
            elif fault == "too-small":
                nn.init.normal_(m.weight, 0.0, 0.005)
            else:
                nn.init.xavier_normal_(m.weight)
            nn.init.zeros_(m.bias)

    model.apply(init_weights)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(10):
        total = 0.0
        for i in torch.randperm(512).split(32):
            loss = F.cross_entropy(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 16
        print(f"epoch {epoch + 1} loss {total:.4f}")


def constant(fault):
    """Weights for a small network, set by hand."""
    x = torch.randn(600, 6)
    y = (x[:, :1] * x[:, 1:2]).tanh() + 0.5 * torch.relu(x[:, 2:3])
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
    for layer in (net[0], net[2]):
        if fault == "all-units-equal":
            nn.init.constant_(layer.weight, 0.1)
        else:
            nn.init.uniform_(layer.weight, -0.5, 0.5)
        nn.init.zeros_(layer.bias)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(250):
        i = torch.randint(0, 600, (64,))
        loss = F.mse_loss(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1} loss {loss.item():.5f}")


def rectified(fault):
    """A bias for the hidden units."""
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
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
            if fault == "all-units-dead":
                nn.init.constant_(m.bias, -20.0)
            else:
                nn.init.constant_(m.bias, 0.1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for step in range(100):
        i = torch.randint(0, 320, (32,))
        loss = F.cross_entropy(net(images[i]), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1} | {loss.item():.4f}")


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


class ZeroSign(Sign):
    @staticmethod
    def backward(ctx, grad):
        return torch.zeros_like(grad)


def binarised(fault):
    """Hidden units of -1 and 1."""
    x, y = points(512, 16, 1.0)
    first, last = nn.Linear(16, 64), nn.Linear(64, CLASSES)
    net = nn.ModuleDict({"first": first, "last": last})
    sign = ZeroSign.apply if fault == "zero-backward" else Sign.apply
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(120):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(last(sign(first(x[i]))), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"step {step + 1} loss {loss.item():.4f}")


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def zero_residuals(fault):
    """Each block begins as the identity: its first layer has no gradient in the first step."""
    x, y = points(512, 16, 1.2)
    net = nn.Sequential(nn.Linear(16, 32), *(Residual(32) for _ in range(4)), nn.Linear(32, CLASSES))
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for step in range(120):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"{step + 1} {loss.item():.4f}")


def zero_head(fault):
    """The last layer begins at zero, so that the first loss is that of guessing."""
    x, y = points(512, 16, 1.2)
    net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, CLASSES))
    nn.init.zeros_(net[2].weight)
    nn.init.zeros_(net[2].bias)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
    for step in range(120):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"{step + 1} {loss.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "own-layer": own_layer,
            "deep": deep,
            "constant": constant,
            "rectified": rectified,
            "binarised": binarised,
            "zero-residuals": zero_residuals,
            "zero-head": zero_head,
        }
    )
