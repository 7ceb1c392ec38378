"""A comparison of two runs: computed in its own thread, and queried as long as it is kept."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.analysis import Analysis
from tensight.compare.losses import compare_losses
from tensight.compare.runs import Tolerance, compare_runs, first_of_all
from tensight.compare.setups import compare_setups
from tensight.errors import CurveError, TensightError
from tensight.graph.steps import step_of
from tensight.sessions.compared_tensors import ComparedTensors
from tensight.sessions.comparison_errors import StepErrors
from tensight.sessions.comparison_records import ComparisonRecords, loss_record, setup_record
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.garbage import cycle_collector
from tensight.sessions.graph_views import require_page
from tensight.sessions.offline.thread import AnalysisThread, StoppedError
from tensight.sessions.offline.value_memory import TENSOR_BYTES
from tensight.sessions.recorded_losses import recorded_losses
from tensight.sessions.records import (
    AddedErrors,
    ComparedLosses,
    ComparedOperatorPage,
    ComparedRun,
    ComparedSetups,
    ComparedStatistics,
    ComparisonOptions,
    ComparisonRecord,
    ComparisonState,
    UnmatchedPage,
    UnmatchedRow,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from pathlib import Path
    from typing import Literal

    from tensight.compare.runs import Compared, RunComparison
    from tensight.compare.runs.result import ComparedTensor
    from tensight.dumps import Dump
    from tensight.graph import TensorAddress
    from tensight.sessions.compared_tensors import ComparedView
    from tensight.sessions.offline.value_memory import ValueMemory
    from tensight.sessions.records import RankComparison
    from tensight.sessions.records.comparing import ComparedPhase, Side
    from tensight.tensors.views import View

PAIR_BYTES = 4000
"""Bytes that a compared pair of operators takes, with the differences of its tensors; measured."""

ANNOUNCE_EVERY_S = 0.5
"""Seconds between two announcements of progress."""

_MOST_STEP_ERRORS = 4
"""Steps and sides whose added errors are kept by scope."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ChosenRun:
    """A run that was chosen to be compared.

    Attributes
    ----------
    record : ComparedRun
    identity : tuple
        Equal for two choices of the same run in the same state.
    folder : Path
        Contains the losses that the training reported.
    open : callable
        Opens its dump; for a stopped training, with what has arrived so far.
    session_of : callable
        Returns the id of the session that has it open, if any.
    """

    record: ComparedRun
    identity: tuple[object, ...]
    folder: Path
    open: Callable[[], Awaitable[Dump]]
    session_of: Callable[[], str | None]

    def record_now(self, problem: str) -> ComparedRun:
        """Return the run with the session that has it open, and with what could not be read."""
        note = " ".join(filter(None, (self.record.note, problem)))
        return self.record.model_copy(update={"session": self.session_of(), "note": note})


@dataclass(frozen=True)
class OperatorChoice:
    """Selection and order of the listed pairs of operators.

    Attributes
    ----------
    step : int or None
        From 1; None for all compared steps.
    phase : {"forward", "backward", "update"} or None
    query : str
        Words, each part of the name in either run or of the type, case-insensitive; all must match.
    name : str
        Exact name in A; empty for all.
    only : {"all", "different", "divergent"}
    sort : {"position", "added", "relative", "name"}
    descending : bool
        Pairs without a value come last either way.
    """

    step: int | None = None
    phase: ComparedPhase | None = None
    query: str = ""
    name: str = ""
    only: Literal["all", "different", "divergent"] = "all"
    sort: Literal["position", "added", "relative", "name"] = "position"
    descending: bool = False


