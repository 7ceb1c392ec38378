"""A printed number is read as a whole, or not at all."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.curves import Decimal, StepUnit, read_curve
from tensight.curves.numbers import Numbers, plain_number
from tensight.errors import CurveError


def read(folder: Path, text: str, name: str = "train.log", **options: object) -> dict[int, float]:
    path = folder / name
    path.write_text(text)
    curve = read_curve(path, **options)  # type: ignore[arg-type]
    return dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))


@pytest.mark.parametrize(
    ("text", "unknown", "point", "comma"),
    [
        ("10,047", None, "10047", "10.047"),
        ("10.047", "10.047", "10.047", "10047"),
        ("1,234.5", "1234.5", "1234.5", None),
        ("1.234,5", "1234.5", None, "1234.5"),
        ("12,345,678", "12345678", "12345678", None),
        ("0,047", "0.047", None, "0.047"),
        ("2,5e-3", "2.5e-3", None, "2.5e-3"),
        ("1_000", "1000", "1000", "1000"),
        ("1'234.5", "1234.5", "1234.5", None),
        ("1\u202f234,5", "1234.5", None, "1234.5"),
        ("1 234,5", "1234.5", None, "1234.5"),
        ("10 047", None, None, None),
        ("1.2k", None, None, None),
        ("10,20,30", None, None, None),
        ("0.5,12", "0.5", "0.5", "0.5"),
        ("1e-3", "1e-3", "1e-3", "1e-3"),
        ("\u22120.5", "-0.5", "-0.5", None),
        ("-Infinity", "-Infinity", "-Infinity", "-Infinity"),
        ("--5", None, None, None),
        (".", None, None, None),
    ],
)
def test_separators_are_those_of_thousands_or_of_decimals_or_the_text_is_refused(
    text: str, unknown: str | None, point: str | None, comma: str | None
) -> None:
    signs = (None, Decimal.POINT, Decimal.COMMA)
    assert [plain_number(text, sign) for sign in signs] == [unknown, point, comma]


@given(st.text(st.sampled_from("0123456789.,'_ eE+-k\u202f"), max_size=20))
def test_what_is_read_is_a_number_of_all_digits(text: str) -> None:
    for sign in (None, Decimal.POINT, Decimal.COMMA):
        plain = plain_number(text, sign)
        if plain is not None:
            float(plain)
            is_first_of_list = "," in text and "." in text
            digits = [[char for char in of if char.isdigit()] for of in (plain, text)]
            assert digits[0] == digits[1] or is_first_of_list


@given(st.floats(-1e9, 1e9), st.integers(0, 6))
def test_a_number_is_read_back_in_every_spelling(value: float, decimals: int) -> None:
    printed = f"{value:,.{decimals}f}"
    swapped = printed.translate(str.maketrans({",": ".", ".": ","}))
    plain = f"{value:.{decimals}f}"
    assert plain_number(printed) == plain_number(swapped, Decimal.COMMA) == plain


def test_other_numbers_of_the_file_tell_what_a_comma_is() -> None:
    for text, decimal in (("0.001", Decimal.POINT), ("0,001", Decimal.COMMA), ("7,125", None)):
        numbers = Numbers()
        numbers.see("10,047", "loss")
        numbers.see(text, "lr")
        assert numbers.decimal("loss") is decimal
    assert Numbers(Decimal.COMMA).read("10,047") == "10.047"


@pytest.mark.parametrize(
    ("lines", "values"),
    [
        (["step 1 loss 10,047.5", "step 2 loss 9,998.25"], {1: 10047.5, 2: 9998.25}),
        (["step 1 loss 10,047 lr 0.001", "step 2 loss 9,998 lr 0.001"], {1: 10047, 2: 9998}),
        (["step 1 loss 10,047 lr 0,001", "step 2 loss 9,998 lr 0,001"], {1: 10.047, 2: 9.998}),
        (["step 1.000 loss 2,5", "step 2.000 loss 1,25"], {1000: 2.5, 2000: 1.25}),
        (["step 1,000 loss 2.5", "step 2,000 loss 1.25"], {1000: 2.5, 2000: 1.25}),
        (["step 1,000/9,000 loss=2.5"], {1000: 2.5}),
        ([" 10%|█ | 1,000/9,000 [00:01<00:10, loss=2.5]"], {1000: 2.5}),
        (["step 1, loss 2.5, lr 0.1"], {1: 2.5}),
        (["loss 2.5,step 7,lr 0.1"], {7: 2.5}),
        (["step 1 loss 0.5,12"], {1: 0.5}),
        (["total_steps: 900 current_steps: 10 loss: 2.5"], {10: 2.5}),
        (["total steps 900 step 10 loss 2.5"], {10: 2.5}),
        (['train_inner | {"epoch": 1, "update": 1.005, "loss": "2.5", "num_updates": "100"}'], {100: 2.5}),
    ],
)
def test_losses_and_steps_of_a_log_are_read_as_a_whole(tmp_path: Path, lines: list[str], values: object) -> None:
    assert read(tmp_path, "\n".join(lines) + "\n") == values


def test_a_comma_that_nothing_explains_is_refused_until_the_user_says_what_it_is(tmp_path: Path) -> None:
    text = "step 1 loss 10,047\nstep 2 loss 9,998\n"
    for name in ("a.log", "a.csv"):
        content = text if name == "a.log" else 'step,loss\n1,"10,047"\n2,"9,998"\n'
        with pytest.raises(CurveError, match=r"10,047.*--decimal-point or --decimal-comma"):
            read(tmp_path, content, name)
        assert read(tmp_path, content, name, decimal=Decimal.POINT) == {1: 10047, 2: 9998}
        assert read(tmp_path, content, name, decimal=Decimal.COMMA) == {1: 10.047, 2: 9.998}


def test_what_is_no_number_as_a_whole_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("step 1 loss 3\nstep 2 loss 10 047\nstep 3 loss 1.2k\nstep 4 loss 2.5\n")
    curve = read_curve(path)
    assert curve.steps.tolist() == [1, 4]
    assert "2 values of loss left out: '10 047' cannot be read as one number" in curve.notes
    path.write_text("step 1 loss 1.2k val_loss 3.5\nstep 2 loss 1.1k val_loss 3.5\n")
    with pytest.raises(CurveError, match=r"loss is printed as '1.2k'"):
        read_curve(path)


def test_a_semicolon_table_with_decimal_commas_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, "step;loss\n1.000;2,5\n2.000;1,25\n", "a.csv") == {1000: 2.5, 2000: 1.25}


@pytest.mark.parametrize(
    ("text", "unit", "epochs"),
    [
        ("{'loss': 2.5, 'epoch': 0.5}\n{'loss': 1.5, 'epoch': 0.75}\n", StepUnit.ENTRY, [0.5, 0.75]),
        ("Epoch 5: loss=2.5\nEpoch 10: loss=1.5\n", StepUnit.EPOCH, [5, 10]),
        ("Epoch 1: loss=2.5\nEpoch 1: loss=1.5\n", StepUnit.ENTRY, [1, 1]),
        ("epoch 1 step 5 loss=2.5\nepoch 1 step 6 loss=1.5\n", StepUnit.STEP, [1, 1]),
    ],
)
def test_epochs_are_kept_and_count_where_there_are_no_steps(
    tmp_path: Path, text: str, unit: StepUnit, epochs: list[float]
) -> None:
    (tmp_path / "a.log").write_text(text)
    curve = read_curve(tmp_path / "a.log")
    assert curve.unit is unit
    assert curve.epochs is not None
    np.testing.assert_array_equal(curve.epochs, epochs)
    assert curve.steps.tolist() == ([5, 10] if unit is StepUnit.EPOCH else [5, 6] if unit is StepUnit.STEP else [1, 2])


@pytest.mark.parametrize(
    ("compress", "ending"), [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")]
)
def test_compressed_logs_are_read(tmp_path: Path, compress: object, ending: str) -> None:
    for name, text in (
        ("a.log", "step 1 loss 2.5\n"),
        ("a.csv", "step,loss\n1,2.5\n"),
        ("a.jsonl", '{"step": 1, "loss": 2.5}\n'),
    ):
        path = tmp_path / (name + ending)
        path.write_bytes(compress(text.encode()))  # type: ignore[operator]
        curve = read_curve(path)
        assert (curve.steps.tolist(), curve.values.tolist()) == ([1], [2.5])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CurveError, match="damaged"):
        read_curve(path)
    path.write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(CurveError, match="is a zip archive; unpack it"):
        read_curve(path)
