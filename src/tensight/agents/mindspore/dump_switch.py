"""Has MindSpore dump, or dump nothing, from one call of a graph to the next.

MindSpore dumps the iterations that its configuration names. It counts them itself, unless somebody else says that they
count, as MindSpore's own tools do; then the iteration is what they say, and one that is not named is not dumped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mindspore import _c_expression

from tensight.agents.mindspore.dump_settings import LAST_ITERATION

if TYPE_CHECKING:
    from collections.abc import Callable

_AWAY = LAST_ITERATION + 1
"""As many iterations further none is dumped; twice as many further is where we were, as 32 bits count."""


class DumpSwitch:
    """Counts the iterations of the dump. Use `take`.

    Parameters
    ----------
    step : callable (int) -> None
        Has MindSpore go on by some iterations.
    """

    def __init__(self, step: Callable[[int], None]) -> None:
        self._step = step
        self._is_on = True

    @classmethod
    def take(cls) -> DumpSwitch | None:
        """Count from now on; None if this MindSpore lets nobody do that.

        The configuration must have been named, and no graph compiled.
        """
        begin = getattr(_c_expression, "_set_init_iter", None)
        step = getattr(_c_expression, "_dump_step", None)
        if begin is None or step is None:
            return None
        begin(0)
        return cls(step)

    def advance(self) -> None:
        """Have what runs next dumped into another folder."""
        self._step(1)

    def turn(self, *, on: bool) -> None:
        """Have what runs next dumped, or not. What was called before must have been computed."""
        if on != self._is_on:
            self._is_on = on
            self._step(_AWAY)
