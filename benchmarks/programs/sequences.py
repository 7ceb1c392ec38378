"""Recurrent networks: python sequences.py lstm|seq2seq|cell."""

from __future__ import annotations

import argparse

import torch
from learning import report, sentences
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

WORDS = 30


class Lstm(nn.Module):
    """Predicts the next word; the state of one batch is the first of the next one."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(width, WORDS)
        self.head.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, 0.0, 0.2)

    def forward(self, text: torch.Tensor, state: tuple | None) -> tuple[torch.Tensor, tuple]:
        hidden, state = self.lstm(self.embedding(text), state)
        return self.head(hidden), state


class Seq2Seq(nn.Module):
    """Reads sentences of different lengths, and says them backwards while it looks at them."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width, padding_idx=0)
        self.encoder = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRUCell(2 * width, width)
        self.query = nn.Linear(width, width)
        self.head = nn.Linear(2 * width, WORDS)

    def forward(self, text: torch.Tensor, lengths: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(self.embedding(text), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=text.shape[1])
        padding = torch.arange(text.shape[1]) >= lengths[:, None]
        hidden, context = states.new_zeros(len(text), states.shape[2]), states.new_zeros(len(text), states.shape[2])
        word, logits = torch.ones_like(text[:, 0]), []
        for target in targets.unbind(1):
            hidden = self.decoder(torch.cat([self.embedding(word), context], 1), hidden)
            scores = torch.einsum("blw,bw->bl", states, self.query(hidden)).masked_fill(padding, float("-inf"))
            context = torch.einsum("bl,blw->bw", scores.softmax(1), states)
            logits.append(self.head(torch.cat([hidden, context], 1)))
            word = target
        return torch.stack(logits, 1)


class Cell(nn.Module):
    """A network that feeds itself, written out."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.read = nn.Embedding(WORDS, width)
        self.again = nn.Linear(width, width)
        nn.init.orthogonal_(self.again.weight)
        self.head = nn.Linear(width, WORDS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        hidden, said = torch.zeros(len(text), self.again.in_features), []
        for word in text.unbind(1):
            hidden = torch.tanh(self.read(word) + self.again(hidden))
            said.append(self.head(hidden))
        return torch.stack(said, 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("network", choices=("lstm", "seq2seq", "cell"))
    parser.add_argument("--fault", default="")
    options = parser.parse_args()
    torch.manual_seed(7)
    text = sentences(256, 16, WORDS)
    model = {"lstm": Lstm, "seq2seq": Seq2Seq, "cell": Cell}[options.network]()
    if options.fault == "saturated":
        nn.init.normal_(model.again.weight, 0.0, 30.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    state, losses = None, []
    for step in range(50):
        words = text[torch.arange(32) + step * 32 % 256]
        if options.network == "lstm":
            state = None if state is None else tuple(part.detach() for part in state)
            logits, state = model(words[:, :-1], state)
            targets = words[:, 1:]
        elif options.network == "seq2seq":
            lengths = torch.randint(6, 17, (32,))
            targets = words[:, :5].flip(1)
            logits = model(words.masked_fill(torch.arange(16) >= lengths[:, None], 0), lengths, targets)
        else:
            logits, targets = model(words[:, :-1]), words[:, 1:]
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


if __name__ == "__main__":
    main()
