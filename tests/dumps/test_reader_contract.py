"""What `tensight.dumps.reader` promises, checked on dumps of every layout; a new layout adds a dump to `DUMPS`."""

from __future__ import annotations

import builtins
import io
import json
import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import compress, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from tensight.dumps import CONSTANTS, Dump, open_dump, read_tensor, tensor_header
from tensight.dumps.execution import UNMATCHED
from tensight.dumps.layouts import LAYOUTS, find_dump, may_be_dump
from tensight.dumps.metadata import DumpMetadata
from tensight.dumps.reader import RankReader, identity_of
from tensight.dumps.storage import open_storage
from tensight.errors import DumpError, TensorFileError
from tensight.graph import TensorAddress
from tests.dumps import ascend_writer as device
from tests.dumps.dump_writer import DumpWriter, GraphWriter
from tests.dumps.statistics_writer import DEFAULT, OLD, record_dump
from tests.dumps.test_recorder import keep, network, receive, recorder
from tests.dumps.test_trace_files import written as write_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensight.dumps import TensorFile
    from tensight.dumps.reader import Layout
    from tensight.dumps.storage import Storage

NOWHERE = 10**9


# --- the dumps ---


def write_npy(root: Path) -> Path:
    """Two ranks in MindSpore's layout, with constants, repeats, a history, and a file that matches no node."""
    writer = DumpWriter(root, "2.10.0")
    graph = GraphWriter().parameter("conv.weight").constant("cst1", "Default--data-3")
    graph.operator("Default/net/Add-op1", inputs=("conv.weight", "cst1"))
    graph.operator("Default/net/Relu-op2", "ReLU", inputs=("1",))
    for rank in (10, 2):
        writer.graph(graph, rank=rank)
        writer.history(0, 1, 2, 3, rank=rank)
        writer.tensor("constants", "Parameter.data-3", np.ones(1, np.float32), rank=rank)
        for iteration in (0, 2, 3):
            values = np.arange(4, dtype=np.float32) + 10 * rank + iteration
            writer.tensor(iteration, "ReLU.Relu-op2", values * 2, rank=rank)
            writer.tensor(iteration, "ReLU.Relu-op2", values, io="input", rank=rank)
            for repeat in range(2):
                writer.tensor(iteration, "Add.Default_net_Add-op1", values + repeat, rank=rank)
            writer.tensor(iteration, "Parameter.conv.weight", values * 3, rank=rank)
            writer.tensor(iteration, "Mul.Foreign-op7", values * 4, rank=rank)
    return root


def write_statistics(root: Path, columns: tuple[str, ...]) -> Path:
    record_dump(write_npy(root), columns)
    return root


def write_files_of_ascend(root: Path) -> Path:
    writer = DumpWriter(root)
    graph = GraphWriter().parameter("conv.weight")
    writer.graph(graph.operator("Default/net/Conv2D-op1", inputs=("conv.weight",), shape=(7,)))
    (writer.rank() / ".dump_metadata" / "config.json").write_text('{"device_target": "Ascend", "ms_version": "2.0.0"}')
    images = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(np.float16)
    for iteration in (0, 1):
        data = device.dump_data(
            inputs=[device.device_tensor(images, "NC1HWC0", 16)],
            outputs=[device.host_tensor(np.arange(7, dtype=np.float32))],
            op_name="Default/net/Conv2D-op1",
        )
        (writer.folder(iteration) / f"Conv2D.Default_net_Conv2D-op1.3.7.163000000000000{iteration}").write_bytes(data)
    return root


def write_raw(root: Path) -> Path:
    """Raw elements, whose shape stands in the name, as MindSpore wrote them before 1.3."""
    writer = DumpWriter(root)
    writer.graph(GraphWriter().operator("Default/net/Add-op1").operator("Default/net/Add-op2", inputs=("1",)))
    for number in (1, 2):
        name = f"Default--net--Add-op{number}_output_0_shape_4_Float32_DefaultFormat.bin"
        (writer.folder(0) / name).write_bytes(np.arange(4, dtype=np.float32).tobytes())
    return root


