"""Losses, scores, optimisers, schedules and callbacks against independent references."""

import copy
import dataclasses
import io
import math
import pickle
import re
import sys

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize_scalar
from sklearn.datasets import make_classification
from sklearn.metrics import accuracy_score, log_loss, mean_pinball_loss, r2_score

from combutab import MLPClassifier, TabMClassifier
from combutab.core.device import Precision
from combutab.training import (
    BinaryCrossEntropy,
    CrossEntropy,
    EpochReport,
    GaussianNLL,
    MemberPlan,
    MemberResult,
    OptimizerConfig,
    Pinball,
    ProgressBar,
    RowOptimizer,
    Rows,
    TrainConfig,
    best_factors,
    make_regression_loss,
    schedule_factor,
)
from combutab.training._losses import accuracy, r2
from combutab.training._optimizers import clip_gradients, rate_table
from combutab.training._steps import Batch, Batches, Objective

RNG = np.random.default_rng(0)
RAW = RNG.normal(size=(2, 30, 3))
Y = RNG.normal(size=(2, 30, 3))


def rows(loss, raw, y):
    return loss.rows(torch.from_numpy(raw), torch.from_numpy(y)).numpy()


def huber(e):
    return np.where(np.abs(e) <= 1, 0.5 * e**2, np.abs(e) - 0.5)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("squared_error", lambda raw, y: 0.5 * (raw - y) ** 2),
        ("absolute_error", lambda raw, y: np.abs(raw - y)),
        ("huber", lambda raw, y: huber(raw - y)),
    ],
)
def test_regression_losses(name, reference):
    got = rows(make_regression_loss(name, ()), RAW, Y)
    np.testing.assert_allclose(got, reference(RAW, Y).mean(-1))


def test_poisson_is_half_the_deviance():
    from sklearn.metrics import mean_poisson_deviance

    y = RNG.poisson(2.0, size=(1, 30, 1)).astype(float)
    loss = make_regression_loss("poisson", ())
    got = rows(loss, RAW[:1, :, :1], y).mean()
    predicted = np.exp(RAW[0, :, 0])
    assert got == pytest.approx(mean_poisson_deviance(y[0, :, 0], predicted) / 2)
    np.testing.assert_allclose(loss.point(torch.from_numpy(RAW)), np.exp(RAW))


def test_pinball():
    loss = Pinball(n_per_target=3, quantiles=(0.1, 0.6, 0.9))
    y = Y[..., :1]
    expected = np.mean(
        [
            mean_pinball_loss(y[0, :, 0], RAW[0, :, q], alpha=a)
            for q, a in enumerate((0.1, 0.6, 0.9))
        ]
    )
    assert rows(loss, RAW, y)[0].mean() == pytest.approx(expected)
    middle = np.sort(RAW, -1)[..., 1:2]
    assert (middle != RAW[..., 1:2]).any()  # raw quantiles cross, predicted ones do not
    assert torch.equal(loss.point(torch.from_numpy(RAW)), torch.from_numpy(middle))


def test_gaussian_likelihood():
    loss = GaussianNLL()
    raw, y = RAW[..., :2], Y[..., :1]
    mean, log_variance = loss.moments(torch.from_numpy(raw))
    np.testing.assert_allclose(mean.numpy()[..., 0], raw[..., 0])
    np.testing.assert_allclose(log_variance.numpy()[..., 0], raw[..., 1], atol=1e-5)
    expected = -stats.norm.logpdf(y, raw[..., :1], np.exp(0.5 * log_variance.numpy()))
    got = rows(loss, raw, y) + 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(got, expected[..., 0])
    far = torch.tensor([[[0.0, -1e4]]], dtype=torch.float64)
    assert loss.moments(far)[1].item() == pytest.approx(-14.0)


def test_cross_entropy_against_scikit_learn():
    labels = RNG.integers(0, 3, size=(2, 30))
    p = np.exp(RAW) / np.exp(RAW).sum(-1, keepdims=True)
    got = rows(CrossEntropy(), RAW, labels)
    assert got[1].mean() == pytest.approx(log_loss(labels[1], p[1], labels=[0, 1, 2]))
    smooth = np.eye(3)[labels] * 0.9 + 0.1 / 3
    expected = -(smooth * np.log(p)).sum(-1)
    np.testing.assert_allclose(rows(CrossEntropy(label_smoothing=0.1), RAW, labels), expected)


