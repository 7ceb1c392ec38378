"""The probe of resuming: everything that a training needs to go on should be in `state_dict`.

In a copy of the process, what models, optimizers, schedulers, loss scalers and other objects with `load_state_dict`
hold is set to what it was before the first step, and the contents of `state_dict` are loaded, as in a new process. Then
this copy goes on with the training, as another one does without that, and both are compared bit by bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import weakref
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from tensight.agents.core.call_stack import is_user_code
from tensight.agents.core.live_instances import live_instances
from tensight.agents.torch.inner_modules import inner_modules, weights_in
from tensight.agents.torch.kept_states import Generators, copied, is_equal
from tensight.agents.torch.probes.batch import LATE, UntriedError
from tensight.agents.torch.probes.forks import GoingOn, end_at_effects, fork, wait_for
from tensight.agents.torch.probes.loss import MOST_WEIGHTS
from tensight.agents.torch.trial import outermost_modules, versions_kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tensight.agents.torch.boundary import Boundary
    from tensight.agents.torch.probes.forks import Clock
    from tensight.agents.torch.probes.states import Rows

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.Tensor)
_OF_MODULES = frozenset(vars(torch.nn.Module()))
_OF_OPTIMIZERS = frozenset({"state", "param_groups", "defaults"})
_OF_SCHEDULERS = frozenset({"optimizer"})
_LIBRARIES = ("torch", "transformers", "lightning", "accelerate", "timm")
_CONTAINERS = (list, tuple, dict, set, deque)
_MOST_ITEMS = 10_000
_MOST_NAMES = 8
_UPDATES = 2
"""Number of updates for which copies go on."""


class Beginnings:
    """What the parts of a training held before its first step: models, optimizers, and what else has a state.

    Parameters
    ----------
    boundary : Boundary

    Attributes
    ----------
    optimizers : list of Optimizer
        In the order of their first steps.
    generators : Generators or None
        Those of random numbers before the first step.
    """

    def __init__(self, boundary: Boundary) -> None:
        self.optimizers: list[Any] = []
        self.generators: Generators | None = None
        self._parts: dict[int, _Part] = {}
        self._modules = {
            id(module): _Module(module) for root in outermost_modules() for _, module in inner_modules(root)
        }
        self._is_over = False
        boundary.follow_steps(self._before, lambda *_: None)

    def stop(self) -> None:
        """Stop looking for parts."""
        self._is_over = True

    def forget(self) -> None:
        """Forget all parts."""
        self._parts.clear()
        self._modules.clear()

    @property
    def parts(self) -> list[_Part]:
        """All parts that are still there, models first: optimizers know their parameters."""
        return sorted((part for part in self._parts.values() if part.subject is not None), key=lambda part: part.order)

    def put_back(self, samples: int) -> None:
        """Set models and optimizers to what they were at first.

        Parameters
        ----------
        samples : int
            Their number in a batch.
        """
        for part in self.parts:
            if isinstance(part, (_Model, _Optimizer)):
                part.samples = samples
                part.reset()

    def _before(self, optimizer: Any, *_: Any) -> None:
        if self._is_over or any(optimizer is other for other in self.optimizers):
            return
        self.optimizers.append(optimizer)
        self.generators = self.generators or Generators()
        present = {id(part.subject) for part in self.parts}
        roots = [root for root in outermost_modules() if id(root) not in present]
        if sum(weight.numel() for root in roots for weight in weights_in(root)) > MOST_WEIGHTS:
            return
        models = [_Model(root, self._modules) for root in roots]
        for part in (*models, _Optimizer(optimizer), *_others(optimizer)):
            if id(part.subject) not in present:
                self._parts[id(part.subject)] = part


class _Going(NamedTuple):
    """What a copy that has gone on with the training reports.

    Attributes
    ----------
    bits : str
        Digest of all parameters, states of optimizers, and losses.
    losses : list of float
    lacking : list of (str, str)
        Names of what differs after loading, and where the script defines the class that holds it.
    error : str
    """

    bits: str = ""
    losses: tuple[float, ...] = ()
    lacking: tuple[tuple[str, str], ...] = ()
    error: str = ""


class ResumeProbe:
    """Compares a training that goes on with one that is resumed from `state_dict`.

    Parameters
    ----------
    beginnings : Beginnings
    clock : Clock
    model : str
        The name of the model that is about to be called.
    samples : int
        Their number in a batch.
    """

    def __init__(self, beginnings: Beginnings, clock: Clock, *, model: str, samples: int) -> None:
        self._beginnings = beginnings
        self._clock = clock
        self._samples = samples
        self._row: dict[str, Any] = {"name": "resume", "probe": "resume", "model": model}

    def rows(self) -> Rows:
        """Run the probe; return its row.

        Raises
        ------
        GoingOn
            In a process that is to go on with the training.
        """
        try:
            return [self._row | self._outcome()]
        except UntriedError as reason:
            return [self._row | {"outcome": "untried", "why": str(reason)}]

    def _outcome(self) -> dict[str, Any]:
        if not any(isinstance(part, _Model) for part in self._beginnings.parts):
            raise UntriedError("no model of which an optimizer has the weights is known, or it is too large")
        goes_on, resumed = self._tried(resumes=False), self._tried(resumes=True)
        drawn = [] if self._beginnings.generators is None else self._beginnings.generators.drawn()
        if goes_on.bits == resumed.bits:
            needs = f"a checkpoint also needs the states of the generators: {', '.join(drawn)}" if drawn else ""
            return {"outcome": "pass", "why": needs}
        if self._tried(resumes=False).bits != goes_on.bits:
            raise UntriedError("the next steps are others each time, with the same state and random numbers")
        if not resumed.lacking:
            return {"outcome": "warn", "why": "the next steps differ, although nothing that was seen is lacking"}
        # What a class keeps for itself follows from the rest, mostly.
        public = [(name, line) for name, line in resumed.lacking if "._" not in name] or resumed.lacking
        names = [name for name, _ in public[:_MOST_NAMES]]
        pairs = zip(goes_on.losses, resumed.losses, strict=False)
        expected, loss = next((pair for pair in pairs if pair[0] != pair[1]), (float("nan"), float("nan")))
        return {
            "outcome": "fail",
            "why": "weights" if expected != expected else "loss",
            "inputs": ", ".join(names) + (" …" if len(public) > len(names) else ""),
            "count": len(public),
            "line": next((line for _, line in public if line), ""),
            "scale": expected,
            "change": loss,
        }

    def _tried(self, *, resumes: bool) -> _Going:
        if not self._clock.left_s:
            raise UntriedError(LATE)
        child, pipe = fork()
        if not child:
            self._go_on(pipe, resumes=resumes)
            raise GoingOn
        content = wait_for(child, pipe, self._clock)
        late = "the process that tried it has crashed" if self._clock.left_s else LATE
        going = _Going(*json.loads(content)) if content.endswith(b"\n") else _Going(error=late)
        if going.error:
            raise UntriedError(going.error)
        return going

    def _go_on(self, pipe: int, *, resumes: bool) -> None:
        """Let this process end after some updates, and report; optionally resume first."""
        losses: list[float] = []
        updates: list[int] = []
        lacking: list[tuple[str, str]] = []

        def end(why: str) -> None:
            going = _Going(_digest(self._beginnings.optimizers, losses), tuple(losses), tuple(lacking))
            os.write(pipe, json.dumps(going if updates else _Going(error=why)).encode() + b"\n")
            os._exit(0)

        if resumes:
            try:
                lacking += self._resume()
            except Exception as error:
                end(f"the state cannot be put back: {type(error).__name__}: {error}"[:200].replace("\n", " "))
        original = torch.autograd.backward

        def backward(tensors: Any, *arguments: Any, **named: Any) -> None:
            losses.extend(float(root.detach()) for root in _roots(tensors) if root.numel() == 1)
            original(tensors, *arguments, **named)

        def updated(optimizer: Any, *_: Any) -> None:
            if optimizer is self._beginnings.optimizers[0]:
                updates.append(1)

        def called(*_: Any) -> None:
            if len(updates) >= _UPDATES:
                end("")

        torch.autograd.backward = backward
        register_optimizer_step_post_hook(updated)
        register_module_forward_pre_hook(called)
        end_at_effects(end, reads_data=True)

    def _resume(self) -> list[tuple[str, str]]:
        """Set everything to what it was at first, load the contents of `state_dict`, and return what they lack."""
        parts = self._beginnings.parts
        for part in parts:
            part.samples = self._samples
        before = [(name, value, holder) for part in parts for name, value, holder in part.named_state()]
        states = [copied(part.subject.state_dict()) for part in parts]
        with versions_kept([part.subject for part in parts if isinstance(part, _Model)]):
            for part in parts:
                part.reset()
            for part, state in zip(parts, states, strict=True):
                part.subject.load_state_dict(state)
        # Several models may have the same names.
        after = {(id(holder), name): value for part in parts for name, value, holder in part.named_state()}
        return [
            (name, _line_of_class(type(holder)))
            for name, value, holder in before
            if (id(holder), name) not in after or not is_equal(value, after[id(holder), name])
        ]


def _line_of_class(kind: type) -> str:
    """Return where the script defines a class, as train.py:31; empty if a library does."""
    codes = (getattr(value, "__code__", None) for value in vars(kind).values())
    code = next((code for code in codes if code is not None and is_user_code(code)), None)
    return "" if code is None else f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def _roots(tensors: Any) -> list[torch.Tensor]:
    roots = tensors if isinstance(tensors, (tuple, list)) else (tensors,)
    return [root for root in roots if isinstance(root, torch.Tensor)]


def _digest(optimizers: list[Any], losses: list[float]) -> str:
    """Return a digest of all parameters, of the states and rates of optimizers, and of losses."""
    bits = hashlib.sha256(repr(losses).encode())
    tensors = [weight for module in outermost_modules() for weight in weights_in(module)]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            bits.update(repr(float(group.get("lr", 0))).encode())
            for parameter in group["params"]:
                values = optimizer.state.get(parameter, {}).values()
                tensors += [value for value in values if isinstance(value, torch.Tensor)]
    for tensor in tensors:
        bits.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return bits.hexdigest()


class _Part:
    """An object with a `state_dict`, and its initial state.

    Attributes
    ----------
    subject : object
        None if it is no longer there.
    samples : int
        Tensors with an axis of this size are states of the samples of a batch, and are left alone.
    """

    order = 0
    left_out: frozenset[str] = frozenset()

    def __init__(self, subject: Any) -> None:
        # Only the script determines how long it lives.
        self._reference = weakref.ref(subject)
        self.samples = -1
        self._attributes = dict(self._plain_attributes())

    @property
    def subject(self) -> Any:
        return self._reference()

    def reset(self) -> None:
        """Set everything to what it was at first, but for what a training begins without, as a cache."""
        for name, first in self._attributes.items():
            now = vars(self.subject).get(name)
            if first is None or (isinstance(first, _CONTAINERS) and not first) or self._is_of_batch(now):
                continue
            vars(self.subject)[name] = copied(first)

    def named_state(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield copies of its plain values, which a step may change, with their names and what holds them."""
        for name, value in self._plain_attributes():
            yield f"{type(self.subject).__name__}.{name}", value, self.subject

    def _plain_attributes(self) -> Iterator[tuple[str, Any]]:
        return _plain_attributes(self.subject, self.left_out)

    def _is_of_batch(self, value: object) -> bool:
        return isinstance(value, torch.Tensor) and self.samples in value.shape[:2]


