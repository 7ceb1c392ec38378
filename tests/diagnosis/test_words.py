"""The sentences of rules in both languages."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

import pytest

from tensight.diagnosis import mindspore_words
from tensight.diagnosis.catalogue import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.rule import Words


def sentences(rule: str) -> Iterator[tuple[str, Words]]:
    declared = RULES[rule]
    yield from declared.messages.items()
    yield from declared.evidence.items()
    for (of_rule, key), words in (*mindspore_words.MESSAGES.items(), *mindspore_words.EVIDENCE.items()):
        if of_rule == rule and words is not None:
            yield key, words


def values_in(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("rule", RULES)
def test_both_languages_name_the_same_values(rule: str) -> None:
    for key, (english, chinese) in sentences(rule):
        assert values_in(english) == values_in(chinese), key
