"""Models that mix samples, ignore inputs, or see what they should not, and models that look like that."""

from __future__ import annotations

import gc
import itertools
import random
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tensight.agents.torch.probes import probing
from tests.diagnosis.diagnosed import Diagnosed, Faulty, Healthy, network, table_tests
from tests.diagnosis.models import WIDTH, WORDS, sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Forward = Callable[..., torch.Tensor]

CLASSES, FEATURES = 4, 6


@pytest.fixture
def diagnosed(tmp_path: Path) -> Iterator[Diagnosed]:
    """A training with probes."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gc.freeze()
    with Diagnosed(tmp_path, probe=True) as training:
        yield training
    gc.unfreeze()


class Model(nn.Module):
    """A model of some layers, and a function of these and of the inputs."""

    def __init__(self, forward: Forward, **layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self.compute = forward

    def forward(self, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        return self.compute(self.layers, x, *more)


def train(model: nn.Module, batch: Callable[[], tuple[tuple[torch.Tensor, ...], torch.Tensor]]) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(12):
        inputs, targets = batch()
        optimizer.zero_grad()
        out = model(*inputs)
        if out.dim() == 3 and out.shape[2:] == targets.shape[1:]:
            out = out.transpose(1, 2)
        F.cross_entropy(out.flatten(0, targets.dim() - 1), targets.flatten()).backward()
        optimizer.step()


def points(features: int = 8) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    inputs = torch.randn(24, features)
    return (inputs,), (inputs[:, 0] > 0).long() + 2 * (inputs[:, 1] > 0).long()


def pairs() -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    (inputs,), labels = points()
    return (inputs, torch.randint(0, CLASSES, (24,))), labels


def series() -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    inputs = torch.randn(24, 9, FEATURES)
    return (inputs,), (inputs[..., 0].mean(1) > 0).long() + 2 * (inputs[..., 1].mean(1) > 0).long()


def texts() -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Return ids that are filled up with 0, which a mask hides, and the classes of the first of them."""
    ids = torch.randint(1, WORDS, (24, 9))
    mask = (torch.arange(9) < torch.randint(3, 10, (24, 1))).long()
    return (ids * mask, mask), ids[:, 0] % CLASSES


def next_words() -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    ids = sentences()[:24]
    return (ids[:, :-1],), ids[:, 1:]


def layers(*sizes: int) -> dict[str, nn.Module]:
    return {f"layer{number}": nn.Linear(into, out) for number, (into, out) in enumerate(itertools.pairwise(sizes))}


def trained(batch: Any, forward: Forward, **of_model: nn.Module) -> Callable[[Diagnosed], None]:
    """Return a training of a model."""

    def training(_: Diagnosed) -> None:
        train(Model(forward, **of_model), batch)

    return training


# --- samples ---


def softmax_over_the_batch(_: Diagnosed) -> None:
    train(Model(lambda m, x: m.layer1(m.layer0(x).softmax(0)), **layers(8, 16, CLASSES)), points)


def sequences_given_batch_first(_: Diagnosed) -> None:
    cells, head = nn.LSTM(FEATURES, 16), nn.Linear(16, CLASSES)
    train(Model(lambda m, x: m.head(m.cells(x)[0].mean(1)), cells=cells, head=head), series)


def reshaped_for_transposed(_: Diagnosed) -> None:
    attend, head = nn.MultiheadAttention(FEATURES, 2), nn.Linear(FEATURES, CLASSES)

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        turned = x.reshape(x.shape[1], x.shape[0], -1)
        return m.head(m.attend(turned, turned, turned)[0].reshape(x.shape).mean(1))  # type: ignore[no-any-return]

    train(Model(forward, attend=attend, head=head), series)


def batch_statistics_on_purpose(_: Diagnosed) -> None:
    norm = nn.BatchNorm1d(16, track_running_stats=False)
    train(Model(lambda m, x: m.layer1(m.norm(m.layer0(x)).relu()), norm=norm, **layers(8, 16, CLASSES)), points)


# --- inputs ---


def second_input_forgotten(_: Diagnosed) -> None:
    train(Model(lambda m, x, _: m.layer1(m.layer0(x).relu()), **layers(8, 16, CLASSES)), pairs)


