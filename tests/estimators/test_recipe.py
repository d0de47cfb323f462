"""The parts of a strong recipe, each a parameter: against plain torch, and each by itself."""

import math

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer, log_loss, roc_auc_score
from torch import nn

import combutab
from combutab import MLPClassifier, MLPRegressor
from combutab.estimators import FitTask, fit_stacked
from combutab.training import schedule_factor

pytestmark = pytest.mark.usefixtures("paper_defaults")

INF = float("inf")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1]
LABELS = np.where(Y > 0.5, "high", np.where(Y < -0.5, "low", "middle"))
PARTS = {
    "activation": "blend-mish",
    "solver": "adamw",
    "beta_1": 0.8,
    "beta_2": 0.95,
    "epsilon": 1e-6,
    "init": "ntk",
    "numeric_encoding": "robust",
    "numeric_embedding": "pbld",
    "scale_inputs": True,
    "learning_rate": "coslog4",
    "learning_rate_init": 0.05,
    "learning_rate_factors": {"bias": 0.1, "embedding": 0.1, "activation": 0.1, "scale": 6.0},
    "regularization_schedule": "flat-cosine",
    "weight_decay": 0.02,
}
SMALL = {"hidden_layer_sizes": (7, 5), "n_iter_no_change": INF, "random_state": 0, "alpha": 0.0}


def test_trains_as_plain_torch_does():
    settings = {**SMALL, **PARTS, "dropout": 0.0, "precision": "float64", "batch_size": 60}
    start = MLPRegressor(**settings, max_iter=1)
    start._validate()
    job = start._make_job(start._prepare(X, Y))
    net = job.spec.build(job.members, dtype=torch.float64)
    state = {name: value.clone().requires_grad_() for name, value in net.member_state(0).items()}
    rows = job.rows

    def factor(name):
        role = "weight"
        if name.startswith("inputs"):
            role = "scale" if name == "inputs.scale" else "embedding"
        elif name.startswith("activations"):
            role = "activation"
        elif name.endswith("bias"):
            role = "bias"
        return PARTS["learning_rate_factors"].get(role, 1.0), role

    def forward(dense):
        k = {name.removeprefix("inputs.numeric."): value for name, value in state.items()}
        parts = []
        for j in range(3):
            x = dense[:, j : j + 1]
            waves = torch.cos(2 * math.pi * x * k["frequency"][j] + k["phase"][j])
            parts += [x, waves @ k["weight"][j] + k["bias"][j]]
        h = torch.cat(parts, 1) * state["inputs.scale"]
        for i in range(3):
            weight = state[f"linears.{i}.weight"]
            h = h @ weight / math.sqrt(len(weight)) + state[f"linears.{i}.bias"]
            if i < 2:
                w = next(v for n, v in state.items() if n.startswith(f"activations.{i}."))
                h = (1 - w) * h + w * nn.functional.mish(h)
        return h

    n_epochs = 12
    optimizer = torch.optim.AdamW(
        [{"params": [value], "name": name} for name, value in state.items()],
        lr=1.0, betas=(0.8, 0.95), eps=1e-6,
    )  # fmt: skip
    for epoch in range(n_epochs):
        t = epoch / n_epochs
        for group in optimizer.param_groups:
            own, role = factor(group["name"])
            group["lr"] = own * 0.05 * schedule_factor("coslog4", t)
            decay = 0.02 * (1 if t < 0.5 else 0.5 * (1 + math.cos(math.pi * (2 * t - 1))))
            group["weight_decay"] = decay if role == "weight" else 0.0
        optimizer.zero_grad()
        (0.5 * (forward(rows.dense) - rows.y).square().mean()).backward()
        optimizer.step()

    fitted = MLPRegressor(**settings, max_iter=n_epochs).fit(X, Y)
    for name, value in state.items():
        np.testing.assert_allclose(
            fitted._states[0][name], value.detach().numpy(), rtol=1e-6, atol=1e-9, err_msg=name
        )


