"""SQL over the statistics table."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

TABLE_NAME = "tensors"


def query(table: pa.Table, sql: str, others: Mapping[str, pa.Table] | None = None) -> pa.Table:
    """Run an SQL query over the statistics table, whose name in the query is ``tensors``.

    Parameters
    ----------
    table : pyarrow.Table
        The statistics table.
    sql : str
        A query in DuckDB's dialect. It cannot access files, the network or other databases.

    others : mapping of str to pyarrow.Table, optional
        Further tables, by name.

    Returns
    -------
    pyarrow.Table
        The result of the query, with unique column names; sums of integers are int64 where they fit.

    Raises
    ------
    InputError
        If the query fails; the message includes that of the database.
    """
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": False,
        "lock_configuration": True,
        "python_enable_replacements": False,
    }
    with duckdb.connect(":memory:", config=settings) as connection:
        for name, other in {**(others or {}), TABLE_NAME: table}.items():
            connection.register(name, other)
        try:
            result: pa.Table = connection.sql(sql).to_arrow_table()
        except (duckdb.Error, AttributeError, UnicodeError) as error:
            raise InputError(f"the query {sql!r} does not work on the table {TABLE_NAME!r}: {error}") from None
    return _with_integers(result).rename_columns(_distinct(result.column_names))


def _with_integers(result: pa.Table) -> pa.Table:
    """Return a table with int64 for sums of integers, which DuckDB returns as decimal numbers of 38 digits."""
    import pyarrow as pa

    for index, field in enumerate(result.schema):
        if field.type == pa.decimal128(38, 0):
            with suppress(pa.ArrowInvalid):  # too large
                result = result.set_column(index, field.name, result.column(index).cast(pa.int64()))
    return result


def _distinct(names: list[str]) -> list[str]:
    """Return unique column names: SQL allows duplicates, but programs that select a column by name do not."""
    distinct: list[str] = []
    for name in names:
        other, number = name, 1
        while other in distinct:
            number += 1
            other = f"{name}_{number}"
        distinct.append(other)
    return distinct
