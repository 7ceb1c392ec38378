"""The facts of a recorded training as tables, for SQL beside the statistics table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.facts import SCHEMA
from tensight.diagnosis.lines import read_folder

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


def facts_tables(folder: Path) -> dict[str, pa.Table]:
    """Return the tables of facts that a training has written to a folder.

    Parameters
    ----------
    folder : Path
        A recording, a trace, or the folder of a run in the workspace.

    Returns
    -------
    dict of str to pyarrow.Table
        By subject, each with the columns ``rank`` and ``step`` before the facts; unknown numbers and counts are null.

    Raises
    ------
    InputError
        A file is damaged.
    """
    import pyarrow as pa

    runs = read_folder(folder)
    tables = {}
    for subject, schema in SCHEMA.items():
        columns = {
            "rank": np.concatenate([np.full(len(facts[subject]), facts.rank) for facts in runs] or [np.zeros(0, int)]),
            "step": np.concatenate([facts[subject]["step"] for facts in runs] or [np.zeros(0, int)]),
        }
        for fact in schema:
            values = np.concatenate([facts[subject][fact.name] for facts in runs] or [np.zeros(0)])
            unknown = values == -1 if fact.kind == "count" else np.zeros(len(values), np.bool_)
            if fact.kind == "number":
                unknown = np.isnan(values.astype(np.float64))
            columns[fact.name] = pa.array(values, mask=unknown)
        tables[subject] = pa.table(columns)
    return tables
