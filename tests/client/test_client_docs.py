"""What the client's documentation shows works: the examples of every public method, and the how-to page."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tensight
from tensight.client import ComparedTensor, Comparison, Difference, Events, Rows, Server, Session, Tensor
from tensight.sessions.records import State

if TYPE_CHECKING:
    from collections.abc import Iterator


SICK = "sick-2.10.0"
CLASSES = (Server, Session, Tensor, Difference, Comparison, ComparedTensor, Rows, Events)
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "drive-from-python.md"


def public_members() -> Iterator[tuple[str, Any]]:
    yield "connect", tensight.connect
    for each in CLASSES:
        yield each.__name__, each
        for name, _ in inspect.getmembers(each):
            member = inspect.getattr_static(each, name)
            is_ours = inspect.isroutine(member) or isinstance(member, property)
            if is_ours and not name.startswith("_") and name not in ("index", "count"):
                yield f"{each.__name__}.{name}", member


MEMBERS = dict(public_members())
WITH_EXAMPLES = sorted(name for name, member in MEMBERS.items() if ">>>" in (member.__doc__ or ""))


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_everything_public_is_documented_with_an_example(name: str) -> None:
    text = inspect.getdoc(MEMBERS[name]) or ""
    assert text
    assert "Examples\n--------\n>>>" in text or name in ("Tensor", "Rows.of")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_example_works(name: str, server: Server, tmp_path: Path) -> None:
    session = server.open(SICK)
    comparison = server.compare(session, session)
    comparison.wait(60)
    known = {
        "tensight": tensight,
        "server": server,
        "session": session,
        "tensor": session.tensor("network.fc2.weight", step=2),
        "comparison": comparison,
        "folder": tmp_path,
        "State": State,
    }
    parsed = doctest.DocTestParser().get_doctest(inspect.getdoc(MEMBERS[name]) or "", known, name, None, 0)
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(parsed, out=output.append, clear_globs=False)
    for made in parsed.globs.values():
        if isinstance(made, Server) and made is not server:
            made.close()
    assert not output, "".join(output)


def test_everything_public_is_in_the_reference() -> None:
    reference = (PAGE.parents[1] / "reference" / "python-api.md").read_text()
    section = reference.partition("# The debug server's client")[2]
    names = {
        name.partition(".")[2] for name in MEMBERS if name.startswith(("Server.", "Session.", "Tensor.", "Comparison."))
    }
    assert not [name for name in names if not re.search(rf"`{name}\b", section)]
