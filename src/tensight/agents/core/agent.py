"""The agent in a training process: the calls of its adapter, and the decisions for each step."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensight.agents.core.connection.attachment import StopState
from tensight.agents.core.connection.commands import Terminated
from tensight.agents.core.connection.server import Server
from tensight.agents.core.diagnosing import BESIDE, FOR_DIAGNOSIS, LIVE, Budget, Diagnosing, Limit, Thinning, alone
from tensight.agents.core.node_cursor import NodeCursor
from tensight.agents.core.notices import log, log_once, set_quiet
from tensight.agents.core.observation import Observation
from tensight.agents.core.process.endings import at_end, described, uncaught
from tensight.agents.core.process.forking import silent_in_children
from tensight.agents.core.process.termination import is_of_handler
from tensight.agents.core.recording.step_records import StepRecords
from tensight.agents.core.retention import Retention
from tensight.agents.core.running_step import RunningStep
from tensight.agents.core.slots import Need
from tensight.agents.core.step_needs import StepNeeds
from tensight.agents.core.stops import Stops
from tensight.agents.core.user_rules import UserRules
from tensight.agents.core.watching.checks import StepChecks
from tensight.agents.core.watching.watches import Watches
from tensight.graph.steps import iteration_of, step_of

if TYPE_CHECKING:
    from tensight.agents.core.connection.attachment import Attachment
    from tensight.agents.core.program import Program
    from tensight.agents.core.reader import Framework, TensorReader
    from tensight.agents.core.recording.against import Divergence
    from tensight.agents.core.settings import AgentSettings
    from tensight.agents.core.slots import DeclaredNode
    from tensight.agents.core.watching.rules import AgentHit

__all__ = ["Agent", "Terminated"]


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
    observed : Observation
    slot_table : SlotTable
        Its slots.
    observe : callable (slot_id, tensor, need, same=None)
        See `Observation`.
    records : StepRecords
        What is recorded, traced and compared.
    checks : StepChecks
        The checks of watchpoints.
    running : RunningStep
    diagnosing : Diagnosing or None
        Takes the facts of steps for rules, if anything wants them.
    step : int
        Steps done.
    capturing : bool
        Whether anything is needed from the step that begins; if not, an adapter's hooks do nothing.
    stops_at_nodes : bool
        Whether `node_done` must be called after each node.
    wants_operators : bool
        Whether every operator must be captured from the step that begins on, by an adapter that has offered it.
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
        budget_bytes, free_bytes = settings.memory_budget_bytes, framework.free_bytes
        retention = Retention(reader, budget_bytes, lambda slot_id: self._needs.wants_copies(slot_id), free_bytes)
        observed = self.observed = Observation(reader, retention, losses_every_s=settings.losses_every_s)
        self.slot_table, self.observe = observed.slot_table, observed.observe
        self.records = StepRecords(settings, framework, reader, script)
        watches = Watches(
            observed.slot_table,
            check_at_nodes=at_nodes and not cursor and not settings.alone,
            keep_values=settings.partial_memory,
        )
        for command in self.records.alone.commands():
            watches.set(command)
        self.checks = StepChecks(watches, observed, stops_for_every=settings.stop_on == "every" and not settings.alone)
        node_cursor = NodeCursor(observed.slot_table) if cursor else None
        self._server = Server(
            *(settings, framework, observed, watches, self.records),
            script=script,
            stops_at_nodes=at_nodes,
            cursor=node_cursor,
            as_left=self._as_left,
            check_again=self._check_again,
            capture_operators=self._capture_operators,
        )
        self._needs = StepNeeds(*(settings, observed, watches, self.records), server=self._server, walks=cursor)
        self._stops = Stops(
            *(self._server, self._needs, node_cursor),
            check_again=lambda: self._check(again=True),
            terminated=self.close,
        )
        self.running = RunningStep(self.checks, self._server.programs)
        self.diagnosing = _new_diagnosing(settings, framework, self.records, self._server)
        self.step = 0
        self.capturing = True
        self.stops_at_nodes = False
        self.wants_operators = False
        self._settings = settings
        self._process_id = os.getpid()  # 0 once it is over
        self._needs.begin()
        silent_in_children(self)
        at_end(self.close_at_exit)

    # --- calls of an adapter ---

    def offer_operator_capture(self) -> None:
        """Offer the server, when it is found, to capture every operator instead of calls of modules."""
        self._server.introduction.can_capture_operators = True

    def attach(self, program: Program) -> None:
        """Search for the debug server and wait for its first commands, before the first step.

        Parameters
        ----------
        program : Program
            What is known before anything has run: modules and parameters.
        """
        if not self._process_id:
            return
        server, settings = self._server, self._settings
        try:
            server.programs.learn(program)
            self.records.write(program, self.observed)
            server.attachment.begin(server.stop_state())
            self._account_for(self._check() if self.records.alone.is_on else [])
            differs = self._compare(is_done=True)
            if server.is_attached:
                stops = differs is not None and not settings.keep_going
                if stops:
                    self._ask_to_stop()
                self._stops.before_first_step(is_held=stops or settings.break_at_start)
            self._next_step()
        except Exception as error:
            self._give_up(error)
        except KeyboardInterrupt:
            self._interrupted()
            self._next_step()
            raise

    def was_written_unnoticed(self, slot_id: int, tensor: Any) -> bool:
        """Whether a tensor that is traced has changed since the step before ended; writes to its data count no version.

        It costs a scan, so that it is only determined for traces and recordings, which others are compared with.
        """
        return self.records.are_compared and self.observed.columns.has_changed(slot_id, tensor)

    def node_done(self, node: DeclaredNode) -> None:
        """Note that a node has run; the training may stop here."""
        if not self._process_id:
            return
        try:
            observed = self.observed
            observed.reader.settle(observed.columns)
            differs = self.records.comparison.is_on and self._compare(node.name) is not None
            stops_here = self._stops.stops_at(node.name)
            hits = self.running.check(node, is_urgent=stops_here)
            # Other ranks may wait for this one within the step, and would never reach its end.
            is_single = self._server.is_single
            stops = is_single and any(hit.is_new for hit in hits)
            if not (stops or (stops_here and is_single)):
                self.running.hits += hits
                hits = []
            if differs and self._server.is_attached:
                self._ask_to_stop()
                stops = is_single
            if stops or stops_here:
                self.running.learn()
                self._stops.at_node(node.name, hits)
        except Exception as error:
            self._give_up(error)
        except KeyboardInterrupt:
            self._interrupted()
            raise

    def diverges(self, *, is_known: bool) -> None:
        """Note that the step differs from what its beginning let expect: it goes on as an earlier one, or as none.

        Parameters
        ----------
        is_known : bool
            Whether it goes on as an earlier one.
        """
        if not self._process_id:
            return
        try:
            self.running.diverges(is_known=is_known)
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
        if not self._process_id:
            return
        try:
            self._step_done(program, scaled_skip)
        except Exception as error:
            self._give_up(error)
        except KeyboardInterrupt:
            self._interrupted()
            self._next_step()
            raise

    def report(self, text: str) -> None:
        """Show the user a message, in the terminal and wherever the session is open."""
        log_once(text)
        if self._process_id:
            self._server.background.offer_notice(text)

    def withdraw(self, text: str) -> None:
        """Withdraw a message that was reported, because it no longer applies."""
        if self._process_id:
            self._server.background.withdraw_notice(text)

    # --- the end ---

    def ended_by(self, error: BaseException | None) -> None:
        """Note the exception that has ended the training, if any; `close` reports it to the server."""
        text = described(error)
        if text and os.getpid() == self._process_id:
            self._server.background.offer_notice(f"the training was ended by {text}")

    def close(self) -> None:
        """Report to the server that the training has ended, and release everything."""
        if os.getpid() != self._process_id:
            return
        atexit.unregister(self.close_at_exit)
        self._account_for_unfinished()
        try:
            self.silence()
        finally:
            # Even after an error: a background thread that goes on would make the server believe the training runs.
            self._report_end()

    def _report_end(self) -> None:
        server, last = self._server, None
        try:
            try:
                last = server.rows.last(iteration_of(self.step))
            finally:
                server.attachment.end(StopState(self.step, server.programs.latest), last)
        except Exception as error:
            log(f"the debug server did not receive all of the training's end: {error!r}")
        finally:
            self.records.close(self.step)
            self.observed.retention.clear()

    def close_at_exit(self) -> None:
        """Do the same while the interpreter exits, where Ctrl-C only means that the user is in a hurry."""
        with suppress(KeyboardInterrupt):
            self.ended_by(uncaught())
            self.close()

    def silence(self) -> Attachment:
        """Disable the agent; return what a forked process must never free."""
        self._process_id = 0
        self.capturing = self.stops_at_nodes = self.wants_operators = False
        needs = self.slot_table.needs
        needs[:] = bytes(len(needs))
        self.slot_table.decide_needs(lambda _: Need.NOTHING)
        return self._server.attachment

    # --- a step ---

    def _step_done(self, program: Program, scaled_skip: bool) -> None:
        server, stops, observed = self._server, self._stops, self.observed
        captured = self.capturing
        self.step += 1
        server.background.step = self.step
        is_new = server.programs.learn(program)
        self.checks.watches.causes.runs(program)
        hits: list[AgentHit] = []
        differs = False
        if captured:
            observed.reader.settle(observed.columns)
            differs = self._compare(is_done=True) is not None
            self.running.end()
            is_checked = server.is_attached or self.records.alone.is_on
            hits = self._check(scaled_skip=scaled_skip) if is_checked else []
            hits += self.running.hits
            self.records.write(program, observed)
        self._account_for(hits)
        has_news = any(hit.is_new for hit in hits)
        if server.is_attached:
            scalars = observed.scalars.take(stops=has_news or differs)
            server.telemetry.offer_scalars(observed.columns.current_iteration, scalars)
        stops.count_step()
        stops.follow_the_server(waits=self._settings.on_disconnect == "wait")
        if server.is_attached:
            wants_stop = server.background.wants_stop and captured and self._needs.shows_all
            wants_stop = wants_stop or server.background.wants_exit
            if differs:
                self._ask_to_stop()
            if has_news or differs or is_new or wants_stop or stops.is_due:
                stops.at_end(program, hits, is_held=differs and not self._settings.keep_going)
            else:
                server.rows.offer()
                server.offer_hits(hits)
        self._next_step()

    def _account_for(self, hits: list[AgentHit]) -> None:
        """Append what a rank that watches itself has seen of this step to its file."""
        self.records.alone.step_done(hits, self._server.programs.latest, self.observed)

    def _account_for_unfinished(self) -> None:
        """Do the same with NaN and Inf of a step that never ends, such as one in which the script gives up."""
        observed, watches = self.observed, self.checks.watches
        if not (self.records.alone.is_on and observed.seen):
            return
        try:
            observed.reader.settle(observed.columns)
            # What has run so far ends where the step ends; an earlier step shows how it is connected.
            whole = self._server.programs.latest
            self.running.learn()
            if whole is not None:
                watches.causes.runs(whole)
            self._account_for([hit for hit in self._check() if watches.finds_non_finite(hit.watchpoint)])
        except Exception as error:
            log(f"what was seen of the last step is not written: {error!r}")

    def _compare(self, node: str = "", *, is_done: bool = False) -> Divergence | None:
        """Compare what was observed with the trace; report the first difference, and end if no server is attached.

        Parameters
        ----------
        node : str
            Full name of the operator that has run.
        is_done : bool
            Whether the step is over.
        """
        divergence = self.records.comparison.advance(self.observed, is_done=is_done)
        if divergence is None:
            return None
        server = self._server
        program = server.programs.latest
        if node and self.running.program is not None:
            program = self.running.program()
        lines = divergence.lines(program)
        for line in lines:
            log(line)
        if server.is_attached:
            server.background.offer_notice("; ".join(line.strip() for line in lines))
        elif not self._settings.keep_going:
            self.close()
            raise Terminated(1)
        return divergence

    def _ask_to_stop(self) -> None:
        """Ask the server to stop the run where it can stop next."""
        if not self._settings.keep_going:
            self._server.background.ask_to_stop()

    def _next_step(self) -> None:
        """Decide what the next step needs, and release the values of the step before the last."""
        server, observed, needs = self._server, self.observed, self._needs
        attached = server.is_attached
        is_inspected = attached and (self._stops.is_near or server.background.wants_stop)
        watches = attached and self.checks.watches.any
        compares = self.records.comparison.is_on
        is_alone = self.records.alone.watches(step_of(self.step))
        self.capturing = is_inspected or watches or is_alone or self.records.are_compared
        at_nodes = (attached and self._stops.order.at_nodes) or compares
        self.stops_at_nodes = at_nodes and self._stops.cursor is None
        are_noted = is_alone or (server.is_ours and (watches or compares))
        observed.scalars.begin(is_reported=server.is_ours, is_shown=is_inspected, are_noted=are_noted)
        self.checks.watches.settle()
        needs.begin_step(self.step, is_captured=self.capturing, is_inspected=is_inspected, watches=watches)
        server.rows.keep_weights(needs.persistent.slot_ids if watches or is_inspected else None)
        observed.seen.clear()
        self.running.begin()
        observed.columns.current_iteration = self.step

    # --- stopped ---

    def _check(self, *, scaled_skip: bool = False, again: bool = False) -> list[AgentHit]:
        """Check all watchpoints on the values of the step at which the training is stopped, or check them again."""
        if not self.checks.watches.any:
            return []
        if self.observed.columns.current_iteration < 0:
            return self.checks.check_initial()
        return self.checks.check_step(self.observed.seen, scaled_skip=scaled_skip, again=again)

    def _as_left(self, slot_id: int) -> Any | None:
        """Return a weight that is unchanged since the last step; None at the end of a step, or if that is uncertain."""
        observed = self.observed
        is_within = self.step == observed.columns.current_iteration
        return observed.unwritten(slot_id) if is_within and observed.unwritten is not None else None

    def _capture_operators(self) -> None:
        """Capture every operator from the next step on, because the user requests it."""
        introduction = self._server.introduction
        if not introduction.can_capture_operators:
            return
        self.wants_operators = True
        introduction.captures_operators()
        self._needs.captures_modules = False
        self.checks.watches.begin_node_checks()

    def _check_again(self) -> list[AgentHit]:
        """Check all watchpoints again, because the user requests it; return the hits on what has run."""
        hits, cursor = self._check(again=True), self._stops.cursor
        return hits if cursor is None else cursor.tell_again(hits)

    # --- internal errors ---

    def _interrupted(self) -> None:
        """Go on without further stops, in case the script catches the interruption and continues."""
        self._stops.go_on()
        self._server.background.runs(True)

    def _give_up(self, error: Exception) -> None:
        """End debugging, and leave the training undisturbed."""
        if is_of_handler(error):
            self._interrupted()
            raise error
        log(f"internal error, debugging ends here and the training goes on: {error!r}")
        self.close()


def _new_diagnosing(
    settings: AgentSettings, framework: Framework, records: StepRecords, server: Server
) -> Diagnosing | None:
    """Return what takes the facts of steps; None if nothing wants them."""
    folders = [folder for folder in (records.recorder.folder, records.tracer.folder) if folder is not None]
    of_ranks = records.alone.folder
    budget: Budget | Limit | Thinning = BESIDE if folders else LIVE
    if of_ranks is not None:
        budget = alone(framework.rank)
        if settings.findings_wanted != "off" and of_ranks not in folders:
            folders.append(of_ranks)
    if settings.diagnose:
        budget = FOR_DIAGNOSIS
        folders.append(Path(settings.diagnose))
    may_be_sent = settings.connects and settings.findings_wanted != "off"
    if not folders and not may_be_sent:
        return None
    return Diagnosing(
        framework.rank,
        folders,
        server.telemetry.offer_facts,
        lambda: may_be_sent and server.is_ours,
        budget,
        settings.diagnose_steps,
        UserRules(Path(settings.rules), framework.rank) if settings.rules else None,
    )
