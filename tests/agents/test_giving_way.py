"""A thread that gives way does so alone."""

from __future__ import annotations

import os
import sys
import threading

from tensight.agents.giving_way import give_way


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_only_the_thread_that_asks_gives_way() -> None:
    before = priority()
    seen = []

    def work() -> None:
        give_way(5)
        seen.append(priority())
        give_way(40)
        seen.append(priority())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ([min(before + 5, 19), 19] if sys.platform == "linux" else [before, before])
    assert priority() == before
