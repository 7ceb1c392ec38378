"""Whatever a person can do with a dump, a script can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.client import Tensor, WaitError
from tensight.errors import InputError
from tensight.sessions.errors import LimitError, NotFoundError, StateError, UnavailableError
from tensight.sessions.records import Edit, State

if TYPE_CHECKING:
    from pathlib import Path

    from tensight.client import Server, Session

SICK = "sick-2.10.0"
WEIGHT = "network.fc2.weight"
GRAPH = "kernel_graph0"


@pytest.fixture
def sickness(planted: dict[str, Any]) -> dict[str, Any]:
    return planted[SICK]["planted"]


@pytest.fixture
def tensor(session: Session) -> Tensor:
    return session.tensor(WEIGHT, step=2)


def on_disk(dump: Path, node: str, iteration: int) -> np.ndarray[Any, Any]:
    """Return what the dump's own file holds."""
    from tensight.dumps import open_dump, read_tensor

    return read_tensor(open_dump(dump).at(rank=0, graph_id=0, iteration=iteration, node=node, slot=0))


# --- the server ---


def test_the_server_lists_dumps_and_what_opening_one_makes_of_it(server: Server, session: Session) -> None:
    (dump,) = [dump for dump in server.dumps() if dump.name == SICK]
    assert (dump.ranks, dump.session, dump.problem) == ((0,), None, "")
    assert [each.id for each in server.sessions()] == [session.id]


def test_a_dump_that_is_open_already_is_the_same_session(server: Server, session: Session) -> None:
    shared = server.open(SICK, resume=True)
    assert server.open(SICK, resume=True).id == shared.id != session.id
    assert server.session().id == shared.id
    assert server.session(shared.id).id == server.session(SICK).id == shared.id
    shared.close()


def test_a_dump_or_session_that_does_not_exist_is_refused_in_words(server: Server, session: Session) -> None:
    with pytest.raises(NotFoundError, match="no-such-dump") as dump:
        server.open("no-such-dump")
    with pytest.raises(NotFoundError, match=rf"no session 'nobody'.*{session.id} \({SICK}") as nobody:
        server.session("nobody")
    assert (dump.value.code, nobody.value.code) == ("dump-unknown", "session-unknown")


def test_more_dumps_than_allowed_cannot_be_open(
    server: Server, session: Session, dump_200: Path, dump_200_second: Path, dump_210_second: Path
) -> None:
    others = [server.open(dump.name, resume=True) for dump in (dump_200, dump_200_second)]
    others.append(server.open(SICK, resume=True))
    with pytest.raises(LimitError):
        server.open(dump_210_second.name, resume=True)
    with pytest.raises(InputError, match="3 sessions; name one"):
        server.session()
    for other in others:
        other.close()


def test_a_closed_session_is_gone(server: Server, session: Session) -> None:
    session.close()
    with pytest.raises(NotFoundError, match=session.id) as gone:
        _ = session.summary
    assert gone.value.code == "session-unknown"
    assert "there is no session" in session._repr_html_()


# --- running ---


def test_continue_stops_at_the_first_hit_and_names_its_line(session: Session, sickness: dict[str, Any]) -> None:
    watchpoint = session.watch("tensor_overflow", severity="error")
    record = session.continue_().wait(60)
    assert record.state is State.PAUSED
    assert record.step == sickness["inf"]["first_iteration"] + 1
    hits = session.hits()
    first = hits[0]
    assert (first.node, first.line and first.line.line) == (sickness["inf"]["operator"], sickness["inf"]["line"])
    assert [hit.watchpoint for hit in first.tensors[0].hits] == [watchpoint.id]
    assert sum(len(node.tensors) for node in hits) == record.hits
    assert "tensor_overflow" in hits._repr_html_()


def test_hits_can_be_asked_for_by_watchpoint(session: Session) -> None:
    overflow = session.watch("tensor_overflow")
    zero = session.watch("tensor_all_zero", zero_percentage_ge=100, on="activations")
    session.go_to(3).wait(60)
    session.recheck().wait(60)
    everything = {node.node for node in session.hits()}
    of_each = [{node.node for node in session.hits(watchpoint=each)} for each in (overflow, zero)]
    assert all(of_each)
    assert of_each[0] | of_each[1] == everything


def test_without_a_watchpoint_the_run_goes_to_its_end(session: Session) -> None:
    record = session.continue_().wait(60)
    assert (record.step, record.total_steps, record.hits) == (4, 4, 0)


def test_steps_forward_back_and_to_anywhere(session: Session) -> None:
    assert session.step().wait(60).step == 1
    assert session.step(2).wait(60).step == 3
    assert session.back().wait(60).step == 2
    assert session.go_to(0).wait(60).step == 0
    assert session.go_to(4).wait(60).step == 4


