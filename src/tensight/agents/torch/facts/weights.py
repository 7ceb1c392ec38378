"""What updates do to parameters: their gradients, and samples of their elements before and after."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.facts.samples import fingerprint, shape_text
from tensight.agents.facts.weights import (
    MOST_PARAMETERS,
    Labels,
    WeightSamples,
    are_equal_units,
    gradient_state,
    is_evenly_spread,
    root_of_squares,
    units_compared,
)
from tensight.agents.torch.arrays import version_of
from tensight.agents.torch.discovery import weights_of
from tensight.agents.torch.facts.made_lines import made_line
from tensight.agents.torch.facts.reading import array_of, norm, plain, sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray


class Weights:
    """The parameters of a training, as its optimizers update them.

    Attributes
    ----------
    groups : list of dict
        Rows of ``groups`` of this step.
    labels : Labels
        Names of the optimizers.
    """

    def __init__(self) -> None:
        self.labels = Labels()
        self._samples = WeightSamples()
        self._backward: dict[int, float] = {}
        self._backward_passes: dict[int, int] = {}
        self._all_passes = 0
        self._updated_after: dict[str, int] = {}
        self._used: dict[int, int] = {}
        self._used_gradients: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._kept: set[int] = set()
        self._reached: set[int] = set()
        self._cleared: dict[int, int] = {}
        self._keeps_state: set[str] = set()
        self._met: weakref.WeakSet[Any] = weakref.WeakSet()
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
            if self._samples.is_due(name):
                self._samples.compare_outside(name, sample(weight))

    @property
    def has_moved_outside(self) -> bool:
        """Whether a parameter was written to since its last update."""
        return self._samples.has_moved_outside

    def skip_update(self, optimizer: Any) -> None:
        """Note an update that is not read."""
        self._backward_passes[id(optimizer)] = self._cleared[id(optimizer)] = 0
        self._used.pop(id(optimizer), None)
        for weight in weights_of(optimizer)[:MOST_PARAMETERS]:
            self._used_gradients.pop(id(weight), None)
            self._kept.discard(id(weight))
        self._samples.skip_update()

    def forget(self) -> None:
        """Forget what was seen of earlier steps: something may have come between."""
        self._samples.skip_update()
        for of_earlier in (self._backward, self._backward_passes, self._used, self._used_gradients, self._cleared):
            of_earlier.clear()
        self._kept.clear()
        self._reached.clear()

    def before_swap(self) -> None:
        """Drop all references to gradients."""
        self._used_gradients.clear()

    def backward_ended(self, optimizers: Iterable[Any], scale: float, *, reads: bool) -> None:
        """Note that a backward pass has ended, with the factor by which its loss was scaled."""
        self._all_passes += 1
        for optimizer in optimizers:
            self._backward_passes[id(optimizer)] = self._backward_passes.get(id(optimizer), 0) + 1
            if reads:
                reached = [weight for weight in weights_of(optimizer) if weight.grad is not None]
                self._reached.update(map(id, reached))
                gradients = [weight.grad for weight in reached]
                self.norm_backward = root_of_squares(norm(gradients)) / (scale or 1.0) if gradients else 0.0
                self._backward[id(optimizer)] = self.norm_backward

    def update_begins(
        self,
        optimizer: Any,
        names: Mapping[int, str],
        *,
        is_through_scaler: bool = False,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Read gradients and weights as an optimizer is about to read them; ``more`` is known of its groups."""
        label = self.labels.of(optimizer)
        named_count, listed = 0, set[int]()
        every: list[NDArray[np.generic]] = []
        for number, group in enumerate(optimizer.param_groups):
            weights = group["params"]
            gradients = [weight.grad for weight in weights if weight.grad is not None]
            norms = norm(gradients)
            by_weight = dict(zip((id(weight) for weight in weights if weight.grad is not None), norms, strict=True))
            named = [weight for weight in weights if id(weight) in names]
            sizes = dict(zip(map(id, named), norm(named), strict=True))
            rate = float(group.get("lr", math.nan))
            unknown = 0
            for index, weight in enumerate(weights):
                name = names.get(id(weight))
                if name is None:
                    unknown += 1
                    continue
                named_count += 1
                if named_count <= MOST_PARAMETERS:
                    self._before_update(name, weight, sizes[id(weight)], by_weight.get(id(weight)), label, rate)
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
                    "made_line": made_line(optimizer),
                    "maximizes": bool(group.get("maximize", False)),
                    "parameters": len(weights),
                    "unknown": unknown,
                    "norm_backward": self._backward.get(id(optimizer), math.nan),
                    "norm_update": root_of_squares(norms),
                    "backward_passes": self._backward_passes.get(id(optimizer), 0),
                    "cleared_between": self._cleared.get(id(optimizer), 0),
                    "is_unscaled": not is_through_scaler,
                    **(more or {}),
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
            self._kept.discard(id(weight))
            gradient = weight.grad
            if type(gradient) is torch.Tensor:
                self._used_gradients[id(weight)] = weakref.ref(gradient), version_of(gradient)
            else:
                self._used_gradients.pop(id(weight), None)
        for weight in weights_of(optimizer):
            name = names.get(id(weight))
            if name is not None and name in self.rows and self._samples.has(name):
                self.rows[name] |= self._samples.after_update(name, sample(weight))

    def rates(self, optimizers: Iterable[Any]) -> list[dict[str, Any]]:
        """Return the rows of ``rates``."""
        return [
            {
                "name": f"{self.labels.of(optimizer)} group {number}",
                "optimizer": self.labels.of(optimizer),
                "rate": float(group.get("lr", math.nan)),
                "initial_rate": float(group.get("initial_lr", math.nan)),
            }
            for optimizer in optimizers
            for number, group in enumerate(optimizer.param_groups)
        ]

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
                row = _described(name, weight)
                gradient = weight.grad
                if weight.requires_grad and gradient is not None:
                    row["gradient_norm"] = size = norm([gradient])[0]
                    row["gradient"] = 1 + (size != 0)
                values = sample(weight)
                row["fingerprint"] = fingerprint([values])
                row["is_zero"] = not bool(values.any())
                row["is_initial"] = weight.dim() > 1 and is_evenly_spread(values)
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
        self._samples.end_step()
        self.rows, self.groups = {}, []
        self._backward.clear()
        self._reached.clear()
        return rows

    # --- one parameter ---

    def _before_update(
        self, name: str, weight: torch.Tensor, size: float, size_of_gradient: float | None, label: str, rate: float
    ) -> None:
        values = sample(weight)
        outside = self._samples.before_update(name, values)
        if weight.grad is not None:
            self._samples.keep_gradient(name, sample(weight.grad))
        row = self.rows.get(name)
        if row is not None:
            # A closure may be evaluated several times.
            if row["optimizer"] != label:
                row["optimizers"] += 1
                row["is_updated_apart"] |= self._updated_after[name] != self._all_passes
            self._updated_after[name] = self._all_passes
            row["optimizer"] = label
            row["gradient"] = max(row["gradient"], gradient_state(size_of_gradient))
            return
        self._updated_after[name] = self._all_passes
        self.rows[name] = _described(name, weight) | {
            "optimizer": label,
            "optimizers": 1,
            "is_updated_apart": False,
            "rate": rate,
            "gradient": gradient_state(size_of_gradient),
            "gradient_norm": math.nan if size_of_gradient is None else size_of_gradient,
            "norm": size,
            "fingerprint": fingerprint([values]),
            "is_zero": not weight.requires_grad and not bool(values.any()),
            "is_kept": id(weight) in self._kept,
            "is_cleared": weight.grad is None and id(weight) in self._reached,
            **outside,
        }


def _described(name: str, weight: torch.Tensor) -> dict[str, Any]:
    return {
        "shape": shape_text(weight.shape),
        "dtype": str(weight.dtype).removeprefix("torch."),
        "elements": weight.numel(),
        "is_trainable": bool(weight.requires_grad),
        "gradient": 0,
        "equal_units": _has_equal_units(name, weight),
    }


def _has_equal_units(name: str, weight: torch.Tensor) -> bool:
    values = plain(weight)
    if values.dim() < 2:
        return False
    rows, columns = values.shape[:2]
    if are_equal_units(array_of(values[units_compared(rows)])):
        return True
    # The units of a recurrent layer have rows in each of its gates.
    if not name.rpartition(".")[2].startswith("weight_hh") or columns < 2 or rows % columns:
        return False
    gates = values.split(columns)
    return all(are_equal_units(array_of(gate[units_compared(columns)])) for gate in gates)
