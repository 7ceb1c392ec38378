"""Follows derivatives that `torch.autograd.grad` computes without a graph: in a loss, they train nothing."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tensight.agents.core.call_stack import frame_of, is_user_code, line_of_user
from tensight.agents.torch.facts.autograd_functions import (
    RESHAPING,
    SCALING,
    SUMS,
    graph_behind,
    input_of,
    inputs_of,
    kind_of,
)
from tensight.agents.torch.facts.reading import storage_key, strided_tensors, weak_storage
from tensight.agents.torch.framework_frames import ENGINE

if TYPE_CHECKING:
    from types import FrameType

    from torch.multiprocessing.reductions import StorageWeakRef

_GRAD = torch.autograd.grad.__code__
_FUNCTIONAL = torch.autograd.functional.__file__
_MOST_OF_LOSS = 400
_MOST_STORAGES = 10_000
_NEAREST = 8

_ADDING = frozenset(("add", "add_", "sub", "sub_", "rsub"))
_COMPARING = frozenset(("mse_loss", "smooth_l1_loss", "huber_loss"))
"""Those of which a term is a target, and may be a constant."""

_FLAT = frozenset(("sign", "sign_", "round", "floor", "ceil", "trunc", "bernoulli"))
"""Operators without a derivative: no term of a loss needs a graph through them."""

_LINEAR = frozenset((*SUMS, *SCALING, *RESHAPING, "Sum", "Expand"))
_DISTANCES = frozenset(("Pow", "Abs", "Sqrt", "MseLoss", "SmoothL1Loss", "HuberLoss", "LinalgVectorNorm", "Norm"))


class _Graph(NamedTuple):
    """What a tensor is computed from.

    Attributes
    ----------
    leaves : set of int
        Storages of the tensors that require gradients.
    functions : set of int
        Numbers of the autograd functions.
    """

    leaves: set[int]
    functions: set[int]


class _Call(NamedTuple):
    """A call of `torch.autograd.grad` without a graph.

    Attributes
    ----------
    line : str
    inputs : set of int
        Storages of the tensors with respect to which it differentiates.
    graph : _Graph
        Of what it differentiates, without these.
    """

    line: str
    inputs: set[int]
    graph: _Graph


class _Sum(NamedTuple):
    """An addition of a derivative to something that is trained.

    Attributes
    ----------
    call : _Call
    line : str
    is_of_equation : bool
        Whether that is computed from another derivative, which has a graph, of the same functions.
    """

    call: _Call
    line: str
    is_of_equation: bool


class Derivatives:
    """Derivatives without a graph, in the steps whose operators are seen."""

    def __init__(self) -> None:
        self._derived: dict[int, tuple[StorageWeakRef, _Call]] = {}
        self._sums: dict[int, _Sum] = {}
        self._rows: dict[str, dict[str, str]] = {}
        self._thread = threading.get_ident()
        self._task, self._begin = -1, 0
        self._call: _Call | None = None
        self._attached: set[int] = set()

    def ran(self, name: str, given: object, result: object, task: int) -> None:
        """Note that an operator has run.

        Parameters
        ----------
        name : str
            Without namespace and overload.
        given, result : object
        task : int
            The backward pass within which it runs; -1 if it is none.
        """
        if task != -1:
            self._ran_within(task, given, result)
        elif self._derived:
            self._ran(name, given, result)

    def _ran_within(self, task: int, given: object, result: object) -> None:
        if task != self._task:
            self._task, self._call, self._begin = task, self._begins(), torch.autograd._get_sequence_nr()
        # Of a device, autograd has a thread that numbers its functions anew.
        if torch.is_grad_enabled() and threading.get_ident() == self._thread:
            end = torch.autograd._get_sequence_nr()
            self._attached.update(range(self._begin, end))
            self._begin = end
        if self._call is None or len(self._derived) > _MOST_STORAGES:
            return
        before = {storage_key(tensor) for tensor in strided_tensors(given)}
        for tensor in strided_tensors(result):
            # A view of something older is no derivative.
            if storage_key(tensor) not in before:
                self._derived[storage_key(tensor)] = weak_storage(tensor), self._call

    def _begins(self) -> _Call | None:
        """Return the call in which a backward pass begins, if that is without a graph, and not towards parameters."""
        frame: FrameType | None = sys._current_frames().get(self._thread)
        while frame is not None and frame.f_code is not ENGINE:
            frame = frame.f_back
        frame = None if frame is None else frame.f_back
        if frame is None or frame.f_code is not _GRAD:
            return None
        named = frame.f_locals
        inputs, outputs = named.get("t_inputs", ()), named.get("t_outputs", ())
        if named.get("create_graph", True) or any(isinstance(each, torch.nn.Parameter) for each in inputs):
            return None
        keys = {storage_key(tensor) for tensor in strided_tensors(inputs)}
        graph = _graph_of([tensor.grad_fn for tensor in outputs], keys)
        while frame is not None and not is_user_code(frame.f_code):
            frame = frame.f_back
        if frame is None or graph is None or not graph.leaves:
            return None
        return _Call(frame_of(frame).file_line, keys, graph)

    def _ran(self, name: str, given: object, result: object) -> None:
        inputs = list(strided_tensors(given))
        derived = [self._derived[key][1] for key in map(storage_key, inputs) if key in self._derived]
        if not derived or not torch.is_grad_enabled():
            return
        call = derived[0]
        others = [tensor for tensor in inputs if storage_key(tensor) not in self._derived]
        trained = [graph for graph in (self._trained(tensor, call) for tensor in inputs) if graph is not None]
        is_sum = name in _ADDING
        # An input that moves along a derivative, as an adversarial one does, is given to a model again.
        is_step = is_sum and any(storage_key(tensor) in call.inputs for tensor in others)
        is_of_equation = any(
            graph.functions & call.graph.functions and graph.functions & self._attached for graph in trained
        )
        if name == "detach":
            if _is_of_functional():
                return
            # It is meant to be a constant.
            for tensor in inputs:
                self._derived.pop(storage_key(tensor), None)
        elif trained and (is_sum or (name in _COMPARING and is_of_equation)) and not is_step:
            # Of a sum in place, the storage is that of the derivative no longer.
            for tensor in strided_tensors(result):
                self._derived.pop(storage_key(tensor), None)
            self._sums[torch.autograd._get_sequence_nr() - 1] = _Sum(call, line_of_user(), is_of_equation)
        elif trained:
            self._add("used", call, line_of_user())
        elif not is_step and name not in _FLAT:
            for tensor in strided_tensors(result):
                if tensor.is_floating_point() and len(self._derived) <= _MOST_STORAGES:
                    self._derived[storage_key(tensor)] = weak_storage(tensor), call

    def _trained(self, tensor: torch.Tensor, call: _Call) -> _Graph | None:
        """Return the graph of a tensor that weights are trained by; None if there are none."""
        if not tensor.requires_grad:
            return None
        if tensor.grad_fn is None:
            return None if storage_key(tensor) in call.inputs else _Graph({storage_key(tensor)}, set())
        graph = _graph_of([tensor.grad_fn], call.inputs)
        return _Graph({0}, set()) if graph is None else graph if graph.leaves else None

    def begins(self, loss: torch.Tensor) -> None:
        """Note that a backward pass begins from a loss."""
        if not self._sums or loss.grad_fn is None:
            return
        graph = _graph_of([loss.grad_fn], set())
        leaves = set[int]() if graph is None else graph.leaves
        queue, seen = [(loss.grad_fn, True)], {loss.grad_fn}
        for node, is_linear in queue:
            name, before = kind_of(node), inputs_of(node)
            added = self._sums.get(node._sequence_nr()) if name in (*SUMS, *_DISTANCES) else None
            is_term = is_linear and name in SUMS
            if added is not None and (is_term or added.is_of_equation) and added.call.graph.leaves & leaves:
                self._add("term" if is_term else "residual", added.call, added.line)
            is_square = name == "Mul" and input_of(node, 0) is input_of(node, 1)
            if name in _DISTANCES or is_square:
                is_linear = False
            elif name not in _LINEAR or (name in ("Mul", "Div") and len(before) > 1):
                continue
            for following in before:
                if following not in seen and len(queue) < _MOST_OF_LOSS:
                    seen.add(following)
                    queue.append((following, is_linear))

    def _add(self, kind: str, call: _Call, line: str) -> None:
        name = f"{kind} {call.line}"
        self._rows[name] = {"name": name, "kind": kind, "line": call.line, "sum_line": line}

    def take(self) -> list[dict[str, str]]:
        """Return the rows of ``derivatives`` of a step, and forget its tensors."""
        rows, self._rows = list(self._rows.values()), {}
        self.forget()
        return rows

    def forget(self) -> None:
        """Forget the tensors of a step."""
        self._derived.clear()
        self._sums.clear()
        self._attached.clear()
        self._task, self._call = -1, None


def _is_of_functional() -> bool:
    """Whether an operator is called by `torch.autograd.functional`, which detaches what has no graph anyway."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_NEAREST):
        if frame is None:
            return False
        if frame.f_code.co_filename == _FUNCTIONAL:
            return True
        frame = frame.f_back
    return False


def _graph_of(nodes: list[Any], without: set[int]) -> _Graph | None:
    """Return what tensors are computed from; None if their graph is too large.

    Parameters
    ----------
    nodes : list of autograd functions or None
        What has made them.
    without : set of int
        Storages of leaves that do not count.
    """
    behind = graph_behind(nodes)
    if behind is None:
        return None
    ends = {node for node in behind if kind_of(node) == "AccumulateGrad"}
    leaves = {storage_key(node.variable) for node in ends} - without
    return _Graph(leaves, {node._sequence_nr() for node in behind - ends})
