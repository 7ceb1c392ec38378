"""What a script calls, as it names it."""

from __future__ import annotations

import os
import sys

import pytest

from tensight.agents.core.call_stack import call_of_user

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="instructions have no columns before Python 3.11: nothing is named"
)
FILE = os.path.basename(__file__)


class Model:
    def __init__(self) -> None:
        self.parts = [call_of_user]


def test_the_function_that_is_called_is_named() -> None:
    model = Model()
    first = test_the_function_that_is_called_is_named.__code__.co_firstlineno
    calls = [model.parts[0](), str(len(FILE)) and (model.parts[-1]())]
    texts = [f"model.parts[0] ({FILE}:{first + 3})", f"model.parts[-1] ({FILE}:{first + 3})"]
    assert calls == [(text, "test_the_function_that_is_called_is_named") for text in texts]
    over_lines, _ = model.parts[
        0
    ]()  # fmt: skip
    assert over_lines.startswith("model.parts[0] (")


def test_of_code_without_a_file_its_caller_is_named() -> None:
    texts: list[tuple[str, str]] = []
    exec(compile("texts.append(call())", "<string>", "exec"), {"call": call_of_user, "texts": texts})  # noqa: S102
    assert texts[0][0].startswith(f"exec ({FILE}:")


def test_a_long_name_is_left_out() -> None:
    a_model_with_a_name_that_nobody_would_read_in_a_sentence_about_it = call_of_user
    assert a_model_with_a_name_that_nobody_would_read_in_a_sentence_about_it()[0] == ""
