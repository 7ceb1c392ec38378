"""Healthy programs that look as if an experiment on one batch showed a fault. python healthy.py NAME [--seed 1]"""

from __future__ import annotations

import copy
import math
import random

import numpy as np
import torch
import torch.nn.functional as F
from running import (
    BATCH,
    CLASSES,
    LENGTH,
    STEPS,
    WORDS,
    Tagger,
    checkpoint,
    lightning_trained,
    main,
    marked_texts,
    optimizer_and_schedule,
    padded_texts,
    points,
    scheduled,
    sequences,
    train,
    walks,
)
from torch import nn

HEALTHY = {}


def healthy(function):
    HEALTHY[function.__name__.replace("_", "-")] = function
    return function


def mlp(*sizes):
    layers = []
    for into, out in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(into, out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@healthy
def batch_norm():
    return train(
        nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, CLASSES)),
        *points(),
    )


@healthy
def batch_norm_without_statistics():
    norm = nn.BatchNorm1d(32, track_running_stats=False)
    return train(nn.Sequential(nn.Linear(12, 32), norm, nn.ReLU(), nn.Linear(32, CLASSES)), *points())


@healthy
def variational():
    """Noise at evaluation, on purpose."""

    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = mlp(12, 32, 8), mlp(4, 32, 12)

        def forward(self, x):
            mean, variance = self.encoder(x).chunk(2, -1)
            code = mean + torch.randn_like(mean) * (0.5 * variance).exp()
            return self.decoder(code), mean, variance

    x, _ = points()
    model = Coder()

    def loss(rows):
        out, mean, variance = model(x[rows])
        return F.mse_loss(out, x[rows]) + 0.01 * (mean**2 + variance.exp() - variance - 1).mean()

    return train(model, loss=loss)


@healthy
def adversarial():
    generator, critic = mlp(8, 32, 12), mlp(12, 32, 1)
    first, second = (torch.optim.Adam(each.parameters(), lr=1e-3, betas=(0.5, 0.9)) for each in (generator, critic))
    x, _ = points()
    for _ in range(STEPS):
        real = x[torch.randint(0, 256, (BATCH,))]
        fake = generator(torch.randn(BATCH, 8))
        mixed = (0.5 * real + 0.5 * fake).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * (gradient.norm(2, 1) - 1).square().mean()
        second.zero_grad()
        loss.backward()
        second.step()
        first.zero_grad()
        (-critic(generator(torch.randn(BATCH, 8))).mean()).backward()
        first.step()
    return generator, critic


@healthy
def minibatch_deviation():
    """A critic that is given the deviation of its batch, on purpose."""

    class MinibatchDeviation(nn.Module):
        def forward(self, x):
            return torch.cat([x, x.std(0).mean().expand(len(x), 1)], 1)

    return train(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), MinibatchDeviation(), nn.Linear(33, CLASSES)), *points())


@healthy
def experts():
    """A mixture of experts that counts how much each is used."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.experts = nn.Linear(12, 4), nn.ModuleList(mlp(12, 16, CLASSES) for _ in range(4))
            self.register_buffer("load", torch.zeros(4))
            self.calls = 0

        def forward(self, x):
            weights, chosen = self.router(x).softmax(-1).topk(2)
            self.calls += 1
            self.load = 0.9 * self.load + 0.1 * F.one_hot(chosen, 4).float().mean((0, 1))
            out = torch.zeros(len(x), CLASSES)
            for number, expert in enumerate(self.experts):
                for slot in range(2):
                    at = chosen[:, slot] == number
                    if at.any():
                        out[at] += weights[at, slot, None] * expert(x[at])
            return out

    return train(Experts(), *points())


@healthy
def experts_with_capacity():
    """Experts drop what is beyond their capacity, so that samples compete."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.experts = nn.Linear(12, 4), nn.ModuleList(mlp(12, 16, 12) for _ in range(4))
            self.out = nn.Linear(12, CLASSES)

        def forward(self, x):
            weights = self.router(x).softmax(-1)
            chosen = weights.argmax(-1)
            place = (F.one_hot(chosen, 4).cumsum(0) - 1).gather(1, chosen[:, None])[:, 0]
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                at = (chosen == number) & (place < 6)
                if at.any():
                    out[at] = weights[at, number, None] * expert(x[at])
            return self.out(x + out)

    return train(Experts(), *points())


