"""Files come back in the form that they had: dates, truth values, whole numbers, zeros in front."""

import importlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import combutab
from combutab.cli import main
from combutab.cli._files import hint_at_odd_columns, read_file, write_table
from combutab.core.textfile import Reading
from combutab.datasets import TableError
from combutab.datasets.formats import FileFormat
from combutab.preprocessing import odd_columns
from combutab.preprocessing.amounts import Amounts
from tests.cli.exports import COUNTRIES, sales, write_export


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
        ("amounts", []),
    ):
        with pytest.raises(ValueError, match=f"{field} in the format of the table must be"):
            FileFormat.from_json(known | {field: value})


def test_synthetic_rows_keep_the_file_format(tmp_path, monkeypatch):
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


# ---- Exports: separators, encodings and amounts --------------------------------------------------

SAID = {
    "us": "read with thousands ','; 'revenue' as numbers in $, 'discount' as numbers in %",
    "ledger": "read with thousands ','; 'discount' as numbers in %",
    "de": "read with separator ';', decimal ',', thousands '.', encoding cp1252; 'revenue' as "
    "numbers in €, 'discount' as numbers in %",
    "sap": "read with separator ';', decimal ',', thousands '.', encoding latin-1; 'revenue' as "
    "numbers in EUR, 'discount' as numbers in %",
    "fr": "read with separator ';', decimal ',', thousands ' '; 'revenue' as numbers in €, "
    "'discount' as numbers in %",
    "ch": "read with separator ';', thousands \"'\", encoding latin-1; 'revenue' as numbers in "
    "CHF, 'discount' as numbers in %",
    "se": "read with decimal ',', thousands ' ', encoding utf-16; 'revenue' as numbers in kr, "
    "'discount' as numbers in %",
}


def export_path(folder, name, country):
    return folder / f"{name}.{'tsv' if COUNTRIES[country].sep == chr(9) else 'csv'}"


@pytest.mark.parametrize("country", COUNTRIES)
def test_exports_round_trip_through_their_format(tmp_path, capsys, country):
    meant = sales(200)
    path = write_export(meant, export_path(tmp_path, "sales", country), country)
    table, forms = read_file(path, Reading())
    assert capsys.readouterr().err == f"combutab: {path.name}: {SAID[country]}\n"
    pd.testing.assert_frame_equal(table, meant, check_dtype=False)
    out = export_path(tmp_path, "out", country)
    write_table(table, FileFormat.from_json(json.loads(json.dumps(asdict(forms)))), out)
    assert out.read_text("utf-8") == path.read_bytes().decode(COUNTRIES[country].encoding)


TEXT = None  # what no number is made of
AMOUNTS = [  # values, what they mean, separator
    (["1.507,67 €", "-3,20 €"], [1507.67, -3.2], ";"),
    (["$1,200", "$950"], [1200, 950], ","),
    (["1.200 €", "950 €"], [1200, 950], ";"),
    (["12 %", "7,5 %"], [12, 7.5], ";"),
    (["(1,200.00)", "3.50"], [-1200, 3.5], ","),
    (["(1.200,50) €", "3,50 €"], [-1200.5, 3.5], ";"),
    (["$(1,200.50)", "$3.50"], [-1200.5, 3.5], ","),
    (["(7)%", "12%"], [-7, 12], ","),
    (["1.234,50-", "2,00"], [-1234.5, 2], ";"),
    (["1\u202f234,5", "12,5"], [1234.5, 12.5], ";"),
    (["CHF 1'200.50", "CHF -1.00"], [1200.5, -1], ";"),
    (["1.234.567", "2.345"], [1234567, 2345], ";"),
    (["1 200", "900"], [1200, 900], ","),
    (["12,50", "9,99"], [12.5, 9.99], ","),
    (["1,3", "2,7"], [1.3, 2.7], ";"),
    (["1.234", "2.5"], [1.234, 2.5], ";"),
    (["1,234", "2,5"], [1.234, 2.5], ";"),
    (["1,234", "12,345,678"], [1234, 12345678], ";"),
    (["1,2", "1,3"], TEXT, ","),  # lists
    (["1,2", "1,2,3"], TEXT, ";"),
    (["1,234", "2,345"], TEXT, ";"),
    (["5 €", "6 $"], TEXT, ";"),
    (["5 €", "6"], TEXT, ";"),
    (["5 €", "gratis"], TEXT, ";"),
    (["01234", "99999"], TEXT, ";"),
    (["0123 €", "5 €"], TEXT, ";"),
    (["1.2.3", "1.10.2"], TEXT, ","),
    (["192.168.100.101", "192.168.100.254"], TEXT, ","),
    (["+49 363 889", "+49 111 222"], TEXT, ","),
    (["974 760 673", "111 222 333"], TEXT, ","),
    (["(12)", "(13)"], TEXT, ","),
    (["((12))", "13"], TEXT, ","),
    (["(12 €", "13 €"], TEXT, ","),
    (["A-1", "5-"], TEXT, ","),
    (["1,234.5", "1.234,5"], TEXT, ";"),
    (["1e5 €", "2 €"], TEXT, ";"),
]


