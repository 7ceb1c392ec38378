"""Passes the tensors of an operator that has run to the agent: only those that are needed."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tensight.agents.core.finite import has_non_finite_at
from tensight.agents.core.slots import Need
from tensight.agents.torch.arrays import TorchReader, content_key, is_in_memory, version_of
from tensight.agents.torch.boundary import unseen
from tensight.agents.torch.operator_schemas import NEVER, argument_name, declaration, tensors_in
from tensight.agents.torch.operator_steps import Content, tensor_at

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from tensight.agents.core.agent import Agent
    from tensight.agents.torch.operator_steps import External, Operator, Output

_FINITE, _NOW = int(Need.FINITE), int(Need.NOW)
_CHECKED = int(Need.FINITE | Need.ROW)
_ROW, _VALUE = int(Need.ROW), int(Need.VALUE)
_SHOWN = int(Need.ROW | Need.VALUE)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Waiting(NamedTuple):
    """A tensor whose value is kept before the next operator runs."""

    slot_id: int
    reference: weakref.ref[torch.Tensor]
    is_made: bool


class _Shown(NamedTuple):
    """A row of this step, and the tensor's version when the row was written."""

    slot_id: int
    version: int


class ShownContents:
    """Remembers which elements already have a row in this step, as those of most views do.

    The trace of the step tells the memory of a view (`Output.root`). That memory is alive while an operator makes the
    view, so a tensor at the same address in it has the same elements, unless the memory has been written to.
    """

    def __init__(self) -> None:
        self._by_root: dict[int, dict[Hashable, _Shown]] = {}

    def clear(self) -> None:
        """Forget all rows, at the beginning of a step or after an operator that does not declare its writes."""
        self._by_root.clear()

    def forget(self, root: int) -> None:
        """Forget the rows of a memory that has been written to."""
        self._by_root.pop(root, None)

    def find(self, output: Output, tensor: torch.Tensor) -> int | None:
        """Return the slot whose row a tensor shares; if there is none, remember this output's slot for it."""
        if output.root < 0:
            return None
        if output.content is Content.FRESH:
            self.forget(output.root)
        elif not output.is_certain:
            return None
        key = content_key(tensor)
        if key is None:
            return None
        shown = self._by_root.setdefault(output.root, {})
        version = version_of(tensor)
        row = shown.get(key)
        if row is not None and row.version == version:
            return row.slot_id
        shown[key] = _Shown(output.slot_id, version)
        return None


