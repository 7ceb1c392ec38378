"""Rules that users write, in a file that they name: functions of facts, and expressions over facts.

What such a rule does wrong is no fault of the training: each call runs in a thread of its own, within bounds of time,
and an exception becomes the reason why the rule could not judge, with the line of the file.
"""

from __future__ import annotations

import ctypes
import re
import string
import sys
import threading
import traceback
import types
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.diagnosis.expressions import parse_expression, require_fact
from tensight.diagnosis.facts import MISSING, NUMBERS, SCHEMA
from tensight.diagnosis.findings import CATEGORIES, MOST_NAMED, Finding, listed
from tensight.diagnosis.rule import Rule, RuleFailure
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tensight.diagnosis.expressions import Hits
    from tensight.diagnosis.facts import Facts
    from tensight.diagnosis.findings import Certainty
    from tensight.diagnosis.rule import Words

CATEGORY = "custom"
MOST_FINDINGS = 20
"""Maximum number of findings of a rule."""

MOST_SENTENCE = 2_000
MOST_S = 10.0
"""Time in seconds that a call of a rule may take; inside of a training it is `MOST_LIVE_S`."""

MOST_LIVE_S = 1.0
_MOST_FILE = 1 << 20
_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MOST_ID = 60
_CERTAINTIES = ("certain", "likely", "possible")

_ITEM_KINDS = {
    "parameters": "parameter",
    "modules": "module",
    "layers": "module",
    "recurrent": "module",
    "attentions": "module",
    "groups": "optimizer",
    "rates": "optimizer",
    "loss_functions": "operator",
}
"""What of a finding's place the items of a table are."""

EVIDENCE: Mapping[str, Words | None] = {
    "said": None,
    "measured": ("{measured}", "{measured}"),
    "holds": (
        "`{expression}` holds in {holds} of {decided} steps that were read",
        "`{expression}` 在读取的 {decided} 步中有 {holds} 步成立",
    ),
    "holds-first": (
        "`{expression}` holds for {item} in {holds} of {decided} steps that were read",
        "`{expression}` 在读取的 {decided} 步中有 {holds} 步对 {item} 成立",
    ),
}
"""The evidence of findings of users' rules, by their messages."""

_declared: list[Rule] | None = None
_loading = threading.Lock()


@dataclass(frozen=True)
class UserFinding:
    """What a rule of a user says; see `finding`.

    Attributes
    ----------
    sentence, evidence : str
    step : int or None
    certainty : str or None
    where : mapping of str to str
    covers : tuple of str
    holds : mapping of str to str
        What evidence of an expression names; empty for a function.
    """

    sentence: str
    step: int | None = None
    evidence: str = ""
    certainty: Certainty | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    covers: tuple[str, ...] = ()
    holds: Mapping[str, str] = field(default_factory=dict)


def finding(
    sentence: str,
    step: int | None = None,
    *,
    evidence: str = "",
    certainty: Certainty | None = None,
    parameter: str | Sequence[str] = "",
    module: str | Sequence[str] = "",
    optimizer: str | Sequence[str] = "",
    operator: str | Sequence[str] = "",
    line: str = "",
) -> UserFinding:
    """Return what a rule has found.

    Parameters
    ----------
    sentence : str
        What is wrong.
    step : int, optional
        The first step in which it is seen; by default the last one that was read.
    evidence : str
        What was measured.
    certainty : {"certain", "likely", "possible"}, optional
        By default that of the rule.
    parameter, module, optimizer, operator : str or sequence of str
        Names of what it is about.
    line : str
        As ``train.py:13``.

    Returns
    -------
    UserFinding
    """
    named = {"parameter": parameter, "module": module, "optimizer": optimizer, "operator": operator, "line": line}
    where: dict[str, str] = {}
    covers: tuple[str, ...] = ()
    for kind, names in named.items():
        each = [names] if isinstance(names, str) else [str(name) for name in names]
        each = [name[:MOST_SENTENCE] for name in each if name]
        if each:
            where[kind] = listed(each, MOST_NAMED)
        if kind == "parameter":
            covers = tuple(each)
    return UserFinding(
        str(sentence)[:MOST_SENTENCE],
        None if step is None else int(step),
        str(evidence)[:MOST_SENTENCE],
        certainty,
        where,
        covers,
    )


_Function = Any


