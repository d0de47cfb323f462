"""The LayerAct studies: their own logic against cases known by hand."""

import numpy as np
import pytest

from benchmarks.papers.layeract import statistics as statistics_study

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
