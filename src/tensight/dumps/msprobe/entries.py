"""Read msprobe's JSON files: the calls of one step and their tensors, with bounds on all sizes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from tensight.errors import DumpError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_JSON_BYTES = 256 * 2**20
"""A step of a large model has some 100,000 tensors, at 300 bytes each."""

BEGINNING_BYTES = 4_096
"""Bytes of ``dump.json`` to read for its settings, which precede the calls."""

MAX_TENSORS = 1_000_000
"""Maximum number of tensors that are read of one rank and step."""

MAX_NESTING = 32
"""Maximum nesting depth of tuples and dictionaries of arguments."""

MAX_NAME = 1_024
MAX_STACK_FRAMES = 512
_MAX_DIMENSIONS = 64
_MAX_COUNT = 2**53

_MODULE = re.compile(
    r"(?:Module|Cell)\.(?P<path>.+)\.(?P<pass>forward|backward|parameters_grad)(?:\.(?P<call>\d{1,9}))?"
)
_FUNCTION = re.compile(r"(?P<kind>[^.]+)\.(?P<type>.+)\.(?P<call>\d{1,9})\.(?P<pass>forward|backward)")
_FRAME = re.compile(r"File (?P<file>.+?), line (?P<line>\d{1,9}), in (?P<function>.*?),\s*(?P<code>.*)", re.DOTALL)
_OPTIMIZER_FILE = re.compile(r"[/\\](?:torch[/\\]optim|mindspore[/\\](?:nn|experimental)[/\\]optim)[/\\]")
_ABOUT = re.compile(rb'"(task|level|framework)"\s*:\s*"([A-Za-z0-9_ -]{1,40})"')
_STATISTICS = {"Max": "max", "Min": "min", "Mean": "avg", "Norm": "l2norm"}

Phase = Literal["forward", "backward", "parameters_grad"]


@dataclass(frozen=True, slots=True)
class ProbedTensor:
    """An input or output tensor of a call.

    Attributes
    ----------
    label : str
        Position in the call: ``input 0``, ``output 1``, the name of a parameter.
    dtype : str
        NumPy's name, such as ``float32``, or ``bfloat16``.
    shape : tuple of int
    measures : mapping of str to float
        Statistics that msprobe computed, if they are numbers: "max", "min", "avg", "l2norm".
    checksum : str
        Checksum of its bytes; empty if none was taken.
    file : str
        Name of the file with the values; empty if there is none.
    requires_grad : bool or None
        None if msprobe did not record it.
    """

    label: str
    dtype: str
    shape: tuple[int, ...]
    measures: Mapping[str, float]
    checksum: str
    file: str
    requires_grad: bool | None

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Size of all elements; 0 if the element type is unknown."""
        bits = 8 if self.dtype == "bool" else next(map(int, re.findall(r"\d+", self.dtype)), 0)
        return self.count * bits // 8

    @property
    def is_real_float(self) -> bool:
        """Whether its elements are real floating-point numbers."""
        return "float" in self.dtype

    @property
    def content(self) -> tuple[object, ...] | None:
        """A key that is equal for tensors with equal elements; None if too little was recorded to compare them.

        Checksums are used only if there are no statistics, or if the statistics tell nothing: checksums differ if the
        elements are in another order, and msprobe may take them after an in-place call has written to the tensor.
        """
        if not self.count or not (self.measures or self.checksum):
            return None
        # NaN is not equal to itself.
        numbers = tuple(repr(self.measures.get(name)) for name in _STATISTICS.values())
        needs_checksum = not (self.is_real_float and self.measures and self._varies)
        return self.dtype, self.count, self.checksum if needs_checksum else "", numbers

    @property
    def _varies(self) -> bool:
        return self.measures.get("max") != self.measures.get("min")

    @property
    def is_telling(self) -> bool:
        """Whether equal content means equal elements, rather than two constants or two integer tensors of one range."""
        if self.measures and not self._varies:
            return False
        return bool(self.checksum) or self.is_real_float


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of ``dump.json``: the forward or backward pass of a call, or the gradients of a module's parameters.

    Attributes
    ----------
    name : str
        msprobe's name, ``Module.conv1.Conv2d.forward.0`` or ``Functional.relu.0.backward``.
    is_module : bool
        Whether a module (MindSpore: a cell) was called, not a function.
    kind : str
        First part of the name: ``Module``, ``Functional``, ``Torch``, ``Tensor``, …
    path : str
        Path of a module in its model: ``layer1.0.conv``; empty for the model itself.
    type : str
        Class of a module, name of a function.
    call : int
        Number of the call in the step, from 0.
    phase : {"forward", "backward", "parameters_grad"}
    inputs : tuple of ProbedTensor
        Tensors among the arguments; of a backward pass the incoming gradients.
    outputs : tuple of ProbedTensor or None
        Results; of a backward pass the gradients that it computed, None for an input without a gradient.
    parameters : mapping of str to ProbedTensor
        Parameters of a module by name; in an entry of gradients, their gradients.
    settings : mapping of str to value
        Arguments that are numbers, strings or bools, by keyword or position.
    """

    name: str
    is_module: bool
    kind: str
    path: str
    type: str
    call: int
    phase: Phase
    inputs: tuple[ProbedTensor, ...] = ()
    outputs: tuple[ProbedTensor | None, ...] = ()
    parameters: Mapping[str, ProbedTensor] = field(default_factory=lambda: MappingProxyType({}))
    settings: Mapping[str, str | int | float | bool] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def forward_name(self) -> str:
        """The name of the entry of the forward pass."""
        if self.phase == "forward":
            return self.name
        if self.is_module:
            inner = f"{self.path}.{self.type}" if self.path else self.type
            return f"{self.kind}.{inner}.forward.{self.call}"
        return f"{self.name.removesuffix('backward')}forward"


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The record of one step of a rank.

    Attributes
    ----------
    framework : str
        ``torch`` or ``mindspore``.
    task : str
        ``tensor``, ``statistics``, …
    level : str
        ``L0``, ``L1``, ``mix``, …
    entries : tuple of Entry
        In the order in which the calls ended.
    parents : mapping of str to str
        Name of the module's entry in which an entry ran; ``optimizer`` for calls by an optimizer.
    stacks : mapping of str to tuple of str
        Lines of code by the name of an entry, innermost first, in the format of MindSpore's graphs.
    """

    framework: str
    task: str
    level: str
    entries: tuple[Entry, ...]
    parents: Mapping[str, str]
    stacks: Mapping[str, tuple[str, ...]]


