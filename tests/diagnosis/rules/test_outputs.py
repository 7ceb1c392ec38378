"""Trainings whose outputs or targets do not fit the loss, and others that resemble them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import (
    BATCH,
    CLASSES,
    FEATURES,
    Faulty,
    Healthy,
    network,
    table_tests,
)
from tests.diagnosis.models import LENGTH, WORDS, Transformer, next_word, sentences, train_words
from tests.diagnosis.tasks import Reader, convolutional, give_pictures, give_sequences

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


def is_bright(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(out[:, 0], (labels > 1).float())


# --- activation-twice ---


def softmax_before_cross_entropy(training: Diagnosed) -> None:
    training.train(network(nn.Softmax(dim=1)))


def sigmoid_before_logits(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(convolutional(nn.Sigmoid(), out=1), is_bright)


def softmax_of_words(training: Diagnosed) -> None:
    assert not training.is_attached
    train_words(Transformer(), lambda out, ids: next_word(out.softmax(-1), ids))


def softmax_before_shares(training: Diagnosed) -> None:
    training.train(
        network(nn.Softmax(1)), lambda out, labels: F.cross_entropy(out, 0.9 * F.one_hot(labels, CLASSES) + 0.025)
    )


def softmax_of_several_labels(training: Diagnosed) -> None:
    give_sequences(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows = torch.stack([labels % 2, labels // 2, 1 - labels % 2, torch.ones_like(labels)], 1).float()
        return F.binary_cross_entropy(out.softmax(1), rows)

    training.train(Reader(), loss)


def relu_of_scores(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(convolutional(nn.ReLU()))


def accumulated_softmax(training: Diagnosed) -> None:
    """Each of four backward passes has the fault; it is one finding."""
    give_sequences(training)
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for number in range(48):
        inputs, labels = training.batch()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(inputs).softmax(1), labels)
        (loss / 4).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def one_hot_and_softmax(training: Diagnosed) -> None:
    training.train(
        network(nn.Softmax(1)), lambda out, labels: F.binary_cross_entropy(out, F.one_hot(labels, 4).float())
    )


def gate_before_the_last_layer(training: Diagnosed) -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.value, self.head = (nn.Linear(FEATURES, CLASSES) for _ in range(3))

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(given) + self.gate(given).sigmoid() * self.value(given)
            return result

    training.train(Gated())


# --- no-logarithm ---


def scores_for_nll(training: Diagnosed) -> None:
    training.train(network(), F.nll_loss)


def probabilities_for_nll(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(convolutional(nn.Softmax(1)), F.nll_loss)


def targets_times_probabilities(training: Diagnosed) -> None:
    give_sequences(training)

    def divergence(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.kl_div(out.softmax(1), F.one_hot(labels, CLASSES) * 0.9 + 0.025, reduction="batchmean")

    training.train(Reader(), divergence)


def words_times_probabilities(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return -(F.one_hot(ids[:, 1:], WORDS).float() * out[:, :-1].softmax(2)).sum(2).mean()

    assert not training.is_attached
    train_words(Transformer(), loss)


def log_softmax_and_nll(training: Diagnosed) -> None:
    training.train(network(nn.LogSoftmax(dim=-1)), F.nll_loss)


def logarithm_of_softmax(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(convolutional(nn.Softmax(1)), lambda out, labels: F.nll_loss(out.clamp(min=1e-6).log(), labels))


def teacher_without_gradients(training: Diagnosed) -> None:
    """It drops nothing on purpose, and its parameters still require gradients."""
    teacher = nn.Sequential(network(out=16), nn.Dropout(0.3), nn.Linear(16, CLASSES)).eval()
    student = network()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(20):
        inputs, _ = training.batch()
        with torch.no_grad():
            targets = teacher(inputs).softmax(1)
        optimizer.zero_grad()
        F.kl_div(student(inputs).log_softmax(1), targets, reduction="batchmean").backward()
        optimizer.step()


# --- one-class ---


def softmax_of_one_unit(training: Diagnosed) -> None:
    training.train(
        network(nn.Softmax(1), out=1),
        lambda out, labels: F.binary_cross_entropy(out[:, 0], labels.clamp(max=1).float()),
    )


def cross_entropy_of_one_unit(training: Diagnosed) -> None:
    give_sequences(training)
    training.train(Reader(1), lambda out, labels: F.cross_entropy(out, labels * 0))


def masks_of_one_channel(training: Diagnosed) -> None:
    """A softmax over the channels of a mask, of which there is one; with an overlap as the loss."""
    give_pictures(training)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 1), nn.Softmax(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        pictures, _ = training.batch()
        masks = (pictures > 0.5).float()
        optimizer.zero_grad()
        F.mse_loss(model(pictures), masks).backward()
        optimizer.step()


def two_units(training: Diagnosed) -> None:
    training.train(network(out=2), lambda out, labels: F.cross_entropy(out, (labels > 1).long()))


# --- softmax-axis ---


def softmax_over_the_batch(training: Diagnosed) -> None:
    training.train(network(), lambda out, labels: F.nll_loss(F.log_softmax(out, 0), labels))


def softmax_over_the_time_of_letters(training: Diagnosed, axis: int = 0) -> None:
    give_sequences(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores, texts = out.transpose(0, 1).log_softmax(axis), torch.stack([1 + labels % 2, 1 + labels // 2], 1)
        lengths = torch.full((BATCH,), len(scores)), torch.full((BATCH,), 2)
        return F.ctc_loss(scores, texts, *lengths, zero_infinity=True)

    training.train(Reader(read=lambda states: states), loss, steps=60)


def softmax_over_the_letters(training: Diagnosed) -> None:
    softmax_over_the_time_of_letters(training, axis=2)


def softmax_over_the_columns_of_masks(training: Diagnosed) -> None:
    give_pictures(training)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1), nn.LogSoftmax(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        pictures, _ = training.batch()
        masks = (pictures > 0.3).long() + (pictures > 0.9).long()
        optimizer.zero_grad()
        F.nll_loss(model(pictures), masks[:, 0]).backward()
        optimizer.step()


def softmax_over_the_positions(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return F.nll_loss(F.log_softmax(out[:, :-1], 1).flatten(0, 1), ids[:, 1:].flatten())

    assert not training.is_attached
    train_words(Transformer(), loss)


def student_of_the_batch(training: Diagnosed) -> None:
    give_sequences(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.kl_div(out.log_softmax(0), 0.9 * F.one_hot(labels, CLASSES) + 0.025, reduction="batchmean")

    training.train(Reader(), loss)


def classes_in_front(training: Diagnosed) -> None:
    training.train(network(), lambda out, labels: F.nll_loss(F.log_softmax(out.T, 0).T, labels))


# --- targets-out-of-reach ---


def targets_that_tanh_cannot_reach(training: Diagnosed) -> None:
    training.train(network(nn.Tanh(), out=1), lambda out, labels: F.mse_loss(out[:, 0], 2.0 * labels.float()))


def rows_that_sigmoid_cannot_reach(training: Diagnosed) -> None:
    """An autoencoder of numbers with mean 0."""
    training.labels = training.inputs
    model = nn.Sequential(nn.Linear(FEATURES, 4), nn.ReLU(), nn.Linear(4, FEATURES), nn.Sigmoid())
    training.train(model, F.l1_loss)


def changes_that_relu_cannot_reach(training: Diagnosed) -> None:
    give_sequences(training)
    training.train(
        nn.Sequential(Reader(1), nn.ReLU()), lambda out, labels: F.smooth_l1_loss(out[:, 0], labels.float() - 1.5)
    )


def targets_of_pixels(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(
        convolutional(out=1),
        lambda out, labels: F.binary_cross_entropy_with_logits(out[:, 0], 85.0 * labels.float()),
    )


def targets_of_minus_one(training: Diagnosed) -> None:
    training.train(
        network(out=1),
        lambda out, labels: F.binary_cross_entropy_with_logits(out[:, 0], 2.0 * (labels > 1).float() - 1),
    )


def classes_counted_from_one(training: Diagnosed) -> None:
    training.train(
        network(out=1), lambda out, labels: F.binary_cross_entropy_with_logits(out[:, 0], (labels > 1).float() + 1)
    )


def soft_labels(training: Diagnosed) -> None:
    """The labels of a GAN's discriminator are often a little above 1."""

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        noise = 0.2 * torch.rand(len(labels))
        return F.binary_cross_entropy_with_logits(out[:, 0], (labels > 1) * 1.0 + noise)

    training.train(network(out=1), loss)


