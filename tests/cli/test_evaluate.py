"""``combutab evaluate`` and ``combutab synth --report``: what they print and write."""

import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest

import combutab.reports
from combutab.cli import main
from combutab.generators import CTGAN
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


# ---- good runs ---------------------------------------------------------------------------------


def test_findings_are_printed_and_the_page_written(folder, capsys, files):
    before = files(folder)
    options = ["--target", "dear", "--test", "held.csv", "-o", "report.html", *QUICK]
    assert main(["evaluate", "real.csv", "made.csv", *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = [line for line in out.splitlines() if not line.startswith("  ")]
    number = r"utility: good, difference of ROC AUC [+-]0\.\d+ \(95 % interval .*\)\. Models .*"
    assert re.fullmatch(number, lines[0])
    assert [line.split(".")[0] for line in lines[1:]] == ["fidelity: good", "privacy: good"]
    assert files(folder) == sorted([*before, "report.html"])
    page = Path("report.html").read_text("utf-8")
    assert all(name in page for name in ("real.csv", "made.csv", "held.csv"))
    assert "Training on the synthetic rows keeps" in page


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


def test_all_columns_as_targets_reach_the_evaluation(folder, arguments):
    assert main(["evaluate", "real.csv", "made.csv", "--target", "all"]) == 2
    assert arguments["target"] == "all"


def test_named_identifiers_reach_the_evaluation(folder, arguments, capsys):
    assert main(["evaluate", "real.csv", "made.csv", "--identifiers", "age"]) == 2
    assert arguments["identifiers"] == ["age"]
    assert main(["evaluate", "real.csv", "made.csv", "--identifiers", "agge"]) == 2
    assert "agge" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("0.01", 0.01)])
def test_min_frequency_reaches_the_evaluation(folder, arguments, text, value):
    assert main(["evaluate", "real.csv", "made.csv", "--min-frequency", text]) == 2
    assert arguments["min_frequency"] == value
    assert type(arguments["min_frequency"]) is type(value)


def test_how_the_rows_were_made(folder, arguments):
    assert main(["synth", "real.csv", "-o", "new.csv", "--save", "model", *TRAIN]) == 0
    assert main(["evaluate", "real.csv", "new.csv", "--model", "model"]) == 2
    made = arguments["made"]
    assert made["Generator"] == f"CTGAN of combutab {combutab.__version__}"
    assert (made["epochs"], made["batch_size"], made["random_state"]) == ("1", "20", "0")
    assert all(isinstance(value, str) for value in made.values())
    assert isinstance(arguments["generator"], CTGAN)


@pytest.mark.parametrize("unclear", ["real", "made"])
def test_ambiguous_dates_follow_the_other_file(folder, arguments, unclear):
    # 5 June or 6 May? A day above 12 in the other file tells
    days = {"real": ["13/06/2020", "05/06/2020"] * 5, "made": ["14/06/2020", "05/06/2020"] * 5}
    days[unclear] = ["05/06/2020", "07/08/2020"] * 5
    for name, values in days.items():
        pd.DataFrame({"day": values, "x": range(10)}).to_csv(f"{name}.csv", index=False)
    assert main(["evaluate", "real.csv", "made.csv"]) == 2
    for name in ("real_train", "synthetic"):
        assert pd.Timestamp("2020-06-05") in set(arguments[name]["day"])


def test_numbered_columns_match_between_parquet_and_csv(folder, arguments):
    pytest.importorskip("pyarrow")
    pd.DataFrame({0: [1, 2, 3], 1: [4, 5, 6]}).to_parquet("real.parquet")
    pd.DataFrame({0: [1, 2, 3], 1: [4, 5, 6]}).to_csv("made.csv", index=False)
    assert main(["evaluate", "real.parquet", "made.csv", "--target", "1"]) == 2
    assert list(arguments["synthetic"]) == list(arguments["real_train"])
    assert arguments["target"] == list(arguments["real_train"])[1]


# ---- requirements ------------------------------------------------------------------------------


