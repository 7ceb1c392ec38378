"""Facts as lines of JSON: what a training writes to files, and sends to the debug server.

A line has the rows of a subject in a step, in columns: ``{"subject": "losses", "step": 3, "columns": {"name": ["loss"],
"value": [0.7]}}``. Others say which framework trains, and which facts are not known (``{"framework": "mindspore",
"absent": {"groups": "…"}}``), what rules of the user have found so far (``{"rules": […]}``), that all earlier lines are
to be forgotten (``{"again": true}``), and that the training has ended (``{"over": true}``).
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from tensight.diagnosis.facts import DTYPES, MISSING, SCHEMA, Facts
from tensight.diagnosis.findings import Certainty, Finding, ReportedRule
from tensight.diagnosis.user_rules import EVIDENCE, is_rule_id
from tensight.errors import InputError
from tensight.ranks import complete_lines, rank_of_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Block, Fact, Kind

AGAIN = b'{"again":true}\n'
OVER = b'{"over":true}\n'

MOST_LINE = 1 << 25
"""Maximum length of a line."""

MOST_ROWS = 100_000
"""Maximum number of rows of a line."""

MOST_TEXT = 10_000
"""Maximum length of a text."""

MOST_ABSENT = 1000
"""Maximum number of facts that are not known, with reasons."""

MOST_STEP = 1 << 53

MOST_RULES = 100
"""Maximum number of rules of a user, and of the findings of each."""

_VALUES = ("sentence", "measured", "expression", "holds", "decided", "item")
_OF_FINDING = ("certainty", "step", "message", "values", "where", "covers")

_NUMBERS: Mapping[Kind, Callable[[Any], Any]] = {"number": float, "count": int, "flag": bool, "text": str, "hash": int}

_LOSSES = b'{"subject":"losses",'
"""How a line of losses begins, as `line_of` writes it."""

KIND = "facts"
"""How the names of the files of a run begin."""

PATTERN = f"{KIND}-*.jsonl"
"""Names of the files of a run: one for each process."""


def line_of(subject: str, step: int, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as a line; empty if there are none.

    Parameters
    ----------
    subject : str
        A key of `SCHEMA`.
    step : int
    rows : sequence of mapping
        Facts by name.
    """
    if not rows:
        return b""
    columns = {}
    for fact in SCHEMA[subject]:
        if not any(fact.name in row for row in rows):
            continue
        # Most lines have few rows, for which arrays would take longer.
        number_of, missing = _NUMBERS[fact.kind], MISSING[fact.kind]
        values = [number_of(row.get(fact.name, missing)) for row in rows]
        if not _is_unknown(values, missing):
            columns[fact.name] = values
    return json.dumps({"subject": subject, "step": step, "columns": columns}, separators=(",", ":")).encode() + b"\n"


def about(framework: str, absent: Mapping[str, str]) -> bytes:
    """Return a line with the framework, and with facts that are not known of this training, each with the reason."""
    return json.dumps({"framework": framework, "absent": dict(absent)}, separators=(",", ":")).encode() + b"\n"


def line_of_rules(rules: Sequence[ReportedRule]) -> bytes:
    """Return a line with what rules of the user have found so far, in place of an earlier one."""
    records = [
        {**rule._asdict(), "findings": [{name: getattr(each, name) for name in _OF_FINDING} for each in rule.findings]}
        for rule in rules
    ]
    return json.dumps({"rules": records}, separators=(",", ":")).encode() + b"\n"


def _is_unknown(values: Sequence[Any], missing: object) -> bool:
    return all(value == missing or (value != value and missing != missing) for value in values)


def take(facts: Facts, line: bytes) -> None:
    """Add what a line has to facts; subjects and facts that are not in the schema are left out.

    Parameters
    ----------
    facts : Facts
    line : bytes

    Raises
    ------
    InputError
        It is no such line.
    """
    try:
        record = json.loads(line) if len(line) <= MOST_LINE else None
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise InputError(f"a line of facts is no JSON object of at most {MOST_LINE:,} bytes: {line[:80]!r}")
    if record.get("again") is True:
        facts.begin_again()
    elif record.get("over") is True:
        facts.is_over = True
    elif "rules" in record:
        facts.reported = _reported(record["rules"])
    elif "framework" in record:
        _take_framework(facts, record)
    elif record.get("subject") in SCHEMA:
        subject, step = record["subject"], record.get("step")
        if not isinstance(step, int) or not 0 <= step <= MOST_STEP:
            raise InputError(f"facts of {subject} have no step")
        facts.add_block(subject, step, _block(subject, record.get("columns")))


def _take_framework(facts: Facts, record: Mapping[str, Any]) -> None:
    framework, absent = record["framework"], record.get("absent")
    if not isinstance(framework, str) or not isinstance(absent, dict) or len(absent) > MOST_ABSENT:
        raise InputError("a line of facts has no framework, or no facts that are not known")
    if not all(isinstance(why, str) for why in absent.values()):
        raise InputError("a line of facts has no reason why a fact is not known")
    facts.framework = framework[:MOST_TEXT]
    facts.absent |= {name[:MOST_TEXT]: why[:MOST_TEXT] for name, why in absent.items()}
    if len(facts.absent) > MOST_ABSENT:
        raise InputError(f"more than {MOST_ABSENT} facts are said to be not known")


