"""What `tensight.sessions.session` promises, checked on sessions of every kind; a new kind adds itself to `KINDS`.

A person sees them as here: through the HTTP API of a real server, which tells errors apart as the session does.
"""

from __future__ import annotations

import math
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.client.tensor import raw_array
from tensight.errors import InputError
from tensight.graph import TensorAddress
from tensight.graph.dataflow import VIRTUAL_TYPES
from tensight.sessions.errors import NotFoundError, StateError, UnavailableError
from tensight.sessions.overview import HIT, INFINITE, NAN, rounded
from tensight.sessions.records import (
    Edit,
    NodeHits,
    NodeRecord,
    RankRecord,
    SessionRecord,
    State,
    StatisticsRow,
    TensorRecord,
    WatchpointRecord,
)
from tensight.tensors import NUMBERS, statistics
from tests.sessions.session_kinds import KINDS, PATIENCE_S, Stage, parameters_of, stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tensight.client import Session
    from tensight.sessions.records import FoundNode

ALWAYS = {"max_gt": -1e30}
"""The threshold of `tensor_too_large` that every tensor exceeds which has a finite element."""

NOWHERE = 10**6
"""No rank, slot, step or watchpoint has this number."""

MOST_NODES = {"operator": 7, "parameter": 4, "constant": 1}
"""Nodes of each kind whose tensors are looked at one by one."""

WITH_VALUE = ("available", "at_source")


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("sessions"), unpacked) as running:
        yield running


@pytest.fixture(scope="module", params=parameters_of(KINDS))
def begun(request: pytest.FixtureRequest, on: Stage) -> Iterator[Session]:
    """A session of each kind, for all tests of it."""
    with KINDS[request.param](on) as session:
        yield session


@pytest.fixture
def ending(request: pytest.FixtureRequest, on: Stage) -> Iterator[Session]:
    """A session of each kind that the test may end."""
    with KINDS[request.param](on) as session:
        yield session


@pytest.fixture
def session(begun: Session) -> Session:
    """A session that is paused at a step with data, without watchpoints; one at rest always at the same step."""
    begun.delete_watchpoints()
    record = begun.summary
    if record.total_steps is not None:
        begun.go_to(0)
        begun.step(2)
    elif record.present_step is not None:
        begun.go_to(record.present_step)
    elif record.node or record.step < 2:
        begun.step(max(2 - record.step, 1))
    record = begun.wait(PATIENCE_S)
    assert record.state is State.PAUSED
    if record.outdated and record.capabilities.can_recheck:
        begun.recheck().wait(PATIENCE_S)
    return begun


# --- what the tests look at ---


def without_time(record: SessionRecord) -> SessionRecord:
    """Return a session at a glance without the time at which its processes were last heard of."""
    ranks = tuple(rank.model_copy(update={"last_seen": None}) for rank in record.ranks)
    return record.model_copy(update={"ranks": ranks})


@contextmanager
def nothing_changes(session: Session) -> Iterator[None]:
    """See to it that a session is the same afterwards, and that its clients are told nothing."""
    before = without_time(session.summary), list(session.watchpoints()), list(session.hits())
    yield
    assert (without_time(session.summary), list(session.watchpoints()), list(session.hits())) == before


def refused(error: type[Exception], session: Session, act: Callable[[], Any], what: str) -> None:
    """See to it that something is refused with the one error that fits, and changes nothing."""
    with nothing_changes(session):
        with pytest.raises(error) as raised:
            act()
        assert type(raised.value) is error, what
        assert str(raised.value), what


def some_nodes(session: Session) -> list[FoundNode]:
    """Return some nodes, operators first: of each rank and graph one of each type, as far as these are not too many."""
    chosen: list[FoundNode] = []
    for kind, most in MOST_NODES.items():
        first: dict[tuple[object, ...], FoundNode] = {}
        for found in session.nodes(kind=kind):
            first.setdefault((found.entry.type, found.rank, found.graph), found)
        chosen += list(first.values())[:most]
    return chosen


def tensors_of(session: Session, node: FoundNode | NodeHits, step: int | None = None) -> list[TensorRecord]:
    name = node.node if isinstance(node, NodeHits) else node.entry.path
    # Files that belong to no node have tensors all the same.
    return session._get(list[TensorRecord], "tensors", rank=node.rank, graph=node.graph, node=name, step=step)


def some_tensors(session: Session) -> list[TensorRecord]:
    return [tensor for node in some_nodes(session) for tensor in tensors_of(session, node)]


def watch_everything(session: Session, **options: Any) -> WatchpointRecord:
    return session.watch("tensor_too_large", on="all", **ALWAYS, **options)


def hit_everywhere(session: Session) -> SessionRecord:
    """Check the step that is shown, or where that cannot be done the next one, with a watchpoint that always hits."""
    watch_everything(session)
    return session.recheck().wait(PATIENCE_S)


def addresses_of(hits: Sequence[NodeHits]) -> list[str]:
    return [tensor.address for node in hits for tensor in node.tensors]


def known_rows(session: Session) -> list[StatisticsRow]:
    """Return the statistics of the step shown; MindSpore's own client tells them of what somebody looks at."""
    assert some_tensors(session)
    rows = list(session.statistics())
    assert rows
    return rows


def rows_by_address(session: Session, **choice: Any) -> dict[str, StatisticsRow]:
    return {row.address: row for row in session.statistics(**choice)}


# --- the session at a glance ---