@pytest.mark.parametrize("schedule", ["constant", "flat-cosine"])
def test_dropout_falls_with_the_schedule(schedule):
    clf = MLPClassifier(
        **SMALL, max_iter=4, dropout=0.5, regularization_schedule=schedule, track_metric=True
    ).fit(X, LABELS)
    other = MLPClassifier(**SMALL, max_iter=4, dropout=0.5, track_metric=True).fit(X, LABELS)
    same = clf.history_["train_loss"].to_numpy() == other.history_["train_loss"].to_numpy()
    # "flat-cosine" is 1 in the first half of the epochs, and the third epoch begins at it
    assert same.tolist() == ([True] * 4 if schedule == "constant" else [True, True, True, False])


def test_rate_factors_of_auto():
    common = {**SMALL, **PARTS, "max_iter": 3, "learning_rate_factors": {"bias": 0.1, "scale": 6}}
    by_name = MLPRegressor(**{**common, "learning_rate_factors": "auto"}).fit(X, Y)
    expected, without = MLPRegressor(**common), {**common, "learning_rate_factors": None}
    np.testing.assert_array_equal(by_name.predict(X), expected.fit(X, Y).predict(X))
    assert (by_name.predict(X) != MLPRegressor(**without).fit(X, Y).predict(X)).any()


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # as scikit-learn's, of each part
def test_goes_on_where_it_stood():
    common = {**SMALL, **PARTS, "learning_rate": "constant", "warm_start": True}
    twice = MLPRegressor(**common, max_iter=2).fit(X, Y).fit(X, Y)
    assert twice._states[0]["inputs.scale"].shape == (1, 12)
    twice.numeric_embedding = "none"
    with pytest.raises(ValueError, match="numeric_embedding='none'"):
        twice.fit(X, Y)


# ---- what stops a fit ------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", ["loss", "neg_log_loss", "roc_auc_ovr", "balanced_accuracy"])
def test_scores_of_held_out_rows_are_scikit_learns(scoring):
    clf = MLPClassifier(
        **SMALL, max_iter=1, early_stopping_scoring=scoring, label_smoothing=0.1
    ).fit(X[:40], LABELS[:40], X_val=X[40:], y_val=LABELS[40:])
    if scoring == "loss":
        expected = -log_loss(LABELS[40:], clf.predict_proba(X[40:]))
    else:
        expected = get_scorer(scoring)(clf, X[40:], LABELS[40:])
    assert clf.validation_scores_ == pytest.approx([expected], rel=1e-5)


def test_scores_of_regressions_are_in_the_targets_units():
    common = {**SMALL, "max_iter": 1, "early_stopping_scoring": "neg_mean_absolute_error"}
    reg = MLPRegressor(**common).fit(X[:40], 1000 * Y[:40], X_val=X[40:], y_val=1000 * Y[40:])
    error = np.abs(reg.predict(X[40:]) - 1000 * Y[40:]).mean()
    assert reg.best_validation_score_ == pytest.approx(-error, rel=1e-5)


def test_callable_scoring_receives_weights_per_member():
    seen = []

    def scoring(estimator, rows, y, sample_weight=None):
        seen.append(sample_weight)
        return float((estimator.predict(rows) == y).mean())

    weight = RNG.uniform(0.5, 2.0, 60)
    clf = MLPClassifier(
        **SMALL, max_iter=3, n_members=2, early_stopping=True, early_stopping_scoring=scoring
    ).fit(X, LABELS, weight)
    # the first is a trial; each epoch is scored by all rows, and without each half of them
    assert len(seen) == 1 + 6 * 3
    assert [len(one) for one in seen[1:]] == [6, 6, 3, 3, 3, 3] * 3
    assert set(np.concatenate(seen)) <= set(np.float32(weight).astype(float))
    kept = clf.history_.groupby("member")["validation_score"].max()
    assert kept[0] == clf.best_validation_score_


