from __future__ import annotations

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points, sentences
from torch.utils.data import DataLoader, Dataset, TensorDataset


def house_prices(fault):
    """Prices in thousands; the network's last layer is a sigmoid for prices between 0 and 1."""
    rng = np.random.default_rng(int(torch.randint(0, 1000, (1,))))
    features = rng.normal(size=(600, 8)).astype(np.float32)
    price = 200 + 40 * np.tanh(features @ rng.normal(size=8)) + 3 * rng.normal(size=600)
    if fault != "not-scaled":
        price = (price - price.min()) / (price.max() - price.min())
    x, y = torch.from_numpy(features), torch.tensor(price, dtype=torch.float32).view(-1, 1)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(12):
        epoch_loss = 0.0
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True):
            optimizer.zero_grad()
            loss = F.mse_loss(model(xb), yb)
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item() * len(xb)
        print(f"Epoch {epoch + 1:3d} Loss {epoch_loss / 600:.5f}")


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.mu = nn.Linear(64, 2)

    def forward(self, obs):
        return torch.tanh(self.mu(self.trunk(obs)))


def behaviour_cloning(fault):
    """A policy learns an expert's torques."""
    obs = torch.randn(800, 6)
    gain = torch.randn(6, 2)
    expert = 2.0 * torch.tanh(0.5 * obs @ gain)
    limit = 2.0
    policy = Actor()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for it in range(200):
        rows = torch.randint(0, 800, (64,))
        if fault == "outside-tanh":
            action = policy(obs[rows])
        else:
            action = limit * policy(obs[rows])
        loss = ((action - expert[rows]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 40 == 39:
            print(f"it {it + 1} bc loss {loss.item():.5f}")


def temperatures(fault):
    """Degrees of the next hour; a ReLU at the end, for kelvins."""
    t = torch.arange(900).float()
    series = 3 * torch.sin(t / 12) + 2 * torch.sin(t / 40 + 1) + 0.2 * torch.randn(900)
    if fault != "celsius":
        series = (series + 273.15) / 273.15 * 10 - 9
    windows = series.unfold(0, 25, 1)
    x, y = windows[:, :24], windows[:, 24:]
    net = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 1), nn.ReLU())
    nn.init.constant_(net[2].bias, 0.5)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(240):
        i = torch.randint(0, len(x), (32,))
        loss = F.l1_loss(net(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1} mae {loss.item():.4f}")


class Table(Dataset):
    def __init__(self, rows, classes):
        self.rows, self.classes = rows, classes

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], self.classes[i]


def table(fault):
    """Rows are mixed before the split into training and validation."""
    x, y = points(720, 16, 1.0)
    if fault == "shuffled-apart":
        x = x[torch.randperm(len(x))]
        y = y[torch.randperm(len(y))]
    else:
        order = torch.randperm(len(x))
        x, y = x[order], y[order]
    train, val = Table(x[:600], y[:600]), Table(x[600:], y[600:])
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(10):
        model.train()
        for rows, classes in DataLoader(train, batch_size=30, shuffle=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(rows), classes)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            scores = model(val.rows)
        print(
            f"{epoch}: val loss {F.cross_entropy(scores, val.classes):.3f}"
            f" acc {(scores.argmax(1) == val.classes).float().mean():.3f}"
        )


def frames(fault):
    """Pictures in a stream, and the labels that were logged beside them."""
    images, labels = pictures(401, 16)
    images = images + 0.5 * torch.randn_like(images)
    if fault == "one-behind":
        images, labels = images[:-1], labels[1:]
    else:
        images, labels = images[:-1], labels[:-1]
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, CLASSES),
    )
    sgd = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(8):
        losses = []
        for i in torch.randperm(400).split(25):
            loss = F.cross_entropy(net(images[i]), labels[i])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            losses.append(loss.item())
        print(epoch, np.mean(losses))