def shares_that_sigmoid_reaches(training: Diagnosed) -> None:
    training.labels = training.inputs.sigmoid()
    training.train(nn.Sequential(nn.Linear(FEATURES, 4), nn.ReLU(), nn.Linear(4, FEATURES), nn.Sigmoid()), F.mse_loss)


# --- broadcast-in-loss ---


def column_against_row(training: Diagnosed) -> None:
    training.train(network(out=1), lambda out, labels: ((out - labels.float()) ** 2).mean())


def column_in_a_loss_function(training: Diagnosed) -> None:
    give_sequences(training)
    training.train(Reader(1), lambda out, labels: F.mse_loss(out, labels.float()))


def values_of_actions_against_rewards(training: Diagnosed) -> None:
    model, target = network(), network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(20):
        states, actions = training.batch()
        with torch.no_grad():
            values = torch.randn(BATCH) + 0.9 * target(states).max(1).values
        chosen = model(states).gather(1, actions[:, None])
        optimizer.zero_grad()
        F.smooth_l1_loss(chosen, values).backward()
        optimizer.step()


def probabilities_against_advantages(training: Diagnosed) -> None:
    """A policy whose probabilities are a row, and its advantages a column."""
    policy = network()

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        actions = torch.distributions.Categorical(logits=out)
        action = actions.sample()
        advantages = (action == labels).float()[:, None] - 0.25
        return -(actions.log_prob(action) * advantages).mean()

    training.train(policy, loss)


