"""What the optimizers of a MindSpore training hold: gradients that they are given, and samples before and after."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

from tensight.agents.facts.samples import fingerprint, shape_text
from tensight.agents.facts.weights import (
    MOST_PARAMETERS,
    Labels,
    WeightSamples,
    are_equal_units,
    gradient_state,
    root_of_squares,
    units_compared,
)
from tensight.agents.mindspore.arrays import name_of
from tensight.agents.mindspore.facts.optimizers import groups_of, has_scale
from tensight.agents.mindspore.facts.reading import norm_of, sample_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mindspore import nn
    from numpy.typing import NDArray

    from tensight.agents.mindspore.facts.reading import Reading

UNKNOWN_GRADIENT = -1


class Weights:
    """The parameters of a training, as its optimizers update them.

    Parameters
    ----------
    reading : Reading

    Attributes
    ----------
    groups : list of dict
        Rows of ``groups`` of this step.
    norm_backward : float
        Norm of all gradients of the last optimizer after the last backward pass; NaN if they are unknown.
    """

    def __init__(self, reading: Reading) -> None:
        self.labels = Labels()
        self.groups: list[dict[str, Any]] = []
        self.norm_backward = math.nan
        self._reading = reading
        self._samples = WeightSamples()
        self._rows: dict[str, dict[str, Any]] = {}
        self._used: dict[int, int] = {}
        self._backward_passes = 0
        self._met: weakref.WeakSet[Any] = weakref.WeakSet()
        self._kinds: set[str] = set()

    def backward_ended(self) -> None:
        """Note that gradients were computed."""
        self._backward_passes += 1

    def step_begins(self, optimizers: Iterable[nn.Optimizer], names: Mapping[int, str]) -> None:
        """Compare weights with what their last updates have left, before anything is computed in a step."""
        for optimizer in optimizers:
            for weight in list(optimizer.parameters)[:MOST_PARAMETERS]:
                name = names.get(id(weight), "")
                if self._samples.is_due(name):
                    self._samples.compare_outside(name, self._reading.sample(weight))

    def skip_update(self) -> None:
        """Note an update that is not read."""
        self._samples.skip_update()
        self._used.clear()
        self._backward_passes = 0

    def update_begins(self, optimizer: nn.Optimizer, names: Mapping[int, str]) -> None:
        """Read rates and weights as an optimizer is about to read them."""
        label = self.labels.of(optimizer)
        kind = type(optimizer).__name__
        is_new = optimizer not in self._met and kind in self._kinds
        self._met.add(optimizer)
        if _keeps_state(optimizer):
            self._kinds.add(kind)
        for number, group in enumerate(groups_of(optimizer)):
            unknown = 0
            for weight in group.parameters:
                name = names.get(id(weight))
                if name is None:
                    unknown += 1
                elif len(self._rows) < MOST_PARAMETERS:
                    self._before_update(name, weight, label, group.rate)
            self.groups.append(
                {
                    "name": f"{label} group {number}",
                    "optimizer": label,
                    "rate": group.rate,
                    "decay": group.decay,
                    "maximizes": group.maximizes,
                    "parameters": len(group.parameters),
                    "unknown": unknown,
                    "norm_backward": math.nan,
                    "norm_update": math.nan,
                    "backward_passes": self._backward_passes,
                    "is_unscaled": not has_scale(optimizer),
                    "is_new": is_new,
                }
            )
        self._backward_passes = 0

    def read_gradients(
        self,
        optimizer: nn.Optimizer,
        gradients: Mapping[int, NDArray[Any] | None],
        names: Mapping[int, str],
        norm_backward: float,
    ) -> None:
        """Note the gradients of an update.

        Parameters
        ----------
        optimizer : Optimizer
        gradients : mapping of int to ndarray or None
            By the identities of parameters; None for one that the loss does not depend on. Others are unknown.
        names : mapping of int to str
        norm_backward : float
            Their norm when the backward pass had computed them, without the factor of a loss scaler.
        """
        label = self.labels.of(optimizer)
        groups = [row for row in self.groups if row["optimizer"] == label]
        every: list[NDArray[Any]] = []
        for row, group in zip(groups, groups_of(optimizer), strict=False):
            norms = []
            for weight in group.parameters:
                if id(weight) not in gradients:
                    continue
                gradient = gradients[id(weight)]
                norm = None if gradient is None else norm_of(gradient)
                norms.append(norm or 0.0)
                name = names.get(id(weight), "")
                if gradient is not None:
                    sampled = sample_of(gradient)
                    every.append(sampled)
                    self._samples.keep_gradient(name, sampled)
                if name in self._rows:
                    of_weight = self._rows[name]
                    of_weight["gradient"] = max(of_weight["gradient"], gradient_state(norm))
                    of_weight["gradient_norm"] = math.nan if norm is None else norm
            row["norm_update"] = root_of_squares(norms) if norms else math.nan
            row["norm_backward"] = norm_backward
        used = fingerprint(every) if any(values.any() for values in every) else 0
        for row in groups:
            row["is_repeated"] = bool(used) and self._used.get(id(optimizer)) == used
        self._used[id(optimizer)] = used
        self.norm_backward = norm_backward

    def update_ended(self, optimizer: nn.Optimizer, names: Mapping[int, str]) -> None:
        """Compare the weights with what they were before an update."""
        for weight in optimizer.parameters:
            name = names.get(id(weight))
            if name is not None and name in self._rows and self._samples.has(name):
                self._rows[name] |= self._samples.after_update(name, self._reading.sample(weight))

    def rates(self, optimizer: nn.Optimizer) -> list[dict[str, Any]]:
        """Return the rows of ``rates`` of an optimizer that is about to update."""
        label = self.labels.of(optimizer)
        return [
            {
                "name": f"{label} group {number}",
                "optimizer": label,
                "rate": group.rate,
                "initial_rate": group.initial_rate,
            }
            for number, group in enumerate(groups_of(optimizer))
        ]

    def take(
        self,
        named: Sequence[tuple[str, Any, str, str, int, bool]],
        owners: Mapping[int, int],
        read: Mapping[int, bool],
    ) -> list[dict[str, Any]]:
        """Return the rows of ``parameters`` of the step that has ended, and begin the next one.

        Parameters
        ----------
        named : sequence of (str, Parameter, str, str, int, bool)
            Name, parameter, module, class of the module, number of the model, and whether it is no part of the model
            that calls it.
        owners : mapping of int to int
            How many optimizers hold a parameter, by its identity.
        read : mapping of int to bool
            Whether the loss of this step was computed from a parameter, as far as known.
        """
        rows: list[dict[str, Any]] = []
        if len(named) > MOST_PARAMETERS:
            named = [*named[: MOST_PARAMETERS // 2], *named[-MOST_PARAMETERS // 2 :]]
        for name, weight, module, module_type, model, is_nested in named:
            row = self._rows.get(name)
            if row is None:
                row = self._described(weight)
                row |= {"fingerprint": fingerprint([self._reading.sample(weight)]), "optimizers": 0}
            rows.append(
                {
                    **row,
                    "name": name,
                    "module": module,
                    "module_type": module_type,
                    "model": model,
                    "is_nested": is_nested,
                    "owners": owners.get(id(weight), 0),
                    "is_read": read.get(id(weight), False),
                }
            )
        self._samples.end_step()
        self._rows, self.groups = {}, []
        return rows

    def _before_update(self, name: str, weight: Any, label: str, rate: float) -> None:
        values = self._reading.sample(weight)
        outside = self._samples.before_update(name, values)
        row = self._rows.get(name)
        if row is not None:
            row["optimizers"] += row["optimizer"] != label
            row["optimizer"] = label
            return
        array = self._reading.array(weight)
        self._rows[name] = self._described(weight) | {
            "optimizer": label,
            "optimizers": 1,
            "rate": rate,
            "gradient": UNKNOWN_GRADIENT,
            "norm": math.nan if array is None else norm_of(array),
            "fingerprint": fingerprint([values]),
            **outside,
        }

    def _described(self, weight: Any) -> dict[str, Any]:
        values = self._reading.array(weight)
        return {
            "shape": shape_text(weight.shape),
            "dtype": name_of(weight.dtype),
            "elements": weight.size,
            "is_trainable": bool(weight.requires_grad),
            "gradient": UNKNOWN_GRADIENT,
            "equal_units": values is not None
            and values.ndim > 1
            and are_equal_units(values[units_compared(values.shape[0])]),
        }


def _keeps_state(optimizer: nn.Optimizer) -> bool:
    """Whether an optimizer has more than the weights and its count of steps: averages of gradients."""
    return type(optimizer).__name__ not in ("SGD", "ProximalGradientDescent") and len(optimizer.parameters) > 0
