"""Each benchmark runs in its smallest form, so that none rots; what it says is not judged here."""

import argparse
import contextlib
import io
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.quality import predictions
from benchmarks.speed import common, gpu

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
DATA_HOME = ROOT.parent / "shared" / "data"
pytestmark = pytest.mark.slow

TIMINGS = {p.stem for p in (FOLDER / "speed").glob("*.py") if "def main()" in p.read_text("utf-8")}
SIMPLE = sorted(f"speed.{stem}" for stem in TIMINGS - {"scaling"})  # it has a test of its own


def run_quick(module, folder, *arguments):
    """What it printed; that it ends well and describes the machine is asserted.

    A process of its own would spend most of its time on imports.
    """
    command = import_module(f"benchmarks.{module}")
    argv = [module, "--quick", "--out", str(folder), *map(str, arguments)]
    printed = io.StringIO()
    with (
        mock.patch.object(sys, "argv", argv),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # no business of this test
        getattr(command, "STUDY", command).main()
    assert "torch" in printed.getvalue(), "the machine is described"
    return printed.getvalue()


@dataclass(frozen=True)
class Quick:
    """A study's arguments, what it needs to run, and what its first file of rows holds."""

    arguments: str = ""
    data: str = ""  # "shared": local copies of the data sets; "two": two tables of its own
    counts: dict = field(default_factory=dict)  # column -> value -> rows
    to_go: str = "to go"
    words: tuple = ()  # of the page
    holds: object = None  # what else is so of the rows


NETWORKS = "--activations relu combu pln-4"
TABLE_7 = "tvae-patched" if find_spec("ctgan") else "tvae"
SAMPLED = ["real rows", "SMOTE", "combutab TVAE"]
STUDIES = {
    "papers.combu.table3_formulas": Quick(NETWORKS),
    "papers.combu.table5_classification": Quick(NETWORKS, "shared"),
    "papers.combu.table6_regression": Quick(NETWORKS, "shared"),
    "papers.combu.table7_generation": Quick(
        f"--models ctgan {TABLE_7} --activations combu relu", "shared",
        words=("CombU's rows are the best to learn from", "Learner: gradient boosting"),
        holds=lambda rows: set(rows["model"]) == {"real", "ctgan", TABLE_7},
    ),
    "papers.combu.table7_flow": Quick(
        data="shared", to_go="6 of 6 to go", words=("TabFlow, PhishingWebsites",),
        holds=lambda rows: rows["c2st"].between(0, 1).all(),
    ),
    "papers.pln.approximation": Quick(
        counts={"width": {8: 4 * 2 * 11, 32: 4 * 2 * 15}},  # families, functions, activations
        words=("Sigmoid has a lower loss than ReLU",),
    ),
    "papers.pln.depth": Quick(
        "--data digits diabetes", "shared",
        # kinds, depths, activations, rates, seeds
        counts={"data": {"digits": 5 * 2 * 4 * 2 * 2, "diabetes": 1 * 2 * 4 * 2 * 2}},
        words=("89.45", "too few units"),
    ),
    "papers.pln.normalization": Quick(
        "--data digits", counts={"data": {"digits": 2 * 4 * 5 * 2}},
        words=("With PLN-8", "4 hidden layers"),
        holds=lambda rows: rows["score"].between(0, 1).all() and (rows["n_train"] == 120).all(),
    ),
    "papers.proxynorm.training.__main__": Quick(
        data="shared", counts={"net": {"CNN": 64, "MLP": 64}},
        to_go="64 of 64 to go", words=("BN with PN matches BN",),
        holds=lambda rows: rows["accuracy"].between(0, 1).all(),
    ),
    "papers.proxynorm.random_nets.__main__": Quick(
        to_go="10 of 10 to go", words=("Theorem 1",),
        holds=lambda rows: rows[["P", "P1", "P2", "P3", "P4"]].notna().all(axis=None),
    ),
    "papers.layeract.robustness": Quick(
        data="shared", counts={"data": {"breast-w": 24, "digits": 24}}, to_go="6 of 6 to go",
        words=("| not judged |", "With layer norm"),  # there is no ReLU
        holds=lambda rows: (
            ((rows["severity_3"] - rows["corrupted"]).abs() < 1e-5).all()
            and rows[["severity_1", "category_swap"]].isna().all(axis=None)
        ),
    ),
    "papers.layeract.statistics": Quick(
        counts={"epoch": {1: 8, 2: 8}},
        # noise at the activation is the same for all, so its input fluctuates alike: Figure 7
        holds=lambda rows: (rows.groupby("epoch")["layer_1_input_mean"].nunique() == 1).all(),
    ),
    "activations.recipes": Quick(
        data="shared", counts={"kind": {"others": 18, "feynman": 57}},
        words=("Rational has a smaller error than CombU.", "Weights in mixed packs"),
        holds=lambda rows: rows.loc[rows["recipe"] == "pack", "chosen"].notna().all(),
    ),
    "activations.real_tables": Quick(
        data="two", counts={"data": {"one": 18, "two": 18}}, to_go="4 of 4 to go",
        words=("The rule, written before",),
        holds=lambda rows: (rows["task"] == "classification").equals(rows["accuracy"].notna()),
    ),
    "formulas.share": Quick(
        "--noise 0 --models default 'gradient boosting'", "shared",
        to_go="6 of 6 to go",
        holds=lambda rows: rows["r2"].notna().all() and (rows["n_outside"] == 50).all(),
    ),
    "formulas.recovery": Quick(
        data="shared", words=("Not recovered from the right form",),
        holds=lambda rows: (
            (rows["error_inside"] <= rows["error_start"])[rows["guess"] == "right"].all()
        ),
    ),
    "quality.predictions": Quick(
        shlex.join(["--models", *predictions.OURS, "scikit-learn MLP", "HistGradientBoosting"]),
        "two", counts={"data": {"one": 6, "two": 6}}, to_go="12 of 12 to go",
        words=("Not run: CatBoost, LightGBM, RealMLP-TD, TabM-D", "| not judged |"),
        holds=lambda rows: (rows["task"] == "classification").equals(rows["log_loss"].notna()),
    ),
    "quality.generators": Quick(
        shlex.join(["--models", *SAMPLED]), "two", counts={"data": {"one": 3, "two": 3}},
        words=("Not run: ", "two: 64 training rows, 16 test rows"),
        holds=lambda rows: (
            (rows["task"] == "regression").equals(rows["boosting_mse"].notna())
            and rows[["c2st", "shapes", "pairs", "closest"]].stack().between(0, 1).all()
            and (rows.loc[rows["model"] == "real rows", "linear_mae"].dropna() < 0.1).all()
        ),
    ),
    "quality.databases": Quick(
        "--models 'real rows' 'combutab TabFlowTables' --data visits orders",
        counts={"data": {"visits": 2, "orders": 2}}, words=("Not run: sdv HMA", "visits: 60"),
        holds=lambda rows: (
            (rows["orphans"] == 0).all()
            and rows[[name for name in rows if "c2st" in name]].stack().between(0, 1).all()
            and (rows.loc[rows["model"] == "real rows", "c2st_child_rows"] > 0.5).all()
        ),
    ),
    "quality.diffusion_sets": Quick(
        shlex.join(["--models", *SAMPLED]), "two", counts={"data": {"one": 3, "two": 3}},
        to_go="6 of 6 to go", words=("Models not run: independent columns", "two: 72 training"),
        holds=lambda rows: (
            rows[["logistic_c2st", "shape", "trend", "dcr_share"]].stack().between(0, 1).all()
            and (rows.loc[rows["model"] == "real rows", ["shape", "trend"]] == 1).all(axis=None)
            and rows["mle"].notna().all() == (find_spec("xgboost") is not None)
        ),
    ),
    "quality.private": Quick(
        "--models PrivateSynthesizer 'independent columns'", "two", counts={"data": {"one": 2}},
        to_go="4 of 4 to go", words=("Not run: PrivateSynthesizer, own bins; AIM, dpmm",),
        holds=lambda rows: rows[["pairs", "c2st"]].stack().between(0, 1).all(),
    ),
    "quality.real_tables": Quick(
        counts={"model": {"ours": 2, "HistGradientBoosting": 2}}, words=("reviews: 225 training",),
        holds=lambda rows: (rows["r2_low"] <= rows["r2_high"]).all(),
    ),
    "quality.coverage": Quick(
        "--models combutab quantiles", "two", words=("Not run: MAPIE", "regression"),
        holds=lambda rows: (
            rows["coverage_80"].between(0, 1).all() and (rows["size_80"] <= rows["size_95"]).all()
        ),
    ),
    "quality.verdicts": Quick(
        counts={"kind": {"new rows": 2, "5 % copies": 2}}, words=("Alarms in percent",),
        holds=lambda rows: rows["level"].isin(["good", "fair", "poor", "unknown"]).all(),
    ),
    "quality.imputation": Quick(
        data="two", to_go="2 of 2 to go", words=("<summary>one: 80 rows",),
        holds=lambda rows: rows["coverage"].notna().groupby(rows["model"]).all().sum() == 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STUDIES)
def test_study(name, tmp_path, monkeypatch):
    quick, out = STUDIES[name], tmp_path / "out"
    out.mkdir()
    monkeypatch.setattr("combutab.estimators._boosting._PATIENCE", 2)  # few trees of packs
    home = tmp_path if quick.data == "two" else DATA_HOME
    if quick.data == "shared" and not DATA_HOME.is_dir():
        pytest.skip("needs ../shared/data")
    if quick.data == "two":
        two_tables(tmp_path)
    arguments = shlex.split(quick.arguments)
    arguments += ["--data-home", str(home)] if quick.data else []
    assert quick.to_go in run_quick(name, out, *arguments)
    study = import_module(f"benchmarks.{name}").STUDY
    page = (out / f"{study.name}.md").read_text("utf-8")
    for words in (f"python -m {study.module} --quick", *quick.words):
        assert words in page
    assert str(tmp_path) not in page
    pictures = {path.name for path in out.glob("*.*") if path.suffix in (".svg", ".png")}
    assert pictures >= set(re.findall(r"\]\((\w+\.(?:svg|png))\)", page))
    assert all((out / picture).stat().st_size > 5_000 for picture in pictures)
    files = {path: path.read_bytes() for path in out.glob("*.csv.gz")}
    if files:
        rows = pd.read_csv(out / f"{study.name}.csv.gz")
        for column, expected in quick.counts.items():
            counted = rows[column].value_counts().to_dict()
            assert counted | expected == counted
        assert "error" not in rows or rows["error"].isna().all()
        assert quick.holds is None or quick.holds(rows)
    monkeypatch.setattr("benchmarks.common.page.Page.figure", lambda *_: None)
    assert "to go" not in run_quick(name, out, *arguments), "nothing is trained twice"
    assert {path: path.read_bytes() for path in files} == files


PLANNED = [f"papers.proxynorm.{study}.__main__" for study in ("training", "random_nets")]
PLANNED += ["activations.recipes", "papers.layeract.robustness", "papers.layeract.statistics"]
PLANNED += [f"papers.pln.{study}" for study in ("approximation", "depth", "normalization")]


@pytest.mark.parametrize("name", PLANNED)
def test_stored_results_are_complete(name):
    """Nothing is to go: a file has each row that a run would begin with."""
    if name.startswith("activations") and not DATA_HOME.is_dir():
        pytest.skip("needs ../shared/data")
    study = import_module(f"benchmarks.{name}").STUDY
    results = ROOT.joinpath(*study.module.split(".")[:-1]) / "results"
    arguments = argparse.Namespace(quick=False, data_home=str(DATA_HOME), **study.options)
    for experiment in study.experiments:
        settings = list(experiment.settings)
        kept = pd.read_csv(results / f"{experiment.name}.csv.gz", dtype=str, keep_default_na=False)
        wanted = [row for job in experiment.jobs(arguments) for row in job.wanted]
        assert kept[settings].to_numpy().tolist() == [[str(w[n]) for n in settings] for w in wanted]
        with pytest.raises(SystemExit, match="--out"):
            study.main(["--quick"])


@pytest.mark.parametrize("script", SIMPLE)
def test_quick_form(script, tmp_path):
    if script == "speed.generators" and not find_spec("ctgan"):
        pytest.skip("compares with ctgan")
    run_quick(script, tmp_path, *(["--device", "cpu"] if script == "speed.gpu" else []))
    name = script.rpartition(".")[2]
    assert list(tmp_path.glob(f"*{name.removesuffix('s')}*.csv.gz")), "results are written"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 2
    assert capsys.readouterr().out.splitlines()[1].startswith("no GPU here")
    assert not list(tmp_path.iterdir())


def two_tables(folder):
    """CSV files "one", of classes, and "two", of numbers."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.normal(size=80), "kind": rng.choice(list("ab"), 80)})
    rows.assign(y=np.where(rows["x"] > 0, "up", "down")).to_csv(folder / "one.csv", index=False)
    rows.assign(y=3 * rows["x"]).to_csv(folder / "two.csv.gz", index=False)


# ---- The benchmark of growth -------------------------------------------------------------------


def test_growth_is_measured_in_all_dimensions(tmp_path):
    run_quick("speed.scaling", tmp_path)
    points = pd.read_csv(tmp_path / "scaling.csv.gz")
    assert points.groupby("dimension").size().to_dict() == dict.fromkeys(
        ["categories", "columns", "members", "rows", "streamed"], 2
    )
    streamed = points[points["dimension"] == "streamed"]
    assert (streamed[["loss", "loss in memory"]] > 0.01).all(axis=None), "the noise's variance"
    assert points.loc[points["dimension"] != "streamed", "loss"].isna().all()
    assert (points["seconds"] > 0).all()
    text = (tmp_path / "scaling.md").read_text()
    assert "Exponents" in text
    assert str(tmp_path) not in text


def test_points_are_measured_in_own_processes(monkeypatch):
    point = common.call_apart("benchmarks.speed.scaling:measure", "members", 2, True)
    assert point.keys() == {"seconds", "megabytes"}
    assert point["seconds"] > 0
    assert 0 < point["megabytes"] < 1000
    with pytest.raises(subprocess.CalledProcessError) as failed:
        common.call_apart("statistics:mean", [])
    assert "StatisticsError: mean requires at least one data point" in failed.value.stderr
