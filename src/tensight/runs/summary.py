"""The summary of a run of many ranks, each of which is listed on its own."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tensight.dumps.dump import MOST_OPENED
from tensight.errors import DumpError, Problem
from tensight.runs.engines import LostTaskError, engine_named
from tensight.runs.rank import opened_rank

if TYPE_CHECKING:
    from tensight.dumps import Dump


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """The summary of one rank.

    Attributes
    ----------
    run : str
        Identifies the driver's run.
    path : str
        Folder or URL of the dump.
    rank : int
    most_opened : int
        Number of its files to open, to see whether they can be read.
    """

    run: str
    path: str
    rank: int
    most_opened: int


def rank_summary(task: SummaryTask) -> dict[str, Any]:
    """Return the summary of a rank, as `Dump.summary` does; with an empty list of ranks if it cannot be read.

    Parameters
    ----------
    task : SummaryTask
    """
    try:
        return opened_rank(task.run, task.path, task.rank).summary(task.most_opened)
    except DumpError as error:
        return _unreadable(task.rank, str(error))


def run_summary(dump: Dump) -> dict[str, Any]:
    """Return the summary of all ranks of a dump, as `Dump.summary` does.

    Parameters
    ----------
    dump : Dump

    Raises
    ------
    DumpError
        No rank can be read.
    """
    most_opened = max(MOST_OPENED // len(dump.ranks), 1)
    run = uuid.uuid4().hex
    tasks = [SummaryTask(run, dump.path, rank, most_opened) for rank in dump.ranks]
    summaries: dict[int, dict[str, Any]] = {}
    for task, result in engine_named(None, len(tasks)).map(rank_summary, tasks):
        if isinstance(result, LostTaskError):
            summaries[task.rank] = _unreadable(task.rank, str(result))
        else:
            summaries[task.rank] = result
    every = [summaries[rank] for rank in dump.ranks]
    first = next((summary for summary in every if summary["ranks"]), None)
    if first is None:
        raise DumpError(every[0]["problems"][0]["what"])
    problems = (Problem(**problem) for summary in every for problem in summary["problems"])
    return {
        **first,
        "ranks": [rank for summary in every for rank in summary["ranks"]],
        "opened": sum(summary["opened"] for summary in every),
        "problems": [asdict(problem) for problem in dict.fromkeys(problems)],
    }


def _unreadable(rank: int, why: str) -> dict[str, Any]:
    return {"ranks": [], "opened": 0, "problems": [asdict(Problem(f"rank {rank}", why))]}
