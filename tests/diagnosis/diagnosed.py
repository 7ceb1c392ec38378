"""A training in this process whose facts are read, as `tensight diagnose` reads those of a script."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pytest
import torch
from torch import nn

from tensight.agents.core.settings import AgentSettings
from tensight.agents.torch.debugger import Debugger
from tensight.diagnosis.catalogue import diagnose, words_of
from tensight.diagnosis.lines import read_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tensight.diagnosis.facts import Facts
    from tensight.diagnosis.findings import Finding

FEATURES, CLASSES, BATCH = 8, 4, 32


class Diagnosed:
    """A training, from the beginning of a ``with`` block on."""

    def __init__(self, folder: Path, *, probe: bool = False) -> None:
        self._folder = folder
        self._debugger = Debugger((), AgentSettings(diagnose=str(folder), probe=probe, quiet=True))
        self.inputs = torch.randn(256, FEATURES)
        self.labels = (self.inputs[:, 0] > 0).long() + 2 * (self.inputs[:, 1] > 0).long()

    def __enter__(self) -> Diagnosed:
        self._debugger.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the training, so that nothing follows."""
        self._debugger.close()

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.randint(0, len(self.inputs), (BATCH,))
        return self.inputs[rows], self.labels[rows]

    def train(
        self,
        model: nn.Module,
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = nn.functional.cross_entropy,
        optimizer: torch.optim.Optimizer | None = None,
        steps: int = 20,
        after: Callable[[int], Any] = lambda _: None,
    ) -> None:
        """Train in the usual order; ``after`` is called at the end of each step, from 1."""
        optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=1e-2)
        for step in range(1, steps + 1):
            inputs, labels = self.batch()
            value = loss(model(inputs), labels)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            after(step)

    @property
    def is_attached(self) -> bool:
        """Whether anything of a training has been seen."""
        return self._debugger._facts is not None

    @property
    def facts(self) -> Facts:
        """What is known so far; the training may go on."""
        (facts,) = read_folder(self._folder)
        return facts

    def findings(self) -> list[Finding]:
        return [explained.finding for explained in diagnose([self.facts]).findings]

    def found(self) -> list[tuple[str, str]]:
        """The rules of all findings, with the sentence of each."""
        return [(finding.rule, finding.message) for finding in self.findings()]

    def first(self) -> tuple[str, str]:
        """End the training; return the rule of the first finding, and its sentence, evidence and place."""
        self.end()
        for finding in self.findings():
            message, evidence, _ = words_of(finding)
            in_both = [[text.format(**finding.values) for text in words] for words in (message, evidence) if words]
            sentences = [english for english, _ in in_both]
            return finding.rule, "\n".join([*sentences, *finding.where.values()])
        return "", ""


Training = Callable[[Diagnosed], None]
Faulty = tuple[Training, str, str]
"""A training, the rule whose finding comes first, and a word of it: the place, or what distinguishes the fault."""
Healthy = tuple[Training, str]
"""A training, and the rule whose fault it resembles."""


class Replacing(Protocol):
    """A module that replaces functions of PyTorch, as `tensight diagnose` lets it."""

    def replace(self) -> None: ...

    def put_back(self) -> None: ...


@contextmanager
def replaced_by(functions: Replacing) -> Iterator[None]:
    """As in `tensight diagnose`, which notes calls of functions of PyTorch by others in their place."""
    functions.replace()
    try:
        yield
    finally:
        functions.put_back()


def each(*trainings: Training) -> pytest.MarkDecorator:
    """Run a test with each of some trainings, as ``train``."""
    return pytest.mark.parametrize("train", trainings, ids=[training.__name__ for training in trainings])


def table_tests(
    faulty: Sequence[Faulty], healthy: Sequence[Healthy]
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return a test that the fault of each faulty training comes first, and one that nothing is found of the others."""
    names = [training.__name__ for training, _, _ in faulty]

    @pytest.mark.parametrize(("train", "rule", "word"), faulty, ids=names)
    def the_fault_comes_first(diagnosed: Diagnosed, train: Training, rule: str, word: str) -> None:
        train(diagnosed)
        first, text = diagnosed.first()
        assert first == rule
        assert word in text

    @each(*(training for training, _ in healthy))
    def nothing_is_found(diagnosed: Diagnosed, train: Training) -> None:
        train(diagnosed)
        assert diagnosed.found() == []
        assert diagnosed.facts.last_step >= 8

    return the_fault_comes_first, nothing_is_found


def network(*last: nn.Module, out: int = CLASSES) -> nn.Sequential:
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, out), *last)