def _reported(records: Any) -> tuple[ReportedRule, ...]:
    if not isinstance(records, list) or len(records) > MOST_RULES:
        raise InputError(f"a line of facts has no list of at most {MOST_RULES} rules")
    rules = []
    for record in records:
        findings = record.get("findings") if isinstance(record, dict) else None
        if not isinstance(findings, list) or len(findings) > MOST_RULES:
            raise InputError(f"a rule in a line of facts has no list of at most {MOST_RULES} findings")
        if not is_rule_id(record.get("id")):
            raise InputError("a rule in a line of facts has no id")
        rule, category, advice, fact, failure = (_text(record.get(name)) for name in ReportedRule._fields[:5])
        made = tuple(_finding(rule, each) for each in findings)
        rules.append(ReportedRule(rule, category, advice, fact, failure, made))
    return tuple(rules)


def _finding(rule: str, record: Any) -> Finding:
    values = record.get("values") if isinstance(record, dict) else None
    where, covers = (record.get("where"), record.get("covers")) if isinstance(record, dict) else (None, None)
    if not isinstance(values, dict) or not isinstance(where, dict) or not isinstance(covers, list):
        raise InputError("a finding in a line of facts has no values and no place")
    certainty, step, message = record.get("certainty"), record.get("step"), record.get("message")
    if certainty not in get_args(Certainty) or message not in EVIDENCE:
        raise InputError("a finding in a line of facts has no certainty, or an unknown message")
    if type(step) is not int or not 0 <= step <= MOST_STEP or len(covers) > MOST_ROWS:
        raise InputError("a finding in a line of facts has no step")
    return Finding(
        rule,
        certainty,
        step,
        message,
        {name: _text(values.get(name, "")) for name in _VALUES},
        {_text(kind): _text(names) for kind, names in list(where.items())[:MOST_RULES]},
        tuple(map(_text, covers)),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InputError("what a rule has found in a line of facts is no text")
    return value[:MOST_TEXT]


def _block(subject: str, columns: Any) -> Block:
    names = columns.get("name") if isinstance(columns, dict) else None
    if not isinstance(names, list) or not 0 < len(names) <= MOST_ROWS:
        raise InputError(f"facts of {subject} have no column of 1 to {MOST_ROWS:,} names")
    return {
        fact.name: _column(subject, fact, columns[fact.name], len(names))
        for fact in SCHEMA[subject]
        if fact.name in columns
    }


def _column(subject: str, fact: Fact, values: Any, amount: int) -> NDArray[Any]:
    what = f"the fact {fact.name} of {subject}"
    if not isinstance(values, list) or len(values) != amount:
        raise InputError(f"{what} is no list of {amount} values")
    if fact.kind == "text":
        if not all(isinstance(value, str) for value in values):
            raise InputError(f"{what} is no text")
        # A text is the same in all steps.
        return np.array([sys.intern(value[:MOST_TEXT]) for value in values], object)
    try:
        column = np.array(values, DTYPES[fact.kind])
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{what} is no {fact.kind}") from None
    if column.ndim != 1:
        raise InputError(f"{what} is no {fact.kind}")
    return column


def read_facts(path: Path) -> Facts:
    """Return the facts that a process has written, as far as its lines are complete.

    Parameters
    ----------
    path : Path

    Raises
    ------
    InputError
        A line is none of facts, or the file cannot be read; the message names the file.
    """
    facts = Facts(rank_of_file(path))
    try:
        for line in complete_lines(path, MOST_LINE):
            take(facts, line)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return facts


def read_folder(folder: Path) -> list[Facts]:
    """Return the facts of a run, by rank.

    Parameters
    ----------
    folder : Path
        Where its processes have written them.

    Raises
    ------
    InputError
        A line of a file is none of facts; the message names the file.
    """
    runs = [read_facts(path) for path in sorted(folder.glob(PATTERN))]
    # A launcher or a process that exports a model may have trained a little itself.
    longest = max((facts.last_step for facts in runs), default=0)
    return sorted((facts for facts in runs if facts.last_step >= 0.5 * longest), key=lambda facts: facts.rank)


def read_losses(folder: Path, rank: int) -> dict[str, list[tuple[int, float]]]:
    """Return the losses of a rank in all steps, of which `Facts` keeps some: steps and values by loss.

    Parameters
    ----------
    folder : Path
        Where the processes of a run have written their facts.
    rank : int

    Raises
    ------
    InputError
        A line of a file is none of facts.
    """
    longest: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(folder.glob(f"facts-{rank}-*.jsonl")):
        losses: dict[str, list[tuple[int, float]]] = {}
        for line in complete_lines(path, MOST_LINE):
            if line == AGAIN:
                losses = {}
            elif line.startswith(_LOSSES):
                facts = Facts(rank)
                take(facts, line)
                for row in facts["losses"].rows():
                    losses.setdefault(row["name"], []).append((row["step"], row["value"]))
        longest = max(longest, losses, key=lambda each: sum(map(len, each.values())))
    return longest
