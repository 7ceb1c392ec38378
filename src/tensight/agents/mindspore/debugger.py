"""Debugs a MindSpore training: connects the agent with what is captured, and decides when a step ends."""

from __future__ import annotations

import atexit
import contextlib
import shlex
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from mindspore import Parameter, nn

from tensight.agents.core.agent import Agent
from tensight.agents.core.debugging import TrainingDebugger
from tensight.agents.core.live_instances import live_instances
from tensight.agents.core.notices import log, log_once
from tensight.agents.core.oversights import Oversights
from tensight.agents.core.process.endings import at_end
from tensight.agents.core.replacing import Replacements
from tensight.agents.eager.multi_optimizer import MultiOptimizerSteps
from tensight.agents.mindspore.both_readers import BothReaders
from tensight.agents.mindspore.calls import GraphCalls, is_graph_mode, wait_for_results
from tensight.agents.mindspore.dump_settings import EVERYTHING, GRADIENTS
from tensight.agents.mindspore.environment import as_one_run, framework, is_rank, optimizers_in
from tensight.agents.mindspore.framework import tensors_in
from tensight.agents.mindspore.graph_capture import GraphCapture
from tensight.agents.mindspore.learning_rates import rates_of
from tensight.agents.mindspore.model_calls import ModelCalls
from tensight.agents.mindspore.own_functions import is_own, others_are_compiled
from tensight.agents.mindspore.process_dump import ProcessDump
from tensight.agents.mindspore.setup import describe_mindspore
from tensight.agents.mindspore.step_programs import StepPrograms
from tensight.agents.mindspore.tuple_linking import TupleLinking
from tensight.agents.mindspore.written_parameters import WrittenParameters
from tensight.agents.setup import describe
from tensight.errors import InputError, TensightError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensight.agents.core.diagnosing import Diagnosing
    from tensight.agents.core.settings import AgentSettings
    from tensight.agents.mindspore.calls import Compiled
    from tensight.agents.mindspore.cells import CellCapture
    from tensight.agents.mindspore.facts.graphs import GraphFacts
    from tensight.agents.mindspore.facts.source import FactSource
    from tensight.agents.mindspore.graph_capture import Phase

_LATE = "backward passes of compiled functions"
"""Name of the phase for graphs that the script does not call itself."""

_ONLY_CELLS = (
    "in PyNative mode calls of cells are seen, in the thread in which debugging began; what functions compute outside"
    " of cells is not"
)


