"""The list of frameworks, and the adapters that it stands for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import tensight.agents
from tensight.frameworks import FRAMEWORKS, name_of
from tests.test_agent_contents import ADAPTERS, FULL

SHARED = {"core", "eager", "facts"}


def test_each_adapter_is_listed_and_has_what_starts_it() -> None:
    folder = Path(str(tensight.agents.__file__)).parent
    adapters = {path.parent.name for path in folder.glob("*/__init__.py")} - SHARED
    assert adapters == {known.module for known in FRAMEWORKS}
    for known in FRAMEWORKS:
        for part in ("install", "trial"):
            assert importlib.util.find_spec(f"tensight.agents.{known.module}.{part}"), (known.module, part)


def test_only_its_own_adapter_may_import_a_framework() -> None:
    contracts = FULL["tool"]["importlinter"]["contracts"]
    forbidden = {name for contract in contracts for name in contract.get("forbidden_modules", ())}
    for known in FRAMEWORKS:
        assert known.module in forbidden
        assert known.module in ADAPTERS[f"tensight.agents.{known.module}"]


def test_a_framework_that_is_not_known_has_the_name_that_recordings_give_it() -> None:
    assert [name_of(module) for module in ("torch", "mindspore", "another")] == ["PyTorch", "MindSpore", "another"]