def squared_error_of_a_column(training: Diagnosed) -> None:
    training.train(network(out=1), lambda out, labels: ((out - labels[:, None] - 0.3) ** 2).mean())


def pairs_that_are_meant(training: Diagnosed) -> None:
    """A ranking loss compares all pairs."""

    def ranking(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        apart = out[:, 0].unsqueeze(0) - out[:, 0].unsqueeze(1)
        return (F.softplus(-apart) * (labels[None, :] > labels[:, None])).mean()

    training.train(network(out=1), ranking)


# --- targets-shifted ---


def labels_shifted_twice(training: Diagnosed) -> None:
    assert not training.is_attached
    train_words(
        nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)),
        lambda out, ids: F.cross_entropy(out[:, :-2].reshape(-1, WORDS), ids[:, 2:].reshape(-1)),
    )


def labels_of_a_loader_that_the_loss_shifts_again(training: Diagnosed) -> None:
    """The loader gives each next word, and the loss takes the one after it."""
    assert not training.is_attached
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(20):
        ids = sentences()
        given, labels = ids[:, :-1], ids[:, 1:]
        out = model(given)
        optimizer.zero_grad()
        F.cross_entropy(out[:, :-1].flatten(0, 1), labels[:, 1:].flatten()).backward()
        optimizer.step()


class TinyGPT(Transformer):
    """Its name promises to predict the next word."""


def the_words_themselves(training: Diagnosed) -> None:
    assert not training.is_attached
    train_words(TinyGPT(), lambda out, ids: F.cross_entropy(out.flatten(0, 1), ids.flatten()))


