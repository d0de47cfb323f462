"""The LayerAct studies: their own logic against cases known by hand, and their quick forms."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.papers.layeract import robustness as robustness_study
from benchmarks.papers.layeract import robustness_report as report
from benchmarks.papers.layeract import shape as shape_study
from benchmarks.papers.layeract import shared
from benchmarks.papers.layeract import statistics as statistics_study


@pytest.fixture
def run(tmp_path, capsys):
    def run(study, *arguments):
        study.main(["--quick", "--out", str(tmp_path), *arguments])
        said = capsys.readouterr().out
        assert "torch" in said, "the machine is described"
        text = (tmp_path / f"{study.name}.md").read_text()
        assert f"python -m {study.module} --quick" in text
        assert text in said
        assert str(tmp_path) not in text
        assert "nan" not in text
        return said, text

    return run


# ---- numbers of layeract_robustness --------------------------------------------------------------


def test_the_papers_test_is_a_t_test_of_normal_scores_and_else_wilcoxons():
    rng = np.random.default_rng(1)
    normal = stats.norm.ppf((np.arange(12) + 0.5) / 12)
    a, b = rng.permutation(normal), 1 + rng.permutation(normal)
    assert min(stats.shapiro(x).pvalue for x in (a, b)) > 0.05
    d = a - b
    t = d.mean() / (d.std(ddof=1) / np.sqrt(12))
    expected = 2 * stats.t.sf(abs(t), 11)
    assert shared.paper_test(a, b) == ("t", pytest.approx(expected))
    skewed = np.exp(3 * a)
    assert stats.shapiro(skewed).pvalue < 0.05
    p = stats.wilcoxon(skewed, b).pvalue
    assert shared.paper_test(skewed, b) == ("wilcoxon", pytest.approx(p))
    assert shared.paper_test([1.0] * 5, [1.0] * 5) == ("wilcoxon", 1.0)
    assert shared.paper_test(a, a) == ("wilcoxon", 1.0)


def test_the_papers_tables():
    table = report.paper_accuracies()
    assert len(table) == 79
    sizes = table.groupby("source").size()
    of = ["LayerAct Table 1", "LayerAct Table 17", "LayerAct Table 6"]
    assert sizes.loc[of].tolist() == [10, 8, 6]
    groups = table[["noise", "blur", "digital", "weather", "extra"]]
    assert (table["corrupted"] > groups.min(axis=1)).all()
    assert (table["corrupted"] < groups.max(axis=1)).all()
    # Tables 1, 2 and 16 to 19: totals of LA-SiLU minus those of ReLU
    gains = [1.58, 0.80, -0.21, 0.79, 1.09, 1.35]
    found = report.paper_gains()
    assert found["batch", "corrupted", "la-silu", "relu"] == pytest.approx(np.mean(gains))
    assert ("layer", "clean", "la-hardsilu", "hardsilu") not in found
    pvalues = report.paper_pvalues()
    # 8 others in 3 networks, but for PReLU in ResNet44 on CIFAR10
    assert pvalues.groupby("source").size().tolist() == [23, 24, 46, 48]
    not_significant = pvalues[~pvalues["significant"]].groupby("source").size()
    # counted in the paper: 5 in Table 20, 5 in Table 21, 4 in Table 22, none in Table 23
    assert not_significant.tolist() == [5, 5, 4]


# ---- the run of layeract_robustness --------------------------------------------------------------


def test_equal_rows_stay_on_one_side():
    X = pd.DataFrame({"a": np.repeat(np.arange(30), 3), "b": 1})
    y = X["a"] % 2
    for seed in range(5):
        (X_train, y_train), (X_test, _) = robustness_study.split(X, y, seed)
        assert not set(X_train["a"]) & set(X_test["a"])
        assert len(X_train) + len(X_test) == 90
        assert len(X_test) == 18
        pd.testing.assert_series_equal(y_train, X_train["a"] % 2, check_names=False)


def test_quick_robustness(run, tmp_path, capsys, monkeypatch):
    plan = replace(robustness_study.QUICK, data=("digits",))  # which comes with scikit-learn
    monkeypatch.setattr(robustness_study, "QUICK", plan)
    file = tmp_path / "layeract_robustness.csv.gz"
    said, text = run(robustness_study.STUDY)
    assert "layeract_robustness: 3 of 3 to go" in said
    rows = pd.read_csv(file)
    assert rows["error"].isna().all()
    assert rows.groupby(["data", "normalization"]).size().tolist() == [8] * 3
    assert rows[[*report.GROUPS["noise"], *report.GROUPS["units"]]].notna().all(axis=None)
    assert rows["category_swap"].isna().all(), "no set of the quick form has categories"
    np.testing.assert_allclose(rows["severity_3"], rows["corrupted"], atol=1e-5)
    assert rows["severity_1"].isna().all()
    tests = pd.read_csv(tmp_path / "layeract_robustness_tests.csv.gz")
    assert len(tests) == 2 * 3 * 3 * 2 * 2
    assert "; +1.42 |" in text, "the paper's LA-SiLU less its SiLU, corrupted, batch norm"
    assert list(tmp_path.glob("layeract_robustness.[sp]*g"))
    is_lost = rows["normalization"] == "none"
    rows[~is_lost | (rows["activation"] != "silu")].to_csv(file, index=False)
    (experiment,) = robustness_study.STUDY.experiments
    experiment.complete(Namespace(out=tmp_path, quick=True, data_home=None))
    assert "1 of 3 to go" in capsys.readouterr().out, "nothing is trained twice"
    pd.testing.assert_frame_equal(pd.read_csv(file), rows)


def test_the_plan_is_that_of_the_results_in_the_repository():
    there = pd.read_csv(
        Path(robustness_study.__file__).parent / "results" / "layeract_robustness.csv.gz", dtype=str
    )
    settings = robustness_study.Plan().settings("wdbc", "batch", "relu", 3)
    row = shared.select(there, **dict(zip(robustness_study.KEY, settings.values(), strict=False)))
    assert row[list(settings)].iloc[0].to_dict() == settings


# ---- layeract_statistics -------------------------------------------------------------------------


def test_what_is_recorded_of_a_network():
    plan = statistics_study.Plan(["relu"], width=16, n_seeds=1, n_rows=200)
    nets, (X, y) = statistics_study.train(plan, 2)
    net = nets["relu", 0]
    values, stats_, before = statistics_study.describe(net, X, y)
    given = net.encoder_.transform(X) @ net.coefs_[0] + net.intercepts_[0]
    gives = np.maximum(given, 0)
    assert values["input_mean_abs"] == pytest.approx(np.abs(given.mean(0)).mean(), rel=1e-3)
    assert values["mean_abs"] == pytest.approx(gives.mean(0).mean(), rel=1e-3)
    assert values["lowest"] == 0.0
    assert values["saturated"] == pytest.approx((given <= 0).mean(), abs=1e-3)
    size = 16 * np.sqrt((gives**2).mean())
    ratio = values["layer_0_mean"] / values["layer_0_relative"]
    assert ratio == pytest.approx(size, rel=1e-3)
    assert values["input_0_input_mean"] > 0
    assert set(stats_.samples["layer"]) == {"hidden", "hidden, at pixels"}
    assert len(before.units) == 16


# ---- layeract_shape ------------------------------------------------------------------------------


def test_shapes_are_those_of_the_definition():
    y, a = shape_study.layers("la-hardsilu", -5.0, 1.0, 2)
    n = (y - y.mean(axis=1, keepdims=True)) / np.sqrt(y.var(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(a, y * np.clip(n / 6 + 0.5, 0, 1), rtol=1e-6)
    shapes = shape_study.summarise(2)
    assert len(shapes) == 4 * 4
    row = shared.select(shapes, function="la-hardsilu", mean=-5).iloc[0]
    assert row["lowest"] == pytest.approx(a.min(axis=1).mean())
    assert row["negative"] == pytest.approx((a < 0).mean())
