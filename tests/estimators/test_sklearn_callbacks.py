"""scikit-learn's callbacks are told of our fits, epoch by epoch, and by none where it has none."""

import importlib.util
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import combutab
from combutab import (
    TVAE,
    MLPClassifier,
    MLPRegressor,
    PackClassifier,
    StackedGridSearchCV,
    TabFlowImputer,
)
from combutab.core import tasks
from combutab.estimators import _jobs
from combutab.preprocessing import TableEncoder
from combutab.training import Callback

INF = float("inf")
X, Y = load_iris(return_X_y=True)
QUICK = {"hidden_layer_sizes": (8,), "max_iter": 4, "n_iter_no_change": INF, "random_state": 0}
QUICK |= {"learning_rate_init": 0.03, "numeric_embedding": "none"}
TINY_TVAE = {"epochs": 2, "compress_dims": (8,), "decompress_dims": (8,), "random_state": 0}


def told(*, within=False):
    """A recorder, also of estimators within others; tests of it need scikit-learn 1.9."""
    pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")
    recorder = Recorder()
    if within:
        recorder.max_propagation_depth = None
    return recorder


class Recorder:
    """A callback of scikit-learn's protocol."""

    def __init__(self):
        self.calls, self.fitted, self.metadata, self.stop_after = [], {}, [], None

    def setup(self, estimator, context):
        self.calls.append(("setup", context.estimator_name))

    def teardown(self, estimator, context):
        self.calls.append(("teardown", context.estimator_name))

    def on_fit_task_begin(self, estimator, context):
        self.calls.append(("begin", context.estimator_name, context.task_name, context.task_id))

    def on_fit_task_end(self, estimator, context, *, X, fitted_estimator, metadata):
        end = (context.estimator_name, context.task_name, context.task_id)
        self.calls.append(("end", *end))
        self.metadata.append(metadata)
        if X is not None and hasattr(fitted_estimator, "predict_proba"):
            self.fitted[end[1:]] = fitted_estimator.predict_proba(X)
        return end[1:] == self.stop_after

    def ends(self, estimator):
        return [call[2:] for call in self.calls if call[:2] == ("end", estimator)]


