"""The graph of a step that msprobe dumped: its calls in the order in which they ended, connected by equal data.

msprobe does not record which call produced an input. An input is taken to be an earlier output if the two have the same
content in every dumped step of this sequence of calls; a constant may be equal by chance, so it counts only if it is
the only candidate. An input without such a source becomes an input of the step, so that no input is lost. The inputs of
a module include the outputs of the calls in it, from which its result is computed. The inputs of a backward pass
include the inputs and outputs of its forward pass, and so do those of the gradient of a parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from tensight.dumps.msprobe.entries import is_of_optimizer
from tensight.graph import Edge, Graph, Node, OutputSlot, ParameterRoles, data_type_number
from tensight.graph.data_types import DT_NONE
from tensight.graph.layer_node import READS_UNSEEN
from tensight.graph.ms_graph_pb2 import AttributeProto, ValueProto
from tensight.graph.node import CONSTANT, PARAMETER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tensight.dumps.msprobe.entries import Entry, ProbedTensor, StepRecord

ROOT = "Default"
GRADIENTS = "Gradients"
OPTIMIZER = "Optimizer"

_ACCUMULATE = "AccumulateGrad"

MAX_GRAPHS = 1_000
"""Maximum number of different sequences of calls that are read of a rank."""

_MOST_CANDIDATES = 64
"""Maximum number of sources with equal content that are considered for one input; the latest are used."""

# DataType numbers of `tensight.graph.data_types`.
_DT_INT64, _DT_FLOAT64, _DT_STRING, _DT_BOOL = 5, 12, 13, 1


class NodeSlot(NamedTuple):
    """A slot of a node that contains a tensor of an entry.

    Attributes
    ----------
    node : str
    io : {"input", "output"}
    slot : int
    type : str
        Type of the node.
    """

    node: str
    io: Literal["input", "output"]
    slot: int
    type: str


class TensorInSlot(NamedTuple):
    """A tensor and its slot."""

    node_slot: NodeSlot
    entry: Entry
    position: int
    tensor: ProbedTensor


class Names:
    """Names of the nodes of a rank, the same in all its steps and the same as those of Tensight's agents."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()

    def of(self, entry: Entry, scope: str, type_: str) -> str:
        """Return the name of the node of a forward or backward pass."""
        key = (entry.name, scope)
        name = self._names.get(key)
        if name is None:
            plain = f"{_part(type_)}-op{entry.call}"
            # Functional.relu and Torch.relu are counted separately, and so are primitives of one type but other names.
            candidates = (
                f"{scope}/{last_part}" for last_part in (plain, f"{_part(entry.kind)}.{plain}", _part(entry.name))
            )
            name = next((candidate for candidate in candidates if candidate not in self._taken), "")
            while not name or name in self._taken:
                name = f"{scope}/{_part(entry.name)}.{len(self._taken)}"
            self._taken.add(name)
            self._names[key] = name
        return name


@dataclass(frozen=True, slots=True)
class Program:
    """The graph of steps with the same calls.

    Attributes
    ----------
    graph : Graph
    iterations : tuple of int
    data : dict of str to (int, int)
        Inputs of the step that its first call reads: position of the entry and slot. Inputs of later calls may have
        been computed where msprobe records nothing.
    """

    graph: Graph
    iterations: tuple[int, ...]
    data: dict[str, tuple[int, int]]


def signature(step: StepRecord) -> tuple[object, ...]:
    """Return a key that is equal for steps with the same calls."""
    return tuple(
        (entry.name, len(entry.inputs), tuple(output is None for output in entry.outputs), tuple(entry.parameters))
        for entry in step.entries
    )


def build_program(steps: Mapping[int, StepRecord], number: int, names: Names) -> Program:
    """Build the graph of steps with the same calls.

    Parameters
    ----------
    steps : mapping of int to StepRecord
        Steps by iteration; at least one, all with the same `signature`.
    number : int
        Number of the graph.
    names : Names
    """
    first = next(iter(steps.values()))
    calls = _Calls(first, names)
    sources = _Sources([step.entries for step in steps.values()], calls)
    writer = _GraphWriter(calls, sources)
    nodes = writer.nodes()
    roles = _roles(calls) if first.framework == "torch" else None
    graph = Graph(f"graph_{number}", nodes, graph_id=number, root_id=number, declared_roles=roles)
    data = {name: (source.position, source.slot) for source, name in writer.data.items() if source.position == 0}
    return Program(graph, tuple(steps), data)


