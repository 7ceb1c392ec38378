"""The text form of a check: ``tensor_too_large(max_gt=1e3, mean_gt=5)``, ``TO``, ``tensor_overflow() persist=3``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from tensight.errors import InputError
from tensight.watchpoints.catalogue import condition
from tensight.watchpoints.checks import ConditionCheck
from tensight.watchpoints.watchpoint import MOST_PERSISTENCE

if TYPE_CHECKING:
    from tensight.watchpoints.conditions import Condition

MAX_LENGTH = 1000
PERSIST = "persist"

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
      | (?P<word>[-+]?[A-Za-z_][A-Za-z0-9_]*)
      | (?P<sign>[(),=])
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)


def parse_check(text: str) -> ConditionCheck:
    """Parse a check.

    Parameters
    ----------
    text : str
        A condition's id or abbreviation, in any case, and its parameters in parentheses, separated by commas:
        ``name=number``, with or without exponent, ``true`` or ``false``. The parentheses are optional without
        parameters.

    Returns
    -------
    ConditionCheck
        The validated check.

    Raises
    ------
    InputError
        The text cannot be parsed (the message points at the character), the condition or a parameter is unknown, or a
        value is out of its range.

    Examples
    --------
    >>> parse_check("TL(max_gt=1e3)").text
    'tensor_too_large(max_gt=1000)'
    """
    _require_readable(text)
    parser = _Parser(text)
    named, values = parser.check()
    parser.end()
    return ConditionCheck(named, values)


def parse_watch(text: str) -> tuple[ConditionCheck, int]:
    """Parse a check and its persistence: ``tensor_all_zero persist=3`` must hit in three steps in a row.

    Parameters
    ----------
    text : str
        A check as for `parse_check`, optionally followed by ``persist=N``.

    Returns
    -------
    check : ConditionCheck
    persistence : int
        1 if the text gives none.

    Raises
    ------
    InputError
        As for `parse_check`, or the persistence is not a whole number from 1.

    Examples
    --------
    >>> check, persistence = parse_watch("TZ persist=3")
    >>> check.text, persistence
    ('tensor_all_zero(zero_percentage_ge=100)', 3)
    """
    _require_readable(text)
    parser = _Parser(text)
    named, values = parser.check()
    persistence = parser.persistence()
    parser.end()
    return ConditionCheck(named, values), persistence


def _require_readable(text: str) -> None:
    if not text.strip():
        raise InputError("the check is empty; write for example tensor_too_large(max_gt=1000)")
    if len(text) > MAX_LENGTH:
        raise InputError(f"a check has at most {MAX_LENGTH} characters; this one has {len(text)}")


class _Parser:
    """Reads tokens from left to right; ``kind``, ``lexeme`` and ``start`` describe the current one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = 0
        self.kind, self.lexeme, self.start = "", "", 0
        self._advance()

    def check(self) -> tuple[Condition, dict[str, float | bool]]:
        name = self._take("word", "the name of a condition")
        named = condition(name)
        values = self._parameters() if self.lexeme == "(" else {}
        return named, values

    def persistence(self) -> int:
        """Read ``persist=3`` if it comes next."""
        if self.lexeme.lower() != PERSIST:
            return 1
        self._advance()
        if self.lexeme != "=":
            self._fail("'='")
        self._advance()
        lexeme = self.lexeme
        if self.kind != "number" or not lexeme.isdecimal() or not 1 <= int(lexeme) <= MOST_PERSISTENCE:
            self._fail(f"a whole number of steps from 1 to {MOST_PERSISTENCE}")
        self._advance()
        return int(lexeme)

    def end(self) -> None:
        """Refuse further text."""
        if self.kind != "end":
            self._fail("the end" if self._text.find("(") >= 0 else "'('")

    def _parameters(self) -> dict[str, float | bool]:
        values: dict[str, float | bool] = {}
        self._take("sign", "'('")
        while self.lexeme != ")":
            start = self.start
            name = self._take("word", "the name of a parameter or ')'")
            if name in values:
                self._fail_at(start, f"{name} is given twice")
            if self.lexeme != "=":
                self._fail("'='")
            self._advance()
            values[name] = self._value()
            if self.lexeme == ",":
                self._advance()
            elif self.lexeme != ")":
                self._fail("',' or ')'")
        self._advance()
        return values

    def _value(self) -> float | bool:
        start, lexeme = self.start, self.lexeme
        word = lexeme.lower()
        if word.lstrip("+-") in ("nan", "inf", "infinity"):
            self._fail_at(start, f"a threshold must be finite, not {lexeme}")
        if self.kind != "number" and word not in ("true", "false"):
            self._fail("a number such as 0.5 or 1e-3, true or false")
        self._advance()
        return float(lexeme) if word not in ("true", "false") else word == "true"

    def _take(self, kind: str, expected: str) -> str:
        if self.kind != kind:
            self._fail(expected)
        lexeme = self.lexeme
        self._advance()
        return lexeme

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._next)
        if match is None or match.lastgroup is None:
            rest = self._text[self._next :].lstrip()
            self.start = len(self._text) - len(rest)
            self.kind, self.lexeme = "unknown", re.split(r"[\s(),=]", rest, maxsplit=1)[0][:40]
            return
        self.kind, self.lexeme = match.lastgroup, match[match.lastgroup]
        self.start, self._next = match.start(match.lastgroup), match.end()

    def _fail(self, expected: str) -> NoReturn:
        lexeme = "the end of the text" if self.kind == "end" else repr(self.lexeme)
        self._fail_at(self.start, f"expected {expected}, found {lexeme}")

    def _fail_at(self, position: int, what: str) -> NoReturn:
        shown = "".join(c if c.isprintable() else "?" for c in self._text)
        # Of a long text, an excerpt around the position is shown, so that the mark stays below it.
        first = max(0, position - 60)
        excerpt, mark = shown[first : position + 40], " " * (position - first) + "^"
        raise InputError(f"cannot read the check: {what} at character {position + 1}\n  {excerpt}\n  {mark}")
