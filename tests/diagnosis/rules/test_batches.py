"""Trainings that are given the wrong data, and others that resemble them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.diagnosis.diagnosed import (
    BATCH,
    CLASSES,
    FEATURES,
    Faulty,
    Healthy,
    network,
    table_tests,
)
from tests.diagnosis.models import WORDS, Transformer, next_word, sentences
from tests.diagnosis.tasks import Reader, convolutional, give_pictures, give_sequences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.diagnosis.diagnosed import Diagnosed

# --- input-constant ---


def inputs_that_are_lost(training: Diagnosed) -> None:
    training.inputs = training.inputs.mul(0)
    training.train(network())


def pictures_that_are_divided_as_whole_numbers(training: Diagnosed) -> None:
    give_pictures(training)
    training.inputs = ((training.inputs.clamp(0, 1) * 254).long() // 255).float()
    training.train(convolutional())


def words_that_are_unknown(training: Diagnosed) -> None:
    """The vocabulary is that of another language: each word has the id of what is unknown."""
    assert not training.is_attached
    model = nn.Sequential(nn.Embedding(WORDS, 8), nn.Flatten(), nn.Linear(80, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(20):
        ids = sentences()
        optimizer.zero_grad()
        F.cross_entropy(model(torch.full_like(ids, 3)), (ids[:, 0] > 5).long()).backward()
        optimizer.step()


def sequences_that_are_clipped(training: Diagnosed) -> None:
    """Prices are clipped to the range of changes."""
    give_sequences(training)
    training.inputs = (training.inputs + 100).clamp(-3, 3)
    training.train(Reader(1), lambda out, labels: F.mse_loss(out[:, 0], labels - 1.5))


def episodes_that_begin_at_zero(training: Diagnosed) -> None:
    """The first of many calls in a step is given a state that has just been reset."""
    assert not training.is_attached
    policy = network(out=2)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(20):
        state, losses = torch.zeros(FEATURES), []
        for _ in range(5):
            action = torch.distributions.Categorical(logits=policy(state))
            choice = action.sample()
            losses.append(-action.log_prob(choice) * torch.randn(()))
            state = 0.9 * state + torch.randn(FEATURES)
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        optimizer.step()


def mask_of_ones_before_the_input(training: Diagnosed) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network()

        def forward(self, mask: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.body(given * mask)
            return result

    model = Masked()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        F.cross_entropy(model(torch.ones_like(inputs), inputs), labels).backward()
        optimizer.step()


def one_number_in_each_step(training: Diagnosed) -> None:
    assert not training.is_attached
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(20):
        given = torch.randn(1, 1)
        optimizer.zero_grad()
        F.mse_loss(model(given), 2 * given).backward()
        optimizer.step()


def constant_that_a_generator_begins_with(training: Diagnosed) -> None:
    """As in StyleGAN: what is learnt is added to a constant, and noise is drawn within."""

    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, FEATURES)

        def forward(self, given: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.body(given + noise)
            return result

    model = Generator()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, _ = training.batch()
        optimizer.zero_grad()
        F.mse_loss(model(torch.ones(len(inputs), 4), torch.randn(len(inputs), 4)).std(0), inputs.std(0)).backward()
        optimizer.step()


# --- batch-repeated ---


def loader(training: Diagnosed, *, shuffle: bool = False) -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(training.inputs, training.labels), batch_size=BATCH, shuffle=shuffle)


def train_on_batches(
    training: Diagnosed, model: nn.Module, batch: Callable[[DataLoader[tuple[torch.Tensor, ...]]], list[torch.Tensor]]
) -> None:
    batches = loader(training)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(30):
        inputs, labels = batch(batches)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def iterator_made_in_the_loop(training: Diagnosed) -> None:
    train_on_batches(training, network(), lambda batches: next(iter(batches)))


def epochs_that_end_after_a_batch(training: Diagnosed) -> None:
    """The loop over the batches returns in its first pass."""
    give_pictures(training)

    def first(batches: DataLoader[tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
        for inputs, labels in batches:
            return [inputs, labels]
        return []

    train_on_batches(training, convolutional(), first)


def batch_that_a_cache_keeps(training: Diagnosed) -> None:
    give_sequences(training)
    kept: list[list[torch.Tensor]] = []

    def cached(batches: DataLoader[tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
        kept[:] = kept or [next(iter(batches))]
        return kept[0]

    train_on_batches(training, Reader(), cached)


def batches_in_turn(training: Diagnosed) -> None:
    rest: list[list[torch.Tensor]] = []

    def following(batches: DataLoader[tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
        rest[:] = rest or list(batches)
        return rest.pop()

    train_on_batches(training, network(), following)


def one_batch_by_heart(training: Diagnosed) -> None:
    """Without a loader: whether a batch can be learnt by heart is a test of many."""
    give_sequences(training)
    training.inputs, training.labels = training.inputs[:BATCH], training.labels[:BATCH]
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(training.inputs), training.labels).backward()
        optimizer.step()


# --- batches-unused ---


def train_in_epochs(
    training: Diagnosed,
    combined: Callable[[list[torch.Tensor]], torch.Tensor],
    loss: Callable[..., torch.Tensor] = F.cross_entropy,
    model: nn.Module | None = None,
) -> None:
    """Update once after several batches, by a loss made of those of the batches."""
    model = model or network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(10):
        losses = []
        for _ in range(8):
            inputs, labels = training.batch()
            losses.append(loss(model(inputs), labels))
        optimizer.zero_grad()
        combined(losses).backward()
        optimizer.step()


def last(losses: list[torch.Tensor]) -> torch.Tensor:
    return losses[-1]


def last_of_each_epoch(training: Diagnosed) -> None:
    train_in_epochs(training, last)


def last_picture_of_each_epoch(training: Diagnosed) -> None:
    give_pictures(training)
    train_in_epochs(training, last, lambda out, labels: F.mse_loss(out[:, 0], labels + 0.3), convolutional(out=1))


def last_text_of_each_epoch(training: Diagnosed) -> None:
    """Gradients are meant to be accumulated; the backward pass is beside the loop."""
    training.inputs = training.labels = sentences(256)
    train_in_epochs(training, last, next_word, Transformer())


def sum_of_each_epoch(training: Diagnosed) -> None:
    train_in_epochs(training, lambda losses: torch.stack(losses).mean())


def worst_of_each_epoch(training: Diagnosed) -> None:
    """As if it were chosen: it need not be the last."""
    train_in_epochs(training, lambda losses: max(losses, key=lambda loss: loss.item()))


def worst_of_small_changes(training: Diagnosed) -> None:
    """Adversarial training: changes of the inputs are looked for by their gradients, without a backward pass."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        inputs, labels = training.batch()
        change = torch.zeros_like(inputs, requires_grad=True)
        for _ in range(3):
            (slope,) = torch.autograd.grad(F.cross_entropy(model(inputs + change), labels), change)
            change = (change + 0.05 * slope.sign()).clamp(-0.1, 0.1).detach().requires_grad_(True)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs + change.detach()), labels).backward()
        optimizer.step()


