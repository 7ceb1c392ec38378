"""Check that no files of Tensight import one another in a circle, not even for types; `make lint` runs it.

Who reads one file of a circle has to read them all.
"""

from __future__ import annotations

import sys

import grimp

KNOWN: tuple[str, ...] = ()
"""Packages whose circle is known and is to go: a live session holds parts that hold the session."""


def circles(graph: grimp.ImportGraph) -> list[set[str]]:
    """Return the groups of modules of which each imports, over others perhaps, each other."""
    found: list[set[str]] = []
    left = set(graph.modules)
    while left:
        module = left.pop()
        circle = {module} | (graph.find_upstream_modules(module) & graph.find_downstream_modules(module))
        left -= circle
        if len(circle) > 1:
            found.append(circle)
    return found


def main() -> int:
    """Print the circles, and return 1 if there is one that is not known."""
    graph = grimp.build_graph("tensight", cache_dir=None)
    found = [one for one in circles(graph) if not all(module.startswith(KNOWN) for module in one)]
    for circle in found:
        print(f"These files import one another in a circle: {', '.join(sorted(circle))}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
