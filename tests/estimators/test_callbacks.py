"""What watches a fit: callbacks, ours and scikit-learn's, history, metrics, and its HTML."""

import importlib.util
import re
import sys
import warnings
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import (
    load_iris,
    make_classification,
    make_multilabel_classification,
    make_regression,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

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
from combutab.preprocessing import TableEncoder
from tests.models import Told

pytestmark = pytest.mark.usefixtures("paper_defaults")


INF = float("inf")


X, Y = load_iris(return_X_y=True)


QUICK = {"hidden_layer_sizes": (8,), "max_iter": 6, "n_iter_no_change": INF, "random_state": 0}


def test_ctrl_c_keeps_best_weights_with_a_warning():
    parameters = {**QUICK, "max_iter": 100, "learning_rate_init": 0.1, "hidden_layer_sizes": (16,)}
    recorder = Told(KeyboardInterrupt(), 30)
    model = MLPRegressor(**parameters, callbacks=[recorder])
    with pytest.warns(UserWarning, match="interrupted"):
        model.fit(X[::2], Y[::2], X_val=X[1::2], y_val=Y[1::2])
    assert model.n_iter_ == 30
    assert recorder.calls[-1] == "end"
    assert model.validation_scores_[-1] < model.best_validation_score_, "vacuous: last is best"
    assert_allclose(model.score(X[1::2], Y[1::2]), model.best_validation_score_, rtol=1e-5)


def test_ctrl_c_before_first_epoch_keeps_weights():
    with pytest.warns(UserWarning, match="interrupted by user"):
        first = MLPClassifier(**QUICK, callbacks=[Told(KeyboardInterrupt(), 0)]).fit(X, Y)
    assert first.predict(X).shape == (150,)
    assert first.n_iter_ == 0


# ---- history ----------------------------------------


def test_history_has_one_row_per_member_epoch():
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


# ---- track_metric: what the training batches were predicted as, epoch by epoch -------------------


def still(estimator, **params):
    """A network that hardly moves: what it does in training is what the fitted one does."""
    return estimator(
        hidden_layer_sizes=(8,), learning_rate_init=1e-12, dropout=0.0, alpha=0.0, batch_size=30,
        max_iter=2, n_iter_no_change=np.inf, random_state=0, track_metric=True, **params,
    )  # fmt: skip


@pytest.mark.parametrize("normalization", ["none", "layer"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_tracked_accuracy_is_that_of_the_training_rows(n_classes, normalization):
    X, y = make_classification(100, n_informative=4, n_classes=n_classes, random_state=0)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    for w in (None, weight):
        net = still(MLPClassifier, normalization=normalization).fit(X, y, w)
        assert net.history_["train_metric"].tolist() == pytest.approx(
            [net.score(X, y, w)] * 2, abs=1e-6
        )


def test_tracked_error_is_that_of_the_training_rows():
    X, y = make_regression(100, random_state=0)
    net = still(MLPRegressor).fit(X, y)
    expected = np.abs(net.predict(X) - y).mean() / y.std()
    assert net.history_["train_metric"].tolist() == pytest.approx([expected] * 2, rel=1e-5)


def test_tracked_multilabel_accuracy_is_subset_accuracy():
    X, y = make_multilabel_classification(100, n_classes=3, random_state=0)
    net = still(MLPClassifier).fit(X, y)
    assert net.history_["train_metric"].iloc[-1] == pytest.approx(net.score(X, y), abs=1e-6)


def test_tracking_is_optional_and_changes_no_weight():
    X, y = make_regression(60, random_state=0)
    net = MLPRegressor(hidden_layer_sizes=(8,), max_iter=3, n_iter_no_change=np.inf, random_state=0)
    off, on = clone(net).fit(X, y), clone(net).set_params(track_metric=True).fit(X, y)
    np.testing.assert_array_equal(on.coefs_[0], off.coefs_[0])
    assert off.history_["train_metric"].isna().all()


# ---- scikit-learn's callbacks are told of our fits, and of none where it has none ----------------


X, Y = load_iris(return_X_y=True)


WATCHED = QUICK | {"max_iter": 4, "learning_rate_init": 0.03, "numeric_embedding": "none"}
TINY_TVAE = {"epochs": 2, "compress_dims": (8,), "decompress_dims": (8,), "random_state": 0}


def recorder_of(*, within=False):
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


@pytest.mark.parametrize("early_stopping", [False, True])
def test_sklearn_callbacks_see_each_epoch(early_stopping):
    recorder, settings = recorder_of(), {**WATCHED, "early_stopping": early_stopping}
    model = MLPClassifier(**settings).set_callbacks(recorder).fit(X, Y, np.ones(150))
    parts = [(kind, "MLPClassifier", "epoch", i) for i in range(4) for kind in ("begin", "end")]
    root = ("MLPClassifier", "fit", 0)
    assert recorder.calls == [
        *[("setup", "MLPClassifier"), ("begin", *root), *parts, ("end", *root)],
        ("teardown", "MLPClassifier"),
    ]
    assert all(metadata["sample_weight"].sum() == 150 for metadata in recorder.metadata)
    for epochs in (1, 3):
        there = MLPClassifier(**settings, callbacks=[Told(stop=epochs)]).fit(X, Y, np.ones(150))
        assert_array_equal(recorder.fitted["epoch", epochs - 1], there.predict_proba(X))
    plain = MLPClassifier(**settings).fit(X, Y, np.ones(150))
    assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert_array_equal(recorder.fitted["fit", 0], plain.predict_proba(X))
    pd.testing.assert_frame_equal(model.history_, plain.history_)
    assert model.loss_curve_ == plain.loss_curve_


@pytest.mark.usefixtures("single_stacks")
def test_members_in_several_stacks_are_one_fit():
    recorder = recorder_of()
    model = MLPClassifier(**{**WATCHED, "max_iter": 2}, n_members=2).set_callbacks(recorder)
    model.fit(X, Y)
    assert recorder.ends("MLPClassifier") == [*(("epoch", i) for i in range(4)), ("fit", 0)]
    assert_array_equal(recorder.fitted["epoch", 3], model.predict_proba(X))
    recorder = recorder_of()
    recorder.stop_after = ("epoch", 0)
    model.set_callbacks(recorder).fit(X, Y)
    assert recorder.ends("MLPClassifier") == [("epoch", 0), ("epoch", 1), ("fit", 0)]
    assert model.n_iter_ == 1
    assert len(model._states) == 2


def test_sklearn_callbacks_in_searches_and_pipelines():
    recorder = recorder_of(within=True)
    pipeline = make_pipeline(TableEncoder(), StandardScaler(), MLPRegressor(**WATCHED))
    pipeline.set_callbacks(recorder).fit(X, Y)
    assert recorder.ends("TableEncoder") == [("fit", 0)]
    assert [task for task, _ in recorder.ends("MLPRegressor")] == ["epoch"] * 4 + ["fit"]
    assert not hasattr(pipeline[-1], "_skl_callbacks")
    net = MLPClassifier(**{**WATCHED, "max_iter": 2})
    search = GridSearchCV(net, {"alpha": [0.0, 1.0]}, cv=2, n_jobs=1)
    search.set_callbacks(recorder).fit(X, Y)
    assert recorder.ends("MLPClassifier").count(("epoch", 1)) == 2 * 2 + 1
    recorder = recorder_of()
    stacked = StackedGridSearchCV(clone(net.set_callbacks(recorder)), {"alpha": [0.0]}, cv=2)
    with pytest.warns(UserWarning, match="callbacks"):
        stacked.fit(X, Y)
    assert recorder.ends("MLPClassifier").count(("epoch", 1)) == 3


def test_sklearn_callbacks_in_packs_and_generators():
    recorder = recorder_of()
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
    recorder = recorder_of(within=True)
    holes = pd.DataFrame(X[::3], columns=list("abcd"))
    holes = holes.mask(np.random.default_rng(0).random(holes.shape) < 0.1)
    imputer = TabFlowImputer(TVAE(**TINY_TVAE), n_draws=1, random_state=0)
    pipeline = make_pipeline(imputer, TableEncoder()).set_callbacks(recorder).fit(holes)
    assert recorder.ends("TVAE") == [("epoch", 0), ("epoch", 1), ("fit", 0)]
    plain = clone(imputer).fit_transform(holes)
    pd.testing.assert_frame_equal(pipeline[0].transform(holes), plain)


def test_files_are_trained_on_epoch_by_epoch(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    recorder, table = recorder_of(), pd.DataFrame(X, columns=list("abcd"))
    table.assign(y=Y).to_parquet(tmp_path / "table.parquet", row_group_size=50)
    model = MLPClassifier(**{**WATCHED, "max_iter": 2}).set_callbacks(recorder)
    model.fit_parquet(tmp_path / "table.parquet", "y")
    assert recorder.ends("MLPClassifier") == [("epoch", 0), ("epoch", 1), ("fit", 0)]
    assert recorder.calls[-1] == ("teardown", "MLPClassifier")


def test_failed_fit_tears_callbacks_down(tmp_path):
    recorder = recorder_of()

    model = MLPClassifier(**WATCHED, callbacks=[Told(RuntimeError("broken"), 1)]).set_callbacks(
        recorder
    )
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
    lbfgs = recorder_of()
    with pytest.warns(ConvergenceWarning):
        MLPRegressor(solver="lbfgs", max_iter=3, random_state=0).set_callbacks(lbfgs).fit(X, Y)
    assert lbfgs.ends("MLPRegressor") == [("fit", 0)]


def test_their_own_callbacks_work(capsys):
    pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")
    from sklearn.callback import ProgressBar, ScoringMonitor

    monitor = ScoringMonitor(scoring="accuracy")
    model = MLPClassifier(**WATCHED).set_callbacks(monitor, ProgressBar()).fit(X, Y)
    log = monitor.get_logs().data_as_pandas
    assert log["task_name"].tolist() == ["fit"] + ["epoch"] * 4
    assert log["accuracy"].iloc[0] == log["accuracy"].iloc[-1] == model.score(X, Y)
    assert "MLPClassifier - fit" in capsys.readouterr().out


def test_older_scikit_learn_has_no_callbacks(monkeypatch):
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


# ---- scikit-learn's HTML of an estimator shows what its fit found: facts, and curves -------------


SHOWN = QUICK | {"max_iter": 5, "early_stopping": True, "early_stopping_scoring": "loss"}


@pytest.fixture(scope="module")
def model():
    return MLPClassifier(**SHOWN, learning_rate_init=0.03).fit(X, Y)


def facts(page):
    """Our table's rows, by name; the first table that is not in what is folded."""
    return dict(re.findall(r'<tr class="default"><td class="param">(.+?)</td><td>(.+?)</td>', page))


def curves(page):
    """(points, caption) of each drawing."""
    figures = [ElementTree.fromstring(each) for each in re.findall(r"<figure.+?</figure>", page)]
    return [
        (np.array([p.split(",") for p in f.find("svg/polyline").get("points").split()], float), f)
        for f in figures
    ]


def test_a_fitted_network_shows_facts_and_curves(model, tmp_path):
    page = estimator_html_repr(model)
    assert facts(page) == {"networks": "1", "units": "4 → 8 → 3", "trained": "5 epochs"}
    (train, first), (validation, second) = curves(page)
    loss, held_out = np.array(model.loss_curve_), -np.array(model.validation_scores_)
    for points, values in ((train, loss), (validation, held_out)):
        assert len(points) == 5
        assert (np.diff(points[:, 0]) > 0).all()
        assert np.corrcoef(points[:, 1], values)[0, 1] < -0.999  # y goes down
    best = int(held_out.argmin())
    dot = second.find("svg/circle")
    assert (float(dot.get("cx")), float(dot.get("cy"))) == tuple(validation[best])
    assert first.findtext("figcaption") == f"training loss: {loss[0]:.3g} → {loss[-1]:.3g}"
    kept = f"; kept is epoch {best + 1}: {held_out[best]:.3g}"
    assert second.findtext("figcaption").endswith(kept)
    assert "<summary>Parameters</summary>" in page, "scikit-learn's own is there as well"
    model.save(tmp_path / "model")
    assert facts(estimator_html_repr(combutab.load(tmp_path / "model"))) == facts(page)
    assert len(curves(make_pipeline(model)._repr_html_())) == 2
    assert not curves(estimator_html_repr(MLPClassifier()))


def test_members_packs_and_generators_show_theirs():
    several = MLPRegressor(**SHOWN | {"early_stopping": False}, n_members=2).fit(X, Y)
    page = several._repr_html_()
    assert facts(page)["networks"] == "2"
    ((_, figure),) = curves(page)
    means = several.history_.groupby("epoch")["train_loss"].mean()
    said = f"training loss, mean: {means[1]:.3g} → {means[5]:.3g}"
    assert figure.findtext("figcaption") == said
    small = {"hidden_layer_sizes": (4,)}
    names = ("relu", "mish")
    settings = {"n_members": 2, "max_iter": 2, "member_params": small, "random_state": 0}
    pack = PackClassifier(activations=names, **settings).fit(X, Y)
    pack.members_["activation"] = pack.members_["activation"].replace("relu", "<b>&")
    page = pack._repr_html_()
    shown = facts(page)
    assert f"{pack.validation_loss_:.3g}" in shown["validation loss"]
    assert "<b>&" not in page
    assert ("&lt;b&gt;&amp; " in shown["weight by activation"]) == (
        pack.activation_weights_["<b>&"] > 0
    )
    assert len(curves(page)) == 2
    tvae = TVAE(epochs=2, compress_dims=(4,), decompress_dims=(4,), random_state=0).fit(X)
    page = tvae._repr_html_()
    assert facts(page)["learned from"] == "150 rows x 4 columns"
    assert len(curves(page)) == 1


def test_what_has_no_epochs_is_shown_without_curves():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lbfgs = MLPRegressor(solver="lbfgs", hidden_layer_sizes=(4,), max_iter=2).fit(X, Y)
        none = MLPRegressor(**SHOWN, callbacks=[Told(KeyboardInterrupt(), 0)]).fit(X, Y)
    for estimator in (lbfgs, none):
        page = estimator._repr_html_()
        assert not curves(page)
        assert facts(page)["trained"] == f"{estimator.n_iter_} iterations"
