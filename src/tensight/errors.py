"""What can go wrong, for a person: every error says what was wrong, where, and what to do."""

from __future__ import annotations

from dataclasses import dataclass


class TensightError(Exception):
    """Base of every error that Tensight raises on purpose.

    Parameters
    ----------
    *arguments : object
        The message, as of other exceptions.
    code : str, optional
        What went wrong, for programs, where that is narrower than the class; by default the code of the class. All
        codes are in `tensight.error_catalogue`.

    Attributes
    ----------
    code : str
        What went wrong, for programs. Messages may change, codes do not.
    """

    code: str = "error"

    def __init__(self, *arguments: object, code: str | None = None) -> None:
        super().__init__(*arguments)
        if code is not None:
            self.code = code


class InputError(TensightError, ValueError):
    """An argument of the caller is wrong: a name, a range, a query, a condition's parameter."""

    code = "input-invalid"


class DumpError(TensightError):
    """A dump, or a file in it, cannot be read at all."""

    code = "dump-unreadable"


class MissingFileError(DumpError):
    """A file or folder is not there."""

    code = "file-missing"


class GraphError(DumpError):
    """A graph file cannot be read."""

    code = "graph-unreadable"


class TensorFileError(DumpError):
    """The file of one tensor cannot be read; the rest of the dump can."""

    code = "tensor-unreadable"


class CheckpointError(TensightError):
    """A checkpoint, or a file of it, cannot be read, or is refused because it holds more than data."""

    code = "checkpoint-unreadable"


class CurveError(TensightError):
    """A log or an event file cannot be read, or holds no loss."""

    code = "curve-unreadable"


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
