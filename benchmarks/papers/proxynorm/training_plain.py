"""Deep MLPs without skip connections, by the estimator: norms that it has, all members a stack."""

from __future__ import annotations

import math

import pandas as pd
import torch

from benchmarks.papers.common.results import Row
from benchmarks.papers.proxynorm.training_runs import SMOOTHING, Program, Split, as_row, load_split
from combutab import MLPClassifier
from combutab.estimators import FitTask, fit_stacked

ESTIMATOR_NORMS = {  # normalization, proxy_norm; its groups are of 8 units, as ours on tables
    "BN": ("batch", False),
    "LN": ("layer", False),
    "LN+PN": ("layer", True),
    "GN": ("group", False),
    "GN+PN": ("group", True),
}
DROPOUT = 0.02  # after each of ten layers


def make_estimator(program: Program, regularisation: str, seed: int) -> MLPClassifier:
    """One unfitted network; its extra regularisation is label smoothing and dropout."""
    normalization, proxy_norm = ESTIMATOR_NORMS[program.norm]
    extra = regularisation == "extra"
    return MLPClassifier(
        hidden_layer_sizes=(program.width,) * program.layers,
        activation=program.activation,
        normalization=normalization,
        proxy_norm=proxy_norm,
        solver="adamw",
        alpha=0.0,
        init="kaiming",
        batch_size=program.batch_size,
        learning_rate="cosine",
        learning_rate_init=program.learning_rate,
        max_iter=program.epochs,
        n_iter_no_change=math.inf,
        dropout=DROPOUT * extra,
        label_smoothing=SMOOTHING * extra,
        numeric_encoding="none",  # the rows are encoded already
        categorical_features=None,
        random_state=seed,
        track_metric=True,
        device="cpu",
    )


def train_plain(program: Program) -> list[Row]:
    """Train all members, and score them: one row each, in the order of ``program.members``.

    Raises
    ------
    ValueError
        A network diverged.
    """
    split = load_split(program.data, program.recipe, program.data_home)
    X, y = split.X_train.numpy(), split.y_train.numpy()
    estimators = [make_estimator(program, kind, seed) for kind, seed in program.members]
    outcomes = fit_stacked([FitTask(estimator, X, y, data_key=0) for estimator in estimators])
    rows = []
    for member, net, outcome in zip(program.members, estimators, outcomes, strict=True):
        if outcome.error is not None:
            raise outcome.error
        values = _scores(net, split)
        values |= {"seconds": round(outcome.seconds, 3), "n_test": len(split.y_test)}
        values["groups"] = program.width // 8 if program.norm.startswith("GN") else 1
        rows.append(as_row(values, program.settings(*member)))
    return rows


def _scores(net: MLPClassifier, split: Split) -> dict[str, object]:
    last: pd.Series = net.history_.iloc[-1]
    X, y = split.X_test.numpy(), split.y_test
    probability = torch.from_numpy(net.predict_proba(X)).double()
    chosen = probability[torch.arange(len(y)), y].clamp_min(1e-12)
    return {
        "accuracy": f"{(probability.argmax(1) == y).double().mean().item():.6g}",
        "log_loss": f"{-chosen.log().mean().item():.6g}",
        "train_accuracy": f"{last['train_metric']:.6g}",
        "train_loss": f"{last['train_loss']:.6g}",
        "fit_accuracy": f"{net.score(split.X_train.numpy(), split.y_train.numpy()):.6g}",
    }
