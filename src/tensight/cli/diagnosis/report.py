"""What all formats of `tensight diagnose` show: the findings, the course of what they are about, and the set-up."""

from __future__ import annotations

import linecache
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.cli.diagnosis.probes import probe_rows
from tensight.cli.diagnosis.words import WORDS, summary, text
from tensight.diagnosis.facts import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tensight.diagnosis.facts import Facts
    from tensight.diagnosis.rule import Rule
    from tensight.sessions.records import DiagnosisRecord, FindingRecord

ENDED = "debugging ends here"
"""How a remark begins that stays true although steps were seen."""

MOST_POINTS = 400
"""Maximum number of points of a curve."""

MOST_CURVES = 4
_MOST_LISTED, _MOST_ITEMS = 4, 200
_MOST_FILES = 20_000
_POSITION = re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d{1,9})(?!\d)")
_NAMES = re.compile(r"^(?P<names>.*?)(?: … \(\d+\))?$", re.DOTALL)
_NOT_SEARCHED = ("__pycache__", "node_modules", "site-packages", "venv")


class Ending(NamedTuple):
    """How a training ended.

    Attributes
    ----------
    failure : str
        What it printed last, if it failed.
    remarks : list of str
        What the debugger remarked meanwhile.
    """

    failure: str
    remarks: list[str]


class Curve(NamedTuple):
    """The course of a fact of an item, or of several items of which it is the same.

    Attributes
    ----------
    fact : str
        As ``losses.value``.
    names : list of str
        The items.
    steps : list of int
    values : list of float
    """

    fact: str
    names: list[str]
    steps: list[int]
    values: list[float]

    def thinned(self, most: int) -> Curve:
        """Return the curve with at most so many points: of each stretch the lowest, the highest, and one not finite."""
        if len(self.steps) <= most:
            return self
        length = math.ceil(3 * len(self.steps) / (most - 2))
        kept = {0, len(self.steps) - 1}
        for begin in range(0, len(self.steps), length):
            stretch = range(begin, min(begin + length, len(self.steps)))
            finite = [at for at in stretch if math.isfinite(self.values[at])]
            if finite:
                kept |= {min(finite, key=self.values.__getitem__), max(finite, key=self.values.__getitem__)}
            kept.update([at for at in stretch if not math.isfinite(self.values[at])][:1])
        chosen = sorted(kept)
        return self._replace(steps=[self.steps[at] for at in chosen], values=[self.values[at] for at in chosen])


class Position(NamedTuple):
    """A line of a file.

    Attributes
    ----------
    file : str
        Relative to the current folder if it is in that; else as the training names it.
    line : int
        From 1.
    is_here : bool
        Whether the file is in the current folder.
    """

    file: str
    line: int
    is_here: bool


@dataclass(frozen=True)
class Report:
    """A diagnosis with all that is shown beside it.

    Attributes
    ----------
    diagnosis : DiagnosisRecord
    ending : Ending
    setup : mapping of str to (list of str)
        What is known of the training, by keys of `tensight.cli.diagnosis.words.WORDS`.
    losses : list of Curve
    curves : list of Curve
        Those of the facts that findings are about.
    rules : mapping of str to Rule
        All rules by id, with those of the user.
    language : int
        0 for English, 1 for Chinese.
    script : str
        The script that was run; empty if facts at rest were judged.
    written_s : float
        When the facts were written, in seconds since the epoch; infinite if the training has just run.
    probes : sequence of dict
        What experiments have measured, as `tensight.cli.diagnosis.probes.probe_rows` returns it.
    unit : {"steps", "entries", "tensors"}
        What was looked at: steps of a training, entries of logs, or, if there are none, tensors of checkpoints.
    """

    diagnosis: DiagnosisRecord
    ending: Ending
    setup: Mapping[str, list[str]]
    losses: list[Curve]
    curves: list[Curve]
    rules: Mapping[str, Rule]
    language: int = 0
    script: str = ""
    written_s: float = math.inf
    probes: Sequence[dict[str, Any]] = ()
    unit: str = "steps"
    _files: dict[str, str] = field(default_factory=dict)

    @property
    def remarks(self) -> list[str]:
        """The remarks that hold at the end: that nothing is counted yet, as while data are collected, may not."""
        return [remark for remark in self.ending.remarks if not self.diagnosis.steps or remark.startswith(ENDED)]

    @property
    def summary(self) -> str:
        """How much was found in how many steps or entries."""
        return summary(len(self.diagnosis.findings), self.diagnosis.steps, self.language, self.unit)

    @property
    def undecided(self) -> dict[str, list[str]]:
        """The rules that could not judge, by the reason."""
        by_reason: dict[str, list[str]] = {}
        for each in self.diagnosis.undecided:
            by_reason.setdefault(each.why, []).append(each.rule)
        return by_reason

    def as_data(self) -> dict[str, Any]:
        """Return it as data for JSON."""
        return {
            **self.diagnosis.model_dump(mode="json"),
            "failure": self.ending.failure,
            "remarks": self.remarks,
            "setup": dict(self.setup),
            "curves": [curve._asdict() for curve in (*self.losses, *self.curves)],
            "probes": list(self.probes),
        }

    def curves_of(self, finding: FindingRecord) -> list[Curve]:
        """Return the curves of the fact that a finding is about: of the items that it names, else the first ones."""
        curves = [curve for curve in self.curves if curve.fact == finding.fact]
        named = set(_named(finding))
        return ([curve for curve in curves if not named.isdisjoint(curve.names)] or curves)[:MOST_CURVES]

    def position(self, finding: FindingRecord) -> Position | None:
        """Return the line of a finding, or else where the script makes what it is about; None if neither is known."""
        for key in ("line", "made", "scheduler", "loader", "mode", "model"):
            match = _POSITION.search(finding.where.get(key, ""))
            if match is not None:
                file = match["file"].rpartition("(")[2]
                return self._position(file, int(match["line"]))
        return None

    def _position(self, file: str, line: int) -> Position:
        if file not in self._files:
            self._files[file] = _path_here(file, self.script)
        here = self._files[file]
        return Position(here or file, line, bool(here))

    def code_at(self, position: Position) -> str:
        """Return the text of a line; empty if its file is not here, or was changed after the training."""
        if not position.is_here or os.path.getmtime(position.file) > self.written_s:
            return ""
        return linecache.getline(position.file, position.line).strip()

    @property
    def script_here(self) -> str:
        """The path of the script from the current folder; empty if it is not in that."""
        return _path_here(os.path.basename(self.script), self.script) if self.script else ""


