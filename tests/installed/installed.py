"""Installs the wheel beside each supported framework as its users do, and uses it there.

    python tests/installed/installed.py [--wheel dist/tensight-*.whl] [--folder .venvs] [--keep] [NAME...]

In a fresh environment of each NAME: the wheel (built here, unless one is named) and the framework, with nothing pinned
by hand; whether all versions fit together; every command once; a training that is compared bit by bit, and
one that attaches to a server and stops where it goes wrong. In `alone` there is no framework, and no training. The
environment is removed when all of that worked.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
UV = ROOT / ".venv" / "bin" / "uv"
DUMP = ROOT / "tests" / "fixtures" / "sick-2.10.0.tar.xz"
# The last line; those before it are comments.
NEWEST_PYTORCH = (ROOT / "requirements" / "newest-pytorch.txt").read_text().splitlines()[-1]
PYTORCH = (Path(__file__).with_name("train_pytorch.py"),)
MINDSPORE = (ROOT / "examples" / "lenet_mindspore.py", "--fault", "log-of-zero")
WEIGHT = "network.fc2.weight"
FAULT_AT = 6
WITHIN_S = 300

WATCH = """
import sys, tensight
with tensight.connect(sys.argv[1]) as server:
    session = server.wait_for_session(120, name=sys.argv[2])
    record = session.wait(120)
    origins = (origin.sentence for origin in session.origins())
    print(record.state.value, record.step, len(list(session.hits())), "hits.", *origins)
    session.terminate()