def test_a_session_says_the_same_of_itself_everywhere(session: Session, on: Stage) -> None:
    record = session.summary
    assert record.state is State.PAUSED
    assert without_time(on.server.session(record.id).summary) == without_time(record)
    listed = [one.summary for one in on.server.sessions() if one.id == record.id]
    assert list(map(without_time, listed)) == [without_time(record)]
    assert [rank.rank for rank in record.ranks] == sorted({rank.rank for rank in record.ranks})
    for rank in record.ranks:
        assert list(rank.graphs) == [graph.name for graph in session.graphs(rank.rank)]
        assert rank.state is State.PAUSED
        assert rank.graph in ("", *rank.graphs)
    assert record.watchpoints == len(session.watchpoints()) == 0
    # A recorded run shows the hits of its training.
    assert record.hits == len(addresses_of(session.hits()))
    assert record.total_steps is None or record.step <= record.total_steps
    (dump,) = [dump for dump in on.server.dumps(refresh=True) if dump.name == record.dump]
    assert list(dump.ranks) == [rank.rank for rank in record.ranks]


def test_the_newest_event_of_its_state_tells_how_a_session_is(session: Session) -> None:
    def newest_told() -> SessionRecord:
        states = [event for event in session.events(timeout_s=0) if event.kind == "state"]
        return SessionRecord.model_validate(states[-1].data)

    def is_told(what: str) -> None:
        now = without_time(session.summary)
        assert without_time(newest_told()).model_copy(update={"last_event": now.last_event}) == now, what

    is_told("stands")
    watchpoint = watch_everything(session)
    is_told("watches")
    session.recheck().wait(PATIENCE_S)
    is_told("was checked")
    assert some_tensors(session)
    is_told("was looked at")
    if session.summary.capabilities.can_step_back:
        session.back()
        is_told("looks back")
    session.delete_watchpoints(watchpoint)
    is_told("watches nothing")


# --- commands ---

CAPABILITY_OF = {
    "continue": "can_step",
    "pause": "can_pause",
    "recheck": "can_recheck",
    "next_node": "can_next_node",
    "previous_node": "can_previous_node",
    "run_to_node": "can_run_to_node",
    "go_to_step": "can_go_to_step",
    "step_back": "can_step_back",
    "look_closer": "can_look_closer",
}


def command(session: Session, action: str, **details: Any) -> SessionRecord:
    """Give a command that leaves a run where a test can go on with it, and wait until it is done."""
    acts: dict[str, Callable[[], Any]] = {
        "continue": lambda: session.step(),
        "pause": session.pause,
        "recheck": session.recheck,
        "next_node": session.next_node,
        "previous_node": lambda: session.previous_node(**details),
        "run_to_node": lambda: session.run_to(**{"node": last_operator(session), **details}),
        "go_to_step": lambda: session.go_to(details.get("step", session.summary.step)),
        "step_back": lambda: session.back(),
        "look_closer": lambda: session.look_closer(1),
    }
    acts[action]()
    return session.wait(PATIENCE_S)


def last_operator(session: Session) -> str:
    """Return the last operator of which something is known in the step shown; where nothing is, any operator."""
    ran = [row.node for row in session.statistics() if row.position is not None and row.type != "Parameter"]
    return (ran or [found.entry.path for found in session.nodes(kind="operator")])[-1]


def impossible(session: Session) -> list[str]:
    capabilities = session.summary.capabilities.model_dump()
    return [action for action, capability in CAPABILITY_OF.items() if not capabilities[capability]]


def refuses_what_it_says(session: Session) -> None:
    for action in impossible(session):
        refused(StateError, session, lambda action=action: command(session, action), action)


def test_what_a_session_says_it_cannot_do_is_refused(session: Session) -> None:
    refuses_what_it_says(session)
    record = session.summary
    if record.capabilities.can_next_node:
        command(session, "next_node")
        refuses_what_it_says(session)
    if record.total_steps is not None:
        for step in (0, record.total_steps):
            session.go_to(step)
            refuses_what_it_says(session)


def test_what_a_session_says_it_can_do_it_does(session: Session) -> None:
    before = session.summary
    can = before.capabilities
    if can.can_step_back:
        back = command(session, "step_back")
        assert back.step < before.step
        assert back.state is State.PAUSED
        session.go_to(before.step)
        assert session.wait(PATIENCE_S).step == before.step
    if can.can_go_to_step:
        assert command(session, "go_to_step", step=before.step).step == before.step
    if can.can_pause:
        assert command(session, "pause").step == before.step
    if can.can_step:
        after = command(session, "continue")
        assert after.step > before.step
        assert after.state is State.PAUSED
    if session.summary.capabilities.can_next_node:
        assert_operators_are_walked(session)
    if session.summary.capabilities.can_previous_node:
        assert command(session, "previous_node").state is State.PAUSED
    if session.summary.capabilities.can_run_to_node:
        assert command(session, "run_to_node").node
    watch_everything(session)
    assert session.summary.outdated
    assert session.summary.capabilities.can_recheck
    checked = command(session, "recheck")
    assert (checked.state, checked.outdated, checked.hits > 0) == (State.PAUSED, False, True)


def assert_operators_are_walked(session: Session) -> None:
    """Go from operator to operator, to one by its name, and back."""
    first = command(session, "next_node")
    assert first.node
    if not first.capabilities.can_next_node:
        return
    second = command(session, "next_node")
    assert second.node not in ("", first.node)
    assert second.step == first.step
    assert {first.node, second.node} <= {found.entry.path for found in session.nodes(kind="operator")}
    assert [rank.node for rank in second.ranks if rank.node][:1] == [second.node]
    if second.capabilities.can_previous_node:
        assert command(session, "previous_node").node == first.node
    target = last_operator(session)
    assert command(session, "run_to_node", node=target).node == target


