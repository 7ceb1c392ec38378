from __future__ import annotations

import csv
import io
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.dumps.statistic_csv import (
    MAX_LINE_CHARACTERS,
    StatisticRow,
    read_statistics,
    statistic_name,
)
from tensight.errors import Problem, TensorFileError

FIXED = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"
OLD = (
    f"{FIXED},Max Value,Min Value,Avg Value,Count,Negative Zero Count,Positive Zero Count,NaN Count,"
    "Negative Inf Count,Positive Inf Count,Zero Count"
)
OLD_LINE = (
    'Conv2D,Default/conv1/Conv2D-op1,3,7,1630000000000000,output,0,64,float16,"(1,2,)",1.5,-2.5,0.25,2,1,1,0,0,0,0'
)


def read(text: str) -> tuple[list[StatisticRow], list[Problem]]:
    problems: list[Problem] = []
    return list(read_statistics(io.StringIO(text), where="statistic.csv", problems=problems)), problems


def test_a_line_of_the_older_form_is_read_completely():
    rows, problems = read(f"{OLD}\n{OLD_LINE}\n")
    assert not problems
    assert rows == [
        StatisticRow(
            rank=-1,
            graph_id=-1,
            iteration=-1,
            op_type="Conv2D",
            op_name="Default/conv1/Conv2D-op1",
            task_id=3,
            stream_id=7,
            timestamp=1630000000000000,
            io="output",
            slot=0,
            data_size=64,
            data_type="float16",
            shape=(1, 2),
            values={
                "max": 1.5, "min": -2.5, "avg": 0.25, "count": 2, "negative zero count": 1, "positive zero count": 1,
                "nan count": 0, "negative inf count": 0, "positive inf count": 0, "zero count": 0,
            },
            row=dict(zip(OLD.split(","), next(csv.reader([OLD_LINE])), strict=True)),
        )
    ]  # fmt: skip


def test_the_place_of_the_file_is_handed_through():
    rows = read_statistics(io.StringIO(f"{OLD}\n{OLD_LINE}\n"), where="s", problems=[], rank=3, graph_id=1, iteration=9)
    assert [(row.rank, row.graph_id, row.iteration) for row in rows] == [(3, 1, 9)]


@pytest.mark.parametrize(
    ("columns", "fields", "values"),
    [
        (
            "Max Value,Min Value,L2Norm Value",
            "inf,-inf,nan",
            {"max": float("inf"), "min": float("-inf"), "l2norm": None},
        ),
        ("MD5", "d41d8cd98f00b204e9800998ecf8427e", {"md5": "d41d8cd98f00b204e9800998ecf8427e"}),
        ("SHA1", "da39a3ee", {"sha1": "da39a3ee"}),
        ("md5,l2norm", "1234,2.5", {"md5": "1234", "l2norm": 2.5}),
        ("Nan Count,Count", "3,12.0", {"nan count": 3, "count": 12}),
        ("Max Value,Min Value", "null,", {}),
        ("Max Value,Min Value", "True,False", {"max": 1.0, "min": 0.0}),
        ("Something New", "text", {"something new": "text"}),
    ],
)
def test_the_header_decides_which_statistics_there_are(columns, fields, values):
    rows, problems = read(f'{FIXED},{columns}\nAdd,a,0,0,1,input,2,8,int32,"(1,2,)",{fields}\n')
    assert not problems
    found = dict(rows[0].values)
    if "l2norm" in values and values["l2norm"] is None:
        assert found.pop("l2norm") != found.get("l2norm")
        values = {name: value for name, value in values.items() if name != "l2norm"}
    assert found == values


@pytest.mark.parametrize(
    ("text", "shape"),
    [("()", ()), ('"(3,)"', (3,)), ('"(1,2,3,)"', (1, 2, 3)), ('"[4, 5]"', (4, 5)), ('"(-1,7)"', (-1, 7))],
)
def test_shapes_are_read_with_and_without_quotes(text, shape):
    rows, _ = read(f"{FIXED}\nAdd,a,0,0,1,input,2,8,int32,{text}\n")
    assert rows[0].shape == shape


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("Add,a,0,0,1,input,2,8,int32", "9 fields, the header 10"),
        ("Add,a,x,0,1,input,2,8,int32,()", "Task ID is 'x'"),
        ("Add,a,0,0,1,sideways,2,8,int32,()", "IO is 'sideways'"),
        ("Add,a,0,0,1,input,2,8,int32,(1;2)", "Shape is"),
        ('Add,a,0,0,1,input,2,8,int32,"(1,2', "unexpected end"),
        ("Add,a,0,0,1,input,2,8,int32," + "1" * 70_000, "longer than 65,536"),
        ("Add,a,0,0,1,input," + "9" * 5000 + ",8,int32,()", "Slot is"),
    ],
)
def test_a_bad_line_becomes_a_problem_and_the_others_are_read(line, what):
    good = "Add,a,0,0,1,input,2,8,int32,()"
    rows, problems = read(f"{FIXED}\n{good}\n{line}\n\n{good}\n")
    assert len(rows) == 2
    (problem,) = problems
    assert problem.where == "statistic.csv:3"
    assert what in problem.what


def test_many_bad_lines_are_counted():
    _, problems = read(f"{FIXED}\n" + "x\n" * 100)
    assert len(problems) == 21
    assert "80 more lines" in problems[-1].what


@pytest.mark.parametrize("text", ["", "\n", "a,b\n", f"{FIXED},MD5,MD5\n", '"', "x" * 200_000])
def test_a_file_of_another_kind_is_refused(text):
    with pytest.raises(TensorFileError, match="not a statistics file"):
        read(text)


def test_a_byte_order_mark_is_skipped():
    assert len(read(f"\ufeff{OLD}\n{OLD_LINE}\n")[0]) == 1


def test_names_of_statistics_do_not_depend_on_the_spelling():
    columns = ("Max Value", "L2Norm Value", "l2_norm", "NaN Count", "Nan Count", "MD5 Value")
    names = ["max", "l2norm", "l2norm", "nan count", "nan count", "md5"]
    assert [statistic_name(column) for column in columns] == names


@settings(deadline=None)
@given(st.text(max_size=400))
def test_any_text_gives_rows_or_problems(text):
    read(f"{OLD}\n{text}")


@settings(deadline=None)
@given(st.text(max_size=400))
def test_any_file_is_read_or_refused(text):
    try:
        read(text)
    except TensorFileError:
        return


@settings(deadline=None)
@given(st.lists(st.text(alphabet='0123456789(),-"[] x', max_size=100), min_size=1, max_size=20))
def test_odd_fields_never_take_long(fields):
    start = time.perf_counter()
    read(
        f"{OLD}\n"
        + ",".join(fields)
        + "\n"
        + f"Add,a,0,0,1,input,2,8,int32,{fields[0]}{'1' * 3000},1,1,1,1,1,1,1,1,1,1\n"
    )
    assert time.perf_counter() - start < 5


def test_a_line_of_the_largest_length_is_still_read():
    name = "a" * (MAX_LINE_CHARACTERS - len("Add,,0,0,1,input,2,8,int32,()\n"))
    rows, problems = read(f"{FIXED}\nAdd,{name},0,0,1,input,2,8,int32,()\nAdd,b,0,0,1,input,2,8,int32,()\n")
    assert not problems
    assert [row.op_name for row in rows] == [name, "b"]
