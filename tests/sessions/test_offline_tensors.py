"""What a session tells about the tensors of a dump: the same that NumPy finds in its files."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.errors import InputError
from tensight.graph import TensorAddress
from tensight.sessions.errors import NotFoundError, UnavailableError
from tensight.sessions.records import StatisticsRow, WatchpointSpec
from tensight.tensors.views import View
from tests.dumps import statistics_writer
from tests.dumps.dump_writer import DumpWriter, GraphWriter
from tests.sessions.offline_runs import debugging, go

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

RELU = "Default/network-Loss/network-SickNetwork/dead-DeadBranch/relu-ReLU/ReLU-op124"
CONV = "Default/network-Loss/network-SickNetwork/dead-DeadBranch/conv-Conv2d/Conv2D-op122"
LOG = "Default/network-Loss/network-SickNetwork/energy-EnergyFeature/Log-op144"
WEIGHT = "network.fc1.weight"
GRAPH = "kernel_graph_0"


def stored(dump: Path, iteration: int, name: str) -> NDArray[Any]:
    """The file of sick-2.0.0 whose name begins and ends like this: ``ReLU.ReLU-op124*.output.0``."""
    (path,) = (dump / "rank_0" / "Sick" / "0" / str(iteration)).glob(f"{name}.DefaultFormat.npy")
    return np.load(path)


def at(node: str, iteration: int, slot: int = 0, **io: Any) -> TensorAddress:
    return TensorAddress(0, GRAPH, node, slot, iteration, **io)


def test_inputs_and_outputs_of_an_operator_with_what_numpy_finds_in_them(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await go(session, "go_to_step", steps=2)
            before, weight, after = await session.tensors_of(0, GRAPH, CONV)
            assert [(one.io, one.slot, one.type) for one in (before, weight, after)] == [
                ("input", 0, "Parameter"),
                ("input", 1, "Parameter"),
                ("output", 0, "Conv2D"),
            ]
            assert after.address == f"0/{GRAPH}/{CONV}:0@2"
            assert (after.step, after.status) == (2, "available")
            for record, name in ((weight, "Conv2D.Conv2D-op122*.input.1"), (after, "Conv2D.Conv2D-op122*.output.0")):
                values = stored(dump_200, 1, name)
                assert (record.dtype, record.shape, record.size_bytes) == ("float32", values.shape, values.nbytes)
                found = record.statistics
                assert found is not None
                assert (found.count, found.zero_count) == (values.size, np.sum(values == 0))
                assert (found.negative_count, found.positive_count) == (np.sum(values < 0), np.sum(values > 0))
                assert found.min == pytest.approx(float(values.min()))
                assert found.max == pytest.approx(float(values.max()))
                assert found.mean == pytest.approx(float(values.mean(dtype=np.float64)))
                assert (found.partial, found.unknown, len(found.content_hash)) == (False, (), 16)
                np.testing.assert_array_equal(await session.value(TensorAddress.parse(record.address)), values)

    asyncio.run(ask())


def test_only_the_files_of_a_node_are_read_for_it(dump_copy: Callable[[str], Path], tmp_path: Path) -> None:
    path = dump_copy("sick-2.0.0")
    for file in path.rglob("*.npy"):
        if "ReLU-op124" not in file.name:
            file.unlink()

    async def ask() -> None:
        async with debugging(path, cache_dir=tmp_path / "cache") as session:
            records = await session.tensors_of(0, GRAPH, RELU, step=4)
            assert [one.status for one in records] == ["available", "available"]
            assert [one.status for one in await session.tensors_of(0, GRAPH, LOG, step=4)] == ["not_kept"] * 2

    asyncio.run(ask())


def test_a_weight_before_the_first_update_is_what_the_first_operator_read(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            (record,) = await session.tensors_of(0, GRAPH, WEIGHT)
            assert (record.address, record.step, record.status) == (f"0/{GRAPH}/{WEIGHT}:0@0", 0, "available")
            assert not record.has_previous
            graph = session.graphs(0)[0]
            order = sorted(graph.operators, key=lambda node: session.position(0, GRAPH, node.name) or 0)
            reader, slot = next(
                (node, slot)
                for node in order
                for slot, producer in enumerate(graph.flat_producers(node))
                if producer is not None and producer[0].name == WEIGHT
            )
            initial = stored(dump_200, 0, f"{reader.type}.{reader.short_name}.*.input.{slot}")
            np.testing.assert_array_equal(await session.value(at(WEIGHT, -1)), initial)
            (operator, _) = await session.tensors_of(0, GRAPH, RELU)
            assert (operator.status, operator.statistics) == ("not_kept", None)

    asyncio.run(ask())


def test_the_previous_value_follows_the_history_and_begins_with_the_initial_one(
    dump_200: Path, dump_200_second: Path
) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            assert session.previous(at(WEIGHT, 2)) == at(WEIGHT, 1)
            assert session.previous(at(WEIGHT, 0)) == at(WEIGHT, -1)
            assert session.previous(at(WEIGHT, -1)) is None
            assert session.previous(at(RELU, 0)) is None
            assert session.previous(at(RELU, 1)) == at(RELU, 0)
            difference = await session.view(at(WEIGHT, 0), View("values"), "difference")
            now, before = await session.value(at(WEIGHT, 0)), await session.value(at(WEIGHT, -1))
            assert difference.array is not None
            np.testing.assert_allclose(difference.array, now.astype(np.float64) - before)
        async with debugging(dump_200_second) as session:
            # Graph 0 ran in iterations 0, 2 and 4.
            (weight, *_) = (one.name for one in session.graphs(0)[0].parameters if one.name.endswith(".weight"))
            place = TensorAddress(0, session.graphs(0)[0].name, weight, 0, 4)
            assert session.previous(place) == replace(place, iteration=2)
            await go(session, "go_to_step", steps=5)
            assert all(one.has_previous for one in await session.tensors_of(0, place.graph, weight))

    asyncio.run(ask())


def test_what_was_not_dumped_under_its_own_name_is_found_under_that_of_its_neighbour(
    dump_copy: Callable[[str], Path], dump_200: Path
) -> None:
    path = dump_copy("sick-2.0.0")
    folder = path / "rank_0" / "Sick" / "0" / "1"
    for pattern in ("Conv2D.Conv2D-op122*.output.0*", "Add.Add-op157*.input.*"):
        for file in folder.glob(pattern):
            file.unlink()

    async def ask() -> None:
        async with debugging(path) as session:
            (*_, output) = await session.tensors_of(0, GRAPH, CONV, step=2)
            assert (output.status, output.address) == ("available", f"0/{GRAPH}/{CONV}:0@2")
            expected = stored(dump_200, 1, "Conv2D.Conv2D-op122*.output.0")
            consumer = await session.value(at(CONV, 1))
            assert consumer.shape == expected.shape
            (add,) = (one.name for one in session.graphs(0)[0].operators if one.name.endswith("/Add-op157"))
            for record in await session.tensors_of(0, GRAPH, add, step=2):
                if record.io == "input" and record.type != "Parameter":
                    assert record.status == "available"
                    original = stored(dump_200, 1, f"Add.Add-op157*.input.{record.slot}")
                    np.testing.assert_array_equal(await session.value(TensorAddress.parse(record.address)), original)

    asyncio.run(ask())


def test_a_parameter_that_was_read_is_never_shown_as_what_it_became(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(GraphWriter().parameter("w").operator("Default/Add-op1", inputs=("w",)))
    writer.tensor(0, "Add.Add-op1")
    writer.tensor(0, "Parameter.w")

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            read, output = await session.tensors_of(0, GRAPH, "Default/Add-op1", step=1)
            assert (read.status, output.status) == ("not_kept", "available")
            with pytest.raises(UnavailableError, match="was not recorded in step 1"):
                await session.value(TensorAddress.parse(read.address))

    asyncio.run(ask())


def test_an_output_that_nobody_wrote_is_no_value(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(GraphWriter().parameter("w").operator("Default/Adam-op1", inputs=("w",)))
    writer.tensor(0, "Adam.Adam-op1")
    writer.tensor(0, "Parameter.w")

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            *_, output = await session.tensors_of(0, GRAPH, "Default/Adam-op1", step=1)
            assert output.status == "not_kept"
            with pytest.raises(UnavailableError, match="operators Adam leave this output uninitialized"):
                await session.value(TensorAddress.parse(output.address))

    asyncio.run(ask())


def test_a_tensor_with_one_element_is_told_as_text(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            scalars = set()
            for node in (*session.graphs(0)[0].operators, *session.graphs(0)[0].parameters):
                for record in await session.tensors_of(0, GRAPH, node.name, step=4):
                    if record.scalar:
                        value = (await session.value(TensorAddress.parse(record.address))).reshape(-1)
                        assert value.size == 1
                        assert record.scalar == str(value[0])
                        scalars.add((record.dtype, record.scalar))
            assert {"float16", "float32", "int64"} <= {dtype for dtype, _ in scalars}
            assert ("float32", "nan") in scalars

    asyncio.run(ask())


def test_constants_are_the_same_in_every_step(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await go(session, "go_to_step", steps=2)
            found = [
                record
                for node in session.graphs(0)[0].constants
                for record in await session.tensors_of(0, GRAPH, node.name)
                if record.status == "available"
            ]
            assert found
            assert {record.step for record in found} == {0}
            assert (await session.value(TensorAddress.parse(found[0].address))).size > 0

    asyncio.run(ask())


def test_conditions_that_hit_stand_beside_the_output_and_the_inputs_that_take_it(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await session.create_watchpoint(WatchpointSpec(condition="TO"))
            await go(session, "continue")
            (*_, output) = await session.tensors_of(0, GRAPH, LOG)
            assert output.abbreviations == ("TO",)
            graph = session.graphs(0)[0]
            consumer = graph.consumers(graph.node(LOG))[0]
            inputs = [one for one in await session.tensors_of(0, GRAPH, consumer.name) if one.io == "input"]
            assert ("TO",) in [one.abbreviations for one in inputs]

    asyncio.run(ask())


def test_unknown_nodes_ranks_and_values_are_refused(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            for graph, node in ((GRAPH, "no such node"), ("no such graph", RELU), ("", "unmatched")):
                with pytest.raises(NotFoundError):
                    await session.tensors_of(0, graph, node)
            with pytest.raises(NotFoundError, match="no node 'nothing'"):
                await session.value(at("nothing", 0))
            with pytest.raises(NotFoundError):
                await session.statistics_over_steps(at("nothing", 0))
            for address in (at(RELU, -1), at(RELU, 99)):
                with pytest.raises(UnavailableError):
                    await session.value(address)
            for address in (at(RELU, 0, slot=7), replace(at(RELU, 0), rank=0, slot=999)):
                with pytest.raises(NotFoundError, match="has no output"):
                    await session.value(address)
            with pytest.raises(NotFoundError):
                await session.value(replace(at(RELU, 0), rank=5))
            assert session.previous(at("nothing", 3)) is None

    asyncio.run(ask())


def test_an_input_that_is_a_constant_has_its_value_whatever_the_step(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await go(session, "go_to_step", steps=2)
            graph = session.graphs(0)[0]
            seen = 0
            for node in graph.operators:
                for record in await session.tensors_of(0, GRAPH, node.name):
                    if record.type != "Const" or record.status != "available" or record.step:
                        continue
                    source, slot = graph.flat_producers(node)[record.slot]
                    values = await session.value(TensorAddress.parse(record.address))
                    constant = await session.value(at(source.name, -1, slot=slot))
                    np.testing.assert_array_equal(values, constant)
                    (row,) = await session.statistics_over_steps(TensorAddress.parse(record.address))
                    assert (row.address, row.statistics) == (record.address, record.statistics)
                    seen += 1
            assert seen

    asyncio.run(ask())


def test_a_large_tensor_is_mapped_and_a_slice_of_it_comes_at_once(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(GraphWriter().parameter("w").operator("Default/Add-op1", inputs=("w",)))
    values = np.arange(2_000_000, dtype=np.float32).reshape(2000, 1000)
    writer.tensor(0, "Add.Add-op1", values)

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            address = at("Default/Add-op1", 0)
            array = await session.value(address)
            assert not array.flags.owndata
            assert not array.flags.writeable
            part = await session.view(address, View("values", "[5, 10:20]"))
            np.testing.assert_array_equal(part.array, values[5, 10:20])

    asyncio.run(ask())


# --- over steps, and tables ---


@pytest.mark.parametrize("name", ["sick-2.0.0", "sick-2.10.0"])
def test_a_curve_over_steps_begins_with_the_initial_weight(unpacked: Callable[[str], Path], name: str) -> None:
    async def ask() -> None:
        async with debugging(unpacked(name)) as session:
            graph = session.graphs(0)[0].name
            rows = await session.statistics_over_steps(TensorAddress(0, graph, WEIGHT, 0, 3))
            assert [row.step for row in rows] == [0, 1, 2, 3, 4]
            assert [row.address for row in rows][1] == f"0/{graph}/{WEIGHT}:0@1"
            for row in rows:
                values = await session.value(TensorAddress.parse(row.address))
                assert row.statistics.nan_count == np.isnan(values).sum()
                assert row.statistics.max == pytest.approx(float(np.nanmax(values)))

    asyncio.run(ask())


def test_a_curve_of_an_operator_that_only_its_neighbour_shows(dump_copy: Callable[[str], Path]) -> None:
    path = dump_copy("sick-2.0.0")
    for file in path.rglob("Conv2D.Conv2D-op122*.output.0*"):
        file.unlink()

    async def ask() -> None:
        async with debugging(path) as session:
            rows = await session.statistics_over_steps(at(CONV, 2))
            assert [(row.node, row.io, row.step) for row in rows] == [(CONV, "output", n) for n in (1, 2, 3, 4)]

    asyncio.run(ask())


def test_the_table_of_a_step_has_every_tensor_in_the_order_of_execution(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await go(session, "go_to_step", steps=2)
            page = await session.statistics_table(limit=1000)
            files = list((dump_200 / "rank_0" / "Sick" / "0" / "1").glob("*.npy"))
            assert page.total == len(page.rows) == len(files)
            positions = [row.position for row in page.rows]
            assert positions == sorted(positions)  # type: ignore[type-var]
            assert {row.step for row in page.rows} == {2}
            second = await session.statistics_table(offset=10, limit=5)
            assert second.rows == page.rows[10:15]
            assert second.total == page.total
            other = await session.statistics_table(step=4, rank=0, limit=1)
            assert other.rows[0].step == 4
            assert (await session.statistics_table(step=78)).total == 0

    asyncio.run(ask())


def test_the_table_can_be_searched_and_sorted_by_every_column(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await go(session, "go_to_step", steps=4)
            whole = (await session.statistics_table(limit=1000)).rows
            found = await session.statistics_table(query="RELU dead", limit=1000)
            assert [row.address for row in found.rows] == [
                row.address
                for row in whole
                if "relu" in f"{row.node} {row.type}".lower() and "dead" in row.node.lower()
            ]
            assert found.total

            async def sorted_by(column: str, descending: bool) -> list[StatisticsRow]:
                page = await session.statistics_table(sort=column, descending=descending, limit=1000)
                assert page.total == len(whole)
                return list(page.rows)

            for column in ("max", "mean", "std", "l2_norm", "nan_count", "zero_count", "size_bytes", "count"):
                for descending in (False, True):
                    values = [getattr(row.statistics, column) for row in await sorted_by(column, descending)]
                    known = [value for value in values if value is not None]
                    assert known == sorted(known, reverse=descending)
                    assert values[len(known) :] == [None] * (len(values) - len(known))
            derived = {
                "abs_max": lambda one: None if one.max is None else max(abs(one.min), abs(one.max)),
                "zero_percent": lambda one: one.zero_count / one.count if one.count else None,
                "non_finite_count": lambda one: one.nan_count + one.neg_inf_count + one.pos_inf_count,
            }
            for column, of in derived.items():
                values = [of(row.statistics) for row in await sorted_by(column, True)]
                known = [value for value in values if value is not None]
                assert known == sorted(known, reverse=True)
                assert values[len(known) :] == [None] * (len(values) - len(known))
            for column in ("node", "type", "io", "graph"):
                texts = [getattr(row, column) for row in await sorted_by(column, False)]
                assert texts == sorted(texts)
            by_type = await sorted_by("type", True)
            places = [(row.type, row.position) for row in by_type if row.type == "ApplyMomentum"]
            assert places == sorted(places)  # type: ignore[type-var]
            assert (await sorted_by("position", True)) == list(whole)[::-1]
            await sorted_by("rank", False)
            await sorted_by("slot", True)
            await sorted_by("dtype", True)
            for wrong in ({"sort": "path"}, {"offset": -1}, {"limit": -1}):
                with pytest.raises(InputError):
                    await session.statistics_table(**wrong)  # type: ignore[arg-type]
            with pytest.raises(NotFoundError):
                await session.statistics_table(rank=4)

    asyncio.run(ask())


def test_it_is_said_that_recorded_statistics_contradict_each_other(dump_copy: Callable[[str], Path]) -> None:
    path = dump_copy("sick-2.0.0")
    statistics_writer.record_dump(path / "rank_0" / "Sick", ("Max Value", "Min Value"))
    csv = next(path.rglob("statistic.csv"))
    header, first, *others = csv.read_text().splitlines()
    csv.write_text("\n".join([header, f"{first.rsplit(',', 2)[0]},-5,6", *others]) + "\n")

    async def ask() -> None:
        async with debugging(path) as session:
            message = session.record().message
            assert "of 1 of " in message
            assert "the recorded statistics contradict each other" in message

    asyncio.run(ask())


def test_statistics_that_a_device_recorded_stand_in_where_there_are_no_values(
    dump_copy: Callable[[str], Path], dump_200: Path
) -> None:
    path = dump_copy("sick-2.0.0")
    statistics_writer.record_dump(path / "rank_0" / "Sick", ("Max Value", "Min Value", "NaN Count"))

    async def ask() -> None:
        async with debugging(path) as session:
            await session.create_watchpoint(WatchpointSpec(condition="TL", parameters={"max_gt": 1e6}))
            record = await go(session, "continue")
            assert record.step == 2
            assert record.hits > 0
            (*_, output) = await session.tensors_of(0, GRAPH, RELU)
            assert (output.status, output.scalar) == ("statistics_only", "")
            assert output.statistics is not None
            assert output.statistics.partial
            assert output.statistics.max == 0.0
            assert output.statistics.std in (None, 0.0)
            assert output.statistics.content_hash == ""
            assert output.shape == stored(dump_200, 1, "ReLU.ReLU-op124*.output.0").shape
            with pytest.raises(UnavailableError, match="only statistics were recorded"):
                await session.value(at(RELU, 1))
            page = await session.statistics_table(sort="mean", descending=True, limit=1000)
            assert page.total
            assert any(row.statistics.unknown for row in page.rows)
            rows = await session.statistics_over_steps(at(RELU, 1))
            assert [row.step for row in rows] == [1, 2, 3, 4]

    asyncio.run(ask())


def test_executions_come_from_the_history_and_from_what_was_dumped(
    dump_200_second: Path, planted: dict[str, Any]
) -> None:
    ran = planted["healthy-2.0.0"]["planted"]["iterations_of_graph"]

    async def ask() -> None:
        async with debugging(dump_200_second) as session:
            assert session.capabilities().has_execution_history
            page = await session.executions(0, limit=1000)
            assert page.total == sum(map(len, ran.values()))
            assert [(one.step, one.graph) for one in page.executions if one.step in (1, 2)] == [
                (1, "kernel_graph_0"),
                *((2, f"kernel_graph_{number}") for number in (1, 3, 4, 5)),
            ]
            assert all(one.has_data for one in page.executions)
            assert page.executions[0].graphs[0] == "kernel_graph_0"
            part = await session.executions(0, offset=3, limit=2)
            assert part.executions == page.executions[3:5]
            with pytest.raises(NotFoundError):
                await session.executions(9)
            with pytest.raises(InputError):
                await session.executions(0, offset=-1)

    asyncio.run(ask())


def test_a_step_that_ran_without_being_dumped_is_among_the_executions(dump_copy: Callable[[str], Path]) -> None:
    path = dump_copy("sick-2.0.0")
    shutil.rmtree(path / "rank_0" / "Sick" / "0" / "2")

    async def ask() -> None:
        async with debugging(path) as session:
            page = await session.executions(0)
            assert [(one.step, one.has_data) for one in page.executions] == [
                (1, True),
                (2, True),
                (3, False),
                (4, True),
            ]
            # The iteration before was not dumped, and a value of another one must not stand for it.
            assert session.previous(at(WEIGHT, 3)) is None

    asyncio.run(ask())


def test_a_graph_of_the_history_without_a_file_is_called_by_its_number(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(GraphWriter().operator("Default/Add-op1"))
    writer.tensor(0, "Add.Add-op1")
    writer.history(0, 1)
    writer.history(1, 2, graph_id=7)

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            page = await session.executions(0)
            assert [(one.step, one.graph, one.has_data) for one in page.executions] == [
                (1, "kernel_graph_0", True),
                (2, "kernel_graph_0", False),
                (2, "graph 7", False),
                (3, "graph 7", False),
            ]

    asyncio.run(ask())


@pytest.mark.parametrize("name", ["sick-2.0.0", "sick-2.10.0"])
def test_origins_of_what_was_planted(unpacked: Callable[[str], Path], planted: dict[str, Any], name: str) -> None:
    facts = planted[name]["planted"]

    async def ask() -> None:
        async with debugging(unpacked(name)) as session:
            found = {one.anomaly: one for one in await session.origins()}
            for kind in ("inf", "nan"):
                origin, fact = found[kind], facts[kind]
                assert TensorAddress.parse(origin.address).node == fact["operator"]
                assert (origin.type, origin.step, origin.certain) == (
                    fact["op_type"],
                    fact["first_iteration"] + 1,
                    True,
                )
                assert origin.line is not None
                assert (origin.line.file, origin.line.line) == (fact["file"], fact["line"])
                assert origin.line in origin.stack
            assert TensorAddress.parse(found["explosion"].address).node == facts["exploding_gradient"]["operator"]

    asyncio.run(ask())