def actions_chosen_with_gradients(training: Diagnosed) -> None:
    """The network is asked for single states, and updated by a batch."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        for row in range(6):
            model(training.inputs[row])
        inputs, labels = training.batch()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


# --- batch-of-one-class ---


def sorted_rows(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    order = training.labels.argsort()
    for epoch in range(8):
        for rows in order.split(16)[epoch % 2 :: 2]:
            optimizer.zero_grad()
            F.cross_entropy(model(training.inputs[rows]), training.labels[rows]).backward()
            optimizer.step()


def folders_of_pictures(training: Diagnosed) -> None:
    """A folder for each class, one after another, and no shuffling."""
    give_pictures(training)
    order = training.labels.argsort(stable=True)
    training.inputs, training.labels = training.inputs[order], training.labels[order]
    model = convolutional(nn.LogSoftmax(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(4):
        for inputs, labels in loader(training):
            optimizer.zero_grad()
            F.nll_loss(model(inputs), labels).backward()
            optimizer.step()


def authors_one_after_another(training: Diagnosed) -> None:
    """Each batch is of one author, drawn anew in each step."""
    give_sequences(training)
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(40):
        rows = (training.labels == (3 * step) % CLASSES).nonzero()[:, 0]
        rows = rows[torch.randint(0, len(rows), (16,))]
        optimizer.zero_grad()
        F.cross_entropy(model(training.inputs[rows]), training.labels[rows]).backward()
        optimizer.step()


def as_many_of_each_class(training: Diagnosed) -> None:
    """The classes of a batch are sorted, and all in it."""
    give_pictures(training)
    model = convolutional()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        rows = torch.cat([(training.labels == label).nonzero()[:8, 0] for label in range(CLASSES)])
        optimizer.zero_grad()
        F.cross_entropy(model(training.inputs[rows]), training.labels[rows]).backward()
        optimizer.step()


# --- stream-repeated ---


class Stream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Rows in order; each process reads every so many of them, or all.

    Parameters
    ----------
    training : Diagnosed
    is_shared : bool
        Whether each process reads a part of them.
    """

    def __init__(self, training: Diagnosed, *, is_shared: bool = False) -> None:
        self._rows, self._is_shared = [training.inputs, training.labels], is_shared

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker = torch.utils.data.get_worker_info()
        part = slice(worker.id, None, worker.num_workers) if self._is_shared and worker else slice(None)
        inputs, labels = (rows[part] for rows in self._rows)
        yield from zip(inputs, labels, strict=True)


