"""Write what is derived from the code and yet committed.

- ui/openapi.json, the server's description of its API, from which the page's types are generated;
- ui/src/api/statistics.json and conditions.json, the words of statistics and the names of conditions on the page;
- the tables of conditions in docs/reference/conditions.md, and that of error codes in docs/reference/errors.md;
- the tables of rules and facts in docs/reference/diagnosis.md.

`make api` runs this. The files are committed, so that the page can be built without the server, and so that a change
shows in review; a test fails when they say something else than the code.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tensight.diagnosis.catalogue import RULES
from tensight.diagnosis.facts import SCHEMA
from tensight.diagnosis.findings import CATEGORIES
from tensight.error_catalogue import CATALOGUE
from tensight.server.http import HttpSettings, create_http_app
from tensight.sessions.registry import Sessions
from tensight.sessions.workspace import Workspace
from tensight.tensors import schema
from tensight.watchpoints import CONDITIONS, Condition
from tensight.watchpoints.advice import ADVICE, BilingualText

ROOT = Path(__file__).resolve().parents[1]
UI = ROOT / "ui"
CONDITIONS_PAGE = ROOT / "docs" / "reference" / "conditions.md"
DIAGNOSIS_PAGE = ROOT / "docs" / "reference" / "diagnosis.md"
ERRORS_PAGE = ROOT / "docs" / "reference" / "errors.md"
NEUTRAL = "v1"
"""Instead of the release, with which the API does not change."""


def files() -> dict[Path, str]:
    """Return what each file must hold."""
    return {
        UI / "openapi.json": _described(),
        UI / "src" / "api" / "statistics.json": _json(schema.as_json()),
        UI / "src" / "api" / "conditions.json": _json(_condition_words()),
        CONDITIONS_PAGE: _with_tables(CONDITIONS_PAGE.read_text(encoding="utf-8")),
        DIAGNOSIS_PAGE: _with_rules(DIAGNOSIS_PAGE.read_text(encoding="utf-8")),
        ERRORS_PAGE: _with_codes(ERRORS_PAGE.read_text(encoding="utf-8")),
    }


def _condition_words() -> dict[str, dict[str, str]]:
    """Return the names of conditions in both languages, and the Chinese advice by the English one."""
    names = {
        language: {name: advice.titles[index] for name, advice in ADVICE.items()}
        for index, language in enumerate(("en", "zh"))
    }
    texts = dict.fromkeys(text for advice in ADVICE.values() for text in (advice.summary, *advice.steps))
    return {**names, "advice": {text: text.chinese for text in texts if isinstance(text, BilingualText)}}


def _with_tables(page: str) -> str:
    """Return the page with its tables of conditions as the catalogue has them: the original's, ours, legacy ones."""
    tables: list[list[Condition]] = [[], [], []]
    for one in CONDITIONS.values():
        tables[2 if one.legacy else one.is_own].append(one)
    rows = iter(["".join(map(_row, table)) for table in tables])
    head = r"(\| Condition \| Short \| Number \| Meant for \| Parameters \|\n\|[-|]+\|\n)(?:\|.*\n)+"
    return re.sub(head, lambda found: found[1] + next(rows), page)


def _row(one: Condition) -> str:
    parameters = ", ".join(f"`{each.name}`" for each in one.parameters) or "–"
    number = f"{one.wire_number} `{one.wire_name}`"
    return f"| `{one.id}` | {one.abbreviation or '–'} | {number} | {one.target.value} | {parameters} |\n"


def _with_rules(page: str) -> str:
    """Return the page with its tables of rules and of facts as they are declared."""
    rules = "".join(
        f"| `{rule.id}` | {CATEGORIES[rule.category][0]} | {rule.summary} | {rule.silent[0] or '–'} |\n"
        for rule in RULES.values()
    )
    facts = "".join(
        f"| `{subject}.{fact.name}` | {fact.kind} | {fact.meaning} |\n"
        for subject, schema in SCHEMA.items()
        for fact in schema
    )
    for head, rows in (("Rule \\| Kind \\| Finds \\| Silent about", rules), ("Fact \\| Kind \\| Meaning", facts)):
        pattern = rf"(\| {head} \|\n\|[-|]+\|\n)(?:\|.*\n)+"
        page = re.sub(pattern, lambda found, rows=rows: found[1] + rows, page)
    return page


def _with_codes(page: str) -> str:
    """Return the page with its table of error codes as the catalogue has them."""
    rows = "".join(
        f"| `{error.code}` | `{error.raised_as}` | {error.meaning} | {error.advice} |\n" for error in CATALOGUE.values()
    )
    head = r"(\| Code \| Error \| Meaning \| What to do \|\n\|[-|]+\|\n)(?:\|.*\n)+"
    return re.sub(head, lambda found: found[1] + rows, page)


def _described() -> str:
    with tempfile.TemporaryDirectory() as workspace:
        app = create_http_app(Sessions(Workspace(Path(workspace)), None), settings=HttpSettings(version=NEUTRAL))
        return _json(app.openapi(), sort_keys=True)


def _json(value: Any, **how: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, **how) + "\n"


if __name__ == "__main__":
    for path, text in files().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