class _Model(_Part):
    """A model. Only an optimizer changes its parameters; everything else may change in each call.

    Parameters
    ----------
    subject : Module
    modules : mapping of int to _Module
        Initial states of the modules that were called, by the identity of the module.
    """

    order = 0
    left_out = _OF_MODULES

    def __init__(self, subject: Any, modules: Mapping[int, _Module]) -> None:
        super().__init__(subject)
        self._modules = []
        for _, module in inner_modules(subject):
            first = modules.get(id(module))
            self._modules.append(first if first is not None and first.subject is module else _Module(module))
        self._parameters = [parameter.detach().clone() for parameter in weights_in(subject)]

    def reset(self) -> None:
        """Set its parts and parameters to what they were at first."""
        for module in self._modules:
            module.samples = self.samples
            module.reset()
        with torch.no_grad():
            for parameter, first in zip(weights_in(self.subject), self._parameters, strict=True):
                parameter.copy_(first)

    def named_state(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield copies of the plain attributes, parameters and buffers, with their names and what holds them."""
        for path, module in inner_modules(self.subject):
            for name, value in _plain_attributes(module, _OF_MODULES):
                yield f"{path or type(self.subject).__name__}.{name}", value, module
            for name, tensor in (*module._parameters.items(), *_buffers(module)):
                if tensor is not None:
                    yield f"{path}.{name}" if path else name, tensor.detach().clone(), module


class _Module(_Part):
    """A part of a model, without its parameters and inner modules."""

    left_out = _OF_MODULES

    def __init__(self, subject: Any) -> None:
        super().__init__(subject)
        self._buffers = [(name, held.detach().clone()) for name, held in _buffers(subject)]

    def reset(self) -> None:
        """Set its attributes and buffers to what they were at first."""
        super().reset()
        held = dict(_buffers(self.subject))
        for name, first in self._buffers:
            if name in held and held[name].shape == first.shape and not self._is_of_batch(first):
                held[name].copy_(first)


class _Optimizer(_Part):
    order = 1
    left_out = _OF_OPTIMIZERS

    def __init__(self, subject: Any) -> None:
        super().__init__(subject)
        self._groups = [
            {name: copied(value) for name, value in group.items() if name != "params"} for group in subject.param_groups
        ]

    def reset(self) -> None:
        """Forget the state of each parameter, and set the options to what they were at first."""
        super().reset()
        self.subject.state = defaultdict(dict)
        for group, first in zip(self.subject.param_groups, self._groups, strict=False):
            group.update(copied(first))

    def named_state(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield copies of its plain values, options and states of parameters, with their names and the optimizer."""
        yield from super().named_state()
        for number, group in enumerate(self.subject.param_groups):
            for name, value in group.items():
                if name != "params" and _is_plain(value):
                    yield f"{type(self.subject).__name__}.param_groups[{number}].{name}", copied(value), self.subject
            for index, parameter in enumerate(group["params"]):
                for name, value in self.subject.state.get(parameter, {}).items():
                    if _is_plain(value):
                        yield f"{name} of parameter {index} of group {number}", copied(value), self.subject


class _Scheduler(_Part):
    order = 2
    left_out = _OF_SCHEDULERS


class _Scaler(_Part):
    order = 3


class _Other(_Part):
    """An object of a class of the script's own, such as an average of the weights."""

    order = 4


def _others(optimizer: Any) -> Iterator[_Part]:
    """Yield the schedulers of an optimizer, loss scalers, and objects of the script that can load a state."""
    kinds: dict[type, type[_Part] | None] = {}
    for instance in live_instances(object):
        kind = type(instance)
        if kind not in kinds:
            kinds[kind] = _kind_of_part(kind)
        part = kinds[kind]
        if part is _Scheduler:
            held = vars(instance).get("optimizer")
            # Accelerate wraps optimizers.
            if held is not optimizer and getattr(held, "optimizer", None) is not optimizer:
                continue
        if part is not None and hasattr(instance, "__dict__") and kind.__weakrefoffset__:
            yield part(instance)


def _kind_of_part(kind: type) -> type[_Part] | None:
    if issubclass(kind, (type, torch.nn.Module, torch.optim.Optimizer)):
        return None
    if issubclass(kind, torch.optim.lr_scheduler.LRScheduler):
        return _Scheduler
    if issubclass(kind, torch.amp.GradScaler):
        return _Scaler
    code = getattr(getattr(kind, "load_state_dict", None), "__code__", None)
    return _Other if code is not None and is_user_code(code) and hasattr(kind, "state_dict") else None


def _buffers(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [(name, buffer) for name, buffer in module._buffers.items() if buffer is not None]


def _plain_attributes(subject: Any, left_out: frozenset[str]) -> Iterator[tuple[str, Any]]:
    is_of_library = type(subject).__module__.partition(".")[0] in _LIBRARIES
    for name, value in vars(subject).items():
        # What libraries keep for themselves, such as how often a method was called, changes no step.
        if name not in left_out and not (is_of_library and name.startswith("_")) and _is_plain(value):
            yield name, copied(value)


def _is_plain(value: Any, depth: int = 0) -> bool:
    if isinstance(value, _PLAIN):
        return not isinstance(value, torch.nn.Parameter)
    if depth > 3 or type(value) not in (list, tuple, dict, set, deque, defaultdict) or len(value) > _MOST_ITEMS:
        return False
    inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return all(_is_plain(element, depth + 1) for element in inner)
