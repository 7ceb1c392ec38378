"""Every command, option and environment variable is documented."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest

import tensight
from tensight.agents.core.settings import AgentSettings
from tensight.cli import app as cli
from tensight.cli.diagnosis.probes import STATEMENTS

ROOT = Path(__file__).parents[1]
COMMANDS = {
    " ".join(words): command
    for name, entry in cli.command_line.commands.items()  # type: ignore[attr-defined]
    for words, command in (
        [((name, inner), command) for inner, command in entry.commands.items()]
        if hasattr(entry, "commands")
        else [((name,), entry)]
    )
} | {"check checkpoint": cli.command_of("compare_checkpoints.checkpoint")}
PAGE = (ROOT / "docs" / "reference" / "commands.md").read_text()


def section(name: str) -> str:
    match = re.search(rf"^## tensight {re.escape(name)}\b.*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return match[0] if match else ""


SHARED = PAGE.partition("## tensight")[0]
SERVER_PAGE = (ROOT / "docs" / "reference" / "server.md").read_text()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_is_documented(name: str) -> None:
    text = section(name)
    assert text, f"docs/reference/commands.md has no section on tensight {name}"
    shown = [parameter for parameter in COMMANDS[name].params if not getattr(parameter, "hidden", False)]
    options = [option for parameter in shown for option in parameter.opts if option.startswith("-")]
    elsewhere = SHARED + (SERVER_PAGE if name == "start" else "")
    missing = [option for option in options if f"`{option}" not in text + elsewhere]
    assert not missing


@pytest.mark.parametrize("option", re.findall(r"^\| `(--[a-z-]+)[^|]*\|[^|]*\| `", SHARED, re.MULTILINE))
def test_the_commands_that_share_an_option_are_named(option: str) -> None:
    (row,) = (line for line in SHARED.splitlines() if re.match(rf"\| `{option}[ `]", line))
    named = set(re.findall(r"`([a-z -]+)`", row.rpartition("|")[0].rpartition("|")[2]))
    having = {name for name in COMMANDS if any(option in parameter.opts for parameter in COMMANDS[name].params)}
    assert named == {name for name in having if f"| `{option}" not in section(name)}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_list_of_commands_has_the_summary_of_each(name: str) -> None:
    entry = cli.COMMANDS[name]
    assert COMMANDS[name].help.splitlines()[0] == entry.summary
    assert cli.command_line.commands[name].context_settings.get("allow_interspersed_args", True) != entry.script_last


def test_no_documented_command_is_missing() -> None:
    assert set(re.findall(r"^## tensight ((?:compare |check )?[a-z-]+)", PAGE, re.MULTILINE)) == set(COMMANDS)


def test_every_environment_variable_is_documented() -> None:
    from tensight.server.settings import Settings, variable_name

    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    settings = {variable_name(field) for field in Settings.model_fields}
    others = set(re.findall(r"\bTENSIGHT_[A-Z_]+\b", sources)) - settings
    assert others
    documented = set(re.findall(r"`(TENSIGHT_[A-Z_]+)`", PAGE.partition("## Environment variables")[2]))
    assert others == documented - settings
    assert settings <= set(re.findall(r"`(TENSIGHT_[A-Z_]+)`", SERVER_PAGE))


def test_no_variable_means_one_thing_to_the_server_and_another_to_a_training() -> None:
    from tensight.agents.core.settings import _VARIABLES
    from tensight.server.settings import Settings, variable_name

    of_trainings = {name for names in _VARIABLES.values() for name in names}
    read_by_both = {variable_name(field) for field in Settings.model_fields} & of_trainings
    assert read_by_both == {"TENSIGHT_HOST", "TENSIGHT_DEBUGGER_HOST", "TENSIGHT_DEBUGGER_PORT", "TENSIGHT_RULES"}


def test_every_setting_of_the_server_is_documented_with_its_key_and_default() -> None:
    from tensight.server.settings import Settings

    rows = "".join(line for line in SERVER_PAGE.splitlines(keepends=True) if line.startswith("| `--"))
    for field, info in Settings.model_fields.items():
        line = next((line for line in rows.splitlines() if f"`{field}`" in line), "")
        assert line, f"docs/reference/server.md has no row with the key {field}"
        default = {"summary_base_dir": ".", "debugger_host": "--host"}.get(field) or str(info.default).lower()
        assert (
            "| none |" in line
            if info.default in ("", None, ()) and field != "debugger_host"
            else f"`{default}`" in line
        )


def test_documented_keys_are_those_of_the_page() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "ui" / "src").rglob("*.ts*"))
    offered = {
        " ".join({"mod": "Ctrl"}.get(key, key[:1].upper() + key[1:]) for key in keys.split("+"))
        for keys in re.findall(r"keys: '([^']+)'", sources)
    }
    assert {"F8", "Ctrl K", "Alt Shift T"} <= offered
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        named = set(re.findall(r"`((?:(?:Ctrl|Alt|Shift) )+\S+|F\d+)`", path.read_text())) - {"F5"}
        assert named <= offered, f"{path.name} names keys that do nothing: {named - offered}"


def test_every_endpoint_of_the_api_is_documented_with_its_parameters(tmp_path: Path) -> None:
    from starlette.routing import WebSocketRoute

    from tensight.server.http import create_http_app
    from tensight.server.http_settings import HttpSettings
    from tensight.server.routes import events
    from tensight.sessions.registry import Sessions
    from tensight.sessions.workspace import Workspace

    page = (ROOT / "docs" / "reference" / "http-api.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(("| `GET", "| `P", "| `DELETE", "| `WS"))]
    api = create_http_app(Sessions(Workspace(tmp_path), None), settings=HttpSettings()).openapi()
    described = {
        f"`{method.upper()} {path.removeprefix('/api/v1')}`": operation
        for path, operations in api["paths"].items()
        for method, operation in operations.items()
    }
    streams = [route.path for route in events.router.routes if isinstance(route, WebSocketRoute)]
    followed = {f"`WS {path.removeprefix('/api/v1')}`" for path in streams}
    assert followed
    assert set(re.findall(r"`(?:GET|POST|PATCH|PUT|DELETE|WS) /[^`]*`", page)) == set(described) | followed
    for endpoint, operation in described.items():
        (row,) = (row for row in rows if row.startswith(f"| {endpoint} |"))
        asked = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"}
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        fields = api["components"]["schemas"].get(body.get("$ref", "").rpartition("/")[2], {})
        assert set(re.findall(r"`(\w+)`", row.split("|")[2])) == asked | set(fields.get("properties", ())), endpoint


def test_every_setting_of_a_debugged_training_is_documented_with_its_default() -> None:
    page = (
        (ROOT / "docs" / "reference" / "python-api.md")
        .read_text()
        .partition("## tensight.torch.debug")[2]
        .partition("## Callbacks")[0]
    )
    table = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    defaults = {name: row[2] for row in table for name in re.findall(r"`(\w+)`", row[1])}
    for module in (tensight.torch, tensight.mindspore):
        for name in list(inspect.signature(module.debug).parameters)[1:]:
            default = getattr(AgentSettings(), name)
            written = json.dumps(default) if isinstance(default, str) else repr(default)
            assert f"`{written}`" in defaults[name] or name == "job", name


def test_every_column_of_the_statistics_table_is_documented() -> None:
    from tensight.analysis.statistics_table import FILE_COLUMNS, ROW

    page = (ROOT / "docs" / "reference" / "statistics-table.md").read_text()
    names = [name for name, *_ in FILE_COLUMNS] + list(ROW.names or ())[1:] + ["dtype", "shape", "error"]
    assert not [name for name in names if f"`{name}`" not in page]


def test_every_probe_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "diagnosis.md").read_text()
    assert [name for name in STATEMENTS if name not in ("all", "repeatable") and f"| {name} |" not in page] == []


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not broken


NAMED_FILE = re.compile(r"`([a-z0-9_./]+(?:/|\.py|/[a-z0-9_.-]+))`")
"""A folder, a module or another file of the project, as ARCHITECTURE.md and the decisions name them."""
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))


def not_there(named: set[str]) -> list[str]:
    """Return which of the files that a page names do not exist: from the root, the packages, or anywhere in them."""
    code = ROOT / "src" / "tensight"
    return [path for path in named if not ((ROOT / path).exists() or [*code.rglob(path.rstrip("/"))])]


def test_the_architecture_is_that_of_the_code() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    code = ROOT / "src" / "tensight"
    built = {"server/page"}
    named = set(NAMED_FILE.findall(page))
    assert len(named) > 40
    assert not not_there(named - built)
    packages = {f"{path.parent.name}/" for path in code.glob("*/__init__.py")}
    modules = {path.name for path in code.glob("*.py") if not path.name.startswith("_")}
    assert not {path for path in packages | modules if f"| `{path}" not in page and f", `{path}`" not in page}


def test_each_walk_names_the_files_in_its_way() -> None:
    walks = (ROOT / "ARCHITECTURE.md").read_text().split("\n## The walk of ")[1:]
    assert [walk.splitlines()[0] for walk in walks] == [
        "a watchpoint",
        "a tensor to a heat map",
        "a dump to a hit",
        "a hit on one of a thousand ranks",
        "a fact to a finding",
    ]
    for walk in walks:
        steps = re.findall(r"^\d\. .*?(?=^\d\. |\n\n|\n\Z)", walk, re.MULTILINE | re.DOTALL)
        assert len(steps) >= 5
        assert all(NAMED_FILE.search(step) for step in steps)


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_says_why_what_and_what_follows(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {int(page.stem[:2])}. ")
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert not not_there(set(NAMED_FILE.findall(text)))


def test_the_list_of_decisions_has_each_with_its_title() -> None:
    listed = dict(re.findall(r"^- \[(.*)\]\((.*)\)$", (ROOT / "docs/decisions/index.md").read_text(), re.MULTILINE))
    assert sorted(int(page.stem[:2]) for page in DECISIONS) == list(range(1, len(DECISIONS) + 1))
    titles = {page.read_text().splitlines()[0].partition(". ")[2]: page.name for page in DECISIONS}
    assert listed == titles


def test_every_package_of_the_page_is_used() -> None:
    page = ROOT / "ui"
    sources = "".join(path.read_text() for path in (page / "src").rglob("*") if path.suffix in {".ts", ".tsx", ".css"})
    packages = json.loads((page / "package.json").read_text())["dependencies"]
    assert packages
    assert not [name for name in packages if not re.search(rf"""['"]{re.escape(name)}['"/]""", sources)]
