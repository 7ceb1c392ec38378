"""All scalars of logs, as trainers print them, and what their names tell."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tensight.curves.reading import read_scalars
from tensight.curves.roles import Kind, Role, role_of, roles_of_data

LOGS = {
    "box of Stable-Baselines3": (
        "| rollout/ | |\n|    ep_rew_mean     | 18.7     |\n| train/ | |\n|    value_loss      | 4.27     |\n"
        + "-" * 30,
        {"ep_rew_mean": [18.7], "value_loss": [4.27]},
    ),
    "evaluation of Megatron-LM": (
        " iteration 10/ 20 | lm loss: 4.5E+00 | loss scale: 1.0 | grad norm: 2.5 |\n"
        " validation loss at iteration 10 | lm loss value: 3.6E+00 | lm loss PPL: 3.9E+01 |",
        {"lm loss": [4.5], "loss scale": [1.0], "grad norm": [2.5], "validation lm loss": [3.6]},
    ),
    "scale of DeepSpeed": (
        "[loss_scaler.py:190] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        {"loss scale": [32768.0]},
    ),
    "scale of fairseq": (
        "| NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 1e-05\n"
        "| train_inner | epoch 001:    100 / 9021 loss=11.8, num_updates=100, lr=1e-05, gnorm=1.3, loss_scale=64",
        {"loss scale": [1e-5], "loss": [11.8], "lr": [1e-5], "gnorm": [1.3], "loss_scale": [64.0]},
    ),
    "data of LightGBM": (
        "[10]\ttraining's auc: 0.9\tvalid_1's auc: 0.8\n{'loss': 0.5}",
        {"training's auc": [0.9], "valid_1's auc": [0.8], "loss": [0.5]},
    ),
    "table of Ultralytics": (
        "Starting training for 2 epochs...\n\n      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size\n"
        "        1/2      2.5G      1.234      2.345         35        640:  50%|#####     | 4/8 [00:01<00:01]\n"
        "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|####| 4/4\n"
        "                   all        128        929       0.64       0.53       0.60       0.44\n"
        "        2/2      2.5G      nan      nan         35        640: 100%|##########| 8/8 [00:01<00:01]\n",
        {"box_loss": [1.234, math.nan], "cls_loss": [2.345, math.nan]},
    ),
    "table of fastai among other lines": (
        "cuda:0\nepoch     train_loss  valid_loss  accuracy  time\n0         0.7         0.6         0.5       00:03\n"
        "saved\n1         0.6         0.5         0.6       00:03\n20 samples, 5 wrong",
        {"train_loss": [0.7, 0.6], "valid_loss": [0.6, 0.5], "accuracy": [0.5, 0.6]},
    ),
    "lists of PaddlePaddle": ("epoch: 1, batch: 10, loss is: [2.31], acc is: [0.5]", {"loss": [2.31], "acc": [0.5]}),
    "right answers of a test set": (
        "Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300000\n\n"
        "Test set: Average loss: 0.5, Accuracy: 9834/10000 (98%)\n\nTest set loss: 0.4",
        {"Loss": [2.3], "test Average loss": [0.5], "test Accuracy": [0.9834], "test set loss": [0.4]},
    ),
    "columns of fastai": (
        "epoch     train_loss  valid_loss  accuracy  time\n0         0.7         0.6         0.5       00:03\n"
        "1         0.6         0.5         0.6       00:03",
        {"train_loss": [0.7, 0.6], "valid_loss": [0.6, 0.5], "accuracy": [0.5, 0.6]},
    ),
    "table of a model card": (
        "| Training Loss | Step | Validation Loss |\n|:---:|:---:|:---:|\n| 0.7 | 10 | 0.8 |\n| 0.6 | 20 | 0.7 |",
        {"Training Loss": [0.7, 0.6], "Validation Loss": [0.8, 0.7]},
    ),
    "a loop": (
        "step 10 loss 2.3 lr 1e-4 norm 0.5\n  val loss 2.4 val acc 12.5%",
        {"loss": [2.3], "lr": [1e-4], "norm": [0.5], "val loss": [2.4], "val acc": [12.5]},
    ),
    "phases behind a time": (
        "[Epoch 1] Training   - loss: 0.7\n[Epoch 1] Validation - loss: 0.8",
        {"loss": [0.7], "validation loss": [0.8]},
    ),
    "a log without numbers that are known": ("step 1 took 3.5 s at node-1:29500\n", {}),
}


@pytest.mark.parametrize("name", LOGS)
def test_all_scalars_of_a_log_are_read(name: str, tmp_path: Path) -> None:
    text, values = LOGS[name]
    log = tmp_path / "train.log"
    log.write_text(text + "\n")
    points = {series: of_series for series, of_series in read_scalars([log]).points.items() if role_of(series)}
    read = {series: [point.value for point in of_series] for series, of_series in points.items()}
    assert repr(read) == repr(values)


def test_each_entry_has_its_line_although_bars_overwrite_themselves(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "start\nEpoch 1/2\n\r1/2 [=>..] - loss: 3.0\r2/2 [====] - loss: 2.0\n"
        "Epoch 2/2\n\r1/2 [=>..] - loss: 1.5\r2/2 [====] - loss: 1.0\n"
    )
    series = read_scalars([log])
    points = series.points["loss"]
    assert [(point.epoch, point.step, series.lines[point.entry]) for point in points] == [
        (1.0, 1, 3),
        (1.0, 2, 3),
        (2.0, 3, 5),
        (2.0, 4, 5),
    ]


def test_a_bar_that_is_called_steps_counts_no_percents(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("Steps:  50%|####    | 1500/3000 [00:10<01:00, lr=0.001, step_loss=0.7]\n")
    assert [point.step for point in read_scalars([log]).points["step_loss"]] == [1500]


@pytest.mark.parametrize(("empty", "count"), [(3, 8), (2, 6)])
def test_a_loss_that_is_empty_to_the_end_is_nan(empty: int, count: int, tmp_path: Path) -> None:
    """As pandas writes NaN; fewer rows may be those of a last test."""
    log = tmp_path / "metrics.csv"
    rows = [f"{step},{0.9 - 0.1 * step if step < count - empty else ''},0.1" for step in range(count)]
    log.write_text("\n".join(["step,loss,lr", *rows]) + "\n")
    values = [point.value for point in read_scalars([log]).points["loss"]]
    assert len(values) == (count if empty == 3 else count - empty)
    assert sum(value != value for value in values) == (empty if empty == 3 else 0)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("train/loss", Role(Kind.LOSS)),
        ("eval_loss", Role(Kind.LOSS, is_evaluation=True)),
        ("lr-AdamW/pg1", Role(Kind.RATE)),
        ("learning rate", Role(Kind.RATE)),
        ("gnorm", Role(Kind.GRADIENT_NORM)),
        ("loss_scale", Role(Kind.SCALE)),
        ("number of skipped", Role(Kind.SKIPPED)),
        ("metrics/mAP50(B)", Role(Kind.SKILL)),
        ("val_wer", Role(Kind.ERROR, is_evaluation=True)),
        ("Acc@1", Role(Kind.SKILL)),
        ("best_loss", None),
        ("loss_scaler.py", None),
        ("throughput", None),
        ("map_time", None),
    ],
)
def test_a_name_tells_what_a_scalar_is(name: str, role: Role | None) -> None:
    assert role_of(name) == role


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("Epoch {at} | train {fall:.3f} | val {rise:.3f} | acc 0.1", {"train", "val"}),
        ("epoch {at}: train: {fall:.3f}, valid: {rise:.3f}", {"train", "valid"}),
        ("{at} Train={fall:.3f} Test={rise:.3f}", {"Train", "Test"}),
        ("epoch {at} accuracies: train {rise:.3f} val {rise:.3f}", set()),
        ("epoch {at} acc 0.5 train {rise:.3f} val {rise:.3f}", set()),
        ("train: {at}%|###| 12/27 val: {at}%", set()),
    ],
)
def test_losses_may_be_called_for_their_data_alone(line: str, names: set[str], tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(line.format(at=at, fall=2 - at / 10, rise=0.3 + at / 40) + "\n" for at in range(12)))
    roles = roles_of_data(read_scalars([log]).points)
    assert roles == {name: Role(Kind.LOSS, name.lower() != "train") for name in names}


@pytest.mark.parametrize(
    ("before", "entries"),
    [
        ({5: "curriculum: stage 2 begins"}, [6]),
        ({5: "Switching to the next dataset, wiki"}, [6]),
        ({0: "resolution: 128", 4: "resolution: 128", 7: "resolution: 224"}, [1, 8]),
        ({at: f"max_len={100 + at}" for at in range(20)}, []),
        ({3: "loading data from /data/stage.bin"}, []),
    ],
)
def test_a_stage_begins_where_it_is_named_for_the_first_time(
    before: dict[int, str], entries: list[int], tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(before.get(at, "...") + f"\nstep {at} loss 0.5\n" for at in range(20)))
    assert read_scalars([log]).stages == entries


def test_tables_name_stages_in_columns_and_in_messages(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    rows = [{"step": at, "loss": 0.5, "stage": at // 4, "data/task": "a" if at < 6 else "b"} for at in range(8)]
    log.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"event": "length", "message": "max_len 64 now"}]))
    assert read_scalars([log]).stages == [1, 5, 7, 9]


@pytest.mark.parametrize(
    ("text", "name", "steps"),
    [
        ("[0]\ttrain-rmse:0.7\n[10]\ttrain-rmse:0.6", "train-rmse", [0, 10]),
        ("0:\tlearn: 0.7\ttest: 0.7\tbest: 0.7 (0)\n5:\tlearn: 0.6\ttest: 0.6\tbest: 0.6 (5)", "learn", [0, 5]),
        (
            "[batch=1/9]:\n Train loss/train/total: 3.0\n[batch=2/9]:\n Train loss/train/total: 2.0",
            "Train loss/train/total",
            [1, 2],
        ),
        ("epoch: 1 step: 1875, loss is 2.0\nepoch: 2 step: 1875, loss is 1.0", "loss", [1875, 3750]),
    ],
    ids=["XGBoost", "CatBoost", "Composer", "MindSpore, once in each epoch"],
)
def test_steps_are_read_as_trainers_print_them(text: str, name: str, steps: list[int], tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(text + "\n")
    assert [point.step for point in read_scalars([log]).points[name]] == steps
