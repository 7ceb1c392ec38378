"""Building the documentation site: where its pages are, how their links change, and which faults are found.

MkDocs itself is run by ``make docs``, in an environment of its own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import build_docs
import build_http_reference

ROOT = Path(__file__).parents[1]
PLACES = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "docs/limits.md": "limits.md",
    "docs/how-to/debug.md": "how-to/debug.md",
    "docs/pictures/page.png": "pictures/page.png",
}
API = json.loads((ROOT / "ui" / "openapi.json").read_text())


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the project, as they are laid out for the site."""
    pages = tmp_path_factory.mktemp("pages")
    build_docs.lay_out(ROOT, pages)
    return pages


@pytest.mark.parametrize(
    ("source", "link", "on_site"),
    [
        ("README.md", "docs/limits.md#dumps", "limits.md#dumps"),
        ("README.md", "docs/pictures/page.png", "pictures/page.png"),
        ("docs/limits.md", "how-to/debug.md", "how-to/debug.md"),
        ("docs/how-to/debug.md", "../limits.md", "../limits.md"),
        ("docs/how-to/debug.md", "../../CHANGELOG.md", "../project/changelog.md"),
        ("CHANGELOG.md", "docs/how-to/debug.md", "../how-to/debug.md"),
        ("CHANGELOG.md", "https://semver.org", "https://semver.org"),
        ("CHANGELOG.md", "#unreleased", "#unreleased"),
    ],
)
def test_a_link_leads_to_the_same_page_on_the_site(source: str, link: str, on_site: str) -> None:
    broken: list[str] = []
    assert build_docs.relinked(f"See [there]({link}).", source, PLACES, broken) == f"See [there]({on_site})."
    assert broken == []


def test_code_that_looks_like_a_link_is_left_alone() -> None:
    page = "`rows[0](missing)`\n\n```python\nrows[0](missing)\n```\n"
    broken: list[str] = []
    assert build_docs.relinked(page, "README.md", PLACES, broken) == page
    assert broken == []


def test_a_link_to_what_the_site_does_not_have_is_named() -> None:
    broken: list[str] = []
    build_docs.relinked("[a](docs/limits.md) [b](src/tensight) [c](docs/gone.md)", "README.md", PLACES, broken)
    assert [line.split(" is not")[0] for line in broken] == ["README.md: src/tensight", "README.md: docs/gone.md"]


def test_all_links_of_the_project_lead_to_a_page_of_the_site(pages: Path) -> None:
    links = [
        (page, link[1])
        for page in pages.rglob("*.md")
        for link in build_docs.LINK.finditer(build_docs.CODE.sub("", page.read_text()))
    ]
    assert len(links) > 200
    assert not [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()]


def test_the_menu_names_every_page_once(pages: Path) -> None:
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    named = re.findall(r"[\w/.-]+\.md", menu)
    assert sorted(named) == sorted(page.relative_to(pages).as_posix() for page in pages.rglob("*.md"))


def test_what_is_loaded_from_another_site_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<script src="https://example.org/a.js"></script><a href="https://b.org">b</a>'
    )
    assert [fault.split(";")[0] for fault in build_docs.faults(tmp_path)] == [
        "index.html: loads https://example.org/a.js"
    ]


@pytest.mark.parametrize("line", ["- a list", "2. a list", "| a | table |"])
def test_a_list_or_table_that_was_taken_for_text_is_a_fault(tmp_path: Path, line: str) -> None:
    (tmp_path / "index.html").write_text(f"<pre>\n{line}\n</pre><p>A paragraph:\n{line}</p>")
    (fault,) = build_docs.faults(tmp_path)
    assert fault.endswith(f"{line}</p>")


def test_a_public_name_that_the_reference_lacks_is_a_fault(tmp_path: Path) -> None:
    assert "tensight.torch.debug" in [fault.split(" ")[0] for fault in build_docs.undocumented(ROOT, tmp_path)]
    (tmp_path / "torch.html").write_text('<h2 id="tensight.torch.debug">debug</h2>')
    assert "tensight.torch.debug" not in [fault.split(" ")[0] for fault in build_docs.undocumented(ROOT, tmp_path)]


def test_the_reference_has_every_operation_of_the_api_with_its_parameters() -> None:
    page = build_http_reference.page(API)
    for path, operations in API["paths"].items():
        name = path.removeprefix("/api/v1").replace("{", "&#123;").replace("}", "&#125;")
        for method, operation in operations.items():
            section = page.partition(f"### {method.upper()} {name}\n")[2].partition("\n### ")[0]
            rows = re.findall(r"^\| `([\w-]+)` \| [^|]+", section, re.MULTILINE)
            assert rows == [parameter["name"] for parameter in operation.get("parameters", ())], name
            assert re.findall(r"^\| (\d+) \| ", section, re.MULTILINE) == list(operation["responses"]), name


def test_the_reference_has_every_record_of_the_api_with_its_fields() -> None:
    page = build_http_reference.page(API)
    for name, schema in API["components"]["schemas"].items():
        section = page.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert re.findall(r"^\| `(\w+)` \| [^|]+", section, re.MULTILINE) == list(schema.get("properties", ())), name


def test_a_type_is_told_in_words() -> None:
    page = build_http_reference.page(API)
    assert "| `limit` | integer | `100000` | Maximum number of elements. (at least 1, at most 1,000,000) |" in page
    assert "| `shape` | list of integer or null | none |" in page
    assert "| `statistics` | [Statistics](#statistics) or null |" in page
