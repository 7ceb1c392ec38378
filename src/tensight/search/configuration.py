"""The configuration of a search: the original's YAML, and our extensions of it.

Each error names the file, the nested key, what is wrong with it, and what to write instead.
"""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from tensight.errors import InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

LARGEST_FILE = 1 << 20
"""Maximum size of a configuration in bytes."""

MOST_CHOICES = 1000

SYSTEM_PARAMETERS = {"learning_rate": "float", "batch_size": "int", "epoch": "int"}
"""The system-defined parameters of the original, with their types."""

OWN_PLACEHOLDERS = ("summary_dir", "trial")
"""Placeholders of a command beside the parameters: the folder and the number of the trial."""

PLACEHOLDER = re.compile(r"\{\{[^{}]*\}\}|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")
"""``{name}``; ``{{name}}`` is the literal text ``{name}``."""

_NAME = re.compile(r"[A-Za-z0-9_]{1,100}")
_STUDY = re.compile(r"[^/\x00-\x1f]{1,200}")
_RECORD = re.compile(r"full|ring:[1-9][0-9]{0,5}")
Value = bool | int | float | str
"""A value of a hyper-parameter."""


class ConfigurationError(InputError):
    """The configuration of a search cannot be used; the message has one line for each problem."""

    code = "configuration-invalid"


def _wrong(sentence: str) -> NoReturn:
    """Refuse the value of the key that is being read."""
    raise PydanticCustomError("wrong", "{sentence}", {"sentence": sentence})


def _number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        _wrong(f"{_short(value)} is not a finite number")
    return value


Number = Annotated[int | float, BeforeValidator(_number)]


class _Part(BaseModel):
    """A mapping of the configuration; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class Parameter(_Part):
    """A hyper-parameter: a range, or a list of values."""

    bounds: tuple[Number, Number] | None = None
    """Lower bound (included) and upper bound (excluded)."""
    choice: tuple[StrictBool | StrictInt | StrictFloat | StrictStr, ...] | None = None
    type: Literal["int", "float"] | None = None
    """Type of the values; required with bounds."""
    log: bool = False
    """Whether to sample the logarithm uniformly between the bounds."""
    source: Literal["system_defined", "user_defined"] | None = None
    """As in the original; by default decided by the name."""
    when: dict[str, Any] = Field(default_factory=dict)
    """Values of other parameters for which this parameter exists."""

    @field_validator("bounds", mode="before")
    @classmethod
    def _two_numbers(cls, value: object) -> object:
        if value is not None and (not isinstance(value, list | tuple) or len(value) != 2):
            _wrong(f"{_short(value)} is not a pair of numbers; write [low, high], where high itself is excluded")
        return tuple(value) if isinstance(value, list) else value

    @field_validator("choice", mode="before")
    @classmethod
    def _values(cls, value: object) -> object:
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not value:
            _wrong(f"{_short(value)} is not a list of values; write for example [16, 32, 64]")
        if len(value) > MOST_CHOICES:
            _wrong(f"there are {len(value):,} values, and {MOST_CHOICES:,} is the most; give bounds")
        for choice in value:
            if not isinstance(choice, Value) or (isinstance(choice, float) and not math.isfinite(choice)):
                _wrong(f"{_short(choice)} is not a value of a hyper-parameter; give numbers, texts, true or false")
        twice = next((choice for index, choice in enumerate(value) if _is_in(choice, value[:index])), None)
        if twice is not None:
            _wrong(f"{_short(twice)} occurs twice; remove one")
        return tuple(value)

    @model_validator(mode="after")
    def _one_of_both(self) -> Parameter:
        if self.bounds is None and self.choice is None:
            _wrong("has neither bounds nor choice; give one of them")
        if self.bounds is not None and self.choice is not None:
            _wrong("has bounds and choice; give one of them")
        return self


class TunerArguments(_Part):
    """How the tuner chooses values."""

    method: Literal["ucb", "pi", "ei"] | None = None
    """The original's acquisition function of ``gp``. Optuna uses the logarithm of the expected improvement."""
    seed: int | None = Field(default=None, ge=0, lt=2**32)
    startup_trials: int | None = Field(default=None, ge=1, le=10_000)
    """Number of random trials before the method begins."""


