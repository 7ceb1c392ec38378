"""Names that operators of a recording have in the training, where their files have others, in a field of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph.protobuf_fields import length_delimited, length_delimited_fields
from tensight.graph.values import decode_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OWN_NAMES = 1001
"""The field of a GraphProto."""

_FULL_NAME, _OWN_NAME = 1, 2


def serialized_own_names(file_names: Mapping[str, str]) -> bytes:
    """Return names as fields of a GraphProto, to be appended to one that is serialized.

    Parameters
    ----------
    file_names : mapping of str to str
        The name by which the files of an operator are found, by its own name. Those that are the same are left out.
    """
    return b"".join(
        length_delimited(
            OWN_NAMES,
            length_delimited(_FULL_NAME, file_name.encode("utf-8", "backslashreplace"))
            + length_delimited(_OWN_NAME, name.encode("utf-8", "backslashreplace")),
        )
        for name, file_name in file_names.items()
        if name != file_name
    )


def read_own_names(entries: Iterable[memoryview]) -> dict[str, str]:
    """Read the contents of the fields: the own name of an operator by the name in the file.

    Raises
    ------
    ProtobufFormatError
        They cannot be read.
    """
    names: dict[str, str] = {}
    for entry in entries:
        parts = {number: decode_text(bytes(content)) for number, content in length_delimited_fields(entry)}
        if parts.get(_FULL_NAME) and parts.get(_OWN_NAME):
            names[parts[_FULL_NAME]] = parts[_OWN_NAME]
    return names
