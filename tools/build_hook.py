"""What hatchling does before it packs: protobuf modules, kernels and the page are built, never edited or committed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Hatchling loads this file by its path; those that it is made of lie beside it.
sys.path.insert(0, str(Path(__file__).resolve().parent))

import build_commit
import build_kernels
import build_page
import build_protos


class PackageBuildHook(BuildHookInterface):
    """Hatchling's way in."""

    def dependencies(self) -> list[str]:
        """Return what has to be installed before, as this machine is."""
        needs_node = not self._has_page() and build_page.find_node(Path(self.root)) is None
        needs_compiler = self.target_name != "sdist"
        return ([build_page.NODE_FROM_PYPI] if needs_node else []) + (build_kernels.needed() if needs_compiler else [])

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and name what was built: version control ignores it, it is packed all the same."""
        root = Path(self.root)
        if self.target_name != "sdist":
            built = build_protos.build(root)
            extension = build_kernels.build(root)
            if extension is not None:
                built.append(extension)
                build_data["pure_python"] = False
                build_data["tag"] = build_kernels.wheel_tag()
            build_data["artifacts"] += [f"/{path.relative_to(root).as_posix()}" for path in built]
        # Installed in place, the page is built by `make page`, when it is wanted.
        if version != "editable":
            if not self._has_page():
                build_page.build(root)
            build_data["artifacts"].append(f"/{build_page.PAGE.as_posix()}/")
            build_data["artifacts"] += [f"/{path.relative_to(root).as_posix()}" for path in build_commit.write(root)]

    def _has_page(self) -> bool:
        """Return whether the page is up to date, or these are the sources of a release, which carry it."""
        root = Path(self.root)
        page = root / build_page.PAGE / "index.html"
        is_release = (root / "PKG-INFO").exists()
        return page.exists() and (is_release or build_kernels.is_newer(page, build_page.sources(root)))
