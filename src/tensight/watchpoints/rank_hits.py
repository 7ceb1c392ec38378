"""Hits as lines of JSON: what a rank that watches itself appends to its file, for a reader of all ranks.

The first line says who writes: ``{"rank": 17, "world_size": 1024, "watchpoints": […]}``. A hit is written when its
watchpoint hits on a tensor for the first time: ``{"hit": {"step": 3, …}}``; of the others there are counts by
watchpoint, ``{"counts": {"2": [hits, tensors, last step]}, "step": 8}``. Other lines say how far the rank has come
(``{"step": 120}``), that it keeps the last steps that it has recorded (``{"kept": 3}``), and that it has ended
(``{"over": 500}``). Each line that is there is complete without those after it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tensight.errors import InputError
from tensight.ranks import complete_lines
from tensight.watchpoints.parsing import parse_watch
from tensight.watchpoints.watchpoint import Selector, Severity, Watchpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

KIND = "hits"
"""How the names of the files begin."""

PATTERN = f"{KIND}-*.jsonl"
"""Names of the files of a run: one for each process."""

MOST_LINE = 1 << 20
"""Maximum length of a line."""

MOST_HITS = 20_000
"""Maximum number of hits of a rank that are read."""

MOST_WATCHPOINTS = 1_000
_MOST_TEXT = 2_000
_MOST_NAMES = 100
_MOST_NUMBER = 1 << 53


@dataclass(frozen=True, slots=True)
class SourceLine:
    """The line of the user's code that ran a node.

    Attributes
    ----------
    file : str
    line : int
    function, code : str
    """

    file: str
    line: int
    function: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class RankHit:
    """The first hit of a watchpoint on a tensor, as its rank has seen it.

    Attributes
    ----------
    step : int
        From 1; 0 for the state before the first step.
    watchpoint : int
        Its id.
    node, type : str
        Full name of the node, and the type of its operator.
    slot : int
    io : {"output", "input"}
    graph : str
    position : int
        Where the step had come when it observed the tensor: a number that grows.
    is_new : bool
        Whether it does not follow from earlier hits of this rank.
    actual : mapping of str to float
        The tensor's value for each active threshold.
    parameters_hit : tuple of str
        The thresholds that hit.
    error_code : int
        Bits of `ErrorCode`.
    since : int or None
        Step since which the condition has held, if it must hold for several steps.
    values : mapping of str to float
        Statistics of the tensor, by their names in `tensight.tensors.schema`.
    source : SourceLine or None
    """

    step: int
    watchpoint: int
    node: str
    type: str = ""
    slot: int = 0
    io: str = "output"
    graph: str = ""
    position: int = 0
    is_new: bool = True
    actual: Mapping[str, float] = field(default_factory=dict)
    parameters_hit: tuple[str, ...] = ()
    error_code: int = 0
    since: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    source: SourceLine | None = None

    def line(self) -> bytes:
        """Return it as a line of a file."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.source is not None:
            data["source"] = asdict(self.source)
        defaults = {field.name: field.default for field in fields(self)}
        return line_of(
            {"hit": {name: value for name, value in data.items() if value != defaults[name] and value != {}}}
        )


@dataclass(slots=True)
class RankAccount:
    """What a process of a rank has written.

    Attributes
    ----------
    rank, world_size : int
    host : str
    watchpoints : dict of int to Watchpoint
        By id.
    hits : list of RankHit
        In the order in which they were seen.
    counts : dict of int to (int, int, int)
        For each watchpoint that hit: number of hits, of tensors on which it hit, and the last step with a hit.
    last_step : int
        How far the rank has come, as far as its file says.
    is_over : bool
        Whether the training has ended by itself.
    kept_step : int or None
        The last of the recorded steps that are kept because a rank has asked for it.
    problems : list of str
        What could not be read.
    """

    rank: int
    world_size: int = 1
    host: str = ""
    watchpoints: dict[int, Watchpoint] = field(default_factory=dict)
    hits: list[RankHit] = field(default_factory=list)
    counts: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    last_step: int = 0
    is_over: bool = False
    kept_step: int | None = None
    problems: list[str] = field(default_factory=list)