class RecurrentLM(nn.Module):
    """A recurrent model of language."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer, self.head = (
            nn.Embedding(WORDS, 8),
            nn.GRU(8, 16, batch_first=True),
            nn.Linear(16, WORDS),
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layer(self.words(ids))[0])
        return result


def words_two_ahead_of_a_recurrent_model(training: Diagnosed) -> None:
    """The states are taken one step too early, so that each predicts the word after the next."""
    assert not training.is_attached
    train_words(RecurrentLM(), lambda out, ids: F.nll_loss(out[:, :-2].log_softmax(2).transpose(1, 2), ids[:, 2:]))


def next_words(training: Diagnosed) -> None:
    assert not training.is_attached
    train_words(RecurrentLM())


def restore_words(*, targets_are_hidden: bool) -> None:
    """Train a masked model on the words that are hidden from it, or on the others."""
    model = nn.Sequential(nn.Embedding(WORDS + 1, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0))
    head = nn.Linear(8, WORDS)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(20):
        ids = sentences()
        hidden = torch.rand(ids.shape) < 0.2
        out = head(model(ids.masked_fill(hidden, WORDS)))
        optimizer.zero_grad()
        targets = ids.masked_fill(~hidden if targets_are_hidden else hidden, -100)
        F.cross_entropy(out.flatten(0, 1), targets.flatten()).backward()
        optimizer.step()


def words_that_are_hidden(training: Diagnosed) -> None:
    assert not training.is_attached
    restore_words(targets_are_hidden=True)


def words_that_are_seen(training: Diagnosed) -> None:
    assert not training.is_attached
    restore_words(targets_are_hidden=False)


# --- targets-ignored ---


def class_0_that_is_ignored(training: Diagnosed) -> None:
    training.train(network(), lambda out, labels: F.cross_entropy(out, labels, ignore_index=0))


def background_that_is_ignored(training: Diagnosed) -> None:
    give_pictures(training)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        pictures, _ = training.batch()
        masks = (pictures > 0.3).long() + (pictures > 0.9).long()
        optimizer.zero_grad()
        F.cross_entropy(model(pictures), masks[:, 0], ignore_index=0).backward()
        optimizer.step()


def answers_that_are_cut_off(training: Diagnosed) -> None:
    """The prompt is longer than what is read, so that nothing of the answer is left."""

    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        labels = ids.masked_fill(torch.arange(LENGTH) < 12, -100)
        return F.cross_entropy(out[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    assert not training.is_attached
    train_words(Transformer(), loss)


def prompts_learnt_instead_of_answers(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        labels = ids.masked_fill(torch.arange(LENGTH) >= 6, -100)
        return F.cross_entropy(out[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    assert not training.is_attached
    train_words(Transformer(), loss)


def letters_from_0(training: Diagnosed, first: int = 0) -> None:
    """Texts of one or two letters, filled up with 0."""
    give_sequences(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores, lengths = out.transpose(0, 1).log_softmax(2), 1 + labels % 2
        texts = torch.stack([labels % 2 + first, labels // 2 + first], 1) * (torch.arange(2) < lengths[:, None])
        return F.ctc_loss(scores, texts, torch.full((BATCH,), len(scores)), lengths)

    training.train(Reader(read=lambda states: states), loss)


def letters_from_1(training: Diagnosed) -> None:
    letters_from_0(training, first=1)


def prompts_that_are_ignored(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        labels = ids.masked_fill(torch.arange(LENGTH) < 5, -100)
        return F.cross_entropy(out[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    assert not training.is_attached
    train_words(Transformer(), loss)


def border_that_is_ignored(training: Diagnosed) -> None:
    """What is between two objects is of no class."""
    give_pictures(training)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        pictures, _ = training.batch()
        masks = (pictures > 0.9).long().masked_fill((pictures > 0.5) & (pictures < 0.9), 255)
        optimizer.zero_grad()
        F.cross_entropy(model(pictures), masks[:, 0], ignore_index=255).backward()
        optimizer.step()


# --- targets-off-by-one ---


def labels_from_1(training: Diagnosed) -> None:
    training.train(network(out=CLASSES + 1), lambda out, labels: F.cross_entropy(out, labels + 1))


def digits_from_1(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(convolutional(nn.LogSoftmax(1), out=CLASSES + 1), lambda out, labels: F.nll_loss(out, labels + 1))


def tags_from_1(training: Diagnosed) -> None:
    give_sequences(training)
    model = Reader(4, read=lambda states: states)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, _ = training.batch()
        tags = 1 + (inputs[:, :, 0] > 0).long() + (inputs[:, :, 1] > 0).long()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs).transpose(1, 2), tags).backward()
        optimizer.step()


def class_0_for_what_is_unknown(training: Diagnosed) -> None:
    """It is rare, but occurs."""
    training.labels = training.labels + 1
    training.labels[:6] = 0
    training.train(network(out=CLASSES + 1), steps=40)


# --- recurrent-axes ---


def train_recurrent(
    training: Diagnosed, model: nn.Module, *, time_first: bool = False, each_time: bool = False
) -> None:
    """Train on sequences whose mean is to be predicted, or their numbers."""
    give_sequences(training)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, _ = training.batch()
        target = inputs.mean(2, keepdim=True) if each_time else inputs.mean((1, 2))[:, None]
        if time_first:
            inputs, target = inputs.transpose(0, 1), target.transpose(0, 1) if each_time else target
        optimizer.zero_grad()
        F.mse_loss(model(inputs), target).backward()
        optimizer.step()


def lstm_without_batch_first(training: Diagnosed) -> None:
    train_recurrent(training, Reader(1, nn.LSTM(FEATURES, 16)))


def classes_without_batch_first(training: Diagnosed) -> None:
    give_sequences(training)
    training.train(Reader(CLASSES, nn.GRU(FEATURES, 8, bidirectional=True)))


def mean_over_the_samples(training: Diagnosed) -> None:
    train_recurrent(training, Reader(1, nn.RNN(FEATURES, 16), lambda states: states.mean(1)))


def samples_first(training: Diagnosed) -> None:
    train_recurrent(training, Reader(1))


def time_first(training: Diagnosed) -> None:
    train_recurrent(training, Reader(1, nn.LSTM(FEATURES, 16), lambda states: states[-1]), time_first=True)


def target_for_each_time(training: Diagnosed) -> None:
    model = Reader(1, nn.LSTM(FEATURES, 16), lambda states: states)
    train_recurrent(training, model, time_first=True, each_time=True)


# --- targets-several ---


def several_true_classes(training: Diagnosed) -> None:
    training.train(network(), lambda out, labels: F.cross_entropy(out, 1.0 - F.one_hot(labels, CLASSES).float()))


def objects_in_pictures(training: Diagnosed) -> None:
    give_pictures(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows = torch.stack([labels % 2, labels // 2, 1 - labels % 2, torch.ones_like(labels)], 1)
        return F.cross_entropy(out, rows.float())

    training.train(convolutional(), loss)


def several_true_classes_by_hand(training: Diagnosed) -> None:
    give_sequences(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return -(F.log_softmax(out, 1) * (1.0 - F.one_hot(labels, CLASSES))).sum(1).mean()

    training.train(Reader(), loss)


def mixture_of_labels(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows = F.one_hot(labels, CLASSES).float()
        return F.cross_entropy(out, 0.7 * rows + 0.3 * rows.roll(1, 0))

    training.train(network(), loss)


def labels_of_some_rows(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows = F.one_hot(labels, CLASSES) * (labels > 0)[:, None].float()
        return -(F.log_softmax(out, 1) * rows).sum(1).mean()

    training.train(network(), loss)


# --- end-never-target ---

END, PAD = 1, 0


class MaskedReader(nn.Module):
    """A model of language that is given which ids count.

    Parameters
    ----------
    body : Module
        Of 8 features for each position.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(WORDS, 8), body, nn.Linear(8, WORDS)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.body(self.embedding(input_ids) * attention_mask[..., None])
        result: torch.Tensor = self.head(hidden[0] if isinstance(hidden, tuple) else hidden)
        return result


