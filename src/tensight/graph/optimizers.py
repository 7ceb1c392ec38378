"""Which parameters of a graph are trained, and which belong to the optimizer.

Names do not tell: a weight may be called anything, and a moment is called ``moments.conv1.weight``. What an operator of
an optimizer writes to does. Positions of the inputs are those of MindSpore's operators of the same name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tensight.graph.declared import ParameterRoles
from tensight.graph.operator_facts import CONVERSIONS, plain_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tensight.graph.model import Graph
    from tensight.graph.node import Node


@dataclass(frozen=True, slots=True)
class OptimizerSignature:
    """Where an optimizer's operator takes what it updates.

    Attributes
    ----------
    variables : tuple of int
        Indices of the inputs that are trained parameters; empty when the operator updates only states.
    states : tuple of int
        Indices of the inputs that are the optimizer's own: moments, accumulators.
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
    # Fusions for GPU and Ascend put what scales the gradient, or the gradient itself, before the variable.
    **_signatures(1, (2,), "FusedScaleApplyMomentum FusedWeightApplyMomentum"),
    **_signatures(2, (3,), "FusedWeightScaleApplyMomentum"),
    **_signatures(6, (7, 8), "FusedAdam FusedAdamWeightDecay"),
    **_signatures(3, (1, 2), "AdamApplyOneAssign AdamApplyOneWithDecayAssign LambApplyOptimizerAssign"),
    **_signatures(4, (), "LambApplyWeightAssign"),
}

# Plain writes. They train a weight when an optimizer makes them (Lamb, Thor, optimizers of one's own).
_ASSIGNMENTS = frozenset({"Assign", "AssignAdd", "AssignSub"})
_OPTIMIZER_SCOPE = re.compile(r"(^|/)([^/]*[-_])?optim(izer)?([-_][^/]*)?(/|$)", re.IGNORECASE)
_OPTIMIZER_TYPE = re.compile(r"^(Fused|Sparse|Combine)*Apply[A-Z]|Adam|Lamb|Lars|Momentum|Ftrl|RMSProp|Adagrad")
# Between the parameter and the operator stand, on some devices, conversions of type or layout.
_STATE_NAME = re.compile(
    r"^(moments?\d?|accum\w*|momentum|velocity|mean_gradient|mean_square|mean_grads|vhats?|adam_[mv]|lamb_[mv])\."
    r"|(^|[._])(learning_rate|lr|global_step|momentum|beta[12]?_power|loss_scale|scale_sense|current_iterator_step"
    r"|last_overflow_iterator_step|moment\d?|exp_avg(_sq)?|velocity)$"
)
# What BatchNorm gathers; written at each step, but not trained.
_RUNNING_NAME = re.compile(r"(^|\.)((moving|running)_(mean|var|variance)|num_batches_tracked)$")
# What another graph hands to this one.
_PASSED_NAME = re.compile(r"^(\[Parameter\]\d+$|Parameter_\d+$|equiv_\d+_|▸?ф)")
_WEIGHT_NAME = re.compile(r"(^|[._])(weight|bias|gamma|beta|embedding_table|embeddings?|kernel)(_\w+)?\d*$")


def is_optimizer(node: Node) -> bool:
    """Whether an operator is a part of an optimizer, by its type or by the scope it is in."""
    return node.is_operator and is_of_optimizer(node.type, node.scope)


def is_of_optimizer(kind: str, scope: str) -> bool:
    """Tell the same of an operator's type and scope."""
    return kind in OPTIMIZER_SIGNATURES or _in_optimizer_scope(scope)


def is_gathered(name: str) -> bool:
    """Whether a parameter is what normalization gathers as the training runs: running means and variances."""
    return _RUNNING_NAME.search(name) is not None


def is_gradient_scope(name: str) -> bool:
    """Whether a full name or scope is that of the backward pass, in either generation of names."""
    lower = name.lower()
    return lower == "gradients" or lower.startswith("gradients/")


def is_after_forward(name: str) -> bool:
    """Whether the full name of an operator is that of one of the backward pass, or of an optimizer."""
    return is_gradient_scope(name) or _in_optimizer_scope(name.rpartition("/")[0])


def parameter_roles(graph: Graph) -> ParameterRoles:
    """Return which parameters are trained, which are frozen, and which belong to the optimizer.

    Parameters
    ----------
    graph : Graph
        What its process declared counts; without, it is found out once.
    """
    return graph.once(find_parameter_roles) if graph.declared_roles is None else graph.declared_roles


def has_optimizer(graph: Graph) -> bool:
    """Return whether any operator is a part of an optimizer."""
    return graph.once(_has_optimizer)


def _has_optimizer(graph: Graph) -> bool:
    return any(is_optimizer(node) for node in graph.operators)


