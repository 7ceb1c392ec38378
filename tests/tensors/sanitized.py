"""Run the tests of the kernels with kernels that watch themselves: sanitizers for addresses and undefined behaviour.

    python tests/tensors/sanitized.py [arguments of pytest]

The kernels are compiled into a copy of the package, so that nobody else meets them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import build_kernels  # noqa: E402 - it lies among the tools of the repository

FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g", "-O1"]
TESTS = [Path(__file__).parent, ROOT / "tests" / "dumps" / "test_small_files.py"]
RUNTIMES = ("libasan.so", "libubsan.so")


def runtimes() -> list[str]:
    """Return the libraries of the sanitizers, which have to be loaded before Python."""
    compiler = shlex.split(os.environ.get("CXX") or "g++")
    asked = [[*compiler, f"-print-file-name={name}"] for name in RUNTIMES]
    found = [subprocess.run(one, capture_output=True, text=True, check=True).stdout.strip() for one in asked]
    missing = [path for path in found if not Path(path).is_absolute()]
    if missing:
        sys.exit(
            f"{shlex.join(compiler)} has no {', '.join(missing)}; "
            "install the sanitizers of the compiler, or name another in CXX"
        )
    return found


def main() -> None:
    """Build, and run the tests."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__", "page"))
        built = build_kernels.build(ROOT, flags=FLAGS, target=source / build_kernels.EXTENSION.relative_to("src"))
        if built is None:
            sys.exit(1)
        environment = {
            **os.environ,
            "PYTHONPATH": str(source),
            "LD_PRELOAD": " ".join(runtimes()),
            # Python itself leaves memory behind when it ends.
            "ASAN_OPTIONS": "detect_leaks=0",
        }
        # Without capture, or the message of a sanitizer is lost with the process that it ends.
        tests = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *map(str, TESTS)]
        sys.exit(subprocess.run([*tests, *sys.argv[1:]], cwd=ROOT, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
