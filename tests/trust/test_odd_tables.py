"""Data that are not what they seem: what was taken for what is said once, and how to change it."""

import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import combutab
from combutab.cli import main
from combutab.datasets import TableError, make_formula, read_table
from combutab.preprocessing import odd_columns

pytestmark = pytest.mark.usefixtures("short_reports")

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
N = 120
RNG = np.random.default_rng(0)
X = RNG.normal(size=N)
TINY = ["--activations", "relu", "--seeds", "1", "--folds", "2", "--epochs", "1", "--hidden", "4"]
TINY += ["--baselines", "guess,linear"]  # boosting takes longer than all else


def every(*values):
    return [values[i % len(values)] for i in range(N)]


ODD = {  # kind -> columns of that kind
    "row numbers": {"Unnamed: 0": range(N)},
    "identifier": {"id": RNG.permutation(N) + 1000, "mail": [f"u{i}@mail.org" for i in range(N)]},
    "empty": {"empty": [None] * N, "blank": [" "] * N},
    "decimal comma": {
        "comma": [f"{x:.3f}".replace(".", ",") for x in X],
        "with points": every("1.234,5", "12,25", "7", "1.000.000,125"),
        "with a mark": every(*["0,125", "1,5", "2,25"] * 8, "?"),
    },
    "thousands": {
        "thousands": [f"{i * 37 + 1000:,}" for i in range(N)],
        "spaces": every("1 234", "12\u00a0345 678", "17"),
        "apostrophes": every("1'234.50", "12'345", "17"),
        "with decimals": every("1,234.50", "12.5", "17"),
    },
    "sign": {
        "dollars": [f"${abs(x) * 100:.2f}" for x in X],
        "negative": every("-$12.50", "$1,200", "$-3"),
        "euros": every("12,50 €", "3,00 €", "1.200,00 €"),
        "percent": every("12%", "7 %", "-1.5%"),
    },
    "few texts": {
        "oops": [f"{x:.2f}" if i != 17 else "oops" for i, x in enumerate(X)],
        "half": every("1.5", "2", "unknown"),
        "objects": pd.Series(every(*range(20), "oops"), dtype=object),
    },
    "missing mark": {
        "of numbers": every("1.5", "2", "?"),
        "of words": every("red", "blue", "-", "n.a."),
    },
    "missing code": {
        "ages": every(20, 35, 80, -999),
        "floats": every(0.5, 1.25, 3.0, 9999.0),
        "few": every(0, 1, 2, 99),
        "below zero": every(10_000.0, 35.0, 250_000.0, -9999.0),
    },
    "text numbers": {"text": pd.Series(every("1", "2", "30"), dtype=object)},
    "dates": {
        "iso": every("2024-01-31", "2023-02-28", "2022-10-10"),
        "german": every("31.12.2024", "01.02.2024"),
        "words": every("3 Jan 2024", "28-Feb-23"),
        "american words": every("Jan 3, 2024", "February 28, 2023"),
        "with times": every("12/31/2024 23:59", "01/02/2024 10:00"),
    },
    "unclear dates": {"unclear": every("01/02/2024", "11/12/2024")},
    "mixed dates": {"mixed": every("2024-01-31", "31.12.2023", "12/31/2022")},
    "truth values": {
        "truth": every("true", "Yes", "no", "False"),
        "cases": every("yes", "Yes", "no"),
        "numbers": every("Y", "n", "1"),
    },
}
FINE = {
    "measurements": X,
    "whole": RNG.integers(0, 10_000, N) * 7,
    "zeros": every(0, 0, 0, 5, 17),
    "ages up to 99": RNG.permutation(np.arange(N) % 99 + 1),
    "negative": every(-999, -998, -500, 3),
    "codes": every(1, 2, 3, 9),
    "minus one": every(-1, 0, 1),
    "words": every("red", "blue", "green"),
    "yes": every("yes", "no"),
    "flag": every(True, False),
    "signs": every("+", "-"),
    "blood": every("A+", "B-", "0+"),
    "sizes": every("<5", "5-10", ">10"),
    "house numbers": every("12", "12a", "7b", "31"),
    "zip codes as text": every("02139", "10001", "94103"),
    "tickets": every("A/5 21171", "PC 17599", "113803"),
    "versions": every("1.2.3", "10.0.1", "2.11.0"),
    "times": every("12:30", "07:45:10"),
    "phones": every("555-1234", "555-9876"),
    "category of numbers": pd.Categorical(every("1", "2", "3")),
    "dates": pd.to_datetime(every("2024-01-31", "2023-02-28")),
    "units": every("5 kg", "7 kg"),
    "sentences": every("The 3 of us, at 5.", "No, 7!", "well - 5%?"),
    "none": every("none", "some", "unknown"),
    "2019": every(1.5, 2.5),
    "2020": every(1.5, 2.5),
    "one date": every("2024-01-31"),
    "one number": pd.Series(["5"] * N, dtype=object),
    "objects": pd.Series(every(1, 2.5, (3, 4)), dtype=object),
    "huge": every(1e300, -1e300, np.inf, np.nan),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, columns in ODD.items() for name in columns]
)
def test_an_odd_column_is_found_once_and_alone(kind, name):
    table = pd.DataFrame({"fine": X, name: ODD[kind][name], "word": FINE["words"]})
    before = table.copy()
    (odd,) = odd_columns(table)
    assert (odd.column, odd.kind) == (name, kind)
    assert str(odd).startswith(f"{name!r} is taken for {odd.taken}, {odd.why}")
    pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize("name", FINE)