def test_binary_cross_entropy():
    labels = RNG.integers(0, 2, size=(2, 30, 3)).astype(float)
    p = 1 / (1 + np.exp(-RAW))
    for smoothing in (0.0, 0.2):
        target = labels * (1 - smoothing) + smoothing / 2
        expected = -(target * np.log(p) + (1 - target) * np.log(1 - p)).sum(-1)
        got = rows(BinaryCrossEntropy(label_smoothing=smoothing), RAW, labels)
        np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("loss", "n_outputs", "y"),
    [
        (make_regression_loss("squared_error", ()), 1, torch.from_numpy(Y[..., :1])),
        (make_regression_loss("squared_error", ()), 3, torch.from_numpy(Y)),
        (make_regression_loss("huber", ()), 3, torch.from_numpy(Y)),
        (BinaryCrossEntropy(label_smoothing=0.1), 3, torch.from_numpy(Y > 0).double()),
        (BinaryCrossEntropy(), 1, torch.from_numpy(Y[..., :1] > 0).double()),
        (CrossEntropy(), 3, torch.from_numpy(Y[..., 0] > 0).long()),
        (CrossEntropy(label_smoothing=0.2), 3, torch.from_numpy(Y[..., 0] > 0).long()),
    ],
    ids=str,
)
def test_the_objectives_derivative_is_autograds(loss, n_outputs, y, weighted):
    weight = torch.from_numpy(RNG.random((2, 30))) if weighted else None
    raw = torch.from_numpy(RAW[..., :n_outputs].copy())
    config = TrainConfig(
        loss, OptimizerConfig(), 30, 1, track_metric=True, precision=Precision("float64")
    )
    mass = 30.0 if weight is None else weight.sum(1)
    batch = Batch(Rows(raw, y, None, weight), mass)
    by_formula = Objective(config, batch)
    gradient = by_formula.gradient(raw.clone())  # which it overwrites
    leaf = raw.clone().requires_grad_()
    by_autograd = Objective(config, batch)
    (expected,) = torch.autograd.grad(by_autograd(leaf), leaf)
    torch.testing.assert_close(gradient, expected)
    losses = loss.rows(raw, y).numpy()
    means = np.average(losses, axis=1, weights=None if weight is None else weight.numpy())
    for objective in (by_formula, by_autograd):
        np.testing.assert_allclose(objective.mean, means)
        assert objective.metric.shape == (2,)


def test_scores_against_scikit_learn():
    weight = RNG.random((2, 30))
    w = torch.from_numpy(weight)
    got = r2(torch.from_numpy(RAW), torch.from_numpy(Y), w)
    expected = [r2_score(Y[m], RAW[m], sample_weight=weight[m]) for m in range(2)]
    np.testing.assert_allclose(got, expected)
    labels, predicted = RNG.integers(0, 2, (2, 30, 2)), RNG.integers(0, 2, (2, 30, 2))
    got = accuracy(torch.from_numpy(predicted), torch.from_numpy(labels), w)
    expected = [accuracy_score(labels[m], predicted[m], sample_weight=weight[m]) for m in range(2)]
    np.testing.assert_allclose(got, expected)
    constant = torch.ones(1, 5, 1)
    assert r2(constant, constant, torch.ones(1, 5)).item() == 1
    assert r2(constant + 1, constant, torch.ones(1, 5)).item() == 0


def run_rows(config, grads, rates, decays, n_decayed):
    values = torch.ones(2, 4, dtype=torch.float64)
    optimizer = RowOptimizer(config, values, n_decayed)
    (step_rates,) = optimizer.place_rates([rates], decays)
    for grad in grads:
        optimizer.step(values, grad, [0, 1], step_rates)
    return values


