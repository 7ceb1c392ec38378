"""YAML documents, read safely: duplicate keys are refused, and 1e-5 is a number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Hashable

_YAML_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+")
"""YAML 1.2 reads 1e-5 as a number; PyYAML, which implements YAML 1.1, as text."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which also refuses duplicate keys, and reads 1e-5 as a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key.value!r} is written twice; remove one", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _YAML_FLOAT, list("-+.0123456789"))


class InvalidYamlError(InputError):
    """A text is not a YAML document with keys; the message begins with the line and column."""


def read_document(content: bytes | str) -> dict[str, Any]:
    """Return the content of a YAML document, read as data and never as code.

    Raises
    ------
    InvalidYamlError
        It is not valid YAML, or has no keys.
    """
    try:
        data = yaml.load(content, Loader=_Loader)  # noqa: S506 - it is the safe loader, with a rule more
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f" line {mark.line + 1}, column {mark.column + 1}:"
        raise InvalidYamlError(f"{line} {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidYamlError(f" is not YAML: {what}") from None
    if not isinstance(data, dict):
        raise InvalidYamlError(" has no keys; begin with `command:`, `target:` and `parameters:`")
    return data
