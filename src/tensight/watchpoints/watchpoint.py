"""Watchpoints: a check and the tensors that it watches; and their hits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from tensight.errors import InputError
from tensight.graph import text_pattern
from tensight.watchpoints.error_codes import error_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensight.watchpoints.checks import ConditionCheck
    from tensight.watchpoints.evaluation import Evaluation


class Severity(Enum):
    """Severity of a hit: an error breaks the training, a warning may have a harmless cause."""

    ERROR = "error"
    WARNING = "warning"


class SelectorKind(Enum):
    """The ways to select tensors."""

    ALL = "all"
    """Every tensor except constants."""
    WEIGHTS = "weights"
    """Trained parameters: an optimizer updates them, or they require a gradient."""
    TRAINABLE_WEIGHTS = "trainable_weights"
    """The same as `WEIGHTS`."""
    GRADIENTS = "gradients"
    """Outputs of operators of the backward pass."""
    ACTIVATIONS = "activations"
    """Outputs of all activation functions."""
    ACTIVATION = "activation"
    """Outputs of certain activation functions: ``activation:relu,reluv2``, operator types in lower case."""
    HIDDEN = "hidden"
    """Outputs of forward operators that depend on weights and go into further operators with weights."""
    HIDDEN_ACTIVATION = "hidden_activation"
    """Hidden outputs of certain activation functions: ``hidden_activation:tanh``."""
    MATRICES = "matrices"
    """Trained weights with two or more dimensions."""
    INNER_MATRICES = "inner_matrices"
    """Matrices without a good reason to start at zero: all data passes through their layers to further ones."""
    MATRIX_GRADIENTS = "matrix_gradients"
    """Gradients of matrices, as an optimizer reads them."""
    NAME = "name"
    """Tensors whose node name matches a regular expression: ``name:conv1.*weight``."""
    TYPE = "type"
    """Outputs of operators of certain types: ``type:MatMul,Conv2D``."""


_WITH_ARGUMENT = {SelectorKind.ACTIVATION, SelectorKind.HIDDEN_ACTIVATION, SelectorKind.NAME, SelectorKind.TYPE}


# Training processes match with Python's engine, sessions with RE2.
_AMBIGUOUS = re.compile(r"\{,\d*\}|\[\[:\w+:\]")


@dataclass(frozen=True, slots=True)
class Selector:
    """The tensors that a watchpoint watches; `tensight.watchpoints.selection` applies it to a graph.

    Attributes
    ----------
    kind : SelectorKind
        The rule.
    argument : str
        Argument of the rule; empty for kinds without one.
    """

    kind: SelectorKind
    argument: str = ""

    def __post_init__(self) -> None:
        """Refuse a missing or superfluous argument, and an invalid regular expression."""
        if bool(self.argument) != (self.kind in _WITH_ARGUMENT):
            rule = "needs an" if self.kind in _WITH_ARGUMENT else "takes no"
            raise InputError(f"the selector {self.kind.value!r} {rule} argument after a colon")
        if self.kind is SelectorKind.NAME:
            text_pattern(self.argument)
            ambiguous = _AMBIGUOUS.search(self.argument)
            if ambiguous is not None:
                raise InputError(
                    f"{ambiguous[0]!r} means different things to different engines of regular expressions; write"
                    " {0,n} for {,n}, and [A-Za-z] for [[:alpha:]]"
                )

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Parse a selector of the form ``kind`` or ``kind:argument``.

        Parameters
        ----------
        text : str
            For example ``gradients`` or ``type:Conv2d``.

        Raises
        ------
        InputError
            There is no such kind, or its argument is missing or wrong.
        """
        name, _, argument = text.partition(":")
        try:
            kind = SelectorKind(name.strip().lower())
        except ValueError:
            kinds = ", ".join(k.value + (":…" if k in _WITH_ARGUMENT else "") for k in SelectorKind)
            raise InputError(f"there is no selector {text[:80]!r}; known ones: {kinds}") from None
        return cls(kind, argument)

    @property
    def names(self) -> tuple[str, ...]:
        """The comma-separated names in the argument, without blanks."""
        return tuple(part.strip() for part in self.argument.split(",") if part.strip())

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.argument}" if self.argument else self.kind.value


