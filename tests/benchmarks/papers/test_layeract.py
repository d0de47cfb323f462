"""The LayerAct studies: their own logic against cases known by hand."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.papers.layeract import robustness as robustness_study
from benchmarks.papers.layeract import statistics as statistics_study

# ---- numbers of layeract_robustness --------------------------------------------------------------


def test_the_papers_table():
    table = robustness_study.paper_accuracies()
    assert len(table) == 79
    sizes = table.groupby("source").size()
    of = ["LayerAct Table 1", "LayerAct Table 17", "LayerAct Table 6"]
    assert sizes.loc[of].tolist() == [10, 8, 6]
    groups = table[["noise", "blur", "digital", "weather", "extra"]]
    assert (table["corrupted"] > groups.min(axis=1)).all()
    assert (table["corrupted"] < groups.max(axis=1)).all()


def made_rows(gains):
    """Two seeds of tables in which LA-SiLU gains so many points over SiLU, and loses to ReLU."""
    rows = []
    for (data, gain), seed, norm in product(enumerate(gains), (0, 1), ("batch", "layer")):
        gain = gain if norm == "batch" else 0.0
        for name, score in {"silu": 0.0, "la-silu": gain, "relu": 9.0 + data % 2}.items():
            found = 0.8 + (score + seed) / 100
            rows.append((f"set {data}", norm, name, seed, found, found, 80, 20))
    columns = ["data", "normalization", "activation", "seed", "clean", "corrupted"]
    return pd.DataFrame(rows, columns=[*columns, "n_train", "n_test"])


def test_the_unit_of_a_verdict_is_the_table():
    rows = made_rows([1.0, 2.0, 3.0])
    verdict = robustness_study.judge_one("la-silu", "silu", "batch", rows, 0.5)
    assert (verdict.estimate, verdict.n_units) == (pytest.approx(2.0), 3)
    half = stats.t.ppf(0.975, 2) / np.sqrt(3)
    assert verdict.low == pytest.approx(2.0 - half)
    assert verdict.word == "not decided"
    assert robustness_study.judge_one("la-silu", "silu", "layer", rows, 0.5).word == "does not hold"
    assert robustness_study.judge_norms("la-silu", made_rows([1.0, 1.1, 1.2]), 0.5).word == "holds"
    all_of_them = robustness_study.judge_all("la-silu", "clean", rows, 0.0)
    assert (all_of_them.word, all_of_them.note) == ("does not hold", "nearest rival: relu")
    assert robustness_study.judge_one("la-silu", "gelu", "batch", rows, 0.5) is None


# ---- the run of layeract_robustness --------------------------------------------------------------


# ---- layeract_statistics -------------------------------------------------------------------------


def test_what_is_recorded_of_a_network():
    plan = statistics_study.Plan(["relu"], width=16, n_seeds=1, n_rows=200)
    nets, (X, y) = statistics_study.train(plan, 2)
    net = nets["relu", 0]
    values = statistics_study.describe(net, X, y)
    given = net.encoder_.transform(X) @ net.coefs_[0] + net.intercepts_[0]
    gives = np.maximum(given, 0)
    assert values["input_mean_abs"] == pytest.approx(np.abs(given.mean(0)).mean(), rel=1e-3)
    assert values["mean_abs"] == pytest.approx(gives.mean(0).mean(), rel=1e-3)
    assert values["lowest"] == 0.0
    assert values["saturated"] == pytest.approx((given <= 0).mean(), abs=1e-3)
    size = 16 * np.sqrt((gives**2).mean())
    ratio = values["layer_0_mean"] / values["layer_0_relative"]
    assert ratio == pytest.approx(size, rel=1e-3)


def test_activations_are_compared_within_a_draw_of_weights():
    rows = pd.DataFrame({"activation": ["relu", "silu", "la-silu"] * 3, "epoch": 40})
    rows["seed"] = np.repeat([0, 1, 2], 3)
    rows["mean_abs"] = rows["layer_1_mean"] = [3.0, 2.0, 1.0, 4.0, 3.1, 2.0, 5.0, 4.2, 3.1]
    smaller = statistics_study.judge_smaller("la-silu", "mean_abs", True, rows, 0.0)
    assert (smaller.word, smaller.note) == ("holds", "nearest rival: silu")
    assert statistics_study.judge_above_relu("silu", rows, 0.0).word == "does not hold"
    assert statistics_study.judge_above_relu("hardsilu", rows, 0.0) is None
