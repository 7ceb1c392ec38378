from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points, sentences
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


class Stack(nn.Module):
    def __init__(self, sizes, in_list):
        super().__init__()
        layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]
        if in_list:
            self.hidden = layers
        else:
            self.hidden = nn.ModuleList(layers)
        self.last = nn.Linear(sizes[-1], CLASSES)

    def forward(self, x):
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.last(x)


def stack(fault):
    x, y = points(512, 8, 1.0)
    model = Stack([8, 32, 16, 8], fault == "python-list")
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(10):
        losses = []
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"Epoch {epoch + 1}/10, loss: {sum(losses) / len(losses):.4f}")


class Shapes(nn.Module):
    """The projection's size is known when the first batch has come."""

    def __init__(self, lazily):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4))
        self.projection = None if lazily else nn.Linear(8 * 16, 32)
        self.fc = nn.Linear(32, CLASSES)

    def forward(self, x):
        x = self.conv(x).flatten(1)
        if self.projection is None:
            self.projection = nn.Linear(x.shape[1], 32)
        return self.fc(torch.relu(self.projection(x)))


def lazy(fault):
    images, labels = pictures(320, 16)
    model = Shapes(fault == "built-in-forward")
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for _ in range(8):
        for i in torch.randperm(320).split(32):
            loss = F.cross_entropy(model(images[i]), labels[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print("step", step, "loss", round(loss.item(), 4))
            step += 1


def groups(fault):
    """Weights decay, biases and norms don't."""
    text = sentences(256, 10, 16)

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(16, 32)
            self.layer = nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True)
            self.norm = nn.LayerNorm(32)
            self.out = nn.Linear(32, 16)

        def forward(self, ids):
            return self.out(self.norm(self.layer(self.emb(ids))))

    model = Tagger()
    if fault == "exhausted":
        params = model.parameters()
    else:
        params = list(model.parameters())
    decay = [p for p in params if p.ndim >= 2]
    no_decay = [p for p in params if p.ndim < 2]
    optimizer = optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}], lr=2e-3
    )
    target = (text * 5 + 2) % 16
    for it in range(120):
        rows = torch.randint(0, 256, (32,))
        loss = F.cross_entropy(model(text[rows]).flatten(0, 1), target[rows].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if it % 20 == 0 or it == 119:
            print(f"it {it:3d} loss {loss.item():.4f}")


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(12, 24, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24 * 16, CLASSES),
    )


def best_copy(fault):
    """The best network is kept aside."""
    images, labels = pictures(384, 16)
    train, held = (images[:320], labels[:320]), (images[320:], labels[320:])
    net = small_cnn()
    best_net, best = copy.deepcopy(net), float("inf")
    optimizer = optim.RMSprop((best_net if fault == "of-the-copy" else net).parameters(), lr=5e-4)
    for epoch in range(8):
        for idx in torch.randperm(320).split(40):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(train[0][idx]), train[1][idx])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            held_loss = F.cross_entropy(net(held[0]), held[1]).item()
        if held_loss < best:
            best, best_net = held_loss, copy.deepcopy(net)
        print(f"epoch {epoch}: train {loss.item():.4f} held-out {held_loss:.4f} best {best:.4f}")


def reinstantiated(fault):
    """Made once to count its parameters, once to train it."""
    x, y = points(400, 20, 1.2)
    rnn = nn.GRU(4, 24, batch_first=True)
    head = nn.Linear(24, CLASSES)
    learning_rate = 5e-3
    optimizer = optim.Adam([*rnn.parameters(), *head.parameters()], lr=learning_rate)
    print("parameters:", sum(p.numel() for g in optimizer.param_groups for p in g["params"]))
    if fault == "made-again":
        rnn, head = nn.GRU(4, 24, batch_first=True), nn.Linear(24, CLASSES)

    def train_one(inputs, category):
        output, _ = rnn(inputs.view(len(inputs), 5, 4))
        loss = F.nll_loss(F.log_softmax(head(output[:, -1]), 1), category)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    current = 0.0
    for n in range(1, 201):
        i = torch.randint(0, 400, (16,))
        current += train_one(x[i], y[i])
        if n % 40 == 0:
            print(n, f"{current / 40:.4f}")
            current = 0.0


