"""Data that are not what they seem: what was taken for what is said once, and how to change it."""

import io
import os
import re
import sys
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import combutab
from combutab import model_selection
from combutab.cli import main
from combutab.cli._console import printable
from combutab.datasets import TableError, read_table
from combutab.preprocessing import TableEncoder, odd_columns
from tests.short import BUDGET
from tests.trust.forked import Forked, needs_fork, on_terminal

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
        "with a comma": every(*["0,125", "1,5", "2,25"] * 8, "?"),
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
        "words": every("3 Jan 2024", "28-Feb-23"),
        "american words": every("Jan 3, 2024", "February 28, 2023"),
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
    "ages up to 99": RNG.permutation(np.arange(N) % 99 + 1),
    "negative": every(-999, -998, -500, 3),
    "codes": every(1, 2, 3, 9),
    "words": every("red", "blue", "green"),
    "yes": every("yes", "no"),
    "signs": every("+", "-"),
    "blood": every("A+", "B-", "0+"),
    "house numbers": every("12", "12a", "7b", "31"),
    "zip codes as text": every("02139", "10001", "94103"),
    "tickets": every("A/5 21171", "PC 17599", "113803"),
    "times": every("12:30", "07:45:10"),
    "phones": every("555-1234", "555-9876"),
    "category of numbers": pd.Categorical(every("1", "2", "3")),
    "dates": pd.to_datetime(every("2024-01-31", "2023-02-28")),
    "iso dates": every("2024-01-31", "2023-02-28", "2022-10-10"),  # read as such
    "german dates": every("31.12.2024", "01.02.2024"),
    "dates with times": every("12/31/2024 23:59", "01/02/2024 10:00"),
    "sentences": every("The 3 of us, at 5.", "No, 7!", "well - 5%?"),
    "none": every("none", "some", "unknown"),
    "2019": every(1.5, 2.5),
    "one date": every("2024-01-31"),
    "objects": pd.Series(every(1, 2.5, (3, 4)), dtype=object),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, columns in ODD.items() for name in columns]
)
def test_an_odd_column_is_found_once_and_alone(kind, name):
    table = pd.DataFrame({"fine": X, name: ODD[kind][name], "word": FINE["words"]})
    before = table.copy()
    (odd,) = odd_columns(table)
    assert (odd.column, odd.kind) == (name, kind)
    assert str(odd).startswith(f"{name!r} is treated as {odd.taken}, {odd.why}")
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


# ---- the commands ------------------------------------------------------------------------------


def notes(err):
    return [line for line in err.splitlines() if " treated as " in line]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, table, **options):
    pd.DataFrame(table).to_csv(name, index=False, **options)


ALL = {name: column for kind in ODD if kind != "text numbers" for name, column in ODD[kind].items()}


@pytest.mark.filterwarnings("ignore:nothing is learned from")
@pytest.mark.filterwarnings("ignore:column .* is encoded as categories")  # not shown by commands
@pytest.mark.parametrize("command", ["compare", "synth", "evaluate"])
def test_each_kind_is_told_of_in_one_line(folder, capsys, monkeypatch, command):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("combutab.model_selection.run_comparison", stop)
    monkeypatch.setattr("combutab.reports.evaluate_synthetic", stop)
    monkeypatch.setattr(combutab.TabFlow, "fit", stop)
    write("odd.csv", ALL | {"zip": every("02139", "10001"), "y": every("p", "q")})
    arguments = {
        "compare": ["odd.csv", "--target", "y", *TINY],
        "synth": [
            *("odd.csv", "-o", "made.csv", "--epochs", "1", "--drop", "id,mail"),
            *("--min-frequency", "1", "--identifiers", "none"),
        ],
        "evaluate": ["odd.csv", "odd.csv", "--drop", "id,mail"],
    }
    assert main([command, *arguments[command]]) == 130  # before anything is computed
    told = notes(capsys.readouterr().err)
    assert all(line.startswith("combutab: ") for line in told)
    kinds = set(ODD) - {"text numbers"}
    kinds -= {"dates", "sign", "decimal comma"}  # read as such
    told = [line for line in told if "although the values are dates (" not in line]
    if command != "compare":
        kinds -= {"identifier"}  # told of elsewhere
    # a line for each kind, and for each mark of missing values
    assert len({re.search("treated as [^(;]*", line)[0] for line in told}) == len(kinds), told
    (mark,) = [line for line in told if "'with a comma'" in line]
    assert "'of numbers', 'with a comma' are treated as categories" in mark
    assert "; if so, use --missing '?', or" in mark
    (thousands,) = [line for line in told if "thousands separators" in line]
    assert "('1,000'); use --thousands , to read them as numbers, or" in thousands
    (row,) = [line for line in told if "counts the rows" in line]
    assert row.endswith("; leave it out with --drop 'Unnamed: 0'")