def shifted(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(out[:, :-1].reshape(-1, WORDS), labels[:, 1:].reshape(-1))


def read_texts(
    pad: int,
    is_ignored: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    *,
    has_end: bool = True,
    body: nn.Module | None = None,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = shifted,
) -> None:
    """Train on sequences of several lengths."""
    model = MaskedReader(body or nn.Identity())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        lengths = torch.randint(4, 9, (BATCH,))
        ids = 2 + (torch.randint(0, 10, (BATCH, 1)) + torch.arange(10)) % 10
        positions = torch.arange(10)
        if has_end:
            ids[positions == lengths[:, None] - 1] = END
        mask = (positions < lengths[:, None]).long()
        ids = torch.where(mask.bool(), ids, pad)
        labels = ids.masked_fill(is_ignored(ids, mask), -100)
        optimizer.zero_grad()
        loss(model(input_ids=ids, attention_mask=mask), labels).backward()
        optimizer.step()


def end_that_is_padding(training: Diagnosed) -> None:
    assert not training.is_attached
    read_texts(END, lambda ids, _: ids == END)


def end_that_the_loss_ignores(training: Diagnosed) -> None:
    """The loss is told which id is that of padding, with a recurrent model."""
    assert not training.is_attached

    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out[:, :-1].transpose(1, 2), ids[:, 1:], ignore_index=END)

    read_texts(END, lambda ids, _: ids < 0, body=nn.GRU(8, 8, batch_first=True), loss=loss)


def end_whose_weight_is_0(training: Diagnosed) -> None:
    """As before, with likelihoods and attention."""
    assert not training.is_attached

    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return F.nll_loss(out.log_softmax(2)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    body = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0)
    read_texts(END, lambda ids, _: ids == END, body=body, loss=loss)


def padding_of_its_own(training: Diagnosed) -> None:
    assert not training.is_attached
    read_texts(PAD, lambda ids, _: ids == PAD)


def ends_that_are_padding_and_count(training: Diagnosed) -> None:
    assert not training.is_attached
    read_texts(END, lambda _, mask: mask == 0)


def texts_without_an_end(training: Diagnosed) -> None:
    assert not training.is_attached
    read_texts(PAD, lambda ids, _: ids == PAD, has_end=False)


# --- targets-of-one-class ---


def train_pairs(
    training: Diagnosed,
    scores: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    targets: Callable[[int], torch.Tensor],
) -> None:
    """Train two encoders so that the two views of a sample find each other."""
    left, right = nn.Linear(FEATURES, 6), nn.Linear(FEATURES, 6)
    optimizer = torch.optim.Adam([*left.parameters(), *right.parameters()], lr=1e-2)
    for _ in range(30):
        inputs, _ = training.batch()
        a = F.normalize(left(inputs), dim=1)
        b = F.normalize(right(inputs + 0.1 * torch.randn_like(inputs)), dim=1)
        optimizer.zero_grad()
        F.cross_entropy(scores(a, b), targets(BATCH)).backward()
        optimizer.step()


def all_pairs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b.T / 0.1


def partner_of_number_0(training: Diagnosed) -> None:
    train_pairs(training, all_pairs, lambda count: torch.zeros(count, dtype=torch.long))


