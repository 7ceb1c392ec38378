"""Pairs of logs, checkpoints and runs with a known difference, drawn at random: is what is said of them ever false.

    python benchmarks/drawn_pairs.py [--seeds 0 1] [--pairs 100] [--only losses runs ...] [--number N --keep DIR]

A pair is drawn from its seed and number: what it is a log, a checkpoint or a trace of, in which formats, spellings and
intervals both sides are written, and one plant or none. A verdict is *right*, *undecided* (it says that it does not
know, refuses the file, or does not find a plant that it need not find), or *false*. Every false one is printed with
what was drawn, and with how to draw it again. The exit code is 1 if there is any.

A kind of pairs is one function in `KINDS`: it draws a pair into a folder and returns how it is judged.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import drawn_checkpoints
import drawn_logs
import drawn_runs
from drawn import Kind, Outcome

KINDS: dict[str, Kind] = {"losses": drawn_logs.draw, "checkpoints": drawn_checkpoints.draw, "runs": drawn_runs.draw}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--pairs", type=int, default=100, help="of each kind and seed")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--number", type=int, help="only this pair")
    parser.add_argument("--keep", type=Path, help="folder for the files of the pair")
    options = parser.parse_args()
    counts: dict[str, Counter[tuple[str, Outcome]]] = {kind: Counter() for kind in options.only}
    begin = time.process_time()
    for seed in options.seeds:
        for kind in options.only:
            numbers = range(options.pairs) if options.number is None else [options.number]
            for number in numbers:
                plant, outcome = _one(kind, seed, number, options.keep, is_shown=options.number is not None)
                counts[kind][plant, outcome] += 1
    for kind, by_plant in counts.items():
        _print_counts(kind, by_plant)
    print(f"{time.process_time() - begin:.0f} s of processor time")
    return int(any(outcome is Outcome.FALSE for by_plant in counts.values() for _, outcome in by_plant))


def _one(kind: str, seed: int, number: int, keep: Path | None, *, is_shown: bool) -> tuple[str, Outcome]:
    """Draw and judge one pair; print it if it is false, or asked for."""
    with tempfile.TemporaryDirectory(prefix="tensight-bench-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        drawn = KINDS[kind](random.Random(f"{kind} {seed} {number}"), folder)  # noqa: S311
        try:
            judgement = drawn.judge()
        except Exception:
            traceback.print_exc()
            print(f"raised: {kind}, seed {seed}, number {number}: {drawn.description}")
            return drawn.plant, Outcome.FALSE
        if judgement.outcome is Outcome.FALSE or is_shown:
            print(f"{judgement.outcome.value}: {kind}, --seeds {seed} --number {number}: {drawn.description}")
            print(f"    {judgement.why}")
            for line in judgement.said:
                print(f"    said: {line}")
    return drawn.plant, judgement.outcome


def _print_counts(kind: str, by_plant: Counter[tuple[str, Outcome]]) -> None:
    plants = sorted({plant for plant, _ in by_plant})
    print(f"\n{kind:24}" + "".join(f"{outcome.value:>11}" for outcome in Outcome))
    for plant in plants:
        print(f"  {plant:22}" + "".join(f"{by_plant[plant, outcome]:>11,}" for outcome in Outcome))
    totals = (sum(by_plant[plant, outcome] for plant in plants) for outcome in Outcome)
    print(f"  {'all':22}" + "".join(f"{total:>11,}" for total in totals))


if __name__ == "__main__":
    sys.exit(main())
