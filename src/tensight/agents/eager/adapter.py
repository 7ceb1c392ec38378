"""What the shared code for eager frameworks asks of a framework: the contract of an adapter.

An adapter of an eager framework consists of an `EagerFramework`, a `TensorReader`, `PersistentTensors` that know its
optimizers, and hooks: it reports when a call of a module begins and returns, when a backward pass begins, which
gradient has come, and when an optimizer updates. `tests/agents/eager` holds the tests that every adapter passes, and an
adapter for a framework of a few lines that passes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from tensight.agents.eager.call_sites import CallSite
    from tensight.graph import OutputSlot


class ModuleKind(NamedTuple):
    """What a module is to a graph.

    Attributes
    ----------
    type : str
        Name of its class.
    is_leaf : bool
        Whether it has no modules of its own: one call of it is one operator.
    is_plain : bool
        Whether it only passes on what its modules return.
    is_compiled : bool
        Whether nothing can be seen of what happens within it.
    """

    type: str
    is_leaf: bool
    is_plain: bool
    is_compiled: bool = False


class InnerModule(NamedTuple):
    """A module within a model, or the model itself.

    Attributes
    ----------
    path : tuple of str
        The attributes that lead to it; what only wraps a module has no part in it.
    module : object
    is_called : bool
        Whether its calls can be seen.
    """

    path: tuple[str, ...]
    module: Any
    is_called: bool = True


class Named(NamedTuple):
    """A weight or a buffer, as the names of a training have it.

    Attributes
    ----------
    tensor : callable
        Returns the tensor that is there now, None if there is none: a module may hold another one at any time.
    name : str
        ``layer1.conv1.weight``.
    is_parameter : bool
    """

    tensor: Callable[[], Any]
    name: str
    is_parameter: bool


class GradientEdge(NamedTuple):
    """An output of a function of the backward pass, as frameworks link them to each other.

    Attributes
    ----------
    function : object
        The framework's own.
    key : hashable
        Equal for the same output of the same function, and for no other.
    """

    function: Any
    key: Hashable


class EagerFramework(Protocol):
    """Answers about modules, tensors and the links of the backward pass; nothing here changes or computes anything."""

    @property
    def tensor_type(self) -> type[Any]:
        """Of tensors."""

    @property
    def has_own_names(self) -> bool:
        """Whether the framework itself names weights, over all modules of a model.

        Then models share the space of names, and a weight is named after its model, too, only where its name is taken.
        """

    # --- modules ---

    def modules(self, model: Any) -> Iterator[InnerModule]:
        """Yield a model and the modules in it, each once, the model first."""

    def kind(self, module: Any) -> ModuleKind:
        """Return what a module is to a graph."""

    def wrapped(self, module: Any) -> Any | None:
        """Return the module that a module only wraps, computing nothing of its own; None if it wraps none."""

    def held(self, module: Any, path: str) -> Iterator[Named]:
        """Yield the weights and buffers that a module holds itself.

        Parameters
        ----------
        module : object
        path : str
            What stands before their names in the model: ``layer1.conv1.``; empty for the model itself.
        """

    def read_by(self, module: Any, *, is_opaque: bool = False) -> Sequence[Any]:
        """Return the weights that a call of a module may read, and the buffers as far as they are none of its inputs.

        Parameters
        ----------
        module : object
        is_opaque : bool
            Whether nothing can be seen of what happens within it: then those of its modules are among them.
        """

    # --- tensors ---

    def outline(self, tensor: Any) -> OutputSlot:
        """Return dtype and shape of a tensor as graphs have them."""

    def version(self, tensor: Any) -> int:
        """Return a number that grows when a tensor is written to in place; 0 where nobody counts that."""

    # --- the backward pass ---

    def edge(self, tensor: Any) -> GradientEdge | None:
        """Return what has computed a tensor; None if nothing has, or no gradient goes there, or nobody can tell."""

    def edges_into(self, edge: GradientEdge) -> list[GradientEdge]:
        """Return what has computed the inputs of a function, as far as gradients go there."""

    def weight_at(self, edge: GradientEdge) -> Hashable | None:
        """Return what stands for a weight where the backward pass ends with one; None if it goes on."""


class ReportedFramework(EagerFramework, Protocol):
    """What `EagerCapture` needs beside, whose adapter only reports what happens."""

    def requires_gradient(self, weight: Any) -> bool:
        """Whether a weight is to be trained."""

    def has_gradient(self, tensor: Any) -> bool:
        """Whether a tensor was computed, and takes part in a backward pass that may come."""

    def on_gradient(self, tensor: Any, on_arrival: Callable[[Any], None]) -> Any | None:
        """Call a function with the gradient of a tensor; None if none will come, else what has a method ``remove``."""

    def end_of(self, weight: Any) -> Hashable | None:
        """Return what `weight_at` returns for a weight; None if no backward pass has come there yet."""

    def has_unlinked_input(self, edge: GradientEdge) -> bool:
        """Whether something without gradient went into a function, a factor for one, to which no edge leads."""

    def forward(self, module: Any) -> Callable[..., Any]:
        """Return the function of a module's class that computes what a call of it returns."""

    def call_site(self) -> CallSite:
        """Return where the user's code is that has called a module."""
