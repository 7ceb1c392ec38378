"""The user's own frames at the moment of a call."""

from __future__ import annotations

import linecache
import os
import runpy
import sys
import threading
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.core.call_stack import is_user_file, source_line, source_text, user_stack

if TYPE_CHECKING:
    from pathlib import Path

    from tensight.agents.core.program import StackFrame


def _outer() -> tuple[StackFrame, ...]:
    return _inner()  # the line of the outer frame


def _inner() -> tuple[StackFrame, ...]:
    return user_stack()  # the line of the inner frame


def test_frames_are_innermost_first_with_their_source_line() -> None:
    inner, outer, *_ = _outer()
    assert inner.file == outer.file == os.path.abspath(__file__)
    assert (inner.function, inner.code) == ("_inner", "return user_stack()  # the line of the inner frame")
    assert (outer.function, outer.code) == ("_outer", "return _inner()  # the line of the outer frame")
    assert inner.line == outer.line + 4


def test_frames_of_libraries_the_framework_and_this_package_are_left_out() -> None:
    stacks: list[tuple[StackFrame, ...]] = []
    layer = torch.nn.Sequential(torch.nn.Linear(2, 2))
    layer[0].register_forward_hook(lambda *_: stacks.append(user_stack()))
    thread = threading.Thread(target=lambda: layer(torch.ones(1, 2)))
    thread.start()
    thread.join()
    assert [frame.function for frame in stacks[0]] == ["<lambda>", "<lambda>"]


def test_lines_of_one_function_are_told_apart() -> None:
    first = user_stack()[0]
    second = user_stack()[0]
    assert second.line == first.line + 1


def test_a_script_that_is_run_is_the_users_wherever_it_is_installed(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "library_train.py").write_text(
        "from tensight.agents.core.call_stack import user_stack\n\n\n"
        "def train():\n    return user_stack()\n\n\nstack = train()\n"
    )
    stack = runpy.run_path(str(folder / "library_train.py"), run_name="__main__")["stack"]
    assert [(frame.line, frame.function) for frame in stack[:2]] == [(5, "train"), (8, "<module>")]
    assert not is_user_file(str(folder / "another.py"))


def test_code_that_is_generated_is_no_frame() -> None:
    names: dict[str, Any] = {"user_stack": user_stack}
    exec(compile("def made():\n    return user_stack()\n", "<generated>", "exec"), names)  # noqa: S102 - what notebooks and libraries do
    assert names["made"]()[0].function == "test_code_that_is_generated_is_no_frame"


def test_code_of_a_notebook_has_its_text() -> None:
    name = "<ipython-input-1-abc>"
    source = "def cell():\n    return user_stack()\n"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names: dict[str, Any] = {"user_stack": user_stack}
    exec(compile(source, name, "exec"), names)  # noqa: S102 - what notebooks and libraries do
    frame = names["cell"]()[0]
    assert (frame.file, frame.line, frame.code) == (name, 2, "return user_stack()")


def test_a_deep_recursion_gives_its_innermost_frames() -> None:
    def descend(levels: int) -> tuple[StackFrame, ...]:
        return descend(levels - 1) if levels else user_stack()

    stack = descend(200)
    assert len(stack) == 32
    assert {frame.function for frame in stack} == {"descend"}


def test_files_that_are_no_users() -> None:
    assert not is_user_file(torch.__file__)
    assert not is_user_file(os.__file__)
    assert not is_user_file(os.path.join(os.path.dirname(sys.executable), "pytest"))
    assert not is_user_file("<frozen runpy>")
    assert not is_user_file("/home/me/torchinductor_me/ab/written_by_the_compiler.py")
    assert not is_user_file(sys.modules["tensight.agents.core.call_stack"].__file__ or "")
    assert is_user_file("<stdin>")
    assert is_user_file(__file__)


def test_a_lone_surrogate_in_a_source_is_escaped() -> None:
    name = "<ipython-input-surrogate>"
    linecache.cache[name] = (1, None, ["def call(stack):\n", "    return stack()  # \ud800 caf\udce9\n"], name)
    variables: dict[str, Any] = {}
    exec(compile("def call(stack):\n    return stack()\n", name, "exec"), variables)  # noqa: S102 - as notebooks do
    frame = next(frame for frame in variables["call"](user_stack) if frame.file == name)
    assert frame.code == r"return stack()  # \ud800 caf\udce9"
    assert source_text(name).encode().endswith(rb"\ud800 caf\udce9" + b"\n")


def test_a_source_that_its_loader_cannot_read_has_no_text() -> None:
    class Loader:
        def get_source(self, name: str) -> str:
            raise RuntimeError(name)

    module = {"__name__": "unreadable", "__loader__": Loader()}
    assert source_line("/no/such/folder/unreadable.py", 1, module) == ""
