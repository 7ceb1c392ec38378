"""Debug a MindSpore training: ``with tensight.mindspore.debug(network, optimizer) as dbg: …``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensight.agents.core.settings import Capture, Findings, OnDisconnect, StepOn, StopOn
    from tensight.agents.mindspore.callback import MindSporeDebugger
    from tensight.agents.mindspore.debugger import Debugger

__all__ = ["MindSporeDebugger", "debug"]


def debug(
    *subjects: Any,
    host: str | None = None,
    port: int | None = None,
    token: str | None = None,
    certificates: str | None = None,
    on_disconnect: OnDisconnect | None = None,
    connect_within_s: float | None = None,
    break_at_start: bool | None = None,
    recommended: bool | None = None,
    capture: Capture | None = None,
    step_on: StepOn | None = None,
    stop_on: StopOn | None = None,
    findings: Findings | None = None,
    record: str | None = None,
    record_folder: str | None = None,
    alone: str | None = None,
    alone_every: int | None = None,
    trace: str | None = None,
    trace_steps: int | None = None,
    against: str | None = None,
    keep_going: bool | None = None,
    memory_budget_bytes: int | None = None,
    partial_memory: bool | None = None,
    job: str | None = None,
    quiet: bool | None = None,
) -> Debugger:
    """Return a debugger for a training; use it in a ``with`` block that begins before the first call of a network.

    If the debugger fails, the training continues; exceptions of the block pass through unchanged.

    Parameters
    ----------
    *subjects : mindspore.nn.Cell
        The networks that are trained, and their optimizers, in any order. In GRAPH_MODE everything is debugged that the
        block calls; in PYNATIVE_MODE these networks, or everything if none are given.

    Other Parameters
    ----------------
    host, port, token, certificates, on_disconnect, connect_within_s, break_at_start, recommended, capture, step_on, \
stop_on, findings, record, record_folder, alone, alone_every, trace, trace_steps, against, keep_going, \
memory_budget_bytes, partial_memory, job, quiet
        As in `tensight.agents.core.settings.AgentSettings`. Omitted settings come from the environment.

    Returns
    -------
    Debugger
        Its method `step` ends a step if no optimizer does.

    Raises
    ------
    InputError
        A setting is invalid.

    Examples
    --------
    >>> with tensight.mindspore.debug(network, optimizer):
    ...     for inputs, targets in batches:
    ...         train_step(inputs, targets)
    """
    from tensight.agents.core.settings import AgentSettings
    from tensight.agents.mindspore.debugger import Debugger

    settings = AgentSettings.of_script(
        host=host,
        port=port,
        token=token,
        certificates=certificates,
        on_disconnect=on_disconnect,
        connect_within_s=connect_within_s,
        break_at_start=break_at_start,
        recommended=recommended,
        capture=capture,
        step_on=step_on,
        stop_on=stop_on,
        findings=findings,
        record=record,
        record_folder=record_folder,
        alone=alone,
        alone_every=alone_every,
        trace=trace,
        trace_steps=trace_steps,
        against=against,
        keep_going=keep_going,
        memory_budget_bytes=memory_budget_bytes,
        partial_memory=partial_memory,
        job=job,
        quiet=quiet,
    )
    return Debugger(subjects, settings)


def __getattr__(name: str) -> Any:
    """Import the callback for `mindspore.Model` at first use."""
    if name == "MindSporeDebugger":
        from tensight.agents.mindspore.callback import MindSporeDebugger

        return MindSporeDebugger
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
