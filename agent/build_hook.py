"""What hatchling does before it packs the light agent: it takes the agent's files out of the sources of `tensight`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The tools of the repository; of a release that is built from its sources, the folder that they were unpacked to.
sys.path.insert(
    0, str(next(folder / "tools" for folder in Path(__file__).resolve().parents if (folder / "src").exists()))
)

import build_commit
import build_kernels
import build_protos

SOURCES = Path(build_protos.__file__).resolve().parents[1]
PACKED = (".py", ".pyi", ".proto", ".so", ".typed")
BUILDERS = ("tools/build_commit.py", "tools/build_kernels.py", "tools/build_protos.py", "kernels")
START_FILE = "tensight_debug.pth"


class AgentBuildHook(BuildHookInterface):
    """Hatchling's way in."""

    def dependencies(self) -> list[str]:
        """Return what has to be installed before, as this machine is."""
        return build_kernels.needed() if self.target_name == "wheel" else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and name every file."""
        if version == "editable":
            raise RuntimeError("the light agent is not installed in place; install the repository itself so")
        if self.target_name == "sdist":
            packed = {name: SOURCES / name for name in BUILDERS}
            is_built = ("_pb2.py", "_pb2.pyi", ".so")
            packed |= {f"src/{name}": path for name, path in self._files() if not name.endswith(is_built)}
        else:
            build_protos.build(SOURCES)
            if build_kernels.build(SOURCES) is not None:
                build_data["pure_python"] = False
                build_data["tag"] = build_kernels.wheel_tag()
            packed = dict(self._files())
        for file in build_commit.write(SOURCES):
            name = file.relative_to(SOURCES if self.target_name == "sdist" else SOURCES / "src")
            packed[name.as_posix()] = file
        build_data["force_include"] |= {str(path): name for name, path in packed.items()}

    def _files(self) -> list[tuple[str, Path]]:
        """Return the agent's files, by their names in site-packages."""
        source = SOURCES / "src"
        chosen = [source / "tensight" / name for name in self.config["contents"]]
        files = [file for path in chosen for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
        packed = [file for file in files if file.suffix in PACKED]
        return [(file.relative_to(source).as_posix(), file) for file in (*packed, source / START_FILE)]
