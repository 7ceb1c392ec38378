"""The modes, running statistics, ties and schedules of a training, and tensors outside of its models."""

from __future__ import annotations

import itertools
import math
import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from tensight.agents.core.call_stack import is_user_code
from tensight.agents.core.live_instances import live_instances
from tensight.agents.facts.samples import fingerprint, shape_text
from tensight.agents.torch.facts.autograd_functions import inputs_of
from tensight.agents.torch.facts.made_lines import made_line, mode_line
from tensight.agents.torch.facts.reading import plain, sample
from tensight.agents.torch.inner_modules import held_tensors, inner_modules, is_in_training, own_tensor, weights_in
from tensight.agents.torch.parameters import wrapped_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

MOST_MODULES = 5000
_LENGTHS = ("T_max", "total_steps", "total_iters")
_MOST_TIES = 20
_MOST_MADE = 2000
"""Number of parts of models whose lines are kept."""


def made_rows(models: Iterable[tuple[str, nn.Module]]) -> list[dict[str, Any]]:
    """Return the rows of ``made``.

    Parameters
    ----------
    models : iterable of (str, Module)
        With the prefix of their names.
    """
    lines = (
        ((prefix + path).rstrip("."), made_line(module))
        for prefix, model in models
        for path, module in inner_modules(model)
    )
    return list(itertools.islice(({"name": name, "line": line} for name, line in lines if name and line), _MOST_MADE))


