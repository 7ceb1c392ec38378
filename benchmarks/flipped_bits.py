"""One flipped bit in the output of one operator, of 100 drawn from a six-layer transformer: which operator is named.

    python benchmarks/flipped_bits.py [--faults 100]

The training runs once with a trace, once more against it (nothing may differ), and once for each fault against it, with
the lowest bit of one element flipped before anybody has looked at the output. Right is the operator, in its step, live.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from tensight.agents.core import notices
from tests.agents.pytorch import flips


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(notices.LOGGER).handlers = [handler]
    logging.getLogger(notices.LOGGER).propagate = False
    with tempfile.TemporaryDirectory(prefix="tensight-bench-") as trace:
        whole = flips.Faults()
        flips.train(faults=whole, trace=trace)
        flips.train(against=trace)
        if flips.named_in(lines) or not any("no difference" in line for line in lines):
            raise SystemExit(f"two identical runs differ: {lines}")
        right, began_s = 0, time.perf_counter()
        for target in random.Random(15).sample(whole.operators, options.faults):  # noqa: S311 - the same ones every time
            lines.clear()
            notices._logged.clear()
            faults = flips.Faults(target)
            with contextlib.suppress(SystemExit):
                flips.train(faults=faults, against=trace)
            is_right = flips.named_in(lines) == target and faults.operators[-1] == target
            right += is_right
            if not is_right:
                print(f"{target}: {lines}")
    seconds = (time.perf_counter() - began_s) / options.faults
    print(f"{right} of {options.faults} named, of {len(whole.operators):,} operators; {seconds:.1f} s a run")


if __name__ == "__main__":
    main()
