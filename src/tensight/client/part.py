"""What every part of a session's client knows: which session, and the way to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from tensight.client.connection import part
from tensight.client.rows import Rows
from tensight.errors import InputError
from tensight.sessions.records import SessionRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensight.client.connection import Connection
    from tensight.client.rows import RowFormat
    from tensight.sessions.records import Record

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class SessionPart:
    """One session of a server.

    Parameters
    ----------
    connection : Connection
    record : SessionRecord
        What is known of it.
    """

    def __init__(self, connection: Connection, record: SessionRecord) -> None:
        self._connection = connection
        self._known = record

    @property
    def id(self) -> str:
        """The session's id on the server.

        Examples
        --------
        >>> server.session(session.id).name
        'sick-2.10.0'
        """
        return self._known.id

    @property
    def name(self) -> str:
        """Name of the job, or of the dump.

        Examples
        --------
        >>> session.name
        'sick-2.10.0'
        """
        return self._known.name

    @property
    def summary(self) -> SessionRecord:
        """The session at a glance, as it is now.

        Examples
        --------
        >>> session.summary.total_steps
        4
        """
        self._known = self._connection.get(SessionRecord, self._path())
        return self._known

    def _path(self, *names: str) -> str:
        return "/".join(("/sessions", part(self.id), *names))

    def _get(self, kind: type[T], path: str, /, **parameters: Any) -> T:
        return self._connection.get(kind, self._path(path), **parameters)

    def _rows(
        self,
        path: str,
        parameters: dict[str, Any],
        page: type[P],
        rows: Callable[[P], tuple[int, Sequence[R]]],
        row_format: RowFormat[R],
    ) -> Rows[R]:
        """Return a list that comes in pages; `rows` takes the total and the rows out of one."""

        def fetch(offset: int, limit: int) -> tuple[int, Sequence[R]]:
            return rows(self._get(page, path, **parameters, offset=offset, limit=limit))

        return Rows(fetch, row_format)


def spoken(kind: type[Record], **values: Any) -> dict[str, Any]:
    """Return what a person asked for as the JSON of a record. InputError for what cannot be asked for."""
    try:
        return kind(**values).model_dump(mode="json")
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise InputError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