class Tuner(_Part):
    """The method that chooses the next values."""

    name: Literal["gp", "tpe", "cmaes", "random", "grid"] = "tpe"
    args: TunerArguments = TunerArguments()

    @field_validator("args", mode="before")
    @classmethod
    def _none_given(cls, value: object) -> object:
        return TunerArguments() if value is None else value


class Pruner(_Part):
    """Ends trials early that are worse than others at the same step; not used with several targets."""

    name: Literal["median", "hyperband", "none"] = "median"
    startup_trials: int | None = Field(default=None, ge=0, le=10_000)
    """``median``: number of trials that are never pruned; by default 2, or 5 if the debugger sees no loss."""
    warmup_steps: int = Field(default=0, ge=0)
    """``median``: number of steps of a trial before it can be pruned."""
    min_steps: int = Field(default=1, ge=1)
    """``hyperband``: minimum number of steps of a trial."""
    max_steps: int | None = Field(default=None, ge=1)
    """``hyperband``: number of steps of a complete trial; by default that of the first trial."""
    reduction: int = Field(default=3, ge=2, le=100)
    """``hyperband``: one of this many trials goes on."""


class From(_Part):
    """Source of the values of a target; exactly one of the keys."""

    pattern: str | None = None
    """A regular expression that matches the value in the output of the training: its group ``value``, or its only
    group; the group ``step`` if lines name steps."""
    json_lines: str | None = None
    """A file in which each line is a JSON object."""
    events: str | None = None
    """A folder with event files of TensorBoard or of MindSpore."""
    agent: Literal["loss"] | None = None
    """What the debugger sees in the training."""
    key: str | None = None
    """Name of the value in `json_lines` or `events`; by default that of the target."""

    @field_validator("pattern")
    @classmethod
    def _finds_a_value(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            groups = re.compile(value)
        except re.error as error:
            _wrong(f"is not a regular expression: {error}")
        unnamed = groups.groups - len(groups.groupindex)
        if "value" not in groups.groupindex and unnamed != 1:
            _wrong("has no group `value`; write for example 'accuracy: (?P<value>[0-9.]+)'")
        return value

    @model_validator(mode="after")
    def _one_of_them(self) -> From:
        given = [name for name in ("pattern", "json_lines", "events", "agent") if getattr(self, name) is not None]
        if len(given) != 1:
            what = " and ".join(given) or "nothing"
            _wrong(f"names {what}; name one of pattern, json_lines, events or agent")
        if self.key is not None and given[0] not in ("json_lines", "events"):
            _wrong(f"key has no effect with {given[0]}; leave it out")
        return self


class Target(_Part):
    """A quantity that the search minimizes or maximizes."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    goal: Literal["minimize", "maximize"] | None = None
    """Minimized by default, as in the original."""
    group: Literal["system_defined", "metric"] | None = None
    """As in the original; by default decided by the name."""
    source: From | None = Field(default=None, alias="from")
    """By default what the training wrote into the folder of the trial, as in the original."""
    take: Literal["last", "best"] = "last"
    """Which value of a trial counts."""

    @field_validator("source", mode="before")
    @classmethod
    def _agent(cls, value: object) -> object:
        return {"agent": "loss"} if value == "agent" else value

    @model_validator(mode="after")
    def _is_possible(self) -> Target:
        if self.group == "system_defined" and self.name != "loss":
            _wrong(f"{_short(self.name)} is not system-defined, only loss is; write `group: metric`")
        return self

    @property
    def direction(self) -> Literal["minimize", "maximize"]:
        """Whether small or large values are good."""
        return self.goal or "minimize"


class Configuration(_Part):
    """A search as the user has configured it."""

    command: str
    """The training command; ``{learning_rate}`` is replaced by the value of that parameter."""
    summary_base_dir: str
    """Folder of the search; contains the storage, and a folder for each trial."""
    target: Target | None = None
    targets: tuple[Target, ...] | None = None
    """Several targets, instead of `target`."""
    parameters: dict[str, Parameter]
    tuner: Tuner = Tuner()
    pruner: Pruner = Pruner()
    name: str | None = None
    """Name of the study in the storage; by default ``search``."""
    trials: int | None = Field(default=None, ge=1, le=1_000_000)
    """Number of trials; `--trials` takes precedence."""
    watch: Literal["prune", "note", "off"] = "prune"
    """Whether trials run under the debugger, and whether an error that it sees ends them."""
    record: str = ""
    """Which tensors of each trial are recorded: ``ring:K`` for the last K steps, or ``full`` for all."""
    timeout_s: float | None = Field(default=None, gt=0, strict=False)
    """Seconds after which a trial is ended and counts as failed."""

    @field_validator("watch", mode="before")
    @classmethod
    def _yes_or_no(cls, value: object) -> object:
        # YAML reads `off` as false.
        return {True: "prune", False: "off"}[value] if isinstance(value, bool) else value

    @field_validator("command")
    @classmethod
    def _is_a_command(cls, value: str) -> str:
        try:
            words = shlex.split(value)
        except ValueError as error:
            _wrong(f"cannot be split as a shell does: {error}")
        if not words:
            _wrong("is empty; write for example python train.py --lr {learning_rate}")
        return value

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and not _STUDY.fullmatch(value):
            _wrong(f"{_short(value)} cannot be the name of a study; give up to 200 characters, without a slash")
        return value

    @field_validator("record")
    @classmethod
    def _is_a_recording(cls, value: str) -> str:
        if value and not _RECORD.fullmatch(value):
            _wrong(f'{_short(value)} is not a recording; write "ring:20" for the last 20 steps, or "full"')
        return value

    @field_validator("targets", mode="before")
    @classmethod
    def _several(cls, value: object) -> object:
        if value is not None and (not isinstance(value, list | tuple) or not value):
            _wrong(f"{_short(value)} is not a list of targets; write each with a dash, its name and its goal")
        return tuple(value) if isinstance(value, list) else value

    @field_validator("parameters", mode="before")
    @classmethod
    def _has_names(cls, value: object) -> object:
        if not isinstance(value, dict) or not value:
            _wrong("has no parameters; write each with its name, and bounds or a choice")
        return value

    @property
    def all_targets(self) -> tuple[Target, ...]:
        """The targets: one, or several."""
        return self.targets or ((self.target,) if self.target is not None else ())

    @property
    def effective_pruner(self) -> Pruner:
        """The pruner to use. A grid is not pruned by default, because all its results are of interest."""
        if self.tuner.name == "grid" and "pruner" not in self.model_fields_set:
            return Pruner(name="none")
        return self.pruner

    @property
    def study_name(self) -> str:
        """The name of the study in the storage."""
        return self.name or "search"


def read_configuration(path: str | os.PathLike[str]) -> Configuration:
    """Read a configuration.

    Raises
    ------
    ConfigurationError
        It cannot be used; the message has one line for each problem.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}; name the YAML file of the search") from None
    if len(content) > LARGEST_FILE:
        raise ConfigurationError(f"{path}: is larger than {LARGEST_FILE:,} bytes; no configuration is that large")
    return parse_configuration(content, str(path))


