"""Settings: where they come from, what they may be, and what a person is told about a wrong one."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tensight.cli.start import start
from tensight.errors import InputError
from tensight.server.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"TENSIGHT_{name.upper()}", raising=False)
    monkeypatch.delenv("TENSIGHT_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def toml(folder: Path, text: str) -> Path:
    file = folder / "settings.toml"
    file.write_text(text)
    return file


def test_the_defaults_are_the_originals_where_it_has_them(tmp_path: Path) -> None:
    assert load_settings({}).model_dump() == {
        "host": "127.0.0.1",
        "port": 8080,
        "enable_debugger": True,
        "debugger_host": "",
        "debugger_port": 50051,
        "summary_base_dir": tmp_path,
        "offline_debugger_mem_limit": 16 * 1024,
        "max_offline_debugger_session_num": 2,
        "max_graph_node_size": 100_000,
        "workspace": tmp_path / "tensight",
        "rules": None,
        "url_path_prefix": "",
        "reload_interval": 3,
        "token_file": None,
        "tls_cert": None,
        "tls_key": None,
        "tls_client_ca": None,
        "allowed_host": (),
        "log_format": "text",
    }


def test_an_option_goes_before_the_environment_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = toml(tmp_path, "port = 1001\ndebugger_port = 1002\nreload_interval = 9.5\n")
    monkeypatch.setenv("TENSIGHT_PORT", "2001")
    monkeypatch.setenv("TENSIGHT_DEBUGGER_PORT", "2002")
    settings = load_settings({"port": "3001"}, file)
    assert (settings.port, settings.debugger_port, settings.reload_interval) == (3001, 2002, 9.5)


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSIGHT_PORT", "")
    assert load_settings({}).port == 8080


def test_the_file_in_the_workspace_is_read_unless_another_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "tensight.toml").write_text("port = 1001")
    assert load_settings({"workspace": str(workspace)}).port == 1001
    monkeypatch.setenv("TENSIGHT_WORKSPACE", str(workspace))
    assert load_settings({}).port == 1001
    monkeypatch.setenv("TENSIGHT_CONFIG", str(toml(tmp_path, "port = 1002")))
    assert load_settings({}).port == 1002
    other = tmp_path / "other.toml"
    other.write_text("port = 1003")
    assert load_settings({}, other).port == 1003


@pytest.mark.parametrize("text", ["true", "True", "1", "false", "False", "0"])
def test_the_debugger_is_switched_as_in_the_original(text: str) -> None:
    assert load_settings({"enable_debugger": text}).enable_debugger == (text.lower() in ("true", "1"))


@pytest.mark.parametrize(
    ("field", "lowest", "highest"),
    [
        ("port", 0, 65535),
        ("debugger_port", 0, 65535),
        ("offline_debugger_mem_limit", 6144, 2_147_483_647),
        ("max_offline_debugger_session_num", 1, 1000),
        ("max_graph_node_size", 1, 2_000_000),
        ("reload_interval", 0, 300),
    ],
)
def test_a_number_outside_its_range_is_refused_with_option_and_range(field: str, lowest: int, highest: int) -> None:
    option = "--" + field.replace("_", "-")
    for allowed in (lowest, highest):
        assert getattr(load_settings({field: str(allowed)}), field) == allowed
    for wrong in (str(lowest - 1), str(highest + 1), "many"):
        with pytest.raises(InputError, match=f"^{option} is '{wrong}': must be a .*number from {lowest} to {highest}$"):
            load_settings({field: wrong})


def test_a_wrong_value_is_reported_with_the_variable_or_the_key_it_came_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = toml(tmp_path, "port = 70000")
    with pytest.raises(InputError, match=f"^port in {re.escape(str(file))} is '70000': must be a whole number from 0"):
        load_settings({}, file)
    monkeypatch.setenv("TENSIGHT_PORT", "80000")
    with pytest.raises(InputError, match=r"^TENSIGHT_PORT is '80000'"):
        load_settings({}, file)


def test_all_wrong_values_are_reported_at_once() -> None:
    with pytest.raises(InputError) as caught:
        load_settings({"port": "x", "log_format": "xml", "enable_debugger": "perhaps"})
    assert str(caught.value).splitlines() == [
        "--port is 'x': must be a whole number from 0 to 65535",
        "--enable-debugger is 'perhaps': must be true or false",
        "--log-format is 'xml': must be 'text' or 'json'",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "there is no setting 'prot'; the settings are allowed_host, "),
        ("port =", "not a TOML file: "),
        ("port = [1]", "port in .* must be a whole number"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_settings({}, toml(tmp_path, text))


def test_a_file_that_is_named_has_to_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^--config is /nowhere/x\.toml: there is no such file"):
        load_settings({}, Path("/nowhere/x.toml"))
    monkeypatch.setenv("TENSIGHT_CONFIG", "y.toml")
    with pytest.raises(InputError, match=f"^TENSIGHT_CONFIG is {tmp_path / 'y.toml'}: there is no such file"):
        load_settings({})


@pytest.mark.parametrize(
    ("given", "prefix"),
    [("", ""), ("/", ""), ("team", "/team"), ("/team/tensight/", "/team/tensight"), ("a-b_c.d", "/a-b_c.d")],
)
def test_a_prefix_has_a_slash_before_each_segment(given: str, prefix: str) -> None:
    assert load_settings({"url_path_prefix": given}).url_path_prefix == prefix


@pytest.mark.parametrize("given", ["a/../b", ".", "a//b", "a b", "a?b", "ä", "%2e%2e"])
def test_a_prefix_that_would_be_another_path_is_refused(given: str) -> None:
    with pytest.raises(InputError, match=r"^--url-path-prefix is"):
        load_settings({"url_path_prefix": given})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": "5000", "debugger_port": "5000"}, "--port and --debugger-port are both 5000"),
        ({"tls_cert": "c"}, "--tls-cert and --tls-key go together"),
        ({"tls_key": "k"}, "--tls-cert and --tls-key go together"),
        ({"tls_client_ca": "a"}, "--tls-client-ca needs --tls-cert and --tls-key"),
        ({"host": "a b"}, "--host is 'a b': must be a host name"),
        ({"host": ""}, "--host is '': must be a host name"),
        ({"allowed_host": ["a/b"]}, "--allowed-host is .*: must be host names"),
        ({"summary_base_dir": "missing"}, "--summary-base-dir is .*missing.*: must be a folder that exists"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_settings(options)


def test_any_free_port_twice_is_no_conflict_and_neither_is_a_debugger_that_is_off() -> None:
    assert load_settings({"port": "0", "debugger_port": "0"}).port == 0
    assert load_settings({"port": "5", "debugger_port": "5", "enable_debugger": "0"}).port == 5


def test_allowed_hosts_are_a_list_in_each_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load_settings({"allowed_host": ["a", "b:80"]}).allowed_host == ("a", "b:80")
    assert load_settings({}, toml(tmp_path, 'allowed_host = ["a", "b:80"]')).allowed_host == ("a", "b:80")
    monkeypatch.setenv("TENSIGHT_ALLOWED_HOST", "a, b:80,")
    assert load_settings({}).allowed_host == ("a", "b:80")


def test_training_processes_attach_where_the_api_is_unless_told_otherwise() -> None:
    assert load_settings({"host": "[::1]"}).attach_host == "::1"
    assert load_settings({"host": "0.0.0.0", "debugger_host": "127.0.0.1"}).attach_host == "127.0.0.1"  # noqa: S104


def test_every_setting_is_an_option_of_start_and_its_help_names_the_default() -> None:
    parameters = inspect.signature(start, eval_str=True).parameters
    assert set(Settings.model_fields) <= set(parameters)
    assert set(parameters) - set(Settings.model_fields) == {"config", "background", "ready_fd"}
    said = {
        name: re.search(r"\(default (.*?)\)", parameter.annotation.__metadata__[0].help or "")
        for name, parameter in parameters.items()
    }
    defaults = {name: match[1] for name, match in said.items() if match and name in Settings.model_fields}
    fields = {name: Settings.model_fields[name].default for name in defaults}
    assert defaults == {
        **{name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()},
        "debugger_host": "--host",
        "url_path_prefix": "none",
    }
