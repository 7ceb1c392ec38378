"""Records the last steps of a run, or all of them, as a dump that any of our tools can open.

A step is written when it ends, before the training goes on and writes to its tensors. It appears in the dump as a
whole, and is removed as a whole when a ring is full. If writing fails, recording ends with a line for the user; the
training goes on.
"""

from __future__ import annotations

import os
import queue
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.core.graph_messages import execution_order, graph_message
from tensight.agents.core.notices import log, log_once, report
from tensight.agents.core.recording.names import recorded_names
from tensight.errors import InputError, TensightError
from tensight.graph.steps import step_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tensight.agents.core.observation import Observation
    from tensight.agents.core.program import Program
    from tensight.agents.core.reader import Framework, TensorReader
    from tensight.agents.core.settings import AgentSettings
    from tensight.agents.core.slots import Io
    from tensight.dumps.iteration_writer import IterationWriter
    from tensight.dumps.recorder import RankRecorder, RecordedRow
    from tensight.graph import Graph, Node

MARK = ".tensight-recording"
"""A file in every folder with a recording of ours: other ranks add theirs only there."""

_GROWING = ".growing"
"""Folder of incomplete steps."""

_MOST_NAMES = 1_000
_MOST_WASTE = 4


class Recorder:
    """Records steps, if the settings request it.

    Nothing here raises into the training.

    Parameters
    ----------
    settings : AgentSettings
        ``record`` and ``record_folder``.
    framework : Framework
    reader : TensorReader
        Of the framework's tensors.

    Attributes
    ----------
    is_on : bool
        Whether steps are recorded; every slot then needs its statistics and its value.
    folder : Path or None
        The recording; None if there never was one.
    """

    def __init__(self, settings: AgentSettings, framework: Framework, reader: TensorReader) -> None:
        self.is_on = False
        self.folder: Path | None = None
        self._ring = settings.ring_steps
        self._reader = reader
        self._process_id = os.getpid()
        self._rank: RankRecorder | None = None
        self._graphs: dict[int, _Graph] = {}
        # Root graph of each existing iteration, the oldest first.
        self._iterations: dict[int, _Graph] = {}
        self._growing: Path | None = None
        self._waste = _Waste()
        if settings.record:
            try:
                self._open(settings, framework)
            except (OSError, TensightError) as error:
                self._end(error)

    @property
    def is_ring(self) -> bool:
        """Whether only the last steps are recorded."""
        return self._ring > 0

    @property
    def oldest_iteration(self) -> int | None:
        """The oldest iteration that can be shown; None if there is none."""
        return next(iter(self._iterations), None)

    def describe(self, setup: Mapping[str, object]) -> None:
        """Write the set-up of the training beside its settings."""
        rank = self._writer
        if rank is not None:
            try:
                rank.describe_setup(setup)
            except Exception as error:
                self._end(error)

    def learn(self, program: Program) -> None:
        """Add a program whose steps are recorded, or an extended version of a known one."""
        rank = self._writer
        if rank is None:
            return
        try:
            self._learn(rank, program)
        except Exception as error:
            self._end(error)

    def record(self, program: Program, observed: Observation) -> None:
        """Write a step that has ended: the value of each slot, or its statistics if its value is not kept.

        Parameters
        ----------
        program : Program
            What ran.
        observed : Observation
            Its iteration is -1 for the values before the first step.
        """
        rank, iteration = self._writer, observed.columns.current_iteration
        if rank is None or iteration in self._iterations:
            return
        try:
            if program.number not in self._graphs:
                self._learn(rank, program)
            self._write(rank, self._graphs[program.number], iteration, observed)
        except Exception as error:
            self._end(error)

    def value(self, name: str, slot: int, io: Io, iteration: int) -> NDArray[Any] | None:
        """Return the value of a slot of a node; None if it was not recorded, or is no longer available.

        Parameters
        ----------
        name : str
            Full name of the node.
        slot : int
        io : {"output", "input"}
        iteration : int
        """
        graph = self._iterations.get(iteration)
        node = None if graph is None else graph.nodes.get(name)
        if graph is None or node is None or self._rank is None:
            return None
        try:
            location = self._rank.find_tensor(graph.graph, node, slot, iteration, is_input=io == "input")
            return None if location is None else _read(*location)
        except (OSError, ValueError):
            return None

    def why_missing(self, iteration: int) -> str:
        """Return why there is no value of an iteration."""
        if iteration in self._iterations:
            return f"its value of step {step_of(iteration)} was not kept, only its statistics were recorded"
        if not self._iterations:
            return 'no steps are recorded (record="ring:20" keeps the last 20)'
        return f"step {step_of(iteration)} is not recorded; {self._recorded_steps} are"

    @property
    def _recorded_steps(self) -> str:
        """The recorded steps, as text; there is at least one."""
        return f"steps {step_of(next(iter(self._iterations)))} to {step_of(next(reversed(self._iterations)))}"

    def close(self) -> None:
        """Remove everything but the recording."""
        self.is_on = False
        if self._growing is not None and os.getpid() == self._process_id:
            self._waste.end()
            shutil.rmtree(self._growing, ignore_errors=True)
            with suppress(OSError):
                self._growing.parent.rmdir()

    @property
    def _writer(self) -> RankRecorder | None:
        """The writer of steps; None if nothing is recorded."""
        # A forked process has the recorder, too, but the recording belongs to its parent.
        return self._rank if self.is_on and os.getpid() == self._process_id else None

    def _open(self, settings: AgentSettings, framework: Framework) -> None:
        # Imported only when something is recorded.
        from tensight.dumps.metadata import Device
        from tensight.dumps.recorder import DumpRecorder

        folder = _own_folder(settings, framework)
        self._growing = folder / _GROWING / f"rank_{framework.rank}"
        target = framework.backend.upper()
        dump = DumpRecorder(
            folder,
            self._growing,
            framework=framework.name,
            framework_version=framework.version,
            device_target=target,
            by_agent=True,
        )
        self._rank = dump.rank(framework.rank, Device(framework.rank, device_id=framework.device))
        self.folder = folder
        self.is_on = True
        what = f"the last {self._ring} steps" if self._ring else "all steps"
        if framework.rank == 0 or not settings.alone:
            report(f"{what} are recorded in {folder}")

    def _learn(self, rank: RankRecorder, program: Program) -> None:
        previous = self._graphs.get(program.number)
        if previous is not None and previous.program is program:
            return
        file = rank.new_graph()
        try:
            names = recorded_names(program)
            file.write([graph_message(program, names)])
            graph = file.parse(program.name)
            rank.keep_graphs([(file, graph)], {graph.name: [names[name] for name in execution_order(program)]})
        except BaseException:
            file.discard()
            raise
        made = _Graph(program, graph, names)
        self._graphs[program.number] = made
        for iteration, used in self._iterations.items():
            if used is previous:
                self._iterations[iteration] = made

    def _write(self, rank: RankRecorder, graph: _Graph, iteration: int, observed: Observation) -> None:
        root = graph.graph.root_id
        writer = rank.begin_iteration(root, iteration)
        try:
            without = self._write_values(rank, writer, graph, observed)
            rows = _recorded_rows(graph, without, observed)
            if rows:
                writer.add_statistics(rank.statistics_text(rows))
            # To readers of the growing dump, an iteration may have run without being recorded, but not vice versa.
            if iteration >= 0:
                rank.record_executions(root, [iteration])
            writer.keep()
        except BaseException:
            writer.discard()
            raise
        self._iterations[iteration] = graph
        if without and observed.retention.has_dropped_values:
            budget_mib = observed.retention.budget_bytes / 2**20
            log_once(
                f"the values of a step do not fit into the {budget_mib:,.0f} MiB set aside for them; of the"
                " others only statistics are recorded (TENSIGHT_MEMORY_BUDGET changes that)"
            )
        while 0 < self._ring < len(self._iterations):
            self._drop_oldest(rank)

    def _write_values(
        self, rank: RankRecorder, writer: IterationWriter, graph: _Graph, observed: Observation
    ) -> list[int]:
        """Write the kept values; return the slots without one."""
        without: list[int] = []
        written: dict[int, tuple[str, np.dtype[Any]]] = {}
        for number in dict.fromkeys(observed.seen):
            tensor_slot = observed.slot_table[number]
            node = graph.nodes.get(tensor_slot.node.name)
            if node is None:
                continue
            tensor = observed.retention.current(number)
            head, is_input = rank.head(graph.graph, node), tensor_slot.io == "input"
            earlier = written.get(id(tensor))
            if earlier is not None and writer.add_again(*earlier, head, tensor_slot.slot, is_input=is_input):
                continue
            array = None if tensor is None else self._reader.host(tensor)
            if array is None:
                without.append(number)
                continue
            written[id(tensor)] = writer.add(head, tensor_slot.slot, array, is_input=is_input), array.dtype
        return without

    def _drop_oldest(self, rank: RankRecorder) -> None:
        """Delete the oldest iteration, for which a ring has no room."""
        iteration = next(iter(self._iterations))
        graph = self._iterations.pop(iteration)
        gone = rank.take_out_iteration(graph.graph.root_id, iteration)
        if gone is not None:
            self._waste.delete(gone)

    def _end(self, error: Exception) -> None:
        """Stop recording, and log why."""
        self.is_on = False
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error) or repr(error)
        if self.folder is None:
            log(f"nothing is recorded: {reason}")
            return
        what = "nothing is"
        if self._iterations:
            what = f"{self._recorded_steps} are"
        log(f"recording ends, the training goes on: {self.folder}: {reason}; {what} recorded")


