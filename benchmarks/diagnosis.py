"""Trainings that do not learn although no tensor shows why: what `tensight diagnose` finds in them.

    python benchmarks/diagnosis.py [NAME ...] [--framework mindspore] [--seeds 1] [--jobs 1] [--facts DIR] [--json FILE]
                                   [--plain | --diagnosed] [--peers DIR] [--draw N]

diagnosed/cases.py declares the programs, and diagnosed_mindspore/trainings.py those of ``--framework mindspore``: those
with a planted fault, and healthy ones, some of which look as if they had one. Each runs plain and under
``tensight diagnose --json``, in a process of its own that finds one thread and no network. Those of probed/ have faults
that watching alone mostly does not show, and healthy ones that look like that; they run with ``--probe``.

Printed per family and in total is of how many faulty programs a finding of an accepted category was raised, of how many
the first finding has an accepted category, of how many it has and names an accepted place as well, and of how many its
step is within one of the true one; how many healthy programs have any finding, and how many one that is certain, which
would stop a training; and the seconds beside those of the plain run. Each miss is a line with the first finding's
title.

Programs on MindSpore run in the environment that `make mindspores` builds. They write their losses with all bits, and
those of probed/ the bits of their weights at the end and the next number of each random generator; a program whose bits
differ under the diagnosis, but not in two plain runs, has failed.

``--plain`` runs the programs without a diagnosis, and prints what each printed first and last. ``--diagnosed`` runs
them only under the diagnosis, in half the time. ``--facts`` keeps the facts of each run in a folder; those that are
there already are not collected again but judged again: with changed rules, or after an interruption. ``--peers`` runs
each program once more with seven other tools (`diagnosis_peers`), and prints a table of all; what they find is kept in
its folder in the same way. `make peers` installs them. ``--draw N`` runs, with each seed, N faulty and N healthy
programs that the seed draws by chance, others with each.

Nothing is left out: the rules have no fitted threshold yet. As soon as one has a number that was chosen on these
programs, `judged_without` is where that number is chosen again for each family on all the others, and judged on it.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

HERE = Path(__file__).resolve().parent
PROGRAMS_FOLDER = HERE / "diagnosed"
DECLARING = HERE / "programs" / "start"
"""Lets torchvision be imported beside a PyTorch for the CPU alone."""
PACKAGES = HERE.parent / ".venvs" / "programs"
MINDSPORE_FOLDER = HERE / "diagnosed_mindspore"
MINDSPORE = HERE.parent / ".venvs" / "mindspore-2.10" / "bin" / "python"
PROBED_FOLDER = HERE / "probed"
sys.path[:0] = [str(PROGRAMS_FOLDER), str(MINDSPORE_FOLDER), str(PROBED_FOLDER)]

import faulty as probed_faulty  # noqa: E402
import healthy as probed_healthy  # noqa: E402
import trainings  # noqa: E402
from cases import CASES, HEALTHY, Case, Healthy  # noqa: E402
from diagnosis_peers import PeerRun, peers_table, run_with_peers  # noqa: E402

from tensight.diagnosis.catalogue import RULES  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BITS = "bits.txt"
"""Where a program writes the bits of its losses or weights, if it does."""
LIMIT_S = 300
PLAIN, DIAGNOSED = "plain", "diagnosed"
FOUND_NOTHING, FOUND_SOMETHING, CANNOT_JUDGE = 0, 1, 2
out = Console(width=None if sys.stdout.isatty() else 160)


@dataclass(frozen=True)
class Finding:
    """What a diagnosis found, as far as it is compared.

    Attributes
    ----------
    rule, category : str
    certainty : str
        "certain", "likely" or "possible".
    title : str
    text : str
        All that it names and tells, in lower case.
    step : int or None
    """

    rule: str
    category: str
    certainty: str
    title: str
    text: str
    step: int | None

    @staticmethod
    def of(found: Mapping[str, Any]) -> Finding:
        told = [found.get(key) for key in ("where", "title", "evidence", "advice")]
        text = " ".join(_words(told)).lower()
        step = found.get("step")
        return Finding(
            str(found.get("rule", "")),
            str(found.get("category", "")),
            str(found.get("certainty", "")),
            str(found.get("title", "")),
            text,
            step if isinstance(step, int) else None,
        )


def _words(value: object) -> list[str]:
    """Return all words in a value that came from JSON."""
    if isinstance(value, dict):
        return [word for key, inner in value.items() for word in (str(key), *_words(inner))]
    if isinstance(value, list):
        return [word for inner in value for word in _words(inner)]
    return [] if value is None else [str(value)]


@dataclass(frozen=True)
class Run:
    """What came of one process.

    Attributes
    ----------
    wall_s : float
    exit_code : int
    output, errors : str
    bits : str
        Of programs that write them.
    """

    wall_s: float
    exit_code: int
    output: str
    errors: str
    bits: str = ""


@dataclass
class Row:
    """A program with one seed, plain and diagnosed.

    Attributes
    ----------
    program : Case or Healthy
    seed : int
    plain, diagnosed : Run or None
        None where it did not run so.
    findings : list of Finding
        By importance.
    peers : PeerRun or None
        What other tools found.
    trouble : str
        Why it counts for nothing: the program or the diagnosis failed. Empty where neither did.
    """

    program: Case | Healthy
    seed: int
    plain: Run | None = None
    diagnosed: Run | None = None
    findings: list[Finding] = field(default_factory=list)
    peers: PeerRun | None = None
    trouble: str = ""

    @property
    def is_faulty(self) -> bool:
        return isinstance(self.program, Case)

    @property
    def raised(self) -> bool:
        """Whether any finding has an accepted category."""
        return any(self._accepts(finding) for finding in self.findings)

    @property
    def first_category_right(self) -> bool:
        return bool(self.findings) and self._accepts(self.findings[0])

    @property
    def first_right(self) -> bool:
        """Whether the first finding has an accepted category and names an accepted place."""
        if not self.first_category_right:
            return False
        assert isinstance(self.program, Case)
        return any(place in self.findings[0].text for place in self.program.places)

    @property
    def since_right(self) -> bool:
        """Whether the first finding has an accepted category and its step is within one of the true one."""
        if not self.first_category_right:
            return False
        assert isinstance(self.program, Case)
        return abs((self.findings[0].step or 1) - max(self.program.since, 1)) <= 1

    @property
    def certain(self) -> bool:
        """Whether any finding is certain."""
        return any(finding.certainty == "certain" for finding in self.findings)

    def _accepts(self, finding: Finding) -> bool:
        if not isinstance(self.program, Case):
            return False
        is_right = not self.program.rules or finding.rule in self.program.rules
        return is_right and finding.category in self.program.categories

    def miss(self) -> str:
        """Return what is wrong in one line; empty where all is right."""
        first = self.findings[0] if self.findings else None
        title = "nothing found" if first is None else f"{first.category} ({first.certainty}): {first.title}"
        if self.trouble or not self.diagnosed:
            return self.trouble
        if isinstance(self.program, Healthy):
            return "" if first is None else f"healthy, but {title}"
        if self.first_right:
            return ""
        if self.first_category_right:
            return f"none of {', '.join(self.program.places[:5])} … is named: {title}"
        if self.raised:
            return f"{self.program.categories[0]} is not first: {title}"
        return f"{self.program.categories[0]} is missed: {title}"


def environment(packages: Sequence[Path], variables: Mapping[str, str]) -> dict[str, str]:
    """Return what a program finds around it: the packages, one thread, no way to the network, and further variables."""
    paths = [*map(str, packages), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "",  # without compiled files each start takes some seconds more
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "GLOG_v": "3",  # MindSpore warns of much
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "NO_COLOR": "1",
        **variables,
    }


def run(command: Sequence[str], packages: Sequence[Path], variables: Mapping[str, str] = MappingProxyType({})) -> Run:
    """Run a command to its end in a folder of its own."""
    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tensight-diagnosed-") as folder:
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                env=environment(packages, variables),
                cwd=folder,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Run(time.monotonic() - begin_s, -1, "", f"not done after {LIMIT_S} s")
        bits = Path(folder, BITS).read_text() if Path(folder, BITS).exists() else ""
    return Run(time.monotonic() - begin_s, done.returncode, done.stdout, done.stderr, bits)


def diagnosis_of(output: str) -> dict[str, Any] | None:
    """Return the JSON object that a diagnosis printed; None if there is none."""
    # What the training itself prints may come before it.
    for start in (0, output.rfind("\n{") + 1):
        try:
            read = json.loads(output[start:])
        except ValueError:
            continue
        if isinstance(read, dict) and "findings" in read:
            return read
    return None


def last_line(text: str) -> str:
    return next(iter(text.strip().splitlines()[-1:]), "")


CAUSES = {
    "samples-mixed": ("other sample",),
    "input-ignored": ("no influence", "ignor"),
    "positions-ignored": ("no influence", "ignor"),
    "backward-wrong": ("jacobian",),
    "units-silent": ("before layer",),
    "loss-against-gradient": ("jacobian", "leads up"),
}
"""By rule, words that name the cause without a line."""


def of_probed() -> tuple[list[Case], list[Healthy]]:
    """Return the programs of probed/; a place is a line or a class of the program, or the cause in words."""
    classes = {name.lower() for name, value in vars(probed_faulty).items() if inspect.isclass(value)}
    faulty = []
    for name, (program, rules) in probed_faulty.FAULTS.items():
        lines, first = inspect.getsourcelines(program)
        places = [f"faulty.py:{first + number}" for number in range(len(lines))]
        source = "".join(lines)
        places += re.findall(r"class (\w+)", source.lower())
        places += classes.intersection(re.findall(r"\w+", source.lower()))
        places += [word for rule in rules for word in CAUSES.get(rule, ())]
        categories = tuple(dict.fromkeys(RULES[rule].category for rule in rules))
        faulty.append(Case("faulty", name, "", categories, tuple(places), rules=rules, is_probed=True))
    return faulty, [Healthy("healthy", name, is_probed=True) for name in probed_healthy.HEALTHY]


class Suite(NamedTuple):
    """The programs of a framework.

    Attributes
    ----------
    folders : sequence of Path
        Where they are.
    python : str
        The interpreter that runs them.
    packages : sequence of Path
        Folders that they import from, too.
    faulty : sequence of Case
    healthy : sequence of Healthy
    """

    folders: Sequence[Path]
    python: str
    packages: Sequence[Path]
    faulty: Sequence[Case]
    healthy: Sequence[Healthy]

    def script(self, program: Case | Healthy) -> str:
        files = (folder / f"{program.script}.py" for folder in self.folders)
        return str(next(file for file in files if file.exists()))


PROBED_CASES, PROBED_HEALTHY = of_probed()
SUITES = {
    "torch": Suite(
        (PROGRAMS_FOLDER, PROBED_FOLDER),
        sys.executable,
        (DECLARING, PACKAGES),
        (*CASES, *PROBED_CASES),
        (*HEALTHY, *PROBED_HEALTHY),
    ),
    "mindspore": Suite((MINDSPORE_FOLDER,), str(MINDSPORE), (), trainings.FAULTY, trainings.HEALTHY),
}


def try_program(
    suite: Suite,
    program: Case | Healthy,
    seed: int,
    runs: frozenset[str],
    facts: Path | None,
    peers: Path | None,
) -> Row:
    """Run a program plain, under the diagnosis, as far as `runs` names it, and with peers, or judge what was kept."""
    script = [suite.script(program), *program.arguments, "--seed", str(seed)]
    row = Row(program, seed)
    file_name = f"{seed}.{program.name.replace('/', '.')}"
    if peers:
        row.peers = run_with_peers([suite.python, *script], suite.packages, run, peers / f"{file_name}.json")
    if PLAIN in runs:
        row.plain = run([suite.python, *script], suite.packages)
        if row.plain.exit_code:
            row.trouble = f"the program fails: {last_line(row.plain.errors)}"
            return row
    if DIAGNOSED not in runs:
        return row
    kept = facts and facts / file_name
    is_kept = kept is not None and kept.exists()
    asked = [str(kept)] if is_kept else [*(("--out", str(kept)) if kept else ()), *script]
    options = ["--json", *(("--probe",) if program.is_probed and not is_kept else ())]
    row.diagnosed = run([suite.python, "-m", "tensight", "diagnose", *options, *asked], suite.packages)
    read = diagnosis_of(row.diagnosed.output)
    if read is None or row.diagnosed.exit_code not in (FOUND_NOTHING, FOUND_SOMETHING):
        code = row.diagnosed.exit_code
        row.trouble = "could not judge" if code == CANNOT_JUDGE else f"exit code {code}"
        row.trouble += f": {last_line(row.diagnosed.errors)}"
        return row
    if row.plain and not is_kept and row.diagnosed.bits != row.plain.bits:
        # With dropout, MindSpore computes others in each run.
        again = run([suite.python, *script], suite.packages)
        if again.bits == row.plain.bits:
            row.trouble = "the bits differ under the diagnosis"
            return row
    if program.is_probed and not read["probes"]:
        row.trouble = "no probe was tried"
        return row
    row.findings = [Finding.of(found) for found in read["findings"]]
    return row


def judged_without(rows: list[Row]) -> list[Row]:
    """Return the rows as they are judged by rules that have not seen their family.

    No rule has a fitted threshold, so that each row stays as it is. A number that was fitted on these programs is to be
    fitted here, for each family on all the others.
    """
    return rows


def drawn(programs: Sequence[Case | Healthy], number: int, seed: int) -> list[Case | Healthy]:
    """Draw as many faulty as healthy programs by chance, in the order in which they stand."""
    chance = random.Random(seed)  # noqa: S311
    chosen: list[Case | Healthy] = []
    for kind in (Case, Healthy):
        of_it = [program for program in programs if isinstance(program, kind)]
        places = sorted(chance.sample(range(len(of_it)), min(number, len(of_it))))
        chosen += [of_it[place] for place in places]
    return chosen


def table_of(rows: Iterable[Row]) -> Table:
    """Return counts per family and in total."""
    table = Table(box=None, pad_edge=False)
    table.add_column("family")
    for name in (
        "faulty",
        "raised",
        "category first",
        "place first",
        "step first",
        "healthy",
        "listed falsely",
        "would stop",
        "failed",
    ):
        table.add_column(name, justify="right")
    table.add_column("s, diagnosed beside plain", justify="right")
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.program.family, []).append(row)
    families["in total"] = [row for family in families.values() for row in family]
    for family, of_it in families.items():
        faulty = [row for row in of_it if isinstance(row.program, Case)]
        healthy = [row for row in of_it if isinstance(row.program, Healthy)]
        diagnosed_s = sum(row.diagnosed.wall_s for row in of_it if row.diagnosed) / max(len(of_it), 1)
        plain_s = sum(row.plain.wall_s for row in of_it if row.plain) / max(len(of_it), 1)
        table.add_row(
            family,
            str(len(faulty)),
            str(sum(row.raised for row in faulty)),
            str(sum(row.first_category_right for row in faulty)),
            str(sum(row.first_right for row in faulty)),
            str(sum(row.since_right for row in faulty)),
            str(len(healthy)),
            str(sum(bool(row.findings) for row in healthy)),
            str(sum(row.certain for row in healthy)),
            str(sum(bool(row.trouble) for row in of_it)),
            f"{diagnosed_s:.1f} {plain_s:.1f}",
            style="bold" if family == "in total" else "",
        )
    return table


def show(row: Row, number: int, total: int) -> None:
    """Print a line of progress, and what is wrong."""
    miss = row.miss()
    mark = "[red]✗[/]" if miss else "[green]✓[/]"
    seed = f" seed {row.seed}" if row.seed != 1 else ""
    said = f"  {escape(miss)}" if miss else ""
    if row.plain and not row.diagnosed and not miss:
        lines = row.plain.output.strip().splitlines() or [""]
        mark, said = "•", f"  {escape(lines[0][:60])} … {escape(lines[-1][:60])}"
    seconds = " ".join(f"{ran.wall_s:.1f}" for ran in (row.plain, row.diagnosed) if ran)
    out.print(f"{mark} {number:3}/{total} [bold]{row.program.name}[/]{seed}  [dim]{seconds} s[/]{said}", soft_wrap=True)


def as_json(row: Row) -> dict[str, object]:
    return {
        "name": row.program.name,
        "family": row.program.family,
        "faulty": isinstance(row.program, Case),
        "seed": row.seed,
        "raised": row.raised,
        "first_category_right": row.first_category_right,
        "first_right": row.first_right,
        "since_right": row.since_right,
        "miss": row.miss(),
        "findings": [asdict(finding) for finding in row.findings],
        "plain": row.plain and asdict(row.plain),
        "diagnosed": row.diagnosed and asdict(row.diagnosed),
        "peers": row.peers and asdict(row.peers),
    }


def main() -> int:
    """Run what was chosen, and print a table; return 1 if anything was missed, listed falsely, or failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only programs whose names contain one of these")
    parser.add_argument("--framework", choices=tuple(SUITES), default="torch", help="of the programs")
    parser.add_argument("--only", choices=("faulty", "healthy"), help="only those with a fault, or those without")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from the first")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument("--json", type=Path, help="write everything that was found to this file")
    parser.add_argument(
        "--facts", type=Path, help="keep the facts of each run in this folder; judge those that are there"
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--plain", action="store_const", dest="runs", const=frozenset({PLAIN}), help="run nothing else")
    either.add_argument("--diagnosed", action="store_const", dest="runs", const=frozenset({DIAGNOSED}))
    parser.add_argument("--peers", type=Path, help="run each program with other tools, too, and keep this folder")
    parser.set_defaults(runs=frozenset({PLAIN, DIAGNOSED}))
    parser.add_argument("--draw", type=int, metavar="N", help="run N faulty and N healthy programs with each seed")
    parser.add_argument("--list", action="store_true", help="only name the programs")
    options = parser.parse_args()
    suite = SUITES[options.framework]
    programs: list[Case | Healthy] = []
    if options.only != "healthy":
        programs += suite.faulty
    if options.only != "faulty":
        programs += suite.healthy
    if options.names:
        programs = [program for program in programs if any(name in program.name for name in options.names)]
    if options.list:
        out.print("\n".join(program.name for program in programs))
        return 0
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if options.draw:
        chosen = [(program, seed) for seed in seeds for program in drawn(programs, options.draw, seed)]
    else:
        chosen = [(program, seed) for program in programs for seed in seeds]
    rows: list[Row] = []
    with ThreadPoolExecutor(options.jobs) as threads:
        results = threads.map(
            lambda each: try_program(suite, *each, options.runs, options.facts, options.peers), chosen
        )
        for number, row in enumerate(results, 1):
            rows.append(row)
            show(row, number, len(chosen))
    rows = judged_without(rows)
    if options.json:
        options.json.write_text(json.dumps([as_json(row) for row in rows], indent=1))
    if DIAGNOSED in options.runs:
        out.print()
        out.print(table_of(rows))
    if options.peers:
        out.print()
        out.print(peers_table(rows))
    return 1 if any(row.miss() for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