def parse_configuration(content: bytes | str, source: str) -> Configuration:
    """Return the configuration of a YAML document.

    Parameters
    ----------
    content : bytes or str
    source : str
        The file name, for messages.

    Raises
    ------
    ConfigurationError
        It cannot be used; the message has one line for each problem.
    """
    # The server shows searches without installing what reads YAML.
    from tensight.search.yaml_documents import InvalidYamlError, read_document

    try:
        data = read_document(content)
    except InvalidYamlError as error:
        raise ConfigurationError(f"{source}:{error}") from None
    try:
        configuration = Configuration.model_validate(data)
    except ValidationError as error:
        lines = [f"{source}: {_sentence(each)}" for each in error.errors()]
        raise ConfigurationError("\n".join(lines)) from None
    wrong = [*_wrong_targets(configuration), *_wrong_parameters(configuration), *_wrong_placeholders(configuration)]
    if wrong:
        raise ConfigurationError("\n".join(f"{source}: {line}" for line in wrong))
    return configuration


# --- pydantic's errors as sentences ---


def _sentence(error: ErrorDetails) -> str:
    """Return the nested key and its problem in one line."""
    location = list(error["loc"])
    kind, given = error["type"], error["input"]
    context: dict[str, Any] = dict(error.get("ctx") or {})
    if kind == "missing":
        return f"{_key(location)}: is missing; {_what_to_write(str(location[-1]))}"
    if kind == "extra_forbidden":
        return f"{_key(location)}: there is no such key; {_keys_of(location[:-1])}"
    if kind == "literal_error":
        choices = str(context.get("expected", "")).replace("'", "")
        return f"{_key(location)}: is {_short(given)}; choose one of {choices}"
    if kind == "wrong":
        return f"{_key(location)}: {context['sentence']}" if location else str(context["sentence"])
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return f"{_key(location)}: is {_short(given)}; {error['msg'].removeprefix('Input should be ')} is possible"
    return f"{_key(location)}: is {_short(given)}; {_EXPECTED.get(kind, error['msg'])}"


