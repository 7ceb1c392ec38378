"""Values that the graph of a branch receives from the graphs around it: activations or gradients.

MindSpore dumps them neither as parameters nor as inputs, and its files do not give their sources. The possible sources
follow from the graphs that ran before in the same call (`tensight.graph.given`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph.declared import Given, GivenSource
from tensight.graph.given import GraphRun, given_values, is_given, runs_nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tensight.agents.mindspore.graph_programs import DumpedProgram
    from tensight.agents.mindspore.launches import Launch


def branch_inputs(
    programs: Collection[DumpedProgram],
    launches: Iterable[Launch],
    may_have_run: Callable[[DumpedProgram], bool] = lambda _: False,
) -> dict[str, Given]:
    """Return the values given to the graphs that ran in a call, by the names of their parameters in programs.

    Parameters
    ----------
    programs : collection of DumpedProgram
        Those that the call may have run.
    launches : iterable of Launch
        Those that ran, as far as they left files.
    may_have_run : callable (program) -> bool
        Whether a program that left no file may have run.
    """
    by_number = {launch.graph: launch for launch in launches}
    members = [(member, program) for program in programs for member in program.members]
    names = {member.graph.name: member.names for member, _ in members}
    runs, others = [], []
    for member, program in members:
        launch = by_number.get(program.number)
        if launch is not None:
            moments = launch.began, launch.ended, launch.is_repeated
            runs.append(GraphRun(member.graph, *moments, member.printed))
        elif runs_nothing(member.graph) or may_have_run(program):
            others.append(member.graph)
    outside_names = {
        names[run.graph.name][parameter.name]
        for run in runs
        for parameter in run.graph.parameters
        if not is_given(parameter)
    }
    inputs: dict[str, Given] = {}
    for run in runs:
        for parameter, given in given_values(run.graph, runs, others).items():
            name = names[run.graph.name][parameter]
            # Names of parameters from outside are skipped: a program may use a name for two values.
            if name not in outside_names:
                inputs[name] = _either(inputs.get(name), _named(given, names))
    return inputs


def _named(given: Given, names: Mapping[str, Mapping[str, str]]) -> Given:
    sources = dict.fromkeys(GivenSource("", names[source.graph][source.node], source.slot) for source in given.sources)
    return Given(tuple(sources), given.is_complete)


def _either(first: Given | None, second: Given) -> Given:
    """Combine the possible sources of a parameter that has the same name in several graphs."""
    if first is None:
        return second
    return Given(tuple(dict.fromkeys((*first.sources, *second.sources))), first.is_complete and second.is_complete)
