"""Installs the light agent alone beside frameworks, and debugs trainings there from the full installation.

    python tests/installed/agent.py [--wheel WHEEL] [--folder .venvs] [--keep] [--fresh] [--full] [--brief] [NAME...]

In a new environment of each NAME: the agent's wheel and some versions of NumPy, protobuf and gRPC; its size; every
module and every command once; a training that stops where it goes wrong, goes on, and arrives at the same bits as
without the debugger; a trace, and a comparison with one that the full installation wrote.

The frameworks are those of the environments that the tests have, by links: NumPy, protobuf and gRPC are not among them.
With ``--fresh`` they are installed as users do, which takes minutes. The server runs from the interpreter that
runs this; with ``--full`` from an environment in which the wheel of `tensight` has been installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from installed import (
    FAULT_AT,
    ROOT,
    WITHIN_S,
    FailedError,
    build_wheel,
    debug_server,
    done,
    find_python,
    new_environment,
    started,
)

MOST_BYTES = 60_000_000
"""On disk: the agent and all that it needs beyond NumPy, compiled files included."""

TORCH = (Path(__file__).with_name("train_agent.py"),)
LENET = (ROOT / "examples" / "lenet_mindspore.py", "--fault", "log-of-zero")
OF_TESTS = {
    "torch": (Path(sys.executable), "make .venv/.frameworks"),
    "mindspore": (ROOT / ".venvs" / "mindspore-2.10" / "bin" / "python", "make mindspores"),
}
"""Where there is an environment that has a framework, and what makes it."""

VERSIONS = {"torch": "2.13.0", "mindspore": "2.10.0"}

STOP_AND_GO_ON = """
import sys, tensight
with tensight.connect(sys.argv[1]) as server:
    session = server.wait_for_session(300, name=sys.argv[2])
    record = session.wait(300)
    origins = (origin.sentence for origin in session.origins())
    print(record.state.value, record.step, len(list(session.hits())), "hits.", *origins, flush=True)
    while record.state.value == "paused":
        session.continue_()
        record = session.wait(300)
"""

LINKED = """
import sys
from importlib.metadata import distribution
from pip._vendor.packaging.requirements import Requirement

OF_THE_AGENT = ("numpy", "protobuf", "grpcio")
names, left, tops = set(), [sys.argv[1]], set()
while left:
    name = left.pop().lower()
    if name in names or name in OF_THE_AGENT:
        continue
    names.add(name)
    found = distribution(name)
    firsts = {file.parts[0] for file in found.files or ()}
    tops |= {found.locate_file(first) for first in firsts if not first.endswith(("..", ".pth"))}
    needed = map(Requirement, found.requires or ())
    left += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
print(sys.base_prefix, *(top for top in tops if top.name != "__pycache__"), sep="\\n")
"""

SIZES = """
from importlib.metadata import distributions
from importlib.util import cache_from_source
from pathlib import Path

for found in distributions():
    files = {found.locate_file(file).resolve() for file in found.files or ()}
    files |= {Path(cache_from_source(file)) for file in files if file.suffix == ".py"}
    size = sum(file.stat().st_blocks * 512 for file in files if file.is_file())
    print(found.metadata["Name"], found.version, size)
"""

EVERY_MODULE = """
import importlib, sys

for name in sys.argv[1:]:
    importlib.import_module(name)