def test_no_false_alarm(name):
    assert odd_columns(pd.DataFrame({"fine": X, name: FINE[name]})) == []


def test_a_missing_header_is_found():
    iris = pd.DataFrame([[4.9, 3.0, 1.4, "a"]] * 5, columns=["5.1", "3.5", "1.4", "setosa"])
    assert [(odd.column, odd.kind) for odd in odd_columns(iris)] == [
        (name, "header") for name in ("5.1", "3.5", "1.4")
    ]
    for names in (["0", "1", "2", "3"], ["2019", "2020", "2021", "name"], [0, 1, 2, 3]):
        assert odd_columns(iris.set_axis(names, axis=1)) == []


def real_tables():
    files = sorted((SHARED / "openml").glob("*.csv*"))
    return files or [pytest.param(None, marks=pytest.mark.skip(reason="no shared/data/openml"))]


@pytest.mark.parametrize("path", real_tables(), ids=lambda path: path and path.name)
def test_no_false_alarm_on_real_tables(path):
    assert odd_columns(read_table(path)) == []


@pytest.mark.parametrize("name", ["gs", "ar", "ns"])
def test_no_false_alarm_on_formulas(name):
    features, target = make_formula(name, n_samples=1000, random_state=0)
    assert odd_columns(features.assign(target=target)) == []


def test_no_false_alarm_on_scikit_learns_tables():
    from sklearn import datasets

    for name in ("iris", "wine", "diabetes", "digits", "breast_cancer", "linnerud"):
        frame = getattr(datasets, f"load_{name}")(as_frame=True).frame
        assert odd_columns(frame) == [], name


# ---- the commands ------------------------------------------------------------------------------


def notes(err):
    return [line for line in err.splitlines() if " taken for " in line]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, table, **options):
    pd.DataFrame(table).to_csv(name, index=False, **options)


ALL = {name: column for kind in ODD if kind != "text numbers" for name, column in ODD[kind].items()}


@pytest.mark.filterwarnings("ignore:nothing is learned from")
@pytest.mark.parametrize("command", ["compare", "synth", "evaluate"])
def test_each_kind_is_told_of_in_one_line(folder, capsys, command):
    write("odd.csv", ALL | {"zip": every("02139", "10001"), "y": every("p", "q")})
    arguments = {
        "compare": ["odd.csv", "--target", "y", *TINY],
        "synth": [
            *("odd.csv", "-o", "made.csv", "--epochs", "1", "--drop", "id,mail"),
            *("--min-frequency", "1", "--identifiers", "none"),
        ],
        "evaluate": ["odd.csv", "odd.csv", "--drop", "id,mail"],
    }
    assert main([command, *arguments[command]]) == 0
    told = notes(capsys.readouterr().err)
    assert all(line.startswith("combutab: ") for line in told)
    kinds = set(ODD) - {"text numbers"}
    kinds -= {"dates"}  # read as such
    told = [line for line in told if "though they are dates (" not in line]
    if command != "compare":
        kinds -= {"identifier"}  # told of elsewhere
    assert len(told) == len(kinds), told
    (comma,) = [line for line in told if "decimal comma" in line]
    assert "'comma', 'with points', 'with a mark' are taken for categories" in comma
    assert comma.endswith("; --decimal , reads them")
    (row,) = [line for line in told if "counts the rows" in line]
    assert row.endswith("; --drop 'Unnamed: 0' leaves it out")