@healthy
def contrastive():
    """The loss compares samples; the model does not."""
    x, _ = points()
    model = mlp(12, 32, 16)

    def loss(rows):
        first, second = (F.normalize(model(x[rows] + 0.1 * torch.randn(len(rows), 12)), dim=1) for _ in range(2))
        return F.cross_entropy(first @ second.t() / 0.2, torch.arange(len(rows)))

    return train(model, loss=loss)


@healthy
def two_towers():
    """A model that returns the similarity of each pair of samples."""

    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.text = mlp(12, 32, 16), mlp(6, 32, 16)

        def forward(self, image, text):
            return F.normalize(self.image(image), dim=1) @ F.normalize(self.text(text), dim=1).t() / 0.1

    x, _ = points()
    model = Towers()
    return train(model, loss=lambda rows: F.cross_entropy(model(x[rows], x[rows, :6] ** 2), torch.arange(len(rows))))


@healthy
def graph_convolution():
    """The rows are the nodes of one graph."""

    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(12, 16), nn.Linear(16, CLASSES)

        def forward(self, x, adjacency):
            return self.second(adjacency @ self.first(adjacency @ x).relu())

    x, y = points()
    x, y = x[:64], y[:64]
    links = (torch.rand(64, 64) < 0.1).float() + torch.eye(64)
    links = links / links.sum(1, keepdim=True)
    model = Graph()
    return train(model, loss=lambda _: F.cross_entropy(model(x, links), y))


@healthy
def graph_of_edges():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(12, 16), nn.Linear(16, CLASSES)

        def forward(self, x, edge_index):
            h = self.first(x).relu()
            gathered = torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]])
            return self.second(h + gathered)

    x, y = points()
    edges = torch.randint(0, 256, (2, 900))
    model = Graph()
    return train(model, loss=lambda _: F.cross_entropy(model(x, edges), y))


@healthy
def graph_in_a_buffer():
    class Graph(nn.Module):
        def __init__(self, links):
            super().__init__()
            self.register_buffer("links", links)
            self.first, self.second = nn.Linear(12, 16), nn.Linear(16, CLASSES)

        def forward(self, x):
            return self.second(self.links @ self.first(x).relu())

    x, y = points()
    links = (torch.rand(256, 256) < 0.02).float() + torch.eye(256)
    model = Graph(links / links.sum(1, keepdim=True))
    return train(model, loss=lambda _: F.cross_entropy(model(x), y))


@healthy
def sets():
    """Elements of a set see each other; sets do not."""

    class Sets(nn.Module):
        def __init__(self):
            super().__init__()
            self.element, self.attend = nn.Linear(6, 16), nn.MultiheadAttention(16, 2, batch_first=True)
            self.out = nn.Linear(16, CLASSES)

        def forward(self, x):
            h = self.element(x)
            h = h + self.attend(h, h, h, need_weights=False)[0]
            return self.out(h.sum(1))

    return train(Sets(), *sequences())


@healthy
def time_first():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.out = nn.LSTM(6, 24), nn.Linear(24, CLASSES)

        def forward(self, x):
            return self.out(self.cells(x)[0][-1])

    x, y = sequences()
    model = Reader()
    return train(model, loss=lambda rows: F.cross_entropy(model(x[rows].transpose(0, 1)), y[rows]))


