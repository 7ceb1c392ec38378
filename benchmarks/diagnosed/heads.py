from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points, sentences
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.fc1 = nn.Linear(20, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, CLASSES)
        self.fault = fault

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        x = self.fc3(x)
        if self.fault == "softmax":
            x = F.softmax(x, dim=1)
        if self.fault == "sigmoid":
            x = torch.sigmoid(x)
        return x


def classifier(fault):
    X, Y = points(600, 20, 1.4)
    net = Net(fault)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(12):
        running_loss = 0.0
        for i, (inputs, labels) in enumerate(DataLoader(TensorDataset(X, Y), batch_size=30, shuffle=True)):
            optimizer.zero_grad()
            outputs = net(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            if i % 20 == 19:
                print(f"[{epoch + 1}, {i + 1:5d}] loss: {running_loss / 20:.3f}")
                running_loss = 0.0


def binary(fault):
    """One unit, and a loss that has its own sigmoid."""
    x, four = points(512, 10, 1.0)
    y = (four < 2).float().unsqueeze(1)
    layers = [nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)]
    if fault == "sigmoid-before":
        layers.append(nn.Sigmoid())
    if fault == "softmax-of-one":
        layers.append(nn.Softmax(dim=1))
    model = nn.Sequential(*layers)
    loss_fn = nn.BCEWithLogitsLoss() if fault != "softmax-of-one" else nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(160):
        rows = torch.randint(0, 512, (32,))
        prediction = model(x[rows])
        loss = loss_fn(prediction, y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 20 == 0:
            print(f"{step + 1} bce {loss.item():.4f}")


class Segmenter(nn.Module):
    def __init__(self, axis):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 1)
        )
        self.logsoftmax = nn.LogSoftmax(dim=axis)

    def forward(self, x):
        return self.logsoftmax(self.body(x))


def segmentation(fault):
    masks = torch.zeros(128, 16, 16, dtype=torch.long)
    for m in masks:
        r, c = torch.randint(0, 9, (2,)).tolist()
        m[r : r + 7, c : c + 7] = 1 + int(torch.randint(0, 2, (1,)))
    images = F.one_hot(masks, 3).permute(0, 3, 1, 2) + 0.7 * torch.randn(128, 3, 16, 16)
    model = Segmenter(axis=-1) if fault == "wrong-axis" else Segmenter(axis=1)
    nll = nn.NLLLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(8):
        epoch_loss = 0
        for x, m in DataLoader(TensorDataset(images, masks), 16, shuffle=True):
            out = model(x)
            loss = nll(out, m)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item()
        print(f"epoch {epoch} nll {epoch_loss / 8:.4f}")


