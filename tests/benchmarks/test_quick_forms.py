"""Each benchmark runs in its smallest form, so that none rots; what it says is not judged here."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.machine import describe_machine, processor
from benchmarks.papers.common.command import Experiment, Job, Study
from benchmarks.papers.common.page import Page
from benchmarks.quality import predictions
from benchmarks.speed import gpu
from tests.benchmarks.quick_forms import run_quick

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
DATA_HOME = ROOT.parent / "shared" / "data"
COMBU = FOLDER / "papers" / "combu"
TIMINGS = {p.stem for p in (FOLDER / "speed").glob("*.py") if "def main()" in p.read_text("utf-8")}
SIMPLE = [
    *sorted(f"speed.{stem}" for stem in TIMINGS - {"scaling"}),  # it has a test of its own
    *sorted(f"papers.combu.{p.stem}" for p in COMBU.glob("formula_*.py")),
]
STUDIES = [
    *sorted(f"papers.combu.{path.stem}" for path in COMBU.glob("table[356]_*.py")),
    "papers.combu.feynman",
]


def test_there_are_benchmarks():
    assert len(TIMINGS) == 13
    assert len(STUDIES) == 4


@pytest.mark.parametrize("script", SIMPLE)
def test_quick_form(script, tmp_path):
    if script == "speed.generators" and not find_spec("ctgan"):
        pytest.skip("compares with ctgan")
    run_quick(script, tmp_path, *(["--device", "cpu"] if script == "speed.gpu" else []))
    name = script.rpartition(".")[2]
    assert list(tmp_path.glob(f"*{name.removesuffix('s')}*.csv")), "results are written"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 2
    printed = capsys.readouterr().out
    assert printed.startswith("no GPU here")
    assert printed.count("\n") == 1
    assert not list(tmp_path.iterdir())


def two_tables(folder):
    """CSV files "one", of classes, and "two", of numbers."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.normal(size=80), "kind": rng.choice(list("ab"), 80)})
    rows.assign(y=np.where(rows["x"] > 0, "up", "down")).to_csv(folder / "one.csv", index=False)
    rows.assign(y=3 * rows["x"]).to_csv(folder / "two.csv.gz", index=False)