strangers = {"ml_dtypes", "pyarrow", "pydantic", "typer", "rich", "fsspec", "platformdirs"} & sys.modules.keys()
assert not strangers, strangers
"""


@dataclass(frozen=True)
class Beside:
    """What the agent is installed beside.

    Attributes
    ----------
    framework : {"torch", "mindspore"}
    requirements : tuple of str
        Versions of NumPy, protobuf and gRPC.
    arguments : tuple
        A training that goes wrong at `FAULT_AT`, and its arguments.
    captures : tuple of str
        In which ways the training is captured, one after the other.
    """

    framework: str
    requirements: tuple[str, ...]
    arguments: tuple[object, ...]
    captures: tuple[str, ...] = ("modules", "ops")


ENVIRONMENTS = {
    "oldest": Beside("torch", ("numpy==1.26.0", "protobuf==4.25.0", "grpcio==1.60.0"), TORCH, ("ops",)),
    "protobuf-5": Beside("torch", ("numpy==1.26.*", "protobuf==5.*", "grpcio==1.71.*"), TORCH),
    "protobuf-6": Beside("torch", ("numpy==2.0.*", "protobuf==6.*", "grpcio"), TORCH),
    "newest": Beside("torch", ("numpy", "protobuf", "grpcio"), TORCH),
    "mindspore": Beside("mindspore", ("numpy==1.26.*", "protobuf>=7", "grpcio"), LENET, ("modules",)),
}


def main() -> int:
    """Install the agent beside what was named, and use it there; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(ENVIRONMENTS), help=", ".join(ENVIRONMENTS))
    parser.add_argument("--wheel", type=Path, help="as `make dist` builds it; without, it is built here")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venvs")
    parser.add_argument("--keep", action="store_true", help="leave the environments")
    parser.add_argument("--fresh", action="store_true", help="install the frameworks, too")
    parser.add_argument("--full", action="store_true", help="install the wheel of tensight, too, and take its server")
    parser.add_argument("--brief", action="store_true", help="leave out the traces, and their comparison")
    options = parser.parse_args()
    unknown = set(options.names) - set(ENVIRONMENTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    folder = options.folder.resolve() / "installed-agent"
    wheel = options.wheel.resolve() if options.wheel else build_wheel(folder, ROOT / "agent")
    full = install_full(folder / "full") if options.full else Path(sys.executable)
    is_well = True
    for name in options.names:
        began_s = time.monotonic()
        try:
            AgentAlone(name, ENVIRONMENTS[name], folder / name, full).try_out(
                wheel, fresh=options.fresh, traces=not options.brief
            )
        except (FailedError, subprocess.TimeoutExpired) as error:
            print(f"{name}: FAILED\n{error}", flush=True)
            is_well = False
            continue
        print(f"{name}: all well after {time.monotonic() - began_s:.0f} s", flush=True)
        if not options.keep:
            shutil.rmtree(folder / name)
    return 0 if is_well else 1


def install_full(folder: Path) -> Path:
    """Build and install the wheel of tensight; return the interpreter that has it."""
    wheel = build_wheel(folder)
    new_environment(folder / "venv", sys.executable)("install", wheel)
    return folder / "venv" / "bin" / "python"


class AgentAlone:
    """The agent's wheel in an environment of its own.

    Parameters
    ----------
    name : str
    beside : Beside
    folder : Path
    full : Path
        An interpreter that has the full installation.
    """

    def __init__(self, name: str, beside: Beside, folder: Path, full: Path) -> None:
        self._name, self._beside, self._folder, self._full = name, beside, folder, full
        self._bin = folder / "venv" / "bin"
        self._variables = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("TENSIGHT_", "PYTHON"))},
            # Nothing that another environment has cached, and no settings of the person who runs this; but pip's.
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def try_out(self, wheel: Path, *, fresh: bool, traces: bool) -> None:
        """Install the agent and use it."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._install(wheel, fresh=fresh)
        self._measure()
        self._import_all(wheel)
        self._ask()
        self._stop_and_go_on()
        if traces and self._beside.framework == "torch":
            self._trace()

    def _install(self, wheel: Path, *, fresh: bool) -> None:
        framework, environment = self._beside.framework, self._folder / "venv"
        wanted = (wheel, *self._beside.requirements)
        if fresh:
            pip = new_environment(environment, find_python(("3.11", "3.12", "3.10")))
            wanted = (*wanted, f"{framework}=={VERSIONS[framework]}")
        else:
            python, target = OF_TESTS[framework]
            if not python.exists():
                raise FailedError(f"there is no {python}; `{target}` makes it")
            prefix, *tops = done(python, "-c", LINKED, framework).splitlines()
            pip = new_environment(environment, Path(prefix) / "bin" / "python3")
            (packages,) = (environment / "lib").glob("python3.*/site-packages")
            for top in map(Path, tops):
                # uv takes a package for installed where the folder that describes it is no link.
                link = shutil.copytree if top.suffix == ".dist-info" else os.symlink
                link(top, packages / top.name)
        pip("install", "--compile-bytecode", *wanted)
        pip("check")

    def _measure(self) -> None:
        lines = [line.split() for line in self._done("python", "-c", SIZES).splitlines()]
        found = {name.lower(): (version, int(size)) for name, version, size in lines}
        needed = [name for name in ("tensight-agent", "protobuf", "grpcio", "typing_extensions") if name in found]
        total = sum(found[name][1] for name in needed)
        each = ", ".join(f"{name} {found[name][0]} {found[name][1] / 1e6:.1f} MB" for name in needed)
        print(f"{self._name}: NumPy {found['numpy'][0]}; beyond it {total / 1e6:.1f} MB: {each}", flush=True)
        if total > MOST_BYTES:
            raise FailedError(f"that is more than {MOST_BYTES / 1e6:.0f} MB")

    def _import_all(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            files = [name.removesuffix(".py") for name in archive.namelist() if name.endswith(".py")]
        modules = sorted(name.replace("/", ".").removesuffix(".__init__") for name in files)
        other = "mindspore" if self._beside.framework == "torch" else "torch"
        others = tuple(f"tensight.agents.{name}" for name in (other, "torch.lightning", "torch.transformers"))
        ours = [name for name in modules if not name.startswith(others) and name != "tensight.__main__"]
        self._done("python", "-c", EVERY_MODULE, *ours)

    def _ask(self) -> None:
        for words, code, part in (
            (("--help",), 0, "pip install ."),
            (("--version",), 0, "tensight-agent"),
            (("run", "--help"), 0, "--recommended"),
            (("trace", "--help"), 0, "--perturb"),
            (("run", "--recomended", "train.py"), 2, "--recomended"),
            (("check", "dump"), 2, "`tensight check` needs the full installation: "),
            (("start",), 2, "`tensight start` needs the full installation: "),
        ):
            told = self._told("tensight", *words, code=code)
            if part not in told or (code and len(told.splitlines()) != 1):
                raise FailedError(f"tensight {' '.join(words)} says:\n{told}")

    def _stop_and_go_on(self) -> None:
        plain = self._arrived(self._done("python", *self._training("plain")), "plain")
        with debug_server(self._full, self._folder / "workspace", self._variables) as (url, port):
            for capture in self._beside.captures:
                options = ("--port", port, "--recommended", "--capture", capture, "--job", capture)
                line = (self._bin / "tensight", "run", *options, *self._training(capture))
                with started(*line, folder=self._folder, variables=self._variables) as training:
                    told = done(self._full, "-c", STOP_AND_GO_ON, url, capture, variables=self._variables).strip()
                    said, _ = training.communicate(timeout=WITHIN_S)
                if not told.startswith(f"paused {FAULT_AT} ") or training.returncode:
                    raise FailedError(f"with --capture {capture} it did not stop where it should: {told}\n{said}")
                if self._arrived(said, capture) != plain:
                    raise FailedError(f"with --capture {capture} the parameters are not bit-identical\n{said}")
                print(f"{self._name}: {told} Bit-identical at the end.", flush=True)

    def _training(self, name: str) -> tuple[object, ...]:
        saved = ("--save", self._folder / f"{name}.ckpt") if self._beside.framework == "mindspore" else ()
        return (*self._beside.arguments, *saved)

    def _arrived(self, said: str, name: str) -> bytes | str:
        """Return the parameters at the end of a training."""
        if self._beside.framework == "mindspore":
            return (self._folder / f"{name}.ckpt").read_bytes()
        return next(line for line in said.splitlines() if line.startswith("arrived"))

    def _trace(self) -> None:
        """Compare with a trace of the full installation, which has ml_dtypes; and have it read one of the agent."""
        there, here = self._folder / "there", self._folder / "here"
        script = (*self._beside.arguments, "--healthy")
        in_full = ("-m", "tensight")
        # A full installation that has been installed for this has no framework.
        has_torch = "torch" in done(self._full, "-c", "from importlib.util import find_spec; print(find_spec('torch'))")
        if has_torch:
            done(self._full, *in_full, "trace", "--capture", "ops", "--out", there, *script, variables=self._variables)
            self._done("tensight", "run", "--against", there, *script)
        self._done("tensight", "trace", "--capture", "ops", "--out", here, *script)
        done(self._full, *in_full, "info", here, variables=self._variables)
        if has_torch:
            line = ("compare", "runs", there, here)
            done(self._full, *in_full, *line, variables=self._variables)
        compared = "equal to the full installation's" if has_torch else "read by the full installation"
        print(f"{self._name}: its trace is {compared}", flush=True)

    def _done(self, program: str, *words: object) -> str:
        return done(self._bin / program, *words, folder=self._folder, variables=self._variables)

    def _told(self, program: str, *words: object, code: int) -> str:
        """Run a command that may fail; return all that it wrote."""
        line = [str(self._bin / program), *map(str, words)]
        ended = subprocess.run(
            line, cwd=self._folder, env=self._variables, capture_output=True, text=True, timeout=60, check=False
        )
        if ended.returncode != code:
            raise FailedError(f"{' '.join(line)}\nended with {ended.returncode}, not {code}:\n{ended.stderr}")
        return ended.stdout + ended.stderr


if __name__ == "__main__":
    sys.exit(main())
