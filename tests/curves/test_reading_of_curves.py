"""Loss curves from what trainers write."""

from __future__ import annotations

import io
import json
import logging
import math
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.curves import Curve, StepUnit, is_curve_folder, read_curve
from tensight.curves.curve import Point, Series, make_curve
from tensight.curves.event_files import is_event_file, masked_crc32c, read_event_file
from tensight.curves.lines import LONGEST_LINE, Lines
from tensight.curves.tables import from_delimited, from_json, from_json_lines, parse_json
from tensight.curves.text_logs import read_pattern, read_text_log
from tensight.errors import CurveError, InputError, TensightError

FIXTURES = Path(__file__).parents[1] / "fixtures" / "curves"
TENSORBOARD = FIXTURES / "events.out.tfevents.tensorboard-2.21.0"
MINDSPORE = FIXTURES / "events.summary.mindspore-2.10.0_MS"


def read(folder: Path, text: str | bytes, name: str = "train.log", **options: str) -> Curve:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_curve(path, **options)


def entries(curve: Curve) -> dict[int, float]:
    return dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))


@pytest.mark.parametrize(
    ("line", "name", "step", "value"),
    [
        ("loss: 2.31", "loss", None, 2.31),
        ("step 10 loss=2.3", "loss", 10, 2.3),
        ("Epoch 1 step 10, loss is 2.3", "loss", 10, 2.3),
        ("epoch: 1 step: 10, loss is 2.302585124969482", "loss", 10, 2.302585124969482),
        ("{'loss': 2.31, 'grad_norm': 1.0, 'learning_rate': 5e-05, 'epoch': 0.01}", "loss", None, 2.31),
        ("{'loss': '2.31', 'learning_rate': '5e-05', 'epoch': '0.01'}", "loss", None, 2.31),
        (
            " iteration       10/     100 | consumed samples:          320 | elapsed time per iteration (ms): 123.4 | "
            "learning rate: 1.000E-04 | lm loss: 1.082E+01 | loss scale: 1.0 | grad norm: 3.2 |",
            "lm loss", 10, 10.82,
        ),
        (" 10%|█         | 10/100 [00:01<00:10,  9.1it/s, loss=2.3, v_num=0]", "loss", 10, 2.3),
        ("iter 10: loss 4.2174, time 3ms, mfu 2.00%", "loss", 10, 4.2174),
        ("step 0: train loss 4.3, val loss 4.4", "train loss", 0, 4.3),
        ("Epoch: [0][  10/5005]\tTime  0.5 (  0.6)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.00", "Loss", 10, 6.9),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.310000", "Loss", 640, 2.31),
        ("[titan] - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  8.1234  \x1b[0m", "loss", 10, 8.1234),
        ("\x1b[1m10/100\x1b[0m \x1b[32m━━━\x1b[0m 0s 5ms/step - accuracy: 0.1 - loss: 0.6931", "loss", 10, 0.6931),
        ("{ Epoch:[  1/  2], step:[   10/  100], loss: 10.5, per_step_time: 12ms }", "loss", 10, 10.5),
        ("loss is tensor(2.3026, device='cuda:0', grad_fn=<NllLossBackward0>)", "loss", None, 2.3026),
        ("loss: Tensor(shape=[], dtype=Float32, value= 2.3)", "loss", None, 2.3),
        ("| epoch 001:  10 / 100 loss=9.2, nll_loss=8.9, ppl=3", "loss", 10, 9.2),
        ("2026-01-01 12:00:00 epoch 3, step 20, total_loss: 1.5, val_loss: 0.5", "total_loss", 20, 1.5),
        ("global_step=1000 step=10 loss = -1.5e-3", "loss", 1000, -1.5e-3),
        ("the loss is nan", "loss", None, math.nan),
        ("step 3 loss: inf.", "loss", 3, math.inf),
    ],
)  # fmt: skip
def test_recognises_the_lines_of_the_usual_trainers(
    tmp_path: Path, line: str, name: str, step: int | None, value: float
) -> None:
    curve = read(tmp_path, f"starting\n{line}\n")
    assert (curve.name, curve.unit) == (name, StepUnit.ENTRY if step is None else StepUnit.STEP)
    np.testing.assert_equal(entries(curve), {1 if step is None else step: value})


@pytest.mark.parametrize("line", ["loss function: mse", "loss_scale: 1024.0", "lossless 1.5", "no number: loss: abc"])
def test_takes_nothing_else_for_a_loss(tmp_path: Path, line: str) -> None:
    with pytest.raises(CurveError, match="no loss in it"):
        read(tmp_path, f"{line}\n")


def test_reads_the_lines_of_mindspores_own_monitor_over_epochs(tmp_path: Path) -> None:
    lines = [f"epoch: {epoch} step: {step}, loss is {3 - epoch - step / 10}" for epoch in (1, 2) for step in (1, 2, 3)]
    curve = read(tmp_path, "\n".join(lines))
    assert curve.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert "with 3 steps in an epoch" in curve.notes[0]