def test_auto_early_stopping_needs_enough_rows():
    table = RNG.normal(size=(220, 2))
    labels = (table[:, 0] > 0).astype(int)
    common = {**SMALL, "max_iter": 1, "early_stopping": "auto"}
    assert len(MLPClassifier(**common).fit(table, labels).validation_scores_) == 1
    assert MLPClassifier(**common).fit(table[:150], labels[:150]).validation_scores_ is None
    labels[0] = 2  # a class that has one row trains
    for each in (labels, np.arange(220) % 55):  # or classes are too many to stratify
        assert len(MLPClassifier(**common).fit(table, each).validation_scores_) == 1
    insists = MLPClassifier(**{**common, "early_stopping": True})
    assert len(insists.fit(table, labels).validation_scores_) == 1
    reg = MLPRegressor(**common).partial_fit(table, table[:, 0])
    assert reg.t_ == 220  # an epoch has no rows to spare


def test_clipped_predictions_stay_in_the_range_seen(tmp_path):
    steep = 100 * X[:, 0]
    common = {**SMALL, "max_iter": 200, "learning_rate_init": 0.01}
    free = MLPRegressor(**common).fit(X, steep)
    clipped = MLPRegressor(**common, clip_predictions=True).fit(X, steep)
    far = np.array([[50.0, 0, 0], [-50.0, 0, 0], [0.1, 0, 0]])
    unit = steep.std() / 64
    high, low, middle = clipped.predict(far)
    assert steep.max() <= high <= steep.max() + unit
    assert free.predict(far)[0] > high
    assert steep.min() - unit <= low <= steep.min()
    assert free.predict(far)[1] < low
    assert middle == free.predict(far)[2]
    clipped.save(tmp_path / "model")
    again = combutab.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(far), [high, low, middle])


def test_unusable_scorer_is_refused_before_training(capsys):
    with pytest.raises(ValueError, match="early_stopping_scoring='precision'"):
        MLPClassifier(
            **SMALL, early_stopping=True, early_stopping_scoring="precision", verbose=True
        ).fit(X, LABELS)
    assert "Iteration" not in capsys.readouterr().out
    with pytest.warns(ConvergenceWarning, match="validation score"):
        MLPRegressor(
            **SMALL, max_iter=2, early_stopping=True, early_stopping_scoring=lambda *_: math.nan
        ).fit(X, Y)


def test_stack_clips_only_models_that_ask():
    tasks = [
        FitTask(MLPRegressor(**SMALL, max_iter=1, clip_predictions=clips), X, Y, 0)
        for clips in (False, True, False)
    ]
    fit_stacked(tasks)
    assert [task.estimator.target_.bounds is not None for task in tasks] == [False, True, False]


@pytest.mark.slow
def test_balanced_weights_do_not_harm_rare_classes():
    """1 % positives in 15,000 rows: the mean ROC AUC on 30,000 new rows, of three tables."""
    scores = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(45_000, 8))
        signal = 0.5 * rows[:, 0] - 0.4 * rows[:, 1] + 0.4 * (rows[:, 2] * rows[:, 3])
        latent = signal + 0.4 * np.abs(rows[:, 4]) + rng.logistic(size=len(rows))
        y = (latent > np.quantile(latent, 0.99)).astype(int)
        for class_weight in (None, "balanced"):
            model = MLPClassifier(
                (64,),
                numeric_embedding="none",
                max_iter=15,
                n_iter_no_change=INF,
                random_state=seed,
                class_weight=class_weight,
            )
            model.fit(rows[:15_000], y[:15_000])
            auc = roc_auc_score(y[15_000:], model.predict_proba(rows[15_000:])[:, 1])
            scores.append((class_weight is not None, auc))
    default, balanced = (
        np.mean([auc for weighted, auc in scores if weighted == wanted]) for wanted in (False, True)
    )
    assert balanced > default - 0.01
