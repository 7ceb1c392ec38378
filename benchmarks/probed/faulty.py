"""Programs with a fault that experiments on one batch show. python faulty.py NAME [--seed 1]

`FAULTS` names the rules that are right for each.
"""

from __future__ import annotations

import copy
import math
import os

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

FAULTS = {}


def fault(*rules):
    def add(function):
        FAULTS[function.__name__.replace("_", "-")] = function, rules
        return function

    return add


# --- samples are mixed ---


@fault("samples-mixed")
def view_for_transpose():
    """A layer that expects time first is given a view with these sizes."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.attend = nn.Embedding(WORDS, 32), nn.MultiheadAttention(32, 4)
            self.out = nn.Linear(32, CLASSES)

        def forward(self, ids):
            b, t = ids.shape
            h = self.embed(ids).view(t, b, 32)
            h = self.attend(h, h, h, need_weights=False)[0]
            return self.out(h.reshape(b, t, 32).mean(1))

    return train(Attention(), *marked_texts())


@fault("samples-mixed")
def softmax_over_batch():
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.body, self.out = nn.Linear(12, 16), nn.Linear(12, 16), nn.Linear(16, CLASSES)

        def forward(self, x):
            return self.out(torch.softmax(self.gate(x), dim=0) * self.body(x).relu())

    return train(Gate(), *points())


@fault("samples-mixed")
def attention_over_batch():
    """A layer that expects (time, batch, features) is given the batch first."""

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.attend = nn.Embedding(WORDS, 32), nn.MultiheadAttention(32, 4)
            self.out = nn.Linear(32, CLASSES)

        def forward(self, ids):
            h = self.embed(ids)
            h = h + self.attend(h, h, h, need_weights=False)[0]
            return self.out(h.mean(1))

    return train(Encoder(), *marked_texts())


@fault("samples-mixed")
def lstm_over_batch():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.out = nn.LSTM(6, 24), nn.Linear(24, CLASSES)

        def forward(self, x):
            return self.out(self.cells(x)[0][:, -1])

    return train(Reader(), *sequences())


@fault("samples-mixed")
def mean_over_everything():
    """A hand-made layer norm takes the mean of the whole batch."""

    class Norm(nn.Module):
        def forward(self, x):
            return (x - x.mean()) / (x.std() + 1e-5)

    return train(nn.Sequential(nn.Linear(12, 32), Norm(), nn.ReLU(), nn.Linear(32, CLASSES)), *points())


@fault("samples-mixed")
def reshape_of_images():
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Linear(16, 32), nn.Linear(32, CLASSES)

        def forward(self, x):
            b = len(x)
            patches = x.unfold(2, 4, 4).unfold(3, 4, 4).flatten(4)  # b, 1, 2, 2, 16
            patches = patches.permute(2, 3, 0, 1, 4).reshape(b, 4, 16)
            return self.out(self.embed(patches).relu().mean(1))

    x, y = points(64)
    return train(Patches(), x.view(-1, 1, 8, 8), y)


@fault("samples-mixed")
def normalize_over_batch():
    class Cosine(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.out = nn.Linear(12, 32), nn.Linear(32, CLASSES)

        def forward(self, x):
            return self.out(F.normalize(self.body(x), dim=0) * 6)

    return train(Cosine(), *points())


@fault("samples-mixed")
def cumulated_over_batch():
    class Decay(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = nn.Linear(6, 16), nn.Linear(16, CLASSES)

        def forward(self, x):
            return self.out(torch.cumsum(self.into(x).tanh(), 0)[:, -1] / 8)

    return train(Decay(), *sequences())


@fault("samples-mixed")
def pooled_over_batch():
    """Channels of a squeeze are computed from the mean over samples, too."""

    class Squeeze(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.gate, self.out = nn.Conv2d(1, 8, 3), nn.Linear(8, 8), nn.Linear(8, CLASSES)

        def forward(self, x):
            h = self.conv(x).relu()
            gate = torch.sigmoid(self.gate(h.mean((0, 2, 3))))
            return self.out((h * gate[None, :, None, None]).mean((2, 3)))

    x, y = points(64)
    return train(Squeeze(), x.view(-1, 1, 8, 8), y)


# --- inputs are ignored ---


@fault("input-ignored")
def condition_forgotten():
    class Conditional(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.body, self.out = nn.Embedding(4, 8), nn.Linear(12, 32), nn.Linear(32, CLASSES)

        def forward(self, x, kind):
            h = self.body(x).relu()
            condition = self.embed(kind)  # noqa: F841
            return self.out(h)

    x, y = points()
    kind = torch.randint(0, 4, (len(x),))
    return train(Conditional(), (x, kind), y)


@fault("input-ignored")
def overwritten_input():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right, self.out = nn.Linear(12, 16), nn.Linear(12, 16), nn.Linear(32, CLASSES)

        def forward(self, left, right):
            right = left
            return self.out(torch.cat([self.left(left).relu(), self.right(right).relu()], 1))

    x, y = points()
    return train(Two(), (x, torch.randn_like(x)), y)


@fault("input-ignored")
def sliced_features():
    class Sliced(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, CLASSES))

        def forward(self, x):
            return self.body(x[:, :-2])

    return train(Sliced(), *points())


@fault("input-ignored")
def same_channel_twice():
    class Channels(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.out = nn.GRU(6, 24, batch_first=True), nn.Linear(24, CLASSES)

        def forward(self, x):
            x = torch.stack([x[..., 0], x[..., 1], x[..., 2], x[..., 3], x[..., 4], x[..., 4]], -1)
            return self.out(self.cells(x)[0].mean(1))

    return train(Channels(), *sequences())


@fault("input-ignored")
def step_of_noise_ignored():
    """A denoiser that does not read how noisy its input is."""

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 16)
            self.into, self.out = nn.Linear(12, 32), nn.Linear(32, 12)

        def forward(self, x, t):
            h = self.into(x).relu()
            h = h + self.embed(torch.zeros_like(t)).repeat(1, 2)
            return self.out(h)

    x, _ = points()
    model = Denoiser()

    def loss(rows):
        t = torch.randint(0, 10, (len(rows),))
        noise = torch.randn(len(rows), 12)
        level = (t / 10)[:, None]
        return F.mse_loss(model(x[rows] * (1 - level) + noise * level, t), noise)

    return train(model, loss=loss)


@fault("input-ignored")
def mask_ignored():
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(WORDS, 32), nn.Linear(32, CLASSES)

        def forward(self, ids, attention_mask):
            return self.out(self.embed(ids).mean(1))

    return train(Pool(), *padded_texts())


@fault("units-silent", "input-ignored")
def dead_network():
    """All units are dead from the start: every sample gets the same."""
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    with torch.no_grad():
        model[0].bias.fill_(-60)
    return train(model, *points())


@fault("input-ignored", "no-gradient")
def decoder_without_code():
    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, 24)
            self.encoder, self.decoder = (nn.GRU(24, 24, batch_first=True) for _ in range(2))
            self.out = nn.Linear(24, WORDS)

        def forward(self, source, written):
            _, code = self.encoder(self.embed(source))
            return self.out(self.decoder(self.embed(written), torch.zeros_like(code))[0])

    source = torch.randint(1, WORDS, (256, LENGTH))
    model = Translator()

    def loss(rows):
        ids = source[rows]
        written = torch.cat([torch.zeros(len(rows), 1, dtype=torch.long), ids[:, :-1]], 1)
        return F.cross_entropy(model(ids, written).flatten(0, 1), ids.flatten())

    return train(model, loss=loss)


# --- positions ---


@fault("positions-ignored")
def first_step_taken():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.out = nn.LSTM(6, 24, batch_first=True), nn.Linear(24, CLASSES)

        def forward(self, x):
            return self.out(self.cells(x)[0][:, 0])

    return train(Reader(), *sequences())


@fault("positions-ignored")
def first_word_taken():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, 16)
            self.cells, self.out = nn.GRU(16, 24, batch_first=True), nn.Linear(24, CLASSES)

        def forward(self, ids):
            return self.out(self.cells(self.embed(ids))[0][:, 0])

    return train(Reader(), *marked_texts())


@fault("positions-ignored")
def causal_and_first():
    """A causal transformer whose first position is taken for the whole text."""

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, 32)
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)
            self.out = nn.Linear(32, CLASSES)

        def forward(self, ids):
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
            return self.out(self.layer(self.embed(ids), src_mask=mask, is_causal=True)[:, 0])

    return train(Encoder(), *marked_texts())


# --- order ---


class Language(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.embed, self.position = nn.Embedding(WORDS, 32), nn.Embedding(LENGTH, 32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, WORDS)
        self.attend = attend

    def forward(self, ids):
        h = self.embed(ids) + self.position(torch.arange(ids.shape[1]))
        return self.out(h + self.attend(*self.qkv(h).chunk(3, -1)))


def next_word(model):
    ids = walks()

    def loss(rows):
        logits = model(ids[rows, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[rows, 1:].flatten())

    return train(model, loss=loss)


@fault("later-words-count")
def mask_forgotten():
    def attend(q, k, v):
        return torch.softmax(q @ k.transpose(1, 2) / math.sqrt(32), -1) @ v

    return next_word(Language(attend))


@fault("later-words-count")
def mask_transposed():
    def attend(q, k, v):
        scores = q @ k.transpose(1, 2) / math.sqrt(32)
        mask = torch.ones(scores.shape[-2:]).triu().bool()
        return torch.softmax(scores.masked_fill(~mask, -1e9), -1) @ v

    return next_word(Language(attend))


@fault("later-words-count")
def mask_after_softmax():
    def attend(q, k, v):
        weights = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(32), -1)
        return weights.tril() @ v

    return next_word(Language(attend))


@fault("later-words-count")
def convolution_is_centred():
    class Convolutions(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(WORDS, 32), nn.Linear(32, WORDS)
            self.convs = nn.ModuleList(nn.Conv1d(32, 32, 3, padding=1) for _ in range(2))

        def forward(self, ids):
            h = self.embed(ids).transpose(1, 2)
            for conv in self.convs:
                h = h + conv(h).relu()
            return self.out(h.transpose(1, 2))

    return next_word(Convolutions())


@fault("later-words-count")
def reads_both_ways():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, 16)
            self.cells, self.out = nn.LSTM(16, 16, batch_first=True, bidirectional=True), nn.Linear(32, WORDS)

        def forward(self, ids):
            return self.out(self.cells(self.embed(ids))[0])

    return next_word(Both())


@fault("later-words-count")
def normalized_over_time():
    """A norm of each channel over all positions tells of what follows."""

    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, 24)
            self.cells, self.norm, self.out = (
                nn.GRU(24, 24, batch_first=True),
                nn.InstanceNorm1d(24),
                nn.Linear(24, WORDS),
            )

        def forward(self, ids):
            h = self.cells(self.embed(ids))[0]
            return self.out(self.norm(h.transpose(1, 2)).transpose(1, 2))

    return next_word(Normed())


# --- padding ---


@fault("padding-counts")
def mean_with_padding():
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, 32)
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)
            self.out = nn.Linear(32, CLASSES)

        def forward(self, ids, attention_mask):
            h = self.layer(self.embed(ids), src_key_padding_mask=attention_mask == 0)
            return self.out(h.mean(1))

    return train(Pool(), *padded_texts())


@fault("padding-counts")
def mask_of_one_layer():
    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(WORDS, 32)
            self.first, self.second = (nn.MultiheadAttention(32, 4, batch_first=True) for _ in range(2))
            self.out = nn.Linear(32, CLASSES)

        def forward(self, ids, attention_mask):
            h = self.embed(ids)
            h = h + self.first(h, h, h, need_weights=False)[0]
            h = h + self.second(h, h, h, key_padding_mask=attention_mask == 0, need_weights=False)[0]
            h = h * attention_mask[..., None]
            return self.out(h.sum(1) / attention_mask.sum(1, keepdim=True))

    return train(Pool(), *padded_texts())


@fault("padding-counts")
def mask_added_as_number():
    """1 and 0 are added to the scores, which hides nothing."""

    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.qkv, self.out = nn.Embedding(WORDS, 32), nn.Linear(32, 96), nn.Linear(32, CLASSES)

        def forward(self, ids, attention_mask):
            q, k, v = self.qkv(self.embed(ids)).chunk(3, -1)
            scores = q @ k.transpose(1, 2) / math.sqrt(32) + attention_mask[:, None].float()
            h = torch.softmax(scores, -1) @ v
            return self.out(h[:, 0])

    return train(Attend(), *padded_texts())


# --- backward functions ---


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return gradient * -(s + x * s * (1 - s))


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, gradient):
        _, scale = ctx.saved_tensors
        return gradient * scale, (gradient * scale).sum(0)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient @ w.t(), x.t() @ gradient / len(x)


class WithFunction(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.into, self.out, self.function = nn.Linear(12, 32), nn.Linear(32, CLASSES), function

    def forward(self, x):
        return self.out(self.function.apply(self.into(x)))


@fault("backward-wrong")
def half_a_derivative():
    return train(WithFunction(Squared), *points())


@fault("backward-wrong")
def derivative_negated():
    return train(WithFunction(Swish), *points())


@fault("backward-wrong")
def derivative_of_the_other():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out, self.scale = nn.Linear(12, 32), nn.Linear(32, CLASSES), nn.Parameter(torch.ones(32))

        def forward(self, x):
            return self.out(Scaled.apply(self.into(x).relu(), self.scale))

    return train(Scale(), *points())


@fault("backward-wrong")
def mean_for_sum():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.out = nn.Parameter(torch.randn(12, 32) * 0.2), nn.Linear(32, CLASSES)

        def forward(self, x):
            return self.out(Product.apply(x, self.weight).relu())

    return train(Own(), *points())


class Leaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x > 0, x, 0.2 * x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, gradient, 0.02 * gradient)


@fault("backward-wrong")
def slope_of_the_other_side():
    return train(WithFunction(Leaky), *points())


# --- more that mixes and ignores ---


@fault("samples-mixed")
def letters_of_einsum():
    """The sum runs over the samples, too."""

    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(6, 48), nn.Linear(16, CLASSES)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            weights = torch.softmax(torch.einsum("btd,csd->bts", q, k) / 16, -1)
            return self.out(torch.einsum("bts,bsd->btd", weights, v).mean(1))

    return train(Attend(), *sequences())


@fault("samples-mixed")
def encoder_with_time_first():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.into = nn.Linear(6, 32)
            self.encoder = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(32, 4, 64, 0.1), 2, enable_nested_tensor=False
            )
            self.out = nn.Linear(32, CLASSES)

        def forward(self, x):
            return self.out(self.encoder(self.into(x)).mean(1))

    return train(Encoder(), *sequences())


@fault("samples-mixed")
def maximum_of_the_batch():
    """Scores are shifted by the maximum of the whole batch, and clipped."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.out = nn.Linear(12, 32), nn.Linear(32, CLASSES)

        def forward(self, x):
            h = self.body(x).relu()
            return self.out(h / h.amax())

    return train(Scaled(), *points())


