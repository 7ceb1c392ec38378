"""Errors for users: each message says what is wrong, where, and what to do."""

from __future__ import annotations

from dataclasses import dataclass


class TensightError(Exception):
    """Base of every error that Tensight raises on purpose.

    Parameters
    ----------
    *arguments : object
        The message, as for other exceptions.
    code : str, optional
        Code for programs, if it is narrower than that of the class; by default the code of the class. All codes are in
        `tensight.error_catalogue`.

    Attributes
    ----------
    code : str
        Code for programs. Messages may change, codes do not.
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
    """A file or folder does not exist."""

    code = "file-missing"


class GraphError(DumpError):
    """A graph file cannot be read."""

    code = "graph-unreadable"


class TensorFileError(DumpError):
    """The file of a tensor cannot be read; the rest of the dump can."""

    code = "tensor-unreadable"


class CheckpointError(TensightError):
    """A checkpoint, or a file of it, cannot be read, or is refused because it contains more than data."""

    code = "checkpoint-unreadable"


class CurveError(TensightError):
    """A log or an event file cannot be read, or contains no loss."""

    code = "curve-unreadable"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a dump that could not be used, while the rest of the dump could.

    Attributes
    ----------
    where : str
        The file or folder (path relative to the dump), or the tensor.
    what : str
        What is wrong with it, in one sentence.
    advice : str
        What the user can do about it; empty if nothing.
    """

    where: str
    what: str
    advice: str = ""

    def __str__(self) -> str:
        """Return one line: where, what, advice."""
        return f"{self.where}: {self.what}" + (f" ({self.advice})" if self.advice else "")
