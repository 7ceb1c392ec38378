"""Unusual objectives and sizes: python objectives.py converged|converged-exactly|accumulation-32|many-parameters|...

converged, converged-exactly, accumulation-32, many-parameters, small-linears, dino, simclr, barlow, wgan-gp, experts,
maml, pinn, energy, straight-through, gumbel, hypernetwork, lbfgs, sharpness, ctc, packed.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
from learning import CLASSES, points, report
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F  # noqa: N812 - as everybody calls it


def network(width: int = 32, out: int = CLASSES) -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, out))


def batch(step: int, count: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.arange(count) + step * count % 256
    return inputs[rows], labels[rows]


def converged() -> None:
    """A regression that reaches its target, to the last bits, and goes on for a while."""
    model, losses = nn.Linear(4, 1), []
    values = torch.randn(64, 4)
    target = values @ torch.tensor([[1.0], [-2.0], [0.5], [0.25]]) + 1
    optimizer = torch.optim.SGD(model.parameters(), 0.3)
    for _ in range(160):
        optimizer.zero_grad()
        loss = F.mse_loss(model(values), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


def converged_exactly() -> None:
    """A margin that all points keep: the loss and all gradients become exactly 0, and training goes on."""
    model, losses = nn.Linear(2, 1), []
    values = torch.cat([torch.randn(32, 2) + 4, torch.randn(32, 2) - 4])
    sign = torch.cat([torch.ones(32), -torch.ones(32)])
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for _ in range(150):
        optimizer.zero_grad()
        loss = F.relu(1 - sign * model(values)[:, 0]).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


def accumulation_32() -> None:
    """An update after every 32 batches."""
    model, losses = network(), []
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for step in range(12 * 32):
        loss = F.cross_entropy(model(batch(step, 8)[0]), batch(step, 8)[1])
        (loss / 32).backward()
        losses.append(loss.item())
        if step % 32 == 31:
            optimizer.step()
            optimizer.zero_grad()
    report(losses, model, optimizer, steps=12)


class Scaled(nn.Module):
    """Many small parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.full((2,), 0.1)) for _ in range(20_000))

    def forward(self, factor: torch.Tensor) -> torch.Tensor:
        return torch.stack(list(self.scales)) * factor


def many_parameters() -> None:
    """Twenty thousand parameters, each small."""
    model, losses = Scaled(), []
    optimizer = torch.optim.SGD(model.parameters(), 2e4)
    for _ in range(4):
        optimizer.zero_grad()
        loss = (model(torch.ones(1)) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model)


