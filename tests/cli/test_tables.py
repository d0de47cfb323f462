"""Files come back in the form that they had: dates, truth values, whole numbers, zeros in front."""

from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from combutab.cli import main
from combutab.cli._files import FileFormat, Reading, read_file, write_table


def read(text, tmp_path, name="t.csv"):
    path = tmp_path / name
    path.write_text(text)
    return read_file(path, Reading())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2024-01-05", "2023-12-31"], "date"),
        (["05.01.2024", "31.12.2023"], "date"),
        (["05/01/2024", "31/12/2023"], "date"),
        (["01/05/2024", "12/31/2023"], "date"),
        (["2024-01-05 10:30", "2023-12-31 00:00"], "date"),
        (["2024-01-05T10:30:59Z", ""], "date"),
        (["2024-01-05T10:30:59.123456", ""], "date"),
        (["31/12/2023 23:59", "01/02/2024 00:00"], "date"),
        (["01/02/2024", "03/04/2024"], "text"),  # days or months first: nothing tells
        (["2024-01-05", "soon"], "text"),
        (["2024-13-05", "2023-12-31"], "text"),
        (["00501", "02139"], "text"),
        (["0", "10"], "whole"),
        (["9007199254740993", ""], "whole"),
        (["0.5", "10.0"], "float"),
        (["3.0", ""], "float"),
        (["1e5", ""], "float"),
        (["99999999999999999999", ""], "text"),
        (["true", "false"], "bool"),
        (["TRUE", "FALSE", ""], "bool"),
        (["True", "True"], "bool"),
        (["x", ""], "text"),
        (["", ""], "float"),
    ],
)
def test_columns_are_recognised_and_written_as_they_were(tmp_path, values, kind):
    lines = [f"{value},{i}" for i, value in enumerate(values)]
    text = "\n".join(["a,b", *lines, ""])
    table, forms = read(text, tmp_path)
    column = table["a"]
    types = pd.api.types
    found = (
        "date" if types.is_datetime64_any_dtype(column.dtype)
        else "bool" if types.infer_dtype(column, skipna=True) == "boolean"
        else "whole" if types.is_integer_dtype(column.dtype)
        else "float" if types.is_float_dtype(column.dtype)
        else "text"
    )  # fmt: skip
    assert found == kind
    if values[0] != "1e5":
        write_table(table, FileFormat.from_json(asdict(forms)), tmp_path / "out.csv")
        assert (tmp_path / "out.csv").read_text() == text


def test_dates_beyond_what_pandas_holds_are_no_failure(tmp_path):
    table, forms = read("a,b\n2024-01-05,1\n9999-12-31,2\n", tmp_path)
    write_table(table, forms, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "a,b\n2024-01-05,1\n9999-12-31,2\n"


def test_parquet_types(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from datetime import date
    from decimal import Decimal

    import pyarrow.parquet as pq

    source = pa.table(
        {
            "day": pa.array([date(2024, 1, 5), None, date(2024, 2, 6)]),
            "n": pa.array([1, None, 2**53 - 1], pa.int64()),
            "price": pa.array([Decimal("1.50"), Decimal("2.25"), None]),
            "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
        }
    )
    pq.write_table(source, tmp_path / "t.parquet")
    table, forms = read_file(tmp_path / "t.parquet", Reading())
    assert [dtype.kind for dtype in table.dtypes] == ["M", "i", "f", "O"]
    write_table(table, forms, tmp_path / "out.parquet")
    made = pq.read_table(tmp_path / "out.parquet")
    assert made.schema.field("day").type == pa.date32()
    assert made.schema.field("n").type == pa.int64()
    for name in ("day", "n", "kind"):
        assert made[name].to_pylist() == source[name].to_pylist()
    assert made["price"].to_pylist() == [1.5, 2.25, None]
    write_table(table, forms, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[1] == "2024-01-05,1,1.5,a"


def test_forms_of_a_strangers_file():
    known = asdict(FileFormat())
    assert FileFormat.from_json(known) == FileFormat()
    for field, value in (
        ("dates", {"a": "%c"}),
        ("dates", []),
        ("truth", {"a": ["no"]}),
        ("truth", {"a": [1, 2]}),
        ("sep", ""),
        ("decimal", ";"),
        ("encoding", "klingon"),
        ("encoding", 8),
    ):
        with pytest.raises(ValueError, match=f"{field} in the format of the table must be"):
            FileFormat.from_json(known | {field: value})


def test_a_synthetic_table_and_a_sample_have_the_files_form(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{1 + i % 28:02d}/{1 + i % 12:02d}/2024,{i % 3:03d},{'true' if i % 2 else 'false'},"
        f"{'' if i % 5 == 0 else i}"
        for i in range(60)
    ]
    Path("t.csv").write_text("\n".join(["day,zip,ok,n", *rows, ""]))
    options = ["--epochs", "1", "--batch-size", "20", "--model", "tvae", "--save", "model"]
    conditions = ["--condition", "ok=true", "--condition", "zip=002"]
    assert main(["synth", "t.csv", "-o", "out.csv", *options, *conditions]) == 0
    assert main(["sample", "model", "-o", "more.csv", "--rows", "60", *conditions]) == 0
    assert Path("more.csv").read_text() == Path("out.csv").read_text()
    made = pd.read_csv("out.csv", dtype=str)
    assert len(made) == 60
    assert made["day"].str.fullmatch(r"[0-3]\d/[01]\d/202[345]").all()
    assert (made["zip"] == "002").all()
    assert (made["ok"] == "true").all()
    assert made["n"].dropna().str.fullmatch(r"\d{1,2}").all()
