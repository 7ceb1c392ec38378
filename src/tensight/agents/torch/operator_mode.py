"""The dispatch mode that intercepts every operator. It does as little as possible while a step runs as expected."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensight.agents.torch.operator_steps import FROM_OUTSIDE, Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType

    from tensight.agents.torch.operator_steps import Link

_modes_below: Callable[[], int] = torch._C._len_torch_dispatch_stack
_tracing_state: Callable[[], Any] = torch._C._get_tracing_state


def _hide_from_compiler(code: CodeType) -> bool:
    """Exclude a function and all that it calls from PyTorch's compiler; False if this version has no such call."""
    try:
        from torch._C._dynamo.eval_frame import (
            _FrameAction,
            _FrameExecStrategy,
            set_code_exec_strategy,
        )

        set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
    except (ImportError, AttributeError, TypeError):
        return False
    return True


class BottomMode(TorchDispatchMode):
    """A mode at the bottom of the thread's stack of modes, below those of the user, which may be entered and left."""

    supports_higher_order_operators = True
    is_lowest = False
    """Whether it observes what all others let through; those of ours that only take notes are above it."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let PyTorch's compiler compile as it does without the debugger."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise every call would go through a wrapper that switches the compiler off and on.
        return not _hide_from_compiler(cls.__torch_dispatch__.__code__)

    def enter(self) -> None:
        """Insert this mode below all modes of this thread, if it is not there yet."""
        modes = _take_modes()
        if self not in modes:
            is_above = not self.is_lowest and modes and isinstance(modes[0], BottomMode) and modes[0].is_lowest
            modes.insert(1 if is_above else 0, self)
        _put_modes(modes)

    def leave(self) -> None:
        """Remove this mode from this thread's stack of modes."""
        _put_modes([mode for mode in _take_modes() if mode is not self])

    @property
    def is_entered(self) -> bool:
        """Whether this mode is in this thread's stack of modes."""
        return any(
            torch._C._get_dispatch_stack_at(index) is self for index in range(torch._C._len_torch_dispatch_stack())
        )


class OperatorMode(BottomMode):
    """Compares each operator with the one that is expected at its position.

    The mode stays at the bottom of the thread's stack of modes, below those of the user. Those may be entered and left
    meanwhile, and the operators that they dispatch are the ones observed. Only the modes with which PyTorch traces, or
    works on fake tensors, are below it; operators that those receive are not observed.

    Whatever happens in the debugger, each operator runs once and its result is returned. Its own exceptions are raised.

    Parameters
    ----------
    needs : bytearray
        `Need` bits of each slot.
    unexpected : callable (func, types, args, kwargs) -> Operator, callable or None
        Called before an operator runs that is not the expected one. Returns the matching operator of the step, a
        callable that receives the result, or None if it is not observed. With `NotImplemented` PyTorch dispatches to
        the tensor subclass.
    ran : callable (operator, result, args, kwargs)
        Called after an expected operator has run, if any of its outputs may be needed.
    reads : callable (externals, args, kwargs)
        Called before an expected operator reads tensors from outside the step.
    failed : callable (error)
        Called with an exception raised by one of the other callbacks.
    waiting : list
        Tensors whose values are kept before the next operator runs.
    keep : callable
        Called before the next operator runs if `waiting` is not empty.

    Attributes
    ----------
    expected : list of Operator
    position : int
    scope : str
        Scope of the module that runs.
    thread : int
        The thread whose operators are expected; 0 while none is.
    seen : list
        Identities of the results, by position.
    outside : dict of str to int
        Identities of the tensors from outside the step that operators have received so far, by name.
    stops : bool
        Whether the training may stop after each operator.
    """

    is_lowest = True

    def __init__(
        self,
        needs: bytearray,
        unexpected: Callable[..., Any],
        ran: Callable[..., None],
        reads: Callable[..., None],
        failed: Callable[[Exception], None],
        waiting: list[Any],
        keep: Callable[[], None],
    ) -> None:
        super().__init__()
        self.expected: list[Operator] = []
        self.position = 0
        self.scope = ""
        self.thread = 0
        self.seen: list[Any] = []
        self.outside: dict[str, int] = {}
        self.stops = False
        self._needs = needs
        self._unexpected = unexpected
        self._ran = ran
        self._reads = reads
        self._failed = failed
        self._waiting = waiting
        self._keep = keep

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operator."""
        operator: Any = None
        if self.thread and not _modes_below() and _tracing_state() is None:
            try:
                operator = self.expected[self.position]
                if (
                    operator.func is not func
                    or operator.scope is not self.scope
                    or types
                    or get_ident() != self.thread
                    or (operator.links and self.is_given_others(operator.links, args))
                ):
                    operator = self._unexpected(func, types, args, kwargs)
                    if operator is NotImplemented:
                        return NotImplemented
                if operator.__class__ is Operator:
                    if self._waiting:
                        self._keep()
                    if operator.externals:
                        self._reads(operator.externals, args, kwargs)
            except Exception as error:
                operator = None
                self._failed(error)
        result = func(*args, **kwargs) if kwargs else func(*args)
        if operator is not None:
            try:
                if operator.__class__ is Operator:
                    position = self.position
                    self.position = position + 1
                    self.seen[position] = id(result) if operator.is_single else identities(result)
                    slot_id = operator.slot_id
                    if self.stops or (self._needs[slot_id] if slot_id >= 0 else operator.outputs):
                        self._ran(operator, result, args, kwargs)
                else:
                    operator(result)
            except Exception as error:
                self._failed(error)
        return result

    def is_given_others(self, links: tuple[Link, ...], args: tuple[Any, ...]) -> bool:
        """Whether the operator at this position receives other tensors than the last time."""
        position, seen = self.position, self.seen
        try:
            for argument, distance, number, source in links:
                at = position - distance
                if not distance:
                    expected = number
                elif distance == FROM_OUTSIDE:
                    expected = self.outside.get(source[0], id(args[argument]))
                elif at < 0:
                    continue
                else:
                    expected = seen[at] if number < 0 else seen[at][number]
                if id(args[argument]) != expected:
                    return True
        except (IndexError, TypeError):
            return True
        return False

    def expect(self, expected: list[Operator], position: int = 0) -> None:
        """Expect some operators, which end with `END`."""
        self.expected = expected
        self.position = position
        self.seen = [None] * len(expected)


def is_made_of_others(type_: type) -> bool:
    """Whether a class is a tensor subclass, which may implement operators with those of other tensors."""
    return type_ not in (torch.Tensor, torch.nn.Parameter)


def identities(result: Any) -> Any:
    """Return the identities of an operator's results: a list for a tuple or list, else a single one."""
    return [id(element) for element in result] if isinstance(result, (tuple, list)) else id(result)


def _take_modes() -> list[Any]:
    return [torch._C._pop_torch_dispatch_stack(None) for _ in range(torch._C._len_torch_dispatch_stack())][::-1]


def _put_modes(modes: list[Any]) -> None:
    for mode in modes:
        torch._C._push_on_torch_dispatch_stack(mode)
