"""`tensight info`: a summary of a dump."""

from __future__ import annotations

from tensight.cli.dump_summary import print_info
from tensight.cli.options import CacheDir, DumpArgument, Json


def info(dump: DumpArgument, json: Json = False, cache_dir: CacheDir = None) -> None:
    """Show what a dump contains: framework, graphs, ranks, steps, files."""
    print_info(dump, json=json, cache_dir=cache_dir)
