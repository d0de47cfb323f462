"""``combutab evaluate``: what it prints, writes and refuses."""

import io
import os
import re
import signal
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import combutab.reports
from combutab.cli import main
from tests.cli.people import people

pytestmark = pytest.mark.usefixtures("short_reports")

QUICK = ["--learners", "linear"]
TRAIN = ["--model", "ctgan", "--epochs", "1", "--batch-size", "20", "--device", "cpu"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with real.csv, made.csv and held.csv in it."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(["real", "made", "held"]):
        people(150, seed).to_csv(f"{name}.csv", index=False)
    return tmp_path


@pytest.fixture(scope="module")
def evaluation():
    return combutab.reports.evaluate_synthetic(
        real_train=people(150, 0), synthetic=people(150, 1), target="price", learners=["linear"]
    )


@pytest.fixture
def evaluated(monkeypatch, evaluation):
    """The same findings whatever is evaluated."""
    monkeypatch.setattr(combutab.reports, "evaluate_synthetic", lambda **given: evaluation)


# ---- good runs ---------------------------------------------------------------------------------


def test_the_findings_are_printed_and_the_page_is_written(folder, capsys, files):
    before = files(folder)
    options = ["--target", "dear", "--test", "held.csv", "-o", "report.html", *QUICK]
    assert main(["evaluate", "real.csv", "made.csv", *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [line for line in out.splitlines() if not line.startswith("  ")]
    assert [line.split(".")[0] for line in lines] == [
        "usefulness: good",
        "likeness: good",
        "privacy: good",
    ]
    assert files(folder) == sorted([*before, "report.html"])
    page = Path("report.html").read_text("utf-8")
    assert all(name in page for name in ("real.csv", "made.csv", "held.csv"))
    assert "The synthetic rows keep" in page


def test_without_a_place_nothing_is_written(folder, capsys, files):
    before = files(folder)
    assert main(["evaluate", "real.csv", "made.csv", "--target", "price", *QUICK]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "in 30 real rows" in out  # a fifth of 150
    assert "privacy: not known. Whether real rows are copied is not known." in out
    assert "\n  Not known beyond exact duplicates" in out
    assert files(folder) == before


def test_options_reach_the_evaluation(folder, arguments):
    options = ["--target", "age", "--test", "held.csv", "--task", "regression", "--drop", "dear"]
    options += [
        "--discrete",
        "age,price",
        "--learners",
        "linear, mlp",
        "--seed",
        "7",
        "--jobs",
        "2",
    ]
    assert main(["evaluate", "real.csv", "made.csv", *options]) == 2
    assert list(arguments["real_train"]) == ["age", "city", "price"]
    assert list(arguments["real_test"]) == list(arguments["synthetic"]) == ["age", "city", "price"]
    assert {name: arguments[name] for name in ("target", "task", "categorical", "learners")} == {
        "target": "age",
        "task": "regression",
        "categorical": ["age", "price"],
        "learners": ["linear", "mlp"],
    }
    assert (arguments["random_state"], arguments["n_jobs"]) == (7, 2)
    assert arguments["names"] == {"real": "real.csv", "synthetic": "made.csv", "test": "held.csv"}
    assert arguments["made"] == {}


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("1", 1), ("0.01", 0.01), ("0", None), ("1.5", None), ("k", None)]
)
def test_how_many_rows_a_value_needs_to_be_shown(folder, arguments, capsys, text, value):
    assert main(["evaluate", "real.csv", "made.csv", "--min-frequency", text]) == 2
    if value is None:
        assert "--min-frequency" in capsys.readouterr().err
        assert arguments == {}
    else:
        assert arguments["min_frequency"] == value
        assert type(arguments["min_frequency"]) is type(value)


def test_files_of_one_name_are_called_by_their_places(folder, arguments):
    Path("other").mkdir()
    people(150, 5).to_csv("other/real.csv", index=False)
    assert main(["evaluate", "real.csv", "other/real.csv"]) == 2
    assert arguments["names"] == {"real": "real.csv", "synthetic": "other/real.csv"}


def test_how_the_rows_were_made(folder, arguments):
    assert main(["synth", "real.csv", "-o", "new.csv", "--save", "model", *TRAIN]) == 0
    assert main(["evaluate", "real.csv", "new.csv", "--model", "model"]) == 2
    made = arguments["made"]
    assert made["Generator"] == f"CTGAN of combutab {combutab.__version__}"
    assert (made["epochs"], made["batch_size"], made["random_state"]) == ("1", "20", "0")
    assert all(isinstance(value, str) for value in made.values())


@pytest.mark.parametrize("unclear", ["real", "made"])
def test_dates_are_read_in_the_form_that_another_file_shows(folder, arguments, unclear):
    # 5 June or 6 May? A day above 12 in the other file tells
    days = {"real": ["13/06/2020", "05/06/2020"] * 5, "made": ["14/06/2020", "05/06/2020"] * 5}
    days[unclear] = ["05/06/2020", "07/08/2020"] * 5
    for name, values in days.items():
        pd.DataFrame({"day": values, "x": range(10)}).to_csv(f"{name}.csv", index=False)
    assert main(["evaluate", "real.csv", "made.csv"]) == 2
    for name in ("real_train", "synthetic"):
        assert pd.Timestamp("2020-06-05") in set(arguments[name]["day"])


def test_columns_of_numbers_in_parquet_and_text_in_csv(folder, arguments):
    pytest.importorskip("pyarrow")
    pd.DataFrame({0: [1, 2, 3], 1: [4, 5, 6]}).to_parquet("real.parquet")
    pd.DataFrame({0: [1, 2, 3], 1: [4, 5, 6]}).to_csv("made.csv", index=False)
    assert main(["evaluate", "real.parquet", "made.csv", "--target", "1"]) == 2
    assert list(arguments["synthetic"]) == list(arguments["real_train"])
    assert arguments["target"] == list(arguments["real_train"])[1]


def test_names_that_would_be_code_or_commands(folder, capsys):
    column = "<script>document.title='owned'</script>"
    for seed, name in enumerate(["real", "made"]):
        table = people(150, seed).rename(columns={"dear": column, "city": "\x1b[31mred"})
        table[column] = table[column] + '"><img src=x onerror=alert(1)>'
        table.to_csv(f"{name}.csv", index=False)
    page = "<b>.html"
    assert main(["evaluate", "real.csv", "made.csv", "--target", column, "-o", page, *QUICK]) == 0
    out, _ = capsys.readouterr()
    assert column in out  # text is text
    assert out.replace("\n", "").isprintable()
    written = Path(page).read_text("utf-8")
    assert "&lt;script&gt;" in written
    assert "<script" not in written
    assert "<img" not in written


def test_letters_that_the_output_lacks(folder, monkeypatch):
    for seed, name in enumerate(["real", "made"]):
        people(150, seed).rename(columns={"price": "価格"}).to_csv(f"{name}.csv", index=False)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert main(["evaluate", "real.csv", "made.csv", "--target", "価格", *QUICK]) == 0
    sys.stdout.flush()
    assert rb"about '\u4fa1\u683c'" in sys.stdout.buffer.getvalue()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["real.csv", "real.csv"], "real.csv is REAL as well: a table is compared with itself"),
        (["real.csv", "./real.csv"], "real.csv is REAL as well"),
        (["real.csv", "made.csv", "--test", "made.csv"], "made.csv is --test as well"),
    ],
)
def test_a_table_beside_itself_is_warned_of(folder, capsys, evaluated, options, says):
    assert main(["evaluate", *options]) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"combutab: warning: {says}")
    assert err.count("\n") == 1
    assert out.count("\n") >= 3


