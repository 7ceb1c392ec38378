"""Build the statistics kernels: `kernels/` becomes the extension module ``tensight.tensors._kernels``.

Done before a wheel is packed, and before an installation in place; `python tools/build_kernels.py` does it by hand. One
file serves all versions of Python from 3.10 on (the stable ABI), and all processors of the machine's kind: the kernels
are in it once for each set of instructions, and the best one is chosen when it is loaded.

The compiler is ``$CXX``, or what the system has, or the one of the package `ziglang` (see `needed`). Where there is
none, or Python's headers are not there, nothing is built: NumPy does the same at a fraction of the speed.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

SOURCES = Path("kernels")
EXTENSION = Path("src/tensight/tensors/_kernels.abi3.so")
COMPILER_FROM_PYPI = "ziglang>=0.13,<1"

_X86_64 = {
    "sse42": ["-msse4.2", "-mpopcnt"],
    "avx2": ["-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mpopcnt"],
    "avx512": [
        *("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mpopcnt"),
        *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512"),
    ],
}
INSTRUCTION_SETS: dict[str, dict[str, list[str]]] = {
    "x86_64": _X86_64,
    "amd64": _X86_64,
    "aarch64": {"neon": []},
    "arm64": {"neon": []},
}
"""Sets of instructions by kind of machine, the best last, with what tells the compiler about them. Levels 2, 3 and 4 of
x86-64 are spelled out: not all compilers know those by name."""

_FLAGS = [
    *("-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fwrapv"),
]
_WARNINGS = ["-Wall", "-Wextra", "-Wno-psabi", "-Wno-uninitialized", "-Wno-maybe-uninitialized"]


def needed() -> list[str]:
    """Return what has to be installed before, as this machine is: a compiler, where it has none."""
    return [] if _compiler_of_system() else [COMPILER_FROM_PYPI]


def build(root: Path, *, flags: list[str] | None = None, target: Path | None = None) -> Path | None:
    """Compile the kernels and return the extension module; None, and a sentence, where that cannot be done.

    Parameters
    ----------
    root : Path
        Of the repository.
    flags : list of str, optional
        More flags for the compiler and the linker, such as those of a sanitizer.
    target : Path, optional
        Where to write it; by default `EXTENSION`, where Python finds it.
    """
    extension = target or root / EXTENSION
    if not flags and is_newer(extension, [*(root / SOURCES).iterdir(), Path(__file__)]):
        return extension
    compiler = _compiler_of_system() or _compiler_from_pypi()
    headers = Path(sysconfig.get_paths()["include"])
    if compiler is None:
        return _without(f"there is no C++ compiler; install one, or {COMPILER_FROM_PYPI} from PyPI")
    if not (headers / "Python.h").exists():
        return _without(f"Python's headers are not in {headers}; install them (Debian: python3-dev)")
    kinds = INSTRUCTION_SETS.get(platform.machine().lower(), {"plain": []})
    common = [*compiler, *_FLAGS, *_WARNINGS, *(flags or [])]
    with tempfile.TemporaryDirectory() as folder:

        def compile_to(name: str, source: str, *more: str) -> str:
            made = str(Path(folder) / f"{name}.o")
            _run([*common, *more, "-c", str(SOURCES / source), "-o", made], root)
            return made

        with ThreadPoolExecutor() as pool:
            scans = [
                pool.submit(compile_to, name, "scan.cpp", f"-DINSTRUCTION_SET={name}", *options)
                for name, options in kinds.items()
            ]
            each = " ".join(f"DO({name})" for name in kinds)
            module = compile_to("module", "module.cpp", f"-I{headers}", f"-DINSTRUCTION_SETS(DO)={each}")
            objects = [module, *(scan.result() for scan in scans)]
        shared = (
            ["-undefined", "dynamic_lookup", "-bundle"] if sys.platform == "darwin" else ["-shared", "-Wl,--as-needed"]
        )
        made = extension.with_suffix(f".{os.getpid()}")  # a process that has the old one loaded keeps it
        _run([*compiler, *(flags or []), *shared, *objects, "-lm", "-o", str(made.resolve())], root)
        made.replace(extension)
    return extension


def wheel_tag() -> str:
    """Return the tag of a wheel that has the extension."""
    return f"cp310-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def is_newer(made: Path, sources: list[Path]) -> bool:
    """Return whether a file was made after all of its sources were changed."""
    return made.exists() and all(made.stat().st_mtime > source.stat().st_mtime for source in sources)


def _compiler_of_system() -> list[str] | None:
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    return [found] if found else None


def _compiler_from_pypi() -> list[str] | None:
    return [sys.executable, "-m", "ziglang", "c++"] if find_spec("ziglang") else None


def _run(command: list[str], root: Path) -> None:
    # A cache of a compiler knows sources by their paths, so these must not say in which folder the checkout is.
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the kernels could not be compiled with {shlex.join(command)}:\n{done.stderr}")


def _without(why: str) -> None:
    sys.stderr.write(
        f"The statistics kernels are not built: {why}. NumPy does their work, at a fraction of the speed.\n"
    )


if __name__ == "__main__":
    built = build(Path(__file__).resolve().parents[1])
    sys.stdout.write(f"{built}\n" if built else "")
