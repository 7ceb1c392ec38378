"""Every error code is catalogued, used, and means one thing."""

from __future__ import annotations

import ast
import pickle
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import tensight
from tensight.client.errors import AccessError, refused
from tensight.error_catalogue import CATALOGUE
from tensight.errors import DumpError, InputError, MissingFileError, TensightError
from tensight.sessions.errors import LimitError, NotFoundError, StateError, UnavailableError

SOURCES = Path(tensight.__file__).parent
PAGE = Path(__file__).parent.parent / "docs" / "reference" / "errors.md"
ONLY_ANSWERED = {"method-invalid"}
"""What the web framework refuses, before any error of ours is raised."""
ELSEWHERE = {("node-unknown", "InputError"), ("package-missing", "DumpError")}
"""The class that some parts raise for a code of another class."""
OF_SERVER = {
    "BodyTooLargeError": "LimitError",
    "ContentTypeError": "InputError",
    "ForbiddenError": "AccessError",
    "RangeError": "InputError",
    "UnauthorizedError": "AccessError",
}
"""Errors of the server alone, and what a client raises of them."""


@cache
def trees() -> tuple[ast.Module, ...]:
    """The sources that may say a code of an error."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(SOURCES.rglob("*.py")))
    return tuple(ast.parse(text) for text in texts if "code" in text and "Error" in text)


@cache
def codes_of_classes() -> dict[str, list[str]]:
    """The classes that declare each code."""
    found = defaultdict(list)
    for tree in trees():
        for statement in ast.walk(tree):
            if isinstance(statement, ast.ClassDef) and statement.name.endswith("Error"):
                for line in statement.body:
                    if not isinstance(line, (ast.Assign, ast.AnnAssign)) or line.value is None:
                        continue
                    targets = [line.target] if isinstance(line, ast.AnnAssign) else line.targets
                    if [ast.unparse(target) for target in targets] == ["code"]:
                        found[ast.literal_eval(line.value)].append(statement.name)
    return found


@cache
def codes_of_calls() -> set[tuple[str, str]]:
    """Each narrower code, with the class that is made with it."""
    return {
        (keyword.value.value, name)
        for tree in trees()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
        if (name := ast.unparse(call.func)).endswith("Error")
    }


def test_each_code_is_lower_case_with_hyphens_and_has_a_meaning_and_advice() -> None:
    for error in CATALOGUE.values():
        assert re.fullmatch(r"[a-z]+(-[a-z]+){0,2}", error.code)
        assert error.meaning.endswith(".")
        assert error.advice.endswith(".")


def test_each_code_of_a_class_belongs_to_it_alone() -> None:
    declared = codes_of_classes()
    assert {code: names for code, names in declared.items() if len(names) > 1} == {}
    raised_as = {code: OF_SERVER.get(names[0], names[0]) for code, names in declared.items()}
    assert raised_as == {code: CATALOGUE[code].raised_as for code in declared}


def test_each_narrower_code_is_of_the_class_that_the_catalogue_names() -> None:
    made = codes_of_calls()
    assert {code for code, _ in made}.isdisjoint(codes_of_classes())
    assert made - ELSEWHERE == {(code, CATALOGUE[code].raised_as) for code, _ in made}
    assert made >= ELSEWHERE


def test_no_code_of_the_catalogue_is_unused() -> None:
    used = set(codes_of_classes()) | {code for code, _ in codes_of_calls()} | ONLY_ANSWERED
    assert set(CATALOGUE) == used


def test_each_code_is_once_on_its_page() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| `\w+` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(CATALOGUE)


# --- In programs ---


class OwnError(InputError):
    """Of a class without a code of its own."""


def test_an_error_has_the_code_of_its_class_or_a_narrower_one() -> None:
    assert (TensightError("x").code, InputError("x").code, OwnError("x").code) == (
        "error",
        "input-invalid",
        "input-invalid",
    )
    error = InputError("there is no such condition", code="condition-unknown")
    assert (str(error), error.code, InputError.code) == (
        "there is no such condition",
        "condition-unknown",
        "input-invalid",
    )


def test_a_code_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(StateError("step 0 is the first", code="end-reached")))  # noqa: S301 - our own
    assert (type(error), str(error), error.code) == (StateError, "step 0 is the first", "end-reached")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("session-unknown", 404, NotFoundError),
        ("statistics-only", 404, UnavailableError),
        ("dump-unreadable", 422, DumpError),
        ("file-missing", 422, MissingFileError),
        ("unauthorized", 401, AccessError),
        ("body-too-large", 413, LimitError),
        ("of-a-newer-server", 409, StateError),
        ("of-a-newer-server", 422, InputError),
    ],
)
def test_the_client_raises_the_same_class_with_the_same_code(code: str, status: int, kind: type[TensightError]) -> None:
    error = refused(code, status, "what was wrong")
    assert (type(error), error.code, str(error)) == (kind, code, "what was wrong")
