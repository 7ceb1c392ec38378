"""What `tensight diagnose FOLDER` says of logs: of healthy trainings, of sick ones, and those that cannot be judged.

    python benchmarks/logs.py [--seeds 1] [--first-seed 0] [--all] [--keep DIR] [--json FILE]

logged/shapes.py writes as 23 trainers do, and logged/courses.py has what happens in their trainings; others.py has logs
of reinforcement learning, of two models against each other, and files that say too little. By default each shape has
three courses; with ``--all`` each has all that its log can show.

Printed is how many healthy ones are not accused, of how many sick ones the first finding is one of the accepted rules,
and how many of those that cannot be judged are said to be so. Each miss is a line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from typer.testing import CliRunner

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from logged.courses import FAULTY, HEALTHY  # noqa: E402
from logged.others import OTHERS  # noqa: E402
from logged.shapes import BY_EPOCHS, BY_STEPS, ENTRIES, EPOCHS, Writer  # noqa: E402

from tensight.cli.app import app  # noqa: E402
from tensight.errors import TensightError  # noqa: E402

NEEDS = {
    "filtered": "rounded",
    "rate_of_zero": "rate",
    "rate_ended": "rate",
    "rate_past_its_end": "rate",
    "rate_collapsed": "rate",
    "overfits": "evaluation",
    "evaluation_of_a_copy": "evaluation",
    "evaluation_of_other_weights": "evaluation",
    "norm_of_zero": "norm",
    "norm_explodes": "norm",
    "scale_falls": "scale",
}
"""What a log must have for a fault to be seen in it."""


class Case(NamedTuple):
    """A log.

    Attributes
    ----------
    name : str
    write : callable
        Writes it into a folder, with a seed.
    accepted : tuple of str or None
        Rules of which the first finding has one; empty for a healthy training, None if it cannot be judged.
    """

    name: str
    write: object
    accepted: tuple[str, ...] | None


def cases(*, all_of_them: bool) -> list[Case]:
    """Return the logs."""
    result = []
    faults, healthy = list(FAULTY), list(HEALTHY)
    for number, (shape, has) in enumerate([*BY_STEPS.items(), *BY_EPOCHS.items()]):
        count = ENTRIES if shape in BY_STEPS else EPOCHS
        fitting = [
            course
            for course in faults
            if (need := NEEDS.get(course.__name__, "")) in ("", *has)
            or (need == "rounded" and shape.__name__.startswith("trainer"))
        ]
        turned = fitting[(5 * number) % len(fitting) :] + fitting
        chosen = fitting if all_of_them else turned[:2]
        of_health = healthy if all_of_them else [healthy[number % len(healthy)]]
        result += [_case(shape, course, count, ()) for course in of_health]
        result += [_case(shape, course, count, FAULTY[course]) for course in chosen]
    return result + [Case(write.__name__, write, accepted) for write, accepted in OTHERS.items()]


def _case(shape: Writer, course: object, count: int, accepted: tuple[str, ...]) -> Case:
    def write(random: np.random.Generator, folder: Path) -> None:
        shape(course(random, count), folder)  # type: ignore[operator]

    return Case(f"{shape.__name__}: {course.__name__}", write, accepted)  # type: ignore[attr-defined]


def main() -> None:
    """Write the logs, diagnose them, and print how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = []
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        for case in cases(all_of_them=given.all):
            with tempfile.TemporaryDirectory() as temporary:
                folder = (given.keep / f"{seed}" / case.name.replace(": ", "-")) if given.keep else Path(temporary)
                folder.mkdir(parents=True, exist_ok=True)
                case.write(np.random.default_rng([seed, zlib.crc32(case.name.encode())]), folder)  # type: ignore[operator]
                results.append(_judged(case, seed, folder))
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))
    groups = {"healthy": "not accused", "sick": "first finding accepted", "unjudgeable": "said so"}
    for kind, what in groups.items():
        of_kind = [each for each in results if each["kind"] == kind]
        right = sum(each["right"] for each in of_kind)
        print(f"{kind}: {what} {right} of {len(of_kind)}")
    right = sum(each["right"] for each in results)
    print(f"right: {right} of {len(results)} ({right / len(results):.1%})")


def _judged(case: Case, seed: int, folder: Path) -> dict[str, object]:
    answer = CliRunner().invoke(app, ["diagnose", "--json", str(folder)])
    if answer.exception is not None and not isinstance(answer.exception, (SystemExit, TensightError)):
        raise answer.exception
    code = 2 if isinstance(answer.exception, TensightError) else answer.exit_code
    findings = json.loads(answer.stdout)["findings"] if code in (0, 1) else []
    rules = [finding["rule"] for finding in findings]
    if case.accepted is None:
        kind, is_right = "unjudgeable", code == 2
    elif not case.accepted:
        kind, is_right = "healthy", code == 0
    else:
        kind, is_right = "sick", bool(rules) and rules[0] in case.accepted
    if not is_right:
        said = "; ".join(f"{finding['rule']}: {finding['title']}" for finding in findings) or f"exit {code}"
        print(f"{kind} {case.name} (seed {seed}): {said}", flush=True)
    return {"name": case.name, "seed": seed, "kind": kind, "right": is_right, "rules": rules, "exit": code}


if __name__ == "__main__":
    main()