@fault("input-ignored")
def memory_is_the_target():
    """The decoder attends to itself where it should attend to the source."""

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(WORDS, 32), nn.Linear(32, WORDS)
            self.encoder = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
            self.decoder = nn.TransformerDecoderLayer(32, 4, 64, 0.0, batch_first=True)

        def forward(self, source, written):
            memory = self.encoder(self.embed(source))  # noqa: F841
            h = self.embed(written)
            mask = nn.Transformer.generate_square_subsequent_mask(written.shape[1])
            return self.out(self.decoder(h, h, tgt_mask=mask, memory_mask=mask))

    source = torch.randint(1, WORDS, (256, LENGTH))
    model = Translator()

    def loss(rows):
        ids = source[rows].flip(1)
        written = torch.cat([torch.zeros(len(rows), 1, dtype=torch.long), ids[:, :-1]], 1)
        return F.cross_entropy(model(source[rows], written).flatten(0, 1), ids.flatten())

    return train(model, loss=loss)


@fault("input-ignored")
def trainer_with_a_feature_dropped():
    """A model that the trainer of transformers runs."""
    from transformers import Trainer, TrainingArguments

    class Tabular(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, CLASSES))

        def forward(self, x, kind, labels=None):
            logits = self.body(torch.cat([x[:, :10], x[:, :2]], 1))
            return {"loss": F.cross_entropy(logits, labels), "logits": logits}

    x, y = points()
    rows = [{"x": x[i], "kind": torch.tensor(i % 3), "labels": y[i]} for i in range(256)]
    arguments = TrainingArguments(
        "out", max_steps=STEPS, per_device_train_batch_size=BATCH, report_to=[], use_cpu=True, save_strategy="no",
        disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    model = Tabular()
    Trainer(model, arguments, train_dataset=rows).train()
    return model


@fault("samples-mixed")
def lightning_over_batch():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.out = nn.Linear(12, 16), nn.Linear(16, CLASSES)

        def forward(self, x):
            return self.out(torch.softmax(self.gate(x), 0))

    return lightning_trained(Network())


# --- the loss ---


@fault("loss-against-gradient")
def gradient_turned_by_a_hook():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, CLASSES))

        def forward(self, x):
            out = self.body(x)
            if out.requires_grad:
                out.register_hook(lambda gradient: -gradient)
            return out

    return train(Turned(), *points())


