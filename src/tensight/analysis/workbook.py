"""Export of the graphs of a dump as an Excel workbook, with the layout of MindSpore Insight's."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tensight.errors import Problem
from tensight.graph import Monad, data_type_name
from tensight.graph.data_types import MONADS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from openpyxl import Workbook

    from tensight.dumps import Dump
    from tensight.graph import Graph, Node, OutputSlot

MAX_CELL_CHARACTERS = 32_767
"""Excel's limit for a cell."""

MAX_ROWS = 1_048_576
"""Excel's limit for a sheet, including the title row."""

ASSIGN_INPUTS = 3
"""Number of inputs of an ``Assign``: parameter, value, and the order of side effects."""

_SIDE_EFFECTS = ("Load", "UpdateState")

NOTHING = "-"
"""Type and shape of values that are not tensors."""

_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_HEADER_COLOUR = "D9D9D9"


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    width: int
    wrapped: bool = False
    centred: bool = False


_INFO = (_Column("argument", 20, centred=True), _Column("value", 150))
_CONSTANT = (
    _Column("name", 10),
    _Column("value", 30),
    _Column("downstream", 30, wrapped=True),
    _Column("rank_id", 20),
    _Column("graph_name", 30),
)
_PARAMETER = (
    _Column("name", 50),
    _Column("output_dtype", 20),
    _Column("output_shape", 25),
    _Column("downstream", 30, wrapped=True),
    _Column("rank_id", 20),
    _Column("graph_name", 30),
)
_OPERATOR = (
    _Column("operator", 30),
    _Column("input", 30, wrapped=True),
    _Column("input_dtype", 20, wrapped=True),
    _Column("input_shape", 25, wrapped=True),
    _Column("output_dtype", 20, wrapped=True),
    _Column("output_shape", 25, wrapped=True),
    _Column("downstream", 30, wrapped=True),
    _Column("name", 10),
    _Column("attrs", 30),
    _Column("scope", 20),
    _Column("full_name", 20),
    _Column("rank_id", 20),
    _Column("graph_name", 30),
    _Column("stack", 150, wrapped=True),
)
_STATISTICS = (_Column("operator", 30), _Column("count", 20, centred=True))
_SOURCE = (
    _Column("stack", 150, wrapped=True),
    _Column("operator", 30),
    _Column("full_name", 20),
    _Column("rank_id", 20),
    _Column("graph_name", 30),
)


def export_workbook(
    dump: Dump, output_dir: str | os.PathLike[str] | None = None, *, problems: list[Problem] | None = None
) -> str:
    """Write the graphs of all ranks of a dump to ``dump_{YYYYmmdd_HHMMSS}.xlsx``.

    The sheets are info, constant, parameter, operator, statistics (operators by type) and source (operators by stack).
    To stay within Excel's limits, long texts are cut and long sheets continue in another one; the sheet info lists
    where.

    Parameters
    ----------
    dump : Dump
        The dump to export.
    output_dir : str or path-like, optional
        The folder to write to; the current one by default. It is created if it does not exist.
    problems : list of Problem, optional
        Receives the cut texts and continued sheets.

    Returns
    -------
    str
        The path of the file.
    """
    from openpyxl import Workbook

    folder = os.path.abspath(os.fspath(output_dir) if output_dir is not None else os.getcwd())
    os.makedirs(folder, exist_ok=True)
    path = _unused_path(folder)
    book = Workbook(write_only=True)
    info = _Sheet(book, "info", _INFO)
    info.append(["dump-dir", dump.path])
    graphs = [_NamedGraph(rank, graph) for rank in dump.ranks for graph in dump.graphs(rank)]
    sheets = [
        _filled(book, "constant", _CONSTANT, (row for graph in graphs for row in graph.constants())),
        _filled(book, "parameter", _PARAMETER, (row for graph in graphs for row in graph.parameters())),
        _filled(book, "operator", _OPERATOR, (row for graph in graphs for row in graph.operators())),
        _filled(book, "statistics", _STATISTICS, _type_counts(graphs)),
    ]
    source = _Sheet(book, "source", _SOURCE)
    for stack, users in _by_stack(graphs).items():
        source.append_group(stack, [graph.source_row(node) for graph, node in users])
    all_problems = [problem for sheet in (*sheets, source) for problem in sheet.problems(path)]
    for problem in all_problems:
        info.append(["problem", str(problem)])
    if problems is not None:
        problems.extend(all_problems)
    book.save(path)
    return path


def _unused_path(folder: str) -> str:
    """Return the path of a new file, so that two exports in the same second do not overwrite each other."""
    name = f"dump_{datetime.now():%Y%m%d_%H%M%S}"
    path, number = os.path.join(folder, f"{name}.xlsx"), 1
    while os.path.exists(path):
        path, number = os.path.join(folder, f"{name}_{number}.xlsx"), number + 1
    return path


def _filled(book: Workbook, title: str, columns: Sequence[_Column], rows: Iterable[Sequence[object]]) -> _Sheet:
    sheet = _Sheet(book, title, columns)
    for row in rows:
        sheet.append(row)
    return sheet


