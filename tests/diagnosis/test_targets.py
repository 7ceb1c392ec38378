"""Classes that are never a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import BATCH, CLASSES, FEATURES, each, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


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
    training.labels = training.labels * 0
    training.train(network(), steps=30)


def labels_that_are_all_true(training: Diagnosed) -> None:
    training.train(
        network(out=1),
        lambda out, labels: F.binary_cross_entropy_with_logits(out[:, 0], torch.ones(len(labels))),
        steps=30,
    )


@each(partner_of_number_0, partner_of_number_3, labels_that_are_lost, labels_that_are_all_true)
def test_a_single_class(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert [finding.rule for finding in diagnosed.findings()] == ["targets-of-one-class"]


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


END, PAD, WORDS = 1, 0, 12


class Reader(nn.Module):
    """A model of language that is given which ids count."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.embedding(input_ids) * attention_mask[..., None])
        return result


def read_texts(
    pad: int, is_ignored: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], has_end: bool = True
) -> None:
    """Train on sequences of several lengths."""
    model = Reader()
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
        out = model(input_ids=ids, attention_mask=mask)
        optimizer.zero_grad()
        F.cross_entropy(out[:, :-1].reshape(-1, WORDS), labels[:, 1:].reshape(-1)).backward()
        optimizer.step()


def test_an_end_that_is_padding(diagnosed: Diagnosed) -> None:
    read_texts(END, lambda ids, _: ids == END)
    assert diagnosed.found() == [("end-never-target", "ignored")]


def padding_of_its_own(training: Diagnosed) -> None:
    assert not training.is_attached
    read_texts(PAD, lambda ids, _: ids == PAD)


def ends_that_are_padding_and_count(training: Diagnosed) -> None:
    assert not training.is_attached
    read_texts(END, lambda _, mask: mask == 0)


def texts_without_an_end(training: Diagnosed) -> None:
    assert not training.is_attached
    read_texts(PAD, lambda ids, _: ids == PAD, has_end=False)


@each(
    partner_of_each,
    partner_that_comes_first,
    one_class_in_turn,
    padding_of_its_own,
    ends_that_are_padding_and_count,
    texts_without_an_end,
)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
    assert diagnosed.facts.last_step >= 20
