"""A small convolutional network that really trains in NumPy, and its graph as MindSpore 2.0 would send it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tests.standin.mindspore_messages import CHUNK_BYTES, DATA_TYPE, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Array = NDArray[Any]

NETWORK = "Default/network-WithLossCell/_backbone-Net"
LOSS = "Default/network-WithLossCell/_loss_fn-SoftmaxCrossEntropyWithLogits"
OPTIMIZER = "Default/optimizer-Momentum"
SCRIPT = "/home/user/train.py"
PRIMITIVE = "/usr/lib/python3.9/site-packages/mindspore/nn/layer/basic.py"

TYPES = {
    "bool": "DT_BOOL",
    "float16": "DT_FLOAT16",
    "float32": "DT_FLOAT32",
    "float64": "DT_FLOAT64",
    "int32": "DT_INT32",
    "int64": "DT_INT64",
}


def data_type(array: Array | BigTensor) -> int:
    return DATA_TYPE[TYPES[np.dtype(array.dtype).name]]


@dataclass(frozen=True)
class BigTensor:
    """A float32 tensor that is never whole in memory: piece k holds k, k + 1, k + 2… in pieces of 3 MiB."""

    rows: int
    columns: int = 8192

    dtype = np.dtype("float32")

    @classmethod
    def of_size(cls, mebibytes: int) -> BigTensor:
        return cls(rows=mebibytes * 2**20 // (4 * cls.columns))

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.columns

    @property
    def nbytes(self) -> int:
        return self.rows * self.columns * 4

    def pieces(self) -> Iterator[bytes]:
        counting = np.arange(CHUNK_BYTES // 4, dtype="<f4")
        for k, start in enumerate(range(0, self.nbytes, CHUNK_BYTES)):
            yield (counting + np.float32(k)).tobytes()[: self.nbytes - start]


@dataclass(frozen=True)
class Operator:
    """One operator: `compute` takes its inputs and returns its outputs; without it, it is no kernel."""

    type: str
    scope: str
    number: int
    inputs: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    compute: Callable[..., Array | tuple[Array, ...]] | None = None
    dtype: str = "float32"
    updates: str = ""
    line: int = 0

    @property
    def full_name(self) -> str:
        return f"{self.scope}/{self.type}-op{self.number}"


def convolve(images: Array, kernel: Array) -> Array:
    """Convolve without padding: images (n, c, h, w), kernel (f, c, k, k)."""
    size = kernel.shape[-1]
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(2, 3))
    return np.einsum("nchwij,fcij->nfhw", windows, kernel).astype(np.float32)


def kernel_gradient(gradient: Array, images: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(images, gradient.shape[2:], axis=(2, 3))
    return np.einsum("ncijhw,nfhw->fcij", windows, gradient).astype(np.float32)


def cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    shifted = logits - logits.max(axis=1, keepdims=True)
    probabilities = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    loss = -(labels * np.log(probabilities + 1e-12)).sum(axis=1)
    return loss.astype(np.float32), (probabilities - labels).astype(np.float32)


def momentum_update(weight: Array, moment: Array, rate: Array, gradient: Array, momentum: Array) -> Array:
    moment *= momentum
    moment += gradient
    return (weight - rate * moment).astype(np.float32)


@dataclass
class Network:
    """One root graph with its parameters and constants.

    Names in `inputs` of an operator are those of parameters, of keys of constants, or ``#3`` for operator 3 and
    ``#3.1`` for its output 1.
    """

    name: str
    root: int
    operators: list[Operator]
    parameters: dict[str, Array | BigTensor]
    constants: dict[str, tuple[str, Array | None]]
    values: dict[str, list[Array]] = field(default_factory=dict)

    def operator_of(self, reference: str) -> tuple[Operator, int]:
        number, _, slot = reference.lstrip("#").partition(".")
        return self.operators[int(number) - 1], int(slot or 0)

    def kernels(self) -> list[Operator]:
        return [operator for operator in self.operators if operator.compute]

    def key_of(self, reference: str) -> str | None:
        """Return the loader's key of an input, None for what has no value."""
        if not reference.startswith("#"):
            full_name = self.constants[reference][0] if reference in self.constants else reference
            return f"{full_name}:0"
        operator, slot = self.operator_of(reference)
        if operator.type == "Load":
            return self.key_of(operator.inputs[0])
        if operator.type == "TupleGetItem":
            producer, _ = self.operator_of(operator.inputs[0])
            return f"{producer.full_name}:{int(self.constants[operator.inputs[1]][1] or 0)}"
        return f"{operator.full_name}:{slot}" if operator.compute else None

    def read(self, reference: str) -> Array:
        key = self.key_of(reference)
        name, _, slot = str(key).rpartition(":")
        if name in self.values:
            return self.values[name][int(slot)]
        found = self.parameters.get(name)
        if found is None:
            found = next(value for full_name, value in self.constants.values() if full_name == name)
        assert isinstance(found, np.ndarray)
        return found

    def run(self) -> Iterator[Operator]:
        """Execute one step kernel by kernel; parameters change when their update has been yielded."""
        self.values.clear()
        for operator in self.kernels():
            assert operator.compute
            outputs = operator.compute(*map(self.read, operator.inputs))
            arrays = outputs if isinstance(outputs, tuple) else (outputs,)
            self.values[operator.full_name] = [np.array(array, order="C") for array in arrays]
            if operator.updates:
                self.parameters[operator.updates] = self.values[operator.full_name][0]
            yield operator

    def feed(self, step: int, *, broken: bool) -> None:
        """Bring the next batch; a broken one has one NaN."""
        random = np.random.default_rng(step % 8)
        images = random.normal(size=(4, 1, 6, 6)).astype(np.float32)
        if broken:
            images[0, 0, 0, 0] = np.nan
        self.parameters["inputs0"] = images
        self.parameters["inputs1"] = np.eye(3, dtype=np.float32)[random.integers(0, 3, 4)]


