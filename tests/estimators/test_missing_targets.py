"""Missing cells of several targets have no part in losses and scores."""

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import r2_score

from combutab import MLPClassifier, MLPRegressor, PackClassifier, PackRegressor
from combutab.training import (
    REGRESSION_LOSSES,
    BinaryCrossEntropy,
    MaskedLoss,
    make_regression_loss,
)
from combutab.training._losses import r2

QUICK = {"hidden_layer_sizes": (16,), "max_iter": 40, "random_state": 0}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
SIGNAL = X @ RNG.normal(size=(3, 3))
Y = SIGNAL + RNG.normal(0.0, 0.2, SIGNAL.shape)
IS_MISSING = RNG.random(Y.shape) < 0.5
IS_MISSING[IS_MISSING.all(1), 0] = False
PARTIAL = np.where(IS_MISSING, np.nan, Y)
LABELS = np.where(IS_MISSING, np.nan, (Y > 0).astype(float))
TRAIN, TEST = slice(0, 300), slice(300, 400)

LOSSES = {name: make_regression_loss(name, (0.1, 0.5, 0.9)) for name in REGRESSION_LOSSES}
LOSSES["labels"] = BinaryCrossEntropy(label_smoothing=0.1)


def example(name):
    """Raw outputs, (2, 5, 3 * k), and targets, (2, 5, 3), of which some are missing."""
    generator = torch.Generator().manual_seed(0)
    loss = LOSSES[name]
    raw = torch.randn(2, 5, 3 * loss.n_per_target, generator=generator, dtype=torch.float64)
    y = torch.rand(2, 5, 3, generator=generator, dtype=torch.float64)
    y = y.round() if name == "labels" else y
    return loss, raw.requires_grad_(), y, torch.rand(2, 5, 3, generator=generator) < 0.4


def loop(loss, raw, y, is_missing):
    """Losses of rows, one target after the other."""
    k, rows = loss.n_per_target, torch.zeros(raw.shape[:2], dtype=torch.float64)
    for j in range(3):
        cells = loss.rows(raw[..., j * k : (j + 1) * k], y[..., j : j + 1])
        rows = rows + torch.where(is_missing[..., j], torch.zeros_like(cells), cells)
    return rows if isinstance(loss, BinaryCrossEntropy) else rows / 3


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients_are_those_of_a_loop(name):
    loss, raw, y, is_missing = example(name)
    masked = torch.where(is_missing, torch.nan, y)
    expected = loop(loss, raw, y, is_missing)
    losses = MaskedLoss.of(loss).rows(raw, masked)
    torch.testing.assert_close(losses, expected)
    (slopes,) = torch.autograd.grad(losses.sum(), raw, retain_graph=True)
    torch.testing.assert_close(slopes, torch.autograd.grad(expected.sum(), raw)[0])
    torch.testing.assert_close(MaskedLoss.of(loss).rows(raw, y), loss.rows(raw, y))


@pytest.mark.parametrize("name", LOSSES)
def test_ensembles_of_one_network_have_its_loss(name):
    loss, raw, y, is_missing = example(name)
    raw = raw.sort(-1).values  # quantiles that do not cross
    masked, loss = torch.where(is_missing, torch.nan, y), MaskedLoss.of(loss).unsmoothed()
    average = loss.averaged(raw, masked)
    torch.testing.assert_close(loss.rows_of_average(average, masked), loss.rows(raw, masked))


def test_r2_is_the_mean_of_those_of_known_rows():
    predicted, weight = torch.from_numpy(SIGNAL), torch.from_numpy(RNG.random(400))
    known = ~IS_MISSING
    expected = [
        r2_score(Y[rows, j], SIGNAL[rows, j], sample_weight=weight.numpy()[rows])
        for j, rows in enumerate(known.T)
    ]
    score = r2(predicted[None], torch.from_numpy(PARTIAL)[None], weight[None])
    assert score.item() == pytest.approx(np.mean(expected))
    reg = MLPRegressor(**{**QUICK, "max_iter": 1}, n_iter_no_change=np.inf).fit(X, Y)
    scores = [r2_score(Y[rows, j], reg.predict(X)[rows, j]) for j, rows in enumerate(known.T)]
    assert reg.score(X, PARTIAL) == pytest.approx(np.mean(scores))


@pytest.mark.parametrize(
    "reg",
    [
        MLPRegressor(**QUICK),
        MLPRegressor("gaussian_nll", **QUICK),
        MLPRegressor(solver="lbfgs", early_stopping=False, **QUICK),
        PackRegressor(n_members=2, max_iter=20, random_state=0),
    ],
    ids=["MLP", "gaussian", "lbfgs", "pack"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_known_cells_are_learned_from(reg):
    reg.fit(X[TRAIN], PARTIAL[TRAIN])
    assert r2_score(SIGNAL[TEST], reg.predict(X[TEST])) > 0.85
    if not hasattr(reg, "oof_prediction_"):
        return
    intervals = reg.predict_interval(X[TEST], 0.9)
    inside = (intervals[..., 0] <= Y[TEST]) & (Y[TEST] <= intervals[..., 1])
    assert inside.mean() > 0.75


def test_targets_may_be_a_frame_and_are_scaled_by_their_known_cells():
    brief = QUICK | {"max_iter": 2, "n_iter_no_change": np.inf}
    first = MLPRegressor(**brief).fit(X, PARTIAL)
    frame = pd.DataFrame(PARTIAL, columns=["a", "b", "c"])
    assert_array_equal(MLPRegressor(**brief).fit(X, frame).predict(X), first.predict(X))
    assert_allclose(
        first.target_.shift, np.nanmean(PARTIAL[first.oof_folds_ < 2], axis=0), atol=0.2
    )


@pytest.mark.parametrize(
    "clf",
    [MLPClassifier(**QUICK), PackClassifier(n_members=2, max_iter=20, random_state=0)],
    ids=["MLP", "pack"],
)
def test_missing_labels(clf):
    clf.fit(X[TRAIN], LABELS[TRAIN])
    predicted = clf.predict(X[TEST])
    assert ((predicted == (SIGNAL[TEST] > 0)).mean(0) > 0.8).all()
    right = (predicted == LABELS[TEST]) | IS_MISSING[TEST]
    assert clf.score(X[TEST], LABELS[TEST]) == pytest.approx(right.all(1).mean())


@pytest.mark.parametrize(
    ("model", "y", "match"),
    [
        (MLPRegressor(), np.where(np.arange(400) < 5, np.nan, Y[:, 0]), "dropna"),
        (MLPRegressor(), np.where(np.arange(400)[:, None] < 5, np.nan, Y), "dropna"),
        (MLPRegressor(), np.column_stack([Y, np.full(400, np.nan)]), "column 3"),
        (MLPRegressor(early_stopping_scoring="neg_max_error"), PARTIAL, "early_stopping_scoring"),
        (PackRegressor(scoring="neg_median_absolute_error"), PARTIAL, "scoring"),
        (MLPClassifier(class_weight="balanced"), LABELS, "class_weight"),
        (MLPClassifier(), np.where(IS_MISSING, np.nan, 2.0 * (Y > 0)), "0 and 1"),
    ],
    ids=["one target", "rows", "column", "scorer", "pack's scorer", "class weights", "labels"],
)
def test_targets_that_cannot_be_used(model, y, match):
    with pytest.raises(ValueError, match=match):
        model.fit(X, y)
