"""Networks beside the one that is trained: python copies.py byol|mean-teacher|distillation|swa."""

from __future__ import annotations

import copy
import sys

import torch
from learning import CLASSES, pictures, report
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn


def convolutions(out: int, width: int = 24) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, out),
    )  # fmt: skip


def changed(images: torch.Tensor) -> torch.Tensor:
    """Return pictures that look a little different."""
    return images + 0.2 * torch.randn_like(images) + 0.2 * torch.randn(len(images), 1, 1, 1)


def byol(images: torch.Tensor) -> None:
    """Predict what a slow copy sees in another view."""
    online = nn.Sequential(convolutions(64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
    predictor = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
    target = copy.deepcopy(online)
    for parameter in target.parameters():
        parameter.requires_grad = False
    optimizer = torch.optim.AdamW([*online.parameters(), *predictor.parameters()], lr=2e-3)
    losses = []
    for step in range(40):
        batch = images[torch.arange(32) + step * 32 % 128]
        first, second = changed(batch), changed(batch)
        with torch.no_grad():
            seen = target(first), target(second)
        said = predictor(online(second)), predictor(online(first))
        loss = 2 - sum(F.cosine_similarity(a, b).mean() for a, b in zip(said, seen, strict=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.mul_(0.97).add_(fast, alpha=0.03)
        losses.append(loss.item())
    report(losses, online, predictor, target, optimizer)


def mean_teacher(images: torch.Tensor, labels: torch.Tensor) -> None:
    """Few labels; a teacher that is an average of the past says the rest."""
    student = convolutions(CLASSES)
    teacher = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    losses = []
    for step in range(40):
        rows = torch.arange(32) + step * 32 % 128
        with torch.no_grad():
            believed = teacher(changed(images[rows])).softmax(1)
        logits = student(changed(images[rows]))
        known = F.cross_entropy(logits[:8], labels[rows[:8]])
        loss = known + 0.5 * F.mse_loss(logits.softmax(1), believed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        teacher.update_parameters(student)
        losses.append(loss.item())
    report(losses, student, teacher, optimizer)


def distillation(images: torch.Tensor, labels: torch.Tensor) -> None:
    """A large network is trained first, then a small one learns from it."""
    teacher, losses = convolutions(CLASSES, 32), []
    optimizer = torch.optim.Adam(teacher.parameters(), lr=2e-3)
    for step in range(20):
        rows = torch.arange(32) + step * 32 % 128
        optimizer.zero_grad()
        F.cross_entropy(teacher(images[rows]), labels[rows]).backward()
        optimizer.step()
    teacher.eval().requires_grad_(False)
    student = convolutions(CLASSES, 8)
    optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
    for step in range(40):
        rows = torch.arange(32) + step * 32 % 128
        logits = student(images[rows])
        soft = F.kl_div((logits / 2).log_softmax(1), (teacher(images[rows]) / 2).log_softmax(1), log_target=True)
        loss = F.cross_entropy(logits, labels[rows]) + 4 * soft
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, student, teacher, optimizer, steps=60)


def swa(images: torch.Tensor, labels: torch.Tensor) -> None:
    """An average of the last weights, whose statistics are made anew at the end."""
    model, losses = convolutions(CLASSES), []
    average = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = SWALR(optimizer, swa_lr=0.02, anneal_epochs=5)
    for step in range(40):
        rows = torch.arange(32) + step * 32 % 128
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        if step >= 25:
            average.update_parameters(model)
            schedule.step()
        losses.append(loss.item())
    update_bn(images.split(32), average)
    report(losses, model, average, optimizer)


torch.manual_seed(10)
images, labels = pictures(128, 16)
if sys.argv[1] == "byol":
    byol(images)
else:
    {"mean-teacher": mean_teacher, "distillation": distillation, "swa": swa}[sys.argv[1]](images, labels)
