"""The user's settings for the agent in a training process."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from tensight.agents.core.notices import log_once
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

OnDisconnect = Literal["continue", "wait"]
Capture = Literal["modules", "ops"]
StepOn = Literal["optimizer", "forward", "call"]
StopOn = Literal["new", "every"]
Findings = Literal["off", "list", "certain", "every"]

DEFAULT_PORT = 50051
_MOST_RING = 1_000_000
_YES = ("1", "true", "yes", "on")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How a training is debugged.

    Attributes
    ----------
    host, port : str, int
        Of the debug server.
    token : str
        Access token; empty if the server requires none.
    certificates : str
        File with the trusted certificates, PEM, if the server uses TLS; empty for a connection without it.
    on_disconnect : {"continue", "wait"}
        What the training does while no server replies.
    connect_within_s : float or None
        How long the first step waits for a server that is not running yet, unless `on_disconnect` is "wait". None means
        5 s with `break_at_start`, else not at all: the training begins, and attaches when there is one.
    break_at_start : bool
        Wait for the user before the first step.
    recommended : bool
        Have the server set the recommended watchpoints before the first step.
    capture : {"modules", "ops"}
        What the nodes are: calls of modules, or every operator.
    step_on : {"optimizer", "forward", "call"}
        What ends a step: the optimizer's step, the forward pass of the outermost module, or only a call of ``step()``.
    stop_on : {"new", "every"}
        Which hits stop the training: those that neither were reported before nor result from reported ones, or all.
    findings : {"off", "list", "certain", "every"} or None
        What is done about findings, why the training does not learn: nothing; they are listed; certain ones also stop
        the training; every one does. None means "certain" with `recommended`, else "list".
    rules : str
        File with rules of the user, Python, which is run in the training; empty for none.
    record : str
        "", "ring:K" for the last K steps, "full" for all of them.
    record_folder : str
        Folder of the recording; empty for a new folder in the current one.
    alone : str
        Folder in which each rank appends what its recommended watchpoints and facts show; empty to debug with a server.
        Such a training does not connect to one, stops nowhere, and no rank waits for another. What is recorded goes
        there, too, unless `record_folder` says otherwise.
    alone_every : int
        Such a training watches the first step and every step that this number divides.
    trace : str
        Folder in which every step is traced: statistics and content hashes, no values; empty for no trace. A traced
        training does not connect to a debug server.
    trace_steps : int or None
        Number of steps to trace; None means all.
    perturb : bool
        Whether all weights are moved by one unit in the last place before the first traced step. PyTorch only.
    against : str
        Trace with which the run is compared while it goes on; empty for none. At the first difference the training
        stops if it is attached, and otherwise ends with exit code 1.
    keep_going : bool
        Whether a compared training goes on after the first difference, which is then only reported.
    memory_budget_bytes : int or None
        For values of this and the previous step; None means a tenth of the memory that is free at the start, on the
        host or on the device.
    partial_memory : bool
        Keep only what is watched.
    job : str
        Name of the run, if the user has chosen one; ranks with the same name form one session.
    run : str
        Distinguishes this run from others of the same name; processes with the same value form one session.
    command : str
        The command line by which a user started it; empty for that of the process.
    losses_every_s : float or None
        Interval at which the loss is read, unless this costs more than a hundredth of the training's time, and sent
        soon; None to send it with the other numbers, some times a second.
    diagnose : str
        Folder to which the facts of the training's steps are written for `tensight diagnose`; empty for none. Such a
        training does not connect to a debug server. PyTorch only.
    diagnose_steps : int or None
        Number of steps after which a diagnosed training is ended; None means that it runs to its end.
    probe : bool
        Whether a diagnosed training also makes experiments on the batch of a step. PyTorch only.
    quiet : bool
        Whether to suppress lines on stderr about the ordinary course of debugging: attached, stopped, goes on.

    Raises
    ------
    InputError
        A value is not one of the choices, or is out of range.
    """

    host: str = "localhost"
    port: int = DEFAULT_PORT
    token: str = ""
    certificates: str = ""
    on_disconnect: OnDisconnect = "continue"
    connect_within_s: float | None = None
    break_at_start: bool = False
    recommended: bool = False
    capture: Capture = "modules"
    step_on: StepOn = "optimizer"
    stop_on: StopOn = "new"
    findings: Findings | None = None
    rules: str = ""
    record: str = ""
    record_folder: str = ""
    alone: str = ""
    alone_every: int = 1
    trace: str = ""
    trace_steps: int | None = None
    perturb: bool = False
    against: str = ""
    keep_going: bool = False
    memory_budget_bytes: int | None = None
    partial_memory: bool = False
    job: str = ""
    run: str = ""
    command: str = ""
    losses_every_s: float | None = None
    diagnose: str = ""
    diagnose_steps: int | None = None
    probe: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        """Refuse invalid values before the training has begun."""
        if not 1 <= self.port <= 65535:
            raise InputError(f"the port of the debug server is {self.port}; give 1 to 65535")
        for name, value, choices in (
            ("on_disconnect", self.on_disconnect, get_args(OnDisconnect)),
            ("capture", self.capture, get_args(Capture)),
            ("step_on", self.step_on, get_args(StepOn)),
            ("stop_on", self.stop_on, get_args(StopOn)),
            ("findings", self.findings_wanted, get_args(Findings)),
        ):
            if value not in choices:
                raise InputError(f"{name} is {str(value)[:80]!r}; choose one of {', '.join(choices)}")
        if self.record not in ("", "full"):
            _ = self.ring_steps
        if self.trace_steps is not None and self.trace_steps < 1:
            raise InputError(f"the number of traced steps is {self.trace_steps}; give 1 or more")
        if self.diagnose_steps is not None and self.diagnose_steps < 1:
            raise InputError(f"the number of diagnosed steps is {self.diagnose_steps}; give 1 or more")
        if self.alone and self.break_at_start:
            raise InputError("a training that watches itself stops nowhere; leave break_at_start or alone out")
        if self.alone_every < 1:
            raise InputError(f"every {self.alone_every}th step is to be watched; give 1 or more")
        if self.perturb and not self.trace:
            raise InputError("weights are perturbed only in a run that is traced; name the folder of the trace")
        if self.losses_every_s is not None and not 0 < self.losses_every_s < math.inf:
            raise InputError(f"losses are to be sent every {self.losses_every_s} s; give a number above 0")
        if self.memory_budget_bytes is not None and self.memory_budget_bytes < 0:
            raise InputError(f"the memory budget is {self.memory_budget_bytes} bytes; give 0 or more")

    @property
    def connects(self) -> bool:
        """Whether to connect to a debug server."""
        return not (self.trace or self.diagnose or self.alone)

    @property
    def findings_wanted(self) -> Findings:
        """What is done about findings."""
        return self.findings or ("certain" if self.recommended else "list")

    @property
    def ring_steps(self) -> int:
        """Number of steps in a ring; 0 if there is none.

        Raises
        ------
        InputError
            `record` is not one of the choices.
        """
        if self.record in ("", "full"):
            return 0
        word, _, digits = self.record.partition(":")
        if word == "ring" and digits.isascii() and digits.isdecimal() and 1 <= int(digits[:9]) <= _MOST_RING:
            return int(digits)
        raise InputError(f'record is {self.record[:80]!r}; give "ring:20" for the last 20 steps, or "full"')

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **chosen: Any) -> AgentSettings:
        """Return the settings of the environment, including those of the original's variables.

        Parameters
        ----------
        environment : mapping of str to str, optional
            By default that of the process.
        **chosen
            Fields that override the environment; None means not chosen.

        Raises
        ------
        InputError
            A variable has a value that cannot be used.
        """
        variables = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for field, names in _VARIABLES.items():
            name = next((name for name in names if variables.get(name)), None)
            if name is not None:
                values[field] = _value(field, name, variables[name])
        if wants_original_debugger(variables) and "break_at_start" not in values:
            values["break_at_start"] = True
        return replace(cls(), **{**values, **{name: value for name, value in chosen.items() if value is not None}})

    @classmethod
    def of_script(cls, **chosen: Any) -> AgentSettings:
        """Return the settings that a script has chosen, and otherwise those of the environment.

        That another `capture` is requested by the environment, as in a second run that is to capture every operator, is
        logged: it has no effect.

        Parameters
        ----------
        **chosen
            As for `from_environment`, which also says what is raised.
        """
        settings = cls.from_environment(**chosen)
        requested = os.environ.get("TENSIGHT_CAPTURE", "")
        if requested not in ("", settings.capture):
            log_once(
                f'the script chooses capture="{settings.capture}", so that "{requested}" from --capture or'
                " TENSIGHT_CAPTURE has no effect: change it in the script"
            )
        return settings


