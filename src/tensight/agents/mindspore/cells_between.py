"""Which lines computed what a cell is given that no cell has returned: those between two calls of cells.

MindSpore does not number its functions. But what was computed from what other calls have returned was computed after
the first of these; nothing else is known of when it was.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from mindspore import nn

from tensight.agents.eager.call_sites import CallSite, between, call_site, since_beginning, until_end, whole_function

if TYPE_CHECKING:
    from types import FrameType

    from tensight.agents.program import StackFrame

_CELL_FILE = inspect.getfile(nn.Cell)
_HOOKS = ("_forward_hook", "_forward_pre_hook", "_lazy_forward_hook", "_lazy_forward_pre_hook")


def cell_call_site() -> CallSite:
    """Return where the user's code is that has called a cell."""
    site, running = call_site(_called, (_CELL_FILE,), 2)
    has_hooks = any(vars(call.module).get(name) for call in running[:1] for name in _HOOKS)
    return site._replace(is_direct=False) if has_hooks else site


def lines_between(
    begin: CallSite | None, now: CallSite, container: nn.Cell | None, *, ends: bool
) -> tuple[StackFrame, ...]:
    """Return where something was computed that no cell has returned, innermost first.

    Parameters
    ----------
    begin : CallSite or None
        Of a call after which all of it was computed; None if no such call is known.
    now : CallSite
    container : Cell or None
        In whose code the training is; None if it is in the script.
    ends : bool
        Whether the call of the container is over.
    """
    if begin is not None and begin.frames:
        if ends:
            return until_end(begin, len(now.frames))
        return between(begin, now, 0 if container is None else now.levels.get(id(container), 0))
    if container is None:
        return since_beginning(now, max(len(now.frames) - 1, 0), again=True)
    if ends:
        return whole_function(type(container).construct, now)
    return since_beginning(now, now.levels.get(id(container), 0), again=True)


def _called(frame: FrameType) -> tuple[Any, object] | None:
    code = frame.f_code
    if code.co_name != "__call__" or code.co_filename != _CELL_FILE:
        return None
    names = frame.f_locals
    return names["self"], (names.get("args"), names.get("kwargs"))
