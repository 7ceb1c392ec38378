"""The facts of a training of which checkpoints are left: at most two, the first and the last one."""

from __future__ import annotations

import json
import math
import os
import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.checkpoints.opening import open_checkpoint
from tensight.compare.checkpoint_roles import is_parameter, is_step, moment_of, parameters_by_number
from tensight.compare.checkpoint_values import compare_values
from tensight.diagnosis.facts import Facts
from tensight.errors import CheckpointError, DumpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tensight.checkpoints import Checkpoint, Entry
    from tensight.compare.checkpoint_values import ValueDifference

_ENDINGS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz", ".tar")
_BESIDE = re.compile(
    r"(?:training_args|optimizer|scheduler|scaler|rng_state(?:_\d+)?|random_states_\d+)\.(?:pt|pth|bin|pkl)"
)
_OF_TRAINER = re.compile(r"(?:callbacks|loops|hyper_parameters|lr_schedulers)\.")
"""What Lightning keeps beside the weights: the best value so far may be infinite."""

_NUMBER = re.compile(r"(?<!\d)(\d{1,12})(?!\d)")
_STEPS_OF_TRAINING = ("global_step", "step", "iteration", "iter", "current_step")
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
_TRAINER_STATE = "trainer_state.json"
_MOST_STATE = 64 << 20
_MOST_CHECKPOINTS = 200


class Saved(NamedTuple):
    """Checkpoints that were read.

    Attributes
    ----------
    facts : Facts
    described : list of str
        The checkpoints in words.
    reasons : list of str
        Why others could not be read.
    """

    facts: Facts
    described: list[str]
    reasons: list[str]


class _Opened(NamedTuple):
    """A checkpoint that is open: its step and the number in its name, each -1 if it has none."""

    step: int
    number: int
    path: Path
    checkpoint: Checkpoint


def is_checkpoint(path: Path) -> bool:
    """Tell whether a file may be a checkpoint by its name."""
    return path.is_file() and path.suffix in _ENDINGS


def checkpoint_paths(files: Iterable[Path]) -> list[Path]:
    """Return the checkpoints among the files of a folder: files, and folders with the parts of one."""
    paths: dict[Path, None] = {}
    for file in files:
        if file.suffix in _ENDINGS:
            is_part = (
                _BESIDE.fullmatch(file.name) or "-of-" in file.name or file.name.startswith(("model.", "pytorch_model"))
            )
            is_part = is_part or (file.parent / _TRAINER_STATE).exists()
            paths[file.parent if is_part else file] = None
    return list(paths)[:_MOST_CHECKPOINTS]


def read_checkpoints(paths: Sequence[Path]) -> Saved:
    """Read the first and the last of some checkpoints of a training.

    Parameters
    ----------
    paths : sequence of Path
    """
    opened: list[_Opened] = []
    reasons: list[str] = []
    with ExitStack() as stack:
        for path in paths:
            try:
                checkpoint = stack.enter_context(open_checkpoint(os.fspath(path)))
            except (CheckpointError, DumpError) as error:
                reasons.append(str(error))
                continue
            opened.append(_Opened(_step_of(path, checkpoint), _number_of(path), path, checkpoint))
        if not opened:
            return Saved(Facts(), [], reasons)
        opened.sort(key=lambda each: (each.step, each.number))
        first, last = opened[0], opened[-1]
        alike = first.checkpoint.entries.keys() & last.checkpoint.entries.keys()
        is_later = 0 <= first.step < last.step or (first.step == last.step and 0 <= first.number < last.number)
        several = [first, last] if is_later and alike else [last]
        facts = Facts(keeps_all=True)
        facts.framework = ""
        try:
            _add(facts, several)
        except CheckpointError as error:
            return Saved(facts, [], [*reasons, str(error)])
        described = [
            f"{each.path}: {len(each.checkpoint.entries):,} tensors{f', step {each.step:,}' if each.step >= 0 else ''}"
            for each in several
        ]
    for subject in ("losses", "evaluations", "rates", "groups", "steps"):
        facts.absent[subject] = "as there is no log that has its facts"
    return Saved(facts, described, reasons)


