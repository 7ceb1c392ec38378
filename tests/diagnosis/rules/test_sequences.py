"""Masks of sequences that hide the wrong positions, padding that is a word, and trainings that look like that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tensight.diagnosis.catalogue import diagnose
from tests.diagnosis.diagnosed import Diagnosed, Faulty, Healthy, table_tests
from tests.diagnosis.models import LENGTH, WIDTH, WORDS, Attention, Transformer, sentences, train_words

if TYPE_CHECKING:
    from collections.abc import Callable


class Encoder(nn.Module):
    """A transformer of PyTorch's layers, with the masks that a function of the ids returns."""

    def __init__(self, masks: Callable[[torch.Tensor], dict[str, torch.Tensor]], out: int = WORDS) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.0, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, out)
        self.masks = masks

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.words(ids) + self.positions(torch.arange(ids.shape[1]))
        result: torch.Tensor = self.head(self.layers(hidden, **self.masks(ids)))
        return result


class Pooling(nn.Module):
    """Reads a sequence by the attention of its first word."""

    def __init__(self, hidden: Callable[[torch.Tensor], torch.Tensor], *, batch_first: bool = True) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH, padding_idx=0), nn.Linear(WIDTH, 2)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=batch_first)
        self.hidden = hidden

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        given = self.words(ids)
        axis = 1
        if not self.attention.batch_first:
            given, axis = given.transpose(0, 1), 0
        query = given.narrow(axis, 0, 1)
        read, _ = self.attention(query, given, given, key_padding_mask=self.hidden(ids))
        result: torch.Tensor = self.head(read.squeeze(axis))
        return result


class Tagger(nn.Module):
    """Reads sequences with a recurrent layer."""

    def __init__(self, *, is_bidirectional: bool, padding: int | None = None, out: int = WORDS) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=padding)
        self.cells = nn.GRU(WIDTH, 16, batch_first=True, bidirectional=is_bidirectional)
        self.head = nn.Linear(32 if is_bidirectional else 16, out)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.cells(self.words(ids))[0])
        return result


