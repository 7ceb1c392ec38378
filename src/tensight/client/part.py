"""Base of the parts of a session's client: the session and its connection."""

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
    """A session of a server.

    Parameters
    ----------
    connection : Connection
    record : SessionRecord
        The session, as last read.
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
        """A summary of the session, as it is now.

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
        """Return a paged list; `rows` extracts the total and the rows from a page."""

        def fetch(offset: int, limit: int) -> tuple[int, Sequence[R]]:
            return rows(self._get(page, path, **parameters, offset=offset, limit=limit))

        return Rows(fetch, row_format)


def spoken(kind: type[Record], **values: Any) -> dict[str, Any]:
    """Return arguments as the JSON of a record. InputError if they are invalid."""
    try:
        return kind(**values).model_dump(mode="json")
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise InputError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
