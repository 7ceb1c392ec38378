"""Watchpoints on their way to processes: as differences, just before they go on."""

from __future__ import annotations

from tensight.graph import parse_graph_proto
from tensight.sessions.live.identity import Identity
from tensight.sessions.live.rank_graphs import RankGraphs
from tensight.sessions.live.watching import part_id, watch_changes, watchpoint_of
from tensight.sessions.records import WatchpointChange, WatchpointSpec
from tensight.sessions.watchpoint_list import SessionWatchpoint
from tensight.watchpoints import ConditionCheck, Watchpoint
from tests.dumps.dump_writer import GraphWriter
from tests.sessions.live_stage import CONV, RELU, WEIGHT, Play, Stage, command, kind, network, proto, watch


def test_a_watchpoint_travels_with_all_parameters_and_its_nodes(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand(3)
        await watch(session, "tensor_too_large", parameters={"max_gt": 2.5})
        await command(session, "continue")
        sent = (await asking).set_cmd
        assert (sent.id, sent.delete, sent.watch_condition.condition) == (1, False, 15)
        parameters = [(one.name, one.disabled, one.value) for one in sent.watch_condition.params]
        assert parameters == [
            (b"abs_mean_gt", True, 0),
            (b"max_gt", False, 2.5),
            (b"min_gt", True, 0),
            (b"mean_gt", True, 0),
        ]
        nodes = {(node.node_name.decode(), node.node_type.decode()) for node in sent.watch_nodes}
        assert {(CONV, "Conv2D"), (RELU, "ReLU"), (WEIGHT, "Parameter")} <= nodes
        assert not any(b"data-3" in node.node_name for node in sent.watch_nodes)
        assert {node.graph_name for node in sent.watch_nodes} == {b"kernel_graph_0"}
        # Beyond the first step nothing has to be checked before it goes on.
        assert await process.told(3) == "run step 1"

    on_stage(scene)


def test_only_what_changed_is_sent(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand(1)
        for _ in range(3):
            await watch(session)
        await command(session, "continue", steps=1)
        assert kind(await asking) == "set 1"
        assert [await process.told(1) for _ in range(3)] == ["set 2", "set 3", "run step 1"]
        asking = await process.stand(2)
        await session.delete_watchpoints([1])
        await session.change_watchpoint(3, WatchpointChange(parameters={"max_gt": 9}))
        await watch(session, "tensor_all_zero")
        await command(session, "continue", steps=1)
        told = [kind(await asking), *[await process.told(2) for _ in range(3)]]
        assert told == ["set 3", "set 4", "delete 1", "run step 1"]
        asking = await process.stand(3)
        await command(session, "continue", steps=1)
        assert kind(await asking) == "run step 1"

    on_stage(scene)


def test_a_disabled_watchpoint_is_taken_back_and_sent_again_when_enabled(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand(1)
        await watch(session)
        await command(session, "recheck")
        assert kind(await asking) == "set 1"
        assert await process.told(1) == "run recheck"
        asking = await process.stand(1)
        for enabled, told in ((False, "delete 1"), (True, "set 1")):
            await session.change_watchpoint(1, WatchpointChange(enabled=enabled))
            await command(session, "recheck")
            assert kind(await asking) == told
            assert await process.told(1) == "run recheck"
            asking = await process.stand(1)

    on_stage(scene)


def test_a_watchpoint_without_nodes_is_not_sent(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand(1)
        await watch(session, selection="name:no_such_node")
        await command(session, "continue")
        assert kind(await asking) == "run step 1"

    on_stage(scene)


def test_a_new_graph_brings_the_watchpoints_again(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand(1)
        await watch(session)
        await command(session, "continue", steps=1)
        assert kind(await asking) == "set 1"
        assert await process.told(1) == "run step 1"
        await process.send_graphs(network("kernel_graph_1", "1"))
        asking = await process.stand(2)
        await command(session, "continue", steps=1)
        reply = await asking
        assert kind(reply) == "set 1"
        assert {node.graph_name for node in reply.set_cmd.watch_nodes} == {b"kernel_graph_0", b"kernel_graph_1"}

    on_stage(scene)


def test_after_a_new_connection_everything_is_told_again(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand(1)
        await watch(session)
        await watch(session)
        await command(session, "recheck")
        assert kind(await asking) == "set 1"
        # The reply with the second may never have arrived.
        process.breaks()
        asking = process.ask(1)
        assert kind(await asking) == "set 1"
        assert await process.told(1) == "set 2"
        assert await process.told(1) == "run recheck"
        await process.stand(1)

    on_stage(scene)


def test_watchpoints_cannot_be_changed_while_the_training_runs(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand()
        assert session.capabilities().can_edit_watchpoints
        await command(session, "continue")
        await asking
        assert not session.capabilities().can_edit_watchpoints
        await command(session, "pause")
        await process.stand(1)
        await watch(session)

    on_stage(scene)


def test_a_hit_of_a_watchpoint_that_is_deleted_in_the_meantime_is_still_told(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.run(1)
        await process.report((CONV, 77))
        await process.stand(2)
        (node,) = (await session.hits()).nodes
        hit = node.tensors[0].hits[0]
        assert (hit.watchpoint, hit.condition, hit.abbreviation) == (77, "tensor_too_large", "TL")

    on_stage(scene)


def test_an_agent_is_also_told_the_selection_of_a_watchpoint(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent()
        session = await agent.attach()
        asking = await agent.stand(1)
        await watch(session, selection="name:ReLU")
        await command(session, "continue")
        assert (await asking).set_cmd.selection == b"name:ReLU"

    on_stage(scene)


def test_watchpoints_of_an_ended_run_are_there_in_the_next_of_its_name(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first = stage.process()
        session = await first.attach()
        asking = await first.stand()
        await session.create_watchpoint(WatchpointSpec(condition="tensor_overflow", name="mine"))
        await command(session, "terminate")
        await asking
        second = stage.process()
        other = await second.attach()
        assert other is not session
        assert [point.name for point in other.watchpoints()] == ["mine"]
        asking = await second.stand()
        await command(other, "continue")
        assert kind(await asking) == "set 1"

    on_stage(scene)


def test_a_watchpoint_on_more_nodes_than_fit_into_a_command_travels_as_several() -> None:
    writer = network()
    name = "Default/" + "a_long_scope/" * 700
    nodes = (GraphWriter(order=[""] * (number + 9)).operator(f"{name}Tanh-op{number}").body for number in range(900))
    writer.body += b"".join(nodes)
    graph = parse_graph_proto(proto(writer), where="the test")
    graphs = RankGraphs((graph,))
    point = SessionWatchpoint(Watchpoint(5, "", ConditionCheck("tensor_overflow")), None)
    everything = frozenset(node.name for node in graph.operators)
    identity = Identity("ipv4:127.0.0.1", "0", "GPU")

    def changes(sent: dict[int, tuple[int, int] | None], names: frozenset[str] = everything) -> list[object]:
        found = watch_changes([point], lambda *_: [("kernel_graph_0", names)], graphs, identity, sent)
        assert all(command.ByteSize() < 4 * 2**20 for command in found.commands)
        sent.clear()
        sent.update(found.sent)
        return list(found.commands)

    sent: dict[int, tuple[int, int] | None] = {}
    commands = changes(sent)
    assert len(commands) > 2
    assert sum(len(command.watch_nodes) for command in commands) == len(everything)  # type: ignore[attr-defined]
    assert {watchpoint_of(number) for number in sent} == {5}
    assert next(iter(sent)) == 5
    assert changes(sent) == []
    # Fewer nodes: the parts that are not needed any more are taken back.
    sent = dict.fromkeys(sent)
    few = changes(sent, frozenset([CONV]))
    assert [command.delete for command in few] == [False] + [True] * (len(commands) - 1)  # type: ignore[attr-defined]


def test_the_numbers_of_parts_lead_back_to_their_watchpoint() -> None:
    for watchpoint in (1, 2, 77, 2**19):
        for part in (0, 1, 1023):
            assert watchpoint_of(part_id(watchpoint, part)) == watchpoint
            assert part_id(watchpoint, part) < 2**31


def test_what_is_watched_is_known_when_a_session_is_paused(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        await process.stand()
        point = await watch(session, selection="weights")
        assert point.nodes == 1
        point = await watch(session, selection="all")
        assert point.nodes == 4

    on_stage(scene)
