"""read_table and split_target: good files, and one clear line for each flaw."""

import gzip
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from combutab import TVAE, load
from combutab.cli import main
from combutab.core.files import read_model, write_model
from combutab.datasets import TableError, read_cells, read_table, split_target


def write(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def complaint(path):
    with pytest.raises(TableError) as caught:
        read_table(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


EXPECTED = pd.DataFrame({"x": [1.5, np.nan, -2.0], "word": ["a", "b,c", "d"], "n": [1, 2, 3]})
CSV = 'x,word,n\n1.5,a,1\n,"b,c",2\n-2,d,3\n'


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("t.csv", CSV.encode()),
        ("T.CSV", CSV.encode()),
        ("t.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("t.tsv", b"x\tword\tn\n1.5\ta\t1\n\tb,c\t2\n-2\td\t3\n"),
        ("t.tsv.gz", gzip.compress(b"x\tword\tn\n1.5\ta\t1\n\tb,c\t2\n-2\td\t3\n", mtime=0)),
        ("bom.csv", b"\xef\xbb\xbf" + CSV.encode()),
        ("cr.csv", CSV.replace("\n", "\r").encode()),
        ("crlf_blank_lines.csv", b'x,word,n\r\n1.5,a,1\r\n\r\n,"b,c",2\r\n-2,d,3\r\n'),
        ("crlf.csv", CSV.replace("\n", "\r\n").encode()),
        ("blank_lines.csv", b"\n" + CSV.replace("\n", "\n\n").encode()),
        ("no_last_newline.csv", CSV.rstrip().encode()),
    ],
)
def test_every_text_format_gives_the_same_table(tmp_path, name, data):
    pd.testing.assert_frame_equal(read_table(write(tmp_path, name, data)), EXPECTED)


def test_dates_in_one_format_become_dates(tmp_path):
    cells = (
        "a,b,c,d\n2024-01-31,22-Jun-2024,01/02/2024,\n,01-May-2023,03/04/2024,2024-01-31 10:00\n"
    )
    table = read_table(write(tmp_path, "x.csv", cells))
    assert table["a"].tolist() == [pd.Timestamp("2024-01-31"), pd.NaT]
    assert table["b"].dt.month.tolist() == [6, 5]
    assert table["c"].tolist() == ["01/02/2024", "03/04/2024"]
    assert table["d"][1] == pd.Timestamp("2024-01-31 10:00")


def test_another_encoding_can_be_named(tmp_path):
    path = write(tmp_path, "t.csv", "größe,b\n1,é\n".encode("latin-1"))
    assert list(read_table(path, encoding="latin-1")) == ["größe", "b"]
    path = write(tmp_path, "u.csv", "größe,b\n1,é\n".encode("utf-16"))
    assert list(read_table(path, encoding="utf-16")) == ["größe", "b"]
    with pytest.raises(TableError, match="'latin-99' is not a known encoding"):
        read_table(write(tmp_path, "t.csv", CSV), encoding="latin-99")


@pytest.mark.parametrize("index", [None, "key"])
def test_parquet_keeps_columns_and_a_named_index(tmp_path, index):
    pytest.importorskip("pyarrow")
    frame = EXPECTED.set_axis([7, 8, 9]).rename_axis(index)
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert list(table) == ([] if index is None else ["key"]) + ["x", "word", "n"]
    assert table.index.tolist() == [0, 1, 2]
    assert table["n"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("t.ods", b"", r"cannot read .* one of the endings \.csv, \.csv\.gz"),
        ("t.csv", b"", "is empty"),
        ("t.csv.gz", gzip.compress(b"", mtime=0), "is empty"),
        ("t.csv", b"a,b\n", "no rows"),
        ("t.csv", b"a;b;c\n1,5;2;3\n", "separator seems to be a semicolon; use sep=';'"),
        ("t.csv", b'"a";"b"\n1;2\n', "a semicolon"),
        ("t.csv", b"a|b\n1|2\n", "seems to be a vertical bar"),
        ("t.tsv", b"a,b\n1,2\n", "seems to be a comma; use sep=','"),
        ("t.csv", b"a,b,c\n1,2,3\n4,5\n", "line 3 has 2 fields, but the header has 3"),
        ("t.csv", b"a,b\n1,2,3\n4,5,6\n", "line 2 has 3 fields, but the header has 2"),
        ("t.csv", b'"a,b",c\n1,2,3\n', "line 2 has 3 fields, but the header has 2"),
        ("t.csv", b'a,b\n1,"2\n3,4\n', "cannot parse"),
        ("t.csv", b'a,b\n1,"' + b"x" * 200_000 + b'"\n', "line 2: field larger than"),
        ("t.csv", b"a,b\n1,caf\xe9\n", "is not utf-8: byte 0xe9 at offset 9; try encoding="),
        ("t.csv", b"a,b,a,c,b\n1,2,3,4,5\n", "more than one column named 'a', 'b'"),
        ("t.csv", b"a,b\n1,\x00\n", "NUL bytes"),
        ("t.csv", b"sep=,\r\na,b\r\n1,2\r\n", "begins with 'sep=,', which only spreadsheets read"),
        ("t.csv", b"PAR1\x15\x04", r"is a Parquet file: rename it to \.parquet"),
        ("t.csv", b"PK\x03\x04\x14", "spreadsheet"),
        ("t.csv", gzip.compress(b"a,b\n1,2\n", mtime=0), r"rename it to \.csv\.gz"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16"), "UTF-16"),
        ("t.csv.gz", gzip.compress(CSV.encode() * 100, mtime=0)[:-20], "not a complete gzip file"),
        ("t.parquet", b"PAR1 and then something else", "cannot read"),
    ],
)
def test_a_bad_file_gets_one_clear_line(tmp_path, name, data, says):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    assert re.search(says, complaint(write(tmp_path, name, data)))


@pytest.mark.parametrize(
    "encoding", ["cp1252", "latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_named_encoding_reads_the_file(tmp_path, encoding):
    name = "Größe" if encoding == "latin-1" else "Umsatz (€)"
    path = write(tmp_path, "t.csv", f"{name},b\n1,2\n".encode(encoding))
    for tried in ("utf-8", "ascii", *(["latin-1"] if encoding == "cp1252" else [])):
        with pytest.raises(TableError) as caught:
            read_table(path, encoding=tried)
        assert f"try encoding={encoding!r}, or save" in str(caught.value)
        assert str(caught.value).count(str(path)) == 1
    assert list(read_table(path, encoding=encoding)) == [name, "b"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_error_does_not_name_the_tried_encoding(tmp_path, encoding):
    path = write(tmp_path, "t.csv", "a,b\n1,2\n".encode("utf-16")[:-1])
    with pytest.raises(TableError) as caught:
        read_table(path, encoding=encoding)
    assert "try encoding" not in str(caught.value)


def test_text_in_no_encoding_that_its_bytes_tell(tmp_path):
    path = write(tmp_path, "t.csv", "日本語ソ,b\n1,2\n".encode("shift_jis") + b"\x81,2\n")
    assert "pass its encoding, such as encoding='shift_jis'" in complaint(path)
    path = write(tmp_path, "u.csv", "größe,b\n1,2\n".encode())
    with pytest.raises(TableError, match="try encoding='utf-8'"):
        read_table(path, encoding="ascii")


def test_missing_file_and_directory(tmp_path):
    assert "there is no file" in complaint(tmp_path / "none.csv")
    assert "is a directory" in complaint(tmp_path)


def test_unreadable_file(tmp_path, monkeypatch):
    def refuse(self, mode):
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path, "t.csv", CSV)
    monkeypatch.setattr(Path, "open", refuse)
    assert "cannot read" in complaint(path)


def test_parquet_without_rows_or_with_repeated_names(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "empty.parquet")
    assert "no rows" in complaint(tmp_path / "empty.parquet")
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    assert "more than one column named 'a'" in complaint(tmp_path / "twice.parquet")


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1)
cells = st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6), st.none())