def test_quick_predictions(tmp_path):
    two_tables(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    models = [*predictions.OURS, "scikit-learn MLP", "HistGradientBoosting"]
    arguments = ["--models", *models, "--data-home", str(tmp_path)]
    assert "12 of 12 to go" in run_quick("quality.predictions", out, *arguments)
    found = pd.read_csv(out / "quality_predictions.csv")
    assert found.groupby("data")["model"].apply(list).to_dict() == {"one": models, "two": models}
    assert (found["task"] == "classification").equals(found["log_loss"].notna())
    assert found["test_error"].between(0, 10).all()
    page = (out / "quality_predictions.md").read_text()
    assert "not run: CatBoost, LightGBM, RealMLP-TD, TabM-D" in page
    assert page.count("| not judged |") == len(predictions.BARS)
    assert "to go" not in run_quick("quality.predictions", out, *arguments)


def of_models(errors, **more):
    """Rows of one table, a model each."""
    rows = pd.DataFrame({"model": list(errors), "test_error": list(errors.values())})
    given = {"data": "a", "split": 0, "n_test": 50, "log_loss": rows["test_error"]}
    given |= {"task": "classification", "seconds": 3.0, "megabytes": 1.0}
    return rows.assign(**(given | more))


def test_ratios_are_to_the_best_peer():
    first = {"combutab": 0.1, "combutab Pack": 0.3, "CatBoost": 0.2, "RealMLP-TD": 0.4}
    second = {"combutab": 0.4, "combutab Pack": 0.04, "CatBoost": 0.2, "RealMLP-TD": 0.0}
    rows = pd.concat([of_models(first), of_models(second, data="b")], ignore_index=True)
    rows.loc[rows["model"] == "RealMLP-TD", "seconds"] = [2.0, 18.0]
    found = predictions.summary(rows)
    # no mistake among 50 rows counts as half of one: 0.01
    expected = {"combutab": np.sqrt(0.5 * 40), "combutab Pack": np.sqrt(1.5 * 4)}
    expected |= {"CatBoost": np.sqrt(20), "RealMLP-TD": np.sqrt(2)}
    assert found["error"].to_dict() == pytest.approx(expected)
    assert found["classification"].to_dict() == pytest.approx(expected)
    assert found.loc["combutab", "seconds / RealMLP-TD"] == pytest.approx(0.5)
    assert found.loc["combutab", "mean rank"] == 2.5


def test_models_are_compared_on_the_same_splits():
    first = {"combutab": 0.2, "CatBoost": 0.1, "RealMLP-TD": 0.3, "TabM-D": 0.05}
    second = {"combutab": 0.2, "CatBoost": 0.3, "RealMLP-TD": 0.1}
    rows = pd.concat([of_models(first), of_models(second, split=1)], ignore_index=True)
    most, fewer = predictions.same_fits(rows)
    assert set(most["model"]) == set(second)
    assert (fewer["split"] == 0).all()
    # CatBoost and RealMLP-TD have a mean of 0.2; TabM-D has run on the first split alone
    found = predictions.summary(most)
    for column in ("error", "log loss"):
        assert found[column].to_dict() == pytest.approx(dict.fromkeys(second, 1))
    assert set(found["fits"]) == {2}
    found = predictions.summary(fewer)
    expected = {"combutab": 4, "CatBoost": 2, "RealMLP-TD": 6, "TabM-D": 1}
    assert found["error"].to_dict() == pytest.approx(expected)
    assert set(found["fits"]) == {1}


def test_each_model_stands_beside_the_defaults_on_its_own_splits():
    tables = {"a": 1.0, "b": 4.0, "c": 0.25}
    rows = pd.concat(
        of_models(
            {"combutab": easy * 0.2, "CatBoost": easy * 0.2 * ratio}
            | ({} if split else {"TabM-D": 0.1 * ratio}),
            data=data,
            split=split,
            rows=50,
            task="regression",
        )
        for data, ratio in tables.items()
        for split, easy in ((0, 0.5), (1, 1.0))
    )
    found = predictions.beside_defaults(rows)
    # logarithms of 1, 4 and 1/4: a deviation of log 4, whose interval is 4.303 / sqrt(3) of it
    high = 4 ** (4.302653 / np.sqrt(3))
    assert found["error"].to_dict() == dict.fromkeys(
        ["CatBoost", "TabM-D"], f"1.00 [{1 / high:.2f}, {high:.2f}]"
    )
    assert found["fits"].to_dict() == {"CatBoost": 6, "TabM-D": 3}
    assert set(found["better / worse"]) == {"1 / 1 tables"}
    assert set(found["p"]) == {"1.00"}
    page = Page("quality_predictions", "", "")
    predictions.STUDY.write(page, argparse.Namespace(), rows)
    above, below = str(page).split("Each model beside")
    assert "\n| TabM-D |" not in above  # its split is easier
    assert "fewer fits: TabM-D." in below
    assert "p cannot be below 0.5." in below  # twice 1/4


def test_bars_are_judged_from_the_rows():
    errors = {"combutab": 0.21, "combutab Pack": 0.3} | dict.fromkeys(predictions.PEERS, 0.2)
    rows = of_models(errors)
    rows.loc[rows["model"] == "RealMLP-TD", "seconds"] = 9.0
    verdicts = [bar.judge(predictions.summary(rows)) for bar in predictions.BARS]
    assert [found.parts for found in verdicts] == [[True], [True], [True], [False], [True]]
    assert verdicts[0].numbers == "1.050"
    rows = rows[rows["model"] != "LightGBM"]  # the best of fewer is easier to reach
    assert [bar.judge(predictions.summary(rows)) for bar in predictions.BARS] == [None] * 5


def test_quick_table7(tmp_path):
    if not DATA_HOME.is_dir():
        pytest.skip("needs ../shared/data")
    models = ["ctgan", *(["tvae-patched"] if find_spec("ctgan") else ["tvae"])]
    arguments = ["--models", *models, "--activations", "combu", "relu", "relu+ln+proxy"]
    arguments += ["--jobs", "1", "--data-home", str(DATA_HOME)]
    first = run_quick("papers.combu.table7_generation", tmp_path, *arguments)
    assert "to go" in first
    rows = pd.read_csv(tmp_path / "table7_generation.csv")
    assert rows["error"].isna().all()
    assert set(rows["model"]) == {"real", *models}
    of_ours = rows[rows["model"] == "ctgan"]
    assert of_ours.groupby("data")["activation"].nunique().tolist() == [3, 3]
    assert of_ours.groupby("learner").size().to_dict() == {"boosting": 24, "mlp": 24}
    text = (tmp_path / "table7_generation.md").read_text()
    assert "CTGAN, the paper's" in text
    assert "Is CombU's advantage real?" in text
    assert "python -m benchmarks.papers.combu.table7_generation --quick --models ctgan" in text
    assert str(tmp_path) not in text
    assert (tmp_path / "table7_generation_mlp.png").exists()
    again = run_quick("papers.combu.table7_generation", tmp_path, *arguments)
    assert "to go" not in again, "nothing is trained twice"


@pytest.mark.parametrize("script", STUDIES)
def test_quick_study(script, tmp_path):
    arguments = ["--activations", "relu", "combu", "pln-4", "relu+ln+proxy", "--jobs", "1"]
    stem = script.rpartition(".")[2]
    if stem != "table3_formulas":
        if not DATA_HOME.is_dir():
            pytest.skip("needs ../shared/data")
        arguments += ["--data-home", str(DATA_HOME)]
    first = run_quick(script, tmp_path, *arguments)
    rows = pd.read_csv(tmp_path / f"{stem}.csv")
    assert rows["activation"].nunique() == 4
    assert rows["error"].isna().all()
    text = (tmp_path / f"{stem}.md").read_text()
    assert "combu" in text
    assert f"python -m benchmarks.{script} --quick --activations relu combu" in text
    assert str(tmp_path) not in text
    assert list(tmp_path.glob(f"{stem}*.png"))
    assert "to go" in first
    if stem == "table3_formulas":  # one that speaks for all: they are one function's studies
        again = run_quick(script, tmp_path, *arguments)
        assert "to go" not in again, "nothing is trained twice"


@pytest.mark.parametrize("tells", [True, False])
def test_a_page_names_the_machine_that_made_its_rows(tells, tmp_path):
    """Written anew elsewhere, from rows that name a processor, or beside a page that does."""
    packages = ("cpu",) if tells else ()

    def jobs(arguments):
        return [Job([{"size": "1"}], lambda: [{"error": "0"}], "one")]

    study = Study(
        "machines", "Machines", "", "benchmarks.machines",
        [Experiment("machines", ("size",), ("error",), jobs, packages=packages)],
        write=lambda page, arguments, rows: page.text(f"{len(rows)} row"),
    )  # fmt: skip
    page = tmp_path / "machines.md"
    study.main(["--out", str(tmp_path)])
    here = describe_machine()
    assert here in page.read_text("utf-8")
    there = here.replace(processor(), "Elbrus")
    for path in (page, tmp_path / "machines.csv"):
        path.write_text(path.read_text("utf-8").replace(processor(), "Elbrus"), "utf-8")
    study.main(["--out", str(tmp_path), "--report"])
    text = page.read_text("utf-8")
    assert here not in text
    assert ("Rows made on Elbrus; torch" if tells else there) in text
