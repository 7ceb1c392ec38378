"""The page has its own words for conditions, in two languages: none may be forgotten when one is added."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tensight.watchpoints import ADVICE, CONDITIONS, SelectorKind

PARTS = Path(__file__).parents[2] / "ui/src/parts"
TEXTS = (PARTS / "conditionTexts.ts").read_text(encoding="utf-8")
QUANTITIES = {
    parameter.name.rpartition("_")[0] if parameter.name != "rtol" else "rtol"
    for condition in CONDITIONS.values()
    if not condition.legacy
    for parameter in condition.checks
}


def test_all_advice_is_there_in_chinese() -> None:
    said = [text for advice in ADVICE.values() for text in (advice.summary, *advice.steps)]
    assert [text for text in said if not getattr(text, "chinese", "")] == []


def test_every_condition_has_its_name_and_advice() -> None:
    assert set(ADVICE) == {one.id for one in CONDITIONS.values() if not one.legacy}
    assert all(english and chinese for english, chinese in (advice.titles for advice in ADVICE.values()))


@pytest.mark.parametrize(
    ("group", "wanted"),
    [
        ("quantities", QUANTITIES),
        ("measured", QUANTITIES),
        ("selections", {kind.value for kind in SelectorKind} | {"none"}),
    ],
)
def test_everything_has_words_in_both_languages(group: str, wanted: set[str]) -> None:
    blocks = re.findall(rf"^    {group}: \{{\n(.*?)^    \}},", TEXTS, re.DOTALL | re.MULTILINE)
    missing = [sorted(wanted - set(re.findall(r"^      (\w+):", block, re.MULTILINE))) for block in blocks]
    assert missing == [[], []], f"add these to {group} in ui/src/parts/conditionTexts.ts"