class StopAfter(Callback):
    """Ours, which ends the training of each stack."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, report):
        return report.epoch == self.epoch


@pytest.mark.parametrize("early_stopping", [False, True])
def test_each_epoch_is_a_task_with_the_estimator_as_it_would_be(early_stopping):
    recorder, settings = told(), {**QUICK, "early_stopping": early_stopping}
    model = MLPClassifier(**settings).set_callbacks(recorder).fit(X, Y, np.ones(150))
    parts = [(kind, "MLPClassifier", "epoch", i) for i in range(4) for kind in ("begin", "end")]
    root = ("MLPClassifier", "fit", 0)
    assert recorder.calls == [
        *[("setup", "MLPClassifier"), ("begin", *root), *parts, ("end", *root)],
        ("teardown", "MLPClassifier"),
    ]
    assert all(metadata["sample_weight"].sum() == 150 for metadata in recorder.metadata)
    for epochs in (1, 3):
        there = MLPClassifier(**settings, callbacks=[StopAfter(epochs)]).fit(X, Y, np.ones(150))
        assert_array_equal(recorder.fitted["epoch", epochs - 1], there.predict_proba(X))
    plain = MLPClassifier(**settings).fit(X, Y, np.ones(150))
    assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert_array_equal(recorder.fitted["fit", 0], plain.predict_proba(X))
    pd.testing.assert_frame_equal(model.history_, plain.history_)
    assert model.loss_curve_ == plain.loss_curve_


def test_members_in_several_stacks_are_one_fit(monkeypatch):
    monkeypatch.setitem(_jobs._STACK_UNITS, "cpu", 1)
    recorder = told()
    model = MLPClassifier(**{**QUICK, "max_iter": 2}, n_members=2).set_callbacks(recorder)
    model.fit(X, Y)
    assert recorder.ends("MLPClassifier") == [*(("epoch", i) for i in range(4)), ("fit", 0)]
    assert_array_equal(recorder.fitted["epoch", 3], model.predict_proba(X))
    recorder = told()
    recorder.stop_after = ("epoch", 0)
    model.set_callbacks(recorder).fit(X, Y)
    assert recorder.ends("MLPClassifier") == [("epoch", 0), ("epoch", 1), ("fit", 0)]
    assert model.n_iter_ == 1
    assert len(model._states) == 2


def test_searches_and_pipelines_hand_them_on_and_stacked_ones_say_that_they_do_not():
    recorder = told(within=True)
    pipeline = make_pipeline(TableEncoder(), StandardScaler(), MLPRegressor(**QUICK))
    pipeline.set_callbacks(recorder).fit(X, Y)
    assert recorder.ends("TableEncoder") == [("fit", 0)]
    assert [task for task, _ in recorder.ends("MLPRegressor")] == ["epoch"] * 4 + ["fit"]
    assert not hasattr(pipeline[-1], "_skl_callbacks")
    net = MLPClassifier(**{**QUICK, "max_iter": 2})
    search = GridSearchCV(net, {"alpha": [0.0, 1.0]}, cv=2, n_jobs=1)
    search.set_callbacks(recorder).fit(X, Y)
    assert recorder.ends("MLPClassifier").count(("epoch", 1)) == 2 * 2 + 1
    recorder = told()
    stacked = StackedGridSearchCV(clone(net.set_callbacks(recorder)), {"alpha": [0.0]}, cv=2)
    with pytest.warns(UserWarning, match="callbacks watch one fit at a time"):
        stacked.fit(X, Y)
    assert recorder.ends("MLPClassifier").count(("epoch", 1)) == 3


def test_packs_tell_of_members_generators_and_imputers_of_epochs():
    recorder = told()
    pack = PackClassifier(
        n_members=3,
        max_iter=3,
        activations=("relu",),
        member_params={"hidden_layer_sizes": (4,)},
        n_iter_no_change=INF,
        random_state=0,
    )
    pack.set_callbacks(recorder).fit(X, Y)
    assert recorder.ends("PackClassifier") == [*(("member", i) for i in range(3)), ("fit", 0)]
    assert_array_equal(recorder.fitted["fit", 0], pack.predict_proba(X))
    recorder = told(within=True)
    holes = pd.DataFrame(X[::3], columns=list("abcd"))
    holes = holes.mask(np.random.default_rng(0).random(holes.shape) < 0.1)
    imputer = TabFlowImputer(TVAE(**TINY_TVAE), n_draws=1, random_state=0)
    pipeline = make_pipeline(imputer, TableEncoder()).set_callbacks(recorder).fit(holes)
    assert recorder.ends("TVAE") == [("epoch", 0), ("epoch", 1), ("fit", 0)]
    plain = clone(imputer).fit_transform(holes)
    pd.testing.assert_frame_equal(pipeline[0].transform(holes), plain)


def test_files_are_trained_on_epoch_by_epoch(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    recorder, table = told(), pd.DataFrame(X, columns=list("abcd"))
    table.assign(y=Y).to_parquet(tmp_path / "table.parquet", row_group_size=50)
    model = MLPClassifier(**{**QUICK, "max_iter": 2}).set_callbacks(recorder)
    model.fit_parquet(tmp_path / "table.parquet", "y")
    assert recorder.ends("MLPClassifier") == [("epoch", 0), ("epoch", 1), ("fit", 0)]
    assert recorder.calls[-1] == ("teardown", "MLPClassifier")


def test_what_fails_is_torn_down_and_files_and_clones_do_without(tmp_path):
    recorder = told()

    class Broken(Callback):
        def on_epoch_end(self, report):
            raise RuntimeError("broken")

    model = MLPClassifier(**QUICK, callbacks=[Broken()]).set_callbacks(recorder)
    with pytest.raises(RuntimeError, match="broken"):
        model.fit(X, Y)
    assert [call[0] for call in recorder.calls] == ["setup", "begin", "begin", "teardown"]
    model.set_params(callbacks=None).fit(X, Y)
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True)
    model.save(tmp_path / "model")
    loaded = combutab.load(tmp_path / "model")
    assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert not hasattr(loaded, "_skl_callbacks")
    lbfgs = told()
    with pytest.warns(ConvergenceWarning):
        MLPRegressor(solver="lbfgs", max_iter=3, random_state=0).set_callbacks(lbfgs).fit(X, Y)
    assert lbfgs.ends("MLPRegressor") == [("fit", 0)]


def test_their_own_callbacks_work(capsys):
    pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")
    from sklearn.callback import ProgressBar, ScoringMonitor

    monitor = ScoringMonitor(scoring="accuracy")
    model = MLPClassifier(**QUICK).set_callbacks(monitor, ProgressBar()).fit(X, Y)
    log = monitor.get_logs().data_as_pandas
    assert log["task_name"].tolist() == ["fit"] + ["epoch"] * 4
    assert log["accuracy"].iloc[0] == log["accuracy"].iloc[-1] == model.score(X, Y)
    assert "MLPClassifier - fit" in capsys.readouterr().out


def test_a_scikit_learn_without_callbacks_is_told_of_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.callback", None)
    spec = importlib.util.spec_from_file_location("older", tasks.__file__)
    older = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(older)

    class Net(older.CallbackSupport, BaseEstimator):
        pass

    assert not hasattr(Net(), "set_callbacks")
    assert not older.has_callbacks(Net())
    with older.fit_task(Net(), X, Y, n_parts=3) as task:
        assert task is None