# ---- bad ones ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-o", "real.csv"], "cannot write real.csv: that is REAL as well; choose another file"),
        (["-o", "./made.csv"], "cannot write made.csv: that is SYNTHETIC as well"),
        (["-o", "held.csv", "--test", "held.csv"], "cannot write held.csv: that is --test as well"),
        (["-o", "m", "--model", "m"], "cannot write m: that is --model as well"),
        (["-o", "no/report.html"], "no does not exist; create it first"),
        (["-o", "."], r"cannot write \.: it is a directory"),
        (["-o", f"{'x' * 300}.html"], "File name too long"),
        (["--target", "dea"], r"--target: there is no column 'dea'; did you mean 'dear'\?"),
        (["--target", "dear", "--drop", "dear"], "--target: there is no column 'dear'"),
        (["--drop", "nope"], "--drop: there is no column 'nope'"),
        (["--drop", "*"], "--drop leaves no column of REAL"),
        (["--discrete", "nope"], "--discrete: there is no column 'nope'"),
        (["--task", "regression"], "--task regression needs a column to predict: --target COLUMN"),
        (["--test", "real.csv"], "real.csv is REAL as well; give rows that the generator has not"),
        (["--test", "none.csv"], "there is no file none.csv"),
        (["--model", "none"], "no such file: none"),
        (["--model", "real.csv"], "real.csv is not a safetensors file"),
        (["--seed", "-1"], "Invalid value for '--seed'"),
        (["--jobs", "0"], "Invalid value for '--jobs'"),
        (["more.csv"], "unexpected extra argument"),
    ],
)
def test_what_is_refused_before_anything_is_computed(folder, complaint, uncalled, options, says):
    assert re.search(says, complaint("evaluate", "real.csv", "made.csv", *options))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--target", "dear", "--task", "regression"],
            "the target 'dear' has text that is not numbers: 'yes'",
        ),
        (
            ["--target", "dear", "--task", "ranking"],
            "--task ranking is not one of auto, classification, regression",
        ),
        (["--target", "dear", "--learners", "oracle"], "unknown learner 'oracle'; known are "),
    ],
)
def test_what_the_evaluation_refuses(folder, complaint, options, says):
    assert says in complaint("evaluate", "real.csv", "made.csv", "-o", "r.html", *options)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "there is no file t.csv"),
        ("", "t.csv is empty"),
        ("age,city\n", "t.csv has a header and no rows"),
        ("age,age\n1,2\n", "t.csv has more than one column named 'age'"),
        ("age,city\n1,x\n", "not those of real.csv: t.csv lacks ['price', 'dear']"),
        ("age,city,price,dear,<b>\n1,x,2,yes,3\n", "t.csv has besides ['<b>']"),
        ("age,city,price,dear\nold,x,2,yes\n", "column 'age' of t.csv"),
    ],
)
@pytest.mark.parametrize("role", ["synthetic", "test"])
def test_bad_tables(folder, complaint, text, says, role):
    if text is not None:
        Path("t.csv").write_text(text)
    tables = ["t.csv"] if role == "synthetic" else ["made.csv", "--test", "t.csv"]
    assert says in complaint("evaluate", "real.csv", *tables, "-o", "r.html")


