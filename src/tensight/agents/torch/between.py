"""Which lines computed what a module is given that no module has put out: those between two calls.

Autograd numbers its functions in the order in which they are made. So the numbers of the functions that made a tensor
tell after which call of a module they ran, and before which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.modules import module as torch_modules

from tensight.agents.eager.call_sites import (
    CallSite,
    between,
    call_site,
    since_beginning,
    until_end,
    whole_function,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from tensight.agents.eager.call_sites import Call as RunningCall
    from tensight.agents.program import StackFrame
    from tensight.agents.torch.calls import Call, Record

_MACHINERY = frozenset({torch_modules.__file__, torch._tensor.__file__, torch.autograd.__file__})
_CALLS_MODULES = torch_modules.Module._call_impl.__code__


class Numbers(NamedTuple):
    """The first and the last of the functions of autograd that computed something, by their numbers."""

    first: int
    last: int


class Begun(NamedTuple):
    """A call of a container that has begun, and not ended.

    Attributes
    ----------
    record : Record
    number : int
        How many functions of autograd there were.
    after : Call
        The call that had ended last.
    """

    record: Record
    number: int
    after: Call


class Moment(NamedTuple):
    """Where the training is: in a hook that PyTorch has called.

    Attributes
    ----------
    site : CallSite
    running : list of Call
        The modules that are being called, innermost first.
    number : int
        How many functions of autograd there are.
    ends : Module or None
        The container whose call is ending.
    """

    site: CallSite
    running: Sequence[RunningCall]
    number: int
    ends: torch.nn.Module | None = None


class _Event(NamedTuple):
    number: int
    call: Call | None
    begun: Begun | None


def moment(number: int, ends: torch.nn.Module | None = None) -> Moment:
    """Return where the training is.

    Parameters
    ----------
    number : int
        How many functions of autograd there were.
    ends : Module, optional
        The container whose call is ending.
    """
    site, running = call_site(_called, _MACHINERY, 3)
    if running and (running[0].module._forward_hooks or running[0].module._forward_pre_hooks):
        site = site._replace(is_direct=False)
    return Moment(site, running, number, ends)


def _called(frame: FrameType) -> tuple[Any, object] | None:
    if frame.f_code is not _CALLS_MODULES:
        return None
    names = frame.f_locals
    return names["self"], (names.get("args"), names.get("kwargs"))


def stacks_between(
    calls: Sequence[Call], begun: Sequence[Begun], now: Moment, numbers: Numbers
) -> tuple[tuple[StackFrame, ...], tuple[StackFrame, ...]]:
    """Return where something was computed that the module is given which is called now.

    Parameters
    ----------
    calls : sequence of Call
        Those of the step so far, in the order in which they ended.
    begun : sequence of Begun
        The containers that are being called, outermost first.
    now : Moment
    numbers : Numbers

    Returns
    -------
    tuple of StackFrame
        Of this step, innermost first.
    tuple of StackFrame
        Of every step that makes the same calls.
    """
    events = _events(calls, begun)
    ended = [index for index, event in enumerate(events) if event.number <= numbers.first]
    lower = ended[-1] if ended else -1
    upper = next((event for event in events[lower + 1 :] if event.number > numbers.last), None)
    containers = [event.begun for event in events[: lower + 1] if event.begun is not None]
    wide = _since_container(containers[-1], now) if containers else _in_script(begun, now)
    if numbers.last >= now.number:
        # Autograd makes the function of a view anew when somebody asks for it.
        return wide, ()
    if not ended:
        return wide, ()
    level = now.site.levels.get(containers[-1].record.identity, 0) if containers else 0
    return _narrow(events[lower], upper, now, numbers, level) or wide, wide


def _events(calls: Sequence[Call], begun: Sequence[Begun]) -> list[_Event]:
    following: dict[int, list[Begun]] = {}
    for one in begun:
        following.setdefault(id(one.after), []).append(one)
    ended = {id(call) for call in calls}
    events = [_Event(one.number, None, one) for one in begun if id(one.after) not in ended]
    for call in calls:
        events.append(_Event(call.ended, call, None))
        events += [_Event(one.number, None, one) for one in following.get(id(call), ())]
    return events


def _narrow(lower: _Event, upper: _Event | None, now: Moment, numbers: Numbers, level: int) -> tuple[StackFrame, ...]:
    site, ends = _site_of(upper, now)
    if upper is not None and upper.call is not None and not ends and numbers.last >= upper.call.began:
        if numbers.first >= upper.call.began:
            # A leaf has kept it, and somebody has taken it from there.
            return site.stack
        site = site._replace(is_direct=False)
    if lower.call is None:
        return () if ends else since_beginning(site, level)
    begin = lower.call.site
    return until_end(begin, len(site.frames)) if ends else between(begin, site, level)


def _site_of(upper: _Event | None, now: Moment) -> tuple[CallSite, bool]:
    """Return where something came next, and whether that is the end of a container's call."""
    if upper is None:
        return now.site, now.ends is not None
    if upper.begun is not None:
        return now.site.outside_of(upper.begun.record.identity), False
    call = upper.call
    return (now.site, False) if call is None else (call.site, not call.is_leaf and not call.is_backward)


def _since_container(container: Begun, now: Moment) -> tuple[StackFrame, ...]:
    """Return where a container's code may have computed anything so far."""
    identity = container.record.identity
    if now.ends is not None and identity == id(now.ends):
        return whole_function(type(now.ends).forward, now.site)
    return since_beginning(now.site, now.site.levels.get(identity, 0), again=True)


def _in_script(begun: Sequence[Begun], now: Moment) -> tuple[StackFrame, ...]:
    """Return where the script may have computed anything before it called the outermost container."""
    site = now.site.outside_of(begun[0].record.identity) if begun else now.site
    return since_beginning(site, max(len(site.frames) - 1, 0), again=True)