def test_whoever_walks_to_the_end_of_a_step_is_told_where_it_ends(session: Session) -> None:
    if not session.summary.capabilities.can_next_node:
        refused(StateError, session, session.next_node, "next node")
        return
    seen = []
    while session.summary.capabilities.can_next_node and len(seen) < 300:
        record = command(session, "next_node")
        if record.node in seen:
            # A training that goes on is in its next step.
            break
        seen.append(record.node)
    assert len(set(seen)) == len(seen) > 0
    refuses_what_it_says(session)


def test_commands_that_mean_nothing_are_refused(session: Session) -> None:
    can = session.summary.capabilities
    for action in ("fly", "", "Continue"):
        with pytest.raises(InputError):
            session._command(action)
    if can.can_step:
        refused(InputError, session, lambda: session.step(0), "no step")
    if can.can_go_to_step:
        refused(InputError, session, lambda: session.go_to(NOWHERE), "a step that is not there")
    if can.can_run_to_node:
        refused(NotFoundError, session, lambda: session.run_to("nobody"), "an unknown node")
        operator = last_operator(session)
        refused(NotFoundError, session, lambda: session.run_to(operator, rank=NOWHERE), "an unknown rank")
        refused(NotFoundError, session, lambda: session.run_to(operator, graph="nothing"), "an unknown graph")
        parameters = [found.entry.path for found in session.nodes(kind="parameter")]
        if parameters:
            refused(InputError, session, lambda: session.run_to(parameters[0]), "what does not run")


def test_a_run_that_was_let_go_can_be_paused(session: Session) -> None:
    if not session.summary.capabilities.can_step:
        refused(StateError, session, session.continue_, "continue")
        return
    before = session.summary.step
    running = session.continue_()
    try:
        running.pause()
    except StateError:
        # There are so few steps that all are done already.
        assert session.summary.total_steps is not None
    record = session.wait(PATIENCE_S)
    assert record.state is State.PAUSED
    assert record.step >= before


@pytest.mark.parametrize("ending", ["npy", "recorded-run", "torch", "mindspore-protocol"], indirect=True)
def test_a_session_that_was_ended_says_so_and_does_nothing_more(ending: Session) -> None:
    before = ending.step(1).wait(PATIENCE_S)
    if before.capabilities.can_look_closer:
        closer = command(ending, "look_closer")
        assert (closer.state, closer.step > before.step) == (State.PAUSED, True)
        assert not closer.capabilities.can_look_closer
    assert before.capabilities.can_terminate
    ended = ending.terminate().wait(PATIENCE_S)
    assert ended.state is State.TERMINATED
    can = ended.capabilities.model_dump()
    assert not any(can[capability] for capability in (*CAPABILITY_OF.values(), "can_terminate"))
    # A dump that was closed is no longer listed; a training stays for as long as people want to look at it.
    gone = StateError if ended.capabilities.live else NotFoundError
    for action in (*CAPABILITY_OF, "terminate"):
        with pytest.raises(gone):
            ending._command(action)
    with pytest.raises(gone):
        watch_everything(ending)


# --- events ---


def test_events_are_numbered_without_gaps_and_whoever_was_away_catches_up(session: Session) -> None:
    known = session.summary.last_event
    watch_everything(session)
    session.recheck().wait(PATIENCE_S)
    events = list(session.events(timeout_s=0))
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert [event.time for event in events] == sorted(event.time for event in events)
    assert events[-1].number == session.summary.last_event
    for after in (known, known + 1, len(events) - 1, len(events)):
        assert list(session.events(after, timeout_s=0)) == events[after:]
    # A number that was never given is one of a server that has gone.
    assert list(session.events(NOWHERE, timeout_s=0)) == events
    assert {event.kind for event in events[known:]} >= {"watchpoints", "state", "hits"}


def test_events_tell_what_their_kind_says(session: Session) -> None:
    hit_everywhere(session)
    graphs: dict[int, list[str]] = {}
    for event in session.events(timeout_s=0):
        if event.kind == "state":
            assert SessionRecord.model_validate(event.data).last_event == event.number
        elif event.kind == "rank":
            assert RankRecord.model_validate(event.data).rank in graphs or event.data["state"] == "connecting"
        elif event.kind == "graph":
            assert set(event.data) == {"rank", "graphs"}
            graphs[event.data["rank"]] = event.data["graphs"]
        elif event.kind == "hits":
            assert set(event.data) == {"step", "total"}
        elif event.kind == "tensor":
            TensorAddress.parse(event.data["address"])
        elif event.kind == "watchpoints":
            assert event.data == {}
        else:
            assert event.kind in ("message", "progress")
    assert graphs == {rank.rank: list(rank.graphs) for rank in session.summary.ranks}


def test_events_tell_of_a_check_in_the_order_in_which_it_happens(session: Session) -> None:
    watch_everything(session)
    known = session.summary.last_event
    record = session.recheck().wait(PATIENCE_S)
    events = [event for event in session.events(known, timeout_s=0) if event.kind in ("state", "hits")]
    states = [event.data["state"] for event in events if event.kind == "state"]
    assert states[0] != "paused"
    assert states[-1] == "paused"
    told = [event.data for event in events if event.kind == "hits"]
    assert told[-1] == {"step": record.step, "total": record.hits}
    # Who reads the state that says "paused" finds the hits that came before it.
    assert events[-1].kind == "state"
    assert events[-1].data["hits"] == record.hits


# --- watchpoints ---


