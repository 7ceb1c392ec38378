"""The errors of the drop-in API, with the class names, codes and messages of MindSpore Insight, which scripts catch."""

from __future__ import annotations

from tensight.errors import DumpError, InputError, TensightError


class DebuggerError(TensightError):
    """Base of the errors that the drop-in API raises under the names of the original.

    Attributes
    ----------
    error_code : str
        The original's code, eight hexadecimal digits.
    message : str
        The text without class name and code.
    """

    error_code = ""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        """Return class name, code and message in one line."""
        return f"[{type(self).__name__}] code: {self.error_code}, msg: {self.message}"


class DebuggerParamValueError(DebuggerError, InputError):
    """An argument has an invalid value: an unknown rank, a missing threshold.

    Parameters
    ----------
    message : str
        What is wrong, without class name and code.
    """

    error_code = "5054B081"

    def __init__(self, message: str) -> None:
        super().__init__(f"ValueError. {message}")


class DebuggerParamTypeError(DebuggerError, TypeError):
    """An argument has the wrong type.

    Parameters
    ----------
    message : str
        What is wrong, without class name and code.
    """

    error_code = "5054B080"

    def __init__(self, message: str) -> None:
        super().__init__(f"TypeError. {message}")


class RankDirNotFound(DebuggerError, DumpError):  # noqa: N818 - the original's name, which scripts catch
    """The folder contains no ``rank_N`` folder with metadata, so it is not a dump.

    Parameters
    ----------
    message : str
        What is wrong, without class name and code.
    """

    error_code = "5054B285"
