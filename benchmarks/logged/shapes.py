"""How trainers write what happens: each writes a course into a folder, and says what of it its log has."""

from __future__ import annotations

import csv
import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensight.curves.event_files import masked_crc32c

if TYPE_CHECKING:
    from logged.courses import Course, Evaluation

ENTRIES, EPOCHS = 300, 30
"""Number of entries of logs that have one for each so many steps, and of those that have one for each epoch."""

Writer = Callable[["Course", Path], None]


def evaluation_at(course: Course, entry: int) -> Evaluation | None:
    return next((each for each in course.evaluations if each.entry == entry), None)


def table(path: Path, rows: list[dict[str, Any]], *, delimiter: str = ",") -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, delimiter=delimiter, restval="")
        writer.writeheader()
        writer.writerows(rows)


def trainer_state(course: Course, folder: Path) -> None:
    """Hugging Face's Trainer: the state beside a checkpoint."""
    history: list[dict[str, float]] = []
    for at, step in enumerate(course.steps.tolist()):
        epoch = float(course.epochs[at])
        history.append(
            {
                "epoch": epoch,
                "grad_norm": float(course.norm[at]),
                "learning_rate": float(course.rate[at]),
                "loss": round(float(course.loss[at]), 4),
                "step": step,
            }
        )
        evaluation = evaluation_at(course, at)
        if evaluation is not None:
            history.append(
                {
                    "epoch": epoch,
                    "eval_accuracy": evaluation.accuracy,
                    "eval_loss": evaluation.loss,
                    "eval_runtime": 12.3,
                    "eval_samples_per_second": 81.2,
                    "step": step,
                }
            )
    last = int(course.steps[-1])
    state = {"best_metric": None, "epoch": float(course.epochs[-1]), "global_step": last, "log_history": history}
    checkpoint = folder / f"checkpoint-{last}"
    checkpoint.mkdir()
    (checkpoint / "trainer_state.json").write_text(json.dumps(state, indent=2))


def trainer_prints(course: Course, folder: Path) -> None:
    """Print the dictionaries of the same trainer."""
    lines = ["***** Running training *****", f"  Total optimization steps = {int(course.steps[-1])}"]
    for at in range(len(course.steps)):
        lines.append(
            f"{{'loss': {round(float(course.loss[at]), 4)}, 'grad_norm': {float(course.norm[at])},"
            f" 'learning_rate': {float(course.rate[at])}, 'epoch': {float(course.epochs[at]):.2f}}}"
        )
        evaluation = evaluation_at(course, at)
        if evaluation is not None:
            lines.append(
                f"{{'eval_loss': {evaluation.loss}, 'eval_accuracy': {evaluation.accuracy}, 'eval_runtime': 1.2,"
                f" 'epoch': {float(course.epochs[at]):.2f}}}"
            )
    (folder / "train.log").write_text("\n".join(lines) + "\n")


def lightning(course: Course, folder: Path) -> None:
    """Lightning's CSVLogger: evaluations in rows of their own."""
    rows: list[dict[str, Any]] = []
    for at, step in enumerate(course.steps.tolist()):
        epoch = int(course.epochs[at] - 1e-9)
        rows.append({"epoch": epoch, "lr-AdamW": course.rate[at], "step": step - 1})
        rows.append({"epoch": epoch, "step": step - 1, "train_loss_step": course.loss[at]})
        evaluation = evaluation_at(course, at)
        if evaluation is not None:
            rows.append({"epoch": epoch, "step": step - 1, "val_acc": evaluation.accuracy, "val_loss": evaluation.loss})
            rows.append({"epoch": epoch, "step": step - 1, "train_loss_epoch": course.loss[at]})
    version = folder / "lightning_logs" / "version_0"
    version.mkdir(parents=True)
    table(version / "metrics.csv", rows)


def _field(number: int, wire: int, content: bytes) -> bytes:
    return bytes([number << 3 | wire]) + content


def _varint(value: int) -> bytes:
    result = b""
    while value > 127:
        result += bytes([value & 127 | 128])
        value >>= 7
    return result + bytes([value])


