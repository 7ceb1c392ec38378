"""The code blocks of the documentation's pages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One block, as it is printed.

    Attributes
    ----------
    page : str
        Path from the root of the project.
    line : int
        Where its text begins.
    language : str
        ``sh``, ``console`` (commands after ``$``, and what they print), ``python``; empty where none is named.
    text : str
    """

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The commands of a shell's block, without prompts; one that goes on over several lines is one."""
        lines = self.text.splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        commands: list[str] = []
        is_open = False
        for line in lines:
            if is_open:
                commands[-1] += "\n" + line
            elif line.strip() and not line.startswith("#"):
                commands.append(line)
            here = re.search(r"<<(\w+)", commands[-1]) if commands else None
            is_open = line.endswith("\\") or bool(here and not re.search(rf"^{here[1]}$", commands[-1], re.MULTILINE))
        return commands


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page, from the top to the bottom."""
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, match.start()) + 2, match[2], re.sub(rf"^{match[1]}", "", match[3], flags=re.M))
        for match in FENCE.finditer(text)
    ]
