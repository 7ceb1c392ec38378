"""Weights that are changed by more than an update: python surgery.py widened|vocabulary|pruned|masked|clamped|...

widened, vocabulary, pruned, masked, clamped, normalised, restarted, averaged-weights, lookahead, unused-rows, stacked.
"""

from __future__ import annotations

import copy
import sys

import torch
from learning import CLASSES, points, report, sentences
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.nn.utils import parametrizations, prune


def network(width: int = 32) -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, CLASSES))


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, losses: list[float]) -> None:
    """Do some steps on the points."""
    for step in range(steps):
        rows = torch.arange(32) + step * 32 % 256
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


def widened() -> None:
    """A hidden layer grows in place between two phases, by new storages of its weights."""
    model, losses = network(), []
    learn(model, torch.optim.Adam(model.parameters(), 3e-3), 15, losses)
    with torch.no_grad():
        first, second = model[0], model[2]
        first.weight.data = torch.cat([first.weight.data, 0.1 * torch.randn(8, 16)])
        first.bias.data = torch.cat([first.bias.data, torch.zeros(8)])
        second.weight.data = torch.cat([second.weight.data, 0.1 * torch.randn(32, 8)], 1)
    for parameter in model.parameters():
        parameter.grad = None
    learn(model, torch.optim.Adam(model.parameters(), 3e-3), 15, losses)
    report(losses, model)


def vocabulary() -> None:
    """Words are added to a language model that was trained for a while."""
    import transformers

    config = transformers.GPT2Config(vocab_size=40, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    model, losses = transformers.GPT2LMHeadModel(config), []
    for words in (40, 48):
        model.resize_token_embeddings(words, mean_resizing=False)
        optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
        text = sentences(16, 12, words)
        for _ in range(15):
            optimizer.zero_grad()
            loss = model(text, labels=text).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            del loss  # its graph knows the size of the vocabulary
    report(losses, model)


def pruned() -> None:
    """The smallest half of each weight is set to zero by a mask, and training goes on."""
    model, losses = network(), []
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    learn(model, optimizer, 15, losses)
    for layer in (model[0], model[2]):
        prune.l1_unstructured(layer, "weight", 0.5)
    learn(model, torch.optim.Adam(model.parameters(), 3e-3), 15, losses)
    for layer in (model[0], model[2]):
        prune.remove(layer, "weight")
    report(losses, model)


def masked() -> None:
    """A lottery ticket: weights go back to where they began, and those without a part in it stay zero."""
    model, losses = network(), []
    start = copy.deepcopy(model.state_dict())
    learn(model, torch.optim.Adam(model.parameters(), 3e-3), 15, [])
    masks = {name: p.abs() > p.abs().median() for name, p in model.named_parameters() if p.dim() == 2}
    model.load_state_dict(start)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(30):
        with torch.no_grad():
            for name, mask in masks.items():
                model.get_parameter(name).mul_(mask)
        rows = torch.arange(32) + step * 32 % 256
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs[rows]), labels[rows])
        loss.backward()
        for name, mask in masks.items():
            model.get_parameter(name).grad.mul_(mask)
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer, steps=45)


def clamped() -> None:
    """Weights are kept within bounds after each update."""
    model, losses = network(), []
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(30):
        rows = torch.arange(32) + step * 32 % 256
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.clamp_(-0.4, 0.4)
        losses.append(loss.item())
    report(losses, model, optimizer)


def normalised() -> None:
    """Weights that are computed of others: spectral norm, weight norm and an orthogonal one."""
    model, losses = network(), []
    parametrizations.spectral_norm(model[0])
    parametrizations.weight_norm(model[2])
    parametrizations.orthogonal(model[4])
    learn(model, torch.optim.Adam(model.parameters(), 1e-2), 30, losses)
    report(losses, model)


def restarted() -> None:
    """The head is made anew in the middle, and a block is replaced by another."""
    model, losses = network(), []
    learn(model, torch.optim.Adam(model.parameters(), 3e-3), 10, losses)
    model[4].reset_parameters()
    learn(model, torch.optim.Adam(model[4].parameters(), 3e-3), 10, [])
    model[2] = nn.Linear(32, 32)
    learn(model, torch.optim.Adam(model.parameters(), 3e-3), 20, losses)
    report(losses, model, steps=40)


def averaged_weights() -> None:
    """An average of the weights takes their place for evaluation, and gives it back."""
    model, losses, shown = network(), [], []
    average = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(30):
        rows = torch.arange(32) + step * 32 % 256
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        torch._foreach_mul_(average, 0.9)
        torch._foreach_add_(average, [p.detach() for p in model.parameters()], alpha=0.1)
        if step % 5 == 4:
            kept = [p.data for p in model.parameters()]
            for parameter, mean in zip(model.parameters(), average, strict=True):
                parameter.data = mean
            with torch.no_grad():
                shown.append(F.cross_entropy(model(inputs), labels).item())
            for parameter, value in zip(model.parameters(), kept, strict=True):
                parameter.data = value
        losses.append(loss.item())
    print(shown)
    report(losses, model, optimizer)


def lookahead() -> None:
    """Every fifth step the weights go half-way back to where they were."""
    model, losses = network(), []
    slow = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    for step in range(40):
        rows = torch.arange(32) + step * 32 % 256
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            with torch.no_grad():
                for mean, parameter in zip(slow, model.parameters(), strict=True):
                    mean.lerp_(parameter, 0.5)
                    parameter.copy_(mean)
        losses.append(loss.item())
    report(losses, model, optimizer)


def unused_rows() -> None:
    """An embedding most of whose rows are never read, with sparse gradients."""
    table, head, losses = nn.Embedding(2000, 16, sparse=True), nn.Linear(16, CLASSES), []
    optimizers = torch.optim.SparseAdam(table.parameters(), 1e-2), torch.optim.Adam(head.parameters(), 1e-2)
    words = torch.randint(0, 50, (256, 6))
    kinds = words[:, 0] % CLASSES
    for step in range(30):
        rows = torch.arange(64) + step * 64 % 256
        loss = F.cross_entropy(head(table(words[rows])[:, 0]), kinds[rows])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    report(losses, table, head)


def stacked() -> None:
    """A network grows deeper: each phase adds a block that is a copy of the last one."""
    blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU())])
    stem, head, losses = nn.Linear(16, 32), nn.Linear(32, CLASSES), []
    for _ in range(3):
        parts = nn.ModuleList([stem, blocks, head])
        optimizer = torch.optim.Adam(parts.parameters(), 3e-3)
        for step in range(12):
            rows = torch.arange(32) + step * 32 % 256
            hidden = stem(inputs[rows])
            for block in blocks:
                hidden = hidden + block(hidden)
            optimizer.zero_grad()
            loss = F.cross_entropy(head(hidden), labels[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        blocks.append(copy.deepcopy(blocks[-1]))
    report(losses, stem, blocks, head)


torch.manual_seed(21)
inputs, labels = points(288, 16)
{
    "widened": widened, "vocabulary": vocabulary, "pruned": pruned, "masked": masked, "clamped": clamped,
    "normalised": normalised, "restarted": restarted, "averaged-weights": averaged_weights, "lookahead": lookahead,
    "unused-rows": unused_rows, "stacked": stacked,
}[sys.argv[1]]()  # fmt: skip