@pytest.mark.parametrize(("values", "meant", "sep"), AMOUNTS)
def test_amounts_are_numbers_where_all_values_agree(tmp_path, values, meant, sep):
    rows = pd.DataFrame({"a": [*values, *values, None], "b": "x"})
    rows.to_csv(tmp_path / "t.csv", index=False, sep=sep)
    table, forms = read_file(tmp_path / "t.csv", Reading())
    if meant is TEXT:
        assert table["a"].dropna().tolist() == [*values, *values]
        assert forms.decimal == "."
        return
    assert table["a"].dropna().tolist() == [*meant, *meant]
    write_table(table, forms, tmp_path / "out.csv")
    if values[0] not in ("1.234", "12,50"):  # of a plain number no form is kept
        assert (tmp_path / "out.csv").read_text() == (tmp_path / "t.csv").read_text()


@pytest.mark.parametrize(
    ("beside", "meant"),
    [(["2,5", "7,25"], [1234, 5678]), (["2.5", "7.25"], [1.234, 5.678]), (["x", "y"], TEXT)],
)
def test_other_columns_tell_what_a_point_is(tmp_path, beside, meant):
    rows = pd.DataFrame({"a": ["1.234", "5.678"], "b": beside, "c": ["1,111", "2,222"]})
    rows.to_csv(tmp_path / "t.csv", index=False, sep=";")
    table, _ = read_file(tmp_path / "t.csv", Reading())
    assert table["a"].tolist() == ([1.234, 5.678] if meant is TEXT else meant)
    other = {TEXT: ["1,111", "2,222"], 1234: [1.111, 2.222], 1.234: [1111, 2222]}
    assert table["c"].tolist() == other[meant and meant[0]]


@pytest.mark.parametrize(
    ("reading", "meant"),
    [
        (Reading(thousands="."), [1234, 5678]),
        (Reading(decimal=","), [1234, 5678]),
        (Reading(decimal="."), [1.234, 5.678]),
        (Reading(thousands=","), [1.234, 5.678]),
    ],
)
def test_what_options_say_counts(tmp_path, capsys, reading, meant):
    (tmp_path / "t.csv").write_text("a;b\n1.234;974 760 673\n5.678;111 222 333\n")
    table, _ = read_file(tmp_path / "t.csv", Reading())
    assert table["a"].tolist() == [1.234, 5.678]
    assert "use --thousands . to read them as thousands separators" in capsys.readouterr().err
    table, _ = read_file(tmp_path / "t.csv", reading)
    assert "--thousands" not in capsys.readouterr().err
    assert table["a"].tolist() == meant
    assert table["b"].tolist() == ["974 760 673", "111 222 333"]
    table, _ = read_file(tmp_path / "t.csv", Reading(thousands=" "))
    assert table["b"].tolist() == [974760673, 111222333]
    capsys.readouterr()


def test_text_in_unknown_letters_is_not_guessed(tmp_path):
    for encoding, text in {"cp1251": "Москва", "koi8-r": "Москва", "gbk": "北京市上海"}.items():
        (tmp_path / "t.csv").write_bytes(f"a,b\n{text},1\n".encode(encoding))
        with pytest.raises(TableError, match="is not utf-8"):
            read_file(tmp_path / "t.csv", Reading())
        table, _ = read_file(tmp_path / "t.csv", Reading(encoding=encoding))
        assert table["a"].tolist() == [text]