def rule(
    id: str,  # noqa: A002 - what a rule has
    *,
    needs: Sequence[str] = (),
    category: str = CATEGORY,
    certainty: Certainty = "likely",
    advice: str = "",
    silent: str = "",
    explains: Sequence[str] = (),
) -> Callable[[_Function], _Function]:
    """Declare that a function is a rule, in a file that is given to ``--rules``.

    The function gets the facts of a rank (`tensight.diagnosis.facts.Facts`) and yields what it has found: `finding`, or
    a sentence. The first line of its docstring says what it finds.

    Parameters
    ----------
    id : str
        Lower-case words with hyphens between them; not that of a rule of Tensight.
    needs : sequence of str
        Facts without which it is not called: subjects such as ``losses``, or single facts as ``losses.value``.
    category : str
        A key of `tensight.diagnosis.findings.CATEGORIES`.
    certainty : {"certain", "likely", "possible"}
        Of findings that have none.
    advice : str
        What to do.
    silent : str
        What it does not report although it is similar, for `tensight explain`.
    explains : sequence of str
        Ids of rules whose findings follow from its own.

    Returns
    -------
    callable
        A decorator, which returns the function.

    Raises
    ------
    InputError
        An id, a fact, a category or a certainty cannot be used.
    """
    frame = sys._getframe(1)
    file, line = frame.f_code.co_filename, frame.f_lineno

    def declared(function: _Function) -> _Function:
        lines = (function.__doc__ or "").strip().splitlines()
        call = _Call(lambda facts: _findings_of(function, id, certainty, facts), file, line, lines[0] if lines else id)
        _declare(id, needs, category, certainty, advice, silent, explains, call)
        return function

    return declared


def expression_rule(
    id: str,  # noqa: A002 - what a rule has
    expression: str,
    *,
    message: str,
    for_steps: int = 1,
    category: str = CATEGORY,
    certainty: Certainty = "likely",
    advice: str = "",
) -> None:
    """Declare a rule that has found something where an expression over facts holds.

    Parameters
    ----------
    id : str
        As for `rule`.
    expression : str
        As ``losses.value < 0.01``; see `tensight.diagnosis.expressions.parse_expression`.
    message : str
        What is wrong; may have ``{items}`` (for which the expression holds), ``{step}`` (the first one), and facts of
        the tables in the expression, in that step and of the item that is first, as ``{losses.value:.3g}``.
    for_steps : int
        Number of steps, of those that were read, in which it must hold in a row.
    category, certainty, advice : str
        As for `rule`.

    Raises
    ------
    InputError
        As for `rule`, or the expression or the message cannot be used.
    """
    frame = sys._getframe(1)
    parsed = parse_expression(expression)
    if for_steps < 1:
        raise InputError(f"for_steps is {for_steps}; give a whole number from 1")
    subjects = list(dict.fromkeys(fact.partition(".")[0] for fact in parsed.facts))
    _require_message(message, subjects)

    def judge(facts: Facts) -> Iterator[UserFinding]:
        hits = parsed.hits(facts)
        begins = _begins(hits, for_steps)
        items = [item for item in range(begins.size) if begins[item] >= 0]
        if not items:
            return
        first = min(items, key=lambda item: begins[item])
        at, names = int(begins[first]), [hits.names[item] for item in items] if hits.names else []
        step = int(hits.steps[at])
        values = _values_at(facts, subjects, step, hits.names[first] if hits.names else "")
        holds, decided = int(hits.holds[:, first].sum()), int(hits.decided[:, first].sum())
        evidence = {"expression": expression, "holds": str(holds), "decided": str(decided)}
        subject = next((each for each in subjects if tuple(facts[each].names) == hits.names), subjects[0])
        kind = _ITEM_KINDS.get(subject, "")
        yield UserFinding(
            message.format(items=listed(names), step=step, **values)[:MOST_SENTENCE],
            step,
            "",
            None,
            {
                **({kind: listed(names, MOST_NAMED)} if kind and names else {}),
                **({"line": line} if (line := _line_of(subject, values)) else {}),
            },
            tuple(names) if kind == "parameter" else (),
            {**evidence, "item": hits.names[first]} if len(names) > 1 else evidence,
        )

    call = _Call(
        lambda facts: _findings_of(judge, id, certainty, facts),
        frame.f_code.co_filename,
        frame.f_lineno,
        f"Steps in which `{expression}` holds" + (f", {for_steps} in a row." if for_steps > 1 else "."),
    )
    _declare(
        id,
        parsed.facts,
        category,
        certainty,
        advice,
        "",
        (),
        call,
        next(filter(NUMBERS.__contains__, parsed.facts), ""),
    )


