"""Experiments on one batch: what `tensight diagnose --probe` finds, and whether the training stays as it is.

    python benchmarks/probes.py [NAME ...] [--seeds 1] [--first-seed 1] [--only faulty|healthy] [--list]

The programs of probed/ run plain and under the probes; those of probed/faulty.py have a planted fault, each with the
rule that is right for it. Compared are the bits of the weights at the end, and the next number of each random
generator.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "probed"))

from faulty import FAULTS  # noqa: E402
from healthy import HEALTHY  # noqa: E402

PACKAGES = HERE.parent / ".venvs" / "programs"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join((str(HERE / "programs" / "start"), str(PACKAGES))),
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "NO_COLOR": "1",
}


def bits_of(output: str) -> str:
    return next((line for line in output.splitlines() if line.startswith("bits ")), "")


def try_program(file: str, name: str, seed: int, rules: tuple[str, ...]) -> tuple[str, float]:
    """Run a program twice; return what is wrong, empty if nothing is, and the seconds that probes took."""
    script = [str(HERE / "probed" / f"{file}.py"), name, "--seed", str(seed)]
    with tempfile.TemporaryDirectory(prefix="tensight-probed-") as folder:
        facts = Path(folder, "facts")
        facts.mkdir()
        plain_s, plain = run([sys.executable, *script], {}, folder)
        if plain.returncode:
            return f"the program fails: {plain.stderr[-300:]}", 0.0
        variables = {
            "TENSIGHT_DEBUG": "1",
            "TENSIGHT_QUIET": "1",
            "TENSIGHT_PROBE": "1",
            "TENSIGHT_DIAGNOSE": str(facts),
        }
        probed_s, probed = run([sys.executable, *script], variables, folder)
        if "tensight:" in probed.stderr:
            return probed.stderr[probed.stderr.index("tensight:") :][:300], 0.0
        if bits_of(plain.stdout) != bits_of(probed.stdout):
            return "other bits", 0.0
        _, judged = run([sys.executable, "-m", "tensight", "diagnose", "--json", str(facts)], {}, folder)
    read = json.loads(judged.stdout)
    if not read["probes"]:
        return "no probe was tried", 0.0
    of_probes = [finding["rule"] for finding in read["findings"] if finding["rule"] in RULES]
    wrong = ""
    if rules and not set(of_probes) & set(rules):
        failed = [row for row in read["probes"] if row["outcome"] != "pass"]
        wrong = f"missed: {', '.join(rules)}; " + str([(row["probe"], row.get("why", "")) for row in failed])
    elif not rules and of_probes:
        wrong = "healthy, but " + "; ".join(
            f"{finding['title']} {finding['evidence']}" for finding in read["findings"] if finding["rule"] in RULES
        )
    return wrong, probed_s - plain_s


def run(command: list[str], variables: dict[str, str], folder: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    began = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, env={**ENVIRONMENT, **variables}, cwd=folder, check=False, timeout=300
    )
    return time.monotonic() - began, done


RULES = {rule for _, rules in FAULTS.values() for rule in rules}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only programs whose names contain one of these")
    parser.add_argument("--only", choices=("faulty", "healthy"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    programs = [("faulty", name, rules) for name, (_, rules) in FAULTS.items() if options.only != "healthy"]
    programs += [("healthy", name, ()) for name in HEALTHY if options.only != "faulty"]
    if options.names:
        programs = [each for each in programs if any(part in each[1] for part in options.names)]
    counts = {"faulty": [0, 0], "healthy": [0, 0]}
    for file, name, rules in programs:
        if options.list:
            print(file, name)
            continue
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            wrong, seconds = try_program(file, name, seed, rules)
            counts[file][0] += not wrong
            counts[file][1] += 1
            print("✗" if wrong else "✓", file, name, seed, f"{seconds:+.1f} s", wrong, flush=True)
    for file, (right, of_all) in counts.items() if not options.list else ():
        print(f"{file}: {right} of {of_all} right")
    return int(any(right < of_all for right, of_all in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