def find_parameter_roles(graph: Graph) -> ParameterRoles:
    """Find out what the parameters of a graph are for.

    A graph without any optimizer (inference, or the forward part of a network in several graphs) gets its weights by
    name and use: what looks like no state and is called ``weight``, ``bias``, ``gamma``, … counts as trainable, since
    nothing says otherwise.
    """
    use = _use_of_parameters(graph)
    trainable, states = set(use.updated), use.states - use.updated
    names = {node.name for node in graph.parameters}
    # Where the graph has the network too, its optimizer's states are what no layer reads, whatever they are called.
    in_network = [each for each in use.assigned if each[1] in use.forward and _in_optimizer_scope(each[0].scope)]
    for node, name in in_network or use.assigned:
        if name not in states and _assignment_trains(graph, node, name, forward=use.forward, names=names):
            trainable.add(name)
    has_optimizer = bool(trainable or use.touched)
    named = {name for name in names - trainable if _STATE_NAME.search(name)}
    passed_by = use.touched - trainable - (use.forward - named)
    states |= {name for name in passed_by if not _PASSED_NAME.search(name)}
    if has_optimizer:
        # An optimizer that is called as a function has no scope, so that its counters seem to be read by the network.
        states |= named
    frozen = {name for name in names - trainable - states if _is_weight(graph, name, forward=use.forward)}
    if not has_optimizer:
        trainable, frozen = frozen, set()
    return ParameterRoles(frozenset(trainable), frozenset(states), frozenset(frozen))


class _ParameterUse(NamedTuple):
    """Who reads and writes the parameters of a graph, by name.

    Attributes
    ----------
    updated, states : set of str
        What operators that are optimizers by their type update, and what they keep beside it.
    assigned : list of (Node, str)
        Assignments, and what they assign to.
    touched : set of str
        What any operator of an optimizer takes.
    forward : set of str
        What the network takes.
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

    Moments, accumulators, step counters and learning rates are none, and neither is a weight that was frozen
    (``requires_grad=False``). In a graph without an optimizer what is called like a weight counts; see
    `find_parameter_roles`.
    """
    roles = parameter_roles(graph)
    return tuple(node for node in graph.parameters if node.name in roles.trainable)


def frozen_weights(graph: Graph) -> tuple[Node, ...]:
    """Return the weights that nothing updates, in the order of the file."""
    roles = parameter_roles(graph)
    return tuple(node for node in graph.parameters if node.name in roles.frozen)


def optimizer_states(graph: Graph) -> tuple[Node, ...]:
    """Return the parameters that belong to the optimizer, in the order of the file."""
    roles = parameter_roles(graph)
    return tuple(node for node in graph.parameters if node.name in roles.states)


def trainable_weight_names(graphs: Iterable[Graph]) -> frozenset[str]:
    """Return the names of the weights that any of the graphs of one rank trains.

    A network in several graphs has its optimizer in one of them only. What the training process declared decides; if it
    declared nothing and one of the graphs has an optimizer, that graph does: a parameter that only looks like a weight
    in another one does not count.
    """
    graphs = tuple(graphs)
    deciding = [graph for graph in graphs if graph.declared_roles is not None]
    deciding = deciding or [graph for graph in graphs if has_optimizer(graph)]
    return frozenset().union(*(parameter_roles(graph).trainable for graph in deciding or graphs))


def _parameter_inputs(graph: Graph, node: Node) -> Iterator[tuple[int, str]]:
    """Go through the inputs of an operator that are parameters: (index, name)."""
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
    """Return the signature of an operator; that of an unknown optimizer is inferred from names and shapes."""
    known = OPTIMIZER_SIGNATURES.get(node.type)
    if known is not None or node.type in _ASSIGNMENTS or not _OPTIMIZER_TYPE.search(node.type):
        return known
    if not _in_optimizer_scope(node.scope):
        return None
    candidates = [index for index, name in taken.items() if not _STATE_NAME.search(name) and _is_array(graph, name)]
    # Fusions called Combine… update many parameters at once, all others one, which comes before its states.
    return OptimizerSignature(tuple(candidates if node.type.startswith("Combine") else candidates[:1]))


def _assignment_trains(graph: Graph, node: Node, name: str, *, forward: set[str], names: set[str]) -> bool:
    """Whether a plain write to a parameter trains it."""
    if not _in_optimizer_scope(node.scope) or not _is_float(graph, name):
        return False
    if _STATE_NAME.search(name) or _RUNNING_NAME.search(name):
        return False
    # Optimizers keep their states under the weight's name with something before it.
    is_copy = any(name[at + 1 :] in names for at, letter in enumerate(name) if letter == ".")
    return name in forward or not is_copy


def _is_weight(graph: Graph, name: str, *, forward: set[str]) -> bool:
    """Whether a parameter that no optimizer touches is a weight: by its name, or because a cell owns and uses it."""
    if _STATE_NAME.search(name) or _RUNNING_NAME.search(name) or not _is_float(graph, name):
        return False
    # The inputs of the network are parameters too; their names have no dots.
    return bool(_WEIGHT_NAME.search(name)) or ("." in name and name in forward)


@lru_cache(maxsize=4096)
def _in_optimizer_scope(scope: str) -> bool:
    return _OPTIMIZER_SCOPE.search(scope) is not None


def _is_float(graph: Graph, name: str) -> bool:
    return any("float" in slot.dtype for slot in graph.node(name).outputs)


def _is_array(graph: Graph, name: str) -> bool:
    return any(slot.shape != () for slot in graph.node(name).outputs)