_SUBJECTS = {
    "losses": ("loss_functions", "losses"),
    "optimizers": ("groups",),
    "schedules": ("schedules",),
}
"""The tables from which parts of the set-up are read: the first one that has rows."""

_ITEM_KINDS = {"parameters": "parameter", "groups": "optimizer", "evaluations": "evaluation"}
"""Which place of a finding names items of a table."""


def names_in(text: str) -> list[str]:
    """Return the names in a list such as ``a, b … (12)``."""
    match = _NAMES.match(text)
    return [name for name in (match["names"] if match else text).split(", ") if name]


def make_report(
    diagnosis: DiagnosisRecord,
    rules: Mapping[str, Rule],
    ending: Ending,
    runs: Sequence[Facts],
    losses: Mapping[str, Sequence[tuple[int, float]]],
    command: Sequence[str],
    language: int = 0,
    script: str = "",
    written_s: float = math.inf,
    logs: Sequence[str] = (),
) -> Report:
    """Return the report of a diagnosis.

    Parameters
    ----------
    diagnosis : DiagnosisRecord
    rules : mapping of str to Rule
        All rules by id, with those of the user.
    ending : Ending
    runs : sequence of Facts
        One for each rank.
    losses : mapping of str to sequence of (int, float)
        Steps and values of all losses of the first rank.
    command : sequence of str
        What was run, or the folder whose facts were judged.
    language : int
        0 for English, 1 for Chinese.
    script : str
        The script, if one was run.
    written_s : float
        When the facts were written, in seconds since the epoch, if they were at rest.
    logs : sequence of str
        The logs from which they were read, in words.
    """
    curves: list[Curve] = []
    if runs:
        facts = dict.fromkeys(finding.fact for finding in diagnosis.findings if finding.fact)
        for fact in facts:
            if fact != "losses.value":
                named = [name for finding in diagnosis.findings if finding.fact == fact for name in _named(finding)]
                curves += _curves_of(runs[0], fact, named)
    of_losses = [
        Curve("losses.value", [name], [step for step, _ in points], [value for _, value in points]).thinned(MOST_POINTS)
        for name, points in list(losses.items())[:MOST_CURVES]
    ]
    setup = setup_of(runs, command, language)
    if logs:
        setup["logs"] = list(logs)
    is_of_checkpoints = bool(runs) and len(runs[0]["saved"]) > 0
    unit = "tensors" if is_of_checkpoints else "entries" if logs else "steps"
    probes = probe_rows(runs)
    return Report(diagnosis, ending, setup, of_losses, curves, rules, language, script, written_s, probes, unit)


def _curves_of(facts: Facts, fact: str, named: Sequence[str]) -> Iterator[Curve]:
    subject, _, column = fact.partition(".")
    table = facts[subject]
    if not len(table):
        return
    panel, present = table.panel(column), table.present()
    positions = {name: at for at, name in enumerate(table.names)}
    chosen = [name for name in dict.fromkeys(named) if name in positions] or table.names[:MOST_CURVES]
    curves: dict[tuple[tuple[int, ...], tuple[float, ...]], Curve] = {}
    for name in chosen[:_MOST_ITEMS]:
        values = panel[:, positions[name]].astype(float)
        is_known = present[:, positions[name]] & (values == values)
        course = tuple(table.steps[is_known].tolist()), tuple(values[is_known].tolist())
        if course in curves:
            curves[course].names.append(name)
        elif course[0]:
            curves[course] = Curve(fact, [name], list(course[0]), list(course[1])).thinned(MOST_POINTS)
    yield from list(curves.values())[: 2 * MOST_CURVES]