def _operators(first: int, *, training: bool) -> list[Operator]:
    made: list[Operator] = []

    def add(*arguments: Any, **options: Any) -> str:
        op_type, scope, *rest = arguments
        made.append(Operator(op_type, scope, first + len(made), *rest, line=10 + len(made), **options))
        return f"#{len(made)}"

    kernel = add("Load", NETWORK, ("conv1.weight", "cst1"), ((2, 1, 3, 3),))
    conv = add("Conv2D", f"{NETWORK}/conv1-Conv2d", ("inputs0", kernel), ((4, 2, 4, 4),), convolve)
    relu = add("ReLU", f"{NETWORK}/relu-ReLU", (conv,), ((4, 2, 4, 4),), lambda x: np.maximum(x, 0))
    add("Greater", f"{NETWORK}/relu-ReLU", (conv, "cst4"), ((4, 2, 4, 4),), lambda x, y: x > y, dtype="bool")
    flat = add("Reshape", f"{NETWORK}/flatten-Flatten", (relu,), ((4, 32),), lambda x: x.reshape(4, 32))
    weight = add("Load", NETWORK, ("fc1.weight", "cst1"), ((3, 32),))
    product = add("MatMul", f"{NETWORK}/fc1-Dense", (flat, weight), ((4, 3),), lambda x, w: x @ w.T)
    logits = add("BiasAdd", f"{NETWORK}/fc1-Dense", (product, "fc1.bias"), ((4, 3),), lambda x, b: x + b)
    half = add("Cast", NETWORK, (logits,), ((4, 3),), lambda x: x.astype("float16"), dtype="float16")
    both = add("SoftmaxCrossEntropyWithLogits", LOSS, (logits, "inputs1"), ((4,), (4, 3)), cross_entropy)
    each = add("TupleGetItem", LOSS, (both, "cst2"), ((4,),))
    loss = add("ReduceMean", LOSS, (each,), ((),), lambda x: x.mean(keepdims=False).astype("float32"))
    if not training:
        add("MakeTuple", "Default", (loss, half))
        return made
    back = f"Gradients/{NETWORK}"
    error = add("TupleGetItem", LOSS, (both, "cst3"), ((4, 3),))
    bias_gradient = add("BiasAddGrad", f"{back}/fc1-Dense/gradBiasAdd", (error,), ((3,),), lambda e: e.sum(axis=0))
    weight_gradient = add("MatMul", f"{back}/fc1-Dense/gradMatMul", (error, flat), ((3, 32),), lambda e, x: e.T @ x)
    hidden = add("MatMul", f"{back}/fc1-Dense/gradMatMul", (error, weight), ((4, 32),), lambda e, w: e @ w)
    shaped = add("Reshape", f"{back}/flatten-Flatten", (hidden,), ((4, 2, 4, 4),), lambda x: x.reshape(4, 2, 4, 4))
    rectified = add("ReluGrad", f"{back}/relu-ReLU/gradReLU", (shaped, relu), ((4, 2, 4, 4),), lambda g, y: g * (y > 0))
    kernel_slope = add(
        "Conv2DBackpropFilter",
        f"{back}/conv1-Conv2d/gradConv2D",
        (rectified, "inputs0"),
        ((2, 1, 3, 3),),
        kernel_gradient,
    )
    updates = []
    for name, slope, shape in (
        ("fc1.bias", bias_gradient, (3,)),
        ("fc1.weight", weight_gradient, (3, 32)),
        ("conv1.weight", kernel_slope, (2, 1, 3, 3)),
    ):
        inputs = (name, f"moments.{name}", "learning_rate", slope, "cst5")
        updates.append(add("ApplyMomentum", OPTIMIZER, inputs, (shape,), momentum_update, updates=name))
    add("MakeTuple", "Default", (loss, half, *updates))
    return made


