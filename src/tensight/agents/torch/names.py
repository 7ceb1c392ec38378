"""Names of modules and of their tensors, as they appear in graphs.

A module's scope is ``Default/layer1/conv1``, the name of a weight ``layer1.conv1.weight``. What wraps a model (data
parallelism, compilation) leaves no trace in names.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT_SCOPE = "Default"

# A wrapper of these classes computes nothing of its own; the attribute holds what is wrapped.
_WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "OffloadWrapper": "_checkpoint_wrapped_module",
}
_WRAPPED = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
# Their own forward only calls their children one after the other, or does not exist.
_PLAIN_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


class ModuleName(NamedTuple):
    """What a module is called.

    Attributes
    ----------
    scope : str
        ``Default/layer1/conv1``.
    type : str
        Name of its class.
    root : Root
        The model that it belongs to.
    is_leaf : bool
        Whether it has no modules of its own: one call of it is one operator.
    is_plain : bool
        Whether it only passes on what its modules return.
    is_compiled : bool
        Whether nothing can be seen of what happens within it.
    """

    scope: str
    type: str
    root: Root
    is_leaf: bool
    is_plain: bool
    is_compiled: bool = False


class Root:
    """A model that is trained, or a module that is called beside it, such as a loss.

    Attributes
    ----------
    module : weakref of Module
    type : type
    scope : str
    prefix : str
        What stands before the names of its tensors.
    has_parameters : bool
    modules : set of int
        Identities of its modules.
    """

    def __init__(self, module: nn.Module, scope: str, prefix: str, has_parameters: bool) -> None:
        self.module = weakref.ref(module)
        self.type = type(module)
        self.scope = scope
        self.prefix = prefix
        self.has_parameters = has_parameters
        self.modules: set[int] = set()


class TensorEntry(NamedTuple):
    """Where a module holds a weight or a buffer: it may put another tensor there at any time.

    Attributes
    ----------
    holder : mapping of str to Tensor or None
    key : str
    name : str
        ``layer1.conv1.weight``.
    is_parameter : bool
    """

    holder: dict[str, torch.Tensor | None] | _ScriptedTensors
    key: str
    name: str
    is_parameter: bool


class Names:
    """Names of everything that belongs to the models of a training; modules are held weakly.

    Attributes
    ----------
    roots : list of Root
    modules : dict of int to ModuleName
        By ``id(module)``.
    generation : int
        Grows whenever a model comes or goes, or is seen to have other modules than before.
    meet : callable (module) -> None
        Asked about each module that has no name: it may give it one, or have it passed over.
    on_gone : callable () -> None
        Told when a model with weights is there no more.
    """

    def __init__(self) -> None:
        self.roots: list[Root] = []
        self.modules: dict[int, ModuleName] = {}
        self.generation = 0
        self.meet: Callable[[nn.Module], None] = self.pass_over
        self.on_gone: Callable[[], None] = lambda: None
        self._passed_over: set[int] = set()
        self._entries: dict[int, list[TensorEntry]] = {}
        self._departed: dict[type, Root] = {}

    def add(self, model: nn.Module) -> None:
        """Give names to a model and all its modules.

        The first model with parameters is ``Default``, whatever comes beside it ``Default/<its class>``. A model that
        has names already is looked at anew: modules may have been added to it.
        """
        inner = unwrapped(model)
        known = self.modules.get(id(inner))
        if known is not None:
            self._read(known.root)
        else:
            has_parameters = any(True for _ in inner.parameters())
            root = Root(inner, *self._scope_and_prefix(inner, has_parameters), has_parameters)
            self._hold(root, inner)
            self._read(root)
        self._note_wrappers(model, self.modules[id(inner)])

    def _hold(self, root: Root, model: nn.Module) -> None:
        self.roots.append(root)
        weakref.finalize(model, self._forget, weakref.ref(self), root).atexit = False

    def pass_over(self, module: nn.Module) -> None:
        """Never ask again about a module: it is no part of the training."""
        self._passed_over.add(id(module))
        weakref.finalize(module, self._passed_over.discard, id(module)).atexit = False

    def name(self, module: nn.Module) -> ModuleName | None:
        """Return the name of a module; None if it belongs to no model of the training."""
        known = self.modules.get(id(module))
        if known is None and id(module) not in self._passed_over:
            if not self._replaces(module):
                self.meet(module)
            known = self.modules.get(id(module))
        return known

    def _replaces(self, module: nn.Module) -> bool:
        """Whether a module without modules and weights takes the name of one of its class that is gone.

        A loss that is made anew in every step (``nn.CrossEntropyLoss()(logits, labels)``) is the same in each.
        """
        earlier = self._departed.get(type(module))
        if earlier is None or module._modules or module._parameters or is_scripted(module):
            return False
        if any(root.scope == earlier.scope for root in self.roots):
            return False
        root = Root(module, earlier.scope, earlier.prefix, has_parameters=False)
        self._hold(root, module)
        root.modules.add(id(module))
        self.modules[id(module)] = _name_of(module, root.scope, root)
        weakref.finalize(module, self._forget_module, weakref.ref(self), root, id(module)).atexit = False
        self._entries[id(root)] = list(_entries_of(module, root.prefix))
        self.generation += any(buffer is not None for buffer in module._buffers.values())
        return True

    def scope(self, module: nn.Module) -> str:
        """Return the scope of a module; empty if it belongs to no model of the training."""
        known = self.name(module)
        return "" if known is None else known.scope

    def entries(self) -> Iterator[TensorEntry]:
        """Yield where weights and buffers are held, each tensor once, in the order of the models."""
        seen: set[int] = set()
        for root in self.roots:
            for entry in self._entries[id(root)]:
                tensor = entry.holder.get(entry.key)
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield entry

    def tensor_names(self) -> dict[int, str]:
        """Return the names of all weights and buffers by the identity of the tensor; one that is shared has one."""
        return {id(entry.holder[entry.key]): entry.name for entry in self.entries()}

    def holds_any(self, parameters: set[int]) -> bool:
        """Whether any of some weights, by identity, belongs to a model that is known."""
        return any(entry.is_parameter and id(entry.holder[entry.key]) in parameters for entry in self.entries())

    def _scope_and_prefix(self, module: nn.Module, has_parameters: bool) -> tuple[str, str]:
        taken = {root.scope for root in self.roots}
        if has_parameters and ROOT_SCOPE not in taken:
            return ROOT_SCOPE, ""
        taken |= {name.scope for name in self.modules.values()}
        type_ = type(module).__name__
        number = 0
        name = type_
        while f"{ROOT_SCOPE}/{name}" in taken:
            number += 1
            name = f"{type_}_{number}"
        return f"{ROOT_SCOPE}/{name}", f"{name}."

    def _read(self, root: Root) -> None:
        """Give names to the modules of a model as it is now."""
        model = root.module()
        if model is None:
            return
        entries: list[TensorEntry] = []
        scripted: tuple[str, ...] = ()
        for path, module in model.named_modules():
            steps = [step.replace("/", "_") for step in path.split(".") if step and step not in _WRAPPED]
            # What TorchScript runs is one module to Python: those within are never called.
            if not path.startswith(scripted) and id(module) not in root.modules:
                root.modules.add(id(module))
                self.modules.setdefault(id(module), _name_of(module, "/".join([root.scope, *steps]), root))
                weakref.finalize(module, self._forget_module, weakref.ref(self), root, id(module)).atexit = False
            if is_scripted(module):
                scripted = (*scripted, f"{path}." if path else "")
            entries += _entries_of(module, root.prefix + "".join(f"{step}." for step in steps))
        self._entries[id(root)] = entries
        self.generation += 1

    def _note_wrappers(self, model: nn.Module, name: ModuleName) -> None:
        """Have the wrappers of a model known as modules that compute nothing."""
        while (inner := _wrapped_by(model)) is not None:
            if id(model) not in self.modules:
                compiled = _is_compiled(model)
                self.modules[id(model)] = name._replace(is_leaf=compiled, is_plain=not compiled, is_compiled=compiled)
                weakref.finalize(model, self._forget_module, weakref.ref(self), name.root, id(model)).atexit = False
            model = inner

    @staticmethod
    def _forget_module(reference: weakref.ref[Names], root: Root, number: int) -> None:
        self = reference()
        root.modules.discard(number)
        if self is not None and self.modules.get(number, NOBODY).root is root:
            del self.modules[number]

    @staticmethod
    def _forget(reference: weakref.ref[Names], root: Root) -> None:
        self = reference()
        if self is None:
            return
        self.roots.remove(root)
        entries = self._entries.pop(id(root))
        if root.has_parameters:
            self.generation += 1
            self.on_gone()
            return
        self._departed[root.type] = root
        self.generation += any(entry.holder.get(entry.key) is not None for entry in entries)


NOBODY = ModuleName("", "", Root(nn.Module(), "", "", False), False, False)
"""The name of what has none."""


def scope_of_tensor(name: str) -> str:
    """Return the scope of the module that holds a weight or a buffer of a name.

    Examples
    --------
    >>> scope_of_tensor("layer1.conv1.weight"), scope_of_tensor("weight")
    ('Default/layer1/conv1', 'Default')
    """
    return "/".join([ROOT_SCOPE, *name.split(".")[:-1]])


def unwrapped(model: nn.Module) -> nn.Module:
    """Return what data parallelism or compilation has wrapped."""
    while (inner := _wrapped_by(model)) is not None:
        model = inner
    return model


def _wrapped_by(module: nn.Module) -> nn.Module | None:
    attribute = _WRAPPERS.get(type(module).__name__)
    inner: Any = None if attribute is None else module._modules.get(attribute)
    return inner if isinstance(inner, nn.Module) and type(module).__module__.startswith("torch.") else None


def _is_compiled(module: nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule" and _wrapped_by(module) is not None


def is_scripted(module: nn.Module) -> bool:
    """Whether a module is one of TorchScript, scripted or traced."""
    return isinstance(module, torch.jit.ScriptModule)


def tensors_of(module: nn.Module) -> list[torch.Tensor]:
    """Return the weights and buffers of a module of one piece: its own, or with them those of all within."""
    if is_scripted(module) or _is_compiled(module):
        return [*module.parameters(), *module.buffers()]
    return [tensor for tensor in (*module._parameters.values(), *module._buffers.values()) if tensor is not None]


def _name_of(module: nn.Module, scope: str, root: Root) -> ModuleName:
    if _is_compiled(module):
        return ModuleName(scope, type(unwrapped(module)).__name__, root, True, False, True)
    if is_scripted(module):
        return ModuleName(scope, str(module.original_name).replace("/", "_"), root, True, False)
    wrapper = _wrapped_by(module) is not None
    is_leaf = not wrapper and not any(True for _ in module.children())
    is_plain = wrapper or (isinstance(module, _PLAIN_CONTAINERS) and type(module).__module__.startswith("torch."))
    # A lazy module becomes one of another class with its first call.
    class_ = getattr(module, "cls_to_become", None) or type(module)
    return ModuleName(scope, class_.__name__.replace("/", "_"), root, is_leaf and not is_plain, is_plain)


class _ScriptedTensors:
    """Where TorchScript holds the weights or the buffers of a module: as a dictionary has them."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def __getitem__(self, key: str) -> torch.Tensor | None:
        tensor: torch.Tensor | None = self._held[key]
        return tensor

    def get(self, key: str) -> torch.Tensor | None:
        # It has no method of this name.
        return self._held[key] if key in self._held else None  # noqa: SIM401

    def __iter__(self) -> Iterator[str]:
        return iter(self._held.keys())


def _entries_of(module: nn.Module, prefix: str) -> Iterator[TensorEntry]:
    for held, is_parameter in ((module._parameters, True), (module._buffers, False)):
        holder = _ScriptedTensors(held) if is_scripted(module) else held
        for key in holder:
            yield TensorEntry(holder, key, prefix + key, is_parameter)
