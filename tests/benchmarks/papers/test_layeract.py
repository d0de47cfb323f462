"""The LayerAct studies: their own logic against cases known by hand, and their quick forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.papers.common.claims import FAILS, HOLDS, IN_PART
from benchmarks.papers.layeract import robustness as robustness_study
from benchmarks.papers.layeract import robustness_numbers as numbers
from benchmarks.papers.layeract import robustness_report
from benchmarks.papers.layeract import shape as shape_study
from benchmarks.papers.layeract import statistics as statistics_study

ROOT = Path(__file__).parents[3]
DATA_HOME = ROOT.parent / "shared" / "data"


SEEDS = 10


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


def accuracies(gains, data=("a", "b"), normalizations=("batch",)):
    """Rows as a study's: relu at chance around 0.8, others so much above it in all seeds."""
    rng = np.random.default_rng(0)
    rows = []
    for normalization in normalizations:
        for name in data:
            base = 0.8 + 0.02 * rng.standard_normal(SEEDS)
            for activation, gain in gains.items():
                for seed in range(SEEDS):
                    clean = base[seed] + gain + 1e-3 * rng.standard_normal()
                    corruptions = dict.fromkeys(
                        (c for group in numbers.GROUPS.values() for c in group), clean - 0.1
                    )
                    rows.append(
                        {
                            "data": name,
                            "normalization": normalization,
                            "activation": activation,
                            "seed": seed,
                            "clean": clean,
                            "corrupted": clean - 0.1,
                            **corruptions,
                            "n_train": 80,
                            "n_test": 20,
                            "error": "",
                        }
                    )
    return pd.DataFrame(rows)


# ---- numbers of layeract_robustness --------------------------------------------------------------


def test_the_papers_test_is_a_t_test_of_normal_scores_and_else_wilcoxons():
    rng = np.random.default_rng(1)
    normal = stats.norm.ppf((np.arange(12) + 0.5) / 12)
    a, b = rng.permutation(normal), 1 + rng.permutation(normal)
    assert min(stats.shapiro(x).pvalue for x in (a, b)) > 0.05
    d = a - b
    t = d.mean() / (d.std(ddof=1) / np.sqrt(12))
    expected = 2 * stats.t.sf(abs(t), 11)
    assert numbers.paper_test(a, b) == ("t", pytest.approx(expected))
    skewed = np.exp(3 * a)
    assert stats.shapiro(skewed).pvalue < 0.05
    name, p = numbers.paper_test(skewed, b)
    assert (name, p) == ("wilcoxon", pytest.approx(stats.wilcoxon(skewed, b).pvalue))
    assert numbers.paper_test([1.0] * 5, [1.0] * 5) == ("wilcoxon", 1.0)
    assert numbers.paper_test(a, a) == ("wilcoxon", 1.0)


def test_scores_by_seed_are_means_over_the_sets_without_seeds_that_failed():
    rows = accuracies({"relu": 0.0, "silu": 0.05})
    rows.loc[(rows["seed"] == 3) & (rows["data"] == "b"), ["clean", "corrupted"]] = np.nan
    rows.loc[(rows["seed"] == 4) & (rows["activation"] == "silu"), "error"] = "diverged"
    table = numbers.scored(rows)
    wide = numbers.by_seed(table, "clean", numbers.MEAN, "batch")
    assert list(wide) == ["relu", "silu"]
    assert wide.index.tolist() == [0, 1, 2, 5, 6, 7, 8, 9]
    own = rows[(rows["seed"] == 7) & (rows["activation"] == "silu")]["clean"]
    assert wide.loc[7, "silu"] == pytest.approx(100 * own.mean())
    assert table["kept"].dropna().to_numpy() == pytest.approx(-10.0)
    assert len(numbers.by_seed(table, "clean", "a", "batch")) == 9