def write_recording(root: Path) -> Path:
    """What Tensight recorded, with values from before the first step."""
    rank = recorder(root).rank(0)
    (graph,) = receive(rank, network())
    for iteration in (CONSTANTS, 0, 1):
        keep(rank, graph, "conv1.weight", iteration, np.full(4, iteration, np.float32))
    for iteration in (0, 1):
        keep(rank, graph, "Default/network/ReLU-op2", iteration, np.full(4, iteration, np.float32))
        keep(rank, graph, "Default/network/ReLU-op2", iteration, np.ones(2, np.float16), is_input=True)
    return root / "run" / "dump"


def write_traces(root: Path) -> Path:
    for rank in (3, 0):
        write_trace(root, rank=rank)
    return root


@dataclass(frozen=True)
class Sample:
    """A dump of the suite.

    Attributes
    ----------
    layout : str
        Name of its layout.
    write : callable or None
        Writes it into a folder and returns the dump's own folder; None if it is in the fixtures.
    fixture : str
        Where it is in the fixtures: ``archive`` or ``archive/folder``.
    is_small : bool
        Whether damage to its files is tried out.
    """

    layout: str
    write: Callable[[Path], Path] | None = None
    fixture: str = ""
    is_small: bool = True

    def make(self, folder: Path, unpacked: Callable[[str], Path]) -> Path:
        """Return a dump of one's own."""
        if self.write is not None:
            return self.write(folder / "dump")
        archive, _, inner = self.fixture.partition("/")
        return Path(shutil.copytree(unpacked(archive) / inner, folder / "dump"))


DUMPS = {
    "npy": Sample("MindSpore", write_npy),
    "statistics": Sample("MindSpore", partial(write_statistics, columns=DEFAULT)),
    "statistics-old": Sample("MindSpore", partial(write_statistics, columns=OLD)),
    "ascend": Sample("MindSpore", write_files_of_ascend),
    "raw": Sample("MindSpore", write_raw),
    "recording": Sample("MindSpore", write_recording),
    "mindspore-2.0.0": Sample("MindSpore", fixture="sick-2.0.0", is_small=False),
    "mindspore-2.10.0": Sample("MindSpore", fixture="healthy-2.10.0", is_small=False),
    "traces": Sample("Tensight (traces)", write_traces),
    "msprobe-values": Sample("msprobe", fixture="msprobe-26.2/msprobe/L0"),
    "msprobe-statistics": Sample("msprobe", fixture="msprobe-26.2/msprobe/L1-statistics"),
    "msprobe-ranks": Sample("msprobe", fixture="msprobe-26.2/msprobe/ranks"),
    "msprobe-mindspore": Sample("msprobe", fixture="msprobe-26.2-mindspore/msprobe-mindspore/mix", is_small=False),
}

SMALL = [name for name, sample in DUMPS.items() if sample.is_small]


