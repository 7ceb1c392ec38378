"""A small transformer learns a language of 24 letters, in which each letter depends on the two before it."""

from __future__ import annotations

import torch
from reporting import arguments, counted, scale_weights
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

STEPS, EVERY = 120, 20
LETTERS, LENGTH, WIDTH = 24, 24, 32


def sentences(count: int) -> torch.Tensor:
    """Return texts; after any two letters, four others are likely."""
    likely = torch.randint(LETTERS, (LETTERS, 3, 4))
    text = torch.randint(LETTERS, (count, LENGTH + 1))
    for place in range(2, LENGTH + 1):
        chosen = likely[text[:, place - 1], text[:, place - 2] % 3, torch.randint(4, (count,))]
        text[:, place] = torch.where(torch.rand(count) < 0.95, chosen, text[:, place])
    return text


class Language(nn.Module):
    """Two layers, normalised first."""

    def __init__(self, layers: int, dropout: float) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.1)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, LETTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        hidden = self.letters(text) + self.places
        for layer in self.layers:
            hidden = layer(hidden, src_mask=self.mask, is_causal=True)
        return self.head(self.norm(hidden))


def main() -> None:
    given = arguments("lr", "beta1", "init", "clip", "warmup", "layers", "dropout", optimizer=["adamw", "sgd"])
    text = sentences(1024 + 128)
    training, held_out = text[:1024], text[1024:]
    model = Language(int(given.layers), given.dropout)
    scale_weights(model, given.init)
    if given.optimizer == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), given.lr, betas=(given.beta1, 0.98))
    else:
        optimizer = torch.optim.SGD(model.parameters(), given.lr, momentum=given.beta1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / (1 + given.warmup)))
    for step in counted(STEPS, given.steps_file):
        batch = training[torch.randint(1024, (16,))]
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), given.clip)
        optimizer.step()
        schedule.step()
        if step % EVERY == 0:
            model.eval()
            with torch.no_grad():
                held = F.cross_entropy(model(held_out[:, :-1]).flatten(0, 1), held_out[:, 1:].flatten())
            model.train()
            print(f"step {step} held-out loss {held.item():.6g}", flush=True)


main()
