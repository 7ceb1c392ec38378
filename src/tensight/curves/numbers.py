"""Numbers as people and programs print them: ``10,047.5``, ``10.047,5``, ``1_000``, ``1e-3``.

A number is read as a whole, or not at all. What a comma means in ``10,047`` is decided by the other numbers of the
file, in which a comma or a point can only be one of the two.
"""

from __future__ import annotations

import re
from collections import defaultdict
from enum import Enum

_GROUPERS = "'\u2019_\u00a0\u2009\u202f"
"""Characters that separate thousands and nothing else."""

_EXPONENT = r"(?:[eE][-+\u2212]?\d{1,4})?"
_PLAIN_SPACES = r"\d{1,3}(?: \d{3}){1,5}(?:[.,]\d{1,60})?(?!\w|[.,:/]\d| \d)"

NUMBER = (
    rf"[-+\u2212]?(?:{_PLAIN_SPACES}|(?:\d(?:[\d.,{_GROUPERS}]{{0,80}}\d)?\.?|\.\d{{1,60}})){_EXPONENT}"
    r"|[-+\u2212]?(?:nan|inf(?:inity)?)"
)
"""Pattern of all that may be meant as one number; `Numbers.read` decides whether it is."""

NUMBER_ENDS = rf"(?P<unit>\s?[kKmMgGtTbB](?!\w))?(?!\.?\w)(?![.,{_GROUPERS}]\d)"
"""Pattern of what follows a number, with a unit such as the k of ``1.2k``."""

WHOLE_NUMBER = rf"(?:[1-9]\d{{0,2}}(?:[.,{_GROUPERS}]\d{{3}}){{1,5}}|\d{{1,18}})(?!\w|[.,{_GROUPERS}]\d)"
"""Pattern of a step, perhaps with separators."""

