"""The agent in a training process: what an adapter calls, and what is decided once a step."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.answering import Answers
from tensight.agents.attachment import Attachment, Standing
from tensight.agents.columns import StatisticsColumns
from tensight.agents.commands import ON, CommandLoop, Order, Terminated
from tensight.agents.forking import silent_in_children
from tensight.agents.introduction import Introduction
from tensight.agents.lasting import LastingPlaces
from tensight.agents.node_cursor import NodeCursor
from tensight.agents.notices import say, say_once
from tensight.agents.places import Need, PlaceTable
from tensight.agents.recording import Recorder
from tensight.agents.retention import Retention
from tensight.agents.telemetry import StepRows, Telemetry
from tensight.agents.watching import Watches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensight.agents.places import DeclaredNode
    from tensight.agents.program import Program
    from tensight.agents.reader import Framework, TensorReader
    from tensight.agents.settings import AgentSettings
    from tensight.agents.watching_hits import AgentHit
    from tensight.wire.debugger_pb2 import WatchpointHit

__all__ = ["Agent", "Terminated"]

_FINITE, _ROW, _VALUE = int(Need.FINITE), int(Need.ROW), int(Need.VALUE)
_CHANGE, _HASH = int(Need.CHANGE), int(Need.HASH)
_SHOWN = Need.ROW | Need.VALUE
_ALL = _SHOWN | Need.HASH

MOST_PROGRAMS = 256
"""A training whose every step computes something else would send graphs for ever."""


class Agent:
    """Observes, watches, keeps and tells what an adapter sees of a training.

    Nothing here raises into the training, but for `Terminated` when a person ends it.

    Parameters
    ----------
    settings : AgentSettings
    framework : Framework
    reader : TensorReader
        Of the framework's tensors.
    script : str
        Command line of the training, for people.
    stops_at_nodes : bool, optional
        Whether the training can stop at operators; it can by default if operators are captured.
    cursor : bool, optional
        Whether the adapter sees a step only when that is done, and so never calls `node_done`: the training then stops
        at the end of a step, and a person goes through its operators there, forwards and backwards.

    Attributes
    ----------
    places : PlaceTable
        Where tensors are observed.
    columns : StatisticsColumns
    retention : Retention
    watches : Watches
    recorder : Recorder
    step : int
        Steps done.
    capturing : bool
        Whether anything is wanted of the step that begins; else an adapter's hooks do nothing.
    stops_at_nodes : bool
        Whether `node_done` is to be called after each node.
    running_program : callable or None
        Set by an adapter that stops at nodes: returns what has run so far in a step.
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
        at_nodes = settings.capture == "ops" if stops_at_nodes is None else stops_at_nodes
        self.settings = settings
        self.framework = framework
        self.places = PlaceTable()
        self.columns = StatisticsColumns()
        self.retention = Retention(reader, settings.memory_budget_bytes, wants_copies=self._wants_copies)
        self.watches = Watches(
            self.places, reader, check_at_nodes=at_nodes and not cursor, keep_values=settings.partial_memory
        )
        self.recorder = Recorder(settings, framework, reader)
        self.step = 0
        self.capturing = True
        self.stops_at_nodes = False
        self.running_program: Callable[[], Program] | None = None
        self._reader = reader
        self._process_id = os.getpid()
        self._is_over = False
        self._cursor = NodeCursor(self.places) if cursor else None
        self._order: list[int] = []
        self._programs: dict[int, Program] = {}
        self._program: Program | None = None
        self._weights: StepRows | None = None
        self._lasting = LastingPlaces(self.places, self.retention)
        self._spares_states = False
        self._graph_of: dict[str, str] = {}
        self._now = ON
        self._left: int | None = None
        self._looks_at_all = False
        self._may_watch_anew = True
        self._watches_weights = False
        self._base = Need.NOTHING
        self._has_values = True
        self._telemetry = Telemetry(self.places)
        self._introduction = Introduction(settings, framework, script, stops_at_nodes=at_nodes, goes_back=cursor)
        self._attachment = Attachment(settings, self._introduction, self._telemetry)
        self._background = self._attachment.background
        self._loop = CommandLoop(
            self._attachment.connection,
            self.watches,
            Answers(
                *(self.places, self.columns, self.retention, reader, self.recorder),
                has_run=self._has_run,
                program=lambda: self._program,
            ),
            check_again=self._check_again,
            announce=self._attachment.introduce_again,
            hit_messages=self._hit_messages,
        )
        self._attachment.obey(self._loop)
        # Initial weights are observed before there is a server; of partial memory the statistics must do.
        self._require(Need.ROW | Need.HASH if settings.partial_memory else _ALL)
        silent_in_children(self)
        atexit.register(self.close)

    # --- what an adapter tells ---

    def attach(self, program: Program) -> None:
        """Look for the debug server and wait for its first commands, before the first step.

        Parameters
        ----------
        program : Program
            What is known before anything has run: modules and parameters.
        """
        if self._is_over:
            return
        try:
            self._learn(program)
            self._record(program)
            self._attachment.begin(self._standing())
            if self._attachment.is_attached:
                self._stop([])
                while self._now.back:
                    self._stop([])
            self._next_step()
        except Exception as error:
            self._give_up(error)

    def observe(self, place: int, tensor: Any, need: int) -> None:
        """Look at a tensor.

        Parameters
        ----------
        place : int
        tensor : object
            Of the framework.
        need : int
            What `places.needs` says of the place.
        """
        try:
            self._order.append(place)
            if need & _ROW:
                hashed = need & _HASH != 0
                same = self.retention.same_as(tensor)
                if (
                    same is None
                    or self.columns.iteration[same] != self.columns.current_iteration
                    or (hashed and not self.columns.has_hash(same))
                ):
                    self._reader.scan(tensor, self.columns, place, hashed=hashed)
                elif same != place:
                    self.columns.copy_row(same, place)
            elif need & _FINITE and self._reader.has_non_finite(tensor):
                self._reader.scan(tensor, self.columns, place)
            if need & _VALUE:
                self.retention.keep(place, tensor)
        except Exception as error:
            self._skip(place, error)

    def node_done(self, node: DeclaredNode) -> None:
        """Note that a node has run; the training may stop here."""
        if self._is_over:
            return
        try:
            self._reader.settle(self.columns)
            hits = self.watches.check_node(self.columns, node, self.step, self.retention)
            if hits or (self._now.at_nodes and self._now.node in ("", node.name)):
                self._stop_at_node(node.name, hits)
        except Exception as error:
            self._give_up(error)

    def step_done(self, program: Program, *, scaled_skip: bool = False) -> None:
        """Note that a step has ended; the training may stop here.

        Parameters
        ----------
        program : Program
            What ran.
        scaled_skip : bool
            The step's update was left out, because the scaled gradients had left the range of their type.
        """
        if self._is_over:
            return
        try:
            self._step_done(program, scaled_skip)
        except Exception as error:
            self._give_up(error)
        except KeyboardInterrupt:
            # A script may take it for what it likes, and go on.
            self._now, self._left = ON, None
            self._next_step()
            raise

    def close(self) -> None:
        """Tell the server that the training has ended, and let go of everything."""
        if self._is_over or os.getpid() != self._process_id:
            return
        self.silence()
        atexit.unregister(self.close)
        try:
            self._attachment.end(Standing(self.step, self._program), self._last_rows())
        except Exception as error:
            say(f"the debug server could not be told that the training has ended: {error!r}")
        self.recorder.close()
        self.retention.clear()

    def silence(self) -> Attachment:
        """Do nothing from now on; return what a forked process must never free."""
        self._is_over = True
        self.capturing = self.stops_at_nodes = False
        needs = self.places.needs
        needs[:] = bytes(len(needs))
        self.places.decide_needs(lambda _: Need.NOTHING)
        return self._attachment

    # --- a step ---

    def _step_done(self, program: Program, scaled_skip: bool) -> None:
        captured = self.capturing
        self.step += 1
        self._background.step = self.step
        is_new = self._learn(program)
        hits: list[AgentHit] = []
        if captured:
            self._reader.settle(self.columns)
            hits = self._check(scaled_skip=scaled_skip) if self._attachment.is_attached else []
            self._record(program)
        if self._left is not None:
            self._left -= 1
        self._follow_the_server()
        if self._attachment.is_attached:
            sees_enough = captured and (self._base & _SHOWN == _SHOWN or self.settings.partial_memory)
            wants_stop = self._background.wants_stop and sees_enough
            wants_stop = wants_stop or self._background.wants_exit
            if hits or is_new or wants_stop or self._left == 0 or self._now.at_nodes:
                self._stand(program, hits)
            else:
                self._offer_rows()
        self._next_step()

    def _record(self, program: Program) -> None:
        if self.recorder.is_on:
            iteration = self.columns.current_iteration
            self.recorder.record(iteration, program, self._order, self.places, self.columns, self.retention)

    def _follow_the_server(self) -> None:
        """Look whether the server was lost, or is there again, while the training ran."""
        background = self._background
        if background.is_lost and self._attachment.is_attached:
            self._attachment.lose()
            self._now, self._left = ON, None
            if self.settings.on_disconnect == "wait":
                self._attachment.wait(self._standing())
                self._ask_soon()
        elif background.is_back and self._attachment.come_back(self._standing()):
            self._ask_soon()

    def _ask_soon(self) -> None:
        """Have the server asked what to do after the step that comes, of which everything is then there."""
        self._now, self._left = Order(1), 1

    def _next_step(self) -> None:
        """Decide what is wanted of the step that comes, and let go of the values of the one before the last."""
        attached = self._attachment.is_attached
        ends_soon = self._left is not None and self._left <= 2 and not self._now.goes_on
        looks_at_all = attached and (ends_soon or self._now.at_nodes or self._background.wants_stop)
        watches = attached and self.watches.any
        self.capturing = looks_at_all or watches or self.recorder.is_on
        self.stops_at_nodes = attached and self._now.at_nodes and self._cursor is None
        self._lasting.look()
        self._weights = self._rows_of_weights() if watches or looks_at_all else None
        if self.capturing:
            self._decide(looks_at_all=looks_at_all, watches=watches)
            self._lasting.forget_uncopied()
            self.retention.turn_over()
            self._has_values = True
        elif self._has_values:
            # An adapter may look at a step to see what runs; nothing of it is to be kept.
            self._require(Need.NOTHING)
            self.retention.clear()
            self._has_values = False
        self._order.clear()
        self.columns.current_iteration = self.step

    def _decide(self, *, looks_at_all: bool, watches: bool) -> None:
        """Decide what is wanted of every place, watched or not."""
        partial, base = self.settings.partial_memory, Need.NOTHING
        # References to thousands of intermediates keep memory from being used again, which costs more than the
        # watching; where operators are captured, an adapter shows the values of what hits all the same.
        watches_modules = watches and self.settings.capture == "modules"
        everything = looks_at_all or self.recorder.is_on
        if not partial and (everything or watches_modules):
            # What nobody was sure to look at gets its hashes when the training stops.
            base = _ALL if everything else _SHOWN
        elif not partial and watches and self._cursor is not None:
            # The values of a step that is complete before anybody looks lie there anyway.
            base = Need.VALUE
        spares = base == _SHOWN
        is_other = self._require(base) or self._may_watch_anew or spares != self._spares_states
        if looks_at_all != self._looks_at_all or self._may_watch_anew:
            self._looks_at_all, self._may_watch_anew = looks_at_all, False
            self._watches_weights = watches and not partial
            self._lasting.choose_copies(self._wants_copies)
        if is_other:
            self._spares_states = spares
            # States are most of what there is: at a stop what nobody watches of them is made up.
            values = self._lasting.states if spares else ()
            if self._watches_weights and not base:
                values = self._lasting.weights
            self.watches.require(base, dict.fromkeys(values, Need.VALUE))

    def _require(self, need: Need) -> bool:
        """Say what is wanted of every place; return whether that is another thing than before."""
        if need == self._base:
            return False
        self._base = need
        self.watches.require(need)
        return True

    def _wants_copies(self, place: int) -> bool:
        """Whether a value that is written to in every step is to be copied: where somebody will look at it."""
        if self._looks_at_all or self.recorder.is_on or self.places.needs[place] & _CHANGE:
            return True
        # Where a watchpoint hits, weights are what people compare with the step before.
        return self._watches_weights and self.places[place].node.role in ("weight", "frozen_weight")

    # --- standing still ---

    def _stop(self, hits: list[AgentHit], node: str = "") -> None:
        """Tell the server everything about the step at which the training stands, and do what it commands."""
        self._loop.send_hits(hits)
        if hits or not self._now.goes_on:
            self._complete_rows()
            self._send_rows()
        else:
            self._offer_rows()
        try:
            self._now = self._attachment.stand(self._standing(node))
        except Terminated:
            self.close()
            raise
        self._may_watch_anew = not self._now.goes_on
        self._left = self._now.steps

    def _stand(self, program: Program, hits: list[AgentHit]) -> None:
        """Stop at the end of a step, or at operators of it where the adapter shows it only now."""
        cursor = self._cursor
        if cursor is None:
            self._stop(hits)
            return
        cursor.begin(program, self._order, hits)
        try:
            if self._now.at_nodes:
                cursor.rewind()
            else:
                self._stop(cursor.tell())
            self._walk(cursor)
        finally:
            cursor.leave()

    def _walk(self, cursor: NodeCursor) -> None:
        """Stop at operators of the step that is done, until an order leads on from its end."""
        while self._attachment.is_attached:
            is_within = cursor.is_within
            if not cursor.follow(self._now):
                if is_within and self._left is not None:
                    # That of which a person sees operators is the first of them.
                    self._left -= 1
                return
            self._stop(cursor.tell(), cursor.node)
            if cursor.is_within and not self._now.back:
                # There may be other watchpoints now.
                cursor.look_again(self._check(again=True))

    def _check_again(self) -> list[AgentHit]:
        hits = self._check(again=True)
        return hits if self._cursor is None else self._cursor.tell_again(hits)

    def _has_run(self, place: int) -> bool:
        """Whether a place has its value of this step where the training stands."""
        return self._cursor is None or self._cursor.has_run(place)

    def _stop_at_node(self, node: str, hits: list[AgentHit]) -> None:
        if node not in self._graph_of and self.running_program is not None:
            self._learn(self.running_program())
        self._stop(hits, node)
        if self._left is not None and self._left > 0:
            # That which is under way is the first of them.
            self._looks_at_all = self._left <= 2

    def _send_rows(self) -> None:
        """Have the server know the rows of this step, and of the step before those of weights, which this one read."""
        if self._introduction.is_ours:
            rows = self._rows()
            batches = [one for one in (self._telemetry.unsent(self._weights), rows) if one is not None]
            if batches:
                self._telemetry.send(self._attachment.connection, *batches)

    def _offer_rows(self) -> None:
        """Have the server know the rows of this step if it has heard nothing for a while."""
        if self._order and self._introduction.is_ours and self._telemetry.is_due:
            rows = self._rows()
            if rows is not None:
                self._telemetry.offer(rows)

    def _complete_rows(self) -> None:
        """Write the rows of places that were only asked about NaN and Inf, and hashes, where values are still there."""
        columns = self.columns
        for place in self._order:
            written = place < len(columns.iteration) and columns.iteration[place] == columns.current_iteration
            if not written or not columns.has_hash(place):
                tensor = self.retention.current(place)
                if tensor is not None:
                    self._reader.scan(tensor, self.columns, place)
        self._reader.settle(self.columns)

    def _check(self, *, scaled_skip: bool = False, again: bool = False) -> list[AgentHit]:
        """Check all watchpoints on the values of the step at which the training stands, or do so once more."""
        if not self.watches.any:
            return []
        if self.step == 0:
            return self.watches.check_initial(self.columns, self.retention)
        return self.watches.check_step(
            self.columns,
            self.retention,
            self.columns.current_iteration,
            self._order,
            scaled_skip=scaled_skip,
            again=again,
        )

    def _standing(self, node: str = "") -> Standing:
        compares = self.framework.world_size > 1 and not node
        hashes = self.watches.hashes(self.columns) if compares else ()
        oldest = self.recorder.oldest_iteration if self.settings.record else None
        return Standing(self.columns.current_iteration + 1, self._program, node, hashes, oldest)

    def _rows(self) -> StepRows | None:
        """Return a copy of the rows of this step; None if there are none."""
        if self._program is None or not self._order:
            return None
        places = np.fromiter(filter(self._has_run, dict.fromkeys(self._order)), np.int64)
        return StepRows(self.columns.current_iteration, self._program, self.columns.take(places))

    def _last_rows(self) -> StepRows | None:
        """Return the rows of the last step that ended; None if nobody looked at it."""
        places = np.flatnonzero(self.columns.iteration[: len(self.places)] == self.step - 1)
        if self._program is None or not places.size:
            return None
        return self._telemetry.unsent(StepRows(self.step - 1, self._program, self.columns.take(places)))

    def _rows_of_weights(self) -> StepRows | None:
        """Return a copy of the rows of weights and states."""
        if self._program is None or not self._order:
            return None
        return StepRows(self.columns.current_iteration, self._program, self.columns.take(self._lasting.numbers))

    def _hit_messages(self, hits: Iterable[AgentHit]) -> list[WatchpointHit]:
        graph_of = self._graph_of
        return [hit.message(graph_of.get(hit.place.node.name, "") if self._loop.is_ours else "") for hit in hits]

    # --- programs ---

    def _learn(self, program: Program) -> bool:
        """Take note of what ran; return whether the server was told of something new."""
        self._program = program
        known = self._programs.get(program.number)
        if known is program or (known is not None and len(known.nodes) == len(program.nodes)):
            return False
        if known is None and len(self._programs) >= MOST_PROGRAMS:
            say_once(f"the steps compute more than {MOST_PROGRAMS} different things; no more graphs are shown")
            return False
        self._programs[program.number] = program
        # One that has the name of an earlier one takes its place.
        self._introduction.programs[:] = {one.name: one for one in self._programs.values()}.values()
        for node in program.nodes:
            self._graph_of[node.name] = program.name
        self.watches.learn(program)
        if known is not None:
            self.recorder.learn(program)
        if not self._attachment.is_attached:
            return False
        problem = self._introduction.send_graphs(self._attachment.connection, [program])
        if problem:
            say_once(f"the debug server refuses the graph {program.name}: {problem}")
        return True

    # --- mistakes of our own ---

    def _skip(self, place: int, error: Exception) -> None:
        """Look at a place no more: something about its tensors is not understood."""
        self.places.needs[place] = 0
        at = self.places[place]
        say_once(f"{at.node.name}:{at.slot} is not observed: {error!r}")

    def _give_up(self, error: Exception) -> None:
        """End debugging, and leave the training alone."""
        say(f"internal error, debugging ends here and the training goes on: {error!r}")
        self.close()