def make_network(
    *, graph_id: int = 0, seed: int = 0, training: bool = True, shared: Network | None = None, big_mib: int = 0
) -> Network:
    """Make a network; one that is not for training shares the parameters of the one that is."""
    random = np.random.default_rng(seed)
    constants: dict[str, tuple[str, Array | None]] = {
        "cst1": ("Default--data-0", None),
        "cst2": ("Default--data-1", np.array(0)),
        "cst3": ("Default--data-2", np.array(1)),
        "cst4": ("Default--data-3", np.array(0.0, dtype=np.float32)),
        "cst5": ("Default--data-4", np.array(0.9, dtype=np.float32)),
    }
    parameters: dict[str, Array | BigTensor] = {}
    if shared is None:
        parameters = {
            "conv1.weight": random.normal(0, 0.4, (2, 1, 3, 3)).astype(np.float32),
            "fc1.weight": random.normal(0, 0.2, (3, 32)).astype(np.float32),
            "fc1.bias": np.zeros(3, np.float32),
            "moments.conv1.weight": np.zeros((2, 1, 3, 3), np.float32),
            "moments.fc1.weight": np.zeros((3, 32), np.float32),
            "moments.fc1.bias": np.zeros(3, np.float32),
            "learning_rate": np.array(0.01, dtype=np.float32),
        }
        if big_mib:
            parameters["embedding.weight"] = BigTensor.of_size(big_mib)
    made = Network(
        f"kernel_graph_{graph_id}",
        graph_id,
        _operators(graph_id * 100 + 1, training=training),
        parameters if shared is None else shared.parameters,
        constants,
    )
    made.feed(0, broken=False)
    return made


def replay(steps: int, *, seed: int = 0, nan_at: int | None = None) -> dict[str, Array]:
    """Return all values after so many steps of the network for training, by ``name:slot``."""
    network = make_network(seed=seed)
    for step in range(1, steps + 1):
        network.feed(step, broken=step == nan_at)
        for _ in network.run():
            pass
    values = {f"{name}:0": value for name, value in network.parameters.items() if isinstance(value, np.ndarray)}
    for name, outputs in network.values.items():
        values.update({f"{name}:{slot}": output for slot, output in enumerate(outputs)})
    return values


def _tensor_type(target: Any, shape: Sequence[int], dtype: str) -> None:
    target.data_type = DATA_TYPE["DT_TENSOR"]
    target.tensor_type.elem_type = DATA_TYPE[TYPES[dtype]]
    target.tensor_type.shape.SetInParent()
    for size in shape:
        target.tensor_type.shape.dim.add(size=size)


def _add_node(graph: Any, number: int, operator: Operator) -> None:
    node = graph.node.add(name=str(number), op_type=operator.type, scope=operator.scope, full_name=operator.full_name)
    for reference in operator.inputs:
        node.input.add(name=reference.lstrip("#"))
    if len(operator.shapes) == 1:
        _tensor_type(node.output_type, operator.shapes[0], operator.dtype)
    else:
        node.output_type.data_type = DATA_TYPE["DT_TUPLE"]
        for shape in operator.shapes:
            _tensor_type(node.output_type.sequence_type.elem_types.add(), shape, operator.dtype)
    if operator.type != "Load":
        node.source_address = (
            f"      # In file {PRIMITIVE}:{100 + number}/        return self.{operator.type.lower()}(x)/\n"
            f"      # In file {SCRIPT}:{operator.line}/        x = self.layer{number}(x)/\n"
        )


def graph_of(network: Network, *, padding_mib: int = 0) -> Any:
    """Return the network as a GraphProto, made longer by attributes that mean nothing."""
    graph = messages.GraphProto(name=network.name, root_name=str(network.root))
    for number, operator in enumerate(network.operators, 1):
        _add_node(graph, number, operator)
    for name, value in network.parameters.items():
        _tensor_type(graph.parameters.add(name=name).type, value.shape, np.dtype(value.dtype).name)
    for key, (full_name, array) in network.constants.items():
        constant = graph.const_vals.add(key=key, full_name=full_name)
        constant.value.dtype = 0
        if array is not None and array.dtype == np.float32:
            constant.value.dtype = DATA_TYPE["DT_FLOAT32"]
            constant.value.float_val = float(array)
        elif array is not None:
            constant.value.dtype = DATA_TYPE["DT_INT64"]
            constant.value.int_val = int(array)
    last = graph.outputs.add(name=str(len(network.operators)))
    last.type.data_type = DATA_TYPE["DT_TUPLE"]
    for number in range(padding_mib * 8):
        attribute = graph.node[number % len(graph.node)].attribute.add(name=f"padding{number}")
        attribute.value.dtype = DATA_TYPE["DT_STRING"]
        attribute.value.str_val = "x" * 2**17
    return graph
