"""The contract of an adapter: what the shared code for eager frameworks requires of a framework.

An adapter of an eager framework consists of an `EagerFramework`, a `TensorReader`, `PersistentTensors` that know its
optimizers, and hooks that report calls and returns of modules, the beginning of a backward pass, gradients, and the
updates of optimizers. `tests/agents/eager` contains the tests that every adapter must pass, and an adapter for a
framework of a few lines that passes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from tensight.agents.eager.call_sites import CallSite
    from tensight.graph import OutputSlot


class ModuleKind(NamedTuple):
    """How a module appears in a graph.

    Attributes
    ----------
    type : str
        Name of its class.
    is_leaf : bool
        Whether it has no inner modules: each call of it is one operator.
    is_plain : bool
        Whether it only returns what its modules return.
    is_compiled : bool
        Whether nothing inside it can be observed.
    """

    type: str
    is_leaf: bool
    is_plain: bool
    is_compiled: bool = False


class InnerModule(NamedTuple):
    """A module inside a model, or the model itself.

    Attributes
    ----------
    path : tuple of str
        The attributes that lead to it, without those of wrappers.
    module : object
    is_called : bool
        Whether its calls can be observed.
    """

    path: tuple[str, ...]
    module: Any
    is_called: bool = True


class Named(NamedTuple):
    """A weight or a buffer, with its name.

    Attributes
    ----------
    tensor : callable
        Returns the current tensor, None if there is none; a module may replace it at any time.
    name : str
        ``layer1.conv1.weight``.
    is_parameter : bool
    """

    tensor: Callable[[], Any]
    name: str
    is_parameter: bool


class GradientEdge(NamedTuple):
    """An output of an autograd function, as it is linked to other functions.

    Attributes
    ----------
    function : object
        The framework's object for the function.
    key : hashable
        Equal for the same output of the same function only.
    is_unique : bool
        Whether no other function ever has the key. If not, a reference to the function must be kept with it.
    """

    function: Any
    key: Hashable
    is_unique: bool = False


class EagerFramework(Protocol):
    """Describes modules, tensors and the links of the backward pass, without changing or computing anything."""

    @property
    def tensor_type(self) -> type[Any]:
        """Class of tensors."""

    @property
    def has_own_names(self) -> bool:
        """Whether the framework itself names weights, over all modules of a model.

        Then models share one namespace, and a weight's name contains its model only if the name is already taken.
        """

    # --- modules ---

    def modules(self, model: Any) -> Iterator[InnerModule]:
        """Yield a model and the modules in it, each once, the model first."""

    def kind(self, module: Any) -> ModuleKind:
        """Return how a module appears in a graph."""

    def wrapped(self, module: Any) -> Any | None:
        """Return the wrapped module of a wrapper that computes nothing of its own; None for other modules."""

    def held(self, module: Any, path: str) -> Iterator[Named]:
        """Yield the weights and buffers that belong to a module directly.

        Parameters
        ----------
        module : object
        path : str
            Prefix of their names in the model: ``layer1.conv1.``; empty for the model itself.
        """

    def read_by(self, module: Any, *, is_opaque: bool = False) -> Sequence[Any]:
        """Return the weights that a call of a module may read, and the buffers that are not among its inputs.

        Parameters
        ----------
        module : object
        is_opaque : bool
            Whether nothing inside it can be observed; then those of its inner modules are included.
        """

    # --- tensors ---

    def outline(self, tensor: Any) -> OutputSlot:
        """Return the dtype and shape of a tensor, as a slot of a graph."""

    def version(self, tensor: Any) -> int:
        """Return the version of a tensor, which grows with each write in place; 0 if the framework has no versions."""

    # --- the backward pass ---

    def edge(self, tensor: Any) -> GradientEdge | None:
        """Return the function that computed a tensor; None if there is none, it needs no gradient, or is unknown."""

    def edges_into(self, edge: GradientEdge) -> list[GradientEdge]:
        """Return the functions that computed the inputs of a function, as far as they need gradients."""

    def weight_at(self, edge: GradientEdge) -> Hashable | None:
        """Return a key for the weight at which the backward pass ends; None if it continues."""


class ReportedFramework(EagerFramework, Protocol):
    """What `EagerCapture` needs in addition, for adapters that only report events."""

    def requires_gradient(self, weight: Any) -> bool:
        """Whether a weight is trainable."""

    def has_gradient(self, tensor: Any) -> bool:
        """Whether a tensor was computed, and a backward pass may reach it."""

    def on_gradient(self, tensor: Any, on_arrival: Callable[[Any], None]) -> Any | None:
        """Call a function with the gradient of a tensor; return an object with a method ``remove``, or None.

        None means that no gradient will arrive.
        """

    def end_of(self, weight: Any) -> Hashable | None:
        """Return the key of a weight, as `weight_at` does; None if no backward pass has reached it yet."""

    def has_unlinked_input(self, edge: GradientEdge) -> bool:
        """Whether a function had an input without gradient, such as a factor, to which no edge leads."""

    def forward(self, module: Any) -> Callable[..., Any]:
        """Return the function of a module's class that a call of the module runs."""

    def call_site(self) -> CallSite:
        """Return the position of the user's code that has called a module."""
