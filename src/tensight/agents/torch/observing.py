"""Shows the agent the tensors of an operator that has run: only those that something is wanted of."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tensight.agents.finite import has_non_finite_at
from tensight.agents.slots import Need
from tensight.agents.torch.arrays import TorchReader, content_key, is_in_memory, version_of
from tensight.agents.torch.operator_schemas import NEVER, argument_name, declaration, tensors_in
from tensight.agents.torch.operator_steps import Content, tensor_at

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from tensight.agents.agent import Agent
    from tensight.agents.torch.operator_steps import External, Operator, Output

_FINITE, _NOW = int(Need.FINITE), int(Need.NOW)
_CHECKED = int(Need.FINITE | Need.ROW)
_ROW, _VALUE = int(Need.ROW), int(Need.VALUE)
_SHOWN = int(Need.ROW | Need.VALUE)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Waiting(NamedTuple):
    """A tensor whose value is kept when the next operator comes."""

    slot_id: int
    reference: weakref.ref[torch.Tensor]
    is_made: bool


class _Shown(NamedTuple):
    """A row of this step, and what the tensor's version was when it was written."""

    slot_id: int
    version: int


class ShownContents:
    """Which elements have a row in this step already: those of most views.

    Which memory a view lies in is known from the step as it was traced (`Output.root`). While an operator makes a view
    that memory is alive, so what has the same address in it has the same elements, unless somebody has written to it.
    """

    def __init__(self) -> None:
        self._by_root: dict[int, dict[Hashable, _Shown]] = {}

    def clear(self) -> None:
        """Forget all of them: a step begins, or memory may have been written to by somebody who does not say so."""
        self._by_root.clear()

    def forget(self, root: int) -> None:
        """Forget what was shown of a memory: it has been written to."""
        self._by_root.pop(root, None)

    def find(self, output: Output, tensor: torch.Tensor) -> int | None:
        """Return the slot whose row is that of a tensor; where there is none it will be this output's."""
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
        found = shown.get(key)
        if found is not None and found.version == version:
            return found.slot_id
        shown[key] = _Shown(output.slot_id, version)
        return None


class OperatorObserver:
    """Decides what the agent sees of an operator.

    Most tensors are only asked whether they hold NaN or Inf. That is found out here, where they lie; the agent hears of
    those that do, and of what their operator has read.

    Parameters
    ----------
    agent : Agent

    Attributes
    ----------
    waiting : list
        Tensors whose values are kept when the next operator comes. Only then PyTorch has counted what was written to
        them, and it does not make others of them because somebody holds them.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._slot_table = agent.slot_table
        self._needs = agent.slot_table.needs
        self._reader = TorchReader()
        self._shown = ShownContents()
        self.waiting: list[_Waiting] = []

    def forget_contents(self) -> None:
        """Take every tensor for one that was not seen yet."""
        self._shown.clear()

    def reads(self, externals: tuple[External, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        """Show the tensors from outside that an operator is about to read."""
        for output, _, is_read in externals:
            need = self._needs[output.slot_id]
            if need and is_read:
                tensor = tensor_at(output.path, None, args, kwargs)
                if isinstance(tensor, torch.Tensor) and self._is_wanted(output, tensor, need):
                    self._observe(output, tensor, need)

    def ran(self, operator: Operator, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        """Show what an operator has made and written; the training may stop here."""
        needs = self._needs
        is_now = False
        for output in operator.outputs:
            if output.content is Content.WRITTEN:
                self._shown.forget(output.root)
            for slot_id in output.stale:
                if needs[slot_id] & _VALUE:
                    self._agent.retention.forget(slot_id)
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
                if not (need & _NOW or self._agent.stops_at_nodes):
                    need &= ~_VALUE
            if need & _ROW and output.content is Content.WRITTEN:
                # PyTorch counts only afterwards that it was written to: nobody could tell it from what it was before.
                self._reader.scan(tensor, self._agent.columns, output.slot_id)
                need &= ~_ROW
            self._observe(output, tensor, need)
            if is_row and output.gate and self._agent.columns.is_non_finite(output.slot_id):
                self._show_inputs(operator, args, kwargs)
            is_now = is_now or bool(need & _NOW)
        if (is_now or self._agent.stops_at_nodes) and operator.node is not None:
            self._agent.node_done(operator.node)

    def keep(self) -> None:
        """Keep the values that were waiting for the next operator."""
        waiting = self.waiting[:]
        self.waiting.clear()
        for slot_id, reference, _ in waiting:
            tensor = reference()
            if tensor is None:
                continue
            if tensor.is_inference():
                # Nothing tells whether somebody has written to it.
                self._agent.retention.copy_values(slot_id)
            self._agent.observe(slot_id, tensor, _VALUE)

    def became(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """Note that PyTorch goes on with another tensor in place of one that was just made and is held by us."""
        for index, (slot_id, reference, is_made) in enumerate(self.waiting):
            if is_made and reference() is tensor:
                self.waiting[index] = _Waiting(slot_id, weakref.ref(other), is_made)

    def _observe(self, output: Output, tensor: torch.Tensor, need: int) -> None:
        # Where the run may stop at this operator, what it shows is read, whoever says that it is as before.
        may_be_same = need & _ROW and not self._agent.stops_at_nodes
        same = self._shown.find(output, tensor) if may_be_same else None
        if same is None:
            self._agent.observe(output.slot_id, tensor, need)
        else:
            self._agent.observe(output.slot_id, tensor, need, same)

    def _is_wanted(self, output: Output, tensor: torch.Tensor, need: int) -> bool:
        """Whether the agent is to see a tensor: if only NaN and Inf are of interest, where there are some."""
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
            # Zeros that PyTorch only pretends to have are nowhere, and views may have lost their memory.
            is_there = address != 0 and (output.content is not Content.VIEW or is_in_memory(tensor))
            return is_there and has_non_finite_at(address, gate, tensor.numel())
        return self._reader.has_non_finite(tensor)

    def _show_inputs(self, operator: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        """Show what an operator has read, as far as it is still there: it tells where something wrong began."""
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
                # At its own slot a weight has the value that it gets in this step.
                self._agent.observe_once(read, tensor)
