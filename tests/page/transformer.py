"""A small language model of twelve layers, named as GPT-2's are; from step 4 on, attention of layer 7 becomes NaN.

Run by `tensight run` for tests of the page with a model of real size: more than 700 tensors in a step, and two graphs,
for every third step begins with an evaluation.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

LAYERS, HEADS, WIDTH, WORDS, LENGTH, BATCH = 12, 4, 32, 61, 16, 4
SICK_LAYER, SICK_SINCE, SICK_SEQUENCE = 7, 4, 2
WINDOW = 4
"""Of layer 7: how many words its attention looks back."""


class Attention(nn.Module):
    def __init__(self, window: int) -> None:
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.softmax = nn.Softmax(dim=-1)
        self.c_proj = nn.Linear(WIDTH, WIDTH)
        distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
        self.register_buffer("reach", (distance >= 0) & (distance < window), persistent=False)

    def forward(self, hidden: Tensor, seen: Tensor) -> Tensor:
        parts = self.c_attn(hidden).view(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.mT / math.sqrt(WIDTH // HEADS)
        visible = self.reach & seen[:, None, None, :]
        weights = self.softmax(scores.masked_fill(~visible, -math.inf))  # FAULT: a word that sees none has no weights
        return self.c_proj((weights @ value).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))


class Block(nn.Module):
    def __init__(self, window: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention(window)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, hidden: Tensor, seen: Tensor) -> Tensor:
        hidden = hidden + self.attn(self.ln_1(hidden), seen)
        return hidden + self.mlp(self.ln_2(hidden))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(WORDS, WIDTH)
        self.wpe = nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList(Block(WINDOW if layer == SICK_LAYER else LENGTH) for layer in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, words: Tensor, seen: Tensor) -> Tensor:
        hidden = self.wte(words) + self.wpe(torch.arange(LENGTH))
        for block in self.h:
            hidden = block(hidden, seen)
        return self.ln_f(hidden)


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer = Transformer()
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: Tensor, seen: Tensor) -> Tensor:
        return self.lm_head(self.transformer(words, seen))


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 31):
        words = torch.randint(0, WORDS, (BATCH, LENGTH))
        seen = torch.ones(BATCH, LENGTH, dtype=torch.bool)
        if step >= SICK_SINCE:
            seen[SICK_SEQUENCE, 5:13] = False  # two texts in one sequence, with padding between them
        if step % 3 == 0:
            with torch.no_grad():
                model(words, seen)
        loss = nn.functional.cross_entropy(model(words, seen)[:, :-1].flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        print(f"step {step}  loss {loss.item():.4f}", flush=True)
        optimizer.step()


if __name__ == "__main__":
    main()
