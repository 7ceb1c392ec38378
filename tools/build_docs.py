"""Build the documentation site in build/site: `make docs` runs this.

The pages are laid out in build/docs first, as the site has them: those of docs/; those that stand elsewhere in the
project, such as README.md, which is the first page of the site; and the operations and records of the HTTP API. Links
between them are rewritten on the way, so that they work in the repository and on the site. Only the standard library is
needed for that, and any generator that reads mkdocs.yml can go on from there.

Today that is MkDocs, for which every warning is an error: a link or a heading that does not exist, a page that no menu
names, a docstring that cannot be read. What it does not look for is looked for here.
"""

from __future__ import annotations

import ast
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import build_http_reference

ROOT = Path(__file__).resolve().parents[1]
PAGES = Path("build/docs")
SITE = Path("build/site")

ELSEWHERE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "benchmarks/README.md": "figures-by-processor.md",
    "ui/public/icon.svg": "assets/icon.svg",
}
"""What the site has of other folders than docs/, and where."""
HTTP_REFERENCE = "reference/http-operations.md"
PUBLIC = (
    "tensight.analysis",
    "tensight.client",
    "tensight.debugger",
    "tensight.dumps",
    "tensight.mindspore",
    "tensight.search",
    "tensight.sessions.records",
    "tensight.torch",
    "tensight.watchpoints",
)
"""Whose `__all__` the reference must have."""

LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
"""The target of a link within the project, without its heading."""
CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?(https?://[^\s\">]+)")
MISREAD = re.compile(r"^(?:<p>)?(?:[-*] |\d+\. |\|).*", re.MULTILINE)
"""A list or a table that became a paragraph: unlike GitHub, Markdown asks for an empty line before."""
ANCHOR = re.compile(r'id="(tensight[\w.]*)"')


class DocsError(Exception):
    """The site could not be built; the message says what to change."""


def build(root: Path = ROOT) -> None:
    """Build the site.

    Raises
    ------
    DocsError
        Something is wrong with a page; the message has a line for each fault.
    """
    lay_out(root, root / PAGES)
    _run_mkdocs(root)
    found = [*faults(root / SITE), *undocumented(root, root / SITE)]
    if found:
        raise DocsError("\n".join(found))


def lay_out(root: Path, pages: Path) -> None:
    """Write all files of the site but what MkDocs makes.

    Parameters
    ----------
    root : Path
        Of the project.
    pages : Path
        Folder to write into; what is there is removed first.

    Raises
    ------
    DocsError
        A page links to what the site does not have.
    """
    shutil.rmtree(pages, ignore_errors=True)
    places = _places(root)
    broken: list[str] = []
    for source, place in places.items():
        target = pages / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            text = relinked((root / source).read_text(encoding="utf-8"), source, places, broken)
            target.write_text(text, encoding="utf-8")
        else:
            shutil.copyfile(root / source, target)
    if broken:
        raise DocsError("\n".join(broken))
    api = json.loads((root / "ui" / "openapi.json").read_text(encoding="utf-8"))
    (pages / HTTP_REFERENCE).write_text(build_http_reference.page(api), encoding="utf-8")


def relinked(text: str, source: str, places: dict[str, str], broken: list[str]) -> str:
    """Return a page with its links as the site needs them.

    Parameters
    ----------
    text : str
        The page, Markdown.
    source : str
        Its path in the project.
    places : dict of str to str
        Where the site has each file, by its path in the project.
    broken : list of str
        Gets a line for each link to what the site does not have.
    """
    folder = posixpath.dirname(source)
    here = posixpath.dirname(places[source]) or "."

    def on_site(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        if target in places:
            return posixpath.relpath(places[target], here)
        broken.append(f"{source}: {link[1]} is not on the site; link to a page, or name it without a link")
        return link[1]

    # Code is left alone: an index and a call look like a link there.
    pieces: list[str] = []
    end = 0
    for code in CODE.finditer(text):
        pieces += [LINK.sub(on_site, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, LINK.sub(on_site, text[end:])])


def faults(site: Path) -> Iterator[str]:
    """Tell what is loaded from other sites, and which lists and tables were taken for text.

    Parameters
    ----------
    site : Path
        Folder with the site as it was built.
    """
    for page in sorted(site.rglob("*.html")):
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        name = page.relative_to(site).as_posix()
        for loaded in LOADED.findall(text):
            yield f"{name}: loads {loaded}; put it into docs/assets"
        for line in MISREAD.findall(text):
            yield f"{name}: a list or table was taken for text; put an empty line before it: {line[:60]}"


def undocumented(root: Path, site: Path) -> Iterator[str]:
    """Tell which public names the reference lacks.

    Parameters
    ----------
    root : Path
        Of the project.
    site : Path
        Folder with the site as it was built.
    """
    anchors = {anchor for page in site.rglob("*.html") for anchor in ANCHOR.findall(page.read_text(encoding="utf-8"))}
    for module in PUBLIC:
        for name in _public_names(root / "src" / module.replace(".", "/")):
            # `tensight.analysis.query` is a module, too, so its function is there as `tensight.analysis.query.query`.
            if not any(each.startswith(f"{module}.") and each.endswith(f".{name}") for each in anchors):
                yield f"{module}.{name} is not in the reference; give it a docstring, or name it in its page"


def _places(root: Path) -> dict[str, str]:
    """Return where the site has each file, by its path in the project."""
    docs = (path for path in sorted((root / "docs").rglob("*")) if path.is_file())
    examples = (path for path in sorted((root / "examples").glob("*")) if path.is_file())
    return {
        **{path.relative_to(root).as_posix(): path.relative_to(root / "docs").as_posix() for path in docs},
        **{path.relative_to(root).as_posix(): path.relative_to(root).as_posix() for path in examples},
        **ELSEWHERE,
    }


def _run_mkdocs(root: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(root / "mkdocs.yml")]
    # The theme would tell on each build that MkDocs has an end; docs/decisions/42 has what follows.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    mkdocs = subprocess.run(command, check=False, env=environment, stderr=subprocess.PIPE, text=True)
    if mkdocs.returncode:
        # Not `--quiet`: with it MkDocs does not count warnings.
        raise DocsError("".join(line for line in mkdocs.stderr.splitlines(True) if not line.startswith("INFO")))


def _public_names(module: Path) -> list[str]:
    source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    for statement in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(statement.value)
            return names
    raise DocsError(f"{source} has no __all__")


if __name__ == "__main__":
    try:
        build()
    except DocsError as error:
        sys.exit(f"{error}\nThe documentation site was not built.")