def read_step(dump: bytes, construct: bytes, stack: bytes, where: str, problems: list[Problem]) -> StepRecord:
    """Read the three files of a step.

    Parameters
    ----------
    dump, construct, stack : bytes
        Contents of ``dump.json``, ``construct.json``, ``stack.json``; the last two may be empty.
    where : str
        The folder, for messages.
    problems : list of Problem
        Unusable parts are appended.

    Raises
    ------
    DumpError
        ``dump.json`` cannot be used at all.
    """
    try:
        top = _parsed(dump)
    except ValueError as error:
        raise DumpError(f"{where}/dump.json: {error}.") from None
    data = top.get("data")
    if not isinstance(data, dict):
        raise DumpError(f"{where}/dump.json: has no object 'data'; it is not an msprobe dump.")
    framework = str(top.get("framework") or "pytorch").lower()
    is_torch = framework != "mindspore"
    reader = _EntryReader(is_torch)
    entries = tuple(entry for name, content in data.items() if (entry := reader.entry(name, content)) is not None)
    problems.extend(reader.problems(f"{where}/dump.json"))
    parents = _texts(_quietly(construct, f"{where}/construct.json", problems))
    stacks = _stacks(_quietly(stack, f"{where}/stack.json", problems))
    task, level = (_text(top.get(name), 40) for name in ("task", "level"))
    return StepRecord("torch" if is_torch else "mindspore", task, level, entries, parents, stacks)


def read_beginning(text: bytes) -> dict[str, str]:
    """Return the settings in the first bytes of ``dump.json``: "task", "level", "framework"."""
    before = text.partition(b'"data"')[0]
    return {match[1].decode(): match[2].decode().lower() for match in _ABOUT.finditer(before)}