def test_a_watchpoint_is_created_changed_and_deleted(session: Session) -> None:
    known = session.summary.last_event
    created = session.watch("TL", on="all", max_gt=5, name="mine", severity="error")
    assert (created.condition, created.abbreviation, created.text) == (
        "tensor_too_large",
        "TL",
        "tensor_too_large(max_gt=5)",
    )
    assert (created.name, created.severity, created.enabled) == ("mine", "error", True)
    assert list(session.watchpoints()) == [created]
    assert created.nodes == len([one for one in session.nodes(watchpoint=created.id) if one.entry.watched == "all"])
    for graph in session.graphs():
        seen = session.nodes(rank=graph.rank, graph=graph.name, watchpoint=created.id)
        assert {one.entry.watched for one in seen if one.entry.kind != "constant"} == {"all"}
    assert (session.summary.watchpoints, session.summary.outdated) == (1, True)

    changed = session.change_watchpoint(created, max_gt=7, enabled=False)
    expected = {"parameters": {**created.parameters, "max_gt": 7.0}, "enabled": False}
    assert changed == created.model_copy(
        update={**expected, "text": "tensor_too_large(max_gt=7)", "words": changed.words}
    )
    assert list(session.watchpoints()) == [changed]
    node = next(found.entry.path for found in some_nodes(session) if found.entry.kind == "operator")
    edited = session.change_watchpoint(created, on="none", edits=[Edit(path=node)], enabled=True)
    watched = {one.entry.path for one in session.nodes(watchpoint=created.id) if one.entry.watched == "all"}
    assert watched == {node}
    assert edited.nodes == len([one for one in session.nodes(node) if one.entry.path == node])

    other = session.watch("tensor_overflow")
    session.delete_watchpoints(created)
    assert list(session.watchpoints()) == [other]
    assert session.watch("tensor_overflow").id > other.id > created.id
    session.delete_watchpoints()
    assert list(session.watchpoints()) == []
    kinds = [event.kind for event in session.events(known, timeout_s=0)]
    assert kinds.count("watchpoints") == 7
    assert [kind for kind in kinds if kind in ("watchpoints", "state")] == ["watchpoints", "state"] * 7


def test_a_watchpoint_on_one_graph_watches_no_other(session: Session) -> None:
    for chosen in session.graphs():
        watchpoint = session.watch("TL", on="none", edits=[Edit(path="", graph=chosen.name)], max_gt=5)
        for graph in session.graphs():
            expected = "all" if graph.name == chosen.name else "none"
            nodes = session.nodes(rank=graph.rank, graph=graph.name, watchpoint=watchpoint.id)
            rows = [*session.tree(rank=graph.rank, graph=graph.name, watchpoint=watchpoint.id)]
            rows += [found.entry for found in nodes]
            assert {row.watched for row in rows} - {"never"} == {expected}


def test_watchpoints_that_cannot_be_are_refused(session: Session) -> None:
    existing = watch_everything(session)
    unavailable = [one.id for one in session.conditions() if not one.available]
    for what, error, act in (
        ("no condition", InputError, lambda: session.watch("nothing")),
        ("no parameter", InputError, lambda: session.watch("TL", nothing=1)),
        ("no threshold", InputError, lambda: session.watch("TL")),
        ("no selection", InputError, lambda: session.watch("TO", on="everyone")),
        ("no watchpoint", NotFoundError, lambda: session.change_watchpoint(NOWHERE, enabled=False)),
        ("no watchpoint", NotFoundError, lambda: session.delete_watchpoints(NOWHERE)),
        ("no watchpoint", NotFoundError, lambda: session.nodes(watchpoint=NOWHERE)[0]),
        ("no watchpoint", NotFoundError, lambda: session.tree(watchpoint=NOWHERE)[0]),
        ("a wrong change", InputError, lambda: session.change_watchpoint(existing, max_gt="much")),  # type: ignore[arg-type]
        *((one, StateError, lambda one=one: session.watch(one)) for one in unavailable),
    ):
        refused(error, session, act, what)


def test_every_condition_that_is_available_can_be_watched(session: Session) -> None:
    for condition in session.conditions():
        if not condition.available:
            assert condition.unavailable_because
            continue
        needed = [parameter for parameter in condition.parameters if parameter.kind == "check"][:1]
        names = {parameter.name for parameter in needed}
        names.update(name for parameter in needed for name in parameter.requires)
        parameters = {
            parameter.name: 1.0 if parameter.default is None else parameter.default
            for parameter in condition.parameters
            if parameter.name in names
        }
        created = session.watch(condition.abbreviation, **parameters)
        assert (created.condition, created.abbreviation) == (condition.id, condition.abbreviation)


def test_the_recommended_watchpoints_are_those_that_were_offered(session: Session) -> None:
    offered = session._get(list[WatchpointRecord], "watchpoints/recommended")
    accepted = session.watch_recommended()
    assert accepted == offered
    assert list(session.watchpoints()) == accepted
    assert session.summary.recommended_offered
    assert session.watch_recommended() == accepted
    assert session._get(list[WatchpointRecord], "watchpoints/recommended") == []


# --- hits ---