def test_nothing_is_told_of_a_table_without_oddities(folder, capsys):
    write("fine.csv", {"a": X, "word": FINE["words"], "y": every("p", "q")})
    assert main(["compare", "fine.csv", "--target", "y", *TINY]) == 0
    assert main(["synth", "fine.csv", "-o", "made.csv", "--epochs", "1"]) == 0
    assert notes(capsys.readouterr().err) == []


def test_the_data_are_not_changed_by_the_telling(folder, capsys):
    text = "price,n,y\n" + "".join(f'"0,{i:03d}",{i},p\n' for i in range(60))
    Path("t.csv").write_text(text)
    table = read_table("t.csv")
    assert table["price"].tolist() == [f"0,{i:03d}" for i in range(60)]
    assert read_table("t.csv", decimal=",")["price"].tolist() == [i / 1000 for i in range(60)]


@pytest.mark.parametrize("sep", [";", "|", "tab", "\\t"])
def test_decimal_sep_encoding_and_drop(folder, capsys, sep):
    sign = {"tab": "\t", "\\t": "\t"}.get(sep, sep)
    text = io.StringIO()
    table = pd.DataFrame({"größe": X, "x": X[::-1], "id": range(N), "y": every("ä", "ö")})
    table.to_csv(text, sep=sign, decimal=",", index=False)
    Path("t.csv").write_bytes(text.getvalue().encode("latin-1"))
    how = ["--sep", sep, "--decimal", ",", "--encoding", "latin-1", "--drop", "id"]
    if sep == ";":  # which all commands read alike
        assert main(["compare", "t.csv", "--target", "y", *TINY, *how]) == 0
    assert notes(capsys.readouterr().err) == []
    assert main(["synth", "t.csv", "-o", "made.csv", "--epochs", "1", "--save", "m", *how]) == 0
    assert notes(capsys.readouterr().err) == []
    made = read_table("made.csv", sep=sign, decimal=",")  # as the table was written, in UTF-8
    assert list(made) == ["größe", "x", "y"]
    assert made["größe"].dtype == float
    assert main(["sample", "m", "-o", "more.csv", "--rows", str(N)]) == 0
    assert Path("more.csv").read_bytes() == Path("made.csv").read_bytes()
    if sep == ";":
        utf = [*how[:4], "--drop", "id"]
        Path("real.csv").write_text(text.getvalue(), encoding="utf-8")
        assert main(["evaluate", "real.csv", "made.csv", *utf]) == 0


def test_a_decimal_comma_in_a_file_of_commas(folder, capsys):
    write("t.csv", {"a": X, "y": every("p", "q")}, decimal=",")
    assert '"' in Path("t.csv").read_text()
    assert main(["synth", "t.csv", "-o", "made.csv", "--epochs", "1", "--decimal", ","]) == 0
    assert read_table("made.csv", decimal=",")["a"].dtype == float


def test_an_option_that_names_nothing_or_too_much(folder, capsys):
    write("t.csv", {"a": X, "y": every("p", "q")})
    for arguments, message in [
        (["--drop", "b"], "--drop: there is no column 'b'"),
        (["--drop", "y"], "--drop leaves out 'y', the column to predict"),
        (["--decimal", ";"], "decimal must be a point or a comma, got ';'"),
        (["--sep", ";;"], "sep must be one sign, such as ; or tab, got ';;'"),
        (["--sep", "a"], "sep must be one sign"),
        (["--encoding", "latin-99"], "there is no encoding 'latin-99'"),
    ]:
        assert main(["compare", "t.csv", "--target", "y", *TINY, *arguments]) == 2
        assert message in capsys.readouterr().err


def test_errors_say_which_option_reads_the_file(folder):
    for data, message in [
        (b"a;b;c\n1,5;2;3\n", "sep=';' reads it (--sep ';')"),
        (b"a\tb\n1\t2\n", "sep='tab' reads it (--sep 'tab')"),
        (b"a,b\n1,caf\xe9\n", "encoding='latin-1' reads it (--encoding latin-1)"),
        ("a,b\n1,2\n".encode("utf-16"), "encoding='utf-16' reads it (--encoding utf-16)"),
        (b"1,1,2\n3,4,5\n", "more than one column named '1'; is the header missing?"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "an old spreadsheet (.xls): save it as .xlsx"),
    ]:
        Path("t.csv").write_bytes(data)
        with pytest.raises(TableError) as caught:
            read_table("t.csv")
        assert message in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_a_name(folder):
    for name, data in (("t.csv", b"\xef\xbb\xbfa;b\n1,5;2\n"), ("t.csv.gz", None)):
        raw = data or gzip.compress(b"\xef\xbb\xbfa;b\n1,5;2\n", mtime=0)
        Path(name).write_bytes(raw)
        assert read_table(name, sep=";", decimal=",").to_dict("list") == {"a": [1.5], "b": [2]}


