"""What the processes of a session are told: they stop and go together, as a person commands.

Every message and every command ends in `Conductor.advance`, which has `orders` decide what each process is told next,
from where all of them stand, and carries it out. So there is one place that decides, and it can be asked any number of
times.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from tensight import wire
from tensight.errors import InputError, TensightError
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.live.orders import Order, left_places, next_orders, owes_step
from tensight.sessions.live.rank_hashes import differing_tensors
from tensight.sessions.live.run_control import NextNode, PreviousNode, Recheck, RunToNode, Steps
from tensight.sessions.live.running_session import RunningSession
from tensight.sessions.live.watching import watch_changes
from tensight.sessions.records import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.live.orders import Standing
    from tensight.sessions.live.process import TrainingProcess
    from tensight.sessions.live.run_control import Run
    from tensight.sessions.live.settings import LiveSettings
    from tensight.sessions.records import Command
    from tensight.sessions.watchpoint_list import WatchpointList
    from tensight.wire.debugger_pb2 import EventReply

AT_ANY_TIME = ("pause", "terminate")
"""Commands for which the training need not stand still."""


class RunTeller(Protocol):
    """Tells the terminal of the training what happens to it; see `Terminal`."""

    def stopped(self) -> None:
        """Note that the run has ended."""

    def stops_at_hits(self) -> None:
        """Note that hits are why the training stops."""

    def goes_on(self, run: Run) -> None:
        """Note that a run begins."""

    def leaves(self) -> None:
        """Note that the training is to end."""


class KnownHits(Protocol):
    """The hits of a session; see `ReportedHits`."""

    def add(self, hits: list[SessionHit]) -> None:
        """Take in hits of the place at which all stand."""

    def clear(self) -> None:
        """Forget the hits of the place at which all stand."""


class Past(Protocol):
    """The step that people see; see `ShownStep`."""

    def return_to_present(self) -> None:
        """Show what the training does now."""


class ConductedSession(RunningSession, Protocol):
    """What the conductor needs of its session; see `LiveSession`."""

    settings: LiveSettings
    watchpoint_list: WatchpointList

    @property
    def processes(self) -> Mapping[int, TrainingProcess]:
        """The newest process of each rank."""

    @property
    def terminal(self) -> RunTeller:
        """Tells the training's own terminal."""

    @property
    def reported(self) -> KnownHits:
        """Has the hits."""

    @property
    def shown(self) -> Past:
        """Which step people see."""

    def process_of(self, rank: int) -> TrainingProcess:
        """Return the process of a rank. NotFoundError if there is none."""

    def changed(self) -> None:
        """Note that the run's file must be written."""

    def paused(self) -> None:
        """Note that all processes stand where a command wanted them."""

    def warn(self, text: str) -> None:
        """Tell the clients about something that went wrong and can be lived with."""


class _Command(NamedTuple):
    """What a run wants a process to do; None if it wants nothing."""

    run: Run | None
    reply: EventReply | None

    @property
    def wanted(self) -> Literal["train", "check", ""]:
        if self.run is None:
            return ""
        return "train" if self.run.trains else "check"


_NO_COMMAND = _Command(None, None)


