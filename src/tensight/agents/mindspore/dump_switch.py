"""Turns MindSpore's dump on or off from one call of a graph to the next.

MindSpore dumps the iterations that its configuration names. It counts them itself, unless other code takes over the
count, as MindSpore's own tools do; then only that code advances the iteration, and iterations that are not named are
not dumped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mindspore import _c_expression

from tensight.agents.mindspore.dump_settings import LAST_ITERATION

if TYPE_CHECKING:
    from collections.abc import Callable

_AWAY = LAST_ITERATION + 1
"""Skipping so many iterations turns the dump off; again as many return to the same iteration, as 32 bits count."""


class DumpSwitch:
    """Counts the iterations of the dump. Use `take`.

    Parameters
    ----------
    step : callable (int) -> None
        Advances MindSpore by a number of iterations.
    """

    def __init__(self, step: Callable[[int], None]) -> None:
        self._step = step
        self._is_on = True

    @classmethod
    def take(cls) -> DumpSwitch | None:
        """Take over the count of iterations; None if this MindSpore does not allow that.

        The environment must name the configuration already, and no graph may have been compiled.
        """
        begin = getattr(_c_expression, "_set_init_iter", None)
        step = getattr(_c_expression, "_dump_step", None)
        if begin is None or step is None:
            return None
        begin(0)
        return cls(step)

    def advance(self) -> None:
        """Dump what runs next into another folder."""
        self._step(1)

    def turn(self, *, on: bool) -> None:
        """Turn the dump of what runs next on or off. Earlier calls must have been computed."""
        if on != self._is_on:
            self._is_on = on
            self._step(_AWAY)