def test_a_hit_can_be_opened_as_tensor_node_and_statistics(session: Session) -> None:
    record = hit_everywhere(session)
    hits = list(session.hits())
    assert hits
    rows = rows_by_address(session)
    for found in hits:
        assert found.step == record.step
        if found.graph:
            node = session.node(found.node, rank=found.rank, graph=found.graph)
            assert (node.type, node.position) == (found.type, found.position)
        tensors = {tensor.address: tensor for tensor in tensors_of(session, found)}
        for hit in found.tensors:
            tensor = tensors[hit.address]
            assert TensorAddress.parse(hit.address).step in (record.step, 0)
            assert (tensor.slot, tensor.io, tensor.abbreviations) == (hit.slot, hit.io, ("TL",))
            assert tensor.statistics is not None
            (one,) = hit.hits
            (parameter,) = [one for one in one.parameters if one.name == "max_gt"]
            assert (parameter.preset, parameter.hit) == (ALWAYS["max_gt"], True)
            assert parameter.actual == pytest.approx(tensor.statistics.max)
            history = session.tensor(hit.address).history()
            assert tensor.statistics in [row.statistics for row in history if row.address == hit.address]
            if hit.address in rows:
                assert rows[hit.address].statistics == tensor.statistics


def test_hits_are_listed_as_they_ran_and_counted_alike_everywhere(session: Session) -> None:
    record = hit_everywhere(session)
    hits = list(session.hits())
    (watchpoint,) = session.watchpoints()
    assert record.hits == watchpoint.hits == len(addresses_of(hits)) == len(set(addresses_of(hits))) > 0
    assert list(session.hits(watchpoint=watchpoint)) == hits
    assert list(session.hits(watchpoint=NOWHERE)) == []
    by_rank = [found for rank in record.ranks for found in session.hits(rank=rank.rank)]
    assert sorted(addresses_of(by_rank)) == sorted(addresses_of(hits))
    for graph in {found.graph for found in hits if found.graph}:
        assert list(session.hits(graph=graph)) == [found for found in hits if found.graph == graph]
    positions = [math.inf if found.position is None else found.position for found in hits]
    assert positions == sorted(positions)

    for rank in record.ranks:
        own = addresses_of([found for found in hits if found.rank == rank.rank])
        tree = [entry for entry in session.tree(rank=rank.rank) if entry.kind in ("scope", "parameters", "constants")]
        nodes = [entry for entry in session.tree(rank=rank.rank) if entry.kind == "operator"]
        assert sum(entry.hits for entry in (*tree, *nodes)) == len([address for address in own if "//" not in address])
        timeline = session._get(Any, "timeline", rank=rank.rank)
        assert {step["first"]: step["hits"] for step in timeline["steps"]}[record.step] == len(own)
        overview = session._get(Any, "overview", rank=rank.rank, first_step=record.step, last_step=record.step)
        marked = [
            row["address"] for row, marks in zip(overview["rows"], overview["marks"], strict=True) if marks[0] & HIT
        ]
        assert {each_graph(address) for address in marked} == {each_graph(without_step(address)) for address in own}


def without_step(address: str) -> str:
    return address.rpartition("@")[0]


def each_graph(address: str) -> str:
    """Return an address without its graph: of several variants of a program a picture names the newest."""
    rank, _, rest = address.split("/", 2)
    return f"{rank}/{rest}"


def test_an_earlier_step_shows_the_hits_that_it_had(session: Session) -> None:
    can = session.summary.capabilities
    if not (can.can_step and can.can_step_back):
        refused(StateError, session, session.step if not can.can_step else session.back, "further and back")
        return
    record = hit_everywhere(session)
    hits = list(session.hits())
    later = command(session, "continue")
    assert later.hits > 0
    assert {found.step for found in session.hits()} == {later.step}
    back = command(session, "step_back")
    assert (back.step, back.hits, back.outdated) == (record.step, record.hits, False)
    assert list(session.hits()) == hits


def test_relations_tell_the_hits_of_a_tensor(session: Session) -> None:
    hit_everywhere(session)
    for found in list(session.hits())[:5]:
        for hit in found.tensors:
            relations = session.relations(hit.address)
            (centre,) = [node for node in relations.nodes if node.distance == 0]
            assert centre.name == relations.centre == found.node
            if hit.io == "output":
                assert centre.abbreviations[hit.slot] == ("TL",)


def test_origins_can_be_opened(session: Session) -> None:
    watch_everything(session)
    session.recheck().wait(PATIENCE_S)
    for origin in session.origins():
        address = TensorAddress.parse(origin.address)
        (tensor,) = [
            one
            for one in session.tensors(address.node, rank=address.rank, graph=address.graph, step=address.step)
            if one.address == origin.address
        ]
        assert tensor.statistics is not None
        assert origin.step == address.step
        assert origin.sentence


# --- graphs ---


def test_the_graphs_of_a_rank_say_how_many_nodes_they_have(session: Session) -> None:
    record = session.summary
    graphs = session.graphs()
    assert [graph for rank in record.ranks for graph in session.graphs(rank.rank)] == graphs
    assert any(graph.ran for graph in graphs)
    for graph in graphs:
        found = list(session.nodes(rank=graph.rank, graph=graph.name))
        kinds = [one.entry.kind for one in found]
        assert len(found) == graph.nodes
        assert (kinds.count("operator"), kinds.count("parameter")) == (graph.operators, graph.parameters)
        assert {one.graph for one in found} <= {graph.name}
        entries = list(session.tree(rank=graph.rank, graph=graph.name))
        assert sum(entry.nodes for entry in entries) == graph.nodes


def test_a_node_is_found_by_its_name_and_knows_its_neighbours(session: Session) -> None:
    for found in some_nodes(session):
        name, where = found.entry.path, {"rank": found.rank, "graph": found.graph}
        assert name in [one.entry.path for one in session.nodes(name, **where)]
        node = session.node(name, **where)
        assert (node.name, node.type, node.kind) == (name, found.entry.type, found.entry.kind)
        assert (node.rank, node.graph) == (found.rank, found.graph)
        assert found.graph in node.graphs
        assert_is_between_its_neighbours(session, node)
        scope = session.tree(node.scope, **where)
        if node.kind == "operator":
            assert name in [entry.path for entry in scope]