"""


@dataclass(frozen=True)
class Environment:
    """What the wheel is installed beside.

    Attributes
    ----------
    requirement : str
        The framework; empty if there is none.
    pythons : tuple of str
        Versions that will do, the best first.
    training : tuple
        A script that goes wrong at `FAULT_AT`, and its arguments; empty without a framework.
    captures : tuple of str
        In which ways the training is captured, one after the other.
    """

    requirement: str
    pythons: tuple[str, ...]
    training: tuple[object, ...]
    captures: tuple[str, ...] = ("modules", "ops")


ENVIRONMENTS = {
    "alone": Environment("", ("3.10", "3.11", "3.12", "3.13"), (), ()),
    "mindspore-2.7": Environment("mindspore==2.7.0", ("3.11", "3.10"), MINDSPORE, ("modules",)),
    "mindspore-2.10": Environment("mindspore==2.10.0", ("3.12", "3.11", "3.10"), MINDSPORE, ("modules",)),
    "pytorch-2.6": Environment("torch==2.6.0", ("3.10", "3.11", "3.12"), PYTORCH),
    "pytorch-2.13": Environment("torch==2.13.0", ("3.11", "3.12", "3.10"), PYTORCH),
    "pytorch-2.15": Environment(NEWEST_PYTORCH, ("3.13", "3.12", "3.11"), PYTORCH),
}


class FailedError(Exception):
    """A command did not do what it should."""


def main() -> int:
    """Install and use the wheel beside each framework that was named; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(ENVIRONMENTS), help=", ".join(ENVIRONMENTS))
    parser.add_argument("--wheel", type=Path, help="as `make dist` builds it; without, it is built here")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venvs")
    parser.add_argument("--keep", action="store_true", help="leave the environments")
    options = parser.parse_args()
    unknown = set(options.names) - set(ENVIRONMENTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    folder = options.folder.resolve() / "installed"
    wheel = options.wheel.resolve() if options.wheel else build_wheel(folder)

    def is_well(name: str) -> bool:
        began_s = time.monotonic()
        try:
            Installed(name, ENVIRONMENTS[name], folder / name).try_out(wheel)
        except (FailedError, subprocess.TimeoutExpired) as error:
            print(f"{name}: FAILED\n{error}", flush=True)
            return False
        print(f"{name}: all well after {time.monotonic() - began_s:.0f} s", flush=True)
        if not options.keep:
            shutil.rmtree(folder / name)
        return True

    # While one is downloaded another is used.
    with ThreadPoolExecutor(2) as threads:
        return 0 if all(list(threads.map(is_well, options.names))) else 1


def new_environment(folder: Path, python: str | Path) -> Callable[..., str]:
    """Make an environment in which nothing is installed, and return what runs a command of pip for it."""
    done(UV, "venv", "--quiet", "--python", python, folder)

    def pip(command: str, *words: object) -> str:
        return done(UV, "pip", command, "--python", folder, *words)

    return pip


def build_wheel(folder: Path, sources: Path = ROOT) -> Path:
    """Build the wheel of this checkout, or of a part of it, and return it."""
    began_s = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    done(UV, "build", "--quiet", "--python", sys.executable, "--wheel", "--out-dir", folder, sources)
    (wheel,) = folder.glob("*.whl")
    print(f"{wheel.name}: built in {time.monotonic() - began_s:.0f} s", flush=True)
    return wheel


class Installed:
    """The wheel in an environment of its own.

    Parameters
    ----------
    name : str
    environment : Environment
    folder : Path
    """

    def __init__(self, name: str, environment: Environment, folder: Path) -> None:
        self._name, self._environment, self._folder = name, environment, folder
        self._bin = folder / "venv" / "bin"
        self._variables = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("TENSIGHT_", "PYTHON"))},
            # Nothing that another environment has cached, and no settings of the person who runs this; but pip's.
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def try_out(self, wheel: Path) -> None:
        """Install the wheel and use it."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        began_s = time.monotonic()
        pip = new_environment(self._folder / "venv", find_python(self._environment.pythons))
        # A framework has gigabytes, which nobody else needs.
        framework = ("--no-cache", self._environment.requirement) if self._environment.requirement else ()
        pip("install", wheel, *framework)
        pip("check")
        listed = json.loads(pip("list", "--format", "json"))
        versions = {package["name"].lower(): package["version"] for package in listed}
        with_it = ", ".join(f"{name} {versions[name]}" for name in ("numpy", "pyarrow", "protobuf", "grpcio"))
        size = sum(file.stat().st_size for file in self._folder.rglob("*") if not file.is_symlink() and file.is_file())
        python = self._done("python", "-c", "import platform; print(platform.python_version())").strip()
        took_s = time.monotonic() - began_s
        print(f"{self._name}: installed in {took_s:.0f} s, {size / 1e9:.1f} GB; Python {python}, {with_it}", flush=True)
        self._commands_on_a_dump()
        if self._environment.training:
            self._demo()
            self._selftest()
        self._attached()

    def _commands_on_a_dump(self) -> None:
        with tarfile.open(DUMP) as archive:
            archive.extractall(self._folder / "dump", filter="data")
        (dump,) = (self._folder / "dump").iterdir()
        for words, code in (
            (("--help",), 0),
            (("info", dump), 0),
            (("check", dump), 1),
            (("origin", dump), 0),
            (("nodes", dump, "fc2"), 0),
            (("stats", dump, "--top", "3"), 0),
            (("stats", dump, "--sql", "select count(*) as n from tensors"), 0),
            (("show", dump, WEIGHT), 0),
            (("compare-steps", dump, WEIGHT, "1", "2"), 0),
            (("export", dump, "--xlsx", "--out", self._folder / "out"), 0),
            (("export", dump, "--npz", "--on", WEIGHT, "--out", self._folder / "out"), 0),
            (("convert", dump, self._folder / "converted"), 0),
        ):
            self._done("tensight", *words, code=code)

    def _demo(self) -> None:
        for scenario in ("dump", "nan-from-log"):
            told = self._done("tensight", "demo", "--scenario", scenario, "--exit")
            if ".py:" not in told:
                raise FailedError(f"tensight demo --scenario {scenario} names no line:\n{told}")

    def _selftest(self) -> None:
        script, *_ = self._environment.training
        self._done("tensight", "selftest", "--steps", 5, "--capture", "ops", script)

    def _attached(self) -> None:
        workspace = self._folder / "workspace"
        with debug_server(self._bin / "python", workspace, self._variables) as (url, port):
            for capture in self._environment.captures:
                options = ("--port", port, "--recommended", "--capture", capture, "--job", capture)
                line = (self._bin / "tensight", "run", *options, *self._environment.training)
                with started(*line, folder=self._folder, variables=self._variables) as training:
                    told = self._done("python", "-c", WATCH, url, capture).strip()
                    said, _ = training.communicate(timeout=WITHIN_S)
                if not told.startswith(f"paused {FAULT_AT} ") or training.returncode:
                    raise FailedError(
                        f"a training with --capture {capture} did not stop where it should: {told}\n{said}"
                    )
                print(f"{self._name}: {told}", flush=True)

    def _done(self, program: str, *words: object, code: int = 0) -> str:
        return done(self._bin / program, *words, code=code, folder=self._folder, variables=self._variables)


@contextmanager
def debug_server(python: Path, workspace: Path, variables: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Run a debug server from an installation; yield its address, and the port for trainings."""

    def tensight(*words: object) -> str:
        return done(python, "-m", "tensight", *words, "--workspace", workspace, variables=variables)

    tensight("start", "--background", "--port", 0, "--debugger-port", 0)
    try:
        record = json.loads(tensight("status", "--json"))
        yield record["http"], record["debugger"].rpartition(":")[2]
    finally:
        tensight("stop")


@contextmanager
def started(*words: object, folder: Path, variables: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a command that is ended with the context."""
    process = subprocess.Popen(
        [str(word) for word in words],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def done(*words: object, code: int = 0, folder: Path | None = None, variables: dict[str, str] | None = None) -> str:
    """Run a command; return what it wrote."""
    line = [str(word) for word in words]
    ended = subprocess.run(
        line,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    if ended.returncode != code or "Traceback" in ended.stderr:
        told = f"{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
        raise FailedError(f"{' '.join(line)}\nended with {ended.returncode}, not {code}:\n{told}")
    return ended.stdout


def find_python(versions: tuple[str, ...]) -> str:
    """Return an interpreter of one of some versions: on the path, else pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in versions:
        candidates = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
        for candidate in filter(None, candidates):
            if not subprocess.run(
                [candidate, "-c", "import venv, ensurepip"], capture_output=True, check=False
            ).returncode:
                return str(candidate)
    raise FailedError(f"no Python of version {', '.join(versions)} found; install one, or put it on PATH")


if __name__ == "__main__":
    sys.exit(main())