@pytest.mark.parametrize("solver", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("nesterov", [True, False])
def test_optimisers_against_torch(solver, nesterov):
    rates, decays = [0.1, 0.03], [0.0, 0.0]
    if solver == "adamw":
        decays = [0.5, 0.2]
    generator = torch.Generator().manual_seed(0)
    grads = [torch.randn(2, 4, generator=generator, dtype=torch.float64) for _ in range(7)]
    got = run_rows(OptimizerConfig(solver, nesterov=nesterov), grads, rates, decays, 4)
    for row in range(2):
        parameter = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
        makers = {
            "adam": lambda p, r=row: torch.optim.Adam([p], lr=rates[r]),
            "adamw": lambda p, r=row: torch.optim.AdamW([p], lr=rates[r], weight_decay=decays[r]),
            "sgd": lambda p, r=row: torch.optim.SGD(
                [p], lr=rates[r], momentum=0.9, nesterov=nesterov
            ),
        }
        optimizer = makers[solver](parameter)
        for grad in grads:
            parameter.grad = grad[row].clone()
            optimizer.step()
        torch.testing.assert_close(got[row], parameter.detach())


@pytest.mark.parametrize("nesterov", [True, False])
def test_scheduled_sgd_equals_torch(nesterov):
    values = torch.ones(2, 3, dtype=torch.float64)
    parameter = torch.nn.Parameter(values[1].clone())
    config = OptimizerConfig("sgd", nesterov=nesterov, rate_last=True)
    optimizer = RowOptimizer(config, values, 3)
    reference = torch.optim.SGD([parameter], momentum=0.9, nesterov=nesterov)
    schedule = (0.0, 0.1, 0.3, 0.05)
    placed = optimizer.place_rates([[9.0, rate] for rate in schedule], [0.0, 0.0])
    for step, rate in enumerate(schedule):
        grads = torch.full_like(values, step + 1.0)
        optimizer.step(values, grads, [1], placed[step])
        reference.param_groups[0]["lr"], parameter.grad = rate, grads[1]
        reference.step()
    torch.testing.assert_close(values[1], parameter.detach(), rtol=1e-6, atol=0)
    assert values[0].tolist() == [1.0] * 3


def test_decay_spares_the_biases():
    zero = [torch.zeros(2, 4, dtype=torch.float64)]
    values = run_rows(OptimizerConfig("adamw"), zero, [0.1, 0.1], [0.5, 0.0], 3)
    assert values.tolist() == [[0.95, 0.95, 0.95, 1.0], [1.0] * 4]


def test_rows_outside_a_step_keep_their_state():
    values = torch.ones(2, 3)
    optimizer = RowOptimizer(OptimizerConfig(), values, 3)
    (rates,) = optimizer.place_rates([[0.1, 0.1]], [0.0, 0.0])
    optimizer.step(values, torch.ones(2, 3), [1], rates)
    assert values[0].tolist() == [1.0] * 3
    assert values[1, 0] < 1
    assert optimizer.member(0)["steps"] == 0
    assert optimizer.member(1)["steps"] == 1


def test_clipping_is_by_row():
    grads = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    norms = clip_gradients(grads, 1.0)
    torch.testing.assert_close(grads, torch.tensor([[0.6, 0.8], [0.3, 0.4]]))
    assert norms.tolist() == pytest.approx([5.0, 0.5])


def test_schedules_at_known_points():
    assert schedule_factor("flat-cosine", 0.5) == 1.0
    assert schedule_factor("flat-cosine", 0.75) == pytest.approx(0.5)
    assert schedule_factor("flat-cosine", 1.0) == pytest.approx(0.0)
    assert schedule_factor("one-cycle", 0.0) == pytest.approx(0.04)
    assert schedule_factor("one-cycle", 0.3) == pytest.approx(1.0)
    assert schedule_factor("one-cycle", 1.0) == pytest.approx(1e-4)
    for t in (0.0, 1 / 15, 3 / 15, 7 / 15, 1.0):  # the ends of coslog4's four cycles
        assert schedule_factor("coslog4", t) == pytest.approx(0.0, abs=1e-12)
    middle = (2**2.5 - 1) / 15
    assert schedule_factor("coslog4", middle) == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"constant, cosine.*'linear'"):
        schedule_factor("linear", 0.5)
    with pytest.raises(ValueError, match="'adaptive'"):
        schedule_factor("adaptive", 0.5)


def test_rates_of_an_epoch():
    """A member's rates follow its own number of steps, whatever the stack's longest is."""
    table = np.array(rate_table("cosine", [0.1, 0.3], [2, 4], epoch=1, max_epochs=3))
    assert table.shape == (4, 2)
    for member, (rate, n_steps) in enumerate([(0.1, 2), (0.3, 4)]):
        fractions = (n_steps + np.arange(4)) / (3 * n_steps)
        expected = rate * 0.5 * (1 + np.cos(np.pi * np.minimum(fractions, 1)))
        np.testing.assert_allclose(table[:, member], expected, atol=1e-15)