def test_met_requirements_are_counted(folder, capsys):
    options = ["--test", "held.csv", "--require", "columns>=0.5", "--require", "copies <= 150"]
    assert main(["evaluate", "real.csv", "made.csv", *options]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "2 requirements met."
    assert err == ""


def test_unmet_requirements_are_printed_one_by_one(folder, capsys):
    options = ["--test", "held.csv", "-o", "report.html", "--json", "report.json"]
    for requirement in ("columns>=0.5", "membership_tpr@10%<=0.2", "copies<=10"):
        options += ["--require", requirement]
    assert main(["evaluate", "real.csv", "real.csv", *options]) == 3
    lines = capsys.readouterr().err.splitlines()[1:]  # the first warns of equal files
    assert lines == [
        "combutab: requirement not met: membership_tpr@10%<=0.2: it is 1",
        "combutab: requirement not met: copies<=10: it is 150",
    ]
    assert Path("report.html").exists()  # the page and the scores are written all the same
    record = json.loads(Path("report.json").read_text("utf-8"))
    assert record["scores"]["copies"] == 150
    assert record["scores"]["utility"] is None
    assert record["levels"]["privacy"] == "poor"
    assert record["tables"]["test"] == {"name": "held.csv", "n_rows": 150}


def test_person_reaches_the_evaluation(folder, arguments):
    assert main(["evaluate", "real.csv", "made.csv", "--person", "age"]) == 2
    assert arguments["person"] == "age"


# ---- combutab synth --report ---------------------------------------------------------------------


def test_a_report_of_rows_that_were_just_made(folder, capsys, files):
    before = files(folder)
    options = ["-o", "new.csv", "--report", "report.html", "--save", "model", "--seed", "3"]
    assert main(["synth", "real.csv", *options, *TRAIN]) == 0
    out, err = capsys.readouterr()
    assert err == (
        "combutab: 30 of 150 rows are held out for the report; the generator is trained on the "
        "other 120 (--holdout)\n"
    )
    assert [line.split(":")[0] for line in out.splitlines() if line[0] != " "] == [
        "utility",
        "fidelity",
        "privacy",
    ]
    assert files(folder) == sorted([*before, "model", "new.csv", "report.html"])
    assert len(pd.read_csv("new.csv")) == 150
    page = Path("report.html").read_text("utf-8")
    for text in ("new.csv", "real.csv", "CTGAN", "batch_size"):
        assert text in page


def test_generator_never_sees_held_out_rows(folder, arguments, monkeypatch):
    learned = []
    fit = CTGAN.fit
    monkeypatch.setattr(
        CTGAN, "fit", lambda self, X, **options: learned.append(X) or fit(self, X, **options)
    )
    options = ["-o", "new.csv", "--report", "r.html", "--holdout", "0.4", "--target", "dear"]
    options += ["--discrete", "age", "--min-frequency", "1"]
    assert main(["synth", "real.csv", *options, *TRAIN]) == 2
    whole = pd.read_csv("real.csv")
    train, test = arguments["real_train"], arguments["real_test"]
    assert len(test) == 60
    pd.testing.assert_frame_equal(learned[0], train)
    pd.testing.assert_frame_equal(pd.concat([train, test]).sort_index(), whole)
    made = arguments["synthetic"]
    pd.testing.assert_frame_equal(pd.read_csv("new.csv"), made, check_dtype=False)
    assert arguments["target"] == "dear"
    assert arguments["categorical"] == ["age"]
    assert arguments["min_frequency"] == 1
    assert isinstance(arguments["generator"], CTGAN)
    assert arguments["made"] == {"Seed of the rows": "0"}


def test_failed_report_says_that_rows_are_written(folder, arguments, capsys):
    assert main(["synth", "real.csv", "-o", "new.csv", "--report", "r.html", *TRAIN]) == 2
    err = capsys.readouterr().err.splitlines()[-1]
    assert err == "combutab: error: new.csv is written, but not the report: noted"
    assert sorted(os.listdir()) == ["held.csv", "made.csv", "new.csv", "real.csv"]