def assert_is_between_its_neighbours(session: Session, node: NodeRecord) -> None:
    """See to it that inputs and consumers of a node know it, and that it is drawn between them."""
    where = {"rank": node.rank, "graph": node.graph}
    for slot in node.inputs:
        if slot.peer and not slot.control:
            readers = session.node(slot.peer, **where).consumers
            # Inputs are told with what computes them, which nodes that only pass values on do not.
            assert node.name in readers or any(session.node(one, **where).type in VIRTUAL_TYPES for one in readers)
    for name in node.consumers[:3]:
        consumer = session.node(name, **where)
        if node.type not in VIRTUAL_TYPES and consumer.type not in VIRTUAL_TYPES:
            assert node.name in [slot.peer for slot in consumer.inputs]
    step = session.summary.step
    relations = session.relations(str(TensorAddress(node.rank, node.graph, node.name, 0, step - 1)))
    nearby = {one.name: one.distance for one in relations.nodes}
    assert nearby.pop(node.name) == 0
    assert {name for name, distance in nearby.items() if distance > 0} <= set(node.consumers)
    assert {name for name, distance in nearby.items() if distance < 0} <= {edge.source for edge in relations.edges}
    assert all({edge.source, edge.target} <= {node.name, *nearby} for edge in relations.edges)


def test_a_level_draws_what_the_tree_lists(session: Session) -> None:
    for graph in session.graphs():
        level = session.level(rank=graph.rank, graph=graph.name)
        entries = list(session.tree(rank=graph.rank, graph=graph.name))
        scopes = {entry.path for entry in entries if entry.kind == "scope"}
        assert {entry.path for entry in level.entries if entry.kind == "scope"} == scopes
        drawn = {entry.path for entry in (*level.entries, *level.outside)}
        assert all({edge.source, edge.target} <= drawn for edge in level.edges)


def test_sources_lead_to_nodes(session: Session) -> None:
    for file in session.sources():
        for line in file.lines[:2]:
            assert line.nodes > 0
            if not line.end_line:
                assert len(session.nodes(stack=f"{file.file}:{line.line}")) > 0
        if file.has_text:
            assert session.source_text(file.file)
        else:
            with pytest.raises(NotFoundError):
                session.source_text(file.file)


# --- tensors ---


def test_a_tensor_has_the_values_that_its_record_says_or_says_that_it_has_none(session: Session) -> None:
    tensors = some_tensors(session)
    assert any(tensor.statistics is not None for tensor in tensors)
    for tensor in tensors:
        handle = session.tensor(tensor.address)
        if tensor.status not in WITH_VALUE:
            for act in (handle.numpy, handle.slice, handle.histogram, handle.statistics, handle.heat_map):
                with pytest.raises(UnavailableError):
                    act()
            assert (tensor.statistics is not None) == (tensor.status == "statistics_only")
            continue
        try:
            values = handle.numpy()
        except UnavailableError:
            # Whether a process has a value, it tells when it is asked.
            assert tensor.status == "at_source"
            continue
        known = tensor.statistics
        assert known is not None
        assert (known.dtype, known.shape, known.size_bytes) == (str(values.dtype), values.shape, values.nbytes)
        assert (tensor.dtype, tensor.shape, tensor.size_bytes) == (known.dtype, known.shape, known.size_bytes)
        assert_views_show(handle, values)
        computed = handle.statistics()
        for name in () if known.partial else NUMBERS:
            told, exact = getattr(known, name), getattr(computed, name)
            assert (told is None) == (exact is None), name
            assert (told or 0.0) == pytest.approx(exact or 0.0, rel=1e-5, abs=1e-12), name
        if known.content_hash:
            assert known.content_hash == computed.content_hash
        assert tensor.scalar == (str(values.reshape(-1)[0]) if values.size == 1 else "")


