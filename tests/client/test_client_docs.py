"""What the client's documentation shows works: the examples of every public method, and the how-to page."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tensight
from tensight.client import Difference, Events, Rows, Server, Session, Tensor
from tensight.sessions.records import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from running import RunningServer

SICK = "sick-2.10.0"
CLASSES = (Server, Session, Tensor, Difference, Rows, Events)
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


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_example_works(name: str, server: Server, tmp_path: Path) -> None:
    session = server.open(SICK)
    session.delete_watchpoints()
    session.go_to(0).wait(60)
    known = {
        "tensight": tensight,
        "server": server,
        "session": session,
        "tensor": session.tensor("network.fc2.weight", step=2),
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


def programs() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_job_of_the_page_fails_on_the_sick_run_and_names_the_line(
    dump_server: RunningServer, tmp_path: Path
) -> None:
    job = next(program for program in programs() if "sys.exit" in program)
    assert '"runs/nightly"' in job
    script = tmp_path / "job.py"
    script.write_text(job.replace('"runs/nightly"', f'"{SICK}"').replace("http://127.0.0.1:8080", dump_server.url))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "sick_network.py:31" in done.stdout


def test_the_notebook_of_the_page_runs(dump_server: RunningServer, server: Server, tmp_path: Path) -> None:
    session = server.open(SICK)
    session.delete_watchpoints()
    session.close()
    needs_a_training = ("# a live training", "# a training with an agent")  # see test_client_agents
    cells = [one for one in programs() if "sys.exit" not in one and not any(word in one for word in needs_a_training)]
    assert len(cells) >= 2
    names: dict[str, Any] = {}
    for cell in cells:
        text = cell.replace('"runs/nightly"', f'"{SICK}"').replace("http://127.0.0.1:8080", dump_server.url)
        exec(text.replace('"weight.npy"', repr(str(tmp_path / "weight.npy"))), names)  # noqa: S102 - our own page
    names["server"].close()
    assert (tmp_path / "weight.npy").exists()


def test_everything_public_is_in_the_reference() -> None:
    reference = (PAGE.parents[1] / "reference" / "python-api.md").read_text()
    section = reference.partition("# The debug server's client")[2]
    names = {name.partition(".")[2] for name in MEMBERS if name.startswith(("Server.", "Session.", "Tensor."))}
    assert not [name for name in names if not re.search(rf"`{name}\b", section)]