_LIKE_A_NUMBER = re.compile(r"[-+\u2212]?\.?\d")
_WITH_POINT = re.compile(rf"(?=[.,]?\d)(?:[1-9]\d{{0,2}}(?:,\d{{3}})+(?:\.\d*)?|\d*\.?\d*){_EXPONENT}", re.ASCII)
_WITH_COMMA = re.compile(rf"(?=[.,]?\d)(?:[1-9]\d{{0,2}}(?:\.\d{{3}})+(?:,\d*)?|\d*(?:,\d+)?){_EXPONENT}", re.ASCII)
_GROUPED = re.compile(rf"\d{{1,3}}(?:([{_GROUPERS}])\d{{3}})(?:\1\d{{3}})*(?![\d{_GROUPERS}])|\d+(?:_\d+)+", re.ASCII)
_SPACED = re.compile(r"\d{1,3}(?: \d{3})+,\d+", re.ASCII)
_SPECIAL = re.compile(r"[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE | re.ASCII)
_LIST_FOLLOWS = re.compile(r"(?P<first>(?:\d{1,40}\.(?!\d{3},)|0\.)\d{0,60})(?:,\d[\d.]*)+", re.ASCII)
"""Numbers with points and commas that cannot be one number: the commas are between several."""


class Decimal(Enum):
    """The sign between a number and its decimals."""

    POINT = "."
    COMMA = ","


class Numbers:
    """The numbers of a file.

    Parameters
    ----------
    decimal : Decimal, optional
        The sign, if the user has named it.
    """

    def __init__(self, decimal: Decimal | None = None) -> None:
        self._given = decimal
        # Votes by the name of a series; each for one sign only.
        self._votes: dict[str, set[Decimal]] = defaultdict(set)
        self._has_comma: set[str] = set()

    def see(self, text: str, name: str = "") -> None:
        """Take a number of a series into account."""
        if "," not in text and "." not in text:
            return
        votes = self._votes[name]
        if len(votes) == len(Decimal):
            return
        body = _body(text)
        if "," in text:
            self._has_comma.add(name)
        fitting = [decimal for decimal, fits in _FITS.items() if body and fits.fullmatch(body)]
        if len(fitting) == 1:
            votes.add(fitting[0])

    def see_step(self, text: str) -> None:
        """Take a step into account, which has no decimals but zeros."""
        body = _body(text)
        for sign, decimal in ((",", Decimal.POINT), (".", Decimal.COMMA)):
            groups = body.split(sign)[1:]
            if any(group.strip("0") for group in groups) and _FITS[decimal].fullmatch(body):
                self._votes[""].add(decimal)

    def decimal(self, name: str = "") -> Decimal | None:
        """Return the sign before the decimals of a series; None if a comma may be that or a separator."""
        if self._given is not None:
            return self._given
        votes = self._votes.get(name, set()) or set().union(*self._votes.values())
        if votes:
            return Decimal.POINT if Decimal.POINT in votes else Decimal.COMMA
        return None if name in self._has_comma else Decimal.POINT

    def read(self, text: str, name: str = "") -> str | None:
        """Return a number in Python's spelling; None if the text is not one number, or if it may be two."""
        return plain_number(text, self.decimal(name))

    def read_step(self, text: str) -> int | None:
        """Return a step; None if the text is not a whole number. Separators count as those of thousands if in doubt."""
        plain = plain_number(text, self.decimal() or Decimal.POINT)
        if plain is None or len(plain) > 40:
            return None
        try:
            value = float(plain) if "." in plain or "e" in plain.lower() else int(plain)
        except (ValueError, OverflowError):
            return None
        return int(value) if value == value // 1 and abs(value) < 2**62 else None


def plain_number(text: str, decimal: Decimal | None = Decimal.POINT) -> str | None:
    """Return a printed number as Python spells it; None if the text is not one number.

    Parameters
    ----------
    text : str
    decimal : Decimal or None
        The sign before decimals; None if it is unknown. Numbers that both readings allow are not read then.

    Examples
    --------
    >>> plain_number("10,047.5"), plain_number("10.047,5", Decimal.COMMA), plain_number("1_000")
    ('10047.5', '10047.5', '1000')
    >>> plain_number("10,047", None), plain_number("10,047"), plain_number("10 047")
    (None, '10047', None)

    The comma of ``0.5,12`` cannot belong to a number, so it ends one.

    >>> plain_number("0.5,12")
    '0.5'
    """
    text = text.strip().replace("\u2212", "-")
    if _SPECIAL.fullmatch(text):
        return text
    sign = text[:1] if text[:1] in ("-", "+") else ""
    body = _body(text)
    fitting = [candidate for candidate, fits in _FITS.items() if fits.fullmatch(body)]
    if not fitting:
        first = _LIST_FOLLOWS.fullmatch(body)
        return None if first is None else sign + first["first"]
    if len(fitting) == 1 and decimal is None:
        decimal = fitting[0]
    if decimal is None:
        if "," in body:
            return None
        decimal = Decimal.POINT
    if decimal not in fitting:
        return None
    other = "," if decimal is Decimal.POINT else "."
    return sign + body.replace(other, "").replace(decimal.value, ".")


def is_ambiguous(text: str) -> bool:
    """Tell whether the comma of a number may be a decimal comma or a separator of thousands."""
    return "," in text and all(plain_number(text, decimal) is not None for decimal in Decimal)


def begins_as_number(text: str) -> bool:
    """Tell whether a text begins as a number does, such as ``1.2k`` or ``10 047``."""
    return _LIKE_A_NUMBER.match(text.strip()) is not None


_FITS = {Decimal.POINT: _WITH_POINT, Decimal.COMMA: _WITH_COMMA}


def _body(text: str) -> str:
    """Return a number without its sign and the separators that can be nothing else."""
    body = text.strip().replace("\u2212", "-")
    body = body[1:] if body[:1] in ("-", "+") else body
    if _SPACED.fullmatch(body):
        body = body.replace(" ", "")
    return _GROUPED.sub(lambda match: re.sub(rf"[{_GROUPERS}]", "", match[0]), body, count=1)