def _step_of(path: Path, checkpoint: Checkpoint) -> int:
    """Return the step of a checkpoint, as its trainer or itself tells; -1 if neither does."""
    state = (path if path.is_dir() else path.parent) / _TRAINER_STATE
    try:
        if state.stat().st_size <= _MOST_STATE:
            document = json.loads(state.read_text(encoding="utf-8"))
            step = document.get("global_step") if isinstance(document, dict) else None
            if isinstance(step, int):
                return step
    except (OSError, ValueError, RecursionError):
        """It has no such state, or a damaged one."""
    for key in _STEPS_OF_TRAINING:
        value = checkpoint.values.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return -1


def _number_of(path: Path) -> int:
    """Return the number in the name of a checkpoint, such as an epoch; -1 if it has none."""
    numbers = _NUMBER.findall(path.name) or _NUMBER.findall(path.parent.name)
    return int(numbers[-1]) if numbers else -1


def _counter(checkpoint: Checkpoint, rows: Mapping[str, ValueDifference]) -> float:
    """Return the highest step counter of its optimizer; NaN if it has none."""
    counters: list[float] = []
    for name, value in checkpoint.values.items():
        moment = moment_of(name)
        if moment is not None and moment[1] == "step" and isinstance(value, (int, float)):
            counters.append(float(value))
    for name, row in rows.items():
        moment = moment_of(name)
        if moment is not None and moment[1] == "step":
            counters.append(row.b.max)
    return max(counters, default=math.nan)


def _scale(checkpoint: Checkpoint) -> float:
    """Return the scale of a GradScaler; NaN if it has none."""
    for name, value in checkpoint.values.items():
        prefix, _, key = name.rpartition(".")
        is_scaler = key in ("scale", "_scale") and any(
            f"{prefix}.{other}".lstrip(".") in checkpoint.values for other in ("growth_factor", "backoff_factor")
        )
        if is_scaler and isinstance(value, (int, float)):
            return float(value)
    return math.nan


def _add(facts: Facts, several: Sequence[_Opened]) -> None:
    before: Checkpoint | None = None
    for number, (step, _, path, checkpoint) in enumerate(several):
        entries = list(checkpoint.entries.values())
        earlier = [] if before is None else [before.entries.get(entry.name) for entry in entries]
        pairs: list[tuple[Entry, Entry | None]] = [
            (other, entry)
            if other is not None and (other.shape, other.dtype) == (entry.shape, entry.dtype)
            else (entry, None)
            for entry, other in zip(entries, earlier or [None] * len(entries), strict=True)
        ]
        measured = compare_values(pairs)
        rows = {entry.name: difference for entry, difference in zip(entries, measured, strict=True)}
        named = parameters_by_number(checkpoint)
        has_state = {
            named.get(moment[0], moment[0])
            for name in rows
            if (moment := moment_of(name)) is not None and moment[1] != "step"
        }
        at = step if step >= 0 else number
        about = {
            "name": os.fspath(path),
            "step_known": step >= 0,
            "counter": _counter(checkpoint, rows),
            "scale": _scale(checkpoint),
        }
        facts.add("checkpoints", at, [about])
        saved: list[dict[str, Any]] = []
        for (other, entry), (name, difference) in zip(pairs, rows.items(), strict=True):
            moment, statistics = moment_of(name), difference.a if entry is None else difference.b
            stored = entry if entry is not None else other
            is_mask = "mask" in name and not statistics.nan_count and not statistics.pos_inf_count
            if moment is not None:
                role = "step" if moment[1] == "step" else "moment"
            elif name.endswith(_STATISTICS):
                role = "statistics"
            else:
                is_weight = is_parameter(stored) and not is_step(name) and stored.shape and not _OF_TRAINER.match(name)
                role = "parameter" if is_weight else "other"
            saved.append(
                {
                    "name": name,
                    "role": role,
                    "slot": moment[1] if moment is not None else "",
                    "parameter": named.get(moment[0], f"number {moment[0]}") if moment is not None else "",
                    "axes": len(stored.shape),
                    "elements": statistics.count,
                    "not_finite": 0 if role == "other" or is_mask else statistics.count - statistics.finite_count,
                    "zeros": statistics.zero_count,
                    "lowest": statistics.min,
                    "highest": statistics.max,
                    "norm": statistics.l2_norm,
                    "moved": -1 if entry is None else int(difference.changed > 0),
                    "has_state": name in has_state,
                }
            )
        facts.add("saved", at, saved)
        before = checkpoint