_EXPECTED = {
    "string_type": "write a string",
    "int_type": "write a whole number",
    "float_type": "write a number",
    "bool_type": "write true or false",
    "model_type": "write keys below it, each on a line of its own",
    "dict_type": "write keys below it, each on a line of its own",
    "string_too_short": "write a name",
}


def _key(location: list[str | int]) -> str:
    """Return a nested key with dots, as ``parameters.learning_rate.bounds``."""
    return ".".join("from" if key == "source" and "parameters" not in location else str(key) for key in location)


def _what_to_write(key: str) -> str:
    return {
        "command": "write what trains, such as python train.py --lr {learning_rate}",
        "summary_base_dir": "write the folder of the search, such as ./search",
        "parameters": "write each with its name, and bounds or a choice",
        "name": "write the name of what is measured, such as loss",
    }.get(key, "write it")


_MODELS: dict[str, type[BaseModel]] = {
    "": Configuration,
    "target": Target,
    "tuner": Tuner,
    "tuner.args": TunerArguments,
    "pruner": Pruner,
    "from": From,
}


def _keys_of(location: list[str | int]) -> str:
    """Return a sentence that lists the keys allowed at a location."""
    path = [str(key) for key in location if not isinstance(key, int)]
    if path[:1] == ["parameters"]:
        model: type[BaseModel] = Parameter
    elif path[-1:] in (["source"], ["from"]):
        model = From
    else:
        model = _MODELS.get(".".join("target" if key == "targets" else key for key in path), Configuration)
    names = sorted(field.alias or name for name, field in model.model_fields.items())
    return f"there are {', '.join(names)}"


# --- rules about several keys ---


def _wrong_targets(configuration: Configuration) -> list[str]:
    if configuration.target is not None and configuration.targets is not None:
        return ["targets: there is also a target; write only one of them"]
    targets = configuration.all_targets
    if not targets:
        return ["target: is missing; write the name and the goal of what is measured"]
    wrong = []
    names = [target.name for target in targets]
    if len(set(names)) < len(names):
        wrong.append("targets: two have the same name; give each its own")
    is_pruned = "pruner" in configuration.model_fields_set and configuration.pruner.name != "none"
    if len(targets) > 1 and is_pruned:
        wrong.append("pruner.name: Optuna prunes searches with one target only; write none, or one target")
    if configuration.watch == "off" and any(target.source and target.source.agent for target in targets):
        wrong.append("watch: is off, but a target is read by the debugger; leave `watch` out")
    return wrong


def _wrong_parameters(configuration: Configuration) -> list[str]:
    wrong = []
    for name, parameter in configuration.parameters.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in OWN_PLACEHOLDERS:
            taken = "is taken" if name in OWN_PLACEHOLDERS else "has other characters than letters, digits and _"
            wrong.append(f"parameters.{_short(name)}: the name {taken}; choose another one")
            continue
        problem = _wrong_range(name, parameter) or _wrong_system_parameter(name, parameter)
        problem = problem or _wrong_condition(name, configuration.parameters)
        wrong += [f"parameters.{name}{problem}"] if problem else []
    is_gridless = [name for name, parameter in configuration.parameters.items() if _has_endless_grid(name, parameter)]
    if configuration.tuner.name == "grid" and is_gridless and not wrong:
        wrong.append(f"parameters.{is_gridless[0]}.bounds: a grid has no floats between bounds; give a choice")
    return wrong


def _has_endless_grid(name: str, parameter: Parameter) -> bool:
    return parameter.bounds is not None and type_of(name, parameter) == "float"


def type_of(name: str, parameter: Parameter) -> str | None:
    """Return "int" or "float", the type of the values; None if neither given nor implied by the name."""
    return parameter.type or SYSTEM_PARAMETERS.get(name if parameter.source != "user_defined" else "")


