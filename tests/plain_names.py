"""Names of the code that the project's glossary has replaced by the field's terms. python tests/plain_names.py

Prints each such name with its files, and exits with 1 if there is any; `make lint` runs it. A name is looked at word by
word: `place_of`, `PlaceTable` and `_places` all have "place".
"""

from __future__ import annotations

import re
import sys
import tokenize
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]

INSTEAD = {
    ("place", "places", "placed"): "slot id, tensor id; global step; device; cursor",
    ("told",): "reported, received",
    ("stand", "stands", "standing", "standings", "stood"): "is stopped, stop state, tree state",
    ("conductor",): "run controller",
    ("glance",): "summary",
    ("answers", "question", "questions", "asked"): "pending requests, responses",
    ("birth", "births", "born"): "origin, root cause",
    ("inflow", "inflows"): "zero provenance",
    ("hands on", "handed", "handing"): "propagates, pass-through; linked",
    ("judged",): "compiled check",
    ("lasting", "outliving"): "persistent",
    ("meeting",): "rendezvous",
    ("rounds",): "multi-optimizer",
    ("giving way", "give way", "gives way", "gave way"): "lower thread priority",
    ("say", "says", "said", "saying"): "log, message",
    ("bark", "beat", "beats", "doubt"): "on timeout, heartbeat, invalidate",
    ("to the end",): "shielded",
    ("living",): "JSON state file",
    ("surroundings",): "environment",
    ("look", "looks", "looked"): "formatting; check, search, inspect",
}
"""Words, or words in a row, and what is used instead."""

WHOLE = {"found", "known", "wanted", "own", "one"}
"""Names that say nothing of what they name; with another word beside them they may."""

FINE = ("in place", "under way")
"""Words in a row that mean what they mean everywhere."""

KEPT = {
    "look_closer": "an action of the HTTP API and the method of the Python client of the same name; scripts use both",
    "can_look_closer": "the field of the HTTP API with the capability to take that action",
}
"""Names that stay, with the reason."""

WORDS = {words: instead for several, instead in INSTEAD.items() for words in several}
_PYTHON, _TYPESCRIPT = "src/tensight/**/*.py", "ui/src/**/*.ts*"
_NO_CODE = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'""", re.DOTALL | re.VERBOSE
)  # in TypeScript


def words_of(name: str) -> str:
    """Return the words of a name in lower case, with a space around each."""
    parts = re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3_\2\4", name).lower().split("_")
    return f" {' '.join(part for part in parts if part)} "


def replaced_word(name: str) -> str:
    """Return the word of a name that should not be there; empty if there is none, or if the name is kept."""
    if name in KEPT:
        return ""
    if name in WHOLE:
        return name
    words = words_of(name)
    for fine in FINE:
        words = words.replace(f" {fine} ", " ")
    return next((word for word in WORDS if f" {word} " in words), "")


def names_of(path: Path) -> Iterator[str]:
    """Yield the names in a file of Python or TypeScript, and the file's own."""
    yield path.stem
    if path.suffix != ".py":
        yield from re.findall(r"[A-Za-z_$][\w$]*", _NO_CODE.sub(" ", path.read_text()))
        return
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.NAME:
                yield token.string


def main() -> int:
    """Print the names and where they are; return 1 if there is any."""
    replaced: defaultdict[str, set[str]] = defaultdict(set)
    for pattern in (_PYTHON, _TYPESCRIPT):
        for path in ROOT.glob(pattern):
            if "_pb2" not in path.name and path.name != "schema.d.ts":
                for name in names_of(path):
                    if replaced_word(name):
                        replaced[name].add(str(path.relative_to(ROOT)))
    for name, files in sorted(replaced.items()):
        word = replaced_word(name)
        instead = "what the thing is" if name in WHOLE else WORDS[word]
        print(f"{name} ({word}: rather {instead}): {', '.join(sorted(files))}")
    return bool(replaced)


if __name__ == "__main__":
    sys.exit(main())