class Pooled(nn.Module):
    """Attention with a learnt query."""

    def __init__(self, fault):
        super().__init__()
        self.proj = nn.Linear(6, 16)
        if fault == "no-parameter":
            self.query = torch.zeros(1, 16, requires_grad=True)
        else:
            self.query = nn.Parameter(torch.zeros(1, 16))
        self.out = nn.Linear(16, CLASSES)

    def forward(self, x):
        h = torch.tanh(self.proj(x))
        a = torch.softmax((h * self.query).sum(-1) * 4, -1)
        return self.out((a.unsqueeze(-1) * h).sum(1))


def query(fault):
    labels = torch.randint(0, CLASSES, (512,))
    x = torch.randn(512, 9, 6)
    where = torch.randint(0, 9, (512,))
    x[torch.arange(512), where, 0] = 4.0
    x[torch.arange(512), where, 1 + labels] += 3.0
    model = Pooled(fault)
    opt = optim.Adam(model.parameters(), lr=1e-2)
    for step in range(200):
        b = slice(step * 32 % 512, step * 32 % 512 + 32)
        loss = F.cross_entropy(model(x[b]), labels[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 39:
            print(f"{step + 1}: {loss.item():.4f}")


def two(fault):
    """One optimizer for the encoder, one for the head."""
    x, y = points(512, 16, 0.8)
    encoder = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 24))
    head = nn.Sequential(nn.GELU(), nn.Linear(24, CLASSES))
    model = nn.Sequential(encoder, head)
    opt_encoder = optim.AdamW(encoder.parameters(), lr=1e-3)
    if fault == "both-on-encoder":
        opt_head = optim.SGD(model.parameters(), lr=0.05)
    else:
        opt_head = optim.SGD(head.parameters(), lr=0.05)
    for step in range(160):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        opt_encoder.zero_grad()
        opt_head.zero_grad()
        loss.backward()
        opt_encoder.step()
        opt_head.step()
        if step % 32 == 31:
            print(f"step {step + 1} loss {loss:.3f}")


def listed(fault):
    """Parameters of several parts in one list."""
    x, y = points(512, 16, 0.8)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
            self.neck = nn.Linear(32, 16)
            self.classifier = nn.Linear(16, CLASSES)

        def forward(self, x):
            return self.classifier(F.relu(self.neck(self.backbone(x))))

    net = Net()
    if fault == "listed-twice":
        parameters = list(net.backbone.parameters()) + list(net.parameters())
    else:
        parameters = list(net.backbone.parameters()) + list(net.neck.parameters()) + list(net.classifier.parameters())
    sgd = optim.SGD(parameters, lr=0.03, momentum=0.9, weight_decay=1e-4)
    for epoch in range(8):
        for xb, yb in DataLoader(TensorDataset(x, y), 64, shuffle=True):
            sgd.zero_grad()
            loss = F.cross_entropy(net(xb), yb)
            loss.backward()
            sgd.step()
        print("epoch", epoch, "loss", loss.item())


