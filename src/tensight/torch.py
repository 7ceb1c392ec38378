"""Debug a PyTorch training: ``with tensight.torch.debug(model, optimizer) as dbg: …``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensight.agents.core.settings import Capture, Findings, OnDisconnect, StepOn, StopOn
    from tensight.agents.torch.debugger import Debugger
    from tensight.agents.torch.lightning import LightningDebugger
    from tensight.agents.torch.transformers import TransformersDebugger

__all__ = ["LightningDebugger", "TransformersDebugger", "debug"]


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
    perturb: bool | None = None,
    against: str | None = None,
    keep_going: bool | None = None,
    memory_budget_bytes: int | None = None,
    partial_memory: bool | None = None,
    job: str | None = None,
    quiet: bool | None = None,
) -> Debugger:
    """Return a debugger for a training; use it in a ``with`` block.

    If the debugger fails, the training continues; exceptions of the block pass through unchanged.

    Parameters
    ----------
    *subjects : torch.nn.Module or torch.optim.Optimizer
        The models that are trained, and their optimizers, in any order. Without a model everything is debugged that the
        block calls; optimizers are detected automatically.

    Other Parameters
    ----------------
    host, port, token, certificates, on_disconnect, connect_within_s, break_at_start, recommended, capture, step_on, \
stop_on, findings, record, record_folder, alone, alone_every, trace, trace_steps, perturb, against, keep_going, \
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
    >>> with tensight.torch.debug(model, optimizer):
    ...     for inputs, targets in batches:
    ...         optimizer.zero_grad()
    ...         loss(model(inputs), targets).backward()
    ...         optimizer.step()
    """
    from tensight.agents.core.settings import AgentSettings
    from tensight.agents.torch.debugger import Debugger

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
        perturb=perturb,
        against=against,
        keep_going=keep_going,
        memory_budget_bytes=memory_budget_bytes,
        partial_memory=partial_memory,
        job=job,
        quiet=quiet,
    )
    return Debugger(subjects, settings)


def __getattr__(name: str) -> Any:
    """Import the callbacks for trainers at first use."""
    if name == "LightningDebugger":
        from tensight.agents.torch.lightning import LightningDebugger

        return LightningDebugger
    if name == "TransformersDebugger":
        from tensight.agents.torch.transformers import TransformersDebugger

        return TransformersDebugger
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