def small_linears() -> None:
    """A chain of four hundred small layers."""
    layers, losses = nn.ModuleList(nn.Linear(4, 4) for _ in range(400)), []
    head = nn.Linear(4, CLASSES)
    stem = nn.Linear(16, 4)
    optimizer = torch.optim.Adam([*stem.parameters(), *layers.parameters(), *head.parameters()], 1e-3)
    for _ in range(8):
        hidden = stem(batch(0)[0])
        for layer in layers:
            hidden = hidden + 0.05 * torch.tanh(layer(hidden))
        optimizer.zero_grad()
        loss = F.cross_entropy(head(hidden), batch(0)[1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, stem, layers, head)


def dino() -> None:
    """A student follows a centred, sharpened teacher; its last layer is frozen for the first steps."""
    student, losses = network(32, 24), []
    teacher = copy.deepcopy(student).requires_grad_(False)
    centre = torch.zeros(24)
    optimizer = torch.optim.AdamW(student.parameters(), 3e-3)
    for step in range(40):
        values = batch(step)[0]
        first, second = (values + 0.1 * torch.randn_like(values) for _ in range(2))
        with torch.no_grad():
            said = teacher(first)
            target = ((said - centre) / 0.1).softmax(-1)
            centre = 0.9 * centre + 0.1 * said.mean(0)
        loss = -(target * (student(second) / 0.2).log_softmax(-1)).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        if step < 5:
            for parameter in student[-1].parameters():
                parameter.grad = None
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
        losses.append(loss.item())
    report(losses, student, teacher, optimizer, falls_to=1.2)


def simclr() -> None:
    """Two views of a point belong together, all others do not."""
    model, losses = network(32, 16), []
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for step in range(30):
        values = batch(step)[0]
        views = torch.cat([values + 0.1 * torch.randn_like(values) for _ in range(2)])
        codes = F.normalize(model(views), dim=1)
        logits = codes @ codes.T / 0.2
        logits.fill_diagonal_(float("-inf"))
        loss = F.cross_entropy(logits, torch.arange(64).roll(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


def barlow() -> None:
    """The codes of two views are to agree, and their features not to depend on one another."""
    model, losses = nn.Sequential(network(32, 16), nn.BatchNorm1d(16, affine=False)), []
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for step in range(30):
        values = batch(step)[0]
        first, second = (model(values + 0.1 * torch.randn_like(values)) for _ in range(2))
        cross = first.T @ second / len(values)
        loss = (cross.diagonal() - 1).square().sum() + 0.05 * (cross - cross.diagonal().diag()).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


def wgan_gp() -> None:
    """A critic with a gradient penalty; the bias of its last layer never gets a gradient."""
    generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
    critic = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    slow = torch.optim.Adam(generator.parameters(), 1e-3, betas=(0.0, 0.9))
    fast = torch.optim.Adam(critic.parameters(), 3e-3, betas=(0.0, 0.9))
    distances = []
    for step in range(30):
        real = batch(step)[0]
        fake = generator(torch.randn(32, 8)).detach()
        share = torch.rand(32, 1)
        between = (share * real + (1 - share) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        loss = critic(fake).mean() - critic(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
        fast.zero_grad()
        loss.backward()
        fast.step()
        slow.zero_grad()
        made = generator(torch.randn(32, 8))
        (-critic(made).mean()).backward()
        slow.step()
        distances.append((made.mean(0) - inputs.mean(0)).norm().item())
    report(distances, generator, critic, slow, fast, steps=30, falls_to=1.1)


def experts() -> None:
    """A router sends each point to one of four experts; some get none for a while."""
    router, losses = nn.Linear(16, 4), []
    parts = nn.ModuleList(network(16) for _ in range(4))
    optimizer = torch.optim.Adam([*router.parameters(), *parts.parameters()], 5e-3)
    for step in range(40):
        values, classes = batch(step)
        shares = router(values).softmax(-1)
        share, choice = shares.max(-1)
        out = torch.zeros(len(values), CLASSES)
        for number, expert in enumerate(parts):
            rows = (choice == number).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, expert(values[rows]))
        balance = 4 * (shares.mean(0) * F.one_hot(choice, 4).float().mean(0)).sum()
        loss = F.cross_entropy(out * share[:, None], classes) + 0.1 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, router, parts, optimizer)


def maml() -> None:
    """An update within each step is part of what is learnt."""
    model, losses = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1)), []
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(30):
        total = torch.zeros(())
        for _ in range(3):
            slope = torch.rand(()) * 2 + 1
            values = torch.randn(16, 1)
            weights = dict(model.named_parameters())
            inner = F.mse_loss(functional_call(model, weights, values), slope * values)
            steps = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            adapted = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), steps, strict=True)}
            values = torch.randn(16, 1)
            total = total + F.mse_loss(functional_call(model, adapted, values), slope * values)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(total.item())
    report(losses, model, optimizer)


def pinn() -> None:
    """A network that is to solve u'' = -u, by its second derivative."""
    model, losses = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1)), []
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(40):
        x = (3 * torch.rand(32, 1)).requires_grad_()
        u = model(x)
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        edge = torch.zeros(1, 1, requires_grad=True)
        start = model(edge)
        (slope,) = torch.autograd.grad(start.sum(), edge, create_graph=True)
        loss = (second + u).square().mean() + start.square().sum() + (slope - 1).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


def energy() -> None:
    """Points are drawn by Langevin steps through the network, whose parameters have no gradient there."""
    model, losses = network(32, 1), []
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(20):
        values = batch(step)[0]
        drawn = torch.randn_like(values)
        model.requires_grad_(False)
        for _ in range(5):
            drawn = drawn.detach().requires_grad_()
            (slope,) = torch.autograd.grad(model(drawn).sum(), drawn)
            drawn = drawn - 0.5 * slope + 0.05 * torch.randn_like(drawn)
        model.requires_grad_(True)
        real, false = model(values).mean(), model(drawn.detach()).mean()
        loss = real - false + 0.5 * (real.square() + false.square()) + 1
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer, falls_to=1.1)


