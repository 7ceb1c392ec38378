"""Names of modules and of their tensors, as they appear in graphs.

A module's scope is ``Default/layer1/conv1``, the name of a weight ``layer1.conv1.weight``. Wrappers of a model (data
parallelism, compilation, a training step) do not appear in names.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.core.notices import log_once
from tensight.agents.core.process.termination import is_of_handler
from tensight.garbage_collection import without_garbage_collection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tensight.agents.eager.adapter import EagerFramework, ModuleKind, Named

ROOT_SCOPE = "Default"


class ModuleName(NamedTuple):
    """The name and kind of a module.

    Attributes
    ----------
    scope : str
        ``Default/layer1/conv1``.
    type : str
        Name of its class.
    root : Root
        The model that it belongs to.
    is_leaf, is_plain, is_compiled : bool
        As in `ModuleKind`.
    """

    scope: str
    type: str
    root: Root
    is_leaf: bool
    is_plain: bool
    is_compiled: bool = False


class Root:
    """A model that is trained, or a module that is called outside it, such as a loss.

    Attributes
    ----------
    module : callable
        Returns the model; None once it has been freed.
    kind : tuple
        Its class and type; after it has been freed, a module of the same kind can take its name.
    scope : str
    prefix : str
        Prefix of the names of its tensors.
    has_parameters : bool
    modules : set of int
        Identities of its modules.
    """

    def __init__(
        self, module: Callable[[], Any], kind: tuple[type, str], scope: str, prefix: str, has_parameters: bool
    ) -> None:
        self.module = module
        self.kind = kind
        self.scope = scope
        self.prefix = prefix
        self.has_parameters = has_parameters
        self.modules: set[int] = set()


class Names:
    """Names of all modules and tensors of the models of a training; modules are referenced weakly.

    Parameters
    ----------
    framework : EagerFramework

    Attributes
    ----------
    framework : EagerFramework
    roots : list of Root
    modules : dict of int to ModuleName
        By ``id(module)``.
    generation : int
        Grows whenever a model is added or freed, or its modules have changed.
    meet : callable (module) -> None
        Called with each module without a name; may give it one, or pass it over.
    on_gone : callable () -> None
        Called when a model with weights has been freed.
    """

    def __init__(self, framework: EagerFramework) -> None:
        self.roots: list[Root] = []
        self.modules: dict[int, ModuleName] = {}
        self.generation = 0
        self.meet: Callable[[Any], None] = self.pass_over
        self.on_gone: Callable[[], None] = lambda: None
        self.framework = framework
        self._passed_over: set[int] = set()
        self._entries: dict[int, list[Named]] = {}
        self._departed: dict[tuple[type, str], Root] = {}

    @without_garbage_collection()
    def add(self, model: Any) -> None:
        """Give names to a model and all its modules.

        The first model with parameters is ``Default``, all other models are ``Default/<class>``. A model that already
        has names is read again, because modules may have been added to it.
        """
        inner = unwrapped(self.framework, model)
        name = self.modules.get(id(inner))
        if name is not None:
            self._read(name.root)
        else:
            root = self._new_root(inner)
            self._hold(root, inner)
            self._read(root)
        self._note_wrappers(model, self.modules[id(inner)])

    def pass_over(self, module: Any) -> None:
        """Exclude a module that does not belong to the training from all further calls of `meet`."""
        self._passed_over.add(id(module))
        weakref.finalize(module, self._passed_over.discard, id(module)).atexit = False

    def name(self, module: Any) -> ModuleName | None:
        """Return the name of a module; None if it belongs to no model of the training."""
        name = self.modules.get(id(module))
        if name is None and id(module) not in self._passed_over:
            try:
                if not self._replaces(module):
                    self.meet(module)
            except Exception as error:
                self._leave_out(module, error)
            name = self.modules.get(id(module))
        return name

    def _leave_out(self, module: Any, error: Exception) -> None:
        """Pass over a module that cannot be read: a script may have replaced anything in it."""
        if is_of_handler(error):
            raise error
        log_once(f"a module {type(module).__name__} is not debugged, because it cannot be read: {error!r}")
        self.pass_over(module)

    def scope(self, module: Any) -> str:
        """Return the scope of a module; empty if it belongs to no model of the training."""
        name = self.name(module)
        return "" if name is None else name.scope

    def entries(self) -> Iterator[Named]:
        """Yield the weights and buffers with their names, each tensor once, in the order of the models."""
        seen: set[int] = set()
        for root in self.roots:
            for entry in self._entries[id(root)]:
                tensor = entry.tensor()
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield entry

    def tensor_names(self) -> dict[int, str]:
        """Return the names of all weights and buffers, one for each tensor, by the identity of the tensor."""
        return {id(entry.tensor()): entry.name for entry in self.entries()}

    def leaves(self) -> Iterator[tuple[Any, ModuleName]]:
        """Yield the modules without inner modules, in the order of the models."""
        for root in self.roots:
            model = root.module()
            for inner in () if model is None else self.framework.modules(model):
                name = self.modules.get(id(inner.module))
                if name is not None and name.is_leaf:
                    yield inner.module, name

    def owner_of(self, module: Any) -> Any | None:
        """Return the model to which a module without a name was added since it was read; None if there is none."""
        for root in self.roots:
            model = root.module()
            if model is not None and any(inner.module is module for inner in self.framework.modules(model)):
                return model
        return None

    # --- models ---

    def _new_root(self, model: Any) -> Root:
        framework = self.framework
        held: list[Named] = []
        for path, module, _ in framework.modules(model):
            held += self._held(module, path)
        has_parameters = any(named.is_parameter and named.tensor() is not None for named in held)
        scope = self._scope(model, has_parameters)
        needs_prefix = scope != ROOT_SCOPE
        if framework.has_own_names:
            taken = {entry.name for entry in self.entries()}
            needs_prefix = any(named.name in taken for named in held)
        prefix = f"{scope.rpartition('/')[2]}." if needs_prefix else ""
        return Root(weakref.ref(model), self._kind_of(model), scope, prefix, has_parameters)

    def _held(self, module: Any, steps: Iterable[str]) -> list[Named]:
        """Return the weights and buffers that belong to a module directly; it is left out if it cannot be read."""
        try:
            return list(self.framework.held(module, _path(steps)))
        except Exception as error:
            self._leave_out(module, error)
            return []

    def _scope(self, model: Any, has_parameters: bool) -> str:
        taken = {root.scope for root in self.roots}
        if has_parameters and ROOT_SCOPE not in taken:
            return ROOT_SCOPE
        taken |= {name.scope for name in self.modules.values()}
        type_ = type(model).__name__
        number = 0
        name = type_
        while f"{ROOT_SCOPE}/{name}" in taken:
            number += 1
            name = f"{type_}_{number}"
        return f"{ROOT_SCOPE}/{name}"

    def _kind_of(self, module: Any) -> tuple[type, str]:
        return type(module), self.framework.kind(module).type

    def _hold(self, root: Root, model: Any) -> None:
        self.roots.append(root)
        weakref.finalize(model, self._forget, weakref.ref(self), root).atexit = False

    def _replaces(self, module: Any) -> bool:
        """Whether a module without inner modules and weights takes the name of a freed one of its class.

        So a loss that is created in every step (``nn.CrossEntropyLoss()(logits, labels)``) has the same name in each.
        """
        framework = self.framework
        earlier = self._departed.get(self._kind_of(module)) if self._departed else None
        if earlier is None or any(root.scope == earlier.scope for root in self.roots):
            return False
        held = list(framework.held(module, ""))
        if any(named.is_parameter for named in held) or len(list(framework.modules(module))) > 1:
            return False
        root = Root(weakref.ref(module), earlier.kind, earlier.scope, earlier.prefix, has_parameters=False)
        self._hold(root, module)
        self._give_name(root, module, root.scope)
        self._entries[id(root)] = [named._replace(name=root.prefix + named.name) for named in held]
        self.generation += any(named.tensor() is not None for named in held)
        return True

    def _read(self, root: Root) -> None:
        """Give names to the current modules of a model."""
        model = root.module()
        if model is None:
            return
        entries: list[Named] = []
        for path, module, is_called in self.framework.modules(model):
            steps = [step.replace("/", "_") for step in path]
            held = self._held(module, steps)
            if is_called and id(module) not in root.modules and id(module) not in self._passed_over:
                self._give_name(root, module, "/".join([root.scope, *steps]))
            entries += [named._replace(name=root.prefix + named.name) for named in held]
        self._entries[id(root)] = self._as_before(root, entries)
        self.generation += 1

    def _as_before(self, root: Root, entries: list[Named]) -> list[Named]:
        """Let the weights of modules that were moved keep their names, as the modules do, if those are free."""
        before = self._entries.get(id(root))
        if before is None or self.framework.has_own_names:
            return entries
        previous_names = {id(tensor): entry.name for entry in before if (tensor := entry.tensor()) is not None}
        taken = {entry.name for entry in entries}
        kept: list[Named] = []
        for entry in entries:
            tensor = entry.tensor()
            name = entry.name if tensor is None else previous_names.get(id(tensor), entry.name)
            kept.append(entry if name in taken else entry._replace(name=name))
        return kept

    def _give_name(self, root: Root, module: Any, scope: str) -> None:
        root.modules.add(id(module))
        self.modules.setdefault(id(module), _name(self.framework.kind(module), scope, root))
        weakref.finalize(module, self._forget_module, weakref.ref(self), root, id(module)).atexit = False

    def _note_wrappers(self, model: Any, name: ModuleName) -> None:
        """Name the wrappers of a model, as modules that compute nothing."""
        while (inner := self.framework.wrapped(model)) is not None:
            if id(model) not in self.modules:
                compiled = self.framework.kind(model).is_compiled
                self.modules[id(model)] = name._replace(is_leaf=compiled, is_plain=not compiled, is_compiled=compiled)
                weakref.finalize(model, self._forget_module, weakref.ref(self), name.root, id(model)).atexit = False
            model = inner

    @staticmethod
    def _forget_module(reference: weakref.ref[Names], root: Root, number: int) -> None:
        self = reference()
        root.modules.discard(number)
        if self is not None and self.modules.get(number, UNNAMED_MODULE).root is root:
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
        self._departed[root.kind] = root
        self.generation += any(entry.tensor() is not None for entry in entries)


def _nothing() -> None:
    """Return None, in place of a reference to a freed model."""


UNNAMED_MODULE = ModuleName("", "", Root(_nothing, (type(None), ""), "", "", False), False, False)
"""The name of modules without a name."""


def unwrapped(framework: EagerFramework, model: Any) -> Any:
    """Return a model without its wrappers, such as those of data parallelism and compilation."""
    while (inner := framework.wrapped(model)) is not None:
        model = inner
    return model


def scope_of_tensor(name: str) -> str:
    """Return the scope of the module to which a weight or buffer belongs.

    Examples
    --------
    >>> scope_of_tensor("layer1.conv1.weight"), scope_of_tensor("weight")
    ('Default/layer1/conv1', 'Default')
    """
    return "/".join([ROOT_SCOPE, *name.split(".")[:-1]])


def _path(steps: Iterable[str]) -> str:
    return "".join(f"{step}." for step in steps)


def _name(kind: ModuleKind, scope: str, root: Root) -> ModuleName:
    return ModuleName(scope, kind.type, root, kind.is_leaf, kind.is_plain, kind.is_compiled)
