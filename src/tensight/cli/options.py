"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DumpArgument = Annotated[
    str, typer.Argument(metavar="DUMP", help="Folder or URL of a dump (the one with rank_0 in it).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a report that a browser shows, one file.")
]
Rules = Annotated[
    Path | None, typer.Option("--rules", metavar="FILE", help="Rules of your own: a Python file, which is run.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        envvar="TENSIGHT_CACHE_DIR",
        help="Where to keep results for the next time. Default: the user's cache folder.",
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, max=1024, help="Threads that read. Default: all cores.")
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Where ranks are read: threads, processes, ray, ray://HOST:PORT, dask://HOST:PORT. Default: by number.",
    ),
]
Ranks = Annotated[str | None, typer.Option("--ranks", metavar="0,2-4", help="Only these ranks.")]
Steps = Annotated[str | None, typer.Option("--steps", metavar="1,5-9", help="Only these steps; the first is step 1.")]
Workspace = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Folder of a server's data; one server for each. (default ~/tensight)"),
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Settings of the server, TOML. (default tensight.toml in the workspace)"),
]
