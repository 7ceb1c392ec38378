"""The summary of a live session: its state, its message and its capabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tensight.sessions.live.running_session import RunningSession
from tensight.sessions.records import SessionRecord, State

if TYPE_CHECKING:
    from tensight.sessions.events import EventLog
    from tensight.sessions.hit_list import HitList
    from tensight.sessions.live.findings import LiveFindings
    from tensight.sessions.live.process import TrainingProcess
    from tensight.sessions.live.recording import Recording
    from tensight.sessions.live.reported_hits import ReportedHits
    from tensight.sessions.live.run_controller import RunController
    from tensight.sessions.live.shown_step import ShownStep
    from tensight.sessions.records import Capabilities
    from tensight.sessions.watchpoint_list import WatchpointList

_MOST_MESSAGES = 5


class SummarizedSession(RunningSession, Protocol):
    """The part of a session that the summary needs; see `LiveSession`."""

    id: str
    name: str
    created: float
    processes: dict[int, TrainingProcess]
    run_controller: RunController
    findings: LiveFindings
    reported: ReportedHits
    shown: ShownStep
    recording: Recording
    events: EventLog
    hit_list: HitList
    watchpoint_list: WatchpointList

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have attached so far."""

    def capabilities(self) -> Capabilities:
        """Return the current capabilities."""


def session_summary(session: SummarizedSession) -> SessionRecord:
    """Return the summary of a session."""
    ranks = tuple(session.processes[rank].record() for rank in session.ranks)
    is_past = session.shown.step is not None
    return SessionRecord(
        id=session.id,
        name=session.name,
        state=session.state,
        message=message(session),
        step=session.step,
        present_step=session.present_step if is_past else None,
        total_steps=session.step if session.state in (State.FINISHED, State.TERMINATED) else None,
        node=ranks[0].node if ranks and not is_past else "",
        graph=ranks[0].graph if ranks else "",
        framework=session.identity.framework,
        framework_version=session.identity.framework_version,
        backend=session.identity.backend,
        created=session.created,
        ranks=ranks,
        capabilities=session.capabilities(),
        watchpoints=len(session.watchpoint_list),
        hits=session.hit_list.tensors,
        findings=len(session.findings.record.findings),
        ongoing=session.reported.ongoing,
        outdated=session.hit_list.outdated,
        recommended_offered=session.watchpoint_list.recommended_offered,
        closer_command=next(filter(None, (process.closer_command for process in session.processes.values())), ""),
        last_event=session.events.last,
        dump=session.recording.name,
    )


def capabilities_now(session: SummarizedSession) -> dict[str, bool]:
    """Return the current capabilities beyond those of every session."""
    live = session.live
    is_paused = session.state is State.PAUSED
    at_nodes = is_paused and session.run_controller.can_stop_at_nodes
    can_show_past = session.shown.can_show_past
    return {
        "live": True,
        "can_pause": bool(live) and session.run_controller.is_running,
        "can_terminate": bool(live) or session.state is State.LOST,
        "can_step": is_paused,
        "can_step_back": can_show_past and session.step > 0,
        "can_go_to_step": can_show_past,
        "can_next_node": at_nodes,
        "can_previous_node": is_paused and session.run_controller.can_go_back,
        "can_run_to_node": at_nodes,
        "can_recheck": is_paused,
        "can_look_closer": is_paused and session.run_controller.can_capture_operators,
        "has_previous_values": bool(live) and all(process.identity.abilities.previous for process in live),
        "has_execution_history": True,
        "has_origin": session.identity.is_agent and not session.recording.statistics.is_empty,
        "has_statistics_table": not session.recording.statistics.is_empty,
        "views_at_source": bool(live) and all(process.identity.abilities.views for process in live),
    }


def message(session: SummarizedSession) -> str:
    """Return a message for users that explains the state of the session; may be empty."""
    if session.shown.step is not None:
        return f"shows step {session.shown.step}; the training is at step {session.present_step}"
    several = session.identity.world_size > 1
    processes = [session.processes[rank] for rank in session.ranks]
    messages = [
        f"rank {process.rank}: {process.message}" if several else process.message
        for process in processes
        if process.message
    ]
    if several and len(processes) < session.identity.world_size and session.live:
        messages.append(f"{len(processes)} of {session.identity.world_size} ranks are attached")
    if not messages and session.state is State.RUNNING and session.run_controller.is_stopping:
        messages.append("stops when the step that is running is done")
    return "; ".join(messages[:_MOST_MESSAGES])