def tensors_in_slots(step: StepRecord, names: Names, program: Program) -> Iterator[TensorInSlot]:
    """Yield the tensors of a step with their slots in its graph, in the order of execution; each slot once."""
    calls = _Calls(step, names)
    seen: set[NodeSlot] = set()
    for name, (position, slot) in program.data.items():
        entry = step.entries[position]
        yield TensorInSlot(NodeSlot(name, "output", 0, PARAMETER), entry, position, entry.inputs[slot])
    for position, entry in enumerate(step.entries):
        node, type_ = calls.nodes[position], calls.types[position]
        tensors: list[tuple[NodeSlot, ProbedTensor]] = []
        if entry.phase == "parameters_grad":
            for parameter, tensor in entry.parameters.items():
                tensors.append((NodeSlot(gradient_name(entry, parameter), "output", 0, _ACCUMULATE), tensor))
        else:
            tensors += [(NodeSlot(node, "input", slot, type_), tensor) for slot, tensor in enumerate(entry.inputs)]
            tensors += [
                (NodeSlot(node, "output", slot, type_), tensor)
                for slot, tensor in enumerate(entry.outputs)
                if tensor is not None
            ]
            for parameter, tensor in entry.parameters.items():
                tensors.append((NodeSlot(parameter_name(entry, parameter), "output", 0, PARAMETER), tensor))
        for node_slot, tensor in tensors:
            if node_slot not in seen:
                seen.add(node_slot)
                yield TensorInSlot(node_slot, entry, position, tensor)


def parameter_name(entry: Entry, parameter: str) -> str:
    """Return the name of a parameter of a module."""
    return f"{entry.path}.{parameter}" if entry.path else parameter


def gradient_name(entry: Entry, parameter: str) -> str:
    """Return the name of the node of a parameter's gradient."""
    path = "/".join(map(_part, parameter_name(entry, parameter).split(".")))
    return f"{GRADIENTS}/{ROOT}/{path}/{_ACCUMULATE}-op{entry.call}"


def _part(text: str) -> str:
    """Return a text that is valid as a part of a name."""
    return text.replace("/", "_") or "_"


class _Calls:
    """Names, types and nesting of the calls of a step.

    Attributes
    ----------
    entries : sequence of Entry
    at : dict of str to int
        Position of an entry by its name.
    nodes, types, scopes : list of str
        Name, type and scope of the node of each entry.
    """

    def __init__(self, step: StepRecord, names: Names) -> None:
        self.entries = step.entries
        self.at = {entry.name: position for position, entry in enumerate(step.entries)}
        self._parents = step.parents
        self._stacks = step.stacks
        self.scopes = [self._scope(entry) for entry in step.entries]
        self.types = [entry.type if entry.phase == "forward" else f"{entry.type}Grad" for entry in step.entries]
        self.nodes = [""] * len(step.entries)
        # Modules get their names first: they are recorded at every level, functions not at level L0.
        for is_module in (True, False):
            for position, entry in enumerate(step.entries):
                if entry.is_module == is_module and entry.phase != "parameters_grad":
                    self.nodes[position] = names.of(entry, self.scopes[position], self.types[position])

    def parent(self, entry: Entry) -> Entry | None:
        """Return the entry of the module in whose call an entry ran."""
        position = self.at.get(self._parents.get(entry.name, ""))
        return None if position is None else self.entries[position]

    def forward(self, entry: Entry) -> int | None:
        """Return the position of the forward pass of a backward pass."""
        return self.at.get(entry.forward_name) if entry.phase == "backward" else None

    def stack(self, entry: Entry) -> tuple[str, ...]:
        """Return the lines of code of an entry; msprobe records those of forward passes only."""
        return self._stacks.get(entry.name) or self._stacks.get(entry.forward_name, ())

    def enclosing(self, entry: Entry) -> Iterator[Entry]:
        """Yield the modules in whose calls an entry ran, the innermost first."""
        seen = {entry.name}
        inside = self.parent(entry)
        while inside is not None and inside.name not in seen:
            seen.add(inside.name)
            yield inside
            inside = self.parent(inside)

    def _scope(self, entry: Entry) -> str:
        prefix = ROOT if entry.phase == "forward" else f"{GRADIENTS}/{ROOT}"
        if entry.is_module:
            return "/".join((prefix, *map(_part, entry.path.split(".")))) if entry.path else prefix
        forward = entry if entry.phase == "forward" else self._forward_entry(entry)
        if self._is_optimizing(entry):
            return OPTIMIZER
        inside = next((module for module in self.enclosing(forward) if module.is_module), None)
        return prefix if inside is None or not inside.path else "/".join((prefix, *map(_part, inside.path.split("."))))

    def _forward_entry(self, entry: Entry) -> Entry:
        position = self.at.get(entry.forward_name)
        return entry if position is None else self.entries[position]

    def _is_optimizing(self, entry: Entry) -> bool:
        if entry.phase != "forward":
            return False
        stack = self._stacks.get(entry.name, ())
        if stack:
            return is_of_optimizer(stack)
        return self._parents.get(entry.name) == "optimizer"