@healthy
def tagger_time_first():
    """Inputs and outputs have time in their first axis."""

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, 16)
            self.cells, self.out = nn.LSTM(16, 16, bidirectional=True), nn.Linear(32, WORDS)

        def forward(self, ids):
            return self.out(self.cells(self.embed(ids))[0])

    ids = walks()
    model = Tagger()

    def loss(rows):
        given = ids[rows].t()
        return F.cross_entropy(model(given).flatten(0, 1), (given.flatten() * 7) % WORDS)

    return train(model, loss=loss)


@healthy
def language_model():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, 32)
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)
            self.out = nn.Linear(32, WORDS)

        def forward(self, ids):
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
            return self.out(self.layer(self.embed(ids), src_mask=mask, is_causal=True))

    ids = walks()
    model = Language()
    return train(model, loss=lambda rows: F.cross_entropy(model(ids[rows, :-1]).flatten(0, 1), ids[rows, 1:].flatten()))


@healthy
def masked_words():
    """An encoder sees what follows, and is to find the words that are hidden."""

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS + 1, 32)
            self.layer, self.out = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True), nn.Linear(32, WORDS)

        def forward(self, ids):
            return self.out(self.layer(self.embed(ids)))

    ids = walks()
    model = Encoder()

    def loss(rows):
        hidden = torch.rand(len(rows), LENGTH + 1) < 0.3
        given = ids[rows].masked_fill(hidden, WORDS)
        return F.cross_entropy(model(given).flatten(0, 1), ids[rows].masked_fill(~hidden, -100).flatten())

    return train(model, loss=loss)