def _named(finding: FindingRecord) -> list[str]:
    """Return the items of the fact of a finding that it names."""
    return names_in(finding.where.get(_ITEM_KINDS.get(finding.fact.partition(".")[0], ""), ""))


def setup_of(runs: Sequence[Facts], command: Sequence[str], language: int = 0) -> dict[str, list[str]]:
    """Return what is known of a training, by keys of `WORDS`."""
    from tensight.frameworks import FRAMEWORKS
    from tensight.version import __version__

    setup: dict[str, list[str]] = {"command": [" ".join(command)], "version": [__version__]}
    if not runs:
        return setup
    facts = runs[0]
    names = {framework.module: framework.name for framework in FRAMEWORKS}
    setup["framework"] = [names.get(facts.framework, facts.framework)] if facts.framework else []
    if facts.is_log:
        return {name: texts for name, texts in setup.items() if texts}
    setup["ranks"] = [str(len(runs))] if len(runs) > 1 else []
    setup["models"] = _of_each(facts, "calls", "{name} (input {input_shape})", flag="is_trained")
    setup["parameters"] = _parameters(facts, language)
    for key, subjects in _SUBJECTS.items():
        for subject in subjects:
            setup[key] = setup.get(key) or _of_each(facts, subject, WORDS[f"{subject}-setup"][language])
    if len(facts["steps"]):
        last = list(facts["steps"].rows())[-1]
        if last["batches"] >= 0 and last["batch_size"] >= 0:
            setup["batches"] = [text("batches-setup", language, **last)]
        setup["scale"] = [f"{last['scale']:.6g}"] if last["scale"] == last["scale"] else []
    return {name: texts for name, texts in setup.items() if texts}


def _parameters(facts: Facts, language: int) -> list[str]:
    table = facts["parameters"]
    by_dtype: dict[str, list[int]] = {}
    elements, dtypes = table.last("elements"), table.last("dtype")
    for name, is_trainable in table.last("is_trainable").items():
        counts = by_dtype.setdefault(dtypes[name], [0, 0, 0])
        amount = max(elements[name], 0)
        counts[0] += 1
        counts[1] += amount
        counts[2] += 0 if is_trainable else amount
    return [
        text("parameters-setup", language, dtype=dtype or "?", count=count, elements=elements, frozen=frozen)
        for dtype, (count, elements, frozen) in by_dtype.items()
    ]


def _of_each(facts: Facts, subject: str, form: str, flag: str = "") -> list[str]:
    """Return a text for each item of a table, or each that had a flag in some row; what is unknown is left out."""
    kinds = {fact.name: fact.kind for fact in facts[subject].schema}
    last: dict[str, dict[str, Any]] = {}
    for row in facts[subject].rows():
        seen = {name: value for name, value in row.items() if name == "step" or not _is_missing(value, kinds[name])}
        last[row["name"]] = {**last.get(row["name"], {}), **seen}
    table = facts[subject]
    rows = [last[name] for name in (dict.fromkeys(table["name"][table[flag]].tolist()) if flag else last)]
    texts = dict.fromkeys(_filled(form, row) for row in rows)
    shown = [text for text in texts if text]
    return shown if len(shown) <= _MOST_LISTED else [*shown[:_MOST_LISTED], f"… ({len(shown)})"]


def _filled(form: str, row: Mapping[str, Any]) -> str:
    parts = []
    for part in re.split(r"(?=,? \()|(?=, )", form):
        names = re.findall(r"\{(\w+)", part)
        if all(name in row for name in names):
            parts.append(part.format(**row))
    return "".join(parts).strip(", ")


def _is_missing(value: object, kind: Any) -> bool:
    return value == MISSING[kind] or value != value if kind != "flag" else False


def _path_here(file: str, script: str) -> str:
    """Return the path of a file from the current folder; empty if it is not in that, or if several have that name.

    Parameters
    ----------
    file : str
        As in the lines of findings: a name without folders.
    script : str
        The script that was run.
    """
    here = Path.cwd().resolve()
    if Path(file).is_absolute():
        return _relative(Path(file), here) if os.path.isfile(file) else ""
    beside = Path(script).parent / file if script else Path(file)
    for path in (Path(script) if script and os.path.basename(script) == file else beside, Path(file)):
        if path.is_file():
            return _relative(path, here)
    if not file.endswith(".py"):
        return ""
    paths = _files_named(os.path.basename(file), here)
    return _relative(paths[0], here) if len(paths) == 1 else ""


def _relative(path: Path, here: Path) -> str:
    resolved = path.resolve()
    return resolved.relative_to(here).as_posix() if resolved.is_relative_to(here) else ""


def _files_named(name: str, folder: Path) -> list[Path]:
    """Return the files of a name below a folder; none if that has too many files to be searched."""
    paths, count = [], 0
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _NOT_SEARCHED)
        count += len(files) + len(folders)
        if count > _MOST_FILES:
            return []
        if name in files:
            paths.append(Path(parent, name))
    return paths
