"""What a drawn pair is, and how a verdict on it is judged."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Outcome(Enum):
    """How a verdict is, beside what is known."""

    RIGHT = "right"
    UNDECIDED = "undecided"
    FALSE = "false"


@dataclass(frozen=True)
class Judgement:
    """The outcome, why, and what was said."""

    outcome: Outcome
    why: str
    said: Sequence[str]


@dataclass(frozen=True)
class Drawn:
    """A pair: what is planted ("none" if nothing), what was drawn, and the function that compares and judges it."""

    plant: str
    description: str
    judge: Callable[[], Judgement]


Kind = Callable[[random.Random, Path], Drawn]
