"""SQL over the statistics table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_NAME = "tensors"


def query(table: pa.Table, sql: str) -> pa.Table:
    """Run one SQL query over the statistics table, which it names ``tensors``.

    Parameters
    ----------
    table : pyarrow.Table
        The statistics table.
    sql : str
        A query in DuckDB's dialect. It sees no files, no network and no other database.

    Returns
    -------
    pyarrow.Table
        The result.

    Raises
    ------
    InputError
        If the query is wrong; the message is the database's own.
    """
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": False,
        "lock_configuration": True,
        "python_enable_replacements": False,
    }
    with duckdb.connect(":memory:", config=settings) as connection:
        connection.register(TABLE_NAME, table)
        try:
            found: pa.Table = connection.sql(sql).to_arrow_table()
        except (duckdb.Error, AttributeError, UnicodeError) as error:
            raise InputError(f"the query {sql!r} does not work on the table {TABLE_NAME!r}: {error}") from None
    return found.rename_columns(_distinct(found.column_names))


def _distinct(names: list[str]) -> list[str]:
    """Return names of columns of which none is twice: SQL allows that, programs that ask for a column do not."""
    found: list[str] = []
    for name in names:
        other, number = name, 1
        while other in found:
            number += 1
            other = f"{name}_{number}"
        found.append(other)
    return found