def test_a_model_that_makes_no_rows(folder, complaint):
    combutab.MLPClassifier(max_iter=1, n_iter_no_change=float("inf")).fit(
        [[0.0], [1.0]] * 10, [0, 1] * 10
    ).save("other")
    says = complaint("evaluate", "real.csv", "made.csv", "--model", "other")
    assert "other holds a MLPClassifier, which makes no rows; give a file of a CTGAN" in says


def test_a_disk_that_fills_up_leaves_the_old_page(folder, capsys, monkeypatch, files, evaluated):
    Path("report.html").write_text("old")
    before = files(folder)

    def fail(self, *arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    assert main(["evaluate", "real.csv", "made.csv", "-o", "report.html"]) == 2
    out, err = capsys.readouterr()
    assert err == "combutab: error: cannot write to report.html: No space left on device\n"
    assert out == ""
    assert files(folder) == before
    assert Path("report.html").read_text() == "old"


def test_ctrl_c_writes_nothing(folder, on_terminal):
    people(20_000, 3).to_csv("real.csv", index=False)  # long enough for the network
    Path("report.html").write_text("old")
    options = ["--target", "price", "--learners", "mlp", "-o", "report.html"]
    with on_terminal("evaluate", "real.csv", "made.csv", *options, cwd=folder) as (process, shown):
        deadline = time.monotonic() + 300
        while b"Training learners" not in b"".join(shown):
            assert process.poll() is None, b"".join(shown)
            assert time.monotonic() < deadline, b"".join(shown)
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 130
    text = b"".join(shown).decode()
    assert out == ""
    assert text.endswith("combutab: interrupted\r\n")
    assert "Traceback" not in text
    assert Path("report.html").read_text() == "old"
    assert sorted(os.listdir(folder)) == ["held.csv", "made.csv", "real.csv", "report.html"]


def test_a_bug_is_not_dressed_up_as_a_users_error(folder, monkeypatch):
    def fail(**options):
        raise RuntimeError("a bug")

    monkeypatch.setattr(combutab.reports, "evaluate_synthetic", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["evaluate", "real.csv", "made.csv"])