class _Waste:
    """Deletes folders in a thread, because deleting a step takes the disk longer than writing one."""

    def __init__(self) -> None:
        self._folders: queue.Queue[Path | None] = queue.Queue(_MOST_WASTE)
        self._thread: threading.Thread | None = None

    def delete(self, folder: Path) -> None:
        """Delete a folder soon; wait while several are left, so that the disk does not fill up."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="tensight-recording", daemon=True)
            self._thread.start()
        self._folders.put(folder)

    def end(self) -> None:
        """Delete what is left."""
        if self._thread is not None:
            self._folders.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (folder := self._folders.get()) is not None:
            shutil.rmtree(folder, ignore_errors=True)


class _Graph:
    """A program as the recorded graph; nodes are looked up by their names in the program."""

    def __init__(self, program: Program, graph: Graph, names: dict[str, str]) -> None:
        self.program = program
        self.graph = graph
        by_name: dict[str, Node] = {node.full_name or node.name: node for node in graph.nodes}
        self.nodes = {name: by_name[recorded] for name, recorded in names.items() if recorded in by_name}
        self.types = {node.name: node.type for node in program.nodes}
        self.names = names


def _recorded_rows(graph: _Graph, numbers: list[int], observed: Observation) -> list[RecordedRow]:
    """Return the statistics of slots that were written in this step."""
    from tensight.dumps.recorder import RecordedRow

    if not numbers:
        return []
    result = []
    rows = observed.columns.take(np.array(numbers, np.int64))
    for number, iteration, row in zip(numbers, rows.iterations.tolist(), rows.statistics(), strict=True):
        if row is None or iteration != observed.columns.current_iteration:
            continue
        tensor_slot = observed.slot_table[number]
        names = (
            *("dtype", "shape", "size_bytes", "max", "min", "mean", "count", "negative_count", "positive_count"),
            *("nan_count", "neg_inf_count", "pos_inf_count", "zero_count", "l2_norm", "abs_mean", "std"),
        )
        fields: dict[str, Any] = {name: getattr(row, name) for name in names}
        name = tensor_slot.node.name
        kind, recorded = graph.types.get(name, "Parameter"), graph.names.get(name, name)
        result.append(RecordedRow(kind, recorded, tensor_slot.io, tensor_slot.slot, **fields))
    return result


def _read(path: Path, declared_dtype: str) -> NDArray[Any]:
    from tensight.tensors.elements import dtype_named

    array: NDArray[Any] = np.load(path, allow_pickle=False)
    return array.view(dtype_named(declared_dtype)) if declared_dtype else array


def _own_folder(settings: AgentSettings, framework: Framework) -> Path:
    """Return a folder in which this rank may record, without touching anything else in it.

    Raises
    ------
    InputError
        The folder that the user named contains something else.
    OSError
        It cannot be created.
    """
    named = settings.record_folder or settings.alone
    if named:
        folder = Path(named).expanduser().absolute()
        problem = _take(folder, framework.rank)
        if problem:
            raise InputError(f"{folder}: {problem}; name another folder, or none")
        return folder
    name = _default_name(settings, framework)
    for number in range(1, _MOST_NAMES):
        folder = Path.cwd() / (name if number == 1 else f"{name}-{number}")
        if not _take(folder, framework.rank):
            return folder
    raise InputError(f"{folder.parent}: contains too many recordings called {name}; delete some")


def _take(folder: Path, rank: int) -> str:
    """Create a folder for this rank's recording, or return why that is not possible."""
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    except FileExistsError:
        return "is not a folder"
    if not (folder / MARK).exists():
        # Another rank may have made the mark in the meantime.
        if os.listdir(folder) and not (folder / MARK).exists():
            return "is not empty, and not a recording of Tensight"
        with suppress(FileExistsError):
            os.close(os.open(folder / MARK, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        (folder / f"rank_{rank}").mkdir(0o700)
    except FileExistsError:
        return "contains a recording already"
    return ""


def _default_name(settings: AgentSettings, framework: Framework) -> str:
    """Return a name that all ranks of a run derive independently."""
    if framework.world_size == 1:
        return f"tensight-recording-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (settings.job, settings.run, os.environ.get("TORCHELASTIC_RUN_ID"), os.environ.get("MASTER_PORT"))
    run = next(filter(None, names), "run")
    return "tensight-recording-" + "".join(letter if letter.isalnum() else "-" for letter in run)[:100]
