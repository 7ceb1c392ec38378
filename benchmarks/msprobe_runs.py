"""Trainings under msprobe, and the first row that its ``compare`` marks as an error."""

from __future__ import annotations

import contextlib
import csv
import json
import multiprocessing
import re
from typing import TYPE_CHECKING, Any

import compare
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE = re.compile(r"Module\.(.+)\.\w+\.(?:forward|backward|parameters_grad)\b")
CALL = re.compile(r"(.+\.(?:forward|backward))\b")


def dump(case: compare.Case, steps: int, folder: Path, *, is_changed: bool) -> compare.Truth | None:
    """Dump all tensors of modules and calls, in a process of its own, for msprobe patches PyTorch.

    Parameters
    ----------
    case : Case
    steps : int
    folder : Path
    is_changed : bool
        Whether it is the second training of the case.

    Returns
    -------
    truth : Truth or None
        What must be found.

    Raises
    ------
    Exception
        What stopped the training; of a case that has nothing to change `NothingToRewrite`.
    """
    folder.mkdir(parents=True)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(_dump, (case, steps, folder, is_changed))


def _dump(case: compare.Case, steps: int, folder: Path, is_changed: bool) -> compare.Truth | None:
    from msprobe.pytorch import PrecisionDebugger

    tensors = {"scope": [], "list": [], "data_mode": ["all"]}
    settings = {"task": "tensor", "level": "mix", "dump_path": str(folder), "rank": [], "step": [], "tensor": tensors}
    config = folder / "config.json"
    config.write_text(json.dumps(settings))
    training = compare.make(case.program, steps)
    training.capture = case.capture
    truth = case.apply(training) if is_changed else None
    debugger = PrecisionDebugger(config_path=str(config))

    @contextlib.contextmanager
    def around_step() -> Iterator[None]:
        debugger.start(model=training.model)
        yield
        debugger.stop()
        debugger.step()

    @contextlib.contextmanager
    def recorder(_: compare.Training, __: torch.optim.Optimizer) -> Iterator[Any]:
        yield around_step

    torch.manual_seed(5)
    training.run(recorder)
    return truth


def first_error(reference: Path, changed: Path, steps: int) -> tuple[str, str] | None:
    """Return the first row that is marked as an error, and the module, as a path, in which it was computed."""
    from msprobe.pytorch.compare.pt_compare import pt_compare

    for step in range(steps):
        (first,), (second,) = (list(folder.glob(f"step{step}/*/dump.json")) for folder in (reference, changed))
        tables = changed / f"tables{step}"
        pt_compare({"npu_path": str(second), "bench_path": str(first), "is_print_compare_log": False}, str(tables))
        modules = json.loads(first.with_name("construct.json").read_text())
        for table in tables.glob("*.csv"):
            with table.open(newline="") as file:
                for row in csv.DictReader(file):
                    if row["Result"] == "error":
                        name = row["NPU Name"] if row["Bench Name"] in ("", "N/A") else row["Bench Name"]
                        return f"step {step}, {name}", _module_of(name, modules)
    return None


def _module_of(name: str, modules: dict[str, str | None]) -> str:
    call = CALL.match(name)
    found = MODULE.match(name) or MODULE.match((call and modules.get(call[1])) or "")
    return found[1].replace(".", "/") + "/" if found else ""
