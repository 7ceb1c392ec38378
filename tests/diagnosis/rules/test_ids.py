"""Trainings most of whose words have one id, and others with an id that occurs often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import Diagnosed, Faulty, Healthy, table_tests

if TYPE_CHECKING:
    from collections.abc import Callable

VOCABULARY, WORDS_OF_TEXT, UNKNOWN = 2000, 24, 1


def texts(count: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids of texts about one of two subjects, each with words of its own, and which one."""
    subject = torch.arange(count) % 2
    ids = torch.randint(3, VOCABULARY // 2, (count, WORDS_OF_TEXT))
    return ids + (VOCABULARY // 2 - 1) * subject[:, None], subject


class Reader(nn.Module):
    """Tells the subject of a text, or each next word.

    Parameters
    ----------
    out : int
        Number of subjects; that of words, to predict each.
    rows : int
        Number of rows of the embedding.
    padding : int, optional
    """

    def __init__(self, out: int = 2, rows: int = VOCABULARY, padding: int | None = None) -> None:
        super().__init__()
        self.words = nn.Embedding(rows, 16, padding_idx=padding)
        self.layer, self.head = nn.GRU(16, 16, batch_first=True), nn.Linear(16, out)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.layer(self.words(ids))
        result: torch.Tensor = self.head(hidden if self.head.out_features > 2 else hidden.mean(1))
        return result


def train(
    model: nn.Module,
    given: Callable[[torch.Tensor], torch.Tensor],
    loss: Callable[..., torch.Tensor] | None = None,
    made: Callable[[], tuple[torch.Tensor, torch.Tensor]] = texts,
) -> None:
    """Train on texts; ``loss`` is of the output, what the model is given and the words, or of the subjects if none."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        words, subjects = made()
        ids = given(words)
        optimizer.zero_grad()
        out = model(ids)
        (loss(out, ids, words) if loss else F.cross_entropy(out, subjects)).backward()
        optimizer.step()


def mostly(index: int, ids: torch.Tensor, share: float = 0.85) -> torch.Tensor:
    return torch.where(torch.rand(ids.shape) < share, index, ids)


def next_word(out: torch.Tensor, ids: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(out[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def words_with_capital_letters(_: Diagnosed) -> None:
    """The vocabulary has those of small letters only."""
    train(Reader(), lambda ids: mostly(UNKNOWN, ids))


def words_of_another_tokenizer(_: Diagnosed) -> None:
    """Most ids are beyond the rows of the embedding, and clamped so that it does not fail."""
    train(Reader(rows=1100), lambda ids: (7919 * ids % 7000).clamp(max=1099))


def unknown_words_that_are_predicted(_: Diagnosed) -> None:
    train(Reader(out=VOCABULARY), lambda ids: mostly(UNKNOWN, ids), next_word)


def unknown_words_before_padding(_: Diagnosed) -> None:
    def given(ids: torch.Tensor) -> torch.Tensor:
        lengths = torch.randint(17, WORDS_OF_TEXT, (len(ids), 1))
        return mostly(UNKNOWN, ids, 0.9).masked_fill(torch.arange(WORDS_OF_TEXT) >= lengths, 0)

    train(Reader(padding=0), given)


def texts_that_are_filled_up(_: Diagnosed) -> None:
    """Most ids are padding, at the end or at the beginning."""

    def given(ids: torch.Tensor) -> torch.Tensor:
        lengths = torch.randint(2, 9, (len(ids), 1))
        is_filled = torch.arange(WORDS_OF_TEXT) >= lengths
        return ids.masked_fill(is_filled, 0)

    train(Reader(), given)


def histories_that_are_filled_up_before(_: Diagnosed) -> None:
    train(Reader(), lambda ids: ids.masked_fill(torch.arange(WORDS_OF_TEXT) < 19, 0))


def words_that_are_hidden_to_be_restored(_: Diagnosed) -> None:
    """As a model of diffusion over words does: most of them."""

    def loss(out: torch.Tensor, ids: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out[ids == 2], words[ids == 2])

    train(Reader(out=VOCABULARY), lambda ids: mostly(2, ids), loss)


def words_that_are_dropped(_: Diagnosed) -> None:
    train(Reader(), lambda ids: mostly(UNKNOWN, ids, 0.4))


def boards_that_are_mostly_empty(_: Diagnosed) -> None:
    """An embedding with more rows than there are pieces."""

    def boards() -> tuple[torch.Tensor, torch.Tensor]:
        pieces, subjects = torch.randint(1, 13, (32, WORDS_OF_TEXT)), torch.arange(32) % 2
        pieces[:, :8] = torch.where(subjects[:, None] > 0, 13, pieces[:, :8])
        return mostly(0, pieces, 0.75), subjects

    train(Reader(), lambda ids: ids, made=boards)


def tables_with_flags(_: Diagnosed) -> None:
    """Most columns are flags that are rarely set, and others are names with ids of their own."""

    def rows() -> tuple[torch.Tensor, torch.Tensor]:
        words, subjects = texts()
        words[:, 6:] = (torch.rand(32, WORDS_OF_TEXT - 6) < 0.05).long()
        return words, subjects

    train(Reader(), lambda ids: ids, made=rows)


def missing_entries_that_are_padding(_: Diagnosed) -> None:
    """What an embedding takes for padding may be anywhere, if it is said to be."""
    train(Reader(padding=0), lambda ids: mostly(0, ids))


def one_item_that_is_popular(_: Diagnosed) -> None:
    train(Reader(out=VOCABULARY), lambda ids: mostly(7, ids, 0.35), next_word)


FAULTY: tuple[Faulty, ...] = (
    (words_with_capital_letters, "ids-mostly-one", "are 1, scattered"),
    (words_of_another_tokenizer, "ids-mostly-one", "are 1099, its last row"),
    (unknown_words_that_are_predicted, "ids-mostly-one", "words"),
    (unknown_words_before_padding, "ids-mostly-one", "words"),
)

HEALTHY: tuple[Healthy, ...] = (
    (texts_that_are_filled_up, "ids-mostly-one"),
    (histories_that_are_filled_up_before, "ids-mostly-one"),
    (words_that_are_hidden_to_be_restored, "ids-mostly-one"),
    (words_that_are_dropped, "ids-mostly-one"),
    (boards_that_are_mostly_empty, "ids-mostly-one"),
    (tables_with_flags, "ids-mostly-one"),
    (missing_entries_that_are_padding, "ids-mostly-one"),
    (one_item_that_is_popular, "ids-mostly-one"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
