"""Many healthy programs with the recommended watchpoints: none may be stopped, and none may come out otherwise.

    python benchmarks/healthy_programs.py [NAME ...] [--captures modules ops] [--jobs 1] [--fresh] [--broken] [--list]

Each program (programs/*.py, with the arguments that programs/programs.py names) runs in a process of its own: plain,
and then under the debugger with each capture, attached to a real server. Where it is stopped, what hit is written down,
those watchpoints are deleted, and it goes on, so that one run tells everything. Compared are the exit code, all that is
printed (the bits of the final parameters among it), whether every step was seen, and the peak of the memory: kept
values may raise it by their budget, 50 MB here. Where it grows by more than that and what the debugger itself takes of
a small program (`retained_memory.py`), a further run without a budget tells how much of it is values. The processes are
forked from one that has imported the packages, which would take most of the time; ``--fresh`` starts each with
`tensight run`.

``--broken`` runs twins of some of them with a planted fault instead, and says how each fault is found.

Models come from torchvision, timm, transformers, diffusers and peft, with random weights; nothing is downloaded.
`make healthy` installs what is needed and runs all of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from retained_memory import MB, MMAP_THRESHOLD_BYTES, MOST_OF_ITS_OWN_MB
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from server import started

import tensight
from tensight.agents.core.settings import as_variables
from tensight.client import WaitError
from tensight.errors import TensightError

HERE = Path(__file__).resolve().parent
PROGRAMS_FOLDER = HERE / "programs"
PACKAGES = HERE.parent / ".venvs" / "programs"
sys.path.insert(0, str(PROGRAMS_FOLDER))

from programs import BROKEN, PROGRAMS, Program  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensight.client import Server, Session
    from tensight.sessions.records import FindingRecord

CAPTURES = ("modules", "ops")
LOOK_EVERY_S = 0.3
BUDGET_MB = 50
"""For the values that are kept of a program."""
out = Console(width=None if sys.stdout.isatty() else 160)


@dataclass
class Stop:
    """A step at which a watchpoint or a finding stopped a training.

    Attributes
    ----------
    step : int
    hits : list of str
        The first tensor of each watchpoint; without hits, the findings.
    origins : list of str
    """

    step: int
    hits: list[str]
    origins: list[str]


@dataclass
class Outcome:
    """What came of one run.

    Attributes
    ----------
    cpu_s : float
        Seconds of the processor, which others on the machine hardly change.
    peak_mb : float
        Of the resident memory; with several processes, of the one with the highest.
    exit_code : int
    output : str
        What it printed.
    errors : str
        What it wrote to stderr.
    steps : int or None
        That the debugger saw; None if the run never had a session.
    watched : int
        Nodes that the watchpoints watched, all together.
    stops : list of Stop
    findings : list of str
        Why it does not learn, as rules say.
    """

    cpu_s: float
    peak_mb: float
    exit_code: int
    output: str
    errors: str
    steps: int | None = None
    watched: int = 0
    stops: list[Stop] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def notices(self, expected: Iterable[str] = ()) -> list[str]:
        """Return what the agent complained about, without what is true of the program."""
        said = [line.removeprefix("tensight: ") for line in self.errors.splitlines() if line.startswith("tensight: ")]
        return [line for line in said if not any(words in line for words in expected)]


class Person(threading.Thread):
    """Somebody who looks after a run: writes down why it stopped, and lets it go on.

    Parameters
    ----------
    url : str
        Of the server.
    job : str
    only_first : bool
        End the run at its first stop.
    """

    def __init__(self, url: str, job: str, *, only_first: bool) -> None:
        super().__init__(daemon=True)
        self._url, self._job, self._only_first = url, job, only_first
        self._leave = threading.Event()
        self.steps: int | None = None
        self.watched = 0
        self.stops: list[Stop] = []
        self.findings: list[str] = []

    def run(self) -> None:
        with tensight.connect(self._url) as server:
            session = self._session(server)
            while session is not None:
                try:
                    record = session.wait(LOOK_EVERY_S)
                    has_ended, is_stopped = record.state.has_ended, not record.state.has_ended
                except WaitError:
                    has_ended = is_stopped = False
                except TensightError:
                    has_ended, is_stopped = True, False
                if is_stopped:
                    self._write_down(session)
                if has_ended or (self._leave.is_set() and not is_stopped):
                    break
            if session is not None:
                self.steps = session.summary.step
                self.findings = [_finding(finding) for finding in session.findings()]
                self.watched = max(self.watched, sum(point.nodes for point in session.watchpoints()))

    def _session(self, server: Server) -> Session | None:
        """Wait until the run is attached; None if it ends before."""
        while not self._leave.is_set():
            with contextlib.suppress(WaitError):
                return server.wait_for_session(LOOK_EVERY_S, name=self._job)
        return None

    def leave(self) -> None:
        """Stop looking, as the process has ended."""
        self._leave.set()
        self.join(30)

    def _write_down(self, session: Session) -> None:
        """Note what hit; delete what did, and go on."""
        hits: dict[int, str] = {}
        for node in session.hits():
            for tensor in node.tensors:
                for hit in tensor.hits:
                    actual = ", ".join(f"{p.name} {p.actual:.4g}" for p in hit.parameters if p.actual is not None)
                    line = "" if node.line is None else f", line {node.line.line}"
                    what = f"{hit.condition}: {node.node}:{tensor.io}:{tensor.slot} ({node.type}{line}) {actual}"
                    hits.setdefault(hit.watchpoint, what)
        origins = [origin.sentence for origin in session.origins()]
        whys = list(hits.values()) or [_finding(finding) for finding in session.findings()]
        self.stops.append(Stop(session.summary.step, whys, origins[:4]))
        if self._only_first:
            session.terminate()
            return
        if not hits:
            time.sleep(LOOK_EVERY_S)
        self.watched = max(self.watched, sum(point.nodes for point in session.watchpoints()))
        if hits:
            session.delete_watchpoints(*hits)
        session.continue_()


def _finding(finding: FindingRecord) -> str:
    return f"{finding.certainty} {finding.rule}: {finding.title}"


def environment() -> Mapping[str, str]:
    """Return what a program finds around it: the packages, one thread, and no way to the network."""
    paths = [str(PROGRAMS_FOLDER / "start"), str(PACKAGES), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONHASHSEED": "0",
        # What is said then is a complaint.
        "TENSIGHT_QUIET": "1",
        "OMP_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD_BYTES),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "NO_COLOR": "1",
    }


def command_of(program: Program, fault: str = "") -> list[str]:
    """Return the command of a program, without the interpreter of one that `torchrun` starts."""
    script = [str(PROGRAMS_FOLDER / program.script), *program.arguments, *(["--fault", fault] if fault else [])]
    if program.ranks == 1:
        return script
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return ["torchrun", "--nproc-per-node", str(program.ranks), "--master-port", str(port), *script]


class Used(NamedTuple):
    """The exit code of a process, the seconds of the processor, and the peak of its memory."""

    exit_code: int
    cpu_s: float
    peak_kb: int


class Warm:
    """A process that has imported everything, and forks the programs; the imports would take most of the time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAMS_FOLDER / "start" / "warm.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(),
        )
        self._waiting: dict[str, Future[Used]] = {}
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def run(self, name: str, command: list[str], variables: Mapping[str, str], folder: Path) -> Used:
        """Run a script to its end; return its exit code and what it took."""
        assert self._process.stdin
        self._waiting[name] = answer = Future()
        order = {"name": name, "command": command, "environment": dict(variables), "folder": str(folder)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return answer.result()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            name, code, cpu_s, peak_kb = line.split()
            self._waiting.pop(name).set_result(Used(int(code), float(cpu_s), int(peak_kb)))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(30)


class Runner:
    """Runs programs, each in a process of its own.

    Parameters
    ----------
    folder : Path
        For what they write.
    url, debugger : str
        Addresses of the server, of its HTTP API and for trainings.
    fresh : bool
        Start a new interpreter for each, and `tensight run`, as a person would; else they are forked from one that
        has imported everything.
    """

    def __init__(self, folder: Path, url: str, debugger: str, *, fresh: bool = False) -> None:
        self._folder, self._url, self._debugger, self._fresh = folder, url, debugger, fresh
        self._warm: Warm | None = None
        self._starting = threading.Lock()

    def plain(self, program: Program) -> Outcome:
        """Run a program without a debugger."""
        command = command_of(program)
        if program.ranks > 1:
            command[:1] = [sys.executable, "-m", "torch.distributed.run"]
            return self._run(f"{program.name}-plain", command)
        if self._fresh:
            return self._run(f"{program.name}-plain", [sys.executable, *command])
        return self._run(f"{program.name}-plain", command, {})

    def attached(self, program: Program, capture: str, *, fault: str = "", budget_mb: int = BUDGET_MB) -> Outcome:
        """Run a program under the debugger, with somebody who looks after it."""
        job = "-".join(filter(None, (program.name, fault, capture, "" if budget_mb else "without-values")))
        host, _, port = self._debugger.rpartition(":")
        person = Person(self._url, job, only_first=bool(fault))
        person.start()
        if self._fresh or program.ranks > 1:
            options = ["--recommended", "--capture", capture, "--host", host, "--port", port, "--job", job]
            options += ["--memory-budget", f"{budget_mb}MB"]
            start = [sys.executable, "-m", "tensight", "run", *options]
            outcome = self._run(job, [*start, *command_of(program, fault)])
        else:
            chosen = {"recommended": True, "capture": capture, "host": host, "port": port, "job": job}
            chosen["memory_budget_bytes"] = budget_mb * MB
            outcome = self._run(job, command_of(program, fault), {"TENSIGHT_DEBUG": "1", **as_variables(chosen)})
        person.leave()
        outcome.steps, outcome.watched, outcome.stops = person.steps, person.watched, person.stops
        outcome.findings = person.findings
        return outcome

    def _run(self, name: str, command: list[str], forked: Mapping[str, str] | None = None) -> Outcome:
        """Run a command to its end in a new folder; fork it where variables for that are given."""
        folder = self._folder / name
        folder.mkdir(parents=True)
        if forked is not None:
            used = self._started().run(name, command, forked, folder)
        else:
            with (folder / "stdout").open("w") as output, (folder / "stderr").open("w") as errors:
                process = subprocess.Popen(
                    command, stdout=output, stderr=errors, stdin=subprocess.DEVNULL, env=environment(), cwd=folder
                )
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            used = Used(process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
        read = ((folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))
        return Outcome(used.cpu_s, used.peak_kb * 1024 / MB, used.exit_code, *read)

    def _started(self) -> Warm:
        with self._starting:
            self._warm = self._warm or Warm()
            return self._warm

    def close(self) -> None:
        """End what was started."""
        if self._warm is not None:
            self._warm.close()


def differences(plain: Outcome, attached: Outcome, steps: int, expected: Iterable[str]) -> list[str]:
    """Return in what an attached run differs from the plain one, and what of it was not seen."""
    found = []
    if attached.exit_code != plain.exit_code:
        found.append(f"exit code {attached.exit_code} instead of {plain.exit_code}")
    if attached.output != plain.output:
        ours, theirs = attached.output.splitlines(), plain.output.splitlines()
        line = next((pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]), ("more or fewer lines",))
        found.append(f"printed {line[0]!r}" + (f" instead of {line[1]!r}" if len(line) > 1 else ""))
    if attached.exit_code:
        found.append(next(iter(attached.errors.strip().splitlines()[-1:]), ""))
    if attached.steps != steps:
        found.append(f"{attached.steps} steps seen of {steps}")
    if not attached.watched:
        found.append("nothing watched")
    return [*found, *attached.notices(expected)]


def steps_of(output: str) -> int:
    """Return how many steps a program says that it did."""
    lines = [line for line in output.splitlines() if line.startswith("steps ")]
    return int(lines[-1].split()[1]) if lines else -1


@dataclass
class Row:
    """What is known of one program."""

    name: str
    plain: Outcome
    attached: dict[str, Outcome]
    without_values: dict[str, Outcome] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """How many it does."""
        return steps_of(self.plain.output)

    def faults(self) -> list[str]:
        """Return all that is wrong, in words."""
        if self.plain.exit_code or self.steps <= 0:
            last = self.plain.errors.strip().splitlines()[-1:]
            return [f"plain: fails, exit code {self.plain.exit_code} {' '.join(last)}"]
        return [
            f"{capture}: {what}"
            for capture, outcome in self.attached.items()
            for what in (
                *(
                    f"stopped at step {stop.step} by {'; '.join(stop.hits)}; {' | '.join(stop.origins)}"
                    for stop in outcome.stops
                ),
                *(f"finding: {finding}" for finding in outcome.findings),
                *differences(self.plain, outcome, self.steps, self.notices),
                *self._too_large(capture),
            )
        ]

    def _too_large(self, capture: str) -> list[str]:
        """Return that kept values raise the peak of the memory by more than their budget, if they do."""
        without = self.without_values.get(capture)
        values_mb = 0.0 if without is None else self.attached[capture].peak_mb - without.peak_mb
        return [f"values take {values_mb:.0f} MB at the peak, of {BUDGET_MB}"] if values_mb > BUDGET_MB else []


def try_program(program: Program, runner: Runner, captures: Iterable[str]) -> Row:
    """Run a program plain and with each capture."""
    plain = runner.plain(program)
    if plain.exit_code:
        return Row(program.name, plain, {})
    attached = {capture: runner.attached(program, capture) for capture in captures}
    most_mb = plain.peak_mb + BUDGET_MB + MOST_OF_ITS_OWN_MB
    large = [capture for capture, outcome in attached.items() if outcome.peak_mb > most_mb]
    without_values = {capture: runner.attached(program, capture, budget_mb=0) for capture in large}
    return Row(program.name, plain, attached, without_values, program.notices)


def show(row: Row, number: int, total: int) -> None:
    """Print a line of progress, and what is wrong below it."""
    faults = row.faults()
    seconds = " ".join(f"{outcome.cpu_s:.1f}" for outcome in (row.plain, *row.attached.values()))
    mark = "[red]✗[/]" if faults else "[green]✓[/]"
    said = next((line for line in row.plain.output.splitlines() if line.startswith("loss ")), "")
    out.print(f"{mark} {number:2}/{total} [bold]{row.name}[/]  {row.steps} steps, {said}  [dim]{seconds} s[/]")
    for fault in faults:
        out.print(f"      [red]{escape(fault)}[/]", soft_wrap=True)


def table_of(rows: list[Row], captures: list[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("program")
    table.add_column("steps", justify="right")
    for capture in captures:
        table.add_column(f"stops, {capture}", justify="right")
    table.add_column("bit-identical")
    for name in ("plain", *captures):
        table.add_column(f"CPU s, {name}", justify="right")
    for capture in captures:
        table.add_column(f"peak, {capture}", justify="right")
    for row in rows:
        runs = [row.attached.get(capture) for capture in captures]
        stops = ["–" if outcome is None else str(len(outcome.stops)) for outcome in runs]
        same = all(outcome is not None and outcome.output == row.plain.output for outcome in runs)
        seconds = [f"{outcome.cpu_s:.1f}" if outcome else "–" for outcome in (row.plain, *runs)]
        grown = [f"{row.attached[capture].peak_mb - row.plain.peak_mb:+.0f} MB" for capture in row.attached]
        table.add_row(row.name, str(row.steps), *stops, "yes" if same else "[red]NO[/]", *seconds, *grown)
    return table


def try_broken(names: list[str], captures: list[str], runner: Runner) -> int:
    """Run the twins with planted faults; say how each is found."""
    missed = 0
    by_name = {program.name: program for program in PROGRAMS}
    table = Table("program", "fault", "capture", "step", "what hit", "origin", box=None, pad_edge=False)
    for broken in BROKEN:
        if names and not any(name in f"{broken.program} {broken.fault}" for name in names):
            continue
        for capture in captures:
            outcome = runner.attached(by_name[broken.program], capture, fault=broken.fault)
            stop = next(iter(outcome.stops), None)
            notices = outcome.notices()
            missed += stop is None and not notices
            cells = ("–", escape(" ".join(notices)) or "[red]nothing[/]", "")
            if stop is not None:
                cells = (str(stop.step), escape("\n".join(stop.hits[:3])), escape("\n".join(stop.origins[:2])))
            table.add_row(broken.program, broken.fault, capture, *cells)
            said = stop if stop is not None else notices
            out.print(f"{broken.program}, {broken.fault}, {capture}: {escape(str(said))}", soft_wrap=True)
    out.print(table)
    out.print(f"{missed} not found")
    return 1 if missed else 0


def main() -> int:
    """Run what was chosen, and print a table; return 1 if anything was stopped or differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only programs whose names contain one of these")
    parser.add_argument("--captures", nargs="*", choices=CAPTURES, default=list(CAPTURES))
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument("--broken", action="store_true", help="run the twins with planted faults")
    parser.add_argument("--fresh", action="store_true", help="a new interpreter and `tensight run` for each")
    parser.add_argument("--list", action="store_true", help="only name the programs")
    parser.add_argument("--json", type=Path, help="write everything that was found to this file")
    options = parser.parse_args()
    chosen = [
        program for program in PROGRAMS if not options.names or any(name in program.name for name in options.names)
    ]
    if options.list:
        out.print("\n".join(program.name for program in chosen))
        return 0
    begin_s = time.monotonic()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tensight-programs-")))
        server = stack.enter_context(started())
        runner = Runner(folder, str(server.person.url), server.debugger, fresh=options.fresh)
        stack.callback(runner.close)
        if options.broken:
            return try_broken(options.names, options.captures, runner)
        threads = stack.enter_context(ThreadPoolExecutor(options.jobs))
        results = threads.map(lambda program: try_program(program, runner, options.captures), chosen)
        for number, row in enumerate(results, 1):
            rows.append(row)
            show(row, number, len(chosen))
    out.print()
    out.print(table_of(rows, options.captures))
    bad = [row.name for row in rows if row.faults()]
    minutes = (time.monotonic() - begin_s) / 60
    out.print(f"\n{len(rows)} programs in {minutes:.1f} minutes, {len(bad)} of them not as they should be: {bad}")
    if options.json:
        options.json.write_text(json.dumps([{**asdict(row), "faults": row.faults()} for row in rows], indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