def _begins(hits: Hits, for_steps: int) -> NDArray[np.int64]:
    """Return for each item the row at which it first holds so often in a row; -1 if it never does."""
    rows, items = hits.holds.shape
    begins = np.full(items, -1, np.int64)
    length = np.zeros(items, np.int64)
    for row in range(rows):
        length = np.where(hits.holds[row], length + 1, 0)
        is_new = (length == for_steps) & (begins < 0)
        begins[is_new] = row - for_steps + 1
    return begins


def _require_message(message: str, subjects: Sequence[str]) -> None:
    blank = {
        subject: SimpleNamespace(**{fact.name: MISSING[fact.kind] for fact in SCHEMA[subject]}) for subject in subjects
    }
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(message) if name is not None]
        message.format(items="", step=1, **blank)
    except (ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise InputError(f"the message cannot be filled in: {type(error).__name__}: {error}") from None
    facts = {f"{subject}.{fact.name}" for subject in subjects for fact in SCHEMA[subject]}
    if any(name not in ("items", "step") and name not in facts for name in names):
        raise InputError(f"a message may name {{items}}, {{step}} and facts such as {{{subjects[0]}.name}}")


def _values_at(facts: Facts, subjects: Sequence[str], step: int, item: str) -> dict[str, SimpleNamespace]:
    """Return the facts of a step by subject: those of an item, or of the first one."""
    values = {}
    for subject in subjects:
        table = facts[subject]
        rows = np.flatnonzero(table["step"] == step)
        of_item = [row for row in rows if table["name"][row] == item]
        row = int((of_item or rows)[-1 if of_item else 0])
        values[subject] = SimpleNamespace(**{fact.name: table[fact.name][row] for fact in SCHEMA[subject]})
    return values


def _line_of(subject: str, values: Mapping[str, SimpleNamespace]) -> str:
    names = ("line", "made_line", "cut_line", "update_line", "mode_line")
    return next((str(line) for name in names if (line := getattr(values[subject], name, ""))), "")


# --- declaring ---


def is_rule_id(value: object) -> bool:
    """Whether a value can be the id of a rule: lower-case words with hyphens between them."""
    return isinstance(value, str) and len(value) <= _MOST_ID and _ID.fullmatch(value) is not None


def _declare(
    rule_id: str,
    needs: Iterable[str],
    category: str,
    certainty: str,
    advice: str,
    silent: str,
    explains: Iterable[str],
    call: _Call,
    fact: str = "",
) -> None:
    if not is_rule_id(rule_id):
        raise InputError(f"{rule_id!r:.80} is no id of a rule: write lower-case words with hyphens, as my-loss-floor")
    for need in needs:
        require_fact(*need.partition(".")[::2])
    if category not in CATEGORIES:
        raise InputError(f"there is no category {category!r:.80}; there are {', '.join(CATEGORIES)}")
    if certainty not in _CERTAINTIES:
        raise InputError(f"certainty is {certainty!r:.80}; choose one of {', '.join(_CERTAINTIES)}")
    if _declared is None:
        # The file is imported or run by itself, as in a test of the user's.
        return
    if any(other.id == rule_id for other in _declared):
        raise InputError(f"the rule {rule_id} is declared twice")
    _declared.append(user_rule(rule_id, tuple(needs), category, call, advice, silent, frozenset(explains), fact))


def user_rule(
    rule_id: str,
    needs: tuple[str, ...],
    category: str,
    judge: Callable[[Facts], Iterable[Finding]],
    advice: str,
    silent: str = "",
    explains: frozenset[str] = frozenset(),
    fact: str = "",
) -> Rule:
    """Return a rule whose findings have their sentences with them, in one language."""
    return Rule(
        id=rule_id,
        category=category,
        needs=needs,
        judge=judge,
        messages=dict.fromkeys(EVIDENCE, ("{sentence}", "{sentence}")),
        evidence={message: words for message, words in EVIDENCE.items() if words is not None},
        advice=(advice, advice),
        silent=(silent, silent),
        explains=explains,
        fact=fact,
    )


def to_finding(rule_id: str, certainty: Certainty, reported: UserFinding, last_step: int) -> Finding:
    """Return what a rule of a user says as a finding."""
    message = "measured" if reported.evidence else "said"
    if reported.holds:
        message = "holds-first" if "item" in reported.holds else "holds"
    return Finding(
        rule_id,
        reported.certainty or certainty,
        last_step if reported.step is None else reported.step,
        message,
        {"sentence": reported.sentence, "measured": reported.evidence, **reported.holds},
        reported.where,
        reported.covers,
    )


def _findings_of(function: _Function, rule_id: str, certainty: Certainty, facts: Facts) -> list[Finding]:
    """Return what a user's function has found."""
    result = function(facts)
    results = [] if result is None else [result] if isinstance(result, (str, UserFinding)) else result
    findings: list[Finding] = []
    for each in results:
        reported = finding(each) if isinstance(each, str) else each
        if not isinstance(reported, UserFinding):
            raise TypeError(f"a rule yields tensight.finding(…) or a sentence, not {type(each).__name__}")
        if reported.certainty not in (None, *_CERTAINTIES):
            raise ValueError(f"certainty is {reported.certainty!r:.80}; choose one of {', '.join(_CERTAINTIES)}")
        findings.append(to_finding(rule_id, certainty, reported, facts.last_step))
        if len(findings) == MOST_FINDINGS:
            break
    return findings


# --- calling ---


class _Call:
    """A call of a user's rule, which ends in time.

    Attributes
    ----------
    most_s : float
        Maximum time of a call in seconds. A rule that takes longer is not called again.
    """

    def __init__(self, function: Callable[[Facts], list[Finding]], file: str, line: int, summary: str) -> None:
        self._function = function
        self._file = file
        self._position = f"{file.rpartition('/')[2]}:{line}"
        self._failure = ""
        self.most_s = MOST_S
        self.__doc__ = summary

    def __call__(self, facts: Facts) -> list[Finding]:
        if self._failure:
            raise RuleFailure(self._failure)
        results: list[list[Finding]] = []
        failures: list[str] = []

        def work() -> None:
            try:
                with np.errstate(all="ignore"):
                    results.append(self._function(facts))
            except _TooSlow:
                pass
            except BaseException as error:
                failures.append(self._text(error))

        thread = threading.Thread(target=work, daemon=True, name="tensight-rule")
        thread.start()
        thread.join(self.most_s)
        if thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_TooSlow))
            self._failure = f"{self._position}: it took longer than {self.most_s:g} s, and is not called again"
            raise RuleFailure(self._failure)
        if failures:
            raise RuleFailure(failures[0])
        return results[0]

    def _text(self, error: BaseException) -> str:
        """Return an exception with the line of the user's file."""
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self._file]
        position = f"{self._file.rpartition('/')[2]}:{lines[-1]}" if lines else self._position
        what = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        return f"{position}: {what}"[:MOST_SENTENCE]