class Debugger(TrainingDebugger):
    """Debugs a training, from `start` or the beginning of a ``with`` block on.

    The debug server is contacted when the first graph has been compiled, or the first cell with parameters is called.

    Parameters
    ----------
    subjects : sequence of Cell
        Networks and optimizers, in any order. In GRAPH_MODE everything that the training calls is debugged; in
        PYNATIVE_MODE these, or everything if none are given.
    settings : AgentSettings
    agent_of : callable, optional
        Makes the agent, from the arguments of `Agent`.

    Raises
    ------
    InputError
        A subject is not a cell.
    """

    def __init__(
        self, subjects: Sequence[Any], settings: AgentSettings, *, agent_of: Callable[..., Agent] = Agent
    ) -> None:
        super().__init__(settings, agent_of)
        for subject in subjects:
            if not isinstance(subject, nn.Cell):
                raise InputError(
                    f"a training consists of networks and optimizers, not of {type(subject).__name__}; give"
                    " mindspore.nn.Cell and mindspore.nn.Optimizer objects"
                )
        self._optimizers = [subject for subject in subjects if isinstance(subject, nn.Optimizer)]
        self._subjects = [subject for subject in subjects if not isinstance(subject, nn.Optimizer)]
        self._reader: BothReaders | None = None
        self._dump = ProcessDump.of_this_process()
        self._graphs: GraphCapture | None = None
        self._tuple_linking: TupleLinking | None = None
        self._cells: CellCapture | None = None
        self._oversights: Oversights | None = None
        self._programs = StepPrograms()
        self._parameters: dict[str, weakref.ref[Any]] = {}
        self._multi_optimizer = MultiOptimizerSteps(lambda optimizer: optimizer.parameters)
        self._optimizers_of: dict[str, frozenset[int]] = {}
        self._mindspore_phases: set[str] = set()
        self._late: Phase | None = None
        self._runs_undumped = False
        self._calls = GraphCalls(self.before_compile, self._compiled, self._called, self._begins_with)
        self._models = ModelCalls(self)
        self._written = WrittenParameters()
        self._first_cell = Replacements()
        self._facts: FactSource | None = None
        self._graph_facts: GraphFacts | None = None
        self._thread = threading.get_ident()
        self._has_begun = bool(subjects)
        self._is_attached = False

    def end_batch(self) -> None:
        """End a step after `Model` has trained a batch, unless an update has ended it."""
        with self._guarded():
            self._end_open_step()
        if self._ended_by_update:
            self._ended_by_update = False
        elif self._settings.step_on == "optimizer":
            self._end_step(False)

    def start(self) -> None:
        """Begin to debug what the training calls from now on, in this thread."""
        if is_rank():
            super().start()
        else:
            self._is_over = True

    # --- beginning and end ---

    def _begin(self) -> None:
        self._thread = threading.get_ident()
        self._dump.leave_to_debugger()
        self._calls.install()
        self._models.install()
        self._written.install()
        # Cells are followed from the first call of a cell with parameters in PYNATIVE_MODE.
        self._first_cell.put(nn.Cell, "__call__", self._call_cell)
        self._leave_children()

    def _ensure_agent(self) -> Agent:
        """Return the agent, creating it if necessary: something is about to run, so device and rank are known."""
        if self._agent is None:
            current_framework = framework()
            if self._settings.perturb:
                log("weights of MindSpore are not perturbed: this is a trace of the training as it is")
            settings = as_one_run(self._settings, current_framework)
            self._reader = BothReaders()
            self._agent = self._agent_of(
                settings,
                current_framework,
                self._reader,
                script=settings.command or shlex.join(sys.orig_argv),
                stops_at_nodes=True,
                cursor=True,
            )
            if settings.diagnose and self._agent.diagnosing is not None:
                self._facts = self._new_facts(self._agent.diagnosing, self._reader, current_framework.world_size)
                at_end(self.close_at_exit)
            if self._agent.records.are_written:
                self._agent.records.describe(describe(describe_mindspore(current_framework)))
        return self._agent

    def _new_facts(self, diagnosing: Diagnosing, reader: BothReaders, world_size: int) -> FactSource:
        from tensight.agents.mindspore.facts.source import FactSource

        return FactSource(diagnosing, reader, world_size)

    def _ensure_oversights(self) -> Oversights:
        agent = self._ensure_agent()
        if self._oversights is None:
            self._oversights = Oversights(agent.report, agent.withdraw, lambda: agent.step)
        return self._oversights

    def _detach(self) -> None:
        # Run each of them, even if another fails.
        with contextlib.ExitStack() as parts:
            if self._facts is not None:
                parts.callback(self._facts.stop)
            if self._cells is not None:
                parts.callback(self._cells.stop)
            parts.callback(self._first_cell.take_back)
            parts.callback(self._written.remove)
            parts.callback(self._models.remove)
            parts.callback(self._calls.remove)

    def _clean_up(self) -> None:
        try:
            if self._graphs is not None:
                self._graphs.stop()
        finally:
            # Nothing reads MindSpore's dump any more.
            self._dump.sweep()

    def _begins_with(self, owner: Any) -> bool:
        """Follow this thread if the training begins with this owner, because nothing that trains was called before."""
        if self._has_begun or (is_own(owner) and not is_graph_mode()):
            return False
        if isinstance(owner, nn.Cell) and not any(True for _ in owner.get_parameters()):
            return False
        self._has_begun = True
        self._thread = threading.get_ident()
        self._calls.follow_thread()
        return True

    # --- graphs ---

    def before_compile(self, owner: Any) -> None:
        """Turn on MindSpore's dump, if it is off, before a graph of a cell, a function or None is compiled."""
        if self._is_over:
            return
        self._begins_with(owner)
        if self._dump.ring is not None:
            self._take_late()
            return
        if not is_graph_mode() and is_own(owner) and (self._runs_undumped or not others_are_compiled()):
            self._runs_undumped = True
            return
        if self._runs_undumped:
            log_once(
                "a function was compiled (jit) only after MindSpore had compiled some of its own, and decided not to"
                " dump; only its inputs and outputs are observed"
            )
            return
        try:
            # MindSpore reads the configuration before any watchpoint can be set.
            self._dump.begin(GRADIENTS if self._settings.partial_memory else EVERYTHING)
            # Exit handlers run in reverse order, and the dump must still exist when the debugger ends.
            atexit.unregister(self.close_at_exit)
            atexit.register(self.close_at_exit)
        except TensightError as error:
            log_once(f"the training goes on without the debugger: {error}")
            self.close()
        except Exception as error:
            self._give_up(error)

    def _compiled(self, compiled: Compiled) -> None:
        ring = self._dump.ring
        if self._is_over or ring is None or compiled.phase in self._mindspore_phases:
            return
        if compiled.phase in self._optimizers_of:
            self._end_step_before(compiled)
            self._observe_written(compiled.phase)
            self._facts_begin(compiled)
            return
        with self._guarded():
            graphs = self._graphs
            if graphs is None:
                graphs = self._graphs = GraphCapture(
                    self._ensure_agent(), ring, wait_for_results, self._value_of, self._requires_gradient
                )
                graphs.also_reads = self._facts is not None
                self._tuple_linking = TupleLinking(self._ensure_agent(), graphs.may_have_run)
            if not is_graph_mode() and is_own(compiled.owner):
                self._mindspore_phases.add(compiled.phase)
                graphs.phase(compiled.phase)
                return
            self._multi_optimizer.learn(live_instances(nn.Optimizer))
            self._learn_parameters(compiled.owner)
            self._optimizers_of[compiled.phase] = optimizers_in(compiled.owner)
            self._attach_to_graph(graphs.phase(compiled.phase))
        self._observe_written(compiled.phase)
        self._facts_begin(compiled)

    def _facts_begin(self, compiled: Compiled) -> None:
        """Read what a graph will change, if the training is diagnosed."""
        if self._facts is None or self._graphs is None or self._cells is not None or self._is_over:
            return
        with self._guarded():
            if self._graph_facts is None:
                from tensight.agents.mindspore.facts.graphs import GraphFacts

                self._graph_facts = GraphFacts(self._facts)
            optimizers = self._multi_optimizer.optimizers(self._optimizers_of[compiled.phase])
            self._graph_facts.begins(compiled, self._graphs.phase(compiled.phase), optimizers)

    def _observe_written(self, phase: str) -> None:
        """Observe parameters that the script has written to, before a graph reads them."""
        graphs = self._graphs
        if self._is_over or graphs is None or not self._written:
            return
        with self._guarded():
            runs = graphs.phase(phase)
            for name in runs.parameters:
                reference = self._parameters.get(name)
                parameter = None if reference is None else reference()
                if parameter in self._written:
                    self._written.forget(parameter)
                    graphs.observe_read(runs, name)

    def _end_step_before(self, compiled: Compiled) -> None:
        """End the step before a graph runs again, if it waited only for optimizers that have never updated."""
        graphs = self._graphs
        if graphs is None or not self._may_end_step(graphs.phase(compiled.phase), compiled):
            return
        if self._multi_optimizer.ends_before(self._optimizers_of[compiled.phase]):
            self._end_by_update(graphs.skipped_update)

    def _attach_to_graph(self, phase: Phase) -> None:
        """Attach with the first graph, unless the training is attached already."""
        if self._is_attached or self._graphs is None:
            return
        agent = self._ensure_agent()
        self._is_attached = True
        self._graphs.observe_parameters(phase.programs.values())
        agent.attach(self._programs.preview([graph.program for graph in phase.programs.values()]))

    def _learn_parameters(self, owner: Any) -> None:
        """Note the live parameters by name; those of the cell take precedence over others of the same name."""
        parameters = {parameter.name: parameter for parameter in live_instances(Parameter)}
        if isinstance(owner, nn.Cell):
            parameters.update(owner.parameters_dict())
        self._parameters.update({name: weakref.ref(parameter) for name, parameter in parameters.items()})

    def _value_of(self, name: str) -> Any:
        """Return a copy of the current value of a parameter."""
        reference = self._parameters.get(name)
        parameter = None if reference is None else reference()
        return None if parameter is None or self._reader is None else self._reader.copy(parameter)

    def _requires_gradient(self, name: str) -> bool:
        """Whether a parameter is trainable, according to its network."""
        reference = self._parameters.get(name)
        parameter = None if reference is None else reference()
        return parameter is not None and bool(parameter.requires_grad)

    def _called(self, compiled: Compiled) -> None:
        graphs = self._graphs
        if self._is_over or graphs is None:
            return
        if compiled.phase in self._mindspore_phases:
            with self._guarded():
                graphs.take(graphs.phase(compiled.phase), counts=False)
        if compiled.phase not in self._optimizers_of:
            return
        try:
            phase = graphs.phase(compiled.phase)
            counts = self._counts(phase, compiled.owner)
            launches = graphs.take(phase, counts=counts)
            if self._cells is not None:
                self._cells.dumped(phase.programs)
            elif self._graph_facts is not None and counts:
                optimizers = self._multi_optimizer.optimizers(self._optimizers_of[compiled.phase])
                values = graphs.tensors(launches) if self._graph_facts.reads else {}
                self._graph_facts.ended(compiled, phase, optimizers, values)
            if counts and self._tuple_linking is not None:
                self._tuple_linking.note(phase.programs.values(), launches, compiled.arguments, compiled.result)
            if phase.trains and self._ensure_agent().observed.scalars.is_wanted:
                self._tell_scalars(compiled)
            if self._ends_step(phase, compiled):
                self._end_step(graphs.skipped_update)
            elif phase.trains and not phase.updates and self._cells is None:
                self._ensure_oversights().backward_pass()
        except Exception as error:
            self._give_up(error)

    def _tell_scalars(self, compiled: Compiled) -> None:
        """Report loss and learning rates of a step that runs as one graph; its gradients are not visible."""
        scalars = self._ensure_agent().observed.scalars
        results = [] if isinstance(compiled.owner, nn.Optimizer) else tensors_in(compiled.result)
        # The loss comes first, before other outputs and before gradients.
        if results and results[0].size == 1 and results[0].is_floating_point():
            scalars.loss(results[0])
        if self._cells is None:
            for optimizer in self._multi_optimizer.optimizers(self._optimizers_of[compiled.phase]):
                scalars.update(id(optimizer), rates_of(optimizer, has_updated=True), None)

    def _take_late(self) -> None:
        """Take the dump of backward passes of compiled functions, which the script does not call itself."""
        if self._cells is not None and self._graphs is not None and self._optimizers_of:
            with self._guarded():
                self._late = self._graphs.phase(_LATE)
                self._graphs.take(self._late, counts=True)

    def _counts(self, phase: Phase, owner: Any) -> bool:
        """Whether a run is part of a step: an evaluation beside a training is not."""
        if self._settings.step_on != "optimizer" or self._ended_by_call or not self._multi_optimizer.any:
            return True
        return phase.trains or not isinstance(owner, nn.Cell) or bool(owner.training)

    def _ends_step(self, phase: Phase, compiled: Compiled) -> bool:
        if self._settings.step_on != "optimizer":
            return self._settings.step_on == "forward"
        if not self._multi_optimizer.any:
            return not self._ended_by_call
        if not self._may_end_step(phase, compiled):
            return False
        if not self._multi_optimizer.ends_step(self._optimizers_of[compiled.phase]):
            return False
        self._ended_by_update = True
        return True

    def _may_end_step(self, phase: Phase, compiled: Compiled) -> bool:
        """Whether a graph runs updates of optimizers that no cell observes."""
        if self._settings.step_on != "optimizer" or not phase.updates:
            return False
        return self._cells is None or not isinstance(compiled.owner, nn.Optimizer)

    # --- cells ---

    def _call_cell(self, original: Callable[..., Any], cell: Any, *arguments: Any, **named: Any) -> Any:
        if not self._has_begun:
            with self._guarded():
                self._begins_with(cell)
        if threading.get_ident() == self._thread and not is_graph_mode():
            self._cell_called(cell)
            if self._cells is not None:
                return nn.Cell.__call__(cell, *arguments, **named)
        return original(cell, *arguments, **named)

    def _cell_called(self, cell: Any) -> None:
        if self._is_over or not any(True for _ in cell.get_parameters()):
            return
        with self._guarded():
            from tensight.agents.mindspore.cells import CellCapture

            agent = self._ensure_agent()
            self._first_cell.take_back()
            capture = self._cells = CellCapture(
                agent,
                self._subjects or [cell],
                self._optimizers,
                step_on=self._settings.step_on,
                on_step=self._end_by_update,
                oversights=self._ensure_oversights(),
                follows_all=not self._subjects,
            )
            if self._facts is not None:
                from tensight.agents.mindspore.facts.cells import CellFacts

                capture.facts = CellFacts(self._facts)
            program = self._programs.preview([capture.preview()])
            if not self._is_attached:
                self._is_attached = True
                agent.attach(program)
            capture.start()

    # --- steps ---

    def _end_open_step(self) -> None:
        if self._cells is not None:
            self._cells.end_open_step()

    def _report_step(self, agent: Agent, skipped: bool) -> None:
        self._take_late()
        seen = [] if self._cells is None else [self._cells.end_step()]
        if self._graphs is not None:
            graphs = self._graphs.end_step()
            if self._cells is not None:
                # The order in which backward passes of compiled functions were noticed has no meaning.
                graphs = sorted(filter(self._cells.has_run, graphs), key=lambda graph: graph.number)
            seen += graphs
        captured = agent.capturing
        calls = () if self._cells is None else self._cells.compiled_calls()
        late = () if self._late is None else tuple(self._late.programs.values())
        program = self._programs.merged(seen, calls, late)
        if self._tuple_linking is not None:
            program = self._tuple_linking.linked(program)
            self._tuple_linking.begin_step()
        if captured and self._cells is not None:
            self._ensure_oversights().step_done(has_operators=self._cells.has_seen_calls, why=_ONLY_CELLS)
        elif self._oversights is not None:
            self._oversights.step_done(has_operators=True, why="")
        if self._facts is not None:
            self._facts.step_done(skipped=skipped)
            if self._graphs is not None:
                self._graphs.also_reads = self._facts.reads
        try:
            agent.step_done(program, scaled_skip=skipped)
        finally:
            if self._graphs is not None:
                self._graphs.begin_step()
                if agent.capturing and not captured:
                    self._graphs.forget_dumped()
            if self._cells is not None:
                self._cells.begin_step()
