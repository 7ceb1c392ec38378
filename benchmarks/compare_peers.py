"""The cases of `compare.py` with PyTorch's own means: tensor hashes of ``DebugMode``, and ``check_hash_mismatches``.

    python benchmarks/compare_peers.py [NAME ...] [--peer DebugMode|msprobe] [--every 1] [--steps 2] [--json FILE]

With ``--peer msprobe`` all tensors are dumped by its ``PrecisionDebugger`` (level mix), and the first row that its
``compare`` marks as an error is taken; it must be importable (mindstudio-probe 26.2, pandas, matplotlib, tensorboard,
einops, pytz). It takes about a minute a case: ``--every 3`` takes every third planted case and every third equal one.

A case is won if the first mismatch lies in the module that was changed, or that holds the weight that was changed, or
in the optimizer if that was changed; it is read generously: the mismatch itself names an operator without its module,
which is looked up here in the log. Where the logs cannot be compared, because the
runs have other numbers of operators or other names, ``check_hash_mismatches`` raises, and nothing is named.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import compare
import msprobe_runs
import torch
from rewritten import NothingToRewrite
from torch.utils._debug_mode import DebugMode

from tensight.compare.runs import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

LOSSES = ("loss reduction", "label smoothing")


def hashed(training: compare.Training) -> list[Any]:
    """Train, and return the log of a training with the hashes of all outputs."""
    logs: list[Any] = []

    @contextlib.contextmanager
    def recorder(_: compare.Training, __: torch.optim.Optimizer) -> Iterator[None]:
        with DebugMode(record_nn_module=True) as mode, DebugMode.log_tensor_hashes(hash_fn=["norm", "hash_tensor"]):
            yield
            logs.extend(mode.logs)

    torch.manual_seed(5)
    training.run(recorder)
    return logs


def module_of(logs: list[Any], mismatch: dict[str, Any]) -> str:
    """Return the module, as a path, in which the call of a mismatch ran."""
    module = ""
    for call in logs:
        if hasattr(call, "tag"):
            module = str(call.tag).partition(".")[2].replace(".", "/") + "/"
        elif call.log and _holds(call.log.get("hash"), mismatch["hash1"]):
            return module
    return ""


def _holds(hashes: Any, wanted: Any) -> bool:
    return any(one == wanted for one in torch.utils._pytree.tree_leaves(hashes))


def run_case(case: compare.Case, steps: int) -> dict[str, Any] | None:
    """Run a case; None if the program has nothing to change."""
    plain, changed = compare.make(case.program, steps), compare.make(case.program, steps)
    with compare.settings_kept():
        reference = hashed(plain)
    changed.capture = case.capture
    with compare.settings_kept():
        try:
            truth = case.apply(changed)
        except NothingToRewrite:
            return None
        logs = hashed(changed)
    try:
        mismatches = DebugMode.check_hash_mismatches(reference, logs)
    except ValueError as error:
        text, is_right = f"not comparable: {str(error)[:80]}", False
    else:
        first = mismatches[0] if mismatches else None
        module = "" if first is None else module_of(reference, first)
        text = "nothing" if first is None else f"{first['call']} in {module or 'no module'}"
        is_right = _is_right(case, truth, None if first is None else first["call"], module)
    return _row(case, "DebugMode", text, is_right=is_right, operators=len(reference))


def run_with_msprobe(case: compare.Case, steps: int, folder: Path) -> dict[str, Any] | None:
    """Run a case with msprobe; None if the program has nothing to change."""
    reference = folder / case.program
    if not reference.exists():
        msprobe_runs.dump(case, steps, reference, is_changed=False)
    with tempfile.TemporaryDirectory(dir=folder) as own:
        changed = Path(own) / "changed"
        try:
            truth = msprobe_runs.dump(case, steps, changed, is_changed=True)
        except NothingToRewrite:
            return None
        found = msprobe_runs.first_error(reference, changed, steps)
    name, module = found or (None, "")
    text = "nothing" if name is None else f"{name} in {module or 'no module'}"
    return _row(case, "msprobe", text, is_right=_is_right(case, truth, name, module))


def _is_right(case: compare.Case, truth: compare.Truth | None, first: str | None, module: str) -> bool:
    """Return whether the name that a peer gives first is right."""
    if truth is None or first is None:
        return truth is None and first is None
    if case.change in LOSSES and ("loss" in first or "cross_entropy" in first):
        return True
    if truth.within == ("",):
        # An option of the optimizer or clipping: what follows the backward pass lies outside of the model's modules.
        return not module or module.startswith("step#")
    if Finding.INITIAL_WEIGHTS in truth.phases:
        return bool(module) and any(part.startswith(module) for part in truth.within)
    return any(part in module for part in truth.within)


def _row(case: compare.Case, peer: str, text: str, *, is_right: bool, operators: int = 0) -> dict[str, Any]:
    """Print what was found, and return it."""
    mark = "[green]✓[/]" if is_right else "[red]✗[/]"
    compare.out.print(f"{mark} {case.program}, {case}: {text}", highlight=False)
    kind = "planted" if case.is_planted else "equal"
    return {"program": case.program, "capture": peer, "case": str(case), "kind": kind, "is_right": is_right,
            "operators": operators, "text": text}  # fmt: skip


def main() -> int:
    """Run the cases and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"programs, of {', '.join(compare.PROGRAMS)}")
    parser.add_argument("--peer", choices=("DebugMode", "msprobe"), default="DebugMode")
    parser.add_argument("--every", type=int, default=1, help="take only every Nth case of a kind")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for program in options.names or list(compare.PROGRAMS):
            cases = list(compare.cases_of(program, "ops"))
            kinds = ([one for one in cases if one.is_planted is kind] for kind in (True, False))
            for case in (one for of_kind in kinds for one in of_kind[:: options.every]):
                if options.peer == "msprobe":
                    row = run_with_msprobe(case, options.steps, Path(folder))
                else:
                    row = run_case(case, options.steps)
                if row is not None:
                    rows.append(row)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))
    compare.show(rows, options.peer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
