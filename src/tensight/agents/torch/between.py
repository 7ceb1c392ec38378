"""Finds the lines that computed an input of a module that no module returned: those between two calls.

Autograd numbers its functions in the order of their creation. So the numbers of the functions that made a tensor show
between which calls of modules they ran.
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

    from tensight.agents.core.program import StackFrame
    from tensight.agents.eager.call_sites import Call as RunningCall
    from tensight.agents.torch.calls import Call, Record

_MACHINERY = frozenset({torch_modules.__file__, torch._tensor.__file__, torch.autograd.__file__})
_CALLS_MODULES = torch_modules.Module._call_impl.__code__


class Numbers(NamedTuple):
    """The first and the last of the autograd functions that computed a tensor, by their numbers."""

    first: int
    last: int


class Begun(NamedTuple):
    """A call of a container that has begun and not ended.

    Attributes
    ----------
    record : Record
    number : int
        How many autograd functions had been made when it began.
    after : Call
        The last call that had ended before.
    """

    record: Record
    number: int
    after: Call


class Moment(NamedTuple):
    """The position of the training, taken in a hook that PyTorch has called.

    Attributes
    ----------
    site : CallSite
    running : list of Call
        The modules that are being called, innermost first.
    number : int
        How many autograd functions have been made.
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
    """Return the position of the training.

    Parameters
    ----------
    number : int
        How many autograd functions have been made.
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
    """Return the lines that computed an input of the module that is called now.

    Parameters
    ----------
    calls : sequence of Call
        The calls of the step so far, in the order in which they ended.
    begun : sequence of Begun
        The containers that are being called, outermost first.
    now : Moment
    numbers : Numbers

    Returns
    -------
    tuple of StackFrame
        The lines for this step, innermost first.
    tuple of StackFrame
        Wider ones, which hold for every step with the same calls.
    """
    events = _events(calls, begun)
    ended = [index for index, event in enumerate(events) if event.number <= numbers.first]
    lower = ended[-1] if ended else -1
    upper = next((event for event in events[lower + 1 :] if event.number > numbers.last), None)
    containers = [event.begun for event in events[: lower + 1] if event.begun is not None]
    wide = _since_container(containers[-1], now) if containers else _in_script(begun, now)
    if numbers.last >= now.number:
        # Autograd recreates the function of a view when it is accessed.
        return wide, ()
    if not ended:
        return wide, ()
    level = now.site.levels.get(containers[-1].record.identity, 0) if containers else 0
    return _narrow(events[lower], upper, now, numbers, level) or wide, wide


def _events(calls: Sequence[Call], begun: Sequence[Begun]) -> list[_Event]:
    following: dict[int, list[Begun]] = {}
    for container in begun:
        following.setdefault(id(container.after), []).append(container)
    ended = {id(call) for call in calls}
    events = [_Event(container.number, None, container) for container in begun if id(container.after) not in ended]
    for call in calls:
        events.append(_Event(call.ended, call, None))
        events += [_Event(container.number, None, container) for container in following.get(id(call), ())]
    return events


def _narrow(lower: _Event, upper: _Event | None, now: Moment, numbers: Numbers, level: int) -> tuple[StackFrame, ...]:
    site, ends = _site_of(upper, now)
    if upper is not None and upper.call is not None and not ends and numbers.last >= upper.call.began:
        if numbers.first >= upper.call.began:
            # A leaf has stored the tensor, and other code has read it from there.
            return site.stack
        site = site._replace(is_direct=False)
    if lower.call is None:
        return () if ends else since_beginning(site, level)
    begin = lower.call.site
    return until_end(begin, len(site.frames)) if ends else between(begin, site, level)


def _site_of(upper: _Event | None, now: Moment) -> tuple[CallSite, bool]:
    """Return the position of the next event, and whether that is the end of a container's call."""
    if upper is None:
        return now.site, now.ends is not None
    if upper.begun is not None:
        return now.site.outside_of(upper.begun.record.identity), False
    call = upper.call
    return (now.site, False) if call is None else (call.site, not call.is_leaf and not call.is_backward)


def _since_container(container: Begun, now: Moment) -> tuple[StackFrame, ...]:
    """Return the lines on which a container's code may have computed anything so far."""
    identity = container.record.identity
    if now.ends is not None and identity == id(now.ends):
        return whole_function(type(now.ends).forward, now.site)
    return since_beginning(now.site, now.site.levels.get(identity, 0), again=True)


def _in_script(begun: Sequence[Begun], now: Moment) -> tuple[StackFrame, ...]:
    """Return the lines on which the script may have computed anything before it called the outermost container."""
    site = now.site.outside_of(begun[0].record.identity) if begun else now.site
    return since_beginning(site, max(len(site.frames) - 1, 0), again=True)
