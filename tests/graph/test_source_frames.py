from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.graph import SourceFrame, parse_frame


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "      # In file /p/net.py:313/        out = self.conv(x)/",
            SourceFrame("/p/net.py", 313, None, None, None, "out = self.conv(x)", False, ""),
        ),
        (
            "# In file /p/net.py(175)/    return x/",
            SourceFrame("/p/net.py", 175, None, None, None, "return x", False, ""),
        ),
        (
            "# In file /p/net.py:373, 17~44/        output = self.conv2d(x, self.weight)/",
            SourceFrame("/p/net.py", 373, None, 17, 44, "output = self.conv2d(x, self.weight)", False, ""),
        ),
        (
            "# In file /p/net.py:372~376, 4~21/    def construct(self, x):/",
            SourceFrame("/p/net.py", 372, 376, 4, 21, "def construct(self, x):", False, ""),
        ),
        (
            "# In file /p/net.py:1698~1801/def flatten(input, order='C'):/",
            SourceFrame("/p/net.py", 1698, 1801, None, None, "def flatten(input, order='C'):", False, ""),
        ),
        (
            "      #  - In file /p/net.py:17, 10~38/        x = x / (y + 1e-3)/",
            SourceFrame("/p/net.py", 17, None, 10, 38, "x = x / (y + 1e-3)", True, ""),
        ),
        (
            "      # - In file /p/net.py:17/  x/",
            SourceFrame("/p/net.py", 17, None, None, None, "x", True, ""),
        ),
        (
            "      #    In file /p/net.py:17/  x/",
            SourceFrame("/p/net.py", 17, None, None, None, "x", False, ""),
        ),
        (
            "# In file /p/a folder (2)/net.py:8/    y = a[:5/2] / b/",
            SourceFrame("/p/a folder (2)/net.py", 8, None, None, None, "y = a[:5/2] / b", False, ""),
        ),
        (
            "# In file C:/code/net.py:8//",
            SourceFrame("C:/code/net.py", 8, None, None, None, "", False, ""),
        ),
    ],
)
def test_every_form_of_a_source_line_is_understood(line: str, expected: SourceFrame) -> None:
    frame = parse_frame(line)

    assert frame.raw == line.strip()
    # The raw line is the input; everything else is compared as a whole.
    assert SourceFrame(**{**{name: getattr(frame, name) for name in SourceFrame.__slots__}, "raw": ""}) == expected


@pytest.mark.parametrize(
    "line", ["# Corresponding forward node candidate:", "nonsense", "# In file /p/net.py/ x/", "#"]
)
def test_a_line_of_another_form_stays_as_it_is(line: str) -> None:
    frame = parse_frame(f"   {line} ")

    assert frame == SourceFrame("", None, None, None, None, line, False, line)
    assert frame.text == line


def test_the_text_of_a_frame_shows_whether_it_has_a_substack() -> None:
    assert parse_frame("#  - In file /p/net.py:17/    x = f(x)/").text == "# - /p/net.py:17  x = f(x)"
    assert parse_frame("# In file /p/net.py:17/    x = f(x)/").text == "#   /p/net.py:17  x = f(x)"


@given(st.text() | st.text(alphabet="# -Infile/p.y:0123456789~,()\n\t "))
def test_any_text_gives_a_frame(line: str) -> None:
    frame = parse_frame(line)

    assert frame.raw == line.strip()
    assert bool(frame.file) == (frame.line is not None)


@pytest.mark.parametrize("filler", [" ", ":1", ":1/", "(1", "/", "# In file ", "- "])
def test_a_hostile_line_costs_no_more_than_a_look(filler: str) -> None:
    line = "# In file a" + filler * (60_000 // len(filler)) + "\x00"

    start = time.perf_counter()
    parse_frame(line)

    assert time.perf_counter() - start < 1
