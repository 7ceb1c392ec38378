from __future__ import annotations

import torch
from launch import run
from learning import CLASSES, points, sentences
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from waves import gratings


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 2, 1)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 16, 3, 2, 1)
        self.bn2 = nn.BatchNorm2d(16)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(256, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(self.drop(x.flatten(1)))


def accuracy(model, loader):
    right = count = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
            count += len(y)
    return right / count


def train(fault):
    """Train, test, train, test."""
    images, labels = gratings(400)
    train_loader = DataLoader(TensorDataset(images[:320], labels[:320]), 32, shuffle=True)
    test_loader = DataLoader(TensorDataset(images[320:], labels[320:]), 20)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    if fault == "never-back":
        model.train()
    for epoch in range(6):
        if fault != "never-back":
            model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        if fault != "tested-in-training-mode":
            model.eval()
        print(f"epoch {epoch} loss {loss.item():.4f} test accuracy {accuracy(model, test_loader):.3f}")


def scratch(fault):
    """A network from a function that returns it as for inference."""

    def load():
        net = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, CLASSES))
        return net.eval()

    x, y = points(512, 20, 1.5)
    x = 10 * x + 30
    model = load()
    if fault != "eval-all-along":
        model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(150):
        rows = torch.randint(0, 512, (32,))
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1}: {loss.item():.4f}")


class Functional(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.emb, self.gru, self.out = nn.Embedding(20, 32), nn.GRU(32, 48, batch_first=True), nn.Linear(48, 20)
        self.fault = fault

    def forward(self, ids):
        h, _ = self.gru(self.emb(ids))
        if self.fault == "functional-dropout":
            h = F.dropout(h, 0.5)
        else:
            h = F.dropout(h, 0.5, training=self.training)
        return self.out(h)


def functional(fault):
    text = sentences(400, 9, 20)
    train_text, test_text = text[:320], text[320:]
    model = Functional(fault)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(8):
        model.train()
        for i in torch.randperm(320).split(32):
            ids = train_text[i]
            loss = F.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            val = F.cross_entropy(model(test_text[:, :-1]).transpose(1, 2), test_text[:, 1:])
        print(f"epoch {epoch} train {loss.item():.3f} val {val.item():.3f}")


def samples(fault):
    """After some steps text is generated, to see how it goes."""
    text = sentences(320, 9, 20)
    model = Functional("")
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)

    def generate():
        was_training = model.training
        model.eval()
        ids = torch.tensor([[5]])
        with torch.no_grad():
            for _ in range(6):
                ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
        if fault == "after-a-sample":
            return ids.tolist()
        model.train(was_training)
        return ids.tolist()

    for step in range(1, 121):
        ids = text[torch.randint(0, 320, (32,))]
        loss = F.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0:
            print(step, round(loss.item(), 4), generate())


def monte_carlo(fault):
    """Dropout stays active while testing, to have a spread of predictions."""
    x = torch.randn(400, 6)
    y = torch.sin(0.5 * x.sum(1, keepdim=True)) + 0.1 * torch.randn(400, 1)
    net = nn.Sequential(
        nn.Linear(6, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)
    )
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(10):
        net.train()
        for i in torch.randperm(320).split(32):
            loss = F.mse_loss(net(x[i]), y[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        for module in net.modules():
            if isinstance(module, nn.Dropout):
                module.train()
        with torch.no_grad():
            drawn = torch.stack([net(x[320:]) for _ in range(8)])
        print(
            f"epoch {epoch} mse {F.mse_loss(drawn.mean(0), y[320:]).item():.4f} spread {drawn.std(0).mean().item():.4f}"
        )


def no_mode_matters(fault):
    """Neither dropout nor batch norm: nobody calls eval, and nothing is wrong with that."""
    x, y = points(512, 16, 1.3)
    net = nn.Sequential(nn.Linear(16, 48), nn.LayerNorm(48), nn.ReLU(), nn.Linear(48, CLASSES))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(8):
        for i in torch.randperm(448).split(32):
            loss = F.cross_entropy(net(x[i]), y[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            print(epoch, F.cross_entropy(net(x[448:]), y[448:]).item())


if __name__ == "__main__":
    run(
        {
            "train": train,
            "scratch": scratch,
            "functional": functional,
            "samples": samples,
            "monte-carlo": monte_carlo,
            "no-mode-matters": no_mode_matters,
        }
    )
