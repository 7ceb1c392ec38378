"""Runs the processes of a session together, on the commands of users.

The plan of the run (`run_plans`) determines the task of each process. Every message and every command ends in
`RunController.advance`, which lets `orders` decide the next order of each process from the stop states of all of them,
and carries it out. So a single function decides, and calling it repeatedly is safe.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from tensight import wire
from tensight.errors import InputError, TensightError
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.graph_views import names_like
from tensight.sessions.live.orders import Order, left_steps, next_orders, owes_step
from tensight.sessions.live.rank_hashes import differing_tensors
from tensight.sessions.live.run_plans import NextNode, PreviousNode, Recheck, RunToNode, Steps
from tensight.sessions.live.running_session import RunningSession
from tensight.sessions.live.watching import watch_changes
from tensight.sessions.records import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.live.orders import StopState
    from tensight.sessions.live.process import TrainingProcess
    from tensight.sessions.live.run_plans import RunPlan
    from tensight.sessions.live.settings import LiveSettings
    from tensight.sessions.records import Command
    from tensight.sessions.watchpoint_list import WatchpointList
    from tensight.wire.debugger_pb2 import EventReply

AT_ANY_TIME = ("pause", "terminate")
"""Commands that are allowed while the training runs."""


class RunTeller(Protocol):
    """Reports the state of a run to the terminal of the training; see `Terminal`."""

    def stopped(self) -> None:
        """Note that no plan is running."""

    def stops_at_hits(self) -> None:
        """Note that the training stops because of hits."""

    def goes_on(self, plan: RunPlan) -> None:
        """Note that a plan starts."""

    def leaves(self) -> None:
        """Note that the training will end."""


class KnownHits(Protocol):
    """The hits of a session; see `ReportedHits`."""

    def add(self, hits: list[SessionHit]) -> None:
        """Add hits of the step at which all processes are stopped."""

    def clear(self) -> None:
        """Remove the hits of the step at which all processes are stopped."""


class Past(Protocol):
    """The shown step; see `ShownStep`."""

    def return_to_present(self) -> None:
        """Show the current step of the training."""


class ControlledSession(RunningSession, Protocol):
    """The part of a session that its run controller needs; see `LiveSession`."""

    settings: LiveSettings
    watchpoint_list: WatchpointList

    @property
    def processes(self) -> Mapping[int, TrainingProcess]:
        """The newest process of each rank."""

    @property
    def terminal(self) -> RunTeller:
        """Reports to the terminal of the training."""

    @property
    def reported(self) -> KnownHits:
        """Stores the hits."""

    @property
    def shown(self) -> Past:
        """The shown step."""

    def process_of(self, rank: int) -> TrainingProcess:
        """Return the process of a rank. NotFoundError if there is none."""

    def changed(self) -> None:
        """Note that the file of the run must be written."""

    def paused(self) -> None:
        """Note that all processes are stopped at the target of the plan."""

    def warn(self, text: str) -> None:
        """Send a warning to the clients."""


class _Command(NamedTuple):
    """The command of a plan for a process; None if there is none."""

    plan: RunPlan | None
    reply: EventReply | None

    @property
    def task(self) -> Literal["train", "check", ""]:
        if self.plan is None:
            return ""
        return "train" if self.plan.trains else "check"


_NO_COMMAND = _Command(None, None)


class RunController:
    """Sends the processes of a session their orders.

    Parameters
    ----------
    session : ControlledSession

    Attributes
    ----------
    generation : int
        Version of the watchpoints that the processes should have.
    stops_for_every : bool
        Whether every hit stops the run, even one that continues or follows from reported hits.
    """

    def __init__(self, session: ControlledSession) -> None:
        self._session = session
        self._plan: RunPlan | None = None
        self._preparing: set[asyncio.Task[None]] = set()
        self._left: set[int] = set()
        self._is_advancing = self._is_due = False
        self._has_begun = False
        self._compared = -1
        self._gathering: asyncio.TimerHandle | None = None
        self._is_pausing = False
        self.generation = 0
        self.stops_for_every = False

    @property
    def is_running(self) -> bool:
        """Whether the processes train or check something."""
        return self._plan is not None

    @property
    def is_stopping(self) -> bool:
        """Whether the processes stop when the running step is completed."""
        return self._plan is None or self._is_pausing

    @property
    def can_stop_at_nodes(self) -> bool:
        """Whether all processes can run operator by operator."""
        live = self._session.live
        return bool(live) and all(process.identity.stops_at_nodes for process in live)

    @property
    def can_go_back(self) -> bool:
        """Whether all processes can move back to the previous operator."""
        live = self._session.live
        has_run = bool(live) and all(process.progress.step > 0 for process in live)
        return has_run and self.can_stop_at_nodes and all(process.identity.abilities.back for process in live)

    @property
    def can_capture_operators(self) -> bool:
        """Whether all processes capture only module calls, and can capture every operator from the next step on.

        Once weights are NaN or Inf, so is all that follows, and no further step shows where it began.
        """
        live = self._session.live
        has_lost = any(process.progress.lost_weights for process in live)
        return bool(live) and not has_lost and all(process.identity.abilities.closer for process in live)

    # --- advancing ---

    def advance(self) -> None:
        """Send every waiting process its next order, if there is one."""
        self._is_due = True
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._is_due:
                self._is_due = False
                self._advance_once()
        finally:
            self._is_advancing = False
        if self._plan is None:
            self._session.terminal.stopped()
        self._session.announce()

    def _advance_once(self) -> None:
        live = self._session.live
        for process in live:
            if not process.outgoing.sent and not len(self._session.watchpoint_list):
                process.outgoing.prepared = self.generation
        last = min((process.progress.global_step for process in live), default=0)
        is_together = all(process.connection.is_waiting and process.progress.global_step == last for process in live)
        if len(live) > 1 and is_together:
            self._compare(live, last)
        # No rank may begin while others of its job are still attaching.
        is_complete = self._gathering is None or len(self._session.processes) >= self._session.identity.world_size
        if not self._carry_out_all(live, is_complete=is_complete):
            return
        live = self._session.live
        # The run of a lost process continues when it reconnects.
        if self._plan is not None and live and all(map(self._is_done, live)):
            remark = self._plan.remark()
            self.stop()
            if remark:
                self._session.warn(remark)
            self._session.paused()
        if self._plan is None:
            for process in self._session.live:
                self._ask(process)

    def _carry_out_all(self, live: list[TrainingProcess], *, is_complete: bool) -> bool:
        """Carry out the order of each process; return False if the orders must be decided again."""
        stop_states = [process.stop_state for process in live]
        self._left = left_steps(stop_states)
        commands = list(map(self._command_of, live, stop_states))
        with_tasks = [
            stop_state._replace(task=command.task) for stop_state, command in zip(stop_states, commands, strict=True)
        ]
        orders = next_orders(with_tasks, self.generation, is_complete=is_complete)
        for process, order, command in zip(live, orders, commands, strict=True):
            self._carry_out(order, process, command)
            if self._is_due:
                # The order of a process can change those of the others.
                return False
        return True

    def begin(self, *, gathers: bool) -> None:
        """Start the training without a user, unless it was started before.

        Parameters
        ----------
        gathers : bool
            Whether to wait until all ranks of the job have attached, up to `LiveSettings.gather_within_s`.
        """
        if self._has_begun or self._plan is not None:
            return
        self._has_begun = True
        self._plan = Steps(None)
        self._session.terminal.goes_on(self._plan)
        if gathers:
            patience_s = self._session.settings.gather_within_s
            self._gathering = asyncio.get_running_loop().call_later(patience_s, self._gathered)

    def _gathered(self) -> None:
        """Stop waiting for more ranks, and let the attached ones continue."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
            self.advance()

    def _compare(self, live: list[TrainingProcess], global_step: int) -> None:
        """Stop all ranks, which are at the same step, if tensors that should be equal differ between them."""
        if self._compared == global_step:
            return
        self._compared = global_step
        hits = differing_tensors(live, self._session.watchpoint_list.enabled())
        if hits:
            self._session.reported.add(hits)
            self.stop_at_hits()

    def stop(self) -> None:
        """Stop all processes at their next stop."""
        self._plan = None
        self._is_pausing = False

    @property
    def trains(self) -> bool:
        """Whether the training runs; False while it is stopped, or something is checked at its current step."""
        return self._plan is not None and self._plan.trains

    def stop_at_hits(self) -> None:
        """Stop all ranks at their next stop, because one has hits; a check of all watchpoints continues."""
        if self.trains:
            self.stop()
            self._session.terminal.stops_at_hits()

    def watch_anew(self) -> None:
        """Note that watchpoints have changed, and must be sent to the processes before they continue."""
        self.generation += 1

    def must_tell(self, process: TrainingProcess) -> bool:
        """Return whether a running process must stop to receive changed watchpoints, after which it continues."""
        outgoing = process.outgoing
        return outgoing.prepared != self.generation and (bool(outgoing.sent) or len(self._session.watchpoint_list) > 0)

    def forget(self, process: TrainingProcess) -> None:
        """Note that a process may not have received its command."""
        if self._plan is not None:
            self._plan.commanded.discard(process)

    def _carry_out(self, order: Order, process: TrainingProcess, command: _Command) -> None:
        if order is Order.EXIT:
            process.exit()
        elif order is Order.LINE:
            process.connection.reply(wire.ok(process.outgoing.lines.popleft()))
        elif order is Order.QUEUED:
            process.set_state(State.SENDING)
            process.connection.reply(process.outgoing.queue.popleft())
        elif order is Order.PREPARE:
            process.set_state(State.SENDING)
            self._prepare(process)
        elif order is Order.CHECK_INITIAL:
            process.outgoing.has_unchecked = False
            process.set_state(State.SENDING)
            process.connection.reply(wire.recheck())
        elif order is Order.CHECK:
            process.outgoing.has_unchecked = False
            self._let_go(process, command, State.SENDING)
        elif order is Order.GO:
            process.progress.released = process.progress.global_step
            self._let_go(process, command, State.RUNNING)

    def _let_go(self, process: TrainingProcess, command: _Command, state: State) -> None:
        if command.plan is not None and command.reply is not None:
            command.plan.commanded.add(process)
            process.outgoing.knows_held = False
            process.set_state(state)
            process.connection.reply(command.reply)

    def _command_of(self, process: TrainingProcess, stop_state: StopState) -> _Command:
        """Return the command for a waiting process, to be sent as soon as it may continue."""
        if not stop_state.is_waiting:
            return _NO_COMMAND
        owed = Steps(process.progress.global_step + 1) if owes_step(stop_state, self._left) else None
        plan = self._plan or owed
        reply = None if plan is None else plan.command(process)
        return _NO_COMMAND if plan is None or reply is None else _Command(plan, reply)

    def _is_done(self, process: TrainingProcess) -> bool:
        plan = self._plan
        is_free = process.connection.is_waiting and not process.outgoing.queue
        return is_free and (plan is None or plan.command(process) is None)

    def _ask(self, process: TrainingProcess) -> None:
        """Note that a process is stopped; send it the pending requests."""
        owes = owes_step(process.stop_state, self._left)
        if process.connection.is_waiting and process.state is not State.MISMATCH and not owes:
            if process.identity.is_agent and not process.outgoing.knows_held:
                # It asks again. Should this server be lost from now on, it stays stopped for the next one.
                process.outgoing.knows_held = True
                process.connection.reply(wire.held())
                return
            process.set_state(State.PAUSED)
            command = process.requests.command()
            if command is not None:
                process.connection.reply(command)

    def _prepare(self, process: TrainingProcess) -> None:
        """Determine the changes of watchpoints to send to a process; takes seconds for large graphs."""
        outgoing = process.outgoing
        if outgoing.preparing is None:
            outgoing.preparing = asyncio.create_task(self._prepare_now(process))
            self._preparing.add(outgoing.preparing)
            outgoing.preparing.add_done_callback(self._preparing.discard)

    async def _prepare_now(self, process: TrainingProcess) -> None:
        session, outgoing, generation = self._session, process.outgoing, self.generation
        try:
            changes = await asyncio.to_thread(
                watch_changes,
                session.watchpoint_list.all(),
                session.watchpoint_list.nodes_of,
                process.graphs,
                process.identity,
                outgoing.sent,
            )
        except TensightError as error:
            session.warn(f"rank {process.rank} cannot be told what to watch: {error}")
            if outgoing.preparing is asyncio.current_task():
                outgoing.preparing = None
            self.stop()
            self.advance()
            return
        if outgoing.preparing is not asyncio.current_task():
            return
        outgoing.add(changes, generation)
        for problem in changes.problems:
            session.warn(problem)
        session.changed()
        self.advance()

    async def close(self) -> None:
        """Cancel running preparations."""
        self.stop()
        for preparing in self._preparing:
            preparing.cancel()
        if self._gathering is not None:
            self._gathering.cancel()
        await asyncio.gather(*self._preparing, return_exceptions=True)

    # --- commands of users ---

    def obey(self, command: Command) -> None:
        """Execute a command that starts or stops the run.

        Raises
        ------
        StateError
            Not possible now, or not while a training is attached.
        NotFoundError, InputError
            There is no such operator.
        """
        actions = {
            "continue": self._continue,
            "pause": self._pause,
            "terminate": self._terminate,
            "recheck": self._recheck,
            "next_node": self._next_node,
            "previous_node": self._previous_node,
            "run_to_node": self._run_to_node,
            "look_closer": self._capture_operators,
        }
        action = actions.get(command.action)
        if action is None:
            raise StateError(
                f"a training cannot do {command.action!r}; open its recorded run when it has ended", code="unsupported"
            )
        if command.action not in AT_ANY_TIME:
            self._require_paused()
        self._session.shown.return_to_present()
        action(command)

    def _continue(self, command: Command) -> None:
        if command.steps == 0:
            raise InputError(
                "cannot continue by 0 steps; give a number of steps, or -1 until something stops the training"
            )
        done = max(process.done for process in self._session.live)
        every = command.stop_on == "every"
        self._start(Steps(None if command.steps < 0 else done + command.steps, stops_each_step=every))
        self.stops_for_every = every

    def _pause(self, _: Command) -> None:
        if self._plan is None or not self._session.live:
            raise StateError(f"nothing is running; the session is {self._session.state.value}")
        running = [
            process
            for process in self._session.live
            if process.progress.released == process.progress.global_step and not process.connection.is_waiting
        ]
        in_step = any(process.identity.abilities.pause and not process.is_alone for process in running)
        if isinstance(self._plan, Steps) and in_step and not self._is_pausing:
            # The running step was started as one of many, of which no values are kept; the next step keeps them.
            self._plan = self._plan.until(max(process.progress.global_step for process in running) + 2)
            self._is_pausing = True
        else:
            self.stop()
        self.advance()

    def _terminate(self, _: Command) -> None:
        processes = list(self._session.processes.values())
        gone = [process for process in processes if process.state is State.LOST]
        if not gone and not self._session.live:
            raise StateError(
                f"the training has ended already; the session is {self._session.state.value}", code="training-ended"
            )
        self.stop()
        self._session.terminal.leaves()
        for process in processes:
            if process.is_live or process in gone:
                process.exit()
        for process in gone:
            process.end(State.TERMINATED, "it was gone already; should it come back, it is told to end")

    def _recheck(self, _: Command) -> None:
        self._compared = -1
        self._session.reported.clear()
        self._start(Recheck())

    def _next_node(self, _: Command) -> None:
        self._require_nodes()
        self._start(NextNode())

    def _previous_node(self, command: Command) -> None:
        self._require_nodes()
        live = self._session.live
        if not self.can_go_back:
            begun = all(process.progress.step for process in live)
            why = "this training goes forward only" if begun else "no operator has run yet"
            raise StateError(f"{why}; operators of a step that has passed are gone through in its recorded run")
        if command.node:
            self._start(PreviousNode(self._targets(command)))
        else:
            processes = live if command.rank is None else [self._session.process_of(command.rank)]
            self._start(PreviousNode(dict.fromkeys(processes, "")))

    def _run_to_node(self, command: Command) -> None:
        self._require_nodes()
        self._start(RunToNode(self._targets(command)))

    def _capture_operators(self, command: Command) -> None:
        if not self.can_capture_operators:
            lost = next((process for process in self._session.live if process.progress.lost_weights), None)
            if self.can_stop_at_nodes:
                raise StateError("every operator is captured already")
            if lost is None:
                raise StateError("this training cannot capture every operator from a step on")
            raise StateError(
                f"after step {lost.progress.step} {lost.progress.lost_weights[0]} contains NaN or Inf, and so does all"
                " that follows: going on hides where it began; run it again with every operator captured:"
                f" {lost.closer_command}"
            )
        for process in self._session.live:
            process.capture_operators()
        self._continue(command)

    def _targets(self, command: Command) -> dict[TrainingProcess, str]:
        """Return the full name of a command's operator in each process that has it."""
        session = self._session
        targets: dict[TrainingProcess, str] = {}
        processes = session.live if command.rank is None else [session.process_of(command.rank)]
        for process in processes:
            graph_and_node = process.graphs.node(command.graph, command.node)
            if graph_and_node is not None:
                if not graph_and_node[1].is_operator:
                    raise InputError(f"{command.node[:200]!r} is not an operator, so the training never stops at it")
                targets[process] = graph_and_node[1].full_name or graph_and_node[1].name
        if not targets:
            if command.graph:
                message = f"there is no operator {command.node[:200]!r} in graph {command.graph[:200]!r}"
            else:
                graphs = processes[0].graphs.graphs if processes else ()
                message = f"no graph has an operator {command.node[:200]!r}{names_like(graphs, command.node)}"
            raise NotFoundError(message, code="node-unknown")
        return targets

    def _start(self, plan: RunPlan) -> None:
        self.stop()
        self.stops_for_every = False
        self._has_begun = True
        self._plan = plan
        self._session.terminal.goes_on(plan)
        for process in self._session.live:
            if plan.trains:
                process.requests.refuse(
                    StateError("the training goes on; look at values while it is stopped", code="not-paused")
                )
            if process.state is State.PAUSED:
                process.set_state(State.SENDING)
        self.advance()

    def _require_paused(self) -> None:
        state = self._session.state
        if state is not State.PAUSED:
            raise StateError(f"this needs a paused training; the session is {state.value}", code="not-paused")

    def _require_nodes(self) -> None:
        if not self.can_stop_at_nodes:
            raise StateError("this training can only stop at the end of a step, not at operators", code="unsupported")
