"""The agent in a training process: the calls of its adapter, and the decisions for each step."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.core.columns import StatisticsColumns
from tensight.agents.core.connection.attachment import Attachment, StopState
from tensight.agents.core.connection.commands import CommandLoop, Terminated
from tensight.agents.core.connection.introduction import Introduction
from tensight.agents.core.connection.known_programs import KnownPrograms
from tensight.agents.core.connection.responses import TensorResponses
from tensight.agents.core.connection.row_sending import RowSender
from tensight.agents.core.connection.telemetry import Telemetry
from tensight.agents.core.diagnosing import BESIDE, FOR_DIAGNOSIS, LIVE, Budget, Diagnosing, Limit, Thinning, alone
from tensight.agents.core.node_cursor import NodeCursor
from tensight.agents.core.notices import log, log_once, set_quiet
from tensight.agents.core.persistent_slots import PersistentSlots
from tensight.agents.core.process.endings import at_end, described, uncaught
from tensight.agents.core.process.forking import silent_in_children
from tensight.agents.core.process.termination import is_of_handler
from tensight.agents.core.recording.against import TraceComparison
from tensight.agents.core.recording.recording import Recorder
from tensight.agents.core.recording.tracing import Tracer
from tensight.agents.core.retention import Retention
from tensight.agents.core.scalars import Scalars
from tensight.agents.core.slots import Need, SlotTable
from tensight.agents.core.step_needs import StepNeeds
from tensight.agents.core.stops import Stops
from tensight.agents.core.user_rules import UserRules
from tensight.agents.core.watching.alone import WatchedAlone
from tensight.agents.core.watching.checks import StepChecks
from tensight.agents.core.watching.watches import Watches
from tensight.graph.steps import iteration_of, step_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tensight.agents.core.program import Program
    from tensight.agents.core.reader import Framework, TensorReader
    from tensight.agents.core.recording.against import Divergence
    from tensight.agents.core.settings import AgentSettings
    from tensight.agents.core.slots import DeclaredNode
    from tensight.agents.core.watching.rules import AgentHit
    from tensight.wire.debugger_pb2 import WatchpointHit

__all__ = ["Agent", "Terminated"]

_FINITE, _ROW, _VALUE, _HASH = int(Need.FINITE), int(Need.ROW), int(Need.VALUE), int(Need.HASH)

_GROWTH = 1.25
"""Factor by which a step grows until what it has run is learned again."""


class Agent:
    """Observes, watches, keeps and reports what an adapter sees of a training.

    Nothing here raises into the training, except for `Terminated` when the user ends it.

    Parameters
    ----------
    settings : AgentSettings
    framework : Framework
    reader : TensorReader
        Of the framework's tensors.
    script : str
        Command line of the training, as shown to users.
    stops_at_nodes : bool, optional
        Whether the training can stop at operators; by default, if operators are captured.
    cursor : bool, optional
        Whether the adapter sees a step only when that is done, and so never calls `node_done`: the training then stops
        at the end of a step, and the user moves through its operators there, forwards and backwards.

    Attributes
    ----------
    slot_table : SlotTable
        The slots in which tensors are observed.
    columns : StatisticsColumns
    retention : Retention
    watches : Watches
        What is watched.
    checks : StepChecks
        What of it hits.
    recorder : Recorder
    alone : WatchedAlone
    tracer : Tracer
    diagnosing : Diagnosing or None
        Takes the facts of steps for rules, if anything wants them.
    scalars : Scalars
        Loss, learning rates and gradient norm, as an adapter reports them.
    step : int
        Steps done.
    capturing : bool
        Whether anything is needed from the step that begins; if not, an adapter's hooks do nothing.
    stops_at_nodes : bool
        Whether `node_done` must be called after each node.
    wants_operators : bool
        Whether every operator must be captured from the step that begins on, by an adapter that has offered it.
    observe : callable (slot_id, tensor, need, same=None)
        Observes a tensor of the framework: ``need`` is the entry of the slot in `slot_table.needs`, ``same`` a slot
        with the same elements in the same order, possibly in another shape.
    running_program : callable or None
        Set by an adapter that stops at nodes: returns what has run so far in a step.
    unwritten : callable (slot_id) -> tensor or None, or None
        Set by an adapter: returns a weight that has not been written to since the last step was observed.
    """

    def __init__(
        self,
        settings: AgentSettings,
        framework: Framework,
        reader: TensorReader,
        *,
        script: str = "",
        stops_at_nodes: bool | None = None,
        cursor: bool = False,
    ) -> None:
        set_quiet(is_quiet=settings.quiet)
        at_nodes = settings.capture == "ops" if stops_at_nodes is None else stops_at_nodes
        self.settings = settings
        self.framework = framework
        self.slot_table = SlotTable()
        self.columns = StatisticsColumns()
        self.watches = Watches(
            self.slot_table,
            check_at_nodes=at_nodes and not cursor and not settings.alone,
            keep_values=settings.partial_memory,
        )
        self.recorder = Recorder(settings, framework, reader)
        self.alone = WatchedAlone(settings, framework, self.recorder)
        for command in self.alone.commands():
            self.watches.set(command)
        self.tracer = Tracer(settings, framework, script)
        self.scalars = Scalars(reader, self.columns, losses_every_s=settings.losses_every_s)
        self.comparison = TraceComparison(settings, framework)
        self._needs = StepNeeds(
            *(settings, self.slot_table, self.watches, self.recorder, self.tracer, self.comparison),
            is_attached=lambda: self._attachment.is_attached,
            walks=cursor,
        )
        self.retention = Retention(
            *(reader, settings.memory_budget_bytes, self._needs.wants_copies, framework.free_bytes)
        )
        self.checks = StepChecks(
            *(self.watches, reader, self.columns, self.retention),
            stops_for_every=settings.stop_on == "every" and not settings.alone,
            nothing_is_left=self.scalars.have_fallen_to_zero,
        )
        self.step = 0
        self.capturing = True
        self.stops_at_nodes = False
        self.wants_operators = False
        self.running_program: Callable[[], Program] | None = None
        self.unwritten: Callable[[int], Any | None] | None = None
        self._reader = reader
        self._process_id = os.getpid()
        self._is_over = False
        self._has_values = True
        self._hits_within: list[AgentHit] = []
        self._hits_put_off: list[AgentHit] = []
        self._nodes_done = self._nodes_learned = 0
        self._anomalies = self._anomalies_before = np.zeros(0, np.bool_)
        self._anomalies_at = -1
        self._learned_at = -1
        self._persistent = PersistentSlots(self.slot_table, self.retention)
        self._cursor = NodeCursor(self.slot_table) if cursor else None
        has_run = _everything_has_run if self._cursor is None else self._cursor.has_run
        telemetry = self._telemetry = Telemetry(self.slot_table)
        introduction = self._introduction = Introduction(
            settings, framework, script, stops_at_nodes=at_nodes, goes_back=cursor
        )
        attachment = self._attachment = Attachment(settings, introduction, telemetry)
        self._background = attachment.background
        programs = self._programs = KnownPrograms(attachment, introduction, self.watches, (self.recorder, self.tracer))
        self._rows = RowSender(
            *(attachment, introduction, telemetry, self.columns, self.retention, reader, programs), has_run=has_run
        )
        self._seen = self._rows.seen
        self.observe = self.columns.observer(self._seen, self._observe, self.retention.books)
        self._loop = CommandLoop(
            attachment.connection,
            self.watches,
            TensorResponses(
                *(self.slot_table, self.columns, self.retention, reader, self.recorder),
                has_run=has_run,
                as_left=self._as_left,
                program=lambda: programs.latest,
            ),
            check_again=self._check_again,
            capture_operators=self._capture_operators,
            announce=attachment.introduce_again,
            hit_messages=self._hit_messages,
        )
        attachment.obey(self._loop)
        self._stops = Stops(
            *(attachment, self._loop, self._rows, self._needs, self._cursor),
            check_again=lambda: self._check(again=True),
            stop_state=self._stop_state,
            settle=self.watches.settle,
            terminated=self.close,
        )
        self.diagnosing = self._new_diagnosing()
        self._needs.begin()
        silent_in_children(self)
        at_end(self.close_at_exit)

    def _new_diagnosing(self) -> Diagnosing | None:
        settings, telemetry = self.settings, self._telemetry
        folders = [folder for folder in (self.recorder.folder, self.tracer.folder) if folder is not None]
        budget: Budget | Limit | Thinning = BESIDE if folders else LIVE
        if self.alone.folder is not None:
            budget = alone(self.framework.rank)
            if settings.findings_wanted != "off" and self.alone.folder not in folders:
                folders.append(self.alone.folder)
        if settings.diagnose:
            budget = FOR_DIAGNOSIS
            folders.append(Path(settings.diagnose))
        may_be_sent = settings.connects and settings.findings_wanted != "off"
        if not folders and not may_be_sent:
            return None
        return Diagnosing(
            self.framework.rank,
            folders,
            telemetry.offer_facts,
            lambda: may_be_sent and self._attachment.is_attached and self._introduction.is_ours,
            budget,
            settings.diagnose_steps,
            UserRules(Path(settings.rules), self.framework.rank) if settings.rules else None,
        )

    # --- calls of an adapter ---

    def offer_operator_capture(self) -> None:
        """Offer the server, when it is found, to capture every operator instead of calls of modules."""
        self._introduction.can_capture_operators = True

    @property
    def wants_setup(self) -> bool:
        """Whether the set-up of the training is written beside a recording or a trace."""
        return not self._is_over and (self.recorder.is_on or self.tracer.is_on)

    def describe(self, setup: Mapping[str, object]) -> None:
        """Write the set-up of the training, as `tensight.agents.setup.describe` returns it."""
        self.recorder.describe(setup)
        self.tracer.describe(setup)

    def attach(self, program: Program) -> None:
        """Search for the debug server and wait for its first commands, before the first step.

        Parameters
        ----------
        program : Program
            What is known before anything has run: modules and parameters.
        """
        if self._is_over:
            return
        try:
            self._programs.learn(program)
            self._record(program)
            self._attachment.begin(self._stop_state())
            self._account_for(self._check() if self.alone.is_on else [])
            differs = self._compare(is_done=True)
            if self._attachment.is_attached:
                stops = differs is not None and not self.settings.keep_going
                if stops:
                    self._ask_to_stop()
                self._stops.before_first_step(is_held=stops or self.settings.break_at_start)
            self._next_step()
        except Exception as error:
            self._give_up(error)
        except KeyboardInterrupt:
            self._interrupted()
            self._next_step()
            raise

    def _observe(self, slot_id: int, tensor: Any, need: int, same: int | None = None) -> None:
        """Observe a tensor that cannot be read in place, is known already, or must be copied; see `observe`."""
        try:
            self._seen.append(slot_id)
            if need & _ROW:
                hashed = need & _HASH != 0
                shape = None if same is None else tuple(tensor.shape)
                same = self.retention.same_as(tensor) if same is None else same
                if same is None or not self.columns.has_row(same) or (hashed and not self.columns.has_hash(same)):
                    self._reader.scan(tensor, self.columns, slot_id, hashed=hashed)
                elif same != slot_id:
                    self.columns.copy_row(same, slot_id, shape=shape)
            elif need & _FINITE and self._reader.has_non_finite(tensor):
                self._reader.scan(tensor, self.columns, slot_id)
            if need & _VALUE:
                self.retention.keep(slot_id, tensor)
        except Exception as error:
            self._skip(slot_id, error)

    @property
    def shows_news(self) -> bool:
        """Whether this step has shown a NaN, an Inf or an explosion so far that the step before did not show."""
        if self._anomalies_at != self.step:
            self._anomalies_before, self._anomalies_at = self._anomalies, self.step
        self._anomalies = self.columns.anomalies(len(self.slot_table))
        before = self._anomalies_before
        return bool((self._anomalies[: len(before)] & ~before).any() or self._anomalies[len(before) :].any())

    def observe_once(self, slot_id: int, tensor: Any) -> None:
        """Write the row of a tensor of which only the first value in a step counts."""
        if not self.columns.has_row(slot_id):
            self.observe(slot_id, tensor, _ROW | _HASH)

    def was_written_unnoticed(self, slot_id: int, tensor: Any) -> bool:
        """Whether a tensor that is traced has changed since the step before ended; writes to its data count no version.

        It costs a scan, so that it is only determined for traces and recordings, which others are compared with.
        """
        is_compared = self.tracer.is_on or self.recorder.is_on or self.comparison.is_on
        return is_compared and self.columns.has_changed(slot_id, tensor)

    def node_done(self, node: DeclaredNode) -> None:
        """Note that a node has run; the training may stop here."""
        if self._is_over:
            return
        try:
            self._reader.settle(self.columns)
            differs = self._compare(node.name) is not None
            self._nodes_done += 1
            stops_here = self._stops.stops_at(node.name)
            hits = self.checks.check_node(node)
            if hits and not self._learn_of(node.name, is_urgent=stops_here):
                self._hits_put_off += hits
                hits = []
            if hits:
                hits = self._marked_within([*self._hits_put_off, *hits])
            # Other ranks may wait for this one within the step, and would never reach its end.
            stops = self.framework.world_size == 1 and any(hit.is_new for hit in hits)
            if not (stops or stops_here) or self.framework.world_size > 1:
                self._hits_within += hits
                hits = []
            if differs and self._attachment.is_attached:
                self._ask_to_stop()
                stops = self.framework.world_size == 1
            if stops or stops_here:
                self._learn_running()
                self._stops.at_node(node.name, hits)
        except Exception as error:
            self._give_up(error)
        except KeyboardInterrupt:
            self._interrupted()
            raise

    def _learn_of(self, node: str, *, is_urgent: bool) -> bool:
        """Learn what has run so far, if a hit on a node needs it; return False if that is put off.

        After a NaN every operator of the step hits. To learn at each of them what has run would take the square of
        their number, so that after the first time the step must have grown.
        """
        is_first = self._learned_at != self.step
        is_known = self._programs.is_in_latest(node) and not self._hits_put_off
        if not (is_first or is_urgent or is_known) and self._nodes_done < _GROWTH * self._nodes_learned:
            return False
        self._learn_running(node)
        return True

    def _marked_within(self, hits: list[AgentHit]) -> list[AgentHit]:
        """Return hits on nodes of this step, with those in which they originate, each marked as a reason to stop."""
        self._hits_put_off = []
        return self.checks.marked(self.checks.with_held_back(hits), self.running_program)

    def diverges(self, *, is_known: bool) -> None:
        """Note that the step differs from what its beginning let expect: it goes on as an earlier one, or as none.

        Parameters
        ----------
        is_known : bool
            Whether it goes on as an earlier one.
        """
        if self._is_over:
            return
        try:
            self.checks.runs_anew = not is_known
            self._learned_at = -1
            if is_known:
                self._learn_running()
        except Exception as error:
            self._give_up(error)

    def step_done(self, program: Program, *, scaled_skip: bool = False) -> None:
        """Note that a step has ended; the training may stop here.

        Parameters
        ----------
        program : Program
            What ran.
        scaled_skip : bool
            Whether the update was skipped, because the scaled gradients had left the range of their dtype.
        """
        if self._is_over:
            return
        try:
            self._step_done(program, scaled_skip)
        except Exception as error:
            self._give_up(error)
        except KeyboardInterrupt:
            self._interrupted()
            self._next_step()
            raise

    def forget_values(self) -> None:
        """Release all kept values, because some tensors are replaced in a way that cannot be detected."""
        self.retention.clear()

    def report(self, text: str) -> None:
        """Show the user a message, in the terminal and wherever the session is open."""
        log_once(text)
        if not self._is_over:
            self._background.offer_notice(text)

    def withdraw(self, text: str) -> None:
        """Withdraw a message that was reported, because it no longer applies."""
        if not self._is_over:
            self._background.withdraw_notice(text)

    def ended_by(self, error: BaseException | None) -> None:
        """Note the exception that has ended the training, if any; `close` reports it to the server."""
        text = described(error)
        if text and not self._is_over and os.getpid() == self._process_id:
            self._background.offer_notice(f"the training was ended by {text}")

    def close(self) -> None:
        """Report to the server that the training has ended, and release everything."""
        if self._is_over or os.getpid() != self._process_id:
            return
        atexit.unregister(self.close_at_exit)
        self._account_for_unfinished()
        try:
            self.silence()
        finally:
            # Even after an error: a background thread that goes on would make the server believe the training runs.
            self._report_end()

    def _report_end(self) -> None:
        last = None
        try:
            try:
                last = self._rows.last(iteration_of(self.step), len(self.slot_table))
            finally:
                self._attachment.end(StopState(self.step, self._programs.latest), last)
        except Exception as error:
            log(f"the debug server did not receive all of the training's end: {error!r}")
        finally:
            self.alone.close(self.step)
            self.recorder.close()
            self.tracer.close()
            self.comparison.end()
            self.retention.clear()

    def close_at_exit(self) -> None:
        """Do the same while the interpreter exits, where Ctrl-C only means that the user is in a hurry."""
        with suppress(KeyboardInterrupt):
            self.ended_by(uncaught())
            self.close()

    def silence(self) -> Attachment:
        """Disable the agent; return what a forked process must never free."""
        self._is_over = True
        self.capturing = self.stops_at_nodes = self.wants_operators = False
        needs = self.slot_table.needs
        needs[:] = bytes(len(needs))
        self.slot_table.decide_needs(lambda _: Need.NOTHING)
        return self._attachment

    # --- a step ---

    def _step_done(self, program: Program, scaled_skip: bool) -> None:
        captured = self.capturing
        self.step += 1
        self._background.step = self.step
        is_new = self._programs.learn(program)
        self.watches.causes.runs(program)
        hits: list[AgentHit] = []
        differs = False
        if captured:
            self._reader.settle(self.columns)
            differs = self._compare(is_done=True) is not None
            if self._hits_put_off:
                self._hits_within += self._marked_within(self._hits_put_off)
            is_checked = self._attachment.is_attached or self.alone.is_on
            hits = self._check(scaled_skip=scaled_skip) if is_checked else []
            hits += self._hits_within
            self._record(program)
        self._account_for(hits)
        stops = any(hit.is_new for hit in hits)
        if self._attachment.is_attached:
            self._telemetry.offer_scalars(self.columns.current_iteration, self.scalars.take(stops=stops or differs))
        self._hits_within = []
        self._stops.count_step()
        self._follow_the_server()
        if self._attachment.is_attached:
            wants_stop = self._background.wants_stop and captured and self._needs.shows_all
            wants_stop = wants_stop or self._background.wants_exit
            if differs:
                self._ask_to_stop()
            if stops or differs or is_new or wants_stop or self._stops.is_due:
                self._stops.at_end(program, hits, is_held=differs and not self.settings.keep_going)
            else:
                self._rows.offer()
                if hits and self._loop.is_ours:
                    self._background.offer_hits(self._hit_messages(hits))
        self._next_step()

    def _account_for(self, hits: list[AgentHit]) -> None:
        """Append what a rank that watches itself has seen of this step to its file."""
        self.alone.step_done(self.columns.current_iteration, hits, self._seen, self._programs.latest, self.columns)

    def _account_for_unfinished(self) -> None:
        """Do the same with NaN and Inf of a step that never ends, such as one in which the script gives up."""
        if not (self.alone.is_on and self._seen):
            return
        try:
            self._reader.settle(self.columns)
            # What has run so far ends where the step ends; an earlier step shows how it is connected.
            whole = self._programs.latest
            self._learn_running()
            if whole is not None:
                self.watches.causes.runs(whole)
            self._account_for([hit for hit in self._check() if self.watches.finds_non_finite(hit.watchpoint)])
        except Exception as error:
            log(f"what was seen of the last step is not written: {error!r}")

    def _record(self, program: Program) -> None:
        if self.recorder.is_on:
            iteration = self.columns.current_iteration
            self.recorder.record(iteration, program, self._seen, self.slot_table, self.columns, self.retention)
        if self.tracer.is_on:
            self.tracer.record(self.columns.current_iteration, program, self._seen, self.slot_table, self.columns)

    def _compare(self, node: str = "", *, is_done: bool = False) -> Divergence | None:
        """Compare what was observed with the trace; report the first difference, and end if no server is attached.

        Parameters
        ----------
        node : str
            Full name of the operator that has run.
        is_done : bool
            Whether the step is over.
        """
        if not self.comparison.is_on:
            return None
        divergence = self.comparison.advance(self._seen, self.slot_table, self.columns, is_done=is_done)
        if divergence is None:
            return None
        program = self._programs.latest
        if node and self.running_program is not None:
            program = self.running_program()
        lines = divergence.lines(program)
        for line in lines:
            log(line)
        if self._attachment.is_attached:
            self._background.offer_notice("; ".join(line.strip() for line in lines))
        elif not self.settings.keep_going:
            self.close()
            raise Terminated(1)
        return divergence

    def _ask_to_stop(self) -> None:
        """Ask the server to stop the run where it can stop next."""
        if not self.settings.keep_going:
            self._background.ask_to_stop()

    def _follow_the_server(self) -> None:
        """Check whether the server was lost, or has come back, while the training ran."""
        background = self._background
        if background.is_lost and self._attachment.is_attached:
            self._attachment.lose()
            self._stops.go_on()
            if self.settings.on_disconnect == "wait":
                self._attachment.wait(self._stop_state())
                self._stops.ask_soon()
        elif background.is_back and not self._attachment.is_attached and self._attachment.come_back(self._stop_state()):
            self._stops.ask_soon()

    def _next_step(self) -> None:
        """Decide what the next step needs, and release the values of the step before the last."""
        attached = self._attachment.is_attached
        is_inspected = attached and (self._stops.is_near or self._background.wants_stop)
        watches = attached and self.watches.any
        compares = self.comparison.is_on
        is_alone = self.alone.watches(step_of(self.step))
        self.capturing = is_inspected or watches or is_alone or self.recorder.is_on or self.tracer.is_on or compares
        at_nodes = (attached and self._stops.order.at_nodes) or compares
        self.stops_at_nodes = at_nodes and self._cursor is None
        is_reported = attached and self._introduction.is_ours
        may_stop = is_reported and (watches or compares)
        self.scalars.begin(is_reported=is_reported, is_shown=is_inspected, are_noted=may_stop or is_alone)
        self.watches.settle()
        self._persistent.add_new()
        self._rows.keep_weights(self._persistent.slot_ids if watches or is_inspected else None)
        if self.capturing:
            self._needs.decide(self.step, self._persistent, is_inspected=is_inspected, watches=watches)
            self._persistent.forget_uncopied()
            self.retention.turn_over()
            self._has_values = True
        elif self._has_values:
            # An adapter may observe a step to learn what runs; nothing of it is kept.
            self._needs.require(Need.NOTHING)
            self.retention.clear()
            self._has_values = False
        self._seen.clear()
        self._hits_put_off = []
        self._nodes_done = 0
        self.checks.runs_anew = False
        self.columns.current_iteration = self.step

    # --- stopped ---

    def _check(self, *, scaled_skip: bool = False, again: bool = False) -> list[AgentHit]:
        """Check all watchpoints on the values of the step at which the training is stopped, or check them again."""
        if not self.watches.any:
            return []
        if self.columns.current_iteration < 0:
            return self.checks.check_initial()
        return self.checks.check_step(self._seen, scaled_skip=scaled_skip, again=again)

    def _as_left(self, slot_id: int) -> Any | None:
        """Return a weight that is unchanged since the last step; None at the end of a step, or if that is uncertain."""
        is_within = self.step == self.columns.current_iteration
        return self.unwritten(slot_id) if is_within and self.unwritten is not None else None

    def _capture_operators(self) -> None:
        """Capture every operator from the next step on, because the user requests it."""
        if not self._introduction.can_capture_operators:
            return
        self.wants_operators = True
        self._introduction.captures_operators()
        self._needs.captures_modules = False
        self.watches.begin_node_checks()

    def _check_again(self) -> list[AgentHit]:
        """Check all watchpoints again, because the user requests it; return the hits on what has run."""
        hits = self._check(again=True)
        return hits if self._cursor is None else self._cursor.tell_again(hits)

    def _learn_running(self, node: str = "") -> None:
        """Learn what runs in a step that is not over, unless what was learned in it already contains the node."""
        if self.running_program is None or (self._learned_at == self.step and self._programs.is_in_latest(node)):
            return
        self._learned_at, self._nodes_learned = self.step, self._nodes_done
        self._programs.learn(self.running_program())

    def _stop_state(self, node: str = "") -> StopState:
        compares = self.framework.world_size > 1 and not node
        hashes = self.watches.hashes(self.columns) if compares else ()
        oldest = self.recorder.oldest_iteration if self.settings.record else None
        return StopState(step_of(self.columns.current_iteration), self._programs.latest, node, hashes, oldest)

    def _hit_messages(self, hits: Iterable[AgentHit]) -> list[WatchpointHit]:
        graph_of, iteration = self._programs.graph_of, self.columns.current_iteration
        if not self._loop.is_ours:
            return [hit.message() for hit in hits]
        return [hit.message(graph_of(hit.tensor_slot.node.name), None if hit.is_new else iteration) for hit in hits]

    # --- internal errors ---

    def _skip(self, slot_id: int, error: Exception) -> None:
        """Stop observing a slot, because its tensors cause an error."""
        self.slot_table.needs[slot_id] = 0
        tensor_slot = self.slot_table[slot_id]
        log_once(f"{tensor_slot.node.name}:{tensor_slot.slot} is not observed: {error!r}")

    def _interrupted(self) -> None:
        """Go on without further stops, in case the script catches the interruption and continues."""
        self._stops.go_on()
        self._background.runs(True)

    def _give_up(self, error: Exception) -> None:
        """End debugging, and leave the training undisturbed."""
        if is_of_handler(error):
            self._interrupted()
            raise error
        log(f"internal error, debugging ends here and the training goes on: {error!r}")
        self.close()


def _everything_has_run(_slot_id: int) -> bool:
    """Return whether a slot has its value, for an adapter that observes steps while they run."""
    return True