def module_rows(
    models: Iterable[tuple[str, nn.Module]], trained: AbstractSet[int], norms: Mapping[int, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows of ``modules``: those with a mode that matters.

    Parameters
    ----------
    models : iterable of (str, Module)
        With the prefix of their names.
    trained : set of int
        Identities of the parameters that optimizers have updated in this step.
    norms : mapping of int to mapping
        Facts about the calls of modules with running statistics, by identity.
    """
    rows: list[dict[str, Any]] = []
    for prefix, model in models:
        in_training: dict[str, bool] = {}
        trained_paths = _trained_paths(model, trained)
        for path, module in inner_modules(model):
            held = vars(module)
            in_training[path] = is_in_training(module)
            rate = _rate(module, held)
            statistics = own_tensor(module, "_buffers", "running_mean")
            momentum = held.get("momentum") if statistics is not None else None
            switched = held.get("requires_grad")
            if rate is None and statistics is None and not isinstance(switched, bool):
                continue
            name = (prefix + path).rstrip(".")
            parent = path.rpartition(".")[0]
            held_weights = [weight for weight in module._parameters.values() if weight is not None]
            row: dict[str, Any] = {
                "name": name,
                "has_weights": bool(held_weights),
                "is_fixed": not any(weight.requires_grad for weight in held_weights),
                "type": type(module).__name__,
                "is_training": is_in_training(module),
                "mode_line": mode_line(module),
                "parent_is_training": in_training.get(parent, True) if path else in_training[path],
                "is_trained": any(id(weight) in trained for weight in held_weights)
                if held_weights
                else parent in trained_paths,
                "rate": math.nan if rate is None else rate,
                "switch": -1 if not isinstance(switched, bool) else int(switched),
                "is_frozen": isinstance(switched, bool)
                and not any(weight.requires_grad for _, weight in held_tensors(module, "_parameters")),
            }
            if isinstance(statistics, torch.Tensor):
                row |= {
                    "has_statistics": True,
                    "momentum": math.nan if momentum is None else float(momentum),
                    "statistics": fingerprint([sample(statistics)]),
                    **norms.get(id(module), {}),
                }
            rows.append(row)
            if len(rows) >= MOST_MODULES:
                return rows
    return rows


def normalised(module: nn.Module, given: torch.Tensor) -> tuple[int, int]:
    """Return over how many elements a module computes each of its statistics, and over how many samples; -1 if none.

    Parameters
    ----------
    module : Module
    given : Tensor
        Its input.
    """
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm if hasattr(nn, "RMSNorm") else nn.LayerNorm)):
        return math.prod(module.normalized_shape), -1
    if isinstance(module, nn.GroupNorm) and given.dim() >= 2:
        return given.shape[1] // module.num_groups * math.prod(given.shape[2:]), -1
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and given.dim() >= 2:
        return given.shape[0] * math.prod(given.shape[2:]), given.shape[0]
    return -1, -1


def _rate(module: nn.Module, held: Mapping[str, Any]) -> float | None:
    """Return the probability with which a module drops elements; None if it never does."""
    kind = type(module).__name__.lower()
    if "drop" in kind:
        for key in ("p", "drop_prob", "drop_rate", "drop"):
            if isinstance(held.get(key), (int, float)):
                return float(held[key])
    if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)) and held.get("dropout"):
        return float(held["dropout"])
    return None


def _trained_paths(model: nn.Module, trained: AbstractSet[int]) -> set[str]:
    """Return the paths of the modules of a model that hold a trained parameter, themselves or within another module."""
    paths: set[str] = set()
    for path, module in inner_modules(model):
        if any(id(weight) in trained for weight in module._parameters.values()):
            above = path
            while above not in paths:
                paths.add(above)
                above = above.rpartition(".")[0]
    return paths


class NormCalls:
    """The calls of modules with running statistics in a step, and how far apart their inputs are."""

    def __init__(self) -> None:
        self._again: set[int] = set()
        self._calls: dict[int, int] = {}
        self._inputs: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def called(self, module: nn.Module, given: torch.Tensor) -> None:
        """Note a call in training mode."""
        self._calls[id(module)] = self._calls.get(id(module), 0) + 1
        inputs = self._inputs.setdefault(id(module), [])
        # Only what is called several times has inputs that may differ.
        if id(module) in self._again and given.dim() > 1 and given.is_floating_point() and len(inputs) < 4:
            values = plain(given).float().transpose(0, 1).flatten(1)
            if values.shape[1] > 1:
                inputs.append((values.mean(1), values.var(1)))

    def rows(self) -> dict[int, dict[str, Any]]:
        """Return the facts of all modules, by identity, and begin the next step."""
        rows: dict[int, dict[str, Any]] = {}
        for key, count in self._calls.items():
            rows[key] = {"calls": count}
            inputs = self._inputs[key]
            if len(inputs) > 1:
                (first, variance), *others = inputs
                distances = [(mean - first).abs() / ((variance + other) / 2 + 1e-12).sqrt() for mean, other in others]
                rows[key]["apart"] = max(float(distance.mean()) for distance in distances)
        self._again = {key for key, count in self._calls.items() if count > 1}
        self._calls, self._inputs = {}, {}
        return rows


# --- ties ---


class Ties:
    """Pairs of an embedding and an output layer that begin equal, or that the model's configuration declares tied.

    Parameters
    ----------
    models : iterable of (str, Module)
    """

    def __init__(self, models: Iterable[tuple[str, nn.Module]]) -> None:
        self._pairs: list[tuple[str, str, str, Callable[[], Any], Callable[[], Any]]] = []
        for prefix, model in models:
            self._find(prefix, model)

    def _find(self, prefix: str, model: nn.Module) -> None:
        embeddings, outputs = [], []
        for path, module in inner_modules(model):
            weight = own_tensor(module, "_parameters", "weight")
            if weight is None or weight.dim() != 2:
                continue
            if isinstance(module, nn.Embedding):
                embeddings.append((f"{prefix}{path}.weight", module, weight))
            elif isinstance(module, nn.Linear):
                outputs.append((f"{prefix}{path}.weight", module, weight))
        declared = _declared(model)
        for name, first, weight in embeddings:
            for other, second, weight_2 in outputs:
                if weight.shape != weight_2.shape or weight is weight_2:
                    continue
                is_declared = declared is not None and first is declared[0] and second is declared[1]
                is_shared = plain(weight).data_ptr() == plain(weight_2).data_ptr()
                is_equal = _differs_within(weight) and torch.equal(plain(weight), plain(weight_2))
                if (is_declared or is_shared or is_equal) and len(self._pairs) < _MOST_TIES:
                    kind = "shared" if is_shared else "declared" if is_declared else "equal"
                    self._pairs.append((kind, name, other, _held_weight(first), _held_weight(second)))
        for at, (name, first, weight) in enumerate(outputs):
            for other, second, weight_2 in outputs[at + 1 :]:
                is_swapped = weight.shape == weight_2.shape[::-1] and weight.shape[0] != weight.shape[1]
                is_equal = is_swapped and _differs_within(weight) and torch.equal(plain(weight), plain(weight_2).t())
                if is_equal and len(self._pairs) < _MOST_TIES:
                    self._pairs.append(("transposed", name, other, _held_weight(first), _held_weight(second)))

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``ties``."""
        rows = []
        for kind, first, second, first_weight, second_weight in self._pairs:
            a, b = first_weight(), second_weight()
            if a is None or b is None:
                continue
            is_tied = plain(a).data_ptr() == plain(b).data_ptr()
            rows.append(
                {
                    "name": f"{first} = {second}",
                    "first": first,
                    "second": second,
                    "kind": kind,
                    "is_tied": is_tied,
                    "is_equal": is_tied or torch.equal(plain(a), plain(b).t() if kind == "transposed" else plain(b)),
                    "is_trained": bool(a.requires_grad and b.requires_grad),
                }
            )
        return rows


def _differs_within(weight: torch.Tensor) -> bool:
    """Whether the elements of a weight are not all the same, so that another one equals it by no accident."""
    flat = plain(weight).flatten()
    return bool((flat[1:] != flat[:1]).any())


def _held_weight(module: nn.Module) -> Callable[[], Any]:
    reference = weakref.ref(module)

    def weight() -> Any:
        held = reference()
        return None if held is None else own_tensor(held, "_parameters", "weight")

    return weight


def _declared(model: nn.Module) -> tuple[Any, Any] | None:
    """Return the embedding and the output layer that a model of transformers is configured to tie."""
    config = vars(model).get("config")
    if not getattr(config, "tie_word_embeddings", False):
        return None
    try:
        given: Any = model
        return given.get_input_embeddings(), given.get_output_embeddings()
    except Exception:
        return None


# --- schedules ---


class Schedules:
    """The schedulers of learning rates; they are looked for rarely, because that takes a while."""

    def __init__(self) -> None:
        self._known: list[weakref.ref[LRScheduler]] = []

    def find(self) -> None:
        """Look for schedulers among all objects."""
        self._known = [weakref.ref(scheduler) for scheduler in live_instances(LRScheduler)]

    def rows(self, label: Callable[[Any], str], optimizers: Iterable[Any]) -> list[dict[str, Any]]:
        """Return the rows of ``schedules``: those of given optimizers, not of earlier trainings in this process."""
        rows = []
        trained = {id(_unwrapped(optimizer)) for optimizer in optimizers}
        for reference in self._known:
            scheduler = reference()
            held = {} if scheduler is None else vars(scheduler)
            if "optimizer" not in held or not isinstance(held.get("last_epoch"), int):
                continue
            if id(_unwrapped(held["optimizer"])) not in trained:
                continue
            length = next((held[key] for key in _LENGTHS if isinstance(held.get(key), int)), -1)
            rows.append(
                {
                    "name": type(scheduler).__name__,
                    "made_line": made_line(scheduler),
                    "optimizer": label(_unwrapped(held["optimizer"])),
                    "position": held["last_epoch"],
                    "length": length,
                    "last_milestone": max(map(int, held.get("milestones") or (-1,)), default=-1),
                    "mode": str(held.get("mode", "")),
                    "best": float(held["best"]) if isinstance(held.get("best"), (int, float)) else math.nan,
                }
            )
        return rows


def _unwrapped(optimizer: Any) -> Any:
    """Return the optimizer that another one wraps, as that of Accelerate does."""
    for inner in wrapped_by(optimizer):
        if isinstance(inner, torch.optim.Optimizer) and inner is not optimizer:
            return _unwrapped(inner)
    return optimizer


def accumulating(optimizers: Iterable[torch.optim.Optimizer]) -> dict[int, dict[str, Any]]:
    """Return how many passes an Accelerator of Hugging Face accumulates for optimizers, and whether it prepared them.

    By the optimizer's identity, as facts of ``groups``; only of models that it has prepared.
    """
    accelerate = sys.modules.get("accelerate")
    kind = getattr(accelerate, "Accelerator", None)
    if not isinstance(kind, type):
        return {}
    facts: dict[int, dict[str, Any]] = {}
    accelerator: Any
    for accelerator in live_instances(kind):
        held = vars(accelerator)
        passes = int(accelerator.gradient_accumulation_steps)
        prepared = {id(_unwrapped(optimizer)) for optimizer in held.get("_optimizers") or ()}
        weights = {id(weight) for model in held.get("_models") or () for weight in model.parameters()}
        for optimizer in optimizers:
            holds = any(id(weight) in weights for group in optimizer.param_groups for weight in group["params"])
            if passes > 1 and holds:
                facts[id(optimizer)] = {"accumulates": passes, "is_prepared": id(_unwrapped(optimizer)) in prepared}
    return facts


# --- tensors outside of models ---

_MOST_ITEMS = 1000
"""Of a list or a dictionary with so many items, tensors are not named."""


def leaf_rows(leaves: Sequence[torch.Tensor], held: set[int]) -> list[dict[str, Any]]:
    """Return the rows of ``leaves``: those that a module holds as a parameter, or as a plain attribute.

    Parameters
    ----------
    leaves : sequence of Tensor
        Tensors that get gradients and have no name.
    held : set of int
        Identities of the parameters that optimizers hold.
    """
    unnamed = {id(leaf): leaf for leaf in leaves}
    rows: dict[int, dict[str, Any]] = {}
    for module in live_instances(nn.Module) if unnamed else ():
        for name, tensor in _attributes(module):
            leaf = unnamed.get(id(_leaf_behind(tensor)))
            if leaf is not None and id(leaf) not in rows:
                owner = type(module).__name__
                rows[id(leaf)] = {
                    "name": f"{owner}.{name} [{shape_text(leaf.shape)}]",
                    "shape": shape_text(leaf.shape),
                    "is_held": id(leaf) in held,
                }
    counts: dict[str, int] = {}
    for row in rows.values():
        counts[row["name"]] = number = counts.get(row["name"], 0) + 1
        if number > 1:
            row["name"] += f" ({number})"
    return list(rows.values())


def _leaf_behind(tensor: Any) -> Any:
    """Return the leaf that a tensor is computed from alone, as a view of a parameter is; otherwise the tensor."""
    function = getattr(tensor, "grad_fn", None)
    for _ in range(_MOST_ITEMS):
        inputs = inputs_of(function)
        if len(inputs) != 1:
            break
        function = inputs[0]
    return getattr(function, "variable", tensor)


def _attributes(module: nn.Module) -> Iterable[tuple[str, Any]]:
    held = vars(module)
    yield from (held.get("_parameters") or {}).items()
    yield from (held.get("_buffers") or {}).items()
    for name, value in held.items():
        items: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, (list, tuple)) and len(value) < _MOST_ITEMS:
            items = enumerate(value)
        elif isinstance(value, dict) and len(value) < _MOST_ITEMS and not name.startswith("_"):
            items = value.items()
        yield from ((f"{name}[{at!r}]", each) for at, each in items if isinstance(each, torch.Tensor))


def left_out_by_libraries(models: Iterable[nn.Module], without: AbstractSet[int]) -> set[int]:
    """Return which parameters are in parts that a model of a library holds: a script need not use all of them.

    Parameters
    ----------
    models : iterable of Module
    without : set of int
        Identities of the parameters without a gradient; so are those that are returned.
    """
    left_out: set[int] = set()

    def gather(module: nn.Module, parent: nn.Module | None) -> None:
        weights = set(map(id, weights_in(module)))
        if weights and weights <= without:
            if parent is not None and not _is_of_script(type(parent)):
                left_out.update(weights)
            return
        for child in module._modules.values():
            if child is not None:
                gather(child, module)

    for model in models:
        gather(model, None)
    return left_out


def _is_of_script(kind: type[nn.Module]) -> bool:
    """Whether the script has put a module together itself, if only of PyTorch's containers."""
    code = getattr(kind.forward, "__code__", None)
    return kind.__module__.startswith("torch.nn.") or code is None or is_user_code(code)