def line_of(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line."""
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def first_line(rank: int, world_size: int, host: str, watchpoints: Sequence[Watchpoint]) -> bytes:
    """Return the line with which the file of a process begins.

    Parameters
    ----------
    rank, world_size : int
    host : str
        Name of its machine.
    watchpoints : sequence of Watchpoint
        Those that it checks.
    """
    listed = [
        {
            "id": watchpoint.id,
            "name": watchpoint.name,
            "check": watchpoint.text,
            "selection": str(watchpoint.selection),
            "severity": watchpoint.severity.value,
        }
        for watchpoint in watchpoints
    ]
    return line_of({"rank": rank, "world_size": world_size, "host": host, "watchpoints": listed})


def read_account(path: Path) -> RankAccount:
    """Read the file of a process, as far as its lines are complete.

    Parameters
    ----------
    path : Path

    Returns
    -------
    RankAccount
        Lines that make no sense are left out, with a problem for the first one.

    Raises
    ------
    InputError
        The file does not begin as one of a rank that watches itself, or it cannot be read.
    """
    account: RankAccount | None = None
    try:
        for number, line in enumerate(complete_lines(path, MOST_LINE), 1):
            if account is None:
                account = _begun(line)
                continue
            try:
                _take(account, _record(line))
            except InputError as error:
                if not account.problems:
                    account.problems.append(f"line {number:,} is left out: {error}")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if account is None:
        raise InputError(f"{path}: has no complete line yet")
    return account


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise InputError(f"it is no JSON object of at most {MOST_LINE:,} bytes: {line[:80]!r}")
    return record


def _begun(line: bytes) -> RankAccount:
    record = _record(line)
    listed = record.get("watchpoints")
    if not isinstance(listed, list) or len(listed) > MOST_WATCHPOINTS:
        raise InputError("does not begin with a rank and its watchpoints")
    account = RankAccount(_number(record, "rank"), _number(record, "world_size", 1), _text(record, "host"))
    for each in listed:
        if not isinstance(each, dict):
            raise InputError("a watchpoint is no object")
        texts = (_text(each, name) for name in ("name", "check", "selection", "severity"))
        watchpoint = _watchpoint(_number(each, "id"), *texts)
        account.watchpoints[watchpoint.id] = watchpoint
    return account


@lru_cache(maxsize=MOST_WATCHPOINTS)
def _watchpoint(number: int, name: str, check: str, selection: str, severity: str) -> Watchpoint:
    """Return a watchpoint of a first line; those of all ranks are alike."""
    parsed, persistence = parse_watch(check)
    is_error = severity == Severity.ERROR.value
    severity_ = Severity.ERROR if is_error else Severity.WARNING
    return Watchpoint(number, name, parsed, Selector.parse(selection), severity_, persistence)


def _take(account: RankAccount, record: Mapping[str, Any]) -> None:
    """Add what a line has to an account; what is unknown is left out."""
    if "hit" in record:
        hit = _hit(record["hit"])
        if hit.watchpoint not in account.watchpoints:
            raise InputError(f"there is no watchpoint {hit.watchpoint}")
        if len(account.hits) < MOST_HITS:
            account.hits.append(hit)
        account.last_step = max(account.last_step, hit.step)
    if "counts" in record:
        counts = record["counts"]
        if not isinstance(counts, dict) or len(counts) > MOST_WATCHPOINTS:
            raise InputError("it has no counts")
        for number, values in counts.items():
            if not isinstance(values, list) or len(values) != 3 or not all(map(_is_number, values)):
                raise InputError("counts are three numbers")
            if number.isdecimal() and len(number) < 16 and int(number) in account.watchpoints:
                account.counts[int(number)] = (values[0], values[1], values[2])
    if "kept" in record:
        account.kept_step = _number(record, "kept")
    for name in ("step", "over"):
        if name in record:
            account.last_step = max(account.last_step, _number(record, name))
    account.is_over |= "over" in record


def _hit(data: Any) -> RankHit:
    if not isinstance(data, dict):
        raise InputError("a hit is no object")
    parameters = data.get("parameters_hit", [])
    if not isinstance(parameters, list) or len(parameters) > _MOST_NAMES:
        raise InputError("a hit has no list of thresholds")
    source = data.get("source")
    line = None
    if isinstance(source, dict):
        line = SourceLine(
            _text(source, "file"), _number(source, "line"), _text(source, "function"), _text(source, "code")
        )
    return RankHit(
        step=_number(data, "step"),
        watchpoint=_number(data, "watchpoint"),
        node=_text(data, "node"),
        type=_text(data, "type"),
        slot=_number(data, "slot", 0),
        io="input" if data.get("io") == "input" else "output",
        graph=_text(data, "graph"),
        position=_number(data, "position", 0),
        is_new=data.get("is_new") is not False,
        actual=_measures(data.get("actual", {})),
        parameters_hit=tuple(str(name)[:_MOST_TEXT] for name in parameters),
        error_code=_number(data, "error_code", 0),
        since=_number(data, "since") if data.get("since") is not None else None,
        values=_measures(data.get("values", {})),
        source=line,
    )


def _measures(data: Any) -> dict[str, float]:
    if not isinstance(data, dict) or len(data) > _MOST_NAMES:
        raise InputError("a hit has no numbers by name")
    if not all(type(value) in (int, float) for value in data.values()):
        raise InputError("a value of a hit is no number")
    return {name[:_MOST_TEXT]: value for name, value in data.items()}


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_NUMBER


def _number(record: Mapping[str, Any], name: str, otherwise: int | None = None) -> int:
    value = record.get(name, otherwise)
    if not _is_number(value):
        raise InputError(f"its {name} is no whole number")
    return int(value)


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name, "")
    if not isinstance(value, str):
        raise InputError(f"its {name} is no text")
    return value[:_MOST_TEXT]