@settings(max_examples=25, suppress_health_check=[*HealthCheck])
@given(
    columns=st.lists(names.filter(str.strip), min_size=2, max_size=4, unique=True),
    rows=st.lists(st.lists(cells, min_size=4, max_size=4), min_size=1, max_size=5),
)
def test_what_pandas_writes_is_read_back(tmp_path, columns, rows):
    frame = pd.DataFrame([row[: len(columns)] for row in rows], columns=columns, dtype=float)
    path = tmp_path / "t.csv"
    frame = frame.dropna(how="all")  # rows without a value are left out
    assume(len(frame))
    frame.to_csv(path, index=False)
    table = read_table(path)
    assert list(table) == columns
    np.testing.assert_array_equal(table.to_numpy(dtype=float), frame.to_numpy())


def test_late_text_makes_the_column_text(tmp_path):
    # pandas' default reads in chunks, warns, and mixes types within such a column.
    rows = [f"{i},{i}" for i in range(300_000)] + ["0,late"]
    table = read_table(write(tmp_path, "t.csv", "\n".join(["a,b", *rows])))
    assert table["b"].map(type).unique().tolist() == [str]


TABLE = pd.DataFrame({"area": [1.0, 2.0, 3.0], "Price": [10, 20, 30], "kind": ["a", "b", "a"]})


