"""SQL over the statistics table."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

TABLE_NAME = "tensors"
_EVERYTHING = "select * from stored"


def parquet_pattern(path: Path) -> str:
    """Return the pattern of a path, as DuckDB reads paths, that only this path matches."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))


def query(
    table: pa.Table | Path, sql: str, others: Mapping[str, pa.Table] | None = None, *, view: str = _EVERYTHING
) -> pa.Table:
    """Run an SQL query over the statistics table, whose name in the query is ``tensors``.

    Parameters
    ----------
    table : pyarrow.Table or Path
        The statistics table, or the Parquet file with it, of which only what the query needs is read.
    sql : str
        A query in DuckDB's dialect. It cannot access files, the network or other databases.
    others : mapping of str to pyarrow.Table, optional
        Further tables, by name.
    view : str
        A query over the table, called ``stored``, whose result is called ``tensors``.

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

    with duckdb.connect(":memory:", config={"python_enable_replacements": False}) as connection:
        tables = dict(others or {})
        if isinstance(table, Path):
            connection.execute("set allowed_paths = ?", [[str(table)]])
            connection.read_parquet(parquet_pattern(table)).create_view("stored")
        else:
            tables["stored"] = table
        for name, other in tables.items():
            connection.register(name, other)
        connection.execute("set enable_external_access = false; set lock_configuration = true")
        connection.execute(f"create view {TABLE_NAME} as {view}")
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
