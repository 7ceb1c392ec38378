"""What a training process declares its parameters to be, in a field of the graph that it sends or records.

The process knows whether a parameter requires a gradient and which optimizer has it. A reader of the graph alone can
only infer that (`tensight.graph.optimizers`), and the two would not always agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph.optimizers import ParameterRoles
from tensight.graph.protobuf_fields import length_delimited, length_delimited_fields
from tensight.graph.values import decode_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROLES = 1000
"""The field of a GraphProto."""

_PARAMETER, _ROLE = 1, 2


def serialized_roles(roles: Mapping[str, str]) -> bytes:
    """Return roles as fields of a GraphProto, to be appended to one that is serialized.

    Parameters
    ----------
    roles : mapping of str to str
        By the name of the parameter: ``weight`` for one that is trained, ``frozen_weight``, ``state`` of an optimizer;
        anything else is none of them.
    """
    return b"".join(
        length_delimited(
            ROLES,
            length_delimited(_PARAMETER, name.encode("utf-8", "backslashreplace"))
            + length_delimited(_ROLE, role.encode()),
        )
        for name, role in roles.items()
    )


def read_roles(entries: Iterable[memoryview]) -> ParameterRoles | None:
    """Read the contents of the fields; None if there are none.

    Raises
    ------
    ProtobufFormatError
        They cannot be read.
    """
    names: dict[str, set[str]] = {}
    for entry in entries:
        parts = {number: decode_text(bytes(content)) for number, content in length_delimited_fields(entry)}
        names.setdefault(parts.get(_ROLE, ""), set()).add(parts.get(_PARAMETER, ""))
    if not names:
        return None
    found = (frozenset(names.get(role, ())) for role in ("weight", "state", "frozen_weight"))
    return ParameterRoles(*found)
