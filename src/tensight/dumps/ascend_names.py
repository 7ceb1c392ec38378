"""Names of files that Ascend dumps asynchronously; a module without NumPy, like most of the index of a dump."""

from __future__ import annotations

import re
from dataclasses import dataclass

UNKNOWN_STREAM = -1
"""Stream id of a file name that has none."""

_NAME = re.compile(
    r"(?P<type>[^./\\]+)\.(?P<name>[^./\\]+)\.(?P<task>[0-9]{1,19})(?:\.(?P<stream>[0-9]{1,19}))?"
    r"\.(?P<time>[0-9]{1,19})(?P<more>(?:\.[0-9]{1,19}){0,4})"
)


@dataclass(frozen=True, slots=True)
class AscendName:
    """The fields in the name of a dumped file.

    Attributes
    ----------
    op_type, op_name : str
        As in the file name, where dots, slashes, backslashes and spaces became underscores.
    task_id, stream_id, timestamp : int
        ``stream_id`` is -1 in names of the older form; ``timestamp`` is in microseconds.
    extra : tuple of int
        Up to four more numbers that newer releases append (task type, context, thread, device).
    """

    op_type: str
    op_name: str
    task_id: int
    stream_id: int
    timestamp: int
    extra: tuple[int, ...] = ()

    @property
    def is_overflow(self) -> bool:
        """Whether the file is an overflow record (``Opdebug.Node_OpDebug.…``) instead of an operator's tensors."""
        return self.op_type.lower() == "opdebug"


def parse_ascend_name(filename: str) -> AscendName | None:
    """Parse a file name; None if it is not the name of an asynchronously dumped file.

    The form is ``{op_type}.{op_name}.{task}.{stream}.{timestamp}``; older names have no stream, newer ones up to four
    more numbers.
    """
    match = _NAME.fullmatch(filename)
    if match is None:
        return None
    stream = match["stream"]
    return AscendName(
        op_type=match["type"],
        op_name=match["name"],
        task_id=int(match["task"]),
        stream_id=UNKNOWN_STREAM if stream is None else int(stream),
        timestamp=int(match["time"]),
        extra=tuple(int(number) for number in match["more"].split(".")[1:]),
    )
