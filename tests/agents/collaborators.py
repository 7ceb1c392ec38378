"""What a debugged training consists of, each part of which a test lets fail; free of frameworks and of pytest."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Collection, Iterator
from types import ModuleType
from typing import Any

import tensight.agents.core

PACKAGE = "tensight.agents."

Method = tuple[type, str]


class OurError(Exception):
    """A mistake of ours."""


def packages_of_core() -> list[ModuleType]:
    """Return what every training uses: the agent's entry, its core, and the rooms of that."""
    core = tensight.agents.core
    rooms = [room.name for room in pkgutil.iter_modules(core.__path__, f"{core.__name__}.") if room.ispkg]
    return [tensight.agents, core, *map(importlib.import_module, rooms)]


def methods(*packages: ModuleType, left_out: Collection[str]) -> Iterator[Method]:
    """Yield the public methods and properties of all classes of packages.

    Parameters
    ----------
    *packages : module
    left_out : collection of str
        Modules, and labels of methods, that are not wanted; of what is below `tensight.agents`.
    """
    for package in packages:
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if found.ispkg or found.name.removeprefix(PACKAGE) in left_out:
                continue
            module = importlib.import_module(found.name)
            for class_ in vars(module).values():
                if isinstance(class_, type) and class_.__module__ == found.name:
                    for name, function in vars(class_).items():
                        is_method = inspect.isfunction(function) or isinstance(function, property)
                        if is_method and not name.startswith("_") and label(class_, name) not in left_out:
                            yield class_, name


def label(class_: type, name: str) -> str:
    """Return what a method is called here."""
    return f"{class_.__module__}.{class_.__name__}.{name}".removeprefix(PACKAGE)


class Collaborator:
    """A method or a property that fails at one of its calls, within a ``with`` block.

    Parameters
    ----------
    class_ : type
    name : str
    fails_at : int, optional
        The call that fails, from 0; none does by default.

    Attributes
    ----------
    calls : int
    has_failed : bool
    """

    def __init__(self, class_: type, name: str, fails_at: int = -1) -> None:
        self.calls = 0
        self.has_failed = False
        self._class, self._name, self._fails_at = class_, name, fails_at
        self._found: Any = vars(class_)[name]

    def __enter__(self) -> Collaborator:
        found = self._found
        original = found.fget if isinstance(found, property) else found

        def method(*given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls - 1 == self._fails_at:
                self.has_failed = True
                raise OurError(label(self._class, self._name))
            return original(*given, **named)

        setattr(self._class, self._name, property(method, found.fset) if isinstance(found, property) else method)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(self._class, self._name, self._found)
