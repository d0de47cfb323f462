"""The figure of a pack."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression

from combutab import PackClassifier
from combutab.plotting import PackDisplay, plot_pack

X, Y = load_iris(return_X_y=True)
QUICK = {"n_members": 5, "max_iter": 3, "activations": ("relu", "$x_1$"), "random_state": 0}


@pytest.fixture
def pack():
    settings = {"member_params": {"hidden_layer_sizes": (8,)}, "activations": ("relu", "mish")}
    return PackClassifier(**QUICK | settings, cv=2).fit(X, Y)


def test_each_member_has_its_weight_and_its_loss(pack):
    pack.members_["activation"] = pack.members_["activation"].replace("mish", "$x_1$")
    figure = plot_pack(pack)
    weights, losses = figure.axes
    labels = [label.get_text() for label in weights.get_yticklabels()]
    members = pack.members_.set_index(
        pack.members_["activation"] + " " + pack.members_["member"].astype(str)
    )
    assert sorted(labels) == sorted(members.index)
    drawn = [bar.get_width() for bar in weights.patches]
    np.testing.assert_allclose(drawn, members.loc[labels, "weight"])
    places = losses.collections[0].get_offsets()
    np.testing.assert_allclose(places[:, 0], members.loc[labels, "validation_loss"])
    kinds = [label.split()[0] for label in labels]
    assert list(dict.fromkeys(kinds)) == pack.activation_weights_.index.tolist()
    assert len([k for k, before in zip(kinds[1:], kinds, strict=False) if k != before]) == 1
    lines = [line.get_xdata()[0] for line in losses.lines]
    assert lines == [pack.best_member_validation_loss_, pack.validation_loss_]
    figure.canvas.draw()  # a name is no formula


def test_a_pack_that_chose_by_no_rows_has_no_lines():
    rows = slice(None, None, 5)
    pack = PackClassifier(**QUICK | {"activations": ("relu",)}).fit(X[rows], Y[rows])
    figure = plot_pack(pack)
    assert not figure.axes[1].lines
    assert not figure.legends
    figure.canvas.draw()


def test_a_pack_must_be_fitted():
    with pytest.raises(ValueError, match="not fitted"):
        plot_pack(PackClassifier())


def test_a_display_of_a_pack_draws_in_the_users_axes(pack):
    axes = Figure().subplots(1, 2, sharey=True)
    display = PackDisplay.from_estimator(pack, ax=axes)
    assert display.axes_.tolist() == axes.tolist()
    assert display.ax_.get_xlabel() == "weight in the ensemble"
    assert len(axes[0].patches) == len(pack.members_)
    with pytest.raises(TypeError, match="got LinearRegression; use LossCurveDisplay"):
        PackDisplay.from_estimator(LinearRegression().fit(X, Y))