TIMM = "Train: {epoch} [{at:4d}/100 ({at:3d}%)]  Loss: {loss} (9.0)  Time: 0.1s\n"
KERAS = "{at}/100 [====] - 2s 1ms/step - loss: {loss} - val_loss: 9.0\n"
MNIST = "Train Epoch: {epoch} [{at}/100 ({at}%)]\tLoss: {loss}\n"
UNCOUNTED = "step {at} loss={loss}\n"


@pytest.mark.parametrize(
    ("form", "epochs", "steps"),
    [
        (TIMM, 2, [0, 50, 100, 150]),
        (KERAS, 2, [0, 50, 100, 150]),
        (MNIST, 2, [0, 50, 100, 150]),
        (UNCOUNTED, 3, [0, 50, 100, 150, 200, 250]),
    ],
    ids=["timm", "Keras", "MNIST example", "no total"],
)
def test_steps_that_begin_again_are_numbered_on_and_evaluations_are_apart(
    tmp_path: Path, form: str, epochs: int, steps: list[int]
) -> None:
    text = ""
    for epoch in range(epochs):
        text += "".join(form.format(epoch=epoch, at=at, loss=5 - epoch - at / 100) for at in (0, 50))
        text += "Test: [  0/7]  Time: 0.1  Loss: 8.5\nTest set: Average loss: 8.1, Accuracy: 1/7 (14%)\n"
    curve = read(tmp_path, text)
    assert curve.steps.tolist() == steps
    np.testing.assert_allclose(curve.values, [5 - epoch - at / 100 for epoch in range(epochs) for at in (0, 50)])


def test_a_training_that_was_resumed_goes_back_and_is_not_numbered_on(tmp_path: Path) -> None:
    text = "".join(f"step {step} loss={step}\n" for step in [1, 2, 3, 4, 3, 4, 5, 2, 3, 4, 5, 6])
    assert read(tmp_path, text).steps.tolist() == [1, 2, 3, 4, 5, 6]


def test_a_series_of_many_values_comes_before_one_at_the_end(tmp_path: Path) -> None:
    text = "".join(f"step:{step} - actor/pg_loss:{step} - lr:1e-3\n" for step in range(20))
    assert read(tmp_path, text + "best loss 0.5\n").name == "actor/pg_loss"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_reads_progress_bars_and_other_encodings(tmp_path: Path, encoding: str) -> None:
    bar = "".join(f"\r{step}/4 [00:0{step}, loss={5 - step}.0]" for step in range(1, 5))
    assert entries(read(tmp_path, (bar + "\n").encode(encoding))) == {1: 4.0, 2: 3.0, 3: 2.0, 4: 1.0}


def test_the_last_of_repeated_steps_counts_and_is_told(tmp_path: Path) -> None:
    curve = read(tmp_path, "step 1 loss=4\nstep 2 loss=3\nstep 3 loss=2\nstep 2 loss=2.5\nstep 3 loss=2\n")
    assert entries(curve) == {1: 4, 2: 2.5, 3: 2}
    assert "1 step of" in curve.notes[0]
    assert "(step 2); the last value counts" in curve.notes[0]


def test_of_several_ranks_in_one_log_the_lowest_is_taken(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]: step {step} loss={step + rank}.5" for step in (1, 2) for rank in (3, 0, 1)]
    curve = read(tmp_path, "\n".join(lines))
    assert entries(curve) == {1: 1.5, 2: 2.5}
    assert "3 ranks" in curve.notes[0]


def test_knows_with_how_many_digits_losses_were_printed(tmp_path: Path) -> None:
    for printed, rounding in (
        (("2.31", "2.3", "0.1"), (0.005, 0.005, 0.005)),
        (("10.31", "0.07", "0.0"), (0.005, 0.005, 0.005)),
        (("1.25E+01", "1.00E-02"), (0.05, 0.00005)),
        # Hugging Face's Trainer prints four significant digits.
        (("1.044", "0.5038", "12.5", "0.06544"), (0.0005, 0.00005, 0.005, 0.000005)),
        (("2.302585092994046", "1e-05"), (5e-16, 5e-21)),
    ):
        curve = read(tmp_path, "".join(f"step {step} loss={value}\n" for step, value in enumerate(printed, 1)))
        np.testing.assert_allclose(curve.rounding, rounding)


