"""The workbook: sheets, merged cells, limits of Excel, texts that look like formulas."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openpyxl
import pytest

from tensight.analysis import workbook
from tensight.analysis.workbook import export_workbook
from tensight.graph import Edge, Graph, Node, OutputSlot

if TYPE_CHECKING:
    from tensight.debugger import DumpAnalyzer
    from tensight.errors import Problem

TITLES = {
    "info": ["argument", "value"],
    "constant": ["name", "value", "downstream", "rank_id", "graph_name"],
    "parameter": ["name", "output_dtype", "output_shape", "downstream", "rank_id", "graph_name"],
    "operator": [
        "operator", "input", "input_dtype", "input_shape", "output_dtype", "output_shape", "downstream",
        "name", "attrs", "scope", "full_name", "rank_id", "graph_name", "stack",
    ],
    "statistics": ["operator", "count"],
    "source": ["stack", "operator", "full_name", "rank_id", "graph_name"],
}  # fmt: skip


@dataclass
class OneGraph:
    """What the workbook needs of a dump."""

    graph: Graph
    path: str = "/dump"
    ranks: tuple[int, ...] = (0,)
    problems: list[Problem] = field(default_factory=list)

    def graphs(self, _: int) -> tuple[Graph, ...]:
        return (self.graph,)


def operator(number: int, *, name: str = "", stack: str = "", inputs: tuple[Edge, ...] = ()) -> Node:
    full = name or f"Default/Add-op{number}"
    slot = OutputSlot(11, "float32", (2, 3))
    return Node(full, "Add", "Default", str(number), full, inputs, (slot,), (stack,) if stack else ())


def exported(graph: Graph, folder: Path, problems: list[Problem] | None = None) -> Any:
    return openpyxl.load_workbook(export_workbook(OneGraph(graph), folder, problems=problems))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["old", "new"])
def test_sheets_have_the_originals_titles_panes_and_filters(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    analyzer: DumpAnalyzer = request.getfixturevalue(name)
    path = analyzer.export_graphs(tmp_path)
    assert re.fullmatch(r"dump_\d{8}_\d{6}\.xlsx", Path(path).name)
    book = openpyxl.load_workbook(path)
    assert {sheet.title: [cell.value for cell in sheet[1]] for sheet in book} == TITLES
    for sheet in book:
        assert sheet.freeze_panes == "B2"
        assert sheet.auto_filter.ref == f"A1:{sheet.cell(1, len(TITLES[sheet.title])).coordinate}"
    graph = analyzer.dump.graphs(0)[0]
    assert book["operator"].max_row == 1 + len(graph.operators)
    assert sum(row[1] for row in book["statistics"].iter_rows(min_row=2, values_only=True)) == len(graph.operators)


def test_operators_that_share_a_stack_share_a_merged_cell(tmp_path: Path) -> None:
    stack = "# In file /net.py:3/ x = y/"
    nodes = [
        operator(2, stack=stack),
        operator(1, stack=stack),
        operator(3, stack="# In file /net.py:4/ z/"),
        operator(4),
    ]
    sheet = exported(Graph("kernel_graph_0", nodes), tmp_path)["source"]
    assert [str(cells) for cells in sheet.merged_cells.ranges] == ["A2:A3"]
    rows = list(sheet.iter_rows(min_row=2, max_col=2, values_only=True))
    assert rows == [("#   /net.py:3  x = y", "Add_1"), (None, "Add_2"), ("#   /net.py:4  z", "Add_3")]


def test_inputs_and_users_are_named_by_type_and_number(tmp_path: Path) -> None:
    nodes = [operator(1), operator(2, inputs=(Edge("Default/Add-op1"), Edge("Default/Add-op1")))]
    first, second = exported(Graph("kernel_graph_0", nodes), tmp_path)["operator"].iter_rows(
        min_row=2, values_only=True
    )
    assert first[6] == "Add_2\nAdd_2"
    assert second[:4] == ("Add_2", "Add_1\nAdd_1", "float32\nfloat32", "(2, 3)\n(2, 3)")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "#N/A", "=cmd|' /C calc'!A0", "bell\x07", "\ufffe"])
def test_texts_stay_texts_whatever_they_look_like(tmp_path: Path, text: str) -> None:
    sheet = exported(Graph("g", [operator(1, name=text)]), tmp_path)["operator"]
    cell = sheet["K2"]
    assert cell.data_type == "s"
    assert cell.value == re.sub("[\x07\ufffe]", lambda match: f"\\x{ord(match[0]):02x}", text)


def test_long_texts_are_cut_and_said_so(tmp_path: Path) -> None:
    problems: list[Problem] = []
    book = exported(Graph("g", [operator(1, name="n" * 40_000)]), tmp_path, problems)
    assert len(book["operator"]["K2"].value) == workbook.MAX_CELL_CHARACTERS
    assert "were cut" in problems[0].what
    assert str(problems[0]) in [row[1] for row in book["info"].iter_rows(values_only=True)]


def test_sheets_go_on_where_the_rows_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbook, "MAX_ROWS", 4)
    problems: list[Problem] = []
    book = exported(Graph("g", [operator(i, stack="# In file /a.py:1/ b/") for i in range(7)]), tmp_path, problems)
    for title in ("operator", "source"):
        names = [title, f"{title}_2", f"{title}_3"]
        column = TITLES[title].index("operator") + 1
        found = [sheet.cell(row, column).value for sheet in map(book.__getitem__, names) for row in range(2, 5)]
        assert found == [*(f"Add_{i}" for i in range(7)), None, None]
    assert [str(cells) for cells in book["source_2"].merged_cells.ranges] == ["A2:A4"]
    assert book["source_3"].merged_cells.ranges == set()
    assert [problem.what for problem in problems] == [
        "the sheet operator has more rows than Excel accepts",
        "the sheet source has more rows than Excel accepts",
    ]


def test_two_exports_do_not_overwrite_each_other(tmp_path: Path) -> None:
    dump: Any = OneGraph(Graph("g", [operator(1)]))
    assert len({export_workbook(dump, tmp_path) for _ in range(3)}) == 3


def test_the_current_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dump: Any = OneGraph(Graph("g", []))
    assert Path(export_workbook(dump)).parent == tmp_path