class Comparison:
    """A comparison of two runs. Not thread-safe: use it from the event loop's thread only.

    Parameters
    ----------
    number : str
    a, b : ChosenRun
    options : ComparisonOptions
    memory : ValueMemory
        Shared with all sessions on dumps.
    announce : callable
        Called with the comparison when something changes that clients show.

    Attributes
    ----------
    id : str
    key : tuple
        Equal for comparisons of the same runs with the same options.
    state : ComparisonState
    """

    def __init__(
        self,
        number: str,
        a: ChosenRun,
        b: ChosenRun,
        options: ComparisonOptions,
        *,
        memory: ValueMemory,
        announce: Callable[[Comparison], None],
    ) -> None:
        self.id = number
        self.key = (a.identity, b.identity, options.model_dump_json())
        self.state = ComparisonState.WAITING
        self._chosen = a, b
        self._options = options
        self._memory = memory
        self._announce = announce
        self._created = time.time()
        self._message = ""
        self._progress = ("waiting for another comparison", 0, 0)
        self._announced = 0.0
        self._stop = threading.Event()
        self._thread = AnalysisThread(self._report)
        self._held_bytes = 0
        self._sides: tuple[Analysis, Analysis] | None = None
        self._results: dict[int, RunComparison] = {}
        self._ranks: tuple[RankComparison, ...] = ()
        self._step_errors: dict[tuple[int, int, Side], StepErrors] = {}
        self._tensors: ComparedTensors | None = None
        self._problems: dict[str, str] = {}

    def record(self) -> ComparisonRecord:
        """Return a summary of the comparison."""
        what, done, total = self._progress if self.state.is_unfinished else ("", 0, 0)
        first = first_of_all(list(self._results.values())) if self._results else None
        rank = next((entry for entry in self._ranks if first is not None and entry.rank == first.rank), None)
        return ComparisonRecord(
            id=self.id,
            created=self._created,
            a=self._chosen[0].record_now(self._problems.get("A", "")),
            b=self._chosen[1].record_now(self._problems.get("B", "")),
            options=self._options,
            state=self.state,
            message=self._message,
            what=what,
            done=done,
            total=total,
            verdict=None if rank is None else rank.verdict,
            sentence="" if rank is None else rank.sentence,
            ranks=self._ranks,
        )

    # --- comparing ---

    async def compare(self) -> None:
        """Read both runs and compare them; a failure sets the state and its message."""
        try:
            self._change(ComparisonState.RUNNING)
            self._sides = await self._read("A", self._chosen[0]), await self._read("B", self._chosen[1])
            most = await self._thread.run(
                "comparing", lambda: min(map(self._operators_of, self._required())), self._stop
            )
            self._hold(PAIR_BYTES * most)
            results = await self._thread.run("comparing", lambda: self._compared(self._required()), self._stop)
            self._release(PAIR_BYTES * (most - sum(len(step.compared) for result in results for step in result.steps)))
            records = ComparisonRecords(*self._sides)
            self._ranks = await self._thread.run("comparing", lambda: tuple(map(records.rank, results)))
            self._results = {result.rank: result for result in results}
            self._change(ComparisonState.DONE)
        except StoppedError:
            pass  # closed meanwhile
        except TensightError as error:
            self._fail(str(error))
        except Exception as error:
            _log.exception("comparison %s failed", self.id)
            self._fail(f"the comparison failed ({type(error).__name__}); see the server's log")

    async def _read(self, letter: str, run: ChosenRun) -> Analysis:
        what = f"reading {letter}"
        self._report(what, 0, 0)
        dump = await run.open()
        analysis = Analysis(dump, progress=self._thread.progress)
        files = await self._thread.run(what, lambda: len(analysis.statistics_table.files), self._stop)
        self._hold(files * TENSOR_BYTES)
        await self._thread.run(what, analysis.statistics, self._stop)
        problems = await self._thread.run(what, lambda: analysis.problems)
        if problems:
            more = f" ({len(problems) - 1:,} more)" if len(problems) > 1 else ""
            self._problems[letter] = f"Not all of {run.record.title} can be used: {problems[0]}{more}."
        return analysis

    def _operators_of(self, side: Analysis) -> int:
        """Return the number of operator outputs of a side in the compared steps."""
        steps = None if self._options.steps is None else set(self._options.steps)
        return sum(
            file.io == "output" and file.op_type != "Parameter" and (steps is None or file.step in steps)
            for file in side.statistics_table.files
        )

    def _compared(self, sides: tuple[Analysis, Analysis]) -> list[RunComparison]:
        options = self._options
        return compare_runs(
            *sides,
            ranks=options.ranks,
            steps=options.steps,
            tolerance=Tolerance(options.rtol, options.atol, options.tolerances, {}),
            mapping=options.mapping,
            exact=options.exact,
            progress=self._thread.progress,
        )

    def _hold(self, size_bytes: int) -> None:
        self._memory.hold(size_bytes, f"comparison {self.id}")
        self._held_bytes += size_bytes

    def _release(self, size_bytes: int) -> None:
        size_bytes = max(0, min(size_bytes, self._held_bytes))
        self._memory.release(size_bytes)
        self._held_bytes -= size_bytes

    def _report(self, what: str, done: int, total: int) -> None:
        self._progress = what, done, total
        now = time.monotonic()
        if self.state.is_unfinished and now - self._announced >= ANNOUNCE_EVERY_S:
            self._announced = now
            self._announce(self)

    def _change(self, state: ComparisonState, message: str = "") -> None:
        if self.state is not ComparisonState.CLOSED:
            self.state, self._message = state, message
            self._announce(self)

    def _fail(self, message: str) -> None:
        self._let_go()
        self._change(ComparisonState.FAILED, message)

    def close(self) -> None:
        """Cancel the comparison and release both runs."""
        self._stop.set()
        self._thread.close()
        self._change(ComparisonState.CLOSED)
        self._let_go()

    def _let_go(self) -> None:
        self._memory.forget(self._owner)
        self._release(self._held_bytes)
        self._sides, self._tensors = None, None
        self._results, self._ranks, self._step_errors = {}, (), {}
        cycle_collector.collect_soon()

    @property
    def _owner(self) -> str:
        return f"comparison {self.id}"

    def _required(self) -> tuple[Analysis, Analysis]:
        if self._sides is None:
            raise StateError(f"comparison {self.id} is {self.state.value}; compare the runs again")
        return self._sides

    def _result(self, rank: int | None) -> RunComparison:
        """Return the comparison of a rank, by default of the first.

        Raises
        ------
        StateError
            The comparison is not done.
        NotFoundError
            The rank was not compared.
        """
        if self.state is not ComparisonState.DONE:
            raise StateError(self._message or f"the comparison is {self.state.value}; events say when it is done")
        result = self._results[min(self._results)] if rank is None else self._results.get(rank)
        if result is None:
            raise NotFoundError(f"rank {rank} was not compared; compared: {', '.join(map(str, self._results))}")
        return result

    # --- results ---

    async def operators(
        self, rank: int | None, choice: OperatorChoice, offset: int, limit: int
    ) -> ComparedOperatorPage:
        """Return a page of the pairs of operators."""
        require_page(offset, limit)
        result, records = self._result(rank), ComparisonRecords(*self._required())

        def page() -> ComparedOperatorPage:
            pairs = _ordered(_chosen(result, choice), choice)
            rows = tuple(records.operator(compared, step) for step, compared in pairs[offset : offset + limit])
            first = next((position for position, (_, compared) in enumerate(pairs) if compared is result.first), None)
            return ComparedOperatorPage(total=len(pairs), offset=offset, first=first, rows=rows)

        return await self._thread.run("listing operators", page)

    async def unmatched(
        self,
        rank: int | None,
        side: Side,
        kind: Literal["all", "operators", "parameters"],
        query: str,
        offset: int,
        limit: int,
    ) -> UnmatchedPage:
        """Return a page of the operators and parameters that only one run has, in the last compared step."""
        require_page(offset, limit)
        matching = self._result(rank).matching
        operators = matching.only_a if side == "a" else matching.only_b
        parameters = matching.parameters_only_a if side == "a" else matching.parameters_only_b
        words = query.lower().split()

        def rows() -> Iterable[UnmatchedRow]:
            for op in operators if kind != "parameters" else ():
                yield UnmatchedRow(name=op.name, kind="operator", type=op.type, phase=op.phase.value)
            for name in parameters if kind != "operators" else ():
                yield UnmatchedRow(name=name, kind="parameter")

        listed_rows = [row for row in rows() if _has(words, f"{row.name} {row.type}")]
        return UnmatchedPage(total=len(listed_rows), offset=offset, rows=tuple(listed_rows[offset : offset + limit]))

    async def added_errors(self, rank: int | None, step: int | None, side: Side, scopes: Sequence[str]) -> AddedErrors:
        """Return the added errors of the entries directly below some scopes, in one step."""
        result = self._result(rank)
        compared = {step_of(compared_step.iteration): compared_step.compared for compared_step in result.steps}
        if result.step is not None and result.tensors:
            # The inputs of the step differ, so none of its operators was compared.
            compared.setdefault(result.step, [])
        if step is None:
            step = result.step if result.step in compared else max(compared, default=0)
        if step not in compared:
            raise NotFoundError(f"step {step} was not compared; compared: {_span(compared)}")
        key = (result.rank, step, side)
        errors = self._step_errors.get(key)
        if errors is None:
            pairs, tensors, is_last = compared[step], _given(result, step, min(compared)), step == max(compared)
            errors = await self._thread.run(
                "adding up errors", lambda: StepErrors(pairs, tensors, result.matching, side, is_last=is_last)
            )
            self._step_errors[key] = errors
            while len(self._step_errors) > _MOST_STEP_ERRORS:
                del self._step_errors[next(iter(self._step_errors))]
        return AddedErrors(rank=result.rank, step=step, largest=errors.largest, scopes=tuple(map(errors.below, scopes)))

    async def view(
        self, a: TensorAddress, b: TensorAddress | None, view: View, which: Literal["a", "b", "difference"]
    ) -> ComparedView:
        """Return a slice or picture of a tensor of A, of its counterpart in B, or of B minus A.

        Raises
        ------
        NotFoundError, UnavailableError
            See `Session.value`.
        InputError
            The two cannot be subtracted.
        """
        return await asyncio.to_thread((await self._compared_tensors()).view, a, b, view, which)

    async def statistics(self, a: TensorAddress, b: TensorAddress | None, slice_: str) -> ComparedStatistics:
        """Return the statistics of two tensors and of their difference."""
        return await asyncio.to_thread((await self._compared_tensors()).statistics, a, b, slice_)

    async def _compared_tensors(self) -> ComparedTensors:
        self._result(None)
        if self._tensors is None:
            sides, results = self._required(), list(self._results.values())
            self._tensors = await self._thread.run(
                "listing tensors", lambda: ComparedTensors(sides, results, self._memory, self._owner)
            )
        return self._tensors

    async def losses(self, rank: int | None, points: int) -> ComparedLosses:
        """Return both loss curves, and the likely cause of their difference."""
        number, sides = self._result(rank).rank, self._required()

        def compared() -> ComparedLosses:
            curves = []
            for analysis, chosen in zip(sides, self._chosen, strict=True):
                try:
                    curve = recorded_losses(analysis.dump, chosen.record.title, rank=number, folder=chosen.folder)
                except CurveError as error:
                    return ComparedLosses(verdict="not comparable", divergence="not_comparable", sentence=str(error))
                curves.append(curve)
            return loss_record(compare_losses(*curves), points)

        return await self._thread.run("reading the losses", compared)

    async def setups(self) -> ComparedSetups:
        """Return the differences between the set-ups of the two trainings."""
        self._result(None)
        setups = []
        for analysis, chosen in zip(self._required(), self._chosen, strict=True):
            setup = analysis.dump.setup
            if setup is None:
                sentence = f"{chosen.record.title} has no description of its set-up."
                return ComparedSetups(verdict="not comparable", sentence=sentence)
            setups.append(setup)
        return setup_record(await asyncio.to_thread(compare_setups, *setups))


