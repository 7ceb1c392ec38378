from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.dumps.ascend_names import AscendName
from tensight.dumps.overflow import (
    NO_ITERATION,
    OverflowUnit,
    find_overflows,
    overflow_name,
    overflowing,
    parse_overflow,
    read_overflow,
)
from tensight.dumps.rank_folders import RankFolder, TensorFolders
from tensight.dumps.storage import LocalStorage
from tensight.errors import Problem, TensightError, TensorFileError
from tests.dumps.ascend_writer import newer_overflow_block as newer_block
from tests.dumps.ascend_writer import older_overflow_block as older_block
from tests.dumps.ascend_writer import overflow_file as opdebug

NAME = "Opdebug.Node_OpDebug.3.7.1630000000000000"
PARSED_NAME = AscendName("Opdebug", "Node_OpDebug", 3, 7, 1630000000000000)
NOTHING = {
    "model_id": 0,
    "stream_id": 0,
    "task_id": 0,
    "task_type": 0,
    "pc_start": "0x0",
    "para_base": "0x0",
    "status": 0,
}
# The example of CANN's documentation, with the name MindSpore gives the block.
DOCUMENT = {
    "DHA Atomic Add": NOTHING,
    "L2 Atomic Add": NOTHING,
    "AI Core": {
        "model_id": 514, "stream_id": 563, "task_id": 57, "task_type": 0, "pc_start": "0x1008005b0000",
        "para_base": "0x100800297000", "kernel_code": "0x1008005ae000", "block_idx": 1, "status": 32,
    },
}  # fmt: skip


def record(data: bytes, path: str = NAME):
    return read_overflow(data, PARSED_NAME, rank=0, iteration=2, path=path)


def test_a_binary_record_has_the_documented_json_form():
    (document,) = parse_overflow(opdebug(older_block()), where="x")
    assert document["AI Core"] == DOCUMENT["AI Core"]
    assert list(document) == ["DHA Atomic Add", "L2 Atomic Add", "AI Core"]
    assert document["L2 Atomic Add"]["task_id"] == 6


def test_binary_and_json_give_the_same_record():
    data = opdebug(older_block())
    from_binary = record(data)
    (document,) = parse_overflow(data, where="x")
    from_json = record(json.dumps(document).encode(), NAME + ".output.0.json")
    assert from_json.units == from_binary.units
    assert from_binary.units[2] == OverflowUnit(
        "AI Core", 514, 563, 57, 0, 32, 0x1008005B0000, 0x100800297000, 0x1008005AE000, 1
    )
    assert from_binary.units[2].reasons == ("floating-point arithmetic",)


def test_several_reasons_are_told_apart():
    unit = OverflowUnit("AI Core", 0, 0, 0, 0, 272)
    assert unit.reasons == ("integer addition, subtraction or multiplication", "converting float32 or int32 to float16")
    assert OverflowUnit("L2 Atomic Add", 0, 0, 0, 0, 32).reasons == ()


def test_the_content_decides_and_not_the_name():
    found = record(opdebug(older_block(dha=1)))
    assert found.executions == ((3, -1), (3, 2), (57, -1), (57, 563))
    assert overflowing(found, [(57, 563), (3, 7), (57, 1), (57, -1)]) == {(57, 563), (57, -1)}


def test_a_record_without_a_status_reports_nothing():
    found = record(opdebug(older_block(core=0)))
    assert len(found.units) == 3
    assert found.executions == ()


@pytest.mark.parametrize(
    ("kind", "fields", "unit"),
    [
        (0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 32], OverflowUnit("AIC", 1, 2, 3, 4, 32, 7, 8, None, 10)),
        (1, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 8], OverflowUnit("AIV", 1, 2, 3, 4, 8, 7, 8, None, 10)),
        (2, [1, 2, 3, 4, 5, 6, 7, 1], OverflowUnit("AICPU", 1, 2, 3, 4, 1)),
        (3, [1, 2, 3, 4, 5, 6, 7, 8, 9, 1], OverflowUnit("SDMA", 1, 2, 3, 4, 1)),
    ],
)
def test_the_newer_block_is_read_for_every_accelerator(kind, fields, unit):
    data = opdebug(newer_block(kind, fields))
    assert record(data).units == (unit,)
    (document,) = parse_overflow(data, where="x")
    assert document["magic"] == "0x5a5a5a5a"
    assert record(json.dumps(document).encode(), "x.json").units == (unit,)


def test_all_words_of_the_status_of_version_1_count():
    found = record(opdebug(newer_block(0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 32, 0, 8], version=1)))
    assert found.units[0].status == 40