def test_models_keep_the_amount_format_of_their_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    meant = sales(120)[["revenue", "discount", "weight", "calls", "city"]]
    write_export(meant.assign(since=pd.Timestamp("2024-12-31")), Path("t.csv"), "de")
    options = ["--epochs", "1", "--activation", "relu"]
    assert (
        main(["fit", "t.csv", "--target", "revenue", "-o", "m", "--drop", "since", *options]) == 0
    )
    reg = combutab.load("m")
    X = meant.drop(columns="revenue")
    # which alone tell nothing of points and commas
    rows = "calls;city;discount;weight\n3;Köln;12,5 %;1.234\n0;Málaga;;2.345\n"
    Path("new.csv").write_text(rows, "latin-1")
    assert main(["predict", "m", "new.csv", "-o", "out.csv", "--keep", "*"]) == 0
    found = pd.read_csv("out.csv", sep=";", decimal=",", thousands=".")
    new = pd.DataFrame({"discount": [12.5, None], "weight": [1234.0, 2345.0], "calls": [3, 0]})
    new["city"] = ["Köln", "Málaga"]
    np.testing.assert_allclose(found["predicted_revenue"], reg.predict(new[X.columns]))
    assert Path("out.csv").read_text().splitlines()[1].startswith("3;Köln;12,5 %;1.234;")
    Path("bad.csv").write_text(rows.replace("12,5 %", "12,5 Prozent"), "latin-1")
    assert main(["predict", "m", "bad.csv", "-o", "out.csv"]) == 2
    says = "column 'discount' holds text such as '12,5 Prozent', but held numbers when"
    assert says in capsys.readouterr().err
    options = ["--model", "tvae", "--epochs", "1", "--batch-size", "20", "--save", "g"]
    assert main(["synth", "t.csv", "-o", "made.csv", *options]) == 0
    assert main(["sample", "g", "-o", "more.csv", "--rows", "120"]) == 0
    assert Path("made.csv").read_text() == Path("more.csv").read_text()
    made = pd.read_csv("made.csv", sep=";", dtype=str)
    assert made["revenue"].str.fullmatch(r"-?\d{1,3}(\.\d{3})*,\d\d €").all()
    assert made["discount"].dropna().str.fullmatch(r"\d+,\d %").all()
    assert main(["impute", "t.csv", "-o", "full.csv", "--model-file", "g"]) == 0
    full = pd.read_csv("full.csv", sep=";", dtype=str)
    assert full["discount"].str.fullmatch(r"\d+,\d %").all()
    capsys.readouterr()


