"""Roles of the parameters of a graph: trained, frozen, or states of the optimizer.

Names are not sufficient: a weight may have any name, and a moment has a name such as ``moments.conv1.weight``. Roles
follow from what the operators of optimizers write to. Positions of inputs are those of MindSpore's operators.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tensight.graph.declared import ParameterRoles
from tensight.graph.operator_facts import CONVERSIONS, kept_if_short, plain_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tensight.graph.model import Graph
    from tensight.graph.node import Node


@dataclass(frozen=True, slots=True)
class OptimizerSignature:
    """The inputs that an optimizer's operator updates.

    Attributes
    ----------
    variables : tuple of int
        Indices of the inputs that are trained parameters; empty if the operator updates only states.
    states : tuple of int
        Indices of the inputs that are optimizer states: moments, accumulators.
    """

    variables: tuple[int, ...]
    states: tuple[int, ...] = ()


def _signatures(variable: int | None, states: tuple[int, ...], names: str) -> dict[str, OptimizerSignature]:
    variables = () if variable is None else (variable,)
    return dict.fromkeys(names.split(), OptimizerSignature(variables, states))


OPTIMIZER_SIGNATURES: dict[str, OptimizerSignature] = {
    **_signatures(0, (), "ApplyGradientDescent ApplyProximalGradientDescent SparseApplyProximalGradientDescent"),
    **_signatures(
        0,
        (1,),
        "ApplyMomentum ApplyKerasMomentum SparseApplyMomentum ApplyAdagrad ApplyAdagradV2 SparseApplyAdagrad "
        "SparseApplyAdagradV2 ApplyProximalAdagrad SparseApplyProximalAdagrad FusedSparseProximalAdagrad "
        "ApplyAddSign ApplyPowerSign",
    ),
    **_signatures(
        0,
        (1, 2),
        "Adam AdamWeightDecay FusedCastAdamWeightDecay ApplyAdam ApplyAdamW SparseApplyAdam FusedSparseAdam "
        "FusedSparseLazyAdam ApplyAdaMax ApplyAdadelta SparseApplyAdadelta ApplyAdagradDA SparseApplyAdagradDA "
        "ApplyFtrl ApplyFtrlV2 SparseApplyFtrl SparseApplyFtrlV2 FusedSparseFtrl ApplyRMSProp SparseApplyRMSProp",
    ),
    **_signatures(0, (1, 2, 3), "AdamW ApplyAdamWithAmsgrad ApplyAdamWithAmsgradV2"),
    **_signatures(0, (1, 2, 3), "ApplyCenteredRMSProp SparseApplyCenteredRMSProp"),
    **_signatures(0, (3, 5), "SGD"),
    **_signatures(None, (0, 1), "AdamNoUpdateParam"),
    # Fusions for GPU and Ascend take factors of the gradient, or the gradient itself, before the variable.
    **_signatures(1, (2,), "FusedScaleApplyMomentum FusedWeightApplyMomentum"),
    **_signatures(2, (3,), "FusedWeightScaleApplyMomentum"),
    **_signatures(6, (7, 8), "FusedAdam FusedAdamWeightDecay"),
    **_signatures(3, (1, 2), "AdamApplyOneAssign AdamApplyOneWithDecayAssign LambApplyOptimizerAssign"),
    **_signatures(4, (), "LambApplyWeightAssign"),
}

# Plain writes. They train a weight if they are part of an optimizer (Lamb, Thor, user-defined optimizers).
_ASSIGNMENTS = frozenset({"Assign", "AssignAdd", "AssignSub"})
_OPTIMIZER_SCOPE = re.compile(r"(^|/)([^/]*[-_])?optim(izer)?([-_][^/]*)?(/|$)", re.IGNORECASE)
_OPTIMIZER_TYPE = re.compile(r"^(Fused|Sparse|Combine)*Apply[A-Z]|Adam|Lamb|Lars|Momentum|Ftrl|RMSProp|Adagrad")
_STATE_NAME = re.compile(
    r"^(moments?\d?|accum\w*|momentum|velocity|mean_gradient|mean_square|mean_grads|vhats?|adam_[mv]|lamb_[mv])\."
    r"|(^|[._])(learning_rate|lr|global_step|momentum|beta[12]?_power|loss_scale|scale_sense|current_iterator_step"
    r"|last_overflow_iterator_step|moment\d?|exp_avg(_sq)?|velocity)$"
)
# Running statistics of BatchNorm; written in each step, but not trained.
_RUNNING_NAME = re.compile(r"(^|\.)((moving|running)_(mean|var|variance)|num_batches_tracked)$")
# Values that another graph passes to this one.
_PASSED_NAME = re.compile(r"^(\[Parameter\]\d+$|Parameter_\d+$|equiv_\d+_|▸?ф)")
_WEIGHT_NAME = re.compile(r"(^|[._])(weight|bias|gamma|beta|embedding_table|embeddings?|kernel)(_\w+)?\d*$")


def is_optimizer(node: Node) -> bool:
    """Whether an operator is a part of an optimizer, by its type or scope."""
    return node.is_operator and is_of_optimizer(node.type, node.scope)


def is_of_optimizer(kind: str, scope: str) -> bool:
    """Whether an operator of this type and scope is a part of an optimizer."""
    return kind in OPTIMIZER_SIGNATURES or _in_optimizer_scope(scope)


def is_gathered(name: str) -> bool:
    """Whether a parameter is a running mean or variance of a normalization layer."""
    return _RUNNING_NAME.search(name) is not None


def is_gradient_scope(name: str) -> bool:
    """Whether a full name or scope belongs to the backward pass, in old and new names."""
    # The first ten characters decide.
    return name[:10].lower() in ("gradients", "gradients/")


def is_after_forward(name: str) -> bool:
    """Whether an operator belongs to the backward pass or to an optimizer, by its full name."""
    return is_gradient_scope(name) or _in_optimizer_scope(name.rpartition("/")[0])


def parameter_roles(graph: Graph) -> ParameterRoles:
    """Return which parameters are trained, which are frozen, and which belong to the optimizer.

    Parameters
    ----------
    graph : Graph
        If its process did not declare the roles, they are inferred, once per graph.
    """
    return graph.once(find_parameter_roles) if graph.declared_roles is None else graph.declared_roles


def has_optimizer(graph: Graph) -> bool:
    """Return whether any operator is a part of an optimizer."""
    return graph.once(_has_optimizer)


def _has_optimizer(graph: Graph) -> bool:
    return any(is_optimizer(node) for node in graph.operators)


def find_parameter_roles(graph: Graph) -> ParameterRoles:
    """Infer the roles of the parameters of a graph.

    In a graph without an optimizer (inference, or the forward part of a network in several graphs), weights are
    determined by name and use: parameters that have names such as ``weight``, ``bias`` or ``gamma``, and not those of
    states, count as trainable, since nothing indicates otherwise.
    """
    use = _use_of_parameters(graph)
    trainable, states = set(use.updated), use.states - use.updated
    names = {node.name for node in graph.parameters}
    # If the graph contains the network, the parameters that no layer reads are states, regardless of their names.
    in_network = [each for each in use.assigned if each[1] in use.forward and _in_optimizer_scope(each[0].scope)]
    for node, name in in_network or use.assigned:
        if name not in states and _assignment_trains(graph, node, name, forward=use.forward, names=names):
            trainable.add(name)
    has_optimizer = bool(trainable or use.touched)
    named = {name for name in names - trainable if _STATE_NAME.search(name)}
    passed_by = use.touched - trainable - (use.forward - named)
    states |= {name for name in passed_by if not _PASSED_NAME.search(name)}
    if has_optimizer:
        # An optimizer that is called as a function has no scope, so the network seems to read its counters.
        states |= named
    frozen = {name for name in names - trainable - states if _is_weight(graph, name, forward=use.forward)}
    if not has_optimizer:
        trainable, frozen = frozen, set()
    return ParameterRoles(frozenset(trainable), frozenset(states), frozenset(frozen))


class _ParameterUse(NamedTuple):
    """The reads and writes of the parameters of a graph, by name.

    Attributes
    ----------
    updated, states : set of str
        Parameters and states that operators update which are optimizers by their type.
    assigned : list of (Node, str)
        Assignments, and the parameters that they write.
    touched : set of str
        Inputs of any operator of an optimizer.
    forward : set of str
        Inputs of operators of the network.
    """

    updated: set[str]
    states: set[str]
    assigned: list[tuple[Node, str]]
    touched: set[str]
    forward: set[str]


def _use_of_parameters(graph: Graph) -> _ParameterUse:
    use = _ParameterUse(set(), set(), [], set(), set())
    for node in graph.operators:
        taken = dict(_parameter_inputs(graph, node))
        if not taken:
            continue
        if signature := _signature(graph, node, taken):
            use.updated.update(name for index, name in taken.items() if index in signature.variables)
            use.states.update(name for index, name in taken.items() if index in signature.states)
        elif node.type in _ASSIGNMENTS and 0 in taken:
            use.assigned.append((node, taken[0]))
        if is_optimizer(node):
            use.touched.update(taken.values())
        elif not is_gradient_scope(node.name) and not node.name.startswith("Expand/"):
            use.forward.update(taken.values())
    return use


def trainable_weights(graph: Graph) -> tuple[Node, ...]:
    """Return the parameters that an optimizer of the graph updates, in the order of the file.

    Moments, accumulators, step counters, learning rates and frozen weights (``requires_grad=False``) are not included.
    In a graph without an optimizer, names decide; see `find_parameter_roles`.
    """
    roles = parameter_roles(graph)
    return tuple(node for node in graph.parameters if node.name in roles.trainable)


def frozen_weights(graph: Graph) -> tuple[Node, ...]:
    """Return the weights that are never updated, in the order of the file."""
    roles = parameter_roles(graph)
    return tuple(node for node in graph.parameters if node.name in roles.frozen)


def optimizer_states(graph: Graph) -> tuple[Node, ...]:
    """Return the parameters that belong to the optimizer, in the order of the file."""
    roles = parameter_roles(graph)
    return tuple(node for node in graph.parameters if node.name in roles.states)


def trainable_weight_names(graphs: Iterable[Graph]) -> frozenset[str]:
    """Return the names of the weights that any of the graphs of one rank trains.

    A network in several graphs has its optimizer in only one of them. Declarations of the training process decide. If
    there are none, graphs with an optimizer do, so a parameter that only looks like a weight in another graph does not
    count.
    """
    graphs = tuple(graphs)
    deciding = [graph for graph in graphs if graph.declared_roles is not None]
    deciding = deciding or [graph for graph in graphs if has_optimizer(graph)]
    return frozenset().union(*(parameter_roles(graph).trainable for graph in deciding or graphs))


def _parameter_inputs(graph: Graph, node: Node) -> Iterator[tuple[int, str]]:
    """Yield index and name of the inputs of an operator that are parameters, or dtype or layout conversions of some."""
    if node.type in ("Load", "Depend", "UpdateState", "MakeTuple", "TupleGetItem", "Return"):
        return
    for index, producer in enumerate(graph.producers(node)):
        conversions = 0
        while producer is not None and plain_type(producer[0].type) in CONVERSIONS and conversions < 4:
            sources = graph.producers(producer[0])
            producer = sources[0] if sources else None
            conversions += 1
        if producer is not None and producer[0].is_parameter:
            yield index, producer[0].name


def _signature(graph: Graph, node: Node, taken: dict[int, str]) -> OptimizerSignature | None:
    """Return the signature of an operator; for unknown optimizers it is inferred from names and shapes."""
    signature = OPTIMIZER_SIGNATURES.get(node.type)
    if signature is not None or node.type in _ASSIGNMENTS or not _OPTIMIZER_TYPE.search(node.type):
        return signature
    if not _in_optimizer_scope(node.scope):
        return None
    candidates = [index for index, name in taken.items() if not _STATE_NAME.search(name) and _is_array(graph, name)]
    # Fusions named Combine… update many parameters at once; others update only the first one, before its states.
    return OptimizerSignature(tuple(candidates if node.type.startswith("Combine") else candidates[:1]))


def _assignment_trains(graph: Graph, node: Node, name: str, *, forward: set[str], names: set[str]) -> bool:
    """Whether a plain write to a parameter trains it."""
    if not _in_optimizer_scope(node.scope) or not _is_float(graph, name):
        return False
    if _STATE_NAME.search(name) or _RUNNING_NAME.search(name):
        return False
    # Optimizers name their states after the weight, with a prefix.
    is_copy = any(name[at + 1 :] in names for at, letter in enumerate(name) if letter == ".")
    return name in forward or not is_copy


def _is_weight(graph: Graph, name: str, *, forward: set[str]) -> bool:
    """Whether a parameter that no optimizer reads is a weight: by its name, or because a cell owns and uses it."""
    if _STATE_NAME.search(name) or _RUNNING_NAME.search(name) or not _is_float(graph, name):
        return False
    # The inputs of the network are parameters too; their names have no dots.
    return bool(_WEIGHT_NAME.search(name)) or ("." in name and name in forward)


@kept_if_short
def _in_optimizer_scope(scope: str) -> bool:
    return _OPTIMIZER_SCOPE.search(scope) is not None


def _is_float(graph: Graph, name: str) -> bool:
    return any("float" in slot.dtype for slot in graph.node(name).outputs)


def _is_array(graph: Graph, name: str) -> bool:
    return any(slot.shape != () for slot in graph.node(name).outputs)