def _length(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _event(step: int, tag: str, value: float) -> bytes:
    scalar = _field(1, 2, _length(tag.encode())) + _field(2, 5, struct.pack("<f", value))
    event = _field(1, 1, struct.pack("<d", 1e9 + step)) + _field(2, 0, _varint(step))
    event += _field(5, 2, _length(_field(1, 2, _length(scalar))))
    header = len(event).to_bytes(8, "little")
    return header + masked_crc32c(header).to_bytes(4, "little") + event + masked_crc32c(event).to_bytes(4, "little")


def tensorboard(course: Course, folder: Path) -> None:
    """Event files of TensorBoard, in two folders as its writers make for training and evaluation."""
    content = b""
    for at, step in enumerate(course.steps.tolist()):
        content += _event(step, "train/loss", course.loss[at]) + _event(step, "train/lr", course.rate[at])
        content += _event(step, "train/grad_norm", course.norm[at])
        evaluation = evaluation_at(course, at)
        if evaluation is not None:
            content += _event(step, "val/loss", evaluation.loss) + _event(step, "val/accuracy", evaluation.accuracy)
    runs = folder / "runs" / "Nov28_12-00-00_host"
    runs.mkdir(parents=True)
    (runs / "events.out.tfevents.1700000000.host.1.0").write_bytes(content)


def keras_events(course: Course, folder: Path) -> None:
    """Write the event files of Keras, those of the evaluation in a folder of their own."""
    train, validation = b"", b""
    for at, step in enumerate(course.steps.tolist()):
        evaluation = evaluation_at(course, at)
        assert evaluation is not None
        train += _event(step, "epoch_loss", course.loss[at]) + _event(step, "epoch_learning_rate", course.rate[at])
        validation += _event(step, "epoch_loss", evaluation.loss) + _event(step, "epoch_accuracy", evaluation.accuracy)
    for name, content in (("train", train), ("validation", validation)):
        part = folder / "logs" / "fit" / name
        part.mkdir(parents=True)
        (part / "events.out.tfevents.1700000000.host.1.0.v2").write_bytes(content)


def lightning_bars(course: Course, folder: Path) -> None:
    """Write Lightning's progress bars, which show the last evaluation until the next one."""
    text, last = "", None
    for at in range(len(course.steps)):
        epoch, batch = divmod(int(course.steps[at]) // 10 - 1, course.per_epoch)
        shown = "" if last is None else f", val_loss={last.loss:.3f}, val_acc={last.accuracy:.3f}"
        done = 100 * (batch + 1) // course.per_epoch
        text += (
            f"\rEpoch {epoch}: {done:3d}%|{'#' * (done // 10):10}| {batch + 1}/{course.per_epoch}"
            f" [00:01<00:01,  9.80it/s, v_num=0, train_loss={course.loss[at]:.3f}{shown}]"
        )
        last = evaluation_at(course, at) or last
    (folder / "console.log").write_text(text + "\n")


def nanogpt(course: Course, folder: Path) -> None:
    lines = ["number of parameters: 29.94M", "tokens per iteration will be: 16,384"]
    for at, step in enumerate(course.steps.tolist()):
        evaluation = evaluation_at(course, at)
        if evaluation is not None:
            lines.append(f"step {step}: train loss {course.loss[at]:.4f}, val loss {evaluation.loss:.4f}")
        lines.append(f"iter {step}: loss {course.loss[at]:.4f}, time 135.20ms, mfu 17.91%")
    (folder / "nohup.out").write_text("\n".join(lines) + "\n")


def megatron(course: Course, folder: Path) -> None:
    lines = ["> building train, validation, and test datasets for GPT ..."]
    total = int(course.steps[-1])
    for at, step in enumerate(course.steps.tolist()):
        lines.append(
            f" [2026-11-28 10:00:{at % 60:02d}] iteration {step:8d}/{total:8d} | consumed samples: {step * 64:12d} |"
            f" elapsed time per iteration (ms): 512.3 | learning rate: {course.rate[at]:.6E} | global batch size: 64 |"
            f" lm loss: {course.loss[at]:.6E} | loss scale: {course.scale[at]:.1f} | grad norm: {course.norm[at]:.3f} |"
            f" number of skipped iterations: {course.skipped[at]:3d} | number of nan iterations:   0 |"
        )
        evaluation = evaluation_at(course, at)
        if evaluation is not None:
            lines.append("-" * 80)
            lines.append(
                f" validation loss at iteration {step} | lm loss value: {evaluation.loss:.6E} |"
                f" lm loss PPL: {math.exp(min(evaluation.loss, 20)):.6E} | "
            )
            lines.append("-" * 80)
    (folder / "output.log").write_text("\n".join(lines) + "\n")


def fairseq(course: Course, folder: Path) -> None:
    lines = []
    for at, step in enumerate(course.steps.tolist()):
        epoch = int(course.epochs[at] - 1e-9) + 1
        record = {
            "epoch": epoch,
            "update": round(float(course.epochs[at]), 3),
            "loss": f"{course.loss[at]:.3f}",
            "ppl": f"{2 ** min(course.loss[at], 30):.2f}",
            "wps": "41268.8",
            "num_updates": str(step),
            "lr": f"{course.rate[at]:.6g}",
            "gnorm": f"{course.norm[at]:.3f}",
            "loss_scale": f"{course.scale[at]:g}",
            "train_wall": "36",
        }
        lines.append(f"2026-11-28 10:00:00 | INFO | train_inner | {json.dumps(record)}")
        evaluation = evaluation_at(course, at)
        if evaluation is not None:
            record = {"epoch": epoch, "valid_loss": f"{evaluation.loss:.3f}", "valid_num_updates": str(step)}
            lines.append(f"2026-11-28 10:00:00 | INFO | valid | {json.dumps(record)}")
    (folder / "train.log").write_text("\n".join(lines) + "\n")


def detectron2(course: Course, folder: Path) -> None:
    lines = []
    for at, step in enumerate(course.steps.tolist()):
        record: dict[str, float] = {
            "data_time": 0.003,
            "iteration": step - 1,
            "loss_box_reg": 0.4 * course.loss[at],
            "loss_cls": 0.6 * course.loss[at],
            "lr": course.rate[at],
            "total_loss": course.loss[at],
        }
        evaluation = evaluation_at(course, at)
        if evaluation is not None:
            record["bbox/AP50"] = 100 * evaluation.accuracy
            record["validation_loss"] = evaluation.loss
        lines.append(json.dumps(record))
    (folder / "metrics.json").write_text("\n".join(lines) + "\n")


def ultralytics(course: Course, folder: Path) -> None:
    rows = []
    for at in range(len(course.steps)):
        evaluation = evaluation_at(course, at)
        assert evaluation is not None
        loss, other = course.loss[at], evaluation.loss
        rows.append(
            {
                "                  epoch": int(course.steps[at]),
                "         train/box_loss": f"{0.5 * loss:.5f}",
                "         train/cls_loss": f"{0.3 * loss:.5f}",
                "         train/dfl_loss": f"{0.2 * loss:.5f}",
                "   metrics/precision(B)": f"{evaluation.accuracy:.5f}",
                "       metrics/mAP50(B)": f"{evaluation.accuracy:.5f}",
                "           val/box_loss": f"{0.5 * other:.5f}",
                "           val/cls_loss": f"{0.3 * other:.5f}",
                "           val/dfl_loss": f"{0.2 * other:.5f}",
                "                 lr/pg0": f"{course.rate[at]:.6g}",
            }
        )
    train = folder / "runs" / "detect" / "train"
    train.mkdir(parents=True)
    table(train / "results.csv", rows)


def timm(course: Course, folder: Path) -> None:
    rows = []
    for at in range(len(course.steps)):
        evaluation = evaluation_at(course, at)
        assert evaluation is not None
        rows.append(
            {
                "epoch": int(course.steps[at]) - 1,
                "train_loss": course.loss[at],
                "eval_loss": evaluation.loss,
                "eval_top1": 100 * evaluation.accuracy,
                "eval_top5": min(100.0, 140 * evaluation.accuracy),
                "lr": course.rate[at],
            }
        )
    table(folder / "summary.csv", rows)


def mmengine(course: Course, folder: Path) -> None:
    lines = []
    for at, step in enumerate(course.steps.tolist()):
        record = {
            "lr": course.rate[at],
            "data_time": 0.01,
            "grad_norm": course.norm[at],
            "loss": course.loss[at],
            "epoch": int(course.epochs[at] - 1e-9) + 1,
            "iter": step,
            "step": step,
        }
        lines.append(json.dumps(record))
        evaluation = evaluation_at(course, at)
        if evaluation is not None:
            lines.append(
                json.dumps({"accuracy/top1": 100 * evaluation.accuracy, "step": int(course.epochs[at] + 1e-9)})
            )
    data = folder / "20261128_100000" / "vis_data"
    data.mkdir(parents=True)
    (data / "scalars.json").write_text("\n".join(lines) + "\n")


def keras(course: Course, folder: Path) -> None:
    rows = []
    for at in range(len(course.steps)):
        evaluation = evaluation_at(course, at)
        assert evaluation is not None
        rows.append(
            {
                "epoch": int(course.steps[at]) - 1,
                "accuracy": min(1.0, 1.05 * evaluation.accuracy),
                "learning_rate": course.rate[at],
                "loss": course.loss[at],
                "val_accuracy": evaluation.accuracy,
                "val_loss": evaluation.loss,
            }
        )
    table(folder / "training.log", rows)


def keras_bars(course: Course, folder: Path) -> None:
    """Its progress bars, each over the one before."""
    text = ""
    for at in range(len(course.steps)):
        evaluation = evaluation_at(course, at)
        assert evaluation is not None
        text += f"Epoch {course.steps[at]}/{course.steps[-1]}\n"
        for batch in (1, 235, 469):
            loss = course.loss[at] * (1.0 if batch == 469 else 1.002)
            text += f"\r{batch}/469 [{'=' * (batch // 16)}>...] - ETA: 1s - loss: {loss:.4f} - accuracy: 0.5000"
        text += (
            f"\r469/469 [==============================] - 2s 4ms/step - loss: {course.loss[at]:.4f}"
            f" - accuracy: {evaluation.accuracy:.4f} - val_loss: {evaluation.loss:.4f}"
            f" - val_accuracy: {evaluation.accuracy:.4f}\n"
        )
    (folder / "console.log").write_text(text)


def fastai(course: Course, folder: Path) -> None:
    lines = ["epoch     train_loss  valid_loss  accuracy  time    "]
    for at in range(len(course.steps)):
        evaluation = evaluation_at(course, at)
        assert evaluation is not None
        lines.append(
            f"{course.steps[at] - 1:<10}{course.loss[at]:<12.6f}{evaluation.loss:<12.6f}"
            f"{evaluation.accuracy:<10.6f}00:{at % 60:02d}   "
        )
    (folder / "fit.log").write_text("\n".join(lines) + "\n")


def mindspore(course: Course, folder: Path) -> None:
    lines = []
    for at in range(len(course.steps)):
        epoch, step = divmod(int(course.steps[at]) // 10 - 1, course.per_epoch)
        lines.append(f"epoch: {epoch + 1} step: {step + 1}, loss is {course.loss[at]:.6g}")
    (folder / "train.log").write_text("\n".join(lines) + "\n")


def deepspeed(course: Course, folder: Path) -> None:
    lines = []
    for at, step in enumerate(course.steps.tolist()):
        rate = float(course.rate[at])
        if course.skipped[at]:
            lines.append(
                f"[2026-11-28 10:00:00,123] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0"
                f" Skipping step. Attempted loss scale: {2 * course.scale[at]:g}, reducing to {course.scale[at]:g}"
            )
        lines.append(
            f"[2026-11-28 10:00:00,456] [INFO] [logging.py:96:log_dist] [Rank 0] step={step},"
            f" skipped={int(course.skipped[: at + 1].sum())}, lr=[{rate!r}, {rate!r}], mom=[(0.9, 0.95)]"
        )
        lines.append(f"steps: {step} loss: {course.loss[at]:.4f} iter time (s): 0.512 samples/sec: 125.0")
    (folder / "train.log").write_text("\n".join(lines) + "\n")


def bars(course: Course, folder: Path) -> None:
    """Write a progress bar with the loss, over itself, as of a loop with Accelerate."""
    total = int(course.steps[-1])
    text = ""
    for at, step in enumerate(course.steps.tolist()):
        text += (
            f"\rSteps:  {100 * step // total}%|{'#' * (10 * step // total):10}| {step}/{total} [00:10<01:00,  9.80it/s,"
            f" lr={course.rate[at]:.3g}, step_loss={course.loss[at]:.4g}]"
        )
    (folder / "stderr.log").write_text(text + "\n")


def json_lines(course: Course, folder: Path) -> None:
    lines = []
    for at, step in enumerate(course.steps.tolist()):
        record: dict[str, float] = {
            "_step": step,
            "_runtime": 1.5 * at,
            "_timestamp": 1.7e9 + at,
            "train/loss": course.loss[at],
            "train/learning_rate": course.rate[at],
            "train/grad_norm": course.norm[at],
        }
        evaluation = evaluation_at(course, at)
        if evaluation is not None:
            record |= {"eval/loss": evaluation.loss, "eval/accuracy": evaluation.accuracy}
        lines.append(json.dumps(record))
    (folder / "history.jsonl").write_text("\n".join(lines) + "\n")


def prints(course: Course, folder: Path) -> None:
    """Print as a plain loop does."""
    lines = ["using device cuda:0", "loaded 50000 samples"]
    for at, step in enumerate(course.steps.tolist()):
        lines.append(
            f"step {step} | loss {course.loss[at]:.5f} | lr {course.rate[at]:.3e} | norm: {course.norm[at]:.4f}"
        )
        evaluation = evaluation_at(course, at)
        if evaluation is not None:
            lines.append(f"  val loss {evaluation.loss:.5f} val acc {100 * evaluation.accuracy:.2f}%")
    (folder / "run.txt").write_text("\n".join(lines) + "\n")


def epochs(course: Course, folder: Path) -> None:
    lines = []
    for at in range(len(course.steps)):
        evaluation = evaluation_at(course, at)
        assert evaluation is not None
        lines.append(
            f"Epoch [{course.steps[at]}/{course.steps[-1]}] Train Loss: {course.loss[at]:.4f}"
            f" Val Loss: {evaluation.loss:.4f} Val Acc: {evaluation.accuracy:.4f} LR: {course.rate[at]:.6f}"
        )
    (folder / "train_log.txt").write_text("\n".join(lines) + "\n")


def mnist_example(course: Course, folder: Path) -> None:
    """Print as the first example of PyTorch: batches with their position, and a line for the test set."""
    lines = []
    for at in range(len(course.steps)):
        epoch, batch = divmod(int(course.steps[at]) // 10 - 1, course.per_epoch)
        share = 100.0 * batch / course.per_epoch
        lines.append(
            f"Train Epoch: {epoch + 1} [{batch * 640}/{course.per_epoch * 640} ({share:.0f}%)]"
            f"\tLoss: {course.loss[at]:.6f}"
        )
        evaluation = evaluation_at(course, at)
        if evaluation is not None:
            right = int(10_000 * evaluation.accuracy)
            lines += [
                "",
                f"Test set: Average loss: {evaluation.loss:.4f}, Accuracy: {right}/10000 ({right / 100:.0f}%)",
                "",
            ]
    (folder / "mnist.log").write_text("\n".join(lines) + "\n")


BY_STEPS: dict[Writer, frozenset[str]] = {
    trainer_state: frozenset(("rate", "norm", "evaluation", "accuracy")),
    trainer_prints: frozenset(("rate", "norm", "evaluation", "accuracy")),
    lightning: frozenset(("rate", "evaluation", "accuracy")),
    tensorboard: frozenset(("rate", "norm", "evaluation", "accuracy")),
    nanogpt: frozenset(("evaluation",)),
    lightning_bars: frozenset(("evaluation", "accuracy")),
    megatron: frozenset(("rate", "norm", "scale", "evaluation")),
    fairseq: frozenset(("rate", "norm", "scale", "evaluation")),
    detectron2: frozenset(("rate", "evaluation", "accuracy")),
    mmengine: frozenset(("rate", "norm", "accuracy")),
    mindspore: frozenset(),
    deepspeed: frozenset(("rate", "scale")),
    bars: frozenset(("rate",)),
    json_lines: frozenset(("rate", "norm", "evaluation", "accuracy")),
    prints: frozenset(("rate", "norm", "evaluation", "accuracy")),
    mnist_example: frozenset(("evaluation", "accuracy")),
}
BY_EPOCHS: dict[Writer, frozenset[str]] = {
    ultralytics: frozenset(("rate", "evaluation", "accuracy")),
    timm: frozenset(("rate", "evaluation", "accuracy")),
    keras: frozenset(("rate", "evaluation", "accuracy")),
    keras_events: frozenset(("rate", "evaluation", "accuracy")),
    keras_bars: frozenset(("evaluation", "accuracy")),
    fastai: frozenset(("evaluation", "accuracy")),
    epochs: frozenset(("evaluation", "accuracy")),
}
"""What their logs have beside the loss."""
