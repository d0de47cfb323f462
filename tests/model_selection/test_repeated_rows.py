"""Rows on both sides of a split: copies are counted, equal rows of discrete tables are not."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from combutab import MLPClassifier, PackClassifier
from combutab.core.splits import count_repeated_rows
from combutab.evaluation import evaluate_held_out
from combutab.model_selection import StackedGridSearchCV, plan_comparison

pytestmark = pytest.mark.usefixtures("few_resamples")
RNG = np.random.default_rng(0)
NOISE = pd.DataFrame(RNG.normal(size=(100, 4)), columns=list("abcd"))
LABELS = RNG.integers(0, 2, 100)


def folds(n_rows):
    return list(KFold(5, shuffle=True, random_state=0).split(np.zeros(n_rows)))


def test_copies_of_rows_are_counted():
    X, y = pd.concat([NOISE] * 4, ignore_index=True), np.tile(LABELS, 4)
    splits = folds(400)
    first = X["a"].to_numpy()
    expected = sum(np.isin(first[test], first[train]).sum() for train, test in splits)
    assert count_repeated_rows(X, y, splits) == (expected, 400)
    assert count_repeated_rows(X.to_numpy(), y, splits) == (expected, 400)
    mixed = X.assign(kind=np.tile(RNG.choice(["u", "v"], 100), 4), gap=np.nan)
    assert count_repeated_rows(mixed, y, splits) == (expected, 400)


def test_copies_with_another_target_are_not_counted():
    X, y = pd.concat([NOISE] * 2, ignore_index=True), np.concatenate([LABELS, 1 - LABELS])
    assert count_repeated_rows(X, y, folds(200)) == (0, 200)
    assert count_repeated_rows(X, sp.csr_matrix(y[:, None]), folds(200)) == (0, 200)


@pytest.mark.parametrize("n_columns", [1, 2, 6, 12])
@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_equal_rows_of_discrete_tables_are_natural(n_columns, correlated, seed):
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(600, 1)) if correlated else 0.0
    numbers = latent + rng.normal(size=(600, n_columns)) * (0.7 if correlated else 1.0)
    X = pd.DataFrame(np.digitize(numbers, [-0.5, 0.5]))
    y = (numbers[:, 0] > 0).astype(int)
    assert count_repeated_rows(X, y, folds(600)) == (0, 600)


def test_few_copies_are_left_alone():
    X = pd.concat([NOISE, NOISE[:1]], ignore_index=True)
    assert count_repeated_rows(X, np.append(LABELS, LABELS[0]), folds(101)) == (0, 101)


def test_a_comparison_warns_of_copies_and_names_groups():
    X, y = pd.concat([NOISE] * 4, ignore_index=True), np.tile(LABELS, 4)
    options = {"task": "classification", "activations": ["relu"], "seeds": 1}
    with pytest.warns(UserWarning, match=r"of 400 test rows .* groups"):
        plan_comparison(X, y, **options)
    groups = np.tile(np.arange(100), 4)
    plan_comparison(X, y, groups=groups, **options)
    plan_comparison(NOISE, LABELS, **options)


@pytest.mark.parametrize("form", [pd.DataFrame, np.asarray, pl.from_pandas, sp.csr_array])
def test_scores_of_rows_set_aside_warn_of_copies(form):
    X, y = form(pd.concat([NOISE] * 4, ignore_index=True)), np.tile(LABELS, 4)
    settings = {"max_iter": 1, "hidden_layer_sizes": (4,), "random_state": 0}
    clf = MLPClassifier(**settings, n_iter_no_change=np.inf).fit(X, y)
    with pytest.warns(UserWarning, match=r"of 240 test rows .* groups"):  # three networks
        evaluate_held_out(clf, y)
    clf.fit(X, y, groups=np.tile(np.arange(100), 4))
    evaluate_held_out(clf, y)
    assert not hasattr(clf.set_params(early_stopping=False).fit(X, y), "oof_n_repeated_")


def test_scores_of_a_pack_warn_of_copies():
    X, y = pd.concat([NOISE] * 4, ignore_index=True), np.tile(LABELS, 4)
    pack = PackClassifier(n_members=4, max_iter=1, cv=4, boosting=False, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match=r"of 400 test rows .* groups"):
        evaluate_held_out(pack, y)


@pytest.mark.filterwarnings("ignore:the candidates are not trained together")
@pytest.mark.parametrize(
    ("estimator", "grid"),
    [
        (MLPClassifier((4,), max_iter=1, n_members=1, random_state=0), {"alpha": [0.0]}),
        (LogisticRegression(), {"C": [1.0]}),  # searched by scikit-learn
    ],
)
@pytest.mark.parametrize("as_iterator", [False, True])
def test_a_search_warns_of_copies(estimator, grid, as_iterator):
    X, y = pd.concat([NOISE] * 4, ignore_index=True), np.tile(LABELS, 4)
    cv = KFold(5).split(X) if as_iterator else KFold(5)
    search = StackedGridSearchCV(estimator, grid, cv=cv, refit=False)
    with pytest.warns(UserWarning, match="400"):
        search.fit(X, y)
    assert search.cv is cv
