"""`tensight export`: a dump's graphs as a workbook, or tensors as one NumPy file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.opening import iterations, numbers
from tensight.cli.options import DumpArgument, Json, Ranks, Steps
from tensight.cli.output import console, count, print_json, print_problems, problem_data
from tensight.errors import InputError, Problem, TensightError

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from tensight.dumps import TensorFile

LONGEST_NAME = 1000
"""Maximum number of characters in the name of a tensor in an archive."""


def export(
    dump: DumpArgument,
    xlsx: Annotated[bool, typer.Option("--xlsx", help="Graphs, operators and source lines as a workbook.")] = False,
    npz: Annotated[bool, typer.Option("--npz", help="Tensors as one .npz file.")] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder to write into.")] = Path(),
    on: Annotated[str, typer.Option("--on", metavar="REGEX", help="With --npz: which nodes.")] = "",
    ranks: Ranks = None,
    steps: Steps = None,
    json: Json = False,
) -> None:
    """Write graphs (--xlsx) or tensors (--npz) into a file for other tools."""
    from rich.markup import escape

    from tensight.dumps import open_dump
    from tensight.graph import text_pattern

    if xlsx == npz:
        raise InputError("say what to export: --xlsx or --npz")
    opened = open_dump(dump)
    problems: list[Problem] = []
    if xlsx:
        from tensight.analysis.workbook import export_workbook

        path = Path(export_workbook(opened, out))
    else:
        pattern = text_pattern(on)
        files = [
            file
            for file in opened.tensors(ranks=numbers(ranks, "--ranks"), iterations=iterations(steps))
            if pattern.search(file.node or file.op_name)
        ]
        path, problems = write_npz(files, out / f"{os.path.basename(os.path.normpath(opened.path))}.npz", opened.path)
    problems = [*opened.problems, *problems]
    if json:
        print_json({"file": str(path), "problems": problem_data(problems)})
        return
    console().print(f"Wrote [bold]{escape(str(path))}[/]")
    print_problems(problems)


def write_npz(files: Sequence[TensorFile], path: Path, dump_path: str) -> tuple[Path, list[Problem]]:
    """Write tensors into one .npz file, one at a time in memory.

    Each is named by its address, or by its file if it has no node or if the node's name is not usable as a file name.

    Parameters
    ----------
    files : sequence of TensorFile
        The tensors.
    path : Path
        The file; it appears only when complete, and never replaces an existing one.
    dump_path : str
        The dump's folder.

    Returns
    -------
    Path, list of Problem
        The file, and the tensors that could not be read.

    Raises
    ------
    InputError
        If there is nothing to write, or the file exists.
    """
    import zipfile

    import numpy as np

    from tensight.dumps import read_tensor

    if not files:
        raise InputError("no tensor matches, so there is nothing to write")
    if path.exists():
        raise InputError(f"{path} exists: move it away or name another folder with --out")
    path.parent.mkdir(parents=True, exist_ok=True)
    part, problems = path.with_suffix(".part"), []
    names: set[str] = set()
    try:
        with zipfile.ZipFile(part, "w", allowZip64=True) as archive:
            for file in files:
                try:
                    values = read_tensor(file)
                except TensightError as error:
                    problems.append(Problem(file.name, str(error)))
                    continue
                name = _member_name(file, dump_path, names)
                names.add(name)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)
        if len(problems) == len(files):
            raise InputError(f"none of {count(len(files), 'tensor')} could be read; the first: {problems[0]}")
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return path, problems


def _member_name(file: TensorFile, dump_path: str, taken: Container[str]) -> str:
    """Return a name for a tensor in an archive that is unique and stays inside the folder it is unpacked to."""
    address = str(file.address or "")
    is_name = address.isprintable() and len(address) <= LONGEST_NAME and ".." not in address.split("/")
    if address and is_name and address not in taken:
        return address
    by_file = f"{file.path.removeprefix(dump_path).strip('/').removesuffix('.npy')}:{file.io}.{file.slot}"
    name = by_file = by_file if by_file.isprintable() else ascii(by_file)[1:-1]
    number = 1
    while name in taken:
        number += 1
        name = f"{by_file} ({number})"
    return name