@dataclass(slots=True)
class _Sheet:
    """A sheet that is written row by row, and continues in another one at Excel's limit."""

    book: Workbook
    title: str
    columns: Sequence[_Column]
    parts: list[Any] = field(default_factory=list)
    row: int = MAX_ROWS
    shortened: int = 0
    cells: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start()

    def append(self, values: Sequence[object]) -> None:
        """Write a row."""
        if self.row >= MAX_ROWS:
            self._start()
        for cell, value in zip(self.cells, values, strict=True):
            # openpyxl writes a row immediately and keeps no cells, so one object for each column suffices.
            self._set(cell, value)
        self.parts[-1].append(self.cells)
        self.row += 1

    def append_group(self, shared: object, rows: Sequence[Sequence[object]]) -> None:
        """Write rows that share their first cell, which is merged within each sheet."""
        first, sheet = 0, None
        for index, row in enumerate(rows):
            begins = self.row >= MAX_ROWS or sheet is None
            if begins:
                self._merge(sheet, first)
            self.append([shared if begins else None, *row])
            if begins:
                first, sheet = self.row, self.parts[-1]
            if index == len(rows) - 1:
                self._merge(sheet, first)

    def problems(self, path: str) -> Iterator[Problem]:
        """Yield a problem for rows or texts that exceeded Excel's limits."""
        if len(self.parts) > 1:
            names = ", ".join(part.title for part in self.parts)
            yield Problem(path, f"the sheet {self.title} has more rows than Excel accepts", f"it goes on in: {names}")
        if self.shortened:
            what = f"{self.shortened} texts in the sheet {self.title} were cut after {MAX_CELL_CHARACTERS} characters"
            yield Problem(path, what, "Excel accepts no longer ones; read them with tensight nodes --json")

    def _merge(self, sheet: Any, first: int) -> None:
        if sheet is not None and self.row > first:
            sheet.merged_cells.add(f"A{first}:A{self.row}")

    def _start(self) -> None:
        from openpyxl.cell import WriteOnlyCell
        from openpyxl.styles import Alignment, Font, PatternFill
        from openpyxl.utils import get_column_letter

        number = len(self.parts) + 1
        sheet: Any = self.book.create_sheet(self.title if number == 1 else f"{self.title}_{number}")
        sheet.freeze_panes = "B2"
        sheet.auto_filter.ref = f"A1:{get_column_letter(len(self.columns))}1"
        titles, self.cells = [], []
        for position, column in enumerate(self.columns, 1):
            sheet.column_dimensions[get_column_letter(position)].width = column.width
            horizontal = "center" if column.centred else "left"
            title = WriteOnlyCell(sheet, column.title)
            title.font = Font(bold=True)
            title.fill = PatternFill("solid", fgColor=_HEADER_COLOUR)
            title.alignment = Alignment(horizontal=horizontal, vertical="center")
            titles.append(title)
            cell = WriteOnlyCell(sheet)
            cell.alignment = Alignment(horizontal=horizontal, vertical="center", wrap_text=column.wrapped or None)
            self.cells.append(cell)
        sheet.append(titles)
        self.parts.append(sheet)
        self.row = 1

    def _set(self, cell: Any, value: object) -> None:
        """Set the value of a cell; texts are marked as such, so that they are not interpreted."""
        if (isinstance(value, (bool, int)) and abs(value) < 2**53) or (
            isinstance(value, float) and math.isfinite(value)
        ):
            cell.value = value
        elif value is None or value == "":
            cell.value = None
        else:
            text = _UNWRITABLE.sub(lambda match: f"\\x{ord(match[0]):02x}", str(value))
            if len(text) > MAX_CELL_CHARACTERS:
                self.shortened += 1
                text = text[: MAX_CELL_CHARACTERS - 1] + "…"
            cell.value = text
            # Without this a text that begins with "=" would be a formula, and "#N/A" an error.
            cell.data_type = "s"