class Source(NamedTuple):
    """A tensor of a step that calls may read.

    Attributes
    ----------
    kind : {"output", "parameter", "gradient", "data"}
        An output of an entry, a parameter of a module, a parameter's gradient, or an input of an entry without another
        source.
    position : int
        Position of the entry.
    slot : int
        Slot of the output or the input.
    name : str
        Name of the parameter.
    """

    kind: Literal["output", "parameter", "gradient", "data"]
    position: int
    slot: int = 0
    name: str = ""


class _Sources:
    """The sources of the inputs of all calls, as far as equal content shows them.

    Parameters
    ----------
    steps : sequence of sequences of Entry
        The same calls in several steps; content that is equal in only some of them is equal by chance.
    calls : _Calls

    Attributes
    ----------
    of_inputs : dict of (int, int) to Source
        By position of the entry and slot.
    of_gradients : dict of (int, str) to Source
        By position of the entry and name of the parameter; gradients without a known source are left out.
    data : list of Source
        Inputs of the step, in the order in which they are read.
    """

    def __init__(self, steps: Sequence[Sequence[Entry]], calls: _Calls) -> None:
        self._steps = steps
        self._calls = calls
        self.of_inputs: dict[tuple[int, int], Source] = {}
        self.of_gradients: dict[tuple[int, str], Source] = {}
        self.data: list[Source] = []
        self._by_content: dict[object, list[Source]] = {}
        self._find_parameters()
        for position, entry in enumerate(steps[0]):
            if entry.phase == "parameters_grad":
                self._find_gradients(position, entry)
                continue
            for slot in range(len(entry.inputs)):
                self.of_inputs[position, slot] = self._of_input(position, slot)
            for slot, output in enumerate(entry.outputs):
                if output is not None:
                    self._add(Source("output", position, slot))

    def tensors(self, source: Source) -> list[ProbedTensor]:
        """Return a tensor in each of the steps."""
        return [_tensor(entries[source.position], source) for entries in self._steps]

    def _find_parameters(self) -> None:
        seen: set[str] = set()
        for position, entry in enumerate(self._steps[0]):
            for name in entry.parameters if entry.phase == "forward" else ():
                full = parameter_name(entry, name)
                if full not in seen:
                    seen.add(full)
                    self._add(Source("parameter", position, 0, name))

    def _find_gradients(self, position: int, entry: Entry) -> None:
        for name in entry.parameters:
            gradient = Source("gradient", position, 0, name)
            tensors = self.tensors(gradient)
            source = self._chosen(
                entry, tensors, [candidate for candidate in self._equal(tensors) if candidate.kind == "output"]
            )
            if source is not None:
                self.of_gradients[position, name] = source
            self._add(gradient)

    def _add(self, source: Source) -> None:
        content = _tensor(self._steps[0][source.position], source).content
        if content is not None:
            self._by_content.setdefault(content, []).append(source)

    def _of_input(self, position: int, slot: int) -> Source:
        step_input = Source("data", position, slot)
        tensors = self.tensors(step_input)
        source = self._chosen(self._steps[0][position], tensors, self._equal(tensors))
        if source is None:
            source = step_input
            self.data.append(step_input)
            self._add(step_input)
        return source

    def _equal(self, tensors: Sequence[ProbedTensor]) -> list[Source]:
        """Return the sources with the same content in all steps, in the order in which they were added."""
        content = tensors[0].content
        if content is None:
            return []
        return [
            source
            for source in self._by_content.get(content, ())[-_MOST_CANDIDATES:]
            if all(
                candidate.content == other.content
                for candidate, other in zip(self.tensors(source), tensors, strict=True)
            )
        ]

    def _chosen(self, entry: Entry, tensors: Sequence[ProbedTensor], equal: Sequence[Source]) -> Source | None:
        """Return which of several tensors with the same content was read; None if it cannot be decided."""
        is_telling = any(tensor.is_telling for tensor in tensors)
        if not is_telling:
            if not (tensors[0].checksum or tensors[0].is_real_float):
                return None
            equal = [source for source in equal if self.tensors(source)[0].shape == tensors[0].shape]
        modules = {module.name for module in self._calls.enclosing(entry)}
        parameters = [source for source in equal if source.kind == "parameter" and self._entry(source).name in modules]
        if parameters:
            return parameters[0]
        by_kind = {
            kind: [source for source in equal if source.kind == kind]
            for kind in ("output", "gradient", "parameter", "data")
        }
        computed = sorted(by_kind["output"] + by_kind["gradient"])
        if is_telling or any("nan" in map(repr, tensor.measures.values()) for tensor in tensors):
            latest = max(
                computed, key=lambda source: (self._same_bytes(source, tensors), source.position), default=None
            )
            return latest or next(iter((*by_kind["parameter"], *reversed(by_kind["data"]))), None)
        several = [*self._outermost(computed), *by_kind["parameter"], *by_kind["data"]]
        return several[0] if len(several) == 1 else None

    def _same_bytes(self, source: Source, tensors: Sequence[ProbedTensor]) -> bool:
        return all(
            candidate.checksum == other.checksum for candidate, other in zip(self.tensors(source), tensors, strict=True)
        )

    def _outermost(self, sources: Sequence[Source]) -> list[Source]:
        """Leave out outputs of modules that only pass through an output of a call inside them."""
        modules = {self._entry(source).name for source in sources}
        return [
            source
            for source in sources
            if not any(module.name in modules for module in self._calls.enclosing(self._entry(source)))
        ]

    def _entry(self, source: Source) -> Entry:
        return self._steps[0][source.position]


