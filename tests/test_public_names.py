"""What a package says that it has is there."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Protocol

import pytest

import tensight

PACKAGES = ("analysis", "client", "compare", "dumps", "graph", "tensors", "watchpoints", "wire")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_of_a_package_can_be_imported(name: str) -> None:
    package = importlib.import_module(f"tensight.{name}")
    assert [each for each in package.__all__ if not hasattr(package, each)] == []


USED = ("analysis", "client", "debugger", "dumps", "search", "watchpoints")
"""Packages whose functions and classes people call in their own scripts."""
SECTION = re.compile(r"^(?:Other )?(?:Parameters|Attributes)\n-+\n((?:.*\n)*?)(?=^.+\n-{4,}\n|\Z)", re.MULTILINE)
ENTRY = re.compile(r"^(?=\S)(.+?)(?: : .*)?\n((?:    .*\n|\n)*)", re.MULTILINE)


def described(function: Any) -> set[str]:
    """Return the parameters that a docstring describes, in whichever section."""
    text = (inspect.getdoc(function) or "") + "\n"
    sections = SECTION.findall(text)
    entries = [entry for section in sections for entry in ENTRY.findall(section.replace("\\\n", ""))]
    return {name.strip().lstrip("*") for names, words in entries if words.strip() for name in names.split(",")}


def public_functions() -> Iterator[tuple[str, Any]]:
    """Yield what a person may call, by name; a class stands for making one of it."""
    yield "connect", tensight.connect
    for package in USED:
        module = importlib.import_module(f"tensight.{package}")
        for name in module.__all__:
            public = getattr(module, name)
            if inspect.isfunction(public):
                yield f"{package}.{name}", public
            elif inspect.isclass(public) and not issubclass(public, (Enum, Protocol)):
                yield from class_functions(f"{package}.{name}", public)


def class_functions(name: str, public: type) -> Iterator[tuple[str, Any]]:
    """Yield a class, if people make objects of it, and its methods."""
    if is_ours(vars(public).get("__init__")):
        yield name, public
    for member in dir(public):
        method = inspect.getattr_static(public, member)
        method = getattr(method, "__func__", method)
        if is_ours(method) and not member.startswith("_"):
            yield f"{name}.{member}", method


def is_ours(function: Any) -> bool:
    """Return whether a function is written in Tensight."""
    return inspect.isfunction(function) and function.__module__.startswith("tensight.")


FUNCTIONS = dict(public_functions())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_of_a_public_function_is_described(name: str) -> None:
    parameters = set(inspect.signature(FUNCTIONS[name]).parameters) - {"self", "cls"}
    assert not parameters - described(FUNCTIONS[name])
