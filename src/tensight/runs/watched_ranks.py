"""What the ranks of a run have seen that watch themselves: their files, put together.

`read_rank` needs the files of one rank alone, and returns data that can be sent elsewhere; `merge` needs nothing but
what `read_rank` has returned, one after the other. So ranks may be read anywhere and in any order, and the memory that
all of them take grows with what is distinct: equal hits and findings are one, with their ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.diagnosis import catalogue, lines
from tensight.diagnosis.facts import Facts
from tensight.diagnosis.rules.ranks import SameSteps
from tensight.errors import InputError
from tensight.ranks import rank_of_file
from tensight.runs.engines import LostTaskError, engine_named
from tensight.watchpoints import rank_hits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from tensight.diagnosis.catalogue import Explained
    from tensight.diagnosis.findings import Finding, ReportedRule
    from tensight.diagnosis.rule import Rule
    from tensight.watchpoints import Watchpoint
    from tensight.watchpoints.rank_hits import RankAccount, RankHit

MOST_GROUPS = 20_000
"""Maximum number of distinct hits, and of distinct findings; further ones are only counted."""

MOST_PROBLEMS = 100


class RankFiles(NamedTuple):
    """What a rank has left.

    Attributes
    ----------
    rank : int
    paths : tuple of str
        Its files of hits and of facts.
    """

    rank: int
    paths: tuple[str, ...]


class RankReport(NamedTuple):
    """What a rank has seen.

    Attributes
    ----------
    rank : int
    accounts : sequence of RankAccount
        One for each process of the rank: more than one if it was started again.
    findings : sequence of Finding
        What rules find in its facts.
    last_step : int
        How far its facts go.
    framework : str
        With which it trains.
    compared : sequence of dict
        Rows of its facts that rules compare with those of other ranks.
    reported : tuple of ReportedRule
        Rules of the user that were applied in the training.
    problems : sequence of str
    """

    rank: int
    accounts: Sequence[RankAccount] = ()
    findings: Sequence[Finding] = ()
    last_step: int = 0
    framework: str = ""
    compared: Sequence[dict[str, Any]] = ()
    reported: tuple[ReportedRule, ...] = ()
    problems: Sequence[str] = ()


@dataclass(slots=True)
class SharedHit:
    """A hit that several ranks have seen: the same watchpoint on the same tensor.

    Attributes
    ----------
    watchpoint : Watchpoint
    hit : RankHit
        That of the rank in which it came first.
    rank : int
        That rank.
    ranks : list of int
        All of them.
    steps : dict of int to list of int
        Ranks by the step of their first hit.
    new : list of int
        The ranks in which it does not follow from an earlier hit.
    """

    watchpoint: Watchpoint
    hit: RankHit
    rank: int
    ranks: list[int] = field(default_factory=list)
    steps: dict[int, list[int]] = field(default_factory=dict)
    new: list[int] = field(default_factory=list)

    @property
    def is_cause(self) -> bool:
        """Whether it follows from nothing seen before, in each of the ranks in which it came first."""
        new = set(self.new)
        return all(rank in new for rank in self.steps[self.hit.step])

    @property
    def order(self) -> tuple[int, int]:
        """Sorts hits by when they came first: by the step, and by where that had come."""
        return self.hit.step, self.hit.position

    def add(self, rank: int, hit: RankHit) -> None:
        """Add the hit of a rank."""
        if self.ranks and self.ranks[-1] == rank:
            return
        self.ranks.append(rank)
        self.steps.setdefault(hit.step, []).append(rank)
        if hit.is_new:
            self.new.append(rank)
        if (hit.step, hit.position, rank) < (*self.order, self.rank):
            self.hit, self.rank = hit, rank

    def sort(self) -> None:
        """Sort the ranks, which are read in any order."""
        for ranks in (self.ranks, self.new, *self.steps.values()):
            ranks.sort()


class SharedFinding(NamedTuple):
    """A finding that several ranks have in common.

    Attributes
    ----------
    explained : Explained
        With those that follow from it. Numbers are those of the first rank.
    ranks : list of int
    """

    explained: Explained
    ranks: list[int]


@dataclass(slots=True)
class WatchedRun:
    """What all ranks of a run have seen.

    Attributes
    ----------
    world_size : int
        Number of ranks of the run, as they know it themselves.
    steps : dict of int to int
        By rank, how far it has come, as far as its files say.
    not_over : list of int
        Ranks that did not end by themselves: they were killed, or still run.
    restarted : list of int
        Ranks that several processes were.
    kept : dict of int to list of int
        Ranks by the last of the recorded steps that they keep because a watchpoint has hit.
    hits : list of SharedHit
        In the order in which they came.
    counts : dict of Watchpoint to (int, int)
        For each watchpoint that hit: number of hits on all ranks, and the largest number of tensors on one.
    watchpoints : list of Watchpoint
        All that were checked.
    findings : list of SharedFinding
        Causes first.
    rules : mapping of str to Rule
    left_out : int
        Number of hits and findings for which there were too many distinct ones.
    problems : list of str
    """

    world_size: int = 0
    steps: dict[int, int] = field(default_factory=dict)
    not_over: list[int] = field(default_factory=list)
    restarted: list[int] = field(default_factory=list)
    kept: dict[int, list[int]] = field(default_factory=dict)
    hits: list[SharedHit] = field(default_factory=list)
    counts: dict[Watchpoint, tuple[int, int]] = field(default_factory=dict)
    watchpoints: list[Watchpoint] = field(default_factory=list)
    findings: list[SharedFinding] = field(default_factory=list)
    rules: dict[str, Rule] = field(default_factory=dict)
    left_out: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ranks(self) -> Collection[int]:
        """The ranks that have left files."""
        return self.steps.keys()

    def sort(self) -> None:
        """Sort the ranks, which are read in any order."""
        self.steps = dict(sorted(self.steps.items()))
        for ranks in (self.not_over, self.restarted, *self.kept.values()):
            ranks.sort()
        self.problems.sort()

    @property
    def silent(self) -> list[int]:
        """Ranks of the run that have left none."""
        return [rank for rank in range(self.world_size) if rank not in self.steps]


def is_watched_run(path: str) -> bool:
    """Return whether a path is the folder of a run whose ranks watched themselves."""
    folder = Path(path)
    return folder.is_dir() and next(folder.glob(rank_hits.PATTERN), None) is not None


def read_watched_run(
    folder: Path,
    ranks: Collection[int] | None = None,
    *,
    engine: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> WatchedRun:
    """Read the files of all ranks, and put together what they say.

    Parameters
    ----------
    folder : Path
    ranks : collection of int, optional
        Ranks to read; all by default.
    engine : str, optional
        Name of the engine that reads them, see `tensight.runs.engines.engine_named`; by default by their number.
    progress : callable, optional
        Called with the number of ranks that are done, and that of all.

    Raises
    ------
    InputError
        There is no file of such a rank, the folder cannot be read, or there is no such engine.
    """
    tasks = files_of_ranks(folder, ranks)
    return merge(_reports(tasks, engine, progress or (lambda _done, _total: None)))


def _reports(
    tasks: Sequence[RankFiles], engine: str | None, progress: Callable[[int, int], None]
) -> Iterator[RankReport]:
    """Yield the report of each rank as it is completed."""
    results = engine_named(engine, len(tasks)).map(read_rank, tasks)
    for done, (files, report) in enumerate(results, 1):
        progress(done, len(tasks))
        if isinstance(report, LostTaskError):
            report = RankReport(files.rank, problems=[f"rank {files.rank}: {report}"])
        yield report


def files_of_ranks(folder: Path, ranks: Collection[int] | None = None) -> list[RankFiles]:
    """Return what each rank has left, in the order of ranks; `read_watched_run` has the parameters and errors."""
    paths: dict[int, list[str]] = {}
    try:
        for pattern in (rank_hits.PATTERN, lines.PATTERN):
            for path in folder.glob(pattern):
                paths.setdefault(rank_of_file(path), []).append(str(path))
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}") from error
    chosen = sorted(paths if ranks is None else set(ranks))
    missing = [rank for rank in chosen if rank not in paths]
    if missing or not chosen:
        raise InputError(f"{folder}: no rank {missing[0] if missing else 0} has left a file there")
    return [RankFiles(rank, tuple(sorted(paths[rank]))) for rank in chosen]


def read_rank(files: RankFiles) -> RankReport:
    """Read the files of a rank, and judge its facts; what could not be read is among the problems."""
    rank = files.rank
    accounts: list[RankAccount] = []
    best = Facts(rank)
    problems: list[str] = []

    def read(path: Path) -> None:
        nonlocal best
        if path.name.startswith(rank_hits.KIND):
            account = rank_hits.read_account(path)
            accounts.append(account)
            problems.extend(f"{path}: {problem}" for problem in account.problems)
        else:
            best = max(best, lines.read_facts(path), key=lambda facts: facts.last_step)

    for path in map(Path, files.paths):
        try:
            read(path)
        except InputError as error:  # noqa: PERF203
            problems.append(str(error))
    diagnosis = catalogue.diagnose([best])
    findings = [each for explained in diagnosis.findings for each in (explained.finding, *explained.explains)]
    compared = list(best["ranks"].rows())
    return RankReport(rank, accounts, findings, best.last_step, best.framework, compared, best.reported, problems)


def merge(reports: Iterable[RankReport]) -> WatchedRun:
    """Put together what ranks have seen.

    Parameters
    ----------
    reports : iterable of RankReport
        One for each rank.
    """
    run = WatchedRun()
    run.rules = dict(catalogue.RULES)
    hits: dict[tuple[object, ...], SharedHit] = {}
    findings: dict[tuple[object, ...], _RanksOfFinding] = {}
    same_steps = SameSteps()
    framework = ""
    for report in reports:
        rank = report.rank
        _add_accounts(run, report)
        for account in report.accounts:
            for hit in account.hits:
                _add_hit(run, hits, rank, account.watchpoints[hit.watchpoint], hit)
        for finding in report.findings:
            _add_finding(run, findings, rank, finding)
        for reported in report.reported:
            if reported.id not in run.rules:
                run.rules[reported.id] = catalogue.reported_rule(reported)
        if report.compared:
            same_steps.add(rank, report.compared)
        framework = framework or report.framework
        run.problems += report.problems[: max(MOST_PROBLEMS - len(run.problems), 0)]
    run.sort()
    for shared in hits.values():
        shared.sort()
    run.hits = sorted(hits.values(), key=lambda shared: (shared.order, shared.hit.node, shared.hit.slot))
    for finding in catalogue.compare_ranks(same_steps, framework):
        findings[_finding_key(finding)] = _RanksOfFinding(finding, 0, list(run.ranks))
    entries = sorted(findings.values(), key=lambda entry: (entry.finding.step, str(_finding_key(entry.finding))))
    ranks_of = {id(entry.finding): sorted(entry.ranks) for entry in entries}
    run.findings = [
        SharedFinding(explained, ranks_of[id(explained.finding)])
        for explained in catalogue.ordered([entry.finding for entry in entries], run.rules)
    ]
    return run


@dataclass(slots=True)
class _RanksOfFinding:
    """A finding of the lowest rank that has it, and all ranks that have it."""

    finding: Finding
    rank: int
    ranks: list[int]


def _add_finding(
    run: WatchedRun, findings: dict[tuple[object, ...], _RanksOfFinding], rank: int, finding: Finding
) -> None:
    entry = findings.get(_finding_key(finding))
    if entry is None:
        if len(findings) >= MOST_GROUPS:
            run.left_out += 1
            return
        entry = findings[_finding_key(finding)] = _RanksOfFinding(finding, rank, [])
    if not entry.ranks or entry.ranks[-1] != rank:
        entry.ranks.append(rank)
    if rank < entry.rank:
        entry.finding, entry.rank = finding, rank


def _add_accounts(run: WatchedRun, report: RankReport) -> None:
    """Add how far a rank has come, how it ended, and how often its watchpoints hit."""
    rank, accounts = report.rank, report.accounts
    run.steps[rank] = max((account.last_step for account in accounts), default=report.last_step)
    if accounts and not any(account.is_over for account in accounts):
        run.not_over.append(rank)
    if len(accounts) > 1:
        run.restarted.append(rank)
    for account in accounts:
        run.world_size = max(run.world_size, account.world_size)
        if account.kept_step is not None:
            run.kept.setdefault(account.kept_step, []).append(rank)
        for number, (amount, tensors, _) in account.counts.items():
            watchpoint = account.watchpoints[number]
            before, most = run.counts.get(watchpoint, (0, 0))
            run.counts[watchpoint] = before + amount, max(most, tensors)
        for watchpoint in account.watchpoints.values():
            if watchpoint not in run.watchpoints and len(run.watchpoints) < rank_hits.MOST_WATCHPOINTS:
                run.watchpoints.append(watchpoint)


def _add_hit(
    run: WatchedRun, hits: dict[tuple[object, ...], SharedHit], rank: int, watchpoint: Watchpoint, hit: RankHit
) -> None:
    line = None if hit.source is None else (hit.source.file, hit.source.line)
    key = (watchpoint.text, str(watchpoint.selection), hit.node, hit.slot, hit.io, line)
    shared = hits.get(key)
    if shared is None:
        if len(hits) >= MOST_GROUPS:
            run.left_out += 1
            return
        shared = hits[key] = SharedHit(watchpoint, hit, rank)
    shared.add(rank, hit)


def _finding_key(finding: Finding) -> tuple[object, ...]:
    """Return what equal findings of ranks have in common; their numbers differ."""
    return finding.rule, finding.message, finding.certainty, tuple(sorted(finding.where.items()))
