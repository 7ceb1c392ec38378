from __future__ import annotations

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points, sentences
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def mlp(inputs, outputs, width=48):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


def focal(fault):
    """One row in ten is positive; what is easy counts little."""
    x, four = points(800, 12, 1.0)
    y = ((four == 0) & (torch.rand(800) < 0.4)).float()
    x = x + 2.0 * y[:, None]
    net = mlp(12, 1)
    nn.init.constant_(net[2].bias, -2.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(150):
        i = torch.randint(0, 800, (64,))
        logit = net(x[i]).squeeze(1)
        p = torch.sigmoid(logit)
        right = p * y[i] + (1 - p) * (1 - y[i])
        loss = ((1 - right) ** 2 * F.binary_cross_entropy_with_logits(logit, y[i], reduction="none")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.5f}")


def gaussian(fault):
    """The likelihood of a density may exceed one, and its negative logarithm be negative."""
    x = torch.rand(600, 1) * 4 - 2
    y = torch.sin(2 * x) + (0.02 + 0.03 * x.abs()) * torch.randn(600, 1)
    net = mlp(1, 2, 64)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(300):
        i = torch.randint(0, 600, (64,))
        mean, log_scale = net(x[i]).chunk(2, 1)
        loss = F.gaussian_nll_loss(mean, y[i], (2 * log_scale.clamp(-5, 5)).exp())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"{step + 1} nll {loss.item():.4f}")


def flow(fault):
    """The density of points, by an affine coupling."""
    net = nn.ModuleList([mlp(1, 2, 32) for _ in range(4)])
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(200):
        a = torch.randn(128, 1)
        z = torch.cat([a, 0.5 * a**2 + 0.1 * torch.randn(128, 1)], 1) * 0.3
        logdet = torch.zeros(128)
        for k, layer in enumerate(net):
            keep, change = (z[:, :1], z[:, 1:]) if k % 2 else (z[:, 1:], z[:, :1])
            shift, scale = layer(keep).chunk(2, 1)
            change = change * scale.tanh().exp() + shift
            logdet = logdet + scale.tanh().squeeze(1)
            z = torch.cat([keep, change], 1) if k % 2 else torch.cat([change, keep], 1)
        loss = (0.5 * (z**2).sum(1) + math.log(2 * math.pi) - logdet).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"{step + 1} nll {loss.item():.4f}")


