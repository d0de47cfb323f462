"""Each benchmark runs in its smallest form, so that none rots; what it says is not judged here."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

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
    assert len(TIMINGS) == 10
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


def test_quick_quality(tmp_path):
    if not DATA_HOME.is_dir() or not find_spec("ctgan"):
        pytest.skip("needs ../shared/data and ctgan")
    first = run_quick("quality.generators", tmp_path, "--data-home", str(DATA_HOME))
    assert "10 of 10 to go" in first
    rows = pd.read_csv(tmp_path / "quality_generators.csv")
    assert rows.groupby("data")["model"].nunique().tolist() == [5, 5]
    assert rows["accuracy"].notna().sum() == rows["mae"].notna().sum() == 5
    text = (tmp_path / "quality_generators.md").read_text()
    assert "combutab TVAE" in text
    assert str(tmp_path) not in text
    again = run_quick("quality.generators", tmp_path, "--data-home", str(DATA_HOME))
    assert "to go" not in again, "nothing is trained twice"


def test_quick_predictions(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.normal(size=80), "kind": rng.choice(list("ab"), 80)})
    rows.assign(y=np.where(rows["x"] > 0, "up", "down")).to_csv(tmp_path / "one.csv", index=False)
    rows.assign(y=3 * rows["x"]).to_csv(tmp_path / "two.csv.gz", index=False)
    out = tmp_path / "out"
    out.mkdir()
    models = ["combutab", "scikit-learn MLP", "HistGradientBoosting"]
    arguments = ["--models", *models, "--data-home", str(tmp_path)]
    assert "6 of 6 to go" in run_quick("quality.predictions", out, *arguments)
    found = pd.read_csv(out / "quality_predictions.csv")
    assert found.groupby("data")["model"].apply(list).to_dict() == {"one": models, "two": models}
    assert (found["task"] == "classification").equals(found["log_loss"].notna())
    assert found["test_error"].between(0, 10).all()
    best = found["test_error"].clip(lower=1e-4)
    ratio = best / best.groupby(found["data"]).transform("min")
    table = predictions.summary(found)
    expected = np.exp(np.log(ratio).groupby(found["model"]).mean())
    pd.testing.assert_series_equal(table["error"].sort_index(), expected, check_names=False)
    assert "to go" not in run_quick("quality.predictions", out, *arguments)


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
