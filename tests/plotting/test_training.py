"""The figures of how training went, and of a pack."""

import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPClassifier as TheirClassifier

from combutab import MLPClassifier, MLPRegressor, PackClassifier, TabFlow
from combutab.plotting import LossCurveDisplay, PackDisplay, plot_loss_curve, plot_pack

pytestmark = pytest.mark.usefixtures("few_trees")  # of packs

# ---- The figure of how training went ------------------------------------------------------------


X, Y = load_iris(return_X_y=True)

SMALL = {
    "hidden_layer_sizes": (8,),
    "activation": "relu",
    "learning_rate": "constant",
    "learning_rate_init": 0.05,
    "early_stopping": False,
    "early_stopping_scoring": "accuracy",
    "max_iter": 12,
    "n_iter_no_change": np.inf,
    "n_members": 1,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def several():
    """Members that end after different epochs."""
    settings = {**SMALL, "n_members": 3, "bagging": "cv", "n_iter_no_change": 1, "max_iter": 40}
    settings |= {"early_stopping_scoring": "neg_log_loss", "learning_rate_init": 0.2}
    return MLPClassifier(**settings).fit(X, Y)


def lines(axes):
    """The lines that are no single dot."""
    return [line for line in axes.lines if len(line.get_xdata()) > 1]


def dots(axes):
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
        for line in axes.lines
        if line.get_marker() == "o"
    ]


def test_members_mean_and_kept_epochs_are_drawn(several):
    figure = plot_loss_curve(several)
    history = several.history_
    lengths = history.groupby("member")["epoch"].max()
    assert lengths.nunique() > 1, "vacuous: all members end together"
    for axes, column in zip(figure.axes, ["train_loss", "validation_score"], strict=True):
        *members, mean = lines(axes)
        for member, line in enumerate(members):
            values = history.loc[history["member"] == member, column]
            drawn = line.get_ydata()
            np.testing.assert_array_equal(drawn[~np.isnan(drawn)], values)
        of_all = history[history["epoch"] <= lengths.min()]
        expected = of_all.groupby("epoch")[column].mean()
        np.testing.assert_allclose(mean.get_ydata(), expected)
        assert mean.get_xdata().tolist() == expected.index.tolist()
        assert mean.get_linewidth() > members[0].get_linewidth()
    rows = [own.loc[own["validation_score"].idxmax()] for _, own in history.groupby("member")]
    assert dots(figure.axes[1]) == [(row["epoch"], row["validation_score"]) for row in rows]
    assert dots(figure.axes[0]) == [(row["epoch"], row["train_loss"]) for row in rows]
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["a member", "mean of members", "epoch whose weights are kept"]


@pytest.mark.parametrize(
    ("cls", "scoring", "label"),
    [
        (MLPClassifier, None, "validation accuracy"),
        (MLPRegressor, None, "validation R²"),
        (MLPClassifier, "loss", "validation loss"),
        (MLPRegressor, "neg_mean_absolute_error", "validation neg_mean_absolute_error"),
    ],
)
def test_score_axis_has_its_name(cls, scoring, label):
    model = cls(**SMALL | {"early_stopping_scoring": scoring, "early_stopping": True}).fit(X, Y)
    figure = plot_loss_curve(model)
    assert figure.axes[1].get_ylabel() == label
    sign = -1 if scoring == "loss" else 1
    ((_, best),) = dots(figure.axes[1])
    assert best == sign * model.best_validation_score_
    np.testing.assert_array_equal(
        lines(figure.axes[1])[0].get_ydata(), sign * np.array(model.validation_scores_)
    )


def test_flow_draws_losses_of_two_networks():
    table = np.column_stack([X[:, 0], X[:, 0] + X[:, 1]])
    flow = TabFlow(
        (8,), epochs=40, early_stopping=True, n_iter_no_change=2, learning_rate=0.02, random_state=0
    ).fit(table)
    figure = plot_loss_curve(flow)
    labels = [axes.get_ylabel() for axes in figure.axes]
    parts = ["codes loss", "values loss"]
    assert labels == [*parts, *(f"validation {part}" for part in parts)]
    lengths = flow.history_[["codes_loss", "values_loss"]].notna().sum().tolist()
    assert lengths[0] != lengths[1], "vacuous: both networks end together"
    drawn = [int(np.isfinite(lines(axes)[0].get_ydata()).sum()) for axes in figure.axes]
    assert drawn == [*lengths, *lengths]
    assert not any(dots(axes) for axes in figure.axes)