def straight_through() -> None:
    """Weights of one bit, whose gradient passes the sign."""

    class Sign(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, values: torch.Tensor) -> torch.Tensor:
            context.save_for_backward(values)
            return torch.where(values >= 0, 1.0, -1.0)

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
            (values,) = context.saved_tensors
            return gradient * (values.abs() <= 1)

    class Binary(nn.Linear):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return F.linear(values, Sign.apply(self.weight) * 0.1, self.bias)

    model = nn.Sequential(Binary(16, 64), nn.BatchNorm1d(64), nn.Hardtanh(), Binary(64, CLASSES))
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for step in range(40):
        values, classes = batch(step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


def gumbel() -> None:
    """Choices are drawn hard, and their gradients are soft."""
    chooser, table, losses = nn.Linear(16, 8), nn.Embedding(8, CLASSES), []
    optimizer = torch.optim.Adam([*chooser.parameters(), *table.parameters()], 2e-2)
    for step in range(50):
        values, classes = batch(step)
        choice = F.gumbel_softmax(chooser(values), tau=1.0, hard=True)
        loss = F.cross_entropy(choice @ table.weight, classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, chooser, table, optimizer)


def hypernetwork() -> None:
    """A network makes the weights of another, which has none of its own."""
    codes, maker, losses = nn.Parameter(torch.randn(2, 8)), nn.Linear(8, 16 * 16 + 16), []
    head = nn.Linear(16, CLASSES)
    optimizer = torch.optim.Adam([codes, *maker.parameters(), *head.parameters()], 3e-3)
    for step in range(30):
        values, classes = batch(step)
        for code in codes:
            made = 0.3 * maker(code)
            values = torch.tanh(F.linear(values, made[:256].view(16, 16), made[256:]))
        loss = F.cross_entropy(head(values), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, maker, head, optimizer)


def lbfgs() -> None:
    """Each update evaluates the loss several times."""
    model, losses = network(16), []
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    for _ in range(10):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            return loss

        losses.append(optimizer.step(closure).item())
    report(losses, model)


def sharpness() -> None:
    """Weights go uphill first, and are updated from where they were with the gradient from there."""
    model, losses = network(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for step in range(30):
        values, classes = batch(step)
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            climbs = [0.05 * p.grad / (norm + 1e-12) for p in model.parameters()]
            for parameter, climb in zip(model.parameters(), climbs, strict=True):
                parameter.add_(climb)
        optimizer.zero_grad()
        F.cross_entropy(model(values), classes).backward()
        with torch.no_grad():
            for parameter, climb in zip(model.parameters(), climbs, strict=True):
                parameter.sub_(climb)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    report(losses, model, optimizer)


def ctc() -> None:
    """Letters without their places, for recurrent layers in both directions."""
    model, head, losses = nn.GRU(8, 24, bidirectional=True, batch_first=True), nn.Linear(48, 6), []
    letters = torch.randint(1, 6, (64, 5))
    table = torch.randn(6, 8)
    sound = table[letters.repeat_interleave(4, 1)] + 0.1 * torch.randn(64, 20, 8)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], 1e-2)
    for step in range(30):
        rows = torch.arange(16) + step * 16 % 64
        logits = head(model(sound[rows])[0]).log_softmax(-1).transpose(0, 1)
        lengths = torch.full((16,), 20), torch.full((16,), 5)
        loss = F.ctc_loss(logits, letters[rows], *lengths, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, head, optimizer)


def packed() -> None:
    """Sequences of different lengths, packed, through an LSTM."""
    model, head, losses = nn.LSTM(8, 24, 2, batch_first=True), nn.Linear(24, CLASSES), []
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], 1e-2)
    kinds = torch.randint(0, CLASSES, (96,))
    rows = [torch.randn(5 + number % 7, 8) + kind for number, kind in enumerate(kinds)]
    for step in range(30):
        choice = [(step * 16 + number) % 96 for number in range(16)]
        packed_rows = nn.utils.rnn.pack_sequence([rows[number] for number in choice], enforce_sorted=False)
        _, (hidden, _) = model(packed_rows)
        loss = F.cross_entropy(head(hidden[-1]), kinds[choice])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, head, optimizer)


torch.manual_seed(23)
inputs, labels = points(288, 16)
{
    "converged": converged, "converged-exactly": converged_exactly, "accumulation-32": accumulation_32,
    "many-parameters": many_parameters, "small-linears": small_linears, "dino": dino, "simclr": simclr,
    "barlow": barlow, "wgan-gp": wgan_gp, "experts": experts, "maml": maml, "pinn": pinn, "energy": energy,
    "straight-through": straight_through, "gumbel": gumbel, "hypernetwork": hypernetwork, "lbfgs": lbfgs,
    "sharpness": sharpness, "ctc": ctc, "packed": packed,
}[sys.argv[1]]()  # fmt: skip
