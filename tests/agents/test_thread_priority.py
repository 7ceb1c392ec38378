"""A thread that lowers its priority does so alone."""

from __future__ import annotations

import os
import sys
import threading

from tensight.agents.core.process.thread_priority import lower_thread_priority


def priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_only_the_thread_that_asks_gives_way() -> None:
    before = priority()
    seen = []

    def work() -> None:
        lower_thread_priority(5)
        seen.append(priority())
        lower_thread_priority(40)
        seen.append(priority())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ([min(before + 5, 19), 19] if sys.platform == "linux" else [before, before])
    assert priority() == before