@healthy
def growing_cache():
    """A causal language model that returns what it may go on from."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    ids = walks()
    return train(model, loss=lambda rows: model(input_ids=ids[rows], labels=ids[rows], use_cache=True).loss)


@healthy
def bert_with_mask():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=16, num_labels=CLASSES,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    (ids, mask), y = padded_texts()
    return train(model, loss=lambda rows: model(input_ids=ids[rows], attention_mask=mask[rows], labels=y[rows]).loss)


@healthy
def masked_mean():
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, 32)
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)
            self.out = nn.Linear(32, CLASSES)

        def forward(self, ids, attention_mask):
            h = self.layer(self.embed(ids), src_key_padding_mask=attention_mask == 0)
            h = (h * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)
            return self.out(h)

    return train(Pool(), *padded_texts())


@healthy
def packed_lengths():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, 16, padding_idx=0)
            self.cells, self.out = nn.LSTM(16, 24, batch_first=True, bidirectional=True), nn.Linear(48, CLASSES)

        def forward(self, ids, mask):
            packed = nn.utils.rnn.pack_padded_sequence(
                self.embed(ids), mask.sum(1), batch_first=True, enforce_sorted=False
            )
            _, (hidden, _) = self.cells(packed)
            return self.out(torch.cat([hidden[0], hidden[1]], 1))

    return train(Reader(), *padded_texts())


@healthy
def monte_carlo_dropout():
    """Dropout in evaluation, too, on purpose."""

    class Bayesian(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(12, 32), nn.Linear(32, CLASSES)

        def forward(self, x):
            return self.second(F.dropout(self.first(x).relu(), 0.2, training=True))

    return train(Bayesian(), *points())


@healthy
def centred_teacher():
    """Self-distillation: a teacher that follows its student, and a centre."""
    student = mlp(12, 32, 16)
    teacher = copy.deepcopy(student).requires_grad_(False)
    centre = torch.zeros(16)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    x, _ = points()
    for _ in range(STEPS):
        batch = x[torch.randint(0, 256, (BATCH,))]
        first, second = (batch + 0.2 * torch.randn_like(batch) for _ in range(2))
        with torch.no_grad():
            targets = teacher(first)
        loss = -(F.softmax((targets - centre) / 0.05, -1) * F.log_softmax(student(second) / 0.1, -1)).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        centre = 0.9 * centre + 0.1 * targets.mean(0)
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
    return student, teacher


@healthy
def two_optimizers():
    encoder, head = mlp(12, 32, 16), nn.Linear(16, CLASSES)
    first, second = torch.optim.Adam(encoder.parameters(), lr=1e-3), torch.optim.SGD(head.parameters(), lr=1e-2)
    x, y = points()
    for _ in range(STEPS):
        rows = torch.randint(0, 256, (BATCH,))
        loss = F.cross_entropy(head(encoder(x[rows])), y[rows])
        for optimizer in (first, second):
            optimizer.zero_grad()
        loss.backward()
        first.step()
        second.step()
    return encoder, head


def _worker(rank, queue):
    torch.set_num_threads(1)
    torch.manual_seed(5 + rank)
    model = train(mlp(12, 32, CLASSES), *points())
    queue.put([each.detach().numpy() for each in model.parameters()])


@healthy
def spawned():
    """The training runs in another process."""
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    spawned = torch.multiprocessing.spawn(_worker, (queue,), nprocs=1, join=False)
    weights = queue.get()
    spawned.join()
    model = mlp(12, 32, CLASSES)
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(value))
    return model


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x * 4) / 4

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -0.3 * gradient


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / (1 + 5 * x.abs()) ** 2


class AtLeast(torch.autograd.Function):
    """Lets the gradient pass that moves what is below the bound up."""

    @staticmethod
    def forward(ctx, x, bound):
        ctx.save_for_backward(x)
        ctx.bound = bound
        return x.clamp(min=bound)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * ((x >= ctx.bound) | (gradient < 0)), None


class Softplus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.softplus(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * torch.sigmoid(x)


class With(nn.Module):
    def __init__(self, function, *more):
        super().__init__()
        self.into, self.out, self.function, self.more = nn.Linear(12, 32), nn.Linear(32, CLASSES), function, more

    def forward(self, x):
        return self.out(self.function.apply(self.into(x), *self.more))


@healthy
def straight_through():
    return train(With(Round), *points())


@healthy
def reversed_gradient():
    return train(With(Reverse), *points())


@healthy
def spiking():
    return train(With(Spike), *points())


@healthy
def bounded_below():
    return train(With(AtLeast, 0.1), *points())


@healthy
def own_softplus():
    return train(With(Softplus), *points())


@healthy
def zero_at_first():
    """The last layer begins with zeros, as does a branch that is added."""

    class Zero(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.branch, self.out = mlp(12, 32, 32), nn.Linear(32, 32), nn.Linear(32, CLASSES)
            for layer in (self.branch, self.out):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)

        def forward(self, x):
            h = self.body(x).relu()
            return self.out(h + self.branch(h))

    return train(Zero(), *points())


@healthy
def last_state():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.out = nn.LSTM(6, 24, batch_first=True), nn.Linear(24, CLASSES)

        def forward(self, x):
            return self.out(self.cells(x)[0][:, -1])

    return train(Reader(), *sequences())


@healthy
def strided():
    """A convolution with a stride of two and kernels of one reads a quarter of its pixels."""
    x, y = points(64)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, CLASSES),
    )
    return train(model, x.view(-1, 1, 8, 8), y)


@healthy
def half_precision():
    model = mlp(12, 32, CLASSES)
    x, y = points()

    def loss(rows):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(model(x[rows]), y[rows])

    return train(model, loss=loss)


@healthy
def memory_of_features():
    """A queue of earlier codes, which the model keeps itself."""

    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.out = mlp(12, 32, 16), nn.Linear(16, CLASSES)
            self.queue = []

        def forward(self, x):
            h = self.body(x)
            if self.training:
                self.queue.append(h.detach())
                del self.queue[:-3]
            return self.out(h)

    return train(Memory(), *points())


@healthy
def recurrent_with_state():
    """The state of a batch goes on to the next one."""

    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.out, self.state = nn.GRU(6, 16, batch_first=True), nn.Linear(16, CLASSES), None

        def forward(self, x):
            out, state = self.cells(x, self.state)
            self.state = state.detach()
            return self.out(out[:, -1])

    return train(Stateful(), *sequences())


@healthy
def conditioned():
    class Conditional(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.body, self.out = nn.Embedding(4, 32), nn.Linear(12, 32), nn.Linear(32, CLASSES)

        def forward(self, x, kind):
            return self.out((self.body(x) + self.embed(kind)).relu())

    x, y = points()
    return train(Conditional(), (x, torch.randint(0, 4, (256,))), y)


@healthy
def windows():
    """Attention within windows, which are shifted and put back."""

    class Windows(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.attend, self.out = (
                nn.Linear(1, 16),
                nn.MultiheadAttention(16, 2, batch_first=True),
                nn.Linear(16, CLASSES),
            )

        def forward(self, x):
            b = len(x)
            h = self.embed(x.permute(0, 2, 3, 1)).roll((2, 2), (1, 2))
            w = h.view(b, 2, 4, 2, 4, 16).permute(0, 1, 3, 2, 4, 5).reshape(b * 4, 16, 16)
            w = w + self.attend(w, w, w, need_weights=False)[0]
            h = w.view(b, 2, 2, 4, 4, 16).permute(0, 1, 3, 2, 4, 5).reshape(b, 8, 8, 16).roll((-2, -2), (1, 2))
            return self.out(h.mean((1, 2)))

    x, y = points(64)
    return train(Windows(), x.view(-1, 1, 8, 8), y)


@healthy
def renormalized_words():
    """An embedding that is renormalized in place when it is read."""

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(WORDS, 16, max_norm=1.0), nn.Linear(16, CLASSES)

        def forward(self, ids):
            return self.out(self.embed(ids).sum(1))

    return train(Bag(), *marked_texts())


@healthy
def spectral():
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(12, 32)), nn.ReLU(), nn.Linear(32, CLASSES))
    return train(model, *points())


@healthy
def forecast():
    """The value after a window, of which the attention is by hand."""

    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(6, 48), nn.Linear(16, 6)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            return self.out((torch.softmax(q @ k.transpose(1, 2) / math.sqrt(16), -1) @ v)[:, -1])

    x = torch.randn(256, LENGTH + 1, 6).cumsum(1)
    model = Attend()
    return train(model, loss=lambda rows: F.mse_loss(model(x[rows, :-1]), x[rows, -1]))


@healthy
def lightning_with_norm():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES))

        def forward(self, x):
            return self.body(x)

    return lightning_trained(Network())


@healthy
def trainer_of_transformers():
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    rows = [{"input_ids": ids, "labels": ids} for ids in walks()]
    arguments = TrainingArguments(
        "out", max_steps=STEPS, per_device_train_batch_size=BATCH, report_to=[], use_cpu=True, save_strategy="no",
        disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=rows).train()
    return model


@healthy
def accelerated():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    x, y = points()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), BATCH, shuffle=True)
    model = mlp(12, 32, CLASSES)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3), loader)
    for _ in range(2):
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
    return accelerator.unwrap_model(model)


@healthy
def checkpointed_blocks():
    from torch.utils.checkpoint import checkpoint

    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.out = nn.ModuleList(mlp(12, 24, 12) for _ in range(3)), nn.Linear(12, CLASSES)

        def forward(self, x):
            for block in self.blocks:
                x = x + checkpoint(block, x, use_reentrant=False)
            return self.out(x)

    return train(Blocks(), *points())


@healthy
def coupled_flow():
    """Each half of the features is transformed by the other one."""

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = mlp(6, 32, 12), mlp(6, 32, 12)

        def forward(self, x):
            a, b = x.chunk(2, 1)
            shift, scale = self.first(a).chunk(2, 1)
            b = b * scale.tanh().exp() + shift
            again, size = self.second(b).chunk(2, 1)
            return torch.cat([a * size.tanh().exp() + again, b], 1), (scale.tanh() + size.tanh()).sum(1)

    x, _ = points()
    model = Flow()

    def loss(rows):
        z, volume = model(x[rows])
        return (0.5 * z.square().sum(1) - volume).mean()

    return train(model, loss=loss)


@healthy
def policy_gradient():
    model = mlp(12, 32, CLASSES)
    x, y = points()

    def loss(rows):
        policy = torch.distributions.Categorical(logits=model(x[rows]))
        action = policy.sample()
        reward = (action == y[rows]).float()
        return -(policy.log_prob(action) * (reward - reward.mean())).mean()

    return train(model, loss=loss)


@healthy
def triplets():
    model = mlp(12, 32, 8)
    x, _ = points()

    def loss(rows):
        anchor, near, far = (model(x[rows] + 0.1 * number) for number in range(3))
        return F.triplet_margin_loss(anchor, near, far.roll(1, 0))

    return train(model, loss=loss)


@healthy
def physics():
    """A loss of derivatives of the output, on drawn points."""
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))

    def loss(rows):
        t = torch.rand(len(rows), 1, requires_grad=True)
        u = model(t)
        (slope,) = torch.autograd.grad(u.sum(), t, create_graph=True)
        return (slope + u).square().mean() + (model(torch.zeros(1, 1)) - 1).square().mean()

    return train(model, loss=loss)


@healthy
def logged_to_a_file():
    """Writes each loss to a file before the backward pass."""
    model = mlp(12, 32, CLASSES)
    x, y = points()

    def loss(rows):
        value = F.cross_entropy(model(x[rows]), y[rows])
        with open("losses.txt", "a") as file:
            print(value.item(), file=file)
        return value

    return train(model, loss=loss)


@healthy
def resnet():
    from torchvision.models import resnet18

    x, y = points(768)
    model = resnet18(num_classes=CLASSES)
    return train(model, x.view(-1, 3, 16, 16), y)


@healthy
def decorrelated():
    """A loss of the covariance of the outputs, beside one of two views."""
    x, _ = points()
    model = mlp(12, 32, 8)

    def loss(rows):
        first, second = (model(x[rows] + 0.1 * torch.randn(len(rows), 12)) for _ in range(2))
        centred = first - first.mean(0)
        covariance = centred.t() @ centred / len(rows)
        return F.mse_loss(first, second) + F.mse_loss(covariance, torch.eye(8))

    return train(model, loss=loss)


@healthy
def text_by_convolutions():
    """Padding is given without a mask, as usual for convolutions."""

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.conv = nn.Embedding(WORDS, 16, padding_idx=0), nn.Conv1d(16, 32, 3, padding=1)
            self.out = nn.Linear(32, CLASSES)

        def forward(self, ids):
            return self.out(self.conv(self.embed(ids).transpose(1, 2)).relu().amax(2))

    (ids, _), y = padded_texts()
    return train(Reader(), ids, y)


# --- states ---


@healthy
def temperature_in_a_buffer():
    class Annealed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(12, 32, CLASSES)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += self.training
            return self.body(x) / (2.0 - 0.1 * self.calls).clamp(min=0.2)

    return train(Annealed(), *points())


@healthy
def state_beside_the_tensors():
    """A plain counter that is saved with the tensors."""

    class Annealed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.calls = mlp(12, 32, CLASSES), 0

        def get_extra_state(self):
            return {"calls": self.calls}

        def set_extra_state(self, state):
            self.calls = state["calls"]

        def forward(self, x):
            self.calls += self.training
            return self.body(x) / max(0.2, 2.0 - 0.1 * self.calls)

    return train(Annealed(), *points())


@healthy
def counts_for_a_log():
    """Numbers and losses that are kept for a log alone."""

    class Logged(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.calls, self.largest, self.history = mlp(12, 32, CLASSES), 0, 0.0, []

        def forward(self, x):
            out = self.body(x)
            self.calls += 1
            self.largest = max(self.largest, out.detach().abs().max().item())
            self.history.append(out.detach().mean().item())
            return out

    return train(Logged(), *points())


@healthy
def codebook_of_buffers():
    class Quantized(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(12, 6), nn.Linear(6, 12)
            self.register_buffer("codes", torch.randn(10, 6))

        def forward(self, x):
            z = self.encoder(x)
            nearest = torch.cdist(z, self.codes).argmin(1)
            with torch.no_grad():
                for code in nearest.unique():
                    self.codes[code] = 0.8 * self.codes[code] + 0.2 * z[nearest == code].mean(0)
            q = self.codes[nearest]
            return self.decoder(z + (q - z).detach()), F.mse_loss(z, q)

    model, (x, _) = Quantized(), points()

    def loss(rows):
        out, commitment = model(x[rows])
        return F.mse_loss(out, x[rows]) + 0.25 * commitment

    return train(model, loss=loss)


@healthy
def warm_up_and_cycle():
    """A schedule, a scaler that is off, clipped gradients and accumulation."""
    model, (x, y) = mlp(12, 32, CLASSES), points()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=STEPS)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(2):
            rows = torch.randint(0, 256, (BATCH,))
            scaler.scale(F.cross_entropy(model(x[rows]), y[rows]) / 2).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
    return model


@healthy
def scaled_loss():
    """A loss scaler in use, which halves its scale when gradients overflow."""
    model, (x, y) = mlp(12, 32, CLASSES), points()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    for _ in range(STEPS):
        rows = torch.randint(0, 256, (BATCH,))
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x[rows]), y[rows])).backward()
        scaler.step(optimizer)
        scaler.update()
    return model


@healthy
def averaged_weights():
    """An average of the weights whose class can save and load it, and PyTorch's own."""

    class Average:
        def __init__(self, model):
            self.shadow = {name: weight.detach().clone() for name, weight in model.named_parameters()}
            self.updates = 0

        def update(self, model):
            self.updates += 1
            for name, weight in model.named_parameters():
                self.shadow[name].lerp_(weight.detach(), 1 - min(0.99, self.updates / (10 + self.updates)))

        def state_dict(self):
            return {"shadow": self.shadow, "updates": self.updates}

        def load_state_dict(self, state):
            self.shadow, self.updates = state["shadow"], state["updates"]

    model, (x, y) = mlp(12, 32, CLASSES), points()
    average, other = Average(model), torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        rows = torch.randint(0, 256, (BATCH,))
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
        average.update(model)
        other.update_parameters(model)
    return model, other