def test_decimal_sep_encoding_and_drop(folder, capsys):
    sep = ";"
    text = io.StringIO()
    table = pd.DataFrame({"größe": X, "x": X[::-1], "id": range(N), "y": every("ä", "ö")})
    table.to_csv(text, sep=sep, decimal=",", index=False)
    Path("t.csv").write_bytes(text.getvalue().encode("latin-1"))
    how = ["--sep", sep, "--decimal", ",", "--encoding", "latin-1", "--drop", "id"]
    assert main(["compare", "t.csv", "--target", "y", *TINY, *how]) == 0
    assert notes(capsys.readouterr().err) == []
    assert main(["synth", "t.csv", "-o", "made.csv", "--epochs", "1", "--save", "m", *how]) == 0
    assert notes(capsys.readouterr().err) == []
    made = read_table("made.csv", sep=sep, decimal=",")  # as the table was written, in UTF-8
    assert list(made) == ["größe", "x", "y"]
    assert made["größe"].dtype == float
    assert main(["sample", "m", "-o", "more.csv", "--rows", str(N)]) == 0
    assert Path("more.csv").read_bytes() == Path("made.csv").read_bytes()
    utf = [*how[:4], "--drop", "id"]
    Path("real.csv").write_text(text.getvalue(), encoding="utf-8")
    assert main(["evaluate", "real.csv", "made.csv", *utf]) == 0


# ---- Excel -------------------------------------------------------------------------------------