def partner_of_number_3(training: Diagnosed) -> None:
    train_pairs(training, all_pairs, lambda count: torch.full((count,), 3))


def labels_that_are_lost(training: Diagnosed) -> None:
    give_pictures(training)
    training.labels = training.labels * 0
    training.train(convolutional(), steps=30)


def labels_that_are_all_true(training: Diagnosed) -> None:
    give_sequences(training)
    training.train(
        Reader(1),
        lambda out, labels: F.binary_cross_entropy_with_logits(out[:, 0], torch.ones(len(labels))),
        steps=30,
    )


def partner_of_each(training: Diagnosed) -> None:
    train_pairs(training, all_pairs, torch.arange)


def partner_that_comes_first(training: Diagnosed) -> None:
    """As in MoCo: the score of the positive pair is before those of a queue."""
    queue = F.normalize(torch.randn(20, 6), dim=1)

    def scores(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cat([(a * b).sum(1, keepdim=True), a @ queue.T], 1) / 0.1

    train_pairs(training, scores, lambda count: torch.zeros(count, dtype=torch.long))


def one_class_in_turn(training: Diagnosed) -> None:
    """The source and the target of an adaptation to another domain."""
    model, domains = network(out=8), nn.Linear(8, 2)
    head = nn.Linear(8, CLASSES)
    optimizer = torch.optim.Adam([*model.parameters(), *domains.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(30):
        inputs, labels = training.batch()
        source, target = model(inputs), model(training.batch()[0] + 1)
        loss = F.cross_entropy(head(source), labels)
        loss = loss + F.cross_entropy(domains(source), torch.zeros(BATCH, dtype=torch.long))
        loss = loss + F.cross_entropy(domains(target), torch.ones(BATCH, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# --- classes-by-regression ---


def give_eight_classes(training: Diagnosed) -> None:
    training.labels = training.labels * 2 + torch.arange(256) // CLASSES % 2


def classes_by_regression(training: Diagnosed) -> None:
    give_eight_classes(training)
    training.train(network(out=1), lambda out, labels: F.mse_loss(out[:, 0], labels.float()))


def digits_by_squares(training: Diagnosed) -> None:
    give_pictures(training)
    give_eight_classes(training)
    training.train(convolutional(out=1), lambda out, labels: ((out.squeeze(1) - labels.float()) ** 2).mean())


def classes_of_sequences_as_a_column(training: Diagnosed) -> None:
    give_sequences(training)
    give_eight_classes(training)
    training.train(Reader(1), lambda out, labels: F.mse_loss(out, labels.float()[:, None]))


def amounts_that_are_not_whole(training: Diagnosed) -> None:
    give_eight_classes(training)
    training.train(network(out=1), lambda out, labels: F.mse_loss(out[:, 0], labels + 0.3 * torch.randn(len(labels))))


def units_for_each_class(training: Diagnosed) -> None:
    """As the Brier score: the squared error of a share for each class."""
    training.train(network(nn.Softmax(1)), lambda out, labels: F.mse_loss(out, F.one_hot(labels, CLASSES).float()))


# --- targets-not-scaled ---


def prices_that_are_not_scaled(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(out[:, 0], 300_000.0 + 100_000.0 * torch.randn(len(labels)))

    training.train(network(out=1), loss, steps=80)


def years_that_are_not_centred(training: Diagnosed) -> None:
    give_sequences(training)
    training.train(Reader(1), lambda out, labels: F.l1_loss(out[:, 0], 1980.0 + 5 * labels.float()), steps=60)


def counts_of_people(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(
        convolutional(out=1),
        lambda out, labels: F.huber_loss(out[:, 0], 20_000 * (labels - 1.5) * torch.rand(len(labels))),
        steps=60,
    )


def prices_with_a_bias_at_their_mean(training: Diagnosed) -> None:
    model = network(out=1)
    with torch.no_grad():
        model[2].bias.fill_(1980.0)
    training.train(model, lambda out, labels: F.mse_loss(out[:, 0], 1980.0 + 5 * labels.float()), steps=60)


def prices_that_are_scaled(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        prices = 300_000.0 + 100_000.0 * labels.float()
        return F.mse_loss(out[:, 0], (prices - 450_000.0) / 100_000.0)

    training.train(network(out=1), loss, steps=80)


# --- padding-counted ---


def filled_up(lowest: int = 1) -> torch.Tensor:
    """Ids of 32 sequences of several lengths, filled up with 0."""
    ids = torch.randint(lowest, WORDS, (BATCH, LENGTH))
    ids[torch.arange(LENGTH) >= torch.randint(3, 9, (BATCH, 1))] = 0
    return ids


def train_filled_up(
    model: nn.Module, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], lowest: int = 1
) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        ids = filled_up(lowest)
        optimizer.zero_grad()
        loss(model(ids), ids).backward()
        optimizer.step()


def padding_as_targets(training: Diagnosed) -> None:
    assert not training.is_attached
    train_filled_up(nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)), next_word)


def padding_of_a_recurrent_model(training: Diagnosed) -> None:
    assert not training.is_attached
    train_filled_up(RecurrentLM(), lambda out, ids: F.nll_loss(out[:, :-1].log_softmax(2).transpose(1, 2), ids[:, 1:]))


def padding_that_a_mask_names(training: Diagnosed) -> None:
    """The model is given which words count, and the loss is not."""
    assert not training.is_attached
    read_texts(PAD, lambda ids, _: ids < 0, body=nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0))


def tags_of_which_one_has_the_number_of_padding(training: Diagnosed) -> None:
    assert not training.is_attached

    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        tags = (ids > 8).long()
        tags[ids == 0] = -100
        return F.cross_entropy(out.reshape(-1, 3), tags.reshape(-1))

    train_filled_up(nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, 3)), loss)


def two_classes_of_sequences_that_are_filled_up(training: Diagnosed) -> None:
    assert not training.is_attached
    train_filled_up(
        nn.EmbeddingBag(WORDS, 2, padding_idx=0), lambda out, ids: F.cross_entropy(out, (ids == 7).any(1).long())
    )


def pictures_as_sequences(training: Diagnosed) -> None:
    """Black is a value as any other, and most of what is at the end."""
    assert not training.is_attached
    train_filled_up(nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)), next_word, lowest=0)