class _TooSlow(BaseException):
    """Ends a call that takes too long."""


# --- loading ---


def load_rules(path: Path, *, most_s: float = MOST_S) -> tuple[Rule, ...]:
    """Run a file of rules, and return those that it declares.

    Parameters
    ----------
    path : Path
        A file of Python that the user has named: it is run.
    most_s : float
        Maximum time in seconds of a call of one of its rules.

    Raises
    ------
    InputError
        It cannot be read, or raises an exception, or declares no rule; the message names the file and the line.
    """
    global _declared
    try:
        with path.open("rb") as file:
            source = file.read(_MOST_FILE + 1)
    except OSError as error:
        raise InputError(f"{path}: the rules cannot be read: {error.strerror or error}") from None
    if len(source) > _MOST_FILE:
        raise InputError(f"{path}: is larger than {_MOST_FILE:,} bytes, and no file of rules")
    module = types.ModuleType(f"tensight_rules_{path.stem}")
    module.__file__ = str(path)
    with _loading:
        _declared = []
        sys.modules[module.__name__] = module
        try:
            exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - what the user asked for
        except (SystemExit, Exception) as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == str(path)]
            line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else 1
            what = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            raise InputError(f"{path}:{line}: {what}"[:MOST_SENTENCE]) from None
        finally:
            declared, _declared = _declared, None
    if not declared:
        raise InputError(f"{path}: declares no rule; write one with @tensight.rule or tensight.expression_rule")
    for each in declared:
        if isinstance(each.judge, _Call):
            each.judge.most_s = most_s
    return tuple(declared)