def test_gains_are_found_with_the_correction_for_overlap():
    rows = accuracies({"relu": 0.0, "silu": 0.03, "elu": 0.0300001, "la-silu": 0.03})
    tests = numbers.compare(numbers.scored(rows), ["relu", "silu", "elu", "la-silu"])
    assert set(tests["data"]) == {"a", "b", numbers.MEAN}
    part = tests[(tests["data"] == "a") & (tests["score"] == "clean")].set_index("other")
    assert list(part.index) == ["relu", "silu", "elu"]
    wide = 100 * rows[rows["data"] == "a"].pivot_table(
        index="seed", columns="activation", values="clean"
    )
    d = (wide["la-silu"] - wide["relu"]).to_numpy()
    # Nadeau and Bengio, with 20 rows tested on and 80 trained on
    error = np.sqrt((1 / SEEDS + 20 / 80) * d.var(ddof=1))
    p = 2 * stats.t.sf(abs(d.mean() / error), SEEDS - 1)
    assert part.loc["relu", "p"] == pytest.approx(p)
    assert part.loc["relu", "p_holm"] == pytest.approx(3 * p)
    assert part.loc["relu", "difference"] == pytest.approx(d.mean())
    assert part.loc["relu", "effect"] == pytest.approx(d.mean() / d.std(ddof=1))
    low = d.mean() - stats.t.ppf(0.975, SEEDS - 1) * error
    assert part.loc["relu", "low"] == pytest.approx(low)
    assert part.loc["relu", "p_paper"] < part.loc["relu", "p"]
    assert numbers.counts(part.reset_index()) == (["relu"], [])
    assert numbers.counts(part.reset_index().assign(difference=-1.0)) == ([], ["relu"])


@pytest.mark.parametrize(
    ("better", "worse", "expected"),
    [(8, 0, HOLDS), (3, 1, IN_PART), (0, 0, FAILS), (2, 2, FAILS), (0, 2, FAILS), (0, 8, FAILS)],
)
def test_verdicts(better, worse, expected):
    assert numbers.better_than_all("", better, worse, 8).verdict == expected


def test_an_advantage_that_batch_norm_brings_is_told_from_one_that_it_does_not():
    gains = {"silu": 0.0, "la-silu": 0.0, "hardsilu": 0.0, "la-hardsilu": 0.02}
    rows = accuracies(gains, normalizations=("batch", "layer"))
    only_batch = (rows["activation"] == "la-silu") & (rows["normalization"] == "batch")
    rows.loc[only_batch, ["clean", "corrupted"]] += 0.02
    found = numbers.interactions(numbers.scored(rows)).set_index(["activation", "score"])
    assert set(found["than"]) == {"layer"}
    assert found.loc[("la-silu", "clean"), "difference"] == pytest.approx(2.0, abs=0.2)
    assert found.loc[("la-silu", "clean"), "p"] < 0.001
    assert found.loc[("la-hardsilu", "clean"), "p"] > 0.01


def test_the_papers_tables():
    table = numbers.paper_accuracies()
    assert len(table) == 79
    sizes = table.groupby("source").size()
    assert sizes.loc[["LayerAct Table 1", "LayerAct Table 17", "LayerAct Table 6"]].tolist() == [
        10,
        8,
        6,
    ]
    groups = table[["noise", "blur", "digital", "weather", "extra"]]
    assert (table["total"] > groups.min(axis=1)).all()
    assert (table["total"] < groups.max(axis=1)).all()
    # Tables 1, 2 and 16 to 19: totals of LA-SiLU minus those of ReLU
    gains = [1.58, 0.80, -0.21, 0.79, 1.09, 1.35]
    found = numbers.paper_gain("la-silu", "relu", "batch", "corrupted")
    assert found == pytest.approx(np.mean(gains))
    assert np.isnan(numbers.paper_gain("la-hardsilu", "hardsilu", "layer", "clean"))
    pvalues = numbers.paper_pvalues()
    # 8 others in 3 networks, but for PReLU in ResNet44 on CIFAR10
    assert pvalues.groupby("source").size().tolist() == [23, 24, 46, 48]
    not_significant = pvalues[~pvalues["significant"]].groupby("source").size()
    # counted in the paper: 5 in Table 20, 5 in Table 21, 4 in Table 22, none in Table 23
    assert not_significant.tolist() == [5, 5, 4]


