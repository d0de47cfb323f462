"""Long work made short, for tests to which its length does not matter."""

import os
from contextlib import contextmanager
from functools import partial

import pytest

BUDGET = int(os.environ.get("COMBUTAB_TRUST_BUDGET", "1"))  # how often random tests are tried


@contextmanager
def few_trees():
    """Let scikit-learn's forests and boosting have 10 trees for 100, and those of packs as many."""
    from sklearn import ensemble

    from combutab.estimators import _pack_training

    with pytest.MonkeyPatch.context() as patch:
        for task in ("Classifier", "Regressor"):
            boosting = getattr(ensemble, f"HistGradientBoosting{task}")
            patch.setitem(boosting.__init__.__kwdefaults__, "max_iter", 10)
            forest = getattr(ensemble, f"RandomForest{task}")
            patch.setattr(forest.__init__, "__defaults__", (10,))
        patch.setattr(_pack_training, "boost", partial(_pack_training.boost, max_steps=10))
        yield


@contextmanager
def few_resamples():
    """Let intervals of scores rest on 20 bootstrap samples, not 200: their width is not tested."""
    from combutab import evaluation

    with pytest.MonkeyPatch.context() as patch:
        for score in (evaluation.evaluate_held_out, evaluation.evaluate_predictions):
            patch.setitem(score.__kwdefaults__, "n_resamples", 20)
        yield


@contextmanager
def short_reports():
    """Let the report of a synthetic table draw chance a few times, with few trees and epochs."""
    from combutab.evaluation import _disclosure, _efficacy, _membership
    from combutab.reports import _synthetic, _yardsticks

    with few_trees(), pytest.MonkeyPatch.context() as patch:
        make_learner = _efficacy._make_learner

        def make(name, task):
            learner = make_learner(name, task)
            return learner.set_params(max_iter=5, n_iter_no_change=5) if name == "mlp" else learner

        patch.setattr(_efficacy, "_make_learner", make)
        patch.setattr(_synthetic, "_FOLDS", 2)
        patch.setattr(_synthetic, "_RESAMPLES", 30)
        patch.setattr(_yardsticks, "_DRAWS", (3, 3))
        patch.setattr(_membership, "_DRAWS", 19)
        patch.setattr(_disclosure, "_SPLITS", 19)
        patch.setitem(_disclosure.singling_out.__kwdefaults__, "n_predicates", 50)
        yield


@contextmanager
def few_steps():
    """Let the optimizer of PrivateSynthesizer take few steps: how good rows are is not tested."""
    from combutab.generators.private import _synthesizer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_synthesizer, "_START_STEPS", 1)
        patch.setattr(_synthesizer, "_LAST_STEPS", 1)
        yield


@contextmanager
def small_stacks(n_units=1000):
    """Train at most so many units at once, so that a few small networks are several stacks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("combutab.estimators._jobs._STACK_UNITS", {"cpu": n_units})
        yield