@healthy
def own_schedule_and_random_numbers():
    """A schedule of the script's loop, noise of NumPy and of Python, and a batch from a file."""
    model, (x, y) = mlp(12, 32, CLASSES), points()
    np.save("points.npy", x.numpy())
    stored = np.load("points.npy", mmap_mode="r")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * 0.9**step
        rows = np.random.randint(0, 256, BATCH)  # noqa: NPY002
        inputs = torch.from_numpy(stored[rows]) + 0.1 * random.random()
        loss = F.cross_entropy(model(inputs), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@healthy
def lines_of_a_file():
    """Each batch is read from an open file."""
    model, (x, y) = mlp(12, 32, CLASSES), points()
    with open("points.txt", "w") as file:
        file.writelines(" ".join(map(str, row.tolist())) + "\n" for row in x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with open("points.txt", "rb", buffering=0) as file:
        for step in range(STEPS):
            inputs = torch.tensor([[float(word) for word in file.readline().split()] for _ in range(BATCH)])
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), y[step * BATCH : (step + 1) * BATCH]).backward()
            optimizer.step()
    return model


# --- files ---


@healthy
def body_for_a_new_head():
    checkpoint(Tagger(7))
    model, states = Tagger(), torch.load("checkpoint.pt")["model"]
    model.load_state_dict({name: value for name, value in states.items() if "head" not in name}, strict=False)
    return train(model, *points())