def test_text_cells_of_a_workbook_are_amounts(tmp_path, monkeypatch, capsys):
    pytest.importorskip("openpyxl")
    monkeypatch.chdir(tmp_path)
    n = 40
    rows = pd.DataFrame(
        {
            "rent": [f"1.{500 + i},50 €" for i in range(n)],
            "share": [f"{i} %" for i in range(n - 1)] + [None],
            "mixed": [3.5, "1.200,25 €"] * (n // 2),
            "unclear": [f"1.{100 + i} %" for i in range(n)],  # the others tell
            "size": range(n),
        }
    )
    rows.to_excel("t.xlsx", index=False)
    table, forms = read_file(Path("t.xlsx"), Reading())
    assert table["rent"].tolist() == [1500.5 + i for i in range(n)]
    assert table["share"].tolist()[:-1] == [*range(n - 1)]
    assert table["mixed"].tolist()[:2] == [3.5, 1200.25]
    assert table["unclear"].tolist() == [1100 + i for i in range(n)]
    assert forms.decimal == "."
    assert "t.xlsx: read with thousands '.'; 'rent', 'mixed' as" in capsys.readouterr().err
    assert main(["fit", "t.xlsx", "--target", "size", "-o", "m", "--epochs", "1"]) == 0
    rows.drop(columns="size").head(1).to_excel("new.xlsx", index=False)  # tells nothing of points
    assert main(["predict", "m", "new.xlsx", "-o", "out.csv", "--keep", "unclear"]) == 0
    found = pd.read_csv("out.csv")["predicted_size"]
    reg = combutab.load("m")
    np.testing.assert_allclose(found, reg.predict(table.drop(columns="size").head(1)))


ZONED = [
    (["2024-01-31 12:00:00+01:00", "2024-02-01 00:30:00+01:00"], "UTC+01:00"),
    (["2024-01-31T12:00+00:00", "2024-02-01T00:30+00:00"], "UTC"),
    (["2024-01-31 12:00:00.250000-05:30", "2024-02-01 00:30:00.500000-05:30"], "UTC-05:30"),
    (["31.12.2024 12:00+01:00", "01.02.2024 00:30+01:00"], "UTC+01:00"),
    (["2024-03-30 12:00:00+01:00", "2024-04-01 12:00:00+02:00"], None),
]


@pytest.mark.parametrize(("values", "zone"), ZONED)
def test_zoned_dates_keep_their_offset_or_use_utc(tmp_path, capsys, values, zone):
    written = "a,b\n" + "".join(f"{value},1\n" for value in [*values, ""])
    table, forms = read(written, tmp_path)
    meant = pd.to_datetime(pd.Series(values), dayfirst="." in values[0][:5], utc=True)
    assert (table["a"][:2] == meant).all()
    assert str(table["a"].dt.tz) == (zone or "UTC")
    said = "t.csv: read 'a' in UTC, because the time zone offsets differ"
    assert (said in capsys.readouterr().err) == (zone is None)
    write_table(table, forms, tmp_path / "out.csv")
    again, _ = read_file(tmp_path / "out.csv", Reading())
    pd.testing.assert_frame_equal(again, table)
    if zone is not None:
        assert (tmp_path / "out.csv").read_text() == written
    assert FileFormat.from_json(asdict(forms)) == forms


def test_a_model_of_zoned_dates_reads_other_offsets(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    days = pd.date_range("2024-01-01", periods=60, tz="Etc/GMT-1")  # an hour before UTC's
    rows = pd.DataFrame({"day": days.astype(str), "y": range(60)})
    rows.to_csv("t.csv", index=False)
    assert main(["fit", "t.csv", "--target", "y", "-o", "m", "--epochs", "1"]) == 0
    Path("new.csv").write_text("day\n2024-02-01 00:00:00+01:00\n2024-02-01 01:00:00+02:00\n")
    assert main(["predict", "m", "new.csv", "-o", "out.csv"]) == 0
    same = pd.read_csv("out.csv")["predicted_y"]
    assert same[0] == same[1]
    synth = ["synth", "t.csv", "-o", "made.csv", "--model", "tvae", "--epochs", "1"]
    assert main([*synth, "--batch-size", "20", "--save", "g"]) == 0
    assert pd.read_csv("made.csv")["day"].str.fullmatch(r"2024-0\d-\d\d 00:00:00\+01:00").all()
    condition = "day=2024-01-05 00:00:00+01:00..2024-01-20"
    assert main(["sample", "g", "-o", "some.csv", "--rows", "5", "--condition", condition]) == 0
    assert pd.read_csv("some.csv")["day"].between("2024-01-05", "2024-01-21").all()
    capsys.readouterr()


def test_forms_of_amounts_of_a_strangers_file():
    form = asdict(Amounts.split(["1.507,67 €"]).form(",", "."))
    known = asdict(FileFormat()) | {"amounts": {"a": form}}
    assert asdict(FileFormat.from_json(known)) == known
    for field, value in {
        "decimal": "x", "thousands": "12", "digits": -1, "positive": "{0.__class__}",
        "negative": "{} €", "unknown": 1,
    }.items():  # fmt: skip
        with pytest.raises((ValueError, TypeError)):
            FileFormat.from_json(known | {"amounts": {"a": form | {field: value}}})


# ---- Marks of missing values, empty columns, and headers below the first line --------------------


def said(tmp_path, capsys, text, reading=None, name="t.csv", like=None):
    path = tmp_path / name
    path.write_text(text)
    table, forms = read_file(path, reading or Reading(), like)
    return table, forms, capsys.readouterr().err


@pytest.mark.parametrize("end", ["", ";", ";;"])
@pytest.mark.parametrize("note", ["", "late"])
def test_empty_columns_do_not_change_the_decimal_mark(tmp_path, capsys, note, end):
    rows = [f"{20 + i},5;7,60{i};{note}{end}" for i in range(5)]
    table, forms, _ = said(tmp_path, capsys, "\n".join(["temp;weight;note", *rows]))
    assert forms.decimal == ","
    assert table["temp"].tolist() == [20.5 + i for i in range(5)]
    assert table["weight"].tolist() == [7.6, 7.601, 7.602, 7.603, 7.604]


@pytest.mark.parametrize(("sep", "name"), [(";", "t.csv"), (",", "t.csv"), ("\t", "t.tsv")])
def test_known_format_resolves_ambiguous_marks(tmp_path, capsys, sep, name):
    rows = ["1.234.567", "2.345", "980.000"]
    known = "\n".join(f"{row}{sep}{i + 0.5}" for i, row in enumerate(rows))
    _, like, _ = said(tmp_path, capsys, f"salary{sep}cost\n{known}", name=name)
    new = f"salary{sep}note\n1.234{sep}x\n950.000{sep}y\n"
    table, _, _ = said(tmp_path, capsys, new, name=name, like=like)
    assert table["salary"].tolist() == [1234, 950000]


def test_files_in_another_format_are_read(tmp_path, capsys):
    _, like, _ = said(tmp_path, capsys, "a;b\n1,5;1.234,5\n2,5;2.345,5\n")
    table, forms, _ = said(tmp_path, capsys, "a;b\n1.5;1.234\n2.5;2.345\n", like=like)
    assert forms.decimal == "."
    assert table["a"].tolist() == [1.5, 2.5]
    ambiguous, _, _ = said(tmp_path, capsys, "a;b\n1.234;1.234\n2.345;2.345\n", like=like)
    assert ambiguous["a"].tolist() == [1234, 2345]


CODES = "country,x\n" + "".join(f"{code},{i}\n" for i, code in enumerate(["NA", "DE", "ZA", "NA"]))


def test_a_code_among_codes_is_a_value(tmp_path, capsys):
    table, forms, err = said(tmp_path, capsys, CODES)
    assert table["country"].tolist() == ["NA", "DE", "ZA", "NA"]
    assert "'NA' is read as a value of 'country' (2 rows)" in err
    assert "use --missing 'NA'" in err
    known = FileFormat.from_json(json.loads(json.dumps(asdict(forms))))
    new, _, err = said(tmp_path, capsys, "country,x\nNA,1\n", like=known)
    assert new["country"].tolist() == ["NA"]
    assert err == ""
    table, _, err = said(tmp_path, capsys, CODES, Reading(missing=("NA",)))
    assert table["country"].isna().tolist() == [True, False, False, True]
    assert err == ""


@pytest.mark.parametrize("mark", ["NA", "None", "null", "nan", "N/A", "NULL"])
def test_a_mark_among_words_is_missing_and_said(tmp_path, capsys, mark):
    text = f"garage,x\n{mark},1\nAttached,2\nBuilt-in,3\n"
    table, _, err = said(tmp_path, capsys, text)
    assert table["garage"].isna().tolist() == [True, False, False]
    assert f"'{mark}' is read as a missing value in 'garage' (1 row); use --not-missing" in err
    table, forms, err = said(tmp_path, capsys, text, Reading(not_missing=(mark,)))
    assert table["garage"].tolist() == [mark, "Attached", "Built-in"]
    assert err == ""
    new, _, _ = said(tmp_path, capsys, text, like=FileFormat.from_json(asdict(forms)))
    assert new["garage"].tolist() == [mark, "Attached", "Built-in"]


def test_mark_of_missing_numbers_is_missing_everywhere(tmp_path, capsys):
    table, _, err = said(tmp_path, capsys, "garage,area\nNA,NA\nAttached,2.5\nBuilt-in,3.5\n")
    assert table.isna().sum().tolist() == [1, 1]
    assert err == ""


def test_named_missing_marks_are_kept_by_the_model(tmp_path, capsys):
    text = "a,b\nNot Available,x\n1.5,Not Available\n2,y\n"
    table, forms, _ = said(tmp_path, capsys, text, Reading(missing=("Not Available",)))
    assert table["a"].tolist()[1:] == [1.5, 2]
    assert table["b"].isna().tolist() == [False, True, False]
    new, _, _ = said(tmp_path, capsys, text, like=FileFormat.from_json(asdict(forms)))
    pd.testing.assert_frame_equal(new, table)


def test_hints_name_each_mark_with_its_columns(tmp_path, capsys):
    mixed = ["Not Available", "Not Available", *map(str, range(20))]
    columns = {f"rate {k}": mixed for k in range(7)}
    table = pd.DataFrame(
        {"provider": ["0F", "1F", *map(str, range(20))]} | columns | {"word": ["?", *"abc" * 7]}
    )
    hint_at_odd_columns(table, Reading(), identifiers=False)
    provider, rates, word = capsys.readouterr().err.splitlines()
    assert "'provider' is" in provider
    assert "--missing" not in provider
    assert "'rate 4' and 2 more are" in rates
    assert "use --missing 'Not Available' if it stands for missing values" in rates
    assert "--missing '?'" in word


STATION = "REGION:;SE\nSTATION:;A701\ndate;temperature\n2024/01/01;20,5\n2024/01/02;19,5\n"


def test_lines_above_the_header_are_skipped(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, _, err = said(tmp_path, capsys, STATION)
    assert "line 3 seems to be the header (date, temperature); use --header-row 3" in err
    table, forms, err = said(tmp_path, capsys, STATION, Reading(header_row=3))
    assert table["temperature"].tolist() == [20.5, 19.5]
    assert "header" not in err
    known = FileFormat.from_json(asdict(forms))
    new, _, _ = said(tmp_path, capsys, STATION.replace("20,5", "21,5"), like=known)
    assert new["temperature"].tolist() == [21.5, 19.5]
    fit = ["fit", "t.csv", "--target", "temperature", "-o", "m"]
    assert main(fit) == 2
    assert "use --header-row 3" in capsys.readouterr().err
    rows = "".join(f"2024/02/{1 + i % 28:02d};{i}\n" for i in range(60))
    Path("t.csv").write_text(STATION + rows)
    assert main([*fit, "--epochs", "1", "--header-row", "3"]) == 0
    assert main(["predict", "m", "t.csv", "-o", "out.csv"]) == 0
    assert len(pd.read_csv("out.csv", sep=";")) == 62
    capsys.readouterr()


TEXTS = [  # values, what they mean, what is said
    (["(300)", "450", "(20)"], [-300, 450, -20], None),
    (["300-", "450", "20-"], [-300, 450, -20], None),
    (["1.250.000", "2.340.000"], [1250000, 2340000], "thousands"),
    (["1.253.417", "2.341.859"], ["1.253.417", "2.341.859"], "--thousands ."),
    (["1.1", "1.10", "1.2"], [1.1, 1.1, 1.2], "1.1 and 1.10 as the same one"),
    (["12E4", "3E7"], [12e4, 3e7], "12E4 as 120000"),
    (["1.5", "1.25", "2.0"], [1.5, 1.25, 2], None),
]


@pytest.mark.parametrize(("values", "meant", "says"), TEXTS)
def test_texts_are_read_as_numbers_or_named(tmp_path, capsys, values, meant, says):
    rows = "".join(f"{value},x\n{value},y\n" for value in values)
    table, _, err = said(tmp_path, capsys, f"a,b\n{rows}")
    assert table["a"].tolist() == [value for value in meant for _ in range(2)]
    hint_at_odd_columns(table, Reading(), identifiers=False)
    err += capsys.readouterr().err
    assert (err == "") if says is None else (says in err)


@pytest.mark.parametrize(("sep", "name"), [(";", "t.csv"), ("|", "t.csv"), ("\t", "t.tsv")])
def test_ambiguous_points_are_said_unless_commas_separate(tmp_path, capsys, sep, name):
    text = f"a{sep}b\n1.234{sep}x\n12.500{sep}y\n"
    table, _, err = said(tmp_path, capsys, text, name=name)
    assert table["a"].tolist() == [1.234, 12.5]
    assert "use --thousands . to read them as thousands separators" in err


def test_dates_beyond_nanoseconds_are_dates(tmp_path, capsys):
    for text in ("a;b\n31.12.9999;1\n05.01.2024;2\n", "a,b\n1500-01-11,1\n9999-12-31,2\n"):
        table, forms, _ = said(tmp_path, capsys, text)
        assert table["a"].dtype == "datetime64[s]"
        write_table(table, forms, tmp_path / "out.csv")
        assert (tmp_path / "out.csv").read_text() == text


@pytest.mark.parametrize("mark", ["", "NA", "unknown"])
def test_missing_cells_among_long_integers_are_missing(tmp_path, mark):
    path = tmp_path / "t.csv"
    path.write_text(f"id,n\n18446744073709551615,1\n{mark},2\n18446744073709551613,3\n")
    table, _ = read_file(path, Reading(missing=("unknown",)))
    assert table["id"].isna().tolist() == [False, True, False]
    assert table["id"].dropna().tolist() == ["18446744073709551615", "18446744073709551613"]


@pytest.mark.parametrize(("dtype", "largest"), [("int64", 2**63 - 1), ("uint64", 2**64 - 1)])
def test_incomplete_parquet_integers_keep_all_digits(tmp_path, dtype, largest):
    pa = pytest.importorskip("pyarrow")
    values = [largest, None, largest - 2]
    table = pa.table({"id": pa.array(values, dtype), "n": [1, 2, 3]})
    path = tmp_path / "t.parquet"
    importlib.import_module("pyarrow.parquet").write_table(table, path)
    table, forms = read_file(path, Reading())
    write_table(table, forms, tmp_path / "t.csv")
    rows = [f"{'' if value is None else value},{n}" for n, value in enumerate(values, 1)]
    assert (tmp_path / "t.csv").read_text().split() == ["id,n", *rows]


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".xlsx"])
def test_missing_marks_may_be_numbers_in_all_files(tmp_path, ending):
    pytest.importorskip("openpyxl")
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"n": [1, -999, 3], "x": [0.5, -999.0, 1.5], "b": [True, False, True]})
    path = tmp_path / f"t{ending}"
    write = {".csv": table.to_csv, ".parquet": table.to_parquet, ".xlsx": table.to_excel}[ending]
    write(path, index=False)
    table, _ = read_file(path, Reading(missing=("-999",)))
    assert table["n"].isna().tolist() == table["x"].isna().tolist() == [False, True, False]
    assert table["b"].tolist() == [True, False, True]


