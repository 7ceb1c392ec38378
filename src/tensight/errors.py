"""What can go wrong, for a person: every error says what was wrong, where, and what to do."""

from __future__ import annotations

from dataclasses import dataclass


class TensightError(Exception):
    """Base of every error that Tensight raises on purpose."""


class InputError(TensightError, ValueError):
    """An argument of the caller is wrong: a name, a range, a query, a condition's parameter."""


class DumpError(TensightError):
    """A dump, or a file in it, cannot be read at all."""


class GraphError(DumpError):
    """A graph file cannot be read."""


class TensorFileError(DumpError):
    """The file of one tensor cannot be read; the rest of the dump can."""


class CheckpointError(TensightError):
    """A checkpoint, or a file of it, cannot be read, or is refused because it holds more than data."""


class CurveError(TensightError):
    """A log or an event file cannot be read, or holds no loss."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a dump that could not be used, while the rest of the dump still could.

    Attributes
    ----------
    where : str
        The file or folder (path relative to the dump), or the tensor.
    what : str
        What is wrong with it, in one sentence.
    advice : str
        What the person can do about it; empty when there is nothing to do.
    """

    where: str
    what: str
    advice: str = ""

    def __str__(self) -> str:
        """Return one line: where, what, advice."""
        return f"{self.where}: {self.what}" + (f" ({self.advice})" if self.advice else "")