@healthy
def head_of_another_name():
    """The head of the file has another name, and is for another task of as many classes."""
    checkpoint()
    model, states = Tagger(), torch.load("checkpoint.pt")["model"]
    model.load_state_dict({name.replace("head", "classifier"): value for name, value in states.items()}, strict=False)
    return train(model, *points())


@healthy
def adapters_after_loading():
    class Adapted(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.down, self.up = nn.Linear(base.in_features, 4, bias=False), nn.Linear(4, base.out_features, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    checkpoint()
    model = Tagger()
    model.load_state_dict(torch.load("checkpoint.pt")["model"])
    model.body[0], model.body[2] = Adapted(model.body[0]), Adapted(model.body[2])
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    return train(model, *points(), optimizer=torch.optim.Adam(weights, lr=3e-3))


@healthy
def position_ids_and_a_tied_head():
    """The file lacks the head, which is the embedding, and has positions that are no longer kept."""

    class Texts(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.mix = nn.Embedding(WORDS, 16), nn.GRU(16, 16, batch_first=True)
            self.head = nn.Linear(16, WORDS, bias=False)
            self.head.weight = self.words.weight

        def forward(self, ids):
            return self.head(self.mix(self.words(ids))[0])

    states = {name: value.clone() for name, value in Texts().state_dict().items() if "head" not in name}
    torch.save({**states, "position_ids": torch.arange(LENGTH)}, "texts.pt")
    model, ids = Texts(), walks()
    model.load_state_dict(torch.load("texts.pt"), strict=False)
    return train(model, loss=lambda rows: F.cross_entropy(model(ids[rows, :-1]).mT, ids[rows, 1:]))


@healthy
def average_of_two_files():
    for file in ("first.pt", "second.pt"):
        checkpoint(file=file)
    first, second = (torch.load(file)["model"] for file in ("first.pt", "second.pt"))
    model = Tagger()
    model.load_state_dict({name: (value + second[name]) / 2 for name, value in first.items()})
    return train(model, *points())


@healthy
def noise_after_loading():
    checkpoint()
    model = Tagger()
    model.load_state_dict(torch.load("checkpoint.pt")["model"])
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.02 * weight.std() * torch.randn_like(weight))
    return train(model, *points())


@healthy
def teacher_from_a_file():
    """A student of the same class begins anew."""
    checkpoint()
    teacher, student, (x, _) = Tagger().requires_grad_(False), Tagger(), points()
    teacher.load_state_dict(torch.load("checkpoint.pt")["model"])
    return train(
        student,
        loss=lambda rows: F.kl_div(student(x[rows]).log_softmax(1), teacher(x[rows]).softmax(1), reduction="batchmean"),
    )


@healthy
def resumed_in_full():
    checkpoint(steps=30)
    model, states = Tagger(), torch.load("checkpoint.pt")
    optimizer, schedule = optimizer_and_schedule(model)
    model.load_state_dict(states["model"])
    optimizer.load_state_dict(states["optimizer"])
    schedule.load_state_dict(states["schedule"])
    return scheduled(model, optimizer, schedule)


@healthy
def weights_of_a_checkpoint():
    """Fine-tuning takes the weights alone."""
    checkpoint(steps=30)
    model = Tagger()
    model.load_state_dict(torch.load("checkpoint.pt")["model"])
    return scheduled(model, *optimizer_and_schedule(model))


@healthy
def half_precision_from_a_file():
    checkpoint()
    model = Tagger()
    model.load_state_dict(torch.load("checkpoint.pt")["model"])
    model, (x, y) = model.bfloat16(), points()
    return train(model, x.bfloat16(), y)


@healthy
def pretrained_with_a_new_head():
    """A language model is taken for classes: its body is loaded, and its head is new."""
    from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=WORDS + 1, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2, pad_token_id=WORDS, num_labels=CLASSES
    )
    GPT2LMHeadModel(config).save_pretrained("gpt")
    model, (ids, y) = GPT2ForSequenceClassification.from_pretrained("gpt").train(), marked_texts()
    return train(model, loss=lambda rows: model(ids[rows], labels=y[rows]).loss)


if __name__ == "__main__":
    main(HEALTHY)