class OperatorObserver:
    """Decides which tensors of an operator the agent observes.

    Most tensors are only checked for NaN and Inf. That is done here, in their memory; the agent only observes those
    that contain any, and the inputs of their operators.

    Parameters
    ----------
    agent : Agent

    Attributes
    ----------
    waiting : list
        Tensors whose values are kept before the next operator runs. Only then are PyTorch's version counters up to
        date; and a reference held earlier would make PyTorch copy some tensors.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._observed = agent.observed
        self._slot_table = agent.slot_table
        self._needs = agent.slot_table.needs
        self._reader = TorchReader()
        self._shown = ShownContents()
        self.waiting: list[_Waiting] = []
        self._observed.retention.before_reading = partial(unseen, self._keep_now)

    def forget_contents(self) -> None:
        """Treat every tensor as not yet observed."""
        self._shown.clear()

    def reads(self, externals: tuple[External, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        """Observe the tensors from outside the step that an operator is about to read."""
        for output, _, is_read in externals:
            need = self._needs[output.slot_id]
            if need and is_read:
                tensor = tensor_at(output.path, None, args, kwargs)
                if isinstance(tensor, torch.Tensor) and self._is_wanted(output, tensor, need):
                    self._observe(output, tensor, need)

    def ran(self, operator: Operator, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        """Observe what an operator has made and written; the training may stop here."""
        needs = self._needs
        is_now = False
        for output in operator.outputs:
            if output.content is Content.WRITTEN:
                self._shown.forget(output.root)
            for slot_id in output.stale:
                if needs[slot_id] & _VALUE:
                    self._observed.retention.forget(slot_id)
            need = needs[output.slot_id]
            if not need:
                continue
            tensor = tensor_at(output.path, result, args, kwargs)
            if not isinstance(tensor, torch.Tensor) or not self._is_wanted(output, tensor, need):
                continue
            is_row = need & (_ROW | _NOW) == _ROW | _NOW
            if need & ~_NOW == _FINITE and output.gate:
                self._show_inputs(operator, args, kwargs)
                need |= _SHOWN
            if need & _VALUE:
                self.waiting.append(_Waiting(output.slot_id, weakref.ref(tensor), not operator.reads))
                need &= ~_VALUE
            if need & _ROW and output.content is Content.WRITTEN:
                # PyTorch increments the version only afterwards; by version it would still be the old contents.
                self._reader.scan(tensor, self._observed.columns, output.slot_id)
                need &= ~_ROW
            self._observe(output, tensor, need)
            if is_row and output.gate and self._observed.columns.is_non_finite(output.slot_id):
                self._show_inputs(operator, args, kwargs)
            is_now = is_now or bool(need & _NOW)
        if (is_now or self._agent.stops_at_nodes) and operator.node is not None:
            self._agent.node_done(operator.node)

    def keep(self) -> None:
        """Keep the values of the waiting tensors."""
        waiting = self.waiting[:]
        self.waiting.clear()
        self._keep(waiting)

    def _keep_now(self) -> None:
        """Keep the values of the waiting tensors as they are now, because one is read; `keep` keeps them again."""
        self._keep(self.waiting[:])

    def _keep(self, waiting: list[_Waiting]) -> None:
        for slot_id, reference, _ in waiting:
            tensor = reference()
            if tensor is None:
                continue
            if tensor.is_inference():
                # It has no version that would show later writes.
                self._observed.retention.copy_values(slot_id)
            self._agent.observe(slot_id, tensor, _VALUE)

    def became(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """Note that PyTorch continues with another tensor in place of a new one that waits to be kept."""
        for index, (slot_id, reference, is_made) in enumerate(self.waiting):
            if is_made and reference() is tensor:
                self.waiting[index] = _Waiting(slot_id, weakref.ref(other), is_made)

    def _observe(self, output: Output, tensor: torch.Tensor, need: int) -> None:
        # If the run may stop at this operator, the tensor is read again, even if it seems unchanged.
        may_be_same = need & _ROW and not self._agent.stops_at_nodes
        same = self._shown.find(output, tensor) if may_be_same else None
        if same is None:
            self._agent.observe(output.slot_id, tensor, need)
        else:
            self._agent.observe(output.slot_id, tensor, need, same)

    def _is_wanted(self, output: Output, tensor: torch.Tensor, need: int) -> bool:
        """Whether the agent has to observe a tensor; if only NaN and Inf are needed, whether it may contain any."""
        if need & ~_NOW != _FINITE:
            return True
        gate = output.gate
        if gate == NEVER or (
            output.content is Content.VIEW and output.base >= 0 and self._needs[output.base] & _CHECKED
        ):
            return False
        if not gate or tensor.dtype is not output.dtype or type(tensor) not in _PLAIN or not tensor.is_cpu:
            return True
        if tensor.layout is torch.strided and tensor.is_contiguous():
            address = tensor.data_ptr()
            # Zero tensors have no memory, and that of views may have been freed.
            is_there = address != 0 and (output.content is not Content.VIEW or is_in_memory(tensor))
            return is_there and has_non_finite_at(address, gate, tensor.numel())
        return self._reader.has_non_finite(tensor)

    def _show_inputs(self, operator: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        """Observe the inputs of an operator that still exist: they show where an anomaly began."""
        traced = operator.traced
        if traced is None:
            return
        declared = declaration(operator.func)
        for source, (path, tensor) in zip(traced.inputs, tensors_in(args, kwargs), strict=False):
            slot_id = None if source is None else self._slot_table.find(*source)
            if slot_id is None or argument_name(declared, path) in declared.written:
                continue
            if self._slot_table[slot_id].node.role in ("operator", "input"):
                self._agent.observe(slot_id, tensor, _SHOWN)
            elif source is not None and (read := self._slot_table.find(*source, "input")) is not None:
                # A weight's own slot is for its value after the update of this step.
                self._observed.observe_once(read, tensor)
