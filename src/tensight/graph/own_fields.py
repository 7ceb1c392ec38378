"""Fields of a GraphProto that only Tensight writes: what the training process knows of its graph, as pairs of texts.

The process knows whether a parameter requires a gradient and which optimizer has it. A reader of the graph alone can
only infer that (`tensight.graph.optimizers`), and the two would not always agree. And operators of a recording have
names in the training that their files do not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph.declared import ParameterRoles
from tensight.graph.protobuf_fields import length_delimited, length_delimited_fields
from tensight.graph.values import decode_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROLES = 1000
"""The field that holds a parameter's name and its role."""

OWN_NAMES = 1001
"""The field that holds the name by which the files of an operator are found, and its own."""


def serialized_roles(roles: Mapping[str, str]) -> bytes:
    """Return roles as fields of a GraphProto, to be appended to one that is serialized.

    Parameters
    ----------
    roles : mapping of str to str
        By the name of the parameter: ``weight`` for one that is trained, ``frozen_weight``, ``state`` of an optimizer;
        anything else is none of them.
    """
    return _serialized(ROLES, roles.items())


def read_roles(entries: Iterable[memoryview]) -> ParameterRoles | None:
    """Read the contents of the fields; None if there are none.

    Raises
    ------
    ProtobufFormatError
        They cannot be read.
    """
    names: dict[str, set[str]] = {}
    for name, role in _read(entries):
        names.setdefault(role, set()).add(name)
    if not names:
        return None
    found = (frozenset(names.get(role, ())) for role in ("weight", "state", "frozen_weight"))
    return ParameterRoles(*found)


def serialized_own_names(file_names: Mapping[str, str]) -> bytes:
    """Return names as fields of a GraphProto, to be appended to one that is serialized.

    Parameters
    ----------
    file_names : mapping of str to str
        The name by which the files of an operator are found, by its own name. Those that are the same are left out.
    """
    return _serialized(OWN_NAMES, ((file_name, name) for name, file_name in file_names.items() if name != file_name))


def read_own_names(entries: Iterable[memoryview]) -> dict[str, str]:
    """Read the contents of the fields: the own name of an operator by the name in the file.

    Raises
    ------
    ProtobufFormatError
        They cannot be read.
    """
    return {file_name: name for file_name, name in _read(entries) if file_name and name}


def _serialized(field: int, pairs: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(
        length_delimited(
            field,
            b"".join(length_delimited(at, text.encode("utf-8", "backslashreplace")) for at, text in enumerate(pair, 1)),
        )
        for pair in pairs
    )


def _read(entries: Iterable[memoryview]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        parts = {number: decode_text(bytes(content)) for number, content in length_delimited_fields(entry)}
        yield parts.get(1, ""), parts.get(2, "")