def test_decimal_commas_are_written_between_semicolons(tmp_path):
    table, forms = read("x\tn\n1,5\t1\n2,25\t2\n", tmp_path, "t.tsv")
    write_table(table, forms, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "x;n\n1,5;1\n2,25;2\n"
    again, _ = read_file(tmp_path / "t.csv", Reading())
    pd.testing.assert_frame_equal(again, table)


@pytest.mark.parametrize("values", [["00501", "10001", "02134"], ["+4915112345678", "+4930123456"]])
@pytest.mark.parametrize("ending", [".csv", ".xlsx"])
def test_codes_and_phone_numbers_stay_text(tmp_path, values, ending):
    pytest.importorskip("openpyxl")
    table = pd.DataFrame({"code": [*values, None], "n": range(len(values) + 1)})
    path = tmp_path / f"t{ending}"
    {".csv": table.to_csv, ".xlsx": table.to_excel}[ending](path, index=False)
    found, forms = read_file(path, Reading())
    assert found["code"].tolist()[:-1] == values
    assert pd.isna(found["code"].iloc[-1])
    assert not [odd for odd in odd_columns(found) if odd.kind == "text numbers"]
    write_table(found, forms, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == table.to_csv(index=False)


def test_models_read_text_cells_of_workbooks_as_text(tmp_path, monkeypatch):
    pytest.importorskip("openpyxl")
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"zip": ["00501", "10001"] * 20, "n": range(40)})
    table.to_csv("t.csv", index=False)
    with pd.ExcelWriter("new.xlsx") as book:
        pd.DataFrame({"zip": [10001, 10002], "n": [1, 2]}).to_excel(book, sheet_name="first")
        # a text cell without a leading zero
        table[1:2].to_excel(book, sheet_name="second", index=False)
    assert main(["fit", "t.csv", "--target", "n", "-o", "m", "--epochs", "1"]) == 0
    assert main(["predict", "m", "t.csv", "-o", "t.csv.out.csv"]) == 0
    command = ["predict", "m", "new.xlsx", "--sheet", "second", "-o", "new.xlsx.out.csv"]
    assert main(command) == 0
    expected = pd.read_csv("t.csv.out.csv")[1:2].reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.read_csv("new.xlsx.out.csv"), expected)
