"""The records of a run: what is written of its steps, and what these are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.agents.core.recording.against import TraceComparison
from tensight.agents.core.recording.recording import Recorder
from tensight.agents.core.recording.tracing import Tracer
from tensight.agents.core.watching.alone import WatchedAlone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.agents.core.observation import Observation
    from tensight.agents.core.program import Program
    from tensight.agents.core.reader import Framework, TensorReader
    from tensight.agents.core.settings import AgentSettings


class StepRecords:
    """What the settings request to be recorded, traced and compared of the steps of a run.

    Parameters
    ----------
    settings : AgentSettings
    framework : Framework
    reader : TensorReader
        Of the framework's tensors.
    script : str
        Command line of the training, as shown to users.

    Attributes
    ----------
    recorder : Recorder
    tracer : Tracer
    comparison : TraceComparison
    alone : WatchedAlone
        What a rank that watches itself writes.
    """

    def __init__(self, settings: AgentSettings, framework: Framework, reader: TensorReader, script: str) -> None:
        self.recorder = Recorder(settings, framework, reader)
        self.alone = WatchedAlone(settings, framework, self.recorder)
        self.tracer = Tracer(settings, framework, script)
        self.comparison = TraceComparison(settings, framework)

    @property
    def are_written(self) -> bool:
        """Whether steps are recorded or traced."""
        return self.recorder.is_on or self.tracer.is_on

    @property
    def are_compared(self) -> bool:
        """Whether steps are compared with those of another run, or are written so that they can be."""
        return self.are_written or self.comparison.is_on

    def describe(self, setup: Mapping[str, object]) -> None:
        """Write the set-up of the training, as `tensight.agents.setup.describe` returns it."""
        self.recorder.describe(setup)
        self.tracer.describe(setup)

    def learn(self, program: Program) -> None:
        """Note an extended version of a program."""
        self.recorder.learn(program)
        self.tracer.learn(program)

    def write(self, program: Program, observed: Observation) -> None:
        """Write the step that has ended, or the values before the first one."""
        self.recorder.record(program, observed)
        self.tracer.record(program, observed)

    def close(self, step: int) -> None:
        """End all records, after so many steps."""
        self.alone.close(step)
        self.recorder.close()
        self.tracer.close()
        self.comparison.end()
