"""Findings while a training runs: its facts are judged again and again, and what holds is announced, once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

from tensight.diagnosis.lines import AGAIN, KIND
from tensight.ranks import RankFile
from tensight.sessions.diagnosis import RunFacts, diagnosis_record
from tensight.sessions.live.recording import storing
from tensight.sessions.records.diagnosis import DiagnosisRecord

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from tensight.diagnosis.catalogue import Diagnosis
    from tensight.diagnosis.findings import Finding
    from tensight.diagnosis.rule import Rule
    from tensight.sessions.live.recording import Recording
    from tensight.sessions.records.diagnosis import FindingRecord

FIRST_STEP = 8
"""Nothing is said of a training before this step: much is only so at the beginning."""

EVERY_S = 1.0
"""Minimum interval between two judgements, which also take at most a twentieth of the time."""

_SHARE = 0.05

_Key = tuple[str, str]


class SessionWithFacts(Protocol):
    """The part of a session that its findings need; see `LiveSession`."""

    recording: Recording

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Schedule work that must complete before the session is closed."""

    def announce_findings(self, findings: Sequence[FindingRecord]) -> None:
        """Announce new findings."""


class LiveFindings:
    """The facts and findings of a session.

    What is so in one judgement only, as before a warm-up has ended, is not announced: it must hold in two, with steps
    between them. A training that has ended is judged as it is. Of one that is stopped, perhaps for good, what is
    certain is announced at once.

    Parameters
    ----------
    session : SessionWithFacts
    user_rules : sequence of Rule
        The user's rules, beside ours.

    Attributes
    ----------
    facts : RunFacts
    record : DiagnosisRecord
        What has been announced, as far as it still holds.
    """

    def __init__(self, session: SessionWithFacts, user_rules: Sequence[Rule] = ()) -> None:
        self._session = session
        self.facts = RunFacts(user_rules)
        self.record = DiagnosisRecord()
        self._files: dict[int, RankFile] = {}
        self._before: set[_Key] = set()
        self._before_steps = 0
        self._announced: set[_Key] = set()
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_judging = False
        self._is_settled = True

    def take(self, rank: int, lines: Sequence[bytes]) -> None:
        """Add lines of facts, and write them to the folder of the run. Call it in a thread.

        Raises
        ------
        InputError
            A line is none of facts.
        StorageError
            They cannot be written.
        """
        folder = self._session.recording.folder
        if not self._files:
            # After a restart of the server, the training goes on.
            self.facts.read(folder)
        self.facts.take(rank, lines)
        with storing(folder):
            self._files.setdefault(rank, RankFile(folder, KIND, rank, 0)).write(lines)

    def begin_again(self, rank: int) -> None:
        """Forget the facts of a rank, which another process now has."""
        self.facts.take(rank, [AGAIN])

    def changed(self) -> None:
        """Note that facts have arrived: they are judged soon."""
        self._is_settled = False
        if self._timer is None and not self._is_judging:
            wait_s = max(self._next_s - time.monotonic(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._is_judging = True
        self._session.later(self._judge())

    def stopped(self) -> None:
        """Note that all processes are stopped: no more facts arrive for now."""
        if not self._is_settled:
            self._is_settled = True
            self._session.later(self._judge(is_stopped=True))

    async def judge_ended(self) -> None:
        """Judge the facts of a training that has ended."""
        await self._judge(is_over=True)

    async def _judge(self, *, is_over: bool = False, is_stopped: bool = False) -> None:
        began = time.monotonic()
        try:
            diagnosis = await asyncio.to_thread(self.facts.diagnose)
        finally:
            took_s = time.monotonic() - began
            self._next_s = time.monotonic() + max(EVERY_S, took_s / _SHARE)
            self._is_judging = False
        if diagnosis.steps < FIRST_STEP and not is_over:
            return
        if diagnosis.steps > self._before_steps or is_over or is_stopped:
            self._announce(diagnosis, is_over=is_over, is_stopped=is_stopped)

    def _announce(self, diagnosis: Diagnosis, *, is_over: bool, is_stopped: bool) -> None:
        keyed = [(_key(explained.finding), explained) for explained in diagnosis.findings]
        keys = {key for key, _ in keyed}
        holds = keys if is_over else keys & (self._before | self._announced)
        if is_stopped:
            holds |= {key for key, explained in keyed if explained.finding.certainty == "certain"}
        self._before, self._before_steps = keys, diagnosis.steps
        chosen = [(key, explained) for key, explained in keyed if key in holds]
        self.record = diagnosis_record(diagnosis._replace(findings=[explained for _, explained in chosen]))
        pairs = zip(self.record.findings, chosen, strict=True)
        new = [finding for finding, (key, _) in pairs if key not in self._announced]
        self._announced |= holds
        if new:
            self._session.announce_findings(new)

    def close(self) -> None:
        """Judge no further."""
        if self._timer is not None:
            self._timer.cancel()


def _key(finding: Finding) -> _Key:
    return finding.rule, finding.message
