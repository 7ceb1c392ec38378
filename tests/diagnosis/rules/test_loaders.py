"""Trainings whose loaders draw random numbers in processes of their own."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from tensight.agents.torch.facts import made_lines
from tests.diagnosis.diagnosed import CLASSES, FEATURES, Diagnosed, Faulty, Healthy, network, replaced_by, table_tests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Sample = tuple[torch.Tensor, torch.Tensor]
OF_MODULE = np.random.default_rng(0)


class Rows(Dataset[Sample]):
    """Rows of features, changed by a function if there is one."""

    def __init__(self, training: Diagnosed, transform: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        self.inputs, self.labels, self.transform = training.inputs, training.labels, transform

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Sample:
        given = self.inputs[index]
        return (given if self.transform is None else self.transform(given)), self.labels[index]


class NoisyRows(Rows):
    """Adds noise from a generator of its own."""

    def __init__(self, training: Diagnosed) -> None:
        super().__init__(training)
        self.rng = np.random.default_rng(0)

    def noise(self) -> torch.Tensor:
        return torch.as_tensor(self.rng.normal(0, 0.1, FEATURES), dtype=torch.float32)

    def __getitem__(self, index: int) -> Sample:
        given, label = super().__getitem__(index)
        return given + self.noise(), label


class Scaled:
    """A transform that scales by a number that it draws."""

    def __init__(self) -> None:
        self.random = random.Random(1)  # noqa: S311 - augments data

    def __call__(self, given: torch.Tensor) -> torch.Tensor:
        return given * self.random.uniform(0.9, 1.1)


class Chain:
    """Transforms one after another, as of a library."""

    def __init__(self, *transforms: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.transforms = list(transforms)

    def __call__(self, given: torch.Tensor) -> torch.Tensor:
        for transform in self.transforms:
            given = transform(given)
        return given


class Drawn(IterableDataset[Sample]):
    """Samples that are drawn without an end, of a generator of PyTorch."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(3)

    def __iter__(self) -> Iterator[Sample]:
        for _ in range(600):
            label = torch.randint(CLASSES, (), generator=self.generator)
            yield torch.randn(FEATURES, generator=self.generator) + label, label


class Shared(Drawn):
    """The same, of which each process yields another part."""

    def __iter__(self) -> Iterator[Sample]:
        worker = torch.utils.data.get_worker_info()
        for number, sample in enumerate(super().__iter__()):
            if worker is None or number % worker.num_workers == worker.id:
                yield sample


class RowsByIndex(Rows):
    """Noise that depends on the number of the sample alone."""

    def __init__(self, training: Diagnosed) -> None:
        super().__init__(training)
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Sample:
        given, label = super().__getitem__(index)
        self.rng = np.random.default_rng(index)
        return given + float(self.rng.normal(0, 0.1)), label


class ShuffledRows(Rows):
    """Draws only when it is made."""

    def __init__(self, training: Diagnosed) -> None:
        super().__init__(training)
        self.rng = np.random.default_rng(0)
        order = torch.as_tensor(self.rng.permutation(len(self.inputs)))
        self.inputs, self.labels = self.inputs[order], self.labels[order]


def train(rows: Dataset[Sample], *, workers: int = 2, epochs: int = 2, **named: Any) -> None:
    """Train on a loader with processes of its own."""
    model: nn.Module = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with replaced_by(made_lines):
        loader = DataLoader(rows, batch_size=16, num_workers=workers, **named)
        for _ in range(epochs):
            for inputs, labels in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(inputs), labels).backward()
                optimizer.step()


def noise_of_a_data_set(training: Diagnosed) -> None:
    train(NoisyRows(training))


def noise_of_a_part(training: Diagnosed) -> None:
    train(Subset(NoisyRows(training), range(200)), shuffle=True)


def numbers_of_a_transform(training: Diagnosed) -> None:
    train(Rows(training, Chain(torch.abs, Scaled())))


def generator_of_a_module(training: Diagnosed) -> None:
    train(Rows(training, lambda given: given + 0.1 * float(OF_MODULE.normal())))


def samples_that_are_drawn(_: Diagnosed) -> None:
    train(Drawn(), epochs=1)


def one_process_in_each_epoch(training: Diagnosed) -> None:
    train(NoisyRows(training), workers=1)


def no_process(training: Diagnosed) -> None:
    train(NoisyRows(training), workers=0)


def one_process_that_goes_on(training: Diagnosed) -> None:
    train(NoisyRows(training), workers=1, persistent_workers=True)


def seeds_of_processes(training: Diagnosed) -> None:
    def seed(worker: int) -> None:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        info.dataset.rng = np.random.default_rng([worker, info.seed])  # type: ignore[attr-defined]

    train(NoisyRows(training), worker_init_fn=seed)


def noise_of_each_row(training: Diagnosed) -> None:
    train(RowsByIndex(training))


def drawn_when_it_is_made(training: Diagnosed) -> None:
    train(ShuffledRows(training))


def parts_of_what_is_drawn(_: Diagnosed) -> None:
    train(Shared(), epochs=1)


def changed(given: torch.Tensor) -> torch.Tensor:
    return given * random.uniform(0.9, 1.1) + float(np.random.normal(0, 0.1))  # noqa: S311, NPY002 - what is tested


def numbers_that_pytorch_seeds(training: Diagnosed) -> None:
    train(Rows(training, changed))


FAULTY: tuple[Faulty, ...] = (
    (noise_of_a_data_set, "generator-copied", "NoisyRows.noise (test_loaders.py:"),
    (noise_of_a_part, "generator-copied", "copies of NoisyRows.rng"),
    (numbers_of_a_transform, "generator-copied", "copies of Scaled.random"),
    (generator_of_a_module, "generator-copied", "copies of OF_MODULE"),
    (samples_that_are_drawn, "generator-copied", "a torch.Generator that Drawn.__iter__"),
    (one_process_in_each_epoch, "generator-copied", "in each epoch"),
)

HEALTHY: tuple[Healthy, ...] = (
    (no_process, "generator-copied"),
    (one_process_that_goes_on, "generator-copied"),
    (seeds_of_processes, "generator-copied"),
    (noise_of_each_row, "generator-copied"),
    (drawn_when_it_is_made, "generator-copied"),
    (parts_of_what_is_drawn, "generator-copied"),
    (numbers_that_pytorch_seeds, "generator-copied"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
