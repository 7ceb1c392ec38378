"""Find traces: ``rank_0.trace``, one file for each rank."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tensight.dumps.reader import Layout, LocatedRank, RankReader
from tensight.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.dumps.storage import Storage

TRACE_NAME = re.compile(r"rank_(\d{1,9})\.trace", re.ASCII)


def _may_be_traces(folders: Sequence[str], files: Sequence[str]) -> bool:  # noqa: ARG001
    return any(map(TRACE_NAME.fullmatch, files))


def _find_traces(storage: Storage, problems: list[Problem]) -> tuple[LocatedRank, ...]:
    """Return the ranks that have a trace in a folder; see `Layout.find`."""
    listing = storage.list_folder("")
    problems.extend(
        Problem(name, "leads out of the dump; it is not followed", "put the file itself there, or name its target")
        for name in listing.refused
        if TRACE_NAME.fullmatch(name)
    )
    problems.extend(
        Problem(name, "is a folder in place of a file", "it is not read")
        for name in listing.folders
        if TRACE_NAME.fullmatch(name)
    )
    matches = (TRACE_NAME.fullmatch(file.name) for file in listing.files)
    return tuple(_located(storage, int(match[1]), match[0]) for match in matches if match is not None)


def _located(storage: Storage, rank: int, path: str) -> LocatedRank:
    def opened(_: bool) -> RankReader:
        # Importing it imports NumPy, which small commands on other dumps do not need.
        from tensight.dumps.trace_rank import TraceRank

        return TraceRank(storage, rank, path)

    return LocatedRank(rank, path, opened)


TRACES = Layout("Tensight (traces)", _may_be_traces, _find_traces)