def test_nodes_forward_back_and_to_anywhere(session: Session, sickness: dict[str, Any]) -> None:
    operator = sickness["nan"]["operator"]
    session.step().wait(60)
    assert session.run_to(operator).wait(60).node == operator
    following = session.next_node().wait(60).node
    assert following not in ("", operator)
    assert session.previous_node().wait(60).node == operator
    session.next_node().wait(60)
    assert session.previous_node(operator).wait(60).node == operator


def test_what_is_not_possible_now_is_refused_in_words(session: Session) -> None:
    with pytest.raises(StateError, match=r"\w+ \w+"):
        session.pause()
    with pytest.raises(InputError):
        session.go_to(-1)
    with pytest.raises(InputError, match="steps"):
        session.step(-2)
    with pytest.raises(StateError, match="nothing has run"):
        session.run_to("no/such/node")
    session.step().wait(60)
    with pytest.raises((InputError, NotFoundError), match="no/such/node"):
        session.run_to("no/such/node")


def test_terminate_closes_the_session_of_a_dump(server: Server, session: Session) -> None:
    session.terminate()
    assert session.wait(60).state.has_ended


# --- watchpoints ---


def test_a_watchpoint_can_be_changed_switched_off_and_deleted(session: Session) -> None:
    watchpoint = session.watch("TL", max_gt=10, on="gradients", edits=[Edit(add=True, path=WEIGHT)])
    assert (watchpoint.condition, watchpoint.selection, watchpoint.enabled) == ("tensor_too_large", "gradients", True)
    changed = session.change_watchpoint(watchpoint, max_gt=100, enabled=False)
    assert (changed.id, changed.text, changed.enabled) == (watchpoint.id, "tensor_too_large(max_gt=100)", False)
    assert changed.nodes == watchpoint.nodes
    fewer = session.change_watchpoint(watchpoint.id, further_edits=[Edit(add=False, path=WEIGHT)])
    assert fewer.nodes == watchpoint.nodes - 1
    other = session.watch("TO")
    session.delete_watchpoints(watchpoint)
    assert [each.id for each in session.watchpoints()] == [other.id]
    session.delete_watchpoints()
    assert len(session.watchpoints()) == 0


def test_wrong_watchpoints_are_refused_with_what_would_be_right(session: Session) -> None:
    with pytest.raises(InputError, match="no_such_condition") as unknown:
        session.watch("no_such_condition")
    assert unknown.value.code == "condition-unknown"
    with pytest.raises(InputError, match="max_gt"):
        session.watch("tensor_too_large", largest=3)
    with pytest.raises(InputError, match="name"):
        session.watch("tensor_overflow", name="x" * 1000)
    with pytest.raises(NotFoundError, match="99") as missing:
        session.change_watchpoint(99, enabled=False)
    assert missing.value.code == "watchpoint-unknown"
    with pytest.raises(InputError, match="from 1"):
        session.change_watchpoint(0, enabled=False)


def test_the_recommended_watchpoints_are_set_once(server: Server, dump_210_second: Path) -> None:
    session = server.open(dump_210_second.name)
    recommended = session.watch_recommended()
    assert {each.condition for each in recommended} >= {"tensor_overflow"}
    assert session.summary.recommended_offered
    assert session.watch_recommended() == recommended == list(session.watchpoints())
    session.close()


def test_conditions_say_whether_they_can_be_checked_here(session: Session) -> None:
    conditions = {condition.id: condition for condition in session.conditions()}
    assert conditions["tensor_overflow"].available
    assert all(each.available or each.unavailable_because for each in conditions.values())


# --- graphs ---


def test_nodes_are_found_by_name_type_kind_and_code(session: Session, sickness: dict[str, Any]) -> None:
    assert WEIGHT in [found.entry.path for found in session.nodes("FC2.weight")]
    assert {found.entry.type for found in session.nodes(type="conv2d")} == {"Conv2D", "Conv2DBackpropFilter"}
    assert WEIGHT in [found.entry.path for found in session.nodes(kind="weight")]
    by_line = session.nodes(stack=f"sick_network.py:{sickness['inf']['line']}")
    assert sickness["inf"]["operator"] in [found.entry.path for found in by_line]
    assert [found.entry.path for found in session.nodes(r"^network\.fc2\.weight$", regex=True)] == [WEIGHT]
    assert "Conv2D" in session.nodes(type="Conv2D")._repr_html_()