def test_split_target_takes_one_column_out():
    X, y = split_target(TABLE, "Price")
    assert list(X) == ["area", "kind"]
    assert y.tolist() == [10, 20, 30]
    assert y.name == "Price"
    assert list(TABLE) == ["area", "Price", "kind"]


@pytest.mark.parametrize(
    ("table", "target", "says"),
    [
        (TABLE, "price", "'price'"),
        (TABLE, "zzz", "there are 'area', 'Price', 'kind'"),
        (pd.DataFrame(np.ones((2, 11))), "y", "and 3 more"),
        (TABLE.iloc[:1], "Price", r"has 1 row\(s\); at least 2"),
        (TABLE.iloc[:0], "Price", r"has 0 row\(s\)"),
        (TABLE[["Price"]], "Price", "no column but the target"),
        (TABLE.assign(Price=[1, np.nan, None]), "Price", r"2 missing .* first in data row 2"),
        (TABLE.assign(kind=["a", "b", None]), "kind", r"1 missing .* data row 3"),
        (TABLE.assign(Price=[1.0, 2.0, -np.inf]), "Price", r"1 infinite .* data row 3"),
        (TABLE.assign(Price=5), "Price", "is 5 in all 3 rows"),
        (TABLE.assign(kind="yes"), "kind", "is yes in all 3 rows: one class"),
        (pd.concat([TABLE, TABLE], axis=1), "area", "more than one column named 'area'"),
    ],
)
def test_a_bad_target_gets_one_clear_line(table, target, says):
    with pytest.raises(TableError, match=says) as caught:
        split_target(table, target)
    assert "\n" not in str(caught.value)


def test_cells_are_read_as_they_are_written(tmp_path):
    data = "\ufeffzip\tn\tday\n00501\t1.50\tNA\n\t 2\t5.1.2024\n"
    path = write(tmp_path, "t.tsv.gz", gzip.compress(data.encode(), mtime=0))
    cells = read_cells(path)
    assert list(cells) == ["zip", "n", "day"]
    assert cells["zip"][0] == "00501"
    assert cells["n"].tolist() == ["1.50", " 2"]
    assert cells.isna().to_numpy().tolist() == [[False, False, True], [True, False, False]]
    assert read_cells(path, [2], only_empty=True)["day"].tolist() == ["NA", "5.1.2024"]
    with pytest.raises(TableError, match="no text file"):
        read_cells(write(tmp_path, "t.xlsx", "x"))


# ---- Where the table lies in its file, and what is missing ---------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a;b;\n1;2;\n3;4;\n;;\n",
        "a;b\n1;2;\n3;4;;\n",
        ";;\na;;b\n1;;2\n\n3;;4\n",
        "a;b\n1;2\n;\n3;4\n",
    ],
)
def test_empty_rows_and_unnamed_columns_are_dropped(tmp_path, text):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = read_table(write(tmp_path, "t.csv", text), sep=";")
    pd.testing.assert_frame_equal(table, pd.DataFrame({"a": [1, 3], "b": [2, 4]}))
    assert all("without" in str(note.message) for note in caught)
    cells = read_cells(tmp_path / "t.csv", sep=";")
    assert cells.to_numpy().tolist() == [["1", "2"], ["3", "4"]]