class _NamedGraph:
    """A graph of a rank, with the short names of its nodes in the workbook."""

    def __init__(self, rank: int, graph: Graph) -> None:
        self._graph = graph
        self._where = (rank, graph.name)
        self._consumers: dict[str, list[Node]] = {}
        for node in graph.operators:
            for source in self._inputs(node):
                self._consumers.setdefault(source.name, []).append(node)
        short = {node.name: _short_name(node) for node in graph.nodes}
        often = Counter(short.values())
        self._names = {
            node.name: name if often[name] == 1 else f"{name}_{node.id}"
            for node, name in zip(graph.nodes, short.values(), strict=True)
        }

    def constants(self) -> Iterator[list[object]]:
        """Yield the rows of the sheet constant."""
        for node in self._graph.constants:
            yield [node.id or node.name, self._constant_text(node), self._downstream(node), *self._where]

    def parameters(self) -> Iterator[list[object]]:
        """Yield the rows of the sheet parameter."""
        for node in self._graph.parameters:
            yield [node.name, *_described(_slots(node)), self._downstream(node), *self._where]

    def operators(self) -> Iterator[list[object]]:
        """Yield the rows of the sheet operator."""
        for node in self._graph.operators:
            inputs = self._inputs(node)
            shown = [self._as_input(source) for source in inputs]
            yield [
                self._names[node.name],
                "\n".join(self._names[source.name] for source in inputs),
                "\n".join(dtype for dtype, _ in shown if dtype),
                "\n".join(shape for _, shape in shown),
                *_described(_slots(node)),
                self._downstream(node),
                node.id,
                str({name: _attribute(value) for name, value in node.attributes.items()}),
                node.scope,
                node.full_name or node.name,
                *self._where,
                _stack_text(node),
            ]

    def operators_with_stack(self) -> Iterator[tuple[Node, str]]:
        """Yield the operators with a stack, and the text of its frames without headings."""
        for node in self._graph.operators:
            text = "\n".join(frame.text for frame in node.frames if frame.file)
            if text:
                yield node, text

    def types(self) -> Iterator[str]:
        """Return the types of all operators."""
        return (node.type for node in self._graph.operators)

    def source_row(self, node: Node) -> list[object]:
        """Return the row of an operator in the sheet source, without the stack."""
        return [self._names[node.name], node.full_name or node.name, *self._where]

    def _inputs(self, node: Node) -> tuple[Node, ...]:
        """Return the inputs as MindSpore Insight shows them: without the parameter that an ``Assign`` writes."""
        inputs = self._graph.inputs(node)
        return inputs[1:] if node.type == "Assign" and len(node.inputs) == ASSIGN_INPUTS else inputs

    def _downstream(self, node: Node) -> str:
        return "\n".join(self._names[consumer.name] for consumer in self._consumers.get(node.name, ()))

    def _constant_text(self, node: Node) -> object:
        """Return the cell for the value of a constant; for a tensor only ``TENSOR``."""
        if node.value is None:
            return "NONE" if self._orders_side_effects(node) else "TENSOR"
        return "NONE" if isinstance(node.value, Monad) else node.value

    def _orders_side_effects(self, node: Node) -> bool:
        """Return whether a constant without a value is a token that orders side effects rather than a tensor."""
        return any(consumer.type in _SIDE_EFFECTS for consumer in self._consumers.get(node.name, ()))

    def _as_input(self, node: Node) -> tuple[str, str]:
        """Return type and shape of an input, each as a single line."""
        outputs = _slots(node)
        if node.is_constant:
            is_tensor = node.value is None and not self._orders_side_effects(node)
            return ("", "()") if is_tensor else (NOTHING, NOTHING)
        if len(outputs) > 1:
            return "tuple", NOTHING
        dtype, shape = _described(outputs)
        return dtype or NOTHING, shape or NOTHING


def _short_name(node: Node) -> str:
    """Return the name of a node in MindSpore Insight's workbook: ``Conv2D_61``, ``conv1.weight``, ``cst1``."""
    if node.is_constant:
        return node.id or node.name
    if node.is_parameter:
        return node.name
    if node.type == "Load" or "Summary" in node.type:
        return f"{node.type}_{node.id}"
    head, separator, number = node.short_name.rpartition("-op")
    return f"{head}_{number}" if separator else node.short_name


def _slots(node: Node) -> Sequence[OutputSlot]:
    """Return the outputs of a node, without the monads in a tuple."""
    if len(node.outputs) < 2:
        return node.outputs
    return [slot for slot in node.outputs if slot.data_type not in MONADS]


def _described(outputs: Sequence[OutputSlot]) -> tuple[str, str]:
    """Return types and shapes of outputs, each with a line per output; empty for a single output without dtype."""
    if len(outputs) == 1 and not outputs[0].dtype:
        return "", ""
    dtypes = (slot.dtype or data_type_name(slot.data_type).removeprefix("DT_").lower() for slot in outputs)
    shapes = (NOTHING if slot.shape is None else str(slot.shape) for slot in outputs)
    return "\n".join(dtypes), "\n".join(shapes)


def _attribute(value: object) -> object:
    """Return an attribute as MindSpore Insight prints it, with a tuple of strings as a list."""
    if isinstance(value, tuple) and value and all(isinstance(element, str) for element in value):
        return list(value)
    return value


def _stack_text(node: Node) -> str:
    return "\n".join(frame.text for frame in node.frames)


def _type_counts(graphs: Iterable[_NamedGraph]) -> list[list[object]]:
    counts = Counter(kind for graph in graphs for kind in graph.types())
    return [[kind, count] for kind, count in sorted(counts.items())]


def _by_stack(graphs: Iterable[_NamedGraph]) -> dict[str, list[tuple[_NamedGraph, Node]]]:
    """Return the operators of each stack, sorted by their number."""
    users: dict[str, list[tuple[_NamedGraph, Node]]] = {}
    for graph in graphs:
        for node, stack in graph.operators_with_stack():
            users.setdefault(stack, []).append((graph, node))
    for of_stack in users.values():
        of_stack.sort(key=lambda user: _number(user[1]))
    return users


def _number(node: Node) -> int:
    digits = node.short_name.rpartition("-op")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else 0
