"""Follows from which parameters tensors are computed, also where no graph is: so a graph that is cut shows where."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from tensight.agents.core.call_stack import line_of_user
from tensight.agents.core.process.termination import is_of_handler
from tensight.agents.torch.facts.reading import storage_key, strided_tensors, weak_storage

if TYPE_CHECKING:
    from torch.multiprocessing.reductions import StorageWeakRef

_DRAWING = frozenset(("normal", "bernoulli", "poisson"))
_FLAT = frozenset(("round", "sign", "floor", "ceil", "trunc", "heaviside")) | _DRAWING
"""Operators whose derivative is 0 everywhere; what is drawn has none to what its distribution depends on."""

UNREAD, LEFT = "unread", "left"
"""Instead of an operator: no tensor that is computed from a parameter is used in a loss, or after it was detached."""

_ORDER = {"detach": 0, "no_grad": 1}
_MOST_STORAGES = 100_000
_Cut = tuple[str, str]
"""The operator, or no_grad, after which a gradient ends; and its line."""


class _Computed(NamedTuple):
    """What the values of a storage are computed from.

    Attributes
    ----------
    storage : StorageWeakRef
        As long as it is held, no other storage has the same address.
    made : _Cut
        What has written them last, if that is known.
    detached_line : str
        Where they were last detached from their graph.
    parameters : int
        A bit for each parameter to which a graph leads from there.
    cuts : frozenset of _Cut
        Where a graph ended on the way to them.
    """

    storage: StorageWeakRef
    made: _Cut = ("", "")
    detached_line: str = ""
    parameters: int = 0
    cuts: frozenset[_Cut] = frozenset()


class Cuts:
    """Where the graph of a loss is cut, in the steps whose operators are seen.

    Attributes
    ----------
    drawn_line : str
        Where numbers were drawn from a distribution that depends on parameters.
    """

    def __init__(self) -> None:
        self._computed: dict[int, _Computed] = {}
        self._in_memory: dict[int, int] = {}
        self._bits: dict[int, int] = {}
        self._behind: dict[_Cut, int] = {}
        self._of_losses: set[_Cut] = set()
        self._reached = 0
        self._begun = False
        self._is_on = True
        self.drawn_line = ""

    def ran(self, name: str, given: object, result: object) -> None:
        """Note that an operator has run; its name is that without namespace and overload."""
        if not self._is_on or len(self._computed) > _MOST_STORAGES:
            return
        try:
            self._ran(name, given, result)
        except Exception as error:
            # The training goes on, whatever a tensor of a class that is not known yet cannot do.
            if is_of_handler(error):
                raise
            self._is_on = False
            self.forget()

    def _ran(self, name: str, given: object, result: object) -> None:
        inputs, outputs = list(strided_tensors(given)), list(strided_tensors(result))
        parameters, cuts = 0, frozenset[_Cut]()
        for tensor in inputs:
            of_tensor, before = self._use(tensor)
            parameters |= of_tensor
            cuts |= before
        if name == "detach":
            for tensor in inputs:
                if tensor.requires_grad:
                    self._note(
                        tensor, _Computed(weak_storage(tensor), detached_line=line_of_user(), parameters=parameters)
                    )
            return
        if not parameters and not cuts and any(tensor.numel() > 1 for tensor in outputs):
            for tensor in outputs:
                self._computed.pop(storage_key(tensor), None)
            return
        made = (name if torch.is_grad_enabled() else "no_grad", line_of_user())
        if name in _DRAWING and (parameters or cuts):
            self.drawn_line = made[1]
        if name in _FLAT and parameters:
            cuts |= {self._cut(made, parameters)}
        shared = {storage_key(tensor) for tensor in inputs}
        for tensor in outputs:
            if storage_key(tensor) not in shared:
                self._computed.pop(storage_key(tensor), None)
            elif storage_key(tensor) in self._computed and not name.endswith("_"):
                # A view was written by what has written the tensor.
                continue
            self._note(tensor, _Computed(weak_storage(tensor), made, "", parameters, cuts))

    def begins(self, loss: torch.Tensor) -> str:
        """Note that a backward pass begins from a loss; return the line where its values were written last."""
        self._begun = True
        computed = self._of(loss)
        if computed is None:
            return ""
        parameters, cuts = self._behind_of(computed, is_connected=not loss.is_leaf)
        self._of_losses |= cuts
        self._reached |= parameters
        return computed.made[1]

    def of(self, parameter: torch.Tensor, *, has_gradient: bool) -> _Cut | None:
        """Return what ends the gradient between the losses and a parameter, and where; None if unknown.

        Of several, that is the one that a script could do without: what is drawn or an index has no gradient anyway.

        Parameters
        ----------
        parameter : Tensor
        has_gradient : bool
            Whether it has a gradient, which then is 0.
        """
        bit = self._bits.get(id(parameter), 0)
        if bool(bit & self._reached) != has_gradient:
            return None
        cuts = [
            cut
            for cut, behind in self._behind.items()
            if behind & bit and cut in self._of_losses and (cut[0] in _FLAT) == has_gradient
        ]
        unread = self._unread(bit) if bit and not has_gradient and self._begun else None
        return min(cuts, key=lambda cut: _ORDER.get(cut[0], len(_ORDER)), default=unread)

    def _unread(self, bit: int) -> _Cut:
        """Return whether a tensor that is computed from a parameter was detached, and where, though no loss uses it."""
        lines = (each.detached_line for each in reversed(self._computed.values()) if each.parameters & bit)
        line = next(filter(None, lines), "")
        return (LEFT, line) if line else (UNREAD, "")

    def detached_line(self, tensor: torch.Tensor) -> str:
        """Return where a tensor was last detached from its graph; empty if that is unknown."""
        computed = self._of(tensor)
        return "" if computed is None else computed.detached_line

    def forget(self) -> None:
        """Forget the tensors of a step."""
        self._computed.clear()
        self._in_memory.clear()
        self._bits.clear()
        self._behind.clear()
        self._of_losses.clear()
        self._reached = 0
        self._begun = False

    def _of(self, tensor: torch.Tensor) -> _Computed | None:
        computed = self._computed.get(storage_key(tensor))
        if computed is None:
            # An array of NumPy in the memory of a tensor gets a storage of its own.
            other = self._computed.get(self._in_memory.get(_address(tensor), 0))
            computed = None if other is None or other.storage.expired() else other
        return computed

    def _note(self, tensor: torch.Tensor, computed: _Computed) -> None:
        """Note what a tensor is computed from, beside what is known of its storage."""
        before = self._of(tensor)
        if before is not None:
            computed = _Computed(
                before.storage,
                computed.made if computed.made[1] else before.made,
                computed.detached_line or before.detached_line,
                computed.parameters | before.parameters,
                computed.cuts | before.cuts,
            )
        self._computed[storage_key(tensor)] = computed
        if computed.detached_line:
            self._in_memory[_address(tensor)] = storage_key(tensor)

    def _use(self, tensor: torch.Tensor) -> tuple[int, frozenset[_Cut]]:
        """Return the parameters to which a graph leads from a tensor that is used, and where graphs ended before."""
        if tensor.requires_grad and tensor.is_leaf:
            return self._bits.setdefault(id(tensor), 1 << len(self._bits)), frozenset()
        computed = self._of(tensor)
        if computed is None:
            return 0, frozenset()
        return self._behind_of(computed, is_connected=tensor.requires_grad)

    def _behind_of(self, computed: _Computed, *, is_connected: bool) -> tuple[int, frozenset[_Cut]]:
        if is_connected or not computed.parameters:
            return computed.parameters, computed.cuts
        cut = ("detach", computed.detached_line) if computed.detached_line else computed.made
        return 0, computed.cuts | {self._cut(cut, computed.parameters)}

    def _cut(self, cut: _Cut, parameters: int) -> _Cut:
        self._behind[cut] = self._behind.get(cut, 0) | parameters
        return cut


def _address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())
