"""File names of tensors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.dumps.names import (
    RawFileName,
    TensorFileName,
    constant_key,
    joined,
    original_name,
    parse_mapping,
    parse_name,
    parse_raw_name,
    split_name,
    without_times,
)


def test_reads_a_name_of_eight_fields() -> None:
    assert parse_name("Conv2D.Conv2D-op77.1.2.1795210590923520.input.3.NCHW.npy") == TensorFileName(
        "Conv2D", "Conv2D-op77", "input", 3, 1, 2, 1795210590923520, "NCHW", ""
    )


def test_reads_a_name_of_nine_fields() -> None:
    assert parse_name("Add.Default_net_Add-op0.0.0.17.output.0.DefaultFormat.BFloat16.npy") == TensorFileName(
        "Add", "Default_net_Add-op0", "output", 0, 0, 0, 17, "DefaultFormat", "BFloat16"
    )


@pytest.mark.parametrize("dtype", ["", ".Float32"])
@pytest.mark.parametrize("name", ["fc1.weight", "moments.layers.0.fc.bias", "0", "input.0", "a.1.2.3.output.0.b"])
def test_keeps_the_dots_of_parameter_names(name: str, dtype: str) -> None:
    parsed = parse_name(f"Parameter.{name}.0.0.5.output.0.DefaultFormat{dtype}.npy")
    assert parsed is not None
    assert (parsed.op_type, parsed.op_name, parsed.timestamp) == ("Parameter", name, 5)


def test_takes_digits_before_the_numbers_for_a_name_without_type() -> None:
    parsed = parse_name("123456.0.0.5.output.0.NCHW.npy")
    assert parsed is not None
    assert (parsed.op_type, parsed.op_name) == ("", "123456")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".npy",
        "statistic.csv",
        "Conv2D.Conv2D-op1.0.0.5.output.0.DefaultFormat.txt",
        "Conv2D.Conv2D-op1.0.0.5.sideways.0.DefaultFormat.npy",
        "Conv2D.Conv2D-op1.0.x.5.output.0.DefaultFormat.npy",
        "Conv2D.Conv2D-op1.0.-1.5.output.0.DefaultFormat.npy",
        "Conv2D.Conv2D-op1.0.1_0.5.output.0.DefaultFormat.npy",
        "Conv2D.Conv2D-op1.0..5.output.0.DefaultFormat.npy",
        "Conv2D.Conv2D-op1.0.٣.5.output.0.DefaultFormat.npy",
        f"Conv2D.Conv2D-op1.0.{2**63}.5.output.0.DefaultFormat.npy",
        f"Conv2D.Conv2D-op1.0.0.5.output.{2**31}.DefaultFormat.npy",
        "Conv2D.Conv2D-op1.0.0.5.output.0.npy",
        "0.0.5.output.0.DefaultFormat.npy",
    ],
)
def test_other_names_are_no_tensors(name: str) -> None:
    assert parse_name(name) is None


_FIELD = st.text(st.characters(blacklist_characters="./\0", blacklist_categories=["Cs"]), min_size=1, max_size=12)
_NUMBER = st.integers(0, 2**63 - 1)


@given(_FIELD, st.lists(_FIELD, min_size=1, max_size=4), _NUMBER, _NUMBER, _NUMBER, st.integers(0, 2**31 - 1), _FIELD)
def test_a_written_name_is_read_back(
    op_type: str, name: list[str], task: int, stream: int, moment: int, slot: int, layout: str
) -> None:
    op_name = ".".join(name)
    stem = f"{op_type}.{op_name}.{task}.{stream}.{moment}.output.{slot}.{layout}"
    assert parse_name(f"{stem}.npy") == TensorFileName(
        op_type, op_name, "output", slot, task, stream, moment, layout, ""
    )
    # A ninth field is told from the eighth by where input or output stands.
    assert parse_name(f"{stem}.Int8.npy") == TensorFileName(
        op_type, op_name, "output", slot, task, stream, moment, layout, "Int8"
    )


@given(st.text() | st.from_regex(r"[A-Z.0-9_]+(\.(input|output)\.[0-9]+)?\.\w*\.npy", fullmatch=True))
def test_any_text_is_read_or_refused(name: str) -> None:
    parsed = parse_name(name)
    assert parsed is None or (parsed.slot >= 0 and parsed.io in {"input", "output"})
    parse_raw_name(name)
    parse_raw_name(name + ".bin")


def test_reads_raw_names_of_the_first_versions() -> None:
    name = "Default--conv1-Conv2d--Conv2D-op1_output_0_shape_4_3_2_kNumberTypeFloat32_NC1HWC0_C04.bin"
    assert parse_raw_name(name) == RawFileName(
        "Default/conv1-Conv2d/Conv2D-op1", "output", 0, (4, 3, 2), "Float32", "NC1HWC0_C04"
    )
    scalar = parse_raw_name("Parameter--fc1.bias_output_0_shape_Int64_DefaultFormat.bin")
    assert scalar == RawFileName("Parameter/fc1.bias", "output", 0, (), "Int64", "DefaultFormat")


@pytest.mark.parametrize(
    "name", ["x.bin", "a_output_0_Float32_ND.bin", "a_output_0_shape_" + "1_" * 40 + "Int8_ND.bin"]
)
def test_other_bin_names_are_no_raw_tensors(name: str) -> None:
    assert parse_raw_name(name) is None


def test_joins_a_full_name_as_newer_file_names_do() -> None:
    assert joined("Default/network-Net/a.b c\\d/Add-op0") == "Default_network-Net_a_b_c_d_Add-op0"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("data-3", "data-3"),
        ("Default--data-12", "data-12"),
        ("Default_data-0", "data-0"),
        ("mydata-3", None),
        ("data-x", None),
        ("data-3.weight", None),
    ],
)
def test_recognises_constants(name: str, key: str | None) -> None:
    assert constant_key(name) == key


def test_mapping_gives_long_names_back() -> None:
    mapping, refused = parse_mapping("12,Add.Default_Add-op0.0.0.5.output.0.ND.npy\r\n\n 34 , Sub.Sub-op1.0.0.6\n")
    assert refused == 0
    assert original_name("12.npy", mapping) == "Add.Default_Add-op0.0.0.5.output.0.ND.npy"
    assert original_name("12", mapping) == "Add.Default_Add-op0.0.0.5.output.0.ND.npy"
    # After conversion from binary the digits stand for type and name only.
    assert original_name("34.0.0.6.input.1.NCHW.npy", mapping) == "Sub.Sub-op1.0.0.6.input.1.NCHW.npy"
    assert original_name("56.npy", mapping) == "56.npy"
    assert original_name("Add.Add-op1.0.0.5.output.0.ND.npy", mapping) == "Add.Add-op1.0.0.5.output.0.ND.npy"


def test_mapping_refuses_paths_and_lines_of_another_form() -> None:
    lines = ["1,../../etc/passwd", "2,a\\b", "x,Add.Add-op0", "3", "4,", "5,Add.Add-op0.0.0.1.output.0.ND.npy"]
    mapping, refused = parse_mapping("\n".join(lines))
    assert mapping == {"5": "Add.Add-op0.0.0.1.output.0.ND.npy"}
    assert refused == 5


@given(st.text())
def test_any_mapping_is_read(text: str) -> None:
    mapping, refused = parse_mapping(text)
    assert refused >= 0
    for digits, name in mapping.items():
        assert digits.isdigit()
        assert "/" not in original_name(f"{digits}.npy", mapping)
        assert "/" not in name


@pytest.mark.parametrize(
    ("name", "timeless", "time"),
    [
        ("Add.Add-op0.1.2.34.output.0.ND.npy", "Add.Add-op0.1.2./.output.0.ND.npy", 34),
        ("Add.Add-op0.1.2.34.input.0.ND.float32.npy", "Add.Add-op0.1.2./.input.0.ND.float32.npy", 34),
        ("Parameter.a.b.0.0.9223372036854775807.output.0.ND.npy", "Parameter.a.b.0.0./.output.0.ND.npy", 2**63 - 1),
        ("Parameter.a.b.0.0.9223372036854775808.output.0.ND.npy", None, 0),
        ("Add.Add-op0.1.2.\u0663.output.0.ND.npy", None, 0),
        ("Add.Add-op0.output.0.ND.npy", None, 0),
        ("statistic.csv", None, 0),
        ("", None, 0),
    ],
)
def test_names_are_compared_without_their_times(name: str, timeless: str | None, time: int) -> None:
    assert without_times([name]) == ([timeless or name], [time])


_PARTS = st.sampled_from(
    ["Add", "Add-op0", "0", "12", "007", "9223372036854775807", "input", "output", "ND", "npy", ""]
)


@given(st.lists(_PARTS, max_size=12).map(".".join))
def test_a_name_without_its_time_is_the_name_at_any_other_time(name: str) -> None:
    (timeless,), (time,) = without_times([name])
    split = split_name(name)
    if split is None:
        assert split_name(timeless.replace("/", "5")) is None
    else:
        assert split[3] == time
        assert split_name(timeless.replace("/", "5")) == (*split[:3], 5, *split[4:])