def train_on_stream(training: Diagnosed, stream: Stream, model: nn.Module, *, workers: int = 2, times: int = 1) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for inputs, labels in DataLoader(stream, batch_size=16, num_workers=workers):
        for _ in range(times):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()


def stream_of_rows(training: Diagnosed) -> None:
    train_on_stream(training, Stream(training), network())


def stream_of_pictures(training: Diagnosed) -> None:
    give_pictures(training)
    train_on_stream(training, Stream(training), convolutional())


def stream_of_sequences(training: Diagnosed) -> None:
    give_sequences(training)
    train_on_stream(training, Stream(training), Reader())


def stream_that_is_shared(training: Diagnosed) -> None:
    train_on_stream(training, Stream(training, is_shared=True), network())


def stream_each_batch_of_which_is_used_twice(training: Diagnosed) -> None:
    train_on_stream(training, Stream(training), network(), workers=0, times=2)


# --- channels-last ---


def pictures_of_three_colours(training: Diagnosed, *, sides: tuple[int, int] = (8, 8)) -> torch.Tensor:
    """Return pictures with their channels last; one of the colours tells the class."""
    training.labels = torch.arange(256) % 3
    pictures = torch.rand(256, *sides, 3)
    pictures[torch.arange(256), :, :, training.labels] += 1
    return pictures


def pictures_as_they_are_read(training: Diagnosed) -> None:
    training.inputs = pictures_of_three_colours(training)
    training.train(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(192, 3)))


def pictures_of_one_channel(training: Diagnosed) -> None:
    give_pictures(training)
    training.inputs = training.inputs.movedim(1, -1).contiguous()
    training.train(nn.Sequential(nn.Conv2d(8, 4, (3, 1)), nn.ReLU(), nn.Flatten(), nn.Linear(24, CLASSES)))


def network_in_a_module(training: Diagnosed) -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(8, 16, 1)
            self.head = nn.Linear(16, 3)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(F.gelu(self.stem(given)).mean((2, 3)))
            return result

    training.inputs = pictures_of_three_colours(training)
    training.train(Classifier())


def pictures_that_are_permuted_first(training: Diagnosed) -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3)
            self.head = nn.Linear(8, 3)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(self.stem(given.permute(0, 3, 1, 2)).relu().mean((2, 3)))
            return result

    training.inputs = pictures_of_three_colours(training)
    training.train(Classifier(), steps=60)


def boards_of_eight_planes(training: Diagnosed) -> None:
    """Eight planes of a narrow board: rows, and three columns."""
    training.inputs = pictures_of_three_colours(training, sides=(8, 6)).contiguous()
    training.train(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)))