class Decoder(nn.Module):
    """Writes a sequence from another one, of which it knows the end of an encoder's reading."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.encoder, self.decoder = (nn.GRU(WIDTH, WIDTH, batch_first=True) for _ in range(2))

    def forward(self, ids: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
        _, hidden = self.encoder(self.words(ids))
        result: torch.Tensor = self.head(self.decoder(self.words(written), hidden)[0])
        return result


def train_decoder(ignored: int) -> None:
    """Train a decoder on sequences of other lengths than those that its encoder reads."""
    model = Decoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(12):
        ids, _ = filled_up()
        written = torch.cat([torch.full((len(ids), 1), 1), ids, torch.zeros(len(ids), 1, dtype=torch.long)], 1)
        optimizer.zero_grad()
        out = model(ids, written[:, :-1])
        F.cross_entropy(out.flatten(0, 1), written[:, 1:].flatten(), ignore_index=ignored).backward()
        optimizer.step()


def train(
    model: nn.Module,
    batch: Callable[[], tuple[torch.Tensor, torch.Tensor]],
    ignored: int = -100,
) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(12):
        ids, targets = batch()
        optimizer.zero_grad()
        F.cross_entropy(model(ids).flatten(0, targets.dim() - 1), targets.flatten(), ignore_index=ignored).backward()
        optimizer.step()


def next_words() -> tuple[torch.Tensor, torch.Tensor]:
    ids = sentences()
    return ids[:, :-1], ids[:, 1:]


def filled_up() -> tuple[torch.Tensor, torch.Tensor]:
    """Return sequences that are filled up with 0, and whether each has the word 3."""
    ids = torch.randint(1, WORDS, (32, LENGTH))
    ids[torch.arange(LENGTH) >= torch.randint(3, LENGTH, (32, 1))] = 0
    return ids, (ids == 3).any(1).long()


def tagged() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(0, WORDS, (32, LENGTH))
    return ids, ids % 3


def filled_up_and_tagged() -> tuple[torch.Tensor, torch.Tensor]:
    ids, _ = filled_up()
    return ids, torch.where(ids == 0, -100, ids % 3)


def restored() -> tuple[torch.Tensor, torch.Tensor]:
    """Return sequences some of whose words are replaced by 0, and the words."""
    words = torch.randint(1, WORDS, (32, LENGTH))
    return torch.where(torch.rand(words.shape) < 0.15, 0, words), words


def causal(ids: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"mask": nn.Transformer.generate_square_subsequent_mask(ids.shape[1])}


# --- faulty ---


def mask_of_words_for_a_pooling(training: Diagnosed) -> None:
    train(Pooling(lambda ids: ids != 0), filled_up)


def mask_of_words_added_to_the_scores(training: Diagnosed) -> None:
    hidden = torch.tensor([0.0, float("-inf")])
    train(Pooling(lambda ids: hidden[(ids != 0).long()], batch_first=False), filled_up)


def mask_of_words_for_an_encoder(training: Diagnosed) -> None:
    model = Encoder(lambda ids: {"src_key_padding_mask": ids != 0}, out=3)
    train(model, filled_up_and_tagged)


def encoder_that_predicts_what_it_reads(training: Diagnosed) -> None:
    train(Encoder(lambda _: {}), next_words)


def encoder_with_a_mask_of_padding_alone(training: Diagnosed) -> None:
    train(Encoder(lambda ids: {"src_key_padding_mask": torch.zeros_like(ids, dtype=torch.bool)}), next_words)


def attention_by_its_function(training: Diagnosed) -> None:
    model = Transformer(depth=2)
    for block in model.blocks:
        block.is_causal = False
    train_words(model)


def language_model_that_reads_from_the_end(training: Diagnosed) -> None:
    train(Tagger(is_bidirectional=True), next_words)


def word_of_number_0(training: Diagnosed) -> None:
    train(Tagger(is_bidirectional=True, padding=0, out=3), tagged)


def word_of_number_0_that_is_predicted(training: Diagnosed) -> None:
    train(Tagger(is_bidirectional=False, padding=0), next_words)


def word_of_the_last_number(training: Diagnosed) -> None:
    train(Tagger(is_bidirectional=True, padding=WORDS - 1, out=3), tagged)


def word_that_a_configuration_takes_for_padding(training: Diagnosed) -> None:
    """Models of transformers have a default for it, and these words are numbers that somebody drew."""
    model = Tagger(is_bidirectional=True, padding=0, out=3)
    model.config = SimpleNamespace(pad_token_id=0)  # type: ignore[assignment]
    train(model, tagged)


def padding_that_a_decoder_writes(training: Diagnosed) -> None:
    assert not training.is_attached
    train_decoder(-100)


# --- state-detached ---


class Steps(nn.Module):
    """Calls a cell for each position of a sequence; a function decides what becomes of the state between."""

    def __init__(self, cell: nn.Module, between: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
        super().__init__()
        self.cell, self.head, self.between = cell, nn.Linear(WIDTH, 2), between

    def forward(self, inputs: torch.Tensor, state: torch.Tensor | None = None) -> torch.Tensor:
        states = [torch.zeros(len(inputs), WIDTH) if state is None else state]
        for at in range(inputs.shape[1]):
            result = self.cell(inputs[:, at], self.between(states[-1], at))
            states.append(result[0] if isinstance(result, tuple) else result)
        self.states = states
        return self.head(states[-1])


class Gated(nn.Module):
    """A cell by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.change = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, given: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        both = torch.cat((given, state), 1)
        gate = torch.sigmoid(self.gate(both))
        return gate * state + (1 - gate) * torch.tanh(self.change(both))


class LongAndShort(nn.Module):
    """An LSTM whose two states are one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(WIDTH, WIDTH // 2)

    def forward(self, given: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return torch.cat(self.cell(given, state.chunk(2, 1)), 1)


def remember(model: Steps, loss_of: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
    """Train on whether the first number of a sequence is positive."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(12):
        inputs = torch.randn(16, 5, WIDTH)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), (inputs[:, 0, 0] > 0).long())
        if loss_of is not None:
            loss = loss + loss_of(inputs)
        loss.backward()
        optimizer.step()


def detached(state: torch.Tensor, _: int) -> torch.Tensor:
    return state.detach()


def cell_of_pytorch_that_is_detached(_: Diagnosed) -> None:
    remember(Steps(nn.GRUCell(WIDTH, WIDTH), detached))


def cell_by_hand_that_is_detached(_: Diagnosed) -> None:
    remember(Steps(Gated(), detached))


def states_that_are_data(_: Diagnosed) -> None:
    remember(Steps(LongAndShort(), lambda state, _: state.data))


def state_that_is_kept(_: Diagnosed) -> None:
    remember(Steps(Gated(), lambda state, _: state))


