"""What the shared code for eager frameworks asks of a framework: the contract of an adapter.

An adapter of an eager framework consists of an `EagerFramework`, a `TensorReader`, `OutlivingTensors` that know its
optimizers, and hooks: it reports when a call of a module begins and returns, when a backward pass begins, which
gradient has come, and when an optimizer updates. `tests/agents/eager` holds the tests that every adapter passes, and an
adapter for a framework of a few lines that passes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


class EagerFramework(Protocol):
    """Answers about the modules of a framework; nothing here may change or compute anything.

    Attributes
    ----------
    has_own_names : bool
        Whether the framework itself names weights, over all modules of a model: then two models share the space of
        names, and only what is taken is named after its model, too.
    """

    has_own_names: bool

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