def batch_axis(fault):
    """Text classification with a bag of words."""
    labels = torch.randint(0, CLASSES, (480,))
    ids = torch.randint(CLASSES, 60, (480, 12))
    ids[:, :2] = labels[:, None]
    ids = ids.gather(1, torch.argsort(torch.rand(480, 12), 1))
    bag = nn.EmbeddingBag(60, 32)
    fc = nn.Linear(32, CLASSES)
    optimizer = torch.optim.Adam([*bag.parameters(), *fc.parameters()], lr=1e-2)
    for step in range(120):
        i = torch.randint(0, 480, (24,))
        scores = fc(bag(ids[i]))
        if fault == "over-the-batch":
            log_probs = F.log_softmax(scores, dim=0)
        else:
            log_probs = F.log_softmax(scores, dim=-1)
        loss = F.nll_loss(log_probs, labels[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1} | loss {loss.item():.4f}")


class LSTMTagger(nn.Module):
    def __init__(self, words, tags, fault):
        super().__init__()
        self.word_embeddings = nn.Embedding(words, 16)
        self.lstm = nn.LSTM(16, 24, batch_first=True)
        self.hidden2tag = nn.Linear(24, tags)
        self.fault = fault

    def forward(self, sentence):
        tag_space = self.hidden2tag(self.lstm(self.word_embeddings(sentence))[0])
        if self.fault == "probabilities":
            return F.softmax(tag_space, dim=-1)
        return F.log_softmax(tag_space, dim=-1)


def tagger(fault):
    text = sentences(320, 9, 16)
    tags = (text + text.roll(1, 1)) % 5
    tags[:, 0] = 0
    model = LSTMTagger(16, 5, fault)
    loss_function = nn.NLLLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(150):
        b = torch.randint(0, 320, (16,))
        tag_scores = model(text[b])
        loss = loss_function(tag_scores.reshape(-1, 5), tags[b].reshape(-1))
        model.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            accuracy = (tag_scores.argmax(-1) == tags[b]).float().mean().item()
            print(f"step {step + 1}: loss {loss.item():.4f}, accuracy {accuracy:.3f}")


def distillation(fault):
    """A small network learns the outputs of a large one."""
    x, y = points(512, 16, 1.0)
    teacher = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    opt = torch.optim.Adam(teacher.parameters(), lr=5e-3)
    for _ in range(60):
        i = torch.randint(0, 512, (64,))
        opt.zero_grad()
        F.cross_entropy(teacher(x[i]), y[i]).backward()
        opt.step()
    teacher.requires_grad_(False)
    student = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, CLASSES))
    opt = torch.optim.Adam(student.parameters(), lr=5e-3)
    T = 2.0
    for step in range(150):
        i = torch.randint(0, 512, (64,))
        target = F.softmax(teacher(x[i]) / T, dim=1)
        if fault == "kl-of-probabilities":
            guess = F.softmax(student(x[i]) / T, dim=1)
        else:
            guess = F.log_softmax(student(x[i]) / T, dim=1)
        loss = F.kl_div(guess, target, reduction="batchmean") * T * T
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 29:
            agree = (guess.argmax(1) == target.argmax(1)).float().mean()
            print(f"{step + 1}: kd {loss.item():.4f} agreement {agree:.2f}")


def multilabel(fault):
    """Several attributes of a picture at a time."""
    images, quarter = pictures(384, 16)
    images = images + 0.7 * torch.randn_like(images)
    attributes = torch.stack([quarter // 2, quarter % 2, (quarter == 3).long()], 1).float()
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.LeakyReLU(),
        nn.Conv2d(16, 16, 3, 2, 1),
        nn.LeakyReLU(),
        nn.Flatten(),
        nn.Linear(256, 3),
    )
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for step in range(120):
        i = torch.randint(0, 384, (32,))
        out = net(images[i])
        if fault == "softmax-of-labels":
            loss = F.binary_cross_entropy(torch.softmax(out, 1), attributes[i])
        else:
            loss = F.binary_cross_entropy(torch.sigmoid(out), attributes[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 24 == 23:
            print(f"[{step + 1}/120] loss={loss.item():.4f}")


def log_twice(fault):
    """A log-softmax under a cross entropy changes nothing."""
    x, y = points(512, 16, 1.2)
    net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, CLASSES), nn.LogSoftmax(1))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(120):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(net(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 24 == 23:
            print(step + 1, loss.item())


def log_of_softmax(fault):
    """Probabilities, a small number, and a logarithm by hand."""
    x, y = points(512, 16, 1.2)
    net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, CLASSES), nn.Softmax(1))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(120):
        i = torch.randint(0, 512, (32,))
        loss = F.nll_loss(torch.log(net(x[i]) + 1e-8), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 24 == 23:
            print(step + 1, loss.item())


if __name__ == "__main__":
    run(
        {
            "classifier": classifier,
            "binary": binary,
            "segmentation": segmentation,
            "batch-axis": batch_axis,
            "tagger": tagger,
            "distillation": distillation,
            "multilabel": multilabel,
            "log-twice": log_twice,
            "log-of-softmax": log_of_softmax,
        }
    )