def assert_views_show(handle: Any, values: np.ndarray[Any, Any]) -> None:
    """See to it that all views of a tensor are views of its values."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values.reshape(-1)
    whole = f"[{', '.join(':' * values.ndim)}]"
    np.testing.assert_array_equal(handle.slice(whole), values)
    if values.ndim:
        np.testing.assert_array_equal(handle.slice(f"[{', '.join(['0'] * values.ndim)}]"), values[(0,) * values.ndim])
    picture = handle.heat_map(rows=3, columns=3)
    assert max(picture.shape, default=1) <= 3
    if finite.size:
        largest = handle.locate("largest")
        assert abs(float(values[largest.index].astype(np.float64))) == np.abs(finite.astype(np.float64)).max()
        histogram = handle.histogram(bins=4)
        assert sum(histogram.counts) == finite.size
        assert histogram.edges[0] <= finite.min() <= finite.max() <= histogram.edges[-1] or finite.min() == finite.max()
    computed = handle.statistics()
    exact = statistics(values)
    assert (computed.min, computed.max, computed.nan_count) == (
        *(one if math.isfinite(one) else None for one in (exact.min, exact.max)),
        exact.nan_count,
    )
    for text in (f"[{NOWHERE}]", "[0, 0, 0, 0, 0, 0, 0]", "first"):
        with pytest.raises(InputError):
            handle.slice(text)


def test_a_tensor_with_a_previous_value_can_be_compared_with_it(session: Session) -> None:
    for tensor in some_tensors(session):
        handle = session.tensor(tensor.address)
        if tensor.status not in WITH_VALUE or tensor.statistics is None:
            continue
        if not tensor.has_previous:
            with pytest.raises(UnavailableError):
                handle.difference().statistics()
            continue
        whole = f"[{', '.join(':' * len(tensor.shape or ()))}]"
        try:
            difference = handle.difference().slice(whole)
        except UnavailableError:
            # Whether a process has a value, it tells when it is asked.
            assert session.summary.capabilities.live
            continue
        before = session._connection.answer(
            session._path("tensor/values"), address=tensor.address, which="previous", slice=whole, format="raw"
        )
        earlier = raw_array(before)
        with suppress(UnavailableError):
            # The step before is asked for by its address, which may be of a step that was not kept.
            np.testing.assert_array_equal(handle.previous.numpy(), earlier)
        expected = handle.numpy().astype(np.float64) - earlier.astype(np.float64)
        np.testing.assert_allclose(difference, expected, rtol=1e-5, atol=1e-6)


def test_every_step_that_has_something_can_be_asked_for(session: Session) -> None:
    for found in some_nodes(session)[::3]:
        for tensor in tensors_of(session, found):
            history = session.tensor(tensor.address).history()
            assert [row.step for row in history] == sorted({row.step for row in history})
            for row in history:
                there = {one.address: one for one in tensors_of(session, found, row.step)}
                assert there[row.address].statistics == row.statistics, row.address
        nowhere = tensors_of(session, found, NOWHERE)
        # Constants are the same in every step.
        assert {one.step for one in nowhere} <= {NOWHERE, 0}
        assert {one.status for one in nowhere if one.step} <= {"not_kept"}


def test_the_history_of_a_weight_is_of_one_type(session: Session) -> None:
    # Before the first update a weight is known from what read it.
    for found in list(session.nodes(kind="parameter"))[:8]:
        for tensor in tensors_of(session, found):
            assert len({row.type for row in session.tensor(tensor.address).history()}) <= 1


def test_what_is_not_there_is_not_found(session: Session) -> None:
    found = some_nodes(session)[0]
    step = session.summary.step
    node = found.entry.path
    there = TensorAddress(found.rank, found.graph, node, 0, step - 1)
    for what, address in {
        "rank": TensorAddress(NOWHERE, there.graph, node, 0, step - 1),
        "graph": TensorAddress(there.rank, "nothing", node, 0, step - 1),
        "node": TensorAddress(there.rank, there.graph, "nobody", 0, step - 1),
        "slot": TensorAddress(there.rank, there.graph, node, NOWHERE, step - 1),
        "input": TensorAddress(there.rank, there.graph, node, NOWHERE, step - 1, "input"),
    }.items():
        handle = session.tensor(str(address))
        for act in (handle.numpy, handle.slice, handle.statistics, handle.history, handle.difference().statistics):
            refused(NotFoundError, session, act, f"{what}: {act}")
        if what != "slot" and what != "input":
            refused(NotFoundError, session, lambda handle=handle: handle.record, what)
            refused(NotFoundError, session, lambda address=address: session.relations(str(address)), what)
    for what, act in {
        "graphs": lambda: session.graphs(NOWHERE),
        "tree": lambda: session.tree(rank=NOWHERE)[0],
        "tree of a graph": lambda: session.tree(rank=found.rank, graph="nothing")[0],
        "nodes": lambda: session.nodes(rank=NOWHERE)[0],
        "nodes of a graph": lambda: session.nodes(graph="nothing")[0],
        "node": lambda: session._get(Any, "node", rank=found.rank, graph=found.graph, name="nobody"),
        "level": lambda: session.level(rank=NOWHERE),
        "level of a scope": lambda: session.level("nowhere", rank=found.rank, graph=found.graph),
        "statistics": lambda: session.statistics(rank=NOWHERE)[0],
        "overview": lambda: session._get(Any, "overview", rank=NOWHERE),
        "timeline": lambda: session._get(Any, "timeline", rank=NOWHERE),
        "curves": lambda: session.curves(rank=NOWHERE),
        "executions": lambda: session.executions(rank=NOWHERE)[0],
        "source": lambda: session.source_text("/etc/passwd"),
    }.items():
        refused(NotFoundError, session, act, what)


# --- many tensors ---


def test_the_statistics_page_agrees_with_every_tensor_of_it(session: Session) -> None:
    record = session.summary
    rows = known_rows(session)
    by_rank = [row for rank in record.ranks for row in session.statistics(rank=rank.rank)]
    assert sorted(row.address for row in by_rank) == sorted(row.address for row in rows)
    known = [row for row in rows if row.graph]
    parameters = {(row.rank, row.graph, row.node): None for row in known if row.type == "Parameter"}
    operators = {(row.rank, row.graph, row.node): None for row in known if row.type != "Parameter"}
    tensors = {
        tensor.address: tensor
        for rank, graph, node in (*list(parameters)[:6], *list(operators)[:6])
        for tensor in session.tensors(node, rank=rank, graph=graph)
    }
    for row in known:
        assert row.step == record.step
        assert TensorAddress.parse(row.address) == TensorAddress(
            row.rank, row.graph, row.node, row.slot, row.step - 1, row.io
        )
        tensor = tensors.get(row.address)
        if tensor is not None:
            assert tensor.statistics == row.statistics
            node = session._get(Any, "node", rank=row.rank, graph=row.graph, name=row.node)
            assert (node["type"], node["position"]) == (row.type, row.position), row.address
            assert tensor.io == "input" or tensor.type == row.type
            assert row in list(session.tensor(row.address).history())


def test_the_statistics_page_can_be_sorted_and_searched(session: Session) -> None:
    rows = known_rows(session)
    positions = [(math.inf if row.position is None else row.position) for row in rows]
    assert positions == sorted(positions)
    for column in ("max", "mean", "zero_count"):
        for descending in (False, True):
            ordered = list(session.statistics(sort=column, descending=descending))
            assert sorted(row.address for row in ordered) == sorted(row.address for row in rows)
            numbers = [getattr(row.statistics, column) for row in ordered if column not in row.statistics.unknown]
            there = [number for number in numbers if number is not None]
            assert numbers[: len(there)] == there == sorted(there, reverse=descending)
    backwards = list(session.statistics(descending=True))
    without_place = [row for row in backwards if row.position is None]
    assert backwards[len(backwards) - len(without_place) :] == without_place
    placed = [row.position for row in backwards if row.position is not None]
    assert placed == sorted(placed, reverse=True)
    name = rows[0].node[-5:].lower()
    assert list(session.statistics(name)) == [row for row in rows if name in f"{row.node} {row.type}".lower()]
    refused(InputError, session, lambda: session.statistics(sort="nothing")[0], "no column")


def test_the_overview_agrees_with_the_statistics(session: Session) -> None:
    record = session.summary
    assert known_rows(session)
    for rank in record.ranks:
        rows = {without_step(row.address): row.statistics for row in session.statistics(rank=rank.rank)}
        asked = {"rank": rank.rank, "first_step": record.step, "last_step": record.step, "read": True}
        overview = session._get(Any, "overview", statistic="max", **asked)
        assert overview["total"] == overview["tensors"] == len(overview["rows"])
        assert overview["steps"] == [{"first": record.step, "last": record.step}]
        seen = 0
        for row, (value,), (marks,) in zip(overview["rows"], overview["values"], overview["marks"], strict=True):
            (known,) = [rows[each] for each in all_graphs(row) if each in rows] or [None]
            if known is None:
                continue
            seen += 1
            expected = None if known.max is None else float(rounded(np.array([known.max]))[0])
            assert (value is None) == (expected is None)
            assert (value or 0.0) == pytest.approx(expected or 0.0)
            assert bool(marks & NAN) == (known.nan_count > 0)
            assert bool(marks & INFINITE) == (known.neg_inf_count + known.pos_inf_count > 0)
        assert seen == len(rows)


def all_graphs(row: Any) -> list[str]:
    """Return the addresses of a row in each of the graphs that have it."""
    rank, _, rest = row["address"].split("/", 2)
    return [f"{rank}/{graph}/{rest}" for graph in row["graphs"]]


def test_the_timeline_tells_what_is_known_of_each_step(session: Session) -> None:
    record = session.summary
    for rank in record.ranks:
        timeline = session._get(Any, "timeline", rank=rank.rank)
        steps = {step["first"]: step for step in timeline["steps"]}
        assert timeline["present_step"] == (record.present_step or record.step)
        assert timeline["last_step"] == max(steps) >= record.step
        assert list(steps) == list(range(timeline["first_step"], timeline["last_step"] + 1))
        ran = {execution.step: execution for execution in session.executions(rank=rank.rank)}
        for step, told in list(steps.items())[-6:]:
            rows = session.statistics(rank=rank.rank, step=step)
            # Constants are of no step; the table has them before the first.
            of_step = [row for row in rows if row.type != "Const" and (row.graph or step)]
            assert told["statistics"] == bool(of_step), step
            if step in ran:
                assert told["graph"] in ("", *(one.graph for one in session.executions(rank=rank.rank)))
        assert steps[record.step]["values"] == any(
            tensor.status in WITH_VALUE
            for node in session.nodes(rank=rank.rank)
            for tensor in tensors_of(session, node)
            if tensor.step == record.step
        )


def test_curves_are_of_steps_that_were_done(session: Session) -> None:
    record = session.summary
    for rank in record.ranks:
        curves = session.curves(rank=rank.rank)
        assert (curves.rank, curves.last_step >= record.step) == (rank.rank, True)
        for curve in curves.curves:
            assert len(curve.steps) == len(curve.values) == len(curve.marks) > 0
            assert list(curve.steps) == sorted(set(curve.steps))
            assert 0 <= curve.steps[0] <= curve.steps[-1] <= curves.last_step
            if curve.address:
                rows = {row.step: row for row in session.tensor(f"{curve.address}@{record.step}").history()}
                mean = rows[curve.steps[-1]].statistics.mean
                assert (curve.values[-1] is None) == (mean is None)
                assert (curve.values[-1] or 0.0) == pytest.approx(mean or 0.0, rel=1e-5)


def test_lists_come_in_pages(session: Session) -> None:
    hit_everywhere(session)
    for path, rows, parameters in (
        ("nodes", "nodes", {}),
        ("statistics", "rows", {}),
        ("hits", "nodes", {}),
        ("tree", "entries", {"rank": session.summary.ranks[0].rank}),
        ("executions", "executions", {"rank": session.summary.ranks[0].rank}),
        ("sources", "files", {}),
    ):
        whole = session._get(Any, path, limit=1000, **parameters)
        assert whole["total"] == len(whole[rows]), path
        pages = [
            session._get(Any, path, offset=offset, limit=1, **parameters) for offset in range(min(whole["total"], 4))
        ]
        assert [page[rows] for page in pages] == [[row] for row in whole[rows][:4]], path
        behind = session._get(Any, path, offset=whole["total"], limit=1, **parameters)
        assert (behind["total"], behind[rows]) == (whole["total"], []), path
