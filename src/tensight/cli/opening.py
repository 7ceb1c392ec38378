"""From what a person typed to an open dump, a list of numbers, one tensor."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tensight.errors import InputError

if TYPE_CHECKING:
    from tensight.analysis import Analysis
    from tensight.dumps import Dump, TensorFile

MOST_NUMBERS = 1_000_000
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_TENSOR = re.compile(r"(?P<name>.+?)(?::(?P<io>input|output)?\.?(?P<slot>\d{1,9}))?(?:@(?P<step>\d{1,18}))?")


def numbers(text: str | None, option: str) -> list[int] | None:
    """Return the numbers in a list such as "0,2-4"; None for None.

    Raises
    ------
    InputError
        If the text is no such list; `option` is named.
    """
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = _SPAN.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2]) if match and match[2] else first
        if match is None or last < first or last - first > MOST_NUMBERS:
            raise InputError(f'{option} {text!r}: {part!r} is no number and no range; write for example "0,2-4"')
        found.update(range(first, last + 1))
    return sorted(found)


def iterations(text: str | None) -> list[int] | None:
    """Return which iterations of a dump the steps in a list such as "1,5-9" are; None for None.

    Raises
    ------
    InputError
        If the text is no such list.
    """
    from tensight.graph import iteration_of

    steps = numbers(text, "--steps")
    return None if steps is None else [iteration_of(step) for step in steps]


def open_analysis(dump_path: str, cache_dir: Path | None = None, threads: int | None = None) -> Analysis:
    """Open a dump for questions about its tensors."""
    from tensight.analysis import Analysis
    from tensight.dumps import open_dump

    return Analysis(open_dump(dump_path), cache_dir=cache_dir, threads=threads)


def find_tensor(dump: Dump, text: str, rank: int | None) -> TensorFile:
    """Return the tensor that a person named.

    Parameters
    ----------
    dump : Dump
        Where to look.
    text : str
        A node name, or the end of one, with optional slot and step: ``conv1.weight``, ``Conv2D-op61:0@2``,
        ``Conv2D-op61:input.1@2``; or a full address with rank and graph.
    rank : int, optional
        The rank; the first one by default.

    Raises
    ------
    InputError
        If no tensor or several nodes match, where names that are near are listed; or nobody wrote the tensor.
    """
    match = _TENSOR.fullmatch(text)
    if match is None:
        raise InputError(f"{text!r} names no tensor; write for example conv1.weight:0@2")
    unwritten = set(dump.unwritten_tensors())
    every = (*dump.tensors(), *dump.recorded_tensors(), *unwritten)
    files = [file for file in every if rank is None or file.rank == rank]
    node = _one_node(files, match["name"])
    side, slot = match["io"] or "output", int(match["slot"] or 0)
    mine = [file for file in files if _name(file) == node]
    step = int(match["step"]) if match["step"] else max(file.step for file in mine)
    for file in mine:
        if (file.io, file.slot, file.step) == (side, slot, step):
            if file in unwritten:
                raise InputError(
                    f"{node} leaves output {slot} as memory was, and writes to others, or to parameters only"
                )
            return file
    there = sorted({f"{'' if file.io == 'output' else 'input.'}{file.slot}" for file in mine if file.step == step})
    steps = sorted({file.step for file in mine})
    has = f"slots {', '.join(there)}" if there else f"steps {', '.join(map(str, steps[:20]))}"
    raise InputError(f"{node} has no {side} {slot} at step {step} in this dump; it has {has}")


def _name(file: TensorFile) -> str:
    return file.node if file.node is not None else file.op_name


def _one_node(files: Iterable[TensorFile], wanted: str) -> str:
    """Return the only node whose name is, or ends with, what was typed; a full address names it too."""
    names = sorted({_name(file) for file in files})
    exact = [name for name in names if name == wanted or wanted.endswith(f"/{name}")]
    ends = exact[-1:] or [name for name in names if name.endswith((f"/{wanted}", f".{wanted}"))]
    matches = ends or [name for name in names if wanted in name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise InputError(f"{wanted!r} could be {count_names(matches)}; give more of the name")
    near = difflib.get_close_matches(wanted, names[:5000], n=3, cutoff=0.4)
    raise InputError(f"no dumped tensor is named {wanted!r}" + (f"; similar: {', '.join(near)}" if near else ""))


def count_names(names: list[str], shown: int = 5) -> str:
    """Return a few names and how many more there are."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
