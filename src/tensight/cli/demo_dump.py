"""The demo without PyTorch: analyse the faulty training run that is shipped with the package."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from importlib import resources
from pathlib import Path

from tensight.cli.output import console

SCRIPT = "sick_network.py"


def show_dump(cache_dir: Path | None) -> None:
    """Check a shipped run of MindSpore 2.10 in which training went wrong, and name the origin and its line of code."""
    from rich.markup import escape

    from tensight.cache import cache_root
    from tensight.cli.check import print_results, watchpoints_from
    from tensight.cli.origin import print_origin
    from tensight.runs.checking import RunCheck
    from tensight.runs.origins import RunOrigins
    from tensight.runs.run import Run

    out = console()
    run = unpack((cache_dir or cache_root()) / "demo")
    shown = escape(str(run))
    out.print(
        f"[dim]A small convolutional network trained for four steps; MindSpore dumped its tensors to[/] {shown}\n"
    )
    opened = Run(run, cache_dir=cache_dir)
    out.print("[bold reverse] tensight check [/] what is wrong\n")
    print_results(RunCheck(opened, watchpoints_from((), (), recommended=True)), limit=3)
    out.print("\n[bold reverse] tensight origin [/] where it began\n")
    searched = RunOrigins(opened)
    for group in searched.groups:
        print_origin(out, searched, group, source_root=str(run))
    out.print(
        f'Try it yourself:  tensight origin {shown}\n                  tensight check {shown} --watch "TL(max_gt=1e3)"'
    )


def unpack(folder: Path) -> Path:
    """Unpack the shipped run below a folder, once for each version, and return its path."""
    shipped = resources.files("tensight") / "demo_run"
    archive = (shipped / "run.zip").read_bytes()
    target = folder / hashlib.sha256(archive).hexdigest()[:12]
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix="unpacking-"))
    try:
        with resources.as_file(shipped / "run.zip") as path, zipfile.ZipFile(path) as zipped:
            zipped.extractall(temporary)
        (temporary / SCRIPT).write_bytes((shipped / f"{SCRIPT}.txt").read_bytes())
        temporary.rename(target)
    except OSError:
        # Another process may have unpacked it first.
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target