def test_a_node_is_described_and_a_misspelt_one_leads_to_similar_ones(session: Session) -> None:
    node = session.node(WEIGHT)
    assert (node.kind, node.graph, node.outputs[0].shape) == ("parameter", GRAPH, (3, 10))
    assert node.consumer_count > 0
    assert session.node("fc2.weight") == node
    with pytest.raises(NotFoundError, match=r"nothing is named 'fc2\.wieght'; similar: network\.fc2\.weight"):
        session.node("fc2.wieght")
    with pytest.raises(NotFoundError, match="could be network"):
        session.tensor("weight")
    with pytest.raises(NotFoundError) as unknown:
        session.tensors("there is nothing like it")
    assert unknown.value.code == "node-unknown"


def test_scopes_open_as_rows_and_as_a_picture(session: Session) -> None:
    roots = {entry.path: entry for entry in session.tree()}
    assert roots["Default"].kind == "scope"
    below = session.tree("Default")
    assert sum(entry.nodes for entry in below) == roots["Default"].nodes
    level = session.level("Default")
    assert {entry.path for entry in level.entries} == {entry.path for entry in below}


def test_code_is_listed_and_searched(session: Session, sickness: dict[str, Any]) -> None:
    files = session.sources("self.log(")
    assert [(file.file, line.line) for file in files for line in file.lines] == [
        (sickness["inf"]["file"], sickness["inf"]["line"])
    ]
    with pytest.raises(NotFoundError):
        session.source_text(sickness["inf"]["file"])


def test_relations_surround_a_tensor(session: Session, sickness: dict[str, Any]) -> None:
    session.go_to(3).wait(60)
    relations = session.relations(session.tensor(sickness["nan"]["operator"]))
    assert relations.centre == sickness["nan"]["operator"]
    assert sickness["inf"]["operator"] in [node.name for node in relations.nodes if node.distance < 0]


# --- tensors ---


def test_values_are_those_of_the_file(session: Session, tensor: Tensor, dump_210: Path) -> None:
    expected = on_disk(dump_210, WEIGHT, 1)
    np.testing.assert_array_equal(tensor.numpy(), expected)
    np.testing.assert_array_equal(np.asarray(tensor, np.float64), expected.astype(np.float64))
    np.testing.assert_array_equal(tensor.slice("[2, 5:9]"), expected[2, 5:9])
    np.testing.assert_array_equal(tensor.slice("[:, -1]"), expected[:, -1])
    assert tensor.slice("[0, 0]").shape == ()
    assert tensor.slice().shape == (3, 10)


def test_nan_and_infinity_arrive_as_they_are(session: Session, sickness: dict[str, Any]) -> None:
    log = session.tensor(sickness["inf"]["operator"], step=3)
    assert np.isneginf(log.numpy()).any()
    assert np.isneginf(log.slice()).any()
    assert log.statistics().neg_inf_count > 0
    assert np.isnan(session.tensor(sickness["nan"]["operator"], step=3).numpy()).any()


def test_every_dtype_of_the_dump_arrives(session: Session, planted: dict[str, Any]) -> None:
    wanted = set(planted[SICK]["planted"]["dtypes"])
    for row in session.statistics(step=1):
        if row.statistics.dtype in wanted:
            wanted.discard(row.statistics.dtype)
            tensor = session.tensor(row)
            assert tensor.numpy().dtype.name == tensor.slice().dtype.name == row.statistics.dtype
            assert tensor.numpy().shape == row.statistics.shape
    assert not wanted


def test_pictures_distributions_and_statistics_of_a_tensor(tensor: Tensor) -> None:
    values = tensor.numpy()
    picture = tensor.heat_map(rows=2, columns=5)
    assert (picture.shape, picture.dtype) == ((2, 5), np.float32)
    assert np.isin(picture, values).all()
    histogram = tensor.histogram(bins=12)
    assert sum(histogram.counts) == values.size
    assert histogram.edges[0] == pytest.approx(values.min())
    found = tensor.statistics()
    assert (found.count, found.shape) == (values.size, values.shape)
    assert found.max == pytest.approx(values.max())
    assert "float32" in tensor._repr_html_()


def test_a_tensor_is_compared_with_the_step_before(tensor: Tensor) -> None:
    change = tensor.numpy() - tensor.previous.numpy()
    difference = tensor.difference()
    np.testing.assert_array_equal(difference.slice(), change)
    assert difference.statistics().max == pytest.approx(change.max())
    tolerant = tensor.difference(tolerance=0.5)
    assert (tolerant.slice() == 0).sum() > (change == 0).sum()
    assert difference.heat_map(rows=2, columns=2).shape == (2, 2)
    with pytest.raises(InputError, match="from 0 to 1"):
        tensor.difference(tolerance=2)


