"""Values that are computed when they are first asked for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from tensight.graph.lazily import lazily


class Counted:
    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.calls = 0

    @lazily
    def value(self) -> int:
        self.calls += 1
        self.begun.set()
        assert self.may_end.wait(60)
        return self.calls


def test_no_object_waits_for_another_one() -> None:
    slow, fast = Counted(), Counted()
    fast.may_end.set()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(lambda: slow.value)
        try:
            assert slow.begun.wait(60)
            assert threads.submit(lambda: fast.value).result(30) == 1
        finally:
            slow.may_end.set()
        assert waiting.result() == 1


def test_threads_that_ask_at_once_have_it_computed_once() -> None:
    counted = Counted()
    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(lambda: counted.value) for _ in range(4)]
        assert counted.begun.wait(60)
        counted.may_end.set()
        assert [one.result() for one in asking] == [1, 1, 1, 1]
    assert (counted.value, counted.calls) == (1, 1)
    assert not [name for name in vars(counted) if "lock" in name]