def ordinal(fault):
    """Stars from one to five: cumulative logits share one number of the network."""
    x = torch.randn(600, 10)
    score = x @ torch.randn(10) * 0.7
    stars = torch.bucketize(score, torch.tensor([-1.5, -0.5, 0.5, 1.5]))
    net = mlp(10, 1)
    cuts = nn.Parameter(torch.tensor([-1.0, -0.3, 0.3, 1.0]))
    optimizer = torch.optim.Adam([*net.parameters(), cuts], lr=5e-3)
    above = (stars[:, None] > torch.arange(4)).float()
    for step in range(150):
        i = torch.randint(0, 600, (64,))
        loss = F.binary_cross_entropy_with_logits(net(x[i]) - cuts, above[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f}")


def counted(fault):
    """Counts are whole numbers, and their regression is meant."""
    x = torch.randn(600, 8)
    rate = (0.4 * x[:, 0].tanh() + 0.4 * x[:, 1].tanh() + 1).exp()
    y = torch.poisson(rate)
    net = mlp(8, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(200):
        i = torch.randint(0, 600, (64,))
        loss = F.poisson_nll_loss(net(x[i]).squeeze(1), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"{step + 1} {loss.item():.4f}")


def ages(fault):
    """Ages in years, as whole numbers, by a mean squared error, on purpose."""
    x = torch.randn(600, 8)
    y = (40 + 12 * torch.tanh(x @ torch.randn(8) * 0.4) + torch.randn(600)).round()
    net = mlp(8, 1)
    nn.init.constant_(net[2].bias, 40.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(200):
        i = torch.randint(0, 600, (64,))
        loss = F.mse_loss(net(x[i]).squeeze(1), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"{step + 1} {loss.item():.3f}")


def converged(fault):
    """Fine-tuning on what the network knows already."""
    x, y = points(512, 16, 0.4)
    net = mlp(16, CLASSES)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(260):
        if step == 160:
            optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
            print("fine-tuning")
        i = torch.randint(0, 512, (64,))
        loss = F.cross_entropy(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"{step + 1} {loss.item():.6f}")


def decayed(fault):
    """Weight decay on everything, norms and biases among it."""
    images, labels = pictures(320, 16)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.BatchNorm2d(16),
        nn.ReLU(), nn.Flatten(), nn.Linear(256, CLASSES),
    )  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-3)
    for step in range(80):
        i = torch.randint(0, 320, (32,))
        loss = F.cross_entropy(net(images[i]), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 16 == 15:
            print(f"{step + 1} {loss.item():.5f}")


def exact(fault):
    """Hardly any noise: the loss becomes tiny."""
    x = torch.randn(400, 6)
    y = x @ torch.randn(6, 1) + 1e-4 * torch.randn(400, 1)
    net = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(150):
        i = torch.randint(0, 400, (64,))
        loss = F.mse_loss(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.3e}")


def noisy(fault):
    """Two rows at a time, and labels of which a third is wrong."""
    x, y = points(600, 16, 1.0)
    wrong = torch.rand(600) < 0.3
    y = torch.where(wrong, torch.randint(0, CLASSES, (600,)), y)
    net = mlp(16, CLASSES)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    window = []
    for step in range(400):
        i = torch.randint(0, 600, (2,))
        loss = F.cross_entropy(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        window.append(loss.item())
        if step % 80 == 79:
            print(f"{step + 1} {sum(window) / len(window):.4f}")
            window.clear()


def imbalanced(fault):
    """A rare class is drawn more often."""
    x, y = points(800, 16, 1.0)
    keep = (y != 3) | (torch.rand(800) < 0.1)
    x, y = x[keep], y[keep]
    weights = 1.0 / torch.bincount(y, minlength=CLASSES).float()[y]
    loader = DataLoader(TensorDataset(x, y), 32, sampler=WeightedRandomSampler(weights.tolist(), len(y)))
    net = mlp(16, CLASSES)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for epoch in range(8):
        for xb, yb in loader:
            loss = F.cross_entropy(net(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"{epoch} {loss.item():.4f}")


def tasks(fault):
    """Two tasks take turns; the other's head has no gradient then."""
    x, y = points(512, 16, 1.0)
    size = x.norm(dim=1, keepdim=True) / 4
    trunk, kind, length = nn.Sequential(nn.Linear(16, 48), nn.ReLU()), nn.Linear(48, CLASSES), nn.Linear(48, 1)
    parts = nn.ModuleDict({"trunk": trunk, "kind": kind, "length": length})
    optimizer = torch.optim.Adam(parts.parameters(), lr=3e-3)
    for step in range(160):
        i = torch.randint(0, 512, (32,))
        if step % 4 == 3:
            loss = F.mse_loss(length(trunk(x[i])), size[i])
        else:
            loss = F.cross_entropy(kind(trunk(x[i])), y[i])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 32 in (30, 31):
            print(f"{step + 1} {'length' if step % 4 == 3 else 'kind'} {loss.item():.4f}")


class Experts(nn.Module):
    def __init__(self, count=6):
        super().__init__()
        self.gate = nn.Linear(16, count)
        self.experts = nn.ModuleList(mlp(16, CLASSES, 24) for _ in range(count))

    def forward(self, x):
        probability, chosen = self.gate(x).softmax(1).max(1)
        out = x.new_zeros(len(x), CLASSES)
        for k, expert in enumerate(self.experts):
            rows = torch.nonzero(chosen == k).flatten()
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * probability[rows, None])
        return out


def experts(fault):
    """One expert a row; some have no rows in a step."""
    x, y = points(512, 16, 1.0)
    net = Experts()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(150):
        i = torch.randint(0, 512, (12,))
        loss = F.cross_entropy(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f}")


def rows(fault):
    """A table of which most rows are never read."""
    table, head = nn.Embedding(5000, 16), nn.Linear(16, CLASSES)
    words = torch.randint(0, 60, (400,)) * 7
    labels = words % CLASSES
    optimizer = torch.optim.Adam([*table.parameters(), *head.parameters()], lr=1e-2)
    for step in range(100):
        i = torch.randint(0, 400, (64,))
        loss = F.cross_entropy(head(table(words[i])), labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"{step + 1} {loss.item():.4f}")


def lbfgs(fault):
    """Each step evaluates the loss many times."""
    x = torch.linspace(-2, 2, 120)[:, None]
    y = torch.sin(3 * x)
    net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    for step in range(40):
        loss = optimizer.step(closure)
        if step % 8 == 7:
            print(f"{step + 1} {loss.item():.6f}")


def compiled(fault):
    """A compiled network; the backend runs what was traced as it is."""
    x, y = points(512, 16, 1.2)
    net = mlp(16, CLASSES)
    fast = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for step in range(100):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(fast(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"{step + 1} {loss.item():.4f}")


def recomputed(fault):
    """Activations are computed again, by the newer kind of checkpoints."""
    x, y = points(512, 16, 1.2)
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3))
    head = nn.Linear(16, CLASSES)
    optimizer = torch.optim.Adam([*blocks.parameters(), *head.parameters()], lr=5e-3)
    for step in range(120):
        i = torch.randint(0, 512, (32,))
        h = x[i]
        for block in blocks:
            h = checkpoint(block, h, use_reentrant=False)
        loss = F.cross_entropy(head(h), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"{step + 1} {loss.item():.4f}")


def functional(fault):
    """Parameters are a dictionary, and the update is by hand."""
    x, y = points(512, 16, 1.2)
    net = mlp(16, CLASSES)
    weights = {n: p.detach().clone() for n, p in net.named_parameters()}

    def loss_of(weights, x, y):
        return F.cross_entropy(torch.func.functional_call(net, weights, (x,)), y)

    step_of = torch.func.grad_and_value(loss_of)
    for step in range(150):
        i = torch.randint(0, 512, (32,))
        slopes, loss = step_of(weights, x[i], y[i])
        weights = {n: w - 0.1 * slopes[n] for n, w in weights.items()}
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f}")


def straight_through(fault):
    """Rounded activations whose gradient is passed on."""
    x, y = points(512, 16, 1.0)
    first, last = nn.Linear(16, 48), nn.Linear(48, CLASSES)
    optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=3e-3)
    for step in range(150):
        i = torch.randint(0, 512, (32,))
        h = torch.sigmoid(first(x[i]))
        h = h + (h.round() - h).detach()
        loss = F.cross_entropy(last(h), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.4f}")