def _wrong_range(name: str, parameter: Parameter) -> str:
    """Return the problem with the bounds or choices of any parameter, with the key; empty if there is none."""
    kind = type_of(name, parameter)
    if parameter.choice is not None:
        if parameter.log:
            return ".log: applies to bounds only; leave it out"
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in parameter.choice)
        if parameter.type is not None and not numbers:
            return f".type: is {parameter.type}, but choices are not numbers; leave the type out"
        if kind == "int" and any(isinstance(value, float) for value in parameter.choice):
            return ".choice: contains numbers with a fraction, but the type is int"
        return ""
    low, high = parameter.bounds or (0, 1)
    if kind is None:
        return ".type: is missing; write int or float"
    if not low < high:
        return f".bounds: the upper bound {high} is not above the lower bound {low}; write [low, high]"
    if kind == "int" and math.ceil(low) >= high:
        return f".bounds: no integer is from {low} to below {high}; widen them, or write `type: float`"
    if parameter.log and low <= 0:
        return f".bounds: the lower bound {low} has no logarithm; write one above 0, or leave `log` out"
    return ""


def _wrong_system_parameter(name: str, parameter: Parameter) -> str:
    """Return the problem with a parameter whose name the original defines; empty if there is none."""
    if parameter.source == "system_defined" and name not in SYSTEM_PARAMETERS:
        return f".source: only {', '.join(SYSTEM_PARAMETERS)} are system-defined; write user_defined"
    if parameter.source == "user_defined" or name not in SYSTEM_PARAMETERS:
        return ""
    kind = SYSTEM_PARAMETERS[name]
    if parameter.type not in (None, kind):
        return f".type: {name} is {kind}; write that, or `source: user_defined`"
    values = parameter.bounds or parameter.choice or ()
    key = "bounds" if parameter.bounds else "choice"
    other = "or write `source: user_defined`"
    if any(isinstance(value, str | bool) for value in values):
        return f".{key}: {name} is a number; give numbers, {other}"
    numbers = [value for value in values if isinstance(value, int | float)]
    if kind == "int" and any(value <= 0 for value in numbers):
        return f".{key}: {name} is positive; give whole numbers from 1, {other}"
    if name == "learning_rate":
        if min(numbers) <= 0:
            return f".{key}: a learning rate is above 0; give such, {other}"
        # The upper bound is never chosen.
        if max(numbers) > 1 or (max(numbers) == 1 and parameter.choice):
            return f".{key}: a learning rate is below 1; give such, {other}"
    return ""


def _wrong_condition(name: str, parameters: Mapping[str, Parameter]) -> str:
    """Return the problem with `when`; empty if there is none."""
    for other, values in parameters[name].when.items():
        if other not in parameters:
            return f".when.{other}: there is no such parameter; name one of {', '.join(parameters)}"
        choice = parameters[other].choice
        if choice is None:
            return f".when.{other}: has bounds; conditions are on parameters with a choice"
        for value in as_values(values):
            if not _is_in(value, choice):
                return (
                    f".when.{other}: {_short(value)} is not among its choices; they are {', '.join(map(str, choice))}"
                )
    if _leads_to(name, name, parameters, set()):
        return ".when: leads back to itself; a parameter cannot depend on itself"
    return ""


def _leads_to(goal: str, name: str, parameters: Mapping[str, Parameter], seen: set[str]) -> bool:
    for other in parameters[name].when:
        if other == goal:
            return True
        if other in parameters and other not in seen:
            seen.add(other)
            if _leads_to(goal, other, parameters, seen):
                return True
    return False


def as_values(given: object) -> tuple[Any, ...]:
    """Return the values of a condition: a list, or a single value."""
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def _wrong_placeholders(configuration: Configuration) -> list[str]:
    names = [*configuration.parameters, *OWN_PLACEHOLDERS]
    named = [match["name"] for match in PLACEHOLDER.finditer(configuration.command) if match["name"]]
    wrong = next((name for name in named if name not in names), None)
    if wrong is None:
        return []
    there = ", ".join(names)
    return [f"command: {{{wrong}}} is not a parameter; choose from {there}. Write {{{{{wrong}}}}} for literal braces"]


def _is_in(value: object, values: tuple[object, ...] | list[object]) -> bool:
    """Whether a value is among others; 1, 1.0 and true are three different values."""
    return any(type(value) is type(other) and value == other for other in values)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
