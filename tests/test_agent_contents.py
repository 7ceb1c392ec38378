"""What the light agent is made of needs NumPy, protobuf and gRPC, its adapters their frameworks, and nothing else."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import grimp
import pytest

from tensight.errors import TensightError
from tensight.installations import require_one_version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
ALLOWED = {*sys.stdlib_module_names, "numpy", "google", "grpc"}
ADAPTERS = {
    "tensight.agents.torch": {"torch", "lightning", "transformers"},
    "tensight.agents.mindspore": {"mindspore"},
}
IF_INSTALLED = {
    # Each of these says what is missing, or does without.
    ("tensight", "tensight.client"),
    ("tensight", "tensight.server.default_address"),
    ("tensight.cli", "tensight.cli.app"),
    ("tensight.cli", "tensight.cli.dump_summary"),
    ("tensight.dumps.storage", "fsspec"),
    ("tensight.tensors.narrow_types", "ml_dtypes"),
}


def settings(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


AGENT, FULL = settings(ROOT / "agent"), settings(ROOT)
CONTENTS = [name.removesuffix(".py") for name in AGENT["tool"]["hatch"]["build"]["hooks"]["custom"]["contents"]]
PARTS = [f"tensight.{name}".replace("/", ".").removesuffix(".__init__") for name in CONTENTS]


def is_in_agent(module: str) -> bool:
    packages = [part for part in PARTS if part not in ("tensight", "tensight.cli")]
    return module in PARTS or any(module.startswith(f"{part}.") for part in packages)


def test_nothing_of_the_agent_imports_what_it_does_not_bring() -> None:
    graph = grimp.build_graph("tensight", include_external_packages=True, exclude_type_checking_imports=True)
    modules = sorted(module for module in graph.modules if module.startswith("tensight") and is_in_agent(module))
    assert len(modules) > 200
    strange = set()
    for module in modules:
        allowed = ALLOWED.union(*(names for adapter, names in ADAPTERS.items() if module.startswith(adapter)))
        for imported in graph.find_modules_directly_imported_by(module):
            is_ours = imported.partition(".")[0] == "tensight"
            if not (is_in_agent(imported) if is_ours else imported in allowed):
                strange.add((module, imported))
    assert strange == IF_INSTALLED


def test_both_distributions_say_the_same() -> None:
    assert (ROOT / "agent" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert AGENT["project"]["requires-python"] == FULL["project"]["requires-python"]
    assert AGENT["project"]["scripts"].items() <= FULL["project"]["scripts"].items()
    assert AGENT["tool"]["cibuildwheel"] == FULL["tool"]["cibuildwheel"]
    names = [re.match(r"[a-z_]+", requirement) for requirement in AGENT["project"]["dependencies"]]
    assert [name and name[0] for name in names] == ["numpy", "protobuf", "grpcio"]
    assert set(AGENT["project"]["dependencies"][:2]) <= set(FULL["project"]["dependencies"])


def test_two_versions_over_each_other_are_refused(tmp_path: Path) -> None:
    require_one_version(str(tmp_path / "archive.zip"))
    for name in ("tensight-0.2.0", "tensight_agent-0.2.0", "tensight_other-0.1.0", "numpy-1.26.0"):
        (tmp_path / f"{name}.dist-info").mkdir()
    require_one_version(str(tmp_path))
    (tmp_path / "tensight_agent-0.2.0.dist-info").rename(tmp_path / "tensight_agent-0.1.0.dist-info")
    with pytest.raises(TensightError, match=r"tensight 0\.2\.0 and tensight-agent 0\.1\.0 .*pip uninstall tensight"):
        require_one_version(str(tmp_path))