class Conductor:
    """Decides what the processes of one session are told.

    Parameters
    ----------
    session : ConductedSession

    Attributes
    ----------
    generation : int
        Version of what the processes should watch.
    stops_for_every : bool
        Whether every hit stops the run, also one that was reported before or follows from one that was.
    """

    def __init__(self, session: ConductedSession) -> None:
        self._session = session
        self._run: Run | None = None
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
        """Whether the processes are to go on, or to check something."""
        return self._run is not None

    @property
    def is_stopping(self) -> bool:
        """Whether the processes stand still as soon as the step that runs is done."""
        return self._run is None or self._is_pausing

    @property
    def can_stop_at_nodes(self) -> bool:
        """Whether all processes can run operator by operator."""
        live = self._session.live
        return bool(live) and all(process.identity.stops_at_nodes for process in live)

    @property
    def can_go_back(self) -> bool:
        """Whether all processes can go back to the operator before."""
        live = self._session.live
        has_run = bool(live) and all(process.step > 0 for process in live)
        return has_run and self.can_stop_at_nodes and all(process.identity.abilities.back for process in live)

    @property
    def can_look_closer(self) -> bool:
        """Whether all processes capture calls of modules, and can capture every operator from the next step on."""
        live = self._session.live
        return bool(live) and all(process.identity.abilities.closer for process in live)

    # --- what happens ---

    def advance(self) -> None:
        """Tell every waiting process what it is to be told next, if there is something."""
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
        if self._run is None:
            self._session.terminal.stopped()
        self._session.announce()

    def _advance_once(self) -> None:
        live = self._session.live
        for process in live:
            if not process.sent and not len(self._session.watchpoint_list):
                process.prepared = self.generation
        last = min((process.place for process in live), default=0)
        if len(live) > 1 and all(process.is_waiting and process.place == last for process in live):
            self._compare(live, last)
        # None is to begin while others of its job are still on their way.
        is_complete = self._gathering is None or len(self._session.processes) >= self._session.identity.world_size
        if not self._carry_out_all(live, is_complete=is_complete):
            return
        live = self._session.live
        # A run of a process that is lost goes on when it comes back.
        if self._run is not None and live and all(map(self._is_done, live)):
            remark = self._run.remark()
            self.stop()
            if remark:
                self._session.warn(remark)
            self._session.paused()
        if self._run is None:
            for process in self._session.live:
                self._ask(process)

    def _carry_out_all(self, live: list[TrainingProcess], *, is_complete: bool) -> bool:
        """Tell each process what it is to be told; return False if that has to be decided anew."""
        standings = [process.standing for process in live]
        self._left = left_places(standings)
        commands = list(map(self._command_of, live, standings))
        wanted = [one._replace(wanted=command.wanted) for one, command in zip(standings, commands, strict=True)]
        orders = next_orders(wanted, self.generation, is_complete=is_complete)
        for process, order, command in zip(live, orders, commands, strict=True):
            self._carry_out(order, process, command)
            if self._is_due:
                # What one was told can change what the others are to be told.
                return False
        return True

    def begin(self, *, gathers: bool) -> None:
        """Let the training go on by itself, unless it did already; a person, or a hit, may have stopped it.

        Parameters
        ----------
        gathers : bool
            Whether none begins before all ranks of the job have come, or have had the time to.
        """
        if self._has_begun or self._run is not None:
            return
        self._has_begun = True
        self._run = Steps(None)
        self._session.terminal.goes_on(self._run)
        if gathers:
            patience_s = self._session.settings.gather_within_s
            self._gathering = asyncio.get_running_loop().call_later(patience_s, self._gathered)

    def _gathered(self) -> None:
        """Wait for no more ranks before those that are there go on."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
            self.advance()

    def _compare(self, live: list[TrainingProcess], place: int) -> None:
        """Stop all ranks, which stand at one step, if they do not agree about what they should have in common."""
        if self._compared == place:
            return
        self._compared = place
        hits = differing_tensors(live, self._session.watchpoint_list.enabled())
        if hits:
            self._session.reported.add(hits)
            self.stop_at_hits()

    def stop(self) -> None:
        """Let no process go on from where it is next."""
        self._run = None
        self._is_pausing = False

    @property
    def trains(self) -> bool:
        """Whether the training is to go on; not so while it stands, or while only something is checked there."""
        return self._run is not None and self._run.trains

    def stop_at_hits(self) -> None:
        """Stop all ranks where they are next, because one has hits; a check of all watchpoints goes on."""
        if self.trains:
            self.stop()
            self._session.terminal.stops_at_hits()

    def watch_anew(self) -> None:
        """Note that the processes must be told what to watch before they go on."""
        self.generation += 1

    def must_tell(self, process: TrainingProcess) -> bool:
        """Whether a process that runs is to come back to be told what to watch; it goes on at once."""
        return process.prepared != self.generation and (bool(process.sent) or len(self._session.watchpoint_list) > 0)

    def forget(self, process: TrainingProcess) -> None:
        """Note that a process may not have got what it was told."""
        if self._run is not None:
            self._run.told.discard(process)

    def _carry_out(self, order: Order, process: TrainingProcess, command: _Command) -> None:
        if order is Order.EXIT:
            process.exit()
        elif order is Order.LINE:
            process.reply(wire.ok(process.lines.popleft()))
        elif order is Order.QUEUED:
            process.set_state(State.SENDING)
            process.reply(process.queue.popleft())
        elif order is Order.PREPARE:
            process.set_state(State.SENDING)
            self._prepare(process)
        elif order is Order.CHECK_INITIAL:
            process.has_unchecked = False
            process.set_state(State.SENDING)
            process.reply(wire.recheck())
        elif order is Order.CHECK:
            process.has_unchecked = False
            self._let_go(process, command, State.SENDING)
        elif order is Order.GO:
            process.released = process.place
            self._let_go(process, command, State.RUNNING)

    def _let_go(self, process: TrainingProcess, command: _Command, state: State) -> None:
        if command.run is not None and command.reply is not None:
            command.run.told.add(process)
            process.set_state(state)
            process.reply(command.reply)

    def _command_of(self, process: TrainingProcess, standing: Standing) -> _Command:
        """Return what a process that waits is to do as soon as it may."""
        if not standing.is_waiting:
            return _NO_COMMAND
        owed = Steps(process.place + 1) if owes_step(standing, self._left) else None
        run = self._run or owed
        reply = None if run is None else run.command(process)
        return _NO_COMMAND if run is None or reply is None else _Command(run, reply)

    def _is_done(self, process: TrainingProcess) -> bool:
        run = self._run
        return process.is_waiting and not process.queue and (run is None or run.command(process) is None)

    def _ask(self, process: TrainingProcess) -> None:
        """Note that a process stands still; have it answer what people want to see."""
        owes = owes_step(process.standing, self._left)
        if process.is_waiting and process.state is not State.MISMATCH and not owes:
            process.set_state(State.PAUSED)
            question = process.questions.command()
            if question is not None:
                process.reply(question)

    def _prepare(self, process: TrainingProcess) -> None:
        """Work out what a process must be told of watchpoints before it goes on; takes seconds for large graphs."""
        if process.preparing is None:
            process.preparing = asyncio.create_task(self._prepare_now(process))
            self._preparing.add(process.preparing)
            process.preparing.add_done_callback(self._preparing.discard)

    async def _prepare_now(self, process: TrainingProcess) -> None:
        session, generation = self._session, self.generation
        try:
            changes = await asyncio.to_thread(
                watch_changes,
                session.watchpoint_list.all(),
                session.watchpoint_list.nodes_of,
                process.graphs,
                process.identity,
                process.sent,
            )
        except TensightError as error:
            session.warn(f"rank {process.rank} cannot be told what to watch: {error}")
            if process.preparing is asyncio.current_task():
                process.preparing = None
            self.stop()
            self.advance()
            return
        if process.preparing is not asyncio.current_task():
            return
        process.preparing = None
        process.sent = changes.sent
        process.prepared = generation
        process.queue.extend(map(wire.set_reply, changes.commands))
        process.has_unchecked |= bool(changes.commands)
        for problem in changes.problems:
            session.warn(problem)
        session.changed()
        self.advance()

    async def close(self) -> None:
        """Give up what is being worked out."""
        self.stop()
        for preparing in self._preparing:
            preparing.cancel()
        if self._gathering is not None:
            self._gathering.cancel()
        await asyncio.gather(*self._preparing, return_exceptions=True)

    # --- what a person commands ---

    def obey(self, command: Command) -> None:
        """Start or stop the run.

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
            "look_closer": self._look_closer,
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
            raise InputError("0 steps are none; give a number of steps, or -1 until something stops the training")
        done = max(process.done for process in self._session.live)
        every = command.stop_on == "every"
        self._start(Steps(None if command.steps < 0 else done + command.steps, stands_always=every))
        self.stops_for_every = every

    def _pause(self, _: Command) -> None:
        if self._run is None or not self._session.live:
            raise StateError(f"nothing runs that could be paused; the session is {self._session.state.value}")
        running = [one for one in self._session.live if one.released == one.place and not one.is_waiting]
        in_step = any(one.identity.abilities.pause and not one.is_alone for one in running)
        if isinstance(self._run, Steps) and in_step and not self._is_pausing:
            # The step that runs was let go as one of many, of which no values are kept; they are of the next.
            self._run = self._run.until(max(one.place for one in running) + 2)
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
            begun = all(process.step for process in live)
            why = "this training goes forward only" if begun else "no operator has run yet"
            raise StateError(f"{why}; operators of a step that has passed are gone through in its recorded run")
        if command.node:
            self._start(PreviousNode(self._targets(command)))
        else:
            asked = live if command.rank is None else [self._session.process_of(command.rank)]
            self._start(PreviousNode(dict.fromkeys(asked, "")))

    def _run_to_node(self, command: Command) -> None:
        self._require_nodes()
        self._start(RunToNode(self._targets(command)))

    def _look_closer(self, command: Command) -> None:
        if not self.can_look_closer:
            raise StateError(
                "every operator is captured already"
                if self.can_stop_at_nodes
                else "this training cannot capture every operator from a step on"
            )
        for process in self._session.live:
            process.look_closer()
        self._continue(command)

    def _targets(self, command: Command) -> dict[TrainingProcess, str]:
        """Return the full name of the operator that a command names in each process that has it."""
        session = self._session
        targets: dict[TrainingProcess, str] = {}
        for process in session.live if command.rank is None else [session.process_of(command.rank)]:
            found = process.graphs.node(command.graph, command.node)
            if found is not None:
                if not found[1].is_operator:
                    raise InputError(f"{command.node[:200]!r} is no operator, so the training never stands at it")
                targets[process] = found[1].full_name or found[1].name
        if not targets:
            raise NotFoundError(
                f"no graph has an operator {command.node[:200]!r}; search the nodes for its name", code="node-unknown"
            )
        return targets

    def _start(self, run: Run) -> None:
        self.stop()
        self.stops_for_every = False
        self._has_begun = True
        self._run = run
        self._session.terminal.goes_on(run)
        for process in self._session.live:
            if run.trains:
                process.questions.refuse(
                    StateError("the training goes on; look at values while it stands still", code="not-paused")
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
