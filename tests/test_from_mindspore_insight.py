"""What the page "From MindSpore Insight to Tensight" promises is there."""

from __future__ import annotations

import re
from pathlib import Path

import typer

import tensight.debugger
from tensight.agents.core.settings import AgentSettings
from tensight.cli.app import app
from tensight.server.http import create_http_app
from tensight.server.http_settings import HttpSettings
from tensight.server.settings import Settings, variable_name
from tensight.sessions.registry import Sessions
from tensight.sessions.workspace import Workspace
from tensight.watchpoints.catalogue import condition

PAGE = (Path(__file__).parents[1] / "docs" / "from-mindspore-insight.md").read_text()
ORIGINAL_CONDITIONS = 17


def rows(title: str) -> list[list[str]]:
    """Return the cells of the table below a title, without its head."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_every_option_has_a_successor() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = {option for parameter in commands["start"].params for option in parameter.opts}
    named = [name for row in rows("Commands and options") for name in quoted(row[1]) if name.startswith("--")]
    assert len(named) == 10
    assert set(named) <= options


def test_every_variable_of_the_server_is_one_of_its_settings() -> None:
    of_server = {row[0]: row[1] for row in rows("Environment variables") if "`MINDINSIGHT_" in row[0]}
    known = {f"`{variable_name(field)}`" for field in Settings.model_fields}
    assert len(of_server) == 12
    assert set(of_server.values()) - {"none"} <= known


def test_variables_of_a_training_are_understood() -> None:
    chosen = AgentSettings.from_environment(
        {"ENABLE_MS_DEBUGGER": "1", "MS_DEBUGGER_HOST": "h", "MS_DEBUGGER_PORT": "7", "MS_DEBUGGER_PARTIAL_MEM": "1"}
    )
    assert (chosen.break_at_start, chosen.host, chosen.port, chosen.partial_memory) == (True, "h", 7, True)


def test_every_condition_has_the_parameters_and_the_class_that_are_named() -> None:
    table = {quoted(row[0])[0]: row for row in rows("Conditions")}
    assert len(table) == ORIGINAL_CONDITIONS
    for name, row in table.items():
        of = "activation_range" if name == "tensor_range" else name
        assert quoted(table[of][1]) == [parameter.name for parameter in condition(name).parameters]
        assert all(hasattr(tensight.debugger, class_name) for class_name in quoted(row[2]))


def test_every_name_of_the_python_api_is_there() -> None:
    for before, after in ((row[0], row[1]) for row in rows("Python API")):
        for name in quoted(before) if after.startswith("the same") else ():
            owner, _, member = name.rpartition(".")
            if owner:
                assert hasattr(getattr(tensight.debugger, owner), member), name
            else:
                assert hasattr(tensight.debugger, name) or hasattr(tensight.debugger.DumpAnalyzer, name), name


def test_every_address_that_is_named_is_there(tmp_path: Path) -> None:
    paths = create_http_app(Sessions(Workspace(tmp_path), None), settings=HttpSettings()).openapi()["paths"]
    known = {
        f"{method.upper()} {path.removeprefix('/api/v1')}" for path, methods in paths.items() for method in methods
    }
    named = {name for row in rows("REST API") for name in quoted(row[1]) if re.match(r"[A-Z]+ /", name)}
    assert len(named) > 20
    assert named <= known