def test_excel_without_openpyxl(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    Path("t.xlsx").write_bytes(b"PK\x03\x04")
    match = r"reading t.xlsx needs openpyxl: pip install openpyxl"
    with pytest.raises(ImportError, match=match):
        read_table("t.xlsx")
    for arguments in (["compare", "t.xlsx", "--target", "y"], ["synth", "t.xlsx", "-o", "m.csv"]):
        assert main(arguments) == 2
        assert "pip install openpyxl" in capsys.readouterr().err


def test_excel_dates_and_percents_reach_the_model(folder, capsys):
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
    assert "one of the file endings .csv" in capsys.readouterr().err


def test_excel_of_sheets_repeated_names_and_no_workbook(folder):
    with pd.ExcelWriter("t.xlsx") as book:
        pd.DataFrame({"a": [1], "b": [2]}).to_excel(book, sheet_name="one", index=False)
        pd.DataFrame({"c": [1]}).to_excel(book, sheet_name="two", index=False)
    with pytest.warns(UserWarning, match=r"2 sheets.*'one'.*'two'"):
        assert list(read_table("t.xlsx")) == ["a", "b"]
    pd.DataFrame([[1, 2]], columns=["a", "a"]).to_excel("twice.xlsx", index=False)
    with pytest.raises(TableError, match="'a'"):
        read_table("twice.xlsx")
    Path("no.xlsx").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(TableError, match=r"cannot read no\.xlsx"):
        read_table("no.xlsx")


# ---- A value that no column can have is refused in words that name its column -------------------

N_ODD = 20


def with_one(value, others=1.0):
    values = np.full(N_ODD, others, dtype=object)
    values[3] = value
    return pd.Series(values, dtype=object)


class Nameless:
    """Without a repr that stays."""


OTHERS = {
    "complex": pd.Series([1j] * N_ODD),
    "complex object": with_one(1j),
    "complex category": pd.Series([1j, 1.0] * (N_ODD // 2)).astype("category"),
    "int beyond float64": with_one(10**400),
    "no stable repr": with_one(Nameless(), "x"),
}


def table(odd):
    return pd.DataFrame(
        {"fine": np.arange(float(N_ODD)), "odd one": odd, "word": ["a", "b"] * (N_ODD // 2)}
    )


@pytest.mark.parametrize("name", OTHERS)
def test_other_values_name_their_column(name):
    with pytest.raises((ValueError, TypeError), match="column 'odd one'"):
        TableEncoder().fit(table(OTHERS[name]))


@pytest.mark.parametrize("kind", ["frame", "array", "sparse", "list", "mixed frame"])
def test_all_infinite_columns_are_named(kind):
    values = np.ones((N_ODD, 7))
    values[0, 1] = values[1, 5] = np.inf
    named = pd.DataFrame(values, columns=list("abcdefg"))
    X, names = {
        "frame": (named, "column 'b', column 'f'"),
        "mixed frame": (named.assign(word="x"), "column 'b', column 'f'"),
        "array": (values, "column 1, column 5"),
        "sparse": (scipy.sparse.csr_array(values), "column 1, column 5"),
        "list": (values.tolist(), "column 1, column 5"),
    }[kind]
    with pytest.raises(ValueError, match=f"in {names}; replace it"):
        TableEncoder().fit(X)
    fine = X.copy() if hasattr(X, "copy") else list(X)
    if kind.endswith("frame"):
        fine[["b", "f"]] = 1.0
        fitted = TableEncoder().fit(fine)
        with pytest.raises(ValueError, match=f"in {names}; replace it"):
            fitted.encode(X)


# ---- Names that would move a cursor, change a colour, turn the text around or run a formula -----


LONG = BUDGET > 1

# clear the screen; set the title; C1's CSI; a bell and a backspace; the other reading order; a new
# line that looks like one of ours; markup of rich
EVIL = "\x1b[2J\x1b]0;gone\x07\x9b31m\x08\u202e\u2066\u200f\rcombutab: all is well\n[red][/bold]"

QUIET = EVIL.replace("\r", "").replace("\n", "")  # of what a CSV file can hold in a name unquoted

HOSTILE = {letter for letter in EVIL if not letter.isprintable()}


def test_no_letter_that_does_anything_is_left():
    letters = [chr(i) for i in range(0x30000)]
    shown = printable("".join(letters))
    assert shown.isprintable()
    for letter in letters:
        category = unicodedata.category(letter)
        if category[0] in "LMNPS" or category == "Zs":
            assert len(printable(letter)) == 1
        else:
            assert printable(letter).startswith("\\")


def hostile_table(n=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    return pd.DataFrame(
        {
            f"x{EVIL}": x,
            f"word{EVIL}": rng.choice([f"a{EVIL}", f"b{EVIL}"], n),
            f"odd{EVIL}": [f"{value:.2f}" if i else f"oops{EVIL}" for i, value in enumerate(x)],
            f"y{EVIL}": np.where(x > 0, f"p{EVIL}", f"q{EVIL}"),
        }
    )


NAME = f"t{EVIL.replace('/', '')}.csv"

KEEP = ["--min-frequency", "1", "--identifiers", "none"]  # the odd column has no frequent value

ROUNDS = {
    "compare": ["compare", NAME, "--target", f"y{EVIL}", *TINY, "--out", f"out{QUIET[:9]}"],
    "a folder that is a file": ["compare", NAME, "--target", f"y{EVIL}", *TINY, "--out", NAME],
    "no such target": ["compare", NAME, "--target", f"z{EVIL}", *TINY],
    "no such activation": ["compare", NAME, "--target", f"y{EVIL}", "--activations", EVIL],
    "synth": ["synth", NAME, "-o", f"made{NAME}", "--epochs", "1", "--save", f"model{NAME}", *KEEP],
    "no such value": [
        *["synth", NAME, "-o", "made.csv", "--condition", f"word{EVIL}=c{EVIL}", *KEEP],
    ],
    "sample": ["sample", f"model{NAME}", "-o", f"more{NAME}", "--rows", "5"],
    "evaluate": ["evaluate", NAME, f"made{NAME}", "-o", "report.html", "--learners", "linear"],
    "a report without folder": ["evaluate", NAME, NAME, "-o", f"no{QUIET}/report.html"],
}

SLOW = {"compare", "evaluate"}


def run(folder, on_a_terminal, rounds):
    """What all commands show, one after another in one process."""
    hostile_table().to_csv(folder / NAME, index=False)

    def work():
        for name, arguments in rounds.items():
            print("-----", name, flush=True)
            print(main(arguments), flush=True)

    if on_a_terminal:  # rich itself sends no codes to a dumb one
        code, text = on_terminal(work, folder, TERM="dumb", COLUMNS="80")
    else:
        process = Forked(work, folder)
        text = "".join(process.communicate())
        code = process.returncode
    assert code == 0, text
    return text.replace("\r\n", "\n")


@needs_fork
@pytest.mark.parametrize("on_a_terminal", [False, True], ids=["pipe", "terminal"])
def test_no_control_character_reaches_the_reader(tmp_path, on_a_terminal):
    slow = LONG or not on_a_terminal
    rounds = {name: each for name, each in ROUNDS.items() if slow or name not in SLOW}
    text = run(tmp_path, on_a_terminal, rounds)
    assert set(text) & HOSTILE <= {"\n"}
    assert not [line for line in text.splitlines() if line.startswith("combutab: all is well")]
    assert "Traceback" not in text
    assert all(f"----- {name}" in text for name in rounds)
    codes = [line for line in text.splitlines() if line in ("0", "2")]
    assert codes.count("0") == (4 if slow else 2), text
    assert codes.count("2") == len(ROUNDS) - 4, text
    assert "\\x1b[2J" in text  # shown as it is written
    if slow:
        page = (tmp_path / "report.html").read_text("utf-8")
        assert not set(page) & (HOSTILE - {"\n"})


@needs_fork
def test_warnings_and_unexpected_errors_are_escaped_too(tmp_path):
    def fail(*tables, **options):
        warnings.warn(EVIL, stacklevel=1)
        raise RuntimeError(EVIL)

    def work():
        model_selection.plan_comparison = fail
        sys.argv = ["combutab", "compare"]
        try:
            return main()
        except RuntimeError:
            sys.excepthook(*sys.exc_info())
            return 1

    process = Forked(work, tmp_path)
    _, text = process.communicate()
    assert process.returncode == 1
    assert "combutab: warning: \\x1b[2J" in text
    assert "RuntimeError: \\x1b[2J" in text
    assert set(text) & HOSTILE == {"\n"}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_letters_that_a_stream_does_not_know(monkeypatch, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding, errors="strict", write_through=True)
    monkeypatch.setattr(sys, "stderr", stream)
    assert main(["größe中"]) == 2
    assert b"No such command 'gr" in stream.buffer.getvalue()
    assert b"\\u4e2d" in stream.buffer.getvalue()


def test_a_file_name_of_no_encoding(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9\xff.csv")
    assert main(["compare", name, "--target", "y"]) == 2
    assert "there is no file caf" in capsys.readouterr().err


# ---- formulas ----------------------------------------------------------------------------------

CALLS = [
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "+1+cmd|' /C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    "\t=1",
]

PLAIN = ["-", "+", "-5", "+1.5", "a=b", "", "é", "- 12,5", "x@y.org"]


def write_formulas():
    words = CALLS + PLAIN
    frame = pd.DataFrame({"=name()": np.arange(140.0), "word": words * 10})
    frame["n"] = np.arange(140) % 3 - 1
    frame.to_csv("t.csv", index=False)
    return words


def test_formula_text_is_kept_with_a_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = write_formulas()
    assert main(["synth", "t.csv", "-o", "made.csv", "--epochs", "1", "--rows", "400"]) == 0
    err = capsys.readouterr().err
    assert "would run text of '=name()', 'word' as formulas; use --guard-formulas" in err
    assert err.count("--guard-formulas") == 1
    made = read_table("made.csv")
    assert set(made["word"].dropna()) <= set(words)
    assert set(made["word"].dropna()) & set(CALLS)
    # nothing is told of where there is nothing to run
    pd.DataFrame({"a": np.arange(60.0), "w": ["-", "+", "x=1"] * 20}).to_csv("u.csv", index=False)
    assert main(["synth", "u.csv", "-o", "made.csv", "--epochs", "1"]) == 0
    assert "--guard-formulas" not in capsys.readouterr().err


def test_guarded_files_hold_no_formula(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = write_formulas()
    run = ["synth", "t.csv", "--epochs", "1", "--rows", "400", "--save", "m"]
    assert main([*run, "-o", "made.csv", "--guard-formulas"]) == 0
    assert "--guard-formulas" not in capsys.readouterr().err
    made = read_table("made.csv")
    assert list(made) == ["'=name()", "word", "n"]
    got = set(made["word"].dropna())
    assert got <= {f"'{word}" for word in CALLS} | set(PLAIN)
    assert got & {f"'{word}" for word in CALLS}
    assert made["n"].isin([-1, 0, 1]).all()  # numbers are left alone
    assert main(["sample", "m", "-o", "more.csv", "--rows", "400"]) == 0  # the model knows
    assert Path("more.csv").read_bytes() == Path("made.csv").read_bytes()
    pytest.importorskip("pyarrow")
    assert main(["sample", "m", "-o", "more.parquet", "--rows", "400"]) == 0
    assert set(read_table("more.parquet")["word"].dropna()) <= set(words)
