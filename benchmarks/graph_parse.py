"""How long it takes, and how much memory, to read the graph of a large network.

Writes a graph file in a temporary folder: as many transformer-like blocks as needed, each with forward, gradient and
optimizer operators whose names, inputs, attributes and stacks have the length that MindSpore 2.10 gives them. Then
reads it in a fresh process, five times over, and prints the median time and the largest peak memory (ru_maxrss).

    python benchmarks/graph_parse.py [--nodes 100000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

READ = """
import json, resource, sys, time
start = time.perf_counter()
from tensight.graph import parse_graph
imported = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    graph = parse_graph(file.read(), where=sys.argv[1])
parsed = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
assert not graph.problems, graph.problems[:3]
print(json.dumps({
    "nodes": len(graph.operators), "import_s": imported - start, "parse_s": parsed - imported, "peak_mb": peak,
}))
"""

LIBRARY = "/home/user/miniconda3/envs/train/lib/python3.11/site-packages/mindspore"
FORWARD = ("MatMul", "BiasAdd", "LayerNorm", "Reshape", "Transpose", "BatchMatMul", "Softmax", "GeLU", "Add", "Cast")


def stack(block: int, operator: int, line: int) -> bytes:
    """Return ten lines: the operator's own, the block's, the network's, and those of the training loop."""
    own = f"/home/user/projects/language_model/model/layers_{operator % 40}.py"
    lines = [
        f"      #  - In file {LIBRARY}/nn/layer/basic.py:{line % 800}, 12~39/        x = self.matmul(x, self.weight)/",
        f"      #    In file {LIBRARY}/nn/layer/basic.py:803~815, 4~16/    def construct(self, x):/",
        f"      # In file {own}:{line % 500}, 8~60/        hidden = self.dense_{operator}(self.norm(hidden))/",
        f"      # In file {own}:{line % 500 - 3}~{line % 500 + 9}, 4~22/    def construct(self, hidden, mask):/",
        f"      # In file /home/user/projects/language_model/model/transformer.py:{200 + block % 96}, 20~58/"
        f"            hidden = self.blocks[{block}](hidden, mask)/",
        "      # In file /home/user/projects/language_model/model/transformer.py:180~310, 4~21/"
        "    def construct(self, tokens, mask):/",
        f"      # In file {LIBRARY}/nn/wrap/cell_wrapper.py:122, 14~28/        out = self._backbone(data)/",
        f"      # In file {LIBRARY}/nn/wrap/cell_wrapper.py:121~123, 4~40/    def construct(self, data, label):/",
        f"      # In file {LIBRARY}/nn/wrap/cell_wrapper.py:442, 15~27/        loss = self.network(*inputs)/",
        f"      # In file {LIBRARY}/nn/wrap/cell_wrapper.py:440~453, 4~19/    def _no_sens_impl(self, *inputs):/",
    ]
    return ("\n".join(lines) + "\n").encode()


def write_graph(path: Path, nodes: int) -> None:
    """Write a graph of `nodes` operators to `path`, as a dump has it."""
    from tensight.graph import ms_graph_pb2 as pb

    path.write_bytes(pb.ModelProto(ir_version=1, graph=make_graph(nodes)).SerializeToString())


def make_graph(nodes):  # type: ignore[no-untyped-def]
    """Return the message of a graph of `nodes` operators."""
    from tensight.graph import ms_graph_pb2 as pb

    graph = pb.GraphProto(name=b"kernel_graph0", root_name=b"0")
    tensor = pb.TypeProto(data_type=14, tensor_type=pb.TypeProto.Tensor(elem_type=11))
    tensor.tensor_type.shape.dim.extend(pb.TensorShapeProto.Dimension(size=size) for size in (8, 1024, 4096))
    tensor = tensor.SerializeToString()
    graph.const_vals.add(key=b"cst1", full_name=b"Default_data-0")
    graph.parameters.add(name=b"inputs0", type=tensor)
    previous = b"inputs0"
    for index in range(nodes):
        block, operator = divmod(index, 40)
        previous = add_operator(graph, index + 1, block, operator, previous, tensor)
    return graph


def add_operator(graph, number, block, operator, previous, tensor):  # type: ignore[no-untyped-def]
    """Add one operator; every fourth brings a parameter of its own, every fortieth is an optimizer's."""
    kind = FORWARD[operator % len(FORWARD)] if operator < 39 else "ApplyMomentum"
    gradient = "Gradients/" if 15 <= operator < 39 else ""
    scope = (
        f"{gradient}Default/network-WithLossCell/_backbone-LanguageModel/transformer-Transformer/"
        f"blocks-CellList/{block}-Block/layer_{operator}-{kind}"
    )
    node = graph.node.add(
        name=str(number).encode(),
        op_type=kind.encode(),
        scope=scope.encode(),
        full_name=f"{scope}/{kind}-op{operator}".encode(),
        output_type=tensor,
        source_address=stack(block, operator, number * 7),
    )
    node.input.add(name=previous)
    if operator % 4 == 0:
        name = f"transformer.blocks.{block}.layer_{operator}.weight".encode()
        graph.parameters.add(name=name, type=tensor)
        node.input.add(name=name)
    node.input.add(name=b"cst1")
    node.attribute.extend(attributes(operator, number))
    return node.name


def attributes(operator, number):  # type: ignore[no-untyped-def]
    """Return about 300 bytes of attributes, as operators have them; most repeat, one does not."""
    from tensight.graph import ms_graph_pb2 as pb

    def named(name, **value):  # type: ignore[no-untyped-def]
        return pb.AttributeProto(name=name, value=pb.ValueProto(**value)).SerializeToString()

    names = [pb.ValueProto(dtype=13, str_val=text) for text in (b"x1", b"x2")]
    numbers = [pb.ValueProto(dtype=5, int_val=value) for value in (1, 1, operator % 3, operator % 5)]
    return [
        named(b"IsFeatureMapOutput", dtype=1, bool_val=True),
        named(b"IsFeatureMapInputList", dtype=31, values=[pb.ValueProto(dtype=9)]),
        named(b"input_names", dtype=32, values=names),
        named(b"output_names", dtype=32, values=names[:1]),
        named(b"stride", dtype=31, values=numbers),
        named(b"pad_list", dtype=31, values=numbers),
        named(b"transpose_a", dtype=1),
        named(b"transpose_b", dtype=1, bool_val=True),
        named(b"unique_id", dtype=13, str_val=str(number).encode()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", type=Path, help="only write the graph file, here")
    options = parser.parse_args()
    if options.write is not None:
        write_graph(options.write, options.nodes)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ms_output_trace_code_graph_0.pb"
        # In a process of its own, because Linux counts the memory of the parent in a child's ru_maxrss.
        subprocess.run([sys.executable, __file__, "--nodes", str(options.nodes), "--write", str(path)], check=True)
        runs = []
        for _ in range(options.repeats):
            command = [sys.executable, "-c", READ, str(path)]
            runs.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        seconds = statistics.median(run["parse_s"] for run in runs)
        peak = max(run["peak_mb"] for run in runs)
        print(f"{runs[0]['nodes']} operators, file of {path.stat().st_size / 2**20:.0f} MiB")
        print(f"read in {seconds:.2f} s (median of {len(runs)}), peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main()
