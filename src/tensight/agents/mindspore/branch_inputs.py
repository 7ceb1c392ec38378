"""Values that the graph of a branch is given by the graphs around it: activations, or gradients.

MindSpore dumps them neither as parameters nor as inputs, and its files do not say where they come from. What they can
be is told by which graphs of the same call ran before (`tensight.graph.given`).
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
    """Return what the graphs that ran in a call were given, by the names of their parameters in programs.

    Parameters
    ----------
    programs : collection of DumpedProgram
        All that the call may have run.
    launches : iterable of Launch
        What it ran, as far as that left files.
    may_have_run : callable (program) -> bool
        Whether a program may have run that has left no file.
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
    own = {
        names[run.graph.name][parameter.name]
        for run in runs
        for parameter in run.graph.parameters
        if not is_given(parameter)
    }
    found: dict[str, Given] = {}
    for run in runs:
        for parameter, given in given_values(run.graph, runs, others).items():
            name = names[run.graph.name][parameter]
            # What is called as something from outside is left alone: two things may have one name in a program.
            if name not in own:
                found[name] = _either(found.get(name), _named(given, names))
    return found


def _named(given: Given, names: Mapping[str, Mapping[str, str]]) -> Given:
    sources = dict.fromkeys(GivenSource("", names[one.graph][one.node], one.slot) for one in given.sources)
    return Given(tuple(sources), given.is_complete)


def _either(one: Given | None, other: Given) -> Given:
    """Return what a parameter may be that several graphs call the same."""
    if one is None:
        return other
    return Given(tuple(dict.fromkeys((*one.sources, *other.sources))), one.is_complete and other.is_complete)
