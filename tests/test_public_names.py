"""What a package says that it has is there."""

from __future__ import annotations

import importlib

import pytest

PACKAGES = ("analysis", "client", "compare", "dumps", "graph", "tensors", "watchpoints", "wire")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_of_a_package_can_be_imported(name: str) -> None:
    package = importlib.import_module(f"tensight.{name}")
    assert [each for each in package.__all__ if not hasattr(package, each)] == []
