"""``combutab compare``: what it prints and writes, and one clear line for each user's error."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

import combutab
from combutab import model_selection
from combutab.cli import main

pytestmark = pytest.mark.usefixtures("few_trees")
WRITTEN = ["results.csv", "summary.csv", "baselines.csv", "comparison.png", "journal.jsonl"]
WRITTEN += ["best_model.safetensors"]

SMALL = ["--seeds", "1", "--folds", "3", "--epochs", "2", "--hidden", "8"]
SMALL += ["--activations", "relu,combu,pln-4"]
QUICK = [*SMALL, "--baselines", "none"]


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    X.columns = ["a", "b", "c", "d"]
    return X.assign(kind=y.map({0: "setosa", 1: "versicolor", 2: "virginica"}))


@pytest.fixture
def folder(tmp_path, monkeypatch, iris):
    """The working directory, with iris.csv in it."""
    iris.to_csv(tmp_path / "iris.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- a good run ------------------------------------------------------------------------------


def test_compare_prints_a_table_and_writes_its_files(folder, capsys, iris, files):
    assert main(["compare", "iris.csv", "--target", "kind", *SMALL]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "iris: 150 rows, classification; training 9 networks (3 activations x 3 folds x 1 seed), "
        "hidden layers 8, up to 2 epochs, on " + err.rsplit(" ", 1)[1].strip()
    ]
    assert "\niris: accuracy (higher is better)\n3 folds x 1 seed, up to 2 epochs\n" in out
    assert "has the best mean accuracy" in out
    assert max(map(len, out.splitlines())) <= 80

    place = folder / "combutab-compare"
    written = [f"combutab-compare/{name}" for name in WRITTEN]
    assert files(folder) == sorted([*written, "iris.csv"])
    results = pd.read_csv(place / "results.csv")
    assert len(results) == 9
    baselines = pd.read_csv(place / "baselines.csv")["baseline"]
    assert baselines.unique().tolist() == ["guess", "linear", "boosting"]
    summary = pd.read_csv(place / "summary.csv")
    assert summary.columns[:4].tolist() == ["data", "activation", "metric", "mean"]
    rows = [line for line in out.splitlines() if re.match(r"(relu|combu|pln-4) +\d", line)]
    assert [row.split()[0] for row in rows] == summary["activation"].tolist()
    for row, (_, line) in zip(rows, summary.iterrows(), strict=True):
        shown = [float(number) for number in re.findall(r"-?\d+\.\d+", row)][:4]
        wanted = line[["mean", "low", "high", "mean_rank"]]
        np.testing.assert_allclose(shown, wanted.astype(float), atol=0.006)
    assert (place / "comparison.png").read_bytes().startswith(b"\x89PNG")
    best = combutab.load(place / "best_model.safetensors")
    assert best.activation == summary["activation"].iloc[0]
    assert set(best.predict(iris.drop(columns="kind"))) <= set(iris["kind"])


def test_options_reach_the_comparison(folder, capsys, iris):
    iris.to_csv("iris.tsv", sep="\t", index=False)
    options = ["--task", "regression", "--metric", "mse", "--test", "wilcoxon", "--device", "cpu"]
    options += ["--baselines", "linear", "--recipe", "paper"]
    options += ["--hidden", "8,4", "--folds", "4", "--seeds", "2", "--epochs", "3"]
    assert main(["compare", "iris.tsv", "--target", "a", *QUICK, *options]) == 0
    out, err = capsys.readouterr()
    assert "\niris: MSE in variances of the target (lower is better)\n4 folds x 2 seeds" in out
    assert "hidden layers 8-4, 3 epochs, on cpu" in err
    summary = pd.read_csv("combutab-compare/summary.csv")
    assert (summary["test"] == "wilcoxon").all()
    assert summary["mean"].is_monotonic_increasing
    results = pd.read_csv("combutab-compare/results.csv")
    assert results[["fold", "seed", "epochs"]].nunique().tolist() == [4, 2, 1]
    baselines = pd.read_csv("combutab-compare/baselines.csv")["baseline"]
    assert set(baselines) == {"linear"}


@pytest.mark.parametrize("split", ["time:day", "group:who"])
def test_rows_are_split_by_time_or_by_group(split, folder, capsys, iris):
    days = pd.date_range("2024-01-01", periods=75).repeat(2)
    kinds = iris["kind"].to_numpy()[np.arange(150) * 50 % 149 % 150]
    table = iris.assign(day=days, who=np.arange(150) % 15 + 100, kind=kinds)
    table.sample(frac=1, random_state=0).to_csv("days.csv", index=False)
    assert main(["compare", "days.csv", "--target", "kind", *QUICK, "--split", split]) == 0
    results = pd.read_csv("combutab-compare/results.csv").groupby("fold")[["n_train", "n_test"]]
    n_train, n_test = results.first().to_numpy().T.tolist()
    out = capsys.readouterr().out
    columns = combutab.load("combutab-compare/best_model.safetensors").feature_names_in_
    if split == "time:day":
        assert (n_train, n_test) == ([38, 76, 112], [37, 37, 37])  # 39 and 113, but for a day
        assert "3 folds (time:day) x 1 seed" in out
        assert "day" in columns
    else:
        assert (n_train, n_test) == ([100] * 3, [50] * 3)
        assert "3 folds of whole groups x 1 seed" in out
        assert "who" not in columns


def test_without_data_two_data_sets_are_compared(tmp_path, monkeypatch, capsys, files):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["compare", *QUICK, "--out", "here", "--report", "pages/r.html"]) == 0
    out, err = capsys.readouterr()
    assert "wdbc: accuracy" in out
    assert "impedance: R2" in out
    assert "\x1b" not in out + err
    assert len(err.splitlines()) == 2  # no bar in a pipe
    names = ("impedance", "wdbc")
    assert files(tmp_path) == sorted(
        [f"here/{d}/{f}" for d in names for f in WRITTEN] + [f"pages/r-{d}.html" for d in names]
    )
    for name in names:
        page = Path(f"pages/r-{name}.html")
        assert f"<h1>{name}: which activation is best?</h1>" in page.read_text("utf-8")
        assert f"Wrote {page}\n" in out
    labels = combutab.load(tmp_path / "here/wdbc/best_model.safetensors").classes_
    assert labels.tolist() == ["benign", "malignant"]


def test_models_are_compared_instead_of_activations(folder, capsys, files):
    command = ["compare", "iris.csv", "--target", "kind", "--models", "linear,boosting"]
    assert main([*command, "--folds", "3", "--report", "models.html"]) == 0
    out, err = capsys.readouterr()
    assert "training 6 fits (2 models x 3 folds x 1 seed), on " in err
    assert "\nmodel " in out
    assert "\nAdvice: Use " in out
    written = [f"combutab-compare/{name}" for name in WRITTEN if "model" not in name]
    assert files(folder) == sorted([*written, "iris.csv", "models.html"])
    results = pd.read_csv("combutab-compare/results.csv")
    assert results["model"].unique().tolist() == ["linear", "boosting"]
    assert main([*command, "--epochs", "3"]) == 2
    assert "--epochs cannot be used with --models" in capsys.readouterr().err


def test_long_run_is_announced_and_interruptible(folder, capsys, monkeypatch, files):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("combutab.cli._compare._LONG_SECONDS", 0.0)
    monkeypatch.setattr(model_selection, "run_comparison", interrupt)
    options = ["--target", "kind", *QUICK, "--device", "cpu"]
    assert main(["compare", "iris.csv", *options]) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert "This may take about 10 seconds on two cores. To shorten it, use --seeds 1" in err
    assert err.splitlines()[-1] == (
        "combutab: interrupted; no network was finished, so no scores are kept"
    )
    assert files(folder) == ["iris.csv"]


def test_compare_reads_dates_and_leading_zeros(folder, capsys, iris):
    days = pd.Timestamp("2024-01-31") + pd.to_timedelta(range(len(iris)), unit="D")
    zips = ["00501", "10115"] * 75
    iris.assign(day=days.strftime("%d.%m.%Y"), zip=zips).to_csv("days.csv", index=False)
    assert main(["compare", "days.csv", "--target", "kind", *QUICK]) == 0
    assert "day" not in capsys.readouterr().err.replace("days:", "")
    model = "combutab-compare/best_model.safetensors"
    assert combutab.load(model).encoder_.kinds_ == (*["number"] * 4, "datetime", "category")
    assert main(["predict", model, "days.csv", "-o", "out.csv"]) == 0
    assert pd.read_csv("out.csv").columns.tolist() == ["predicted_kind"]
