"""OpenML's answers without a network: they go into the openml package's cache, where it reads them.

The package's ``get_dataset`` and ``list_datasets`` are stood in for: the files that the package
would have asked its server for are written as it writes them, then its own function reads them.
"""

import io
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import pandas as pd

NAMESPACE = 'xmlns:oml="http://openml.org/openml"'


@dataclass
class Table:
    """A data set of OpenML.

    ``columns`` has the kind of each: ``"numeric"``, ``"string"``, or the list of its nominal
    values. Cells are text, None for missing.
    """

    openml_id: int
    name: str
    columns: dict
    rows: list
    target: str | None = None
    version: int = 1
    status: str = "active"
    parquet: bool = False
    more: str = ""  # further elements of the description
    arff: bytes | None = None  # in place of the one made of the rows
    format: str = "ARFF"

    def as_arff(self):
        if self.arff is not None:
            return self.arff
        lines = [f"@RELATION {self.name}"]
        for name, kind in self.columns.items():
            kind = "{" + ",".join(map(_quoted, kind)) + "}" if isinstance(kind, list) else kind
            lines.append(f"@ATTRIBUTE {_quoted(name)} {kind}")
        lines += ["@DATA", *(",".join(map(_quoted, row)) for row in self.rows)]
        return "\n".join(lines).encode() + b"\n"

    def as_parquet(self):
        table = {}
        for i, (name, kind) in enumerate(self.columns.items()):
            cells = [row[i] for row in self.rows]
            if kind == "numeric":
                table[name] = [None if cell is None else float(cell) for cell in cells]
            else:
                table[name] = pd.Categorical(cells, kind) if isinstance(kind, list) else cells
        buffer = io.BytesIO()
        pd.DataFrame(table).to_parquet(buffer)
        return buffer.getvalue()

    def as_description(self):
        body = _elements(
            id=self.openml_id,
            name=self.name,
            version=self.version,
            description="A synthetic table, <small>.",
            format=self.format,
            licence="Public",
            url=f"http://127.0.0.1:9/{self.name}.arff",
            status=self.status,
        )
        if self.target is not None:
            body += _elements(default_target_attribute=self.target)
        if self.parquet:
            body += _elements(parquet_url=f"http://127.0.0.1:9/bucket/dataset_{self.openml_id}.pq")
        return f"<oml:data_set_description {NAMESPACE}>{body}{self.more}</oml:data_set_description>"

    def as_features(self):
        body = ""
        for i, (name, kind) in enumerate(self.columns.items()):
            values = kind if isinstance(kind, list) else []
            feature = _elements(index=i, name=name, data_type="nominal" if values else kind)
            feature += "".join(_elements(nominal_value=value) for value in values)
            missing = sum(row[i] is None for row in self.rows)
            is_target = str(name == self.target).lower()
            feature += _elements(is_target=is_target, number_of_missing_values=missing)
            body += f"<oml:feature>{feature}</oml:feature>"
        return f"<oml:data_features {NAMESPACE}>{body}</oml:data_features>"


def _quoted(cell):
    if cell is None:
        return "?"
    return f"'{cell}'" if set(cell) & set(" ,{}%<") else cell


def _elements(**texts):
    return "".join(f"<oml:{name}>{escape(str(text))}</oml:{name}>" for name, text in texts.items())


class FakeServer:
    """Has ``tables``; ``requests`` has what was asked for; ``fault``, if set, is raised instead."""

    def __init__(self, openml, monkeypatch, *tables):
        self.tables = {table.openml_id: table for table in tables}
        self.requests, self.fault = [], None
        self._openml, self._read = openml, openml.datasets.get_dataset
        monkeypatch.setattr(openml.datasets, "get_dataset", self.get_dataset)
        monkeypatch.setattr(openml.datasets, "list_datasets", self.list_datasets)
        monkeypatch.setattr(openml.config, "server", "http://127.0.0.1:9/api/v1/xml")
        monkeypatch.setattr(openml.config, "connection_n_retries", 1)

    def _ask(self, request):
        self.requests.append(request)
        if self.fault is not None:
            raise self.fault

    def list_datasets(self, *, data_name, data_version, status, output_format):
        assert output_format == "dataframe"
        self._ask(data_name)
        return pd.DataFrame(
            [
                {"did": table.openml_id, "name": table.name, "version": table.version}
                for table in self.tables.values()
                if table.name == data_name
                and data_version in (None, table.version)
                and status in (None, table.status)
            ]
        )

    def get_dataset(self, key, *, force_refresh_cache, **options):
        folder = Path(self._openml.config.get_cache_directory()) / "datasets" / str(key)
        files = {file.name for file in folder.glob("*")}
        data = {"dataset.arff", f"dataset_{key}.pq"}
        whole = {"description.xml", "features.xml"} <= files and data & files
        if force_refresh_cache or not whole:
            self._ask(key)
            table = self.tables.get(key)
            if table is None:
                raise self._openml.exceptions.OpenMLServerNoResult("Unknown dataset", 111, "url")
            folder.mkdir(parents=True, exist_ok=True)
            for file in folder.glob("*.pkl*"):
                file.unlink()
            (folder / "description.xml").write_text(table.as_description(), "utf-8")
            (folder / "features.xml").write_text(table.as_features(), "utf-8")
            if table.parquet:
                (folder / f"dataset_{key}.pq").write_bytes(table.as_parquet())
            else:
                (folder / "dataset.arff").write_bytes(table.as_arff())
        return self._read(key, **options)