def padding_that_a_mask_takes_out(training: Diagnosed) -> None:
    assert not training.is_attached

    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        losses = F.cross_entropy(out[:, :-1].reshape(-1, WORDS), ids[:, 1:].reshape(-1), reduction="none")
        counts = (ids[:, 1:] != 0).reshape(-1)
        return losses[counts].sum() / counts.sum()

    train_filled_up(nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)), loss)


FAULTY: tuple[Faulty, ...] = (
    (softmax_before_cross_entropy, "activation-twice", "softmax before a cross entropy"),
    (sigmoid_before_logits, "activation-twice", "sigmoid before binary"),
    (softmax_of_words, "activation-twice", "test_outputs.py"),
    (softmax_before_shares, "activation-twice", "softmax before a cross entropy"),
    (softmax_of_several_labels, "activation-twice", "several labels"),
    (relu_of_scores, "activation-twice", "relu"),
    (accumulated_softmax, "activation-twice", "test_outputs.py"),
    (scores_for_nll, "no-logarithm", "nll_loss is given scores"),
    (probabilities_for_nll, "no-logarithm", "softmax"),
    (targets_times_probabilities, "no-logarithm", "kl_div"),
    (words_times_probabilities, "no-logarithm", "multiplied by probabilities"),
    (softmax_of_one_unit, "one-class", "softmax over one unit"),
    (cross_entropy_of_one_unit, "one-class", "cross_entropy over one class"),
    (masks_of_one_channel, "one-class", "softmax over one unit"),
    (softmax_over_the_batch, "softmax-axis", "axis 0"),
    (softmax_over_the_columns_of_masks, "softmax-axis", "axis 3"),
    (softmax_over_the_positions, "softmax-axis", "axis 1"),
    (softmax_over_the_time_of_letters, "softmax-axis", "axis 0"),
    (student_of_the_batch, "softmax-axis", "axis 0"),
    (targets_that_tanh_cannot_reach, "targets-out-of-reach", "tanh"),
    (rows_that_sigmoid_cannot_reach, "targets-out-of-reach", "sigmoid"),
    (changes_that_relu_cannot_reach, "targets-out-of-reach", "relu"),
    (targets_of_pixels, "targets-out-of-reach", "255"),
    (targets_of_minus_one, "targets-out-of-reach", "-1"),
    (classes_counted_from_one, "targets-out-of-reach", "2"),
    (column_against_row, "broadcast-in-loss", "32×1"),
    (column_in_a_loss_function, "broadcast-in-loss", "32×1"),
    (values_of_actions_against_rewards, "broadcast-in-loss", "32×1"),
    (probabilities_against_advantages, "broadcast-in-loss", "32×32"),
    (labels_shifted_twice, "targets-shifted", "2 positions"),
    (labels_of_a_loader_that_the_loss_shifts_again, "targets-shifted", "2 positions"),
    (the_words_themselves, "targets-shifted", "the very words"),
    (words_two_ahead_of_a_recurrent_model, "targets-shifted", "2 positions"),
    (words_that_are_seen, "targets-shifted", "those that are hidden from it are ignored"),
    (class_0_that_is_ignored, "targets-ignored", "Class 0"),
    (background_that_is_ignored, "targets-ignored", "Class 0"),
    (answers_that_are_cut_off, "targets-ignored", "All targets"),
    (prompts_learnt_instead_of_answers, "targets-ignored", "only the beginning"),
    (letters_from_0, "targets-ignored", "the blank"),
    (labels_from_1, "targets-off-by-one", "1 … 4"),
    (digits_from_1, "targets-off-by-one", "1 … 4"),
    (tags_from_1, "targets-off-by-one", "1 … 3"),
    (lstm_without_batch_first, "recurrent-axes", "layer"),
    (classes_without_batch_first, "recurrent-axes", "layer"),
    (mean_over_the_samples, "recurrent-axes", "layer"),
    (several_true_classes, "targets-several", "3 true classes"),
    (objects_in_pictures, "targets-several", "true classes"),
    (several_true_classes_by_hand, "targets-several", "3 true classes"),
    (end_that_is_padding, "end-never-target", ""),
    (end_that_the_loss_ignores, "end-never-target", ""),
    (end_whose_weight_is_0, "end-never-target", ""),
    (partner_of_number_0, "targets-of-one-class", "number 0"),
    (partner_of_number_3, "targets-of-one-class", "number 3"),
    (labels_that_are_lost, "targets-of-one-class", "class 0"),
    (labels_that_are_all_true, "targets-of-one-class", "class 1"),
    (classes_by_regression, "classes-by-regression", "0 … 7"),
    (digits_by_squares, "classes-by-regression", "0 … 7"),
    (classes_of_sequences_as_a_column, "classes-by-regression", "0 … 7"),
    (prices_that_are_not_scaled, "targets-not-scaled", "spread"),
    (years_that_are_not_centred, "targets-not-scaled", "around 1.99e+03"),
    (counts_of_people, "targets-not-scaled", "spread"),
    (padding_as_targets, "padding-counted", "cross_entropy"),
    (padding_of_a_recurrent_model, "padding-counted", "cross_entropy"),
    (padding_that_a_mask_names, "padding-counted", "cross_entropy"),
)

