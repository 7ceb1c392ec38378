"""What no other tool raised in a comparison of them: each kind of fault in several shapes."""

from __future__ import annotations

import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
from launch import run
from learning import CLASSES, pictures, points, sentences
from torch.utils.data import DataLoader, TensorDataset

WORDS = 24


def fit(model, inputs, targets, optimizer, steps, loss_of=F.cross_entropy, batch=32):
    """Train on random batches in the usual order; print the loss now and then."""
    for step in range(steps):
        rows = torch.randint(0, len(inputs), (batch,))
        loss = loss_of(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % (steps // 5) == 0:
            print(f"step {step + 1} loss {loss.item():.4f}")


# --- statistics that drift below frozen weights ---


def conv_stages():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )


def new_head(fault):
    """Photographs first; then drawings, which are darker, with a new head on frozen stages."""
    images, labels = pictures(320, 16)
    stages = conv_stages()
    model = nn.Sequential(stages, nn.Linear(64, CLASSES))
    fit(model, images, labels, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), 60)
    drawings, kinds = pictures(320, 16)
    drawings = 0.4 * drawings - 0.5
    stages.requires_grad_(False)
    model = nn.Sequential(stages, nn.Linear(64, CLASSES))
    optimizer = torch.optim.Adam(model[1].parameters(), lr=1e-2)
    for epoch in range(5):
        model.train()
        if fault != "stages-in-training-mode":
            stages.eval()
        total = 0.0
        for i in torch.randperm(320).split(16):
            loss = F.cross_entropy(model(drawings[i]), kinds[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 20
        print(f"epoch {epoch} loss {total:.4f}")


class Speech(nn.Module):
    """A convolutional encoder that was trained before, and a recurrent layer on top."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.encoder = nn.Sequential(
            nn.Conv1d(4, 24, 5, 2),
            nn.BatchNorm1d(24),
            nn.GELU(),
            nn.Conv1d(24, 24, 3, 2),
            nn.BatchNorm1d(24),
            nn.GELU(),
        )
        self.cells, self.out = nn.GRU(24, 32, batch_first=True), nn.Linear(32, CLASSES)
        self.is_fixed = False

    def train(self, mode=True):
        super().train(mode)
        if self.is_fixed and self.fault != "no-train-of-its-own":
            self.encoder.eval()
        return self

    def forward(self, x):
        return self.out(self.cells(self.encoder(x).transpose(1, 2))[1][-1])


def spoken(fault):
    waves = torch.randn(320, 4, 48)
    y = (waves[:, 0].mean(1) > 0).long() + 2 * (waves[:, 1].mean(1) > 0).long()
    model = Speech(fault)
    fit(model, waves, y, torch.optim.Adam(model.parameters(), lr=3e-3), 60)
    for p in model.encoder.parameters():
        p.requires_grad = False
    model.is_fixed = True
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=3e-3)
    louder = 1.6 * waves + 0.3
    for _ in range(3):
        model.train()
        fit(model, louder, y, optimizer, 30)


def lightning_finetuned(fault):
    """Lightning puts the module into training mode when it begins."""
    import lightning

    images, labels = pictures(320, 16)
    stages = conv_stages()
    before = nn.Sequential(stages, nn.Linear(64, CLASSES))
    fit(before, images, labels, torch.optim.SGD(before.parameters(), lr=0.05, momentum=0.9), 60)

    class Finetuned(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.backbone, self.head = stages, nn.Linear(64, CLASSES)
            self.backbone.requires_grad_(False)

        def on_train_epoch_start(self):
            if fault != "backbone-follows-the-trainer":
                self.backbone.eval()

        def training_step(self, batch, _):
            x, y = batch
            return F.cross_entropy(self.head(self.backbone(x)), y)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.head.parameters(), lr=5e-3)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    runner = lightning.Trainer(
        max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    model = Finetuned()
    runner.fit(model, DataLoader(TensorDataset(1.0 - images, labels), 32, shuffle=True))
    print("trained for", runner.global_step, "steps")


# --- equal units ---


def recurrent_constant(fault):
    """A network of gated cells whose weights are set by hand."""
    x = torch.randn(400, 12, 3)
    y = (x[:, :, 0] * x[:, :, 1]).sum(1, keepdim=True).tanh()
    cells, out = nn.GRU(3, 24, batch_first=True), nn.Linear(24, 1)
    for name, p in [*cells.named_parameters(), *out.named_parameters()]:
        if "bias" in name:
            nn.init.zeros_(p)
        elif fault == "ones-everywhere":
            nn.init.constant_(p, 0.08)
        else:
            nn.init.xavier_uniform_(p)
    model = nn.ModuleDict({"cells": cells, "out": out})
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    fit(lambda rows: out(cells(rows)[0][:, -1]), x, y, optimizer, 150, F.mse_loss)


def filters(fault):
    """Convolutions that are initialised by a function for all of them."""
    images, labels = pictures(320, 16)
    images = images + 2 * torch.randn_like(images)
    net = nn.Sequential(
        nn.Conv2d(3, 12, 5, 2), nn.ReLU(), nn.Conv2d(12, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, CLASSES)
    )

    def reset(layer):
        if isinstance(layer, nn.Conv2d):
            nn.init.zeros_(layer.bias)
            if fault == "filled":
                layer.weight.data.fill_(0.03)
            else:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    net.apply(reset)
    fit(net, images, labels, torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9), 120)


# --- a padding index that is a word ---


class Texts(nn.Module):
    def __init__(self, padding_idx, words=WORDS):
        super().__init__()
        self.emb = nn.Embedding(words, 24, padding_idx=padding_idx)
        self.cells, self.out = nn.GRU(24, 32, batch_first=True), nn.Linear(32, CLASSES)

    def forward(self, ids):
        return self.out(self.cells(self.emb(ids))[0].mean(1))


def opinions(fault):
    """Texts of one length. Nothing is padded, and words are numbered from 0 or from 1."""
    ids = torch.randint(0, WORDS - 1, (400, 10))
    labels = ((ids == 0).sum(1) > 0).long() + 2 * ((ids == 1).sum(1) > 0).long()
    if fault != "first-word":
        ids = ids + 1
    model = Texts(0)
    fit(model, ids, labels, torch.optim.Adam(model.parameters(), lr=5e-3), 150)


def next_item(fault):
    """What somebody buys next, by what was bought before; items are numbered as they came."""
    items = 30
    history = torch.randint(0, items, (500, 6))
    bought = (history[:, -1] + 2 * history[:, -2]) % items
    padding, first = (0, 0) if fault == "item-zero" else (0, 1)
    emb = nn.Embedding(items + first, 24, padding_idx=padding)
    body = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, items))
    model = nn.Sequential(emb, body)
    fit(model, history + first, bought, torch.optim.AdamW(model.parameters(), lr=5e-3), 200)


def spelled(fault):
    """Letters of words, with a space between them; the shorter lines end with padding."""
    text = sentences(400, 12, WORDS)
    space, padding = 0, 1
    text[torch.rand(text.shape) < 0.15] = space
    lengths = torch.randint(8, 13, (400, 1))
    text = text.masked_fill(torch.arange(12) >= lengths, padding)
    model = nn.ModuleDict(
        {
            "emb": nn.Embedding(WORDS, 24, padding_idx=space if fault == "space-is-padding" else padding),
            "cells": nn.LSTM(24, 48, batch_first=True),
            "out": nn.Linear(48, WORDS),
        }
    )

    def logits(ids):
        return model["out"](model["cells"](model["emb"](ids))[0]).transpose(1, 2)

    def loss_of(scores, ids):
        return F.cross_entropy(scores, ids, ignore_index=padding)

    fit(logits, text[:, :-1], text[:, 1:], torch.optim.Adam(model.parameters(), lr=5e-3), 150, loss_of)


def melodies(fault):
    """The next note, and how long it is; the rest is a note like the others."""
    notes, lengths = sentences(300, 16, WORDS) - 2, torch.randint(0, 4, (300, 16))
    rest = WORDS - 3
    notes[torch.rand(notes.shape) < 0.2] = rest
    notes = torch.where(torch.rand(notes.shape) < 0.1, 0, notes)
    padding = rest if fault == "rest-is-padding" else None
    note, length = nn.Embedding(WORDS, 24, padding_idx=padding), nn.Embedding(4, 8)
    cells, out = nn.GRU(32, 48, batch_first=True), nn.Linear(48, WORDS)
    model = nn.ModuleList([note, length, cells, out])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(150):
        i = torch.randint(0, 300, (32,))
        h = cells(torch.cat([note(notes[i, :-1]), length(lengths[i, :-1])], -1))[0]
        loss = F.cross_entropy(out(h).flatten(0, 1), notes[i, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 29:
            print(f"step {step + 1} loss {loss.item():.4f}")


def continued(fault):
    """Texts that are put together to one, with a mark at the end of each, as GPT-2 has it for padding, too."""
    end = 1
    text = sentences(300, 14, WORDS)
    text[torch.arange(300), torch.randint(3, 8, (300,))] = end
    text[torch.arange(300), torch.randint(8, 14, (300,))] = end
    emb = nn.Embedding(WORDS, 32, padding_idx=end if fault == "end-is-padding" else None)
    model = nn.ModuleDict({"emb": emb, "cells": nn.LSTM(32, 64, 2, batch_first=True), "out": nn.Linear(64, WORDS)})

    def logits(ids):
        return model["out"](model["cells"](emb(ids))[0]).transpose(1, 2)

    fit(logits, text[:, :-1], text[:, 1:], torch.optim.Adam(model.parameters(), lr=4e-3), 150)


# --- a causal mask that is missing ---


class Block(nn.Module):
    def __init__(self, fault, width=32):
        super().__init__()
        self.fault = fault
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=self.fault != "not-causal")
        x = x + self.out(h)
        return x + self.mlp(x)


class Language(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.emb, self.position = nn.Embedding(WORDS, 32), nn.Embedding(12, 32)
        self.layers, self.out = nn.ModuleList(layers), nn.Linear(32, WORDS)

    def forward(self, ids):
        x = self.emb(ids) + self.position(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.out(x).transpose(1, 2)


def language(fault):
    text = sentences(400, 12, WORDS)
    model = Language([Block(fault), Block(fault)])
    fit(model, text[:, :-1], text[:, 1:], torch.optim.AdamW(model.parameters(), lr=3e-3), 120)


def encoder_layers(fault):
    """The layers of PyTorch, which see everything unless they are given a mask."""
    text = sentences(400, 12, WORDS)
    body = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True), 2)
    mask = nn.Transformer.generate_square_subsequent_mask(11)

    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = body

        def forward(self, x):
            return self.body(x) if fault == "mask-not-given" else self.body(x, mask=mask, is_causal=True)

    model = Language([Causal()])
    fit(model, text[:, :-1], text[:, 1:], torch.optim.AdamW(model.parameters(), lr=3e-3), 120)


def bert_writes(fault):
    """A model for masked words that is to write."""
    from transformers import BertConfig, BertLMHeadModel

    logging.getLogger("transformers").setLevel(logging.ERROR)
    text = sentences(320, 12, WORDS)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=16, is_decoder=fault != "no-decoder",
    )  # fmt: skip
    model = BertLMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(80):
        ids = text[torch.randint(0, 320, (32,))]
        loss = F.cross_entropy(model(ids[:, :-1]).logits.transpose(1, 2), ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}")


# --- evaluation mode ---


def resumed_in_evaluation(fault):
    """A network that was evaluated before it was trained, and has only dropout."""
    x, y = points(512, 16, 1.2)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.4), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.4))
    model = nn.Sequential(model, nn.Linear(64, CLASSES))
    model.eval()
    with torch.no_grad():
        print("before", F.cross_entropy(model(x), y).item())
    if fault != "evaluated-first":
        model.train()
    fit(model, x, y, torch.optim.Adam(model.parameters(), lr=3e-3), 150)


if __name__ == "__main__":
    run(
        {
            "new-head": new_head,
            "spoken": spoken,
            "lightning-finetuned": lightning_finetuned,
            "recurrent-constant": recurrent_constant,
            "filters": filters,
            "opinions": opinions,
            "next-item": next_item,
            "spelled": spelled,
            "melodies": melodies,
            "continued": continued,
            "language": language,
            "encoder-layers": encoder_layers,
            "bert-writes": bert_writes,
            "resumed-in-evaluation": resumed_in_evaluation,
        }
    )
