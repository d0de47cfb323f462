"""A server on loopback that speaks the part of OpenML's API that its client uses, faults included.

The answers have the shape of OpenML's own: XML in its namespace, errors with its codes, ARFF files
with a checksum in the description, Parquet files from a bucket, gzip for the API.
"""

import gzip
import hashlib
import http.server
import io
import threading
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

import pandas as pd

NAMESPACE = 'xmlns:oml="http://openml.org/openml"'


@dataclass
class Table:
    """A data set of the server.

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
    qualities: dict | None = field(default_factory=dict)
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


def _quoted(cell):
    if cell is None:
        return "?"
    return f"'{cell}'" if set(cell) & set(" ,{}%<") else cell


class OpenMLServer:
    """Serves ``tables``; ``requests`` has the paths asked for, in order.

    ``faults`` has, for each part of a path, what goes wrong with it: a list with one entry a
    request (the requests after these are answered well), or one entry for all of them. Entries:

    - an int, that status, with an HTML page; an int and bytes, these as its body
    - ``"drop"``: the connection is closed without an answer
    - ``"cut"``: closed in the middle of the body; ``"short"``: half of the body, and no word of it
    - ``"garble"``: other bytes, as many
    - ``"silent"``: no answer; ``"trickle"``: a body byte by byte
    - ``"wait"``: an answer once ``release`` is set
    """

    def __init__(self, *tables):
        self.tables = {table.openml_id: table for table in tables}
        self.requests, self.faults, self.release = [], {}, threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(f"{self.command} {self.path}")
                outer.answer(self)

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.api = f"{self.url}/api/v1/xml"

    def close(self):
        self.release.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    # --- answers and their faults -----------------------------------------------------------------

    def answer(self, handler):
        fault = self._fault(handler.path)
        if fault == "drop":
            return
        if fault in ("silent", "wait"):
            self.release.wait(60)
        if fault == "silent":
            return
        if isinstance(fault, int):
            fault = (fault, b"<html><body><p>Something went wrong.</body></html>")
        status, body = fault if isinstance(fault, tuple) else self._body(handler.path)
        headers = {"ETag": '"e"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
        if fault == "garble":
            body = body[: len(body) // 2] + b"#" * 9 + body[len(body) // 2 + 9 :]
        if fault == "short":
            body = body[: len(body) // 2]
        if handler.path.startswith("/api/"):
            body = gzip.compress(body)
            headers["Content-Encoding"] = "gzip"
        self._send(handler, status, headers, body, fault)

    def _fault(self, path):
        for part, faults in self.faults.items():
            if part in path:
                if isinstance(faults, list):
                    return faults.pop(0) if faults else None
                return faults
        return None

    def _send(self, handler, status, headers, body, fault):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        if fault == "cut":
            handler.wfile.write(body[: len(body) // 2])
        elif fault == "trickle":
            for i in range(len(body)):
                if self.release.wait(0.02):
                    return
                try:
                    handler.wfile.write(body[i : i + 1])
                except OSError:
                    return
        else:
            handler.wfile.write(body)

    # --- what OpenML says -------------------------------------------------------------------------

    def _body(self, path):
        _, *parts = path.split("?")[0].split("/")
        if parts[:3] == ["data", "v1", "download"]:
            return 200, self.tables[int(parts[3])].as_arff()
        if parts[0] == "bucket":
            return 200, self.tables[int(parts[1])].as_parquet()
        parts = parts[4:]  # after api/v1/xml/data
        if parts[0] == "list":
            return self._list(dict(zip(parts[1::2], parts[2::2], strict=True)))
        what, key = parts if len(parts) == 2 else ("description", parts[0])
        table = self.tables.get(int(key))
        if table is None:
            return _error(111, "Unknown dataset")
        if what == "qualities" and table.qualities is None:
            return _error(362, "No qualities found")
        return 200, getattr(self, f"_{what}")(table).encode()

    def _list(self, filters):
        found = [
            table
            for table in self.tables.values()
            if filters.get("data_name", table.name) == table.name
            and filters.get("data_version", str(table.version)) == str(table.version)
            and filters.get("status", table.status) == table.status
        ]
        if not found:
            return _error(372, "No results")
        items = "".join(
            f"<oml:dataset>{_elements(did=t.openml_id, name=t.name, version=t.version)}"
            f"{_elements(status=t.status, format='ARFF', file_id=t.openml_id)}"
            f'<oml:quality name="NumberOfInstances">{len(t.rows)}</oml:quality>'
            f'<oml:quality name="NumberOfFeatures">{len(t.columns)}</oml:quality></oml:dataset>'
            for t in found
        )
        return 200, f"<oml:data {NAMESPACE}>{items}</oml:data>".encode()

    def _description(self, table):
        body = _elements(
            id=table.openml_id,
            name=table.name,
            version=table.version,
            description="A made table, <small>.",
            format=table.format,
            upload_date="2014-04-06T23:23:39",
            licence="Public",
            url=f"{self.url}/data/v1/download/{table.openml_id}/{table.name}.arff",
            file_id=table.openml_id,
            visibility="public",
            status=table.status,
            md5_checksum=hashlib.md5(table.as_arff()).hexdigest(),
        )
        if table.target is not None:
            body += _elements(default_target_attribute=table.target)
        if table.parquet:
            path = f"bucket/{table.openml_id}/dataset_{table.openml_id}.pq"
            body += _elements(parquet_url=f"{self.url}/{path}")
        return (
            f"<oml:data_set_description {NAMESPACE}>{body}{table.more}</oml:data_set_description>"
        )

    def _features(self, table):
        body = ""
        for i, (name, kind) in enumerate(table.columns.items()):
            values = kind if isinstance(kind, list) else []
            feature = _elements(index=i, name=name, data_type="nominal" if values else kind)
            feature += "".join(_elements(nominal_value=value) for value in values)
            missing = sum(row[i] is None for row in table.rows)
            is_target = str(name == table.target).lower()
            feature += _elements(is_target=is_target, number_of_missing_values=missing)
            body += f"<oml:feature>{feature}</oml:feature>"
        return f"<oml:data_features {NAMESPACE}>{body}</oml:data_features>"

    def _qualities(self, table):
        qualities = {"NumberOfInstances": float(len(table.rows)), "AutoCorrelation": "null"}
        body = "".join(
            f"<oml:quality>{_elements(name=name, value=value)}</oml:quality>"
            for name, value in (qualities | table.qualities).items()
        )
        return f"<oml:data_qualities {NAMESPACE}>{body}</oml:data_qualities>"


def _elements(**texts):
    return "".join(f"<oml:{name}>{escape(str(text))}</oml:{name}>" for name, text in texts.items())


def _error(code, message):
    return (
        412,
        f"<oml:error {NAMESPACE}>{_elements(code=code, message=message)}</oml:error>".encode(),
    )
