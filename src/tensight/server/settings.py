"""The settings of the server: from options, environment variables and a TOML file, in this order of precedence."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tensight.errors import InputError

ENVIRONMENT_PREFIX = "TENSIGHT_"
CONFIG_VARIABLE = "TENSIGHT_CONFIG"
CONFIG_NAME = "tensight.toml"
"""File in the workspace that is read if no other is named."""
PREFIX_SEGMENT = re.compile(r"[A-Za-z0-9_.-]+")
HOST_NAME = re.compile(r"\[?[A-Za-z0-9_.:%-]+\]?")

_toml_file: ContextVar[Path | None] = ContextVar("toml_file", default=None)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(os.path.expanduser(path)))


FolderOrFile = Annotated[Path, AfterValidator(_absolute)]


class Settings(BaseSettings):
    """The settings of a server; names, defaults and ranges are the original's where it has them."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    enable_debugger: bool = True
    debugger_host: str = ""
    """Host to which training processes attach; empty: the host of the HTTP API."""
    debugger_port: int = Field(50051, ge=0, le=65535)
    summary_base_dir: FolderOrFile = Path()
    offline_debugger_mem_limit: int = Field(16 * 1024, ge=6144, le=2_147_483_647)
    """MB, for all offline sessions together."""
    max_offline_debugger_session_num: int = Field(2, ge=1, le=1000)
    max_graph_node_size: int = Field(100_000, ge=1, le=2_000_000)
    """Maximum number of nodes of a graph that is drawn."""
    workspace: FolderOrFile = Path("~/tensight")
    rules: FolderOrFile | None = None
    """The user's rules for findings: a Python file, which is run."""
    url_path_prefix: str = ""
    """Empty, or with a slash before each segment: `/team/tensight`."""
    reload_interval: float = Field(3, ge=0, le=300)
    """Seconds between two searches for new dumps."""
    token_file: FolderOrFile | None = None
    tls_cert: FolderOrFile | None = None
    tls_key: FolderOrFile | None = None
    tls_client_ca: FolderOrFile | None = None
    allowed_host: Annotated[tuple[str, ...], NoDecode] = ()
    log_format: Literal["text", "json"] = "text"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the name is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Give options precedence over the environment, and the environment over the file."""
        file = _toml_file.get()
        if file is None:
            return init_settings, env_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, file)

    @field_validator("host", "debugger_host")
    @classmethod
    def _known_host(cls, host: str, info: ValidationInfo) -> str:
        if not HOST_NAME.fullmatch(host) and (host or info.field_name == "host"):
            raise ValueError("must be a host name or an IP address")
        return host.removeprefix("[").removesuffix("]")

    @property
    def attach_host(self) -> str:
        """The host to which training processes attach."""
        return self.debugger_host or self.host

    @field_validator("summary_base_dir")
    @classmethod
    def _existing_folder(cls, folder: Path) -> Path:
        if not folder.is_dir():
            raise ValueError("must be a folder that exists")
        return folder

    @field_validator("url_path_prefix")
    @classmethod
    def _clean_prefix(cls, prefix: str) -> str:
        segments = prefix.strip("/").split("/") if prefix.strip("/") else []
        if not all(PREFIX_SEGMENT.fullmatch(segment) and segment not in (".", "..") for segment in segments):
            raise ValueError("must be segments of letters, digits, '_', '.' and '-', with slashes between them")
        return "".join(f"/{segment}" for segment in segments)

    @field_validator("allowed_host", mode="before")
    @classmethod
    def _separate_hosts(cls, hosts: object) -> object:
        return [host.strip() for host in hosts.split(",") if host.strip()] if isinstance(hosts, str) else hosts

    @field_validator("allowed_host")
    @classmethod
    def _known_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        if not all(HOST_NAME.fullmatch(host) for host in hosts):
            raise ValueError("must be host names, or host:port, separated by commas")
        return hosts

    @model_validator(mode="after")
    def _fit_together(self) -> Settings:
        if self.enable_debugger and self.port == self.debugger_port != 0:
            raise ValueError(f"--port and --debugger-port are both {self.port}; give them different ports")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key go together; give both, or none")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("--tls-client-ca needs --tls-cert and --tls-key")
        return self


def load_settings(options: Mapping[str, object], config: Path | None = None) -> Settings:
    """Gather the settings of a server.

    Parameters
    ----------
    options : mapping
        Options of the command line, by field of `Settings`; omitted options are absent.
    config : Path, optional
        A TOML file. By default the file that the variable `TENSIGHT_CONFIG` names, or `tensight.toml` in the workspace
        if there is one.

    Raises
    ------
    InputError
        A value is wrong; the message names its option, variable or key, and the allowed values.
    """
    file = _config_file(options, config)
    token = _toml_file.set(file)
    try:
        return Settings(**dict(options))  # type: ignore[arg-type]
    except ValidationError as error:
        raise InputError(_explain(error, options, file)) from None
    except ValueError as error:
        # Not TOML; the messages of both parsers (Python's and tomli's) give line and column.
        raise InputError(f"{file}: not a TOML file: {error}") from None
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    finally:
        _toml_file.reset(token)


def option_name(field: str) -> str:
    """Return the option for a field of `Settings`."""
    return "--" + field.replace("_", "-")


def variable_name(field: str) -> str:
    """Return the environment variable for a field of `Settings`."""
    return ENVIRONMENT_PREFIX + field.upper()


def _config_file(options: Mapping[str, object], config: Path | None) -> Path | None:
    named = config or os.environ.get(CONFIG_VARIABLE)
    if named:
        file = _absolute(Path(named))
        if not file.is_file():
            where = "--config" if config else CONFIG_VARIABLE
            raise InputError(f"{where} is {file}: there is no such file")
        return file
    workspace = options.get("workspace") or os.environ.get(variable_name("workspace")) or _default("workspace")
    in_workspace = _absolute(Path(str(workspace))) / CONFIG_NAME
    return in_workspace if in_workspace.is_file() else None


def _default(field: str) -> object:
    return Settings.model_fields[field].default


def _explain(error: ValidationError, options: Mapping[str, object], file: Path | None) -> str:
    return "\n".join(_explain_one(problem, options, file) for problem in error.errors(include_url=False))


def _explain_one(problem: Any, options: Mapping[str, object], file: Path | None) -> str:
    message = str(problem["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    if not problem["loc"]:
        return message
    field = str(problem["loc"][0])
    if field not in Settings.model_fields:
        names = ", ".join(sorted(Settings.model_fields))
        return f"{file}: there is no setting {field!r}; the settings are {names}"
    shown = str(problem["input"])
    return f"{_origin(field, options, file)} is {shown[:200]!r}: {_allowed(field) or message}"


def _origin(field: str, options: Mapping[str, object], file: Path | None) -> str:
    if field in options:
        return option_name(field)
    # Like pydantic, which ignores the case of variable names.
    if variable_name(field) in {name.upper() for name in os.environ}:
        return variable_name(field)
    return f"{field} in {file}" if file else option_name(field)


def _allowed(field: str) -> str:
    """Return the allowed values of a field whose type determines them."""
    info = Settings.model_fields[field]
    if info.annotation is bool:
        return "must be true or false"
    lowest, highest = (
        next((getattr(limit, name) for limit in info.metadata if hasattr(limit, name)), None) for name in ("ge", "le")
    )
    if lowest is None:
        return ""
    kind = "a whole number" if info.annotation is int else "a number"
    return f"must be {kind} from {lowest} to {highest}"