def state_that_is_detached_halfway(_: Diagnosed) -> None:
    """Truncated backpropagation within a sequence."""
    remember(Steps(nn.GRUCell(WIDTH, WIDTH), lambda state, at: state.detach() if at == 2 else state))


def outputs_that_are_all_trained(_: Diagnosed) -> None:
    """Each call has a loss of its own, as the blocks of a network that is trained one by one."""
    model = Steps(Gated(), detached)
    remember(model, lambda inputs: sum(F.mse_loss(state, inputs[:, 0]) for state in model.states[1:]))


# --- attention-saturated ---


class Written(nn.Module):
    """An attention that is written out, between an embedding and a head: (words) -> (classes).

    Parameters
    ----------
    weigh : callable (query, key) -> Tensor
        Returns the weights, shape (..., queries, keys).
    width : int
    heads : int
    """

    def __init__(
        self, weigh: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], width: int = 64, heads: int = 1
    ) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.head, self.heads, self.weigh = nn.Linear(width, 2), heads, weigh

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.words(ids) + self.positions(torch.arange(ids.shape[1]))
        query, key, value = (
            layer(hidden).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = (self.weigh(query, key) @ value).transpose(1, 2).flatten(2)
        result: torch.Tensor = self.head((hidden + mixed).mean(1))
        return result


def read_words(training: Diagnosed, model: nn.Module, rate: float = 1e-3) -> None:
    assert not training.is_attached
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(30):
        ids = sentences()
        optimizer.zero_grad()
        F.cross_entropy(model(ids), (ids[:, 0] > 5).long()).backward()
        optimizer.step()


def scores_without_a_scale(training: Diagnosed) -> None:
    model = Written(lambda query, key: (query @ key.transpose(-1, -2)).softmax(-1))
    nn.init.normal_(model.query.weight)
    read_words(training, model)


def scores_that_are_multiplied(training: Diagnosed) -> None:
    """The root of the width is a factor, with a mask and dropout."""

    def weigh(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        scores = 64 * (query @ key.transpose(-1, -2)) * query.shape[-1] ** 0.5
        hidden = torch.ones(LENGTH, LENGTH).tril() == 0
        return F.dropout(scores.masked_fill(hidden, float("-inf")).softmax(-1), 0.1)

    read_words(training, Written(weigh, heads=4))


def scores_of_large_words(training: Diagnosed) -> None:
    model = Written(lambda query, key: (torch.einsum("bhqd,bhkd->bhqk", query, key) / 8).softmax(-1))
    nn.init.normal_(model.words.weight, std=30)
    read_words(training, model)


def scores_with_a_scale(training: Diagnosed) -> None:
    read_words(training, Written(lambda query, key: (query @ key.transpose(-1, -2) / 8).softmax(-1)), 1e-2)


def addresses_that_are_sharpened(training: Diagnosed) -> None:
    """Of a memory: cosines are raised until a single place is read, from a given step on."""
    strength = 0.0

    def weigh(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        nonlocal strength
        strength += 20.0
        return (strength * (F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).transpose(-1, -2))).softmax(-1)

    read_words(training, Written(weigh), 1e-2)


FAULTY: tuple[Faulty, ...] = (
    (scores_without_a_scale, "attention-saturated", "test_sequences.py:"),
    (scores_that_are_multiplied, "attention-saturated", "one of 10 keys"),
    (scores_of_large_words, "attention-saturated", "in 1 attentions"),
    (cell_of_pytorch_that_is_detached, "state-detached", "cell"),
    (cell_by_hand_that_is_detached, "state-detached", "cell"),
    (states_that_are_data, "state-detached", "cell"),
    (mask_of_words_for_a_pooling, "mask-inverted", "attention"),
    (mask_of_words_added_to_the_scores, "mask-inverted", "attention"),
    (mask_of_words_for_an_encoder, "mask-inverted", "layers.layers.0.self_attn"),
    (encoder_that_predicts_what_it_reads, "next-word-visible", "layers.layers.0.self_attn"),
    (encoder_with_a_mask_of_padding_alone, "next-word-visible", "layers.layers.1.self_attn"),
    (attention_by_its_function, "next-word-visible", "models.py:"),
    (language_model_that_reads_from_the_end, "next-word-visible", "cells"),
    (word_of_number_0, "padding-is-word", "Id 0"),
    (word_of_number_0_that_is_predicted, "padding-is-word", "words"),
    (word_of_the_last_number, "padding-is-word", f"Id {WORDS - 1}"),
    (padding_that_a_decoder_writes, "padding-counted", "padding"),
)


# --- healthy ---


def mask_of_padding_for_a_pooling(training: Diagnosed) -> None:
    train(Pooling(lambda ids: ids == 0), filled_up)


def mask_of_padding_for_an_encoder(training: Diagnosed) -> None:
    train(Encoder(lambda ids: {"src_key_padding_mask": ids == 0}, out=3), filled_up_and_tagged)


def mask_of_words_by_chance(training: Diagnosed) -> None:
    """Some of the words are hidden, as dropout of whole words does, and the padding."""

    def hidden(ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1])
        return (ids == 0) | ((torch.rand(ids.shape) < 0.5) & (positions > 0))

    train(Pooling(hidden), filled_up)


def encoder_with_a_causal_mask(training: Diagnosed) -> None:
    train(Encoder(causal), next_words)


def attention_with_a_mask_of_its_own(training: Diagnosed) -> None:
    """The positions that may be read are chosen by the script."""

    class Banded(Attention):
        def mask(self, length: int) -> torch.Tensor:
            return torch.ones(length, length).tril().bool()

    model = Transformer()
    model.blocks[0] = Banded()
    train_words(model)


def one_layer_of_two_with_a_mask(training: Diagnosed) -> None:
    """What the other one looks at is unknown."""
    model = Transformer(depth=2)
    model.blocks[1].is_causal = False
    train_words(model)


def attention_of_a_language_model(training: Diagnosed) -> None:
    train_words(Transformer())


def encoder_that_tags(training: Diagnosed) -> None:
    train(Encoder(lambda _: {}, out=3), tagged)


def encoder_that_restores_words(training: Diagnosed) -> None:
    train(Encoder(lambda _: {}), restored)


def language_model_of_one_direction(training: Diagnosed) -> None:
    train(Tagger(is_bidirectional=False), next_words)


def padding_at_the_ends(training: Diagnosed) -> None:
    train(Tagger(is_bidirectional=True, padding=0, out=3), filled_up_and_tagged)


def padding_in_place_of_words_that_are_restored(training: Diagnosed) -> None:
    train(Tagger(is_bidirectional=True, padding=0), restored)


def padding_that_a_decoder_ignores(training: Diagnosed) -> None:
    assert not training.is_attached
    train_decoder(0)


HEALTHY: tuple[Healthy, ...] = (
    (scores_with_a_scale, "attention-saturated"),
    (addresses_that_are_sharpened, "attention-saturated"),
    (state_that_is_kept, "state-detached"),
    (state_that_is_detached_halfway, "state-detached"),
    (outputs_that_are_all_trained, "state-detached"),
    (mask_of_padding_for_a_pooling, "mask-inverted"),
    (mask_of_padding_for_an_encoder, "mask-inverted"),
    (mask_of_words_by_chance, "mask-inverted"),
    (encoder_with_a_causal_mask, "next-word-visible"),
    (attention_of_a_language_model, "next-word-visible"),
    (attention_with_a_mask_of_its_own, "next-word-visible"),
    (one_layer_of_two_with_a_mask, "next-word-visible"),
    (encoder_that_tags, "next-word-visible"),
    (encoder_that_restores_words, "next-word-visible"),
    (language_model_of_one_direction, "next-word-visible"),
    (padding_at_the_ends, "padding-is-word"),
    (word_that_a_configuration_takes_for_padding, "padding-is-word"),
    (padding_in_place_of_words_that_are_restored, "padding-is-word"),
    (padding_that_a_decoder_ignores, "padding-counted"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)


def test_what_a_detached_state_leaves_untrained_is_explained(diagnosed: Diagnosed) -> None:
    """The weights that only earlier calls depend on have no gradient for the same reason."""

    class Begun(Steps):
        def __init__(self) -> None:
            super().__init__(Gated(), detached)
            self.first = nn.Linear(WIDTH, WIDTH)

        def forward(self, inputs: torch.Tensor, state: torch.Tensor | None = None) -> torch.Tensor:
            assert state is None
            return super().forward(inputs, self.first(inputs[:, 0]))

    remember(Begun())
    (explained,) = diagnose([diagnosed.facts]).findings
    assert explained.finding.rule == "state-detached"
    assert [other.rule for other in explained.explains] == ["no-gradient"]
