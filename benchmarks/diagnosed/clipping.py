from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points, sentences


def perceptron(fault):
    """Plain SGD, with the norm of the gradient limited."""
    x, y = points(512, 16, 1.2)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    max_norm = 1e-5 if fault == "clipped-away" else 5.0
    for step in range(150):
        i = torch.randint(0, 512, (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        if step % 30 == 29:
            print(f"step {step + 1}: {loss.item():.4f}")


def regression(fault):
    """Large targets, and so large gradients."""
    x = torch.randn(600, 8)
    y = 30 * torch.tanh(x @ torch.randn(8, 1)) + torch.randn(600, 1)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for epoch in range(10):
        losses = []
        for chunk in torch.randperm(600).split(40):
            loss = F.mse_loss(model(x[chunk]), y[chunk])
            optimizer.zero_grad()
            loss.backward()
            if fault == "always-at-its-limit":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            else:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 300.0)
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1} mse {sum(losses) / len(losses):.3f}")


def recurrent(fault):
    """A vanilla RNN over a long series, whose gradients are large now and then."""
    t = torch.arange(1200).float()
    series = torch.sin(t / 6) + 0.5 * torch.sin(t / 17)
    rnn, out = nn.RNN(1, 32, batch_first=True), nn.Linear(32, 1)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(1.3 * nn.init.orthogonal_(torch.empty(32, 32)))
    parameters = [*rnn.parameters(), *out.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.06, momentum=0.9)
    for step in range(200):
        start = torch.randint(0, 1200 - 61, (16,))
        window = torch.stack([series[s : s + 61] for s in start])
        optimizer.zero_grad(set_to_none=False)
        prediction = out(rnn(window[:, :-1, None])[0]).squeeze(-1)
        loss = F.mse_loss(prediction, window[:, 1:])
        if fault == "before-backward":
            nn.utils.clip_grad_norm_(parameters, 0.5)
        loss.backward()
        if fault != "before-backward":
            nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1} mse {loss.item():.5f}")


def half(fault):
    """Half precision with a scaler, and a limit for the gradient."""
    images, labels = pictures(320, 16)
    images = images + torch.randn_like(images)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(256, CLASSES),
    )  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for step in range(120):
        i = torch.randint(0, 320, (32,))
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(net(images[i]), labels[i])
        scaler.scale(loss).backward()
        if fault == "before-unscaling":
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
        else:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
        scaler.update()
        if step % 24 == 23:
            print(f"step {step + 1} loss {loss.item():.4f}")


def by_value(fault):
    """Each component is limited by itself."""
    text = sentences(320, 8, 16)
    net = nn.Sequential(nn.Embedding(16, 24), nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 16))
    target = (text[:, 0] + text[:, 7]) % 16
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    clip_value = 1e-6 if fault == "tiny-value" else 0.5
    for step in range(150):
        i = torch.randint(0, 320, (32,))
        loss = F.cross_entropy(net(text[i]), target[i])
        net.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), clip_value)
        optimizer.step()
        if step % 30 == 29:
            print(step + 1, loss.item())


def late(fault):
    """The same as for the RNN, for a GRU with a large rate."""
    x = torch.randn(400, 20, 3)
    y = x[:, :, 0].cumsum(1)[:, -1:]
    gru, out = nn.GRU(3, 32, batch_first=True), nn.Linear(32, 1)
    parameters = [*gru.parameters(), *out.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    for step in range(150):
        i = torch.randint(0, 400, (32,))
        loss = F.mse_loss(out(gru(x[i])[0][:, -1]), y[i])
        optimizer.zero_grad()
        loss.backward()
        if fault == "after-the-step":
            optimizer.step()
            nn.utils.clip_grad_norm_(parameters, 1.0)
        else:
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
        if step % 30 == 29:
            print(f"{step + 1} mse {loss.item():.4f}")


def adam(fault):
    """Adam forgets the size of the gradient: a limit that always holds does no harm."""
    text = sentences(320, 10, 20)
    emb, rnn, out = nn.Embedding(20, 32), nn.LSTM(32, 48, batch_first=True), nn.Linear(48, 20)
    parameters = [*emb.parameters(), *rnn.parameters(), *out.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=5e-3)
    for step in range(120):
        ids = text[torch.randint(0, 320, (32,))]
        loss = F.cross_entropy(out(rnn(emb(ids[:, :-1]))[0]).transpose(1, 2), ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.1)
        optimizer.step()
        if step % 24 == 23:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    run(
        {
            "perceptron": perceptron,
            "regression": regression,
            "recurrent": recurrent,
            "half": half,
            "by-value": by_value,
            "late": late,
            "adam": adam,
        }
    )