def as_variables(chosen: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that express choices, for a training to be started.

    Parameters
    ----------
    chosen : mapping
        Values by field of `AgentSettings`; None means not chosen.
    """
    given = {name: value for name, value in chosen.items() if value is not None}
    return {_VARIABLES[name][0]: str(int(value) if isinstance(value, bool) else value) for name, value in given.items()}


_VARIABLES: dict[str, tuple[str, ...]] = {
    "host": ("TENSIGHT_DEBUGGER_HOST", "TENSIGHT_HOST", "MS_DEBUGGER_HOST"),
    "port": ("TENSIGHT_DEBUGGER_PORT", "MS_DEBUGGER_PORT"),
    "token": ("TENSIGHT_TOKEN",),
    "certificates": ("TENSIGHT_CERTIFICATES",),
    "on_disconnect": ("TENSIGHT_ON_DISCONNECT",),
    "break_at_start": ("TENSIGHT_BREAK_AT_START",),
    "recommended": ("TENSIGHT_RECOMMENDED",),
    "capture": ("TENSIGHT_CAPTURE",),
    "step_on": ("TENSIGHT_STEP_ON",),
    "stop_on": ("TENSIGHT_STOP_ON",),
    "findings": ("TENSIGHT_FINDINGS",),
    "rules": ("TENSIGHT_RULES",),
    "record": ("TENSIGHT_RECORD",),
    "record_folder": ("TENSIGHT_RECORD_FOLDER",),
    "alone": ("TENSIGHT_ALONE",),
    "alone_every": ("TENSIGHT_ALONE_EVERY",),
    "trace": ("TENSIGHT_TRACE",),
    "trace_steps": ("TENSIGHT_TRACE_STEPS",),
    "perturb": ("TENSIGHT_PERTURB",),
    "against": ("TENSIGHT_AGAINST",),
    "keep_going": ("TENSIGHT_KEEP_GOING",),
    "memory_budget_bytes": ("TENSIGHT_MEMORY_BUDGET",),
    "partial_memory": ("TENSIGHT_PARTIAL_MEMORY", "MS_DEBUGGER_PARTIAL_MEM"),
    "job": ("TENSIGHT_JOB",),
    "run": ("TENSIGHT_RUN",),
    "command": ("TENSIGHT_COMMAND",),
    "losses_every_s": ("TENSIGHT_LOSSES_EVERY_S",),
    "diagnose": ("TENSIGHT_DIAGNOSE",),
    "diagnose_steps": ("TENSIGHT_DIAGNOSE_STEPS",),
    "probe": ("TENSIGHT_PROBE",),
    "quiet": ("TENSIGHT_QUIET",),
}


def wants_original_debugger(variables: Mapping[str, str]) -> bool:
    """Whether the original's variable requests the debugger, which then also waits before the first step."""
    return variables.get("ENABLE_MS_DEBUGGER", "").strip().lower() in ("1", "true")


def _value(field: str, name: str, text: str) -> object:
    if field in ("break_at_start", "recommended", "partial_memory", "probe", "quiet", "keep_going", "perturb"):
        return text.strip().lower() in _YES
    if field in ("port", "memory_budget_bytes", "trace_steps", "diagnose_steps", "alone_every"):
        if not (text.isascii() and text.isdecimal() and len(text) <= 18):
            raise InputError(f"{name} is {text[:80]!r}; give a whole number")
        return int(text)
    if field == "losses_every_s":
        try:
            return float(text)
        except ValueError:
            raise InputError(f"{name} is {text[:80]!r}; give a number of seconds") from None
    return cast("object", text)
