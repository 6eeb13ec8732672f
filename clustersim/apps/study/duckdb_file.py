"""Tables as Parquet or as a DuckDB database; the only file that knows DuckDB, which is an extra."""

# pyright: reportUnknownMemberType=false
# duckdb declares some of its arguments without full types; nothing it returns is used.

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

TABLE: Final = "points"
"""Table name in a database."""


def write_by_duckdb(table: Path, path: Path, types: Mapping[str, str], file_format: str) -> None:
    """Convert a CSV file to a format of DuckDB.

    Parameters
    ----------
    table
        The CSV file, with its header.
    types
        Of its columns, as SQL has them.
    file_format
        ``parquet`` or ``duckdb``.

    Raises
    ------
    OSError
        When the file cannot be written.
    """
    import duckdb

    columns = ", ".join(f"{_quoted(name)}: {_quoted(kind)}" for name, kind in types.items())
    # Everything in it is a name of ours, or quoted.
    rows = f"SELECT * FROM read_csv({_quoted(str(table))}, header = true, auto_detect = false, quote = '\"', columns = {{{columns}}})"  # noqa: S608
    target = str(path) if file_format == "duckdb" else ":memory:"
    try:
        with duckdb.connect(target) as connection:
            # Several threads would write the rows in another order each time.
            connection.execute("SET threads = 1")
            if file_format == "duckdb":
                connection.execute(f"CREATE TABLE {TABLE} AS {rows}")
            else:
                connection.execute(f"COPY ({rows}) TO {_quoted(str(path))} (FORMAT parquet)")
    except duckdb.IOException as error:
        raise OSError(str(error).partition("\n")[0]) from error


def read_by_duckdb(path: Path) -> list[dict[str, object]]:
    """Return the rows of a Parquet file.

    Raises
    ------
    OSError
        When it cannot be read.
    """
    import duckdb

    try:
        with duckdb.connect(":memory:") as connection:
            connection.execute("SET threads = 1")
            found = connection.execute(f"SELECT * FROM read_parquet({_quoted(str(path))})")  # noqa: S608 - the name is quoted
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    except duckdb.Error as error:
        raise OSError(str(error).partition("\n")[0]) from error


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
