"""The file of a study: rows that are there stay, byte for byte, whatever happens to the process."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.outputs import read_text, write_text

Row = dict[str, Any]  # values by column; in the file they are text


def as_text(value: Any) -> str:
    """Write a value as in the file.

    >>> as_text(1 / 3), as_text(float("nan")), as_text(None), as_text(True)
    ('0.33333333', '', '', 'True')
    """
    if pd.isna(value):
        return ""
    return f"{value:.8g}" if isinstance(value, float) else str(value)


class Store:
    """A CSV file, and while a study runs an SQLite journal beside it, to which rows are added.

    The file is compressed where its name ends in .gz.

    Parameters
    ----------
    path : path of the CSV file
    columns : its columns
    key : those that tell one network from another
    """

    def __init__(self, path: Path, columns: Sequence[str], key: Sequence[str]) -> None:
        self.path, self.columns, self.key = path, tuple(columns), tuple(key)
        self.journal = path.with_suffix(".journal")

    @contextmanager
    def open(self, wanted: Sequence[Row]) -> Iterator[Journal]:
        """Load what is there, and take rows; at the end, also by an error, the CSV is rewritten.

        Rows are sorted as ``wanted``, which names the settings that each must have; rows of other
        networks (of an earlier, larger study) follow.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(self._connect()) as connection:
            journal = Journal(connection, self.key, self._csv_rows())
            self._refuse_other_settings(journal, wanted)
            try:
                yield journal
            finally:
                self._write(journal, wanted)
                self._drop_journal()  # while other processes are kept out
        if os.name == "nt":  # Windows keeps a file that is open
            self._drop_journal()

    def read(self) -> pd.DataFrame:
        """The rows, with numbers as numbers."""
        text = ("protocol", "data", "task", "activation", "hidden", "loss_curve", "metric_curve")
        dtypes = {
            name: str for name in (*text, "error", "device", "python") if name in self.columns
        }
        table = pd.read_csv(self.path, dtype=dtypes, keep_default_na=False, na_values=[""])
        self._check_columns(table.columns)
        strings = [name for name in dtypes if table[name].isna().any()]
        table[strings] = table[strings].fillna("")
        return table

    def _drop_journal(self) -> None:
        """Remove the journal and SQLite's file beside it, which a kill may have left."""
        for file in (self.journal, self.journal.with_suffix(".journal-journal")):
            with suppress(PermissionError):
                file.unlink(missing_ok=True)

    def _connect(self) -> sqlite3.Connection:
        """Open the journal; other processes are kept out until it is closed."""
        connection = sqlite3.connect(self.journal, timeout=0)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA synchronous = EXTRA")
            with connection:
                connection.execute("BEGIN EXCLUSIVE")
                connection.execute("CREATE TABLE IF NOT EXISTS rows (key PRIMARY KEY, row)")
        except sqlite3.Error as error:
            connection.close()
            if error.sqlite_errorname in ("SQLITE_BUSY", "SQLITE_READONLY_DBMOVED"):
                raise RuntimeError(
                    f"another process is writing to {self.path}; wait for it, or choose another "
                    "--out"
                ) from error
            raise OSError(f"{self.journal} cannot be used: {error}") from error
        return connection

    def _csv_rows(self) -> list[Row]:
        if not self.path.exists():
            return []
        reader = csv.DictReader(io.StringIO(read_text(self.path), newline=""))
        rows = list(reader)
        self._check_columns(reader.fieldnames or ())
        return rows

    def _check_columns(self, there: Iterable[str]) -> None:
        if tuple(there) != self.columns:
            raise ValueError(
                f"{self.path} has other columns than this study writes; move it away, or choose "
                "another --out"
            )

    def _refuse_other_settings(self, journal: Journal, wanted: Sequence[Row]) -> None:
        for settings in wanted:
            row = journal.rows.get(journal.key_of(settings))
            if row is None:
                continue
            other = {n: (row[n], v) for n, v in settings.items() if row[n] != as_text(v)}
            if other:
                name, (there, here) = next(iter(other.items()))
                network = ", ".join(f"{n}={row[n]}" for n in self.key if row[n] != "")
                raise ValueError(
                    f"{self.path} has the network of {network} with {name}={there}, this study "
                    f"wants {name}={here}; move the file away, or choose another --out"
                )

    def _write(self, journal: Journal, wanted: Sequence[Row]) -> None:
        order = {journal.key_of(settings): i for i, settings in enumerate(wanted)}
        rows = sorted(journal.rows.items(), key=lambda item: order.get(item[0], len(order)))
        file = io.StringIO(newline="")
        writer = csv.DictWriter(file, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for _, row in rows)
        write_text(self.path, file.getvalue())


class Journal:
    """The rows so far, and where further ones go."""

    def __init__(
        self, connection: sqlite3.Connection, key: Sequence[str], rows: Sequence[Row]
    ) -> None:
        self._connection, self._key = connection, tuple(key)
        added = connection.execute("SELECT row FROM rows ORDER BY rowid")
        self.rows = {self.key_of(row): row for row in [*rows, *(json.loads(r) for (r,) in added)]}

    def key_of(self, row: Row) -> tuple[str, ...]:
        return tuple(as_text(row[name]) for name in self._key)

    def has(self, settings: Row) -> bool:
        """Whether this network's row is there."""
        return self.key_of(settings) in self.rows

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows, on the disk when this returns."""
        rows = [{name: as_text(value) for name, value in row.items()} for row in rows]
        self.rows |= {self.key_of(row): row for row in rows}
        lines = [(json.dumps(self.key_of(row)), json.dumps(row)) for row in rows]
        try:
            with self._connection:
                self._connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", lines)
        except sqlite3.Error as error:
            raise OSError(f"rows cannot be kept: {error}") from error
