"""Noticing that a framework is imported, without changing how it is imported."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from tensight.agents.launch import arrange, when_imported


@pytest.fixture
def framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that can be imported, as `framework` and `framework.part`."""
    package = tmp_path / "framework"
    package.mkdir()
    (package / "__init__.py").write_text("from framework import part\nready = True\n")
    (package / "part.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "framework"]:
        del sys.modules[name]


def test_the_call_comes_once_when_all_of_the_module_has_been_executed(framework: Path) -> None:
    seen: list[bool] = []
    when_imported("framework", lambda: seen.append(sys.modules["framework"].ready))
    finders = len(sys.meta_path)
    importlib.import_module("framework.part")
    assert seen == [True]
    assert len(sys.meta_path) == finders - 1
    importlib.reload(sys.modules["framework"])
    assert seen == [True]


def test_of_a_module_that_was_imported_before_it_comes_at_once(framework: Path) -> None:
    importlib.import_module("framework")
    seen: list[int] = []
    when_imported("framework", lambda: seen.append(1))
    assert seen == [1]


def test_asking_whether_there_is_such_a_module_is_no_import(framework: Path) -> None:
    seen: list[int] = []
    when_imported("framework", lambda: seen.append(1))
    spec = importlib.util.find_spec("framework")
    assert spec is not None
    assert isinstance(spec.loader, SourceFileLoader)
    assert seen == []
    importlib.import_module("framework")
    assert seen == [1]
    assert "exec_module" not in vars(sys.modules["framework"].__loader__)


def test_an_import_that_fails_is_not_taken_for_one(framework: Path) -> None:
    (framework / "__init__.py").write_text("raise ImportError('not today')\n")
    seen: list[int] = []
    when_imported("framework", lambda: seen.append(1))
    with pytest.raises(ImportError, match="not today"):
        importlib.import_module("framework")
    assert seen == []
    (framework / "__init__.py").write_text("")
    importlib.invalidate_caches()
    importlib.import_module("framework")
    assert seen == [1]


def test_two_that_wait_for_the_same_module_are_both_called(framework: Path) -> None:
    seen: list[str] = []
    when_imported("framework", lambda: seen.append("first"))
    when_imported("framework", lambda: seen.append("second"))
    importlib.import_module("framework")
    assert sorted(seen) == ["first", "second"]


def test_a_module_that_is_not_there_is_missing_as_before(framework: Path) -> None:
    when_imported("no_such_framework", lambda: None)
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_framework'") as raised:
        importlib.import_module("no_such_framework")
    assert "tensight" not in str(raised.traceback)


def test_arranging_twice_is_arranging_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", {name: module for name, module in sys.modules.items() if name != "torch"})
    before = list(sys.meta_path)
    arrange()
    arranged = list(sys.meta_path)
    assert arranged != before
    arrange()
    assert sys.meta_path == arranged