def rebuilt(fault):
    """A helper that trains on one batch."""
    images, labels = pictures(320, 16)
    net = small_cnn()
    shared = optim.Adam(net.parameters(), lr=2e-3)

    def fit(batch, target):
        if fault == "every-batch":
            optimizer = optim.Adam(net.parameters(), lr=2e-3)
        else:
            optimizer = shared
        optimizer.zero_grad()
        loss = F.cross_entropy(net(batch), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    for epoch in range(8):
        values = [fit(images[i], labels[i]) for i in torch.randperm(320).split(32)]
        print(f"epoch {epoch + 1}: {sum(values) / len(values):.4f}")


def reloaded(fault):
    """Goes on from a checkpoint when the loss has not improved for an epoch."""
    x, y = points(480, 12, 0.9)

    def build():
        return nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, CLASSES))

    model = build()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    saved = None
    for epoch in range(10):
        if epoch == 3:
            if fault == "model-replaced":
                model = build().train()
                model.load_state_dict(saved)
            else:
                model.load_state_dict(saved)
        total = 0.0
        for i in torch.randperm(480).split(48):
            loss = F.cross_entropy(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        saved = copy.deepcopy(model.state_dict())
        print(f"epoch {epoch}: {total / 10:.4f}")


def resized(fault):
    """Words are added before training goes on."""
    text = sentences(256, 9, 20)
    embedding, rnn, out = nn.Embedding(14, 24), nn.LSTM(24, 48, batch_first=True), nn.Linear(48, 20)
    parts = nn.ModuleDict({"embedding": embedding, "rnn": rnn, "out": out})

    def grow(layer, words):
        wider = torch.randn(words, 24)
        wider[: len(layer.weight)] = layer.weight.detach()
        layer.weight = nn.Parameter(wider)
        layer.num_embeddings = words

    if fault == "after-the-optimizer":
        optimizer = optim.Adam(parts.parameters(), lr=4e-3)
        grow(embedding, 20)
    else:
        grow(embedding, 20)
        optimizer = optim.Adam(parts.parameters(), lr=4e-3)
    for step in range(1, 121):
        b = text[torch.randint(0, 256, (32,))]
        hidden, _ = rnn(embedding(b[:, :-1]))
        loss = F.cross_entropy(out(hidden).transpose(1, 2), b[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} perplexity {loss.exp().item():.2f}")


def adversaries(fault):
    """A small GAN in one dimension."""
    generator = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
    discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    g_opt = optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    if fault == "wrong-network":
        d_opt = optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    else:
        d_opt = optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()
    for step in range(200):
        real = torch.randn(64, 2) * 0.3 + torch.tensor([2.0, -1.0])
        fake = generator(torch.randn(64, 4))
        d_opt.zero_grad()
        d_loss = bce(discriminator(real), torch.ones(64, 1)) + bce(discriminator(fake.detach()), torch.zeros(64, 1))
        d_loss.backward()
        d_opt.step()
        g_opt.zero_grad()
        g_loss = bce(discriminator(fake), torch.ones(64, 1))
        g_loss.backward()
        g_opt.step()
        if step % 40 == 39:
            print(f"[{step + 1}] D {d_loss:.3f} G {g_loss:.3f} mean {fake.mean(0).tolist()}")


class Wide(nn.Module):
    """A network that is described first, and given memory later."""

    def __init__(self):
        super().__init__()
        self.up, self.mid, self.out = nn.Linear(16, 64), nn.Linear(64, 64), nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.out(torch.relu(self.mid(torch.relu(self.up(x)))))

    def reset(self):
        for layer in self.children():
            layer.reset_parameters()


def materialised(fault):
    """As for models that are too large to be made twice."""
    x, y = points(512, 16, 1.1)
    with torch.device("meta"):
        net = Wide()
    if fault == "before-to-empty":
        optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        net.to_empty(device="cpu").reset()
    else:
        net.to_empty(device="cpu").reset()
        optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for step in range(120):
        rows = torch.randint(0, 512, (32,))
        net.zero_grad()
        loss = F.cross_entropy(net(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        if step % 24 == 23:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "stack": stack,
            "lazy": lazy,
            "groups": groups,
            "best-copy": best_copy,
            "reinstantiated": reinstantiated,
            "query": query,
            "two": two,
            "listed": listed,
            "rebuilt": rebuilt,
            "reloaded": reloaded,
            "resized": resized,
            "adversaries": adversaries,
            "materialised": materialised,
        }
    )
