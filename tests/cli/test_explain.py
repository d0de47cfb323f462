"""combutab explain: importances, explained rows and the page, of a model's file."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from combutab.cli import main

pytestmark = pytest.mark.usefixtures("few_resamples")

SMALL = ["--epochs", "8", "--set", "hidden_layer_sizes=(16,)", "--members", "1"]


def rows(n=120):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(40, 10, n).round(1), "noise": rng.random(n).round(3)})
    table["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D")
    table["since"] = table["since"].dt.strftime("%d.%m.%Y")
    table["code"] = np.where(table["age"] > 40, "01", "02")
    table["rent"] = 3 * table["age"]
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The table as flats.csv, a classifier of its codes and a regressor of its rents."""
    folder = tmp_path_factory.mktemp("explain")
    rows().to_csv(folder / "flats.csv", index=False)
    for target in ("code", "rent"):
        given = [str(folder / "flats.csv"), "--target", target, "--seed", "1", *SMALL]
        assert main(["fit", *given, "--out", str(folder / f"{target}.safetensors")]) == 0
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


FAST = ["--repeats", "2"]


@pytest.mark.parametrize(("target", "score"), [("code", "ROC AUC"), ("rent", "R2")])
def test_importances_and_explained_rows(here, capsys, target, score):
    assert main(["explain", f"{target}.safetensors", "flats.csv", "--rows", "1,3", *FAST]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Permutation importance: decrease of {score} when a column is shuffled")
    first = re.search(r"95 % interval\n(\w+)", out)[1]
    assert first in ("age", "rent", "code")
    for row in (0, 2):
        line = re.search(rf"Row {row + 1}: .*?(?=\nRow|\Z)", out, re.DOTALL)[0]
        assert re.search(rf"\nage +{rows()['age'][row]} ", line)
        date = pd.to_datetime(rows()["since"], format="%d.%m.%Y")[row]
        assert f"{date:%Y-%m-%d} " in line


def test_the_page(here, tmp_path, capsys):
    out = tmp_path / "explain.html"
    given = ["code.safetensors", "flats.csv", "--out", str(out), "--columns", "age,since"]
    assert main(["explain", *given, "--metric", "log_loss", *FAST]) == 0
    text = re.sub(r"<[^>]+>", " ", out.read_text("utf-8"))
    for said in ("Prediction of code", "increase of log loss", "Largest effect: age"):
        assert said in text
    assert "120 rows of flats.csv" in text


def test_rows_without_a_target(here, tmp_path, capsys):
    table = rows()
    table.loc[:4, "rent"] = np.nan
    table.to_csv(tmp_path / "gaps.csv", index=False)
    table.drop(columns="rent").to_csv(tmp_path / "none.csv", index=False)
    assert main(["explain", "rent.safetensors", str(tmp_path / "gaps.csv"), *FAST]) == 0
    shown = capsys.readouterr()
    assert "115 rows)" in shown.out
    assert "5 rows without a target left out" in shown.err
    assert main(["explain", "rent.safetensors", str(tmp_path / "none.csv"), "--rows", "2"]) == 0
    assert capsys.readouterr().out.startswith("Row 2: prediction ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--rows", "0"], "'0' is not a row number; 1 is the first row below the header"),
        (["--rows", "121"], "--rows: there is no row 121; flats.csv has 120 rows"),
        (["--metric", "r2"], "--metric: 'r2' is a metric of regression"),
        (["--columns", "ages"], "--columns: there is no column 'ages'; did you mean 'age'"),
        (["--target", "noise"], "which is not a class of the model; its classes are '01', '02'"),
        (["--out", "flats.csv"], "it is the same file as DATA"),
        (
            ["--min-frequency", "0"],
            "'--min-frequency': 0 is not possible; give a whole number of rows",
        ),
    ],
)
def test_what_is_refused(here, complaint, given, said):
    assert said in complaint("explain", "code.safetensors", "flats.csv", *given)


def test_a_table_without_the_target(here, complaint):
    rows().drop(columns="code").to_csv(Path("none.csv"), index=False)
    said = complaint("explain", "code.safetensors", "none.csv")
    assert "does not have the target 'code'" in said
    assert "--rows" in said


# ---- combutab fit --report -----------------------------------------------------------------------


def text_of(path):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", path.read_text("utf-8")))


def test_fit_report_describes_held_out_rows(here, tmp_path, capsys):
    out, report = tmp_path / "model.safetensors", tmp_path / "model.html"
    options = ["--set", "early_stopping=True", "--report", str(report), "--out", str(out)]
    assert main(["fit", "flats.csv", "--target", "code", *SMALL, *options]) == 0
    n = re.search(r"Scores on (\d+) rows set aside", capsys.readouterr().out)[1]
    text = text_of(report)
    for said in (
        f"Rows set aside {n}, random",
        f"Scores on {n} rows",
        "Table flats.csv",
        "Rows 120",
    ):
        assert said in text, said
    assert "combutab predict model.safetensors" in text
    assert "hidden_layer_sizes=(16,)" in text


def test_report_without_held_out_rows_has_no_scores(here, tmp_path):
    out, report = tmp_path / "model.safetensors", tmp_path / "model.html"
    rows().assign(name=[f"row {i}" for i in range(120)]).to_csv(tmp_path / "a.csv", index=False)
    given = [str(tmp_path / "a.csv"), "--target", "rent", *SMALL]
    assert main(["fit", *given, "--report", str(report), "--out", str(out)]) == 0
    text = text_of(report)
    assert "No rows were set aside, so there are no scores" in text
    assert "95 % intervals" not in text
    assert "Warnings during training" in text
    assert "row 7" not in text