@pytest.fixture(scope="module", params=list(DUMPS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def root(name: str, tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> Path:
    """The folder of a dump; do not change it."""
    return DUMPS[name].make(tmp_path_factory.mktemp(name), unpacked)


@pytest.fixture(params=SMALL)
def own_root(request: pytest.FixtureRequest, tmp_path: Path, unpacked: Callable[[str], Path]) -> Path:
    """The folder of a small dump that may be damaged."""
    return DUMPS[request.param].make(tmp_path, unpacked)


@pytest.fixture(scope="module")
def readers(root: Path) -> dict[int, RankReader]:
    return {located.rank: located.open(False) for located in find_dump(root).ranks}


@pytest.fixture(scope="module")
def dump(root: Path) -> Dump:
    return open_dump(root)


def names_in(storage: Storage) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the folders and of the files at a storage's root."""
    listing = storage.list_folder("")
    return listing.folders, tuple(file.name for file in listing.files)


def every_tensor(reader: RankReader) -> list[TensorFile]:
    return [*reader.tensors(None), *reader.recorded_tensors(None)]


# --- what is there ---


def test_every_layout_has_a_dump_in_this_suite() -> None:
    assert {layout.name for layout in LAYOUTS} == {sample.layout for sample in DUMPS.values()}
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS)


def test_a_dump_is_recognised_by_its_own_layout_and_by_no_other(name: str, root: Path) -> None:
    storage = open_storage(root)

    def recognises(layout: Layout) -> tuple[bool, bool]:
        return layout.may_match(*names_in(storage)), bool(layout.find(storage, []))

    recognised = {layout.name: recognises(layout) for layout in LAYOUTS}
    assert recognised == {layout.name: (layout.name == DUMPS[name].layout,) * 2 for layout in LAYOUTS}


def test_a_folder_of_something_else_is_no_dump_of_any_layout(tmp_path: Path) -> None:
    for folder in ("src", "data/0", "step", "ranks", "traces"):
        (tmp_path / folder).mkdir(parents=True)
        for file in ("readme.txt", "index.json", "values.npy"):
            (tmp_path / folder / file).write_bytes(b"hello")
    storage = open_storage(tmp_path)
    assert not may_be_dump(*names_in(storage))
    for layout in LAYOUTS:
        assert layout.find(storage, []) == ()


def test_a_dump_opens_by_its_folder_and_by_the_one_above(root: Path) -> None:
    own, above = find_dump(root), find_dump(root.parent)
    assert own.storage.root == above.storage.root == str(root)
    ranks = [located.rank for located in own.ranks]
    assert ranks
    assert ranks == sorted(set(ranks)) == [located.rank for located in above.ranks]
    for located in own.ranks:
        assert (root / located.path).exists()
        assert isinstance(located.open(False), RankReader)


def test_a_rank_says_what_wrote_it_and_where_it_ran(readers: dict[int, RankReader]) -> None:
    for rank, reader in readers.items():
        assert isinstance(reader.metadata, DumpMetadata)
        assert reader.metadata.framework
        assert reader.metadata.saved_data in ("tensor", "statistic", "full")
        assert reader.device.rank == rank
        assert reader.setup is None or json.dumps(reader.setup)


def test_graphs_are_sorted_and_have_names_of_their_own(readers: dict[int, RankReader]) -> None:
    for reader in readers.values():
        graphs = reader.graphs
        assert graphs
        assert [graph.graph_id for graph in graphs] == sorted(graph.graph_id for graph in graphs)
        assert reader.graphs_by_name == {graph.name: graph for graph in graphs}
        assert len(reader.graphs_by_name) == len(graphs)
        assert {graph.root_id for graph in graphs} >= set(reader.iterations)


def test_iterations_are_in_order_and_all_of_them_were_executed(readers: dict[int, RankReader]) -> None:
    for reader in readers.values():
        assert list(reader.iterations) == sorted(reader.iterations)
        assert any(reader.iterations.values())
        for graph_id, iterations in reader.iterations.items():
            executed = list(reader.executed_iterations(graph_id))
            assert min(iterations, default=0) >= 0
            assert list(iterations) == sorted(set(iterations))
            assert executed == sorted(set(executed))
            assert set(executed) >= set(iterations)
            if reader.history is not None:
                assert set(executed) >= set(reader.history.get(graph_id, ()))
        assert tuple(reader.executed_iterations(NOWHERE)) == ()


def test_every_operator_that_ran_has_a_position_of_its_own(readers: dict[int, RankReader]) -> None:
    for reader in readers.values():
        operators = [node for graph in reader.graphs for node in graph.operators]
        positions = [reader.order.position(node) for node in operators]
        assert len(set(positions)) == len(operators)
        assert UNMATCHED not in positions
        assert set(reader.order.names) <= {node.name for node in operators}


# --- which tensor is which node ---


def test_a_tensor_belongs_to_a_dumped_iteration_and_to_a_node_of_its_graph(readers: dict[int, RankReader]) -> None:
    for rank, reader in readers.items():
        tensors = every_tensor(reader)
        assert tensors
        assert any(tensor.node is not None for tensor in tensors)
        for tensor in tensors:
            assert tensor.rank == rank
            assert tensor.iteration == CONSTANTS or tensor.iteration in reader.iterations[tensor.graph_id]
            assert tensor.slot >= 0
            assert tensor.io in ("input", "output")
            if tensor.node is None:
                assert tensor.graph == ""
                continue
            graph = reader.graphs_by_name[tensor.graph]
            assert graph.root_id == tensor.graph_id
            assert graph.get(tensor.node) is not None


def test_a_tensor_is_there_once_and_repeats_are_older(readers: dict[int, RankReader]) -> None:
    for reader in readers.values():
        keys = [(tensor.graph_id, tensor.iteration, identity_of(tensor)) for tensor in every_tensor(reader)]
        assert len(set(keys)) == len(keys)
        for tensor in every_tensor(reader):
            newest_first = [one.timestamp for one in (tensor, *tensor.older)]
            assert newest_first == sorted(newest_first, reverse=True)
            for older in tensor.older:
                assert (older.iteration, identity_of(older)) == (tensor.iteration, identity_of(tensor))


def test_tensors_are_in_the_order_of_execution(readers: dict[int, RankReader]) -> None:
    def key(reader: RankReader, tensor: TensorFile) -> tuple[object, ...]:
        node = reader.graphs_by_name[tensor.graph].get(tensor.node) if tensor.node is not None else None
        position = UNMATCHED if node is None else reader.order.position(node)
        return tensor.graph_id, tensor.iteration, position, tensor.io, tensor.slot

    for reader in readers.values():
        for tensors in (reader.tensors(None), reader.recorded_tensors(None)):
            keys = [key(reader, tensor) for tensor in tensors]
            assert all(first <= second for first, second in pairwise(keys))


def test_iterations_restrict_the_list(readers: dict[int, RankReader]) -> None:
    for reader in readers.values():
        for listed in (reader.tensors, reader.recorded_tensors):
            every = list(listed(None))
            for iteration in {tensor.iteration for tensor in every}:
                assert list(listed({iteration})) == [tensor for tensor in every if tensor.iteration == iteration]
            assert list(listed(set())) == list(listed({NOWHERE})) == []
        by_graph = [
            tensor
            for graph_id, iterations in reader.iterations.items()
            for iteration in (CONSTANTS, *iterations)
            for tensor in (*reader.tensors_of(graph_id, iteration), *reader.recorded_tensors_of(graph_id, iteration))
        ]
        assert {*map(key_of, by_graph)} == {*map(key_of, every_tensor(reader))}
        assert len(by_graph) == len(every_tensor(reader))
        assert list(reader.tensors_of(NOWHERE, 0)) == list(reader.recorded_tensors_of(NOWHERE, 0)) == []


def test_an_address_leads_back_to_its_tensor(dump: Dump, readers: dict[int, RankReader]) -> None:
    for reader in readers.values():
        # A trace has exact statistics in place of values.
        for tensor in reader.recorded_tensors(None) if reader.metadata.traces else reader.tensors(None):
            graph, node, io, slot = identity_of(tensor)
            found = reader.find(tensor.graph_id, tensor.iteration, (graph, node, io, slot))
            assert found == tensor
            assert reader.find(tensor.graph_id, tensor.iteration, ("", node, io, slot)) is not None
            assert reader.find(tensor.graph_id, NOWHERE, (graph, node, io, slot)) is None
            assert reader.find(NOWHERE, tensor.iteration, (graph, node, io, slot)) is None
            assert reader.find(tensor.graph_id, tensor.iteration, (graph, node, io, NOWHERE)) is None
            if tensor.address is not None:
                assert TensorAddress.parse(str(tensor.address)) == tensor.address
                assert dump.tensor(str(tensor.address)) == tensor


# --- what is in a tensor ---


def test_values_have_the_shape_and_type_that_header_graph_and_record_say(readers: dict[int, RankReader]) -> None:
    for reader in readers.values():
        for tensor in reader.tensors(None):
            assert tensor.recorded is None
            header, values = tensor_header(tensor), read_tensor(tensor)
            assert (values.dtype, values.shape) == (header.dtype, header.shape)
            assert not values.flags.writeable
            assert tensor.size_bytes >= values.nbytes
            node = reader.graphs_by_name[tensor.graph].get(tensor.node) if tensor.node is not None else None
            if node is None or tensor.io == "input" or tensor.slot >= len(node.outputs) or tensor.is_constant:
                continue
            slot = node.outputs[tensor.slot]
            if slot.dtype:
                assert header.dtype == slot.dtype, tensor.path
            if slot.shape is not None:
                is_known = [length >= 0 for length in slot.shape]
                assert len(header.shape) == len(slot.shape), tensor.path
                assert [*compress(header.shape, is_known)] == [*compress(slot.shape, is_known)], tensor.path


def test_a_recorded_tensor_has_statistics_and_says_that_it_has_no_values(readers: dict[int, RankReader]) -> None:
    for reader in readers.values():
        for tensor in reader.recorded_tensors(None):
            record = tensor.recorded
            assert record is not None
            assert record.data_type.lower() == tensor.declared_dtype.lower() != ""
            assert all(length >= 0 for length in record.shape)
            if "count" in record.values:
                assert record.values["count"] == int(np.prod(record.shape))
            for read in (read_tensor, tensor_header):
                with pytest.raises(TensorFileError):
                    read(tensor)


def test_files_lie_in_the_dump(root: Path, readers: dict[int, RankReader]) -> None:
    for reader in readers.values():
        for tensor in (one for newest in every_tensor(reader) for one in (newest, *newest.older)):
            assert tensor.path.startswith(f"{root}/")
            assert os.path.realpath(tensor.path).startswith(f"{os.path.realpath(root)}/")
            assert tensor.mtime_ns == Path(tensor.path).stat().st_mtime_ns


# --- the whole ---


class Answers(NamedTuple):
    """What the readers of a dump answer to everything, by rank, and what they tell as problems and errors."""

    facts: dict[int, dict[str, Any]]
    told: set[str]


def answers_of(path: str | Path) -> Answers:
    facts: dict[int, dict[str, Any]] = {}
    told: set[str] = set()
    try:
        dump = find_dump(path)
    except DumpError as error:
        return Answers({}, {str(error)})
    for located in dump.ranks:
        try:
            reader = located.open(False)
        except DumpError as error:
            told.add(str(error))
            continue
        facts[located.rank] = {
            "metadata": repr(reader.metadata),
            "device": reader.device,
            "setup": reader.setup,
            "graphs": {graph.name: [node.name for node in graph.nodes] for graph in reader.graphs},
            "iterations": {graph_id: tuple(iterations) for graph_id, iterations in reader.iterations.items()},
            "history": reader.history,
            "order": reader.order.names,
            "tensors": {key_of(tensor): contents_of(tensor, told) for tensor in reader.tensors(None)},
            "recorded": {key_of(tensor): record_of(tensor) for tensor in reader.recorded_tensors(None)},
            "rows": len(list(reader.statistic_rows(None))),
            "overflows": len(reader.overflows(None)),
            "summary": json.dumps(reader.summary()),
        }
        assert list(reader.fingerprint_parts(with_statistics=True))
        problems = reader.all_problems()
        assert reader.all_problems() == problems
        told.update(map(str, problems))
    return Answers(facts, told | set(map(str, dump.problems)))


def key_of(tensor: TensorFile) -> tuple[object, ...]:
    return tensor.graph_id, tensor.iteration, identity_of(tensor)


def contents_of(tensor: TensorFile, told: set[str]) -> list[tuple[object, ...]]:
    """Return type, shape and bytes of a tensor and of its repeats, as far as they can be read."""
    contents: list[tuple[object, ...]] = []
    for one in (tensor, *tensor.older):
        try:
            values = read_tensor(one)
        except TensorFileError as error:
            told.add(str(error))
            continue
        contents.append((str(values.dtype), values.shape, values.tobytes()))
    return contents


def record_of(tensor: TensorFile) -> str:
    record = tensor.recorded
    assert record is not None
    return f"{record.data_type} {record.shape} {dict(record.values)}"


def test_a_second_reading_is_like_the_first(root: Path, readers: dict[int, RankReader]) -> None:
    assert answers_of(root) == answers_of(root)
    assert open_dump(root).fingerprint() == open_dump(root).fingerprint()
    for reader in readers.values():
        assert every_tensor(reader) == every_tensor(reader)


def test_the_summary_counts_what_is_listed(dump: Dump) -> None:
    summary = dump.summary()
    assert json.loads(json.dumps(summary)) == summary
    for rank, of_rank in zip(dump.ranks, summary["ranks"], strict=True):
        assert of_rank["rank"] == rank
        assert of_rank["tensors"] == len(dump.tensors(ranks=[rank]))
        assert of_rank["recorded"] == len(dump.recorded_tensors(ranks=[rank]))
        assert [graph["name"] for graph in of_rank["graphs"]] == [graph.name for graph in dump.graphs(rank)]
        assert of_rank["matched"] + of_rank["unmatched"] in (of_rank["files"], 0)


def test_nothing_is_written(own_root: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in [own_root, *own_root.rglob("*")]}
    answers_of(own_root)
    assert {path: path.stat().st_mtime_ns for path in [own_root, *own_root.rglob("*")]} == before


def test_a_dump_is_read_alike_wherever_it_lies(own_root: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(own_root), "/tensight-contract", recursive=True)
    try:
        assert answers_of("memory://tensight-contract").facts == answers_of(own_root).facts
    finally:
        memory.rm("/tensight-contract", recursive=True)


# --- damage ---


@contextmanager
def watched_files() -> Iterator[set[str]]:
    """Collect the real paths of all files that are opened meanwhile."""
    opened: set[str] = set()

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(path, (str, os.PathLike)):
                opened.add(os.path.realpath(path))
            return original(path, *arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module in (os, io, builtins):
            patch.setattr(module, "open", watched(module.open))
        yield opened


def files_of_each_kind(root: Path) -> Iterator[Path]:
    """Yield one file of each kind: of values the first, of others the first of its name apart from numbers."""
    seen = set()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        is_value = path.suffix in (".npy", ".pt", ".bin")
        kind = path.suffix if is_value else re.sub(r"\d+", "", path.name)
        if kind not in seen:
            seen.add(kind)
            yield path


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(bytes(range(255, -1, -1)) * 3)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": cut,
    "empty": lambda path: path.write_bytes(b"") and None,
    "garbage": fill_with_garbage,
    "folder": replace_by_folder,
    "gone": Path.unlink,
}


def restore(path: Path, data: bytes) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def is_of_rank(path: Path, rank: int) -> bool:
    return any(re.fullmatch(rf"rank_?{rank}(\.trace)?", part) for part in path.parts)


def is_told(root: Path, path: Path, told: set[str]) -> bool:
    """Tell whether a problem or an error names a file, or the folder that it is in."""
    names = {path.name, path.parent.relative_to(root).as_posix()} - {"."}
    return any(name in text for name in names for text in told)


def assert_no_value_is_made_up(whole: Answers, damaged: Answers) -> None:
    for rank, facts in damaged.facts.items():
        known = [content for contents in whole.facts[rank]["tensors"].values() for content in contents]
        assert all(content in known for contents in facts["tensors"].values() for content in contents)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_told_of_and_other_ranks_are_read(own_root: Path, damage: str) -> None:
    whole = answers_of(own_root)
    assert whole.facts
    for path in list(files_of_each_kind(own_root)):
        data = path.read_bytes()
        DAMAGES[damage](path)
        damaged = answers_of(own_root)
        restore(path, data)
        # A file that is gone may never have been there.
        assert is_told(own_root, path, damaged.told - whole.told) or damaged.facts == whole.facts or damage == "gone", (
            path
        )
        assert_no_value_is_made_up(whole, damaged)
        elsewhere = [rank for rank in whole.facts if len(whole.facts) > 1 and not is_of_rank(path, rank)]
        assert all(damaged.facts[rank] == whole.facts[rank] for rank in elsewhere), path
    assert answers_of(own_root) == whole


def test_a_link_that_leads_out_of_the_dump_is_told_of_and_not_followed(own_root: Path, tmp_path: Path) -> None:
    whole = answers_of(own_root)
    outside = tmp_path / "outside"
    outside.mkdir()
    opened_at_all: set[str] = set()
    for number, path in enumerate(list(files_of_each_kind(own_root))):
        data = path.read_bytes()
        target = outside / f"{number}{path.suffix}"
        target.write_bytes(data)
        path.unlink()
        path.symlink_to(target)
        with watched_files() as opened:
            linked = answers_of(own_root)
        restore(path, data)
        assert is_told(own_root, path, linked.told - whole.told) or linked.facts == whole.facts, path
        assert str(target) not in opened, path
        opened_at_all |= opened
    assert opened_at_all