def _tensor(entry: Entry, source: Source) -> ProbedTensor:
    if source.kind == "data":
        return entry.inputs[source.slot]
    output = entry.outputs[source.slot] if source.kind == "output" else None
    return entry.parameters[source.name] if output is None else output


class _GraphWriter:
    """Write the nodes of a graph.

    Parameters
    ----------
    calls : _Calls
    sources : _Sources

    Attributes
    ----------
    data : dict of Source to str
        Names of the inputs of the step.
    """

    def __init__(self, calls: _Calls, sources: _Sources) -> None:
        self._calls = calls
        self._sources = sources
        self._operators: list[Node] = []
        self._constants: dict[int, Node] = {}
        self._items: dict[tuple[str, int], str] = {}
        self.data = {source: f"input_{number}" for number, source in enumerate(sources.data, 1)}
        self._children: dict[str, list[int]] = {}
        self._of_module: dict[tuple[str, str], list[int]] = {}
        for position, entry in enumerate(calls.entries):
            if entry.is_module:
                self._of_module.setdefault((entry.path, entry.type), []).append(position)
            parent = calls.parent(entry)
            if parent is not None and entry.phase == parent.phase:
                self._children.setdefault(parent.name, []).append(position)

    def nodes(self) -> list[Node]:
        """Return parameters, constants and operators, in this order."""
        parameters = self._parameters()
        for position, entry in enumerate(self._calls.entries):
            if entry.phase == "parameters_grad":
                self._add_gradients(position, entry)
            else:
                self._add_call(position, entry)
        return [*parameters, *self._constants.values(), *self._operators]

    def _parameters(self) -> list[Node]:
        nodes: dict[str, Node] = {}
        for entry in self._calls.entries:
            for name, tensor in entry.parameters.items() if entry.phase == "forward" else ():
                full = parameter_name(entry, name)
                nodes.setdefault(full, Node(full, PARAMETER, id=full, full_name=full, outputs=(_slot(tensor),)))
        for source, name in self.data.items():
            outputs = (_slot(self._sources.tensors(source)[0]),)
            # Inputs of later calls may have been computed where msprobe records nothing.
            settings = {READS_UNSEEN: True} if source.position else {}
            nodes[name] = Node(
                name,
                PARAMETER,
                id=name,
                full_name=name,
                outputs=outputs,
                stack=self._calls.stack(self._calls.entries[source.position]),
                raw_attributes=_attributes(settings),
            )
        return list(nodes.values())

    def _add_call(self, position: int, entry: Entry) -> None:
        calls = self._calls
        edges = [self._reference(self._sources.of_inputs[position, slot]) for slot in range(len(entry.inputs))]
        extra: list[str] = []
        if entry.phase == "forward":
            extra += [parameter_name(entry, name) for name in entry.parameters]
        forward = calls.forward(entry)
        if forward is not None and forward < position:
            first = calls.entries[forward]
            extra += [self._reference(self._sources.of_inputs[forward, slot]) for slot in range(len(first.inputs))]
            extra += self._outputs(forward)
        for child in self._children.get(entry.name, ()):
            if child < position:
                extra += self._outputs(child)
        node = calls.nodes[position]
        edges += [reference for reference in dict.fromkeys(extra) if reference not in edges]
        self._operators.append(
            Node(
                node,
                calls.types[position],
                scope=node.rpartition("/")[0],
                id=str(len(self._operators) + 1),
                full_name=entry.name,
                inputs=tuple(map(Edge, edges)),
                outputs=tuple(map(_slot, entry.outputs)),
                stack=calls.stack(entry),
                raw_attributes=_attributes(entry.settings),
            )
        )

    def _outputs(self, position: int) -> list[str]:
        outputs = self._calls.entries[position].outputs
        return [
            self._reference(Source("output", position, slot))
            for slot, output in enumerate(outputs)
            if output is not None
        ]

    def _add_gradients(self, position: int, entry: Entry) -> None:
        for name, tensor in entry.parameters.items():
            node = gradient_name(entry, name)
            source = self._sources.of_gradients.get((position, name))
            computed_from = self._gradient_inputs(position, entry) if source is None else [self._reference(source)]
            self._operators.append(
                Node(
                    node,
                    _ACCUMULATE,
                    scope=node.rpartition("/")[0],
                    id=str(len(self._operators) + 1),
                    full_name=f"{entry.name}.{name}",
                    inputs=tuple(map(Edge, computed_from)),
                    outputs=(_slot(tensor),),
                    stack=self._calls.stack(entry),
                )
            )

    def _gradient_inputs(self, position: int, entry: Entry) -> list[str]:
        """Return the inputs of a gradient that is no call's output: what its module reads in both passes."""
        references: dict[str, None] = {}
        for other in self._of_module[entry.path, entry.type]:
            for slot in range(len(self._calls.entries[other].inputs)):
                source = self._sources.of_inputs[other, slot]
                if source.position < position or source.kind == "data":
                    references[self._reference(source)] = None
        return list(references)

    def _reference(self, source: Source) -> str:
        """Return the name of the node of a tensor."""
        if source.kind == "data":
            return self.data[source]
        entry = self._calls.entries[source.position]
        if source.kind == "parameter":
            return parameter_name(entry, source.name)
        if source.kind == "gradient":
            return gradient_name(entry, source.name)
        node = self._calls.nodes[source.position]
        return node if len(entry.outputs) == 1 else self._item(node, source.slot)

    def _item(self, node: str, slot: int) -> str:
        """Return the name of the node that takes one output out of several."""
        name = self._items.get((node, slot))
        if name is None:
            number = len(self._items) + 1
            scope = node.rpartition("/")[0]
            name = self._items[node, slot] = f"{scope}/TupleGetItem-op{number}"
            index = self._constant(slot)
            self._operators.append(
                Node(
                    name,
                    "TupleGetItem",
                    scope=scope,
                    id=str(len(self._operators) + 1),
                    full_name=name,
                    inputs=(Edge(node), Edge(index)),
                )
            )
        return name

    def _constant(self, number: int) -> str:
        if number not in self._constants:
            name = f"{ROOT}--data-{number + 1}"
            value = ValueProto(dtype=_DT_INT64, int_val=number).SerializeToString()
            self._constants[number] = Node(name, CONSTANT, id=f"cst{number + 1}", full_name=name, raw_value=value)
        return self._constants[number].name


