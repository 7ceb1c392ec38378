"""The statistics table of a run of any number of ranks, read from disk by the queries that need it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tensight.analysis.coverage import coverage
from tensight.analysis.statistics_table import RECORDED
from tensight.runs.coverage import merged_coverage
from tensight.runs.rank import PartialResult

if TYPE_CHECKING:
    from tensight.analysis import Analysis
    from tensight.runs.run import Run


@dataclass(frozen=True, slots=True)
class StatisticsQuery:
    """The statistics of all tensors."""

    @property
    def key(self) -> str:
        """Everything on which a result depends besides the rank."""
        return "statistics"

    def compute(self, analysis: Analysis) -> PartialResult:
        """Return the statistics table of a rank, with the number of each ``row``.

        Parameters
        ----------
        analysis : Analysis
            The rank's part of the dump.
        """
        rows = analysis.table()
        every = np.arange(len(rows))
        table = analysis.statistics_table
        about: dict[str, Any] = {
            "inspected": asdict(coverage(table, every, every)),
            "recorded": int(np.count_nonzero(table.rows["state"] == RECORDED)),
            "problems": [asdict(problem) for problem in analysis.problems],
        }
        return PartialResult(about, rows.append_column("row", pa.array(every)))


class RunStatistics:
    """The statistics of all tensors of a run.

    Parameters
    ----------
    run : Run

    Attributes
    ----------
    table : Path
        Parquet file with the statistics table of the ranks, with the number of the ``row`` in its rank.
    where : str
        The condition, in SQL, that a row of the file is one of a rank of the run.
    inspected : Coverage
        What was looked at.
    recorded : int
        Number of tensors of which a device recorded some statistics only.
    problems : list of Problem
    """

    def __init__(self, run: Run) -> None:
        (results,) = run.query(StatisticsQuery())
        about = [results.about[rank] for rank in sorted(results.about)]
        self.table, self.where = results.path, results.where
        self.inspected = merged_coverage([each["inspected"] for each in about])
        self.recorded = sum(each["recorded"] for each in about)
        self.problems = run.problems_with(about)