# --- inputs-drift ---


def rows_that_are_normalised_where_they_are(training: Diagnosed) -> None:
    """Each epoch subtracts and divides again."""
    training.inputs = 128 + 60 * training.inputs

    def epoch(step: int) -> None:
        if step % 8 == 0:
            training.inputs.sub_(128).div_(60)

    epoch(0)
    training.train(network(), steps=48, after=epoch)


def pictures_that_are_divided_again(training: Diagnosed) -> None:
    give_pictures(training)
    training.inputs = 255 * training.inputs

    def epoch(step: int) -> None:
        if step % 8 == 0:
            training.inputs /= 255

    epoch(0)
    training.train(convolutional(), steps=48, after=epoch)


def gains_that_are_drawn_in_place(training: Diagnosed) -> None:
    """An augmentation changes the stored signals, on average upwards."""

    def louder(_: int) -> None:
        training.inputs *= 1 + 0.4 * torch.rand(256, 1)

    training.train(network(), steps=48, after=louder)


def pictures_that_become_brighter(training: Diagnosed) -> None:
    """A curriculum from weak to strong contrasts, by a factor of four."""
    give_pictures(training)
    inputs = training.inputs / 4

    def brighter(step: int) -> None:
        training.inputs = inputs * (1 + 3 * step / 48)

    brighter(0)
    training.train(convolutional(), steps=48, after=brighter)


FAULTY: tuple[Faulty, ...] = (
    (stream_of_rows, "stream-repeated", "2 times in a row"),
    (stream_of_pictures, "stream-repeated", "2 times in a row"),
    (stream_of_sequences, "stream-repeated", "2 times in a row"),
    (pictures_as_they_are_read, "channels-last", "32x8x8x3"),
    (pictures_of_one_channel, "channels-last", "32x8x8x1"),
    (network_in_a_module, "channels-last", "stem takes their 8 rows"),
    (rows_that_are_normalised_where_they_are, "inputs-drift", "shrink"),
    (pictures_that_are_divided_again, "inputs-drift", "shrink"),
    (gains_that_are_drawn_in_place, "inputs-drift", "grow"),
    (inputs_that_are_lost, "input-constant", "are 0"),
    (pictures_that_are_divided_as_whole_numbers, "input-constant", "32x1x8x8"),
    (words_that_are_unknown, "input-constant", "All ids"),
    (sequences_that_are_clipped, "input-constant", "are 3"),
    (iterator_made_in_the_loop, "batch-repeated", "8"),
    (epochs_that_end_after_a_batch, "batch-repeated", "8"),
    (batch_that_a_cache_keeps, "batch-repeated", "8"),
    (last_of_each_epoch, "batches-unused", "8 times"),
    (last_picture_of_each_epoch, "batches-unused", "8 times"),
    (last_text_of_each_epoch, "batches-unused", "8 times"),
    (sorted_rows, "batch-of-one-class", "4 classes"),
    (folders_of_pictures, "batch-of-one-class", "4 classes"),
    (authors_one_after_another, "batch-of-one-class", "4 classes"),
)

HEALTHY: tuple[Healthy, ...] = (
    (stream_that_is_shared, "stream-repeated"),
    (stream_each_batch_of_which_is_used_twice, "stream-repeated"),
    (pictures_that_are_permuted_first, "channels-last"),
    (boards_of_eight_planes, "channels-last"),
    (pictures_that_become_brighter, "inputs-drift"),
    (episodes_that_begin_at_zero, "input-constant"),
    (mask_of_ones_before_the_input, "input-constant"),
    (one_number_in_each_step, "input-constant"),
    (constant_that_a_generator_begins_with, "input-constant"),
    (batches_in_turn, "batch-repeated"),
    (one_batch_by_heart, "batch-repeated"),
    (sum_of_each_epoch, "batches-unused"),
    (worst_of_each_epoch, "batches-unused"),
    (worst_of_small_changes, "batches-unused"),
    (actions_chosen_with_gradients, "batches-unused"),
    (as_many_of_each_class, "batch-of-one-class"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