def test_the_papers_claims():
    gains = {"relu": 0.0, "silu": 0.01, "la-silu": 0.03, "la-hardsilu": -0.02}
    rows = accuracies(gains, normalizations=("batch", "layer", "none"))
    tests = numbers.compare(numbers.scored(rows), list(gains))
    over_silu, over_relu, *over_all = robustness_report.CLAIMS
    printed = [claim for claim in over_all if claim.where.startswith("Table")]
    found = [claim.judge(tests) for claim in (over_silu, over_relu, *printed)]
    assert [f.verdict for f in found] == [HOLDS, HOLDS, HOLDS, HOLDS, FAILS]
    assert found[0].numbers.startswith("+2.0")
    assert "the paper's +0.52" in found[0].numbers
    assert "better than relu, silu, worse than — of 2; uncorrected 2/0" in found[2].numbers
    assert "better than —, worse than relu, silu of 2; uncorrected 0/2" in found[4].numbers
    unsure = tests.assign(p_holm=1.0)
    assert {c.judge(unsure).verdict for c in robustness_report.CLAIMS} == {FAILS}
    batch = numbers.select(tests, normalization="batch")
    judged = [claim for claim in robustness_report.CLAIMS if claim.judge(batch)]
    assert len(judged) == 2 * 3
    assert over_silu not in judged


def test_the_figure_has_a_panel_for_each_function_and_score():
    gains = {"relu": 0.0, "silu": 0.0, "la-silu": 0.01, "la-hardsilu": 0.0}
    rows = accuracies(gains, normalizations=("batch", "none"))
    tests = numbers.compare(numbers.scored(rows), list(gains))
    figure = robustness_report.plot_differences(tests)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        f"{name}, {score}" for name in numbers.LAYER_LEVEL for score in ("clean", "corrupted")
    ]
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["relu", "silu"]


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


def test_quick_robustness(run, tmp_path):
    if not DATA_HOME.is_dir():
        pytest.skip("needs ../shared/data")
    said, text = run(robustness_study.STUDY, "--data-home", str(DATA_HOME))
    assert "layeract_robustness: 6 of 6 to go" in said
    rows = pd.read_csv(tmp_path / "layeract_robustness.csv")
    assert rows["error"].isna().all()
    assert rows.groupby(["data", "normalization"]).size().tolist() == [8] * 6
    wrong = rows[list(numbers.GROUPS["noise"] + numbers.GROUPS["units"])]
    assert wrong.notna().all(axis=None)
    assert rows["category_swap"].isna().all(), "no set of the quick form has categories"
    np.testing.assert_allclose(rows["severity_3"], rows["corrupted"], atol=1e-5)
    tests = pd.read_csv(tmp_path / "layeract_robustness_tests.csv")
    assert len(tests) == 3 * 3 * 3 * 2 * 2
    assert "## Verdicts" in text
    assert (tmp_path / "layeract_robustness.png").exists()
    some = rows[(rows["activation"] != "silu") | (rows["data"] == "digits")]  # three stacks lack it
    some.to_csv(tmp_path / "layeract_robustness.csv", index=False)
    again, _ = run(robustness_study.STUDY, "--data-home", str(DATA_HOME))
    assert "3 of 6 to go" in again, "nothing is trained twice"
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "layeract_robustness.csv"), rows)
    last, _ = run(robustness_study.STUDY, "--report")
    assert "to go" not in last


# ---- layeract_statistics -------------------------------------------------------------------------


def test_what_is_recorded_of_a_network():
    plan = statistics_study.Plan(width=16, epochs=(2,), n_seeds=1, n_rows=200)
    nets, (X, y) = statistics_study.train(["relu"], 2, plan, 1)
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