@pytest.mark.parametrize(
    "text", ["a;b;\n1;2;3\n4;5\n", "a;b\n1;2;3\n", "a;b;\n1\n", "a;b;c\n1;2\n"]
)
def test_rows_with_values_elsewhere_are_refused(tmp_path, text):
    with pytest.raises(TableError, match="header"):
        read_table(write(tmp_path, "t.csv", text), sep=";")


def test_unnamed_columns_with_values_are_kept(tmp_path):
    table = read_table(write(tmp_path, "t.csv", ",a\n0,x\n1,y\n"))
    assert table.to_dict("list") == {"Unnamed: 0": [0, 1], "a": ["x", "y"]}


def test_code_among_codes_is_a_value(tmp_path):
    path = write(tmp_path, "t.csv", "country,x\nNA,1\nDE,2\nZA,\n")
    with pytest.warns(UserWarning, match=r"missing=\['NA'\]"):
        table = read_table(path)
    assert table["country"].tolist() == ["NA", "DE", "ZA"]
    assert read_table(path, missing=["NA"])["country"].isna().tolist() == [True, False, False]
    path = write(tmp_path, "t.csv", "level,x\nNone,1\nmild,2\nhigh,\n")
    with pytest.warns(UserWarning, match=r"not_missing=\['None'\]"):
        assert read_table(path)["level"].isna().sum() == 1
    assert read_table(path, not_missing=["None"])["level"].tolist() == ["None", "mild", "high"]
    with pytest.raises(TableError, match="missing must be a sequence"):
        read_table(path, missing="NA")


def test_the_header_may_stand_in_a_later_line(tmp_path):
    rows = "".join(f"2024-01-0{i},{i}\n" for i in range(1, 9))
    path = write(tmp_path, "t.csv", f"Export of May\n\nday,sales\n{rows}")
    with pytest.raises(TableError, match="header_row"):
        read_table(path)
    table = read_table(path, header_row=3)
    assert table["sales"].tolist() == [*range(1, 9)]
    assert table["day"].dtype.kind == "M"
    units = write(tmp_path, "u.csv", "time,rain\nUTC,mm\n1,2\n2,3\n3,4\n")
    assert read_table(units).shape == (4, 2)  # units stand below the header
    for row in (0, 99):
        with pytest.raises(TableError, match=r"header_row|line 99"):
            read_table(path, header_row=row)