def test_a_newer_block_that_is_not_valid_reports_nothing():
    assert record(opdebug(newer_block(0, [1] * 11, valid=0))).units == ()


def test_every_output_of_a_record_is_read():
    found = record(opdebug(older_block(), newer_block(2, [1, 2, 99, 4, 5, 6, 7, 1])))
    assert (99, 2) in found.executions
    assert (57, 563) in found.executions


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        (b"", NAME, "not an Ascend dump file"),
        (opdebug(), NAME, "has no output"),
        (opdebug(older_block()[:1000]), NAME, "1,000 bytes are too few"),
        (opdebug(newer_block(0, [1, 2])), NAME, "too few"),
        (opdebug(newer_block(9, [1, 2])), NAME, "no valid 'model_id'"),
        (b"{", "x.json", "not JSON"),
        (b"[" * 100_000, "x.json", "not JSON"),
        (b"\xff", "x.json", "not JSON"),
        (b"[]", "x.json", "not an object"),
        (b"{}", "x.json", "none of the device's units"),
        (b'{"AI Core": 3}', "x.json", "is not an object"),
        (json.dumps({"AI Core": {**NOTHING, "task_id": True}}).encode(), "x.json", "no valid 'task_id'"),
        (json.dumps({"AI Core": {**NOTHING, "status": "9" * 5000}}).encode(), "x.json", "no valid 'status'"),
        (json.dumps({"AI Core": {**NOTHING, "status": -1}}).encode(), "x.json", "no valid 'status'"),
    ],
)
def test_other_files_are_refused_with_a_reason(data, path, reason):
    with pytest.raises(TensorFileError, match=reason) as caught:
        record(data, path)
    assert path in str(caught.value)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        (NAME, True),
        (NAME + ".output.0.json", True),
        (NAME + ".4.1.0.0", True),
        ("Opdebug.Node_OpDebug.3.1630000000000000", True),
        ("Conv2D.a.3.7.16", False),
        ("Opdebug.json", False),
        ("", False),
    ],
)
def test_overflow_files_are_known_by_name(name, known):
    assert (overflow_name(name) is not None) == known


def test_records_are_found_wherever_a_release_put_them(tmp_path):
    rank = tmp_path / "rank_1"
    places = {0: rank / "Net/0/0", 4: rank / "debug_files/4", NO_ITERATION: rank / "debug_files"}
    for folder in places.values():
        folder.mkdir(parents=True, exist_ok=True)
    (rank / "debug_files" / "notes").mkdir()
    (places[0] / NAME).write_bytes(opdebug(older_block(core=1)))
    (places[0] / (NAME + ".output.0.json")).write_text("damaged, but the binary form is there")
    (places[0] / "Conv2D.a.3.7.16").write_bytes(b"no overflow file")
    (places[4] / (NAME + ".output.0.json")).write_text(json.dumps(DOCUMENT))
    (places[NO_ITERATION] / NAME).write_bytes(b"damaged")
    (places[NO_ITERATION] / (NAME + ".output.0.json")).write_text(json.dumps(DOCUMENT))
    folders = TensorFolders("rank_1/Net", {0: {0: "rank_1/Net/0/0", 1: "rank_1/Net/0/1"}}, {})
    problems: list[Problem] = []
    storage = LocalStorage(str(tmp_path))

    found = find_overflows(storage, RankFolder(1, "rank_1"), folders, problems)
    assert [(r.rank, r.iteration, r.units[2].status) for r in found] == [(1, -1, 32), (1, 0, 1), (1, 4, 32)]
    assert [problem.where for problem in problems] == [f"rank_1/debug_files/{NAME}"]
    assert [r.iteration for r in find_overflows(storage, RankFolder(1, "rank_1"), folders, [], {4})] == [4]


def test_a_rank_without_overflow_files_has_none(tmp_path):
    problems: list[Problem] = []
    folders = TensorFolders("", {}, {})
    assert find_overflows(LocalStorage(str(tmp_path)), RankFolder(0, "rank_0"), folders, problems) == ()
    assert problems == []


@settings(deadline=None)
@given(st.binary(max_size=2100), st.booleans())
def test_any_block_is_read_or_refused(block, newer):
    data = opdebug(struct.pack("<I", 0x5A5A5A5A) + block if newer else block)
    try:
        record(data)
    except TensightError:
        return


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("0x1f"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["AI Core", "acc_list", "valid", "data", "status", "task_id", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(json_values)
def test_any_json_is_read_or_refused(value):
    try:
        record(json.dumps(value).encode(), "x.json")
    except TensightError:
        return
