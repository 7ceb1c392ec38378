"""A watchpoint: a check, and which tensors it watches; and its hits."""

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
    """How bad a hit is: an error breaks the training, a warning may have a harmless cause."""

    ERROR = "error"
    WARNING = "warning"


class SelectorKind(Enum):
    """The ways to say which tensors are watched."""

    ALL = "all"
    """Every tensor, constants excepted."""
    WEIGHTS = "weights"
    """Parameters that are trained: an optimizer updates them, or they require a gradient."""
    TRAINABLE_WEIGHTS = "trainable_weights"
    """The same."""
    GRADIENTS = "gradients"
    """Outputs of operators of the backward pass."""
    ACTIVATIONS = "activations"
    """Outputs of all activation functions."""
    ACTIVATION = "activation"
    """Outputs of the activation functions named: ``activation:relu,reluv2``, op types in lower case."""
    HIDDEN = "hidden"
    """Outputs of forward operators that come from weights and go into further ones."""
    HIDDEN_ACTIVATION = "hidden_activation"
    """Those of them that are activation functions named: ``hidden_activation:tanh``."""
    MATRICES = "matrices"
    """Trained weights of two or more dimensions."""
    INNER_MATRICES = "inner_matrices"
    """Those that no good reason lets begin at zero: everything passes their layers on its way to further ones."""
    MATRIX_GRADIENTS = "matrix_gradients"
    """Their gradients, as an optimizer reads them."""
    NAME = "name"
    """Tensors whose node name a regular expression finds: ``name:conv1.*weight``."""
    TYPE = "type"
    """Outputs of operators of the types named: ``type:MatMul,Conv2D``."""


_WITH_ARGUMENT = {SelectorKind.ACTIVATION, SelectorKind.HIDDEN_ACTIVATION, SelectorKind.NAME, SelectorKind.TYPE}


# Training processes match with Python's engine, sessions with RE2.
_AMBIGUOUS = re.compile(r"\{,\d*\}|\[\[:\w+:\]")


@dataclass(frozen=True, slots=True)
class Selector:
    """Which tensors of a graph a watchpoint watches; resolving it against a graph is left to whoever holds one.

    Attributes
    ----------
    kind : SelectorKind
        The rule.
    argument : str
        What the rule looks for; empty for the kinds that need nothing.
    """

    kind: SelectorKind
    argument: str = ""

    def __post_init__(self) -> None:
        """Refuse a rule without its argument, or with one too many, and a regular expression that is none."""
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
        """Read a selector from its text, ``kind`` or ``kind:argument``.

        Parameters
        ----------
        text : str
            Such as ``gradients`` or ``type:Conv2d``.

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
"""Selects every tensor but constants."""

MOST_PERSISTENCE = 1_000_000
"""Steps in a row that a watchpoint can ask for."""


@dataclass(frozen=True, slots=True)
class Watchpoint:
    """A check on some of the tensors of a run.

    Attributes
    ----------
    id : int
        A number from 1, unique among the watchpoints of a run.
    name : str
        A name for people; empty if it has none.
    check : ConditionCheck
        What counts as wrong.
    selection : Selector
        Which tensors are watched.
    severity : Severity
        How bad its hits are; lists show errors first.
    persistence : int
        In how many steps in a row the condition must hold on a tensor before it is a hit. Steps in which the tensor was
        not seen do not count.
    """

    id: int
    name: str
    check: ConditionCheck
    selection: Selector = ALL_TENSORS
    severity: Severity = Severity.WARNING
    persistence: int = 1

    def __post_init__(self) -> None:
        """Refuse an id that the protocol could not carry, and a persistence that could never be reached."""
        if not 1 <= self.id < 2**31:
            raise InputError(f"the id of a watchpoint must be from 1 to {2**31 - 1}; got {self.id}")
        if not 1 <= self.persistence <= MOST_PERSISTENCE:
            raise InputError(
                f"the persistence of a watchpoint must be from 1 to {MOST_PERSISTENCE:,} steps; got {self.persistence}"
            )

    @property
    def text(self) -> str:
        """The check, and the persistence if there is one, as a line that ``parse_watch`` reads back."""
        return self.check.text if self.persistence == 1 else f"{self.check.text} persist={self.persistence}"

    def __str__(self) -> str:
        return f"{self.id}: {self.name or self.text} on {self.selection}"


@dataclass(frozen=True, slots=True)
class Hit:
    """A tensor on which a watchpoint hit, or on which its check failed.

    Attributes
    ----------
    tensor : object
        The tensor, in whatever form the caller addresses it.
    watchpoint : Watchpoint
        The watchpoint.
    hit : bool
        Whether the check hit; False if it is reported only because it could not be made.
    error_code : int
        ``ErrorCode`` bits: why the check could not be made, or beside a hit, that the tensor has NaN or Inf too.
    actual : mapping of str to float
        For each threshold in effect the value of the tensor.
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
        """The error code in words, one sentence per bit."""
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
        One per reported row, in the order of the rows.

    Raises
    ------
    InputError
        There are not as many tensors as rows.
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
