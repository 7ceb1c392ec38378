"""The cases of `compare.py` with PyTorch's own means: tensor hashes of ``DebugMode``, and ``check_hash_mismatches``.

    python benchmarks/compare_peers.py [NAME ...] [--steps 2] [--json FILE]

A case is won if the first mismatch lies in the module that was changed; it is read generously: the mismatch itself
names an operator without its module, which is looked up here in the log. Where the logs cannot be compared, because the
runs have other numbers of operators or other names, ``check_hash_mismatches`` raises, and nothing is named.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rewritten import NothingToRewrite
from torch.utils._debug_mode import DebugMode

import compare

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
        if truth is None:
            is_right = first is None
        else:
            is_right = first is not None and (
                any(part and part in module for part in truth.within)
                or (case.change in LOSSES and "loss" in first["call"])
            )
    mark = "[green]✓[/]" if is_right else "[red]✗[/]"
    compare.out.print(f"{mark} {case.program}, {case}: {text}", highlight=False)
    kind = "planted" if case.is_planted else "equal"
    return {"program": case.program, "capture": "DebugMode", "case": str(case), "kind": kind, "is_right": is_right,
            "operators": len(reference), "text": text}  # fmt: skip


def main() -> int:
    """Run the cases and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"programs, of {', '.join(compare.PROGRAMS)}")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows = []
    for program in options.names or list(compare.PROGRAMS):
        for case in compare.cases_of(program, "ops"):
            row = run_case(case, options.steps)
            if row is not None:
                rows.append(row)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))
    compare.show(rows, "DebugMode")
    return 0


if __name__ == "__main__":
    sys.exit(main())