def test_orders_drawn_ahead_are_those_of_their_epochs():
    config = TrainConfig(
        make_regression_loss("squared_error", ()), OptimizerConfig(), batch_size=64, max_epochs=9
    )
    plans = [
        MemberPlan(7, torch.arange(100, 400), 0.1),
        MemberPlan(8, torch.arange(30), 0.1),  # one batch: not shuffled
        MemberPlan(9, torch.arange(200), 0.1, start=MemberResult(epochs=5)),
    ]
    batches = Batches(plans, config, torch.device("cpu"), until=9)
    together = [batches.order(epoch) for epoch in (0, 1, 8, 3)]
    assert len({tuple(order[0].tolist()) for order in together}) == 4
    for epoch, order in zip((0, 1, 8, 3), together, strict=True):
        assert sorted(order[0].tolist()) == list(range(100, 400))
        assert order[1, :30].tolist() == list(range(30))
        for m, plan in enumerate(plans):  # of this epoch and this member alone
            alone = Batches([plan], config, torch.device("cpu"), until=epoch + 1).order(epoch)
            assert torch.equal(order[m, : alone.shape[1]], alone[0])
    batches.select([0, 2])
    assert torch.equal(batches.order(3), together[3][[0, 2]])


def test_one_cycle_is_torchs():
    steps = 1000
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1.0, total_steps=steps + 1, final_div_factor=400.0
    )
    for step in range(steps):
        # torch rounds the border between the two phases to a step
        got = schedule_factor("one-cycle", step / steps)
        assert got == pytest.approx(schedule.get_last_lr()[0], abs=0.004)
        optimizer.step()
        schedule.step()


REPORT = EpochReport(2, 5, (0,), np.array([0.25]), np.array([0.5]), np.array([0.1]), 0.2)


