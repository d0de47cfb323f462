"""Callbacks, progress, interrupts, history."""

import contextlib
import copy
import io
import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV

from combutab import MLPClassifier, MLPRegressor
from combutab.training import Callback, ProgressBar, TimeLimit

pytestmark = pytest.mark.usefixtures("paper_defaults")

INF = float("inf")
X, Y = load_iris(return_X_y=True)
QUICK = {"hidden_layer_sizes": (8,), "max_iter": 6, "n_iter_no_change": INF, "random_state": 0}


class Recorder(Callback):
    def __init__(self, stop_after=None, interrupt_after=None):
        self.stop_after, self.interrupt_after = stop_after, interrupt_after
        self.calls, self.reports = [], []

    def on_train_begin(self, n_members, max_epochs):
        self.calls.append(("begin", n_members, max_epochs))

    def on_epoch_end(self, report):
        self.reports.append(report)
        if report.epoch == self.interrupt_after:
            raise KeyboardInterrupt
        return report.epoch == self.stop_after

    def on_train_end(self):
        self.calls.append("end")


def test_a_callback_sees_every_epoch():
    recorder = Recorder()
    model = MLPClassifier(**QUICK, n_members=2, callbacks=[recorder]).fit(X, Y, X_val=X, y_val=Y)
    assert recorder.calls == [("begin", 2, 6), "end"]
    assert [r.epoch for r in recorder.reports] == [1, 2, 3, 4, 5, 6]
    assert all(r.max_epochs == 6 and r.members == (0, 1) for r in recorder.reports)
    seconds = [r.seconds for r in recorder.reports]
    assert seconds == sorted(seconds)
    assert [r.train_loss[0] for r in recorder.reports] == model.loss_curve_
    assert [r.validation_score[0] for r in recorder.reports] == model.validation_scores_
    plain = Recorder()
    MLPRegressor(**QUICK, callbacks=(plain,)).fit(X, Y)
    assert plain.reports[0].validation_score is None


def test_a_callback_stops_the_training_without_a_warning():
    model = MLPClassifier(**{**QUICK, "n_iter_no_change": 10}, callbacks=[Recorder(stop_after=3)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, Y)
    assert model.n_iter_ == 3
    fully = MLPClassifier(**{**QUICK, "max_iter": 3}).fit(X, Y)
    assert_array_equal(model.predict_proba(X), fully.predict_proba(X))


def test_a_time_limit():
    model = MLPRegressor(**{**QUICK, "max_iter": 10**6}, callbacks=[TimeLimit(0.2)]).fit(X, Y)
    assert 1 <= model.n_iter_ < 10**6
    assert MLPRegressor(**QUICK, callbacks=[TimeLimit(0.0)]).fit(X, Y).n_iter_ == 1


def test_callbacks_end_after_an_error_too():
    class Broken(Callback):
        def on_epoch_end(self, report):
            raise RuntimeError("broken")

    recorder = Recorder()
    with pytest.raises(RuntimeError, match="broken"):
        MLPRegressor(**QUICK, callbacks=[recorder, Broken()]).fit(X, Y)
    assert recorder.calls[-1] == "end"


def test_ctrl_c_keeps_the_best_weights_so_far_and_says_so():
    parameters = {**QUICK, "max_iter": 100, "learning_rate_init": 0.1, "hidden_layer_sizes": (16,)}
    recorder = Recorder(interrupt_after=30)
    model = MLPRegressor(**parameters, callbacks=[recorder])
    with pytest.warns(UserWarning, match="interrupted by user: the best weights so far are kept"):
        model.fit(X[::2], Y[::2], X_val=X[1::2], y_val=Y[1::2])
    assert model.n_iter_ == 30
    assert recorder.calls[-1] == "end"
    assert model.validation_scores_[-1] < model.best_validation_score_, "vacuous: last is best"
    assert_allclose(model.score(X[1::2], Y[1::2]), model.best_validation_score_, rtol=1e-5)


def test_ctrl_c_without_a_validation_set_keeps_the_weights_as_they_are():
    model = MLPClassifier(**QUICK, n_members=2, callbacks=[Recorder(interrupt_after=2)])
    with pytest.warns(UserWarning, match="interrupted by user"):
        model.fit(X, Y)
    two = MLPClassifier(**{**QUICK, "max_iter": 2}, n_members=2).fit(X, Y)
    assert_array_equal(model.predict_proba(X), two.predict_proba(X))
    with pytest.warns(UserWarning, match="interrupted by user"):  # even in the first epoch
        first = MLPClassifier(**QUICK, callbacks=[_AtOnce()]).fit(X, Y)
    assert first.predict(X).shape == (150,)
    assert first.n_iter_ == 0


class _AtOnce(Callback):
    def on_train_begin(self, n_members, max_epochs):
        raise KeyboardInterrupt


# ---- the progress bar ----------------------------------------


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_shows_on_a_terminal_and_nowhere_else(monkeypatch, capsys):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    MLPClassifier(**QUICK, callbacks=[ProgressBar()]).fit(X, Y)
    assert capsys.readouterr() == ("", "")
    terminal = _Terminal()
    with contextlib.redirect_stderr(terminal):
        model = MLPClassifier(**QUICK, n_members=2, early_stopping=True)
        model.set_params(callbacks=[ProgressBar("iris")]).fit(X, Y)
    shown = terminal.getvalue()
    for words in ("iris x 2", "6/6", "left", "loss ", "score "):
        assert words in shown
    assert capsys.readouterr() == ("", "")


def test_estimators_with_a_bar_are_copied_pickled_and_searched():
    model = MLPClassifier(**QUICK, callbacks=[ProgressBar()])
    for copied in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_array_equal(copied.fit(X, Y).predict(X), model.fit(X, Y).predict(X))
    pickle.loads(pickle.dumps(model)).predict(X)
    search = GridSearchCV(model, {"alpha": [0.0, 1.0]}, cv=2).fit(X, Y)
    assert len(search.cv_results_["params"]) == 2


# ---- history ----------------------------------------


def test_history_is_tidy_with_a_row_a_member_and_epoch():
    model = MLPClassifier(**QUICK, n_members=3).fit(X, Y, X_val=X, y_val=Y)
    history = model.history_
    assert history.columns.tolist() == [
        "member",
        "epoch",
        "train_loss",
        "train_metric",
        "validation_score",
        "learning_rate",
    ]
    assert len(history) == 18
    by_member = history.groupby("member")
    assert by_member["epoch"].apply(list).tolist() == [[1, 2, 3, 4, 5, 6]] * 3
    first = history[history["member"] == 0]
    assert first["train_loss"].tolist() == model.loss_curve_
    assert first["validation_score"].tolist() == model.validation_scores_
    assert by_member["train_loss"].first().nunique() == 3
    assert MLPRegressor(**QUICK).fit(X, Y).history_["validation_score"].isna().all()


def test_members_stop_each_in_their_own_time():
    model = MLPClassifier(
        hidden_layer_sizes=(8,),
        n_members=6,
        max_iter=300,
        learning_rate_init=0.02,
        n_iter_no_change=3,
        tol=1e-3,
        random_state=0,
    ).fit(X, Y, X_val=X[::3], y_val=Y[::3])
    lengths = model.history_.groupby("member").size()
    assert lengths.nunique() > 1
    assert lengths.max() < 300
    assert model.n_iter_ == lengths[0] == len(model.loss_curve_)
    assert np.isfinite(model.history_["train_loss"]).all()