def test_a_handle_stays_at_its_step(session: Session) -> None:
    session.go_to(2).wait(60)
    tensor = session.tensor(WEIGHT)
    session.go_to(3).wait(60)
    assert tensor.address == f"0/{GRAPH}/{WEIGHT}:0@2"
    assert session.tensor(WEIGHT).address == f"0/{GRAPH}/{WEIGHT}:0@3"


def test_a_tensor_is_named_by_node_by_address_or_by_a_record(session: Session, sickness: dict[str, Any]) -> None:
    session.watch("tensor_overflow")
    session.continue_().wait(60)
    hit = session.hits()[0].tensors[0]
    expected = f"0/{GRAPH}/{sickness['inf']['operator']}:0@3"
    assert hit.address == expected
    named = [
        session.tensor(hit),
        session.tensor(expected),
        session.tensor(expected.partition("@")[0]),
        session.tensor(sickness["inf"]["operator"]),
    ]
    assert [tensor.address for tensor in named] == [expected] * 4
    assert named[0].record.abbreviations == ("TO",)
    given = session.tensor(sickness["inf"]["operator"], io="input")
    assert given.address == expected.replace(":0@", ":input.0@")
    assert np.isfinite(given.numpy()).all()


def test_a_tensor_that_does_not_exist_is_refused_in_words(session: Session) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        session.tensor("nowhere")
    with pytest.raises(NotFoundError, match="has no output 7"):
        _ = session.tensor(WEIGHT, 7, step=2).record
    with pytest.raises((NotFoundError, UnavailableError)):
        session.tensor(WEIGHT, 7, step=2).numpy()
    with pytest.raises(InputError, match="slot -1"):
        session.tensor(WEIGHT, -1)
    with pytest.raises(InputError, match="dimension"):
        session.tensor(WEIGHT, step=2).slice("[0]")
    with pytest.raises(InputError, match="before the first step"):
        _ = session.tensor(WEIGHT, step=0).previous


def test_all_tensors_of_a_node_and_their_history(session: Session, tensor: Tensor) -> None:
    log = session.nodes(type="Log")[0].entry.path
    tensors = session.tensors(log, step=3)
    assert [(each.io, each.slot) for each in tensors][-1] == ("output", 0)
    assert {each.status for each in tensors if each.io == "output"} == {"available"}
    assert "output 0" in tensors._repr_html_()
    history = [row for row in tensor.history() if row.step >= 1]
    assert [row.step for row in history] == [1, 2, 3, 4]
    assert [row.statistics.nan_count > 0 for row in history] == [False, False, True, True]


def test_statistics_of_a_step_are_sorted_and_filtered_by_the_server(session: Session) -> None:
    rows = session.statistics(step=2, sort="max", descending=True)
    largest = [row.statistics.max for row in rows if row.statistics.max is not None]
    assert largest == sorted(largest, reverse=True)
    assert len(rows) > 100
    few = session.statistics("fc2", step=2)
    assert {"fc2" in row.node for row in few} == {True}
    assert "L2 norm" in few._repr_html_()


def test_origins_name_the_planted_lines(session: Session, sickness: dict[str, Any]) -> None:
    lines = {origin.anomaly: origin.line.line for origin in session.origins() if origin.line}
    assert lines["inf"] == sickness["inf"]["line"]
    assert lines["nan"] == sickness["nan"]["line"]


def test_executions_tell_what_ran_in_each_step(session: Session) -> None:
    executions = session.executions()
    assert [execution.graph for execution in executions] == [GRAPH] * len(executions)
    assert len(executions) > 0


# --- events and notebooks ---


def test_events_come_in_order_without_gaps_until_the_session_closes(session: Session) -> None:
    session.watch("tensor_overflow")
    session.continue_().wait(60)
    seen = list(session.events(timeout_s=0))
    assert [event.number for event in seen] == list(range(1, len(seen) + 1))
    assert {"watchpoints", "state", "hits"} <= {event.kind for event in seen}
    assert list(session.events(after=seen[-1].number, timeout_s=0)) == []


def test_waiting_ends_in_time(session: Session, server: Server) -> None:
    assert session.wait(0).state is State.PAUSED
    with pytest.raises(WaitError, match=r"within 0\.2 s"):
        server.wait_for_session(0.2)


def test_a_notebook_shows_a_session_at_a_glance(server: Server, session: Session) -> None:
    html = session._repr_html_()
    assert SICK in html
    assert "paused" in html
    assert SICK in server._repr_html_()
    assert repr(session) == f"<session {session.id} ({SICK})>"