def test_progress_bar_is_silent_in_a_pipe(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    bar = ProgressBar("fit")
    for _ in range(2):  # it can be used again
        bar.on_train_begin(1, 5)
        bar.on_epoch_end(REPORT)
        bar.on_train_end()
    assert stream.getvalue() == ""
    assert copy.deepcopy(bar).description == pickle.loads(pickle.dumps(bar)).description == "fit"


def terminal_of(monkeypatch):
    """What is written to a terminal from now on."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return sys.stderr


def test_progress_bar_on_a_terminal(monkeypatch):
    terminal = terminal_of(monkeypatch)
    bar = ProgressBar("fit")
    bar.on_train_begin(3, 5)
    bar.on_epoch_end(REPORT)
    bar.on_train_end()
    for words in ("fit x 3", "2/5", "loss 0.25", "score 0.5", "so far"):
        assert words in terminal.getvalue()


@pytest.mark.parametrize(
    ("max_seconds", "left"), [(np.inf, "1:20"), (90.0, "0:30"), (59.0, "0:00")]
)
def test_progress_bar_shows_remaining_time(monkeypatch, max_seconds, left):
    terminal, seconds = terminal_of(monkeypatch), 0.0
    for clock in ("time.monotonic", "rich.console.monotonic"):
        monkeypatch.setattr(clock, lambda: seconds)
    bar = ProgressBar("fit")
    bar.on_train_begin(1, 7)
    for epoch in (1, 2, 3):
        seconds += 20.0
        bar.on_epoch_end(
            dataclasses.replace(
                REPORT, epoch=epoch, max_epochs=7, seconds=seconds, max_seconds=max_seconds
            )
        )
    bar.on_train_end()
    assert re.findall(r"(\d:\d\d) left", terminal.getvalue())[-1] == left


@pytest.mark.parametrize(
    ("seconds", "max_seconds", "score", "says"),
    [
        ([2, 4, 6], np.inf, None, "Training takes about 2 minutes on this machine\r?\n"),
        ([2, 4, 6], np.inf, np.array([0.5]), "2 minutes on this machine; less if early stopping"),
        ([2, 4, 6], 42.0, None, "40"),
        ([700], np.inf, None, "about 10 hours"),
        ([0.01, 0.02], np.inf, None, None),
    ],
)
@pytest.mark.parametrize("first", [1, 31])
def test_progress_bar_prints_total_time_once(monkeypatch, seconds, max_seconds, score, says, first):
    terminal = terminal_of(monkeypatch)
    bar = ProgressBar("fit", estimate=True)
    bar.on_train_begin(1, 49 + first)
    for epoch, passed in enumerate(seconds, first):
        bar.on_epoch_begin(epoch)
        asked = {"epoch": epoch, "max_epochs": 49 + first, "max_seconds": max_seconds}
        asked |= {"seconds": passed, "validation_score": score}
        bar.on_epoch_end(dataclasses.replace(REPORT, **asked))
    bar.on_train_end()
    assert terminal.getvalue().count("on this machine") == (says is not None)
    assert says is None or re.search(says, terminal.getvalue())


# ---- What several heads predict on average, and its loss -----------------------------------------


M, B, HEADS = 2, 5, 3


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_head(raw):
    return raw.unflatten(1, (B, HEADS))


def test_classes_have_the_mean_of_the_probabilities():
    raw, y = 3 * draw(M, B * HEADS, 4), torch.arange(M * B).view(M, B) % 4
    loss = CrossEntropy()
    p = by_head(raw).softmax(-1).mean(2)
    average = loss.average(raw, HEADS)
    torch.testing.assert_close(average.softmax(-1), p)
    expected = -p.gather(-1, y[..., None])[..., 0].log()
    torch.testing.assert_close(loss.rows(average, y), expected)
    assert (expected < by_head(loss.rows(raw, y.repeat_interleave(HEADS, 1))[..., None])[..., 0]
            .mean(2)).all()  # Jensen's inequality  # fmt: skip
    assert torch.equal(loss.point(average), p.argmax(-1))


def test_labels_have_the_mean_of_the_probabilities():
    raw = torch.cat([draw(M, B * HEADS, 2), 60 + draw(M, B * HEADS, 1)], -1)  # and a certain one
    average = BinaryCrossEntropy().average(raw, HEADS)
    torch.testing.assert_close(torch.sigmoid(average), torch.sigmoid(by_head(raw)).mean(2))
    assert average[..., 2].isfinite().all()
    assert (average[..., 2] > 55).all()


@pytest.mark.parametrize("name", ["squared_error", "absolute_error", "huber", "poisson"])
def test_points_are_means_of_points(name):
    raw, loss = draw(M, B * HEADS, 2), make_regression_loss(name, ())
    points = by_head(loss.point(raw)).mean(2)
    torch.testing.assert_close(loss.point(loss.average(raw, HEADS)), points)


def test_quantiles_are_means_over_heads():
    raw, loss = draw(M, B * HEADS, 4), Pinball(n_per_target=2, quantiles=(0.2, 0.6))
    ordered = np.sort(by_head(raw).numpy().reshape(M, B, HEADS, 2, 2), -1)  # targets, quantiles
    expected = torch.from_numpy(ordered.mean(2).reshape(M, B, 4))
    torch.testing.assert_close(loss.average(raw, HEADS), expected)
    alone = torch.from_numpy(np.sort(raw.numpy().reshape(M, -1, 2, 2), -1).reshape(M, -1, 4))
    assert torch.equal(loss.average(raw, 1), alone)


def test_normals_have_the_moments_of_their_mixture():
    raw, loss = draw(M, B * HEADS, 4), GaussianNLL()
    raw[:, : HEADS * 2, 1] = -40.0  # at the floor
    raw[:, :HEADS, 0] = 0.3  # and of one mean
    mean, log_variance = (by_head(part) for part in loss.moments(raw))
    found, log_found = loss.moments(loss.average(raw, HEADS))
    torch.testing.assert_close(found, mean.mean(2))
    variance = log_variance.exp().mean(2) + mean.var(2, correction=0)
    torch.testing.assert_close(log_found, variance.log())
    assert log_found[0, 0, 0] == pytest.approx(math.log(math.exp(-14)), abs=1e-6)


# ---- Temperature scaling of classifiers, on the rows that are set aside --------------------------


INF = float("inf")
QUICK = {"hidden_layer_sizes": (16,), "max_iter": 12, "n_iter_no_change": INF, "random_state": 0}


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_factor_is_the_penalised_minimum(n_classes):
    rng = np.random.default_rng(n_classes)
    raw = torch.from_numpy(rng.normal(size=(3, 80, n_classes)) * [[[0.5]], [[2.0]], [[8.0]]])
    weight = torch.from_numpy(rng.uniform(0.0, 2.0, size=(3, 80)))
    y = torch.from_numpy(rng.integers(0, 2 if n_classes == 2 else 4, (3, 80)))
    loss = CrossEntropy()
    if n_classes == 2:  # two labels, which share a temperature
        loss, y = BinaryCrossEntropy(), torch.stack([y, 1 - y], -1).double()
    found = best_factors(lambda scaled: loss.rows(scaled, y), raw, weight)

    def cost(log_factor, m):
        rows = loss.rows(raw[m] * np.exp(log_factor), y[m])
        return float((rows * weight[m]).sum() / weight[m].mean()) + 0.5 * log_factor**2

    for m in range(3):
        best = minimize_scalar(cost, bounds=(-1.93, 1.93), args=(m,), method="bounded")
        assert cost(np.log(found[m].item()), m) == pytest.approx(best.fun, rel=1e-3)
    tiny = best_factors(lambda scaled: loss.rows(scaled, y), raw, weight * 1e-12)
    torch.testing.assert_close(tiny, found)


def test_few_correct_rows_are_not_overconfident():
    raw, y = torch.tensor([[[3.0, 0.0]] * 4]), torch.zeros(1, 4, dtype=torch.int64)
    found = best_factors(lambda scaled: CrossEntropy().rows(scaled, y), raw, torch.ones(1, 4))
    assert 1.0 <= found.item() < 2.0


@pytest.fixture(scope="module")
def table():
    return make_classification(500, 8, n_informative=5, n_classes=3, flip_y=0.2, random_state=0)


@pytest.mark.parametrize(("cls", "more"), [(MLPClassifier, {}), (TabMClassifier, {"n_heads": 3})])
def test_probabilities_suit_the_rows_set_aside(table, cls, more):
    X, y = table
    settings = {**QUICK, "learning_rate_init": 0.02, "label_smoothing": 0.3, **more}
    settings |= {"early_stopping_scoring": "loss"}
    raw = cls(**settings, calibration=None).fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    scaled = cls(**settings, calibration="temperature")
    scaled.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    losses = [log_loss(y[300:], model.predict_proba(X[300:])) for model in (raw, scaled)]
    assert losses[1] < losses[0] - 0.003
    assert losses[1] == pytest.approx(-scaled.best_validation_score_, abs=1e-4)
    if cls is MLPClassifier:  # the same epochs, of which another may be the best
        one = cls(**settings | {"max_iter": 1}, calibration="temperature")
        other = cls(**settings | {"max_iter": 1}, calibration=None)
        for model in (one, other):
            model.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
        np.testing.assert_array_equal(one.predict(X), other.predict(X))
        assert not np.allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("scoring", [None, "neg_log_loss"])
def test_every_score_is_that_of_the_scaled_outputs(table, scoring):
    X, y = table
    model = MLPClassifier(**QUICK, calibration="temperature", early_stopping_scoring=scoring)
    model.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    score = model.score(X[300:], y[300:])
    if scoring:
        score = -log_loss(y[300:], model.predict_proba(X[300:]))
    assert score == pytest.approx(model.best_validation_score_, abs=1e-4)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
def test_a_warm_start_goes_on_from_calibrated_weights(table):
    X, y = table
    settings = QUICK | {"max_iter": 6, "warm_start": True, "early_stopping_scoring": "loss"}
    model = MLPClassifier(**settings, calibration="temperature")
    model.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    before = log_loss(y[300:], model.predict_proba(X[300:]))
    model.set_params(learning_rate_init=10.0)  # of which nothing better can come
    model.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    assert log_loss(y[300:], model.predict_proba(X[300:])) <= before + 1e-3


def test_without_rows_set_aside_nothing_is_scaled(table):
    X, y = table
    settings = QUICK | {"early_stopping": False}
    models = [MLPClassifier(**settings, calibration=how) for how in (None, "temperature")]
    for model in models:
        model.fit(X, y)
    np.testing.assert_array_equal(*(model.predict_proba(X) for model in models))