ALL_TENSORS = Selector(SelectorKind.ALL)
"""Selects every tensor except constants."""

MOST_PERSISTENCE = 1_000_000
"""Maximum persistence of a watchpoint in steps."""


@dataclass(frozen=True, slots=True)
class Watchpoint:
    """A check on some of the tensors of a run.

    Attributes
    ----------
    id : int
        A number from 1, unique among the watchpoints of a run.
    name : str
        Display name; empty if it has none.
    check : ConditionCheck
        The check.
    selection : Selector
        The watched tensors.
    severity : Severity
        Severity of its hits; lists show errors first.
    persistence : int
        Number of steps in a row in which the condition must hold on a tensor before it is a hit. Steps in which the
        tensor was not seen do not count.
    """

    id: int
    name: str
    check: ConditionCheck
    selection: Selector = ALL_TENSORS
    severity: Severity = Severity.WARNING
    persistence: int = 1

    def __post_init__(self) -> None:
        """Refuse an id that the protocol cannot carry, and a persistence that cannot be reached."""
        if not 1 <= self.id < 2**31:
            raise InputError(f"the id of a watchpoint must be from 1 to {2**31 - 1}; got {self.id}")
        if not 1 <= self.persistence <= MOST_PERSISTENCE:
            raise InputError(
                f"the persistence of a watchpoint must be from 1 to {MOST_PERSISTENCE:,} steps; got {self.persistence}"
            )

    @property
    def text(self) -> str:
        """The check, with the persistence if it is not 1, as a line that ``parse_watch`` reads back."""
        return self.check.text if self.persistence == 1 else f"{self.check.text} persist={self.persistence}"

    def __str__(self) -> str:
        return f"{self.id}: {self.name or self.text} on {self.selection}"


@dataclass(frozen=True, slots=True)
class Hit:
    """A tensor on which a watchpoint hit, or on which its check failed.

    Attributes
    ----------
    tensor : object
        The tensor, in any form.
    watchpoint : Watchpoint
        The watchpoint.
    hit : bool
        Whether the check hit; False if it is reported only because the check could not be made.
    error_code : int
        ``ErrorCode`` bits: why the check could not be made, or with a hit, that the tensor also has NaN or Inf.
    actual : mapping of str to float
        The value of the tensor, for each threshold in effect.
    parameters_hit : tuple of str
        The thresholds that hit, in the declared order.
    """

    tensor: Any
    watchpoint: Watchpoint
    hit: bool = True
    error_code: int = 0
    actual: Mapping[str, float] = field(default_factory=dict, hash=False)
    parameters_hit: tuple[str, ...] = ()

    @property
    def error_words(self) -> tuple[str, ...]:
        """The texts of the error code, one sentence per bit."""
        return error_words(self.error_code)


def hits(watchpoint: Watchpoint, evaluation: Evaluation, tensors: Sequence[Any]) -> list[Hit]:
    """Return the hits of a watchpoint.

    Parameters
    ----------
    watchpoint : Watchpoint
        The watchpoint whose check was evaluated.
    evaluation : Evaluation
        Its verdicts, shape (rows,).
    tensors : sequence of length rows
        The tensor of each row, in any form.

    Returns
    -------
    list of Hit
        One per reported row, in row order.

    Raises
    ------
    InputError
        The numbers of tensors and rows differ.
    """
    if len(tensors) != len(evaluation.hit):
        raise InputError(f"{len(evaluation.hit)} rows were evaluated, but {len(tensors)} tensors given")
    return [
        Hit(
            tensors[row],
            watchpoint,
            hit=bool(evaluation.hit[row]),
            error_code=int(evaluation.error_code[row]),
            actual={name: float(values[row]) for name, values in evaluation.actual.items()},
            parameters_hit=tuple(name for name, flags in evaluation.parameter_hit.items() if flags[row]),
        )
        for row in evaluation.reported.nonzero()[0].tolist()
    ]
