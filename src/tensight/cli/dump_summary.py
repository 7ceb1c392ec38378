"""The summary of a dump for `tensight info`.

It is often the first command of a user, and short. Plain command lines are parsed here, because importing the library
that parses the options of all commands takes as long as everything else.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tensight.cli.output import console, count, print_json, print_problems, size, spans, table, unwritten_text
from tensight.errors import Problem
from tensight.ranks import FEW_RANKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tensight.dumps import Dump

SUMMARY_FILE = "summary.json"
SUMMARY_FORMAT = 8
"""Increased when the meaning of the summary changes, so that older cached ones are ignored."""


def info_plainly(arguments: Sequence[str]) -> bool:
    """Print the summary of a dump if the command line is plain; return whether it was.

    Parameters
    ----------
    arguments : sequence of str
        Arguments after `tensight info`.
    """
    from tensight.cache import CACHE_VARIABLE

    dumps: list[str] = []
    json, cache_dir = False, os.environ.get(CACHE_VARIABLE) or None
    words = iter(arguments)
    for word in words:
        if word == "--json":
            json = True
        elif word == "--cache-dir":
            cache_dir = next(words, None)
            if not cache_dir:
                return False
        elif word.startswith("-"):
            return False
        else:
            dumps.append(word)
    if len(dumps) != 1:
        return False
    print_info(dumps[0], json=json, cache_dir=cache_dir)
    return True


def print_info(dump: str, *, json: bool, cache_dir: str | os.PathLike[str] | None) -> None:
    """Print the summary of a dump.

    Parameters
    ----------
    dump : str
        Folder or URL.
    json : bool
        Print JSON instead of text.
    cache_dir : path, optional
        Folder for derived data; by default the user's cache folder.

    Raises
    ------
    DumpError
        The dump cannot be read.
    """
    from tensight.cache import cache_for
    from tensight.dumps import open_dump

    opened = open_dump(dump)
    cache = cache_for(opened.path, cache_dir)
    fingerprint = [SUMMARY_FORMAT, opened.fingerprint()]
    summary: Any = cache.read_json(SUMMARY_FILE, fingerprint)
    if summary is None:
        summary = _summary_of(opened)
        cache.write_json(SUMMARY_FILE, fingerprint, summary)
    if json:
        print_json(summary)
        return
    _print_summary(console(), summary)
    print_problems([Problem(**entry) for entry in summary["problems"]])


def _summary_of(dump: Dump) -> dict[str, Any]:
    if len(dump.ranks) <= FEW_RANKS:
        return dump.summary()
    from tensight.runs.summary import run_summary

    return run_summary(dump)


def _print_summary(out: Console, summary: dict[str, Any]) -> None:
    from rich.markup import escape

    from tensight.frameworks import name_of

    ranks = summary["ranks"]
    out.print(f"[bold]{escape(summary['path'])}[/]")
    framework = name_of(summary["framework"])
    version, device = (summary[name] or "?" for name in ("framework_version", "device_target"))
    # msprobe records neither version nor device.
    machine = framework if summary["tool"] else f"{framework} {version} on {device}"
    out.print(f"  {escape(f'{machine}, {_kind(summary)}')}")
    files, total = sum(rank["files"] for rank in ranks), sum(rank["bytes"] for rank in ranks)
    out.print(f"  {count(files, 'file')}, {size(total)}, {count(len(ranks), 'rank')}")
    tensors = sum(rank["tensors"] for rank in ranks)
    if summary["opened"] < tensors:
        opened = f"the last {summary['opened']:,} were" if summary["opened"] else "none was"
        out.print(f"  [dim]{opened} opened to see whether they can be read[/]")
    recorded = sum(rank["recorded"] for rank in ranks)
    if recorded:
        source = "dump.json" if summary["tool"] == "msprobe" else "statistic.csv"
        what = f"with recorded statistics only ({source})"
        if summary["traces"]:
            what = "in all steps, with statistics and content hashes"
        out.print(f"  {count(recorded, 'tensor')} {what}, without values")
    unwritten = sum(rank["unwritten"] for rank in ranks)
    if unwritten:
        out.print(f"  {unwritten_text(unwritten)}")
    unmatched = sum(rank["unmatched"] for rank in ranks)
    if unmatched:
        out.print(f"  [yellow]{count(unmatched, 'file')} without a node of the graph[/]")
    title = "rank" if len(ranks) == 1 else "ranks"
    rows = table(title, "graph", "operators", "parameters", "steps", "executed", right=("operators", "parameters"))
    # Ranks that run the same graphs in the same steps share a row.
    alike: dict[tuple[str, str, str, str, str], list[int]] = {}
    for rank in ranks:
        for graph in rank["graphs"]:
            dumped = rank["steps"].get(str(graph["graph_id"]), [])
            executed = (
                None if rank["executed_steps"] is None else rank["executed_steps"].get(str(graph["graph_id"]), [])
            )
            cells = (
                escape(graph["name"]),
                f"{graph['operators']:,}",
                f"{graph['parameters']:,}",
                spans(dumped) if graph["root_id"] == graph["graph_id"] else f"in graph {graph['root_id']}",
                "not recorded" if executed is None else spans(executed),
            )
            alike.setdefault(cells, []).append(rank["rank"])
    for cells, numbers in alike.items():
        rows.add_row(spans(numbers), *cells)
    out.print(rows)


def _kind(summary: dict[str, Any]) -> str:
    sides = _sides(summary["input_output"])
    if summary["tool"]:
        return f"dump of {summary['tool']}"
    if summary["traces"]:
        return f"trace of {'operators' if summary['traces'] == 'ops' else 'calls of modules'}"
    if summary["by_agent"]:
        return f"recording of {sides}"
    kind = "synchronous" if summary["synchronous"] else "asynchronous"
    return f"{kind} dump of {sides}, network {summary['net_name'] or '?'}"


def _sides(input_output: int) -> str:
    return {0: "inputs and outputs", 1: "inputs", 2: "outputs"}.get(input_output, "tensors")
