"""Full names of the operators of the stand-in's network, for tests to point at."""

from __future__ import annotations

from tests.standin.mindspore_network import LOSS, NETWORK, OPTIMIZER

CONV = f"{NETWORK}/conv1-Conv2d/Conv2D-op2"
RELU = f"{NETWORK}/relu-ReLU/ReLU-op3"
GREATER = f"{NETWORK}/relu-ReLU/Greater-op4"
FLATTEN = f"{NETWORK}/flatten-Flatten/Reshape-op5"
DENSE = f"{NETWORK}/fc1-Dense/MatMul-op7"
BIAS = f"{NETWORK}/fc1-Dense/BiasAdd-op8"
CAST = f"{NETWORK}/Cast-op9"
CROSS_ENTROPY = f"{LOSS}/SoftmaxCrossEntropyWithLogits-op10"
MEAN = f"{LOSS}/ReduceMean-op12"
DENSE_GRADIENT = f"Gradients/{NETWORK}/fc1-Dense/gradMatMul/MatMul-op15"
UPDATE_BIAS = f"{OPTIMIZER}/ApplyMomentum-op20"
UPDATE_KERNEL = f"{OPTIMIZER}/ApplyMomentum-op22"

WEIGHTS = ("conv1.weight", "fc1.weight", "fc1.bias")
GRAPH = "kernel_graph_0"


def address(node: str, slot: int = 0, *, step: int, graph: str = GRAPH, rank: int = 0) -> str:
    """Return the address of an output as shown at a step."""
    return f"{rank}/{graph}/{node}:{slot}@{step}"
