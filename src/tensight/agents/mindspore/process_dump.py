"""The dump of this process: MindSpore reads its configuration once, before it compiles its first graph."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tensight.agents.core.notices import log_once
from tensight.agents.mindspore.calls import GraphCalls
from tensight.agents.mindspore.dump_switch import DumpSwitch
from tensight.agents.mindspore.environment import rank_among_met
from tensight.agents.mindspore.ring import DumpRing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.agents.mindspore.calls import Compiled

_dumps: dict[int, ProcessDump] = {}


class ProcessDump:
    """Turns on MindSpore's dump for as long as there is a debugger.

    Attributes
    ----------
    ring : DumpRing or None
        None until something is dumped.
    """

    def __init__(self) -> None:
        self.ring: DumpRing | None = None
        self._sweeping: GraphCalls | None = None

    @staticmethod
    def of_this_process() -> ProcessDump:
        """Return the dump of this process."""
        return _dumps.setdefault(os.getpid(), ProcessDump())

    def begin(self, operators: Sequence[str] = ()) -> DumpRing:
        """Turn on the dump, from MindSpore's first graph on.

        Parameters
        ----------
        operators : sequence of str
            See `DumpRing.create`; the first call decides.

        Raises
        ------
        InputError
            There is no usable folder for a dump.
        """
        if self.ring is None:
            self.ring = DumpRing.create(os.environ, operators=operators)
            self.ring.number = rank_among_met()
            if self.ring.is_private:
                self.ring.switch = DumpSwitch.take()
            if self.ring.notice:
                log_once(self.ring.notice)
        return self.ring

    def sweep(self) -> None:
        """Turn off the dump, or else remove its files whenever a graph has run: nothing reads them any more."""
        if self.ring is None or self._sweeping is not None:
            return
        if self.ring.switch is not None:
            self.ring.dump(is_needed=False)
            self._discard()
        else:
            self._sweeping = GraphCalls(_nothing, _nothing, self._discard)
            self._sweeping.install()

    def leave_to_debugger(self) -> None:
        """Turn on the dump, and keep its files: a debugger reads them."""
        if self.ring is not None:
            self.ring.dump(is_needed=True)
        if self._sweeping is not None:
            self._sweeping.remove()
            self._sweeping = None

    def _discard(self, _: Compiled | None = None) -> None:
        if self.ring is not None:
            try:
                self.ring.discard()
            except Exception as error:
                log_once(f"what MindSpore dumps cannot be removed: {error!r}")


def _nothing(_: object) -> None:
    pass
