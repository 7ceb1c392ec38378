"""What updates do to parameters: their gradients, and samples of their elements before and after."""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.torch.arrays import version_of
from tensight.agents.torch.discovery import weights_of
from tensight.agents.torch.facts.reading import fingerprint, norm, plain, sample, shape_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


MOST_PARAMETERS = 4000
"""Number of parameters that are followed; of a larger model the first and last ones."""

_HISTORY = 128
"""Number of earlier steps whose values are recognised."""

_UNITS = 8
"""Number of rows of a matrix that are compared."""


class Weights:
    """The parameters of a training, as its optimizers update them.

    Attributes
    ----------
    groups : list of dict
        Rows of ``groups`` of this step.
    gradients_hash : list of Tensor
        Samples of all gradients that optimizers have read in this step.
    """

    def __init__(self) -> None:
        self._labels: dict[int, str] = {}
        self._kinds: dict[str, int] = {}
        self._backward: dict[int, float] = {}
        self._backward_passes: dict[int, int] = {}
        self._used: dict[int, int] = {}
        self._before: dict[str, torch.Tensor] = {}
        self._after: dict[str, torch.Tensor] = {}
        self._at_last: dict[str, torch.Tensor] = {}
        self._gradients: dict[str, torch.Tensor] = {}
        self._used_gradients: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._kept: set[int] = set()
        self._cleared: dict[int, int] = {}
        self._keeps_state: set[str] = set()
        self._met: weakref.WeakSet[Any] = weakref.WeakSet()
        self._outside: dict[str, dict[str, Any]] = {}
        self._history: dict[str, deque[int]] = {}
        self.norm_backward = math.nan
        """Norm of all gradients of the last optimizer after the last backward pass."""
        self.groups: list[dict[str, Any]] = []
        self.rows: dict[str, dict[str, Any]] = {}

    # --- events ---

    def backward_begins(self, optimizers: Iterable[Any], names: Mapping[int, str]) -> None:
        """Look which gradients were cleared since they were used, and which weights changed since the last update."""
        for optimizer in optimizers:
            self._compare_outside(optimizer, names)
            weights = weights_of(optimizer)
            for weight in weights[:MOST_PARAMETERS]:
                used = self._used_gradients.get(id(weight))
                gradient = weight.grad
                if gradient is None or not (id(weight) in self._kept or used is not None):
                    self._kept.discard(id(weight))
                    continue
                if not bool(plain(gradient).any()):
                    self._kept.discard(id(weight))
                elif used is not None and used[0]() is gradient and version_of(gradient) == used[1]:
                    self._kept.add(id(weight))
            had = self._backward_passes.get(id(optimizer), 0) > 0 and self._backward.get(id(optimizer), 0.0) > 0
            if had and not any(weight.grad is not None and bool(plain(weight.grad).any()) for weight in weights[:8]):
                self._cleared[id(optimizer)] = self._cleared.get(id(optimizer), 0) + 1

    def _compare_outside(self, optimizer: Any, names: Mapping[int, str]) -> None:
        """Compare weights with what the last update has left, before the first backward pass of a step."""
        for weight in weights_of(optimizer)[:MOST_PARAMETERS]:
            name = names.get(id(weight), "")
            after = self._after.get(name)
            if after is None or name in self._outside:
                continue
            values, earlier = sample(weight), self._at_last.get(name)
            outside = self._outside[name] = {"is_moved_outside": False}
            history = self._history.setdefault(name, deque(maxlen=_HISTORY))
            mark = fingerprint([values])
            if after.shape == values.shape and not _equal(after, values):
                outside["is_moved_outside"] = True
                outside["restored"] = mark if mark in history else 0
                if earlier is not None and earlier.shape == values.shape:
                    moved = after != earlier
                    outside["undone"] = float((values == earlier)[moved].float().mean()) if bool(moved.any()) else 0.0
            history.append(mark)

    def skip_update(self, optimizer: Any) -> None:
        """Note an update that is not read."""
        self._backward_passes[id(optimizer)] = self._cleared[id(optimizer)] = 0
        self._used.pop(id(optimizer), None)
        for weight in weights_of(optimizer)[:MOST_PARAMETERS]:
            self._used_gradients.pop(id(weight), None)
        self._after.clear()

    def backward_ended(self, optimizers: Iterable[Any], scale: float, *, reads: bool) -> None:
        """Note that a backward pass has ended, with the factor by which its loss was scaled."""
        for optimizer in optimizers:
            self._backward_passes[id(optimizer)] = self._backward_passes.get(id(optimizer), 0) + 1
            if reads:
                gradients = [weight.grad for weight in weights_of(optimizer) if weight.grad is not None]
                self.norm_backward = _root(norm(gradients)) / (scale or 1.0) if gradients else 0.0
                self._backward[id(optimizer)] = self.norm_backward

    def update_begins(self, optimizer: Any, names: Mapping[int, str], *, is_through_scaler: bool = False) -> None:
        """Read gradients and weights as an optimizer is about to read them."""
        label = self.label(optimizer)
        named_count, listed = 0, set[int]()
        every: list[torch.Tensor] = []
        for number, group in enumerate(optimizer.param_groups):
            weights = group["params"]
            gradients = [weight.grad for weight in weights if weight.grad is not None]
            norms = norm(gradients)
            by_weight = dict(zip((id(weight) for weight in weights if weight.grad is not None), norms, strict=True))
            rate = float(group.get("lr", math.nan))
            unknown = 0
            for index, weight in enumerate(weights):
                name = names.get(id(weight))
                if name is None:
                    unknown += 1
                    continue
                named_count += 1
                if named_count <= MOST_PARAMETERS:
                    self._before_update(name, weight, by_weight.get(id(weight)), label, rate)
                    self.rows[name]["optimizers"] += id(weight) in listed
                    listed.add(id(weight))
                    if weight.grad is not None and index % 4 == 0:
                        every.append(sample(weight.grad))
            self.groups.append(
                {
                    "name": f"{label} group {number}",
                    "optimizer": label,
                    "rate": rate,
                    "decay": float(group.get("weight_decay", math.nan)),
                    "maximizes": bool(group.get("maximize", False)),
                    "parameters": len(weights),
                    "unknown": unknown,
                    "norm_backward": self._backward.get(id(optimizer), math.nan),
                    "norm_update": _root(norms),
                    "backward_passes": self._backward_passes.get(id(optimizer), 0),
                    "cleared_between": self._cleared.get(id(optimizer), 0),
                    "is_unscaled": not is_through_scaler,
                    "is_new": optimizer not in self._met and type(optimizer).__name__ in self._keeps_state,
                }
            )
        used = fingerprint(every) if any(bool(values.any()) for values in every) else 0
        is_repeated = bool(used) and self._used.get(id(optimizer)) == used
        self._used[id(optimizer)] = used
        norms_now = [row["norm_update"] for row in self.groups if row["optimizer"] == label]
        is_cleared = self._backward.get(id(optimizer), 0.0) > 0 and not any(value > 0 for value in norms_now)
        for row in self.groups:
            if row["optimizer"] == label:
                row.update(is_repeated=is_repeated, is_cleared=is_cleared)
        self._backward_passes[id(optimizer)] = self._cleared[id(optimizer)] = 0

    def update_ended(self, optimizer: Any, names: Mapping[int, str]) -> None:
        """Compare the weights with what they were before an update."""
        self._met.add(optimizer)
        if optimizer.state:
            self._keeps_state.add(type(optimizer).__name__)
        for weight in weights_of(optimizer)[:MOST_PARAMETERS]:
            gradient = weight.grad
            if type(gradient) is torch.Tensor:
                self._used_gradients[id(weight)] = weakref.ref(gradient), version_of(gradient)
            else:
                self._used_gradients.pop(id(weight), None)
        for weight in weights_of(optimizer):
            name = names.get(id(weight))
            before = self._before.get(name or "")
            if name is None or before is None or name not in self.rows:
                continue
            after = sample(weight)
            self._after[name] = after
            row = self.rows[name]
            if after.shape != before.shape or not after.numel():
                continue
            moved = after != before
            row["moved"] = float(moved.float().mean())
            change = float(torch.linalg.vector_norm(after.double() - before.double()))
            size = float(torch.linalg.vector_norm(before.double()))
            row["change"] = change / size if size else math.inf if change else 0.0
            gradient = self._gradients.get(name)
            if gradient is not None and gradient.shape == moved.shape:
                wants = gradient != 0
                if bool(wants.any()):
                    row["lost"] = float((wants & ~moved).sum() / wants.sum())

    def rates(self, optimizers: Iterable[Any]) -> list[dict[str, Any]]:
        """Return the rows of ``rates``."""
        return [
            {
                "name": f"{self.label(optimizer)} group {number}",
                "optimizer": self.label(optimizer),
                "rate": float(group.get("lr", math.nan)),
                "initial_rate": float(group.get("initial_lr", math.nan)),
            }
            for optimizer in optimizers
            for number, group in enumerate(optimizer.param_groups)
        ]

    def label(self, optimizer: Any) -> str:
        """Return a name of an optimizer: its class, and a number if there are several."""
        label = self._labels.get(id(optimizer))
        if label is None:
            kind = type(optimizer).__name__
            self._kinds[kind] = number = self._kinds.get(kind, 0) + 1
            label = self._labels[id(optimizer)] = kind if number == 1 else f"{kind} {number}"
        return label

    def take(
        self, named: Sequence[tuple[str, torch.Tensor, str, str, int]], owners: Mapping[int, int]
    ) -> list[dict[str, Any]]:
        """Return the rows of ``parameters`` of the step that has ended, and begin the next one.

        Parameters
        ----------
        named : sequence of (str, Tensor, str, str, int)
            Name, parameter, module, class of the module and number of the model.
        owners : mapping of int to int
            How many optimizers hold a parameter, by its identity.
        """
        rows: list[dict[str, Any]] = []
        if len(named) > MOST_PARAMETERS:
            named = [*named[: MOST_PARAMETERS // 2], *named[-MOST_PARAMETERS // 2 :]]
        for name, weight, module, module_type, model in named:
            row = self.rows.get(name)
            if row is None:
                row = _described(weight)
                gradient = weight.grad
                if weight.requires_grad and gradient is not None:
                    row["gradient_norm"] = size = norm([gradient])[0]
                    row["gradient"] = 1 + (size != 0)
                row["fingerprint"] = fingerprint([sample(weight)])
                row["optimizers"] = 0
            rows.append(
                {
                    **row,
                    "name": name,
                    "module": module,
                    "module_type": module_type,
                    "model": model,
                    "owners": owners.get(id(weight), 0),
                }
            )
        self._at_last = self._before
        self._before, self._gradients = {}, {}
        self.rows, self.groups = {}, []
        self._backward.clear()
        self._kept.clear()
        self._outside.clear()
        return rows

    # --- one parameter ---

    def _before_update(self, name: str, weight: torch.Tensor, size: float | None, label: str, rate: float) -> None:
        values = sample(weight)
        row = self.rows.get(name)
        if row is not None:
            # A closure may be evaluated several times.
            row["optimizers"] += row["optimizer"] != label
            row["optimizer"] = label
            row["gradient"] = max(row["gradient"], _state(size))
            self._before[name] = values
            if weight.grad is not None:
                self._gradients[name] = sample(weight.grad)
            return
        row = self.rows[name] = _described(weight)
        row |= {
            "optimizer": label,
            "optimizers": 1,
            "rate": rate,
            "gradient": _state(size),
            "gradient_norm": math.nan if size is None else size,
            "norm": norm([weight])[0],
            "fingerprint": fingerprint([values]),
            "is_kept": id(weight) in self._kept,
        }
        self._before[name] = values
        if weight.grad is not None:
            self._gradients[name] = sample(weight.grad)
        row |= self._outside.get(name, {})


def _state(size: float | None) -> int:
    return 0 if size is None else 1 if size == 0 else 2


def _described(weight: torch.Tensor) -> dict[str, Any]:
    return {
        "shape": shape_text(weight.shape),
        "dtype": str(weight.dtype).removeprefix("torch."),
        "elements": weight.numel(),
        "is_trainable": bool(weight.requires_grad),
        "gradient": 0,
        "equal_units": _has_equal_units(weight),
    }


def _has_equal_units(weight: torch.Tensor) -> bool:
    """Whether all rows of a matrix are the same, and not 0."""
    values = plain(weight)
    if values.dim() < 2 or values.shape[0] < 2 or not values[0].numel():
        return False
    rows = values[:: -(-values.shape[0] // _UNITS)]
    return bool((rows == rows[0]).all()) and bool(rows[0].any())


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)))


def _root(norms: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in norms))
