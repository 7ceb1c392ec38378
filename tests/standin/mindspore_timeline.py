"""What a stand-in process writes down: every message sent and received, in order, one JSON object a line."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Timeline:
    """The record of one process; also the places where a test may hold it.

    A held process writes ``hold PLACE`` and goes on when a line arrives at its standard input.
    """

    holds: dict[str, int] = field(default_factory=dict)
    """Places, each with at which of its passages (from 1) the process is held."""
    _number: int = 0
    _passages: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, text: str, **details: Any) -> None:
        with self._lock:
            self._number += 1
            line = json.dumps({"number": self._number, "text": text, **details})
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def place(self, name: str) -> None:
        """Stand here until told to go on, if the test wants that."""
        with self._lock:
            self._passages[name] += 1
            held = self.holds.get(name) == self._passages[name]
        if held:
            self.add(f"hold {name}")
            sys.stdin.readline()