def input_optimised(fault):
    """The picture is what is optimised; the network is fixed and in no optimizer."""
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
    net.requires_grad_(False)
    wanted = net(torch.randn(1, 3, 16, 16))
    picture = torch.zeros(1, 3, 16, 16, requires_grad=True)
    optimizer = torch.optim.Adam([picture], lr=0.05)
    for step in range(150):
        loss = F.mse_loss(net(picture), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1} {loss.item():.5f}")


def diffusion(fault):
    """Noise is predicted; the target is random by intention."""
    net = nn.Sequential(nn.Linear(3, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 2))
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    window = []
    for step in range(300):
        angle = 6.2832 * torch.rand(128, 1)
        clean = torch.cat([angle.cos(), angle.sin()], 1)
        t = torch.rand(128, 1)
        noise = torch.randn_like(clean)
        noised = (1 - t) ** 0.5 * clean + t**0.5 * noise
        loss = F.mse_loss(net(torch.cat([noised, t], 1)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        window.append(loss.item())
        if step % 60 == 59:
            print(f"{step + 1} {sum(window) / 60:.4f}")
            window.clear()


def packed(fault):
    """Sequences of several lengths; where a sentence has ended there is nothing to learn."""
    text = sentences(300, 12, 20)
    lengths = torch.randint(4, 13, (300,))
    emb, rnn, out = nn.Embedding(20, 24), nn.LSTM(24, 48, batch_first=True), nn.Linear(48, 20)
    parts = nn.ModuleList([emb, rnn, out])
    optimizer = torch.optim.Adam(parts.parameters(), lr=5e-3)
    for step in range(100):
        i = torch.randint(0, 300, (24,))
        pack = nn.utils.rnn.pack_padded_sequence(emb(text[i]), lengths[i], batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(rnn(pack)[0], batch_first=True, total_length=12)
        valid = torch.arange(1, 12)[None] < lengths[i][:, None]
        target = text[i][:, 1:].masked_fill(~valid, -100)
        loss = F.cross_entropy(out(h[:, :-1]).transpose(1, 2), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"{step + 1} {loss.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "focal": focal,
            "gaussian": gaussian,
            "flow": flow,
            "ordinal": ordinal,
            "counted": counted,
            "ages": ages,
            "converged": converged,
            "decayed": decayed,
            "exact": exact,
            "noisy": noisy,
            "imbalanced": imbalanced,
            "tasks": tasks,
            "experts": experts,
            "rows": rows,
            "lbfgs": lbfgs,
            "compiled": compiled,
            "recomputed": recomputed,
            "functional": functional,
            "straight-through": straight_through,
            "input-optimised": input_optimised,
            "diffusion": diffusion,
            "packed": packed,
        }
    )