def printable_text(text: str) -> str:
    """Return a text from an untrusted file with unprintable characters escaped."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class _EntryReader:
    """Read entries of ``dump.json``, and count those that cannot be read.

    Parameters
    ----------
    is_torch : bool
        Whether PyTorch's tensors were dumped, not MindSpore's.
    """

    def __init__(self, is_torch: bool) -> None:
        self._is_torch = is_torch
        self._tensors = 0
        self._unknown: list[str] = []
        self._damaged: list[str] = []

    def problems(self, where: str) -> Iterator[Problem]:
        for names, what in ((self._unknown, "have names of an unknown form"), (self._damaged, "are damaged")):
            if names:
                shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
                yield Problem(where, f"{len(names)} entries {what}: {shown}", "they are left out")
        if self._tensors > MAX_TENSORS:
            yield Problem(where, f"more than {MAX_TENSORS:,} tensors", "the others are not used")

    def entry(self, raw_name: str, content: object) -> Entry | None:
        name = _text(raw_name, MAX_NAME)
        named = _named(name)
        if named is None:
            self._unknown.append(name[:80])
            return None
        if not isinstance(content, dict):
            self._damaged.append(name[:80])
            return None
        kind, path, type_, call, phase = named
        settings: dict[str, str | int | float | bool] = {}
        inputs: list[ProbedTensor] = []
        outputs: list[ProbedTensor | None] = []
        parameters: dict[str, ProbedTensor] = {}
        for key, value in content.items():
            if phase == "parameters_grad":
                gradient = next((leaf for leaf in self._leaves(value, str(key)) if leaf is not None), None)
                if isinstance(gradient, ProbedTensor):
                    parameters[_text(str(key), MAX_NAME)] = gradient
            elif key in ("input_args", "input_kwargs", "input"):
                inputs.extend(leaf for leaf in self._leaves(value, "", settings) if leaf is not None)
            elif key == "output":
                outputs.extend(self._leaves(value, ""))
            elif key == "parameters" and phase == "forward" and isinstance(value, dict):
                for parameter, tensor in value.items():
                    probed = self._tensor(tensor, _text(str(parameter), MAX_NAME))
                    if probed is not None:
                        parameters[probed.label] = probed
        while outputs and outputs[-1] is None:
            outputs.pop()
        return Entry(
            name,
            kind in ("Module", "Cell"),
            kind,
            path,
            type_,
            call,
            phase,
            tuple(inputs),
            tuple(outputs),
            MappingProxyType(parameters),
            MappingProxyType(settings),
        )

    def _leaves(
        self, value: object, label: str, settings: dict[str, Any] | None = None, depth: int = 0
    ) -> Iterator[ProbedTensor | None]:
        """Yield the tensors in an argument, in order; None for a value that is not a tensor."""
        if isinstance(value, dict) and "type" in value and not isinstance(value["type"], (dict, list)):
            tensor = self._tensor(value, label)
            if tensor is None and settings is not None:
                plain = value.get("value")
                if isinstance(plain, (str, int, float)) and len(settings) < 64:
                    settings[label or f"argument {len(settings)}"] = (
                        printable_text(plain[:200]) if isinstance(plain, str) else plain
                    )
            yield tensor
        elif isinstance(value, (dict, list)) and depth < MAX_NESTING:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in items:
                part = _text(str(key), 80)
                yield from self._leaves(inner, f"{label}.{part}" if label else part, settings, depth + 1)
        else:
            yield None

    def _tensor(self, value: object, label: str) -> ProbedTensor | None:
        if not isinstance(value, dict):
            return None
        shape, dtype = value.get("shape"), value.get("dtype")
        if not isinstance(shape, list) or not isinstance(dtype, str) or len(shape) > _MAX_DIMENSIONS:
            return None
        if not all(type(length) is int and 0 <= length <= _MAX_COUNT for length in shape):
            return None
        self._tensors += 1
        if self._tensors > MAX_TENSORS:
            return None
        name = _text(dtype, 40).rpartition(".")[2].lower()
        checksum, file, needs_grad = value.get("md5"), value.get("data_name"), value.get("requires_grad")
        return ProbedTensor(
            label,
            name,
            tuple(shape),
            _measures(value, name, shape, self._is_torch),
            _text(checksum, 80),
            file if isinstance(file, str) and file.isprintable() else "",
            needs_grad if isinstance(needs_grad, bool) else None,
        )


def _measures(value: dict[str, Any], dtype: str, shape: list[int], is_torch: bool) -> Mapping[str, float]:
    """Return those of msprobe's statistics that are correct for the elements.

    Maximum and minimum are over all elements, and NaN if an element is NaN; for complex numbers they are over the
    magnitudes. Sums, and therefore mean and norm, may overflow although no element is infinite, and a norm may
    underflow in float32 or be rounded to float16. All four statistics of a scalar are its value. MindSpore's float64
    are cast to float32 first.
    """
    numbers = {name: number for key, name in _STATISTICS.items() if (number := _number(value.get(key))) is not None}
    if dtype.startswith("complex"):
        return MappingProxyType({})
    largest, smallest = numbers.get("max"), numbers.get("min")
    if not is_torch and dtype == "float64":
        numbers = {name: number for name, number in numbers.items() if not math.isinf(number)}
    if "avg" in numbers and not math.isfinite(numbers["avg"]):
        del numbers["avg"]
    norm = numbers.pop("l2norm", None)
    if norm is None or largest is None or smallest is None or math.isinf(norm):
        return MappingProxyType(numbers)
    if math.isnan(norm):
        numbers["l2norm"] = norm
    elif not shape:
        numbers["l2norm"] = abs(norm)
    elif _fits(norm, largest, smallest, math.prod(shape)):
        numbers["l2norm"] = norm
    return MappingProxyType(numbers)


def _fits(norm: float, largest: float, smallest: float, count: int) -> bool:
    """Return whether a norm is possible for elements between two extremes; squares of tiny elements underflow."""
    if not (math.isfinite(largest) and math.isfinite(smallest)):
        return False
    reach = max(abs(largest), abs(smallest))
    if reach == 0.0:
        return norm == 0.0
    return reach > 1e-15 and 0.99 * reach <= norm <= 1.01 * reach * math.sqrt(count)


def _number(value: object) -> float | None:
    """Return a statistic as a number; newer versions write NaN and Infinity, older ones quote them."""
    if isinstance(value, (bool, int, float)):
        try:
            return float(value)
        except OverflowError:
            return None
    if isinstance(value, str) and value.strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(value)
    return None


def _named(name: str) -> tuple[str, str, str, int, Phase] | None:
    """Split the name of an entry into kind, path, type, call, pass."""
    kind = name.partition(".")[0]
    match = _MODULE.fullmatch(name)
    if match is not None:
        path, _, type_ = match["path"].rpartition(".")
        return kind, path, type_, int(match["call"] or 0), _phase(match["pass"])
    match = _FUNCTION.fullmatch(name)
    if match is None:
        return None
    # The name of a primitive has its attribute in the owner and its class: Primitive.matmul.MatMul.
    type_ = match["type"].rpartition(".")[2] if match["kind"] == "Primitive" else match["type"]
    return match["kind"], "", type_, int(match["call"]), _phase(match["pass"])


def _phase(text: str) -> Phase:
    return "forward" if text == "forward" else "backward" if text == "backward" else "parameters_grad"


def _texts(table: dict[str, Any]) -> Mapping[str, str]:
    """Return the parents in ``construct.json``; some versions write a list of parent and call stack."""
    parents = {}
    for name, parent in table.items():
        first = parent[0] if isinstance(parent, list) and parent else parent
        if isinstance(first, str):
            parents[_text(name, MAX_NAME)] = _text(first, MAX_NAME)
    return MappingProxyType(parents)


def _stacks(table: dict[str, Any]) -> Mapping[str, tuple[str, ...]]:
    """Return stacks by entry: ``stack.json`` lists a stack with all its entries, in older versions once per entry."""
    stacks: dict[str, tuple[str, ...]] = {}
    for key, value in table.items():
        names, lines = [key], value
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], list):
            names, lines = value
        if not isinstance(lines, list):
            continue
        frames = tuple(_frame(line) for line in lines[:MAX_STACK_FRAMES] if isinstance(line, str))
        stacks.update((_text(name, MAX_NAME), frames) for name in names if isinstance(name, str))
    return MappingProxyType(stacks)


def _frame(line: str) -> str:
    line = line[:8_192]
    match = _FRAME.fullmatch(line.strip())
    if match is None:
        return printable_text(" ".join(line.split()))
    code = " ".join(match["code"].split())
    return printable_text(f"# In file {match['file']}:{match['line']}/        {code}/")


def is_of_optimizer(stack: tuple[str, ...]) -> bool:
    """Return whether an optimizer of the framework made the call with this stack, rather than code it calls back."""
    for line in stack:
        if _OPTIMIZER_FILE.search(line):
            return True
        if "site-packages" not in line and "dist-packages" not in line:
            return False
    return False


def _text(value: object, limit: int) -> str:
    return printable_text(value[:limit]) if isinstance(value, str) else ""


def _quietly(content: bytes, where: str, problems: list[Problem]) -> dict[str, Any]:
    if not content:
        return {}
    try:
        return _parsed(content)
    except ValueError as error:
        problems.append(Problem(where, str(error), "it is not used"))
        return {}


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON ({str(error)[:200]})") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    return value
