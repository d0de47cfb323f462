"""scikit-learn's HTML of an estimator shows what its fit found: facts, and curves."""

import re
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr

import combutab
from combutab import TVAE, MLPClassifier, MLPRegressor, PackClassifier
from combutab.training import Callback

pytestmark = pytest.mark.skipif(
    not hasattr(BaseEstimator, "_get_params_html"), reason="needs scikit-learn 1.7"
)
X, Y = load_iris(return_X_y=True)
QUICK = {"hidden_layer_sizes": (8,), "max_iter": 5, "n_iter_no_change": np.inf, "random_state": 0}
QUICK |= {"numeric_embedding": "none", "early_stopping": True}


@pytest.fixture(scope="module")
def model():
    return MLPClassifier(**QUICK, learning_rate_init=0.03).fit(X, Y)


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
    several = MLPRegressor(**QUICK | {"early_stopping": False}, n_members=2).fit(X, Y)
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
    class AtOnce(Callback):
        def on_train_begin(self, n_members, max_epochs):
            raise KeyboardInterrupt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lbfgs = MLPRegressor(solver="lbfgs", hidden_layer_sizes=(4,), max_iter=2).fit(X, Y)
        none = MLPRegressor(**QUICK, callbacks=[AtOnce()]).fit(X, Y)
    for estimator in (lbfgs, none):
        page = estimator._repr_html_()
        assert not curves(page)
        assert facts(page)["trained"] == f"{estimator.n_iter_} iterations"
