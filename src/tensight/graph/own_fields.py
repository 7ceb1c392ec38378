"""Fields of a GraphProto that only Tensight writes: facts from the training process, as pairs of texts.

The process knows whether a parameter requires a gradient and which optimizer updates it. A reader of the graph can only
infer this (`tensight.graph.optimizers`), not always with the same result. In addition, the files of a recording do not
contain the names that its operators have in the training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph.declared import ParameterRoles
from tensight.graph.protobuf_fields import length_delimited, length_delimited_fields
from tensight.graph.values import decode_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROLES = 1000
"""The field for a parameter's name and its role."""

OWN_NAMES = 1001
"""The field for the name of an operator in file names, and its name in the training."""


def serialized_roles(roles: Mapping[str, str]) -> bytes:
    """Return roles as fields to append to a serialized GraphProto.

    Parameters
    ----------
    roles : mapping of str to str
        Roles by the name of the parameter: ``weight`` for a trained parameter, ``frozen_weight``, or ``state`` for a
        state of an optimizer. Parameters with other values have none of these roles.
    """
    return _serialized(ROLES, roles.items())


def read_roles(entries: Iterable[memoryview]) -> ParameterRoles | None:
    """Read roles from the contents of the fields `ROLES`; None if there are none.

    Raises
    ------
    ProtobufFormatError
        The fields are malformed.
    """
    names: dict[str, set[str]] = {}
    for name, role in _read(entries):
        names.setdefault(role, set()).add(name)
    if not names:
        return None
    by_role = (frozenset(names.get(role, ())) for role in ("weight", "state", "frozen_weight"))
    return ParameterRoles(*by_role)


def serialized_own_names(file_names: Mapping[str, str]) -> bytes:
    """Return names of operators as fields to append to a serialized GraphProto.

    Parameters
    ----------
    file_names : mapping of str to str
        The name of an operator in file names, by its name in the training. Identical names are left out.
    """
    return _serialized(OWN_NAMES, ((file_name, name) for name, file_name in file_names.items() if name != file_name))


def read_own_names(entries: Iterable[memoryview]) -> dict[str, str]:
    """Read the names of operators in the training, by their names in the file, from the fields `OWN_NAMES`.

    Raises
    ------
    ProtobufFormatError
        The fields are malformed.
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