def test_a_pattern_of_ones_own(tmp_path: Path) -> None:
    curve = read(
        tmp_path, "[7] objective -> 1,5\n[8] objective -> 0.25\n", pattern=r"\[(?P<step>\d+)\] .*-> (?P<loss>\S+)"
    )
    assert entries(curve) == {8: 0.25}
    for pattern, words in (("(", "not a regular expression"), ("loss", "no group"), ("x" * 1001, "1,001 characters")):
        with pytest.raises(InputError, match=words):
            read(tmp_path, "loss: 1\n", pattern=pattern)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"step": 1, "loss": 2.5, "lr": 0.1}\n{"step": 2, "loss": 1.5, "lr": 0.1}\n'),
        ("a.log", '{"step": 1, "train": {"loss": 2.5}}\n\n{"step": 2, "train": {"loss": 1.5}}\n'),
        ("a.json", '[{"step": 1, "loss": 2.5}, {"step": 2, "loss": "1.5"}]'),
        ("a.json", '{"log_history": [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 1.5, "eval_loss": 9}]}'),
        ("a.json", '{\n "history": {"loss": [2.5, 1.5], "x": [1, 2]}}'),
        ("a.json", '{"loss": [2.5, 1.5], "step": [1, 2]}'),
        ("a.json", "[[1700000000.1, 1, 2.5], [1700000000.2, 2, 1.5]]"),
        ("a.json", "[2.5, 1.5]"),
        ("a.csv", "step,train_loss,val_loss\n1,2.5,9\n2,1.5,8\n"),
        ("a.csv", '"Step","run - loss","run - loss__MIN","run - loss__MAX"\n"1","2.5","0","9"\n"2","1.5","0","9"\n'),
        ("a.tsv", "step\tloss\n1\t2.5\n2\t1.5\n"),
        ("a.txt", "step,loss\n1,2.5\n2,1.5\n"),
        ("a.csv", "1,2.5\n2,1.5\n"),
        ("a.csv", "epoch,step,train_loss\n0,1,2.5\n0,1,\n0,2,1.5\n"),
    ],
)  # fmt: skip
def test_reads_tables_and_json(tmp_path: Path, name: str, text: str) -> None:
    assert entries(read(tmp_path, text, name)) == {1: 2.5, 2: 1.5}


def test_epochs_are_not_taken_for_steps(tmp_path: Path) -> None:
    assert read(tmp_path, "epoch,loss\n0,2.5\n1,1.5\n", "keras.csv").unit is StepUnit.EPOCH
    assert read(tmp_path, '{"loss": 2.5, "epoch": 0.1}\n{"loss": 1.5, "epoch": 0.2}', "a.jsonl").unit is StepUnit.ENTRY


def test_the_series_that_is_meant_is_chosen_and_told(tmp_path: Path) -> None:
    text = "step,eval/loss,train/grad_norm,train/loss,Train/Grad_norm2\n1,9,8,7,6\n"
    assert entries(read(tmp_path, text, "a.csv")) == {1: 7}
    assert "of 4 scalar series 'train/loss' was taken" in read(tmp_path, text, "a.csv").notes[0]
    assert entries(read(tmp_path, text, "a.csv", column="grad_norm")) == {1: 8}
    with pytest.raises(CurveError, match="no series 'x'; it has eval/loss, train/grad_norm"):
        read(tmp_path, text, "a.csv", column="x")
    with pytest.raises(CurveError, match="choose one with --column: a, b"):
        read(tmp_path, "step,a,b\n1,2,3\n", "a.csv")
    line = "step 1 loss=2.5 grad_norm=3.5 lr 0.5\n"
    assert [entries(read(tmp_path, line, column=name)) for name in ("grad_norm", "LR", "loss")] == [
        {1: 3.5},
        {1: 0.5},
        {1: 2.5},
    ]
    assert entries(read(tmp_path, "step,objective\n1,2\n", "a.csv")) == {1: 2}


@pytest.mark.parametrize(("path", "name", "others"), [(TENSORBOARD, "train/loss", 2), (MINDSPORE, "loss", 1)])
def test_reads_event_files_of_tensorboard_and_of_mindspore(path: Path, name: str, others: int) -> None:
    curve = read_curve(path)
    assert (curve.name, len(curve.others)) == (name, others)
    assert entries(curve) == {step: float(np.float32(2.5 / step)) for step in range(1, 6)}


def test_reads_scalars_that_are_stored_as_tensors() -> None:
    assert entries(read_curve(TENSORBOARD, column="eval/loss"))[2] == 1.5


def test_a_damaged_event_file_is_read_up_to_there_and_told(tmp_path: Path) -> None:
    data = TENSORBOARD.read_bytes()
    cut = read(tmp_path, data[:-5], TENSORBOARD.name)
    assert "ends within the record" in cut.notes[0]
    assert len(cut) == 5
    flipped = bytearray(data)
    flipped[600] ^= 1
    damaged = read(tmp_path, bytes(flipped), TENSORBOARD.name)
    assert len(damaged) < 5
    assert "checksum" in damaged.notes[0]
    with pytest.raises(CurveError, match="not an event file"):
        read(tmp_path, b"no" + data, TENSORBOARD.name)