def test_sheets_titles_and_blank_cells_of_a_workbook(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["Sales 2023"])
    for row in ([], ["day", "country", None, "n"], ["2024-01-01", "NA", None, 1]):
        book.active.append(row)
    for i, code in enumerate(["DE", "ZA", "BW"]):
        book.active.append([f"2024-01-0{i + 2}", code, None, i])
        book.active.append([])
    other = book.create_sheet("other")
    other.append(["a", "b"])
    other.append([1, 2])
    path = tmp_path / "t.xlsx"
    book.save(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_table(path)
        said = " ".join(str(warning.message) for warning in caught)
        table = read_table(path, header_row=3)
    for way_out in ("use header_row=3", "use sheet='other'", "without a value left out"):
        assert way_out in said
    assert list(table) == ["day", "country", "n"]
    assert table["country"].tolist() == ["NA", "DE", "ZA", "BW"]
    assert table["n"].tolist() == [1, 0, 1, 2]
    assert table["n"].dtype == "int64"
    for sheet in ("other", 2):  # a name, or a number
        assert read_table(path, sheet=sheet).to_dict("list") == {"a": [1], "b": [2]}
    with pytest.raises(TableError, match="'third'"):
        read_table(path, sheet="third")
    with pytest.raises(TableError, match="sheet"):
        read_table(write(tmp_path, "t.csv", CSV), sheet="other")


def test_garbled_english_names_cp1252_first(tmp_path):
    name = b"Manuel Rodr\xcc_guez S\xcc\xc1nchez \x81"
    path = write(tmp_path, "t.csv", b"who,y\n" + b"Smith,1\n" * 99 + name + b",2\n")
    message = complaint(path)
    assert "try encoding='cp1252'" in message
    assert "RodrÌ_guez" in message
    assert "RodrÃ_guez" in message
    assert read_table(path, encoding="cp1252")["who"].iloc[-1].startswith("Manuel RodrÌ_guez")


# ---- tables that are read as the table of a model ------------------------------------------------


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """A model that `combutab fit` wrote, of a table with German dates and numbers, and codes."""
    folder = tmp_path_factory.mktemp("like")
    days = pd.date_range("2024-01-01", periods=60).strftime("%d.%m.%Y")
    lines = [f"{day};{i},5;0{i % 3}1;{i}" for i, day in enumerate(days)]
    (folder / "table.csv").write_text("\n".join(["day;size;zip;y", *lines]))
    options = ["--target", "y", "--out", str(folder / "model"), "--epochs", "1", "--members", "1"]
    assert main(["fit", str(folder / "table.csv"), *options]) == 0
    return folder / "model"


def test_new_rows_are_read_as_the_table_of_the_model(model_file, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("y;zip;size;day\n1;101;2,5;03.02.2024\n2;201;3,5;04.02.2024\n")
    table = read_table(path, like=model_file)
    assert list(table) == ["day", "size", "zip"]
    assert table["day"].tolist() == [pd.Timestamp("2024-02-03"), pd.Timestamp("2024-02-04")]
    assert table["size"].tolist() == [2.5, 3.5]
    assert table["zip"].tolist() == ["101", "201"]
    assert load(model_file).predict(table).shape == (2,)


@pytest.mark.parametrize("suffix", [".parquet", ".xlsx"])
def test_dates_as_text_are_read_in_the_format_of_the_model(model_file, tmp_path, suffix):
    path = tmp_path / f"new{suffix}"
    write = pd.DataFrame.to_parquet if suffix == ".parquet" else pd.DataFrame.to_excel
    table = pd.DataFrame({"day": ["03.02.2024", None], "size": [2.5, 3.5], "zip": ["101", "2x"]})
    write(table, path, index=False)
    day = read_table(path, like=model_file)["day"]
    assert day.tolist() == [pd.Timestamp("2024-02-03"), pd.NaT]
    write(table.assign(day=["2024-02-03", None]), path, index=False)
    X = read_table(path, like=model_file)
    np.testing.assert_array_equal(
        load(model_file).predict(X), load(model_file).predict(X.assign(day=day.array))
    )
    write(table.assign(day=["03.02.2024", "soon"]), path, index=False)
    with pytest.raises(TableError, match=r"'day' holds values that are not dates .* 31\.12\.2024"):
        read_table(path, like=model_file)


def test_all_missing_columns_are_named_at_once(model_file, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("size;y\n2,5;1\n3,5;1\n")
    with pytest.raises(TableError, match=r"lacks 2 of the 3 columns .*: 'day' and 'zip'"):
        read_table(path, like=model_file)
    with pytest.raises(TableError, match="leave encoding, sep and decimal out"):
        read_table(path, like=model_file, sep=";")
    with pytest.raises(TableError, match=r"like=.*new\.csv"):
        read_table(path, like=path)


def test_model_files_without_features_or_damaged_are_refused(model_file, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("a\n1\n2\n")
    generator = TVAE(epochs=1, random_state=0).fit(pd.DataFrame({"a": np.arange(20.0)}))
    generator.save(tmp_path / "generator")
    with pytest.raises(TableError, match="a TVAE has no feature columns"):
        read_table(path, like=tmp_path / "generator")
    header, arrays = read_model(model_file)
    del header["encoder"]["kinds"]
    write_model(tmp_path / "damaged", header, arrays)
    with pytest.raises(TableError, match="damaged"):
        read_table(path, like=tmp_path / "damaged")