def test_estimators_are_compared_with_and_without_scores(several):
    plain = MLPClassifier(**SMALL).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = TheirClassifier((8,), max_iter=5, random_state=0).fit(X, Y)
    figure = plot_loss_curve({"plain": plain, "bagged": several, "scikit-learn": theirs})
    assert [t.get_text() for t in figure.legends[0].get_texts()][:3] == [
        *("plain", "bagged", "scikit-learn")
    ]
    assert len(lines(figure.axes[0])) == 1 + 4 + 1
    assert lines(figure.axes[0])[-1].get_ydata().tolist() == theirs.loss_curve_
    assert len({line.get_color() for line in lines(figure.axes[0])}) == 3
    by_loss = MLPClassifier(**SMALL | {"early_stopping": True, "early_stopping_scoring": "loss"})
    mixed = plot_loss_curve([by_loss.fit(X, Y), several])
    assert mixed.axes[1].get_ylabel() == "validation score"
    assert lines(mixed.axes[1])[0].get_ydata().tolist() == by_loss.validation_scores_
    alone = plot_loss_curve(plain)
    assert [axes.get_ylabel() for axes in alone.axes] == ["training loss"]
    assert not alone.legends
    assert len(plot_loss_curve([plain, theirs]).legends[0].get_texts()) == 2


def test_what_cannot_be_drawn_is_told():
    with pytest.raises(NotFittedError):
        plot_loss_curve(MLPClassifier())
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_loss_curve({})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MLPClassifier(**SMALL | {"solver": "lbfgs"}).fit(X, Y)
    with pytest.raises(ValueError, match=r"'a'.*no epochs"):
        plot_loss_curve({"a": model})


# ---- the display ----------------------------------------


def test_a_display_draws_where_it_is_told(several):
    from matplotlib.figure import Figure

    display = LossCurveDisplay.from_estimator(several)
    assert display.ax_ is display.figure_.axes[0]
    assert display.axes_.tolist() == display.figure_.axes
    assert display._repr_png_().startswith(b"\x89PNG")
    figure = Figure()
    left, right = figure.subplots(1, 2)
    again = display.plot(ax=left)
    assert again is display
    assert display.figure_ is figure
    assert display._repr_png_() is None
    assert not figure.legends
    legend = display.ax_.get_legend()
    assert len(legend.get_texts()) == 3
    assert legend.get_window_extent().y0 >= display.ax_.bbox.y1
    first, second = display.axes_
    assert first.get_position().y0 > second.get_position().y1
    assert second.get_position().x1 < right.get_position().x0
    first.set_xlim(0, 3)
    assert second.get_xlim() == (0, 3)
    own = figure.subplots(2, 1)
    assert LossCurveDisplay.from_estimator(several, ax=own).axes_.tolist() == own.tolist()
    for wrong in (figure, own[:1], [figure, figure]):
        with pytest.raises(ValueError, match="ax must"):
            LossCurveDisplay.from_estimator(several, ax=wrong)
    with pytest.raises(ValueError, match=r"ax.*2 panels"):
        LossCurveDisplay.from_estimator(several, ax=figure.add_axes((0, 0, 1, 1)))


def test_packs_and_generators_have_their_losses_drawn():
    small = {"hidden_layer_sizes": (4,)}
    settings = {"n_members": 2, "max_iter": 3, "member_params": small, "random_state": 0}
    pack = PackClassifier(activations=["relu"], **settings).fit(X, Y)
    display = LossCurveDisplay.from_estimator(pack)
    assert [axes.get_ylabel() for axes in display.axes_] == ["training loss", "validation loss"]
    drawn = lines(display.axes_[1])[0].get_ydata()
    history = pack.history_[pack.history_["member"] == 0]
    np.testing.assert_allclose(drawn, history["validation_loss"])
    assert not dots(display.axes_[1])
    table = pd.DataFrame(X).assign(kind=Y.astype(str))
    flow = TabFlow(epochs=2, hidden_layer_sizes=(8,), random_state=0).fit(table)
    net = MLPClassifier(**SMALL).fit(X, Y)
    display = LossCurveDisplay.from_estimator({"flow": flow, "net": net})
    labels = [axes.get_ylabel() for axes in display.axes_]
    assert labels == ["codes loss", "values loss", "training loss"]
    assert [len(axes.lines) for axes in display.axes_] == [1, 1, 1]


# ---- The figure of a pack -----------------------------------------------------------------------


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
    changes = len([k for k, before in zip(kinds[1:], kinds, strict=False) if k != before])
    assert changes == len(set(kinds)) - 1
    lines = [line.get_xdata()[0] for line in losses.lines]
    assert lines == [pack.best_member_validation_loss_, pack.validation_loss_]
    figure.canvas.draw()  # a name is no formula


def test_pack_display_uses_given_axes(pack):
    axes = Figure().subplots(1, 2, sharey=True)
    display = PackDisplay.from_estimator(pack, ax=axes)
    assert display.axes_.tolist() == axes.tolist()
    assert display.ax_.get_xlabel() == "weight in the ensemble"
    assert len(axes[0].patches) == len(pack.members_)
    with pytest.raises(TypeError, match="got LinearRegression; LossCurveDisplay draws"):
        PackDisplay.from_estimator(LinearRegression().fit(X, Y))