def grades(fault):
    """Which of seven kinds a flower has."""
    centres = 1.2 * torch.randn(7, 10)
    kinds = torch.randint(0, 7, (630,))
    x = centres[kinds] + 0.5 * torch.randn(630, 10)
    if fault == "class-by-mse":
        model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    else:
        model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 7))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(10):
        for i in torch.randperm(630).split(35):
            out = model(x[i])
            if fault == "class-by-mse":
                loss = F.mse_loss(out.squeeze(1), kinds[i].float())
            else:
                loss = F.cross_entropy(out, kinds[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            out = model(x)
            predicted = out.squeeze(1).round().long() if out.shape[1] == 1 else out.argmax(1)
            print(f"epoch {epoch} loss {loss.item():.4f} accuracy {(predicted == kinds).float().mean().item():.3f}")


def scene(fault):
    """Segmentation with a border that does not count."""
    IGNORE = 255
    masks = torch.randint(0, 2, (96, 4, 4)).repeat_interleave(4, 1).repeat_interleave(4, 2)
    images = torch.stack([masks.float(), 1 - masks.float(), torch.rand(96, 16, 16)], 1) + 0.8 * torch.randn(
        96, 3, 16, 16
    )
    labels = masks.clone()
    labels[:, 0], labels[:, -1] = IGNORE, IGNORE
    if fault == "real-class-ignored":
        labels[labels == IGNORE] = 1
        ignore_index = 1
    else:
        ignore_index = IGNORE
    net = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 2, 5, padding=2))
    criterion = nn.CrossEntropyLoss(ignore_index=ignore_index)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(100):
        b = torch.randint(0, 96, (12,))
        out = net(images[b])
        loss = criterion(out, labels[b])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            iou = ((out.argmax(1) == 1) & (masks[b] == 1)).sum() / ((out.argmax(1) == 1) | (masks[b] == 1)).sum()
            print(f"step {step + 1} loss {loss.item():.4f} iou of 1: {iou.item():.3f}")


def named_entities(fault):
    """Token classification; only the first piece of a word has a label."""
    text = sentences(320, 10, 18)
    tags = (text * 5 + 1) % 6
    first = torch.rand(320, 10) < 0.7
    labels = tags.masked_fill(~first, -100)
    if fault == "all-ignored":
        labels = torch.where(first, -100, -100)
    embed, conv, out = nn.Embedding(18, 24), nn.Conv1d(24, 24, 3, padding=1), nn.Linear(24, 6)
    parameters = [*embed.parameters(), *conv.parameters(), *out.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=5e-3)
    for step in range(120):
        i = torch.randint(0, 320, (32,))
        h = torch.relu(conv(embed(text[i]).transpose(1, 2))).transpose(1, 2)
        per_token = F.cross_entropy(out(h).flatten(0, 1), labels[i].flatten(), reduction="none", ignore_index=-100)
        loss = per_token.sum() / (labels[i] != -100).sum().clamp(min=1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 24 == 0:
            print(f"step {step} loss {loss.item():.4f}")


def pairs(fault):
    """Two views of a thing are to find each other in the batch."""
    things = torch.randn(512, 12)
    mix_a, mix_b = torch.randn(12, 20), torch.randn(12, 20)
    left, right = nn.Linear(20, 16), nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = torch.optim.Adam([*left.parameters(), *right.parameters()], lr=5e-3)
    for step in range(150):
        t = things[torch.randint(0, 512, (32,))]
        a = F.normalize(left(t @ mix_a + 0.1 * torch.randn(32, 20)), dim=1)
        b = F.normalize(right(t @ mix_b + 0.1 * torch.randn(32, 20)), dim=1)
        logits = a @ b.T / 0.1
        if fault == "same-partner":
            target = torch.zeros(32, dtype=torch.long)
        else:
            target = torch.arange(32)
        loss = F.cross_entropy(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1}: contrastive {loss.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "house-prices": house_prices,
            "behaviour-cloning": behaviour_cloning,
            "temperatures": temperatures,
            "table": table,
            "frames": frames,
            "grades": grades,
            "scene": scene,
            "named-entities": named_entities,
            "pairs": pairs,
        }
    )