def test_infinity_is_refused_with_its_column_before_any_training(folder, capsys):
    write("t.csv", {"a": X, "b c": [np.inf, *X[1:]], "y": every("p", "q")})
    assert main(["compare", "t.csv", "--target", "y", *TINY]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "'b c'" in err
    assert "infinit" in err
    assert err.count("\n") == 1
    assert main(["synth", "t.csv", "-o", "made.csv"]) == 2
    assert "column 'b c' has infinite values" in capsys.readouterr().err


# ---- Excel -------------------------------------------------------------------------------------


def test_excel_without_openpyxl(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    Path("t.xlsx").write_bytes(b"PK\x03\x04")
    match = r"reading t.xlsx needs openpyxl: pip install 'combutab\[excel\]'"
    with pytest.raises(ImportError, match=match):
        read_table("t.xlsx")
    for arguments in (["compare", "t.xlsx", "--target", "y"], ["synth", "t.xlsx", "-o", "m.csv"]):
        assert main(arguments) == 2
        assert "pip install 'combutab[excel]'" in capsys.readouterr().err


def test_excel(folder, capsys):
    table = pd.DataFrame(
        {"a": X, "n": every(1, None, 3), "day": FINE["dates"], "y": every("p", "q"), 7: X}
    )
    table.to_excel("t.xlsx", index=False)
    read = read_table("t.xlsx")
    pd.testing.assert_frame_equal(
        read, table.rename(columns=str).astype({"day": read["day"].dtype}), check_dtype=False
    )
    assert main(["compare", "t.xlsx", "--target", "y", *TINY]) == 0
    assert main(["synth", "t.xlsx", "-o", "made.csv", "--epochs", "1"]) == 0
    made = read_table("made.csv")
    assert list(made) == ["a", "n", "day", "y", "7"]
    assert not Path("made.csv").read_text().count(".0,2024")  # whole numbers stay whole


def test_excel_of_dates_percent_and_empty_cells_through_fit_and_predict(folder, capsys):
    rows = pd.DataFrame({"share": X / 100, "n": every(1, None, 3), "day": FINE["dates"]})
    rows = rows.assign(kind=every("p", None, "q"), y=2.5 * X)
    with pd.ExcelWriter("t.xlsx") as book:
        rows.to_excel(book, index=False)
        for cell in book.sheets["Sheet1"]["A"][1:]:
            cell.number_format = "0.0%"
    assert main(["fit", "t.xlsx", "--target", "y", "-o", "m.safetensors", "--epochs", "1"]) == 0
    model = combutab.load("m.safetensors")
    assert type(model) is combutab.MLPRegressor
    assert model.encoder_.kinds_ == ("number", "number", "datetime", "category")
    assert main(["predict", "m.safetensors", "t.xlsx", "-o", "p.csv", "--keep", "share"]) == 0
    found = read_table("p.csv")
    np.testing.assert_allclose(found["share"], X / 100)
    read = read_table("t.xlsx").drop(columns="y")
    np.testing.assert_allclose(found["predicted_y"], model.predict(read), rtol=1e-5)
    assert main(["predict", "m.safetensors", "t.xlsx", "-o", "p.xlsx"]) == 2
    assert "known endings are .csv" in capsys.readouterr().err


def test_excel_of_several_sheets_twice_a_name_and_no_workbook(folder):
    with pd.ExcelWriter("t.xlsx") as book:
        pd.DataFrame({"a": [1], "b": [2]}).to_excel(book, sheet_name="one", index=False)
        pd.DataFrame({"c": [1]}).to_excel(book, sheet_name="two", index=False)
    with pytest.warns(UserWarning, match=r"has 2 sheets, and the first, 'one', is read; .*'two'"):
        assert list(read_table("t.xlsx")) == ["a", "b"]
    pd.DataFrame([[1, 2]], columns=["a", "a"]).to_excel("twice.xlsx", index=False)
    with pytest.raises(TableError, match="more than one column named 'a'"):
        read_table("twice.xlsx")
    Path("no.xlsx").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(TableError, match=r"cannot read no\.xlsx"):
        read_table("no.xlsx")
