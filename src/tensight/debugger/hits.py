"""Watchpoints and their hits in the drop-in API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.debugger.arguments import require_type
from tensight.debugger.conditions import ConditionBase
from tensight.debugger.exceptions import DebuggerParamTypeError
from tensight.debugger.nodes import DebuggerTensor

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_VALUE = 32
"""The error code of a watched tensor that was not dumped."""

NO_HISTORY = 16
"""The error code of a watched tensor whose graph has no execution history."""

_MESSAGES = (
    "Tensor contains NaN.",
    "A tensor contains +/-INF.",
    "The previous step value cannot be found.",
    "The tensor size exceeds the memory limit.",
    "Graph history file is not available.",
    "Tensor has no value.",
)


class Watchpoint:
    """Tensors, and the condition to check on them.

    Parameters
    ----------
    tensors : list of DebuggerTensor
        The tensors to watch.
    condition : ConditionBase
        The condition.

    Raises
    ------
    DebuggerParamTypeError
        An argument has a different type.
    """

    def __init__(self, tensors: list[DebuggerTensor], condition: ConditionBase) -> None:
        if not isinstance(tensors, list):
            raise DebuggerParamTypeError(
                f"The type of tensors should be list of DebuggerTensor. But the actual type is {type(tensors)}"
            )
        for index, tensor in enumerate(tensors):
            if not isinstance(tensor, DebuggerTensor):
                raise DebuggerParamTypeError(
                    f"The type of tensors should be list of DebuggerTensor. But the {index} value is {type(tensor)}."
                )
        require_type("condition", condition, ConditionBase)
        self._tensors = tensors
        self._condition = condition

    @property
    def tensors(self) -> list[DebuggerTensor]:
        """The tensors to watch."""
        return self._tensors

    @property
    def condition(self) -> ConditionBase:
        """The condition."""
        return self._condition


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a condition in the detail of a hit.

    Attributes
    ----------
    name : str
        Its name.
    disabled : bool
        Whether the condition was given without it.
    value : float
        Its value; 0 when disabled.
    hit : bool
        Whether the tensor hit this threshold.
    actual_value : float
        The value of the tensor; 0 when disabled or when there is nothing to compare.
    """

    name: str
    disabled: bool
    value: float
    hit: bool
    actual_value: float


class HitDetail(ConditionBase):
    """The condition of a hit, with the actual values.

    Parameters
    ----------
    condition : ConditionBase
        The condition that was checked.
    parameters : list of Parameter
        All its parameters in the declared order.
    """

    def __init__(self, condition: ConditionBase, parameters: list[Parameter]) -> None:
        self._condition = condition
        self._parameters = parameters

    @property
    def name(self) -> str:
        """The name of the condition."""
        return self._condition.name

    @property
    def condition_id(self) -> int:
        """The number of the condition."""
        return self._condition.condition_id

    @property
    def param_dict(self) -> list[Parameter]:  # type: ignore[override]  # the original returns a list here, too
        """All parameters in the declared order, with actual values."""
        return list(self._parameters)

    def __str__(self) -> str:
        """Return settings and actual values of the parameters that hit."""
        hit = [parameter for parameter in self._parameters if parameter.hit]
        if not hit:
            return "None."
        settings = ", ".join(f"{parameter.name} = {parameter.value}" for parameter in hit)
        actual = ", ".join(f"{parameter.name} = {parameter.actual_value}" for parameter in hit)
        return f"The setting for watchpoint is {settings}. The actual value of the tensor is {actual}."


class WatchpointHit:
    """A tensor that met the condition of a watchpoint, or on which the condition could not be checked.

    Obtain them from `DumpAnalyzer.check_watchpoints`.

    Parameters
    ----------
    tensor : DebuggerTensor
        The tensor.
    condition : ConditionBase
        The condition.
    error_code : int
        0, or bits for the reasons why the condition could not be checked: 1 NaN, 2 infinite elements, 4 no value of the
        previous iteration, 8 out of memory, 16 no execution history, 32 not dumped.
    actual : mapping of str to float, optional
        Actual values by parameter.
    parameter_hit : mapping of str to bool, optional
        Whether each parameter hit.
    """

    __slots__ = ("_actual", "_condition", "_error_code", "_parameter_hit", "_tensor")

    def __init__(
        self,
        tensor: DebuggerTensor,
        condition: ConditionBase,
        error_code: int = 0,
        actual: Mapping[str, float] | None = None,
        parameter_hit: Mapping[str, bool] | None = None,
    ) -> None:
        self._tensor = tensor
        self._condition = condition
        self._error_code = error_code
        self._actual = actual or {}
        self._parameter_hit = parameter_hit or {}

    @property
    def error_code(self) -> int:
        """0, or bits for the reasons why the condition could not be checked."""
        return self._error_code

    @property
    def error_msg(self) -> list[str]:
        """A sentence for each bit of the error code."""
        return [message for bit, message in enumerate(_MESSAGES) if self._error_code >> bit & 1]

    @property
    def tensor(self) -> DebuggerTensor:
        """The tensor."""
        return self._tensor

    def get_threshold(self) -> ConditionBase:
        """Return the condition with its thresholds."""
        return self._condition

    def get_hit_detail(self) -> HitDetail | None:
        """Return thresholds and actual values, None if the condition could not be checked."""
        if self._error_code:
            return None
        given = self._condition.param_dict
        names: list[str] = getattr(self._condition, "param_names", list(given))
        parameters = [
            Parameter(
                name,
                disabled=name not in given,
                value=float(given.get(name, 0.0)),
                hit=bool(self._parameter_hit.get(name, False)),
                actual_value=float(self._actual.get(name, 0.0)),
            )
            for name in names
        ]
        return HitDetail(self._condition, parameters)

    def __str__(self) -> str:
        """Return the event, the tensor, the thresholds, and the detail or the error.

        The text is exactly the original's: nothing separates the tensor from the word Threshold.
        """
        name, threshold = self._condition.name, self._condition
        if self._error_code:
            return (
                f"Watchpoint {name} check failed on tensor:\n{self._tensor}Threshold: {threshold}\n"
                f"Error detail: {self.error_msg}"
            )
        return (
            f"Watchpoint {name} triggered on tensor:\n{self._tensor}Threshold: {threshold}\n"
            f"Hit detail: {self.get_hit_detail()}"
        )