def test_checksums_are_those_of_the_record_format() -> None:
    # CRC-32C of "123456789" is e3069283 (RFC 3720 gives others; this is the check value of the catalogue).
    crc = 0xE3069283
    assert masked_crc32c(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_finds_the_log_in_a_folder(tmp_path: Path) -> None:
    states = tmp_path / "trainer"
    for step in (5, 10, 9):
        folder = states / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        history = [{"step": 1, "loss": 3.0, "epoch": 0.1}, {"step": step, "loss": float(step), "epoch": 0.5}]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    assert entries(read_curve(states)) == {1: 3, 10: 10}
    assert entries(read_curve(states / "checkpoint-5")) == {1: 3, 5: 5}
    events = tmp_path / "events"
    for run in ("one", "two"):
        (events / run).mkdir(parents=True)
        (events / run / TENSORBOARD.name).write_bytes(TENSORBOARD.read_bytes())
    assert len(read_curve(events / "one")) == 5
    with pytest.raises(CurveError, match="several trainings"):
        read_curve(events)
    assert is_curve_folder(events)
    assert not is_curve_folder(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "is empty"), (b"\n \n", "contains no text"), (b"\0\xff\xfe", "no loss in it")]
)
def test_says_what_is_wrong_with_a_file(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(CurveError, match=words):
        read(tmp_path, content)


def test_says_that_a_path_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path, Path("/dev/null"), tmp_path / ("x" * 300), Path("a\0b")):
        with pytest.raises(CurveError):
            read_curve(path)


def test_a_long_line_is_cut_and_takes_no_long_time(tmp_path: Path) -> None:
    long = (
        "loss " * 200_000 + "\nstep 1 loss=2.5\n" + "loss" * 300_000 + ":" + " " * 1000 + "\n" + "1/" * 100_000 + "loss"
    )
    assert entries(read(tmp_path, long)) == {1: 2.5}
    assert max(map(len, Lines(io.BytesIO(b"x" * (LONGEST_LINE * 3))))) == LONGEST_LINE


TEXTS = st.text(
    st.sampled_from("step loss=:,{}[]\"'0123456789.e+-\n\r\t|/naif\\ epochrk\0\x1b[m\ud800"), max_size=200
) | st.text(max_size=50)


@given(TEXTS)
def test_no_text_does_anything_but_fail_for_a_person(text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")

    def lines() -> Lines:
        return Lines(io.BytesIO(content))

    document: object = None
    with suppress(ValueError):
        document = parse_json(text)
    for parse in (
        lambda: read_text_log(lines()),
        lambda: read_text_log(lines(), is_whole=True),
        lambda: from_json_lines(lines()),
        lambda: from_delimited(lines(), ","),
        lambda: from_json(document),
        lambda: read_pattern(lines(), text),
    ):
        with suppress(TensightError):
            assert isinstance(make_curve(parse(), "x"), Curve)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["nan", "1e999", "1"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["loss", "step", "log_history", "epoch", "a", ""]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON)
def test_no_json_does_anything_but_fail_for_a_person(document: object) -> None:
    try:
        curve = make_curve(from_json(parse_json(json.dumps(document))), "x")
    except TensightError:
        return
    assert np.all(np.diff(curve.steps) > 0)
    assert len(curve) == len(curve.values) == len(curve.rounding)


@given(st.data())
def test_no_event_file_does_anything_but_fail_for_a_person(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from([TENSORBOARD.read_bytes(), MINDSPORE.read_bytes()])))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=5)):
        content[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        # With valid checksums the messages are reached.
        begin = 0
        while begin + 12 <= len(content):
            length = min(int.from_bytes(content[begin : begin + 8], "little"), len(content) - begin - 16)
            if length < 0:
                break
            header = length.to_bytes(8, "little")
            content[begin : begin + 12] = header + masked_crc32c(header).to_bytes(4, "little")
            end = begin + 12 + length
            content[end : end + 4] = masked_crc32c(bytes(content[begin + 12 : end])).to_bytes(4, "little")
            begin = end + 4
    series = Series()
    is_event_file(bytes(content))
    read_event_file(io.BytesIO(bytes(content)), "x", series)
    for points in series.points.values():
        assert all(isinstance(point, Point) for point in points)
    if series.points:
        make_curve(series, "x", column=next(iter(series.points)))


def test_logging_prints_what_is_read(tmp_path: Path) -> None:
    """What Python's own logging puts before a line hides nothing of it."""
    path = tmp_path / "train.log"
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s:%(lineno)d: %(message)s"))
    logger = logging.getLogger("test.train")
    logger.addHandler(handler)
    logger.warning("step %d loss %.3f", 12, 1.5)
    logger.removeHandler(handler)
    handler.close()
    assert entries(read_curve(path)) == {12: 1.5}
