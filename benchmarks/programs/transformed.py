"""Rewritten networks: python transformed.py compiled|compiled-step|quantized|traced|functional|normed|curve."""

from __future__ import annotations

import sys
import warnings

import torch
from learning import CLASSES, pictures, points, report
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.nn.utils.parametrizations import spectral_norm, weight_norm


def mlp(width: int = 64) -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, CLASSES))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 40, *, forward=None, update=None) -> None:
    """Classify points."""
    rows, labels = points(512, 16)
    losses = []
    for step in range(steps):
        chosen = torch.arange(64) + step * 64 % 512
        loss = F.cross_entropy((forward or model)(rows[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        (update or optimizer.step)()
        losses.append(loss.item())
    report(losses, model, optimizer)


def compiled() -> None:
    """The forward and the backward pass."""
    model = mlp()
    train(model, torch.optim.AdamW(model.parameters(), lr=3e-3), forward=torch.compile(model, backend="aot_eager"))


def compiled_step() -> None:
    """The optimizer, too."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = torch.compile(optimizer.step, backend="aot_eager")
    train(model, optimizer, forward=torch.compile(model, backend="eager"), update=lambda: step())


def quantized() -> None:
    """Trained as if it had eight bits already."""
    from torch.ao import quantization

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
            self.conv = nn.Conv2d(3, 16, 3, 2, 1)
            self.norm = nn.BatchNorm2d(16)
            self.relu = nn.ReLU()
            self.conv2 = nn.Conv2d(16, 32, 3, 2, 1)
            self.relu2 = nn.ReLU()
            self.head = nn.Linear(512, CLASSES)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            hidden = self.relu(self.norm(self.conv(self.quant(images))))
            hidden = self.relu2(self.conv2(hidden))
            return self.dequant(self.head(hidden.flatten(1)))

    images, labels = pictures(128, 16)
    model = Network()
    model.train()
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    quantization.fuse_modules_qat(model, [["conv", "norm", "relu"], ["conv2", "relu2"]], inplace=True)
    quantization.prepare_qat(model, inplace=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(40):
        if step == 30:
            model.apply(quantization.disable_observer)
        rows = torch.arange(32) + step * 32 % 128
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


def traced() -> None:
    """TorchScript of a part, which is traced and checked in mid-training."""
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    rows, labels = points(512, 16)
    losses, forward = [], model
    for step in range(40):
        if step == 20:
            forward = torch.jit.trace(model, rows[:4])
        chosen = torch.arange(64) + step * 64 % 512
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(rows[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


def functional() -> None:
    """Learns to learn (MAML): a step of descent inside of the loss, for several tasks at once."""
    model = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def loss_of(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)

    def adapted(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        slopes = torch.func.grad(loss_of)(weights, x[:10], y[:10])
        return loss_of({name: weights[name] - 0.05 * slopes[name] for name in weights}, x[10:], y[10:])

    losses = []
    for _ in range(50):
        height, shift = 1 + torch.rand(8, 1, 1), torch.rand(8, 1, 1)
        x = 4 * torch.rand(8, 20, 1) - 2
        y = height * torch.sin(x + shift)
        weights = dict(model.named_parameters())
        loss = torch.func.vmap(adapted, in_dims=(None, 0, 0))(weights, x, y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


def normed() -> None:
    """Weights that are computed from others; and an optimizer that asks for the loss twice."""
    model = mlp()
    weight_norm(model[0])
    spectral_norm(model[2])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer)


def curve() -> None:
    """LBFGS on a network of sines, with the slope of the curve in the loss."""
    x = torch.linspace(-1, 1, 64).unsqueeze(1).requires_grad_()
    hidden = nn.Linear(1, 32)
    model = nn.Sequential(hidden, nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        y = model(x)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        loss = (slope + 2 * y).square().mean() + (model(torch.zeros(1, 1)) - 1).square().mean()
        loss.backward()
        return loss

    report([optimizer.step(closure).item() for _ in range(20)], model)


warnings.filterwarnings("ignore")
torch.manual_seed(15)
{
    "compiled": compiled,
    "compiled-step": compiled_step,
    "quantized": quantized,
    "traced": traced,
    "functional": functional,
    "normed": normed,
    "curve": curve,
}[sys.argv[1]]()