def _roles(calls: _Calls) -> ParameterRoles:
    """Return which parameters are trained: those that require a gradient."""
    trainable: set[str] = set()
    frozen: set[str] = set()
    for entry in calls.entries:
        for name, tensor in entry.parameters.items() if entry.phase == "forward" else ():
            (trainable if tensor.requires_grad else frozen).add(parameter_name(entry, name))
    return ParameterRoles(frozenset(trainable), frozenset(), frozenset(frozen - trainable))


def _slot(tensor: ProbedTensor | None) -> OutputSlot:
    if tensor is None:
        return OutputSlot(DT_NONE, "", None)
    return OutputSlot.of_tensor(data_type_number(f"DT_{tensor.dtype.upper()}") or 0, tensor.shape)


def _attributes(settings: Mapping[str, str | int | float | bool]) -> tuple[bytes, ...]:
    return tuple(
        AttributeProto(name=name.encode(), value=_value(value)).SerializeToString() for name, value in settings.items()
    )


def _value(value: str | float | bool) -> ValueProto:
    if isinstance(value, bool):
        return ValueProto(dtype=_DT_BOOL, bool_val=value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return ValueProto(dtype=_DT_INT64, int_val=value)
    if isinstance(value, int):
        return ValueProto(dtype=_DT_STRING, str_val=str(value)[:200].encode())
    if isinstance(value, float):
        return ValueProto(dtype=_DT_FLOAT64, double_val=value)
    return ValueProto(dtype=_DT_STRING, str_val=value.encode())