def _given(result: RunComparison, step: int, first: int) -> list[ComparedTensor]:
    """Return the weights and inputs that were compared before a step."""
    tensors = [*result.weights, *result.data] if step == first else []
    names = {tensor.name_a for tensor in tensors}
    return tensors + [tensor for tensor in result.tensors if step == result.step and tensor.name_a not in names]


def _chosen(result: RunComparison, choice: OperatorChoice) -> list[tuple[int, Compared]]:
    words = choice.query.lower().split()
    pairs = []
    for step in result.steps:
        number = step_of(step.iteration)
        if choice.step not in (None, number):
            continue
        for compared in step.compared:
            pair = compared.pair
            if choice.phase is not None and pair.a.phase.value != choice.phase:
                continue
            if choice.name not in ("", pair.a.name):
                continue
            if choice.only == "divergent" and not compared.is_divergent:
                continue
            if choice.only == "different" and compared.is_bit_equal:
                continue
            if _has(words, f"{pair.a.name} {pair.b.name} {pair.a.type}"):
                pairs.append((number, compared))
    return pairs


def _ordered(pairs: list[tuple[int, Compared]], choice: OperatorChoice) -> list[tuple[int, Compared]]:
    if choice.sort == "position":
        return pairs[::-1] if choice.descending else pairs
    if choice.sort == "name":
        return sorted(pairs, key=lambda entry: entry[1].pair.a.name, reverse=choice.descending)

    def value(compared: Compared) -> float:
        if choice.sort == "added":
            return compared.added
        return float("nan") if compared.worst is None else compared.worst[1].relative

    with_value = [entry for entry in pairs if value(entry[1]) == value(entry[1])]
    without_value = [entry for entry in pairs if value(entry[1]) != value(entry[1])]
    return sorted(with_value, key=lambda entry: value(entry[1]), reverse=choice.descending) + without_value


def _has(words: Sequence[str], text: str) -> bool:
    lower = text.lower()
    return all(word in lower for word in words)


def _span(steps: Iterable[int]) -> str:
    ordered = sorted(steps)
    if not ordered:
        return "none"
    return str(ordered[0]) if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"