def feature_overwritten(_: Diagnosed) -> None:
    train(
        Model(lambda m, x: m.layer1(m.layer0(x[:, [0, 1, 2, 3, 4, 5, 6, 6]]).relu()), **layers(8, 16, CLASSES)), points
    )


def clamped_to_a_single_value(_: Diagnosed) -> None:
    train(Model(lambda m, x: m.layer1(m.layer0(x).clamp(50.0, 60.0)), **layers(8, 16, CLASSES)), points)


def conditioned(_: Diagnosed) -> None:
    embed = nn.Embedding(CLASSES, 16)
    train(
        Model(lambda m, x, k: m.layer1((m.layer0(x) + m.embed(k)).relu()), embed=embed, **layers(8, 16, CLASSES)), pairs
    )


def raw_features_before_statistics_settle(_: Diagnosed) -> None:
    """After three steps, running statistics are those of no batch: in evaluation mode a sigmoid puts out 1."""
    model = nn.Sequential(
        nn.Linear(FEATURES, 16), nn.BatchNorm1d(16, momentum=0.01), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid()
    )
    nn.init.constant_(model[3].bias, 0.1)
    with torch.no_grad():
        model[3].weight.abs_().mul_(10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(60):
        rows = 128 + 100 * torch.rand(64, FEATURES)
        optimizer.zero_grad()
        F.binary_cross_entropy(model(rows)[:, 0], (rows[:, 0] > rows[:, 1]).float()).backward()
        optimizer.step()


# --- positions ---


def first_step_of(cells: nn.Module, batch: Any) -> Callable[[Diagnosed], None]:
    return trained(batch, lambda m, x: m.head(m.cells(x)[0][:, 0]), cells=cells, head=nn.Linear(16, CLASSES))


def first_of_lstm(diagnosed: Diagnosed) -> None:
    first_step_of(nn.LSTM(FEATURES, 16, batch_first=True), series)(diagnosed)


def first_of_gru(diagnosed: Diagnosed) -> None:
    first_step_of(nn.GRU(FEATURES, 16, batch_first=True), series)(diagnosed)


def last_alone(_: Diagnosed) -> None:
    train(Model(lambda m, x: m.layer1(m.layer0(x)[:, -1].relu()), **layers(FEATURES, 16, CLASSES)), series)


def last_of_lstm(_: Diagnosed) -> None:
    cells, head = nn.LSTM(FEATURES, 16, batch_first=True), nn.Linear(16, CLASSES)
    train(Model(lambda m, x: m.head(m.cells(x)[0][:, -1]), cells=cells, head=head), series)


# --- arrangement ---


class Encoder(nn.Module):
    """Words with positions, attention between them, and a head for each word or for the whole.

    Parameters
    ----------
    positions : callable (Encoder, Tensor) -> Tensor
        Returns what is added to the vectors of the ids that it is given.
    is_of_words : bool
        Whether it puts out scores for each word.
    pos_embed : Module or Tensor
    """

    def __init__(self, positions: Forward, pos_embed: Any, *, is_of_words: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        if isinstance(pos_embed, torch.Tensor):
            self.register_buffer("pos_embed", pos_embed)
        else:
            self.pos_embed = pos_embed
        self.attention = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS if is_of_words else CLASSES)
        self._positions, self._is_of_words = positions, is_of_words

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        vectors = self.attention(self.words(ids) + self._positions(self, ids))
        return self.head(vectors if self._is_of_words else vectors.mean(1))


def ordered_words() -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Return ids, and which of two words comes first."""
    ids = torch.randint(4, WORDS, (24, 9))
    first, second = torch.rand(24, 9).topk(2, 1).indices.unbind(1)
    ids[torch.arange(24), first], ids[torch.arange(24), second] = 1, 2
    return (ids,), (first < second).long()


def hidden_words() -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Return ids some of which are hidden, and all of them."""
    ids = sentences(24)
    return (ids.masked_fill(torch.rand(ids.shape) < 0.2, 1),), ids


def numbered_by_zeros(_: Diagnosed) -> None:
    train(Encoder(lambda m, ids: m.pos_embed(torch.zeros_like(ids)), nn.Embedding(32, WIDTH)), ordered_words)


def waves_divided_as_whole_numbers(_: Diagnosed) -> None:
    waves = torch.sin((torch.arange(32)[:, None] // 1000) * torch.arange(WIDTH)).float()
    train(Encoder(lambda m, ids: m.pos_embed[: ids.shape[1]], waves), ordered_words)


def positions_of_the_batch(_: Diagnosed) -> None:
    """The number of the sample is taken for that of the word."""
    train(
        Encoder(lambda m, ids: m.pos_embed(torch.arange(len(ids)))[:, None], nn.Embedding(32, WIDTH), is_of_words=True),
        hidden_words,
    )


def numbered(_: Diagnosed) -> None:
    train(Encoder(lambda m, ids: m.pos_embed(torch.arange(ids.shape[1])), nn.Embedding(32, WIDTH)), ordered_words)


def basket(_: Diagnosed) -> None:
    """A set of items, which has no order: nothing in the model is named after positions."""
    encoder = Encoder(lambda m, ids: 0, None)
    train(encoder, lambda: ((ids := torch.randint(1, WORDS, (24, 9)),), (ids < WORDS // 4).sum(1).clamp(max=3)))


# --- order ---


def language(mix: Forward, **more: nn.Module) -> Model:
    return Model(
        lambda m, ids: m.head(mix(m, m.words(ids))),
        words=nn.Embedding(WORDS, WIDTH),
        head=nn.Linear(WIDTH, WORDS),
        **more,
    )


def attended(m: Any, h: torch.Tensor, mask: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    return h + mask((m.query(h) @ h.transpose(1, 2)).softmax(-1)) @ h


def without_a_mask(_: Diagnosed) -> None:
    train(language(lambda m, h: attended(m, h, lambda weights: weights), query=nn.Linear(WIDTH, WIDTH)), next_words)


def masked_after_the_softmax(_: Diagnosed) -> None:
    train(language(lambda m, h: attended(m, h, torch.tril), query=nn.Linear(WIDTH, WIDTH)), next_words)


def centred_convolution(_: Diagnosed) -> None:
    conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
    train(language(lambda m, h: h + m.conv(h.transpose(1, 2)).transpose(1, 2), conv=conv), next_words)


def read_from_the_end_with_classes_first(_: Diagnosed) -> None:
    cells, out = nn.GRU(WIDTH, WIDTH, bidirectional=True, batch_first=True), nn.Linear(2 * WIDTH, WORDS)

    def forward(m: Any, ids: torch.Tensor) -> torch.Tensor:
        return m.out(m.cells(m.words(ids))[0]).transpose(1, 2)  # type: ignore[no-any-return]

    train(Model(forward, words=nn.Embedding(WORDS, WIDTH), cells=cells, out=out), next_words)


def padded_on_the_left(_: Diagnosed) -> None:
    conv = nn.Conv1d(WIDTH, WIDTH, 3)
    train(language(lambda m, h: h + m.conv(F.pad(h.transpose(1, 2), (2, 0))).transpose(1, 2), conv=conv), next_words)


# --- padding ---


class Reader(nn.Module):
    """A model of a text and its mask."""

    def __init__(self, pool: Forward) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.attend, self.pool = nn.MultiheadAttention(WIDTH, 2, batch_first=True), pool

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.pool(self, self.words(ids), attention_mask))
        return result


def masked_mean(h: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def divided_by_all(_: Diagnosed) -> None:
    def pool(m: Any, h: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        read: torch.Tensor = m.attend(h, h, h, key_padding_mask=mask == 0)[0]
        return read.mean(1)

    train(Reader(pool), texts)


def attention_without_the_mask(_: Diagnosed) -> None:
    train(Reader(lambda m, h, mask: masked_mean(m.attend(h, h, h)[0], mask)), texts)


def mask_as_a_number(_: Diagnosed) -> None:
    train(Reader(lambda _, h, mask: (h * (mask[..., None] + 1)).mean(1)), texts)


def hidden_padding(_: Diagnosed) -> None:
    def pool(m: Any, h: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return masked_mean(m.attend(h, h, h, key_padding_mask=mask == 0)[0], mask)

    train(Reader(pool), texts)


# --- backward functions ---


class Square(torch.autograd.Function):
    """Forgets the 2."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.saved_tensors[0]  # type: ignore[no-any-return]


class Sine(torch.autograd.Function):
    """Has the wrong sign."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient * ctx.saved_tensors[0].cos()  # type: ignore[no-any-return]


class Times(torch.autograd.Function):
    """Returns the wrong derivative for its second factor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return gradient * ctx.saved_tensors[1], gradient * ctx.saved_tensors[1]


class Rounded(torch.autograd.Function):
    """Lets the gradient pass, on purpose."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return (8 * x).round() / 8

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Reversed(torch.autograd.Function):
    """Turns the gradient, on purpose."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


def half_of_a_square(_: Diagnosed) -> None:
    train(Model(lambda m, x: m.layer1(Square.apply(m.layer0(x))), **layers(8, 16, CLASSES)), points)


def sine_with_another_sign(_: Diagnosed) -> None:
    train(Model(lambda m, x: m.layer1(Sine.apply(m.layer0(x))), **layers(8, 16, CLASSES)), points)


def wrong_factor(_: Diagnosed) -> None:
    train(
        Model(
            lambda m, x: m.layer1(Times.apply(m.layer0(x), m.other(x))),
            other=nn.Linear(8, 16),
            **layers(8, 16, CLASSES),
        ),
        points,
    )


def rounded_and_reversed(_: Diagnosed) -> None:
    train(Model(lambda m, x: m.layer1(Reversed.apply(Rounded.apply(m.layer0(x)))), **layers(8, 16, CLASSES)), points)


# --- the loss ---


def hook_that_negates(_: Diagnosed) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = m.layer1(m.layer0(x).relu())
        if out.requires_grad:
            out.register_hook(torch.neg)
        return out

    train(Model(forward, **layers(8, 16, CLASSES)), points)


def hooks_of_weights_that_negate(_: Diagnosed) -> None:
    model = Model(lambda m, x: m.layer1(m.layer0(x).relu()), **layers(8, 16, CLASSES))
    for weight in model.parameters():
        weight.register_hook(torch.neg)
    train(model, points)


def straight_through_with_another_sign(_: Diagnosed) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = m.layer1(m.layer0(x).relu())
        return 2 * out.detach() - out

    train(Model(forward, **layers(8, 16, CLASSES)), points)


def reversed_for_a_rival(_: Diagnosed) -> None:
    """A branch whose gradient is turned on purpose."""
    torch.manual_seed(1)
    model, rival = network(), nn.Linear(CLASSES, 2)
    optimizer = torch.optim.Adam([*model.parameters(), *rival.parameters()], lr=3e-3)
    for _step in range(12):
        (inputs,), labels = points()
        out = model(inputs)
        turned = out.clone()
        turned.register_hook(lambda gradient: -0.3 * gradient)
        loss = F.cross_entropy(out, labels) + 0.3 * F.cross_entropy(rival(turned), labels // 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def advantage_of_the_critic(_: Diagnosed) -> None:
    """An actor learns from what its critic has not expected, without a gradient: other weights make another loss."""
    actor, critic = nn.Linear(8, CLASSES), nn.Linear(8, 1)
    model = Model(lambda m, x: torch.cat([m.actor(x), m.critic(x)], 1), actor=actor, critic=critic)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _step in range(12):
        (inputs,), labels = points()
        scores, values = model(inputs).split([CLASSES, 1], 1)
        drawn = torch.distributions.Categorical(logits=scores)
        actions = drawn.sample()
        returns = (actions == labels).float() - 4 * (inputs[:, 0] > 0)
        surprise = returns - values[:, 0]
        loss = -(drawn.log_prob(actions) * surprise.detach()).mean() + 0.01 * surprise.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# --- states ---


class Counted(nn.Module):
    """Divides what it puts out by the number of its calls."""

    def __init__(self, calls: Any) -> None:
        super().__init__()
        self.body, self.calls = network(), calls

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        out: torch.Tensor = self.body(x) / self.calls
        return out


def counter_as_an_attribute(_: Diagnosed) -> None:
    train(Counted(0), points)


def counter_in_a_buffer(_: Diagnosed) -> None:
    model = Counted(0)
    del model.calls
    model.register_buffer("calls", torch.zeros(()))
    train(model, points)


class Average:
    """Centres targets, and returns a part of its state."""

    def __init__(self) -> None:
        self.mean, self.updates = torch.zeros(()), 0

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]

    def centred(self, values: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * values.mean()
        self.updates += 1
        return values - self.mean


def average_without_its_weights(diagnosed: Diagnosed) -> None:
    # Another model has weights of the same names.
    average, model, other = Average(), network(out=1), network(out=1)
    diagnosed.train(
        model, lambda out, labels: F.mse_loss(out[:, 0], average.centred(labels.float())), after=lambda _: other.train()
    )


class Scaled(nn.Module):
    """Divides its inputs by a running scale, which is a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()
        self.register_buffer("scale", torch.ones(FEATURES + 2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.scale = 0.9 * self.scale + 0.1 * x.std(0)
        out: torch.Tensor = self.body(x / self.scale)
        return out


def scale_that_is_not_saved(diagnosed: Diagnosed) -> None:
    train(Scaled(), lambda: ((5 * diagnosed.batch()[0],), diagnosed.batch()[1]))


def cache_and_log(_: Diagnosed) -> None:
    """Keeps the last outputs, which are empty at first, and numbers that nothing reads."""

    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.last, self.largest, self.seen = network(), None, 0.0, 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.body(x)
            if self.last is not None:
                out = out + 0.1 * self.last
            self.last, self.largest = out.detach(), max(self.largest, float(out.detach().max()))
            self.seen += len(x)
            return out

    train(Keeping(), points)


def states_that_begin_alike(diagnosed: Diagnosed) -> None:
    """An episode begins with the same state for all of a batch; what follows depends on chance."""
    model = nn.Sequential(nn.Embedding(6, 8), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(12):
        states, losses = torch.zeros(16, dtype=torch.long), []
        for _ in range(4):
            choice = torch.distributions.Categorical(logits=model(states))
            actions = choice.sample()
            losses.append(-choice.log_prob(actions) * torch.randn(16))
            states = (states + 2 * actions - 1).clamp(0, 5)
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
    assert diagnosed.is_attached


FAULTY: list[Faulty] = [
    (hook_that_negates, "loss-against-gradient", "one batch"),
    (hooks_of_weights_that_negate, "loss-against-gradient", "one batch"),
    (straight_through_with_another_sign, "loss-against-gradient", "one batch"),
    (softmax_over_the_batch, "samples-mixed", "softmax"),
    (sequences_given_batch_first, "samples-mixed", "LSTM"),
    (reshaped_for_transposed, "samples-mixed", "reshape"),
    (second_input_forgotten, "input-ignored", "more"),
    (feature_overwritten, "input-ignored", "1 of 8 features"),
    (clamped_to_a_single_value, "input-ignored", "the same for all samples"),
    (first_of_lstm, "positions-ignored", "first"),
    (first_of_gru, "positions-ignored", "first"),
    (last_alone, "positions-ignored", "last"),
    (numbered_by_zeros, "order-ignored", "pos_embed"),
    (waves_divided_as_whole_numbers, "order-ignored", "pos_embed"),
    (positions_of_the_batch, "order-ignored", "pos_embed"),
    (without_a_mask, "later-words-count", "softmax"),
    (masked_after_the_softmax, "later-words-count", "softmax"),
    (centred_convolution, "later-words-count", "conv1d"),
    (read_from_the_end_with_classes_first, "later-words-count", "GRU"),
    (divided_by_all, "padding-counts", "attention_mask"),
    (attention_without_the_mask, "padding-counts", "attention_mask"),
    (mask_as_a_number, "padding-counts", "attention_mask"),
    (half_of_a_square, "backward-wrong", "Square"),
    (sine_with_another_sign, "backward-wrong", "Sine"),
    (wrong_factor, "backward-wrong", "input 2"),
    (counter_as_an_attribute, "state-not-saved", "lacks Counted.calls"),
    (average_without_its_weights, "state-not-saved", "lacks Average.mean"),
    (scale_that_is_not_saved, "state-not-saved", "lacks scale"),
]

HEALTHY: list[Healthy] = [
    (batch_statistics_on_purpose, "samples-mixed"),
    (conditioned, "input-ignored"),
    (states_that_begin_alike, "input-ignored"),
    (raw_features_before_statistics_settle, "input-ignored"),
    (last_of_lstm, "positions-ignored"),
    (numbered, "order-ignored"),
    (basket, "order-ignored"),
    (padded_on_the_left, "later-words-count"),
    (hidden_padding, "padding-counts"),
    (rounded_and_reversed, "backward-wrong"),
    (reversed_for_a_rival, "loss-against-gradient"),
    (advantage_of_the_critic, "loss-against-gradient"),
    (counter_in_a_buffer, "state-not-saved"),
    (cache_and_log, "state-not-saved"),
]

test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)


class Counting(nn.Module):
    """Counts its calls, keeps what it is given, renormalizes words in place, and draws numbers of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, max_norm=1.0)
        self.norm, self.head = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WORDS)
        self.calls, self.kept, self.of_kind = 0, [torch.zeros(1)], {"sums": torch.zeros(WIDTH)}
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        h = self.words(ids).mean(1)
        self.kept.append(h.detach())
        self.of_kind["sums"] += h.detach().sum(0)
        self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
        noise = torch.rand(WIDTH) + random.random() + float(np.random.rand())  # noqa: NPY002, S311
        result: torch.Tensor = self.head(F.dropout(self.norm(h + 0.01 * noise * self.calls / (1 + self.calls)), 0.2))
        return result


def state_after(diagnosed: Diagnosed | None) -> list[Any]:
    """Train, and return all that may have changed."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    model = Counting()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(8):
        ids = sentences()[:24]
        optimizer.zero_grad()
        F.cross_entropy(model(ids), ids[:, 0]).backward()
        optimizer.step()
    if diagnosed is not None:
        assert len(diagnosed.facts["probes"])
    numbers = [torch.rand(1).item(), random.random(), np.random.rand()]  # noqa: NPY002, S311
    kept = torch.cat([each.flatten() for each in model.kept])
    return [numbers, model.calls, kept.tolist(), model.of_kind["sums"].tolist(), model.mean.tolist()] + [
        value.tolist() for value in model.state_dict().values()
    ]


@pytest.mark.parametrize("is_accelerated", [False, True], ids=["in a child", "in the process"])
def test_the_training_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_accelerated: bool) -> None:
    plain = state_after(None)
    # A process with an accelerator cannot be copied, so that its state is restored.
    monkeypatch.setattr(probing, "uses_accelerator", lambda: is_accelerated)
    with Diagnosed(tmp_path, probe=True) as diagnosed:
        assert state_after(diagnosed) == plain


def outcomes(diagnosed: Diagnosed) -> dict[str, str]:
    diagnosed.end()
    return {row["probe"]: row["outcome"] for row in diagnosed.facts["probes"].rows()}


def test_what_is_not_possible_has_a_reason(diagnosed: Diagnosed) -> None:
    diagnosed.train(network())
    rows = {row["probe"]: row for row in diagnosed.facts["probes"].rows()}
    assert [rows[probe]["outcome"] for probe in ("evaluation", "samples", "inputs")] == ["pass"] * 3
    assert rows["order"]["outcome"] == rows["padding"]["outcome"] == rows["backward"]["outcome"] == "untried"
    assert "mask" in rows["padding"]["why"]


def test_a_model_that_keeps_a_state_beyond_itself_is_left_alone(diagnosed: Diagnosed) -> None:
    calls = []

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        return m.layer1(m.layer0(x).relu()) * len(calls)  # type: ignore[no-any-return]

    train(Model(forward, **layers(8, 16, CLASSES)), points)
    assert len(calls) == 12
    found = outcomes(diagnosed)
    assert found.pop("evaluation") == "warn"
    assert {found.pop(probe) for probe in ("loss", "pairs", "rates", "resume")} == {"pass"}
    assert set(found.values()) == {"untried"}


def test_layers_that_compute_otherwise_under_a_mode_are_no_random_ones(diagnosed: Diagnosed) -> None:
    layer = nn.TransformerEncoderLayer(FEATURES, 2, 16, 0.1, batch_first=True)
    train(Model(lambda m, x: m.layer0(m.encoder(x).mean(1)), encoder=layer, **layers(FEATURES, CLASSES)), series)
    row = next(diagnosed.facts["probes"].rows())
    assert (row["probe"], row["outcome"], row["why"]) == ("evaluation", "pass", "")


def test_a_dropout_that_is_not_given_the_mode_is_no_evaluation(diagnosed: Diagnosed) -> None:
    train(Model(lambda m, x: m.layer1(F.dropout(m.layer0(x).relu(), 0.3)), **layers(8, 16, CLASSES)), points)
    rule, text = diagnosed.first()
    assert rule == "drops-in-evaluation"
    assert "test_probes.py:" in text


def test_a_dropout_that_is_meant_in_evaluation_is_no_fault(diagnosed: Diagnosed) -> None:
    train(
        Model(lambda m, x: m.layer1(F.dropout(m.layer0(x).relu(), 0.3, training=True)), **layers(8, 16, CLASSES)),
        points,
    )
    assert diagnosed.found() == []
    row = next(diagnosed.facts["probes"].rows())
    assert (row["outcome"], row["function"]) == ("pass", "")
    assert "random numbers" in row["why"]


def test_the_loss_falls_on_one_batch(diagnosed: Diagnosed) -> None:
    diagnosed.train(network())
    rows = {row["probe"]: row for row in diagnosed.facts["probes"].rows()}
    assert rows["loss"]["outcome"] == rows["pairs"]["outcome"] == "pass"
    assert rows["loss"]["change"] < 0.5 * rows["loss"]["scale"]
    assert rows["pairs"]["change"] > rows["pairs"]["scale"]


def test_what_comes_before_the_backward_pass_writes_no_file(diagnosed: Diagnosed, tmp_path: Path) -> None:
    path = tmp_path / "losses.txt"
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        (inputs,), labels = points()
        loss = F.cross_entropy(model(inputs), labels)
        with path.open("a") as file:
            file.write(f"{loss.item()}\n")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert len(path.read_text().splitlines()) == 8
    (row,) = [row for row in diagnosed.facts["probes"].rows() if row["probe"] == "loss"]
    assert row["outcome"] == "untried"
    assert "open" in row["why"]


def test_batches_are_not_taken_from_the_training(diagnosed: Diagnosed) -> None:
    numbers = torch.arange(240)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(240, 8), numbers), 24)
    model, seen = network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = iter(loader)
    inputs, which = next(batches)
    for _ in range(9):
        out = model(inputs)
        seen.append(int(which[0]))
        inputs, following = next(batches)
        optimizer.zero_grad()
        F.cross_entropy(out, which % CLASSES).backward()
        which = following
        optimizer.step()
    assert seen == list(range(0, 216, 24))
    (row,) = [row for row in diagnosed.facts["probes"].rows() if row["probe"] == "loss"]
    assert (row["outcome"], row["why"]) == ("untried", "the script reads or sends data when it goes on")


def test_nodes_of_a_graph_may_be_mixed(diagnosed: Diagnosed) -> None:
    links = torch.eye(24).roll(1, 0)
    train(
        Model(lambda m, x, links: m.layer1(links @ m.layer0(x)), **layers(8, 16, CLASSES)),
        lambda: ((*points()[0], links), points()[1]),
    )
    assert outcomes(diagnosed)["samples"] == "untried"


def test_models_live_no_longer_than_without_probes(diagnosed: Diagnosed) -> None:
    first = network()
    reference = weakref.ref(first)

    def leave(step: int) -> None:
        nonlocal first
        if step == 2:
            del first
            assert reference() is None

    diagnosed.train(network(), after=leave, steps=3)
    assert diagnosed.facts.last_step == 3


def test_probes_that_crash_or_hang_do_not_hurt(diagnosed: Diagnosed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "ModelProbes", partial(probing.ModelProbes, unexpected=1))
    diagnosed.train(network())
    row, *_ = diagnosed.facts["probes"].rows()
    assert (row["probe"], row["outcome"]) == ("all", "untried")
    assert "unexpected" in row["why"]
