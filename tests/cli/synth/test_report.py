"""``combutab synth --report``: what is set aside, written and refused."""

import os
import re
from pathlib import Path

import pandas as pd
import pytest

from combutab.cli import main
from combutab.generators import CTGAN
from tests.cli.people import people

pytestmark = pytest.mark.usefixtures("short_reports")

TRAIN = ["--model", "ctgan", "--epochs", "1", "--batch-size", "20", "--device", "cpu"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with real.csv in it."""
    monkeypatch.chdir(tmp_path)
    people(150, 0).to_csv("real.csv", index=False)
    return tmp_path


def test_a_report_of_rows_that_were_just_made(folder, capsys, files):
    before = files(folder)
    options = ["-o", "new.csv", "--report", "report.html", "--save", "model", "--seed", "3"]
    assert main(["synth", "real.csv", *options, *TRAIN]) == 0
    out, err = capsys.readouterr()
    assert err == (
        "combutab: 30 of 150 rows are set aside for the report; the generator learns from the "
        "other 120 (--holdout)\n"
    )
    assert [line.split(":")[0] for line in out.splitlines() if line[0] != " "] == [
        "usefulness",
        "likeness",
        "privacy",
    ]
    assert files(folder) == sorted([*before, "model", "new.csv", "report.html"])
    assert len(pd.read_csv("new.csv")) == 150
    page = Path("report.html").read_text("utf-8")
    for text in ("new.csv", "real.csv", "CTGAN", "batch_size"):
        assert text in page


def test_the_generator_does_not_see_the_rows_set_aside(folder, arguments, monkeypatch):
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
    assert arguments["made"]["Generator"].startswith("CTGAN of combutab ")


def test_the_same_rows_without_a_holdout_as_without_a_report(folder, arguments, capsys):
    assert main(["synth", "real.csv", "-o", "a.csv", *TRAIN]) == 0
    options = ["--report", "r.html", "--holdout", "0"]
    assert main(["synth", "real.csv", "-o", "b.csv", *options, *TRAIN]) == 2
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()
    assert arguments["real_test"] is None
    assert len(arguments["real_train"]) == 150
    assert "set aside" not in capsys.readouterr().err


def test_what_goes_wrong_after_the_rows_are_written_says_so(folder, arguments, capsys):
    assert main(["synth", "real.csv", "-o", "new.csv", "--report", "r.html", *TRAIN]) == 2
    err = capsys.readouterr().err.splitlines()[-1]
    assert err == "combutab: error: new.csv is written, but not the report: noted"
    assert sorted(os.listdir()) == ["new.csv", "real.csv"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--target", "dear"], "--target dear is for a report: --report report.html"),
        (["--holdout", "0.1"], "--holdout 0.1 is for a report: --report report.html"),
        (["--report", "real.csv"], "cannot write real.csv: that is DATA as well"),
        (["--report", "new.csv"], "cannot write new.csv: that is OUT as well"),
        (["--report", "m", "--save", "m"], "cannot write m: that is --save as well"),
        (["--report", "no/r.html"], "no does not exist; create it first"),
        (["--report", "r", "--target", "dea"], r"there is no column 'dea'; did you mean 'dear'\?"),
        (["--report", "r", "--target", "dear", "--drop", "dear"], "there is no column 'dear'"),
        (
            ["--report", "r", "--target", "dear", "--drop", "age,city,price"],
            "there is no column beside 'dear' to predict it from",
        ),
        (["--report", "r", "--target", "day"], "target 'day' holds dates .* --discrete day"),
        (["--report", "r", "--holdout", "0.95"], "--holdout must lie between 0 and 0.9, got 0.95"),
        (["--report", "r", "--holdout", "-0.1"], "--holdout must lie between 0 and 0.9, got -0.1"),
        (["--report", "r", "--holdout", "nan"], "--holdout must lie between 0 and 0.9, got nan"),
        (
            ["--report", "r", "--holdout", "0.005"],
            "sets 1 of 150 rows aside; at least 2 are needed",
        ),
        (["--report", "r", "--condition", "city=Rome"], "leave --condition or --report out"),
    ],
)
def test_reports_that_are_refused_before_the_training(folder, complaint, uncalled, options, says):
    if "day" in options:
        days = pd.date_range("2020-01-01", periods=150).strftime("%Y-%m-%d")
        people(150, 0).assign(day=days).to_csv("real.csv", index=False)
    assert re.search(says, complaint("synth", "real.csv", "-o", "new.csv", *options, *TRAIN))


def test_too_few_rows_to_learn_from(folder, complaint, uncalled):
    people(4, 0).to_csv("real.csv", index=False)
    options = ["--report", "r.html", "--holdout", "0.8", "--min-frequency", "1", *TRAIN]
    says = complaint("synth", "real.csv", "-o", "new.csv", *options)
    assert "sets 3 of 4 rows aside; at least 2 are needed, and 2 to learn from" in says