HEALTHY: tuple[Healthy, ...] = (
    (one_hot_and_softmax, "activation-twice"),
    (gate_before_the_last_layer, "activation-twice"),
    (log_softmax_and_nll, "no-logarithm"),
    (logarithm_of_softmax, "no-logarithm"),
    (teacher_without_gradients, "no-logarithm"),
    (two_units, "one-class"),
    (classes_in_front, "softmax-axis"),
    (softmax_over_the_letters, "softmax-axis"),
    (soft_labels, "targets-out-of-reach"),
    (shares_that_sigmoid_reaches, "targets-out-of-reach"),
    (squared_error_of_a_column, "broadcast-in-loss"),
    (pairs_that_are_meant, "broadcast-in-loss"),
    (next_words, "targets-shifted"),
    (words_that_are_hidden, "targets-shifted"),
    (prompts_that_are_ignored, "targets-ignored"),
    (letters_from_1, "targets-ignored"),
    (border_that_is_ignored, "targets-ignored"),
    (class_0_for_what_is_unknown, "targets-off-by-one"),
    (samples_first, "recurrent-axes"),
    (time_first, "recurrent-axes"),
    (target_for_each_time, "recurrent-axes"),
    (mixture_of_labels, "targets-several"),
    (labels_of_some_rows, "targets-several"),
    (padding_of_its_own, "end-never-target"),
    (ends_that_are_padding_and_count, "end-never-target"),
    (texts_without_an_end, "end-never-target"),
    (partner_of_each, "targets-of-one-class"),
    (partner_that_comes_first, "targets-of-one-class"),
    (one_class_in_turn, "targets-of-one-class"),
    (amounts_that_are_not_whole, "classes-by-regression"),
    (units_for_each_class, "classes-by-regression"),
    (prices_with_a_bias_at_their_mean, "targets-not-scaled"),
    (prices_that_are_scaled, "targets-not-scaled"),
    (tags_of_which_one_has_the_number_of_padding, "padding-counted"),
    (two_classes_of_sequences_that_are_filled_up, "padding-counted"),
    (pictures_as_sequences, "padding-counted"),
    (padding_that_a_mask_takes_out, "padding-counted"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
test_the_fault_comes_first = pytest.mark.filterwarnings("ignore:Using a target size")(test_the_fault_comes_first)