def test_a_statistic_that_is_smaller_in_every_seed_is_found():
    rng = np.random.default_rng(2)
    base = rng.normal(10, 1, SEEDS)
    scales = {"relu": 2.0, "silu": 1.0, "elu": 0.5, "la-silu": 1.0}
    rows = pd.DataFrame(
        [
            {"activation": name, "seed": seed, "epoch": epoch, "x": scale * base[seed] + noise}
            for epoch in (1, 2)
            for name, scale in scales.items()
            for seed, noise in enumerate(0.01 * rng.standard_normal(SEEDS))
        ]
    )
    table = statistics_study.smaller(rows, "la-silu", "x", 2).set_index("other")
    assert table["ratio"].round(2).to_dict() == {"relu": 0.5, "silu": 1.0, "elu": 2.0}
    assert (table.loc[["relu", "elu"], "p_holm"] < 1e-6).all()
    assert table.loc["silu", "p_holm"] > 0.01
    claim = statistics_study.smaller_than_all("", "", "la-silu", "x", last=True)
    found = claim.judge(rows)
    assert found.numbers == "smaller than relu; larger than elu; ratio 0.50 to 2.00"
    assert found.verdict == FAILS
    assert claim.judge(rows[rows["activation"] != "elu"]).verdict == IN_PART
    alone = claim.judge(rows[rows["activation"].isin(["relu", "la-silu"])])
    assert alone.numbers.startswith("smaller than all; larger than —")
    assert alone.verdict == HOLDS
    assert claim.judge(rows[rows["activation"] != "la-silu"]) is None


def test_quick_statistics(run, tmp_path):
    _, text = run(statistics_study.STUDY)
    rows = pd.read_csv(tmp_path / "layeract_statistics.csv")
    assert rows.groupby(["activation", "epoch"]).size().tolist() == [3] * 8
    # noise at the activation is the same for all, so its input fluctuates alike: Figure 7
    assert rows.groupby("epoch")["layer_1_input_mean"].nunique().tolist() == [1, 1]
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert len(pictures) == 6
    assert all(name in text for name in pictures)
    _, again = run(statistics_study.STUDY, "--report")
    assert again == text


# ---- layeract_shape ------------------------------------------------------------------------------


def test_shapes_are_those_of_the_definition():
    values = shape_study.layer_values(2, width=64)
    case = (values["function"] == "la-hardsilu") & (values["mean"] == -5) & (values["layer"] == 1)
    y, a = values.loc[case, ["y", "a"]].to_numpy().T
    n = (y - y.mean()) / np.sqrt(y.var() + 1e-5)
    np.testing.assert_allclose(a, y * np.clip(n / 6 + 0.5, 0, 1), rtol=1e-6)
    shapes = shape_study.summarise(values)
    assert len(shapes) == 4 * 4
    own = shapes[(shapes["function"] == "relu") | (shapes["function"] == "la-hardsilu")]
    row = own[own["mean"] == -5].iloc[0]
    layers = values[(values["function"] == "la-hardsilu") & (values["mean"] == -5)]
    assert row["lowest"] == pytest.approx(layers.groupby("layer")["a"].min().mean())
    assert row["negative"] == pytest.approx((layers["a"] < 0).mean())


def test_findings_follow_the_numbers():
    def verdicts(shapes):
        return [claim.judge(shapes).verdict for claim in shape_study.CLAIMS]

    shapes = shape_study.summarise(shape_study.layer_values(5))
    assert verdicts(shapes)[:4] == [HOLDS] * 4
    flat = shapes.assign(output_mean=0.0, lowest=0.0, unsaturated_layers=0.0)
    assert set(verdicts(flat)) == {FAILS}
    assert verdicts(shapes.assign(unsaturated_layers=0.4))[-1] == IN_PART


def test_quick_shape(run, tmp_path):
    said, text = run(shape_study.STUDY)
    assert "la-silu gives large negative outputs" in said
    assert "N(-5, 1²)" in text
    assert (tmp_path / "layeract_shape.png").exists()