@fault("loss-against-gradient")
def difference_the_wrong_way_round():
    """A straight-through term with another sign."""
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    x, y = points()

    def loss(rows):
        out = model(x[rows])
        return F.cross_entropy(out.detach() - (out - out.detach()), y[rows])

    return train(model, loss=loss)


# --- states ---


@fault("state-not-saved")
def temperature_by_calls():
    """The temperature falls with the number of calls, which is a plain attribute."""

    class Annealed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, CLASSES))
            self.calls = 0

        def forward(self, x):
            self.calls += self.training
            return self.body(x) / max(0.2, 2.0 - 0.1 * self.calls)

    return train(Annealed(), *points())


@fault("state-not-saved")
def centre_as_an_attribute():
    """Self-distillation whose loss keeps its centre as a plain tensor."""

    class Distillation(nn.Module):
        def __init__(self):
            super().__init__()
            self.centre = torch.zeros(1, 8)

        def forward(self, student, teacher):
            targets = ((teacher - self.centre) / 0.1).softmax(-1).detach()
            self.centre = 0.9 * self.centre + 0.1 * teacher.detach().mean(0, keepdim=True)
            return -(targets * (student / 0.2).log_softmax(-1)).sum(-1).mean()

    student = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 8))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    criterion, (x, _) = Distillation(), points()
    for _ in range(STEPS):
        rows = torch.randint(0, 256, (BATCH,))
        views = [x[rows] + 0.1 * torch.randn(BATCH, 12) for _ in range(2)]
        loss = criterion(student(views[0]), teacher(views[1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                mine.lerp_(theirs, 0.01)
    return student, teacher


@fault("state-not-saved")
def codebook_as_an_attribute():
    """The codes of a quantizer follow what they stand for, and are no buffer."""

    class Quantized(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(12, 6), nn.Linear(6, 12)
            self.codes = torch.randn(10, 6)

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


@fault("state-not-saved")
def scale_not_persistent():
    """Inputs are divided by a running scale, which is a buffer that is not saved."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, CLASSES))
            self.register_buffer("scale", torch.ones(12), persistent=False)

        def forward(self, x):
            if self.training:
                self.scale.mul_(0.9).add_(0.1 * x.std(0))
            return self.body(x / self.scale)

    x, y = points()
    return train(Scaled(), 5 * x, y)


@fault("state-not-saved")
def optimizer_that_counts():
    """An optimizer whose warm-up is by a counter of its own."""

    class Warm(torch.optim.Adam):
        def __init__(self, weights):
            super().__init__(weights, lr=3e-3)
            self.updates = 0

        def step(self, closure=None):
            self.updates += 1
            for group in self.param_groups:
                group["lr"] = 3e-3 * min(1.0, self.updates / 10)
            return super().step(closure)

    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    return train(model, *points(), optimizer=Warm(model.parameters()))


@fault("state-not-saved")
def slow_weights():
    """Slow weights that the fast ones return to are a list of the optimizer."""

    class Lookahead(torch.optim.SGD):
        def __init__(self, weights):
            super().__init__(weights, lr=0.1)
            self.slow = [weight.detach().clone() for weight in self.param_groups[0]["params"]]

        @torch.no_grad()
        def step(self, closure=None):
            result = super().step(closure)
            for slow, weight in zip(self.slow, self.param_groups[0]["params"], strict=True):
                slow.lerp_(weight, 0.5)
                weight.copy_(slow)
            return result

    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    return train(model, *points(), optimizer=Lookahead(model.parameters()))


@fault("state-not-saved")
def schedule_without_its_position():
    """A schedule of the script's own returns a part of its state."""

    class Falling(torch.optim.lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base * 0.8**self.last_epoch for base in self.base_lrs]

        def state_dict(self):
            return {"base_lrs": self.base_lrs}

    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    schedule, (x, y) = Falling(optimizer), points()
    for _ in range(STEPS):
        rows = torch.randint(0, 256, (BATCH,))
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


@fault("state-not-saved")
def returns_without_their_variance():
    """Returns are divided by a running deviation, of which the state has the mean alone."""

    class Running:
        def __init__(self):
            self.mean, self.variance = 0.0, 1.0

        def scaled(self, values):
            self.mean = 0.9 * self.mean + 0.1 * values.mean().item()
            self.variance = 0.9 * self.variance + 0.1 * values.var().item()
            return (values - self.mean) / self.variance**0.5

        def state_dict(self):
            return {"mean": self.mean}

        def load_state_dict(self, state):
            self.mean = state["mean"]

    model, running, (x, _) = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1)), Running(), points()
    returns = 30 * x[:, 0] + 5
    return train(model, loss=lambda rows: F.mse_loss(model(x[rows])[:, 0], running.scaled(returns[rows])))


# --- files ---


@fault("nothing-loaded")
def weights_of_a_compiled_model():
    checkpoint()
    model, states = Tagger(), torch.load("checkpoint.pt")
    model.load_state_dict({f"_orig_mod.{name}": value for name, value in states["model"].items()}, strict=False)
    return train(model, *points())


@fault("nothing-loaded")
def body_of_another_name():
    """The head has the name that it had, and the body another one."""
    checkpoint()
    model, states = Tagger(), torch.load("checkpoint.pt")
    renamed = {name.replace("body.", "backbone."): value for name, value in states["model"].items()}
    model.load_state_dict(renamed, strict=False)
    return train(model, *points())


@fault("nothing-loaded")
def names_of_old():
    """Parts of the layers were named otherwise."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.norm = nn.Linear(12, 12), nn.LayerNorm(12)

        def forward(self, x):
            return x + self.attention(self.norm(x))

    def network():
        return nn.Sequential(*(Block() for _ in range(6)), nn.Linear(12, CLASSES))

    checkpoint(network())
    model, states = network(), torch.load("checkpoint.pt")
    old = {name.replace("attention", "self_attn"): value for name, value in states["model"].items()}
    model.load_state_dict(old, strict=False)
    return train(model, *points())


@fault("nothing-loaded")
def dictionary_merged_by_names():
    """What has no such name is left out silently, and that is all: the names have a prefix."""
    checkpoint()
    states = torch.load("checkpoint.pt")["model"]
    given = {f"module.{name}": value for name, value in states.items()}
    model = Tagger()
    merged = model.state_dict()
    merged.update({name: value for name, value in given.items() if name in merged})
    model.load_state_dict(merged)
    return train(model, *points())


@fault("nothing-loaded")
def initialized_after_loading():
    checkpoint()
    model = Tagger()
    model.load_state_dict(torch.load("checkpoint.pt")["model"])

    def initialize(module):
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)

    model.apply(initialize)
    return train(model, *points())


@fault("half-resumed")
def schedule_anew():
    checkpoint(steps=30)
    model, states = Tagger(), torch.load("checkpoint.pt")
    optimizer, schedule = optimizer_and_schedule(model)
    model.load_state_dict(states["model"])
    optimizer.load_state_dict(states["optimizer"])
    return scheduled(model, optimizer, schedule)


@fault("half-resumed")
def optimizer_anew():
    checkpoint(steps=30)
    model, states = Tagger(), torch.load("checkpoint.pt")
    optimizer, schedule = optimizer_and_schedule(model)
    model.load_state_dict(states["model"])
    schedule.load_state_dict(states["schedule"])
    return scheduled(model, optimizer, schedule)


@fault("nothing-loaded")
def pretrained_under_another_name():
    """The weights were saved from a wrapper, whose name is before each of theirs."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=WORDS, n_positions=LENGTH + 1, n_embd=16, n_layer=2, n_head=2)
    GPT2LMHeadModel(config).save_pretrained("gpt")
    states = {f"net.{name}": value for name, value in GPT2LMHeadModel(config).state_dict().items() if "lm" not in name}
    torch.save(states, "gpt/pytorch_model.bin")
    os.remove("gpt/model.safetensors")
    model, ids = GPT2LMHeadModel.from_pretrained("gpt").train(), walks()
    return train(model, loss=lambda rows: model(ids[rows], labels=ids[rows]).loss)


if __name__ == "__main__":
    main({name: function for name, (function, _) in FAULTS.items()})
